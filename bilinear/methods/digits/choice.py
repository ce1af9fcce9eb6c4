"""Which products of digits there are: what one runs, where everything lies in its workspace, its proved bound and its probable error."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from math import ceil, prod
from typing import TYPE_CHECKING, ClassVar

from bilinear.errors import fail
from bilinear.ir.element import COMPLEX, FLOAT32, FLOAT64, HALVES, MULTIPLIED, Element
from bilinear.ir.matrix import Factor, Layout
from bilinear.ir.placement import MOST_LEVELS
from bilinear.ir.tile import (
    BYTE_TILES,
    DIGIT_TILES,
    FLOAT_TILES,
    LARGEST_IN_BYTES,
    LOADING_TILES,
    LONGEST_SUM,
    MOST_BLOCKS,
    PANEL,
    RESIDUE_TILES,
    ByteTile,
    DigitTile,
    ModularTile,
    ResidueTile,
)
from bilinear.planner.device import Policy
from bilinear.planner.library import probable_classical_of
from bilinear.planner.plan import Candidate, Choice, Panel, name_of
from bilinear.planner.problem import CLASSES, Problem
from bilinear.planner.profiles import Levels, outline, portfolio
from bilinear.planner.scheduled import Scheduled
from bilinear.planner.ways import Way, algorithm_named, kept_by_names

if TYPE_CHECKING:  # imported late
    from bilinear.ir.complex_scheme import ComplexScheme, Products
    from bilinear.ir.digits import DigitScheme, Representation
    from bilinear.ir.scheme import Scheme

USUAL_CLASS = "classical"  # The class of accuracy that they keep where none is asked for.
SAME_BITS_MODULI = {"float32": 7, "float64": 14}  # The moduli of products with the same bits everywhere.
MOST_TARGETS = 16  # Blocks of C: a thread puts together an element of each, at the least.
MOST_HEADROOM = 6  # By so many bits forms may exceed their blocks: limbs and sums hold no more.


def element_of(products: str) -> Element:
    """The type whose numbers are cut for products of this name."""
    tile = RESIDUE_TILES.get(products) or BYTE_TILES.get(products)
    return FLOAT32 if tile is None else tile.of


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
    from bilinear.lowering.prepare import plain, proved, require_numbers

    schemes = [algorithm_named(name).scheme for name in levels] or [plain().scheme]  # the latter without reading a file
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
    own = FLOAT32 if products in BYTE_TILES else element_of(products)
    return f"residues of {own}" if products in RESIDUE_TILES or products in BYTE_TILES else products


def levels_above(products: str) -> tuple[Levels, ...]:
    """The levels of the portfolio that are weighed above products of this name."""
    own = portfolio()
    return own.digits + own.pairs if products in DIGIT_TILES else own.digits


def residues_for(problem: Problem) -> str:
    """The residues of the problem's type with the fewest moduli that keep its accuracy. Raises `BilinearError` (E567) if none do."""
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

    Without an accuracy these are 7 moduli of float32 (and of narrower types) and 14 of float64. With one they are the fewest of those that
    kernels are generated for, by `same_bits_bound` or, for a class, `probable_same_bits`. Parts of complex numbers have sums of 2K terms.
    Raises `BilinearError` (E567) if none keep it.
    """
    from bilinear.analysis.digit_bounds import largest_scaled, probable_classical, probable_same_bits, same_bits_bound
    from bilinear.ir.digits import residues_of

    element = FLOAT64 if dtype in ("float64", "complex128") else FLOAT32
    inner, u = 2 * k if dtype in COMPLEX else k, element.unit_roundoff
    for count in sorted(tile.count for tile in RESIDUE_TILES.values() if tile.of is element and not tile.gaussian):
        found = residues_of(element, count)
        if accuracy is None and count >= SAME_BITS_MODULI[element.name]:
            return found
        limit = largest_scaled(found, inner)
        if isinstance(accuracy, str) and probable_same_bits(limit, inner, u) <= CLASSES[accuracy] * probable_classical(inner, u):
            return found
        if not isinstance(accuracy, str | None) and same_bits_bound(limit, inner, u) <= accuracy:
            return found
    raise fail("E567", f"no residues of {element} keep an accuracy of {accuracy} at K = {k}", "allow more, or use a wider type")


def same_bits_products(dtype: str, k: int, accuracy: float | str | None) -> tuple[str, float]:
    """The name of these products, and the largest integer that they multiply: by residues; or, for 16 bits without an accuracy, in bytes.

    Raises `BilinearError` (E567) if none keep the accuracy.
    """
    if dtype in HALVES and accuracy is None and k <= LONGEST_SUM:
        return f"bytes of {dtype}", LARGEST_IN_BYTES
    from bilinear.analysis.digit_bounds import largest_scaled

    found = same_bits_residues(dtype, k, accuracy)
    return found.name, largest_scaled(found, 2 * k if dtype in COMPLEX else k)


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


WORD = 4  # Bytes of a word: a largest magnitude, an exponent, the flag, and a product in float32.
CELL = 256  # Bytes to whose multiples parts of the workspace are aligned.
PITCH = 16  # Bytes to whose multiples rows of products of residues are aligned.


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
        """The products, each as often as there are moduli, or bytes."""
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
        """Bytes of the products: a word each, or a byte modulo each p."""
        if self.is_direct:
            return 0
        return self.planes * self.block[0] * self.pitch * (WORD if isinstance(self.tile, DigitTile | ByteTile) else 1)

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


COMPLEX_PRODUCTS, GAUSSIAN_PRODUCTS = 3, 2  # Real products of a complex one, and products modulo each p.


def geometry_of(levels: tuple[str, ...], extents: tuple[int, int, int], tile: str, is_complex: bool = False) -> DigitGeometry:
    """The geometry of levels, or of the product itself; for complex matrices of three real products, or of two modulo each p."""
    grids = [outline(Way((name,))) for name in levels]
    m, k, n = (prod(getattr(own.profile, extent) for own in grids) for extent in "mkn")
    found = RESIDUE_TILES.get(tile) or BYTE_TILES.get(tile) or FLOAT_TILES[tile]
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


LENT = ("", "A", "B", "P", "AB", "AP", "BP", "ABP")  # To what a later part of C may lend memory.


@dataclass(frozen=True)
class Digits(Choice):
    """How a product of digits runs: the algorithm of each level, the outermost first, the name of its tile, and the blocks of C.

    C, row-major, is computed in `cut` blocks of rows and of columns, one after the other, in the same workspace. `conjugated` names the
    complex operands whose conjugates are multiplied. With a `rest`, all this describes the first rows of C (columns if `by_columns`, where
    C is column-major). What `lent` names, digits of A and of B and products by A, B and P, lies in the rows that the parts of the rest
    compute afterwards, and so do scales. Products of `same_bits` depend on the numbers alone.
    """

    levels: tuple[str, ...]
    tile: str
    cut: tuple[int, int] = (1, 1)
    conjugated: str = ""
    rest: tuple[Panel, ...] = ()
    by_columns: bool = False
    lent: str = ""
    same_bits: bool = False
    method: ClassVar[str] = "digits"
    strategy = "digits"
    title: ClassVar[str] = "product of digits"
    needs: ClassVar[str] = (
        "multiplies two matrices or vectors of the type it cuts on a GPU from sm_80 on (on load: sm_90), and needs an out of that type"
    )

    @property
    def needs_little(self) -> bool:
        """True if the workspace holds the scales of rows and columns, and nothing else."""
        return (self.rest[-1].choice if self.rest else self).tile in LOADING_TILES

    @property
    def why_nothing_kept(self) -> str:
        """Why no digits of one operand can be kept; empty if they can."""
        if self.cut != (1, 1) or self.rest:
            return "the plan computes C in blocks, and makes their digits one after the other"
        return "the plan cuts operands on their way to the unit, and holds no digits" if self.needs_little else ""

    @property
    def name(self) -> str:
        """A readable name."""
        if self.rest:
            names = dict.fromkeys(map(_uncut_name, (self, *(part.choice for part in self.rest))))
            return f"{'; '.join(names)}, C in {1 + len(self.rest)} parts"
        blocks = "" if self.cut == (1, 1) else f", C in {self.cut[0]} x {self.cut[1]} blocks"
        return _uncut_name(self) + blocks

    def suits(self, out: Layout, beta: Factor) -> bool:
        """Whether C can be computed in a matrix of this layout. Parts keep digits in C, so it is overwritten, and lies as was planned."""
        return not self.rest or bool(beta == 0 and not out.has_gaps and out.is_by_column == self.by_columns)

    def conjugated_as(self, operands: str) -> Digits:
        """The same with the conjugates of these operands, which are formed where numbers are cut."""
        return replace(self, conjugated=operands)

    def least_gain(self, policy: Policy) -> float:
        """The part of the library's time that it must save to be chosen: of a chain of parts each has errors of its own."""
        return policy.least_gain if self.rest else policy.least_gain_digits

    def bound(self, inner: int, dtype: str) -> float:
        """The bound that always holds: the largest of the parts."""
        if self.same_bits:
            from bilinear.analysis.digit_bounds import same_bits_bound

            return same_bits_bound(_limit(self.tile, inner), inner, element_of(self.tile).roundoffs[0])
        own = digits_error(self.levels, inner, self.tile, dtype in COMPLEX)
        return max((own, *(part.choice.bound(inner, dtype) for part in self.rest)))

    def probable(self, inner: int, dtype: str) -> float:
        """The probable error by norm in units of the classical multiply's: the largest of the parts."""
        if self.same_bits:
            from bilinear.analysis.digit_bounds import probable_same_bits

            found = probable_same_bits(_limit(self.tile, inner), inner, element_of(self.tile).roundoffs[0])
            return found / probable_classical_of(inner, dtype)
        own = probable_digits_of(self.levels, inner, self.tile, dtype in COMPLEX) / probable_classical_of(inner, dtype)
        return max((own, *(part.choice.probable(inner, dtype) for part in self.rest)))

    def check(self, problem: Problem) -> None:
        """Raise a `ValueError` if the fields make no sense."""
        if self.tile not in products_of(problem.dtype):
            raise ValueError(f"there is no tile {self.tile!r}")
        if len(self.cut) != 2 or not all(type(x) is int and 0 < x < 2**80 for x in self.cut):
            raise ValueError("its blocks make no sense")
        if len(self.levels) > MOST_LEVELS or (self.tile in LOADING_TILES and (self.levels or self.cut != (1, 1))):
            raise ValueError(f"{self.tile} have no such levels above them, and no blocks")
        if self.lent not in LENT or (self.lent and not self.rest):
            raise ValueError("what C lends memory to makes no sense")
        if self.same_bits and (self.rest or problem.dtype in COMPLEX or self.tile not in (*RESIDUE_TILES, *BYTE_TILES)):
            raise ValueError("its bits would not depend on the numbers alone")
        if self.by_columns is not problem.by_columns or self.conjugated != "":
            raise ValueError("its operands are not those of the problem")
        if problem.dtype in COMPLEX and (self.rest or self.tile in LOADING_TILES):
            raise ValueError("complex matrices are not multiplied so")
        for part in self.rest:
            is_last = part is self.rest[-1]
            if isinstance(part.choice, Digits):
                if part.choice.rest or (part.choice.lent and is_last) or part.choice.lent not in LENT:
                    raise ValueError("its parts make no sense")
                replace(part.choice, lent="").check(problem)
            elif not (is_last and isinstance(part.choice, Scheduled) and not part.choice.rest and part.choice.inputs == "preserve"):
                raise ValueError("its parts make no sense")


