"""`reproducible="bitwise"`: every way of a call has the same bits, and what cannot keep them is refused."""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from backends.test_same_bits import by_integers, numbers, same
from each_case import each

import bilinear
from bilinear.analysis.digit_bounds import largest_scaled
from bilinear.errors import BilinearError
from bilinear.ir.digits import residues_of
from bilinear.ir.element import FLOAT64
from bilinear.ir.matrix import Array
from bilinear.ir.tile import LONGEST_SUM
from bilinear.methods.digits.choice import same_bits_products

TYPES = ("float64", "float32", "float16", "complex128", "complex64")


def operands(dtype: str, kind: str = "decades") -> tuple[Array, Array]:
    """Two matrices of a type, whose numbers span 30 decades."""
    random, is_complex = np.random.default_rng(TYPES.index(dtype)), dtype.startswith("complex")
    real = {"complex128": "float64", "complex64": "float32"}.get(dtype, dtype)
    shapes = (6, 40), (40, 5)
    if not is_complex:
        return numbers(random, kind, shapes[0], real).astype(real), numbers(random, kind, shapes[1], real).astype(real)
    parts = [numbers(random, kind, shape, real) for shape in shapes * 2]
    return (parts[0] + 1j * parts[2]).astype(dtype), (parts[1] + 1j * parts[3]).astype(dtype)


def bitwise(a: Array, b: Array, **options: Any) -> Array:
    return bilinear.matmul(a, b, reproducible="bitwise", **options)


@pytest.mark.parametrize("dtype", TYPES)
def test_ways_of_a_call_have_the_same_bits(dtype: str) -> None:
    a, b = operands(dtype)
    c, padded = bitwise(a, b), np.zeros((9, 90), dtype)
    padded[1:7, 3:83:2] = a
    order = np.random.default_rng(1).permutation(40)
    ways = {
        "rows": np.concatenate([bitwise(a[i : i + 1], b) for i in range(6)]),
        "vectors": np.stack([bitwise(row, b) for row in a]),
        "columns": np.stack([bitwise(a, column) for column in b.T], 1),
        "strides": bitwise(padded[1:7, 3:83:2], b[::-1][::-1]),
        "by columns": bitwise(np.asfortranarray(a), np.asfortranarray(b)),
        "terms in another order": bitwise(a[:, order], b[order]),
        "a batch": bitwise(np.stack([a[::-1], a]), np.stack([b, b]))[1],
        "one B for a batch": bitwise(np.stack([a, a[::-1]]), b)[0],
        "zeros beyond the operands": bitwise(a, b, out=np.empty((6, 5), dtype)),
        "in place of an operand": bitwise(a, b, out=np.concatenate([a.copy(), b.T])[:6, :5]),
        "workspace": bitwise(a, b, workspace="none"),
        "swapped": bitwise(b.T, a.T).T,
    }
    assert c.dtype == dtype
    assert [name for name, way in ways.items() if not same(way, c)] == []


@each("dtype", ["float64", "float32", "float16"])
@each("kind", ["special", "ties"])
def test_factors_round_as_the_formula_says(dtype: str, kind: str) -> None:
    a, b = operands(dtype, kind)
    (_, limit), wide = same_bits_products(dtype, 40, None), np.result_type(dtype, "float32")
    v, old = by_integers(a.astype(float), b.astype(float), limit, str(wide)), np.full((6, 5), 0.7, dtype)
    with np.errstate(all="ignore"):
        expected = (wide.type(0.3) * v + wide.type(-1.7) * old.astype(wide)).astype(dtype)
        v = v.astype(dtype)  # what is of float16 is rounded twice
    expected[np.isnan(expected)] = np.nan
    assert same(bitwise(a, b, out=old.copy(), alpha=0.3, beta=-1.7), expected)
    assert same(bitwise(a, b, out=np.full((6, 5), np.nan, dtype), alpha=0, beta=0), np.zeros((6, 5), dtype))
    assert same(bitwise(a, b, out=np.full((6, 5), np.nan, dtype)), v)


