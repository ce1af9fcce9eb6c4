"""The drift of restored operands compared with its bound, and what `tolerance=` refuses before anything is written."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import bilinear
from bilinear.analysis.accuracy import DriftBound, drift_bound
from bilinear.backends.cuda_executor import CudaExecutor
from bilinear.backends.numpy_executor import NumpyExecutor
from bilinear.codegen.render import render
from bilinear.emulator import ORDERS, LaunchError, Order, compile_on_cpu, guarded, skip_reason, without_barrier
from bilinear.errors import BilinearError
from bilinear.frontend import Loaded, load, parse_source
from bilinear.ir import matrix
from bilinear.ir.element import FLOAT32, IN_ARRAYS, Element
from bilinear.ir.kernel import MagnitudeKernel
from bilinear.ir.schedule import Schedule
from bilinear.lowering.prepare import Level, prepare, prepare_levels
from bilinear.runtime.magnitudes import _moves
from bilinear.source import Source

MSMES = load("msmes")
U = {np.float32: 2.0**-24, np.float64: 2.0**-53}
EDGE = 12  # Elements along a finest block.


@lru_cache(maxsize=8)
def lowered(levels: int, inputs: str = "restore") -> Schedule:
    return prepare(MSMES.scheme, MSMES.schedule, levels, inputs).schedule


@lru_cache(maxsize=8)
def drift(levels: int) -> DriftBound:
    return drift_bound(lowered(levels))


def matrix_of(scales: Any, fill: Any, dtype: Any = np.float32) -> Any:
    """A matrix whose block (i, j) is `fill` of its place, times scales[i, j]."""
    rows, columns = scales.shape
    blocks = np.stack([np.stack([fill() * scales[i, j] for j in range(columns)]) for i in range(rows)])
    return np.ascontiguousarray(blocks.transpose(0, 2, 1, 3).reshape(rows * EDGE, columns * EDGE)).astype(dtype)


def by_block(x: Any, side: int) -> Any:
    return abs(np.asarray(x, np.longdouble)).reshape(side, EDGE, side, EDGE).max((1, 3)).ravel()


def scales_of(trial: int, side: int, draw: np.random.Generator) -> Any:
    """Scales by block: powers of ten, signs, or ones."""
    powers = [
        np.zeros((side, side)),
        draw.integers(-20, 1, (side, side)),
        draw.choice([-20, 0], (side, side)),
        draw.integers(-2, 1, (side, side)),
    ]
    return 10.0 ** powers[trial % 4] * np.sign(draw.standard_normal((side, side)))


@pytest.mark.sample(2)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("levels", [1, 2, 3])
def test_the_drift_bound_holds_on_adversarial_scaling_and_is_near(levels: int, dtype: Any) -> None:
    """The drift of every block is at most its bound, and in some case at least a hundredth of it."""
    side, draw = 2**levels, np.random.default_rng(levels)
    worst = {name: np.zeros(side * side) for name in "AB"}
    moves = {name: _moves(drift(levels), name, U[dtype], 1) for name in "AB"}
    for trial in range(40):
        fill = (lambda: draw.uniform(0.5, 1, (EDGE, EDGE))) if trial % 3 else (lambda: draw.standard_normal((EDGE, EDGE)))
        a, b = (matrix_of(scales_of(trial, side, draw), fill, dtype) for _ in "AB")
        kept = a.copy(), b.copy()
        bilinear.matmul(a, b, algorithm=MSMES, levels=levels, inputs="restore")
        for name, after, before in zip("AB", (a, b), kept, strict=True):
            bound = moves[name] @ by_block(before, side)
            moved = by_block(after.astype(np.longdouble) - before, side)
            assert (moved <= bound).all()
            worst[name] = np.maximum(worst[name], np.divide(moved, bound, out=np.zeros_like(moved), where=bound > 0))
    for name in "AB":
        drifting = [i for i, block in enumerate(x for x in drift(levels).blocks if x.block.space == name) if block.weights]
        assert len(drifting) == side * side - 1, "the block that no sum is written to does not drift"
        assert worst[name][drifting].min() >= 0.01


def test_the_drift_of_one_level_by_hand() -> None:
    """A22 is never written; A11 = (A11 + A22) - A22 is rounded twice, at most u*(|A11| + |A22|) and u*(|A11 + A22| + |A22|)."""
    blocks = {str(x.block): x for x in drift(1).blocks}
    assert blocks["A22"].weights == () and blocks["B22"].coefficient == 0
    weights = {str(block): round(weight, 4) for block, weight in blocks["A11"].weights}
    assert weights == {"A11": 2.0, "A22": 3.0}
    assert {str(block) for block in blocks["A12"].met} == {"A11", "A12", "A22"}
    assert drift(1).worst("A") == drift(1).worst() == pytest.approx(12, rel=1e-5)
    assert drift(1).lost == () and drift(1).growth == pytest.approx(4, rel=1e-5)


def test_schedules_that_write_nothing_do_not_drift_and_consumed_blocks_are_lost() -> None:
    scheme = load("winograd").scheme
    still = drift_bound(prepare(scheme, None, 2, "preserve").schedule)
    assert still.worst() == 0 and still.lost == ()
    assert drift_bound(lowered(1, "consume")).lost


@pytest.mark.parametrize("levels", [1, 2])
def test_drift_grows_no_faster_than_linearly_with_calls(levels: int) -> None:
    side, draw = 2**levels, np.random.default_rng(0)
    a, b = (matrix_of(np.ones((side, side)), lambda: draw.standard_normal((EDGE, EDGE))) for _ in "AB")
    kept, once = a.copy(), 0.0
    for call in range(1, 41):
        bilinear.matmul(a, b, algorithm=MSMES, levels=levels, inputs="restore")
        moved = by_block(a.astype(np.longdouble) - kept, side)
        assert (moved <= _moves(drift(levels), "A", U[np.float32], call) @ by_block(kept, side)).all()
        once = once or float(moved.max())
    assert float(moved.max()) <= 40 * once
    np.testing.assert_allclose(_moves(drift(levels), "A", 1e-9, 40), 40 * _moves(drift(levels), "A", 1e-9, 1), rtol=1e-4, atol=1e-15)


def refused(a: Any, b: Any, out: Any = None, **options: Any) -> str:
    """The text of the refusal (E533) of a call, which must write nothing."""
    kept = [None if x is None else x.tobytes() for x in (a, b, out)]
    with pytest.raises(BilinearError) as caught:
        bilinear.matmul(a, b, out, **{"algorithm": MSMES, "levels": 1, "inputs": "restore", **options})
    assert kept == [None if x is None else x.tobytes() for x in (a, b, out)]
    assert {d.code for d in caught.value.diagnostics} == {"E533"}
    return str(caught.value)


def uneven(small: float, place: tuple[int, int] = (0, 0), dtype: Any = np.float64) -> Any:
    """Blocks of ones (times noise), except for one block."""
    draw = np.random.default_rng(5)
    scales = np.ones((2, 2))
    scales[place] = small
    return matrix_of(scales, lambda: draw.uniform(0.5, 1, (EDGE, EDGE)), dtype)


def test_tiny_blocks_come_back_as_zeros_unless_a_tolerance_is_given() -> None:
    a, b = uneven(1e-20), uneven(1.0)
    kept = a.copy()
    message = refused(a, b, tolerance=1e-3)
    assert message == (
        f"error[E533]: restoring a may move block A11 by {_said(message)} times its largest entry, but tolerance=0.001\n"
        "  note: the largest entry of A11 is 1e-20; A22, which is in sums with it, reaches 0.999\n"
        "  hint: use inputs='preserve', fewer levels, or a larger tolerance"
    )
    bilinear.matmul(a, b, algorithm=MSMES, levels=1, inputs="restore")
    assert (a[:EDGE, :EDGE] == 0).all() and (kept[:EDGE, :EDGE] > 0).all()


def _said(message: str) -> str:
    """The number in a message: about 3 * 2**-53 * 1e20."""
    number = message.partition(" by ")[2].partition(" ")[0]
    assert float(number) == pytest.approx(3 * 2.0**-53 * 1e20, rel=0.1)
    return number


def test_the_tolerance_is_relative_to_the_blocks_own_largest_entry() -> None:
    """A11's bound has weight 3 for A22 and 2 for itself. With a tolerance just above it the call runs, just below it is refused."""
    a, b = uneven(1e-6), uneven(1.0)
    sizes = by_block(a, 2)
    bound = float((_moves(drift(1), "A", 2.0**-53, 1) @ sizes / sizes).max())
    assert 1e-10 < bound < 1e-8
    refused(a, b, tolerance=bound * 0.999)
    kept = a.copy()
    c = bilinear.matmul(a, b, algorithm=MSMES, levels=1, inputs="restore", tolerance=bound * 1.001)
    assert (by_block(a - kept, 2) <= bound * sizes).all()
    np.testing.assert_allclose(c, kept @ b, rtol=1e-12)


