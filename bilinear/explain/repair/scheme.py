"""The search for the fewest edits that make a scheme correct.

At a random point modulo a prime, a scheme is one number: the sum over products of (U a)(V b)(c W), compared with the trace of the matrix
product. The difference is a polynomial of degree three, so a wrong candidate passes with probability at most 3/p (Schwartz, Zippel). Edits
of U, of V and of W each change one factor of every product: a combination is one value a product on each of three sides, and its result is
the sum over the products of the three factors, so all combinations are one matrix product modulo p. Candidates that pass are proved.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import product
from math import comb

import numpy as np
from numpy.typing import NDArray

from bilinear.analysis.brent import residual
from bilinear.explain.repair.edits import (
    KINDS,
    PRIME,
    TABLES,
    Array,
    Edit,
    Slot,
    backward,
    count_edits,
    edits,
    find_focus,
    forward,
    has_residue,
    with_edits,
)
from bilinear.ir.linear import Form, LinearMap, form, transposed_rows
from bilinear.ir.number import Coefficient, Symbolic, exact, rational, residue
from bilinear.ir.scheme import Scheme
from bilinear.verify.rings import Number
from bilinear.verify.scheme import multiplies

EXACT = 127  # So many products of residues below 2^23 in size, and a residue more, sum up in 53 bits.
BLOCK = 2**18  # The combinations that are multiplied out at a time.


@dataclass(frozen=True)
class Side:
    """Combinations of edits of a table. For each combination, and for the table as written: one value a product."""

    table: str
    sets: Array
    values: Array
    written: Array

    @property
    def touched(self) -> NDArray[np.bool_]:
        """Which combinations change which product: a boolean array of (sets, products)."""
        return np.not_equal(self.values, self.written)


class Join:
    """Finds combinations of three sides, the shortest first, whose sum over the products is the target.

    For a fixed combination of the first side, combinations of the other two that change different products add their changes, so sorting
    finds the partners. Combinations that change a common product are multiplied out.
    """

    def __init__(self, sides: Sequence[Side], target: int) -> None:
        self.first, self.second, self.third = sides
        self.target = target
        self.groups = self._groups()

    def _groups(self) -> list[tuple[Array, Array]]:
        """The pairs of combinations of the second and third side that change a common product, or all pairs if most do."""
        x, y = self.second.touched, self.third.touched
        meeting = [(np.flatnonzero(x[:, p]), np.flatnonzero(y[:, p])) for p in range(x.shape[1])]
        if sum(len(a) * len(b) for a, b in meeting) * 2 > len(x) * len(y):
            return [(np.arange(len(x)), np.arange(len(y)))]
        return [(a, b) for a, b in meeting if len(a) and len(b)]

    @property
    def work(self) -> int:
        """The number of combinations examined."""
        return len(self.first.sets) * (len(self.second.sets) + len(self.third.sets) + sum(len(a) * len(b) for a, b in self.groups))

    def hits(self) -> Iterator[tuple[int, int, int]]:
        """The combinations that reach the target, each once."""
        for i, row in enumerate(self.first.values):
            found = {*self._apart(row), *self._meeting(row)}
            yield from ((i, j, k) for j, k in sorted(found))

    def _apart(self, row: Array) -> Iterator[tuple[int, int]]:
        x, y = self.second, self.third
        scaled = x.written * row % PRIME
        base = int((scaled * y.written % PRIME).sum()) % PRIME
        left, right = (x.values * (row * y.written % PRIME) % PRIME).sum(1) % PRIME, (y.values * scaled % PRIME).sum(1) % PRIME
        order = np.argsort(right, kind="stable")
        wanted = (self.target + base - left) % PRIME
        low, high = np.searchsorted(right[order], wanted, "left"), np.searchsorted(right[order], wanted, "right")
        for j in np.flatnonzero(high > low):
            for k in order[low[j] : high[j]]:
                if int((x.values[j] * row % PRIME * y.values[k] % PRIME).sum()) % PRIME == self.target:
                    yield int(j), int(k)

    def _meeting(self, row: Array) -> Iterator[tuple[int, int]]:
        third = _centered(self.third.values)
        for left, right in self.groups:
            scaled = _centered(self.second.values[left] * row % PRIME)
            block = max(1, BLOCK // len(left))
            for start in range(0, len(right), block):
                quotients = (_product(scaled, third[right[start : start + block]]) - self.target) / PRIME
                for j, k in np.argwhere(quotients == np.rint(quotients)):
                    pair = int(left[j]), int(right[start + k])
                    values = self.second.values[pair[0]] * row % PRIME * self.third.values[pair[1]] % PRIME
                    if int(values.sum()) % PRIME == self.target:  # which the rounding of a quotient may only seem to be
                        yield pair


def _centered(values: Array) -> NDArray[np.float64]:
    return np.where(values > PRIME // 2, values - PRIME, values).astype(np.float64, order="C")


def _product(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """left @ right.T modulo the prime, of residues of least absolute value: an exact sum of at most 53 bits."""
    total = np.zeros((len(left), len(right)))
    for start in range(0, left.shape[1], EXACT):
        total -= np.rint(total / PRIME) * PRIME
        total += left[:, start : start + EXACT] @ right[:, start : start + EXACT].T
    return total


class RandomPoint:
    """Random values of the blocks of A and B, random weights of those of C, and the number that a correct scheme gives there."""

    def __init__(self, scheme: Scheme, modulus: int, seed: int = 0) -> None:
        generator = random.Random(seed)
        self.modulus = modulus
        m, k, n = scheme.m, scheme.k, scheme.n
        self.u, self.v, self.w = ([generator.randrange(modulus) for _ in range(count)] for count in (m * k, k * n, m * n))
        cells = product(range(m), range(k), range(n))
        self.target = sum(self.u[i * k + p] * self.v[p * n + j] * self.w[i * n + j] for i, p, j in cells) % modulus


class Pool:
    """The edits of one table as arrays: rows, indices and amounts of at most `width` changes each, and the numbers of their slots."""

    def __init__(self, linear: LinearMap, chosen: Sequence[Edit], modulus: int) -> None:
        self.linear = linear
        self.modulus = modulus
        self.edits = tuple(chosen)
        width = max((len(e.changes) for e in chosen), default=1)
        slots: dict[Slot, int] = {}
        for slot in (slot for e in chosen for slot in sorted(e.slots)):
            slots.setdefault(slot, len(slots))
        taken = max((len(e.slots) for e in chosen), default=1)
        self.rows, self.indices, self.deltas = (np.zeros((len(chosen), width), dtype=np.int64) for _ in range(3))
        self.rows -= 1
        self.slots = np.full((len(chosen), taken), -1, dtype=np.int64)
        for number, e in enumerate(chosen):
            self.slots[number, : len(e.slots)] = [slots[slot] for slot in e.slots]
            for place, change in enumerate(e.changes):
                self.rows[number, place], self.indices[number, place] = change.row, change.index
                self.deltas[number, place] = residue(change.delta, modulus)

    def sets(self, size: int) -> Array:
        """The combinations of `size` edits that rewrite different terms: an array of (sets, size)."""
        count = len(self.edits)
        if size < 2:
            return np.arange(count).reshape(-1, 1) if size else np.zeros((1, 0), dtype=np.int64)
        first, second = np.triu_indices(count, 1)
        pairs = np.stack([first, second], axis=1)[~self._clash(first, second)]
        if size == 2:
            return pairs
        triples = [np.column_stack([pairs[pairs[:, 1] < last], np.full((pairs[:, 1] < last).sum(), last)]) for last in range(count)]
        every = np.concatenate([np.zeros((0, 3), dtype=np.int64), *triples])
        return every[~(self._clash(every[:, 0], every[:, 2]) | self._clash(every[:, 1], every[:, 2]))]

    def _clash(self, left: Array, right: Array) -> NDArray[np.bool_]:
        x, y = self.slots[left][:, :, None], self.slots[right][:, None, :]
        clashing: NDArray[np.bool_] = ((x == y) & (x >= 0)).any(axis=(1, 2))
        return clashing

    def changes(self, sets: Array, row: int) -> Iterator[tuple[Array, Array, Array]]:
        """The changes of a row: the sets that make them, the index, and the amount."""
        for member in range(sets.shape[1]):
            for place in range(self.rows.shape[1]):
                which = np.flatnonzero(self.rows[sets[:, member], place] == row)
                if len(which):
                    edit = sets[which, member]
                    yield which, self.indices[edit, place], self.deltas[edit, place]


def values_of(table: str, pool: Pool, point: RandomPoint, sets: Array) -> Array:
    """One factor of each product, for each of the combinations of edits of a table: (sets, products)."""
    linear, changes, given = pool.linear, partial(pool.changes, sets), getattr(point, table)
    given = np.broadcast_to(np.array(given, dtype=np.int64), (len(sets), len(given)))
    if table == "w":
        return backward(linear, given, point.modulus, changes)[:, : linear.inputs]
    return forward(linear, given, point.modulus, changes)[:, linear.inputs + len(linear.steps) :]


MOST_SYSTEM = 700  # The most equations of one system, for each of its right-hand sides.
MOST_UNKNOWNS = 130

Cell = tuple[int, int, int]  # The numbers of a block of A, a block of B and a block of C.


@dataclass(frozen=True)
class Solution:
    """The table (u, v or w) that is required if the other two are right.

    `rows` are the rows that differ from the text: (product, form over blocks) in u and v, (block of C, form over products) in w. `unsolved`
    counts the right-hand sides without a solution; for w these are the blocks of C in `impossible`. `unique` is True if the equations
    determine every entry.
    """

    table: str
    rows: tuple[tuple[int, Form], ...]
    unsolved: int
    impossible: tuple[int, ...] = ()
    unique: bool = True

    @property
    def mends(self) -> bool:
        """True if correcting this table alone makes the scheme correct."""
        return not self.unsolved


def solvable(scheme: Scheme) -> bool:
    """True if the systems of a scheme are rational and small enough to be solved."""
    if scheme.ring.name not in ("Z", "Q") or scheme.bases is not None or scheme.rank > MOST_UNKNOWNS:
        return False
    blocks = scheme.m * scheme.k, scheme.k * scheme.n, scheme.m * scheme.n
    if max(blocks[0] * blocks[1], blocks[1] * blocks[2], blocks[0] * blocks[2]) > MOST_SYSTEM:
        return False
    return not any(isinstance(c, Symbolic) for table in scheme.tables for f in table for _, c in f)


def solve_tables(scheme: Scheme) -> dict[str, Solution]:
    """Each of u, v and w solved from the other two; empty if `solvable` is False."""
    if not solvable(scheme):
        return {}
    left = residual(scheme).differences()
    wrong = {(*divmod(pair, scheme.k * scheme.n), output): -difference for output, pair, difference in left}
    return {table: _solve(scheme, wrong, axis) for axis, table in enumerate("uvw")}


def _solve(scheme: Scheme, wrong: dict[Cell, Coefficient], axis: int) -> Solution:
    """Solve for the factors of one axis: 0 for u, 1 for v, 2 for w."""
    from bilinear.verify.engine import QQ, DomainMatrix

    u, v, w = scheme.tables
    factors = u, v, transposed_rows(w, scheme.rank)
    first, second = (i for i in range(3) if i != axis)
    sizes = (scheme.m * scheme.k, scheme.k * scheme.n, scheme.m * scheme.n)
    entries: dict[int, dict[int, Number]] = {}

    def put(row: int, column: int, value: Coefficient) -> None:
        number = rational(value)
        entries.setdefault(row, {})[column] = QQ(number.numerator, number.denominator)

    for p in range(scheme.rank):
        for i, x in factors[first][p]:
            for j, y in factors[second][p]:
                put(i * sizes[second] + j, p, x * y)
    for cell, value in wrong.items():
        put(cell[first] * sizes[second] + cell[second], scheme.rank + cell[axis], value)
    shape = sizes[first] * sizes[second], scheme.rank + sizes[axis]
    reduced, pivots = DomainMatrix(entries, shape, QQ).rref()
    return _read(scheme, axis, factors[axis], reduced.to_sdm(), [p for p in pivots if p < scheme.rank])


def _read(scheme: Scheme, axis: int, written: tuple[Form, ...], reduced: dict[int, dict[int, Number]], pivots: list[int]) -> Solution:
    """The solution in an echelon form; undetermined unknowns are not corrected."""
    bad = {column - scheme.rank for row in range(len(pivots), max(reduced, default=-1) + 1) for column in reduced.get(row, ())}
    corrections = {
        pivot: {
            column - scheme.rank: exact(Fraction(int(x.numerator), int(x.denominator)))
            for column, x in reduced.get(row, {}).items()
            if column >= scheme.rank
        }
        for row, pivot in enumerate(pivots)
    }
    unique = len(pivots) == scheme.rank
    solved = {p: [(i, x) for i, x in more.items() if i not in bad] for p, more in corrections.items()}
    if axis < 2:
        rows = tuple((p, form([*written[p], *more])) for p, more in solved.items() if more)
        return Solution("uv"[axis], rows, len(bad), (), unique)
    outputs: dict[int, list[tuple[int, Coefficient]]] = {}
    for p, more in solved.items():
        for output, x in more:
            outputs.setdefault(output, []).append((p, x))
    table = scheme.tables[2]
    changed = tuple((output, form([*table[output], *more])) for output, more in sorted(outputs.items()))
    return Solution("w", changed, len(bad), tuple(sorted(bad)), unique)


MOST_EDITS = 3
MOST_CANDIDATES = 20_000_000  # The most combinations of a number of edits: about half a second.
MOST_OF_ALL = 6_000_000  # The same for combinations of all edits.
MOST_VALUES = 5_000_000  # The most values of blocks, sums and products for all edits of a table together.
MOST_LISTED = 40_000  # The most single edits of a scheme that are listed.
MOST_PROVED = 60  # The most candidates that are proved; any others are only counted.
CLOSE = ("sign", "operand", "drop")  # The kinds of edits to combine if all kinds would take too long.
MOST_EQUATIONS = 100_000  # With more Brent equations of right-hand side 1 (m * k * n), no repair is searched.
MOST_IN_DOUBT = 200  # The most rows and columns in which one edit may stand, where not every one is tried.
POINTS = 48  # Where an edit over Z/p is tried; over Z/2 a wrong one passes with at most (7/8)**48.
MOST_PROOFS = 800  # The most proofs when single edits are tried by proof.
MOST_TERMS = 1_500_000  # The most products of three coefficients when single edits are tried by proof.


@dataclass(frozen=True)
class RepairSearch:
    """The result of a search: repairs with the fewest edits, those closest to the text first, and the number of repairs found.

    `complete` is the number of edits up to which every combination was tried; `close` is the same for signs, operands and dropped terms.
    """

    repairs: tuple[tuple[Edit, ...], ...] = ()
    count: int = 0
    complete: int = 0
    close: int = 0


def search_repairs(scheme: Scheme, solutions: Mapping[str, Solution]) -> RepairSearch:
    """The fewest edits, at most three, that make a wrong scheme correct; every repair returned is proved.

    `solutions` come from `solve_tables`. They rule out edits of one table alone, or name the rows that need edits. Over a ring with
    zero divisors nothing is searched.
    """
    if scheme.m * scheme.k * scheme.n > MOST_EQUATIONS or scheme.ring.has_zero_divisors:
        return RepairSearch()
    most, focus = MOST_EDITS, None
    if count_edits(scheme) > MOST_LISTED:
        most, focus = 1, find_focus(scheme)
        if focus is None or focus.in_doubt > MOST_IN_DOUBT:
            return RepairSearch()
    every = edits(scheme, focus)
    coefficients = (c for linear in (scheme.u, scheme.v, scheme.w) for f in (*linear.steps, *linear.outputs) for _, c in f)
    if scheme.bases is not None or scheme.ring.modulus >= 2**31 or not all(map(has_residue, coefficients)):
        return _search_by_proof(scheme, every)
    if scheme.ring.modulus:
        return _search_modulo(scheme, every)
    point = RandomPoint(scheme, PRIME)
    close_ones = tuple(e for e in every if e.kind in CLOSE)
    pools = [(_pools(scheme, close_ones, solutions), MOST_CANDIDATES), (_pools(scheme, every, solutions), MOST_OF_ALL)]
    complete = close = 0
    for size in range(1, most + 1):
        for pool, limit in pools:
            tables = _EditCombinations(scheme, point, pool, size)
            if tables.work > limit:
                return RepairSearch((), 0, complete, close)
            places = [sorted(hit, key=lambda e: (start_of(e), TABLES.index(e.table), e.changes[0].row)) for hit in tables.hits()]
            repairs, count = _proved(scheme, [tuple(hit) for hit in places])
            if repairs:
                return RepairSearch(repairs, count, complete, close)
            close = size
        complete = size
    return RepairSearch((), 0, complete, close)


def closeness(repair: Sequence[Edit]) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """The sort key of repairs: few edits, then kinds that stay close to the text, then their places."""
    kinds = tuple(sorted((KINDS.index(e.kind) for e in repair), reverse=True))
    return len(repair), kinds, tuple(map(start_of, repair))


def start_of(edit: Edit) -> int:
    """Where an edit stands in the text; 0 without one."""
    return edit.span.start if edit.span is not None else 0


def _proved(scheme: Scheme, found: list[tuple[Edit, ...]]) -> tuple[tuple[tuple[Edit, ...], ...], int]:
    """The repairs that are proved, in order, and their number; of several of the same rows that give the same scheme only the first counts.

    A term that is missing may have stood in several sums that are used once. A sum of one term is the likeliest: nobody names a copy.
    """
    different: dict[object, tuple[Edit, ...]] = {}
    ordered = sorted(found, key=lambda repair: (closeness(repair)[:2], _completed(scheme, repair), closeness(repair)))
    for repair in ordered[:MOST_PROVED]:
        repaired = with_edits(scheme, repair)
        same = repaired.tables, frozenset((e.table, c.row) for e in repair for c in e.changes)
        if same not in different and multiplies(repaired):
            different[same] = repair
    return tuple(different.values()), len(different) + max(0, len(ordered) - MOST_PROVED)


def _completed(scheme: Scheme, repair: Sequence[Edit]) -> int:
    rows = {t: (*getattr(scheme, t).steps, *getattr(scheme, t).outputs) for t in TABLES}
    return -sum(len(rows[e.table][c.row]) == 1 for e in repair if e.kind == "add" for c in e.changes)


def _search_modulo(scheme: Scheme, every: Sequence[Edit]) -> RepairSearch:
    """Try single edits over Z/p at many points, because p may be small; then prove them."""
    pools = {t: [e for e in every if e.table == t and all(scheme.ring.holds(c.delta) for c in e.changes)] for t in TABLES}
    left = {t: np.arange(len(pool)) for t, pool in pools.items()}
    for seed in range(POINTS):
        point = RandomPoint(scheme, scheme.ring.modulus, seed)
        for table in TABLES:
            left[table] = left[table][_passes(scheme, point, table, [pools[table][i] for i in left[table]])]
    return _search_by_proof(scheme, [pools[t][i] for t in TABLES for i in left[t]])


def _passes(scheme: Scheme, point: RandomPoint, table: str, chosen: Sequence[Edit]) -> Array:
    pools = {t: Pool(getattr(scheme, t), chosen if t == table else (), point.modulus) for t in TABLES}
    one = np.ones(scheme.rank, dtype=object)
    for other in (t for t in TABLES if t != table):
        one = one * values_of(other, pools[other], point, pools[other].sets(0))[0].astype(object) % point.modulus
    edited = values_of(table, pools[table], point, pools[table].sets(1))
    found: Array = (edited.astype(object) @ one) % point.modulus == point.target
    return found.astype(bool)


def _search_by_proof(scheme: Scheme, every: Sequence[Edit]) -> RepairSearch:
    """Try single edits by proving each: a scheme's ring or bases may allow nothing else."""
    terms = 100 + sum(len(left) * len(right) for left, right in zip(*scheme.tables[:2], strict=True)) * 4
    terms += scheme.m * scheme.k * scheme.n + sum(len(row) for table in scheme.tables for row in table)
    most = min(MOST_PROOFS, MOST_TERMS // terms)
    ordered = sorted(every, key=lambda e: closeness((e,)))
    sound = tuple((e,) for e in ordered[:most] if multiplies(with_edits(scheme, (e,))))
    complete = int(len(ordered) <= most)
    return RepairSearch(sound, len(sound), complete, complete)


def _pools(scheme: Scheme, chosen: Sequence[Edit], solutions: Mapping[str, Solution]) -> dict[tuple[str, bool], Pool]:
    """The edits of each table, and those of them that may repair the scheme by themselves."""
    pools: dict[tuple[str, bool], Pool] = {}
    for table in TABLES:
        linear: LinearMap = getattr(scheme, table)
        mine = [e for e in chosen if e.table == table]
        pools[table, False] = Pool(linear, mine, PRIME)
        alone = _alone(linear, mine, solutions.get(table))
        pools[table, True] = Pool(linear, alone, PRIME) if len(alone) < len(mine) else pools[table, False]
    return pools


class _EditCombinations:
    """The combinations of `size` edits, grouped by the number of edits in each table."""

    def __init__(self, scheme: Scheme, point: RandomPoint, pools: Mapping[tuple[str, bool], Pool], size: int) -> None:
        self.point, self.pools = point, pools
        maps = {table: getattr(scheme, table) for table in TABLES}
        self.widths = {table: linear.inputs + len(linear.steps) + len(linear.outputs) for table, linear in maps.items()}
        self.known: dict[tuple[str, int, bool], Side] = {}
        self.splits = [s for s in product(range(size + 1), repeat=3) if sum(s) == size]

    @property
    def work(self) -> int:
        """The number of combinations to try; above every limit if their values alone would be too many."""
        counts = [(t, len(self.pools[t, self.is_alone(s)].edits), e) for s in self.splits for t, e in zip(TABLES, s, strict=True)]
        if any(comb(n, e) * self.widths[t] > MOST_VALUES for t, n, e in counts):
            return MOST_CANDIDATES + 1
        return sum(Join(self._sides(split), self.point.target).work for split in self.splits)

    def is_alone(self, split: tuple[int, ...]) -> bool:
        """True if all edits are in one table."""
        return sorted(split)[1] == 0

    def hits(self) -> Iterator[tuple[Edit, ...]]:
        for split in self.splits:
            sides = self._sides(split)
            for chosen in Join(sides, self.point.target).hits():
                every = [self.pools[side.table, self.is_alone(split)].edits for side in sides]
                yield tuple(pool[e] for pool, side, i in zip(every, sides, chosen, strict=True) for e in side.sets[i])

    def _sides(self, split: tuple[int, ...]) -> list[Side]:
        sides = [self._side(t, e, self.is_alone(split)) for t, e in zip(TABLES, split, strict=True)]
        return sorted(sides, key=lambda side: len(side.sets))

    def _side(self, table: str, size: int, alone: bool) -> Side:
        key = table, size, alone and size > 0
        if key not in self.known:
            pool = self.pools[table, alone]
            sets, none = pool.sets(size), pool.sets(0)
            values, written = (values_of(table, pool, self.point, some) for some in (sets, none))
            self.known[key] = Side(table, sets, values, written[0])
        return self.known[key]


def _alone(linear: LinearMap, mine: Sequence[Edit], solution: Solution | None) -> list[Edit]:
    if solution is None or (solution.mends and (linear.steps or not solution.unique)):
        return list(mine)
    rows = {row for row, _ in solution.rows} if solution.mends else set()
    return [e for e in mine if any(c.row in rows for c in e.changes)]
