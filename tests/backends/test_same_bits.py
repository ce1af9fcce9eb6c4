"""The product whose bits depend on the numbers alone, beside Python's integers, and multiplied in other ways."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import inf, isfinite, isnan, nan, prod

import numpy as np
import pytest
from each_case import each

from bilinear.analysis.digit_bounds import largest_scaled, probable_same_bits, same_bits_bound
from bilinear.backends.same_bits import same_bits_product, slicing
from bilinear.ir.digits import largest_moduli, residues_of
from bilinear.ir.element import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, KNOWN, Element
from bilinear.ir.matrix import Array
from bilinear.ir.number import nearest
from bilinear.ir.reference import KernelValues, exponents_of, loaded, residues_in, with_one_nan
from bilinear.ir.tile import BYTE_TILES, LARGEST_IN_BYTES, LONGEST_SUM
from bilinear.methods.digits.lower import OperandOrder, lower_bytes

KINDS = ("normal", "decades", "subnormal", "large", "ties", "special", "zeros")


def numbers(random: np.random.Generator, kind: str, shape: tuple[int, int], dtype: str) -> Array:
    """Numbers of a kind, in float64, each a number of the type."""
    info = np.finfo(dtype)
    x = random.standard_normal(shape)
    if kind == "decades":
        x = x * 10.0 ** random.uniform(-15, 15, shape)
    elif kind == "subnormal":
        x = x * float(info.smallest_normal) ** random.choice([0.4, 0.6, 1.0], (shape[0], 1))
    elif kind == "large":
        x = np.sign(x) * float(info.max) ** random.choice([0.5, 0.501, 1.0], shape)
    elif kind == "ties":  # sums of three products of these lie in the middle of two numbers, or next to it, by one unit of the integers
        x = random.choice([0, 1, -1, 1.5, 2.0**-53, -(2.0**-53), 2.0**-24, 2.0**-34, -(2.0**-34)], shape)
        x = x * random.choice([1, 2.0 ** (info.minexp // 2 - 14)], (shape[0], 1))  # and sums below the normal numbers
        if shape[0] > 5 and shape[1] == 3:  # those beside which rounding twice errs for float64, in every run
            tiny, small = 2.0**-53, 2.0 ** (info.minexp // 2 - 14)
            x[:3] = [[1, tiny, tiny], [1, 1, tiny], [1, 1, -tiny]]
            x[3:6] = small * np.array([[1, 1.5 * 2.0**-24, tiny], [1, 1, tiny], [1, 1, -tiny]])
    elif kind == "special":
        x = np.where(random.random(shape) < 0.08, random.choice([inf, -inf, nan, 0.0, -0.0], shape), x)
    elif kind == "zeros":
        x = x * (random.random((shape[0], 1)) < 0.5)
    with np.errstate(all="ignore"):
        return x.astype(dtype).astype(float)


def by_integers(a: Array, b: Array, limit: float, dtype: str) -> Array:
    """The same product, by its definition, with Python's integers and rationals."""
    exponents = [[_exponent(line, limit) for line in lines] for lines in (a, b.T)]
    found = np.zeros((len(a), b.shape[1]), dtype)
    for i, row in enumerate(a):
        for j, column in enumerate(b.T):
            if not np.isfinite(row).all() or not np.isfinite(column).all():
                found[i, j] = _extended(row, column)
                continue
            left, right = exponents[0][i], exponents[1][j]
            total = sum(_whole(x, left) * _whole(y, right) for x, y in zip(row, column, strict=True))
            value = nearest(Fraction(total) / Fraction(2) ** (left + right), dtype)
            found[i, j] = value if value or total >= 0 else -0.0
    return found


def _exponent(line: Array, limit: float) -> int:
    largest = Fraction(float(abs(line[np.isfinite(line)]).max(initial=0)))
    if largest == 0:
        return 0
    e = Fraction(limit).numerator.bit_length() - largest.numerator.bit_length() + largest.denominator.bit_length() + 1
    while largest * Fraction(2) ** e > Fraction(limit):
        e -= 1
    return e


def _whole(x: float, exponent: int) -> int:
    return round(Fraction(float(x)) * Fraction(2) ** exponent)  # ties to even


def _extended(row: Array, column: Array) -> float:
    products = [nan if isnan(x * y) else x * y for x, y in zip(map(float, row), map(float, column), strict=True)]
    found = {p for p in products if not isfinite(p) and not isnan(p) and (abs(p) == inf)}
    endless = {p for p, x, y in zip(products, row, column, strict=True) if p in found and not (isfinite(x) and isfinite(y))}
    return nan if any(map(isnan, products)) or len(endless) > 1 else endless.pop()


def same(x: Array, y: Array) -> bool:
    return x.dtype == y.dtype and np.ascontiguousarray(x).tobytes() == np.ascontiguousarray(y).tobytes()


@each("kind", KINDS)
@each(("dtype", "count"), [("float64", 14), ("float64", 17), ("float32", 9), ("float16", 7)])
def test_every_element_is_the_exact_integer_rounded_once(dtype: str, count: int, kind: str) -> None:
    random = np.random.default_rng([count, KINDS.index(kind)])
    representation = residues_of(FLOAT64 if dtype == "float64" else FLOAT32, count)
    for m, k, n in ((1, 1, 1), (3, 2, 4), (30, 3, 30) if kind == "ties" else (4, 37, 5)):
        limit = largest_scaled(representation, k)
        a, b = numbers(random, kind, (m, k), dtype), numbers(random, kind, (n, k), dtype).T
        assert same(same_bits_product(a, b, limit, np.dtype(dtype)), by_integers(a, b, limit, dtype))


