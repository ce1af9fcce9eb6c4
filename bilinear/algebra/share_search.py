"""Search for few sums: a greedy start, then a walk through sets of values from which the wanted sums can be built, two at a time."""

from __future__ import annotations

import heapq
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import permutations
from math import gcd, lcm

from bilinear.ir.linear import Form
from bilinear.ir.number import Coefficient, Symbolic, exact, is_negative, rational

DIGIT = 48  # Bits of a packed coefficient.
LARGEST = 1 << 12  # Rows with larger coefficients are packed over multiples of inputs, with coefficients +-1.
Pair = tuple[int, int]  # Coprime coefficients (p, q) of a sum p * v + q * w, p positive.
PLAIN: tuple[Pair, ...] = ((1, 1), (1, -1))

PackedForm = tuple[int, Coefficient]  # A packed form and its factor.
Made = dict[int, tuple[int, int]]  # Packed values as they can be made, each with the two that make it.


@dataclass(frozen=True)
class PackedRows:
    """The rows of a map: a packed form over the atoms (0 for an empty row) and its factor.

    An atom is a multiple of an input. The last coefficient of a form is positive, and its coefficients are coprime. If forms are `whole`,
    the atoms are the inputs; else the coefficients are 1 and -1.
    """

    atoms: tuple[PackedForm, ...]
    packed: tuple[PackedForm, ...]
    whole: bool

    @property
    def values(self) -> tuple[int, ...]:
        """The packed forms without their factors."""
        return tuple(value for value, _ in self.packed)

    @property
    def units(self) -> tuple[int, ...]:
        """The atoms as packed forms."""
        return tuple(1 << DIGIT * i for i in range(len(self.atoms)))

    def value_of(self, row: Form) -> int:
        """A form over the inputs, packed over the atoms without its factor; 0 if it cannot be packed."""
        if self.whole:
            value = 0 if any(isinstance(c, Symbolic) for _, c in row) else _whole(row)[0]
            return value if all(abs(c) <= LARGEST for _, c in unpack(value)) else 0
        numbers = {atom: number for number, atom in enumerate(self.atoms)}
        terms, _ = _signs(row)
        return abs(pack((numbers[atom], sign) for atom, sign in terms)) if all(atom in numbers for atom, _ in terms) else 0


def pack(terms: Iterable[tuple[int, int]]) -> int:
    """Pack a form with whole coefficients into one integer."""
    return sum(coefficient << (DIGIT * index) for index, coefficient in terms)


def unpack(packed: int) -> Iterator[tuple[int, int]]:
    """The terms of the form that an integer encodes."""
    index, half = 0, 1 << (DIGIT - 1)
    while packed:
        digit = ((packed + half) & ((1 << DIGIT) - 1)) - half
        if digit:
            yield index, digit
        packed, index = (packed - digit) >> DIGIT, index + 1


@lru_cache(maxsize=1 << 18)
def primitive(packed: int) -> int:
    """The form divided by the greatest common divisor of its coefficients, with its sign normalised."""
    common = 0
    for _, coefficient in unpack(packed):
        common = gcd(common, coefficient)
        if common == 1:
            return abs(packed)
    return abs(packed) // common


def pack_rows(matrix: Sequence[Form], inputs: int, *, fractions: bool) -> PackedRows:
    """Pack the rows of a map with this number of inputs.

    With `fractions`, rational rows become multiples of forms with whole coefficients over the inputs, so sums such as a + 2b are found in
    any multiple. Otherwise, and for all other numbers, rows have coefficients 1 and -1 over multiples of the inputs.
    """
    if fractions and not any(isinstance(c, Symbolic) for row in matrix for _, c in row):
        packed = tuple(map(_whole, matrix))
        if all(abs(c) <= LARGEST for value, _ in packed for _, c in unpack(value)):
            return PackedRows(tuple((i, 1) for i in range(inputs)), packed, True)
    numbers: dict[PackedForm, int] = {}
    found = []
    for terms, factor in map(_signs, matrix):
        value = pack((numbers.setdefault(atom, len(numbers)), sign) for atom, sign in terms)
        found.append((abs(value), -factor if value < 0 else factor))
    return PackedRows(tuple(numbers), tuple(found), False)


