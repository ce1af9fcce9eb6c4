"""Products of digits for complex matrices: three products of digits of sums of parts, below block levels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from bilinear.errors import BilinearError, fail
from bilinear.ir.element import COMPLEX, FLOAT32
from bilinear.ir.residue_tile import MOST_BLOCKS, RESIDUE_TILES
from bilinear.ir.tile import DIGIT_TILES
from bilinear.planner.accuracy import known_bound, relative_error
from bilinear.planner.device import Device
from bilinear.planner.digits import digit_ms, digits_timed, geometry_for, products_of, scheme_of
from bilinear.planner.plan import DIGITS, Candidate
from bilinear.planner.portfolio import portfolio
from bilinear.planner.problem import Problem
from bilinear.planner.residues import MOST_TARGETS, RESIDUES, require_residues, residues_for
from bilinear.planner.ways import follows_from_names

if TYPE_CHECKING:  # readers are imported lazily: most plans need none
    from bilinear.ir.complex_scheme import ComplexScheme


@lru_cache(maxsize=64)
def complex_scheme_of(levels: tuple[str, ...]) -> ComplexScheme:
    """Three real products by levels of shipped algorithms. Raises as `scheme_of` does, which counts both parts of a block."""
    from bilinear.algebra.complex_products import complex_scheme

    found = complex_scheme(scheme_of(levels))
    most = max(found.u.inputs, found.v.inputs, len(found.w.outputs))
    if most > MOST_BLOCKS:
        message = f"below these levels a complex matrix is cut into {most} parts of blocks"
        raise fail("E501", message, f"at most {MOST_BLOCKS} are read at once: name fewer levels")
    return found


follows_from_names(complex_scheme_of.cache_clear)


def complex_candidate(problem: Problem, device: Device, levels: tuple[str, ...], products: str) -> Candidate:
    """The product by these digits below these levels, with its errors; its time is None if the device has no rates for such digits.

    Raises `BilinearError`: E787 for products that do not stand for this type, E501 for too many blocks, E567, E591 and E592 as residues of
    real matrices do.
    """
    name = residues_for(problem) if products == RESIDUES else products
    known = products_of(problem.dtype)
    if name not in known:
        what = f"products {products!r} do not multiply {problem.dtype}"
        raise fail("E787", what, f"choose from {', '.join((*known, RESIDUES))}")
    if name in RESIDUE_TILES:
        from bilinear.analysis.digit_bounds import room_of
        from bilinear.ir.digits import representation_of

        tile = RESIDUE_TILES[name]
        room_of(representation_of(tile), 2 * problem.k)
        require_residues(scheme_of(levels) if tile.gaussian else complex_scheme_of(levels), tile)
    else:
        complex_scheme_of(levels)
    return with_complex_errors(_candidate(problem, device, levels, name), problem)


def complex_candidates(problem: Problem, device: Device) -> Iterator[Candidate]:
    """The candidates on a device that has rates for them: pairs if an accuracy is requested, and the fewest residues that keep it."""
    part, names = COMPLEX[problem.dtype], list[str]()
    if part is FLOAT32 and problem.accuracy is not None:
        names += DIGIT_TILES
    with suppress(BilinearError):  # no residues keep the accuracy
        names.append(residues_for(problem))
    for name in names:
        for levels in portfolio().digits if device.digit_rates(digits_timed(name)) is not None else ():
            found = _candidate(problem, device, levels, name)
            blocks = geometry_for(problem, levels, name, is_complex=True).grid
            if name in DIGIT_TILES or 2 * blocks[0] * blocks[2] <= MOST_TARGETS:
                yield found


def with_complex_errors(found: Candidate, problem: Problem) -> Candidate:
    """The candidate with its errors, of each part, in units of the largest parts of A and B."""
    inner, dtype = problem.k, problem.dtype
    return replace(found, error=known_bound(found, inner, dtype), probable=relative_error(found, inner, dtype))


def _candidate(problem: Problem, device: Device, levels: tuple[str, ...], name: str) -> Candidate:
    g = geometry_for(problem, levels, name, is_complex=True)
    return Candidate(levels, "preserve", DIGITS, digit_ms(problem, device, g, name), g.places[-1], tile=name)
