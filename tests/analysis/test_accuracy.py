"""Bounds of rounding errors beside errors measured against exact arithmetic or a higher precision, also of stored 8-bit elements."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from each_case import each

import bilinear
from bilinear.analysis.accuracy import (
    accuracy_facts,
    classical_bound,
    deviations,
    drift_bound,
    error_allowance,
    error_bound,
    growth_factor,
    is_real,
    levels_for_accuracy,
    levels_kept,
    path_growth,
    probable_error,
    run_error_bound,
    runs_on_reals,
    schedule_bound,
)
from bilinear.analysis.rounding import ResultValue, Trace, gamma, is_in_range, magnitude, roundings, sides, underflow
from bilinear.frontend import load
from bilinear.ir.element import FLOAT32, Element
from bilinear.ir.linear import LinearMap
from bilinear.ir.number import generator, to_float
from bilinear.ir.ring import Ring
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Schedule
from bilinear.ir.scheme import Scheme
from bilinear.lowering.prepare import prepare, runnable
from bilinear.passes.fuse_linear_stages import fuse_linear_stages
from bilinear.passes.nest_levels import nest_levels
from bilinear.passes.scheme_to_schedule import scheme_to_schedule

U32 = 2.0**-24
SCHEMES = ("strassen", "winograd", "laderman", "hopcroft_kerr", "naive2x2")
RUNS = [(name, "preserve", levels) for name in SCHEMES for levels in (1, 2)]  # proofs of wide schemes at three levels take long
RUNS += [(name, "preserve", 3) for name in ("strassen", "winograd")]
RUNS += [("msmes", "restore", levels) for levels in (1, 2, 3)]
Data = Any


def one(*coefficients: Any) -> LinearMap:
    return LinearMap(1, tuple(((0, c),) for c in coefficients))


def scheme_of(u: Any, v: Any, w: Any, ring: Ring | None = None) -> Scheme:
    """The <1,1,1;1> scheme with these three coefficients."""
    return Scheme("one", 1, 1, 1, one(u), one(v), one(w), ("M1",), ring or Ring())


@lru_cache(maxsize=8)
def data(kind: str, size: int) -> tuple[Data, Data, Data]:
    """A and B in float32, and their product in float64, whose own error is 2**29 times smaller than what is measured."""
    draw = np.random.default_rng(size)
    draws: dict[str, Data] = {"normal": draw.standard_normal, "uniform": lambda shape: draw.uniform(-1, 1, shape), "positive": draw.random}
    a, b = (draws[kind]((size, size)).astype(np.float32) for _ in range(2))
    return a, b, a.astype(np.float64) @ b.astype(np.float64)


@lru_cache(maxsize=64)
def measured(name: str, inputs: Any, levels: int, kind: str, size: int) -> float:
    """max|C - A*B| of a float32 multiply."""
    a, b, wanted = data(kind, size)
    return float(abs(bilinear.matmul(a.copy(), b.copy(), algorithm=name, levels=levels, inputs=inputs) - wanted).max())


def certain(name: str, inputs: str, levels: int, inner: int) -> float:
    loaded = load(name)
    if inputs == "preserve":
        return error_bound(loaded.scheme, levels, inner, U32).product
    return run_error_bound(prepare(loaded.scheme, loaded.schedule, levels, inputs).schedule, inner, U32).product


@pytest.mark.parametrize(("name", "factor"), [("strassen", 12), ("winograd", 18), ("naive2x2", 2)])
def test_growth_factors_are_the_published_ones(name: str, factor: int) -> None:
    """Strassen 12, Winograd 18: Higham (2002), section 23.2.2; the classical 2 x 2 has k = 2."""
    scheme = load(name).scheme
    assert growth_factor(scheme) == factor
    assert path_growth(scheme) == pytest.approx(factor)


def test_growth_by_enumeration() -> None:
    """The Kronecker power is the growth of the two-level tables."""
    scheme = load("hopcroft_kerr").scheme
    u, v, w = (np.zeros((len(t), n)) for t, n in zip(scheme.tables, (scheme.u.inputs, scheme.v.inputs, scheme.rank), strict=True))
    for dense, table in zip((u, v, w), scheme.tables, strict=True):
        for i, row in enumerate(table):
            for j, c in row:
                dense[i, j] = abs(float(Fraction(str(c))))
    weights = np.kron(u, u).sum(1) * np.kron(v, v).sum(1)
    assert (np.kron(w, w) @ weights).max() == growth_factor(scheme) ** 2


def test_a_coefficient_is_rounded_as_often_as_floats_round_it() -> None:
    assert [roundings(c) for c in (1, -2, Fraction(1, 8), 3, Fraction(1, 3), 1000, generator("sqrt(3)"))] == [0, 0, 0, 1, 2, 8, 8]
    assert magnitude(Fraction(-1, 2)) == 0.5
    assert magnitude(generator("sqrt(3)") * -2) == pytest.approx(2 * 3**0.5)
    assert gamma(10, 0.01) == pytest.approx(1 / 9) and gamma(100, 0.01) == float("inf")


def test_coefficients_that_are_no_real_numbers_are_refused() -> None:
    scheme = scheme_of(generator("lambda"), 1, 1)
    with pytest.raises(ValueError, match="real"):
        growth_factor(scheme)
    assert not is_real(scheme) and not is_real(scheme_of(generator("i"), 1, 1)) and not is_real(scheme_of(1, 1, 1, Ring("Z/2")))
    assert accuracy_facts(scheme, (), 64, ("float32",)) == ()
    root = scheme_of(generator("sqrt(3)"), 1, generator("sqrt(3)") * Fraction(1, 3))
    assert is_real(root) and growth_factor(root) == pytest.approx(1)


def test_flat_depth_covers_every_way_to_fuse() -> None:
    """Three levels of rows of two terms: 1 + 1 + 1 nested, 7 multiplied out; Winograd's chains are 3 deep and have 4 terms."""
    left, _, _ = sides(load("strassen").scheme)
    assert [left.flat_depth(levels) for levels in (0, 1, 2, 3)] == [0, 1, 3, 7]
    left, _, _ = sides(load("winograd").scheme)
    assert (left.depth, left.terms) == (3, 4) and [left.flat_depth(levels) for levels in (1, 2)] == [3, 15]