def test_parts_of_complex_products_are_exact_sums_of_two_lines_rounded_once() -> None:
    a, b = operands("complex128", "ties")
    _, limit = same_bits_products("complex128", 40, None)
    assert limit == largest_scaled(residues_of(FLOAT64, 14), 80)
    rows = np.concatenate([a.real, a.imag], 1)
    found = bitwise(a, b)
    assert same(found.real, by_integers(rows, np.concatenate([b.real, -b.imag]), limit, "float64"))
    assert same(found.imag, by_integers(rows, np.concatenate([b.imag, b.real]), limit, "float64"))
    x, y = np.array([[3 + 4j, 1j]]), np.array([[1 - 2j], [2.0]])  # integers come out exactly
    assert bitwise(x, y).item() == 11 + 0j
    assert same(bitwise(a.conj(), b), bitwise(a, b.conj()).conj())


def test_the_moduli_follow_from_type_terms_and_accuracy() -> None:
    asked = [
        ("float64", 2048, None),
        ("float64", 2048, "classical"),
        ("float32", 9, None),
        ("float32", 2048, 1e-3),
        ("float64", 50, 1e-9),
        ("float16", 2048, 1e-3),
        ("bfloat16", LONGEST_SUM + 1, None),
    ]
    assert [same_bits_products(*one)[0] for one in asked] == [f"residues{count}" for count in (14, 15, 7, 8, 13, 8, 7)]
    assert same_bits_products("bfloat16", LONGEST_SUM, None) == ("bytes of bfloat16", 2.0**13)
    a, b = operands("float64")
    assert not same(bitwise(a, b), bitwise(a, b, accuracy=1e-7))


def test_integers_are_exact_without_it() -> None:
    a, b = np.full((2, 3), 2**40), np.full((3, 2), 2**40 + 1)
    assert same(bitwise(a, b), a @ b)
    assert same(bitwise(np.zeros((2, 0)), np.zeros((0, 3))), np.zeros((2, 3)))


@each(
    ("code", "call"),
    [
        ("E820", lambda a, b: bitwise(a, b, algorithm="winograd")),
        ("E820", lambda a, b: bitwise(a, b, levels=0)),
        ("E820", lambda a, b: bitwise(a, b, inputs="restore")),
        ("E820", lambda a, b: bitwise(a, b, plan=bilinear.plan(8, 8, 8, device="h200"))),
        ("E820", lambda a, b: bitwise(a, b, contention="atomics")),
        ("E820", lambda a, b: bitwise(a.astype(int), b.astype(int), modulus=7)),
        ("E820", lambda a, b: bilinear.matmul(a, b, reproducible="run")),  # type: ignore[call-overload]
        ("E821", lambda a, b: bitwise(a.astype(np.longdouble), b)),
        ("E821", lambda a, b: bitwise(np.ma.masked_array(a), b)),
        ("E821", lambda a, b: bitwise(a.astype(object), b)),
        ("E567", lambda a, b: bitwise(a, b, accuracy=1e-20)),
        ("E820", lambda a, b: bilinear.gram(a, algorithm="winograd", reproducible="bitwise")),
        ("E820", lambda a, b: bilinear.multi_dot([a, b], levels=0, reproducible="bitwise")),
        ("E820", lambda a, b: bilinear.multi_dot([a, b], device="h200", reproducible="bitwise")),
        ("E820", lambda a, b: bilinear.multi_dot([a, b], reproducible="run")),  # type: ignore[arg-type]
        ("E820", lambda a, b: bilinear.plan(8, 8, 8, device="h200", products="residues14", reproducible="bitwise")),
        ("E820", lambda a, b: bilinear.plan(8, 8, 8, device="h200", reproducible="run")),  # type: ignore[arg-type]
        ("E821", lambda a, b: bilinear.plan(8, 8, 8, "complex64", device="h200", reproducible="bitwise")),
        ("E567", lambda a, b: bilinear.plan(8, 8, 8, device="h200", accuracy=1e-20, reproducible="bitwise")),
        ("E543", lambda a, b: bilinear.plan(4096, 4096, 4096, device="h200", workspace="none", reproducible="bitwise")),
        ("E821", lambda a, b: bilinear.gram(a.astype(np.longdouble), reproducible="bitwise")),
        ("E538", lambda a, b: bitwise(bilinear.prepare(a, columns=5), b)),
    ],
)
def test_what_keeps_no_promise_is_refused(code: str, call: Callable[[Array, Array], object]) -> None:
    with pytest.raises(BilinearError) as refused:
        call(*operands("float64"))
    assert [d.code for d in refused.value.diagnostics] == [code]


def test_the_environment_that_asks_for_the_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BILINEAR_USE_LIBRARY", "1")
    with pytest.raises(BilinearError, match="promises no bits"):
        bitwise(*operands("float64"))


