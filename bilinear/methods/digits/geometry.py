"""Which products of digits there are, and where everything lies in the workspace of one: blocks, panels, slices, and its parts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, reduce
from math import ceil, prod
from typing import TYPE_CHECKING

from bilinear.errors import fail
from bilinear.ir.element import COMPLEX, FLOAT32, FLOAT64, MULTIPLIED, Element
from bilinear.ir.tile import DIGIT_TILES, FLOAT_TILES, MOST_BLOCKS, PANEL, RESIDUE_TILES, DigitTile, ModularTile, ResidueTile
from bilinear.planner.problem import CLASSES, Problem
from bilinear.planner.profiles import Levels, outline, portfolio
from bilinear.planner.ways import Way, algorithm_named, kept_by_names

if TYPE_CHECKING:  # imported late
    from bilinear.ir.complex_scheme import ComplexScheme, Products
    from bilinear.ir.digits import Representation
    from bilinear.ir.scheme import Scheme

USUAL_CLASS = "classical"
"""The class of accuracy that they keep where none is asked for."""
SAME_BITS_MODULI = {"float32": 7, "float64": 14}
"""How many moduli give products whose bits depend on the numbers alone, where no accuracy is asked for."""
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


@kept_by_names(64)
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


@kept_by_names(64)
def complex_scheme_of(levels: tuple[str, ...]) -> ComplexScheme:
    """Three real products by levels of shipped algorithms. Raises as `scheme_of` does, which counts both parts of a block."""
    from bilinear.algebra.complex_products import complex_scheme

    found = complex_scheme(scheme_of(levels))
    most = max(found.u.inputs, found.v.inputs, len(found.w.outputs))
    if most > MOST_BLOCKS:
        message = f"below these levels a complex matrix is cut into {most} parts of blocks"
        raise fail("E501", message, f"at most {MOST_BLOCKS} are read at once: name fewer levels")
    return found


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


@lru_cache(maxsize=1024)
def same_bits_residues(dtype: str, k: int, accuracy: float | str | None) -> Representation:
    """The residues of products whose bits depend on the numbers alone, by their type, K, and an accuracy: never by shape or device.

    Without an accuracy these are 7 moduli of float32 (and what is narrower) and 14 of float64. With one they are the fewest of those that
    kernels are generated for, by `same_bits_bound` or, for a class, `probable_same_bits`. Parts of complex numbers have sums of 2K terms.
    Raises `BilinearError` (E567) if none keep it.
    """
    from bilinear.analysis.digit_bounds import probable_classical, probable_same_bits, same_bits_bound
    from bilinear.ir.digits import residues_of

    element = FLOAT64 if dtype in ("float64", "complex128") else FLOAT32
    inner = 2 * k if dtype in COMPLEX else k
    for count in sorted(tile.count for tile in RESIDUE_TILES.values() if tile.of is element and not tile.gaussian):
        found = residues_of(element, count)
        if accuracy is None and count >= SAME_BITS_MODULI[element.name]:
            return found
        if isinstance(accuracy, str) and probable_same_bits(found, inner) <= CLASSES[accuracy] * probable_classical(
            inner, element.unit_roundoff
        ):
            return found
        if not isinstance(accuracy, str | None) and same_bits_bound(found, inner) <= accuracy:
            return found
    raise fail("E567", f"no residues of {element} keep an accuracy of {accuracy} at K = {k}", "allow more, or use a wider type")


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


WORD = 4
"""Bytes of a word: a largest magnitude, an exponent, the flag, and a product in float32."""
CELL = 256
"""Bytes to whose multiples parts of the workspace are aligned."""
PITCH = 16
"""Bytes to whose multiples rows of products of residues are aligned."""


@dataclass(frozen=True)
class DigitGeometry:
    """Blocks, panels and workspace of a product of m x k by k x n by a scheme of `rank` products on a grid, in a tile.

    Extents of blocks are multiples of 4, so that four neighbours lie in one block. The blocks of a cluster have panels of A of their own,
    and a tile has whole panels of B. If it is one of several `blocks` of rows and of columns of C, there are words for the scales of all.
    """

    grid: tuple[int, int, int]
    rank: int
    extents: tuple[int, int, int]
    tile: DigitTile | ModularTile
    blocks: tuple[int, int] = (1, 1)

    @property
    def block(self) -> tuple[int, int, int]:
        """The extents (m, k, n) of a block; what lies outside of the operands is taken to be 0."""
        m, k, n = (ceil(ceil(extent / blocks) / 4) * 4 for extent, blocks in zip(self.extents, self.grid, strict=True))
        return m, k, n

    @property
    def panels(self) -> tuple[int, int]:
        """Panels of lines of a block of A and of B."""
        m, _, n = self.block
        return ceil(ceil(m / PANEL) / self.tile.cluster) * self.tile.cluster, ceil(n / self.tile.n) * (self.tile.n // PANEL)

    @property
    def slices(self) -> int:
        """Slices of terms of a block."""
        return ceil(self.block[1] / self.tile.k)

    @property
    def is_direct(self) -> bool:
        """Whether the only product is C."""
        return self.rank == 1 and isinstance(self.tile, DigitTile)

    @property
    def planes(self) -> int:
        """The products, each as often as there are moduli."""
        return self.rank * (1 if isinstance(self.tile, DigitTile) else self.tile.count)

    @property
    def tiles(self) -> int:
        """Tiles of all products, modulo each p."""
        return self.planes * prod(self.panels) * PANEL * PANEL // (self.tile.m * self.tile.n)

    @property
    def digit_bytes(self) -> tuple[int, int]:
        """Bytes of the digits of A and of B."""
        left, right = (self.rank * panels * self.slices * self.tile.slice_bytes for panels in self.panels)
        return left, right

    @property
    def pitch(self) -> int:
        """The distance from row to row of a product, in elements."""
        return self.block[2] if isinstance(self.tile, DigitTile) else ceil(self.block[2] / PITCH) * PITCH

    @property
    def product_bytes(self) -> int:
        """Bytes of the products: float32, or a byte modulo each p."""
        if self.is_direct:
            return 0
        return self.rank * self.block[0] * self.pitch * (WORD if isinstance(self.tile, DigitTile) else self.tile.count)

    @property
    def lines(self) -> tuple[int, int]:
        """Lines of A and B that have scales of their own: of a block if they are cut after sums were formed, else all of them."""
        m, _, n = self.block if isinstance(self.tile, DigitTile) else self.extents
        return m, n

    @property
    def words(self) -> int:
        """The number of words that give the scales of all lines, and of the flag."""
        (rows, columns), (down, across) = self.lines, self.blocks
        return down * rows + across * columns + 1

    @property
    def places(self) -> tuple[int, int, int, int, int]:
        """Where words, digits of A, digits of B and products begin in the workspace, and where it ends, in bytes."""
        ends = [0]
        for size in (self.words * WORD, *self.digit_bytes, self.product_bytes):
            ends.append(ends[-1] + ceil(size / CELL) * CELL)
        words, left, right, products, end = ends
        return words, left, right, products, end


COMPLEX_PRODUCTS, GAUSSIAN_PRODUCTS = 3, 2
"""Real products of a complex one, and products modulo each p."""


def geometry_of(levels: tuple[str, ...], extents: tuple[int, int, int], tile: str, is_complex: bool = False) -> DigitGeometry:
    """The geometry of levels of shipped algorithms; without levels, of the product itself.

    For complex matrices, of three real products, or of two modulo each p.
    """
    grids = [outline(Way((name,))) for name in levels]
    m, k, n = (prod(getattr(own.profile, extent) for own in grids) for extent in "mkn")
    found = RESIDUE_TILES.get(tile) or FLOAT_TILES[tile]
    times = 1
    if is_complex:
        times = GAUSSIAN_PRODUCTS if isinstance(found, ResidueTile) and found.gaussian else COMPLEX_PRODUCTS
    rank = prod(own.products for own in grids) * times
    return DigitGeometry((m, k, n), rank, extents, found)


def block_of(extent: int, cut: int) -> int:
    """The extent of the blocks of C if this many cover it: whole panels, and no block of a single row or column is left over."""
    block = ceil(ceil(extent / cut) / PANEL) * PANEL
    while block < extent and extent % block == 1:
        block += PANEL
    return min(block, extent)


def triangle_tiles(panels: int, cluster: int) -> int:
    """Tiles at and below the diagonal of a square of `panels` x `panels`, where clusters that cross it take whole rows of tiles."""
    rows = -(-panels // cluster)
    return cluster * cluster * (rows * (rows + 1) // 2)
