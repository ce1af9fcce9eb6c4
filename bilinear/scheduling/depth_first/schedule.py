"""Turn an order of products into a schedule: every value gets a place, and the places get memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from bilinear.analysis.block_maps import relabel_stage
from bilinear.ir.linear import Form, LinearMap, form
from bilinear.ir.number import Coefficient, exact, rational
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Product, ProductStage, Schedule, Space, Stage, Target
from bilinear.ir.scheme import Scheme
from bilinear.scheduling.depth_first.orders import OrderMove
from bilinear.scheduling.depth_first.scaling import HeldFactors
from bilinear.scheduling.depth_first.sums import Adding, Results, SumPlaces, blocks_of_c, members, merged, workspaces_of


@dataclass
class _ScheduleWriter:
    """A schedule under construction, over places."""

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

    writer: _ScheduleWriter
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
        self.number[total] = self._step(self._sum(total))
        return {self.number[total]: 1}

    def _step(self, row: dict[Block | int, Coefficient]) -> int:
        self.steps.append(row)
        return len(self.steps) - 1

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
        if self._is_direct(total):
            held |= 1 << self.product
        for term in members(results.absorbed(total, *after) & ~held):
            self._add(terms, term, results.terms[total][term])
        return terms

    def _is_direct(self, total: int) -> bool:
        return self.product not in self.values and bool(self.writer.results.needs[total] >> self.product & 1)

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
    writer = _ScheduleWriter(scheme, factors, results, accumulate)
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