@pytest.mark.skipif(sys.platform != "linux" or platform.machine() != "x86_64", reason="the flags of this test are those of glibc on x86-64")
def test_threads_that_flush_subnormal_numbers_have_the_same_bits() -> None:
    """As JAX's callbacks do; the thread is left as it was."""
    given = [operands(dtype, "subnormal") for dtype in TYPES]
    wanted = [bitwise(a, b) for a, b in given]
    library, before, flushing = ctypes.CDLL(None), ctypes.create_string_buffer(64), ctypes.create_string_buffer(64)
    library.fegetenv(before)
    library.fegetenv(flushing)
    ctypes.c_uint32.from_buffer(flushing, 28).value |= 1 << 15 | 1 << 6
    try:
        library.fesetenv(flushing)
        found = [bitwise(a, b) for a, b in given]
        half = np.multiply(np.full(1, 1e-310), 0.5)[0]
    finally:
        library.fesetenv(before)
    assert half.tobytes() == bytes(8)
    assert [same(x, y) for x, y in zip(found, wanted, strict=True)] == [True] * len(TYPES)


def test_einsum_and_tensordot_keep_the_bits_of_the_product() -> None:
    """Turned, in a batch, and in parts; what would add up in an order of its own is refused."""
    random = np.random.default_rng(5)
    a, b = random.standard_normal((3, 9, 40)) * 10.0 ** random.integers(-9, 9, (3, 9, 40)), random.standard_normal((40, 7))
    wanted = bilinear.matmul(a, b, reproducible="bitwise")
    assert np.array_equal(bilinear.einsum("bik,kj->bij", a, b, reproducible="bitwise"), wanted)
    assert np.array_equal(bilinear.einsum("kj,bik->jbi", b, a, reproducible="bitwise"), wanted.transpose(2, 0, 1))
    assert np.array_equal(bilinear.tensordot(a, b, 1, reproducible="bitwise"), wanted)
    with pytest.raises(BilinearError, match="E820"):
        bilinear.einsum("bik,kj->ij", a, b, reproducible="bitwise")


@pytest.mark.sample(0)
@pytest.mark.parametrize("dtype", TYPES[:3])
def test_gram_has_the_bits_of_the_product(dtype: str) -> None:
    """Above and below the diagonal, for several blocks; a special line changes its own row and column alone."""
    random = np.random.default_rng(6)
    a = numbers(random, "decades", (540, 30), dtype).astype(dtype)
    a[3, 4], a[400, 7] = np.inf, np.nan
    wanted, old = bitwise(a, a.T), random.integers(-9, 9, (540, 540)).astype(dtype)
    old += old.T
    assert same(wanted, wanted.T)
    assert same(bilinear.gram(a, reproducible="bitwise"), wanted)
    assert same(bilinear.gram(a.T.copy(), transposed=True, triangle="upper", reproducible="bitwise"), np.triu(wanted))
    assert same(bilinear.gram(np.stack([a[::-1], a]), triangle="lower", reproducible="bitwise")[1], np.tril(wanted))
    again = bilinear.gram(a, old.copy(), alpha=0.3, beta=2, reproducible="bitwise")
    assert same(again, bitwise(a, a.T, out=old.copy(), alpha=0.3, beta=2))


@pytest.mark.parametrize("dtype", TYPES)
def test_a_chain_is_multiplied_in_an_order_that_only_shapes_decide(dtype: str) -> None:
    random = np.random.default_rng(7)
    a, b, c = (random.standard_normal(shape).astype(dtype) for shape in ((2, 9), (9, 50), (50, 9)))
    wanted = bitwise(bitwise(a, b), c)  # 1,800 multiplications; the other order has 4,212, and a smaller intermediate
    assert not same(wanted, bitwise(a, bitwise(b, c)))
    assert same(bilinear.multi_dot([a, b, c], reproducible="bitwise"), wanted)
    assert same(bilinear.multi_dot([a[1], b, c[:, 3]], reproducible="bitwise"), bitwise(a[1], bitwise(b, c[:, 3])))
    with pytest.raises(BilinearError, match=r"E535.*\(A1 A2\) A3"):
        bilinear.multi_dot([a, b, c], workspace=90 * a.itemsize, reproducible="bitwise")
    assert bilinear.multi_dot([a, b, c], workspace=90 * a.itemsize).shape == (2, 9)