@pytest.mark.parametrize("which", ["a", "b"])
@pytest.mark.parametrize("layout", ["C", "F"])
def test_either_operand_in_either_order_is_looked_at(which: str, layout: Any) -> None:
    small, plain = (np.asarray(x, order=layout) for x in (uneven(1e-9, (0, 1)), uneven(1.0)))
    a, b = (small, plain) if which == "a" else (plain, small)
    message = refused(a, b, tolerance=1e-9)
    assert f"restoring {which} may move block {which.upper()}12" in message
    bilinear.matmul(a, b, algorithm=MSMES, levels=1, inputs="restore", tolerance=1e-3)


def test_zeros_beside_numbers_are_refused_and_zeros_alone_are_not() -> None:
    message = refused(uneven(0.0), uneven(1.0), tolerance=1e30)
    assert "restoring a may leave other numbers in block A11, which is all zeros" in message
    a = np.zeros((2 * EDGE, 2 * EDGE))
    assert (bilinear.matmul(a, a.copy(), algorithm=MSMES, levels=1, inputs="restore", tolerance=0.0) == 0).all()


def test_the_block_that_is_never_written_may_be_of_any_size() -> None:
    a = uneven(1e-200, (1, 1))
    kept = a.copy()
    bilinear.matmul(a, uneven(1.0), algorithm=MSMES, levels=1, inputs="restore", tolerance=1e-14)
    assert np.array_equal(a[EDGE:, EDGE:], kept[EDGE:, EDGE:])