@pytest.mark.sample(2, slow=24)
@pytest.mark.parametrize(("kind", "size"), [("normal", 1024), ("uniform", 1024), ("normal", 128), ("uniform", 128)])
@pytest.mark.parametrize(("name", "inputs", "levels"), [*RUNS, ("strassen", "preserve", 0)])
def test_the_probable_bound_is_near_and_the_certain_one_holds(name: str, inputs: Any, levels: int, kind: str, size: int) -> None:
    a, b, _ = data(kind, size)
    error = measured(name, inputs, levels, kind, size) / U32
    rms = float(np.sqrt((a.astype(float) ** 2).mean() * (b.astype(float) ** 2).mean()))
    bound = probable_error(load(name).scheme, levels, (size, size, size)) * rms
    assert error <= bound <= 100 * error
    most = float(abs(a).max()) * float(abs(b).max())
    assert bound <= certain(name, inputs, levels, size) * most and error <= certain(name, inputs, levels, size) * most


@pytest.mark.sample(2)
@pytest.mark.parametrize(("name", "inputs", "levels"), [("strassen", "preserve", 2), ("winograd", "preserve", 3), ("msmes", "restore", 2)])
def test_the_probable_bound_knows_data_with_a_mean(name: str, inputs: Any, levels: int) -> None:
    """Uniform on [0, 1): mean 1/2, rms sqrt(1/3)."""
    error, mean = measured(name, inputs, levels, "positive", 512) / U32, 0.75**0.5
    bound = probable_error(load(name).scheme, levels, (512, 512, 512), 0.99, (mean, mean)) / 3
    assert error <= bound <= 100 * error


