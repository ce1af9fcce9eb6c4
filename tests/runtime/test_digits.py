"""Products of float16 digits through `matmul`, on a pretended GPU that runs the emitted kernels; and those that cut A and B on load."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from digit_unit import slow_units
from runtime import pretended_gpu
from runtime.operands import laid
from runtime.pretended_gpu import Array, Device, Gpu, require_exact

import bilinear
from bilinear.analysis.accuracy import path_growth
from bilinear.analysis.block_maps import headroom
from bilinear.codegen.render import render
from bilinear.emulator import compile_on_cpu, skip_reason
from bilinear.errors import BilinearError, StageError
from bilinear.frontend.printer import print_scheme
from bilinear.ir.digit_kernel import LoadingKernel
from bilinear.ir.matrix import layout_of
from bilinear.ir.number import to_float
from bilinear.ir.tile import LOADING_TILES
from bilinear.methods.digits.binding import digit_multiply_of, kernels_of
from bilinear.methods.digits.choice import Digits, geometry_of, scheme_of
from bilinear.methods.digits.plans import named_candidate
from bilinear.methods.planning import plan_from_json
from bilinear.planner.device import Device as Described
from bilinear.planner.device_files import load_device
from bilinear.planner.kept_plans import plan_json
from bilinear.planner.library import LIBRARY_ITSELF
from bilinear.planner.plan import Plan
from bilinear.runtime import devices_here
from bilinear.runtime.auto import problem_of
from bilinear.runtime.operands import layouts_of

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")
H200 = load_device("h200")
DESCRIBED = "h200"
ORDERS: tuple[tuple[str, ...], ...] = ((), ("A",), ("B",), ("A", "B", "C"), ("C",))
LEVELS: tuple[tuple[str, ...], ...] = ((), ("winograd",), ("winograd", "winograd"), ("laderman",))


def digit_plan(shape: tuple[int, int, int], levels: tuple[str, ...]) -> Plan:
    return bilinear.plan(*shape, "float32", device=H200, levels=levels, products="pairs")


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("levels", "by_columns"), [*product(LEVELS[:2], ORDERS), (LEVELS[2], ("B",)), (LEVELS[3], ("A", "B", "C"))], ids=str
)
def test_integers_are_exact_in_every_order(gpu: Gpu, levels: tuple[str, ...], by_columns: tuple[str, ...]) -> None:
    for shape, padded in (((37, 70, 29), 0), ((300, 41, 260), 3)):
        require_exact(digit_plan(shape, levels), by_columns, padded=padded)
    assert gpu.library == 0


def error_of(c: Any, a: Any, b: Any) -> tuple[float, float]:
    """The error by norm, and the largest by element relative to |A| |B|."""
    exact = a.astype(np.longdouble) @ b.astype(np.longdouble)
    product = np.abs(a).astype(np.longdouble) @ np.abs(b).astype(np.longdouble)
    off = np.abs(c - exact)
    return float(np.linalg.norm(off.astype(float)) / np.linalg.norm(exact.astype(float))), float((off / product).max())


@pytest.mark.sample(5)
@pytest.mark.parametrize("scales", [(0, 0), (30, -30), (120, -126), (-140, 100), (9, 0)], ids=str)
@pytest.mark.parametrize("levels", [(), ("winograd",)], ids="-".join)
def test_errors_are_as_small_as_those_of_float32_at_every_scale(gpu: Gpu, levels: tuple[str, ...], scales: tuple[int, int]) -> None:
    generator = np.random.default_rng(7)
    normal = generator.standard_normal((129, 300)), generator.standard_normal((300, 130))
    a, b = (np.ldexp(x, scale).astype(np.float32) for x, scale in zip(normal, scales, strict=True))
    if scales[1] == 0 and scales[0]:  # nine decades in every row and column
        a, b = (x * 10 ** generator.uniform(-4.5, 4.5, x.shape).astype(np.float32) for x in (a, b))
    out = Array(np.full((129, 130), np.nan, np.float32))
    bilinear.matmul(Array(a), Array(b), out, plan=digit_plan((129, 300, 130), levels))
    norm, element = error_of(out.host, a, b)
    if scales[0] != -140:  # numbers below 2^-126 have fewer bits themselves
        assert norm < 6e-7
        assert levels or element < 3e-6  # sums of blocks have no bound by element
    else:
        np.testing.assert_allclose(out.host, a.astype(float) @ b.astype(float), rtol=1e-3, atol=1e-12)


WAYS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "pairs": ("float32", (), "pairs"),
    "pairs below winograd": ("float32", ("winograd",), "pairs"),
    "pairs on load": ("float32", (), "pairs_on_load"),
    "residues below winograd": ("float64", ("winograd",), "residues13"),
    "complex pairs below winograd": ("complex64", ("winograd",), "pairs"),
}
"""The type, the levels and the products of a plan."""


def way_plan(way: str, shape: tuple[int, int, int]) -> Plan:
    dtype, levels, products = WAYS[way]
    return bilinear.plan(*shape, dtype, device=H200, levels=levels, products=products)


@pytest.mark.parametrize("way", [way for way in WAYS if "complex" not in way])
@pytest.mark.parametrize(("shape", "order"), [((40, 50, 30), "C"), ((40, 48, 32), "C"), ((40, 48, 32), "F")], ids=str)
def test_inf_and_nan_are_those_of_the_classical_product(gpu: Gpu, way: str, shape: tuple[int, int, int], order: Literal["C", "F"]) -> None:
    (m, k, n), generator, plan = shape, np.random.default_rng(3), way_plan(way, shape)
    a, b, old = (generator.integers(-9, 10, own).astype(plan.problem.dtype) for own in ((m, k), (k, n), (m, n)))
    for number, place, value in ((0, (3, 4), np.inf), (0, (0, 0), -np.inf), (0, (m - 1, k - 1), np.nan), (1, (7, n - 1), -np.inf)):
        x, out = [a.copy(), b.copy()], Array(old.copy())
        x[number][place] = value
        bilinear.matmul(Array(x[0].copy(order)), Array(x[1].copy(order)), out, plan=plan, alpha=2, beta=3)
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(out.host, 2 * (x[0] @ x[1]) + 3 * old)
    out.host[...] = np.nan
    bilinear.matmul(Array(a), Array(b), out, plan=plan)
    np.testing.assert_array_equal(out.host, a @ b)
    in_lanes = shape[2] % (16 // a.itemsize) == 0
    assert any(name.startswith("digit_classical") and name.endswith("even") for name, _ in gpu.launches) == in_lanes


@pytest.mark.parametrize("way", [way for way in WAYS if way.startswith("pairs")])
def test_rows_of_zeros_and_the_largest_numbers(gpu: Gpu, way: str) -> None:
    largest = np.finfo(np.float32).max
    a, b = np.zeros((20, 24), np.float32), np.zeros((24, 16), np.float32)
    a[3], b[:, 5], a[7, 2], b[2, 9] = largest, 2.0**-30, largest, 0.5
    out = Array(np.full((20, 16), np.nan, np.float32))
    bilinear.matmul(Array(a), Array(b), out, plan=way_plan(way, (20, 24, 16)))
    exact = a.astype(float) @ b.astype(float)
    np.testing.assert_allclose(out.host, exact, rtol=1e-6, atol=float(np.abs(exact).max()) * 2.0**-38)


@pytest.mark.parametrize("way", [way for way in WAYS if "below" in way])
def test_memory_is_the_pools_or_the_callers(gpu: Gpu, way: str) -> None:
    plan, generator = way_plan(way, (64, 64, 64)), np.random.default_rng(1)
    a, b = (generator.integers(-9, 10, (64, 64)).astype(plan.problem.dtype) for _ in "AB")
    if plan.problem.dtype == "complex64":
        a, b = a + 1j * b, b - 1j * a
    out, taken, needed = Array(np.zeros_like(a)), list[int](), plan.chosen.workspace or 0
    with gpu.using(allocate=taken.append):
        bilinear.matmul(Array(a), Array(b), out, plan=plan)
    np.testing.assert_array_equal(out.host, a @ b)
    assert taken == [needed] and (way != "pairs below winograd" or needed == geometry_of(("winograd",), (64, 64, 64), "pairs").places[-1])
    with gpu.using(is_capturing=True):
        for workspace in (Array(np.full(needed, 255, np.uint8)), None):
            out.host[...] = 0
            bilinear.matmul(Array(a), Array(b), out, plan=plan, workspace=workspace)
            np.testing.assert_array_equal(out.host, a @ b)
        assert gpu.of_graph == [needed]
    with pytest.raises(BilinearError, match="E535"):
        bilinear.matmul(Array(a), Array(b), out, plan=plan, workspace=needed - 1)
    own = a.copy()
    bilinear.matmul(Array(own), Array(b), Array(own), plan=plan)  # aside from `out`, which is an operand
    np.testing.assert_array_equal(own, a @ b)


def test_what_digits_cannot_hold_is_refused(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    for options, message in (
        ({"dtype": "float64", "products": "pairs"}, "pairs represent float32, not float64"),
        ({"dtype": "float32", "products": "triples"}, "there are no products 'triples'"),
        ({"dtype": "float32", "products": "pairs", "workspace": 10}, "pairs: needs"),
    ):
        with pytest.raises(BilinearError, match="E543") as raised:
            bilinear.plan(64, 64, 64, device=H200, **options)
        assert message in str(raised.value)
    a = Array(np.ones((64, 64)))
    with pytest.raises(BilinearError):
        bilinear.matmul(a, a, plan=digit_plan((64, 64, 64), ()))


def test_forms_fit_a_digit() -> None:
    for levels in LEVELS:
        scheme = scheme_of(levels)
        for linear in (scheme.u, scheme.v):
            most = max(sum(abs(to_float(c)) for _, c in row) for row in linear.matrix)
            assert 2 ** headroom(linear) >= most > 2 ** (headroom(linear) - 1)


def test_auto_takes_digits_for_a_class_of_accuracy_and_repeats_them(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    eager = slow_units(H200)
    pairs = replace(eager, digits=tuple((name, own) for name, own in eager.digits if name == "pairs"))
    monkeypatch.setattr(devices_here, "_described", lambda named, index: pairs)
    a, b = (np.random.default_rng(1).integers(-9, 10, shape).astype(np.float32) for shape in ((70, 900), (900, 70)))
    for _ in range(2):  # decided, then found again
        result = bilinear.matmul(Array(a), Array(b), accuracy="classical")
        np.testing.assert_array_equal(result.host, a @ b)
    assert gpu.library == 0 and [name.startswith("digit_product") for name, _ in gpu.launches].count(True) == 2
    before = len(gpu.launches)
    bilinear.matmul(Array(a), Array(b))
    assert not any(name.startswith("digit") for name, _ in gpu.launches[before:])


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"accuracy": "exact"}, "E543"),
        ({"accuracy": 0.0}, "E543"),
        ({"accuracy": "twice", "algorithm": "winograd"}, "E519"),
        ({"accuracy": 1e-9}, "E519"),
        ({"accuracy": 1e-9, "levels": 0}, "E519"),
    ],
)
def test_an_accuracy_that_nothing_has_is_refused(options: dict[str, Any], code: str) -> None:
    a = np.ones((64, 64), np.float32)
    with pytest.raises(BilinearError, match=code):
        bilinear.matmul(a, a, **options)
    with pytest.raises(BilinearError, match="E519"):
        bilinear.matmul(a.astype(np.int64), a.astype(np.int64), accuracy=1e-9)
    np.testing.assert_array_equal(bilinear.matmul(a, a, accuracy="classical"), a @ a)
    np.testing.assert_array_equal(bilinear.matmul(a, a, accuracy=1.0), a @ a)


def test_memory_of_the_callers_begins_where_bulk_copies_read(gpu: Gpu) -> None:
    a, b = (np.random.default_rng(1).integers(-9, 10, (64, 64)).astype(np.float32) for _ in "AB")
    plan, out = digit_plan((64, 64, 64), ()), Array(np.zeros((64, 64), np.float32))
    needed = plan.chosen.workspace or 0
    memory = np.zeros(needed + 32, np.uint8)
    first = -memory.ctypes.data % 16
    with pytest.raises(BilinearError, match=r"E529.*not a multiple of 16"):
        bilinear.matmul(Array(a), Array(b), out, plan=plan, workspace=Array(memory[first + 4 : first + 4 + needed].view(np.float32)))
    assert not gpu.launches
    bilinear.matmul(Array(a), Array(b), out, plan=plan, workspace=Array(memory[first : first + needed]))
    np.testing.assert_array_equal(out.host, a @ b)


HALF = LIBRARY_ITSELF.choice.bound(2048, "float32") / 2
"""A bound that digits keep at K = 2048, and the classical multiply does not."""


@pytest.mark.slow
def test_the_library_takes_no_ones_place_if_it_does_not_keep_the_bound(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = (np.random.default_rng(1).integers(-9, 10, shape).astype(np.float32) for shape in ((64, 2048), (2048, 64)))
    out = Array(np.full((64, 64), np.nan, np.float32))
    for _ in range(2):  # decided, then found again
        bilinear.matmul(Array(a), Array(b), out, accuracy=HALF)
        np.testing.assert_array_equal(out.host, a @ b)
    out.host[...] = np.nan

    def refused(**options: Any) -> None:
        with pytest.raises(BilinearError, match="E519"):
            bilinear.matmul(Array(a), Array(b), out, **{"accuracy": HALF, **options})
        assert gpu.library == 0 and np.isnan(out.host).all()

    def short(count: int) -> None:
        raise MemoryError

    with gpu.using(allocate=short):
        refused()
    bilinear.matmul(Array(a), Array(b), out, accuracy=HALF, workspace="none")  # cut on load
    np.testing.assert_array_equal(out.host, a @ b)
    out.host[...] = np.nan
    monkeypatch.setattr(Device, "compute_capability", "75")
    refused(accuracy=1.01 * HALF)  # what ran before would be found again
    batches = Array(np.stack([a, a])), Array(np.stack([b, b]))
    with pytest.raises(BilinearError, match="E519"):
        bilinear.matmul(*batches, accuracy=HALF)
    assert gpu.library == 0
    bilinear.matmul(*batches, accuracy=3 * HALF)
    assert gpu.library == 1


def test_slower_digits_run_where_nothing_else_is_accurate_enough() -> None:
    usual = bilinear.plan(64, 2048, 64, "float32", device=H200, explain=True)
    chosen = bilinear.plan(64, 2048, 64, "float32", device=H200, accuracy=HALF, explain=True).chosen
    assert chosen.strategy == "digits" and (chosen.ms or 0.0) > (usual.chosen.ms or 0.0)
    assert chosen.why.startswith("chosen: the fastest that is accurate enough; of the library's multiply its error bound")


def test_a_plan_knows_the_memory_of_a_result_by_columns(gpu: Gpu) -> None:
    a, b = (np.random.default_rng(1).integers(-9, 10, shape).astype(np.float32) for shape in ((300, 64), (64, 200)))
    for by_columns in (False, True):
        out = Array(laid(np.zeros((300, 200)), np.float32, by_columns))
        problem = problem_of(layouts_of(Array(a), Array(b), out), "preserve", None)
        needed = named_candidate(problem, H200, (), "pairs", 2**40).workspace
        own = digit_multiply_of(layout_of(Array(a)), layout_of(Array(b)), layout_of(out), Digits((), "pairs"))
        assert own is not None and own.workspace * 4 == needed


def test_a_bound_counts_the_terms_of_blocks_that_reach_beyond_the_operands() -> None:
    levels = ("winograd", "winograd")
    for inner in (1, 3, 5):  # sums of blocks of rows are formed, and cancel, even where most terms are zeros
        plan = digit_plan((512, inner, 512), levels)
        assert (plan.chosen.error or 0.0) > path_growth(scheme_of(levels)) * 2.0**-24 * inner


def test_levels_that_no_digits_run_below_are_refused() -> None:
    for levels, message in (
        (("winograd",) * 4, r"E501.* below these levels operands are cut into 16x16 and 16x16 blocks"),
        (("winograd",) * 20, "E501"),
        (("bini",), r"E506.* bini is approximate"),
    ):
        with pytest.raises(BilinearError, match=message):
            bilinear.plan(64, 64, 64, "float32", device=H200, levels=levels, products="pairs")


def test_an_accuracy_is_also_a_number_of_numpys() -> None:
    a = np.ones((64, 64), np.float32)
    numbers: list[Any] = [np.float32(1.0), np.float64(1.0), np.int64(1), np.float32("nan")]
    for accuracy in numbers[:-1]:
        np.testing.assert_array_equal(bilinear.matmul(a, a, accuracy=accuracy), a @ a)
        plan = bilinear.plan(512, 512, 512, "float32", device=H200, accuracy=accuracy)
        assert plan_from_json(plan_json(plan), "plan") == plan
    with pytest.raises(BilinearError, match="E543"):
        bilinear.matmul(a, a, accuracy=numbers[-1])


def test_a_file_that_has_changed_is_read_again(gpu: Gpu, tmp_path: Path) -> None:
    a, b = (np.random.default_rng(1).integers(-9, 10, shape).astype(np.float32) for shape in ((40, 50), (50, 30)))
    path, products = tmp_path / "mine.bl", []
    for name in ("strassen", "naive2x2"):
        path.write_text(show(name), encoding="utf-8")
        plan = bilinear.plan(40, 50, 30, "float32", device=H200, levels=(str(path),), products="pairs")
        with gpu.using(launches=[]):
            np.testing.assert_array_equal(bilinear.matmul(Array(a), Array(b), plan=plan).host, a @ b)
        products.append((scheme_of(plan.chosen.levels).rank, plan.chosen.workspace))
    (seven, less), (eight, more) = products
    assert (seven, eight) == (7, 8) and (less or 0) < (more or 0)


def show(name: str) -> str:
    """A shipped scheme as the text of a file of one's own."""
    return print_scheme(bilinear.load(name).scheme)


