"""Turn walks into a schedule: their exact layers become linear stages, and the products read the blocks that hold their forms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from bilinear.analysis.block_maps import relabel
from bilinear.errors import fail
from bilinear.ir.linear import Form, LinearMap, form
from bilinear.ir.number import exact, rational, residue
from bilinear.ir.schedule import (
    Block,
    BlockMap,
    LinearStage,
    Product,
    ProductStage,
    Result,
    ScaledSchedule,
    ScaledTarget,
    Schedule,
    Space,
    Stage,
    Target,
)
from bilinear.ir.scheme import Scheme
from bilinear.passes.order_products import colour_products
from bilinear.scheduling.in_place.partitions import StageEffort, StageSearch, WalkedPartition
from bilinear.scheduling.in_place.stages import PRIME, OperandSide, Partition
from bilinear.scheduling.in_place.walks import BlockAddition, OperandWalk

Terms = dict[int, Fraction]
"""A form: coefficients by block."""
Layer = dict[int, Terms]
"""Simultaneous steps: for each block written, its new value over the old ones."""


@dataclass(frozen=True)
class ReplayStep:
    """One block addition: block += factor * source."""

    block: int
    source: int
    factor: Fraction


@dataclass(frozen=True)
class ReplayRun:
    """A walk on one operand, exactly: the steps and layers before each stage, and the contents of the blocks at each stage.

    The last blocks are the temporaries.
    """

    blocks: tuple[Block, ...]
    steps: tuple[tuple[ReplayStep, ...], ...]
    layers: tuple[tuple[Layer, ...], ...]
    held: tuple[tuple[Mapping[int, Fraction], ...], ...]


def temporaries_of(walk: OperandWalk) -> int:
    """The number of temporaries that a walk fills."""
    return max((temporary + 1 for spills in walk.spilled for temporary, _ in spills), default=0)


def replay(blocks: tuple[Block, ...], walk: OperandWalk, stages: Sequence[Sequence[Form]]) -> ReplayRun:
    """Replay a walk over these blocks exactly, for the forms of these stages; blocks beyond the operand's own are temporaries."""
    own = len(blocks) - temporaries_of(walk)
    exact = _Replay(own, [{i: Fraction(1)} for i in range(own)] + [{} for _ in blocks[own:]])
    goals = [[{i: rational(c) for i, c in row} for row in stage] for stage in stages]
    if walk.restores:
        goals.append([{i: Fraction(1)} for i in range(own)])
    for number, moves in enumerate(walk.moves):
        wanted = [row for goal in goals[number:] for row in goal]
        exact.visit(walk, number, moves, wanted, len(goals[number]))
        goals[number:] = _regrouped(wanted, goals[number:])
    layers = [*exact.layers]
    if walk.restores:
        layers[-1] += unscrambled(exact.held[-1], walk.places[-1])
    return ReplayRun(blocks, tuple(exact.steps), tuple(layers), tuple(exact.held))


def _regrouped(rows: list[Terms], like: Sequence[Sequence[Terms]]) -> list[list[Terms]]:
    remaining = iter(rows)
    return [[next(remaining) for _ in group] for group in like]


