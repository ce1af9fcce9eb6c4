"""A scheme to kernels that run it on digits, which cut sums of blocks, multiply, and put products together.

Digits are pairs of float16, which the product may also cut while loading A and B, or residues or bytes in int8. Products of integers need
no scales; they are exact, wrapping around or modulo a number.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from bilinear.analysis.block_maps import headroom
from bilinear.analysis.evaluation_order import evaluate
from bilinear.ir.complex_scheme import ComplexScheme, Products
from bilinear.ir.digit_kernel import DigitProductKernel, ExpandKernel, LargestKernel, LoadingKernel, RecomposeKernel, WarpDigitProductKernel
from bilinear.ir.digits import Representation, representation_of
from bilinear.ir.element import INTEGERS, Element, IntegerElement
from bilinear.ir.linear import LinearMap
from bilinear.ir.reference import SPECIAL
from bilinear.ir.residue_kernel import (
    FEW_TARGETS,
    ByteRecomposeKernel,
    IntegerRecomposeKernel,
    ResidueExpandKernel,
    ResidueProductKernel,
    ResidueRecomposeKernel,
    ScaleKernel,
    WarpResidueProductKernel,
)
from bilinear.ir.scheme import Scheme
from bilinear.ir.tile import MOST_BLOCKS, ByteTile, DigitTile, LoadingTile, ModularTile, ResidueTile

LANES = 4  # Neighbours of a block that a thread handles: 16 bytes of float32, and 8 bytes of each digit.
MANY_BLOCKS = 16  # With more blocks, a thread handles half as many neighbours: registers hold no more.

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


def block_places(scheme: Products) -> tuple[Places, Places, Places]:
    """The places of the blocks of A, B and C in the order of U, V and W: which row of blocks, and which column; of B the column first."""
    m, k, n, parts = scheme.m, scheme.k, scheme.n, 2 if isinstance(scheme, ComplexScheme) and not scheme.is_gaussian else 1
    left, right = [(i, t) for i in range(m) for t in range(k)], [(j, t) for t in range(k) for j in range(n)]
    return tuple(left * parts), tuple(right * parts), tuple((i, j) for i in range(m) for j in range(n)) * parts


@lru_cache(maxsize=64)
def lower_digits(
    scheme: Products, stem: str, tile: DigitTile, left: OperandOrder, right: OperandOrder, whole_result: bool, by_warps: bool = False
) -> DigitKernels:
    """The kernels, by warpgroups or warps, for operands in these orders; the scheme is proved, and names begin with its `stem`."""
    is_complex, (of_a, of_b, of_c) = isinstance(scheme, ComplexScheme), block_places(scheme)
    expand = _expand(scheme.u, of_a, f"{stem}_a", left, is_complex), _expand(scheme.v, of_b, f"{stem}_b", right, is_complex)
    direct = scheme.rank == 1 and scheme.m == scheme.k == scheme.n == 1
    orders = "".join("ca"[x.along] for x in (left, right))
    name = f"digit_product_{tile.name}_{orders}".replace("-", "_") + "_direct" * direct
    own = tile, left.along, right.along, direct
    product = WarpDigitProductKernel(f"{name}_warps", *own) if by_warps else DigitProductKernel(name, *own)
    largest = _largest(left, is_complex), _largest(right, is_complex)
    if direct:
        return DigitKernels(largest, expand, product, None)
    lanes = LANES if scheme.rank <= MOST_BLOCKS else LANES // 2
    width, heads = lanes if whole_result else 1, (headroom(scheme.u), headroom(scheme.v))
    put = f"digit_recompose_{stem}_{width}", _comment(scheme.w), width, lanes, of_c, *heads, evaluate(scheme.w)
    return DigitKernels(largest, expand, product, RecomposeKernel(*put, parts_in(of_c, is_complex)))


def _comment(linear: LinearMap) -> str:
    return f"{linear.additions} addition(s) an element"


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
    own = name, _comment(linear), order.along, width, lanes, places, len(linear.outputs), headroom(linear), evaluate(linear)
    return ExpandKernel(*own, parts_in(places, is_complex))


@lru_cache(maxsize=64)
def lower_loading(tile: LoadingTile, left: OperandOrder, right: OperandOrder) -> tuple[tuple[LargestKernel, LargestKernel], LoadingKernel]:
    """The kernels for operands in these orders, as they run: those that find the largest magnitudes, and the product."""
    left_width, right_width = (LANES if order.whole else 1 for order in (left, right))
    orders = "".join(f"{'ca'[x.along]}{width}" for x, width in ((left, left_width), (right, right_width)))
    product = LoadingKernel(f"digit_load_{tile.name}_{orders}", tile, left.along, right.along, left_width, right_width)
    return (_largest(left, False), _largest(right, False)), product


Scales = tuple[ScaleKernel, ScaleKernel]
Expands = tuple[ResidueExpandKernel, ResidueExpandKernel]
ResidueKernels = tuple[Scales, Expands, ResidueProductKernel, ResidueRecomposeKernel | ByteRecomposeKernel]


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
) -> tuple[Scales, Expands, ResidueProductKernel, ResidueRecomposeKernel]:
    """The kernels for operands in these orders, as they run; with `same_bits` those whose results depend on the numbers alone.

    The scheme must be proved and suit the tile; names of kernels begin with its `stem`. Warpgroups multiply, or warps.
    """
    element, representation, is_complex = tile.of, representation_of(tile), not isinstance(scheme, Scheme)
    moduli, inverses, stem = representation.moduli, representation.inverses, f"{stem}_{tile.count}"
    if tile.gaussian:
        inverses = tuple(x * pow(2, -1, p) % p for x, p in zip(inverses, moduli, strict=True))
    of_a, of_b, of_c = block_places(scheme)

    def cut(operand: str, linear: LinearMap, places: Places, order: OperandOrder, factors: tuple[int, ...]) -> ResidueExpandKernel:
        own = f"residue_expand_{stem}_{operand.lower()}", element, linear, places, order, moduli, factors
        bits, roots = representation.norm_limit.bit_length() + headroom(linear), _roots(scheme, operand, representation)
        return replace(_expand_residues(*own, bits), parts=() if roots else parts_in(places, is_complex), roots=roots)

    expand = cut("A", scheme.u, of_a, left, (1,) * tile.count), cut("B", scheme.v, of_b, right, inverses)
    name = f"residue_product_{tile.count}_{element.suffix}{'_gaussian' * tile.gaussian}"
    product = residue_product(name, element, tile, moduli, by_warps)
    scale = _scale(left, element, is_complex), _scale(right, element, is_complex)
    of_c *= 1 + tile.gaussian
    width, lanes = _of_result(of_c, element, whole)
    put = f"residue_recompose_{stem}_{width}_{element.suffix}", _comment(scheme.w), element, width, lanes, representation, of_c
    recompose = ResidueRecomposeKernel(*put, headroom(scheme.w) + tile.gaussian, evaluate(scheme.w), is_complex, representation.roots)
    if same_bits:
        first, second = (replace(x, name=f"{x.name}_bits", by_largest=True) for x in scale)
        left_cut, right_cut = (replace(x, name=f"{x.name}_bits", special=SPECIAL) for x in expand)
        scale, expand = (first, second), (left_cut, right_cut)
        recompose = replace(recompose, name=f"{recompose.name}_bits", rounds_once=True)
    return scale, expand, product, recompose


@lru_cache(maxsize=16)
def lower_bytes(tile: ByteTile, left: OperandOrder, right: OperandOrder, whole: bool, by_warps: bool = False) -> ResidueKernels:
    """The kernels of products of 16-bit numbers in bytes, whose results depend on the numbers alone."""
    element, same = tile.of, LinearMap(1, (((0, 1),),))
    first, second = (replace(_scale(order, element, False), by_largest=True) for order in (left, right))
    cut = [
        replace(_expand_residues(f"byte_expand_{name}", element, same, ((0, 0),), order, (), (), 0), special=SPECIAL)
        for name, order in (("a", left), ("b", right))
    ]
    product = residue_product("byte_product", INTEGERS["int8"], tile, (), by_warps)
    width, lanes = _of_result(((0, 0),), element, whole)
    recompose = ByteRecomposeKernel(f"byte_recompose_{width}_{element.suffix}", element, width, lanes)
    return (first, second), (cut[0], cut[1]), product, recompose


def _roots(scheme: Products, operand: str, representation: Representation) -> tuple[int, ...]:
    """For each p the root of -1 by which an operand's imaginary parts are multiplied, negative for a conjugate. Empty without roots."""
    if not isinstance(scheme, ComplexScheme) or not scheme.is_gaussian:
        return ()
    sign = -1 if operand in scheme.conjugated else 1
    return tuple(sign * root % p for root, p in zip(representation.roots, representation.moduli, strict=True))


