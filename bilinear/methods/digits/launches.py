"""How products of digits are launched: what pairs and residues have in common, and the launches of each.

A line of an operand that holds an Inf or a NaN sets a flag on the device. Then these launches write nothing to C, and the last launch, the
classical product, computes C. If the flag is clear, the last launch ends at once.

Pairs multiply float32 on the float16 matrix units: numbers are cut into two digits. Kernels that also form a scheme's sums cut them and
store the digits. Launches: the largest magnitude of every line, which gives its scale; the forms of A and of B, cut; the products; the
forms of the products. Or the product itself cuts A and B on load: then the workspace holds the scales alone.

For A*A^T A is cut once, and one launch computes the tiles of one triangle, for both of them. If an Inf or a NaN was seen, the classical
product computes all of C, and another launch copies the lower triangle to the upper one.

Residues multiply float32 or float64 on the int8 matrix units: numbers are scaled, cut to integers, and those to residues. Launches: the
scale of every line, from its 2-norm; the forms of A and of B, as residues modulo each p; the products modulo each p; their forms, put
together by the Chinese remainder theorem. Everything between cutting and the result is exact (docs/digits.md). Numbers of 16 bits, as
integers of 14 bits, are two digits and their sum there: the launches are the same, with three products in int32.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from math import ceil
from struct import pack, unpack
from typing import NamedTuple

from bilinear.algebra.complex_products import complex_scheme, three_products, two_products
from bilinear.algebra.maps import on_blocks
from bilinear.analysis.digit_bounds import largest_scaled, room_of
from bilinear.backends.bound_launches import MatrixPlace, Values
from bilinear.backends.gemm import ALIGNMENT, is_by_rows, is_in_lanes
from bilinear.backends.machine import has_digit_units, multiplies_by_warps
from bilinear.codegen.lower import schedule_to_launches
from bilinear.codegen.names import stem
from bilinear.ir.complex_scheme import ComplexScheme, Products
from bilinear.ir.digit_kernel import (
    ClearKernel,
    ComplexProductKernel,
    DigitKernel,
    DigitProductKernel,
    ExpandKernel,
    LargestKernel,
    LoadingKernel,
    RecomposeKernel,
)
from bilinear.ir.digits import Representation, representation_of
from bilinear.ir.element import FLOAT32, Element, IntegerElement
from bilinear.ir.kernel import Argument, MirrorKernel, ProductKernel
from bilinear.ir.launch import Launch, PlainLaunch
from bilinear.ir.matrix import Layout
from bilinear.ir.residue_kernel import (
    ByteRecomposeKernel,
    IntegerRecomposeKernel,
    ResidueExpandKernel,
    ResidueKernel,
    ResidueProductKernel,
    ResidueRecomposeKernel,
    SpecialKernel,
)
from bilinear.ir.scheme import Scheme
from bilinear.ir.tile import (
    BYTE_TILES,
    DIGIT_SLICE,
    DIGIT_TILES,
    LARGEST_IN_BYTES,
    LOADING_TILES,
    PANEL,
    RESIDUE_TILES,
    USUAL,
    DigitTile,
    ModularTile,
)
from bilinear.lowering.prepare import plain, proved
from bilinear.methods.digits.choice import WORD, DigitGeometry, Digits, complex_scheme_of, require_residues, scheme_of, triangle_tiles
from bilinear.methods.digits.lower import (
    DigitKernels,
    OperandOrder,
    ResidueKernels,
    lower_bytes,
    lower_digits,
    lower_loading,
    lower_residues,
)
from bilinear.methods.program import GRID, WORKSPACE, Buffers, NamedLaunch, Program, matrix, once
from bilinear.planner.ways import algorithm_named, kept_by_names
from bilinear.verify.bilinear_map import prove_map

CutKernel = DigitKernel | LoadingKernel | ResidueKernel | MirrorKernel
Recompose = RecomposeKernel | ResidueRecomposeKernel | IntegerRecomposeKernel | ByteRecomposeKernel
Cut = Element | IntegerElement  # A type whose numbers are cut.


class Passes(NamedTuple):
    """The launches of a product by what they do: for A and for B, those that find scales, and those that cut; and all that follow."""

    clear: NamedLaunch
    scales: tuple[NamedLaunch, NamedLaunch]
    cutting: tuple[NamedLaunch, NamedLaunch]
    after: list[NamedLaunch]


RESIDENT = 4  # Blocks of threads on each multiprocessor that compute the complex product by its definition.


@kept_by_names(64)
def proved_scheme(levels: tuple[str, ...], conjugated: str | None = None, residues: Representation | None = None) -> Products:
    """The scheme of shipped levels, each proved; for complex matrices below three real products, or two modulo each p."""
    for name in levels:
        proved(algorithm_named(name).scheme)
    if conjugated is None:
        return scheme_of(levels)
    if residues is not None:
        for p, root in zip(residues.moduli, residues.roots, strict=True):
            prove_map(two_products(p, root, conjugated)).require()
        block = on_blocks(scheme_of(levels))
        maps = block.u, block.v, block.w
        return ComplexScheme(block.name, block.m, block.k, block.n, *maps, 2 * block.rank, conjugated, is_gaussian=True)
    prove_map(three_products(conjugated)).require()
    complex_scheme_of(levels)  # which refuses too many blocks
    return complex_scheme(scheme_of(levels), conjugated)


def stem_of(levels: tuple[str, ...], conjugated: str | None = None, products: str = "complex3") -> str:
    """What the names of the kernels of levels have in common."""
    outer = () if conjugated is None else (f"{products}{conjugated.lower()}",)
    return stem("_".join((*outer, *levels)) or "plain", len(levels))


def conjugated_in(c: Layout, digits: Digits) -> str | None:
    """Which operands of the product that is launched are conjugated; None for real matrices. C^T = B^T A^T if C lies by columns."""
    if c.dtype.kind != "c":
        return None
    return digits.conjugated if is_by_rows(c) else digits.conjugated.translate(str.maketrans("AB", "BA"))


class CutMultiply(Program):
    """A product of matrices of an element type whose numbers are cut: bulk copies read its workspace."""

    what = "a product of digits"
    writing = 2

    def __init__(self, a: Layout, b: Layout, c: Layout, scheme: Products, stem: str, tile: DigitTile | ModularTile, element: Cut) -> None:
        swaps = not is_by_rows(c)
        super().__init__((b.T, a.T, c.T) if swaps else (a, b, c), swaps, element, not isinstance(scheme, Scheme))
        self._cut, self._scheme, self._stem = element, scheme, stem
        (m, k), (_, n) = self._layouts[0].shape, self._layouts[1].shape
        self._extents = m, k, n
        self._geometry = DigitGeometry((scheme.m, scheme.k, scheme.n), scheme.rank, self._extents, tile)
        self.workspace = self._geometry.places[-1] // c.itemsize

    def buffers(self) -> Buffers:
        """Where named buffers lie: `words` with the scales of A, those of B, and the flag; digits of A and of B; products."""
        g = self._geometry
        words, left, right, products, _ = g.places
        places = {"words": words, "LA": words, "LB": words + WORD * g.blocks[0] * g.lines[0], "flag": words + WORD * (g.words - 1)}
        places |= {"DA": left, "DB": right, "P": products}
        return {**super().buffers(), **{name: (WORKSPACE, place) for name, place in places.items()}}

    def orders(self, is_aligned: bool) -> tuple[OperandOrder, OperandOrder, bool]:
        """How the operands lie, and whether the result is written several elements at once."""
        a, b, c = self._layouts
        left = OperandOrder(is_by_rows(a), is_aligned and is_in_lanes(a))
        right = OperandOrder(not is_by_rows(b), is_aligned and is_in_lanes(b))
        return left, right, is_aligned and is_in_lanes(c)

    def operands(self) -> tuple[Values, Values]:
        """The values of A and of B: where their elements lie, by line and term."""
        (m, k, n), (a, b, _) = self._extents, self._layouts
        return _operand("A", a, m, k), _operand("B", b.T, n, k)

    def result(self) -> Values:
        """The values of C, alpha, beta, the flag, and the words that give the scales of A and of B."""
        (m, _, n), names = self._extents, ("alpha", "beta", "alpha_im", "beta_im")
        factors = {name: name for name in names[: 4 if self._is_complex else 2]}
        return matrix("C", self._layouts[2]) | {"m": m, "n": n} | factors | {name: at(name) for name in ("LA", "LB", "flag")}

    def products(
        self, product: DigitProductKernel | ResidueProductKernel, recompose: Recompose | None, result: Values, multiprocessors: int
    ) -> list[NamedLaunch]:
        """The launches of the products, a cluster of blocks one tile after another, and of their forms, unless the product is C."""
        g = self._geometry
        (block_m, _, block_n), (panels_m, panels_n) = g.block, g.panels
        digits: Values = {"DA": at("DA"), "DB": at("DB"), "panels_m": panels_m, "panels_n": panels_n, "slices": g.slices}
        blocks = min(g.tiles, max(multiprocessors // product.cluster, 1) * product.cluster)
        if recompose is None:
            return [launched(product, blocks, result | digits)]
        into: Values = {"P": at("P"), "pitch": g.pitch, "planes": g.planes}
        covers = ceil(block_n / (recompose.threads[0] * recompose.lanes)) * ceil(block_m / recompose.threads[1])
        return [
            launched(product, blocks, digits | into | {"m": block_m}),
            launched(recompose, covers, result | into | {"block_m": block_m, "block_n": block_n}),
        ]

    def on_flag(self, is_aligned: bool, multiprocessors: int) -> NamedLaunch:
        """What runs if the flag is set: the classical product."""
        if isinstance(self._cut, IntegerElement):
            raise TypeError("integers are multiplied without a flag")
        if not isinstance(self._scheme, Scheme):
            conjugated, (m, k, n) = self._scheme.conjugated, self._extents  # the complex product by four real ones
            name = f"complex_product_{self._cut.suffix}{f'_{conjugated.lower()}' if conjugated else ''}"
            four = ComplexProductKernel(name, self._cut, conjugated)
            blocks = min(ceil(m / four.tile) * ceil(n / four.tile), RESIDENT * multiprocessors)
            return launched(four, blocks, self.result() | self._matrices() | {"k": k})
        launch, values = self.plain(USUAL)  # the large tile takes twice as long to build, longer than all else of a first call
        kernel = launch.kernel
        if not isinstance(kernel, ProductKernel):
            raise TypeError("the plain schedule is one product")
        (_, k, n), operands = self._extents, self._layouts[:2]
        is_even = is_aligned and k % kernel.lanes == n % kernel.lanes == 0 and all(x.strides[1] == x.itemsize for x in operands)
        rows_are = "EVEN" if is_even and all(x.strides[0] % ALIGNMENT == 0 for x in operands) else "ANY"
        arguments = (*kernel.arguments, Argument("flag", "flag"))
        own = replace(kernel, name=f"{kernel.name}_{rows_are.lower()}", guarded=True, arguments=arguments, rows_are=rows_are)
        return replace(launch, kernel=own), values

    def plain(self, tile: str) -> tuple[Launch, Values]:
        """The product of these matrices in the type itself, in a tile of this name."""
        if isinstance(self._cut, IntegerElement):
            raise TypeError("integers have no such product")
        (launch,) = schedule_to_launches(plain().schedule, self._cut, tile, "digit_classical")
        values = self.result() | dict(zip(("bm", "bk", "bn"), self._extents, strict=True))
        return launch, values | self._matrices()

    def _matrices(self) -> Values:
        return matrix("A", self._layouts[0]) | matrix("B", self._layouts[1])


class StoredMultiply(CutMultiply):
    """A product whose operands are cut by launches of their own, which store the digits."""

    @abstractmethod
    def passes(self, is_aligned: bool, multiprocessors: int) -> Passes:
        """The launches by what they do."""

    def launches(self, is_aligned: bool, multiprocessors: int) -> list[NamedLaunch]:
        """The launches in their order, with the values of their arguments."""
        own = self.passes(is_aligned, multiprocessors)
        return [own.clear, *own.scales, *own.cutting, *own.after]


def launched(kernel: CutKernel, blocks: int, values: Values) -> NamedLaunch:
    """A launch of so many blocks of threads."""
    return PlainLaunch(kernel, GRID), values | {"blocks": blocks}


def cleared(count: int) -> NamedLaunch:
    """The launch that clears so many words."""
    return launched(ClearKernel(), ceil(count / 256), {"words": at("words"), "count": count})


def at(name: str) -> MatrixPlace:
    """The beginning of a buffer in the workspace."""
    return MatrixPlace(name, 0, (0, 0), WORD)


def _operand(name: str, x: Layout, lines: int, terms: int) -> Values:
    own = matrix(name, x)
    return {"X": own[name], "X_line": own[f"{name}_rs"], "X_term": own[f"{name}_cs"], "lines": lines, "terms": terms}


LEAST_DEPTH = 512  # The least terms of a line that a block of threads searches for the largest magnitude.
BLOCKS_EACH = 8  # Blocks of threads for each multiprocessor that search for the largest magnitudes.


def search(kernel: LargestKernel, operand: Values, multiprocessors: int) -> NamedLaunch:
    """The launch that finds the largest magnitudes: lines are cut in parts so that all multiprocessors take part."""
    terms, tiles = operand["terms"], ceil(operand["lines"] / kernel.lines)
    parts = max(1, min(ceil(terms / LEAST_DEPTH), ceil(BLOCKS_EACH * multiprocessors / tiles)))
    depth = ceil(ceil(terms / parts) / 4) * 4
    parts = ceil(terms / depth)
    return launched(kernel, tiles * parts, operand | {"depth": depth, "parts": parts})


class DigitMultiply(StoredMultiply):
    """A product of float32 or complex64 matrices by pairs of float16 digits."""

    def __init__(self, a: Layout, b: Layout, c: Layout, digits: Digits, by_warps: bool = False) -> None:
        self._tile, self._by_warps = DIGIT_TILES[digits.tile], by_warps
        conjugated = conjugated_in(c, digits)
        super().__init__(a, b, c, proved_scheme(digits.levels, conjugated), stem_of(digits.levels, conjugated), self._tile, FLOAT32)

    def kernels(self, is_aligned: bool) -> DigitKernels:
        """The kernels for operands at multiples of 16 bytes, or at any address."""
        return lower_digits(self._scheme, self._stem, self._tile, *self.orders(is_aligned), self._by_warps)

    def passes(self, is_aligned: bool, multiprocessors: int) -> Passes:
        """The launches by what they do."""
        g, own, result = self._geometry, self.kernels(is_aligned), self.result()
        left, right = (
            x | {"block": lines, "largest": result[scales], "flag": result["flag"]}
            for x, lines, scales in zip(self.operands(), g.lines, ("LA", "LB"), strict=True)
        )
        first, second = (search(kernel, x, multiprocessors) for kernel, x in zip(own.largest, (left, right), strict=True))
        each = zip(own.expand, (left, right), g.panels, ("DA", "DB"), strict=True)
        cut_left, cut_right = (self._expansion(*one) for one in each)
        after = [*self.products(own.product, own.recompose, result, multiprocessors), self.on_flag(is_aligned, multiprocessors)]
        return Passes(cleared(g.words), (first, second), (cut_left, cut_right), after)

    def _expansion(self, kernel: ExpandKernel, operand: Values, panels: int, digits: str) -> NamedLaunch:
        g = self._geometry
        lines, terms = panels * PANEL, g.slices * DIGIT_SLICE
        fast, slow = (terms, lines) if kernel.along else (lines, terms)
        shape: Values = {"block_lines": operand["block"], "block_terms": g.block[1], "panels": panels, "slices": g.slices, "D": at(digits)}
        return launched(kernel, ceil(fast / (kernel.threads[0] * kernel.lanes)) * ceil(slow / kernel.threads[1]), operand | shape)


class LoadingMultiply(CutMultiply):
    """A product of float32 matrices by pairs of float16 digits, without levels above it, that are cut on their way to the unit."""

    def __init__(self, a: Layout, b: Layout, c: Layout, digits: Digits) -> None:
        self._tile = LOADING_TILES[digits.tile]
        super().__init__(a, b, c, proved_scheme(()), stem_of(()), self._tile, FLOAT32)

    def launches(self, is_aligned: bool, multiprocessors: int) -> list[NamedLaunch]:
        """The launches in their order, with the values of their arguments."""
        g, result, (left, right) = self._geometry, self.result(), self.operands()
        largest, kernel_of_all = lower_loading(self._tile, *self.orders(is_aligned)[:2])
        searches = [
            search(kernel, x | {"block": lines, "largest": result[scales], "flag": result["flag"]}, multiprocessors)
            for kernel, x, lines, scales in zip(largest, (left, right), g.lines, ("LA", "LB"), strict=True)
        ]
        (panels_m, panels_n), blocks = g.panels, min(g.tiles, multiprocessors)  # a block of threads computes a tile after another
        shape: Values = {"terms": self._extents[1], "panels_m": panels_m, "panels_n": panels_n, "slices": g.slices}
        matrices: Values = {f"{name}{of[1:]}": x[of] for name, x in (("A", left), ("B", right)) for of in ("X", "X_line", "X_term")}
        product = launched(kernel_of_all, blocks, result | matrices | shape)
        return [cleared(g.words), *searches, product, self.on_flag(is_aligned, multiprocessors)]


MIRRORING = 264  # Blocks of threads that copy a triangle.


class TriangleMultiply(DigitMultiply):
    """C = alpha * A * A^T + beta * C, symmetric bit by bit; of C, which lies by rows, the lower triangle is read."""

    writing = 3

    def __init__(self, a: Layout, c: Layout, digits: Digits) -> None:
        super().__init__(a, a.T, c, digits)

    def kernels(self, is_aligned: bool) -> DigitKernels:
        """The kernels for an operand at a multiple of 16 bytes, or at any address."""
        found = super().kernels(is_aligned)
        return replace(found, product=replace(found.product, name=f"{found.product.name}_triangle", one_triangle=True))

    def launches(self, is_aligned: bool, multiprocessors: int) -> list[NamedLaunch]:
        """The launches in their order, with the values of their arguments."""
        own: Passes = self.passes(is_aligned, multiprocessors)
        result = self.result()
        mirror = launched(MirrorKernel(), MIRRORING, result | {"apart": 0, "count": 1})
        (product, values), classical = own.after
        as_left: Values = {"DB": values["DA"], "LB": values["LA"], "panels_n": values["panels_m"]}
        tiles = triangle_tiles(self._geometry.panels[0], self._tile.cluster)
        values = values | as_left | {"blocks": min(tiles, values["blocks"])}
        return [own.clear, own.scales[0], own.cutting[0], (product, values), classical, mirror]


def triangle_multiply_of(a: Layout, c: Layout, digits: Digits) -> TriangleMultiply | None:
    """A*A^T by digits on the current device; None without warpgroups, and unless both are of float32, C by rows."""
    if not a.ndim == c.ndim == 2 or {str(a.dtype), str(c.dtype)} != {FLOAT32.name} or not is_by_rows(c) or 0 in a.shape:
        return None
    is_whole = all(stride % x.itemsize == 0 for x in (a, c) for stride in x.strides)
    if a.shape[0] < 2 or not is_whole or not has_digit_units() or multiplies_by_warps():
        return None
    return once(TriangleMultiply, a, c, digits)


class ModularMultiply(CutMultiply):
    """What products of residues of floats and of integers have in common: how residues are written."""

    def expansion(self, kernel: ResidueExpandKernel, operand: Values, side: int) -> NamedLaunch:
        """The launch that writes the residues of A (side 0) or of B (side 1)."""
        g = self._geometry
        panels, lines = g.panels[side], g.block[0 if side == 0 else 2]
        shape: Values = {"block_lines": lines, "block_terms": g.block[1], "panels": panels, "slices": g.slices, "D": at(("DA", "DB")[side])}
        return launched(kernel, kernel.blocks * panels * g.slices, operand | shape)


class ResidueMultiply(ModularMultiply, StoredMultiply):
    """A product by residues of their type. Raises `BilinearError`: E567 for too few moduli, E591 and E592 for levels."""

    def __init__(self, a: Layout, b: Layout, c: Layout, digits: Digits, by_warps: bool = False) -> None:
        self._tile, self._by_warps = RESIDUE_TILES[digits.tile], by_warps
        conjugated, representation = conjugated_in(c, digits), representation_of(self._tile)
        scheme = proved_scheme(digits.levels, conjugated, representation if self._tile.gaussian else None)
        stem = stem_of(digits.levels, conjugated, "complex2" if self._tile.gaussian else "complex3")
        super().__init__(a, b, c, scheme, stem, self._tile, self._tile.of)
        require_residues(self._scheme, self._tile)
        self._same_bits, terms = digits.same_bits, self._extents[1] * (2 if self._is_complex else 1)
        self._room = (largest_scaled if digits.same_bits else room_of)(representation, terms)

    def kernels(self, is_aligned: bool) -> ResidueKernels:
        """The kernels for operands at multiples of 16 bytes, or at any address."""
        return lower_residues(self._scheme, self._stem, self._tile, *self.orders(is_aligned), self._by_warps, self._same_bits)

    def passes(self, is_aligned: bool, multiprocessors: int) -> Passes:
        """The launches by what they do."""
        (scale, expand, product, recompose), result = self.kernels(is_aligned), self.result()
        (room,) = unpack("<q", pack("<d", self._room))
        left, right = (
            x | {"exponents": result[scales], "flag": result["flag"], "room": room}
            for x, scales in zip(self.operands(), ("LA", "LB"), strict=True)
        )
        first, second = (launched(kernel, ceil(x["lines"] / kernel.lines), x) for kernel, x in zip(scale, (left, right), strict=True))
        cutting = self.expansion(expand[0], left, 0), self.expansion(expand[1], right, 1)
        clear = launched(ClearKernel(), 1, {"words": result["flag"], "count": 1})
        after = [*self.products(product, recompose, result, multiprocessors), self.on_flag(is_aligned, multiprocessors)]
        return Passes(clear, (first, second), cutting, after)

    def on_flag(self, is_aligned: bool, multiprocessors: int) -> NamedLaunch:
        """The classical product, or the elements of special lines alone."""
        if not self._same_bits:
            return super().on_flag(is_aligned, multiprocessors)
        if isinstance(self._cut, IntegerElement):
            raise TypeError("integers have no special numbers")
        kernel, (m, k, n) = SpecialKernel(f"residue_special_{self._cut.suffix}", self._cut), self._extents
        blocks = min(ceil(m * n / kernel.threads[0]), RESIDENT * multiprocessors)
        return launched(kernel, blocks, self.result() | self._matrices() | {"k": k})


class ByteMultiply(ResidueMultiply):
    """A product of 16-bit numbers, scaled to integers, in bytes; its bits depend on the numbers alone."""

    def __init__(self, a: Layout, b: Layout, c: Layout, digits: Digits, by_warps: bool = False) -> None:
        self._bytes, self._by_warps, self._same_bits, self._room = BYTE_TILES[digits.tile], by_warps, True, LARGEST_IN_BYTES
        CutMultiply.__init__(self, a, b, c, proved_scheme(()), stem_of(()), self._bytes, self._bytes.of)

    def kernels(self, is_aligned: bool) -> ResidueKernels:
        """The kernels for operands at multiples of 16 bytes, or at any address."""
        return lower_bytes(self._bytes, *self.orders(is_aligned), self._by_warps)
