"""A scheme to kernels that run it on digits, which cut sums of blocks, multiply, and put products together.

Digits are pairs of float16, which the product may also cut while loading A and B, or residues in int8. Products of integers need no
scales; they are exact, wrapping around or modulo a number.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from bilinear.analysis.block_maps import headroom
from bilinear.analysis.evaluation_order import evaluate
from bilinear.ir.complex_scheme import ComplexScheme, GaussianScheme, Products
from bilinear.ir.digit_kernel import DigitProductKernel, ExpandKernel, LargestKernel, LoadingKernel, RecomposeKernel, WarpDigitProductKernel
from bilinear.ir.digits import Representation, representation_of
from bilinear.ir.element import Element, IntegerElement
from bilinear.ir.linear import LinearMap
from bilinear.ir.reference import SPECIAL
from bilinear.ir.residue_kernel import (
    FEW_TARGETS,
    IntegerRecomposeKernel,
    ResidueExpandKernel,
    ResidueProductKernel,
    ResidueRecomposeKernel,
    ScaleKernel,
    WarpResidueProductKernel,
)
from bilinear.ir.scheme import Scheme
from bilinear.ir.tile import MOST_BLOCKS, DigitTile, LoadingTile, ModularTile, ResidueTile

LANES = 4
"""Neighbours of a block that a thread handles: 16 bytes of float32, and 8 bytes of each digit."""
MANY_BLOCKS = 16
"""With more blocks than this, a thread handles half as many neighbours, because their values do not fit its registers."""

Places = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class OperandOrder:
    """How an operand lies: `along` if neighbours in memory are terms of one sum; `whole` if lanes may be read at once."""

    along: bool
    whole: bool


@dataclass(frozen=True)
class DigitKernels:
    """The kernels of a product in the order in which they run; `recompose` is None if the product is the result."""

    largest: tuple[LargestKernel, LargestKernel]
    expand: tuple[ExpandKernel, ExpandKernel]
    product: DigitProductKernel
    recompose: RecomposeKernel | None


def blocks_of_left(scheme: Products) -> Places:
    """The place of each block of A, in the order of U: its row of blocks, its column of blocks."""
    return _of_parts(scheme, tuple((i, t) for i in range(scheme.m) for t in range(scheme.k)))


def blocks_of_right(scheme: Products) -> Places:
    """The place of each block of B, in the order of V: its column of blocks (lines are columns), its row of blocks."""
    return _of_parts(scheme, tuple((j, t) for t in range(scheme.k) for j in range(scheme.n)))


def blocks_of_result(scheme: Products) -> Places:
    """The place of each block of C, in the order of W: its row of blocks, its column of blocks."""
    return _of_parts(scheme, tuple((i, j) for i in range(scheme.m) for j in range(scheme.n)))


def _of_parts(scheme: Products, places: Places) -> Places:
    return places * 2 if isinstance(scheme, ComplexScheme) else places


@lru_cache(maxsize=64)
def lower_digits(
    scheme: Products, stem: str, tile: DigitTile, left: OperandOrder, right: OperandOrder, whole_result: bool, by_warps: bool = False
) -> DigitKernels:
    """The kernels for operands in these orders.

    The scheme must be proved; names of kernels begin with its `stem`. Warpgroups multiply, or warps.
    """
    is_complex = isinstance(scheme, ComplexScheme)
    expand = (
        _expand(scheme.u, blocks_of_left(scheme), f"{stem}_a", left, is_complex),
        _expand(scheme.v, blocks_of_right(scheme), f"{stem}_b", right, is_complex),
    )
    direct = scheme.rank == 1 and scheme.m == scheme.k == scheme.n == 1
    orders = "".join("ca"[x.along] for x in (left, right))
    name = f"digit_product_{tile.name}_{orders}".replace("-", "_") + "_direct" * direct
    own = tile, left.along, right.along, direct
    product = WarpDigitProductKernel(f"{name}_warps", *own) if by_warps else DigitProductKernel(name, *own)
    recompose = None if direct else _recompose(scheme, stem, whole_result)
    return DigitKernels((_largest(left, is_complex), _largest(right, is_complex)), expand, product, recompose)


def parts_in(places: Places, is_complex: bool) -> tuple[int, ...]:
    """For each place, 0 for a real part and 1 for an imaginary one: real parts come first. Empty for real matrices."""
    return tuple(int(i >= len(places) // 2) for i in range(len(places))) if is_complex else ()


def _largest(order: OperandOrder, is_complex: bool) -> LargestKernel:
    width = LANES if order.whole else 1
    return LargestKernel(f"digit_largest_{'ca'[order.along]}_{width}{'_complex' * is_complex}", order.along, width, is_complex)


def _expand(linear: LinearMap, places: Places, stem: str, order: OperandOrder, is_complex: bool) -> ExpandKernel:
    lanes = LANES if linear.inputs < MANY_BLOCKS and len(linear.outputs) <= MOST_BLOCKS else LANES // 2
    width = lanes if order.whole else 1
    name = f"digit_expand_{stem}_{'ca'[order.along]}_{width}"
    comment = f"{linear.additions} addition(s) an element"
    own = name, comment, order.along, width, lanes, places, len(linear.outputs), headroom(linear), evaluate(linear)
    return ExpandKernel(*own, parts_in(places, is_complex))


def _recompose(scheme: Products, stem: str, whole: bool) -> RecomposeKernel:
    lanes = LANES if scheme.rank <= MOST_BLOCKS else LANES // 2
    width = lanes if whole else 1
    comment, places = f"{scheme.w.additions} addition(s) an element", blocks_of_result(scheme)
    heads = headroom(scheme.u), headroom(scheme.v)
    own = f"digit_recompose_{stem}_{width}", comment, width, lanes, places, *heads, evaluate(scheme.w)
    return RecomposeKernel(*own, parts_in(places, isinstance(scheme, ComplexScheme)))


@dataclass(frozen=True)
class LoadingKernels:
    """The kernels of a product in the order in which they run."""

    largest: tuple[LargestKernel, LargestKernel]
    product: LoadingKernel


@lru_cache(maxsize=64)
def lower_loading(tile: LoadingTile, left: OperandOrder, right: OperandOrder) -> LoadingKernels:
    """The kernels for operands in these orders."""
    left_width, right_width = (LANES if order.whole else 1 for order in (left, right))
    orders = "".join(f"{'ca'[x.along]}{width}" for x, width in ((left, left_width), (right, right_width)))
    product = LoadingKernel(f"digit_load_{tile.name}_{orders}", tile, left.along, right.along, left_width, right_width)
    return LoadingKernels((_largest(left, False), _largest(right, False)), product)


@dataclass(frozen=True)
class ResidueKernels:
    """The kernels of a product, in the order in which they run."""

    scale: tuple[ScaleKernel, ScaleKernel]
    expand: tuple[ResidueExpandKernel, ResidueExpandKernel]
    product: ResidueProductKernel
    recompose: ResidueRecomposeKernel


@lru_cache(maxsize=64)
def lower_residues(
    scheme: Products,
    stem: str,
    tile: ResidueTile,
    left: OperandOrder,
    right: OperandOrder,
    whole: bool,
    by_warps: bool = False,
    same_bits: bool = False,
) -> ResidueKernels:
    """The kernels for operands in these orders; with `same_bits` those whose results depend on the numbers alone.

    The scheme must be proved and suit the tile; names of kernels begin with its `stem`. Warpgroups multiply, or warps.
    """
    element, representation, is_complex = tile.of, representation_of(tile), not isinstance(scheme, Scheme)
    moduli, inverses, stem = representation.moduli, representation.inverses, f"{stem}_{tile.count}"
    roots = _roots(scheme, "A", representation), _roots(scheme, "B", representation)
    if tile.gaussian:
        inverses = tuple(x * pow(2, -1, p) % p for x, p in zip(inverses, moduli, strict=True))
    expand = (
        _expand_residues(scheme.u, blocks_of_left(scheme), f"{stem}_a", tile, (1,) * tile.count, left, is_complex, roots[0]),
        _expand_residues(scheme.v, blocks_of_right(scheme), f"{stem}_b", tile, inverses, right, is_complex, roots[1]),
    )
    name = f"residue_product_{tile.count}_{element.suffix}{'_gaussian' * tile.gaussian}"
    product = residue_product(name, element, tile, moduli, by_warps)
    scale = _scale(left, element, is_complex), _scale(right, element, is_complex)
    recompose = _recompose_residues(scheme, stem, tile, whole)
    if same_bits:
        first, second = (replace(x, name=f"{x.name}_bits", by_largest=True) for x in scale)
        left_cut, right_cut = (replace(x, name=f"{x.name}_bits", special=SPECIAL) for x in expand)
        scale, expand = (first, second), (left_cut, right_cut)
        recompose = replace(recompose, name=f"{recompose.name}_bits", rounds_once=True)
    return ResidueKernels(scale, expand, product, recompose)


def _roots(scheme: Products, operand: str, representation: Representation) -> tuple[int, ...]:
    """For each p the root of -1 by which an operand's imaginary parts are multiplied, negative for a conjugate. Empty without roots."""
    if not isinstance(scheme, GaussianScheme):
        return ()
    sign = -1 if operand in scheme.conjugated else 1
    return tuple(sign * root % p for root, p in zip(representation.roots, representation.moduli, strict=True))