@each("k", [1, 2, 700])
@each("count", [7, 8, 9, 13, 14, 17])
def test_no_sum_of_the_product_is_beyond_float64(count: int, k: int) -> None:
    """Integers of the largest size with the signs that make sums largest: an inexact sum anywhere would change the last bits."""
    limit = largest_scaled(residues_of(FLOAT64, count), k)
    for sign in (1, -1):
        a = np.full((1, k), limit * (1 - 2.0**-40))
        b = sign * a.T
        a[0, ::3] = np.nextafter(limit, 0)
        assert same(same_bits_product(a, b, limit, np.dtype("f8")), by_integers(a, b, limit, "float64"))
    cut = slicing(limit, k)
    assert cut.depth * (1 if cut.count == 1 else 4.0 ** (cut.bits - 1)) <= 2**53


def test_bytes_hold_every_integer_and_int32_every_sum() -> None:
    x = np.arange(-LARGEST_IN_BYTES, LARGEST_IN_BYTES + 1, dtype="f4")
    order, slices = OperandOrder(True, True), -(-len(x) // 128)
    kernel = replace(lower_bytes(BYTE_TILES["bytes of float16"], order, order, True)[1][0], element=FLOAT32)
    found, exponents = np.zeros((3, 1, slices, 128, 128), "i1"), np.zeros(1, "i4")
    places = {"X": x.ctypes.data, "D": found.ctypes.data, "exponents": exponents.ctypes.data}
    shape = {"X_line": len(x), "X_term": 1, "lines": 1, "terms": len(x), "block_lines": 1, "block_terms": len(x), "panels": 1}
    kernel.reference(KernelValues(places | shape | {"slices": slices}, (1, 1)))
    high, low, both = (residues_in(plane)[0, : len(x)] for plane in found)
    assert (128 * high + low == x).all() and (high + low == both).all()
    assert abs(both).max() ** 2 * LONGEST_SUM < 2**31 and LARGEST_IN_BYTES**2 * LONGEST_SUM < 2**53


@pytest.mark.parametrize(("of", "count"), [(FLOAT32, 7), (FLOAT64, 14)])
def test_bits_are_those_of_rows_columns_and_terms_in_any_order(of: object, count: int) -> None:
    random, dtype = np.random.default_rng(5), np.dtype(str(of))
    a, b = numbers(random, "decades", (300, 1100), dtype.name), numbers(random, "ties", (1100, 70), dtype.name)
    b[3, 5], a[7, 8] = nan, inf
    limit = largest_scaled(residues_of(KNOWN[dtype.name], count), 1100)
    whole, order = same_bits_product(a, b, limit, dtype), random.permutation(1100)
    assert np.isnan(whole).any()
    assert np.isfinite(whole).any()
    ways = {
        "halves of rows": np.concatenate([same_bits_product(x, b, limit, dtype) for x in (a[:150], a[150:])]),
        "single columns": np.concatenate([same_bits_product(a, b[:, j : j + 1], limit, dtype) for j in range(70)], 1),
        "K permuted": same_bits_product(a[:, order], b[order], limit, dtype),
        "transposed": same_bits_product(b.T, a.T, limit, dtype).T,
        "by columns": same_bits_product(np.asfortranarray(a), np.asfortranarray(b), limit, dtype),
    }
    assert [name for name, way in ways.items() if not same(way, whole)] == []


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("of", "count", "times"), [(FLOAT64, 14, 8), (FLOAT64, 15, 1), (FLOAT32, 7, 8), (FLOAT32, 8, 1), (FLOAT16, 0, 1.8), (BFLOAT16, 0, 1.1)]
)
def test_errors_are_those_that_are_promised(of: Element, count: int, times: float) -> None:
    """In bytes, of 16 bits, they are so many times that of rounding the result, which is all that the library's product loses."""
    k, u, random = 300, of.roundoffs[0], np.random.default_rng(1)
    limit, dtype = largest_scaled(residues_of(of, count), k) if count else LARGEST_IN_BYTES, np.dtype(of.arithmetic.name)
    a, b = (random.standard_normal(shape).astype(dtype).astype(float) for shape in ((16, k), (k, 12)))
    exact = np.array([[float(sum((Fraction(x) * Fraction(y) for x, y in zip(r, c, strict=True)), Fraction(0))) for c in b.T] for r in a])
    error = loaded(with_one_nan(same_bits_product(a, b, limit, dtype), of), of) - exact
    assert abs(error).max() <= same_bits_bound(limit, k, u) * abs(a).max() * abs(b).max()
    probable = probable_same_bits(limit, k, u)
    assert np.linalg.norm(error) <= 1.5 * probable * np.linalg.norm(exact)
    assert probable <= times * 0.393 * of.unit_roundoff * (((k + 1) / 2) ** 0.5 if count else 1)


def test_scales_follow_from_the_largest_number_and_the_moduli() -> None:
    for count in (7, 14, 17):
        for k in (1, 3, 2**20):
            limit, m = Fraction(largest_scaled(residues_of(FLOAT64, count), k)), prod(largest_moduli(count))
            assert 2 * k * limit**2 <= (1 - Fraction(1, 2**30)) * m < 2 * k * (limit * (1 + Fraction(1, 2**50)) + 1) ** 2
    largest = np.array([0.0, 5e-324, 1.0, 2.0**40, 1.7e308, 3.0])
    found = exponents_of(largest, 2.0**40)
    assert found.tolist() == [0, 1114, 40, 0, 40 - 1024, 38]