def test_sums_that_may_overflow_are_refused() -> None:
    big = np.full((2 * EDGE, 2 * EDGE), 1e308)
    assert "may overflow" in refused(big, uneven(1.0), tolerance=1.0)
    with np.errstate(all="ignore"):
        bilinear.matmul(big, uneven(1.0), algorithm=MSMES, levels=1, inputs="restore")
    assert not np.isfinite(big).all()


def test_inf_and_nan_are_refused_with_and_without_a_tolerance() -> None:
    for value in (np.inf, np.nan):
        for tolerance in (None, 1.0):
            a = uneven(1.0)
            a[3, 5] = value
            with pytest.raises(BilinearError, match="E524"):
                bilinear.matmul(a, uneven(1.0), algorithm=MSMES, levels=1, inputs="restore", tolerance=tolerance)


def scaling(factor: str, inverse: str, operand: str = "A11") -> Loaded:
    """A schedule of one product that scales an operand in place and scales it back."""
    text = (
        "scheme one <1,1,1;1>\n  M1: 1 | 1 | 1\nschedule scaling of one: in-place, restores A B\n"
        f"  stage {{ {operand} = {factor} {operand} }}\n  stage {{ {inverse} C11 += A11 * B11 }}\n"
        f"  restore stage {{ {operand} = {inverse} {operand} }}\n"
    )
    source = Source("scaling.bl", text)
    found = parse_source(source)
    return replace(MSMES, scheme=found.schemes[0], schedule=found.schedules[0], source=source)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("factor", "inverse"), [("1/2", "2"), ("1/1048576", "1048576"), ("1/3", "3"), ("3/2", "2/3"), ("3", "1/3")])
def test_what_underflows_is_within_the_bound_and_refused_above_the_tolerance(factor: str, inverse: str, dtype: Any) -> None:
    """Powers of two round only numbers that underflow. All multiples of the smallest subnormal number are tried."""
    halving, tiny, one = scaling(factor, inverse), np.finfo(dtype).smallest_subnormal, np.eye(4, dtype=dtype)
    schedule = prepare(halving.scheme, halving.schedule, 1, "restore").schedule
    (bound,) = (x for x in drift_bound(schedule).blocks if x.block.space == "A")
    worst = 0.0
    for exponent in range(0, 40, 4):
        a = (np.arange(1, 17).reshape(4, 4) * 2.0**exponent * np.longdouble(tiny)).astype(dtype)
        kept, largest = a.copy(), np.longdouble(abs(a).max())
        bilinear.matmul(a, one, algorithm=halving, levels=1, inputs="restore")
        moved = np.longdouble(abs(a.astype(np.longdouble) - kept).max())
        allowed = bound.coefficient * np.longdouble(U[dtype]) * largest + sum(loss for _, loss in bound.losses) * np.longdouble(tiny)
        assert moved <= allowed
        worst = max(worst, float(moved / allowed))
        limit = float(allowed / largest)
        refused(kept, one, tolerance=limit * 0.99, algorithm=halving)
        bilinear.matmul(kept, one, algorithm=halving, levels=1, inputs="restore", tolerance=limit * 1.01)
    assert worst >= 0.1 or Fraction(factor) > 1, "what is scaled down first loses much"


