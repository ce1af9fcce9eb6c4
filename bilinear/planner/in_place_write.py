"""From walks to a schedule: their exact layers as linear stages, and the products where their forms stand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from bilinear.analysis.block_maps import relabel
from bilinear.ir.linear import Form, LinearMap, form
from bilinear.ir.number import exact, rational
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Product, ProductStage, Result, Schedule, Space, Stage, Target
from bilinear.ir.scheme import Scheme
from bilinear.planner.in_place_exact import Layer, Run, replay, temporaries_of
from bilinear.planner.in_place_stages import Partition
from bilinear.planner.in_place_sums import Walk


def write_schedule(scheme: Scheme, order: Partition, walks: tuple[Walk, Walk], restores: bool) -> Schedule:
    """The schedule that runs the products in these stages, with sums formed by the walks on A and on B.

    Temporaries are the workspaces S, of blocks like A's, and T, of blocks like B's.
    """
    spaces = Space("A", "A", scheme.m, scheme.k), Space("B", "B", scheme.k, scheme.n)
    workspaces = tuple(Space(n, s.name, temporaries_of(w), 1) for n, s, w in zip("ST", spaces, walks, strict=True))
    left, right = (
        replay(space.blocks + more.blocks, walk, [[table[p] for p in sorted(group)] for group in order])
        for space, more, walk, table in zip(spaces, workspaces, walks, scheme.tables, strict=False)
    )
    stages: list[Stage] = []
    for number, group in enumerate(order):
        stages += _linear_stages(left, right, number, restores=False)
        places = walks[0].places[number], walks[1].places[number]
        written = _products(scheme, sorted(group), places, (left, right), number)
        stages.append(ProductStage(tuple(sorted(written, key=lambda product: -len(product.targets)))))
    if restores:
        stages += _linear_stages(left, right, len(order), restores=True)
    used = tuple(space for space in workspaces if space.rows)
    name = f"{scheme.name}-{'staged' if used else 'in-place' if restores else 'consuming'}"
    promise = ("A", "B") if restores else _unwritten(stages)
    return Schedule(name, scheme.name, scheme.m, scheme.k, scheme.n, tuple(stages), used, not used, promise, ring=scheme.ring)


def _unwritten(stages: Sequence[Stage]) -> tuple[str, ...]:
    """Those of A and B that no stage writes."""
    written = {target.space for stage in stages if isinstance(stage, LinearStage) for m in stage.maps for target in m.targets}
    return tuple(name for name in ("A", "B") if name not in written)


def _products(
    scheme: Scheme, products: Sequence[int], places: tuple[Sequence[int], Sequence[int]], runs: tuple[Run, Run], number: int
) -> Iterator[Product]:
    """The products of a stage; what a block holds beyond the scheme's form is a factor, which the coefficients in C take back."""
    outputs = Space("C", "C", scheme.m, scheme.n).blocks
    u, v, w = scheme.tables
    for i, product in enumerate(products):
        factor = multiple(runs[0].held[number][i], u[product]) * multiple(runs[1].held[number][i], v[product])
        column = ((block, c) for block, row in zip(outputs, w, strict=True) for p, c in row if p == product)
        targets = tuple(Target(block, exact(rational(c) / factor)) for block, c in column)
        yield Product(runs[0].blocks[places[0][i]], runs[1].blocks[places[1][i]], targets)


def multiple(held: Mapping[int, Fraction], wanted: Form) -> Fraction:
    """The factor of a block's content to the form that the scheme wants there."""
    index, coefficient = wanted[0]
    factor = held[index] / rational(coefficient)
    if held != {i: rational(c) * factor for i, c in wanted}:
        raise ArithmeticError("a block does not hold the form that it should: two rationals have one residue")
    return factor


def _linear_stages(left: Run, right: Run, number: int, *, restores: bool) -> Iterator[LinearStage]:
    both = [run.layers[number] if number < len(run.layers) else () for run in (left, right)]
    for depth in range(max(map(len, both))):
        maps = tuple(block_map(run.blocks, layers[depth]) for run, layers in zip((left, right), both, strict=True) if depth < len(layers))
        yield LinearStage(maps, restores)


def block_map(blocks: Sequence[Block], layer: Layer) -> BlockMap:
    """A layer over these blocks."""
    sources = sorted({source for terms in layer.values() for source in terms})
    place = {source: i for i, source in enumerate(sources)}
    targets = sorted(layer)
    outputs = tuple(form((place[source], exact(c)) for source, c in layer[target].items()) for target in targets)
    return BlockMap(tuple(blocks[s] for s in sources), tuple(blocks[t] for t in targets), LinearMap(len(sources), outputs))


def scaling_itself(schedule: Schedule) -> Schedule:
    """A schedule of one level with workspaces as one that the language can write: C = A*B + C, with temporaries of one block each."""
    renamed = {
        block: Block(f"{space.name}{number}", -1, -1) for space in schedule.workspaces for number, block in enumerate(space.blocks, 1)
    }
    shapes = [(renamed[block].space, space.shape) for space in schedule.workspaces for block in space.blocks]
    temporaries = tuple(Space(name, shape, 0, 0) for name, shape in shapes)
    stages = tuple(_scaled(stage, renamed) for stage in schedule.stages)
    return replace(schedule, stages=stages, workspaces=temporaries, result=Result(1, 1))


def side_by_side(stage: LinearStage) -> LinearStage:
    """The stage as one map over all its blocks, as the language reads the stages of a schedule that scales for itself."""
    sources = tuple(sorted({block for m in stage.maps for block in m.sources}))
    place = {block: i for i, block in enumerate(sources)}
    outputs = tuple(form((place[m.sources[i]], c) for i, c in row) for m in stage.maps for row in m.map.outputs)
    targets = tuple(target for m in stage.maps for target in m.targets)
    return replace(stage, maps=(BlockMap(sources, targets, LinearMap(len(sources), outputs)),))


def _scaled(stage: Stage, renamed: Mapping[Block, Block]) -> Stage:
    def named(block: Block) -> Block:
        return renamed.get(block, block)

    if isinstance(stage, LinearStage):
        return side_by_side(replace(stage, maps=tuple(relabel(m, named) for m in stage.maps)))
    return ProductStage(
        tuple(
            Product(named(p.left), named(p.right), tuple(Target(t.block, t.coefficient, plus=((t.block, 1),)) for t in p.targets))
            for p in stage.products
        )
    )
