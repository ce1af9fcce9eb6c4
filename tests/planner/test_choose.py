"""Choices: what may run, what the library keeps, exact bytes, and plans that come back from files the same."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from each_case import each

import bilinear
from bilinear.errors import BilinearError
from bilinear.ir.schedule import ProductStage
from bilinear.ir.tile import MMA_FLOAT64, PANEL, RESIDUE_TILES, TILES
from bilinear.lowering.place import place_schedule
from bilinear.methods.digits.choice import _fewest, block_of, require_residues, scheme_of
from bilinear.methods.digits.plans import CUTS, USUAL_RESIDUES
from bilinear.methods.planning import contenders, make_plan, plan_from_json
from bilinear.methods.thin.choice import Thin, thin_of
from bilinear.methods.thin.method import MOST_TIMED
from bilinear.planner import choose
from bilinear.planner.choose import Borrowing, Weighing, timed_plan
from bilinear.planner.device_files import load_device
from bilinear.planner.kept_plans import plan_json
from bilinear.planner.library import Library
from bilinear.planner.model import each_tile
from bilinear.planner.plan import Candidate, Plan, pareto_front
from bilinear.planner.problem import CLASSES, USUAL_LIMIT, Problem
from bilinear.planner.profiles import portfolio, ways
from bilinear.planner.ways import Way, lowered
from bilinear.reporting.plans import pareto_table, plan_table
from bilinear.runtime.recipe import chosen_recipe, fitted_placement

DESCRIBED = load_device("h200")
H200 = replace(DESCRIBED, digits=())  # Most tests are about schedules beside the library's multiply.
POLICY = H200.policy
LARGE = Problem(16384, 16384, 16384)


def test_a_large_problem_gets_a_fast_scheme_and_a_small_one_the_library() -> None:
    assert not make_plan(LARGE, H200).is_library
    small = make_plan(Problem(256, 256, 256), H200)
    assert small.is_library and small.chosen.why == "chosen: nothing is faster"
    assert any(c.why == "blocks of 64x64x64 are too small" for c in small.candidates)


@pytest.mark.parametrize("shape", [(20000, 20000, 8), (8, 20000, 20000), (1, 1, 1), (10_000, 64, 64)])
def test_thin_problems_that_gain_nothing_stay_with_the_library(shape: tuple[int, int, int]) -> None:
    assert make_plan(Problem(*shape), H200).is_library


@pytest.mark.parametrize(
    ("shape", "dtype"), [((10**7, 16, 16), "float64"), ((10**7, 8, 8), "float32"), ((8, 10**7, 8), "float32"), ((256, 12288, 8), "float32")]
)
def test_thin_problems_on_which_the_library_is_slow_take_the_thin_kernel(shape: tuple[int, int, int], dtype: str) -> None:
    plan = make_plan(Problem(*shape, dtype), H200)
    assert plan.chosen.strategy == "thin"
    assert plan.chosen.choice == Thin(plan.chosen.tile, thin_of(plan.chosen).parts, shape[2] > shape[0])


@each("shape", [(1, 5296, 3113), (4081, 364, 1), (1, 178914, 18), (17625, 1718, 1), (314239, 39, 1)])
@each("dtype", ["float32", "float64"])
def test_a_product_with_a_vector_is_the_librarys(shape: tuple[int, int, int], dtype: str) -> None:
    """At every one of these the kernel for thin products was slower, or saved less than 10 %."""
    plan = make_plan(Problem(*shape, dtype), H200, explain=True)
    assert plan.is_library
    assert {c.why for c in plan.candidates if c.strategy == "thin"} == {"the library multiplies by a vector at the speed of memory"}


def test_sums_of_one_term_may_take_the_thin_kernel() -> None:
    plan = make_plan(Problem(4_000_000, 1, 32, "float32", column_major=("A", "B", "C")), H200)
    assert plan.chosen.strategy == "thin"


def test_sums_are_not_split_without_a_workspace() -> None:
    split, whole = (make_plan(Problem(1024, 12288, 8, "float32", workspace=bytes_), H200).chosen for bytes_ in (None, 0))
    assert thin_of(split).parts > 1
    assert split.workspace == thin_of(split).parts * 1024 * 8 * 4
    assert (thin_of(whole).parts, whole.workspace) == (1, 0)


def test_a_device_without_rates_of_thin_products_leaves_them_to_the_library() -> None:
    assert make_plan(Problem(10**7, 8, 8, "float32"), replace(H200, thin=())).is_library


@pytest.mark.parametrize("shape", [(1744, 1937, 506), (381, 4646, 2717)])
def test_residues_that_lost_on_uneven_rows_are_left_out(shape: tuple[int, int, int]) -> None:
    """The library takes 95 and 225 us, residues 108 and 248."""
    assert make_plan(Problem(*shape, "float32"), DESCRIBED).is_library


@pytest.mark.parametrize("shape", [(1435, 1435, 1435), (700, 568, 6250), (2957, 13913, 373), (7311, 529, 1643), (741, 5099, 3089)])
def test_residues_that_won_on_uneven_rows_stay(shape: tuple[int, int, int]) -> None:
    assert make_plan(Problem(*shape, "float32"), DESCRIBED).chosen.tile == USUAL_RESIDUES["float32"]


@pytest.mark.parametrize(("dtype", "slower"), [("float32", (True, True, False)), ("float64", (False, True, False))])
def test_rows_that_are_not_multiples_of_16_bytes_cost_residues_time(dtype: str, slower: tuple[bool, ...]) -> None:
    """Rows of A by rows have k elements. The lines of C's rows do not count here: all are even."""

    def ms(k: int) -> float:
        plan = make_plan(Problem(2048, k, 2048, dtype), DESCRIBED, explain=True)
        return next(c.ms for c in plan.candidates if c.tile == USUAL_RESIDUES[dtype] and not c.levels) or 0.0

    found = [ms(k) - ms(2048) > 0.008 for k in (2046, 2047, 2044)]
    assert found == list(slower)