def test_the_smallest_number_is_not_halved_and_doubled_in_silence() -> None:
    a = np.full((4, 4), 5e-324)
    message = refused(a, np.eye(4), tolerance=1e-6, algorithm=scaling("1/2", "2"))
    assert "block A11 by 2 times its largest entry" in message and "products may underflow" in message
    bilinear.matmul(a, np.eye(4), algorithm=scaling("1/2", "2"), levels=1, inputs="restore")
    assert (a == 0).all()
    bilinear.matmul(np.zeros((4, 4)), np.eye(4), algorithm=scaling("1/2", "2"), levels=1, inputs="restore", tolerance=0)


MIXED = [
    ("classical", "msmes"),
    ("msmes", "classical"),
    ("winograd_in_place", "msmes"),
    ("msmes", "winograd"),
    ("laderman_in_place", "msmes"),
]


@pytest.mark.parametrize("levels", MIXED, ids=" ".join)
def test_levels_that_differ_are_bounded_by_the_schedule_that_runs(levels: tuple[str, ...]) -> None:
    """The bound is that of these levels, for each block of their grid, and it holds."""
    choice = bilinear.plan(72, 72, 72, device="h200", inputs="restore", levels=levels)
    schedule = prepare_levels(tuple(Level(one.scheme, one.schedule) for one in map(load, levels)), "restore")
    bound, draw = drift_bound(schedule), np.random.default_rng(len(levels[0]))
    a, b = draw.uniform(0.5, 1, (72, 72)), draw.uniform(0.5, 1, (72, 72))
    a[:36] *= 1e6
    b[36:] *= 1e-6
    kept = a.copy(), b.copy()
    allowed = {name: _moves(bound, name, U[np.float64], 1) @ grid_of(schedule, name, x) for name, x in (("A", a), ("B", b))}
    limit = max(float((allowed[name] / grid_of(schedule, name, x)).max()) for name, x in (("A", a), ("B", b)))
    assert 1e-12 < limit < 1e-6
    with pytest.raises(BilinearError, match="E533"):
        bilinear.matmul(a, b, plan=choice, tolerance=limit * 0.999)
    assert np.array_equal(a, kept[0]) and np.array_equal(b, kept[1])
    c = bilinear.matmul(a, b, plan=choice, tolerance=limit * 1.001)
    np.testing.assert_allclose(c, kept[0] @ kept[1], rtol=1e-8)
    assert not (np.array_equal(a, kept[0]) and np.array_equal(b, kept[1])), "rounding moves something"
    for name, after, before in (("A", a, kept[0]), ("B", b, kept[1])):
        assert (grid_of(schedule, name, after.astype(np.longdouble) - before) <= allowed[name]).all()


def grid_of(schedule: Schedule, name: str, x: Any) -> Any:
    """The magnitudes of the blocks of an operand, as the schedule cuts it."""
    space = schedule.space(name)
    rows, columns = x.shape[0] // space.rows, x.shape[1] // space.columns
    return abs(np.asarray(x, np.longdouble)).reshape(space.rows, rows, space.columns, columns).max((1, 3)).ravel()


def test_each_call_of_a_batch_may_lose_as_much() -> None:
    a, b = np.full((4, 4), 1e-300), np.stack([np.eye(4)] * 50)
    one = 2 * 5e-324 / 1e-300
    refused(a, b, tolerance=40 * one, algorithm=scaling("1/2", "2"))
    bilinear.matmul(a, b, algorithm=scaling("1/2", "2"), levels=1, inputs="restore", tolerance=60 * one)


def test_sums_lose_nothing_where_they_underflow() -> None:
    """Sums of multiples of the smallest subnormal number are exact."""
    draw, tiny = np.random.default_rng(0), np.finfo(float).smallest_subnormal
    a, b = (draw.integers(-100, 100, (8, 8)) * tiny for _ in "ab")
    kept = a.copy(), b.copy()
    bilinear.matmul(a, b, algorithm=MSMES, levels=2, inputs="restore")
    assert np.array_equal(a, kept[0]) and np.array_equal(b, kept[1])
    assert not any(block.losses for block in drift(2).blocks)


