"""The search for the fewest edits that make a schedule correct.

A schedule is tried as numbers modulo a prime first: random numbers for the blocks of A and of B, and weights of those of C. Products are
forms over A times forms over B in this order, so that blocks which commute hide nothing. What the steps on A, the steps on B, and the
targets of products give are three factors of one sum, as in a scheme; an operand that is promised back must be back. What passes is proved.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from math import comb

import numpy as np

from bilinear.errors import BilinearError
from bilinear.explain.repair.edits import KINDS
from bilinear.explain.repair.join import PRIME, Array, Join, Side, has_residue, residue
from bilinear.explain.repair.step_edits import StepEdit, step_edits
from bilinear.explain.repair.steps import LinearStep, ProductStep, Step, Steps, read_steps
from bilinear.ir.schedule import AnySchedule, Block, Schedule
from bilinear.ir.scheme import Scheme
from bilinear.source import Span
from bilinear.verify.schedule import prove_schedule

SIDES = ("A", "B", "C")
MOST_EDITS = 3
MOST_ON_ONE_SIDE = 2
MOST_SETS = 80_000
"""Combinations of edits of one side that are run."""
MOST_WORK = 20_000_000
MOST_PROVED = 40
MOST_STEPS = 50_000
"""Steps that could stand in place of another."""

Repair = tuple[StepEdit, ...]


def search_schedule_repairs(schedule: AnySchedule, scheme: Scheme) -> tuple[tuple[Repair, ...], int, int]:
    """The repairs of the fewest edits, the closest to the text first; how many there are; up to how many edits all were tried.

    At most three edits are combined, two of them on one of A, B and the targets. Every repair that is returned is proved.
    """
    steps = read_steps(schedule)
    if steps is None or not _has_residues(steps) or _too_many(steps):
        return (), 0, 0
    trial = _Trial(steps)
    tried = 0
    for size in range(1, MOST_EDITS + 1):
        splits = [s for s in product(range(MOST_ON_ONE_SIDE + 1), repeat=3) if sum(s) == size]
        if not all(trial.affordable(split) for split in splits):
            break
        found = [_ordered(hit) for split in splits for hit in trial.hits(split)]
        if size == 1:
            found += [(edit,) for edit in trial.missing_products()]
        sound, count = _proved(steps, scheme, sorted(found, key=_closeness))
        if sound:
            return sound, count, tried
        tried = size if size <= MOST_ON_ONE_SIDE else tried
    return (), 0, tried


def _proved(steps: Steps, scheme: Scheme, ordered: Sequence[Repair]) -> tuple[tuple[Repair, ...], int]:
    """The repairs that are proved, and how many there are; of those that give one schedule only the first counts."""
    different: dict[Schedule, Repair] = {}
    for repair in ordered[:MOST_PROVED]:
        repaired = with_step_edits(steps, repair)
        if repaired not in different and _holds(repaired, scheme):
            different[repaired] = repair
    return tuple(different.values()), len(different) + max(0, len(ordered) - MOST_PROVED)


def _holds(schedule: Schedule, scheme: Scheme) -> bool:
    try:
        return prove_schedule(schedule, scheme).holds
    except BilinearError:  # too large: no repair that anybody could prove
        return False


def with_step_edits(steps: Steps, edits: Sequence[StepEdit]) -> Schedule:
    """The schedule after some edits."""
    return Steps(steps.schedule, _edited(steps, edits)).build()


def _edited(steps: Steps, edits: Sequence[StepEdit]) -> tuple[tuple[Step, ...], ...]:
    stages: list[list[Step | None]] = [list(stage) for stage in steps.stages]
    for edit in edits:
        if edit.number < len(steps.stages[edit.stage]):
            stages[edit.stage][edit.number] = edit.new
        else:
            stages[edit.stage].append(edit.new)
    return tuple(tuple(step for step in stage if step is not None) for stage in stages)


def _ordered(repair: Repair) -> Repair:
    return tuple(sorted(repair, key=lambda e: (e.stage, e.number, _start(e.span))))


def _closeness(repair: Repair) -> tuple[object, ...]:
    kinds = tuple(sorted((KINDS.index(e.kind) for e in repair), reverse=True))
    return kinds, tuple((e.stage, e.number, _start(e.span), e.text) for e in repair)


def _start(span: Span | None) -> int:
    return span.start if span is not None else 0


def _has_residues(steps: Steps) -> bool:
    terms = [t for stage in steps.stages for s in stage for t in (s.terms if isinstance(s, LinearStep) else s.targets)]
    return all(has_residue(c) for _, c in terms)


def _too_many(steps: Steps) -> bool:
    blocks = max(len(space.blocks) for space in steps.schedule.spaces)
    written = sum(len(stage) + 1 for stage in steps.stages)
    return 2 * blocks * blocks * written > MOST_STEPS


class _Trial:
    """Runs of edited steps on one random point."""

    def __init__(self, steps: Steps) -> None:
        schedule, generator = steps.schedule, random.Random(len(steps.stages))
        self.steps = steps
        self.start = {block: generator.randrange(1, PRIME) for space in schedule.spaces for block in space.blocks}
        self.pools = {side: [e for e in step_edits(steps) if e.side == side] for side in SIDES}
        cells = product(range(schedule.m), range(schedule.n), range(schedule.k))
        terms = [(Block("C", i, j), Block("A", i, p), Block("B", p, j)) for i, j, p in cells]
        self.wanted: dict[Block, int] = {}
        for c, a, b in terms:
            self.wanted[c] = (self.wanted.get(c, 0) + self.start[a] * self.start[b]) % PRIME
        self.target = sum(self.start[c] * value for c, value in self.wanted.items()) % PRIME
        self.known: dict[tuple[str, int], Side] = {}

    def affordable(self, split: Sequence[int]) -> bool:
        """Whether all combinations of so many edits on the three sides can be tried."""
        if any(comb(len(self.pools[side]), size) > MOST_SETS for side, size in zip(SIDES, split, strict=True)):
            return False
        return Join(self.sides(split), self.target).work <= MOST_WORK

    def hits(self, split: Sequence[int]) -> Iterator[Repair]:
        """The combinations that give the right number and bring back what is promised."""
        sides = self.sides(split)
        if not all(len(side.sets) for side in sides):
            return
        for chosen in Join(sides, self.target).hits():
            repair = tuple(self.pools[s.table][e] for s, i in zip(sides, chosen, strict=True) for e in s.sets[i])
            if _apart(repair):
                yield repair

    def sides(self, split: Sequence[int]) -> list[Side]:
        """The combinations of edits of the three sides, the shortest first."""
        return sorted((self.side(name, size) for name, size in zip(SIDES, split, strict=True)), key=lambda side: len(side.sets))

    def side(self, name: str, size: int) -> Side:
        """The combinations of `size` edits of a side that bring back what is promised, and the factor of each product."""
        if (name, size) not in self.known:
            pool = self.pools[name]
            chosen = [s for s in combinations(range(len(pool)), size) if _apart([pool[i] for i in s])]
            sets = np.array(chosen, dtype=np.int64).reshape(len(chosen), size)
            values, back = self.run(name, sets)
            written, _ = self.run(name, np.zeros((1, 0), dtype=np.int64))
            self.known[name, size] = Side(name, sets[back], values[back], written[0])
        return self.known[name, size]

    def run(self, name: str, sets: Array) -> tuple[Array, Array]:
        """For combinations of edits of a side: the factor of each product, (sets, products), and whether what is promised comes back."""
        edited: dict[tuple[int, int], list[tuple[Step | None, Array]]] = {}
        for number in np.unique(sets):
            edit = self.pools[name][number]
            edited.setdefault((edit.stage, edit.number), []).append((edit.new, np.flatnonzero((sets == number).any(axis=1))))
        everywhere = np.arange(len(sets))
        state = {block: np.full(len(sets), value) for block, value in self.original(name).items()}
        factors = []
        for stage, steps in enumerate(self.steps.stages):
            after = {block: value.copy() for block, value in state.items()}
            for number in range(len(steps) + 1):
                others = edited.get((stage, number), [])
                untouched = np.delete(everywhere, np.concatenate([which for _, which in others])) if others else everywhere
                variants = [(steps[number] if number < len(steps) else None, untouched), *others]
                if number < len(steps) and isinstance(steps[number], ProductStep):
                    factors.append(self.factor(name, state, variants, len(sets)))
                _update(name, state, after, variants)
            state = after
        back = np.ones(len(sets), dtype=bool)
        if name in self.steps.schedule.restores:
            back = np.logical_and.reduce([state[block] == value for block, value in self.original(name).items()])
        return np.stack(factors, axis=1) if factors else np.zeros((len(sets), 0), dtype=np.int64), back

    def factor(self, name: str, state: dict[Block, Array], variants: Sequence[tuple[Step | None, Array]], count: int) -> Array:
        """What a product takes from a side: the value of its operand, or the weight of its targets."""
        values = np.zeros(count, dtype=np.int64)
        for step, which in variants:
            if isinstance(step, ProductStep) and name == "C":
                values[which] = sum(residue(c) * self.start[block] for block, c in step.targets) % PRIME
            elif isinstance(step, ProductStep):
                values[which] = state[step.left if name == "A" else step.right][which]
        return values

    def original(self, name: str) -> dict[Block, int]:
        """The blocks of an operand as they are given."""
        return {block: self.start[block] for block in self.steps.schedule.space(name).blocks}

    def before(self, stage: int, name: str) -> dict[Block, int]:
        """The blocks of an operand before a stage."""
        state = self.original(name)
        for steps in self.steps.stages[:stage]:
            state |= _updates(steps, name, state)
        return state

    def edited(self, edits: Sequence[StepEdit]) -> list[list[Step | None]]:
        """The stages after some edits; a product that is left out stays as None on the side of its targets."""
        stages: list[list[Step | None]] = [list(stage) for stage in self.steps.stages]
        for edit in edits:
            stages[edit.stage][edit.number : edit.number + 1] = [edit.new]
        return stages

    def missing_products(self) -> Iterator[StepEdit]:
        """A product of two current blocks that gives, with signs, just what the blocks of C lack."""
        lacking = self.lacking()
        if lacking is None:
            return
        for number, stage in enumerate(self.steps.stages):
            if not stage or not isinstance(stage[0], ProductStep):
                continue
            for left, right in product(*(self.steps.schedule.space(name).blocks for name in "AB")):
                targets = self.missing_targets(number, left, right, lacking)
                if targets:
                    yield _added_product(self.steps, number, ProductStep(left, right, targets))

    def lacking(self) -> dict[Block, int] | None:
        """What each block of C lacks; None where an operand does not come back though that is promised."""
        unedited = np.zeros((1, 0), dtype=np.int64)
        (left, back), (right, also) = self.run("A", unedited), self.run("B", unedited)
        if not (back.all() and also.all()):
            return None
        lacking = dict(self.wanted)
        steps = [step for stage in self.steps.stages for step in stage if isinstance(step, ProductStep)]
        for step, x, y in zip(steps, left[0].tolist(), right[0].tolist(), strict=True):
            for block, c in step.targets:
                lacking[block] = (lacking[block] - residue(c) * x * y) % PRIME
        return lacking

    def missing_targets(self, stage: int, left: Block, right: Block, lacking: dict[Block, int]) -> tuple[tuple[Block, int], ...]:
        """The targets of a missing product of these blocks in a stage, if it gives all that is lacking."""
        x, y = self.before(stage, "A")[left], self.before(stage, "B")[right]
        value = x * y % PRIME
        signs = {0: 0, value: 1, (-value) % PRIME: -1}
        found = [(block, signs.get(amount)) for block, amount in sorted(lacking.items())]
        if any(sign is None for _, sign in found):
            return ()
        return tuple((block, sign) for block, sign in found if sign)


def _updates(stage: Sequence[Step], name: str, state: dict[Block, int]) -> dict[Block, int]:
    """What the linear steps of a stage write to an operand."""
    linear = [step for step in stage if isinstance(step, LinearStep) and step.side == name]
    return {step.target: sum(residue(c) * state[block] for block, c in step.terms) % PRIME for step in linear}


def _update(name: str, state: dict[Block, Array], after: dict[Block, Array], variants: Sequence[tuple[Step | None, Array]]) -> None:
    """Write a linear step, or what stands for it in some of the combinations."""
    for step, which in variants:
        if isinstance(step, LinearStep) and step.side == name:
            after[step.target][which] = sum(residue(c) * state[block][which] for block, c in step.terms) % PRIME


def _apart(edits: Sequence[StepEdit]) -> bool:
    """Whether no two edits rewrite one step."""
    return len({(e.stage, e.number) for e in edits}) == len(edits)


def _added_product(steps: Steps, stage: int, new: ProductStep) -> StepEdit:
    targets = ", ".join(f"-{block}" if c == -1 else str(block) for block, c in new.targets)
    shown = f"{targets} += {new.left} * {new.right}"
    last = steps.stages[stage][-1].span
    patches = ((last.end, last.end, f" ; {shown}"),) if last is not None else ()
    text = f"adding {shown} to stage {stage + 1}"
    return StepEdit("step", "C", stage, len(steps.stages[stage]), new, text, f"add {shown}", last, patches)