@pytest.mark.parametrize("problem", [LARGE, Problem(8192, 8192, 8192, "float32", "restore"), Problem(1024, 1024, 1024)])
def test_whatever_is_chosen_gains_more_than_the_margin(problem: Problem) -> None:
    choice = make_plan(problem, H200)
    library = next(c for c in choice.candidates if c.is_library)
    assert library.ms is not None and choice.chosen.ms is not None
    assert choice.is_library or choice.chosen.ms < (1 - POLICY.least_gain) * library.ms
    fastest = min(c.ms for c in choice.candidates if c.ms is not None and "needs" not in c.why and "accuracy=" not in c.why)
    assert choice.is_library or choice.chosen.ms == fastest


@pytest.mark.slow
def test_without_an_accuracy_errors_are_at_most_eight_times_the_classical_multiplys() -> None:
    """Four levels of Winograd's scheme, 12 times, need a word: an accuracy that allows them, or their name."""
    for dtype in ("float32", "float64"):
        problem = Problem(16384, 16384, 16384, dtype)
        usual, bounded = make_plan(problem, H200), make_plan(replace(problem, accuracy=1e6), H200)
        (four,) = (c for c in usual.candidates if c.levels == ("winograd",) * 4)
        assert "12 times" in four.why and "accuracy=" in four.why and usual.chosen.choice.probable(16384, dtype) <= USUAL_LIMIT
        (four,) = (c for c in bounded.candidates if c.levels == ("winograd",) * 4)
        assert "accuracy=" not in four.why
        named = bilinear.plan(16384, 16384, 16384, dtype, device=H200, levels=("winograd",) * 4)
        assert named.chosen.levels == ("winograd",) * 4
        assert not any("accuracy=" in c.why for c in contenders(problem, H200))


def test_the_margin_keeps_the_library() -> None:
    gain = make_plan(LARGE, H200).chosen.ms or 0.0
    even = tuple((key, rate) for key, rate in ((16384.0, 2 * 16384**3 / (gain * 1.02) * 1e-9),))
    choice = make_plan(LARGE, H200.with_rates("float64", replace(H200.rates("float64"), library=even)))
    assert choice.is_library and choice.chosen.why == "chosen: no plan gains the margin"
    assert choice.candidates[1].why.startswith("gains ")


@pytest.mark.slow
def test_the_kernel_alone_must_gain_more() -> None:
    """On operands that are not aligned it does; where it gains less it loses, and what gains less still may run."""
    found = dict.fromkeys(("alone", "beside"), 0)
    for size in (1001, 2501, 3001, 4643, 7001):
        for dtype in ("float32", "float64"):
            explained = make_plan(Problem(size, size, size, dtype), H200, explain=True)
            library = next(c for c in explained.candidates if c.is_library)
            gains = {c.name: 1 - (c.ms or 0) / (library.ms or 1) for c in explained.candidates if c.ms}
            chosen, alone = explained.chosen, gains["classical, 1 level"]
            assert chosen.levels != ("classical",) or alone > POLICY.least_gain_plain
            assert chosen.is_library or gains[chosen.name] > POLICY.least_gain
            assert make_plan(Problem(size, size, size, dtype), H200).chosen.name == chosen.name, "however much is computed"
            found["alone"] += chosen.levels == ("classical",)
            found["beside"] += chosen.levels != ("classical",) and alone > POLICY.least_gain
    assert all(found.values()), found


def test_a_plain_product_of_small_blocks_is_weighed_where_its_rows_are_even() -> None:
    """Down to results of more than half a small tile; fast schemes are not."""
    problem = Problem(128, 256, 4096, "float32")
    assert make_plan(problem, H200).chosen.levels == ("classical",)
    others = [replace(problem, k=255), replace(problem, n=4095), replace(problem, column_major=("A",)), replace(problem, m=16)]
    others += [replace(problem, lies_evenly=False), replace(problem, dtype="float64")]
    assert not any(make_plan(other, H200).chosen.levels for other in others)
    explained = make_plan(problem, H200, explain=True)
    assert all("too small" in c.why for c in explained.candidates if c.levels and not portfolio().is_plain(c.levels))


