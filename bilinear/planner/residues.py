"""Products of residues: what they hold, how many moduli an accuracy takes, and candidates, of which no times are known yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from bilinear.errors import BilinearError, fail
from bilinear.ir.element import COMPLEX, MULTIPLIED
from bilinear.ir.residue_tile import RESIDUE_TILES, ResidueTile
from bilinear.planner.digit_geometry import geometry_of
from bilinear.planner.digits import scheme_of
from bilinear.planner.plan import DIGITS, Candidate
from bilinear.planner.portfolio import portfolio
from bilinear.planner.problem import CLASSES, Problem

if TYPE_CHECKING:  # bounds are imported lazily: most plans need none
    from bilinear.ir.complex_scheme import Products

RESIDUES = "residues"
"""The name of the residues with the fewest moduli that keep the accuracy."""
USUAL_CLASS = "classical"
"""The class of accuracy that they keep where none is asked for."""
MOST_TARGETS = 16
"""Blocks of C: a thread puts together an element of each, at the least."""
MOST_HEADROOM = 6
"""By so many bits forms may exceed their blocks: limbs, and sums of residues times pieces, hold no more."""


def residues_for(problem: Problem) -> str:
    """The name of the residues of the problem's type with the fewest moduli that keep its accuracy.

    Raises `BilinearError` (E567) if none of those that kernels are generated for do.
    """
    from bilinear.analysis.digit_bounds import probable_classical
    from bilinear.analysis.residue_bounds import moduli_for

    element, asked = MULTIPLIED[problem.dtype], USUAL_CLASS if problem.accuracy is None else problem.accuracy
    limit = CLASSES[asked] * probable_classical(problem.k, element.roundoffs[1]) if isinstance(asked, str) else asked
    counts = [tile.count for tile in RESIDUE_TILES.values() if tile.of is element]
    inner = problem.k * (2 if problem.dtype in COMPLEX else 1)  # both parts' products are in one sum
    return moduli_for(element, inner, limit, probable=isinstance(asked, str), counts=counts).name


def residue_candidate(problem: Problem, levels: tuple[str, ...], name: str) -> Candidate:
    """The product of these residues by these levels, as C^T = B^T A^T if C is column-major; its time is not known.

    Raises `BilinearError`: E543 for residues of another type, E567 if K is too large for them, and the errors of `require_residues`.
    """
    from bilinear.analysis.residue_bounds import room_of
    from bilinear.ir.digits import residues_of

    tile = RESIDUE_TILES[name]
    if tile.of.name != problem.dtype:
        raise fail("E543", f"{name} stand for {tile.of}, not for {problem.dtype}", "take `residues`, which are of the problem's type")
    room_of(residues_of(tile.of, tile.count), problem.k)
    require_residues(scheme_of(levels), tile)
    m, n = (problem.n, problem.m) if "C" in problem.column_major else (problem.m, problem.n)
    return Candidate(levels, "preserve", DIGITS, None, geometry_of(levels, (m, problem.k, n), name).places[-1], tile=name)


def unweighed_residues(problem: Problem) -> Iterator[Candidate]:
    """The residues that would keep the problem's accuracy, below each of the portfolio's levels, and why they are not weighed."""
    try:
        name = residues_for(problem)
    except BilinearError:  # nothing to tell: the accuracy is beyond the type
        return
    for levels in portfolio().digits:
        yield replace(residue_candidate(problem, levels, name), why="not weighed: the device's description has no rates for residues")


def require_residues(scheme: Products, tile: ResidueTile) -> None:
    """Refuse a scheme whose sums of blocks cannot be formed of residues exactly.

    Raises `BilinearError`: E591 if a coefficient is no integer, E592 if sums are larger than whole numbers of three limbs, or C has too
    many blocks.
    """
    from bilinear.analysis.headroom import headroom
    from bilinear.ir.digits import residues_of
    from bilinear.ir.residue_kernel import MOST_BITS

    if any(type(c) is not int for linear in (scheme.u, scheme.v, scheme.w) for row in linear.matrix for _, c in row):
        raise fail("E591", f"{scheme.name} has coefficients that are no integers, and residues have only those", "take a scheme over Z")
    most = max(map(headroom, (scheme.u, scheme.v, scheme.w)))
    bits = residues_of(tile.of, tile.count).norm_limit.bit_length() + max(headroom(scheme.u), headroom(scheme.v))
    targets = len(scheme.w.outputs)
    if targets > MOST_TARGETS or most > MOST_HEADROOM or bits > MOST_BITS:
        what = f"{scheme.name} has sums of up to {most} bits more than a block, and {targets} blocks of C"
        hint = f"{tile.name} take {MOST_HEADROOM} bits, integers of {MOST_BITS} bits, and {MOST_TARGETS} blocks: name fewer levels"
        raise fail("E592", what, hint)
