"""The search for the fewest edits that make a schedule correct.

A schedule is first tried as numbers modulo a prime: random numbers for the blocks of A and B, and random weights for those of C. Products
are forms over A times forms over B in this order, so commuting numbers hide nothing. The steps on A, the steps on B and the targets of
products give three factors of one sum, as in a scheme; promised operands must be restored. Candidates that pass are proved.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations, product
from math import comb

import numpy as np

from bilinear.errors import BilinearError
from bilinear.explain.repair.edits import KINDS, PRIME, Array, has_residue
from bilinear.explain.repair.join import Join, Side
from bilinear.explain.repair.step_edits import (
    StepEdit,
    WrittenForm,
    WrittenProduct,
    WrittenStep,
    WrittenSteps,
    added_step,
    read_steps,
    step_edits,
)
from bilinear.ir.number import residue
from bilinear.ir.schedule import AnySchedule, Block, Schedule
from bilinear.ir.scheme import Scheme
from bilinear.verify.hazards import find_hazards
from bilinear.verify.schedule import is_sound, schedule_holds

SIDES = ("A", "B", "C")
MOST_SETS = 80_000
"""The most combinations of edits of one side that are run."""
HIT, BUILT, PROVED_STEP = 1_500, 30_000, 60_000
"""The cost of a combination with the right number, of building its schedule, and of each step in proving it."""

StepEdits = tuple[StepEdit, ...]
UNEDITED: Array = np.zeros((1, 0), dtype=np.int64)
"""The combination of no edits."""


class RepairBudget:
    """The work that a search may still do. It is counted, not timed, so the search finds the same repairs on every machine."""

    def __init__(self, work: int) -> None:
        self.left = work
        self.looked = 0

    def take(self, work: int) -> bool:
        """Take this amount of work if it is left; otherwise nothing is left afterwards."""
        self.left = self.left - work if work <= self.left else 0
        return self.left > 0


class Trial:
    """Runs of edited steps on one random point."""

    def __init__(self, steps: WrittenSteps) -> None:
        schedule, generator = steps.schedule, random.Random(len(steps.stages))
        self.steps = steps
        self.start = {block: generator.randrange(1, PRIME) for space in schedule.spaces for block in space.blocks}
        every = sorted(step_edits(steps), key=lambda edit: KINDS.index(edit.kind))
        self.pools = {side: [e for e in every if e.side == side] for side in SIDES}
        hazards = ((number, find_hazards(number, stage, schedule)) for number, stage in enumerate(schedule.stages))
        self.unsound = {number for number, found in hazards if any(found)}
        """Stages whose own steps interfere: each of them needs a change."""
        self.wanted = {
            c: sum(self.start[Block("A", c.row, p)] * self.start[Block("B", p, c.column)] for p in range(schedule.k)) % PRIME
            for c in schedule.space("C").blocks
        }
        self.target = sum(self.start[c] * value for c, value in self.wanted.items()) % PRIME
        self.known: dict[tuple[str, int], Side] = {}

    def has_sets(self, split: Sequence[int]) -> bool:
        """True if there are few enough combinations of these numbers of edits on the three sides to run."""
        return all(comb(len(self.pools[side]), size) <= MOST_SETS for side, size in zip(SIDES, split, strict=True))

    def candidates(self, splits: Iterable[Sequence[int]], budget: RepairBudget) -> Iterator[StepEdits]:
        """Combinations of this many edits that restore the promised operands; splits with the least work come first."""
        joins = (Join(sides, self.target) for sides in map(self.sides, splits) if all(len(side.sets) for side in sides))
        for join in sorted(joins, key=lambda join: join.work):
            if not budget.take(join.work):
                return
            budget.looked += join.work
            sides = (join.first, join.second, join.third)
            for chosen in join.hits():
                if not budget.take(HIT):
                    return
                repair = tuple(self.pools[s.table][e] for s, i in zip(sides, chosen, strict=True) for e in s.sets[i])
                if _apart(repair) and self.unsound <= {edit.stage for edit in repair}:
                    yield tuple(sorted(repair, key=_place))

    def sides(self, split: Sequence[int]) -> list[Side]:
        """The combinations of edits of the three sides, the shortest first."""
        return sorted((self.side(name, size) for name, size in zip(SIDES, split, strict=True)), key=lambda side: len(side.sets))

    def side(self, name: str, size: int) -> Side:
        """The combinations of `size` edits of a side that restore the promised operand, and the factor of each product."""
        if (name, size) not in self.known:
            pool = self.pools[name]
            chosen = [s for s in combinations(range(len(pool)), size) if _apart([pool[i] for i in s])]
            sets = np.array(chosen, dtype=np.int64).reshape(len(chosen), size)
            values, back, _ = self.run(name, sets)
            written, _, _ = self.run(name, UNEDITED)
            self.known[name, size] = Side(name, sets[back], values[back], written[0])
        return self.known[name, size]

    def run(self, name: str, sets: Array) -> tuple[Array, Array, list[dict[Block, Array]]]:
        """For combinations of edits of a side.

        The factor of each product (sets, products), whether the promised operand is restored, and its blocks before each stage.
        """
        edited: dict[tuple[int, int], list[tuple[WrittenStep | None, Array]]] = {}
        for number in np.unique(sets):
            edit = self.pools[name][number]
            edited.setdefault((edit.stage, edit.number), []).append((edit.new, np.flatnonzero((sets == number).any(axis=1))))
        everywhere = np.arange(len(sets))
        original = {block: self.start[block] for block in self.steps.schedule.space(name).blocks}
        state = {block: np.full(len(sets), value) for block, value in original.items()}
        factors, states = [], []
        for stage, steps in enumerate(self.steps.stages):
            states.append(state)
            after = {block: value.copy() for block, value in state.items()}
            for number in range(len(steps) + 1):
                others = edited.get((stage, number), [])
                untouched = np.delete(everywhere, np.concatenate([which for _, which in others])) if others else everywhere
                variants = [(steps[number] if number < len(steps) else None, untouched), *others]
                if number < len(steps) and isinstance(steps[number], WrittenProduct):
                    factors.append(self.factor(name, state, variants, len(sets)))
                for step, which in variants:
                    if isinstance(step, WrittenForm) and step.side == name:
                        after[step.target][which] = sum(residue(c, PRIME) * state[block][which] for block, c in step.terms) % PRIME
            state = after
        back = np.ones(len(sets), dtype=bool)
        if name in self.steps.schedule.restores:
            back = np.logical_and.reduce([state[block] == value for block, value in original.items()])
        return np.stack(factors, axis=1) if factors else np.zeros((len(sets), 0), dtype=np.int64), back, states

    def factor(self, name: str, state: dict[Block, Array], variants: Sequence[tuple[WrittenStep | None, Array]], count: int) -> Array:
        """One side's factor in a product: the value of its operand, or the weight of its targets."""
        values = np.zeros(count, dtype=np.int64)
        for step, which in variants:
            if isinstance(step, WrittenProduct) and name == "C":
                values[which] = sum(residue(c, PRIME) * self.start[block] for block, c in step.targets) % PRIME
            elif isinstance(step, WrittenProduct):
                values[which] = state[step.left if name == "A" else step.right][which]
        return values

    def missing_products(self) -> Iterator[StepEdit]:
        """A product of two current blocks that is, up to signs, exactly what the blocks of C lack; none if an operand is not restored."""
        (left, back, rows), (right, also, columns) = self.run("A", UNEDITED), self.run("B", UNEDITED)
        if not (back.all() and also.all()):
            return
        lacking = dict(self.wanted)
        steps = [step for stage in self.steps.stages for step in stage if isinstance(step, WrittenProduct)]
        for step, x, y in zip(steps, left[0].tolist(), right[0].tolist(), strict=True):
            for block, c in step.targets:
                lacking[block] = (lacking[block] - residue(c, PRIME) * x * y) % PRIME
        for number, stage in enumerate(self.steps.stages):
            pairs = product(rows[number].items(), columns[number].items()) if stage and isinstance(stage[0], WrittenProduct) else ()
            for (a, x), (b, y) in pairs:
                value = int(x[0]) * int(y[0]) % PRIME
                signs = {0: 0, value: 1, -value % PRIME: -1}
                targets = tuple((block, signs.get(amount, 2)) for block, amount in sorted(lacking.items()) if signs.get(amount, 2))
                if targets and all(sign != 2 for _, sign in targets):
                    yield added_step(self.steps, number, "C", WrittenProduct(a, b, targets, stage[-1].span))