@pytest.mark.parametrize(("shape", "levels"), [((32, 4096, 4096), 2), ((256, 8192, 512), 3), ((4096, 64, 4096), 0)])
def test_long_sums_of_few_results_are_computed_in_parts(shape: tuple[int, int, int], levels: int) -> None:
    chosen = make_plan(Problem(*shape, "float32"), H200).chosen
    assert chosen.levels.count("split_k") == levels
    assert make_plan(Problem(*shape, "float32", workspace=0), H200).chosen.levels in ((), ("classical",)), "parts need memory"


def test_nothing_writes_inputs_that_are_to_be_preserved() -> None:
    assert {way.inputs for way in ways(LARGE)} == {"preserve"}
    assert {way.inputs for way in ways(replace(LARGE, inputs="restore"))} == {"preserve", "restore"}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_budget_is_kept_to_the_byte(dtype: str) -> None:
    free = make_plan(replace(LARGE, dtype=dtype), H200)
    needed = free.chosen.workspace
    assert needed
    schedule = lowered(Way(free.chosen.levels, free.chosen.promise))[0]
    itemsize = {"float32": 4, "float64": 8}[dtype]
    assert needed == place_schedule(schedule, 16384, 16384, 16384, itemsize).workspace_elements * itemsize
    same = make_plan(replace(LARGE, dtype=dtype, workspace=needed), H200)
    less = make_plan(replace(LARGE, dtype=dtype, workspace=needed - 1), H200)
    assert same.chosen.name == free.chosen.name != less.chosen.name
    assert less.chosen.workspace is not None and less.chosen.workspace < needed
    lost = next(c for c in less.candidates if c.name == free.chosen.name)
    assert lost.why == f"needs {needed} bytes of workspace, {needed - 1} are allowed"


def test_without_workspace_only_what_allocates_nothing_runs() -> None:
    for problem in (LARGE, replace(LARGE, inputs="restore"), replace(LARGE, accumulate=True), replace(LARGE, has_gaps=True)):
        chosen = make_plan(replace(problem, workspace=0), H200).chosen
        assert chosen.workspace == 0
        assert not chosen.rest or problem.lends


@each("by_column", [(), ("C",)])
@each("shape", [(16384, 16384, 16384), (20000, 9000, 12345), (12345, 9000, 20000), (9001, 8009, 8191)])
def test_temporaries_fit_into_what_is_computed_later(shape: tuple[int, int, int], by_column: tuple[str, ...]) -> None:
    m, k, n = shape
    chosen = Borrowing(Problem(m, k, n, workspace=0, column_major=by_column), H200, 512).best()
    assert chosen is not None
    assert chosen.rest
    assert chosen.workspace == 0
    own, across = (n, m) if by_column else (m, n)
    left = own
    extents = [own - sum(part.extent for part in chosen.rest), *(part.extent for part in chosen.rest)]
    for extent, part in zip(extents, chosen.parts, strict=True):
        left -= extent
        problem = (m, k, extent) if by_column else (extent, k, n)
        plan = place_schedule(lowered(Way(part.levels, part.inputs))[0], *problem, 8, frozenset(by_column))
        assert plan.workspace_elements <= left * across
    assert left == 0


def test_a_device_without_memory_runs_nothing_that_does_not_fit() -> None:
    small = replace(H200, memory=7 * 2**30)  # the operands take six
    assert make_plan(LARGE, small).chosen.workspace == 0


@pytest.mark.slow
def test_parts_of_more_levels_give_way_to_fewer_where_accuracy_asks_for_it() -> None:
    free = make_plan(replace(LARGE, workspace=0), H200, explain=True)
    best = next(c for c in free.candidates if c.strategy == "borrow")
    assert best.error is not None and len(best.levels) > 1
    stricter = make_plan(replace(LARGE, workspace=0, accuracy=best.error * 0.99), H200, explain=True)
    (other,) = (c for c in stricter.candidates if c.strategy == "borrow")
    assert other.error is not None and other.error < best.error and not other.why.startswith("its error bound")


@pytest.mark.slow
def test_what_the_device_cannot_hold_is_told() -> None:
    huge = make_plan(Problem(100_000, 100_000, 100_000), H200, explain=True)
    assert huge.chosen.why.endswith("; A, B and C need more memory than the device has")
    assert any(c.why.endswith("bytes of workspace, 0 are left on the device beside A, B and C") for c in huge.candidates)
    assert "memory" not in make_plan(LARGE, H200).chosen.why


def test_a_table_tells_what_all_parts_do_to_the_inputs() -> None:
    found = Borrowing(replace(LARGE, inputs="restore", workspace=0), H200, 512).best()
    assert found is not None and (found.choice.inputs, found.promise) == ("preserve", "restore")
    known = make_plan(replace(LARGE, inputs="restore", workspace=0), H200)
    table = plan_table(replace(known, candidates=(found, *known.candidates[1:])))
    assert re.search(rf"{re.escape(found.name)} +restore +borrow ", table)


