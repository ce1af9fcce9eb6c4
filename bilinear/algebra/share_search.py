"""Search for few sums: a walk through sets of values from which the wanted sums can be built, two values at a time.

A program is represented by the set of its values, up to sign. All sums of two known values are formed, so all ways to form a sum are
considered at once, cancellations included. The values beyond the wanted ones are extras: their number is the cost above the minimum. A step
removes one extra. If the rest can still be reached, an addition is saved; otherwise the step looks for another extra to replace it. After
many steps without success one extra is added, and the walk continues from there.

The distance-based heuristics for circuits over GF(2) (Boyar, Peralta 2010), greedy potential (Martensson, Wagner 2024), and the re-use of
dependent rows (Dumas, Pernet, Sedoglavic 2024) look for the same sums one after another.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from bilinear.algebra.share_values import PLAIN, Made, Pair, primitive

PATIENCE = 300
"""Steps without success before one more extra is added, or the walk returns to the best."""


@dataclass
class Budget:
    """The budget of a search: `work` counts sums of two values; a deadline, a value of `time.monotonic`, cuts it short.

    Spending from a part also spends from the whole. `was_cut` says whether a deadline cut the search or a part of it.
    """

    work: int
    deadline: float = math.inf
    whole: Budget | None = None
    was_cut: bool = field(default=False, init=False)

    def spend(self, work: int) -> None:
        """Count work done."""
        self._count(work, time.monotonic() > self.deadline)

    def _count(self, work: int, is_late: bool) -> None:
        self.work -= work
        self.was_cut = self.was_cut or is_late
        if self.whole is not None:
            self.whole._count(work, is_late)

    def part(self, parts: int) -> Budget:
        """One of `parts` equal shares of the remaining work and time."""
        now = time.monotonic()
        return Budget(self.work // parts, now + (self.deadline - now) / parts, self)

    @property
    def is_spent(self) -> bool:
        """True if the search has to end."""
        return self.work <= 0 or time.monotonic() > self.deadline


@dataclass(frozen=True)
class Origin:
    """How a value is made: multiple * value = p * first + q * second."""

    value: int
    first: int
    second: int
    pair: Pair
    multiple: int


class Walk:
    """The walk for one map: its inputs and wanted sums as packed values, and the pairs of coefficients to try."""

    def __init__(self, inputs: Sequence[int], wanted: Iterable[int], pairs: Iterable[Pair], budget: Budget, seed: int) -> None:
        self.inputs = tuple(inputs)
        self.wanted = frozenset(wanted) - {0} - set(inputs)
        self.pairs = tuple(sorted({*PLAIN, *pairs}))
        self.is_plain = len(self.pairs) == len(PLAIN)
        self.budget = budget
        self.random = random.Random(seed)
        self._one_is_too_few = False

    def run(self, starts: Sequence[Made], others: Iterable[int], progress: Callable[[int], None]) -> Made:
        """The fewest values found, from the best of several programs; `others` may give the values of one more."""
        made = best = self._best_start(starts, others)
        idle = 0
        while not self.budget.is_spent and not self.is_least(best):
            progress(len(best))
            made = self._with_one_extra(best) if self._could_be_one(best) else self._step(made)
            idle += 1
            if len(made) < len(best):
                best, idle = made, 0
            elif idle >= PATIENCE:
                made, idle = self._with_one_more(made) if len(made) == len(best) else best, 0
        progress(len(best))
        return best

    def is_least(self, made: Made) -> bool:
        """True if provably no program that adds or subtracts two values at a time is shorter.

        With no extras the program is minimal. With one, the walk has tried to do without it; with two, whether one would do. A search that
        was cut short has tried neither.
        """
        extras = len(made) - len(self.wanted)
        most = 2 if self._one_is_too_few else 1
        return not extras or (self.is_plain and extras <= most and not self.budget.is_spent)

    def origins(self, made: Made) -> list[Origin]:
        """How each value is made."""
        return [self._origin(value, v, w) for value, (v, w) in made.items()]

    def _origin(self, value: int, v: int, w: int) -> Origin:
        for a, b in self.pairs:
            other = a * value + b * v
            if self._canonical(other) == w:
                return Origin(value, v, w, (-b, other // w), a)
        raise AssertionError("no sum of the two gives this value")

    def _canonical(self, packed: int) -> int:
        return abs(packed) if self.is_plain else primitive(packed)

    def _sums(self, v: int, w: int) -> tuple[int, ...]:
        """The sums of two different values, including the values that together with one of them make the other."""
        if self.is_plain:
            return v + w, abs(v - w)
        return tuple(primitive(p * v + q * w) for p, q in self.pairs)

    def _all_sums(self, values: Sequence[int]) -> set[int]:
        self.budget.spend(len(values) ** 2 // 2 * len(self.pairs))
        return {x for number, v in enumerate(values) for w in values[:number] for x in self._sums(v, w)}

    def _reach(self, known: set[int], fresh: Iterable[int], left: dict[int, None]) -> Made:
        """The values among `left` that can be made from the fresh and known values; they move from `left` to `known`.

        If the budget is spent, some values may be missed.
        """
        made: Made = {}
        queue = list(fresh)
        for v in queue:
            if not left or (self.budget.is_spent and len(left) > 1):
                break
            self.budget.spend(len(left) * len(self.pairs))
            found = {d: x for d in left for x in self._sums(d, v) if x in known}
            for d, x in found.items():
                made[d] = (v, x)
                del left[d]
            known.update(found)
            queue += found
        return made

    def _suffices(self, left: Iterable[int]) -> bool:
        return self.wanted.isdisjoint(left)

    def _extras(self, made: Made) -> list[int]:
        return [value for value in made if value not in self.wanted]

    def _best_start(self, starts: Sequence[Made], others: Iterable[int]) -> Made:
        left = dict.fromkeys(sorted(self.wanted.union(others) - set(self.inputs)))
        made = self._reach(set(self.inputs), self.inputs, left)
        starts = sorted([*starts, made] if self._suffices(left) else starts, key=len)
        best = self._needed(starts[0])
        for start in starts[1:]:
            if self.budget.is_spent:
                break
            best = min(best, self._needed(start), key=len)
        return best

    def _needed(self, made: Made) -> Made:
        """The values without those that are not needed."""
        extras = self._extras(made)
        for extra in self.random.sample(extras, len(extras)):
            if self.budget.is_spent:
                break
            if extra in made:
                kept, left = self._without(made, extra)
                made = kept if self._suffices(left) else made
        return made

    def _without(self, made: Made, gone: int) -> tuple[Made, dict[int, None]]:
        """The values that can be made without a value, and those that cannot."""
        lost = {gone: None}
        for value, (v, w) in made.items():
            if v in lost or w in lost:
                lost[value] = None
        kept = {value: origin for value, origin in made.items() if value not in lost}
        del lost[gone]
        known = {*self.inputs, *kept}
        return kept | self._reach(known, (*self.inputs, *kept), lost), lost

    def _step(self, made: Made) -> Made:
        """The values with one extra removed or replaced, or unchanged."""
        gone = self.random.choice(self._extras(made))
        kept, left = self._without(made, gone)
        if self._suffices(left):
            return kept
        reached = [*self.inputs, *kept]
        near = self._all_sums(reached)
        self.budget.spend(len(left) * len(reached) * len(self.pairs))
        found = {x: (d, v) for d in left for v in reached for x in self._sums(d, v) if x in near}
        candidates = sorted(found.keys() - left.keys() - {gone})
        known = set(reached)
        for new in self.random.sample(candidates, len(candidates)):
            replaced = self._with(kept, known, reached, new, left)
            if replaced is not None:
                return replaced
            if self.budget.is_spent:
                break
        return made

    def _with(self, kept: Made, known: set[int], reached: Sequence[int], new: int, left: dict[int, None]) -> Made | None:
        """The values with a new one, a sum of two reached values, if that suffices; `known` contains them all and is not changed."""
        still = dict(left)
        known.add(new)
        made = self._reach(known, [new], still)
        known.difference_update(made, [new])
        if not self._suffices(still):
            return None
        return kept | self._reach(set(known), reached, {new: None}) | made

    def _with_one_more(self, made: Made) -> Made:
        reached = [*self.inputs, *made]
        candidates = sorted(self._all_sums(reached) - set(reached))
        if not candidates:
            return made
        return made | self._reach(set(reached), reached, {self.random.choice(candidates): None})

    def _could_be_one(self, made: Made) -> bool:
        return self.is_plain and len(made) == len(self.wanted) + 2 and not self._one_is_too_few

    def _with_one_extra(self, made: Made) -> Made:
        """One extra that suffices if there is one; it must be a sum of two values that are reached without extras.

        Else the values given.
        """
        left = dict.fromkeys(sorted(self.wanted))
        kept = self._reach(set(self.inputs), self.inputs, left)
        reached = [*self.inputs, *kept]
        known = set(reached)
        for candidate in sorted(self._all_sums(reached) - known):
            found = self._with(kept, known, reached, candidate, left)
            if found is not None:
                return found
            if self.budget.is_spent:
                return made
        self._one_is_too_few = True
        return made
