"""The steps of a stage in the language, `A21 += A22` or `C21, -C22 += A21 * B11`, with the blocks that they read and write."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bilinear.frontend.step_text import scaled_product, signed_sum, update_text
from bilinear.ir.number import Coefficient, is_negative
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Product, ScaledTarget, Stage, Target


@dataclass(frozen=True)
class Move:
    """One step: its text, and the names of the blocks that it reads and writes; a product reads its operands first.

    A block that is only added to, or that a sum changes, is written and not counted among those read.
    """

    text: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]


def stage_moves(stage: Stage) -> tuple[Move, ...]:
    """The steps of a stage, in order; sums that share sub-expressions are written out."""
    if isinstance(stage, LinearStage):
        return tuple(move for block_map in stage.maps for move in _linear(block_map))
    return tuple(map(_product, stage.products))


def _linear(block_map: BlockMap) -> Iterator[Move]:
    for target, row, kept in zip(block_map.targets, block_map.map.matrix, block_map.kept, strict=True):
        terms: dict[Block, Coefficient] = {block_map.sources[i]: c for i, c in row}
        if kept:
            terms[target] = terms.get(target, 0) + kept
        reads = tuple(str(block) for block in terms if block != target)
        yield Move(update_text(target, terms), reads, (str(target),))


def _product(product: Product) -> Move:
    others = tuple(str(block) for target in product.targets for block, _ in target.plus)
    reads = (str(product.left), str(product.right), *others)
    return Move(_product_text(product), reads, tuple(str(target.block) for target in product.targets))


def _product_text(product: Product) -> str:
    """The step; a factor that all targets share stands before the product, if it scales nothing else."""
    name, targets = f"{product.left} * {product.right}", product.targets
    if len(targets) == 1 and isinstance(targets[0], ScaledTarget):
        return "".join(scaled_product(product))
    if all(map(_adds, targets)) or not any(target.terms for target in targets):
        signs = [-1 if is_negative(target.coefficient) else 1 for target in targets]
        sizes = [target.coefficient * sign for target, sign in zip(targets, signs, strict=True)]
        shared = sizes[0] if all(size == sizes[0] for size in sizes) else 1
        left = signs if shared != 1 else [target.coefficient for target in targets]
        blocks = ", ".join(signed_sum([(c, str(target.block))]) for c, target in zip(left, targets, strict=True))
        return f"{blocks} {'+=' if targets[0].terms else '='} {signed_sum([(shared, name)])}"
    return " ; ".join(f"{t.block} = {signed_sum([(t.coefficient, name), *((c, str(b)) for b, c in t.terms)])}" for t in targets)


def _adds(target: Target) -> bool:
    """True if the language writes `+=`, where the first write of C implies its beta."""
    return target.accumulates or bool(target.kept and not isinstance(target, ScaledTarget))