@pytest.mark.slow
def test_an_accuracy_is_kept_by_the_bound() -> None:
    explained = make_plan(replace(LARGE, inputs="restore"), H200, explain=True)
    bounds = {c.name: c.error for c in explained.candidates}
    best = bounds[explained.chosen.name]
    assert best is not None
    stricter = make_plan(replace(LARGE, inputs="restore", accuracy=best * 0.99), H200)
    assert stricter.chosen.error is not None and stricter.chosen.error < best
    assert any(c.why.startswith("its error bound") for c in stricter.candidates)


def test_an_accuracy_that_nothing_keeps_is_refused() -> None:
    with pytest.raises(BilinearError, match=r"E519.*its error bound 3e-08 is above 1e-30"):
        make_plan(replace(LARGE, accuracy=1e-30), H200)


@pytest.mark.slow
def test_a_class_of_accuracy_compares_probable_errors() -> None:
    for dtype in ("float32", "float64"):
        problem = Problem(16384, 16384, 16384, dtype)
        plans = {accuracy: make_plan(replace(problem, accuracy=accuracy), H200, explain=True) for accuracy in CLASSES}
        for accuracy, plan in plans.items():
            assert plan.chosen.probable is not None and plan.chosen.probable <= CLASSES[accuracy]
            refused = [c for c in plan.candidates if c.why.startswith("its probable error")]
            assert refused and all((c.probable or 0.0) > CLASSES[accuracy] for c in refused)
        assert (plans["classical"].chosen.ms or 0.0) >= (plans["twice"].chosen.ms or 0.0)
        library = next(c for c in plans["classical"].candidates if c.is_library)
        assert library.probable == 1


