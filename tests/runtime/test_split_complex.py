"""Complex matrices whose parts are matrices of their own: exact on Gaussian integers, by NumPy and by emulated kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codegen.emulated import EmulatedExecutor

import bilinear
from bilinear.emulator import skip_reason
from bilinear.errors import BilinearError
from bilinear.runtime import complex_parts

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


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("orders", ["CCCCCC", "CFSCFS", "FFFFFF"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (33, 41, 29), (0, 3, 2), (3, 0, 2)])
@pytest.mark.parametrize(
    ("algorithm", "levels"), [("winograd", "auto"), ("classical", 1), ("complex4 (x) strassen", 2), ("split_k", 1), ("msmes", 1)]
)
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


@needs_emulator
@pytest.mark.parametrize("orders", ["CCCCCC", "CSFCSF"])
def test_kernels_read_and_write_both_parts_where_they_lie(monkeypatch: pytest.MonkeyPatch, orders: str) -> None:
    monkeypatch.setattr(complex_parts, "make_executor", lambda kind: EmulatedExecutor())
    (a, ai, b, bi, c, ci), product, old = operands(17, 23, 19, "float32", orders)
    bilinear.matmul_parts((a, ai), (b, bi), (c, ci), alpha=2, beta=-1, levels=1)
    assert (c + 1j * ci == 2 * product - old).all()


X, Y = np.ones((4, 3)), np.ones((3, 4))


@pytest.mark.parametrize(
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