NAME = "pairs_on_load"


def without_rates(device: Described) -> Described:
    """The device, with no rates of these products."""
    return replace(device, digits=tuple(own for own in device.digits if own[0] != NAME))


def loaded_plan(m: int, k: int, n: int, **options: Any) -> Plan:
    return bilinear.plan(m, k, n, "float32", device=H200, products=NAME, **options)


@pytest.mark.sample(3)
@pytest.mark.parametrize("by_columns", ORDERS, ids=str)
@pytest.mark.parametrize(("shape", "padded"), [((37, 70, 29), 0), ((300, 41, 260), 3), ((132, 400, 140), 4), ((1, 1, 1), 0)], ids=str)
def test_what_is_cut_on_load_is_exact(gpu: Gpu, by_columns: tuple[str, ...], shape: tuple[int, int, int], padded: int) -> None:
    """Odd extents, up to seven slices in three stages, up to nine tiles on two blocks; lines at multiples of 16 bytes, and elsewhere."""
    require_exact(loaded_plan(*shape), by_columns, padded=padded, workspace="none")
    assert gpu.library == 0


def test_elements_may_lie_apart_in_both_directions(gpu: Gpu) -> None:
    generator = np.random.default_rng(2)
    a, b = (generator.integers(-30, 31, shape).astype(np.float32)[::2, ::3] for shape in ((141, 450), (300, 399)))
    out = Array(np.full((142, 266), np.nan, np.float32)[::2, ::2])
    assert a.shape == (71, 150) and b.shape == (150, 133)
    bilinear.matmul(Array(a), Array(b), out, plan=loaded_plan(71, 150, 133), workspace="none")
    np.testing.assert_array_equal(out.host, a @ b)


