"""The steps of a schedule as written, and the schedule made of such steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bilinear.ir.linear import LinearMap, form
from bilinear.ir.number import Coefficient
from bilinear.ir.schedule import (
    BETA,
    AnySchedule,
    Block,
    BlockMap,
    LinearStage,
    Product,
    ProductStage,
    ScaledSchedule,
    Schedule,
    Stage,
    Target,
)
from bilinear.source import Span


@dataclass(frozen=True)
class LinearStep:
    """A step of a linear stage: a block becomes the sum of these terms, which include its own old value if it is kept."""

    target: Block
    terms: tuple[tuple[Block, Coefficient], ...]
    span: Span | None = None

    @property
    def side(self) -> str:
        """The operand whose blocks the step writes."""
        return self.target.space


@dataclass(frozen=True)
class ProductStep:
    """A step of a product stage: left * right, added to blocks of C."""

    left: Block
    right: Block
    targets: tuple[tuple[Block, Coefficient], ...]
    span: Span | None = None


Step = LinearStep | ProductStep


@dataclass(frozen=True)
class Steps:
    """The stages of a schedule as lists of steps."""

    schedule: Schedule
    stages: tuple[tuple[Step, ...], ...]

    def build(self) -> Schedule:
        """The schedule with these steps, with the first ordered write of each block of C marked."""
        seen: set[Block] = set()
        stages = [_stage(steps, old, seen) for steps, old in zip(self.stages, self.schedule.stages, strict=True) if steps]
        return replace(self.schedule, stages=tuple(stages))


def read_steps(schedule: AnySchedule) -> Steps | None:
    """The steps of a schedule; None if it has workspaces, several levels or explicit scaling, is over Z/p, or maps into C."""
    if schedule.workspaces or schedule.levels != 1 or isinstance(schedule, ScaledSchedule) or schedule.ring.modulus:
        return None
    stages: list[tuple[Step, ...]] = []
    for stage in schedule.stages:
        if isinstance(stage, ProductStage):
            products = [ProductStep(p.left, p.right, tuple((t.block, t.coefficient) for t in p.targets), p.span) for p in stage.products]
            if any(t.space != "C" for p in products for t, _ in p.targets):
                return None
            stages.append(tuple(products))
        elif all(_is_of_one_operand(block_map) for block_map in stage.maps):
            steps = [step for block_map in stage.maps for step in _linear_steps(block_map)]
            stages.append(tuple(sorted(steps, key=lambda s: s.span.start if s.span is not None else 0)))
        else:
            return None
    return Steps(schedule, tuple(stages))


def _is_of_one_operand(block_map: BlockMap) -> bool:
    return {b.space for b in (*block_map.targets, *block_map.sources)} in ({"A"}, {"B"})


def _linear_steps(block_map: BlockMap) -> Iterator[LinearStep]:
    spans = block_map.spans or (None,) * len(block_map.targets)
    for target, row, span in zip(block_map.targets, block_map.map.matrix, spans, strict=True):
        yield LinearStep(target, tuple((block_map.sources[i], c) for i, c in row), span)


def _stage(steps: Sequence[Step], old: Stage, seen: set[Block]) -> Stage:
    if not isinstance(old, LinearStage):
        return ProductStage(tuple(_product(step, seen) for step in steps if isinstance(step, ProductStep)))
    linear = [step for step in steps if isinstance(step, LinearStep)]
    sides = dict.fromkeys(step.side for step in linear)
    return LinearStage(tuple(_block_map([s for s in linear if s.side == side]) for side in sides), old.restores)


def _product(step: ProductStep, seen: set[Block]) -> Product:
    targets = []
    for block, coefficient in step.targets:
        targets.append(Target(block, coefficient, 1 if block in seen else BETA))
        seen.add(block)
    return Product(step.left, step.right, tuple(targets), step.span)


def _block_map(steps: Sequence[LinearStep]) -> BlockMap:
    sources = tuple(sorted({block for step in steps for block, _ in step.terms}))
    number = {block: i for i, block in enumerate(sources)}
    outputs = tuple(form((number[block], c) for block, c in step.terms) for step in steps)
    spans = tuple(step.span for step in steps if step.span is not None)
    targets = tuple(step.target for step in steps)
    return BlockMap(sources, targets, LinearMap(len(sources), outputs), spans=spans if len(spans) == len(targets) else ())