def test_scaling_up_may_overflow() -> None:
    a = np.full((4, 4), 1e308)
    assert "may overflow" in refused(a, np.eye(4), tolerance=1.0, algorithm=scaling("4", "1/4"))


@pytest.mark.parametrize("size", [10**50, 2**200])
def test_coefficients_that_float32_cannot_hold_are_refused(size: int) -> None:
    for algorithm in (scaling(f"1/{size}", str(size)), scaling(str(size), f"1/{size}")):
        assert "no bound is known" in refused(np.ones((4, 4)), np.eye(4), tolerance=1.0, algorithm=algorithm)


def test_a_matrix_shared_by_a_batch_drifts_in_each_product() -> None:
    a, b = uneven(1.0), np.stack([uneven(1.0)] * 50)
    bound = float((_moves(drift(1), "A", 2.0**-53, 1) @ by_block(a, 2) / by_block(a, 2)).max())
    assert "restoring a may move" in refused(a, b, tolerance=bound * 2)
    assert "restoring b[7] may move" in refused(a, np.stack([uneven(1.0)] * 7 + [uneven(1e-9)]), tolerance=1e-9)
    bilinear.matmul(a, b, algorithm=MSMES, levels=1, inputs="restore", tolerance=bound * 51)


def test_what_peeling_leaves_over_is_not_looked_at() -> None:
    """The last row and column of an odd matrix are never written, so their magnitudes do not matter."""
    a, b = (np.pad(uneven(1.0), (0, 1), constant_values=1e-30) for _ in "ab")
    kept = a.copy()
    bilinear.matmul(a, b, algorithm=MSMES, levels=1, inputs="restore", tolerance=1e-14)
    assert np.array_equal(a[-1], kept[-1]) and np.array_equal(a[:, -1], kept[:, -1])


def test_exact_types_take_any_tolerance() -> None:
    for dtype in (np.int64, object):
        a, b = (np.array([[0, 1], [10**6, 3]]).astype(dtype) for _ in "ab")
        assert (bilinear.matmul(a, b, algorithm=MSMES, levels=1, inputs="restore", tolerance=0) == a @ b).all()


@pytest.mark.parametrize(
    ("tolerance", "inputs"),
    [(-1.0, "restore"), (float("nan"), "restore"), ("1e-6", "restore"), (True, "restore"), (10**400, "restore"), (0.1, "consume")],
)
def test_what_is_no_tolerance_is_refused(tolerance: Any, inputs: Any) -> None:
    with pytest.raises(BilinearError, match="E532"):
        bilinear.matmul(np.eye(4), np.eye(4), algorithm=MSMES, levels=1, inputs=inputs, tolerance=tolerance)


def test_any_real_number_is_a_tolerance_and_preserving_keeps_every_one() -> None:
    a, b = uneven(1e-20), uneven(1.0)
    refused(a, b, tolerance=Fraction(1, 1000))
    refused(a, b, tolerance=np.float32(1e-3))
    bilinear.matmul(a, b, algorithm=MSMES, levels=1, tolerance=0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.longdouble])
@pytest.mark.parametrize("order", ["C", "F"])
def test_magnitudes_on_numpy(dtype: Any, order: Any) -> None:
    draw = np.random.default_rng(1)
    x = np.asarray(draw.standard_normal((300, 420)), dtype, order=order)
    x[150, 70] = -np.finfo(dtype).max
    wanted = [[abs(x[i : i + 100, j : j + 140]).max() for j in range(0, 420, 140)] for i in range(0, 300, 100)]
    assert np.array_equal(NumpyExecutor().magnitudes(matrix.matrix_of(x), 3, 3), wanted)
    assert not np.signbit(NumpyExecutor().magnitudes(matrix.matrix_of(np.zeros((3, 3), dtype)), 3, 3)).any()
    x[299, 419] = np.nan
    assert np.isnan(NumpyExecutor().magnitudes(matrix.matrix_of(x), 3, 3)[2, 2])