@pytest.mark.parametrize("scales", [(0, 0), (30, -30), (120, -126), (-140, 100), (9, 0)], ids=str)
def test_the_product_is_that_of_pairs_bit_by_bit(gpu: Gpu, scales: tuple[int, int]) -> None:
    """The same digits, added up in the same order: the bounds of pairs are theirs. Numbers of 2^-140 are subnormal."""
    generator = np.random.default_rng(7)
    normal = generator.standard_normal((129, 300)), generator.standard_normal((300, 130))
    a, b = (np.ldexp(x, scale).astype(np.float32) for x, scale in zip(normal, scales, strict=True))
    if scales == (9, 0):  # nine decades in every row and column
        a, b = (x * 10 ** generator.uniform(-4.5, 4.5, x.shape).astype(np.float32) for x in (a, b))
    found, pairs = (Array(np.full((129, 130), np.nan, np.float32)) for _ in range(2))
    bilinear.matmul(Array(a), Array(b), found, plan=loaded_plan(129, 300, 130))
    bilinear.matmul(Array(a), Array(b), pairs, plan=bilinear.plan(129, 300, 130, "float32", device=H200, products="pairs"))
    np.testing.assert_array_equal(found.host, pairs.host)
    if scales[0] != -140:
        norm, element = error_of(found.host, a, b)
        assert norm < 6e-7 and element < 3e-6