def residue_product(
    name: str, element: Element | IntegerElement, tile: ModularTile, moduli: tuple[int, ...], by_warps: bool
) -> ResidueProductKernel:
    """The product kernel of this name, in which warpgroups multiply, or warps."""
    own = element, tile, moduli
    return WarpResidueProductKernel(f"{name}_warps", *own) if by_warps else ResidueProductKernel(name, *own)


def _width(order: OperandOrder, element: Element) -> int:
    return element.lanes if order.whole and order.along else 1


def _scale(order: OperandOrder, element: Element, is_complex: bool) -> ScaleKernel:
    width = _width(order, element)
    name = f"residue_scale_{'ca'[order.along]}_{width}_{element.suffix}{'_complex' * is_complex}"
    return ScaleKernel(name, element, order.along, width, is_complex)


def _expand_residues(
    linear: LinearMap,
    places: Places,
    stem: str,
    tile: ResidueTile,
    factors: tuple[int, ...],
    order: OperandOrder,
    is_complex: bool,
    roots: tuple[int, ...],
) -> ResidueExpandKernel:
    element, representation, forms = tile.of, representation_of(tile), len(linear.outputs)
    width = min(LANES, _width(order, element))
    name = f"residue_expand_{stem}_{'ca'[order.along]}_{width}_{element.suffix}"
    comment = f"{linear.additions} addition(s) an element"
    bits = representation.norm_limit.bit_length() + headroom(linear)
    own = name, comment, element, order.along, width, LANES, representation.moduli, factors, places, forms, evaluate(linear), bits
    return ResidueExpandKernel(*own, parts=() if roots else parts_in(places, is_complex), roots=roots)