def _place(edit: StepEdit) -> tuple[int, int, int]:
    return edit.stage, edit.number, edit.span.start


def _apart(edits: Sequence[StepEdit]) -> bool:
    """True if no two edits rewrite one step."""
    return len({(e.stage, e.number) for e in edits}) == len(edits)


MOST_EDITS = 3
MOST_ON_ONE_SIDE = 2
MOST_WORK = 100_000_000
"""The limit of a search, in combinations of edits examined: about a second. All other work is converted to this unit."""
MOST_PROVED = 40
MOST_STEPS = 50_000
"""The most steps that are tried in place of another."""


@dataclass(frozen=True)
class ScheduleSearch:
    """The result of a search: repairs with the fewest edits, those closest to the text first.

    `complete` is the number of edits up to which all combinations were tried. If the work limit ended the search, `looked` counts the
    combinations examined; else it is 0.
    """

    repairs: tuple[StepEdits, ...] = ()
    complete: int = 0
    looked: int = 0


def search_schedule_repairs(schedule: AnySchedule, scheme: Scheme, work: int = MOST_WORK) -> ScheduleSearch:
    """The repairs with the fewest edits, within an amount of `work`; every repair returned is proved.

    At most three edits are combined, at most two of them on one of A, B and the targets.
    """
    steps = read_steps(schedule)
    if steps is None:
        return ScheduleSearch()
    terms = [t for stage in steps.stages for s in stage for t in (s.terms if isinstance(s, WrittenForm) else s.targets)]
    blocks, written = max(len(space.blocks) for space in schedule.spaces), sum(len(stage) + 1 for stage in steps.stages)
    if not all(has_residue(c) for _, c in terms) or 2 * blocks * blocks * written > MOST_STEPS:
        return ScheduleSearch()
    trial, budget = Trial(steps), RepairBudget(work)
    complete = 0
    for size in range(1, MOST_EDITS + 1):
        splits = [s for s in product(range(MOST_ON_ONE_SIDE + 1), repeat=3) if sum(s) == size]
        if not all(trial.has_sets(split) for split in splits):
            return ScheduleSearch((), complete)
        found = list(trial.candidates(splits, budget)) if len(trial.unsound) <= size else []
        if size == 1:
            found += [(edit,) for edit in trial.missing_products()]
        repairs = _proved(steps, scheme, sorted(found, key=_closeness), budget)
        if repairs:
            return ScheduleSearch(repairs, complete)
        if not budget.left:
            return ScheduleSearch((), complete, budget.looked)
        complete = size if size <= MOST_ON_ONE_SIDE else complete
    return ScheduleSearch((), complete)


