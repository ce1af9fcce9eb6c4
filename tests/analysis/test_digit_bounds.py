"""Bounds of floating-point digits beside an emulated unit and exact results, probable errors beside measured ones, and projections."""

from __future__ import annotations

from dataclasses import replace
from math import inf, ldexp

import numpy as np
import pytest
from digit_unit import Reals, by_norm, digits, digits_of, exact, exponents, kept, multiply
from each_case import each

from bilinear.analysis.accuracy import BITS, error_bound, expected, least_exact_vectors, least_vectors, shrinking
from bilinear.analysis.digit_bounds import (
    Summation,
    Unit,
    block_bound,
    cutting_error,
    digit_bound,
    digit_sizes,
    norm_growth,
    probable_classical,
    probable_digits,
    products_of_digits,
    smallest_part,
)
from bilinear.analysis.rounding import SLACK
from bilinear.frontend import load, parse_source
from bilinear.ir.digits import DigitScheme, Representation
from bilinear.ir.element import BFLOAT16, FLOAT16, FLOAT32
from bilinear.source import Source

U = FLOAT32.unit_roundoff
ALIGNED, ONE_BY_ONE, FINER = Unit(16, 24), Unit(1, 24), Unit(16, 27)


def shifted(scheme: DigitScheme) -> DigitScheme:
    return replace(scheme, representation=replace(scheme.representation, shifted=True))


def truncated(scheme: DigitScheme) -> DigitScheme:
    return replace(scheme, representation=replace(scheme.representation, rounded=False))


ONE = "digits one of float32: float16 x 1, scaled by rows of A and columns of B\n"
SCHEMES = {
    "pairs": digits("pairs"),
    "shifted": shifted(digits("pairs")),
    "truncated": truncated(digits("pairs")),
    "triples": digits("triples"),
    "one": parse_source(Source("x.bl", f"{ONE}scheme s <1,1,1;1> over one\nC = A.h * B.h")).digits[0],
}


def normal(m: int, n: int, generator: np.random.Generator) -> Reals:
    return generator.standard_normal((m, n)).astype(np.float32).astype(np.float64)


def decades(m: int, n: int, generator: np.random.Generator, many: float) -> Reals:
    spread = 10 ** generator.uniform(-many / 2, many / 2, (m, n))
    return (generator.standard_normal((m, n)) * spread).astype(np.float32).astype(np.float64)


