"""Accuracy as a budget: certain bounds of max|C - A*B| / (max|A| max|B|), and probable errors by norm beside the classical multiply's.

A class of accuracy limits the probable error |C - A*B| / |A*B| in the Frobenius norm, for independent centred data, to a multiple of what
sums of K terms in order have, each rounded to nearest in the element type.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import ceil, hypot, isfinite
from typing import TYPE_CHECKING

from bilinear.ir.element import COMPILED, COMPLEX, ELEMENTS, FLOAT32, Element
from bilinear.ir.residue_tile import RESIDUE_TILES
from bilinear.ir.rounded import ROUNDINGS
from bilinear.ir.thin_tile import THIN_TILES
from bilinear.ir.thin_unit_tile import ThinTriplesTile
from bilinear.ir.tile import FLOAT_TILES
from bilinear.planner.digit_geometry import geometry_of
from bilinear.planner.digits import scheme_of
from bilinear.planner.plan import Candidate, Panel
from bilinear.planner.problem import CLASSES, USUAL_LIMIT, Problem
from bilinear.planner.profiles import Growth, outline
from bilinear.planner.ways import Way, algorithm_named, follows_from_names, lowered, strategies

if TYPE_CHECKING:  # readers are imported lazily: most plans need none
    from bilinear.analysis.digit_bounds import Summation
    from bilinear.ir.complex_scheme import Products
    from bilinear.ir.digits import DigitScheme


def with_errors(candidate: Candidate, problem: Problem, explain: bool) -> Candidate:
    """A candidate with its certain bound and its probable error. Each is computed if the accuracy needs it, or to explain everything."""
    asked, inner, dtype = problem.accuracy, problem.k, problem.dtype
    certain = known_bound(candidate, inner, dtype) if explain or isinstance(asked, float | int) else None
    probable = relative_error(candidate, inner, dtype) if explain or isinstance(asked, str) else None
    return replace(candidate, error=certain, probable=probable)


def why_inaccurate(candidate: Candidate, asked: float | str | None) -> str:
    """Why a candidate with its errors is less accurate than is asked for; empty if it is accurate enough."""
    if isinstance(asked, str):
        times = candidate.probable or 0.0
        return f"its probable error is {times:.2g} times the classical multiply's" if times > CLASSES[asked] else ""
    if asked is None:
        return ""
    if candidate.error is None:
        return "no error bound is known for sums of so many terms"
    return f"its error bound {candidate.error:.2g} is above {asked:.2g}" if candidate.error > asked else ""


def why_far(candidate: Candidate, problem: Problem) -> str:
    """Why a candidate is not accurate enough for a call that requests no accuracy; empty if it is.

    Block schemes and thin products by digits can fail this: residues keep a class of accuracy, and other digits are weighed only if an
    accuracy is requested.
    """
    if problem.accuracy is not None or candidate.is_digits or not (candidate.levels or candidate.is_thin):
        return ""
    times = relative_error(candidate, problem.k, problem.dtype)
    asked = f"more than {USUAL_LIMIT:g} times has to be asked for by accuracy="
    return f"its probable error is {times:.2g} times the classical multiply's, and {asked}" if times > USUAL_LIMIT else ""


def known_bound(candidate: Candidate, inner: int, dtype: str) -> float | None:
    """The bound that always holds for a candidate; None if sums are so long that none is known."""
    found = certain_error(candidate, inner, dtype)
    return found if isfinite(found) else None


def certain_error(candidate: Candidate, inner: int, dtype: str) -> float:
    """The bound that always holds for a candidate, sums of `inner` terms: the largest of its parts. Infinite if sums are too long for one.

    Of complex matrices: a bound for the real and the imaginary part, in units of the largest parts of A and B.
    """
    if candidate.is_rounded:
        from bilinear.analysis.digit_bounds import rounded_bound

        return rounded_bound(ROUNDINGS[candidate.tile], inner)
    if (tile := _triples_tile(candidate, dtype)) is not None:
        return max(triples_error(inner, candidate.parts_of_sums, tile), _classical_error(inner, COMPILED[dtype]))
    if not candidate.levels and not candidate.is_digits:
        return _classical_error(_terms(inner, dtype in COMPLEX), COMPILED[dtype])
    return max(_part_error(part, inner, dtype) for part in candidate.parts)


def _part_error(part: Candidate | Panel, inner: int, dtype: str) -> float:
    if part.is_digits:
        return _digits_error(part.levels, inner, part.tile, dtype in COMPLEX)
    if dtype in COMPLEX:
        return _complex_error(part.levels, inner, COMPLEX[dtype])
    return _way_error(Way(part.levels, part.inputs), inner, ELEMENTS[dtype])


@lru_cache(maxsize=256)
def _way_error(way: Way, inner: int, element: Element) -> float:
    """The bound that always holds for a way.

    If one scheme is expanded, it is the bound of its tables, which covers any fusing; otherwise that of the schedule as it runs.
    """
    from bilinear.analysis.accuracy import error_bound, run_error_bound

    u, summed = element.roundoffs
    if set(strategies(way)) == {"expand"} and len(set(way.levels)) == 1:
        return u * error_bound(algorithm_named(way.levels[0]).scheme, len(way.levels), inner, u, summed).product
    return u * run_error_bound(lowered(way)[0], inner, u, summed).product


@lru_cache(maxsize=256)
def _complex_error(levels: tuple[str, ...], inner: int, element: Element) -> float:
    """The bound that always holds for three real products by these levels."""
    from bilinear.analysis.accuracy import run_error_bound
    from bilinear.lowering.prepare import Level, lowered_complex

    u, loaded = element.unit_roundoff, map(algorithm_named, levels)
    return u * run_error_bound(lowered_complex(tuple(Level(x.scheme, x.schedule) for x in loaded)), inner, u).product


def _classical_error(inner: int, element: Element) -> float:
    """The bound that always holds for the classical multiply."""
    from bilinear.analysis.accuracy import classical_bound

    u, summed = element.roundoffs
    return classical_bound(inner, u, summed) * u


@lru_cache(maxsize=256)
def relative_error(candidate: Candidate, inner: int, dtype: str) -> float:
    """The probable error by norm of a candidate in units of the classical multiply's: the largest of its parts."""
    if candidate.is_rounded:
        from bilinear.analysis.digit_bounds import rounded_probable

        return rounded_probable(ROUNDINGS[candidate.tile], inner) / _probable_classical(inner, dtype)
    if (tile := _triples_tile(candidate, dtype)) is not None:
        return max(1.0, _probable_triples(inner, candidate.parts_of_sums, tile) / _probable_classical(inner, dtype))
    return max(_relative_part(part, inner, dtype) for part in candidate.parts)


