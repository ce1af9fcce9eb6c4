"""Depth-first schedules for any scheme: one product at a time, A and B never written, as few temporaries as possible.

C = alpha*A*B is computed in the blocks of C, which hold products and partial sums until their own value is complete. Every product is
written to a single block, so the same schedule can compute it, level by level. For Winograd's scheme two temporaries suffice (Boyer, Dumas,
Pernet, Zhou, "Memory efficient scheduling of Strassen-Winograd's matrix multiplication algorithm", ISSAC 2009).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from bilinear.analysis.block_maps import relabel_stage
from bilinear.errors import fail
from bilinear.ir.linear import Form, LinearMap, form
from bilinear.ir.number import Coefficient, exact, rational
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Product, ProductStage, Schedule, Space, Stage, Target
from bilinear.ir.scheme import Scheme
from bilinear.lowering.place import stage_uses
from bilinear.lowering.prepare import require_rationals
from bilinear.passes.order_products import mark_first_writes
from bilinear.scheduling.depth_first.orders import (
    Adding,
    HeldFactors,
    OrderEffort,
    OrderMove,
    OrderProgress,
    OrderSearch,
    Results,
    members,
    with_shared_sums,
)
from bilinear.scheduling.scaling import memories

__all__ = ["DepthFirst", "OrderProgress", "find_depth_first"]

NARROW = 8  # The beam width after the time limit.
MOST_SHARED = 100  # In schemes of at most this many products, repeated pairs of products are shared.


@dataclass(frozen=True)
class DepthFirst:
    """A schedule of one level and its costs.

    `temporaries` counts the blocks alive at once in addition to A, B and C; `fewest` is a lower bound for schedules of this kind.
    `additions` are those of linear stages; adding a product to a block as it is computed costs none. `traffic` counts the blocks that
    linear stages read and write.
    """

    schedule: Schedule
    temporaries: int
    fewest: int
    additions: int
    traffic: int

    def __str__(self) -> str:
        proved = "no fewer are possible" if self.temporaries == self.fewest else f"at least {self.fewest} are needed"
        blocks = f"{self.temporaries} temporar{'y' if self.temporaries == 1 else 'ies'} ({proved})"
        return f"{blocks}, {self.additions} additions, {self.traffic} blocks moved"


def find_depth_first(
    scheme: Scheme,
    *,
    accumulate: bool = False,
    directly: bool = False,
    temporaries: int = 0,
    effort: int = 1,
    seed: int = 0,
    seconds: float | None = None,
    progress: Callable[[OrderProgress], None] = lambda _: None,
) -> DepthFirst:
    """Find a schedule with one product a stage for a scheme over Z or Q: few temporaries, then few additions, then little traffic.

    With `accumulate` it computes C = alpha*A*B + beta*C. Every product is written to one block, so an overwriting schedule may run it. With
    `directly`, a product that only one sum needs is added to that sum as it is computed; an accumulating schedule must run it.
    `temporaries` are allowed in any case; more than necessary save additions. `effort` multiplies the number of states that the search
    keeps. The result depends only on `seed`, unless `seconds` ends the search: then a quick, narrow search finishes it. Raises
    `BilinearError`: E556 if a coefficient is not rational, E558 if an option is invalid.
    """
    if temporaries < 0 or effort < 1:
        raise fail("E558", f"temporaries={temporaries}, effort={effort}: at least 0 and at least 1 are possible")
    if seconds is not None and not seconds > 0:
        raise fail("E558", f"seconds={seconds}: a search needs some time")
    u, v, w = _rational_maps(scheme)
    factors = HeldFactors(u), HeldFactors(v)
    searches = [OrderSearch(factors, Results(program, accumulate), scheme.m * scheme.n, directly) for program in _programs(w)]
    wide = OrderEffort(effort * max(16, min(300, 60_000 // scheme.rank**2)), math.inf if seconds is None else time.monotonic() + seconds)
    allowed = max(searches[0].fewest, temporaries)
    while True:
        was_over = wide.is_over()
        limit = OrderEffort(NARROW) if was_over else wide
        orders = [(search, search.run(allowed, limit, seed, progress)) for search in searches]
        found = [_depth_first(scheme, search, moves, accumulate) for search, moves in orders if moves is not None]
        if found:
            return min(found, key=lambda d: (d.temporaries, d.additions, d.traffic))
        allowed += was_over or not wide.is_over()


def _depth_first(scheme: Scheme, search: OrderSearch, moves: Sequence[OrderMove], accumulate: bool) -> DepthFirst:
    """The schedule that runs these moves, and its costs; a map that adds to C also reads it."""
    schedule = mark_first_writes(write_moves(scheme, search.factors, search.results, moves, accumulate))
    additions = traffic = 0
    for m in (m for stage in schedule.stages if isinstance(stage, LinearStage) for m in stage.maps):
        added = sum(map(bool, m.kept))
        additions += m.map.additions + added
        traffic += len(set(m.sources)) + len(m.targets) + added
    return DepthFirst(schedule, len(memories(schedule)), search.fewest, additions, traffic)


def _programs(w: LinearMap) -> Iterator[LinearMap]:
    """The candidate programs for adding up products: as the author wrote them, and with repeated pairs shared."""
    yield w
    plain = LinearMap(w.inputs, w.matrix)
    if plain != w:
        yield plain
    if w.inputs <= MOST_SHARED and (shared := with_shared_sums(plain)) not in (w, plain):
        yield shared


def _rational_maps(scheme: Scheme) -> tuple[tuple[Form, ...], tuple[Form, ...], LinearMap]:
    """U and V as tables and W as written, without products that are zero. Schemes over other rings than Z and Q are refused (E556)."""
    require_rationals(scheme, "E556", "depth-first schedules", "take a scheme with rational coefficients")
    u, v, w = scheme.tables
    zero = {p for p, forms in enumerate(zip(u, v, strict=True)) if not all(forms)}
    if scheme.bases is None and not zero:
        return u, v, scheme.w
    return u, v, LinearMap(scheme.rank, tuple(tuple((p, c) for p, c in row if p not in zero) for row in w))


PLACE = "?"  # The space of places.
LETTERS = {"A": "X", "B": "Y", "C": "P"}  # The first letter of a workspace's name, by its shape.


@dataclass
class SumPlaces:
    """The shape of each place (the operand whose blocks have its size), and whether it lies in C. Places are numbered by their rows."""

    shapes: list[str] = field(default_factory=list)
    inside: list[bool] = field(default_factory=list)

    def new(self, shape: str, inside: bool = False) -> Block:
        """A new place."""
        self.shapes.append(shape)
        self.inside.append(inside)
        return Block(PLACE, len(self.shapes) - 1, 0)

    def is_beside(self, place: Block) -> bool:
        """True if the place lies outside C."""
        return not self.inside[place.row]


def merged(stages: Sequence[Stage], places: SumPlaces) -> tuple[Stage, ...]:
    """Merge the stage that sums factors into the preceding stage that sums products, if that costs no memory."""

    def shapes(stage: LinearStage) -> set[str]:
        return {places.shapes[m.targets[0].row] for m in stage.maps}

    together = tuple(stages)
    most = peak(together, places)
    for number in reversed(range(1, len(stages))):
        first, second = together[number - 1 : number + 1]
        if isinstance(first, LinearStage) and isinstance(second, LinearStage) and not shapes(first) & shapes(second):
            both = (*together[: number - 1], LinearStage(first.maps + second.maps), *together[number + 1 :])
            together = both if peak(both, places) <= most else together
    return together


def peak(stages: Sequence[Stage], places: SumPlaces) -> int:
    """The most places outside C that are alive at once."""
    alive = [span for place, span in _spans(stages).items() if places.is_beside(place)]
    return max((sum(first // 2 <= number <= last // 2 for first, last in alive) for number in range(len(stages))), default=0)


def _spans(stages: Sequence[Stage]) -> dict[Block, tuple[int, int]]:
    """The first and last use of each place, in half stages: a stage reads first and writes second."""
    spans: dict[Block, tuple[int, int]] = {}
    for number, stage in enumerate(stages):
        for half, blocks in enumerate(stage_uses(stage, {PLACE})):
            for block in blocks:
                first, last = spans.get(block, (2 * number + half, 0))
                spans[block] = min(first, 2 * number + half), max(last, 2 * number + half)
    return spans


def blocks_of_c(stages: Sequence[Stage], places: SumPlaces, final: Mapping[Block, Block]) -> dict[Block, Block]:
    """A block of C for each place in C; a place that holds a result at the end gets that result's block."""
    spans = {place: span for place, span in _spans(stages).items() if not places.is_beside(place)}
    spans |= {place: (spans[place][0], 2 * len(stages)) for place in final}
    columns = _columns(spans, {})
    blocks = {columns[place]: block for place, block in final.items()}
    return {place: blocks[column] for place, column in columns.items()}


