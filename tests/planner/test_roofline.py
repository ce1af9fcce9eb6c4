"""Plans beside the bounds of a device, which no classical plan is below, and a thin product's kernel beside the models of streaming."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest
from each_case import each
from shell import Shell

from bilinear.analysis.traffic import ARITHMETIC, LATENCY, MEMORY, fitting_side, operand_reads
from bilinear.frontend import load
from bilinear.ir.element import ELEMENTS, IN_ARRAYS
from bilinear.ir.schedule import LinearStage, Schedule
from bilinear.ir.thin_tile import THIN_TILES, ThinTile, ThinTriplesTile
from bilinear.lowering.prepare import prepare
from bilinear.methods.planning import make_plan, pinned_plan, plan_from_json
from bilinear.methods.thin.choice import kind_of, thin_of, view_of
from bilinear.planner.device_files import load_device
from bilinear.planner.plan import LIBRARY, Plan
from bilinear.planner.problem import Problem
from bilinear.planner.roofline import Roofline, roofline, streaming
from bilinear.reporting.plans import explained_json, roofline_table, streaming_table

H200 = replace(load_device("h200"), digits=())  # the bounds are those of the units of the type


def of(plan: Plan, **candidate: Any) -> Roofline:
    """The roofline of a plan, or of its first candidate with these values."""
    found = [c for c in plan.candidates if all(getattr(c, name) == value for name, value in candidate.items())]
    return roofline(replace(plan, candidates=(found[0],)), H200)


def moved(schedule: Schedule, n: int, side: int) -> int:
    """Elements that the stages of a schedule move on n x n matrices that its grid divides, counted block by block."""
    size = {"A": n * n // (schedule.m * schedule.k), "B": n * n // (schedule.k * schedule.n), "C": n * n // (schedule.m * schedule.n)}
    block = n // schedule.m, n // schedule.k, n // schedule.n
    total = 0
    for stage in schedule.stages:
        if isinstance(stage, LinearStage):
            total += sum(size[schedule.space(block.space).shape] for own in stage.maps for block in own.sources + own.targets)
            continue
        for one in stage.products:
            total += operand_reads(block, side, side) + sum(2 if target.kept == 1 else 1 for target in one.targets) * size["C"]
    return total


@each(
    ("levels", "inputs", "saved"),
    [
        (("winograd",), "preserve", 7 / 8),
        (("winograd", "winograd"), "preserve", 49 / 64),
        (("strassen",), "preserve", 7 / 8),
        (("dps_444",), "preserve", 48 / 64),
        (("msmes",), "restore", 7 / 8),
        (("classical",), "preserve", 1),
    ],
)
@each("n", [1024, 16384])
def test_a_plan_moves_what_its_stages_move(levels: tuple[str, ...], inputs: str, saved: float, n: int) -> None:
    found = of(pinned_plan(Problem(n, n, n, inputs=inputs), H200, levels), levels=levels)
    loaded = load(levels[0])
    schedule = prepare(loaded.scheme, loaded.schedule, len(levels), inputs).schedule
    scanned = 2 * n * n if inputs == "restore" else 0
    assert found.traffic == 8 * (moved(schedule, n, found.fitting_side) + scanned)
    assert found.operations == saved * 2 * n**3
    assert found.is_proved == (saved == 1)


def test_what_the_grid_does_not_divide_is_moved_too() -> None:
    """The last row and the last column of C, and the last terms of all its other elements, to which the core is added."""
    n = 4000
    even, odd = (of(pinned_plan(Problem(size, size, size), H200, ("winograd",)), levels=("winograd",)) for size in (n, n + 1))
    assert odd.operations - even.operations == 2 * ((n + 1) ** 3 - n**3)
    passes = -(-(n + 1) // even.fitting_side)
    row = (n + 1) * passes + (n + 1) ** 2 + (n + 1)  # the row of A for each column of tiles, all of B, the row of C
    column = n * (n + 1) + (n + 1) * passes + n
    terms = 2 * n * passes + 2 * n * n  # a column of A, a row of B, and C, written here and read again
    assert odd.traffic - even.traffic == 8 * (row + column + terms)


def test_split_sums_are_written_and_read_again() -> None:
    plan = make_plan(Problem(8, 10**6, 8), H200, explain=True)
    tiles = [c for c in plan.candidates if c.strategy == "thin"]
    parts = next(thin_of(c).parts for c in tiles if thin_of(c).parts > 1)
    whole, split = (of(replace(plan, candidates=tuple(c for c in tiles if thin_of(c).parts == count))) for count in (1, parts))
    assert whole.traffic == 8 * (2 * 8 * 10**6 + 64) and split.traffic == whole.traffic + 8 * 2 * parts * 64


def test_a_product_that_is_added_reads_what_it_adds_to() -> None:
    once, twice = (of(make_plan(Problem(64, 64, 64, accumulate=adds), H200), strategy=LIBRARY) for adds in (False, True))
    assert twice.traffic - once.traffic == 64 * 64 * 8


@each("dtype", IN_ARRAYS)
@each("column_major", [(), ("C",)])
@each("extents", [(16384,) * 3, (20000, 300, 20000), (1, 1, 1), (10**6, 8, 8), (8, 10**6, 8), (5000, 70_000, 3000), (257, 255, 4)])
def test_no_plan_is_better_than_the_bounds(extents: tuple[int, int, int], column_major: tuple[str, ...], dtype: str) -> None:
    for inputs, workspace in (("preserve", None), ("preserve", 0), ("restore", 0)):
        plan = make_plan(Problem(*extents, dtype, inputs, workspace, column_major=column_major), H200)
        found, m = roofline(plan, H200), extents[0] * extents[1] * extents[2]
        assert found.factor >= 1 and (found.is_proved or found.omega < 3)
        assert found.intensity * found.traffic == pytest.approx(found.operations)
        assert found.intensity <= found.highest_intensity * (1 + 1e-12)
        assert found.operations == 2 * m if found.is_proved else 2 * m / 2 < found.operations < 2 * m
        if found.bound_by == LATENCY:
            assert plan.chosen.ms is not None and max(found.traffic / found.bandwidth, found.operations / found.rate) < plan.chosen.ms / 2e3
        elif plan.chosen.strategy != "thin":
            assert found.bound_by == (MEMORY if found.intensity < found.balance else ARITHMETIC)


def test_thin_products_are_bound_by_memory_and_large_ones_by_arithmetic() -> None:
    for extents, bound_by in (((10**6, 8, 8), MEMORY), ((20480, 20480, 2), MEMORY), ((8192,) * 3, ARITHMETIC)):
        assert roofline(make_plan(Problem(*extents), H200), H200).bound_by == bound_by


def test_parts_of_c_are_added_up() -> None:
    """Temporaries in C: each part reads its rows of A, and all of B."""
    for column_major in ((), ("A", "B", "C")):
        plan = make_plan(Problem(16384, 16384, 16384, workspace=0, column_major=column_major), H200)
        assert plan.chosen.rest
        found, classical = roofline(plan, H200), of(plan, strategy=LIBRARY)
        assert 0.8 < found.operations / classical.operations < 0.95
        assert found.traffic > classical.traffic and 2.8 < found.omega < 2.81


def test_a_smaller_cache_is_passed_more_often() -> None:
    plan = make_plan(Problem(8192, 8192, 8192, workspace=0), H200)
    traffic = [roofline(plan, replace(H200, l2=size)).traffic for size in (2**26, 2**22, 2**18, 1)]
    assert traffic == sorted(traffic) and len(set(traffic)) == 4
    assert roofline(plan, replace(H200, l2=1)).fitting_side == fitting_side(1) == 1


def test_the_lines_that_are_printed() -> None:
    found = roofline(make_plan(Problem(8192, 8192, 8192, workspace=0), H200), H200)
    assert roofline_table(found).splitlines() == [
        "intensity  157.5 FLOP/byte  682.7 if the classical product moves each element once",
        "balance    13.1 FLOP/byte   56.2 TFLOP/s, 4280 GB/s",
        "bound by   arithmetic       intensity and balance are 12.0 times apart",
        "traffic    6.50 GiB         2.10 times the least, 3.10 GiB",
        "cache      50.00 MiB        holds three square tiles of side 1478; side 106 reaches the balance",
    ]
    fast = roofline(make_plan(Problem(8192, 8192, 8192), H200), H200)
    assert "times the least in its order (omega 2.797)" in roofline_table(fast)


def test_json_has_the_figures_and_is_a_plan(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    described = load_device("h200")
    plan = make_plan(Problem(2048, 2048, 2048), described, explain=True)
    text = explained_json(plan, roofline(plan, described))
    assert plan_from_json(text, "plan.json") == plan
    shell = Shell(monkeypatch, capsys, "plan", "--shape", "2048", "--device", "h200")
    found = shell.json("--explain")
    assert found == json.loads(text) and found["roofline"]["bound_by"] == ARITHMETIC
    assert "roofline" not in shell.json()
    assert shell("--explain")[1].endswith(roofline_table(roofline(plan, described)) + "\n")
    assert "FLOP/byte" not in shell()[1]


MEASURED = load_device("h200")


def test_long_matrices_keep_memory_busy_and_short_ones_wait_for_it() -> None:
    plan = make_plan(Problem(10_000_000, 8, 8, "float32"), MEASURED)
    long = streaming(plan, MEASURED)
    assert long is not None and long.bound_by == MEMORY and long.share > 0.5
    tile, rates = THIN_TILES["float32"][plan.chosen.tile], MEASURED.thin_rates("float32")
    assert rates is not None
    assert long.under_way % (long.blocks * (tile.stages - 1) * ELEMENTS["float32"].bytes) == 0
    reading = (8 * 10_000_000 + 64) / (2 * 8 * 10_000_000 + 64)  # C is written meanwhile
    assert long.needed == pytest.approx(reading * MEASURED.bandwidth * 1e9 / MEASURED.processors * rates.latency * 1e-6, rel=1e-4)
    explained = make_plan(Problem(2_000, 8, 8, "float32"), MEASURED, True)
    thin = next(c for c in explained.candidates if c.strategy == "thin")
    short = streaming(_with(explained, thin), MEASURED)
    assert short is not None and short.bound_by == LATENCY and short.blocks == 1


def test_many_columns_are_bound_by_arithmetic() -> None:
    explained = make_plan(Problem(100_000, 4_096, 64, "float32"), MEASURED, True)
    wide = [c for c in explained.candidates if c.strategy == "thin" and THIN_TILES["float32"][c.tile].n >= 64]
    on_pipes = next(c for c in wide if isinstance(THIN_TILES["float32"][c.tile], ThinTile))
    found = streaming(_with(explained, on_pipes), MEASURED)
    assert found is not None and found.bound_by == ARITHMETIC and 20 < found.threshold < 64
    by_digits = next(c for c in wide if isinstance(THIN_TILES["float32"][c.tile], ThinTriplesTile))
    faster = streaming(_with(explained, by_digits), MEASURED)
    assert faster is not None and faster.threshold > 64


@pytest.mark.parametrize(
    ("shape", "dtype"), [((932_969, 14, 33), "float64"), ((29, 1, 2_990_410), "float64"), ((1_000_000, 60, 60), "float32")]
)
def test_what_may_be_read_is_not_less_than_what_is_predicted(shape: tuple[int, int, int], dtype: str) -> None:
    plan = make_plan(Problem(*shape, dtype), MEASURED)
    found, bounds = streaming(plan, MEASURED), roofline(plan, MEASURED)
    assert found is not None and plan.chosen.ms is not None and found.bound_by == bounds.bound_by == MEMORY
    assert found.share >= bounds.traffic / (MEASURED.bandwidth * 1e9) / (plan.chosen.ms * 1e-3)


@each(
    ("shape", "kind"),
    [
        ((20_480, 20_480, 8), "large x tall-and-skinny (TSM2R)"),
        ((8, 20_480, 20_480), "large x tall-and-skinny (TSM2R)"),
        ((10**6, 8, 16), "tall-and-skinny x small (TSM2L)"),
        ((16, 10**6, 8), "A^T B of two tall-and-skinny matrices"),
        ((5_000, 8, 6_000), "update of low rank"),
        ((64, 64, 64), "small matrices"),
    ],
)
def test_the_kind_is_named(shape: tuple[int, int, int], kind: str) -> None:
    tile = next(iter(THIN_TILES["float32"].values()))
    assert kind_of(view_of(Problem(*shape), tile)) == kind


@pytest.mark.parametrize("shape", [(2_000, 500, 8), (64, 64, 64), (10_000, 8, 8)])
def test_a_plan_of_a_few_microseconds_is_bound_by_latency(shape: tuple[int, int, int]) -> None:
    assert roofline(make_plan(Problem(*shape, "float32"), MEASURED), MEASURED).bound_by == LATENCY


def test_other_plans_have_no_such_figures() -> None:
    assert streaming(make_plan(Problem(4096, 4096, 4096, "float32"), MEASURED), MEASURED) is None


def test_plan_explain_prints_them(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    plan = make_plan(Problem(1_000_000, 8, 8, "float32"), MEASURED, True)
    found = streaming(plan, MEASURED)
    assert found is not None
    shell = Shell(monkeypatch, capsys, "plan", "--shape", "1000000,8,8", "--dtype", "float32", "--device", "h200")
    assert shell("--explain")[1].endswith(streaming_table(found) + "\n")
    explained = shell.json("--explain")
    assert explained["roofline"]["streaming"] == asdict(found) and plan_from_json(json.dumps(explained), "plan.json") == plan
    assert "roofline" not in shell.json() and "Little" not in shell()[1]


def _with(plan: Any, chosen: Any) -> Any:
    return replace(plan, candidates=(chosen, *(c for c in plan.candidates if c is not chosen)))