def _relative_part(part: Candidate | Panel, inner: int, dtype: str) -> float:
    if part.is_digits:
        return _probable_digits(part.levels, inner, part.tile, dtype in COMPLEX) / _probable_classical(inner, dtype)
    if not part.levels:
        return 1.0
    own = outline(Way(part.levels, part.inputs))
    return relative_above(own.growth, own.profile.k, inner)


def relative_above(growth: Growth, blocks: int, inner: int) -> float:
    """The probable error by norm, in units of the classical multiply's, of block schemes above it that cut K in so many blocks.

    That of a classical multiply with sums of K terms has the variance (K + 1) / 2, in units of that of a rounding.
    """
    amplified, rounded = growth
    return float(((amplified * (max(1, inner // blocks) + 1) / 2 + rounded) / ((inner + 1) / 2)) ** 0.5)


def _probable_classical(inner: int, dtype: str) -> float:
    from bilinear.analysis.digit_bounds import probable_classical

    return probable_classical(inner, (COMPLEX.get(dtype) or ELEMENTS[dtype]).roundoffs[1])


@lru_cache(maxsize=256)
def _digits_error(levels: tuple[str, ...], inner: int, tile: str, is_complex: bool) -> float:
    from bilinear.analysis.block_maps import headroom
    from bilinear.analysis.digit_bounds import Summation, block_bound, digit_bound, residue_block_bound
    from bilinear.frontend.algorithms import load_digits

    if tile in RESIDUE_TILES:  # sums of blocks of residues are exact: levels do not appear in the bound
        return residue_block_bound(_residues(tile), _terms(inner, is_complex))
    own, block = FLOAT_TILES[tile], _block(levels, is_complex)
    head = 0 if block is None else max(headroom(block.u), headroom(block.v))
    scheme, terms = load_digits(own.scheme), inner
    if block is not None:  # without strips: a block has so many terms, some of them beyond the operands
        terms = block.k * min(inner, geometry_of(levels, (1, inner, 1), tile).block[1])
    return block_bound(block, 1, terms, lambda k: digit_bound(scheme, k, Summation(own.chunk), head).of_largest)


@lru_cache(maxsize=256)
def _probable_digits(levels: tuple[str, ...], inner: int, tile: str, is_complex: bool) -> float:
    from bilinear.algebra.composition import tensor_digits
    from bilinear.analysis.accuracy import PROBABLE
    from bilinear.analysis.digit_bounds import Summation, probable_digits, probable_residues
    from bilinear.frontend.algorithms import load_digits

    if tile in RESIDUE_TILES:
        return probable_residues(_residues(tile), _terms(inner, is_complex))
    own, block = FLOAT_TILES[tile], scheme_of(levels) if levels else None
    scheme = load_digits(own.scheme)
    found = probable_digits(scheme if block is None else tensor_digits(block, scheme), inner, Summation(own.chunk))
    return found * PROBABLE if is_complex else found


def _triples_tile(candidate: Candidate, dtype: str) -> ThinTriplesTile | None:
    """The tile of a thin plan by bfloat16 digits; None for any other plan."""
    tile = THIN_TILES[dtype].get(candidate.tile) if candidate.is_thin else None
    return tile if isinstance(tile, ThinTriplesTile) else None


def _terms_of_part(inner: int, parts: int, tile: ThinTriplesTile) -> int:
    """The terms of the longest part: all but the last one have whole slices."""
    return min(inner, ceil(ceil(inner / parts) / tile.k) * tile.k)


def in_triples(tile: ThinTriplesTile) -> Summation:
    """How the thin kernel adds up the products of bfloat16 digits: a warpgroup has its share of a slice in the unit."""
    from bilinear.analysis.digit_bounds import Summation

    return Summation(tile.k // tile.k_groups, others="before")


@lru_cache(maxsize=256)
def triples_error(inner: int, parts: int, tile: ThinTriplesTile) -> float:
    """The certain bound of sums in parts, which are added up in float32, in units of the largest elements of both operands."""
    from bilinear.analysis.digit_bounds import digit_bound
    from bilinear.analysis.rounding import gamma
    from bilinear.frontend.algorithms import load_digits

    part = digit_bound(load_digits("triples"), _terms_of_part(inner, parts, tile), in_triples(tile)).of_largest
    adding = gamma(parts, FLOAT32.unit_roundoff)
    return (part + adding + part * adding) * inner


@lru_cache(maxsize=256)
def _probable_triples(inner: int, parts: int, tile: ThinTriplesTile) -> float:
    """The probable error by norm. That of independent parts is the same in each, and their sum is rounded as a classical one."""
    from bilinear.analysis.digit_bounds import probable_classical, probable_digits
    from bilinear.frontend.algorithms import load_digits

    part = probable_digits(load_digits("triples"), _terms_of_part(inner, parts, tile), in_triples(tile))
    return hypot(part, probable_classical(parts, FLOAT32.unit_roundoff) if parts > 1 else 0.0)


def _terms(inner: int, is_complex: bool) -> int:
    """The number of real products in a sum; residues of complex numbers are exact, so only this number matters."""
    return 2 * inner if is_complex else inner


def _residues(name: str) -> DigitScheme:
    """The digit scheme of residues of this name."""
    from bilinear.ir.digits import representation_of, residues

    return residues(representation_of(RESIDUE_TILES[name]))


def _block(levels: tuple[str, ...], is_complex: bool) -> Products | None:
    """What stands above the digits: the block scheme of some levels, three products of parts by it, or nothing."""
    from bilinear.algebra.complex_products import complex_scheme

    if is_complex:
        return complex_scheme(scheme_of(levels))
    return scheme_of(levels) if levels else None


for cached in (relative_error, _way_error, _complex_error, _digits_error, _probable_digits):
    follows_from_names(cached.cache_clear)
