"""A scheme to the kernels that multiply integers by residues in int8: exactly, wrapping around or modulo a number."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from bilinear.analysis.block_maps import headroom
from bilinear.analysis.evaluation_order import evaluate
from bilinear.codegen.lower_digits import LANES, OperandOrder, Places, blocks_of_left, blocks_of_result, blocks_of_right
from bilinear.codegen.lower_residues import FEW_TARGETS, residue_product
from bilinear.ir.integer_kernel import IntegerRecomposeKernel
from bilinear.ir.integers import IntegerElement
from bilinear.ir.linear import LinearMap
from bilinear.ir.residue_kernel import ResidueExpandKernel, ResidueProductKernel
from bilinear.ir.residue_tile import ModularTile
from bilinear.ir.scheme import Scheme


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
        _expand(scheme.u, blocks_of_left(scheme), f"{stem}_a", types, types.left, left, ones),
        _expand(scheme.v, blocks_of_right(scheme), f"{stem}_b", types, types.right, right, types.inverses),
    )
    product = residue_product(f"residue_product_{types.suffix}_integers", types.result, types.tile, types.moduli, by_warps)
    return IntegerKernels(expand, product, _recompose(scheme, stem, types, whole))


def _expand(
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


def _recompose(scheme: Scheme, stem: str, types: IntegerTypes, whole: bool) -> IntegerRecomposeKernel:
    element, places = types.result, blocks_of_result(scheme)
    lanes = LANES if len(places) <= FEW_TARGETS else 1
    width = min(element.lanes, lanes) if whole else 1
    name, comment = f"integer_recompose_{stem}_{types.suffix}_{width}_{element.suffix}", f"{scheme.w.additions} addition(s) an element"
    return IntegerRecomposeKernel(name, comment, element, width, lanes, types.moduli, types.modulus, places, evaluate(scheme.w))
