"""Products of float16 and bfloat16 on a pretended GPU: emitted kernels around products of float32 that are rounded once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from each_case import each
from runtime.blas import narrowed, widened
from runtime.operands import in_layout
from runtime.pretended_gpu import Array, Gpu

import bilinear
from bilinear.emulator import skip_reason
from bilinear.errors import BilinearError
from bilinear.ir.element import BFLOAT16, FLOAT16, HALVES, Element
from bilinear.ir.schedule import Block, Product, ProductStage, Schedule, Target
from bilinear.methods.halves import SUMMED, require_single_targets, way_error, way_probable
from bilinear.methods.planning import load_plan
from bilinear.planner.device import Policy
from bilinear.planner.kept_plans import save_plan
from bilinear.planner.plan import Plan
from bilinear.planner.ways import Way
from bilinear.runtime import half
from bilinear.runtime.arrays import kind_of
from bilinear.runtime.options import Options

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")
WHOLE = 16  # The mode of cuBLAS in which parts of sums are added up in float32.


def bits(x: Any, element: Element) -> Any:
    """Numbers rounded to the type, as 16 bits; float16 as NumPy's own type."""
    found = narrowed(np.asarray(x, np.float32), element == BFLOAT16)
    return found if element == BFLOAT16 else found.view(np.float16)


def numbers(x: Any, element: Element) -> Any:
    return (
        widened(x.host if isinstance(x, Array) else x, True)
        if element == BFLOAT16
        else (x.host if isinstance(x, Array) else x).astype(float)
    )


def multiplied(
    element: Element,
    a: Any,
    b: Any,
    c: Any = None,
    algorithm: Any = "winograd",
    levels: Any = 1,
    alpha: Any = 1,
    beta: Any = 0,
    **others: Any,
) -> Any:
    """By `matmul` for float16, and for bfloat16, which NumPy lacks, by what PyTorch's tensors run."""
    left, right, out = Array(a), Array(b), None if c is None else Array(c)
    if element == FLOAT16:
        return bilinear.matmul(left, right, out, algorithm=algorithm, levels=levels, alpha=alpha, beta=beta, **others)
    named = bilinear.load(algorithm) if algorithm != "auto" else algorithm
    options = Options(
        alpha, beta, named, levels, others.pop("inputs", "preserve"), others.pop("workspace", None), None, others.pop("plan", None)
    )
    assert not others
    return half.by_half(options, kind_of(left, right), element, left, right, out)


@pytest.mark.sample(2)
@pytest.mark.parametrize("element", [FLOAT16, BFLOAT16], ids=str)
@pytest.mark.parametrize(
    ("algorithm", "levels", "shape", "layouts"),
    [
        ("winograd", 1, (16, 24, 32), ("rows", "rows", "rows")),
        ("winograd", 2, (21, 23, 19), ("columns", "gaps", "rows")),
        ("winograd", 2, (32, 16, 48), ("rows", "columns", "columns")),
        ("strassen", 1, (17, 9, 11), ("seconds", "back", "seconds")),
        ("laderman", 1, (10, 12, 11), ("gaps", "rows", "gaps")),
        ("winograd", 1, (1, 7, 5), ("rows", "rows", "rows")),
    ],
)
def test_integers_are_exact(
    gpu: Gpu, element: Element, algorithm: str, levels: int, shape: tuple[int, int, int], layouts: tuple[str, str, str]
) -> None:
    m, k, n = shape
    generator = np.random.default_rng(m)
    whole = [generator.integers(-1, 2, s) for s in ((m, k), (k, n), (m, n))]
    for alpha, beta in ((1, 0), (2, -1), (-0.5, 2)):
        a, b, c = (in_layout(bits(x, element), layout) for x, layout in zip(whole, layouts, strict=True))
        if beta == 0:
            c[...] = bits(np.full(c.shape, np.nan), element) if element == FLOAT16 else 0x7FFF
        before = a.copy(), b.copy()
        out = multiplied(element, a, b, c, algorithm, levels, alpha, beta)
        np.testing.assert_array_equal(numbers(out, element), alpha * (whole[0] @ whole[1]) + beta * whole[2])
        assert (a == before[0]).all() and (b == before[1]).all()
    assert {call[2] for call in gpu.by_cublas} == {WHOLE} and gpu.math_mode == 0
    assert not any("product" in name for name, _ in gpu.launches), "products are the library's"


