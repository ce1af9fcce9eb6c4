"""Fewer additions: find the sums that the forms of a scheme share, and compute each once."""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import lcm

from bilinear.algebra.maps import transposed, without_copies
from bilinear.algebra.share_search import (
    DIGIT,
    LARGEST,
    PLAIN,
    Made,
    Origin,
    PackedRows,
    Pair,
    SearchBudget,
    SumWalk,
    magnitude,
    most_common_pairs,
    pack,
    pack_rows,
    unpack,
)
from bilinear.errors import fail
from bilinear.ir.linear import Form, LinearMap, form
from bilinear.ir.number import Coefficient, Symbolic, exact
from bilinear.ir.ring import RATIONALS, Ring
from bilinear.ir.scheme import Scheme

SWEEPS = 8  # The number of times that every step is rescaled.


def program_of(inputs: int, rows: PackedRows, origins: Sequence[Origin]) -> LinearMap:
    """The program that makes these values as they were found, over the map's inputs."""
    multiples: dict[int, tuple[int, Coefficient]] = dict(zip(rows.units, rows.atoms, strict=True))
    steps: list[Form] = []
    for origin in origins:
        terms = zip((origin.first, origin.second), origin.pair, strict=True)
        steps.append(form((multiples[v][0], multiples[v][1] * Fraction(p, origin.multiple)) for v, p in terms))
        multiples[origin.value] = (inputs + len(steps) - 1, 1)
    outputs = tuple(form([(multiples[v][0], multiples[v][1] * factor)]) if v else () for v, factor in rows.packed)
    return tidied(LinearMap(inputs, outputs, tuple(steps)))


def tidied(linear: LinearMap) -> LinearMap:
    """The same map with as many additions and no more scalings; each step is read several times."""
    return _with_shared_multiples(_with_single_readers_joined(without_copies(_with_few_scalings(linear))))


def partial_sums(linear: LinearMap) -> tuple[Form, ...]:
    """Every value that a program holds while adding up its sums term by term, as forms over the inputs."""
    steps: list[Form] = []
    place = list(range(linear.inputs))
    for row in linear.steps + linear.outputs:
        terms = [(place[i], c) for i, c in row]
        for more in terms[1:]:
            steps.append(form([terms[0], more]))
            terms[0] = (linear.inputs + len(steps) - 1, 1)
        if len(terms) != 1 or terms[0][1] != 1:
            steps.append(form(terms[:1]))
            terms = [(linear.inputs + len(steps) - 1, 1)]
        place.append(terms[0][0])
    return LinearMap(linear.inputs, tuple(((linear.inputs + i, 1),) for i in range(len(steps))), tuple(steps)).matrix


def _with_few_scalings(linear: LinearMap) -> LinearMap:
    """Scale each step so that it and its readers have the fewest coefficients other than 1 and -1."""
    rows = [dict(row) for row in linear.steps + linear.outputs]
    readers: dict[int, list[dict[int, Coefficient]]] = {linear.inputs + i: [] for i in range(len(linear.steps))}
    for row in rows:
        for index in row:
            if index >= linear.inputs:
                readers[index].append(row)
    for _ in range(SWEEPS):
        changes = [_rescale(rows[i], readers[linear.inputs + i], linear.inputs + i) for i in range(len(linear.steps))]
        if not any(changes):
            break
    forms = [form(row) for row in rows]
    return LinearMap(linear.inputs, tuple(forms[len(linear.steps) :]), tuple(forms[: len(linear.steps)]))


def _rescale(step: dict[int, Coefficient], readers: Sequence[dict[int, Coefficient]], number: int) -> bool:
    candidates = {1 / Fraction(c) for c in step.values() if not isinstance(c, Symbolic)}
    candidates |= {Fraction(c) for row in readers if not isinstance(c := row[number], Symbolic)}

    def scalings(factor: Fraction) -> int:
        return _scalings(c * factor for c in step.values()) + _scalings(row[number] / factor for row in readers)

    best = min(sorted({abs(c) for c in candidates}), key=scalings, default=Fraction(1))
    if scalings(best) >= scalings(Fraction(1)):
        return False
    for index, c in step.items():
        step[index] = exact(c * best)
    for row in readers:
        row[number] = exact(row[number] / best)
    return True


