"""Nest levels: every product of a schedule run by the same schedule, all of them side by side.

Before: a schedule of one level. After: a flat schedule over the finest blocks (levels are Kronecker products). A level that writes
its operands needs them pairwise disjoint within a product stage; the verifier decides that, before and after.
"""

from __future__ import annotations

from dataclasses import replace

from bilinear.analysis.block_maps import beside, relabel
from bilinear.ir.linear import LinearMap, form
from bilinear.ir.number import Coefficient, exact
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Product, ProductStage, Schedule, Space, Stage, Target


def nest_levels(schedule: Schedule, levels: int) -> Schedule:
    """The schedule at `levels` >= 1 levels, flat."""
    flat = schedule
    for level in range(2, levels + 1):
        flat = _nest(flat, _renamed(schedule, level), level)
    return flat


def _renamed(schedule: Schedule, level: int) -> Schedule:
    """The schedule with its workspaces named after the level."""
    names = {space.name: f"{space.name}{level}" for space in schedule.workspaces}

    def rename(block: Block) -> Block:
        return replace(block, space=names.get(block.space, block.space))

    stages: list[Stage] = []
    for stage in schedule.stages:
        if isinstance(stage, LinearStage):
            stages.append(replace(stage, maps=tuple(relabel(m, rename) for m in stage.maps)))
        else:
            stages.append(ProductStage(tuple(_relabelled(p, rename) for p in stage.products)))
    workspaces = tuple(replace(space, name=names[space.name]) for space in schedule.workspaces)
    return replace(schedule, stages=tuple(stages), workspaces=workspaces)


def _relabelled(product: Product, rename: object) -> Product:
    assert callable(rename)
    targets = tuple(replace(t, block=rename(t.block)) for t in product.targets)
    return replace(product, left=rename(product.left), right=rename(product.right), targets=targets)


def _nest(outer: Schedule, inner: Schedule, level: int) -> Schedule:
    grid = {"A": (inner.m, inner.k), "B": (inner.k, inner.n), "C": (inner.m, inner.n)}
    shape_of = {space.name: space.shape for space in outer.spaces}
    stages: list[Stage] = []
    width = 0
    for stage in outer.stages:
        if isinstance(stage, LinearStage):
            stages.append(replace(stage, maps=tuple(_refined(m, *grid[shape_of[m.targets[0].space]]) for m in stage.maps)))
            continue
        width = max(width, len(stage.products))
        stages += [_inside(stage, step, inner) for step in inner.stages]
    lifted = tuple(_lifted(space, *grid[space.shape]) for space in outer.workspaces)
    copies = tuple(replace(space, rows=space.rows * width) for space in inner.workspaces)
    m, k, n = outer.m * inner.m, outer.k * inner.k, outer.n * inner.n
    return replace(outer, m=m, k=k, n=n, stages=tuple(stages), workspaces=lifted + copies, levels=level)


def _lifted(space: Space, rows: int, columns: int) -> Space:
    return replace(space, rows=space.rows * rows, columns=space.columns * columns)


def _within(block: Block, row: int, column: int, rows: int, columns: int) -> Block:
    return Block(block.space, block.row * rows + row, block.column * columns + column)


def _refined(block_map: BlockMap, rows: int, columns: int) -> BlockMap:
    """The same map on every finer block."""
    return beside(
        relabel(block_map, lambda block, i=i, j=j: _within(block, i, j, rows, columns))  # type: ignore[misc]
        for i in range(rows)
        for j in range(columns)
    )


def _inside(stage: ProductStage, step: Stage, inner: Schedule) -> Stage:
    """One stage of the inner schedule, run for all products of an outer stage at once."""
    if isinstance(step, LinearStage):
        maps: list[BlockMap] = []
        for m in step.maps:
            maps.append(beside(_placed(m, product, i, inner) for i, product in enumerate(stage.products)))
        return replace(step, maps=tuple(maps))
    return ProductStage(tuple(_multiplied(product, i, small, inner) for i, product in enumerate(stage.products) for small in step.products))


def _place(block: Block, product: Product, index: int, inner: Schedule) -> Block:
    """Where a block of the inner schedule lies when it runs the index-th product of a stage."""
    if block.space == "A":
        return _within(product.left, block.row, block.column, inner.m, inner.k)
    if block.space == "B":
        return _within(product.right, block.row, block.column, inner.k, inner.n)
    if block.space == "C":
        (target,) = product.targets
        return _within(target.block, block.row, block.column, inner.m, inner.n)
    return replace(block, row=block.row + index * inner.space(block.space).rows)


def _placed(block_map: BlockMap, product: Product, index: int, inner: Schedule) -> BlockMap:
    moved = relabel(block_map, lambda block: _place(block, product, index, inner))
    if block_map.targets[0].space != "C":
        return moved
    return replace(moved, map=_scaled(moved.map, product.targets[0].coefficient))


def _scaled(linear: LinearMap, factor: Coefficient) -> LinearMap:
    outputs = tuple(form((index, coefficient * factor) for index, coefficient in output) for output in linear.outputs)
    return replace(linear, outputs=outputs)


def _multiplied(product: Product, index: int, small: Product, inner: Schedule) -> Product:
    """An inner product in its place: added to every outer target through every inner one."""
    targets: list[Target] = []
    for own in small.targets:
        if own.block.space != "C":
            targets.append(Target(_place(own.block, product, index, inner), own.coefficient))
            continue
        for target in product.targets:
            block = _within(target.block, own.block.row, own.block.column, inner.m, inner.n)
            targets.append(Target(block, exact(target.coefficient * own.coefficient)))
    left = _place(small.left, product, index, inner)
    right = _place(small.right, product, index, inner)
    return Product(left, right, tuple(targets))