def test_without_workspace_the_scales_alone_are_taken_and_reported(gpu: Gpu) -> None:
    a, b = (np.random.default_rng(1).integers(-9, 10, shape).astype(np.float32) for shape in ((64, 80), (80, 48)))
    out, plan = Array(np.zeros((64, 48), np.float32)), loaded_plan(64, 80, 48, workspace=0)
    words = 4 * (64 + 48 + 1)
    assert plan.chosen.workspace == (words + 255) // 256 * 256
    taken: list[int] = []
    with gpu.using(allocate=taken.append):
        bilinear.matmul(Array(a), Array(b), out, plan=plan, workspace="none")
    np.testing.assert_array_equal(out.host, a @ b)
    assert taken == [plan.chosen.workspace]
    buffer = Array(np.full(plan.chosen.workspace, 255, np.uint8))
    with gpu.using(is_capturing=True):
        out.host[...] = 0
        bilinear.matmul(Array(a), Array(b), out, plan=plan, workspace=buffer)
        np.testing.assert_array_equal(out.host, a @ b)
        out.host[...] = 0
        bilinear.matmul(Array(a), Array(b), out, plan=plan, workspace="none")
        np.testing.assert_array_equal(out.host, a @ b)
        assert gpu.of_graph == [plan.chosen.workspace]
    with pytest.raises(BilinearError, match="E535"):  # a limit is one: only `none` means operands, result and scales
        bilinear.matmul(Array(a), Array(b), out, plan=plan, workspace=100)
    with pytest.raises(BilinearError, match=r"E543.*pairs_on_load: needs 512 bytes of workspace, 100 are allowed"):
        loaded_plan(64, 80, 48, workspace=100)