def _recompose_residues(scheme: Products, stem: str, tile: ResidueTile, whole: bool) -> ResidueRecomposeKernel:
    element, representation, places = tile.of, representation_of(tile), blocks_of_result(scheme) * (1 + tile.gaussian)
    lanes = LANES if len(places) <= FEW_TARGETS else 1
    width = min(element.lanes, lanes) if whole else 1
    name, comment = f"residue_recompose_{stem}_{width}_{element.suffix}", f"{scheme.w.additions} addition(s) an element"
    own = name, comment, element, width, lanes, representation, places, headroom(scheme.w) + tile.gaussian, evaluate(scheme.w)
    return ResidueRecomposeKernel(*own, is_complex=not isinstance(scheme, Scheme), roots=representation.roots)


@dataclass(frozen=True)
class IntegerTypes:
    """The types of A, B and C, the moduli of the residues, and the modulus of C (0: C wraps around)."""

    left: IntegerElement
    right: IntegerElement
    result: IntegerElement
    moduli: tuple[int, ...]
    modulus: int = 0

    @property
    def tile(self) -> ModularTile:
        """The tile of the products."""
        return ModularTile(len(self.moduli))

    @property
    def suffix(self) -> str:
        """What tells the moduli apart in the names of kernels."""
        return f"mod{self.modulus}" if self.modulus else f"{len(self.moduli)}"

    def reduces(self, element: IntegerElement) -> bool:
        """Whether numbers are reduced first, because they may be large, or because their bits stand for another number."""
        return bool(self.modulus) and (self.moduli != (self.modulus,) or element.name == "uint64")

    @property
    def inverses(self) -> tuple[int, ...]:
        """The inverses of M/p modulo p."""
        return tuple(pow(prod(self.moduli) // p, -1, p) for p in self.moduli)


@dataclass(frozen=True)
class IntegerKernels:
    """The kernels of a product, in the order in which they run."""

    expand: tuple[ResidueExpandKernel, ResidueExpandKernel]
    product: ResidueProductKernel
    recompose: IntegerRecomposeKernel


@lru_cache(maxsize=64)
def lower_integers(
    scheme: Scheme, stem: str, types: IntegerTypes, left: OperandOrder, right: OperandOrder, whole: bool, by_warps: bool = False
) -> IntegerKernels:
    """The kernels for operands in these orders. The scheme must be proved, have integer coefficients, and suit the types."""
    ones = (1,) * len(types.moduli)
    expand = (
        _expand_integers(scheme.u, blocks_of_left(scheme), f"{stem}_a", types, types.left, left, ones),
        _expand_integers(scheme.v, blocks_of_right(scheme), f"{stem}_b", types, types.right, right, types.inverses),
    )
    product = residue_product(f"residue_product_{types.suffix}_integers", types.result, types.tile, types.moduli, by_warps)
    element, places = types.result, blocks_of_result(scheme)
    lanes = LANES if len(places) <= FEW_TARGETS else 1
    width = min(element.lanes, lanes) if whole else 1
    name, comment = f"integer_recompose_{stem}_{types.suffix}_{width}_{element.suffix}", f"{scheme.w.additions} addition(s) an element"
    recompose = IntegerRecomposeKernel(name, comment, element, width, lanes, types.moduli, types.modulus, places, evaluate(scheme.w))
    return IntegerKernels(expand, product, recompose)


def _expand_integers(
    linear: LinearMap,
    places: Places,
    stem: str,
    types: IntegerTypes,
    element: IntegerElement,
    order: OperandOrder,
    factors: tuple[int, ...],
) -> ResidueExpandKernel:
    forms = len(linear.outputs)
    width = min(LANES, element.lanes) if order.whole and order.along else 1
    name = f"integer_expand_{stem}_{types.suffix}_{'ca'[order.along]}_{width}_{element.suffix}"
    comment = f"{linear.additions} addition(s) an element"
    modulus = types.modulus if types.reduces(element) else 0
    bits = (modulus or element.largest).bit_length() + headroom(linear)
    own = name, comment, element, order.along, width, LANES, types.moduli, factors, places, forms, evaluate(linear)
    return ResidueExpandKernel(*own, bits, modulus)