def _whole(row: Form) -> PackedForm:
    if not row:
        return 0, 1
    numbers = [rational(c) for _, c in row]
    factor = Fraction(gcd(*(c.numerator for c in numbers)), lcm(*(c.denominator for c in numbers)))
    factor = -factor if numbers[-1] < 0 else factor
    return pack((i, int(c / factor)) for (i, _), c in zip(row, numbers, strict=True)), exact(factor)


def _signs(row: Form) -> tuple[list[tuple[PackedForm, int]], Coefficient]:
    """The atoms of a form and their signs; if all coefficients have one magnitude, it is the factor."""
    sizes = {magnitude(c) for _, c in row}
    factor = sizes.pop() if len(sizes) == 1 else 1
    return [((i, magnitude(c) if sizes else 1), -1 if is_negative(c) else 1) for i, c in row], factor


def magnitude(value: Coefficient) -> Coefficient:
    """The absolute value of a number."""
    return -value if is_negative(value) else value


PairKey = tuple[int, int, int, int]  # Two nodes and their coprime coefficients, the first positive.


def most_common_pairs(rows: Sequence[int], nodes: Sequence[int], generator: random.Random) -> tuple[Made, set[Pair]]:
    """The values of a greedy program for these rows, packed over given values, and the pairs of coefficients that it uses.

    If p * v + q * w = m * x, any two of p, q and m are such a pair, in both orders and with both signs. The generator breaks ties. Nothing
    cancels: every term of a row is added once.
    """
    return _Greedy(rows, nodes, generator).run()


