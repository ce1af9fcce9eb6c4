"""Exact replay of walks: residues become fractions, moves become layers of simultaneous steps, and block contents are tracked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from bilinear.ir.linear import Form
from bilinear.ir.number import rational, residue
from bilinear.ir.schedule import Block
from bilinear.scheduling.in_place.stages import PRIME
from bilinear.scheduling.in_place.walks import Move, Walk

Terms = dict[int, Fraction]
"""A form: coefficients by block."""
Layer = dict[int, Terms]
"""Simultaneous steps: for each block written, its new value over the old ones."""


@dataclass(frozen=True)
class Step:
    """One block addition: block += factor * source."""

    block: int
    source: int
    factor: Fraction


@dataclass(frozen=True)
class Run:
    """A walk on one operand, exactly: the steps and layers before each stage, and the contents of the blocks at each stage.

    The last blocks are the temporaries.
    """

    blocks: tuple[Block, ...]
    steps: tuple[tuple[Step, ...], ...]
    layers: tuple[tuple[Layer, ...], ...]
    held: tuple[tuple[Mapping[int, Fraction], ...], ...]


def temporaries_of(walk: Walk) -> int:
    """The number of temporaries that a walk fills."""
    return max((temporary + 1 for spills in walk.spilled for temporary, _ in spills), default=0)


def replay(blocks: tuple[Block, ...], walk: Walk, stages: Sequence[Sequence[Form]]) -> Run:
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
    return Run(blocks, tuple(exact.steps), tuple(layers), tuple(exact.held))


def _regrouped(rows: list[Terms], like: Sequence[Sequence[Terms]]) -> list[list[Terms]]:
    remaining = iter(rows)
    return [[next(remaining) for _ in group] for group in like]


class _Replay:
    """The contents of blocks and temporaries, and the wanted forms in terms of them, during a walk."""

    def __init__(self, own: int, contents: list[Terms]) -> None:
        self.own, self.contents = own, contents
        self.steps: list[tuple[Step, ...]] = []
        self.layers: list[tuple[Layer, ...]] = []
        self.held: list[tuple[Terms, ...]] = []

    def visit(self, walk: Walk, number: int, moves: Sequence[Move], wanted: list[Terms], size: int) -> None:
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

    def _step(self, move: Move, wanted: list[Terms], size: int) -> Step:
        """The move with its exact factor: the quotient of two entries in a row of the stage, so that one entry becomes zero."""
        rows = [row for row in wanted[:size] if row.get(move.source) and row.get(move.block)]
        factor = _fraction(move.factor, (row[move.source] / row[move.block] for row in rows))
        for row in wanted:
            if move.block in row:
                row[move.source] = row.get(move.source, Fraction(0)) - factor * row[move.block]
                if not row[move.source]:
                    del row[move.source]
        self.contents[move.block] = _sum({move.block: Fraction(1), move.source: factor}, self.contents)
        return Step(move.block, move.source, factor)

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


def packed(steps: Iterable[Step]) -> list[Layer]:
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
