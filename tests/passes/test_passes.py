"""Passes: what they promise, counted, and checked by exact execution."""

from __future__ import annotations

import pytest
from oracle import computes

from bilinear.algebra.fold_bases import fold_bases
from bilinear.analysis.block_maps import components
from bilinear.frontend import load, parse_source
from bilinear.ir.schedule import BETA, LinearStage, ProductStage, Schedule
from bilinear.lowering.prepare import prepare, runnable
from bilinear.passes.colour_products import colours
from bilinear.passes.fuse_linear_stages import fuse_linear_stages
from bilinear.passes.nest_levels import nest_levels
from bilinear.source import Source

SCHEMES = ("naive2x2", "strassen", "winograd", "laderman", "hopcroft_kerr", "karstadt_schwartz", "winograd_223")


def traffic(schedule: Schedule) -> float:
    """Blocks that the linear stages read and write, in units of N*N elements of a square problem."""
    maps = [m for stage in schedule.stages if isinstance(stage, LinearStage) for m in stage.maps]
    return sum(len(m.sources) + len(m.targets) for m in maps) / (schedule.m * schedule.k)


def msmes() -> Schedule:
    schedule = load("msmes").schedule
    assert isinstance(schedule, Schedule)
    return schedule


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("levels", [1, 2])
def test_the_three_phases_compute_the_product(name: str, levels: int) -> None:
    loaded = load(name)
    prepared = prepare(loaded.scheme, None, levels, "preserve")
    assert computes(prepared.schedule, trials=1)
    assert prepared.schedule_proof.restored == ("A", "B")
    written = {t.space for stage in prepared.schedule.stages if isinstance(stage, LinearStage) for m in stage.maps for t in m.targets}
    assert not written & {"A", "B"}


def test_consumed_inputs_skip_the_restoration() -> None:
    loaded = load("msmes")
    kept, consumed = (prepare(loaded.scheme, loaded.schedule, 1, inputs).schedule for inputs in ("restore", "consume"))
    assert len(consumed.stages) == len(kept.stages) - 1
    assert computes(consumed)


def test_fusing_leaves_three_maps_and_two_product_stages_of_msmes() -> None:
    kinds = [type(stage) for stage in fuse_linear_stages(msmes()).stages]
    assert kinds == [LinearStage, ProductStage, LinearStage, ProductStage, LinearStage]


def test_traffic_of_msmes_falls_below_the_unfused_counts() -> None:
    assert traffic(fuse_linear_stages(msmes())) == 10
    assert traffic(fuse_linear_stages(nest_levels([msmes()] * 2))) <= 18.25
    assert traffic(fuse_linear_stages(nest_levels([msmes()] * 3))) <= 33.4


def test_fusing_changes_no_value() -> None:
    for levels in (1, 2):
        nested = nest_levels([msmes()] * levels)
        assert computes(runnable(nested), trials=1)
        assert computes(runnable(fuse_linear_stages(nested)), trials=1)


def test_the_first_product_stage_of_msmes_has_two_colours() -> None:
    stage = msmes().stages[1]
    assert isinstance(stage, ProductStage)
    first, second = colours(stage)
    assert first == (stage.products[0], stage.products[3])
    assert second == (stage.products[1], stage.products[2])


@pytest.mark.parametrize(("levels", "groups"), [(1, [2, 2]), (2, [4, 4, 4, 4]), (3, [8] * 8)])
def test_colours_multiply_with_the_levels(levels: int, groups: list[int]) -> None:
    stages = [s for s in nest_levels([msmes()] * levels).stages if isinstance(s, ProductStage)]
    assert [len(colours(stage)) for stage in stages] == [2**levels] * len(stages)
    assert [len(group) for group in colours(stages[0])] == groups


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_a_colour_adds_to_no_block_twice_and_every_block_has_one_first_write(levels: int) -> None:
    loaded = load("msmes")
    schedule = prepare(loaded.scheme, loaded.schedule, levels, "restore").schedule
    firsts = []
    for stage in schedule.stages:
        if isinstance(stage, ProductStage):
            targets = [t.block for p in stage.products for t in p.targets]
            assert len(targets) == len(set(targets))
            firsts += [t.block for p in stage.products for t in p.targets if t.kept == BETA]
    assert sorted(firsts) == sorted(schedule.space("C").blocks)


def test_parts_of_a_map_share_no_written_block() -> None:
    for levels in (1, 2):
        for stage in fuse_linear_stages(nest_levels([msmes()] * levels)).stages:
            if isinstance(stage, LinearStage):
                for block_map in stage.maps:
                    parts = components(block_map)
                    written = [set(part.targets) for part in parts]
                    read = [set(part.sources) for part in parts]
                    for i, targets in enumerate(written):
                        assert not any(targets & (written[j] | read[j]) for j in range(len(parts)) if j != i)


def test_folding_bases_keeps_the_tables_and_the_shared_sums() -> None:
    text = """scheme x <1,2,1;2>
      basis A { A11 += 2 A12 }
      basis B { B21 -= 2 B11 }
      basis C { C11 = 1/2 C11 }
      M1 = A11*B11 ; M2 = A12*B21 ; C11 = 2 M1 + 2 M2"""
    scheme = parse_source(Source("x.bl", text)).schemes[0]
    folded = fold_bases(scheme)
    assert folded.bases is None and folded.tables == scheme.tables
    assert folded.u.steps == (((0, 1), (1, 2)),)
    assert computes(prepare(scheme, None, 2, "preserve").schedule, trials=1)