class _Greedy:
    def __init__(self, rows: Sequence[int], nodes: Sequence[int], generator: random.Random) -> None:
        self.rows = [dict(unpack(row)) for row in rows]
        self.nodes = list(nodes)
        self.random = generator
        self.made: Made = {}
        self.used: set[Pair] = set()
        self.having: dict[PairKey, set[int]] = {}
        self.queue: list[tuple[int, float, PairKey]] = []
        for number, row in enumerate(self.rows):
            terms = sorted(row)
            for place, j in enumerate(terms):
                for i in terms[:place]:
                    self.having.setdefault(_key(row, i, j), set()).add(number)
        for key in self.having:
            self._push(key)

    def run(self) -> tuple[Made, set[Pair]]:
        while self.queue:
            count, _, key = heapq.heappop(self.queue)
            if len(self.having[key]) == -count:
                self._share(key)
            else:
                self._push(key)
        for number, row in enumerate(self.rows):
            while len(row) > 1:
                i, j = sorted(row)[:2]
                self._replace(number, _key(row, i, j), self._new(_key(row, i, j)))
        return self.made, self.used

    def _push(self, key: PairKey) -> None:
        if len(self.having[key]) > 1:
            heapq.heappush(self.queue, (-len(self.having[key]), self.random.random(), key))

    def _new(self, key: PairKey) -> int:
        i, j, p, q = key
        total = p * self.nodes[i] + q * self.nodes[j]
        value = primitive(total)
        self.nodes.append(value)
        self.made.setdefault(value, (self.nodes[i], self.nodes[j]))
        multiple = total // value
        for a, b in permutations((p, q, multiple), 2):
            common = gcd(a, b)
            self.used |= {(abs(a) // common, abs(b) // common), (abs(a) // common, -abs(b) // common)}
        return len(self.nodes) - 1

    def _share(self, key: PairKey) -> None:
        new = self._new(key)
        fresh: dict[PairKey, None] = {}
        for number in sorted(self.having[key]):
            row = self.rows[number]
            self._forget(number, key[:2])
            self._replace(number, key, new)
            for k in row:
                if k != new:
                    fresh[_key(row, k, new)] = None
                    self.having.setdefault(_key(row, k, new), set()).add(number)
        for found in fresh:
            self._push(found)

    def _forget(self, number: int, gone: tuple[int, int]) -> None:
        row = self.rows[number]
        for node in gone:
            for k in row:
                if k != node:
                    self.having[_key(row, min(k, node), max(k, node))].discard(number)

    def _replace(self, number: int, key: PairKey, new: int) -> None:
        i, j, p, q = key
        row = self.rows[number]
        multiple = (p * self.nodes[i] + q * self.nodes[j]) // self.nodes[new]
        row[new] = row[i] // p * multiple
        del row[i], row[j]


def _key(row: dict[int, int], i: int, j: int) -> PairKey:
    common = gcd(row[i], row[j]) * (1 if row[i] > 0 else -1)
    return i, j, row[i] // common, row[j] // common


PATIENCE = 300  # Steps without success before one more extra is added, or the walk returns to the best.


@dataclass
class SearchBudget:
    """The budget of a search: `work` counts sums of two values; a deadline, a value of `time.monotonic`, cuts it short.

    Spending from a part also spends from the whole. `was_cut` says whether a deadline cut the search or a part of it.
    """

    work: int
    deadline: float = math.inf
    whole: SearchBudget | None = None
    was_cut: bool = field(default=False, init=False)

    def spend(self, work: int) -> None:
        """Count work done."""
        self._count(work, time.monotonic() > self.deadline)

    def _count(self, work: int, is_late: bool) -> None:
        self.work -= work
        self.was_cut = self.was_cut or is_late
        if self.whole is not None:
            self.whole._count(work, is_late)

    def part(self, parts: int) -> SearchBudget:
        """One of `parts` equal shares of the remaining work and time."""
        now = time.monotonic()
        return SearchBudget(self.work // parts, now + (self.deadline - now) / parts, self)

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


class SumWalk:
    """The walk for one map: its inputs and wanted sums as packed values, and the pairs of coefficients to try."""

    def __init__(self, inputs: Sequence[int], wanted: Iterable[int], pairs: Iterable[Pair], budget: SearchBudget, seed: int) -> None:
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
            could_be_one = self.is_plain and len(best) == len(self.wanted) + 2 and not self._one_is_too_few
            made = self._with_one_extra(best) if could_be_one else self._step(made)
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

    def origin(self, value: int, v: int, w: int) -> Origin:
        """How a value is made of two others."""
        for a, b in self.pairs:
            other = a * value + b * v
            if (abs(other) if self.is_plain else primitive(other)) == w:
                return Origin(value, v, w, (-b, other // w), a)
        raise AssertionError("no sum of the two gives this value")

    def _sums(self, v: int, w: int) -> tuple[int, ...]:
        if self.is_plain:
            return v + w, abs(v - w)
        return tuple(primitive(p * v + q * w) for p, q in self.pairs)

    def _all_sums(self, values: Sequence[int]) -> set[int]:
        self.budget.spend(len(values) ** 2 // 2 * len(self.pairs))
        return {x for number, v in enumerate(values) for w in values[:number] for x in self._sums(v, w)}

    def _reach(self, known: set[int], fresh: Iterable[int], left: dict[int, None]) -> Made:
        """Move the values among `left` that can be made from the fresh and known ones to `known`; some may be missed if the budget ends."""
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
        extras = [value for value in made if value not in self.wanted]
        for extra in self.random.sample(extras, len(extras)):
            if self.budget.is_spent:
                break
            if extra in made:
                kept, left = self._without(made, extra)
                made = kept if self._suffices(left) else made
        return made

    def _without(self, made: Made, gone: int) -> tuple[Made, dict[int, None]]:
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
        gone = self.random.choice([value for value in made if value not in self.wanted])
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

    def _with_one_extra(self, made: Made) -> Made:
        """One extra that suffices, a sum of two values that are reached without extras; if there is none, the values given."""
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