@pytest.mark.sample(8)
@pytest.mark.parametrize(("name", "inputs", "levels"), [run for run in RUNS if run[2] < 3])
@pytest.mark.parametrize("shape", [(36, 36, 36), (37, 41, 39)])
def test_the_certain_bound_holds_for_data_made_to_break_it(name: str, inputs: Any, levels: int, shape: tuple[int, int, int]) -> None:
    """Blocks of very different size, signs that make sums grow, one mantissa everywhere, alpha and beta; beside exact fractions."""
    m, k, n = shape
    draw = np.random.default_rng(levels)
    loaded = load(name)
    schedule = prepare(loaded.scheme, loaded.schedule, levels, inputs).schedule
    bound = error_bound(loaded.scheme, levels, k, U32) if inputs == "preserve" else run_error_bound(schedule, k, U32)
    alpha, beta = np.float32(1.1), np.float32(-0.7)
    some = slice(None, None, 7)  # rows of every block of rows
    for trial in range(4):
        a, b, c = (_hard(draw, trial, shape) for shape in ((m, k), (k, n), (m, n)))
        wanted = Fraction(float(alpha)) * (_exact(a[some]) @ _exact(b)) + Fraction(float(beta)) * _exact(c[some])
        allowed = 1.1 * bound.product * float(abs(a).max()) * float(abs(b).max()) + 0.7 * bound.addend * float(abs(c).max())
        bilinear.matmul(a.copy(), b.copy(), c, algorithm=name, levels=levels, inputs=inputs, alpha=alpha, beta=beta)
        assert float(abs(_exact(c[some]) - wanted).max()) <= allowed * U32 * (1 + 1e-6)


