"""Products of residues: what they hold, how many moduli an accuracy takes, and candidates."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from bilinear.errors import BilinearError, fail
from bilinear.ir.element import COMPLEX, MULTIPLIED
from bilinear.ir.residue_tile import RESIDUE_TILES, ResidueTile
from bilinear.planner.device import Device
from bilinear.planner.digits import digit_ms, fitted, geometry_for, scheme_of
from bilinear.planner.plan import Candidate
from bilinear.planner.portfolio import portfolio
from bilinear.planner.problem import CLASSES, Problem

if TYPE_CHECKING:  # bounds are imported lazily: most plans need none
    from bilinear.ir.complex_scheme import Products

RESIDUES = "residues"
"""The name of the residues with the fewest moduli that keep the accuracy."""
USUAL_CLASS = "classical"
"""The class of accuracy that they keep where none is asked for."""
USUAL_RESIDUES, LONGEST = {"float32": "residues7", "float64": "residues14"}, 2**28
"""The fewest that keep it, for sums of at most so many terms, so that a plan without an accuracy needs no bounds."""
LEAST_SHARE = 0.6
"""Levels inside of residues save no more than to this share of their time."""
MOST_TARGETS = 16
"""Blocks of C: a thread puts together an element of each, at the least."""
MOST_HEADROOM = 6
"""By so many bits forms may exceed their blocks: limbs, and sums of residues times pieces, hold no more."""


def residues_for(problem: Problem) -> str:
    """The name of the residues of the problem's type with the fewest moduli that keep its accuracy.

    Raises `BilinearError` (E567) if none of those that kernels are generated for do.
    """
    return _fewest(problem.dtype, problem.k, USUAL_CLASS if problem.accuracy is None else problem.accuracy)


@lru_cache(maxsize=1024)
def _fewest(dtype: str, k: int, accuracy: float | str) -> str:
    from bilinear.analysis.digit_bounds import moduli_for, probable_classical

    element, inner = MULTIPLIED[dtype], 2 * k if dtype in COMPLEX else k  # products of both parts are in one sum
    limit = CLASSES[accuracy] * probable_classical(k, element.roundoffs[1]) if isinstance(accuracy, str) else accuracy
    is_complex = dtype in COMPLEX
    counts = [tile.count for tile in RESIDUE_TILES.values() if tile.of is element and tile.gaussian == is_complex]
    return moduli_for(element, inner, limit, probable=isinstance(accuracy, str), counts=counts, gaussian=is_complex).name


def residue_candidate(problem: Problem, device: Device, levels: tuple[str, ...], name: str, budget: int) -> Candidate:
    """The product of these residues by these levels, within a budget of bytes where that can be; without rates its time is not known.

    Raises `BilinearError`: E543 for residues of another type, E567 if K is too large for them, and the errors of `require_residues`.
    """
    from bilinear.analysis.digit_bounds import room_of
    from bilinear.ir.digits import representation_of

    tile = RESIDUE_TILES[name]
    representation = representation_of(tile)
    if representation.numbers != problem.dtype:
        what = f"{name} stand for {representation.numbers}, not for {problem.dtype}"
        raise fail("E543", what, "take `residues`, which are of the problem's type")
    room_of(representation, problem.k)
    require_residues(scheme_of(levels), tile)
    return fitted(problem, device, levels, name, budget)


def residue_candidates(problem: Problem, device: Device, budget: int, most_ms: float) -> Iterator[Candidate]:
    """The residues with the fewest moduli that keep the problem's accuracy, below each of the portfolio's levels, which all of them hold.

    There are none where even the fewest moduli of the type, alone, would take longer than `most_ms`, and on devices without rates.
    """
    fewest = next((tile.name for tile in RESIDUE_TILES.values() if tile.of.name == problem.dtype), None)
    least = None if fewest is None else digit_ms(problem, device, geometry_for(problem, (), fewest), fewest)
    if least is None or least * LEAST_SHARE > most_ms or (problem.accuracy is None and problem.k > LONGEST):
        return
    try:
        name = USUAL_RESIDUES[problem.dtype] if problem.accuracy is None else residues_for(problem)
    except BilinearError:  # the accuracy is beyond the type
        return
    for levels in portfolio().digits:
        yield fitted(problem, device, levels, name, budget)


def require_residues(scheme: Products, tile: ResidueTile) -> None:
    """Refuse a scheme whose sums of blocks cannot be formed of residues exactly.

    Raises `BilinearError`: E591 if a coefficient is not an integer, E592 if sums are larger than whole numbers of three limbs, or C has too
    many blocks.
    """
    from bilinear.analysis.block_maps import headroom
    from bilinear.ir.digits import representation_of
    from bilinear.ir.residue_kernel import MOST_BITS

    if any(type(c) is not int for linear in (scheme.u, scheme.v, scheme.w) for row in linear.matrix for _, c in row):
        raise fail("E591", f"{scheme.name} has coefficients that are not integers, and residues need integers", "take a scheme over Z")
    most = max(map(headroom, (scheme.u, scheme.v, scheme.w)))
    bits = representation_of(tile).norm_limit.bit_length() + max(headroom(scheme.u), headroom(scheme.v))
    targets = len(scheme.w.outputs) * (1 + tile.gaussian)
    if targets > MOST_TARGETS or most > MOST_HEADROOM or bits > MOST_BITS:
        what = f"{scheme.name} has sums of up to {most} bits more than a block, and {targets} blocks of C"
        hint = f"{tile.name} take {MOST_HEADROOM} bits, integers of {MOST_BITS} bits, and {MOST_TARGETS} blocks: name fewer levels"
        raise fail("E592", what, hint)
