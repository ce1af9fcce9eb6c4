"""A scheme to kernels that run it on pairs of float16 digits: they cut sums of blocks, or the product cuts A and B while loading them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from bilinear.analysis.block_maps import headroom
from bilinear.analysis.evaluation_order import evaluate
from bilinear.ir.complex_scheme import ComplexScheme, Products
from bilinear.ir.digit_kernel import DigitProductKernel, ExpandKernel, LargestKernel, LoadingKernel, RecomposeKernel, WarpDigitProductKernel
from bilinear.ir.linear import LinearMap
from bilinear.ir.tile import MOST_BLOCKS, DigitTile, LoadingTile

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


def _lanes(linear: LinearMap) -> int:
    return LANES if linear.inputs < MANY_BLOCKS and len(linear.outputs) <= MOST_BLOCKS else LANES // 2


def _expand(linear: LinearMap, places: Places, stem: str, order: OperandOrder, is_complex: bool) -> ExpandKernel:
    lanes = _lanes(linear)
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
