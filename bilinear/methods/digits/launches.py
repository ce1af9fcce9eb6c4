"""What products of float16 digits and of residues have in common: addresses, memory, and the classical product in their place.

A line of an operand that holds an Inf or a NaN sets a flag on the device. Then these launches write nothing to C, and the last launch, the
classical product, computes C. If the flag is clear, the last launch ends at once.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from math import ceil
from typing import NamedTuple

from bilinear.algebra.complex_products import complex_scheme, three_products, two_products
from bilinear.algebra.maps import on_blocks
from bilinear.backends.bound_launches import MatrixPlace, Values
from bilinear.backends.gemm import is_by_rows, is_in_lanes
from bilinear.codegen.lower import schedule_to_launches
from bilinear.codegen.names import stem
from bilinear.ir.complex_scheme import GaussianScheme, Products
from bilinear.ir.digit_kernel import ComplexProductKernel, DigitKernel, DigitProductKernel, LoadingKernel, RecomposeKernel
from bilinear.ir.digits import Representation
from bilinear.ir.element import Element, IntegerElement
from bilinear.ir.kernel import Argument, MirrorKernel, ProductKernel
from bilinear.ir.launch import Launch, PlainLaunch
from bilinear.ir.matrix import Layout
from bilinear.ir.residue_kernel import IntegerRecomposeKernel, ResidueKernel, ResidueProductKernel, ResidueRecomposeKernel
from bilinear.ir.scheme import Scheme
from bilinear.ir.tile import USUAL, DigitTile, ModularTile
from bilinear.lowering.prepare import plain, proved
from bilinear.methods.digits.choice import Digits
from bilinear.methods.digits.geometry import WORD, DigitGeometry, complex_scheme_of, scheme_of
from bilinear.methods.digits.lower import OperandOrder
from bilinear.methods.program import GRID, WORKSPACE, Buffers, NamedLaunch, Program, matrix
from bilinear.planner.ways import algorithm_named, kept_by_names
from bilinear.verify.bilinear_map import prove_map

CutKernel = DigitKernel | LoadingKernel | ResidueKernel | MirrorKernel
Recompose = RecomposeKernel | ResidueRecomposeKernel | IntegerRecomposeKernel
Cut = Element | IntegerElement
"""A type whose numbers are cut."""


class Passes(NamedTuple):
    """The launches of a product by what they do: for A and for B, those that find scales, and those that cut; and all that follow."""

    clear: NamedLaunch
    scales: tuple[NamedLaunch, NamedLaunch]
    cutting: tuple[NamedLaunch, NamedLaunch]
    after: list[NamedLaunch]


RESIDENT = 4
"""Blocks of threads on each multiprocessor that compute the complex product by its definition."""


@kept_by_names(64)
def proved_scheme(levels: tuple[str, ...], conjugated: str | None = None, residues: Representation | None = None) -> Products:
    """The scheme of levels of shipped algorithms, each proved; for complex matrices, some `conjugated`, below three real products.

    With gaussian `residues`, below two products modulo each p.
    """
    for name in levels:
        proved(algorithm_named(name).scheme)
    if conjugated is None:
        return scheme_of(levels)
    if residues is not None:
        for p, root in zip(residues.moduli, residues.roots, strict=True):
            prove_map(two_products(p, root, conjugated)).require()
        return GaussianScheme(block=on_blocks(scheme_of(levels)), conjugated=conjugated)
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

    def on_flag(self, multiprocessors: int) -> NamedLaunch:
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
        guarded = replace(kernel, guarded=True, arguments=(*kernel.arguments, Argument("flag", "flag")))
        return replace(launch, kernel=guarded), values

    def plain(self, tile: str) -> tuple[Launch, Values]:
        """The product of these matrices in the type itself, in a tile of this name."""
        if isinstance(self._cut, IntegerElement):
            raise TypeError("integers have no such product")
        (launch,) = schedule_to_launches(plain().schedule, self._cut, tile, "digit_classical")
        values = self.result() | dict(zip(("bm", "bk", "bn"), self._extents, strict=True))
        return launch, values | self._matrices()

    def _matrices(self) -> Values:
        """The values of A and of B: where their elements lie, by row and column."""
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


def at(name: str) -> MatrixPlace:
    """The beginning of a buffer in the workspace."""
    return MatrixPlace(name, 0, (0, 0), WORD)


def _operand(name: str, x: Layout, lines: int, terms: int) -> Values:
    own = matrix(name, x)
    return {"X": own[name], "X_line": own[f"{name}_rs"], "X_term": own[f"{name}_cs"], "lines": lines, "terms": terms}