def test_a_result_that_overlaps_an_operand_is_computed_aside_and_counts(gpu: Gpu) -> None:
    a = Array(np.random.default_rng(1).integers(-9, 10, (64, 64)).astype(np.float32))
    wanted = a.host @ a.host
    with pytest.raises(BilinearError, match=r"E535.*with a result aside from out"):
        bilinear.matmul(a, a, a, plan=loaded_plan(64, 64, 64), workspace="none")
    bilinear.matmul(a, a, a, plan=loaded_plan(64, 64, 64))
    np.testing.assert_array_equal(a.host, wanted)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"levels": ("winograd",)}, r"E781.*below winograd nothing would form the sums"),
        ({"dtype": "float64"}, r"E782.*cut from float32, not from float64"),
        ({"dtype": "complex64"}, r"E787.*do not multiply complex64(.|\n)*choose from pairs, residues7"),
    ],
)
def test_what_is_not_cut_so_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BilinearError, match=message):
        bilinear.plan(64, 64, 64, **{"dtype": "float32", **options}, device=H200, products=NAME)


def test_other_arrays_and_other_chips_are_refused(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    for dtype in ("float64", "complex64"):
        x = Array(np.ones((64, 64), dtype))
        assert digit_multiply_of(layout_of(x), layout_of(x), layout_of(x), Digits((), NAME)) is None
    x = Array(np.ones((64, 64), np.float32))
    assert digit_multiply_of(layout_of(x), layout_of(x), layout_of(x), Digits(("winograd",), NAME)) is None
    monkeypatch.setattr(Device, "compute_capability", "80")
    with pytest.raises(BilinearError, match="E544"):
        bilinear.matmul(x, x, plan=loaded_plan(64, 64, 64))


def test_plan_files_hold_it_and_no_other() -> None:
    plan = loaded_plan(512, 512, 512, workspace=0)
    assert plan_from_json(plan_json(plan), "plan") == plan
    for change in ({"levels": ["winograd"]}, {"cut": [2, 1]}):
        forged = json.loads(plan_json(plan))
        forged["candidates"][0]["choice"].update(change)
        forged["sha256"] = [["0", ""]] * len(forged["candidates"][0]["choice"]["levels"])
        with pytest.raises(BilinearError, match=r"E545.*no such levels above them, and no blocks"):
            plan_from_json(json.dumps(forged), "plan")


@pytest.mark.slow
def test_it_is_weighed_where_rates_are_known_and_an_accuracy_is_asked_for() -> None:
    for device, accuracy, there in ((without_rates(H200), "classical", False), (H200, None, False), (H200, "classical", True)):
        plan = bilinear.plan(4096, 4096, 4096, "float32", device=device, accuracy=accuracy, workspace=0, explain=True)
        assert any(c.tile == NAME for c in plan.candidates) is there
        assert not any(c.choice.needs_little and c.why.startswith("needs") for c in plan.candidates)
    pairs = next(c for c in plan.candidates if c.tile == "pairs" and not c.levels and not c.rest)
    assert plan.chosen.tile == NAME and plan.chosen.workspace == 4 * (2 * 4096) + 256 and pairs.why.startswith("needs")
    own = loaded_plan(4096, 4096, 4096).chosen
    assert (plan.chosen.error, plan.chosen.probable) == (pairs.error, pairs.probable) == (own.error, own.probable)
    some = bilinear.plan(4096, 4096, 4096, "float32", device=H200, accuracy="classical", workspace=100)
    assert some.chosen.tile != NAME


def test_auto_runs_it_without_workspace(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    eager = slow_units(H200)
    monkeypatch.setattr(devices_here, "_described", lambda named, index: eager)
    a, b = (np.random.default_rng(1).integers(-9, 10, shape).astype(np.float32) for shape in ((70, 900), (900, 70)))
    for _ in range(2):  # decided, then found again
        result = bilinear.matmul(Array(a), Array(b), accuracy="classical", workspace="none")
        np.testing.assert_array_equal(result.host, a @ b)
    assert gpu.library == 0 and [name.startswith("digit_load") for name, _ in gpu.launches].count(True) == 2


MUTANTS = {  # by what is wrong: what stands in the text, and what instead
    "digits over numbers that are not read yet": ("            __syncwarp();    // digits take", "            // digits take"),
    "no wait for the copies": ("            copies.wait();\n", "\n"),
    "no wait for the multiplications": ("            barrier_wait(&empty[to], parity);\n", "\n"),
    "the other parity": ("if (++to == STAGES) to = 0, parity ^= 1;", "if (++to == STAGES) to = 0;"),
    "full too early": ("barrier_init(&full[s], LOADERS * 4)", "barrier_init(&full[s], LOADERS * 4 - 1)"),
    "the stage before": ("const int s = to + 1 == STAGES ? 0 : to + 1;", "const int s = to;"),
    "one operand's panel": ("stages + to * STAGE + PANEL, Index(panels.y)", "stages + to * STAGE, Index(panels.y)"),
    "no scales of the next tile": ("        cutter.rescale(", "        if (tile == blockIdx.x) cutter.rescale("),
    "another swizzle": ("CUT ? x % 8", "CUT ? x % 4"),
    "the other row's scale": ("x.lane[0] * scale[part % 2]", "x.lane[0] * scale[part / 2]"),
    "other terms of A": ("step % 2 * 64 + part / 2 * 32", "step % 2 * 64 + part % 2 * 32"),
    "registers that the unit still reads": ("turn = step % 2;", "turn = 0;"),
    "no wait for what is cut into": ("                        group_wait<1>();\n", "\n"),
    "a stage that is still read": ("if (step == 0 && !begins) release(last);", "if (step == 0 && !begins) release(s);"),
    "the last chunk is not added": (" || i == slices) {", ") {"),
    "no mask beyond the last line": ("step_of(c) < others ? neighbours : 0", "neighbours"),
    "a slice too many": ("if (++next == slices) next = 0", "if (++next > slices) next = 0"),
}  # fmt: skip


def before_nan(values: Any) -> Array:
    """A matrix behind whose last row there are NaN: what is read there shows."""
    rows, columns = values.shape
    memory = np.full((rows + 8, columns), np.nan, np.float32)
    memory[:rows] = values
    return Array(memory[:rows])


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_fails(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    gpu.runs = "text"
    old, new = MUTANTS[name]
    generator = np.random.default_rng(5)
    a, b = (np.ldexp(generator.integers(-30, 31, shape), generator.integers(0, 9, lines)) for shape, lines in SHAPES)
    left, right = before_nan(a), before_nan(b)
    out = Array(np.full((300, 260), np.nan, np.float32))
    found = kernels_of(layout_of(left), layout_of(right), layout_of(out), Digits((), NAME), by_warps=False)
    (kernel,) = (kernel for kernel in found if isinstance(kernel, LoadingKernel))
    text = render(kernel)
    assert text.count(old) == 1

    def mutated(asked: Any) -> Any:
        module, types = pretended_gpu.compiled(asked)
        return (module if asked.name != kernel.name else compile_on_cpu(text.replace(old, new), {kernel.name: types})), types

    def function(asked: Any, built: Any) -> Any:
        found = Gpu.function(gpu, asked, built)
        gpu.functions[found.ptr] = (mutated(asked)[0], *gpu.functions[found.ptr][1:])
        return found

    monkeypatch.setattr("bilinear.backends.loaded_kernels._function", function)
    try:
        bilinear.matmul(left, right, out, plan=loaded_plan(300, 331, 260))
    except StageError:
        return
    assert not np.array_equal(out.host, a @ b)


SHAPES = ((300, 331), (300, 1)), ((331, 260), 260)


def test_the_tile_fits_a_multiprocessor() -> None:
    tile = LOADING_TILES[NAME]
    loaders = tile.loaders * tile.loader_registers
    assert 128 * (tile.consumers * tile.registers + loaders) <= 65536 and tile.threads == 384 and tile.slice_bytes == 0