def _scalings(coefficients: Iterable[Coefficient]) -> int:
    return sum(c not in (1, -1) for c in coefficients)


def _with_single_readers_joined(linear: LinearMap) -> LinearMap:
    """Merge a step that is read once, with coefficient 1 or -1, into its reader if they share no term."""
    rows = linear.steps + linear.outputs
    readers = Counter(index for row in rows for index, _ in row)
    joined: list[Form] = []
    for row in rows:
        terms = dict(row)
        for index, c in row:
            inner = joined[index - linear.inputs] if index >= linear.inputs else ()
            if readers[index] == 1 and inner and c in (1, -1) and terms.keys().isdisjoint(i for i, _ in inner):
                del terms[index]
                terms |= {i: c * d for i, d in inner}
        joined.append(form(terms))
    return without_copies(LinearMap(linear.inputs, tuple(joined[len(linear.steps) :]), tuple(joined[: len(linear.steps)])))


def _with_shared_multiples(linear: LinearMap) -> LinearMap:
    """A multiple that is read several times becomes a step where it is first read."""
    rows = linear.steps + linear.outputs
    wanted = Counter((index, magnitude(c)) for row in rows for index, c in row if c not in (1, -1))
    place = list(range(linear.inputs))
    made: dict[tuple[int, Coefficient], int] = {}
    steps: list[Form] = []
    outputs: list[Form] = []
    for number, row in enumerate(rows):
        terms = []
        for index, c in row:
            key = (index, magnitude(c))
            if wanted[key] > 1 and key not in made:
                steps.append(((place[index], key[1]),))
                made[key] = linear.inputs + len(steps) - 1
            terms.append((made[key], 1 if c == key[1] else -1) if key in made else (place[index], c))
        if number < len(linear.steps):
            steps.append(form(terms))
            place.append(linear.inputs + len(steps) - 1)
        else:
            outputs.append(form(terms))
    return LinearMap(linear.inputs, tuple(outputs), tuple(steps))


EXCHANGES = 1500  # Exchanges that are tried for one basis.
LOOSEST = 12  # The most terms that the first exchanges may add; the limit falls to none at the end.


