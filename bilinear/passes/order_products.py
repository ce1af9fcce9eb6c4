"""Order products: which of a schedule's products run at once, and which of their writes is the first of a block of C."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from bilinear.ir.linear import LinearMap
from bilinear.ir.number import Coefficient
from bilinear.ir.schedule import BETA, AnySchedule, Block, BlockMap, LinearStage, Product, ProductStage, ScaledSchedule, Schedule, Stage

S = TypeVar("S", bound=AnySchedule)


def one_product_a_stage(schedule: Schedule) -> Schedule:
    """The schedule with a stage for every product, in the order written, so that they can share the memory of the level below."""
    stages: list[Stage] = []
    for stage in schedule.stages:
        stages += [ProductStage((p,)) for p in stage.products] if isinstance(stage, ProductStage) else [stage]
    return replace(schedule, stages=tuple(stages))


def colour_products(schedule: Schedule) -> Schedule:
    """The schedule with product stages split so that no two add to one block: sums have one order, results the same bits."""
    stages: list[Stage] = []
    for stage in schedule.stages:
        stages += [ProductStage(products) for products in _colours(stage)] if isinstance(stage, ProductStage) else [stage]
    return replace(schedule, stages=tuple(stages))


def _colours(stage: ProductStage) -> tuple[tuple[Product, ...], ...]:
    """The products grouped by contention colour: greedy in the order written, so every run gives the same colours."""
    groups: list[tuple[list[Product], set[Block]]] = []
    for product in stage.products:
        blocks = {target.block for target in product.targets}
        for members, taken in groups:
            if not taken & blocks:
                members.append(product)
                taken.update(blocks)
                break
        else:
            groups.append(([product], set(blocks)))
    return tuple(tuple(members) for members, _ in groups)


def scale_contended(schedule: Schedule) -> Schedule:
    """The schedule with maps in front that only keep every block of C whose first write would be one of several at once.

    `mark_first_writes` puts beta into them. All products only add then, and may run in any order.
    """
    if schedule.overwrites:
        return schedule
    seen: set[Block] = set()
    kept: set[Block] = set()
    for stage in schedule.stages:
        kept.update(block for block in (stage.contended if isinstance(stage, ProductStage) else ()) if block not in seen)
        seen.update(block for block, _ in stage.writes)
    maps = tuple(BlockMap((), (block,), LinearMap(0, ((),)), (1,)) for block in sorted(kept) if block.space in schedule.results)
    if not maps:
        return schedule
    first, *others = schedule.stages
    if isinstance(first, LinearStage):
        return replace(schedule, stages=(replace(first, maps=(*first.maps, *maps)), *others))
    return replace(schedule, stages=(LinearStage(maps), *schedule.stages))


def mark_first_writes(schedule: S) -> S:
    """The schedule with beta in the first ordered write of every block of C; later writes keep its old value unscaled.

    Before: a schedule whose writes of C keep the old value, and in which no two steps of a stage are the first to write one block.
    Writes of workspaces, and schedules that overwrite C or scale explicitly, stay unchanged: their makers mark the overwriting writes.
    """
    if isinstance(schedule, ScaledSchedule) or schedule.overwrites:
        return schedule
    seen: set[Block] = set()

    def marked(block: Block, kept: Coefficient) -> Coefficient:
        if block.space not in schedule.results:
            return kept
        begun = block in seen
        seen.add(block)
        return 1 if begun else BETA

    stages: list[Stage] = []
    for stage in schedule.stages:
        if isinstance(stage, LinearStage):
            maps = tuple(replace(m, kept=tuple(map(marked, m.targets, m.kept))) for m in stage.maps)
            stages.append(replace(stage, maps=maps))
        else:
            products = (replace(p, targets=tuple(replace(t, kept=marked(t.block, t.kept)) for t in p.targets)) for p in stage.products)
            stages.append(ProductStage(tuple(products)))
    return replace(schedule, stages=tuple(stages))
