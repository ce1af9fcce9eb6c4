"""The steps of a schedule as written, their single edits, and the search for the fewest edits that make it correct.

A schedule is first tried as numbers modulo a prime: random numbers for the blocks of A and B, and random weights for those of C. Products
are forms over A times forms over B in this order, so commuting numbers hide nothing. The steps on A, the steps on B and the targets of
products give three factors of one sum, as in a scheme; promised operands must be restored. Candidates that pass are proved.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations, permutations, product
from math import comb

import numpy as np

from bilinear.analysis.block_maps import over_blocks
from bilinear.errors import BilinearError
from bilinear.explain.repair.edits import KINDS, PRIME, Array, Patch, has_residue
from bilinear.explain.repair.scheme import Join, Side
from bilinear.ir.number import Coefficient, residue
from bilinear.ir.schedule import BETA, AnySchedule, Block, LinearStage, Product, ProductStage, ScaledSchedule, Schedule, Stage, Target
from bilinear.ir.scheme import Scheme
from bilinear.source import Span
from bilinear.verify.hazards import find_hazards
from bilinear.verify.schedule import is_sound, schedule_holds


@dataclass(frozen=True)
class WrittenForm:
    """A step of a linear stage: a block becomes the sum of these terms, which include its own old value if it is kept."""

    target: Block
    terms: tuple[tuple[Block, Coefficient], ...]
    span: Span

    @property
    def side(self) -> str:
        """The operand whose blocks the step writes."""
        return self.target.space


@dataclass(frozen=True)
class WrittenProduct:
    """A step of a product stage: left * right, added to blocks of C."""

    left: Block
    right: Block
    targets: tuple[tuple[Block, Coefficient], ...]
    span: Span


WrittenStep = WrittenForm | WrittenProduct


@dataclass(frozen=True)
class WrittenSteps:
    """The stages of a schedule as lists of steps."""

    schedule: Schedule
    stages: tuple[tuple[WrittenStep, ...], ...]

    def build(self) -> Schedule:
        """The schedule with these steps, with the first ordered write of each block of C marked."""
        seen: set[Block] = set()
        stages = [_stage(steps, old, seen) for steps, old in zip(self.stages, self.schedule.stages, strict=True) if steps]
        return replace(self.schedule, stages=tuple(stages))


def read_steps(schedule: AnySchedule) -> WrittenSteps | None:
    """The steps of a schedule; None without a text, with workspaces, levels or explicit scaling, over Z/p, or with maps into C."""
    if schedule.workspaces or schedule.levels != 1 or isinstance(schedule, ScaledSchedule) or schedule.ring.modulus:
        return None
    stages: list[tuple[WrittenStep, ...]] = []
    for stage in schedule.stages:
        steps: list[WrittenStep] = []
        for p in stage.products if isinstance(stage, ProductStage) else ():
            if p.span is None or any(t.block.space != "C" for t in p.targets):
                return None
            steps.append(WrittenProduct(p.left, p.right, tuple((t.block, t.coefficient) for t in p.targets), p.span))
        for m in stage.maps if isinstance(stage, LinearStage) else ():
            if not m.spans or {b.space for b in (*m.targets, *m.sources)} not in ({"A"}, {"B"}):
                return None
            rows = zip(m.targets, m.map.matrix, m.spans, strict=True)
            steps += [WrittenForm(target, tuple((m.sources[i], c) for i, c in row), span) for target, row, span in rows]
        stages.append(tuple(steps if isinstance(stage, ProductStage) else sorted(steps, key=lambda s: s.span.start)))
    return WrittenSteps(schedule, tuple(stages))


def _stage(steps: Sequence[WrittenStep], old: Stage, seen: set[Block]) -> Stage:
    if not isinstance(old, LinearStage):
        return ProductStage(tuple(_product(step, seen) for step in steps if isinstance(step, WrittenProduct)))
    linear = [step for step in steps if isinstance(step, WrittenForm)]
    sides = dict.fromkeys(step.side for step in linear)
    own = [[step for step in linear if step.side == side] for side in sides]
    return LinearStage(tuple(over_blocks([(s.target, s.terms) for s in some], tuple(s.span for s in some)) for some in own), old.restores)


def _product(step: WrittenProduct, seen: set[Block]) -> Product:
    targets = []
    for block, coefficient in step.targets:
        targets.append(Target(block, coefficient, 1 if block in seen else BETA))
        seen.add(block)
    return Product(step.left, step.right, tuple(targets), step.span)


_BLOCK = re.compile(r"[ABC](?:[1-9][1-9](?![A-Za-z0-9_])|\[[^\]\n;]*\])")
_OPERATOR = re.compile(r"[+-]?=")
_COMMENT = re.compile(r"#[^\n]*")
_NUMBER = re.compile(r"[0-9]+(?:[ \t]*/[ \t]*[0-9]+)?[ \t]*\*?[ \t]*\Z")


@dataclass(frozen=True)
class StepEdit:
    """One edit of a step. `number` counts the steps of its stage; one past the last adds a step. `new` is None if the step is removed.

    `side` is `A` or `B` if the values of an operand change, `C` if the targets of a product do.
    """

    kind: str
    side: str
    new: WrittenStep | None
    text: str
    brief: str
    span: Span
    patches: tuple[Patch, ...]
    stage: int = 0
    number: int = 0


def step_edits(steps: WrittenSteps) -> Iterator[StepEdit]:
    """Every single edit of a schedule's steps, in the order of the text."""
    for stage, written in enumerate(steps.stages):
        for number, step in enumerate(written):
            found = _linear_edits(steps, step) if isinstance(step, WrittenForm) else _product_edits(steps, step)
            left_out = [_left_out(step)] if len(written) > 1 else []
            yield from (replace(e, stage=stage, number=number, text=f"{e.text} in stage {stage + 1}") for e in (*found, *left_out))
        taken = {step.target: step.side for step in written if isinstance(step, WrittenForm)}
        for side in dict.fromkeys(taken.values()):
            more = (new for new in _simple_steps(steps, side, written[-1].span) if new.target not in taken)
            yield from (added_step(steps, stage, side, new) for new in more)


