"""The cost of execution modes: the thesis's own equations come out, and counts agree with the launches and with the schedule."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from each_case import each
from shell import Shell

from bilinear.backends.bound_launches import grid_blocks, launch_values
from bilinear.ir.kernel import LinearKernel, ProductKernel
from bilinear.ir.launch import Launch
from bilinear.ir.placement import ALIKE, ITEMS, KERNELS, MODES, Placement
from bilinear.ir.schedule import LinearStage
from bilinear.measure import mode_costs
from bilinear.measure.mode_costs import ModeRates, Steps, extended_seconds, published, published_seconds, stages_of, steps_of, traffic_of
from bilinear.planner.device_files import load_device

KEPLER = ModeRates(13, 192, 16, 13.0, 0.0, 1.0, 0.0, (), ())
"""The thesis's parameters of a Kepler K20 (section 4.2): 13 multiprocessors, 192 items alike or 16 that are not, L_g = 13, B = 1."""
ITERATIONS = ((1, 512), (7, 256), (49, 128))
"""The blocks of A (and of B) that an iteration decomposes, and the extent of its results, for 1024 x 1024."""
PILOTED = ModeRates(
    132, 1024, 16, 0.5, 0.0, 0.25, 1.5, (("S-M-T", 9e3), ("S-T-M", 5e3), ("M-M-M", 6e3)), (("float64", 12.0), ("float32", 24.0))
)
"""Rates of no device, for counts."""
TABLES = {
    "S-M-T, table 4.2": [Steps(blocks, 7, extent**2, 1, alike=False) for blocks, extent in ITERATIONS],
    "S-T-M, table 4.3": [Steps(7, blocks, extent**2, 1) for blocks, extent in ITERATIONS],
    "S-M-M, table 4.4": [Steps(blocks, 1024, extent**2 // 1024, 7) for blocks, extent in ITERATIONS],
    "M-M-M, table 5.1": [Steps(7 * blocks, 1024, extent**2 // 1024, 1) for blocks, extent in ITERATIONS],
}
EQUATIONS = {
    "S-M-T, table 4.2": (12, 12, 512**2 * 2 + 256**2 * 2 + 128**2 * 8),  # equation 4.4
    "S-T-M, table 4.3": (6, 6, 512**2 * 2 + 256**2 * 2 + 128**2 * 2),  # 4.5; the table's 4 steps of 7 groups are not in it, nor 4.2's
    "S-M-M, table 4.4": (12, 72, (256 * 12 + 64 * 12 + 16 * 48) * 7),  # 4.6
    "M-M-M, table 5.1": (64, 384, 256 * 12 + 64 * 48 + 16 * 324),  # 5.1
}


@pytest.mark.parametrize("table", TABLES)
def test_the_equations_of_the_thesis_come_out(table: str) -> None:
    """A and B are decomposed one after the other, in three iterations."""
    kernels = 2 * TABLES[table]
    counts = [
        published(kernels, replace(KEPLER, group=g, item=i, single=b)) for g, i, b in ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    ]
    assert tuple(counts) == EQUATIONS[table]
    groups, _, calculations = EQUATIONS[table]
    assert published(kernels, KEPLER) == 13 * groups + calculations


def test_several_kernels_at_once_are_fastest_in_theory() -> None:
    """The order of the thesis's figure 5.3 at 1024."""
    times = {table: published(2 * kernels, KEPLER) for table, kernels in TABLES.items()}
    assert sorted(times, key=times.__getitem__) == ["M-M-M, table 5.1", "S-M-M, table 4.4", "S-T-M, table 4.3", "S-M-T, table 4.2"]


def placed(name: str, levels: int, mode: str, size: int, dtype: str = "float32") -> tuple[tuple[Launch, ...], Placement]:
    return mode_costs.placed(mode, dtype, (size,) * 3, name, levels)


@each("mode", MODES)
@each(("name", "levels", "size"), [("strassen", 2, 300), ("laderman", 1, 333)])
def test_groups_and_items_are_those_that_are_launched(name: str, levels: int, size: int, mode: str) -> None:
    launches, placement = placed(name, levels, mode, size)
    values = launch_values(placement, {}, 1, 0, lambda array: array)
    for stage in stages_of(launches):
        if isinstance(stage[0].kernel, ProductKernel):
            continue
        blocks = [x * y for x, y in (grid_blocks(launch.grid, values) for launch in stage)]
        found = steps_of(stage, placement)
        assert [steps.groups for steps in found] == ([sum(blocks)] if mode == KERNELS else blocks)
        for steps, launch in zip(found, stage, strict=False):
            assert steps.alike == (mode != ITEMS)
            assert steps.items == (launch.kernel.rows if mode == ITEMS else 256)
            assert steps.calculations == 1 or mode in ("stage", ALIKE)


@each("mode", MODES)
@each(("name", "levels"), [("strassen", 2), ("laderman", 1), ("winograd", 1)])
def test_traffic_is_that_of_the_maps(name: str, levels: int, mode: str) -> None:
    """What is read first and written is the same in every mode; a task reads each term of its form."""
    launches, placement = placed(name, levels, mode, 432)
    block = 4 * placement.block[0] ** 2
    for stage, own in zip(placement.schedule.stages, stages_of(launches), strict=True):
        if not isinstance(stage, LinearStage):
            continue
        sources = {source for m in stage.maps for source in m.sources}
        targets = sum(len(m.targets) for m in stage.maps)
        terms = sum(len(row) for m in stage.maps for row in m.map.matrix)
        by_part, again = traffic_of(own, placement, "float32")
        assert sum(moved for _, moved in by_part) == block * (len(sources) + targets)
        assert again == (0 if mode in ("stage", ALIKE) else block * (terms - len(sources)))


def test_the_extension_adds_kernels_and_bytes_up() -> None:
    device, rates = load_device("h200"), replace(PILOTED, group=0.0)
    launches, placement = placed("strassen", 1, KERNELS, 4096)
    expansion, products, _ = extended_seconds(launches, placement, "float32", device, rates)
    block = 4 * 2048**2
    first, written, again = 8 * block, 10 * block, 12 * block  # five forms of two blocks, of A and of B, whose every block is read
    memory = (first + written) / (0.81 * 4280e9)  # three streams reach 81 % of the bandwidth
    assert expansion == pytest.approx((3.688 + 9 * 1.5) * 1e-6 + memory + again / 6e12)
    whole, _ = placed("strassen", 1, "stage", 4096)
    assert products == pytest.approx(extended_seconds(whole, placement, "float32", device, rates)[1] + 6 * 1.5e-6)
    slow = replace(PILOTED, group=100.0)
    steps = sum(-(-launch.grid.y * 2048 // 8 * 2048 // 128 // 132) for launch in launches[:1])
    assert extended_seconds(launches, placement, "float32", device, slow)[0] >= steps * 100e-6, (
        "the time to start blocks, if that is longer"
    )


def test_a_mode_of_kernels_one_after_the_other_pays_for_each() -> None:
    launches, placement = placed("strassen", 2, ALIKE, 96)
    times = extended_seconds(launches, placement, "float32", load_device("h200"), PILOTED)
    for stage, time in zip(stages_of(launches), times, strict=True):
        if isinstance(stage[0].kernel, LinearKernel):
            assert time >= len(stage) * 3.688e-6


def test_products_of_a_warp_take_the_rate_of_its_tile() -> None:
    launches, placement = placed("strassen", 1, ITEMS, 2048, "float64")
    times = extended_seconds(launches, placement, "float64", load_device("h200"), PILOTED)
    (number,) = (i for i, stage in enumerate(stages_of(launches)) if isinstance(stage[0].kernel, ProductKernel))
    assert times[number] == pytest.approx(7 * 2 * 1024**3 / 12e12 + 3.688e-6)


def test_only_sums_of_blocks_have_a_published_time() -> None:
    launches, placement = placed("strassen", 1, ALIKE, 2048)
    decompose, products, recompose = published_seconds(launches, placement, PILOTED)
    assert products is None and recompose is not None
    groups = 1024 * 1024 // (8 * 32 * 4)  # a tile of 8 rows and 32 threads, each with four floats of every block
    steps = -(-groups // 132)
    assert decompose == pytest.approx(2 * steps * (0.5 + 0.25 * 4 * 5) * 1e-6), "of A, then of B; a thread forms five blocks"


def test_the_command_tells_predicted_and_measured_times(shell: Shell) -> None:
    """Beside what the drawn results hold for N = 1536; no other shape, and no other GPU, was measured."""
    plan = "plan", "--modes", "--levels", "strassen,strassen", "--dtype", "float32"
    rows = json.loads(shell(*plan, "--shape", "1536", "--device", "h200", "--json")[1])["rows"]
    kept = json.loads((Path(__file__).parent.parent / "benchmarks" / "results" / "modes-h200.json").read_text())["rows"]
    wanted = {row["mode"]: row for row in kept if (row.get("size"), row.get("dtype"), row.get("levels")) == (1536, "float32", 2)}
    assert [row["mode"] for row in rows] == list(MODES)
    for row in rows:
        assert (row["launched"], row["graph"]) == (wanted[row["mode"]]["us"], wanted[row["mode"]]["graph"])
        assert row["extended"] == pytest.approx(row["graph"], rel=0.15)
    code, out, _ = shell(*plan, "--shape", "1536x768x1536", "--device", "h200")
    assert (code, out.count(" - ")) == (0, len(MODES))
    for others, wrong in (
        (("--device", "a100"), "E541"),
        (("--device", "h200", "--gram"), "E557"),
        (("--device", "h200", "--levels", "strassen,winograd"), "E557"),
    ):
        code, _, err = shell(*plan, "--shape", "1536", *others)
        assert (code, f"error[{wrong}]" in err) == (1, True), err