def workspaces_of(stages: Sequence[Stage], places: SumPlaces) -> tuple[dict[Block, Block], tuple[Space, ...]]:
    """A workspace of one block for each place outside C; a memory is one workspace for every shape that it holds."""
    spans = {place: (first // 2, last // 2) for place, (first, last) in _spans(stages).items() if places.is_beside(place)}
    columns = _columns(spans, {place: places.shapes[place.row] for place in spans})
    kinds = sorted({(places.shapes[place.row], column) for place, column in columns.items()})
    many = {shape for shape, _ in kinds if sum(shape == other for other, _ in kinds) > 1}
    numbers = {kind: sum(other[0] == kind[0] for other in kinds[:i]) for i, kind in enumerate(kinds)}
    names = {kind: LETTERS[kind[0]] + (_letters(numbers[kind]) if kind[0] in many else "") for kind in kinds}
    blocks = {place: Block(names[places.shapes[place.row], column], 0, 0) for place, column in columns.items()}
    return blocks, tuple(Space(names[kind], kind[0], 1, 1) for kind in kinds)


def _letters(number: int) -> str:
    """a, b, ..., z, aa, ...: letters, because nested levels append digits to workspace names."""
    return (_letters(number // 26 - 1) if number >= 26 else "") + chr(ord("a") + number % 26)


def _columns(spans: Mapping[Block, tuple[int, int]], kinds: Mapping[Block, str]) -> dict[Block, int]:
    """Number the places so that those alive at once differ: as few numbers as possible, shared by places of one kind."""
    ends: list[int] = []
    held: list[set[str]] = []
    columns: dict[Block, int] = {}
    for place, (first, last) in sorted(spans.items(), key=lambda item: (item[1], item[0])):
        free = [i for i, end in enumerate(ends) if end < first]
        kind = kinds.get(place, "")
        column = next((i for i in free if kind in held[i]), free[0] if free else len(ends))
        if column == len(ends):
            ends.append(last)
            held.append(set())
        ends[column] = last
        held[column].add(kind)
        columns[place] = column
    return columns


@dataclass
class _MoveWriter:
    scheme: Scheme
    factors: tuple[HeldFactors, HeldFactors]
    results: Results
    accumulate: bool
    stages: list[Stage] = field(default_factory=list)
    places: SumPlaces = field(default_factory=SumPlaces)
    lines: tuple[dict[int, Block], dict[int, Block]] = field(default_factory=lambda: ({}, {}))
    values: dict[int, tuple[Block, Fraction]] = field(default_factory=dict)
    """For every live value, its place and the multiple of it that the place holds."""
    done: int = 0

    def __post_init__(self) -> None:
        m, k, n = self.scheme.m, self.scheme.k, self.scheme.n
        self.operands = Space("A", "A", m, k).blocks, Space("B", "B", k, n).blocks
        if self.accumulate:
            self.values = {total: (self.places.new("C", True), Fraction(1)) for total in self.results.outputs}

    def run(self, move: OrderMove) -> None:
        """Emit the stages of one product: form its factors, multiply, and add up sums."""
        maps = tuple(self._formed(side, held, move.product) for side, held in enumerate((move.left, move.right)))
        self._linear(tuple(m for m in maps if m is not None))
        adding = self.results.adding(self.done, move.product, move.directly)
        self.stages.append(ProductStage((self._multiplied(move, adding),)))
        self._add_up(move, adding)
        self.done |= 1 << move.product

    def _linear(self, maps: tuple[BlockMap, ...]) -> None:
        if maps:
            self.stages.append(LinearStage(maps))

    def _formed(self, side: int, held: Sequence[int], product: int) -> BlockMap | None:
        """The map that forms a product's factor on one side if it is a sum that is not held; the sum it starts from is replaced or kept."""
        factors, lines = self.factors[side], self.lines[side]
        line = factors.line[product]
        made = None
        if line >= 0 and line not in lines:
            source, making = factors.best(line, sorted(lines))
            blocks = [self.operands[side][i] for i, _ in making.rest]
            terms: list[tuple[Block, Coefficient]] = [(block, c) for block, (_, c) in zip(blocks, making.rest, strict=True)]
            if source >= 0:
                terms.insert(0, (lines[source], exact(making.factor)))
            lines[line] = lines[source] if source >= 0 and source not in held else self.places.new("AB"[side])
            outputs = (form((i, c) for i, (_, c) in enumerate(terms)),)
            made = BlockMap(tuple(block for block, _ in terms), (lines[line],), LinearMap(len(terms), outputs))
        for other in [other for other in lines if other not in held]:
            del lines[other]
        return made

    def _multiplied(self, move: OrderMove, adding: Adding) -> Product:
        p = move.product
        blocks = [
            lines[f.line[p]] if f.line[p] >= 0 else own[f.block[p]]
            for f, lines, own in zip(self.factors, self.lines, self.operands, strict=True)
        ]
        scale = self.factors[0].scale[p] * self.factors[1].scale[p]
        if move.directly:
            (total,) = members(self.results.uses[p])
            place, factor = self.values[total]
            factor *= rational(self.results.terms[total][p])
        else:
            became = [total for total, value in adding.aliases.items() if value == p]
            place, factor = self.places.new("C", not move.beside), rational(self.results.terms[became[0]][p]) if became else Fraction(1)
            self.values[p] = (place, factor)
        return Product(blocks[0], blocks[1], (Target(place, exact(scale * factor), kept=int(move.directly)),))

    def _add_up(self, move: OrderMove, adding: Adding) -> None:
        """Write the sums that change and stay alive (others are intermediate steps), and values that move into C."""
        before = dict(self.values)
        for total, value in adding.aliases.items():
            place, factor = before[value]
            before[total] = place, factor / rational(self.results.terms[total][value])
        written = set(members(adding.computed & adding.live))
        written |= {v for v in members(adding.live) if v in before and self.places.is_beside(before[v][0]) and not move.places >> v & 1}
        if self.done | 1 << move.product == self.results.everything:
            written |= {total for total in self.results.outputs if total not in before or before[total][1] != 1}
        self._write(sorted(written), before, move, adding)
        self.values = {value: held for value, held in before.items() if adding.live >> value & 1}

    def _write(self, written: Sequence[int], values: dict[int, tuple[Block, Fraction]], move: OrderMove, adding: Adding) -> None:
        """The linear stage that writes these values; `values` gets their new places."""
        sums = _Sums(self, dict(values), adding.computed, move.product)
        rows = {total: sums.row(total) for total in written}
        taken = {values[total][0] for total in adding.aliases}
        dying = {place for v, (place, _) in values.items() if not adding.live >> v & 1 and place not in taken}
        dying |= {values[v][0] for v in written if v in values and not move.places >> v & 1}
        before = dict(values)
        targets: dict[int, Block] = {}
        for total in written:
            targets[total] = self._target(total, before, bool(move.places >> total & 1), dying)
            dying.discard(targets[total])
            values[total] = targets[total], Fraction(1)
        inner = [t for t in written if self.accumulate and t in self.results.outputs]
        others = [t for t in written if t not in inner]
        for kept, group in ((1, inner), (0, others)):
            if group:
                self._linear((sums.block_map([rows[t] for t in group], [targets[t] for t in group], kept),))

    def _target(self, total: int, values: Mapping[int, tuple[Block, Fraction]], beside: bool, dying: set[Block]) -> Block:
        """The place for a sum: its old place if it may stay, else that of a term that dies, else that of any dying value outside C."""
        if total in values and self.places.is_beside(values[total][0]) == beside:
            return values[total][0]
        free = {place for place in dying if self.places.is_beside(place) == beside}
        terms = {values[term][0] for term in self.results.terms.get(total, ()) if term in values}
        if free & terms or (free and beside):
            return min(free & terms or free)
        return self.places.new("C", not beside)


@dataclass
class _Sums:
    """The sums after one product, as forms over places and over each other; a sum that two others use is a step."""

    writer: _MoveWriter
    values: dict[int, tuple[Block, Fraction]]
    computed: int
    product: int
    steps: list[dict[Block | int, Coefficient]] = field(default_factory=list)
    number: dict[int, int] = field(default_factory=dict)

    def row(self, total: int) -> dict[Block | int, Coefficient]:
        """The terms to write for a sum: places and steps (by number) with their coefficients."""
        if total in self.number:
            return {self.number[total]: 1}
        users = self.writer.results.uses[total] & self.computed
        if not users:
            return self._sum(total)
        row = self._sum(total)  # which may append the steps that it reads
        self.steps.append(row)
        self.number[total] = len(self.steps) - 1
        return {self.number[total]: 1}

    def _sum(self, total: int) -> dict[Block | int, Coefficient]:
        """The held part and the new terms of a sum; for a product, its held value."""
        writer, results = self.writer, self.writer.results
        if not self.computed >> total & 1 and total in self.values:
            place, factor = self.values[total]
            return {place: exact(1 / factor)}
        after = results.state(writer.done, self.product)
        held = results.absorbed(total, *results.of(writer.done)) if total in self.values else 0
        terms: dict[Block | int, Coefficient] = {}
        if total in self.values and not (writer.accumulate and total in results.outputs):
            place, factor = self.values[total]
            terms[place] = exact(1 / factor)
        if self.product not in self.values and results.needs[total] >> self.product & 1:  # it was added directly
            held |= 1 << self.product
        for term in members(results.absorbed(total, *after) & ~held):
            self._add(terms, term, results.terms[total][term])
        return terms

    def _add(self, terms: dict[Block | int, Coefficient], value: int, coefficient: Coefficient) -> None:
        if self.computed >> value & 1:
            for key, c in self.row(value).items():
                terms[key] = terms.get(key, 0) + c * coefficient
            return
        place, factor = self.values[value]
        terms[place] = terms.get(place, 0) + exact(rational(coefficient) / factor)

    def block_map(self, rows: Sequence[Mapping[Block | int, Coefficient]], targets: Sequence[Block], kept: int) -> BlockMap:
        """The map that writes these rows, with the steps that they need; with `kept`, targets keep their old values."""
        needed = {key for row in rows for key in row if isinstance(key, int)}
        for number in reversed(range(len(self.steps))):
            if number in needed:
                needed |= {key for key in self.steps[number] if isinstance(key, int)}
        steps = [self.steps[number] for number in sorted(needed)]
        sources = sorted({key for row in (*steps, *rows) for key in row if isinstance(key, Block)})
        index: dict[Block | int, int] = {block: i for i, block in enumerate(sources)}
        index |= {number: len(sources) + i for i, number in enumerate(sorted(needed))}

        def numbered(row: Mapping[Block | int, Coefficient]) -> Form:
            return form((index[key], c) for key, c in row.items())

        linear = LinearMap(len(sources), tuple(map(numbered, rows)), tuple(map(numbered, steps)))
        return BlockMap(tuple(sources), tuple(targets), linear, (kept,) * len(targets))


def write_moves(
    scheme: Scheme, factors: tuple[HeldFactors, HeldFactors], results: Results, moves: Sequence[OrderMove], accumulate: bool
) -> Schedule:
    """The schedule of one level that runs these moves, one product a stage."""
    writer = _MoveWriter(scheme, factors, results, accumulate)
    for move in moves:
        writer.run(move)
    outputs = Space("C", "C", scheme.m, scheme.n).blocks
    final = {writer.values[total][0]: block for total, block in zip(results.outputs, outputs, strict=True)}
    stages = merged(writer.stages, writer.places)
    memories, workspaces = workspaces_of(stages, writer.places)
    names = blocks_of_c(stages, writer.places, final) | memories

    def named(block: Block) -> Block:
        return names.get(block, block)

    name = f"{scheme.name}-depth-first{'-adding' if accumulate else ''}"
    placed = tuple(relabel_stage(stage, named) for stage in stages)
    return Schedule(name, scheme.name, scheme.m, scheme.k, scheme.n, placed, workspaces, ring=scheme.ring)
