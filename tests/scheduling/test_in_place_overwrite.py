"""In-place schedules that are shipped, and those that overwrite C: proved, executed exactly, written and read again, and cheaper."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest
from each_case import each
from oracle import computes
from shell import Shell

from bilinear.errors import BilinearError
from bilinear.frontend import Loaded, load, parse_source
from bilinear.frontend.printer import print_schedule, print_scheme
from bilinear.ir.schedule import Block, LinearStage, ProductStage, Schedule
from bilinear.lowering.prepare import runnable
from bilinear.passes.drop_restoration import drop_restoration
from bilinear.passes.fuse_linear_stages import fuse_linear_stages
from bilinear.passes.nest_levels import nest_levels
from bilinear.resources import algorithms_folder
from bilinear.scheduling.in_place.find import find_in_place
from bilinear.scheduling.in_place.partitions import StageProgress
from bilinear.scheduling.in_place.walks import OperandSide, SumSearch
from bilinear.scheduling.scaling import explicit_in_place
from bilinear.source import Source
from bilinear.verify.schedule import prove_schedule

OPTIONS: list[dict[str, object]] = [
    {},
    {"keep": ("A",)},
    {"keep": ("B",)},
    {"temporaries": 1},
    {"temporaries": 1, "keep": ("A", "B")},
    {"consume": True},
    {"scratch": ("A",)},
]


CASES = [*(("winograd", options) for options in OPTIONS), ("naive2x2", {}), ("hopcroft_kerr", OPTIONS[1]), ("laderman", OPTIONS[4])]


@lru_cache(maxsize=32)
def found(name: str, seconds: float = 0.0, **options: object) -> tuple[Schedule, StageProgress]:
    """What a search without time finds, unless it is given some."""
    told: list[StageProgress] = []
    schedule = find_in_place(load(name).scheme, overwrite=True, seconds=seconds, progress=told.append, **options)  # type: ignore[arg-type]
    return schedule, told[-1]


def written(schedule: Schedule) -> set[str]:
    return {t.space for s in schedule.stages if isinstance(s, LinearStage) for m in s.maps for t in m.targets}


@pytest.mark.sample(4)
@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_what_is_found_computes_the_product_and_is_proved(name: str, options: dict[str, object]) -> None:
    schedule, _ = found(name, **options)
    assert schedule.overwrites and schedule.restores == (() if options.get("consume") and name != "naive2x2" else ("A", "B"))
    assert computes(schedule, trials=2)
    assert prove_schedule(schedule, load(name).scheme).holds


@each("options", OPTIONS)
def test_what_is_found_is_written_and_read_again(options: dict[str, object]) -> None:
    scheme, schedule = load("winograd").scheme, explicit_in_place(found("winograd", **options)[0])
    (again,) = parse_source(Source("found.bl", print_scheme(scheme) + print_schedule(schedule))).schedules
    assert again == schedule
    proof = prove_schedule(again, scheme)
    assert proof.holds and print_schedule(schedule).startswith("schedule winograd-overwriting of winograd: C = A*B")
    assert proof.restored == schedule.restores


@pytest.mark.slow
def test_scratch_saves_additions_and_traffic() -> None:
    _, overwrites = found("winograd", math.inf)
    assert (overwrites.stages, overwrites.additions, overwrites.traffic) == (2, 14, 33), "where it adds to C: 2, 15, 36"


@pytest.mark.slow
def test_with_scratch_winograd_runs_with_a_never_written_and_nothing_allocated() -> None:
    schedule, told = found("winograd", math.inf, keep=("A",))
    assert not schedule.workspaces and written(schedule) == {"B", "C"}
    assert (told.stages, told.additions) == (4, 13)


@pytest.mark.slow
def test_kept_operands_take_fewer_stages_with_scratch() -> None:
    schedule, told = found("winograd", math.inf, keep=("A", "B"), temporaries=1)
    assert written(schedule) == {"S", "T", "C"}
    assert told.stages == 3, "with one temporary for each operand alone there are four"


def test_the_shape_that_scratch_asks_for_is_told() -> None:
    def shapes(**options: object) -> str:
        proof = prove_schedule(found("winograd", **options)[0], load("winograd").scheme)
        assert proof.shapes is not None
        return proof.shapes.statement

    assert shapes(keep=("A",), scratch=("A",)) == "only problems with K = N"
    assert shapes(keep=("B",), scratch=("B",)) == "only problems with M = K"
    assert shapes(scratch=()) == ""


def test_no_block_of_c_is_scratch_once_a_product_is_there() -> None:
    for options in OPTIONS:
        schedule, _ = found("winograd", **options)
        begun: set[Block] = set()
        for stage in schedule.stages:
            if isinstance(stage, LinearStage):
                assert not begun & {t for m in stage.maps for t in m.targets}
                continue
            for product in stage.products:
                assert not begun & {product.left, product.right}
                assert all(t.kept == (t.block in begun) for t in product.targets)
            begun |= {t.block for product in stage.products for t in product.targets}


def test_the_last_stage_has_no_scratch() -> None:
    side = OperandSide(((1, 0), (0, 1), (1, 1)), 2)
    assert (side.fewest_with(0), side.fewest_with(1), side.fewest_stages) == (2, 2, 2)
    assert replace(side, spare=1).fewest_with(0) == 1
    assert OperandSide(((1, 1), (1, 2), (1, 0)), 2, kept=True).fewest_with(1) == 3
    assert OperandSide(((1, 1), (1, 2), (1, 0)), 2, kept=True).fewest_with(2) == 2


def test_a_sum_that_is_wanted_longer_stands_in_the_block_that_is_free_longer() -> None:
    once, twice = (1, 1), (1, 2)
    walk = SumSearch(OperandSide((once, twice), 2, kept=True), [[once, twice], [twice]], False, lent=(2, 1)).run()
    assert [len(spills) for spills in walk.spilled] == [2, 0]
    assert (walk.additions, walk.places) == (2, ((3, 2), (2,)))


def test_a_sum_is_copied_before_its_block_is_taken() -> None:
    first, second = (1, 1), (1, 2)
    walk = SumSearch(OperandSide((first, second), 2, kept=True), [[first, second], [second], [first]], False, lent=(2, 1, 1)).run()
    assert walk.spilled[1] == ((0, (0, 0, 0, 1)),), "the second temporary is read a last time"
    assert walk.additions == 3, "the sums, and the first one again from the second"


def test_operands_that_cannot_be_kept_with_scratch_are_refused() -> None:
    with pytest.raises(BilinearError, match=r"error\[E559\].*free blocks of C hold all sums.*\n.*allow a temporary"):
        find_in_place(load("strassen").scheme, overwrite=True, keep=("A", "B"))


def test_an_operand_that_is_kept_needs_scratch_or_a_temporary() -> None:
    with pytest.raises(BilinearError, match=r"error\[E552\].*cannot run with A never written"):
        find_in_place(load("winograd").scheme, overwrite=True, keep=("A",), scratch=("B",))


def test_only_sums_of_a_and_b_may_stand_in_c() -> None:
    with pytest.raises(BilinearError, match=r"error\[E560\]: scratch='C'"):
        find_in_place(load("strassen").scheme, overwrite=True, scratch=("A", "C"))


def test_the_command_line_writes_a_schedule_that_verify_proves(tmp_path: Path, shell: Shell) -> None:
    path = str(tmp_path / "found.bl")
    asked = ("schedule", "winograd", "--in-place", "--overwrite", "--keep", "B", "--scratch", "B", "--time", "0.1", "-o", path)
    assert shell(*asked)[0] == 0
    status, told, _ = shell("verify", path)
    assert status == 0 and "winograd-overwriting: proved" in told and re.search(r"computes +C = A\*B\n", told)
    assert re.search(r"shapes +only problems with M = K\n", told)


def test_scratch_without_overwriting_is_refused(shell: Shell) -> None:
    status, _, told = shell("schedule", "winograd", "--in-place", "--scratch", "A")
    assert status == 1 and "error[E561]" in told


SHIPPED = {"winograd_in_place": 3, "hopcroft_kerr_in_place": 2, "laderman_in_place": 2}
"""To how many levels each is multiplied with here."""


def schedule_of(loaded: Loaded) -> Schedule:
    assert isinstance(loaded.schedule, Schedule)
    return loaded.schedule


def traffic(schedule: Schedule) -> int:
    maps = [m for stage in fuse_linear_stages(schedule).stages if isinstance(stage, LinearStage) for m in stage.maps]
    return sum(len(m.sources) + len(m.targets) for m in maps)


@pytest.mark.parametrize("name", SHIPPED)
def test_it_computes_the_product_and_recurses(name: str) -> None:
    loaded = load(name)
    schedule = schedule_of(loaded)
    assert schedule.name == name and schedule.in_place and not schedule.workspaces
    proof = prove_schedule(runnable(schedule), loaded.scheme)
    assert proof.holds and proof.recursive and proof.restored == ("A", "B")
    assert computes(runnable(schedule))
    assert computes(runnable(fuse_linear_stages(nest_levels([schedule] * 2))), trials=1)


@pytest.mark.parametrize("name", SHIPPED)
def test_its_file_says_what_it_takes(name: str) -> None:
    text = (algorithms_folder() / f"{name}.bl").read_text(encoding="utf-8")
    schedule = schedule_of(load(name))
    widths = " + ".join(str(len(stage.products)) for stage in schedule.stages if isinstance(stage, ProductStage))
    additions = sum(m.map.additions for stage in schedule.stages if isinstance(stage, LinearStage) for m in stage.maps)
    moved = f"{traffic(schedule) // 4} N^2 elements" if name.startswith("winograd") else f"{traffic(schedule)} blocks"
    assert f"{widths} products, {additions} additions on A and B with the restoration, {moved} moved." in text
    assert re.search(r"^  source ", text, re.M)


def test_a_consuming_schedule_stands_above_restoring_ones() -> None:
    restoring, consuming = schedule_of(load("winograd_in_place")), find_in_place(load("winograd").scheme, consume=True)
    assert not prove_schedule(runnable(consuming)).recursive
    mixed = drop_restoration(nest_levels([consuming, restoring]))
    lowered = runnable(fuse_linear_stages(mixed))
    assert computes(lowered, trials=1) and prove_schedule(lowered).holds
    assert traffic(mixed) < traffic(drop_restoration(nest_levels([restoring] * 2)))