def program_over_basis(rows: Sequence[int], inputs: int, generator: random.Random, budget: SearchBudget) -> tuple[Made, set[Pair]] | None:
    """The values of a program that computes these packed rows through a basis, and the pairs of coefficients that it uses.

    The generator chooses the exchanges and breaks ties. None if coefficients over the basis are too large to be packed.
    """
    chosen = _RowBasis(rows, inputs, budget)
    for left in reversed(range(EXCHANGES)):
        chosen.try_exchange(generator, LOOSEST * left // EXCHANGES)
        if budget.is_spent:
            break
    combinations = chosen.combinations()
    if any(abs(c) > LARGEST for row in combinations for _, c in unpack(row)):
        return None
    units = [1 << DIGIT * i for i in range(inputs)]
    made, used = most_common_pairs(chosen.vectors(), units, generator)
    over_basis, more = most_common_pairs(combinations, chosen.vectors(), generator)
    for value, origin in over_basis.items():
        made.setdefault(value, origin)
    return {value: origin for value, origin in made.items() if value not in set(units)}, used | more


class _RowBasis:
    """Rows and inputs as combinations of a basis of them; exchanges lower the number of terms."""

    def __init__(self, rows: Sequence[int], inputs: int, budget: SearchBudget) -> None:
        self.wanted = len(rows)
        self.values = [*rows, *(1 << DIGIT * i for i in range(inputs))]
        self.over = [{i: Fraction(c) for i, c in unpack(value)} for value in self.values]
        self.terms = [len(row) for row in self.over]
        self.basis = list(range(self.wanted, self.wanted + inputs))
        self.budget = budget

    def vectors(self) -> list[int]:
        return [self.values[number] for number in self.basis]

    def combinations(self) -> list[int]:
        """Each row as a packed form over the basis, up to a factor."""
        found = []
        for row in self.over[: self.wanted]:
            multiple = lcm(*(c.denominator for c in row.values()))
            found.append(pack((i, int(c * multiple)) for i, c in row.items()))
        return found

    def try_exchange(self, generator: random.Random, slack: int) -> None:
        """Exchange a vector of the basis if that adds at most a random number of terms, up to `slack`."""
        new = generator.randrange(len(self.over))
        row = self.over[new]
        if len(row) < 2:
            return
        old = generator.choice(sorted(row))
        if self._more_terms(new, old) <= generator.randint(0, slack):
            self._exchange(new, old)

    def _more_terms(self, new: int, old: int) -> int:
        row = self.over[new]
        more = self.terms[new] - self.terms[self.basis[old]]
        for number, other in enumerate(self.over[: self.wanted]):
            if old in other:
                if number == new:
                    more -= len(row) - 1
                    continue
                factor = other[old] / row[old]
                for i, c in row.items():
                    if i != old:
                        more += i not in other
                        more -= i in other and other[i] == factor * c
                self.budget.spend(1)
        return more

    def _exchange(self, new: int, old: int) -> None:
        row = self.over[new]
        for number, other in enumerate(self.over):
            if old in other and number != new:
                factor = other[old] / row[old]
                for i, c in row.items():
                    total = other.get(i, Fraction(0)) - factor * c
                    if total:
                        other[i] = total
                    else:
                        other.pop(i, None)
                other[old] = factor
        self.over[new] = {old: Fraction(1)}
        self.basis[old] = new


WORK = 10_000_000  # The default number of sums of two values to try: at most about ten seconds.
GREEDY_STARTS = 8
BASES = 12  # The number of bases tried if rows have coefficients other than 1 and -1.
MOST_PAIRS = 24  # The most pairs of coefficients; a map with more has rows packed over multiples of inputs.


@dataclass(frozen=True)
class Shared:
    """A scheme with shared sums. `least` says for each of U, V and W whether fewer sums and differences are proved impossible.

    `work` is the number of sums of two values tried. The result depends only on the seed and the work allowed, unless the time limit cut
    the search (`was_cut`); then it depends on the machine.
    """

    scheme: Scheme
    least: tuple[bool, bool, bool]
    work: int
    was_cut: bool


@dataclass(frozen=True)
class ShareProgress:
    """The progress of a search: the operand, work done and allowed, and the additions of the best program for its map so far."""

    operand: str
    done: int
    allowed: int
    additions: int

    def __str__(self) -> str:
        return f"sums of {self.operand}: {self.additions}"


def share_sums(
    scheme: Scheme,
    *,
    seed: int = 0,
    work: int = WORK,
    seconds: float = math.inf,
    tries: int = 1,
    progress: Callable[[ShareProgress], None] = lambda state: None,
) -> Shared:
    """The scheme with programs of few additions, then few scalings, and never more additions than before.

    `work` bounds the search, and the result depends only on it, the `seed` and the number of `tries`; a limit in `seconds` for all of them
    can only cut the search short. Each further try has the next seed and as much work, and the best program of each map is kept. Bases,
    products and ring stay the same. A scaling is a multiplication by something other than 1 and -1. Raises `BilinearError` (E650) if an
    option is invalid.
    """
    if work < 1 or tries < 1 or not seconds > 0:
        raise fail("E650", f"work={work}, tries={tries}, seconds={seconds:g}: each must be positive")
    deadline = time.monotonic() + seconds
    best = _share(scheme, seed, work, deadline, progress)
    for more in range(1, tries):
        if all(best.least) or best.was_cut:
            break
        best = _better(best, _share(scheme, seed + more, work, deadline, progress))
    return best


def _better(first: Shared, second: Shared) -> Shared:
    maps = [min(pair, key=_cost) for pair in zip(_maps(first.scheme), _maps(second.scheme), strict=True)]
    a, b, c = (one or other for one, other in zip(first.least, second.least, strict=True))
    scheme = replace(first.scheme, u=maps[0], v=maps[1], w=maps[2])
    return Shared(scheme, (a, b, c), first.work + second.work, first.was_cut or second.was_cut)


def _maps(scheme: Scheme) -> tuple[LinearMap, LinearMap, LinearMap]:
    return scheme.u, scheme.v, scheme.w


def _share(scheme: Scheme, seed: int, work: int, deadline: float, progress: Callable[[ShareProgress], None]) -> Shared:
    whole = SearchBudget(work, deadline)
    found = []
    for number, (operand, linear) in enumerate(zip("ABC", _maps(scheme), strict=True)):

        def tell(additions: int, operand: str = operand) -> None:
            progress(ShareProgress(operand, work - whole.work, work, additions))

        found.append(_MapSearch(linear, scheme.ring, whole.part(3 - number), seed, tell).run())
    (u, a), (v, b), (w, c) = found
    return Shared(replace(scheme, u=u, v=v, w=w, places=None), (a, b, c), work - whole.work, whole.was_cut)


@dataclass
class _MapSearch:
    linear: LinearMap
    ring: Ring
    budget: SearchBudget
    seed: int
    progress: Callable[[int], None]

    def run(self) -> tuple[LinearMap, bool]:
        """The best program, and whether it is proved to be minimal."""
        few_inputs = self.linear.inputs <= len(self.linear.outputs)
        start = self.linear if few_inputs else transposed(self.linear)
        found, is_least = self._program(start, self.budget.part(2))
        turned = tidied(transposed(found))
        if not is_least:
            turned, is_least = self._program(turned, self.budget)
            found = min(found, tidied(transposed(turned)), key=_cost)
        programs = [found] if few_inputs else [turned, tidied(transposed(found))]
        sound = [program for program in programs if program.matrix == self.linear.matrix]  # packed coefficients might have overflowed
        return min(self.linear, *sound, key=_cost), is_least and bool(sound)

    def _program(self, start: LinearMap, budget: SearchBudget) -> tuple[LinearMap, bool]:
        generator = random.Random(self.seed)
        for fractions in (True, False) if self.ring == RATIONALS else (False,):
            rows = pack_rows(start.matrix, start.inputs, fractions=fractions)
            guesses: list[tuple[Made, set[Pair]]] = []
            while len(guesses) < GREEDY_STARTS and not (guesses and budget.is_spent):
                guesses.append(most_common_pairs(rows.values, rows.units, generator))
                budget.spend(sum(len(row) ** 2 for row in start.matrix))
            pairs = {pair for _, used in guesses for pair in used}
            if len(pairs) <= MOST_PAIRS:
                break
        if rows.whole and start.inputs < len(start.outputs) and not pairs <= set(PLAIN):
            found = [program_over_basis(rows.values, start.inputs, generator, budget) for _ in range(BASES)]
            for made, used in sorted(filter(None, found), key=lambda program: len(program[0])):
                if len(pairs | used) <= MOST_PAIRS:
                    guesses.append((made, used))
                    pairs |= used
        walk = SumWalk(rows.units, rows.values, pairs, budget, self.seed)
        others = [value for row in partial_sums(start) if (value := rows.value_of(row))]
        made = walk.run([made for made, _ in guesses], others, self.progress)
        whole = not self.ring.modulus and all(c in (1, -1) for row in start.matrix for _, c in row)
        return program_of(start.inputs, rows, [walk.origin(value, v, w) for value, (v, w) in made.items()]), whole and walk.is_least(made)


def _cost(linear: LinearMap) -> tuple[int, int]:
    return linear.additions, linear.scalings