def _hard(draw: np.random.Generator, trial: int, shape: tuple[int, int]) -> Data:
    x = draw.uniform(0.9, 1, shape) if trial % 2 else draw.standard_normal(shape)
    scales = 10.0 ** draw.integers(-12, 1, (4, 4)) if trial % 3 == 0 else np.sign(draw.standard_normal((4, 4)))
    rows, columns = (np.arange(extent) * 4 // extent for extent in shape)
    return (x * scales[rows][:, columns]).astype(np.float32)


def _exact(x: Data) -> Data:
    return np.vectorize(Fraction, otypes=[object])(x.astype(float))


def test_a_constant_matrix_comes_near_the_certain_bound() -> None:
    """Repeated addition of 1/3 drifts one way; a bound far above every error would be no bound worth printing."""
    a = np.full((64, 4096), np.float32(1) / np.float32(3))
    error = abs(a[:1].cumsum(1, dtype=np.float32)[0, -1] - float(a[0, 0]) * 4096)
    assert error > 0 and error <= error_bound(load("naive2x2").scheme, 0, 4096, U32).product * float(a[0, 0]) * U32


def test_fractions_count_their_own_roundings() -> None:
    scheme = scheme_of(Fraction(1, 3), 3, 1)
    plain = scheme_of(1, 1, 1)
    assert error_bound(scheme, 1, 10, U32).product > error_bound(plain, 1, 10, U32).product >= 10 * 10


def test_the_bound_is_infinite_where_nothing_can_be_said() -> None:
    assert error_bound(load("strassen").scheme, 1, 2**12, 2.0**-11).product == float("inf")


def test_deviations_cover_what_they_say() -> None:
    """The products of two random walks have the tail that the multiplier assumes: none of 20000 sums exceeds it, and 5 % exceed little."""
    draw = np.random.default_rng(3)
    steps = draw.standard_normal((20_000, 64)) * np.cumsum(draw.standard_normal((20_000, 64)), 1)
    sums = abs(steps.sum(1)) / np.sqrt(64 * 65 / 2)
    assert sums.max() < deviations(20_000, 0.99)
    assert (sums > deviations(1, 0.95)).mean() < 0.05
    assert deviations(10**6, 0.99) < deviations(10**6, 0.999) < deviations(10**8, 0.999) < 30


@pytest.mark.parametrize("confidence", [None, 0.99])
def test_levels_that_keep_an_accuracy_keep_it(confidence: float | None) -> None:
    scheme, shape = load("winograd").scheme, (1024, 1024, 1024)
    found = [levels_for_accuracy(scheme, shape, "float32", 10.0**-digits, confidence) for digits in range(-13, 9)]
    assert found[0] == 10 and found[-1] is None  # no more levels than 1024 has halves
    assert all(y is None or (x is not None and x >= y) for x, y in pairwise(found))
    for digits, levels in zip(range(-13, 9), found, strict=True):
        if levels is not None and levels <= 3:
            assert measured("winograd", "preserve", levels, "uniform", 1024) <= 10.0**-digits
    assert (levels_for_accuracy(scheme, shape, "float32", 1e-2, 0.99) or 0) > (levels_for_accuracy(scheme, shape, "float32", 1e-2) or 0)


def test_facts_of_an_in_place_schedule_have_its_drift() -> None:
    loaded = load("msmes")
    schedules = [prepare(loaded.scheme, loaded.schedule, levels, "restore").schedule for levels in (1, 2)]
    facts = accuracy_facts(loaded.scheme, schedules, 256, ("float32",), most_levels=2)
    assert [fact.drift for fact in facts] == [None, *(drift_bound(schedule).worst() * U32 for schedule in schedules)]
    assert [fact.deterministic for fact in facts[1:]] == [run_error_bound(s, 256, U32).product * U32 for s in schedules]


def test_levels_in_place_are_those_that_are_known_and_never_the_schemes() -> None:
    loaded = load("msmes")
    third = prepare(loaded.scheme, loaded.schedule, 3, "restore").schedule
    facts = accuracy_facts(loaded.scheme, [third], 256, ("float32",))
    assert [fact.levels for fact in facts] == [0, 3] and facts[1].drift == drift_bound(third).worst() * U32
    consumed = prepare(loaded.scheme, loaded.schedule, 1, "consume").schedule
    assert [fact.drift for fact in accuracy_facts(loaded.scheme, [consumed], 256, ("float32",))] == [None, None]


@pytest.mark.parametrize("in_place", [False, True])
def test_levels_kept_agree_with_the_bounds_of_each_level(in_place: bool) -> None:
    loaded = load("msmes")
    schedules = [prepare(loaded.scheme, loaded.schedule, levels, "restore").schedule for levels in (1, 2)] if in_place else []
    facts = accuracy_facts(loaded.scheme, schedules, 4096, ("float32",), most_levels=2)
    certain = [fact.deterministic for fact in facts]
    probable = [fact.probabilistic for fact in facts]
    for accuracy in (certain[0] * 0.5, *(bound * factor for bound in certain + probable for factor in (0.99, 1.01))):
        (kept,) = levels_kept(loaded.scheme, facts, accuracy, 2, in_place)
        always = [level for level, bound in enumerate(certain) if bound <= accuracy]
        likely = [level for level, bound in enumerate(probable) if bound <= accuracy]
        assert (kept.always, kept.likely) == (max(always, default=None), max(likely + always, default=None))
        assert (kept.looked, kept.inner, kept.dtype, kept.confidence) == (2, 4096, "float32", 0.99)


def test_multiplying_by_fractions_may_underflow_and_by_integers_may_not() -> None:
    assert [underflow(c) for c in (1, -3, Fraction(4, 1), Fraction(1, 2), Fraction(3, 2), generator("sqrt(3)"))] == [0, 0, 0, 1, 1, 1]
    assert [is_in_range(c) for c in (0, 1, 2**127, Fraction(1, 2**126), 2**128, Fraction(1, 2**127))] == [True] * 4 + [False] * 2
    assert magnitude(Fraction(1, 10**400)) > 0


def test_the_bound_of_a_schedule_is_its_own_where_the_tables_are_complex() -> None:
    """i times A and -i times B multiply to one product with the coefficient 1; i + 1 and its inverse likewise."""
    i = generator("i")
    turned = scheme_of(i, -i, 1, Ring("Q[i]"))
    schedule = scheme_to_schedule(turned)
    assert runs_on_reals(schedule) and not is_real(turned)
    assert schedule_bound(turned, schedule, 64, U32) == run_error_bound(schedule, 64, U32)
    assert error_allowance(turned, schedule, 64, U32) == pytest.approx(67 * 64 * U32, rel=1e-3)
    unlike = scheme_to_schedule(scheme_of(i, 1, 1, Ring("Q[i]")))
    assert not runs_on_reals(unlike)
    with pytest.raises(ValueError, match="real"):
        schedule_bound(turned, unlike, 64, U32)


def rescaled(name: str, factor: Any, inverse: Any, ring: Ring) -> Scheme:
    """The scheme with every other left factor times `factor` and every other product of C times its inverse."""
    scheme = load(name).scheme
    u = tuple(tuple((i, c * factor if p % 2 else c) for i, c in row) for p, row in enumerate(scheme.u.matrix))
    w = tuple(tuple((p, c * inverse if p % 2 else c) for p, c in row) for row in scheme.w.matrix)
    return replace(scheme, u=LinearMap(scheme.u.inputs, u), w=LinearMap(scheme.w.inputs, w), ring=ring)


ROOT = generator("sqrt(3)")
RESCALED = [
    rescaled("strassen", Fraction(1, 3), 3, Ring("Q")),
    rescaled("laderman", Fraction(1001, 7), Fraction(7, 1001), Ring("Q")),
    rescaled("winograd", ROOT, ROOT * Fraction(1, 3), Ring("Q[sqrt(3)]")),
]


@pytest.mark.sample(3)
@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("scheme", [*RESCALED, *(load(name).scheme for name in SCHEMES)], ids=lambda scheme: f"{scheme.name}-{scheme.ring}")
def test_one_level_recurrences_bound_every_lowered_schedule(scheme: Scheme, levels: int) -> None:
    """The bound from the one-level tables is above that of the schedule as it runs, nested flat and fused or not, and not far above."""
    if scheme.rank**levels > 400:
        return
    nested = nest_levels([scheme_to_schedule(scheme)] * levels)
    for schedule in (runnable(nested), runnable(fuse_linear_stages(nested))):
        for inner in (3 * scheme.k**levels + 1, 1024):
            run, tables = run_error_bound(schedule, inner, U32), error_bound(scheme, levels, inner, U32)
            assert run.product <= tables.product <= 25 * run.product
            assert run.addend <= tables.addend


def test_a_run_by_hand() -> None:
    """C11 = A11*B11 + A12*B21 with leaves of depth 32: gamma_32 for each leaf, two roundings for alpha, one addition, one for beta."""
    schedule = prepare(load("naive2x2").scheme, None, 1, "preserve").schedule
    value = Trace.of(schedule, 2.0**-53, 32).state[Block("C", 0, 0)]
    assert isinstance(value, ResultValue) and value.size == 64
    assert value.error == pytest.approx(2 * 32 * 32 + 64 * (2 + 1 + 1), rel=1e-9) and value.old_error == pytest.approx(2)
    assert run_error_bound(schedule, 64, 2.0**-53).product == pytest.approx(67 * 64)  # what peeling leaves, were there any, is worse


def test_a_run_in_place_by_hand() -> None:
    """C12 = A11*(B12 - B22) + (A11 + A12)*B22, K = 1: 4 products of entries, sums of 2 + 2; each of the two terms is added with alpha."""
    value = Trace.of(prepare(load("msmes").scheme, load("msmes").schedule, 1, "restore").schedule, 2.0**-53).state[Block("C", 0, 1)]
    assert isinstance(value, ResultValue) and value.size == 4
    sums, leaves, added = 2 + 2, 2 + 2, 4 * 2 + 2 * 1 + 4 * 1
    assert value.error == pytest.approx(sums + leaves + added, rel=1e-9)


STORED = Element("stored", 2, 8, -133, 128, "", "", "", 0, FLOAT32)
U, SUMMED = STORED.roundoffs
Blocks = dict[Block, Any]


def rounded(x: Any) -> Any:
    """float32 to 8 significant bits, ties to even."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def combined(terms: Any, values: list[Any]) -> Any:
    total = np.zeros((), np.float32)
    for index, c in terms:
        total = total + np.float32(to_float(c)) * values[index]
    return total


def run(schedule: Schedule, state: Blocks) -> None:
    """The schedule on blocks, C overwritten: computed in float32, and rounded wherever a block is written."""
    for stage in schedule.stages:
        if isinstance(stage, LinearStage):
            written: Blocks = {}
            for block_map in stage.maps:
                values = [state[block] for block in block_map.sources]
                for step in block_map.map.steps:
                    values.append(combined(step, values))
                for target, output, kept in zip(block_map.targets, block_map.map.outputs, block_map.kept, strict=True):
                    old = state[target] if kept == 1 else np.float32(0)
                    written[target] = rounded(old + combined(output, values))
            state.update(written)
            continue
        for product in stage.products:
            value = state[product.left] @ state[product.right]
            for t in product.targets:
                old = state[t.block] if t.kept == 1 else np.float32(0)
                state[t.block] = rounded(old + np.float32(to_float(t.coefficient)) * value)


def grid_of(x: Any, rows: int, columns: int) -> list[Any]:
    return [part for row in np.split(x, rows) for part in np.split(row, columns, axis=1)]


@each("positive", [False, True])
@each("levels", [1, 2])
@each(("name", "inputs"), [("strassen", "preserve"), ("winograd", "preserve"), ("laderman", "preserve"), ("msmes", "restore")])
def test_the_bounds_hold(name: str, inputs: str, levels: int, positive: bool) -> None:
    loaded, size = load(name), 72
    schedule = prepare(loaded.scheme, loaded.schedule, levels, inputs).schedule
    generator = np.random.default_rng(levels)
    draw = generator.random if positive else generator.standard_normal
    a, b = (rounded(draw((size, size)).astype(np.float32)) for _ in "AB")
    state: Blocks = {}
    for space, x in (("A", a), ("B", b)):
        own = schedule.space(space)
        state |= zip(own.blocks, grid_of(x, own.rows, own.columns), strict=True)
    run(schedule, state)
    c = np.block([[state[Block("C", i, j)] for j in range(schedule.n)] for i in range(schedule.m)])
    error = abs(c - a.astype(np.float64) @ b).max() / (abs(a).max() * abs(b).max())
    traced = run_error_bound(schedule, size, U, SUMMED).product * U
    bound = schedule_bound(loaded.scheme, schedule, size, U, SUMMED).product * U
    probable = probable_error(loaded.scheme, levels, (size, size, size), 0.99, (0.87 * positive,) * 2, SUMMED / U) * U
    assert error <= probable * np.sqrt((a**2).mean() * (b**2).mean()) / (abs(a).max() * abs(b).max())
    assert classical_bound(size, U, SUMMED) * U < bound and 0 < error <= bound and error <= traced
    assert bound < error_bound(loaded.scheme, levels, size, U).product * U, "as if every sum were rounded to 8 bits"
    for space, x in (("A", a), ("B", b)):
        own = schedule.space(space)
        moved = max(abs(state[block] - part).max() for block, part in zip(own.blocks, grid_of(x, own.rows, own.columns), strict=True))
        assert moved <= drift_bound(schedule, U, SUMMED).worst() * U * abs(x).max()
        assert (moved > 0) == (inputs == "restore")


def test_a_shared_value_is_rounded_in_every_block_that_it_is_written_to() -> None:
    """A11 and A21 become s and s + A21 with s = A11 + A12. Restored, A21 keeps two roundings of s, which do not cancel as s itself does."""
    a11, a12, a21 = blocks = Block("A", 0, 0), Block("A", 0, 1), Block("A", 1, 0)
    both, added, back = ((0, 1), (1, 1)), ((3, 1), (2, 1)), ((0, 1), (1, -1))
    begin = BlockMap(blocks, (a11, a21), LinearMap(3, (((3, 1),), added), (both,)), (0, 0))
    ends = [BlockMap((x, y), (x,), LinearMap(2, (back,)), (0,)) for x, y in ((a21, a11), (a11, a12))]
    schedule = Schedule("shared", "shared", 2, 2, 1, tuple(LinearStage((m,)) for m in (begin, *ends)))
    sizes = {a11: 0.5, a12: 0.5 + 2.0**-8, a21: 2.0**-20}
    state: Blocks = {block: np.float32(size) for block, size in sizes.items()}
    run(schedule, state)
    stored, finer = (
        sum(weight * sizes.get(block, 0) for drift in bound.blocks if drift.block == a21 for block, weight in drift.weights)
        for bound in (drift_bound(schedule, U, SUMMED), drift_bound(schedule))
    )
    moved = abs(float(state[a21]) - sizes[a21])
    assert 1.9 * 2.0**-8 < moved <= stored * U
    assert stored > finer + 1, "in float32 s is rounded once, and its error cancels"


def test_types_that_are_stored_as_they_are_computed_keep_their_bounds() -> None:
    schedule, u = prepare(load("winograd").scheme, None, 1, "preserve").schedule, FLOAT32.unit_roundoff
    assert FLOAT32.roundoffs == (u, u)
    assert run_error_bound(schedule, 64, u, u) == run_error_bound(schedule, 64, u)
    assert error_bound(load("winograd").scheme, 1, 64, u, u) == error_bound(load("winograd").scheme, 1, 64, u)
    assert drift_bound(schedule, u, u) == drift_bound(schedule)


@pytest.mark.parametrize("inner", [1024, 4096, 65536])
def test_long_sums_have_bounds(inner: int) -> None:
    """If each of their terms were rounded to 8 bits, there would be none."""
    scheme = load("strassen").scheme
    assert error_bound(scheme, 1, inner, U).product == float("inf")
    assert error_bound(scheme, 1, inner, U, SUMMED).product * U < inner and classical_bound(inner, U, SUMMED) * U < inner * 8 * U