def _proved(steps: WrittenSteps, scheme: Scheme, ordered: Sequence[StepEdits], budget: RepairBudget) -> tuple[StepEdits, ...]:
    """The repairs that are proved; of several that give the same schedule only the first counts."""
    different: dict[Schedule, StepEdits] = {}
    proofs = 0
    for repair in ordered:
        if not budget.take(BUILT):
            break
        repaired = _with_edits(steps, repair)
        if repaired in different or not is_sound(repaired):
            continue
        proofs += 1
        if proofs > MOST_PROVED or not budget.take(PROVED_STEP * sum(map(len, steps.stages))):
            budget.take(budget.left)
            break
        with suppress(BilinearError):  # too large to prove
            if schedule_holds(repaired, scheme):
                different[repaired] = repair
    return tuple(different.values())


def _with_edits(steps: WrittenSteps, edits: Sequence[StepEdit]) -> Schedule:
    """The schedule after some edits."""
    stages: list[list[WrittenStep | None]] = [list(stage) for stage in steps.stages]
    for edit in edits:
        if edit.number < len(steps.stages[edit.stage]):
            stages[edit.stage][edit.number] = edit.new
        else:
            stages[edit.stage].append(edit.new)
    return WrittenSteps(steps.schedule, tuple(tuple(step for step in stage if step is not None) for stage in stages)).build()


def _closeness(repair: StepEdits) -> tuple[object, ...]:
    kinds = tuple(sorted((KINDS.index(e.kind) for e in repair), reverse=True))
    return kinds, tuple((*_place(e), e.text) for e in repair)