@pytest.mark.parametrize("element", [FLOAT16, BFLOAT16], ids=str)
def test_batches_broadcast_vectors_and_new_results(gpu: Gpu, element: Element) -> None:
    generator = np.random.default_rng(3)
    a, b, v = (generator.integers(-2, 3, s) for s in ((3, 8, 10), (10, 6), (10,)))
    found = multiplied(element, bits(a, element), bits(b, element))
    assert isinstance(found, Array)
    np.testing.assert_array_equal(numbers(found, element), a @ b)
    np.testing.assert_array_equal(numbers(multiplied(element, bits(a[0], element), bits(v, element)), element), a[0] @ v)


def test_an_out_that_overlaps_is_computed_aside(gpu: Gpu) -> None:
    whole = np.random.default_rng(4).integers(-2, 3, (12, 12))
    a = whole.astype(np.float16)
    multiplied(FLOAT16, a, a, a)
    np.testing.assert_array_equal(a, whole @ whole)


@pytest.mark.sample(2)
@pytest.mark.parametrize("element", [FLOAT16, BFLOAT16], ids=str)
@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("positive", [False, True])
def test_errors_are_within_the_bound_that_a_plan_tells(gpu: Gpu, element: Element, levels: int, positive: bool) -> None:
    size = 64
    generator = np.random.default_rng(levels)
    draw = generator.random if positive else generator.standard_normal
    a, b = (bits(draw((size, size)), element) for _ in "AB")
    exact = numbers(a, element).astype(float) @ numbers(b, element).astype(float)
    found = numbers(multiplied(element, a, b, levels=levels), element)
    plan = bilinear.plan(size, size, size, element.name, device="h200", levels=("winograd",) * levels)
    largest = abs(numbers(a, element)).max() * abs(numbers(b, element)).max()
    error = abs(found - exact).max() / largest
    assert plan.chosen.error is not None and 0 < error <= plan.chosen.error
    by_norm = np.linalg.norm(found - exact) / np.linalg.norm(exact)
    assert element.unit_roundoff / 4 < by_norm < 8 * levels * element.unit_roundoff


@pytest.mark.sample(3)
@pytest.mark.parametrize("element", [FLOAT16, BFLOAT16], ids=str)
@pytest.mark.parametrize("levels", [("winograd",), ("strassen",), ("winograd", "winograd"), ("strassen", "winograd")])
def test_probable_errors_are_what_normal_data_have(gpu: Gpu, element: Element, levels: tuple[str, ...]) -> None:
    size = 128
    generator = np.random.default_rng(3)
    a, b = (bits(generator.standard_normal((size, size)), element) for _ in "AB")
    exact = numbers(a, element).astype(float) @ numbers(b, element).astype(float)
    plan = plan_of(element.name, size, levels)
    found = numbers(multiplied(element, a, b, algorithm="auto", levels="auto", plan=plan), element)
    library = numbers(bits(exact, element), element)
    times = np.linalg.norm(found - exact) / np.linalg.norm(library - exact)
    assert plan.chosen.probable == pytest.approx(times, rel=0.1)


@pytest.mark.parametrize(
    ("dtype", "levels", "measured"),
    [("bfloat16", 1, 7.6e-3 / 1.7e-3), ("bfloat16", 2, 2.0e-2 / 1.7e-3), ("float16", 1, 9.5e-4 / 2.1e-4), ("float16", 2, 2.5e-3 / 2.1e-4)],
)
def test_probable_errors_are_those_of_an_h200(dtype: str, levels: int, measured: float) -> None:
    """At 16384, by norm, in units of the library's (docs/how-to/half.md)."""
    assert way_probable(Way(("winograd",) * levels), 16384, dtype) == pytest.approx(measured, rel=0.1)


@pytest.mark.parametrize("dtype", HALVES)
def test_a_class_of_accuracy_is_kept(dtype: str) -> None:
    """One level has more than twice the library's error, so that no class allows it; the library keeps both."""
    for asked in ("classical", "twice"):
        made = plan_of(dtype, 8192, None, accuracy=asked)
        assert made.is_library and made.chosen.probable == 1
        assert "times the classical multiply's" in made.candidates[1].why
        with pytest.raises(BilinearError, match=r"E543.*its probable error is 4\..* times"):
            plan_of(dtype, 8192, accuracy=asked)


