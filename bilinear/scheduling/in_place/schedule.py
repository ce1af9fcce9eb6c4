"""Turn walks into a schedule: their exact layers become linear stages, and the products read the blocks that hold their forms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from bilinear.analysis.block_maps import relabel
from bilinear.ir.linear import Form, LinearMap, form
from bilinear.ir.number import exact, rational
from bilinear.ir.result import Result
from bilinear.ir.schedule import (
    Block,
    BlockMap,
    LinearStage,
    Product,
    ProductStage,
    ScaledSchedule,
    ScaledTarget,
    Schedule,
    Space,
    Stage,
    Target,
)
from bilinear.ir.scheme import Scheme
from bilinear.passes.colour_products import colour_products
from bilinear.scheduling.in_place.exact import Layer, Run, replay, temporaries_of
from bilinear.scheduling.in_place.stages import Partition
from bilinear.scheduling.in_place.walks import Walk


def write_schedule(
    scheme: Scheme,
    order: Partition,
    walks: tuple[Walk, Walk],
    restores: bool,
    temporaries: int,
    lent: tuple[tuple[int, ...], ...] = (),
) -> Schedule:
    """The schedule that runs the products in these stages, with sums formed by the walks on A and B.

    The first `temporaries` of a walk are the workspaces S (blocks like A's) and T (blocks like B's). Any further ones are the blocks of C
    `lent` to it; such a schedule overwrites C.
    """
    spaces = Space("A", "A", scheme.m, scheme.k), Space("B", "B", scheme.k, scheme.n)
    results = Space("C", "C", scheme.m, scheme.n).blocks
    workspaces = tuple(Space(n, s.name, min(temporaries_of(w), temporaries), 1) for n, s, w in zip("ST", spaces, walks, strict=True))
    more = [
        ((space.blocks if space.rows else ()) + tuple(results[i] for i in share))[: temporaries_of(walk)]
        for space, share, walk in zip(workspaces, lent or ((), ()), walks, strict=True)
    ]
    left, right = (
        replay(space.blocks + places, walk, [[table[p] for p in sorted(group)] for group in order])
        for space, places, walk, table in zip(spaces, more, walks, scheme.tables, strict=False)
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
    promise = ("A", "B") if restores else _unwritten(stages)
    found = Schedule("", scheme.name, scheme.m, scheme.k, scheme.n, tuple(stages), used, not used, promise, ring=scheme.ring)
    if lent:
        return _overwriting(replace(found, name=f"{scheme.name}-overwriting", in_place=False))
    return replace(found, name=f"{scheme.name}-{'staged' if used else 'in-place' if restores else 'consuming'}")


def _overwriting(schedule: Schedule) -> Schedule:
    """The schedule in which the first product of every block of C overwrites it."""
    begun: set[Block] = set()
    stages: list[Stage] = []
    for stage in colour_products(schedule).stages:
        if isinstance(stage, ProductStage):
            products = tuple(replace(p, targets=tuple(replace(t, kept=int(t.block in begun)) for t in p.targets)) for p in stage.products)
            stages.append(ProductStage(products))
            begun |= {t.block for p in products for t in p.targets}
        else:
            stages.append(stage)
    return replace(schedule, stages=tuple(stages))


def _unwritten(stages: Sequence[Stage]) -> tuple[str, ...]:
    """The operands among A and B that no stage writes."""
    written = {target.space for stage in stages if isinstance(stage, LinearStage) for m in stage.maps for target in m.targets}
    return tuple(name for name in ("A", "B") if name not in written)


def _products(
    scheme: Scheme, products: Sequence[int], places: tuple[Sequence[int], Sequence[int]], runs: tuple[Run, Run], number: int
) -> Iterator[Product]:
    """The products of a stage. If a block holds a multiple of the scheme's form, the coefficients in C divide by it."""
    outputs = Space("C", "C", scheme.m, scheme.n).blocks
    u, v, w = scheme.tables
    for i, product in enumerate(products):
        factor = multiple(runs[0].held[number][i], u[product]) * multiple(runs[1].held[number][i], v[product])
        column = ((block, c) for block, row in zip(outputs, w, strict=True) for p, c in row if p == product)
        targets = tuple(Target(block, exact(rational(c) / factor)) for block, c in column)
        yield Product(runs[0].blocks[places[0][i]], runs[1].blocks[places[1][i]], targets)


def multiple(held: Mapping[int, Fraction], wanted: Form) -> Fraction:
    """The factor between a block's content and the form that the scheme wants there."""
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


def scaling_itself(schedule: Schedule) -> ScaledSchedule:
    """A one-level schedule with explicit scaling and temporaries of one block each: C = A*B + C, or C = A*B if it overwrites.

    A product that overwrites some blocks and is added to others becomes two steps of one stage.
    """
    renamed = {
        block: Block(f"{space.name}{number}", -1, -1) for space in schedule.workspaces for number, block in enumerate(space.blocks, 1)
    }
    shapes = [(renamed[block].space, space.shape) for space in schedule.workspaces for block in space.blocks]
    temporaries = tuple(Space(name, shape, 0, 0) for name, shape in shapes)
    stages = tuple(_scaled(stage, renamed) for stage in schedule.stages)
    return schedule.scaled(stages, temporaries, Result(1, int(not schedule.overwrites)))


def side_by_side(stage: LinearStage) -> LinearStage:
    """The stage as one map over all its blocks, as the language reads stages of a schedule with explicit scaling."""
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
    return ProductStage(tuple(step for p in stage.products for step in _steps(replace(p, left=named(p.left), right=named(p.right)))))


def _steps(product: Product) -> Iterator[Product]:
    """A product as one step that overwrites and one that adds."""
    for kept in (0, 1):
        targets = tuple(ScaledTarget(t.block, t.coefficient, kept) for t in product.targets if bool(t.kept) == bool(kept))
        if targets:
            yield replace(product, targets=targets)
