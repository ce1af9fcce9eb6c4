"""Colour products: put the products of a stage in an order in which no two neighbours in colour add to one block.

Before: a schedule. After: the same stages, the products of each by contention colour. Sums into C have one order, so results are
reproducible bit for bit; products of one colour may run at once, and a colour after the one before it.
"""

from __future__ import annotations

from dataclasses import replace

from bilinear.ir.schedule import Block, Product, ProductStage, Schedule, Stage


def colours(stage: ProductStage) -> tuple[tuple[Product, ...], ...]:
    """The products by contention colour: greedy, in the order written, so every run gives the same colours, and coloured ones their own."""
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


def colour_products(schedule: Schedule) -> Schedule:
    """The schedule with the products of every stage by contention colour."""
    return replace(schedule, stages=tuple(map(_coloured, schedule.stages)))


def _coloured(stage: Stage) -> Stage:
    if not isinstance(stage, ProductStage):
        return stage
    return ProductStage(tuple(product for members in colours(stage) for product in members))