def test_auto_and_no_levels_are_the_librarys(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    a = np.ones((8, 8), np.float16)
    assert (bilinear.matmul(Array(a), Array(a)).host == 8).all()
    assert (bilinear.matmul(Array(a), Array(a), algorithm="winograd", levels=0).host == 8).all()
    assert gpu.by_cublas == [] and gpu.library == 2
    monkeypatch.setattr(half, "policy_here", lambda: Policy(least_halves=12))
    a = np.ones((12, 12), np.float16)
    assert (bilinear.matmul(Array(a), Array(a)).host == 12).all()
    assert len(gpu.by_cublas) == 7


def test_an_operand_of_float32_makes_it_a_product_of_float32(gpu: Gpu) -> None:
    a, b = np.ones((8, 8), np.float16), np.ones((8, 8), np.float32)
    assert bilinear.matmul(Array(a), Array(b), algorithm="winograd", levels=1).dtype == np.float32
    assert gpu.by_cublas == []


@each("element", [FLOAT16, BFLOAT16])
@each(
    ("algorithm", "levels", "shape", "layouts"),
    [
        ("winograd", 1, (16, 24, 32), ("rows", "rows", "rows")),
        ("winograd", 2, (21, 23, 19), ("columns", "gaps", "rows")),
        ("strassen", 2, (32, 16, 48), ("rows", "columns", "columns")),
        ("laderman", 1, (10, 12, 11), ("gaps", "back", "seconds")),
        ("auto", "auto", (9, 8, 7), ("rows", "columns", "rows")),
    ],
)
def test_a_result_of_float32_is_never_rounded_to_16_bits(
    gpu: Gpu, element: Element, algorithm: str, levels: Any, shape: tuple[int, int, int], layouts: tuple[str, str, str]
) -> None:
    """Integers whose products the type of 16 bits cannot hold come out exactly."""
    m, k, n = shape
    generator, most = np.random.default_rng(m), 40 if element == FLOAT16 else 15  # so that sums of blocks are exact
    whole = [generator.integers(-most, most + 1, s) for s in ((m, k), (k, n), (m, n))]
    assert abs(whole[0] @ whole[1]).max() > 2**element.significand
    for alpha, beta in ((1, 0), (2, -1)):
        a, b = (in_layout(bits(x, element), layout) for x, layout in zip(whole[:2], layouts[:2], strict=True))
        c = in_layout(whole[2].astype(np.float32), layouts[2])
        if beta == 0:
            c[...] = np.nan
        out = multiplied(element, a, b, c, algorithm, levels, alpha, beta)
        assert out.dtype == np.float32
        np.testing.assert_array_equal(out.host, alpha * (whole[0] @ whole[1]) + beta * whole[2])
    assert gpu.by_cublas and not any("product" in name for name, _ in gpu.launches)


def test_the_workspace_of_a_result_of_float32_is_counted(gpu: Gpu) -> None:
    a, found = np.ones((64, 64), np.float16), []
    for dtype in (np.float16, np.float32):
        c, taken = np.zeros((64, 64), dtype), list[int]()
        with gpu.using(allocate=taken.append):
            multiplied(FLOAT16, a, a, c)
        (needed,) = taken
        with pytest.raises(BilinearError, match="E535"):
            multiplied(FLOAT16, a, a, c, workspace=needed - 1)
        multiplied(FLOAT16, a, a, c, workspace=Array(np.full(needed, 255, np.uint8)))
        assert (c == 64).all()
        found.append(needed)
    assert found[1] == 2 * found[0]


def test_errors_of_a_result_of_float32_are_smaller(gpu: Gpu) -> None:
    generator = np.random.default_rng(3)
    a, b = (bits(generator.standard_normal((64, 64)), BFLOAT16) for _ in "AB")
    exact = numbers(a, BFLOAT16).astype(float) @ numbers(b, BFLOAT16).astype(float)
    narrow, wide = (numbers(multiplied(BFLOAT16, a, b), BFLOAT16), multiplied(BFLOAT16, a, b, np.zeros((64, 64), np.float32)).host)
    assert np.linalg.norm(wide - exact) < 0.85 * np.linalg.norm(narrow - exact)
    plain = multiplied(BFLOAT16, a, b, np.zeros((64, 64), np.float32), "auto", "auto").host
    assert np.linalg.norm(plain - exact) < 1e-6 * np.linalg.norm(exact)


def plan_of(dtype: str, size: int = 16, levels: tuple[str, ...] | None = ("winograd",), **options: Any) -> Plan:
    return bilinear.plan(size, size, size, dtype, device="h200", levels=levels, **options)


@pytest.mark.slow
@pytest.mark.parametrize("element", [FLOAT16, BFLOAT16], ids=str)
def test_plans_run(gpu: Gpu, element: Element, tmp_path: Path) -> None:
    whole = np.random.default_rng(5).integers(-1, 2, (16, 16))
    made = plan_of(element.name, levels=("winograd", "strassen"))
    assert made.chosen.tile == "cublas" and made.chosen.levels == ("winograd", "strassen")
    save_plan(made, tmp_path / "plan.json")
    kept = load_plan(tmp_path / "plan.json")
    assert kept == made
    x = bits(whole, element)
    found = multiplied(element, x, x, algorithm="auto", levels="auto", plan=kept)
    np.testing.assert_array_equal(numbers(found, element), whole @ whole)
    assert len(gpu.by_cublas) == 49
    with pytest.raises(BilinearError, match=r"E544.*16 x 16 x 16 of .*float16, these arrays are 8 x 8 x 8"):
        multiplied(element, x[:8, :8].copy(), x[:8, :8].copy(), algorithm="auto", levels="auto", plan=kept)


@pytest.mark.parametrize("dtype", HALVES)
def test_plans_tell_bounds_and_choose_the_library(dtype: str) -> None:
    made = plan_of(dtype, 8192, None)
    library, one, two = made.candidates
    assert made.is_library and (one.levels, two.levels) == (("winograd",), ("winograd", "winograd"))
    assert all(c.ms is None for c in made.candidates) and (one.workspace or 0) < (two.workspace or 0)
    assert None not in (library.error, one.error, two.error)
    assert HALVES[dtype].unit_roundoff * 8192 < (library.error or 0) < (one.error or 0) < (two.error or 0)
    assert one.error == way_error(Way(("winograd",)), 8192, dtype)
    assert not plan_of(dtype, 8192, None, workspace="none").candidates[1].why.startswith("not timed")
    with pytest.raises(BilinearError, match="E519"):
        plan_of(dtype, 8192, None, accuracy=1e-3)
    for options in ({"levels": ("winograd",), "workspace": "none"}, {"levels": ()}, {"levels": ("winograd",), "accuracy": 1e-3}):
        with pytest.raises(BilinearError, match="E543"):
            plan_of(dtype, 8192, **options)


def test_the_unit_roundoff_of_a_sum_covers_a_step_of_the_unit() -> None:
    """A step that adds t products to a sum cuts t numbers off behind 24 bits, and its result to float32."""
    for terms in range(1, 17):
        step = terms * 2.0**-23 + 2.0**-23 + terms * 2.0**-46
        assert 1 + step <= (1 + SUMMED) ** terms


def test_what_does_not_run_is_refused(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    a = np.ones((8, 8), np.float16)
    for inputs in ("restore", "consume"):
        with pytest.raises(BilinearError, match=r"E775.*would be rounded to float16"):
            multiplied(FLOAT16, a, a, algorithm="msmes", inputs=inputs)
    with pytest.raises(BilinearError, match=r"E777.*keeps sums in C"):
        multiplied(FLOAT16, a, a, algorithm="winograd_depth_first")
    with pytest.raises(BilinearError, match="E535"):
        multiplied(FLOAT16, a, a, workspace=10)
    with pytest.raises(BilinearError, match="E528"):
        multiplied(FLOAT16, a, a, alpha=1e39)
    with pytest.raises(BilinearError, match=r"E778.*planned for a GPU"):
        plan_of("float16", products="pairs")
    with pytest.raises(BilinearError, match=r"E778.*planned for a GPU"):
        bilinear.plan(8, 8, 8, "bfloat16", device="cpu")
    with pytest.raises(BilinearError, match=r"E778.*not there"):
        bilinear.matmul(a, a, plan=plan_of("float16", 8))
    with gpu.using(is_capturing=True), pytest.raises(BilinearError, match=r"E536.*a new result"):
        multiplied(FLOAT16, a, a)
    block = Block("C", 0, 0)
    product = Product(Block("A", 0, 0), Block("B", 0, 0), (Target(block), Target(block)))
    with pytest.raises(BilinearError, match=r"E776.*several blocks"):
        require_single_targets(Schedule("two", "two", 1, 1, 1, (ProductStage((product,)),)))
    assert gpu.by_cublas == [] and gpu.launches == []


def test_a_workspace_of_the_callers_is_used(gpu: Gpu) -> None:
    a = np.ones((16, 16), np.float16)
    needed = plan_of("float16").chosen.workspace or 0
    buffer, out = Array(np.zeros(needed // 2, np.float16)), Array(np.zeros((16, 16), np.float16))
    bilinear.matmul(Array(a), Array(a), out, algorithm="winograd", levels=1, workspace=buffer)
    assert (out.host == 16).all() and buffer.host.any()
    with pytest.raises(BilinearError, match="E529"):
        bilinear.matmul(Array(a), Array(a), out, algorithm="winograd", levels=1, workspace=buffer[1:])


def test_bfloat16_arrays_are_known_by_name(gpu: Gpu) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    whole = np.random.default_rng(6).integers(-2, 3, (12, 12))
    x = whole.astype(ml_dtypes.bfloat16)
    found = bilinear.matmul(Array(x), Array(x), algorithm="winograd", levels=1)
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found.host.astype(float), whole @ whole)
    assert len(gpu.by_cublas) == 7
