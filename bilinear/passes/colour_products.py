"""Colour products: split product stages so that no two products of a stage add to one block.

Before: a schedule. After: the same products in a fixed order, in stages without contention. So every sum in C is added up in one order, and
results are reproducible bit for bit.
"""

from __future__ import annotations

from dataclasses import replace

from bilinear.ir.schedule import Block, Product, ProductStage, Schedule, Stage


def colours(stage: ProductStage) -> tuple[tuple[Product, ...], ...]:
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


def colour_products(schedule: Schedule) -> Schedule:
    """The schedule with every product stage split by contention colour."""
    stages: list[Stage] = []
    for stage in schedule.stages:
        if isinstance(stage, ProductStage):
            stages += [ProductStage(products) for products in colours(stage)]
        else:
            stages.append(stage)
    return replace(schedule, stages=tuple(stages))