@pytest.mark.slow
def test_pairs_are_weighed_only_if_an_accuracy_is_asked_for() -> None:
    problem = Problem(8192, 8192, 8192, "float32")
    plain = make_plan(problem, DESCRIBED, explain=True)
    assert {c.tile for c in plain.candidates if c.strategy == "digits"} == {"residues7"}
    assert plain.chosen.tile == "residues7"
    for accuracy in ("classical", 1.0):  # the library's own bound is above 1
        assert make_plan(replace(problem, accuracy=accuracy), DESCRIBED).chosen.tile == "pairs"
    assert make_plan(replace(problem, accuracy="classical"), H200).chosen.strategy != "digits"


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_residues_are_the_fewest_that_keep_the_accuracy(dtype: str) -> None:
    assert {_fewest(dtype, k, "classical") for e in range(2, 29) for k in (2**e, 3 * 2**e // 2)} == {USUAL_RESIDUES[dtype]}
    for accuracy in (None, *CLASSES, 1.0 if dtype == "float32" else 1e-9):
        plan = make_plan(Problem(8192, 8192, 8192, dtype, accuracy=accuracy), DESCRIBED, explain=True)
        told = [c for c in plan.candidates if c.tile in RESIDUE_TILES]
        assert [c.levels for c in sorted(told, key=lambda c: len(c.levels))] == [(), ("winograd",), ("winograd", "winograd")]
        assert all(c.ms and c.error and c.probable for c in told)
        if isinstance(accuracy, str):
            assert all((c.probable or 9.0) <= CLASSES[accuracy] for c in told)
    for levels in portfolio().digits:  # what `auto` weighs needs no check
        for tile in (tile for tile in RESIDUE_TILES.values() if not tile.gaussian):
            require_residues(scheme_of(levels), tile)


def test_residues_are_left_out_where_they_cannot_win() -> None:
    assert any(c.strategy != "digits" for c in make_plan(Problem(512, 512, 512, "float64"), DESCRIBED).candidates)
    assert any(c.strategy == "digits" for c in make_plan(Problem(512, 512, 512, "float64"), DESCRIBED, explain=True).candidates)
    assert any(c.strategy != "digits" for c in make_plan(Problem(512, 2**29, 512, "float64"), DESCRIBED).candidates)
    narrow = Problem(8192, 8192, 8192, "float64", workspace=2**20, accumulate=True)  # which lends no rows of C to digits
    assert make_plan(narrow, DESCRIBED).chosen.tile not in RESIDUE_TILES


@each(
    ("facts", "code"),
    [
        ({"m": 0}, "E543"),
        ({"k": 1.5}, "E543"),
        ({"n": 2**40}, "E543"),
        ({"dtype": "float8"}, "E543"),
        ({"inputs": "burn"}, "E513"),
        ({"workspace": -1}, "E543"),
        ({"accuracy": 0.0}, "E543"),
        ({"accuracy": float("nan")}, "E543"),
    ],
)
def test_malformed_problems_are_refused(facts: dict[str, Any], code: str) -> None:
    with pytest.raises(BilinearError, match=code):
        Problem(**{"m": 8, "k": 8, "n": 8, **facts})


@pytest.mark.slow
def test_the_same_is_chosen_every_time() -> None:
    first = make_plan(replace(LARGE, inputs="consume"), H200, explain=True)
    choose.make_plan.cache_clear()
    assert make_plan(replace(LARGE, inputs="consume"), H200, explain=True) == first


def test_a_candidate_runs_in_the_tile_that_is_predicted_to_be_fastest() -> None:
    seen = set()
    for n in (600, 1024, 2048, 16384):
        for way in (Way(("classical",)), Way(("msmes",), "restore")):
            found = Weighing(Problem(n, n, n, "float32", "restore"), H200, explain=False).figures(way)
            schedule, profile = lowered(way)
            placement = place_schedule(schedule, n, n, n, 4)
            times = {tile: 1e3 * seconds for seconds, tile in each_tile(profile, placement, "float32", H200)}
            assert times.keys() == TILES["float32"].keys()
            assert found.ms == pytest.approx(min(times.values())) and times[found.tile] == min(times.values())
            seen.add(found.tile)
    assert seen == {name for name, tile in TILES["float32"].items() if tile.instruction == MMA_FLOAT64}, (
        "an H200 multiplies doubles as fast as floats"
    )


@pytest.mark.slow
@pytest.mark.parametrize(("n", "dtype"), [(5136, "float32"), (6145, "float64"), (8200, "float64")])
def test_products_alone_never_take_longer_than_the_plan(n: int, dtype: str) -> None:
    """Also where blocks are cut to whole sectors, and to fewer tiles: what is chosen at a glance is what is chosen with all figures."""
    problem = Problem(n, n, n, dtype, "restore")
    weighing = Weighing(problem, H200, explain=False)
    for way in ways(problem):
        assert weighing.least_ms(way) <= (weighing.figures(way).ms or 0.0), way
    quick, whole = (make_plan(problem, H200, explain).chosen for explain in (False, True))
    assert (quick.levels, quick.tile, quick.ms) == (whole.levels, whole.tile, whole.ms)


def test_planning_is_quick() -> None:
    """Generous limits on what takes a millisecond and a few microseconds: lowering or proving at every shape would break them."""
    make_plan(LARGE, H200)
    start = time.process_time()
    for n in range(12000, 12020):
        make_plan(Problem(n, n, n), H200)
    cold = (time.process_time() - start) / 20
    start = time.process_time()
    for _ in range(1000):
        make_plan(LARGE, H200)
    cached = (time.process_time() - start) / 1000
    assert cold < 0.2 and cached < 500e-6


def test_a_saved_plan_comes_back_the_same(tmp_path: Path) -> None:
    choice = make_plan(replace(LARGE, inputs="restore", workspace=0, column_major=("A",)), H200)
    bilinear.save_plan(choice, tmp_path / "plan.json")
    assert bilinear.load_plan(tmp_path / "plan.json") == choice
    assert all(scheme for scheme, _ in choice.sha256) and choice.implementation_sha256
    with pytest.raises(BilinearError, match="E612"):
        bilinear.save_plan(choice, tmp_path / "missing" / "plan.json")
    for path in (tmp_path / "missing.json", tmp_path):
        with pytest.raises(BilinearError, match=r"E545.* cannot be read: .*\n  hint: write one with save_plan"):
            bilinear.load_plan(path)


def _first(value: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = value["candidates"][0]
    return found


def _choice(value: dict[str, Any], number: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = value["candidates"][number]["choice"]
    return found


@each(
    ("change", "code"),
    [
        (lambda v: v.update(version="0.0.0"), "E546"),
        (lambda v: v["sha256"][0].__setitem__(0, "0" * 64), "E546"),
        (lambda v: v.update(implementation_sha256="0" * 64), "E546"),
        (lambda v: v["sha256"].pop(), "E545"),
        (lambda v: v.update(format="bilinear-plan/2"), "E545"),
        (lambda v: v.pop("version"), "E545"),
        (lambda v: _choice(v).pop("tile"), "E545"),
        (lambda v: _choice(v).update(tile=3), "E545"),
        *(
            (lambda v, field=field: v["candidates"][1].update({field: []}), "E545")
            for field in ("ms", "workspace", "error", "why", "method", "choice")
        ),
        (lambda v: v["candidates"][1].update(ms=float("nan")), "E545"),
        (lambda v: v["candidates"][1].update(error=True), "E545"),
        (lambda v: v["candidates"][1].update(ms=0), "E545"),
        (lambda v: v["candidates"][1].update(workspace=1.5), "E545"),
        (lambda v: v["candidates"][1].update(workspace=-1), "E545"),
        (lambda v: _choice(v, 1).update(tile=99), "E545"),
        (lambda v: _choice(v, 1).update(tile="x"), "E545"),
        (lambda v: _choice(v, 1).update(tile=[]), "E545"),
        (lambda v: v["candidates"][1].update(ms=int("9" * 400)), "E545"),
        (lambda v: _choice(v, 1).update(rest=[{"extent": [], "method": "schedule", "choice": {}}]), "E545"),
        (lambda v: v.update(device=[]), "E545"),
        (lambda v: _choice(v).update(tile=True), "E545"),
        (lambda v: _choice(v).update(tile=1.0), "E545"),
        (lambda v: v.update(candidates=[]), "E545"),
        (lambda v: v.pop("problem"), "E545"),
        (lambda v: v.update(more=1), "E545"),
        (lambda v: _choice(v).update(levels=[1]), "E545"),
        (lambda v: _choice(v).update(levels=["winograd"] * 9), "E545"),
        (
            lambda v: _first(v).update(
                choice={"levels": ["winograd"], "inputs": "consume", "strategy": "expand", "tile": "usual", "rest": []}, method="schedule"
            ),
            "E545",
        ),
        (lambda v: _choice(v).update(levels=["../etc/x"]), "E545"),
        (lambda v: _first(v).pop("why"), "E545"),
        (lambda v: (_first(v).update(method="library", choice={"strategy": "mkl"}), v.update(sha256=[])), "E545"),
    ],
)
def test_a_changed_plan_is_refused(change: Any, code: str) -> None:
    value = json.loads(plan_json(make_plan(LARGE, H200)))
    change(value)
    with pytest.raises(BilinearError, match=code):
        plan_from_json(json.dumps(value), "plan.json")


@each(
    ("change", "cause"),
    [
        (lambda v: v.clear(), "format is missing"),
        (lambda v: v.pop("problem"), "problem is missing"),
        (lambda v: v.update(problem=None), "problem is not an object with named fields"),
        (lambda v: v["problem"].pop("column_major"), "column_major is missing"),
        (lambda v: v["problem"].update(column_major=None), "column_major is not a list"),
        (lambda v: v["problem"].update(dtype=[]), "a field has the wrong type"),
        (lambda v: v["problem"].update(more=1), "'more' is no field of a problem"),
        (lambda v: v["problem"].update(m=-1), "the shape (-1, 16384, 16384) is not three integers from 1 to 2147483647"),
        (lambda v: v["problem"].update(workspace="1"), "workspace='1' is not a number of bytes"),
        (lambda v: v.update(candidates=3), "candidates is not a list"),
        (lambda v: v.update(candidates=[3]), "a candidate is not an object with named fields"),
        (lambda v: v.update(candidates=[]), "candidates is empty"),
        (lambda v: v.update(sha256=[3]), "sha256 is not a list of pairs"),
        (lambda v: _choice(v).update(rest=[None]), "a part is not an object with named fields"),
        (lambda v: _choice(v).pop("levels"), "levels is missing"),
        (lambda v: _choice(v).update(levels=[None]), "a field of a candidate has the wrong type"),
        (lambda v: _first(v).update(method="magic"), "there is no method 'magic'"),
        (lambda v: _choice(v).update(tile="wide"), "there is no tile 'wide'"),
        (lambda v: _choice(v).update(more=1), "'more' is no field of a schedule"),
    ],
)
def test_the_cause_names_the_field_that_is_wrong(change: Any, cause: str) -> None:
    value = json.loads(plan_json(make_plan(LARGE, H200)))
    change(value)
    with pytest.raises(BilinearError) as caught:
        plan_from_json(json.dumps(value), "plan.json")
    hint = "\n  hint: write one with save_plan, or with `bilinear plan --json`"
    assert str(caught.value) == f"error[E545]: plan.json is not a plan: {cause}{hint}"


@pytest.mark.parametrize("text", ["", "[]", "3", "[" * 100_000])
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(BilinearError, match="E545"):
        plan_from_json(text, "plan.json")


def test_the_table_shows_the_chosen_first_and_every_reason_when_asked() -> None:
    choice = make_plan(replace(LARGE, workspace=2**33), H200, explain=True)
    lines = plan_table(choice, explain=True).splitlines()
    assert lines[0] == "16384 x 16384 by 16384 x 16384, float64, NVIDIA H200 (inputs preserve, workspace at most 8.00 GiB)"
    assert lines[4].startswith(choice.chosen.name) and "times as fast" in lines[4]
    assert len(lines) == 4 + len(choice.candidates)
    assert sum(c.why in line for c, line in zip(choice.candidates, lines[4:], strict=True)) == len(choice.candidates)
    assert plan_table(choice).endswith("more: explain=True")


def test_nothing_on_the_front_is_beaten_in_time_and_workspace() -> None:
    choice = make_plan(replace(LARGE, inputs="restore"), H200)
    front = pareto_front(choice)
    timed = [(c.ms, c.workspace) for c in choice.candidates if c.ms is not None and c.workspace is not None]
    for candidate in choice.candidates:
        if candidate.ms is None or candidate.workspace is None:
            continue
        beaten = any(
            ms <= candidate.ms and size <= candidate.workspace and (ms, size) != (candidate.ms, candidate.workspace) for ms, size in timed
        )
        assert (candidate in front) == (not beaten)
    assert front[0].workspace == 0 and front[-1].name in pareto_table(choice)


@pytest.mark.slow
def test_pinned_levels_promise_what_they_do_and_come_back_from_files(tmp_path: Path) -> None:
    for levels, inputs, promised in (
        (("winograd",), "restore", "preserve"),
        (("winograd",) * 4, "preserve", "preserve"),
        (("winograd_in_place", "winograd"), "restore", "restore"),
        (("classical",) * 20, "preserve", "preserve"),
    ):
        choice = bilinear.plan(4096, 4096, 4096, device="h200", inputs=inputs, levels=levels)
        assert (choice.chosen.levels, choice.chosen.promise) == (levels, promised)
        bilinear.save_plan(choice, tmp_path / "plan.json")
        assert bilinear.load_plan(tmp_path / "plan.json") == choice


def test_named_levels_may_add_atomically(tmp_path: Path) -> None:
    def planned(contention: Any, *levels: str, **options: Any) -> Plan:
        return bilinear.plan(512, 512, 512, device="h200", inputs="restore", contention=contention, levels=levels or None, **options)

    coloured, atomic = planned("colours", "msmes", "msmes"), planned("atomics", "msmes", "msmes")
    assert (coloured.chosen.ms or 0) > (atomic.chosen.ms or 0), "fewer launches, which small blocks do not fill"
    bilinear.save_plan(atomic, tmp_path / "plan.json")
    assert bilinear.load_plan(tmp_path / "plan.json") == atomic
    recipe = chosen_recipe(atomic)
    assert recipe is not None
    stages = fitted_placement(recipe, (512, 512, 512), np.dtype("float64")).schedule.stages
    assert [len(stage.products) for stage in stages if isinstance(stage, ProductStage)] == [16, 12, 12, 9]
    refused: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("E513", ("tickets", "msmes"), {}),
        ("E557", ("atomics",), {}),
        ("E557", ("atomics", "winograd"), {}),
        ("E557", ("atomics", "msmes"), {"dtype": "complex64"}),
        ("E557", ("atomics", "msmes"), {"products": "pairs", "dtype": "float32"}),
        ("E557", ("atomics",), {"reproducible": "bitwise"}),
    ]
    for code, named, options in refused:
        with pytest.raises(BilinearError, match=code):
            planned(*named, **options)


@each("levels", [3, "winograd", (), ("",), (1,), ("nothing",), ("classical",) * 21])
def test_levels_that_mean_nothing_are_refused(levels: Any) -> None:
    with pytest.raises(BilinearError, match="E543"):
        bilinear.plan(4096, 4096, 4096, device="h200", levels=levels)


def test_what_is_no_plan_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(BilinearError, match=r"E545.*str is not a plan"):
        bilinear.save_plan("residues7", tmp_path / "plan.json")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_what_overwrites_is_not_weighed_where_c_is_added_to() -> None:
    assert any("recurse" in c.strategy for c in make_plan(LARGE, H200, explain=True).candidates)
    assert not any("recurse" in c.strategy for c in make_plan(replace(LARGE, accumulate=True), H200, explain=True).candidates)
    with pytest.raises(BilinearError, match="overwrites C"):
        bilinear.plan(4096, 4096, 4096, device="h200", levels=("winograd_depth_first",), accumulate=True)


TIMED = [LARGE, Problem(8192, 2048, 5000, "float32", "restore"), Problem(3001, 2999, 3007, "float32", lies_evenly=False)]


@pytest.mark.parametrize("problem", TIMED)
def test_contenders_are_every_way_in_every_tile_by_predicted_time(problem: Problem) -> None:
    """The fastest tile of each is that of the choice, and nothing that may be chosen is missing."""
    found = contenders(problem, H200)
    times = [c.ms or 0.0 for c in found]
    assert times == sorted(times) and times[0] > 0 and len(set(found)) == len(found)
    by_way: dict[tuple[Any, ...], list[Candidate]] = {}
    for candidate in found:
        by_way.setdefault((candidate.levels, candidate.choice.inputs, candidate.rest), []).append(candidate)
    for (_, _, rest), alike in by_way.items():
        assert rest or sorted(c.tile for c in alike) == sorted(TILES[problem.dtype])
    weighed = [c for c in make_plan(problem, H200).candidates if c.levels and c.workspace is not None]
    assert len(weighed) > 2
    for other in weighed:
        tiles = by_way.get((other.levels, other.choice.inputs, other.rest), [])
        assert bool(tiles) != (other.why.startswith("needs ") or "accuracy=" in other.why)
        assert not tiles or (tiles[0].ms, tiles[0].tile, tiles[0].workspace) == (other.ms, other.tile, other.workspace)


@each("inputs", ["preserve", "restore"])
@each("workspace", [None, 2**31, 0])
def test_contenders_keep_the_limits(inputs: str, workspace: int | None) -> None:
    problem = replace(LARGE, inputs=inputs, workspace=workspace)
    found = contenders(problem, H200)
    needed = [c.workspace for c in found]
    assert all(size is not None and (workspace is None or size <= workspace) for size in needed)
    assert workspace == 0 or max(size or 0 for size in needed) > 2**30, "what may be used is"
    assert {c.promise for c in found} == {"preserve", inputs} and any(c.strategy == "borrow" for c in found)
    assert found == tuple(sorted(found, key=lambda c: (c.ms, c.name))) and not any(c.why or c.is_library for c in found)
    small = replace(H200, memory=7 * 2**30)  # the operands take six
    assert {c.workspace for c in contenders(problem, small)} == {0}
    added = contenders(replace(problem, accumulate=True), H200)
    assert added and not any("recurse" in c.strategy or c.rest for c in added)


def test_contenders_keep_the_accuracy() -> None:
    problem = Problem(300, 300, 300)
    free = contenders(replace(problem, accuracy=1.0), H200)
    bounds = sorted({c.error for c in free if c.error is not None})
    allowed = bounds[len(bounds) // 2]
    kept = contenders(replace(problem, accuracy=allowed), H200)
    assert 0 < len(kept) < len(free) and kept == tuple(c for c in free if (c.error or 0.0) <= allowed)


def test_contenders_have_smaller_blocks_than_are_trusted() -> None:
    """Fast ones down to the least block that is timed, plain ones in any size but for the inner one."""
    size = 4 * POLICY.least_timed_block
    assert size // 2 < POLICY.least_block
    levels = {c.levels for c in contenders(Problem(size, size, size), H200)}
    assert ("winograd",) * 2 in levels and ("winograd",) * 3 not in levels
    weighed = make_plan(Problem(size, size, size), H200, explain=True).candidates
    assert next(c for c in weighed if c.levels == ("winograd",) * 2).why.endswith("are too small")
    found = contenders(Problem(3, 8 * POLICY.least_timed_inner, 5), H200)
    assert {c.levels for c in found if c.levels} == {("classical",), *(("split_k",) * most for most in (1, 2, 3))}
    assert 1 < sum(c.strategy == "thin" for c in found) <= MOST_TIMED
    assert not any(c.levels for c in contenders(Problem(64, POLICY.least_timed_inner - 1, 64), H200))


def test_a_timed_choice_names_what_runs_and_comes_back_from_files() -> None:
    problem = replace(LARGE, inputs="restore", workspace=0)
    found = contenders(problem, H200)
    whole, parts = (next(c for c in found if bool(c.rest) == has_rest) for has_rest in (False, True))
    library = Candidate(Library(), 3.0, 0)
    for chosen, other in ((whole, parts), (parts, whole)):
        choice = timed_plan(problem, H200, (replace(chosen, ms=2.0), replace(other, ms=2.5), library))
        assert [c.why for c in choice.candidates] == [
            "timed: 1.50 times as fast as the library",
            "timed: 25.0% slower",
            "timed: 50.0% slower",
        ]
        assert choice.chosen == replace(chosen, ms=2.0, why=choice.chosen.why) and len(choice.sha256) == len(chosen.all_levels)
        assert plan_from_json(plan_json(choice), "plan.json") == choice
    kept = timed_plan(problem, H200, (library, replace(whole, ms=2.99), replace(parts, ms=4.5)))
    assert [c.why for c in kept.candidates] == ["timed: no plan gains the margin", "timed: 0.3% faster", "timed: 50.0% slower"]
    assert kept.is_library and not kept.sha256 and plan_from_json(plan_json(kept), "plan.json") == kept
    assert timed_plan(problem, H200, (library, replace(whole, ms=3.0))).chosen.why == "timed: nothing is faster"


def test_blocks_of_c_have_whole_panels_and_no_single_line() -> None:
    for extent in (*range(1, 700), 8191, 8192, 8193, 16385):
        for cut in CUTS:
            block = block_of(extent, cut)
            assert block == extent or (block % PANEL == 0 and extent % block != 1 and ceil(extent / block) <= cut)
    assert (block_of(8192, 4), block_of(8193, 4), block_of(1, 1)) == (2048, 2176, 1)


@pytest.mark.parametrize("shape", [(784, 992, 2024), (6264, 664, 1376)])
def test_operands_that_do_not_lie_as_c_does_are_copied_one_by_one(shape: tuple[int, int, int]) -> None:
    """On an H100 these took 1 / 0.38 and 1 / 0.34 of the library's time in a plan that was predicted to gain."""
    h100 = load_device("h100")
    plans = [make_plan(Problem(*shape, "float32", column_major=c), h100) for c in ((), ("A",), ("B",), ("A", "B"), ("A", "B", "C"))]
    assert ["classical" in plan.chosen.name for plan in plans] == [True, False, False, False, True]


def test_one_operand_by_columns_is_copied_beside_the_arithmetic() -> None:
    """On an H200 this took 1 / 0.75 of the library's time."""
    plans = [make_plan(Problem(2294, 1731, 1745, column_major=c), H200) for c in ((), ("A",))]
    assert [plan.chosen.name for plan in plans] == ["classical, 1 level", "library"]
