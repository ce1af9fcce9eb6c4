"""The steps of a stage as sets of blocks read and written, for hazards, recursion and costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bilinear.ir.schedule import AnySchedule, Block, LinearStage, Product, ProductStage, Stage
from bilinear.source import Span


@dataclass(frozen=True)
class Step:
    """One step: the blocks it reads, the blocks it writes, and its product if it has one.

    A target whose old value is kept is both read and written.
    """

    reads: frozenset[Block]
    writes: tuple[Block, ...]
    product: Product | None = None
    span: Span | None = None


def steps_of(stage: Stage) -> Iterator[Step]:
    """The steps of a stage, in the order written."""
    return _linear_steps(stage) if isinstance(stage, LinearStage) else _product_steps(stage)


def _linear_steps(stage: LinearStage) -> Iterator[Step]:
    for block_map in stage.maps:
        spans = block_map.spans or (None,) * len(block_map.targets)
        for target, row, kept, span in zip(block_map.targets, block_map.map.matrix, block_map.kept, spans, strict=True):
            reads = {block_map.sources[i] for i, _ in row}
            if kept:
                reads.add(target)
            yield Step(frozenset(reads), (target,), None, span)


def _product_steps(stage: ProductStage) -> Iterator[Step]:
    for product in stage.products:
        reads = {product.left, product.right, *(block for target in product.targets for block, _ in target.terms)}
        yield Step(frozenset(reads), tuple(target.block for target in product.targets), product, product.span)


def needed_after(schedule: AnySchedule) -> tuple[frozenset[Block], ...]:
    """For each stage, the blocks whose values are needed afterwards: read later, or results (C, and operands to be restored).

    A block that is overwritten before it is read is not needed.
    """
    results = ("C", *schedule.restores)
    needed = frozenset(block for space in schedule.spaces[:3] if space.name in results for block in space.blocks)
    backwards = []
    for stage in reversed(schedule.stages):
        backwards.append(needed)
        steps = list(steps_of(stage))
        needed -= {block for step in steps for block in step.writes}
        needed |= {block for step in steps for block in step.reads}
    return tuple(reversed(backwards))