class _Replay:
    """The contents of blocks and temporaries, and the wanted forms in terms of them, during a walk."""

    def __init__(self, own: int, contents: list[Terms]) -> None:
        self.own, self.contents = own, contents
        self.steps: list[tuple[ReplayStep, ...]] = []
        self.layers: list[tuple[Layer, ...]] = []
        self.held: list[tuple[Terms, ...]] = []

    def visit(self, walk: OperandWalk, number: int, moves: Sequence[BlockAddition], wanted: list[Terms], size: int) -> None:
        """Run the moves to a stage, whose rows are the first `size` wanted ones."""
        steps = [self._step(move, wanted, size) for move in moves]
        places = walk.places[number]
        fill = {self.own + t: self._filling(row, wanted[places.index(self.own + t)]) for t, row in walk.spilled[number]}
        new = {block: _sum(terms, self.contents) for block, terms in fill.items()}
        for block, content in new.items():
            self.contents[block] = content
        self.steps.append(tuple(steps))
        self.layers.append((*packed(steps), fill) if fill else tuple(packed(steps)))
        self.held.append(tuple(self.contents[place] for place in places))

    def _step(self, move: BlockAddition, wanted: list[Terms], size: int) -> ReplayStep:
        """The move with its exact factor: the quotient of two entries in a row of the stage, so that one entry becomes zero."""
        rows = [row for row in wanted[:size] if row.get(move.source) and row.get(move.block)]
        factor = _fraction(move.factor, (row[move.source] / row[move.block] for row in rows))
        for row in wanted:
            if move.block in row:
                row[move.source] = row.get(move.source, Fraction(0)) - factor * row[move.block]
                if not row[move.source]:
                    del row[move.source]
        self.contents[move.block] = _sum({move.block: Fraction(1), move.source: factor}, self.contents)
        return ReplayStep(move.block, move.source, factor)

    def _filling(self, residues: Sequence[int], wanted: Terms) -> Terms:
        """The form with which a temporary is filled: the whole form, or its difference from the old value."""
        for block in range(self.own, len(residues)):
            if residues[block]:
                old = self.contents[block]
                factor = _fraction(residues[block], (c / old[i] for i, c in wanted.items() if i in old))
                rest = {i: wanted.get(i, Fraction(0)) - factor * old.get(i, Fraction(0)) for i in wanted.keys() | old.keys()}
                return {i: c for i, c in sorted(rest.items()) if c} | {block: factor}
        return dict(wanted)


def _fraction(wanted: int, candidates: Iterable[Fraction]) -> Fraction:
    """The candidate with this residue. Two candidates share a residue with probability about 5e-10; the proof would then fail."""
    return next(c for c in candidates if residue(c, PRIME) == wanted)


def _sum(terms: Mapping[int, Fraction], contents: Sequence[Mapping[int, Fraction]]) -> Terms:
    total: Terms = {}
    for source, factor in terms.items():
        for index, coefficient in contents[source].items():
            total[index] = total.get(index, Fraction(0)) + factor * coefficient
    return {index: coefficient for index, coefficient in total.items() if coefficient}


def packed(steps: Iterable[ReplayStep]) -> list[Layer]:
    """Pack the steps into few layers: each runs as early as its reads and writes allow."""
    layers: list[Layer] = []
    written: dict[int, int] = {}
    read: dict[int, int] = {}
    for step in steps:
        depth = max(written.get(step.source, -1) + 1, written.get(step.block, 0), read.get(step.block, 0))
        if depth == len(layers):
            layers.append({})
        terms = layers[depth].setdefault(step.block, {step.block: Fraction(1)})
        terms[step.source] = terms.get(step.source, Fraction(0)) + step.factor
        written[step.block] = max(depth, written.get(step.block, 0))
        read[step.source] = max(depth, read.get(step.source, 0))
    return layers


def unscrambled(held: Sequence[Mapping[int, Fraction]], places: Sequence[int]) -> tuple[Layer, ...]:
    """The step that returns every original block from its final place and factor to its own place; empty if none has moved."""
    ends = [(block, place, held[block][block]) for block, place in enumerate(places)]
    layer = {block: {place: 1 / factor} for block, place, factor in ends if place != block or factor != 1}
    return (layer,) if layer else ()


Shares = tuple[tuple[int, ...], ...]
"""For each operand the blocks of C lent to it, those free longest first."""