def added_step(steps: WrittenSteps, stage: int, side: str, new: WrittenStep) -> StepEdit:
    """The edit that adds a step at the end of a stage."""
    last = steps.stages[stage][-1].span
    text, patch = f"adding {shown(new)} to stage {stage + 1}", (last.end, last.end, f" ; {shown(new)}")
    return StepEdit("step", side, new, text, f"add {shown(new)}", last, (patch,), stage, len(steps.stages[stage]))


def shown(step: WrittenStep) -> str:
    """A step that adds one block, or a product, as it is written."""
    if isinstance(step, WrittenProduct):
        targets = ", ".join(f"-{block}" if c == -1 else str(block) for block, c in step.targets)
        return f"{targets} += {step.left} * {step.right}"
    (source, c), *_ = [t for t in step.terms if t[0] != step.target]
    return f"{step.target} {'-=' if c == -1 else '+='} {source}"


def _blocks(steps: WrittenSteps, space: str) -> tuple[Block, ...]:
    return steps.schedule.space(space).blocks


class _Text:
    def __init__(self, span: Span) -> None:
        self.span = span
        text = _COMMENT.sub(lambda m: " " * len(m[0]), span.text)
        self.blanked = text
        operator = _OPERATOR.search(text)
        assert operator is not None, "a step has an operator"
        self.operator = operator
        found = list(_BLOCK.finditer(text))
        self.targets = [m for m in found if m.end() <= operator.start()]
        self.sources = [m for m in found if m.start() >= operator.end()]

    def at(self, start: int, end: int) -> Span:
        return Span(self.span.source, self.span.start + start, self.span.start + end)

    def sign(self, token: re.Match[str]) -> tuple[Patch, bool, Span]:
        """The patch that reverses the sign before a block, whether that sign is now a minus, and the place of sign and term."""
        start = token.start() - len(number[0]) if (number := _NUMBER.search(self.blanked[: token.start()])) else token.start()
        before = self.blanked[:start].rstrip()
        if not before.endswith(("+", "-")):
            whole = self.at(start, token.end())
            return (whole.start, whole.start, "-"), False, whole
        whole, minus = self.at(len(before) - 1, token.end()), before.endswith("-")
        return (whole.start, whole.start + 1, "+" if minus else "-"), minus, whole