@pytest.mark.skipif(skip_reason() is not None, reason=str(skip_reason()))
@pytest.mark.parametrize("element", IN_ARRAYS.values(), ids=str)
@pytest.mark.parametrize("threads", [1, 8, 256])
def test_the_emitted_kernel_finds_the_magnitudes(element: Element, threads: int) -> None:
    """Run on the CPU and compared with NumPy. Only blocks with an Inf or a NaN give a magnitude that is not finite."""
    kernel = MagnitudeKernel(f"magnitudes_{element.cuda}", element, (threads, 1))
    pointer = f"{element.bits} *"
    module = compile_on_cpu(render(kernel), {kernel.name: [pointer, *["long long"] * 5, pointer]})
    dtype = np.dtype(element.name)
    draw = np.random.default_rng(threads)
    for special in (0.0, -np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal, np.inf, np.nan):
        for transposed in (False, True):
            x = guarded(draw.standard_normal((33, 44)).astype(dtype) * (special != np.finfo(dtype).smallest_subnormal))
            x[13, 43] = special
            x = x.T if transposed else x
            rows, columns = (4, 3) if transposed else (3, 4)
            found = guarded(np.full((rows, columns, 5), np.nan, dtype))
            extents = [x.shape[0] // rows, x.shape[1] // columns, columns]
            strides = [stride // x.itemsize for stride in x.strides]
            arguments = [_address(x), *strides, *extents, _address(found)]
            module.launch(kernel.name, (5, rows * columns, 1), (threads, 1, 1), arguments)
            np.testing.assert_array_equal(found.max(2), NumpyExecutor().magnitudes(matrix.matrix_of(x), rows, columns))


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("layout", ["C", "F"])
def test_the_gpu_refuses_what_numpy_refuses(dtype: Any, layout: Any) -> None:
    import cupy

    a, b = uneven(1e-9, (1, 0), dtype), uneven(1.0, dtype=dtype)
    x, y = cupy.asarray(a, order=layout), cupy.asarray(b, order=layout)
    executor = CudaExecutor()
    assert np.array_equal(executor.magnitudes(matrix.matrix_of(x), 4, 2), NumpyExecutor().magnitudes(matrix.matrix_of(a), 4, 2))
    bound = float((_moves(drift(1), "A", U[dtype], 1) @ by_block(a, 2) / by_block(a, 2)).max())
    with pytest.raises(BilinearError, match=r"E533.*A21"):
        bilinear.matmul(x, y, algorithm=MSMES, levels=1, inputs="restore", tolerance=bound * 0.99)
    assert np.array_equal(x.get(), a) and np.array_equal(y.get(), b)
    bilinear.matmul(x, y, algorithm=MSMES, levels=1, inputs="restore", tolerance=bound * 1.01)
    assert (by_block(x.get().astype(np.longdouble) - a, 2) <= bound * by_block(a, 2)).all()


@pytest.mark.gpu
@pytest.mark.parametrize("levels", [1, 2, 3])
def test_the_drift_bound_holds_on_a_gpu(levels: int) -> None:
    """The kernels add in another order and with fused multiply-adds; the bound allows both."""
    import cupy

    side, draw = 2**levels, np.random.default_rng(levels)
    for trial in range(12):
        a, b = (matrix_of(scales_of(trial, side, draw), lambda: draw.uniform(0.5, 1, (EDGE, EDGE))) for _ in "AB")
        x, y = cupy.asarray(a), cupy.asarray(b)
        bilinear.matmul(x, y, algorithm=MSMES, levels=levels, inputs="restore")
        for name, after, before in (("A", x, a), ("B", y, b)):
            bound = _moves(drift(levels), name, U[np.float32], 1) @ by_block(before, side)
            assert (by_block(after.get().astype(np.longdouble) - before, side) <= bound).all()


@pytest.mark.skipif(skip_reason() is not None, reason=str(skip_reason()))
def test_the_kernels_barrier_is_needed() -> None:
    """The kernel is right in every order of threads, but without its barrier it is not."""
    kernel = MagnitudeKernel("magnitudes_float", FLOAT32, (8, 1))
    pointer, x = f"{FLOAT32.bits} *", np.arange(64, dtype=np.float32).reshape(8, 8)

    def right(source: str, order: Order) -> bool:
        module, found = compile_on_cpu(source, {kernel.name: [pointer, *["long long"] * 5, pointer]}), np.zeros(1, np.float32)
        try:
            module.launch(kernel.name, (1, 1, 1), (8, 1, 1), [_address(x), 8, 1, 8, 8, 1, _address(found)], order=order, seed=3)
        except LaunchError:
            return False
        return bool(found[0] == 63)

    source = render(kernel)
    assert all(right(source, order) for order in ORDERS)
    mutants = list(without_barrier(source))
    assert len(mutants) == 1 and all(not all(right(mutant, order) for order in ORDERS) for _, mutant in mutants)