def residue_product(
    name: str, element: Element | IntegerElement, tile: ModularTile, moduli: tuple[int, ...], by_warps: bool
) -> ResidueProductKernel:
    """The product kernel of this name, in which warpgroups multiply, or warps."""
    own = element, tile, moduli
    return WarpResidueProductKernel(f"{name}_warps", *own) if by_warps else ResidueProductKernel(name, *own)


def _width(order: OperandOrder, element: Element | IntegerElement) -> int:
    return element.lanes if order.whole and order.along else 1


def _of_result(places: Places, element: Element | IntegerElement, whole: bool) -> tuple[int, int]:
    """How many neighbours of C are written at once, and how many a thread handles."""
    lanes = LANES if len(places) <= FEW_TARGETS else 1
    return min(element.lanes, lanes) if whole else 1, lanes


def _scale(order: OperandOrder, element: Element, is_complex: bool) -> ScaleKernel:
    width = _width(order, element)
    name = f"residue_scale_{'ca'[order.along]}_{width}_{element.suffix}{'_complex' * is_complex}"
    return ScaleKernel(name, element, order.along, width, is_complex)


def _expand_residues(
    stem: str,
    element: Element | IntegerElement,
    linear: LinearMap,
    places: Places,
    order: OperandOrder,
    moduli: tuple[int, ...],
    factors: tuple[int, ...],
    bits: int,
) -> ResidueExpandKernel:
    width = min(LANES, _width(order, element))
    name, forms = f"{stem}_{'ca'[order.along]}_{width}_{element.suffix}", len(linear.outputs)
    own = name, _comment(linear), element, order.along, width, LANES, moduli, factors, places, forms, evaluate(linear), bits
    return ResidueExpandKernel(*own)


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


