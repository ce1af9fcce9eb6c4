"""The schemes and representations of products of digits: their names, what they hold, and how many moduli an accuracy takes."""

from __future__ import annotations

from functools import lru_cache, reduce
from math import prod
from typing import TYPE_CHECKING

from bilinear.errors import fail
from bilinear.ir.element import COMPLEX, FLOAT32, MULTIPLIED, Element
from bilinear.ir.tile import DIGIT_TILES, FLOAT_TILES, MOST_BLOCKS, RESIDUE_TILES, ResidueTile
from bilinear.planner.portfolio import Levels, portfolio
from bilinear.planner.problem import CLASSES, Problem
from bilinear.planner.ways import algorithm_named, follows_from_names

if TYPE_CHECKING:  # readers and bounds are imported lazily: most plans need none
    from bilinear.ir.complex_scheme import ComplexScheme, Products
    from bilinear.ir.scheme import Scheme

USUAL_CLASS = "classical"
"""The class of accuracy that they keep where none is asked for."""
MOST_TARGETS = 16
"""Blocks of C: a thread puts together an element of each, at the least."""
MOST_HEADROOM = 6
"""By so many bits forms may exceed their blocks: limbs, and sums of residues times pieces, hold no more."""


def element_of(products: str) -> Element:
    """The type whose numbers are cut for products of this name."""
    return RESIDUE_TILES[products].of if products in RESIDUE_TILES else FLOAT32


def products_of(dtype: str) -> tuple[str, ...]:
    """The names of products of digits of an element type, real or complex."""
    if dtype in COMPLEX:
        return tuple(name for name in (*DIGIT_TILES, *RESIDUE_TILES) if element_of(name) is COMPLEX[dtype])
    own = (*FLOAT_TILES, *(name for name, tile in RESIDUE_TILES.items() if not tile.gaussian))
    return tuple(name for name in own if element_of(name).name == dtype)


@lru_cache(maxsize=64)
def scheme_of(levels: tuple[str, ...]) -> Scheme:
    """The scheme of levels of shipped algorithms, the outermost first; that of one product if there is none.

    Raises `BilinearError`: E501 if an operand has more blocks than one pass reads, E506 for schemes that are not exact.
    """
    from bilinear.algebra.composition import tensor
    from bilinear.lowering.prepare import proved, require_numbers

    schemes = [algorithm_named(name).scheme for name in levels or ("classical",)]
    m, k, n = (prod(getattr(scheme, extent) for scheme in schemes) for extent in "mkn")
    if max(m * k, k * n, m * n) > MOST_BLOCKS:
        message = f"below these levels operands are cut into {m}x{k} and {k}x{n} blocks"
        raise fail("E501", message, f"at most {MOST_BLOCKS} blocks of a matrix are read at once: name fewer levels")
    for scheme in schemes:
        if scheme.ring.modulus or scheme.ring.is_approximate:
            require_numbers(scheme, proved(scheme))
    return reduce(tensor, schemes)


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


for cached in (scheme_of, complex_scheme_of):
    follows_from_names(cached.cache_clear)


def digits_timed(products: str) -> str:
    """The name under which a device's description has the rates of products of this name."""
    return f"residues of {element_of(products)}" if products in RESIDUE_TILES else products


def levels_above(products: str) -> tuple[Levels, ...]:
    """The levels of the portfolio that are weighed above products of this name."""
    own = portfolio()
    return own.digits + own.pairs if products in DIGIT_TILES else own.digits


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