def digits_of(candidate: Candidate) -> Digits:
    """What a candidate by digits runs."""
    if not isinstance(candidate.choice, Digits):
        raise TypeError("the candidate is by another method")
    return candidate.choice


def _uncut_name(choice: Choice) -> str:
    if not isinstance(choice, Digits):
        return choice.name
    own = f"{choice.tile} with the same bits everywhere" if choice.same_bits else choice.tile
    return f"{name_of(choice.levels)} on {own}" if choice.levels else own


@kept_by_names(256)
def digits_error(levels: tuple[str, ...], inner: int, tile: str, is_complex: bool) -> float:
    """The bound that always holds for products of digits of this name below these levels, without parts."""
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


@kept_by_names(256)
def probable_digits_of(levels: tuple[str, ...], inner: int, tile: str, is_complex: bool) -> float:
    """The probable error by norm of such products."""
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


def _terms(inner: int, is_complex: bool) -> int:
    """The number of real products in a sum; residues of complex numbers are exact, so only this number matters."""
    return 2 * inner if is_complex else inner


def _limit(name: str, inner: int) -> float:
    """The size of the integers that these products of scaled numbers multiply, where their bits depend on the numbers alone."""
    from bilinear.analysis.digit_bounds import largest_scaled
    from bilinear.ir.digits import representation_of

    return LARGEST_IN_BYTES if name in BYTE_TILES else largest_scaled(representation_of(RESIDUE_TILES[name]), inner)


def _residues(name: str) -> DigitScheme:
    from bilinear.ir.digits import representation_of, residues

    return residues(representation_of(RESIDUE_TILES[name]))


def _block(levels: tuple[str, ...], is_complex: bool) -> Products | None:
    """What stands above the digits: the block scheme of some levels, three products of parts by it, or nothing."""
    from bilinear.algebra.complex_products import complex_scheme

    if is_complex:
        return complex_scheme(scheme_of(levels))
    return scheme_of(levels) if levels else None
