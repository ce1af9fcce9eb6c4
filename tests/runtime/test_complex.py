"""Complex matrices by three real products, also in parts of their own: Gaussian integers come out bit for bit, and errors within bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codegen.emulated import EmulatedExecutor
from each_case import each

import bilinear
from bilinear.analysis.accuracy import PROBABLE, run_error_bound
from bilinear.emulator import skip_reason
from bilinear.errors import BilinearError
from bilinear.frontend import load
from bilinear.lowering.prepare import Level, prepare_complex
from bilinear.runtime import complex_parts
from bilinear.runtime.arrays import NUMPY
from bilinear.runtime.multiply import multiply
from bilinear.runtime.options import Options

DTYPES = ["complex64", "complex128", "clongdouble"]


def gaussian(*shape: int, dtype: str = "complex128", seed: int = 0) -> Any:
    generator = np.random.default_rng([seed, *shape])
    return (generator.integers(-9, 10, shape) + 1j * generator.integers(-9, 10, shape)).astype(dtype)


def exactly(a: Any, b: Any) -> Any:
    """The product of Gaussian integers by the definition, in 64-bit integers."""
    x, y, z, w = (np.asarray(part).astype(np.int64) for part in (a.real, a.imag, b.real, b.imag))
    return (x @ z - y @ w) + 1j * (x @ w + y @ z)


@each("dtype", DTYPES)
@each("shape", [(1, 1, 1), (2, 2, 2), (7, 9, 5), (16, 17, 33), (0, 3, 2), (3, 0, 2), (40, 3, 40)])
@each(("algorithm", "levels"), [("winograd", 1), ("strassen", 2), ("laderman", 1), ("winograd_depth_first", 2)])
def test_gaussian_integers_are_exact(dtype: str, shape: tuple[int, int, int], algorithm: str, levels: int) -> None:
    m, k, n = shape
    a, b = gaussian(m, k, dtype=dtype), gaussian(k, n, dtype=dtype)
    product = bilinear.matmul(a, b, algorithm=algorithm, levels=levels)
    assert product.dtype == dtype
    np.testing.assert_array_equal(product, exactly(a, b))


@each("algorithm", ["winograd", "classical", "split_k", "msmes", "karstadt_schwartz", "winograd_223"])
@each("alpha", [1, -2, 3j, 2 - 1j, 0])
@each("beta", [0, 1, -2, 1j, 3 - 2j])
def test_factors_are_complex(algorithm: str, alpha: complex, beta: complex) -> None:
    a, b, c = gaussian(12, 14), gaussian(14, 10), gaussian(12, 10)
    wanted = alpha * exactly(a, b) + (beta * c if beta else 0)
    out = c.copy() if beta else np.full_like(c, np.nan)
    assert bilinear.matmul(a, b, out, alpha=alpha, beta=beta, algorithm=algorithm, levels=1) is out
    np.testing.assert_array_equal(out, wanted)


def layouts(a: Any) -> list[Any]:
    """The same matrix by rows, by columns, with gaps, backwards in memory, and in the other byte order."""
    wide = np.full((a.shape[0] * 2, a.shape[1] * 3), np.nan, a.dtype)
    wide[::2, ::3] = a
    return [a, np.asfortranarray(a), wide[::2, ::3], a[::-1, ::-1].copy()[::-1, ::-1], a.astype(a.dtype.newbyteorder())]


@each("left", range(5))
@each("right", range(5))
def test_operands_are_read_where_they_lie(left: int, right: int) -> None:
    a, b = layouts(gaussian(10, 13))[left], layouts(gaussian(13, 9))[right]
    for out in layouts(gaussian(10, 9))[:4]:
        bilinear.matmul(a, b, out, algorithm="winograd", levels=1)
        np.testing.assert_array_equal(out, exactly(a, b))


def test_parts_of_one_array_are_operands() -> None:
    """The storage is split: matrices of a complex array whose parts lie in two planes of one real array are not complex arrays."""
    planes = np.random.default_rng(3).integers(-9, 10, (8, 8, 2)).astype(float)
    a = planes.view(complex)[..., 0]
    np.testing.assert_array_equal(bilinear.matmul(a, a.T, algorithm="winograd", levels=1), exactly(a, a.T))


@pytest.mark.parametrize("shapes", [((3, 1, 8, 6), (2, 6, 10)), ((8,), (8, 6)), ((6, 8), (8,)), ((5, 8), (4, 8, 3)), ((8,), (8,))])
def test_batches_and_vectors(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = (gaussian(*shape) for shape in shapes)
    np.testing.assert_array_equal(bilinear.matmul(a, b, algorithm="winograd", levels=1), exactly(a, b))


@pytest.mark.parametrize(("left", "right"), [("float64", "complex64"), ("int32", "complex64"), ("complex64", "complex128")])
def test_mixed_types_are_promoted_as_numpy_does(left: str, right: str) -> None:
    a, b = gaussian(8, 8).real.astype(left), gaussian(8, 8, dtype=right)
    product = bilinear.matmul(a, b, algorithm="winograd", levels=1)
    assert product.dtype == np.matmul(a, b).dtype
    np.testing.assert_array_equal(product, exactly(a, b))


def test_a_result_that_overlaps_an_operand_or_has_another_type() -> None:
    a, b = gaussian(8, 8), gaussian(8, 8)
    wanted, other = exactly(a, b), gaussian(8, 8, dtype="complex64")
    bilinear.matmul(a, b, other, algorithm="winograd", levels=1)
    np.testing.assert_array_equal(other, wanted)
    bilinear.matmul(a, b, a, algorithm="winograd", levels=1, alpha=1j)
    np.testing.assert_array_equal(a, 1j * wanted)


@each("conjugated", ["A", "B", "AB"])
@each("algorithm", ["winograd", "classical", "auto"])
def test_conjugates_are_signs_of_the_schedule(conjugated: str, algorithm: str) -> None:
    a, b = gaussian(9, 11), gaussian(11, 6)
    named = algorithm if algorithm == "auto" else load(algorithm)
    options = Options(1, 0, named, 1, "preserve", None, None, None, conjugated=conjugated)
    x, y = a.conj() if "A" in conjugated else a, b.conj() if "B" in conjugated else b
    np.testing.assert_array_equal(multiply(options, NUMPY, None, a, b, None), exactly(x, y))


def test_the_workspace_is_counted_in_real_elements() -> None:
    a, b = gaussian(64, 64), gaussian(64, 64)
    with pytest.raises(BilinearError, match="E535") as refused:
        bilinear.matmul(a, b, algorithm="winograd", levels=1, workspace="none")
    needed = _needed(64)
    assert f"complex3-winograd-expand needs {needed} bytes of workspace" in str(refused.value)
    buffer = np.full(needed // 8, np.nan)
    np.testing.assert_array_equal(bilinear.matmul(a, b, algorithm="winograd", levels=1, workspace=buffer), exactly(a, b))
    bilinear.matmul(a, b, algorithm="winograd", levels=1, workspace=needed)
    for less in (needed - 8, buffer[:-1]):
        with pytest.raises(BilinearError, match=r"E5[23][59]"):
            bilinear.matmul(a, b, algorithm="winograd", levels=1, workspace=less)
    with pytest.raises(BilinearError, match="E535"):  # a factor that turns the product, and not C, needs a result aside
        bilinear.matmul(a, b, a.copy(), alpha=1j, beta=1, algorithm="winograd", levels=1, workspace=needed)


def _needed(size: int) -> int:
    from bilinear.lowering.place import place_schedule

    return place_schedule(prepare_complex((Level(load("winograd").scheme),)), size, size, size, 8).workspace_elements * 8


@pytest.mark.parametrize("inputs", ["restore", "consume"])
def test_complex_operands_are_only_read(inputs: Any) -> None:
    a = gaussian(8, 8)
    with pytest.raises(BilinearError, match="E785"):
        bilinear.matmul(a, a, algorithm="msmes", inputs=inputs)


def test_complex_coefficients_multiply_complex_matrices_alone(tmp_path: Any) -> None:
    path = tmp_path / "turned.bl"
    path.write_text("scheme turned <1,2,1;2> over Q[i]\n  M1: 1 [i] | 1 [-i] | 1/2\n  M2: 1 [-i] | 1 [i] | 1/2\n")
    a, b = gaussian(4, 4), gaussian(4, 4)
    assert (bilinear.matmul(a, b, algorithm=str(path), levels=1) == a @ b).all()
    with pytest.raises(BilinearError, match=r"E528(.|\n)*choose a scheme with real coefficients"):
        bilinear.matmul(a.real, b.real, algorithm=str(path), levels=1)


@pytest.mark.parametrize("bad", [np.inf, np.nan, complex(0, np.inf)])
def test_what_is_not_finite_is_not_hidden(bad: complex) -> None:
    """Every element that is not finite in the classical product is not finite here; more may be."""
    a, b = gaussian(8, 8), gaussian(8, 8)
    a[2, 3] = bad
    with np.errstate(all="ignore"):
        classical, product = a @ b, bilinear.matmul(a, b, algorithm="winograd", levels=1)
    assert not np.isfinite(product[~np.isfinite(classical)]).any()


@each(("algorithm", "levels"), [("winograd", 1), ("winograd", 2), ("strassen", 1), ("laderman", 1), ("classical", 1)])
@each("tiny", [1.0, 1e-6])
def test_errors_are_within_the_traced_bound(algorithm: str, levels: int, tiny: float) -> None:
    generator = np.random.default_rng(levels)
    a, b = (generator.uniform(-1, 1, s) + 1j * tiny * generator.uniform(-1, 1, s) for s in ((36, 90), (90, 44)))
    a, b = a.astype("complex64"), b.astype("complex64")
    product = bilinear.matmul(a, b, algorithm=algorithm, levels=levels)
    error = product.astype("clongdouble") - a.astype("clongdouble") @ b.astype("clongdouble")
    loaded, u = load(algorithm), 2.0**-24
    bound = u * run_error_bound(prepare_complex((Level(loaded.scheme, loaded.schedule),) * levels), 90, u).product
    largest = [max(abs(x.real).max(), abs(x.imag).max()) for x in (a, b)]
    assert 0 < max(abs(error.real).max(), abs(error.imag).max()) <= bound * largest[0] * largest[1]


def test_the_probable_error_by_norm_is_that_of_the_model() -> None:
    generator = np.random.default_rng(0)
    a, b = ((generator.standard_normal((300, 300)) + 1j * generator.standard_normal((300, 300))).astype("complex64") for _ in "AB")
    exact = a.astype("complex128") @ b.astype("complex128")
    three = np.linalg.norm(bilinear.matmul(a, b, algorithm="classical", levels=1) - exact)
    four = np.linalg.norm((a.real @ b.real - a.imag @ b.imag) + 1j * (a.real @ b.imag + a.imag @ b.real) - exact)
    assert 0.5 * PROBABLE < three / four < 2 * PROBABLE


def test_nothing_of_complex_operands_is_kept() -> None:
    a, b = gaussian(8, 6), gaussian(6, 10)
    with pytest.raises(BilinearError, match="E539"):
        bilinear.prepare(b, rows=8, algorithm="winograd", levels=1)
    kept = bilinear.prepare(b, rows=8)
    assert kept.bytes == 0
    np.testing.assert_array_equal(bilinear.matmul(a, kept), exactly(a, b))


needs_emulator = pytest.mark.skipif(skip_reason() is not None, reason=str(skip_reason()))


def drawn(seed: int, m: int, n: int, dtype: str, order: str = "C") -> Any:
    """Small integers, by rows, by columns, or with gaps of NaN."""
    values = np.random.default_rng([seed, m, n]).integers(-9, 10, (m, n)).astype(dtype)
    if order in "CF":
        return np.array(values, order="C" if order == "C" else "F")
    wide = np.full((2 * m, 3 * n), np.nan, dtype)
    wide[::2, ::3] = values
    return wide[::2, ::3]


def operands(m: int, k: int, n: int, dtype: str, orders: str) -> tuple[list[Any], Any, Any]:
    """The parts of A, B and C, A B and C."""
    shapes = (m, k), (m, k), (k, n), (k, n), (m, n), (m, n)
    parts = [drawn(i, *shape, dtype, order) for i, (shape, order) in enumerate(zip(shapes, orders, strict=True))]
    a, b, c = (x.astype("float64") + 1j * y for x, y in zip(parts[::2], parts[1::2], strict=True))
    return parts, a @ b, c


@each("dtype", ["float32", "float64"])
@each("orders", ["CCCCCC", "CFSCFS", "FFFFFF"])
@each("shape", [(1, 1, 1), (33, 41, 29), (0, 3, 2), (3, 0, 2)])
@each(("algorithm", "levels"), [("winograd", "auto"), ("classical", 1), ("complex4 (x) strassen", 2), ("split_k", 1), ("msmes", 1)])
def test_products_are_exact(dtype: str, orders: str, shape: tuple[int, int, int], algorithm: str, levels: Any) -> None:
    (a, ai, b, bi, c, ci), product, old = operands(*shape, dtype, orders)
    real, imaginary = bilinear.matmul_parts((a, ai), (b, bi), algorithm=algorithm, levels=levels)
    assert real.dtype == dtype and (real == product.real).all() and (imaginary == product.imag).all()
    out = (c, ci)
    assert bilinear.matmul_parts((a, ai), (b, bi), out, alpha=-2, beta=3, algorithm=algorithm, levels=levels) is out
    assert (c + 1j * ci == -2 * product + 3 * old).all()


def test_the_result_may_overlap_the_operands() -> None:
    (a, ai, b, bi, _, _), _, _ = operands(24, 24, 24, "float64", "CCFFCC")
    wanted = (a + 1j * ai) @ (b + 1j * bi)
    bilinear.matmul_parts((a, ai), (b, bi), (bi, a))
    assert (bi == wanted.real).all() and (a == wanted.imag).all()


def test_interleaved_arrays_are_parts_too() -> None:
    """Views of complex arrays give the bits of `matmul`."""
    generator = np.random.default_rng(1)
    a, b = (generator.standard_normal((40, 40)) + 1j * generator.standard_normal((40, 40)) for _ in "ab")
    c = np.empty((40, 40), "complex128")
    bilinear.matmul_parts((a.real, a.imag), (b.real, b.imag), (c.real, c.imag), algorithm="strassen", levels=1)
    assert (c == bilinear.matmul(a, b, algorithm="strassen", levels=1)).all()


@pytest.mark.sample(1)
@needs_emulator
@pytest.mark.parametrize("orders", ["CCCCCC", "CSFCSF"])
def test_kernels_read_and_write_both_parts_where_they_lie(monkeypatch: pytest.MonkeyPatch, orders: str) -> None:
    monkeypatch.setattr(complex_parts, "make_executor", lambda kind: EmulatedExecutor())
    (a, ai, b, bi, c, ci), product, old = operands(17, 23, 19, "float32", orders)
    bilinear.matmul_parts((a, ai), (b, bi), (c, ci), alpha=2, beta=-1, levels=1)
    assert (c + 1j * ci == 2 * product - old).all()


X, Y = np.ones((4, 3)), np.ones((3, 4))


@each(
    ("a", "b", "options", "code"),
    [
        (X, (Y, Y), {}, "E801"),
        ((X, X), (Y, Y[:2]), {}, "E801"),
        ((X, X), (X, X), {}, "E801"),
        ((X, X.astype("float32")), (Y, Y), {}, "E801"),
        ((X.astype(int),) * 2, (Y.astype(int),) * 2, {}, "E801"),
        ((X[0], X[0]), (Y, Y), {}, "E801"),
        ((X, X), (Y, Y), {"out": (X, X.copy())}, "E801"),
        ((X, X), (Y, Y), {"beta": 1}, "E515"),
        ((X, X), (Y, Y), {"alpha": 1j}, "E528"),
        ((X, X), (Y, Y), {"levels": -1}, "E514"),
        ((X, X), (Y, Y), {"levels": 0}, "E502"),
        ((X, X), (Y, Y), {"algorithm": "walk_444_mod2"}, "E506"),
    ],
)
def test_what_cannot_be_multiplied_is_refused(a: Any, b: Any, options: dict[str, Any], code: str) -> None:
    with pytest.raises(BilinearError, match=code):
        bilinear.matmul_parts(a, b, **options)