class ScratchSearch(StageSearch):
    """The search that uses the `blocks` blocks of C as temporaries until a product is written there.

    `fits` says for each operand whether its sums may stand in a block of C.
    """

    def __init__(
        self, sides: Sequence[OperandSide], outputs: Sequence[frozenset[int]], restores: bool, seed: int, fits: Sequence[bool], blocks: int
    ) -> None:
        super().__init__(sides, outputs, restores, seed)
        self.fits, self.blocks = tuple(fits), blocks
        most = max(1, blocks - min(map(len, outputs)))
        self.fewest = max(side.fewest_with(most * fit) for side, fit in zip(sides, fits, strict=True))

    def _first_partitions(self, number: int, effort: StageEffort) -> list[Partition]:
        """Orders filled at random, of these the ones without scratch if there are any, and of these the ones with the fewest stages.

        If an operand is kept there may be none (E559).
        """
        found = [] if any(side.kept and not side.spare for side in self.sides) else super()._first_partitions(number, effort)
        for _ in range(5 * number):
            if found and effort.is_over():
                break
            filled = self._filled()
            found += [filled] if filled else []
        if not found:
            message = "no order of the products was found in which the free blocks of C hold all sums of the operands that are kept"
            raise fail("E559", message, "allow a temporary")
        fewest = min(map(len, found))
        return [order for order in found if len(order) == fewest]

    def _filled(self) -> Partition:
        """Put the products, in random order, into stages that have room for them; empty if a product fits nowhere."""
        order: Partition = ()
        for product in self.generator.sample(range(self.products), self.products):
            joined = [(*order[:i], group | {product}, *order[i + 1 :]) for i, group in enumerate(order)]
            alone = [(*order[:i], frozenset({product}), *order[i:]) for i in range(len(order) + 1)]
            choices = list(filter(self._allows, joined)) or list(filter(self._allows, alone))
            if not choices:
                return ()
            order = self.generator.choice(choices)
        return order

    def _allows(self, order: Partition) -> bool:
        return all(order) and next(self._shares(order), None) is not None

    def _weigh(self, order: Partition, width: int, discount: float) -> WalkedPartition:
        candidates = []
        known: dict[tuple[OperandSide, tuple[int, ...]], OperandWalk] = {}
        for shares in dict.fromkeys(self._shares(order)):
            lent = tuple(self._capacities(order, share) for share in shares)
            for side, capacity in zip(self.sides, lent, strict=True):
                if (side, capacity) not in known:
                    known[side, capacity] = self._walk(side, order, width, discount, capacity)
            walks = tuple(known[pair] for pair in zip(self.sides, lent, strict=True))
            candidates.append(WalkedPartition(order, walks, sum(map(self._colours, order)), shares))
        return min(candidates, key=lambda c: c.cost)

    def _shares(self, order: Partition) -> Iterator[Shares]:
        """Ways to share the free blocks of C so that every stage has room: all to one operand, in turn, or by need."""
        ends = self._ends(order)
        free = sorted((block for block in range(self.blocks) if ends[block]), key=lambda block: -ends[block])
        needed = zip(*map(self.independence.needs, order), strict=True)
        missing = [[max(0, n - side.spare) for n in needs] for side, needs in zip(self.sides, needed, strict=True)]
        for shares in self._ways(free, ends, missing):
            lent = (self._capacities(order, share) for share in shares)
            if all(n <= room for needs, capacity in zip(missing, lent, strict=True) for n, room in zip(needs, capacity, strict=True)):
                yield shares

    def _ways(self, free: list[int], ends: list[int], missing: list[list[int]]) -> Iterator[Shares]:
        able = [number for number, fit in enumerate(self.fits) if fit]
        for number in able:
            yield tuple(tuple(free if i == number else ()) for i in range(len(self.sides)))
        if len(able) < 2:
            yield ((), ())
            return
        yield tuple(free[0::2]), tuple(free[1::2])
        yield tuple(free[1::2]), tuple(free[0::2])
        yield self._by_need(free, ends, missing)

    def _by_need(self, free: list[int], ends: list[int], missing: list[list[int]]) -> Shares:
        """Give every block to the operand that lacks one in the latest stage that the block can serve."""
        left = [list(needs) for needs in missing]
        shares: list[list[int]] = [[], []]
        for block in free:
            served = range(ends[block])
            side = max((0, 1), key=lambda i: ([left[i][stage] for stage in reversed(served)], -len(shares[i])))
            shares[side].append(block)
            for stage in served:
                left[side][stage] -= left[side][stage] > 0
        return tuple(map(tuple, shares))

    def _ends(self, order: Partition) -> list[int]:
        """For each block of C, the number of stages before its first product."""
        return [
            next((stage for stage, group in enumerate(order) if any(block in self.outputs[p] for p in group)), len(order))
            for block in range(self.blocks)
        ]

    def _capacities(self, order: Partition, share: tuple[int, ...]) -> tuple[int, ...]:
        """The number of these blocks that are free in each stage."""
        ends = self._ends(order)
        return tuple(sum(ends[block] > stage for block in share) for stage in range(len(order)))


def write_schedule(
    scheme: Scheme,
    order: Partition,
    walks: tuple[OperandWalk, OperandWalk],
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
    scheme: Scheme, products: Sequence[int], places: tuple[Sequence[int], Sequence[int]], runs: tuple[ReplayRun, ReplayRun], number: int
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


def _linear_stages(left: ReplayRun, right: ReplayRun, number: int, *, restores: bool) -> Iterator[LinearStage]:
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
