"""What products of float16 digits and of residues have in common: addresses, memory, and the classical product in their place.

A line of an operand that holds an Inf or a NaN sets a flag on the device. Then these launches write nothing to C, and the last launch, the
classical product, computes C. If the flag is clear, the last launch ends at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from math import ceil
from typing import NamedTuple

from bilinear.algebra.complex_products import complex_scheme, three_products, two_products
from bilinear.algebra.maps import on_blocks
from bilinear.backends.bound_launches import Bound, Place, Values, run_launches
from bilinear.backends.cublas import Multiply
from bilinear.backends.cuda_executor import CudaExecutor, launch_kernel
from bilinear.backends.factor import factor
from bilinear.backends.loaded_kernels import built_function
from bilinear.backends.thin import ALIGNMENT, is_by_rows, is_in_lanes
from bilinear.codegen.lower import schedule_to_launches
from bilinear.codegen.lower_digits import OperandOrder
from bilinear.codegen.names import stem
from bilinear.ir.complex_scheme import GaussianScheme, Products
from bilinear.ir.digit_kernel import ComplexProductKernel, DigitKernel, DigitProductKernel, LoadingKernel, RecomposeKernel
from bilinear.ir.digits import Representation
from bilinear.ir.element import Element
from bilinear.ir.integer_kernel import IntegerRecomposeKernel
from bilinear.ir.integers import IntegerElement
from bilinear.ir.kernel import Argument, Cover, Grid, ProductKernel
from bilinear.ir.launch import AnyKernel, Launch, PlainLaunch
from bilinear.ir.matrix import Factor, Layout
from bilinear.ir.residue_kernel import ResidueKernel, ResidueProductKernel, ResidueRecomposeKernel
from bilinear.ir.residue_tile import ModularTile
from bilinear.ir.scheme import Scheme
from bilinear.ir.tile import LARGE, USUAL, DigitTile
from bilinear.lowering.prepare import plain, proved
from bilinear.planner.complex_digits import complex_scheme_of
from bilinear.planner.digit_geometry import CELL, WORD, DigitGeometry
from bilinear.planner.digits import scheme_of
from bilinear.planner.plan import Digits
from bilinear.planner.ways import algorithm_named, follows_from_names
from bilinear.verify.bilinear_map import prove_map

CutKernel = DigitKernel | LoadingKernel | ResidueKernel
Recompose = RecomposeKernel | ResidueRecomposeKernel | IntegerRecomposeKernel
Cut = Element | IntegerElement
"""A type whose numbers are cut."""
CutLaunch = tuple[Launch | PlainLaunch, Values]


class Passes(NamedTuple):
    """The launches of a product by what they do: for A and for B, those that find scales, and those that cut; and all that follow."""

    clear: CutLaunch
    scales: tuple[CutLaunch, CutLaunch]
    cutting: tuple[CutLaunch, CutLaunch]
    after: list[CutLaunch]


RESIDENT = 4
"""Blocks of threads on each multiprocessor that compute the complex product by its definition."""


@lru_cache(maxsize=64)
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


follows_from_names(proved_scheme.cache_clear)


def stem_of(levels: tuple[str, ...], conjugated: str | None = None, products: str = "complex3") -> str:
    """What the names of the kernels of levels have in common."""
    outer = () if conjugated is None else (f"{products}{conjugated.lower()}",)
    return stem("_".join((*outer, *levels)) or "plain", len(levels))


def conjugated_in(c: Layout, digits: Digits) -> str | None:
    """Which operands of the product that is launched are conjugated; None for real matrices. C^T = B^T A^T if C lies by columns."""
    if c.dtype.kind != "c":
        return None
    return digits.conjugated if is_by_rows(c) else digits.conjugated.translate(str.maketrans("AB", "BA"))


class CutMultiply(ABC):
    """C = alpha * A * B + beta * C for matrices of an element type and these layouts, called with addresses like a library's.

    `workspace` is the number of elements that a call allocates from CuPy's pool. The caller's memory, in its place, must begin at a
    multiple of `alignment` bytes, because bulk copies read it.
    """

    alignment = ALIGNMENT

    writing = 2
    """The last launches that write C."""
    _by_warps = False
    """Whether the kernels are those for chips without warpgroups."""

    def __init__(self, a: Layout, b: Layout, c: Layout, scheme: Products, stem: str, tile: DigitTile | ModularTile, element: Cut) -> None:
        self._element = element
        self._swaps = not is_by_rows(c)
        self._layouts = (b.T, a.T, c.T) if self._swaps else (a, b, c)
        self._scheme, self._stem = scheme, stem
        (m, k), (_, n) = self._layouts[0].shape, self._layouts[1].shape
        self._extents = m, k, n
        self._geometry = DigitGeometry((scheme.m, scheme.k, scheme.n), scheme.rank, self._extents, tile)
        self._bound: dict[bool, Bound] = {}
        self._usual_factors: tuple[Factor, Factor] = factor("alpha", 1, c.dtype), factor("beta", 0, c.dtype)
        self._is_complex = not isinstance(scheme, Scheme)
        self._itemsize = element.bytes * (2 if self._is_complex else 1)
        self.workspace = self._geometry.places[-1] // self._itemsize

    def __call__(self, a: int, b: int, c: int, alpha: Factor, beta: Factor, workspace: int = 0, kept: int = 0) -> None:
        """Launch on CuPy's current stream; `workspace` is the address of the caller's memory, if there is one, a multiple of 16.

        `kept` is the address of what was prepared, for a product that reads it. Without it the first address in C that is a multiple of 256
        takes its place: from there on C may lend memory to digits.

        Raises `StageError` if a launch fails, and before any launch the errors of missing kernels and memory.
        """
        import cupy

        if self._swaps:
            a, b = b, a
        pooled = None
        if not workspace:
            pooled = cupy.empty(self.workspace, self._layouts[2].dtype if self._is_complex else self._element.name)  # freed in stream order
            workspace = pooled.data.ptr
        is_aligned = (a | b | c) % ALIGNMENT == 0
        bound = self.bound(is_aligned)
        bases = a, b, c, workspace, kept or ceil(c / CELL) * CELL
        with bound.ready(bases, *self.factors(alpha, beta), CudaExecutor().stream()) as steps:
            run_launches(steps, "a product of digits", self.writing)

    @property
    def swaps(self) -> bool:
        """Whether C^T = B^T A^T is computed, because C lies by columns."""
        return self._swaps

    def factors(self, alpha: Factor, beta: Factor) -> tuple[Factor, Factor]:
        """alpha and beta as numbers of the type of C."""
        if alpha == 1 and beta == 0:  # most calls; to make these numbers takes as long as three launches
            return self._usual_factors
        return factor("alpha", alpha, self._layouts[2].dtype), factor("beta", beta, self._layouts[2].dtype)

    def within(self, workspace: int) -> Multiply:
        """The same, in the caller's memory at this address."""
        return lambda a, b, c, alpha, beta: self(a, b, c, alpha, beta, workspace)

    def bound(self, is_aligned: bool) -> Bound:
        """The launches for operands at multiples of 16 bytes, or at any address."""
        return self._bound.get(is_aligned) or self._bind(is_aligned)

    def _bind(self, is_aligned: bool) -> Bound:
        import cupy

        count = cupy.cuda.Device().attributes["MultiProcessorCount"]
        bound = self._bound[is_aligned] = self._loaded(self.launches(is_aligned, count))
        return bound

    def _loaded(self, launches: list[CutLaunch]) -> Bound:
        import cupy

        device = cupy.cuda.Device().id
        loaded = [(launch, built_function(launch.kernel, device), values) for launch, values in launches]
        return Bound(self._element, loaded, launch_kernel(), self._is_complex)

    def all_kernels(self) -> tuple[AnyKernel, ...]:
        """The kernels for operands at multiples of 16 bytes."""
        return tuple(dict.fromkeys(launch.kernel for launch, _ in self.launches(True, 1)))

    @abstractmethod
    def launches(self, is_aligned: bool, multiprocessors: int) -> list[CutLaunch]:
        """The launches in their order, with the values of their arguments."""

    def orders(self, is_aligned: bool) -> tuple[OperandOrder, OperandOrder, bool]:
        """How the operands lie, and whether the result is written several elements at once."""
        a, b, c = self._layouts
        left = OperandOrder(is_by_rows(a), is_aligned and is_in_lanes(a))
        right = OperandOrder(not is_by_rows(b), is_aligned and is_in_lanes(b))
        return left, right, is_aligned and is_in_lanes(c)

    def operands(self) -> tuple[Values, Values]:
        """The values of A and of B: where their elements lie, by line and term."""
        (m, k, n), (a, b, _) = self._extents, self._layouts
        return self._operand(0, a.strides, m, k), self._operand(1, b.strides[::-1], n, k)

    def _operand(self, base: int, strides: tuple[int, ...], lines: int, terms: int) -> Values:
        size = self._layouts[base].itemsize
        own: Values = {"X": Place(base, 0, strides, size), "X_line": strides[0] // size, "X_term": strides[1] // size}
        return own | {"lines": lines, "terms": terms}

    def result(self) -> Values:
        """The values of C, alpha, beta, the flag, and the words that give the scales of A and of B."""
        (m, _, n), c, size = self._extents, self._layouts[2], self._itemsize
        g, words = self._geometry, self._geometry.places[0]
        own: Values = {"C": Place(2, 0, c.strides, size), "C_rs": c.strides[0] // size, "C_cs": c.strides[1] // size, "m": m, "n": n}
        scales = {"LA": at(words), "LB": at(words + WORD * g.blocks[0] * g.lines[0]), "flag": at(words + WORD * (g.words - 1))}
        return own | {name: name for name in ("alpha", "beta", *(("alpha_im", "beta_im") if self._is_complex else ()))} | scales

    def products(
        self, product: DigitProductKernel | ResidueProductKernel, recompose: Recompose | None, result: Values, multiprocessors: int
    ) -> list[CutLaunch]:
        """The launches of the products, a cluster of blocks one tile after another, and of their forms, unless the product is C."""
        g = self._geometry
        (block_m, _, block_n), (_, left, right, products, _), (panels_m, panels_n) = g.block, g.places, g.panels
        digits: Values = {"DA": at(left), "DB": at(right), "panels_m": panels_m, "panels_n": panels_n, "slices": g.slices}
        blocks = min(g.tiles, max(multiprocessors // product.cluster, 1) * product.cluster)
        if recompose is None:
            return [launched(product, blocks, result | digits)]
        into: Values = {"P": at(products), "pitch": g.pitch, "planes": g.planes}
        covers = ceil(block_n / (recompose.threads[0] * recompose.lanes)) * ceil(block_m / recompose.threads[1])
        return [
            launched(product, blocks, digits | into | {"m": block_m}),
            launched(recompose, covers, result | into | {"block_m": block_m, "block_n": block_n}),
        ]

    def classical(self, multiprocessors: int) -> CutLaunch:
        """The product that runs if the flag is set."""
        if isinstance(self._element, IntegerElement):
            raise TypeError("integers are multiplied without a flag")
        if not isinstance(self._scheme, Scheme):
            return self._by_definition(self._element, self._scheme.conjugated, multiprocessors)
        tile = USUAL if self._by_warps else LARGE  # the large one of float64 has more shared memory than most of those chips
        launch, values = self.plain(tile)
        kernel = launch.kernel
        if not isinstance(kernel, ProductKernel):
            raise TypeError("the plain schedule is one product")
        guarded = replace(kernel, guarded=True, arguments=(*kernel.arguments, Argument("flag", "flag")))
        return replace(launch, kernel=guarded), values

    def plain(self, tile: str) -> tuple[Launch, Values]:
        """The product of these matrices in the type itself, in a tile of this name."""
        if isinstance(self._element, IntegerElement):
            raise TypeError("integers have no such product")
        (launch,) = schedule_to_launches(plain().schedule, self._element, tile, "digit_classical")
        values = self.result() | dict(zip(("bm", "bk", "bn"), self._extents, strict=True))
        return launch, values | self._matrices()

    def _by_definition(self, element: Element, conjugated: str, multiprocessors: int) -> CutLaunch:
        """The complex product by four real ones."""
        name = f"complex_product_{element.suffix}{f'_{conjugated.lower()}' if conjugated else ''}"
        kernel, (m, k, n) = ComplexProductKernel(name, element, conjugated), self._extents
        blocks = min(ceil(m / kernel.tile) * ceil(n / kernel.tile), RESIDENT * multiprocessors)
        return launched(kernel, blocks, self.result() | self._matrices() | {"k": k})

    def _matrices(self) -> Values:
        """The values of A and of B: where their elements lie, by row and column."""
        values: Values = {}
        for number, (name, x) in enumerate(zip("AB", self._layouts, strict=False)):
            size = x.itemsize
            values |= {name: Place(number, 0, x.strides, size), f"{name}_rs": x.strides[0] // size, f"{name}_cs": x.strides[1] // size}
        return values


class StoredMultiply(CutMultiply):
    """A product whose operands are cut by launches of their own, which store the digits."""

    @abstractmethod
    def passes(self, is_aligned: bool, multiprocessors: int) -> Passes:
        """The launches by what they do."""

    def launches(self, is_aligned: bool, multiprocessors: int) -> list[CutLaunch]:
        """The launches in their order, with the values of their arguments."""
        own = self.passes(is_aligned, multiprocessors)
        return [own.clear, *own.scales, *own.cutting, *own.after]


def launched(kernel: CutKernel, blocks: int, values: Values, rows: int = 1) -> CutLaunch:
    """A launch of so many blocks of threads, `rows` times."""
    return PlainLaunch(kernel, Grid(((Cover("blocks", 1),),), rows)), values | {"blocks": blocks}


def replaced(values: Values, move: Callable[[Place], Place]) -> Values:
    """The arguments of a launch whose places are moved."""
    return {name: move(value) if isinstance(value, Place) else value for name, value in values.items()}


def at(offset: int) -> Place:
    """A place in the workspace, which is base 3."""
    return Place(3, offset, (0, 0), WORD)
