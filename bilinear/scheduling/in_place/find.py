"""In-place schedules for any scheme: C += A*B with sums formed in A and B themselves, nothing allocated, and A and B restored.

Every bilinear program can run this way, one product at a time (Dumas, Grenet, "In-place accumulation of fast multiplication formulae",
ISSAC 2024). Here products run in stages as wide as the blocks allow: the left forms of a stage stand in different blocks of A at once, the
right ones in blocks of B, so each product may recurse in place. The search minimizes the number of stages first, then block additions, then
traffic (blocks that fused linear stages move).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from bilinear.analysis.block_maps import over_blocks
from bilinear.errors import fail
from bilinear.ir.linear import Form, transposed_rows
from bilinear.ir.number import exact, rational, residue
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Product, ProductStage, Schedule, Space, Stage, Target
from bilinear.ir.scheme import Scheme, block_name
from bilinear.lowering.prepare import require_rationals
from bilinear.passes.order_products import colour_products
from bilinear.scheduling.in_place.partitions import Partition, ScratchSearch, StageEffort, StageProgress, StageSearch
from bilinear.scheduling.in_place.walks import PRIME, BlockAddition, OperandSide, OperandWalk, Row, is_sum

Terms = dict[int, Fraction]  # A form: coefficients by block.
Layer = dict[int, Terms]  # Simultaneous steps: for each block written, its new value over the old ones.


@dataclass(frozen=True)
class ReplayStep:
    """One block addition: block += factor * source."""

    block: int
    source: int
    factor: Fraction


@dataclass(frozen=True)
class ReplayRun:
    """A walk on one operand, exactly: steps, and layers before and contents of blocks (temporaries last) at each stage."""

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
        remaining = iter(wanted)
        goals[number:] = [[next(remaining) for _ in group] for group in goals[number:]]
    layers = [*exact.layers]
    if walk.restores:
        ends = [(block, place, exact.held[-1][block][block]) for block, place in enumerate(walk.places[-1])]
        layer = {block: {place: 1 / factor} for block, place, factor in ends if place != block or factor != 1}
        layers[-1] += (layer,) if layer else ()
    return ReplayRun(blocks, tuple(exact.steps), tuple(layers), tuple(exact.held))


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
        products = _products(scheme, sorted(group), places, (left, right), number)
        stages.append(ProductStage(tuple(sorted(products, key=lambda product: -len(product.targets)))))
    if restores:
        stages += _linear_stages(left, right, len(order), restores=True)
    used = tuple(space for space in workspaces if space.rows)
    written = {target.space for stage in stages if isinstance(stage, LinearStage) for m in stage.maps for target in m.targets}
    promise = tuple(name for name in ("A", "B") if restores or name not in written)
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
    return over_blocks([(blocks[target], [(blocks[s], exact(c)) for s, c in layer[target].items()]) for target in sorted(layer)])


def find_in_place(
    scheme: Scheme,
    *,
    consume: bool = False,
    keep: Collection[str] = (),
    temporaries: int = 0,
    overwrite: bool = False,
    scratch: Collection[str] = ("A", "B"),
    few_launches: bool = False,
    effort: int = 1,
    seconds: float = math.inf,
    seed: int = 0,
    progress: Callable[[StageProgress], None] = lambda _: None,
) -> Schedule:
    """Find an in-place schedule of one level for a scheme over Z or Q: few product stages, then few additions, then little traffic.

    `consume` leaves A and B undefined; operands in `keep` are never written, not even for a moment. Up to `temporaries` blocks for sums of
    A, and as many for sums of B, are allocated if they help; such a schedule does not recurse in place. With `overwrite` it computes C =
    alpha*A*B, and blocks of C hold sums of the operands in `scratch` until a product is written there; the proof states the shape that this
    requires (K/k = N/n for sums of A, M/m = K/k for sums of B). `few_launches` minimizes the launches of products before the stages, for
    C += A*B: no two products of a launch add to one block of C. The result depends only on `seed`; `effort` multiplies the number of
    candidates, and `seconds` ends the search early with the best so far. Raises `BilinearError`: E551 if a coefficient is not rational,
    E552 and E559 if an operand cannot be kept, E553 and E560 if an option is invalid.
    """
    _check_options(keep, scratch, temporaries, effort)
    if few_launches and overwrite:
        raise fail("E553", "few launches are searched for where products add to C, and C is overwritten", "leave out one of the two")
    tables = rational_tables(scheme)
    for name, rows in zip("AB", tables, strict=False):
        if name in keep and not temporaries and not (overwrite and name in scratch):
            _check_kept(scheme, name, rows)
    useful = [p for p, forms in enumerate(zip(*tables, strict=True)) if all(forms)]  # the products that are not zero and are used
    sides = [
        OperandSide(residues([rows[p] for p in useful], size), size, temporaries, name in keep)
        for name, rows, size in zip("AB", tables, (scheme.m * scheme.k, scheme.k * scheme.n), strict=False)
    ]
    outputs = [frozenset(i for i, _ in tables[2][p]) for p in useful]
    search = StageSearch(sides, outputs, not consume, seed, few_launches)
    if overwrite:
        search = ScratchSearch(sides, outputs, not consume, seed, ("A" in scratch, "B" in scratch), scheme.m * scheme.n)
    size = scheme.rank * max(side.blocks for side in sides)
    finalists, width = (4, 32) if size < 500 else (2, 8)
    best = search.run(StageEffort(effort * max(60, min(600, 150_000 // size)), finalists, width, time.monotonic() + seconds), progress)
    order = tuple(frozenset(useful[i] for i in group) for group in best.order)
    return write_schedule(scheme, order, (best.walks[0], best.walks[1]), not consume, temporaries, best.lent)


def rational_tables(scheme: Scheme) -> tuple[tuple[Form, ...], tuple[Form, ...], tuple[Form, ...]]:
    """U, V and the columns of W: three forms a product. Schemes over other rings than Z and Q are refused (E551)."""
    u, v, w = scheme.tables
    require_rationals(scheme, "E551", "in-place schedules", "take a scheme with rational coefficients, or write the schedule by hand")
    return u, v, transposed_rows(w, scheme.rank)


def residues(rows: Sequence[Form], blocks: int) -> tuple[Row, ...]:
    """Forms as dense rows of residues."""
    table = []
    for row in rows:
        dense = [0] * blocks
        for index, coefficient in row:
            dense[index] = residue(coefficient, PRIME)
        table.append(tuple(dense))
    return tuple(table)


def _check_options(keep: Collection[str], scratch: Collection[str], temporaries: int, effort: int) -> None:
    if unknown := sorted(set(keep) - {"A", "B"}):
        raise fail("E553", f"keep={unknown[0]!r}: A and B are the operands that can be kept")
    if temporaries < 0 or effort < 1:
        raise fail("E553", f"temporaries={temporaries}, effort={effort}: at least 0 and at least 1 are possible")
    if unknown := sorted(set(scratch) - {"A", "B"}):
        raise fail("E560", f"scratch={unknown[0]!r}: blocks of C may hold sums of A and of B")


def _check_kept(scheme: Scheme, name: str, rows: Sequence[Form]) -> None:
    """Refuse to keep an operand whose sums have no place (E552)."""
    columns = scheme.k if name == "A" else scheme.n
    for product, row in zip(scheme.products, residues(rows, (scheme.m if name == "A" else scheme.k) * columns), strict=True):
        if is_sum(row):
            terms = " and ".join(block_name(name, *divmod(i, columns)) for i, x in enumerate(row) if x)
            note = f"{product} multiplies a sum of {terms}, and without temporaries it has no place but {name}"
            raise fail("E552", f"{scheme.name} cannot run with {name} never written", "allow a temporary", notes=(note,))