def _block_of(name: str) -> Block:
    row, column = name[2:-1].split(",") if "[" in name else tuple(name[1:])
    return Block(name[0], int(row) - 1, int(column) - 1)


def _linear_edits(steps: WrittenSteps, step: WrittenForm) -> Iterator[StepEdit]:
    text = _Text(step.span)
    own = text.operator[0] != "="  # the step keeps its target's old value implicitly
    others = [(b, c) for b, c in step.terms if not (own and b == step.target)]
    found = {_block_of(m[0]): m for m in text.sources}
    places = found if len(found) == len(text.sources) else {}
    for block, c in others if places else ():
        rest = tuple(t for t in step.terms if t[0] != block)
        yield _turned(step, block, text, places[block], len(others))
        for other in _blocks(steps, step.side):
            if other not in dict(step.terms):
                yield _renamed(replace(step, terms=(*rest, (other, c))), step.side, block, other, text, places[block])
    for other in _blocks(steps, step.side):
        if other != step.target:
            terms = tuple((other if own and b == step.target else b, c) for b, c in step.terms)
            if len(dict(terms)) == len(terms):
                yield _renamed(replace(step, target=other, terms=terms), step.side, step.target, other, text, text.targets[0])
    if own and len(others) > 1:
        kept = tuple((b, c if b == step.target else -c) for b, c in step.terms)
        yield _operator_turned(step.side, replace(step, terms=kept), text)
    for simple in _simple_steps(steps, step.side, step.span):
        if (simple.target, dict(simple.terms)) != (step.target, dict(step.terms)):
            patch = (step.span.start, step.span.end, shown(simple))
            told = f"writing {shown(simple)} for {step.span.text}"
            yield StepEdit("step", step.side, simple, told, f"write {shown(simple)}", step.span, (patch,))


def _turned(step: WrittenForm, block: Block, text: _Text, token: re.Match[str], count: int) -> StepEdit:
    new = replace(step, terms=tuple((b, -c if b == block else c) for b, c in step.terms))
    if text.operator[0] != "=" and count == 1:
        return _operator_turned(step.side, new, text)
    patch, minus, span = text.sign(token)
    old, turned = ("-", "+") if minus else ("+", "-")
    told = f"writing {turned}{block} for {old}{block} in {text.span.text}"
    return StepEdit("sign", step.side, new, told, f"write {turned}{block}", span, (patch,))


def _operator_turned(side: str, new: WrittenStep, text: _Text) -> StepEdit:
    turned = "-=" if text.operator[0] == "+=" else "+="
    span = text.at(*text.operator.span())
    told = f"writing {turned} for {text.operator[0]} in {text.span.text}"
    return StepEdit("sign", side, new, told, f"write {turned}", span, ((span.start, span.end, turned),))


def _renamed(new: WrittenStep, side: str, old: Block, other: Block, text: _Text, token: re.Match[str]) -> StepEdit:
    span = text.at(*token.span())
    told = f"writing {other} for {old} in {text.span.text}"
    return StepEdit("operand", side, new, told, f"write {other}", span, ((span.start, span.end, str(other)),))


def _simple_steps(steps: WrittenSteps, side: str, span: Span) -> Iterator[WrittenForm]:
    for target, source in permutations(_blocks(steps, side), 2):
        yield WrittenForm(target, ((target, 1), (source, 1)), span)
        yield WrittenForm(target, ((target, 1), (source, -1)), span)


def _left_out(step: WrittenStep) -> StepEdit:
    side, span = step.side if isinstance(step, WrittenForm) else "C", step.span
    return StepEdit("drop", side, None, f"leaving out {span.text}", "leave this out", span, ((span.start, span.end, ""),))