def cancelling(m: int, n: int, generator: np.random.Generator) -> Reals:
    """Each number is followed by its negative: with a constant other operand, sums are exactly zero."""
    half = normal(m, (n + 1) // 2, generator)
    return np.stack([half, -half], 2).reshape(m, -1)[:, :n]


def data(kind: str, m: int, k: int, n: int) -> tuple[Reals, Reals]:
    generator = np.random.default_rng(k * 31 + m)
    if kind == "normal":
        return normal(m, k, generator), normal(k, n, generator)
    if kind == "positive":
        return np.abs(normal(m, k, generator)), np.abs(normal(k, n, generator))
    if kind in ("nine decades", "thirty decades"):
        many = 9.0 if kind == "nine decades" else 30.0
        return decades(m, k, generator, many), decades(k, n, generator, many)
    if kind == "cancelling":
        return cancelling(m, k, generator), np.ones((k, n)) + 2.0**-20
    if kind == "subnormal":
        return np.ldexp(generator.integers(-(2**22), 2**22, (m, k)).astype(float), -149), normal(k, n, generator) * 2.0**60
    if kind == "largest":
        a = normal(m, k, generator)
        a[:, 0] = FLOAT32.largest
        a[0] = FLOAT32.largest * np.sign(a[0])
        return a, np.ldexp(normal(k, n, generator), -30)
    if kind == "zeros":
        a, b = normal(m, k, generator), normal(k, n, generator)
        a[1], b[:, 0] = 0.0, 0.0
        return a, b
    lone = np.full((m, k), 2.0**-30)
    lone[:, 0] = 2.0**14 - 2.0**-9
    return lone, normal(k, n, generator)


KINDS = ("normal", "positive", "nine decades", "thirty decades", "cancelling", "subnormal", "largest", "zeros", "lone")
SCALED_ONLY = {"subnormal", "largest"}  # Without scales, numbers near the ends of the range are no digits.


def allowed(scheme: DigitScheme, how: Summation, a: Reals, b: Reals, size: Reals, headroom: int = 0) -> Reals:
    """The certain bound of every element."""
    bound, inner = digit_bound(scheme, a.shape[1], how, headroom), a.shape[1]
    rows = [(float(x.max()) if scheme.representation.scaled else 1.0, float(x.sum())) for x in np.abs(a)]
    columns = [(float(x.max()) if scheme.representation.scaled else 1.0, float(x.sum())) for x in np.abs(b).T]

    def of_element(product: float, row: tuple[float, float], column: tuple[float, float]) -> float:
        small = bound.floor * (row[0] * column[1] + column[0] * row[1]) + inner * bound.floor**2 * row[0] * column[0]
        return float((bound.relative * product + small + bound.lost) * SLACK)

    return np.array([[of_element(size[i, j], row, column) for j, column in enumerate(columns)] for i, row in enumerate(rows)])


UNITS = {"aligned": ALIGNED, "one by one": ONE_BY_ONE, "finer": FINER}
CASES = [
    (name, unit, kind, inner)
    for name, scheme in SCHEMES.items()
    for unit in UNITS
    for kind in KINDS
    for inner in (1, 2, 17, 300, 2500)
    if (unit != "one by one" or inner <= 300) and (scheme.representation.scaled or kind not in SCALED_ONLY)
]


@pytest.mark.sample(48, slow=300)
@pytest.mark.parametrize(("name", "unit", "kind", "inner"), CASES)
def test_no_element_is_further_off_than_the_bound(name: str, unit: str, kind: str, inner: int) -> None:
    scheme = SCHEMES[name]
    a, b = data(kind, 4, inner, 3)
    found_exactly, size = exact(a, b)
    for chunk in (64, 256, 4096):
        how = Summation(chunk, UNITS[unit])
        error = np.abs(multiply(scheme, a, b, how) - found_exactly)
        assert (error <= allowed(scheme, how, a, b, size) + 2.0**-150).all(), (chunk, error, size)
        if scheme.representation.scaled:
            largest = digit_bound(scheme, inner, how).of_largest * inner * np.abs(a).max() * np.abs(b).max()
            assert error.max() <= largest + 2.0**-150


@pytest.mark.parametrize("kind", ["normal", "positive", "nine decades"])
def test_long_sums(kind: str) -> None:
    a, b = data(kind, 1, 2**17 + 3, 1)
    found_exactly, size = exact(a, b)
    error = np.abs(multiply(SCHEMES["pairs"], a, b, Summation()) - found_exactly)
    assert (error <= allowed(SCHEMES["pairs"], Summation(), a, b, size)).all()


@each("kind", KINDS)
@each("name", ["pairs", "triples"])
def test_products_may_share_their_sums(name: str, kind: str) -> None:
    scheme = SCHEMES[name]
    if not scheme.representation.scaled and kind in SCALED_ONLY:
        kind = "normal"
    a, b = data(kind, 4, 700, 3)
    found_exactly, size = exact(a, b)
    for chunk in (64, 4096):
        how = Summation(chunk, ALIGNED, others="mixed")
        error = np.abs(multiply(scheme, a, b, how) - found_exactly)
        assert (error <= allowed(scheme, how, a, b, size) + 2.0**-150).all()
        assert digit_bound(scheme, 700, how).relative > digit_bound(scheme, 700, replace(how, others="separate")).relative


@each("kind", KINDS)
@each("inner", [37, 700])
def test_small_products_may_be_summed_before_the_large_ones(inner: int, kind: str) -> None:
    """As thin products do: the error is within a bound that is smaller than that of any order, and as probable as that of separate sums."""
    kind = "normal" if kind in SCALED_ONLY else kind
    a, b = data(kind, 4, inner, 3)
    found_exactly, size = exact(a, b)
    how, separate = Summation(64, ALIGNED, others="before"), Summation(64, ALIGNED)
    error = np.abs(multiply(SCHEMES["triples"], a, b, how) - found_exactly)
    assert (error <= allowed(SCHEMES["triples"], how, a, b, size) + 2.0**-150).all()
    bounds = [digit_bound(SCHEMES["triples"], inner, one).relative for one in (how, replace(how, others="mixed"), separate)]
    assert bounds[0] < bounds[1] and bounds[0] < 1.05 * bounds[2]
    assert probable_digits(SCHEMES["triples"], inner, how) < 1.05 * probable_digits(SCHEMES["triples"], inner, separate)


def test_shifted_digits_cannot_share_their_sums() -> None:
    with pytest.raises(ValueError, match="digits of pair are stored shifted, and have sums of their own"):
        digit_bound(SCHEMES["shifted"], 64, Summation(others="mixed"))


@pytest.mark.parametrize("headroom", [1, 4])
def test_scales_may_leave_room_for_sums(headroom: int) -> None:
    a, b = data("nine decades", 4, 300, 3)
    found_exactly, size = exact(a, b)
    how = Summation()
    error = np.abs(multiply(SCHEMES["pairs"], a, b, how, headroom) - found_exactly)
    assert (error <= allowed(SCHEMES["pairs"], how, a, b, size, headroom)).all()
    assert digit_bound(SCHEMES["pairs"], 300, how, headroom).floor == digit_bound(SCHEMES["pairs"], 300, how).floor * 2**headroom


def test_the_bound_is_exceeded_without_the_products_that_it_counts() -> None:
    """Products of one digit alone are further off than the bound of pairs allows, so that the test above can fail."""
    a, b = data("normal", 4, 17, 3)
    found_exactly, size = exact(a, b)
    how = Summation()
    error = np.abs(multiply(SCHEMES["one"], a, b, how) - found_exactly)
    assert (error > allowed(SCHEMES["pairs"], how, a, b, size)).mean() > 0.5


@pytest.mark.slow
def test_sums_that_are_never_promoted_exceed_the_bound_of_chunks() -> None:
    """65536 equal products one by one in the unit: what is cut off adds up, and the bound of short chunks is too small for it."""
    a, b = np.full((1, 2**16), 1 + 2.0**-10), np.ones((2**16, 1))
    found_exactly, size = exact(a, b)
    error = np.abs(multiply(SCHEMES["one"], a, b, Summation(2**16, ONE_BY_ONE)) - found_exactly)
    short = digit_bound(SCHEMES["pairs"], 2**16, Summation(64, ONE_BY_ONE))
    assert error[0, 0] / size[0, 0] > 4 * (digit_bound(SCHEMES["one"], 64, Summation(64, ONE_BY_ONE)).relative - 2.0**-10)
    assert error[0, 0] / size[0, 0] <= digit_bound(SCHEMES["one"], 2**16, Summation(2**16, ONE_BY_ONE)).relative
    assert short.relative < digit_bound(SCHEMES["pairs"], 2**16, Summation(2**16, ONE_BY_ONE)).relative / 100


@pytest.mark.parametrize("name", SCHEMES)
def test_digits_are_as_small_and_as_close_as_is_claimed(name: str) -> None:
    representation = SCHEMES[name].representation
    generator = np.random.default_rng(5)
    mantissas = np.concatenate([generator.integers(2**23, 2**24, 20000), 2**23 + np.arange(5000), 2**24 - 1 - np.arange(5000)])
    x = np.ldexp(mantissas.astype(float), -9) * generator.choice([-1, 1], len(mantissas))
    found = digits_of(x, representation)
    for digit, size in zip(found, digit_sizes(representation), strict=True):
        assert (np.abs(digit) <= size * np.abs(x)).all() and np.abs(digit / x).max() > size / 4
    left = np.abs(x - sum(found)) / np.abs(x)
    assert left.max() <= cutting_error(representation) and left.max() >= cutting_error(representation) / 2.1


def test_digits_of_small_numbers_lose_what_lies_below_their_type() -> None:
    generator = np.random.default_rng(6)
    x = np.ldexp(generator.integers(2**23, 2**24, 4000).astype(float), generator.integers(-60, -20, 4000))
    for name in ("pairs", "shifted", "truncated"):
        representation = SCHEMES[name].representation
        left = np.abs(x - sum(digits_of(x, representation)))
        assert (left <= cutting_error(representation) * np.abs(x) + smallest_part(representation)).all()
        assert left.max() > smallest_part(representation) / 4


@pytest.mark.parametrize("element", [FLOAT16, FLOAT32], ids=str)
def test_the_emulated_rounding_is_numpys(element: object) -> None:
    dtype = np.dtype(str(element))
    generator = np.random.default_rng(7)
    x = np.ldexp(generator.standard_normal(20000), generator.integers(-170, 130, 20000))
    with np.errstate(over="ignore", under="ignore"):
        assert (kept(x, FLOAT16 if dtype == np.float16 else FLOAT32) == x.astype(dtype)).all()


def test_scales_fit_the_digits() -> None:
    representation = SCHEMES["pairs"].representation
    a = np.array([[FLOAT32.largest, 1.0], [2.0**-149, 0.0], [0.0, 0.0], [1.0, -1.0]])
    scales = exponents(a, representation, 1)
    scaled = np.abs(np.ldexp(a, scales[:, None])).max(1)
    assert (scaled[[0, 3]] >= 2.0**14).all() and (scaled < 2.0**15).all() and kept(scaled, FLOAT16).max() < inf
    assert list(scales) == [14 - 127, 126, 0, 14] and list(exponents(a, representation, 1, headroom=3)) == [11 - 127, 126, 0, 11]
    assert kept(np.array([2.0**14, 2.0**15 - 2.0**-8]), FLOAT16).max() == 2.0**15 < FLOAT16.largest
    assert ldexp(1.0, 15) < FLOAT16.largest < ldexp(1.0, 16)
    assert kept(np.array([FLOAT32.largest]), BFLOAT16)[0] == inf


# Measured on an H200 with the same sums (K, terms between promotions -> error by norm of normal data).
MEASURED = {(16384, 64): 3.2e-7, (16384, 256): 3.6e-7, (16384, 1024): 1.25e-6, (16384, 16384): 1.9e-5}


@pytest.mark.parametrize(("inner", "chunk"), MEASURED)
def test_probable_errors_are_near_measured_ones(inner: int, chunk: int) -> None:
    assert 0.85 < probable_digits(SCHEMES["pairs"], inner, Summation(chunk)) / MEASURED[inner, chunk] < 1.35


def test_probable_errors_below_a_block_level_and_of_the_library_are_near_measured_ones() -> None:
    below = digits("winograd (x) pairs")
    assert all(1.0 < probable_digits(below, n) / e < 1.4 for n, e in ((4096, 5.0e-7), (16384, 5.5e-7), (32768, 6.2e-7)))
    shared = {256: 9e-7, 512: 1.7e-6, 1024: 3.3e-6}
    assert all(1.0 < probable_digits(SCHEMES["pairs"], 16384, Summation(c, others="mixed")) / e < 1.5 for c, e in shared.items())
    library = {2048: 8.1e-7, 4096: 1.1e-6, 8192: 1.6e-6, 16384: 2.2e-6}
    assert all(0.8 < probable_classical(n, U) / e < 1.1 for n, e in library.items())
    assert probable_classical(16384, 2.0**-53) == pytest.approx(4.2e-15, rel=0.1)


@pytest.mark.sample(4)
@pytest.mark.parametrize("chunk", [64, 256, 2048])
@pytest.mark.parametrize("name", ["pairs", "shifted", "triples", "one"])
def test_probable_errors_are_near_those_of_the_emulated_unit(name: str, chunk: int) -> None:
    a, b = data("normal", 24, 2048, 24)
    how = Summation(chunk, FINER)
    measured = by_norm(multiply(SCHEMES[name], a, b, how), exact(a, b)[0])
    assert 0.7 < probable_digits(SCHEMES[name], 2048, how) / measured < 1.6


def test_a_block_level_amplifies_what_is_independent() -> None:
    assert norm_growth(load("winograd").scheme) ** 2 == pytest.approx(7)
    assert norm_growth(load("strassen").scheme) ** 2 == pytest.approx(4)
    assert norm_growth(load("classical").scheme) == 1 and norm_growth(load("naive2x2").scheme) == 1


@each("levels", [0, 1, 2])
@each("name", ["winograd", "strassen", "laderman"])
def test_block_levels_above_digits(name: str, levels: int) -> None:
    """With the roundings of classical leaf products the bound is the block scheme's; digits keep theirs, and err as is probable."""
    block, inner = load(name).scheme, 90
    known = error_bound(block, levels, inner, U).product * U
    leaf = block_bound(block, levels, inner, lambda k: k * U / (1 - (k + 4) * U))
    assert known == pytest.approx(leaf, rel=0.05)
    a, b = data("normal", block.m**levels * 8, inner, block.n**levels * 8)
    whole = inner - inner % block.k**levels
    found = np.array(_levels(block.name, levels, a[:, :whole], b[:whole]))
    found_exactly = exact(a[:, :whole], b[:whole])[0]
    error = np.abs(found - found_exactly).max()
    bound = block_bound(block, levels, whole, lambda k: digit_bound(SCHEMES["pairs"], k).of_largest)
    assert error <= bound * np.abs(a).max() * np.abs(b).max()
    assert 0.6 < probable_digits(digits(f"{name} (x) pairs"), whole, levels=levels) / by_norm(found, found_exactly) < 1.7


def _levels(name: str, levels: int, a: Reals, b: Reals) -> Reals:
    """Block levels by their tables, every sum rounded to float32, above products by pairs."""
    if levels == 0:
        return multiply(SCHEMES["pairs"], a, b, Summation(256, FINER))
    scheme = load(name).scheme
    u, v, w = scheme.tables
    left = [block for row in np.vsplit(a, scheme.m) for block in np.hsplit(row, scheme.k)]
    right = [block for row in np.vsplit(b, scheme.k) for block in np.hsplit(row, scheme.n)]

    def form(terms: tuple[tuple[int, object], ...], blocks: list[Reals]) -> Reals:
        total = np.zeros_like(blocks[0])
        for i, c in terms:
            total = kept(total + float(str(c)) * blocks[i], FLOAT32)
        return total

    products = [_levels(name, levels - 1, form(x, left), form(y, right)) for x, y in zip(u, v, strict=True)]
    blocks = [form(row, products) for row in w]
    return np.block([[blocks[i * scheme.n + j] for j in range(scheme.n)] for i in range(scheme.m)])


def test_bounds_of_other_products_are_not_known() -> None:
    text = "digits pair of float32: float16 x 2, lambda = 2^-11, unscaled\nscheme s <1,1,1;3> over pair\n"
    for products in ("A.h * B.h ; M2 = A.h * (B.h + B.l) ; M3 = A.l * B.h", "A.h * B.h ; M2 = 2 A.h * B.l ; M3 = A.l * B.h"):
        scheme = parse_source(Source("x.bl", f"{text}M1 = {products}\nC = M1 + lambda * (M2 + M3)")).digits[0]
        with pytest.raises(ValueError, match="digits"):
            products_of_digits(scheme)


def test_a_sum_that_is_too_long_has_no_bound() -> None:
    assert digit_bound(SCHEMES["pairs"], 2**24).relative == inf
    assert isinstance(SCHEMES["pairs"].representation, Representation)


GRID = np.arange(1 - 2**BITS, 2**BITS, 2).astype(float)
DIRECTIONS = [(1, 0), (1, 1), (1, -1), (1, 2), (3, 1), (1, 1e-3)]


@each("direction", DIRECTIONS)
def test_no_more_vectors_shrink_a_row_than_stated(direction: tuple[float, float]) -> None:
    row = np.array(direction) / np.linalg.norm(direction)
    projected = np.sort(abs(row[0] * GRID[:, None] + row[1] * GRID).ravel())
    for risk in (0.9, 0.5, 0.2, 0.1, 0.05, 0.03):
        hidden = np.searchsorted(projected, shrinking(risk, 1)) / projected.size
        assert hidden <= risk
    assert np.searchsorted(projected, shrinking(0.5, 1)) / projected.size > 0.15  # it is not far from the truth


def test_two_vectors_and_two_rows() -> None:
    coarse = np.random.default_rng(0).choice(GRID, (200_000, 2, 2))
    for matrix in (np.eye(2), np.array([[1, 0], [0, 0.1]]), np.array([[1, 1], [1, 1.0]])):
        lengths = np.linalg.norm(matrix @ coarse, axis=(1, 2)) / np.linalg.norm(matrix)
        assert (lengths**2).mean() == pytest.approx(expected(2) ** 2, rel=0.01)
        for risk in (0.5, 0.1, 0.01):
            assert (lengths < shrinking(risk, 2)).mean() <= risk


def test_the_fewest_vectors_still_bound() -> None:
    for risk in (0.3, 1e-3, 1e-6, 1e-12):
        least = least_vectors(risk)
        assert shrinking(risk, least) > 0
        assert shrinking(risk, 4 * least) > 2 * shrinking(risk, least)
    assert shrinking(1e-12, 1) == 0
    assert [least_exact_vectors(risk) for risk in (0.5, 0.25, 1e-6)] == [1, 2, 20]


@pytest.mark.parametrize("modulus", [4, 8, 16])
def test_a_difference_of_residues_is_hidden_by_half_of_the_vectors_at_most(modulus: int) -> None:
    for left in range(modulus):
        for right in range(modulus):
            hidden = sum((left * x + right * y) % modulus == 0 for x in range(modulus) for y in range(modulus))
            assert left == right == 0 or hidden <= modulus**2 / 2