@lru_cache(maxsize=64)
def lower_integers(
    scheme: Scheme, stem: str, types: IntegerTypes, left: OperandOrder, right: OperandOrder, whole: bool, by_warps: bool = False
) -> tuple[Expands, ResidueProductKernel, IntegerRecomposeKernel]:
    """The kernels for operands in these orders, as they run. The scheme must be proved, have integer coefficients, and suit the types."""
    of_a, of_b, of_c = block_places(scheme)

    def cut(
        operand: str, element: IntegerElement, linear: LinearMap, places: Places, order: OperandOrder, factors: tuple[int, ...]
    ) -> ResidueExpandKernel:
        modulus = types.modulus if types.reduces(element) else 0
        own = f"integer_expand_{stem}_{operand}_{types.suffix}", element, linear, places, order, types.moduli, factors
        return replace(_expand_residues(*own, (modulus or element.largest).bit_length() + headroom(linear)), modulus=modulus)

    inverses = tuple(pow(prod(types.moduli) // p, -1, p) for p in types.moduli)  # of M/p modulo p
    expand = (
        cut("a", types.left, scheme.u, of_a, left, (1,) * len(types.moduli)),
        cut("b", types.right, scheme.v, of_b, right, inverses),
    )
    product = residue_product(f"residue_product_{types.suffix}_integers", types.result, types.tile, types.moduli, by_warps)
    width, lanes = _of_result(of_c, types.result, whole)
    put = f"integer_recompose_{stem}_{types.suffix}_{width}_{types.result.suffix}", _comment(scheme.w), types.result, width, lanes
    return expand, product, IntegerRecomposeKernel(*put, types.moduli, types.modulus, of_c, evaluate(scheme.w))