def _product_edits(steps: WrittenSteps, step: WrittenProduct) -> Iterator[StepEdit]:
    text = _Text(step.span)
    left, right = text.sources
    for other in _blocks(steps, "A"):
        if other != step.left:
            yield _renamed(replace(step, left=other), "A", step.left, other, text, left)
    for other in _blocks(steps, "B"):
        if other != step.right:
            yield _renamed(replace(step, right=other), "B", step.right, other, text, right)
    if len(step.targets) > 1:
        yield _operator_turned("C", replace(step, targets=tuple((block, -c) for block, c in step.targets)), text)
    others = [block for block in _blocks(steps, "C") if block not in dict(step.targets)]
    for number, (block, c) in enumerate(step.targets):
        before, after = step.targets[:number], step.targets[number + 1 :]
        (begin, stop, mark), minus, span = text.sign(text.targets[number])
        turned, old = (str(block), f"-{block}") if minus else (f"-{block}", str(block))
        told, patch = f"writing {turned} for {old} in {text.span.text}", (begin, stop, mark.replace("+", ""))
        yield StepEdit("sign", "C", replace(step, targets=(*before, (block, -c), *after)), told, f"write {turned}", span, (patch,))
        for other in others:
            yield _renamed(replace(step, targets=(*before, (other, c), *after)), "C", block, other, text, text.targets[number])
        if before or after:
            start = span.start if number == 0 else text.span.start + text.targets[number - 1].end()
            end = text.blanked.index(",", text.targets[0].end()) + 1 + text.span.start if number == 0 else span.end
            new, told = replace(step, targets=(*before, *after)), f"leaving out {block} in {text.span.text}"
            yield StepEdit("drop", "C", new, told, "leave this out", span, ((start, end, ""),))
    last = step.span.start + text.targets[-1].end()
    for other, sign in product(others, (1, -1)):
        name = f"{'-' if sign < 0 else ''}{other}"
        new = replace(step, targets=(*step.targets, (other, -sign if text.operator[0] == "-=" else sign)))
        told = f"adding the target {name} to {step.span.text}"
        yield StepEdit("add", "C", new, told, f"add {name}", step.span, ((last, last, f", {name}"),))


SIDES = ("A", "B", "C")
MOST_SETS = 80_000  # The most combinations of edits of one side that are run.
HIT, BUILT, PROVED_STEP = 1_500, 30_000, 60_000  # Costs: a right number, a schedule, a step of its proof.

StepEdits = tuple[StepEdit, ...]
UNEDITED: Array = np.zeros((1, 0), dtype=np.int64)  # The combination of no edits.


@dataclass
class RepairBudget:
    """The work that a search may still do. It is counted, not timed, so the search finds the same repairs on every machine."""

    left: int
    looked: int = 0

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
    return len({(e.stage, e.number) for e in edits}) == len(edits)


MOST_EDITS = 3
MOST_ON_ONE_SIDE = 2
MOST_WORK = 100_000_000
"""The limit of a search, in combinations of edits examined: about a second. All other work is converted to this unit."""
MOST_PROVED = 40
MOST_STEPS = 50_000  # The most steps that are tried in place of another.


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
    """The proved repairs with the fewest edits within some `work`: at most three, two of them on one of A, B and the targets."""
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
        if any(comb(len(trial.pools[side]), number) > MOST_SETS for split in splits for side, number in zip(SIDES, split, strict=True)):
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
        stages: list[list[WrittenStep | None]] = [list(stage) for stage in steps.stages]
        for edit in repair:
            if edit.number < len(steps.stages[edit.stage]):
                stages[edit.stage][edit.number] = edit.new
            else:
                stages[edit.stage].append(edit.new)
        repaired = WrittenSteps(steps.schedule, tuple(tuple(step for step in stage if step is not None) for stage in stages)).build()
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


def _closeness(repair: StepEdits) -> tuple[object, ...]:
    kinds = tuple(sorted((KINDS.index(e.kind) for e in repair), reverse=True))
    return kinds, tuple((*_place(e), e.text) for e in repair)
