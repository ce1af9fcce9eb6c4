"""Hazards: steps of one stage that interfere, reported with both steps; and why a schedule may not run its own products in place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bilinear.errors import Diagnostic
from bilinear.ir.number import Coefficient, Symbolic
from bilinear.ir.schedule import AnySchedule, Block, LinearStage, Product, ProductStage, Result, ScaledSchedule, Stage
from bilinear.source import Span


@dataclass(frozen=True)
class StageStep:
    """One step: the blocks it reads, those it writes (a target that keeps its old value is both), and its product if any."""

    reads: frozenset[Block]
    writes: tuple[Block, ...]
    product: Product | None = None
    span: Span | None = None


def steps_of(stage: Stage) -> Iterator[StageStep]:
    """The steps of a stage, in the order written."""
    for product in stage.products if isinstance(stage, ProductStage) else ():
        read = {product.left, product.right, *(block for target in product.targets for block, _ in target.terms)}
        yield StageStep(frozenset(read), tuple(target.block for target in product.targets), product, product.span)
    for block_map in stage.maps if isinstance(stage, LinearStage) else ():
        spans = block_map.spans or (None,) * len(block_map.targets)
        for target, row, kept, span in zip(block_map.targets, block_map.map.matrix, block_map.kept, spans, strict=True):
            reads = {block_map.sources[i] for i, _ in row}
            if kept:
                reads.add(target)
            yield StageStep(frozenset(reads), (target,), None, span)


def needed_after(schedule: AnySchedule) -> tuple[frozenset[Block], ...]:
    """For each stage the blocks needed afterwards: results, and what is read later, unless it is overwritten before."""
    results = ("C", *schedule.restores)
    needed = frozenset(block for space in schedule.spaces[:3] if space.name in results for block in space.blocks)
    backwards = []
    for stage in reversed(schedule.stages):
        backwards.append(needed)
        steps = list(steps_of(stage))
        needed -= {block for step in steps for block in step.writes}
        needed |= {block for step in steps for block in step.reads}
    return tuple(reversed(backwards))


def find_hazards(number: int, stage: LinearStage | ProductStage, schedule: AnySchedule) -> Iterator[Diagnostic]:
    """Hazards that make a stage's result indeterminate: blocks written twice (E401), operands overwritten while being read (E409).

    Products of one stage may write one block in the order written, except in a schedule with explicit scaling.
    """
    if isinstance(stage, LinearStage):
        spans = ((m.targets, m.spans or (None,) * len(m.targets)) for m in stage.maps)
        yield from _written_twice(number, [write for targets, own in spans for write in zip(targets, own, strict=True)])
        return
    steps = list(steps_of(stage))
    if isinstance(schedule, ScaledSchedule):
        yield from _written_twice(number, [(target, s.span) for s in steps if not _only_adds(s) for target in s.writes])
        # one product may overwrite what another adds to
        overwritten = {block: step for step in steps if not _only_adds(step) for block in step.writes}
        for step in steps:
            for target in step.writes if _only_adds(step) else ():
                if target in overwritten:
                    yield _twice(number, target, overwritten[target].span, step.span)
    yield from _overwritten(number, steps)


def _only_adds(step: StageStep) -> bool:
    return step.product is not None and all(target.accumulates for target in step.product.targets)


def _written_twice(number: int, writes: Iterable[tuple[Block, Span | None]]) -> Iterator[Diagnostic]:
    writers: dict[Block, Span | None] = {}
    for target, span in writes:
        if target in writers:
            yield _twice(number, target, writers[target], span)
        else:
            writers[target] = span


def _twice(number: int, target: Block, other: Span | None, span: Span | None) -> Diagnostic:
    where = f"the other step is at {other}" if other is not None else f"both steps are in stage {number}"
    hint = "put one of the steps into a stage of its own"
    return Diagnostic("E401", f"hazard in stage {number}: two steps write {target}", span, notes=(where,), hints=(hint,))


def _overwritten(number: int, steps: list[StageStep]) -> Iterator[Diagnostic]:
    """Report targets that are operands or terms of another step: products read their operands repeatedly while others write."""
    readers: dict[Block, list[int]] = {}
    for number_of_step, step in enumerate(steps):
        for block in _unguarded(step):
            readers.setdefault(block, []).append(number_of_step)
    for i, writer in enumerate(steps):
        own = _operands(writer)
        struck = {j for block in writer.writes for j in readers.get(block, ()) if j != i}
        if any(block in own for block in writer.writes):
            struck.add(i)
        for j in sorted(struck):
            yield _struck(number, writer, steps[j])


def _operands(step: StageStep) -> set[Block]:
    assert step.product is not None
    return {step.product.left, step.product.right}


def _unguarded(step: StageStep) -> set[Block]:
    """The blocks that a step reads while it runs: its operands, and those terms that it does not write itself."""
    return _operands(step) | (step.reads - set(step.writes))


def _struck(number: int, writer: StageStep, reader: StageStep) -> Diagnostic:
    assert writer.product is not None and reader.product is not None
    block = next(b for b in writer.writes if b in (_operands(reader) if reader is writer else _unguarded(reader)))
    message = f"hazard in stage {number}: {block} is written while a product reads it"
    who = f"{name_of(writer.product)} writes it"
    if reader is not writer:
        where = f" at {reader.span}" if reader.span is not None else ""
        who += f", {name_of(reader.product)} reads it{where}"
    hint = "put the product into another block" if reader is writer else "put the products into two stages"
    return Diagnostic("E409", message, writer.span, notes=(who,), hints=(hint,))


def find_shared_operands(number: int, stage: ProductStage, written: frozenset[str]) -> Iterator[tuple[Block, Diagnostic]]:
    """Report blocks shared by two products of a stage (E404), if one of the products writes them when it recurses in place.

    An inner level writes its left operand if the schedule writes A, its right operand if it writes B; `written` names what it writes.
    """
    users: dict[Block, list[tuple[Product, bool]]] = {}
    for product in stage.products:
        for side, block in (("A", product.left), ("B", product.right)):
            users.setdefault(block, []).append((product, side in written))
    for block, uses in users.items():
        if not any(writes for _, writes in uses):
            continue
        first = uses[0][0]
        where = f" at {first.span}" if first.span is not None else ""
        for product, _ in uses[1:]:
            message = f"hazard in stage {number}: two products use {block}, which one of them writes when it recurses in place"
            note = f"{name_of(first)}{where} and {name_of(product)}"
            yield block, Diagnostic("E404", message, product.span, notes=(note,), hints=("put the products into two stages",))


def name_of(product: Product) -> str:
    """The name of a product: its operands."""
    return f"{product.left}*{product.right}"


def why_not_recursive(schedule: AnySchedule, restored: tuple[str, ...]) -> str:
    """The first obstacle to in-place recursion, as a sentence; empty if it is safe.

    An inner level is the same schedule on the blocks of one product. It writes both operands, restores those in `restored`, and uses the
    target as its C. So nothing may be allocated, the products of a stage need disjoint operands, an operand that is not restored must not
    be needed afterwards, and explicit scaling must agree with the scaling of the products. If it overwrites C, each product must overwrite
    one block.
    """
    if schedule.workspaces:
        names = ", ".join(space.name for space in schedule.workspaces)
        return f"every level needs memory of its own for {names}"
    needed = needed_after(schedule) if {"A", "B"} - {*restored} else (frozenset(),) * len(schedule.stages)
    for number, stage in enumerate(schedule.stages, 1):
        if isinstance(stage, ProductStage):
            for reason in _obstacles(number, stage, schedule, restored, needed[number - 1]):
                return reason
    return ""


def _obstacles(
    number: int, stage: ProductStage, schedule: AnySchedule, restored: tuple[str, ...], needed: frozenset[object]
) -> Iterator[str]:
    for block, _ in find_shared_operands(number, stage, schedule.written):
        yield f"two products of stage {number} share the operand {block}, which an inner level writes"
    for product in stage.products:
        for side, block in (("A", product.left), ("B", product.right)):
            if side not in restored and block in needed:
                yield (
                    f"{name_of(product)} in stage {number} would overwrite its operand {block}, which is still needed:"
                    f" {schedule.name} does not restore {side}"
                )
        what = f"{name_of(product)} in stage {number}"
        if (isinstance(schedule, ScaledSchedule) or schedule.overwrites) and len(product.targets) != 1:
            yield f"{what} has {len(product.targets)} targets, and the schedule one result"
        if isinstance(schedule, ScaledSchedule):
            yield from _unfit(what, product, schedule.result)
        elif schedule.overwrites:
            for target in product.targets:
                if target.kept:
                    yield f"{what} adds to what {target.block} holds, which every inner level overwrites"
    if isinstance(schedule, ScaledSchedule) and stage.contended:
        yield f"two products of stage {number} write {stage.contended[0]}, which every inner level uses as its own C"


def _unfit(what: str, product: Product, result: Result) -> Iterator[str]:
    """Why a product is no instance of the schedule's own result."""
    for target in product.targets:
        if not _takes(result.alpha, target.coefficient):
            yield f"{what} is scaled by {target.coefficient}, which {result} is not"
        for block, _ in target.plus[:1]:
            yield f"{what} adds {block} to its target, which {result} does not"
        if target.kept and not _takes(result.beta, target.kept):
            yield f"{what} adds to what {target.block} holds, which {result} does not"


def _takes(parameter: Coefficient, value: Coefficient) -> bool:
    """True if alpha (or beta) of a result can take this value; a generator can take any."""
    return isinstance(parameter, Symbolic) or parameter == value
