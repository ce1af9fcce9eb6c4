"""Nest levels: run every product of a schedule by the next level's schedule, all products of a stage side by side.

Before: schedules of one level, the outermost first. After: a flat schedule over the finest blocks (levels are Kronecker products). If a
level writes its operands, they must be pairwise disjoint within each product stage of the level above; the verifier checks that before and
after. `why_not_nested` gives the reason if a schedule cannot run below another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from bilinear.analysis.block_maps import beside, relabel, relabel_stage
from bilinear.ir.linear import Form, LinearMap, form
from bilinear.ir.number import Coefficient, exact
from bilinear.ir.schedule import BETA, Block, BlockMap, LinearStage, Product, ProductStage, Schedule, Stage, Target


def nest_levels(schedules: Sequence[Schedule]) -> Schedule:
    """One or more schedules as one flat schedule."""
    flat = schedules[0]
    for level, schedule in enumerate(schedules[1:], 2):
        flat = _nest(flat, _renamed(schedule, level), level)
    return flat


def why_not_nested(outer: Schedule, inner: Schedule) -> str:
    """Why products of `outer` cannot run by `inner`; empty if they can."""
    products = [p for stage in outer.stages if isinstance(stage, ProductStage) for p in stage.products]
    if inner.writes_operands and not (outer.writes_operands or outer.runs_in_place):
        return f"{inner.name} writes its operands, and {outer.name} multiplies blocks of A and B that are not to be written"
    overwritten = all(len(p.targets) == 1 and not p.targets[0].kept for p in products)
    if inner.overwrites and not overwritten:
        return f"{inner.name} overwrites its result, and {outer.name} adds products to what is there"
    adds = _writes_c_in_steps(inner) and not inner.overwrites
    if adds and any(t.block.space not in outer.results or outer.overwrites for p in products for t in p.targets):
        return f"{inner.name} adds to C, and {outer.name} has blocks that are to be overwritten"
    return ""


def _writes_c_in_steps(schedule: Schedule) -> bool:
    """True if products go directly into C, or some block of C is written more than once."""
    products = [p for s in schedule.stages if isinstance(s, ProductStage) for p in s.products]
    sums = [t for s in schedule.stages if isinstance(s, LinearStage) for m in s.maps for t in m.targets if t.space == "C"]
    return any(t.block.space == "C" for p in products for t in p.targets) or len(set(sums)) < len(sums)


def _renamed(schedule: Schedule, level: int) -> Schedule:
    names = {space.name: f"{space.name}{level}" for space in schedule.workspaces}

    def rename(block: Block) -> Block:
        return block._replace(space=names.get(block.space, block.space))

    workspaces = tuple(replace(space, name=names[space.name]) for space in schedule.workspaces)
    return replace(schedule, stages=tuple(relabel_stage(stage, rename) for stage in schedule.stages), workspaces=workspaces)


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
        for step in inner.stages:  # each runs for all products of the outer stage at once
            if isinstance(step, LinearStage):
                stages.append(replace(step, maps=tuple(_mapped(m, stage, outer, inner) for m in step.maps)))
            else:
                pairs = ((i, product, small) for i, product in enumerate(stage.products) for small in step.products)
                stages.append(ProductStage(tuple(_multiplied(product, i, small, inner) for i, product, small in pairs)))
    lifted = tuple(
        replace(space, rows=space.rows * rows, columns=space.columns * columns)
        for space in outer.workspaces
        for rows, columns in [grid[space.shape]]
    )
    copies = tuple(replace(space, rows=space.rows * width) for space in inner.workspaces)
    m, k, n = outer.m * inner.m, outer.k * inner.k, outer.n * inner.n
    in_place = outer.in_place and inner.in_place
    ring = inner.ring if inner.ring.generator else outer.ring
    return replace(outer, m=m, k=k, n=n, stages=tuple(stages), workspaces=lifted + copies, levels=level, in_place=in_place, ring=ring)


def _within(block: Block, row: int, column: int, rows: int, columns: int) -> Block:
    return Block(block.space, block.row * rows + row, block.column * columns + column)


def _refined(block_map: BlockMap, rows: int, columns: int) -> BlockMap:
    """The same map on every finer block."""
    places = product(range(rows), range(columns))
    return beside(relabel(block_map, partial(_within, row=i, column=j, rows=rows, columns=columns)) for i, j in places)


def _mapped(block_map: BlockMap, stage: ProductStage, outer: Schedule, inner: Schedule) -> BlockMap:
    """A map of the inner schedule, run for all products of an outer stage."""
    if block_map.targets[0].space != "C" or inner.overwrites:
        placings = [partial(_place, product=product, index=i, inner=inner) for i, product in enumerate(stage.products)]
        return beside(relabel(block_map, placing) for placing in placings)
    return _added_up(beside(_landing(block_map, product, i, inner) for i, product in enumerate(stage.products)), outer)


def _place(block: Block, product: Product, index: int, inner: Schedule) -> Block:
    """The place of a block of the inner schedule when it runs the index-th product of a stage."""
    if block.space == "A":
        return _within(product.left, block.row, block.column, inner.m, inner.k)
    if block.space == "B":
        return _within(product.right, block.row, block.column, inner.k, inner.n)
    if block.space == "C":
        (target,) = product.targets
        return _within(target.block, block.row, block.column, inner.m, inner.n)
    return block._replace(row=block.row + index * inner.space(block.space).rows)


def _landing(block_map: BlockMap, product: Product, index: int, inner: Schedule) -> BlockMap:
    """A map into the inner C as a map into every block that the outer product is added to, times its coefficient."""
    sources = tuple(_place(block, product, index, inner) for block in block_map.sources)
    landed = [(t, b, o) for t in product.targets for b, o in zip(block_map.targets, block_map.map.outputs, strict=True)]
    targets = tuple(_within(t.block, b.row, b.column, inner.m, inner.n) for t, b, _ in landed)
    outputs = tuple(form((index, c * t.coefficient) for index, c in output) for t, _, output in landed)
    return BlockMap(sources, targets, replace(block_map.map, outputs=outputs), tuple(t.kept for t, _, _ in landed))


def _added_up(block_map: BlockMap, outer: Schedule) -> BlockMap:
    """Sum the forms that share a target. Maps keep only C's old values; every other kept value becomes a term."""
    terms: dict[Block, list[tuple[int, Coefficient]]] = {}
    factors: dict[Block, Coefficient] = {}
    for target, output, factor in zip(block_map.targets, block_map.map.outputs, block_map.kept, strict=True):
        terms.setdefault(target, []).extend(output)
        factors[target] = factor and factors.get(target, factor)
    sources, steps = block_map.sources, len(block_map.map.steps)
    kept = [t for t, factor in factors.items() if factor and (t.space not in outer.results or outer.overwrites)]
    factors |= dict.fromkeys(kept, 0)
    moved = [i if i < len(sources) else i + len(kept) for i in range(len(sources) + steps)]
    for i, target in enumerate(kept):
        terms[target].append((-1 - i, 1))
    moved += [len(sources) + i for i in reversed(range(len(kept)))]

    def renamed(output: Sequence[tuple[int, Coefficient]]) -> Form:
        return form((moved[index], coefficient) for index, coefficient in output)

    linear = block_map.map
    added = LinearMap(len(sources) + len(kept), tuple(map(renamed, terms.values())), tuple(map(renamed, linear.steps)), linear.names)
    return BlockMap(sources + tuple(kept), tuple(terms), added, tuple(factors.values()))


def _multiplied(product: Product, index: int, small: Product, inner: Schedule) -> Product:
    """An inner product in place: a contribution to the inner C goes to every outer target."""
    targets: list[Target] = []
    for own in small.targets:
        if own.block.space != "C":
            coefficient = exact(own.coefficient * product.targets[0].coefficient) if inner.overwrites else own.coefficient
            targets.append(Target(_place(own.block, product, index, inner), coefficient, own.kept))
            continue
        for target in product.targets:
            block = _within(target.block, own.block.row, own.block.column, inner.m, inner.n)
            kept = target.kept if own.kept == BETA else own.kept
            targets.append(Target(block, exact(target.coefficient * own.coefficient), kept))
    left = _place(small.left, product, index, inner)
    right = _place(small.right, product, index, inner)
    return Product(left, right, tuple(targets))
