"""The steps of a stage by what they read and write: the view that hazards, recursion and costs share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bilinear.ir.schedule import Block, LinearStage, Product, ProductStage, Schedule, Stage
from bilinear.source import Span


@dataclass(frozen=True)
class Step:
    """One step: the blocks whose values it takes, the blocks it writes, and its product if it is one.

    A target that is added to is both read and written.
    """

    reads: frozenset[Block]
    writes: tuple[Block, ...]
    product: Product | None = None
    span: Span | None = None


def steps_of(stage: Stage, schedule: Schedule) -> Iterator[Step]:
    """The steps of a stage, in the order written."""
    if isinstance(stage, LinearStage):
        return _linear_steps(stage, schedule)
    return _product_steps(stage, schedule)


def _linear_steps(stage: LinearStage, schedule: Schedule) -> Iterator[Step]:
    for block_map in stage.maps:
        spans = block_map.spans or (None,) * len(block_map.targets)
        for target, row, span in zip(block_map.targets, block_map.map.matrix, spans, strict=True):
            reads = {block_map.sources[i] for i, _ in row}
            if target.space == "C" and schedule.adds_to_c:
                reads.add(target)
            yield Step(frozenset(reads), (target,), None, span)


def _product_steps(stage: ProductStage, schedule: Schedule) -> Iterator[Step]:
    for product in stage.products:
        reads = {product.left, product.right}
        for target in product.targets:
            if schedule.scales_itself:
                reads.update(block for block, _ in target.plus)
            elif not schedule.loses(target):
                reads.add(target.block)
        yield Step(frozenset(reads), tuple(target.block for target in product.targets), product, product.span)


def needed_after(schedule: Schedule) -> tuple[frozenset[Block], ...]:
    """For each stage the blocks whose values are still needed after it: read later, or results (C, and what is to be restored).

    A block that is overwritten before it is read is not needed.
    """
    results = ("C", *schedule.restores)
    needed = frozenset(block for space in schedule.spaces[:3] if space.name in results for block in space.blocks)
    backwards = []
    for stage in reversed(schedule.stages):
        backwards.append(needed)
        steps = list(steps_of(stage, schedule))
        needed -= {block for step in steps for block in step.writes}
        needed |= {block for step in steps for block in step.reads}
    return tuple(reversed(backwards))
