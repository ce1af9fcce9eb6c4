"""Search for an order of single products with few live temporaries and few sums formed twice.

A state records which products are done, which sums of A and B are held, and which values lie in temporaries instead of C; the partial sums
of products follow from the products (`Results`). Small schemes are searched exhaustively, others by a beam.
Sets of values are integers, one bit a value.
"""

from __future__ import annotations

import heapq
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations

from bilinear.ir.linear import Form, LinearMap, form
from bilinear.ir.number import Coefficient, exact, rational


@dataclass(frozen=True)
class Adding:
    """How sums change after a product, as bit sets of values.

    `live` are the values that are still needed or are results, `computed` the sums that get new terms.
    `aliases` maps a sum that begins as a multiple of a dying value to that value, so that nothing moves.
    """

    live: int
    computed: int
    aliases: Mapping[int, int]


class Results:
    """The results as sums of products and of other sums.

    Values are numbered: products first, then sums; `terms[v]` are those of sum v, `outputs` the results. A sum may begin before all its
    terms exist; each term is added once both exist. With `begun`, the results start with C's old value.
    """

    def __init__(self, linear: LinearMap, begun: bool) -> None:
        rank = linear.inputs
        needed = {index for row in linear.outputs for index, _ in row}
        for s in reversed(range(len(linear.steps))):
            if linear.inputs + s in needed:
                needed |= {index for index, _ in linear.steps[s]}
        used = [s for s in range(len(linear.steps)) if linear.inputs + s in needed]
        number = {i: i for i in range(rank)} | {rank + s: rank + position for position, s in enumerate(used)}
        rows = [linear.steps[s] for s in used] + list(linear.outputs)
        self.rank = rank
        self.sums = range(rank, rank + len(rows))
        self.terms: dict[int, dict[int, Coefficient]] = {rank + i: {number[t]: c for t, c in row} for i, row in enumerate(rows)}
        self.outputs = tuple(range(rank + len(used), rank + len(rows)))
        self.needs = {s: _mask(terms) for s, terms in self.terms.items()}
        self.uses = [_mask(s for s in self.sums if v in self.terms[s]) for v in range(rank + len(rows))]
        self.results = _mask(self.outputs)
        self.useful = tuple(p for p in range(rank) if self.uses[p])
        self.everything = _mask(self.useful)
        self.at_start = self.results if begun else 0
        self._states: dict[int, tuple[int, int]] = {0: (self.at_start, self.at_start & _mask(s for s in self.sums if not self.terms[s]))}
        self._addings: dict[tuple[int, int], Adding] = {}
        self._live: dict[tuple[int, int], int] = {}

    def state(self, done: int, product: int) -> tuple[int, int]:
        """The sums begun and the values complete after `product` is added to the products `done`."""
        after = done | 1 << product
        if after not in self._states:
            self._states[after] = self._settle(after, self.of(done)[0])
        return self._states[after]

    def of(self, done: int) -> tuple[int, int]:
        """The sums begun and the values complete after the products `done`, added in any order."""
        if done not in self._states:
            begun = self.at_start
            for product in members(done):
                begun = self._settle(done & ((2 << product) - 1), begun)[0]
            self._states[done] = self._settle(done, begun)
        return self._states[done]

    def live(self, begun: int, complete: int) -> int:
        """The values that need a place: sums begun but not complete, results, and values that wait to be added."""
        key = begun, complete
        if key not in self._live:
            waiting = _mask(v for v in members(complete & ~self.results) if self.uses[v] & ~begun)
            self._live[key] = begun & ~complete | begun & self.results | waiting
        return self._live[key]

    def takes(self, done: int, product: int) -> int | None:
        """The only sum that needs a product, if it has begun: then the product may be added to it as it is computed."""
        (*sums,) = members(self.uses[product])
        return sums[0] if len(sums) == 1 and self.of(done)[0] >> sums[0] & 1 else None

    def adding(self, done: int, product: int, directly: bool = False) -> Adding:
        """The changes after `product`, which follows the products `done`; with `directly`, it has already been added to its sum."""
        key = (done << 1 | directly, product)
        if key not in self._addings:
            before, after = self.of(done), self.state(done, product)
            own = 1 << product if directly else 0
            live = self.live(*after)
            computed = _mask(s for s in self.sums if self.absorbed(s, *after) & ~(self.absorbed(s, *before) | own & self.needs[s]))
            dying = (self.live(*before) | 1 << product) & ~live & ~computed
            aliases: dict[int, int] = {}
            for s in members(after[0] & ~before[0] & live):
                held = self.absorbed(s, *after)
                if held and not held & (held - 1) and held & dying:
                    aliases[s] = held.bit_length() - 1
                    dying &= ~held
            self._addings[key] = Adding(live, computed & ~_mask(aliases), aliases)
        return self._addings[key]

    def absorbed(self, total: int, begun: int, complete: int) -> int:
        """The terms that a sum holds already."""
        return self.needs[total] & complete if begun >> total & 1 else 0

    def _settle(self, done: int, begun: int) -> tuple[int, int]:
        """Begin sums while that does not raise the number of live values: each set of sums that begins lets as many values die."""
        while True:
            complete = done
            for s in self.sums:
                if begun >> s & 1 and not self.needs[s] & ~complete:
                    complete |= 1 << s
            if done == self.everything and self.results & ~begun:
                begun |= _mask(s for s in self.sums if self.terms[s])
                continue
            more = self._tight(begun, complete)
            if not more:
                return begun, complete
            begun |= more

    def _tight(self, begun: int, complete: int) -> int:
        """Sums not begun that keep at least as many values alive, which no other sum needs.

        A bipartite matching of values with the sums that they wait for decides. A value that can only be matched by displacing others
        waits, together with them, for too few sums.
        """
        wanted = [w for v in members(complete & ~self.results) if (w := self.uses[v] & ~begun)]
        alone = next((w for w in wanted if not w & (w - 1)), 0)
        if alone:
            return alone
        matched: dict[int, int] = {}
        for v in range(len(wanted)):
            _match(v, wanted, matched, 0)
        reached = (_reached(v, wanted, matched) for v in range(len(wanted)))
        return min((sums for sums in reached if sums), key=int.bit_count, default=0)


def _match(value: int, wanted: Sequence[int], matched: dict[int, int], seen: int) -> int:
    """Match a value with a sum along an augmenting path; returns the sums that were tried, or -1 if it is matched."""
    for s in members(wanted[value]):
        if seen >> s & 1:
            continue
        seen |= 1 << s
        if s in matched:
            tried = _match(matched[s], wanted, matched, seen)
            if tried >= 0:
                seen |= tried
                continue
        matched[s] = value
        return -1
    return seen


def _reached(value: int, wanted: Sequence[int], matched: Mapping[int, int]) -> int:
    """The sums on alternating paths from a value; none if one of them is unmatched."""
    sums, values = 0, [value]
    while values:
        for s in members(wanted[values.pop()] & ~sums):
            if s not in matched:
                return 0
            sums |= 1 << s
            values.append(matched[s])
    return sums


def with_shared_sums(linear: LinearMap) -> LinearMap:
    """A map without steps, rewritten with repeated pairs of terms as steps: the most frequent pair first, until none repeats."""
    rows = [{i: rational(c) for i, c in row} for row in linear.matrix]
    steps: list[Form] = []
    while True:
        counts = Counter((i, j, row[j] / row[i]) for row in rows for i, j in combinations(sorted(row), 2))
        pair, times = max(counts.items(), key=lambda item: (item[1], *(-x for x in item[0])), default=((0, 0, Fraction(1)), 0))
        if times < 2:
            return LinearMap(linear.inputs, tuple(map(_exact, rows)), tuple(steps))
        i, j, ratio = pair
        name = linear.inputs + len(steps)
        steps.append(_exact({i: Fraction(1), j: ratio}))
        for row in rows:
            if i in row and row.get(j) == ratio * row[i]:
                row[name] = row.pop(i)
                del row[j]


def members(values: int) -> Iterator[int]:
    """The values of a set, in ascending order."""
    while values:
        low = values & -values
        yield low.bit_length() - 1
        values ^= low


def _mask(values: Iterable[int]) -> int:
    total = 0
    for value in values:
        total |= 1 << value
    return total


def _exact(row: Mapping[int, Fraction]) -> Form:
    return form((i, exact(c)) for i, c in row.items())


@dataclass(frozen=True)
class Making:
    """How one sum is formed from another: `factor` times the other sum, plus `rest`, a form over the operand's blocks."""

    factor: Fraction
    rest: Form

    @cached_property
    def additions(self) -> int:
        """Block additions; without another sum, the first term costs none."""
        return len(self.rest) - (not self.factor)

    @property
    def traffic(self) -> int:
        """Blocks read and written."""
        return len(self.rest) + bool(self.factor) + 1


class HeldFactors:
    """The factors of one operand. Those that are sums lie on `lines`: factors on one line are multiples of one form.

    `line[p]` is the number of the line of product p, or -1 if its factor is the single block `block[p]`. The factor is `scale[p]` times
    the form of the line, or times the block.
    """

    def __init__(self, rows: Sequence[Form]) -> None:
        self.lines: list[Form] = []
        self.line: list[int] = []
        self.scale: list[Fraction] = []
        self.block: list[int] = []
        for row in rows:
            self._add(row)
        self.users = [frozenset(p for p, own in enumerate(self.line) if own == i) for i in range(len(self.lines))]
        self._makings: dict[tuple[int, int], Making] = {}

    def _add(self, row: Form) -> None:
        index, first = row[0] if row else (0, 0)
        if len(row) <= 1:
            line, scale = -1, rational(first)
        else:
            known = next((i for i, line in enumerate(self.lines) if _multiple(row, line) is not None), None)
            line = len(self.lines) if known is None else known
            self.lines += [row] if known is None else []
            scale = _multiple(row, self.lines[line]) or Fraction(1)
        self.line.append(line)
        self.scale.append(scale)
        self.block.append(index)

    def making(self, line: int, held: int) -> Making:
        """The cheapest way to form `line` from the line `held`, or from blocks alone if `held` is -1."""
        if (line, held) not in self._makings:
            self._makings[line, held] = self._cheapest(self.lines[line], self.lines[held] if held >= 0 else ())
        return self._makings[line, held]

    def best(self, line: int, held: Sequence[int]) -> tuple[int, Making]:
        """The cheapest way to form a line, and the line it starts from: one of `held`, or -1 for blocks alone."""
        ways = [(h, self.making(line, h)) for h in (-1, *held)]
        return min(ways, key=lambda way: (way[1].additions, way[1].traffic))

    def cheapest(self, line: int) -> int:
        """The fewest additions that form a line, whichever other line is held."""
        return min(self.making(line, h).additions for h in range(-1, len(self.lines)) if h != line)

    @staticmethod
    def _cheapest(wanted: Form, held: Form) -> Making:
        have = {i: rational(c) for i, c in held}
        factors = {Fraction(0)} | {rational(c) / have[i] for i, c in wanted if i in have}
        ways = [Making(f, form([*wanted, *((i, -f * c) for i, c in have.items())])) for f in sorted(factors)]
        return min((way for way in ways if bool(way.factor) == bool(held)), key=lambda w: w.additions, default=Making(Fraction(0), wanted))


def _multiple(row: Form, line: Form) -> Fraction | None:
    factor = rational(row[0][1]) / rational(line[0][1])
    return factor if row == form((i, factor * rational(c)) for i, c in line) else None


EXACT_PRODUCTS = 8  # The most products for which every order is searched.


@dataclass(frozen=True)
class OrderProgress:
    """The state of a search: products placed of all products, and the limit on temporaries."""

    done: int
    products: int
    temporaries: int

    def __str__(self) -> str:
        return f"{self.done}/{self.products} products, {self.temporaries} temporaries"


@dataclass(frozen=True)
class OrderEffort:
    """The width of the beam; a `deadline`, a value of `time.monotonic`, ends the search."""

    width: int
    deadline: float = math.inf

    def is_over(self) -> bool:
        """True after the deadline."""
        return time.monotonic() > self.deadline


@dataclass(frozen=True)
class OrderState:
    """The products done, the lines of A and of B that are held, and (as bits) the values of C's shape that lie in temporaries."""

    done: int
    left: tuple[int, ...]
    right: tuple[int, ...]
    beside: int


@dataclass(frozen=True)
class OrderMove:
    """A product added to a sum begun, or written to C or `beside`; the lines held meanwhile; `places` of values afterwards."""

    product: int
    left: tuple[int, ...]
    right: tuple[int, ...]
    directly: bool
    beside: bool
    places: int


@dataclass(frozen=True)
class Path:
    """A state and how it was reached. `ahead` is a lower bound on the cost of lines not formed yet."""

    additions: int
    traffic: int
    ahead: int
    state: OrderState
    move: OrderMove | None = None
    before: Path | None = None

    @property
    def cost(self) -> tuple[int, int]:
        """The sort key: additions, then traffic."""
        return self.additions, self.traffic

    def moves(self) -> tuple[OrderMove, ...]:
        """The moves from the start, in order."""
        found: list[OrderMove] = []
        path = self
        while path.move is not None and path.before is not None:
            found.append(path.move)
            path = path.before
        return tuple(reversed(found))


class OrderSearch:
    """A scheme's factors and results; C has room for `blocks` values, and products may be added `directly` to sums that have begun."""

    def __init__(self, factors: tuple[HeldFactors, HeldFactors], results: Results, blocks: int, directly: bool) -> None:
        self.factors = factors
        self.results = results
        self.blocks = blocks
        self.directly = directly
        self._cheapest = tuple([side.cheapest(line) for line in range(len(side.lines))] for side in factors)
        self._helped = tuple([_helped(side, line) & results.everything for line in range(len(side.lines))] for side in factors)
        self._users = tuple([sum(1 << p for p in users) for users in side.users] for side in factors)

    @property
    def fewest(self) -> int:
        """A lower bound on the temporaries: for the factors of one product, plus one for the product if C is full from the start."""
        full = self.results.at_start and not self.directly
        return max((sum(side.line[p] >= 0 for side in self.factors) + bool(full) for p in self.results.useful), default=0)

    def run(
        self, temporaries: int, effort: OrderEffort, seed: int, progress: Callable[[OrderProgress], None]
    ) -> tuple[OrderMove, ...] | None:
        """The moves of the cheapest order found with at most this many temporaries; None if none is found in time."""
        exact = len(self.results.useful) <= EXACT_PRODUCTS
        path = self._exact(temporaries, effort) if exact else self._beam(temporaries, effort, random.Random(seed), progress)
        return None if path is None else path.moves()

    def _start(self) -> Path:
        return Path(0, 0, sum(map(sum, self._cheapest)), OrderState(0, (), (), 0))

    def _exact(self, temporaries: int, effort: OrderEffort) -> Path | None:
        """Dijkstra's algorithm: the order whose factors need the fewest additions, then the least traffic."""
        start = self._start()
        best = {start.state: start.cost}
        queue = [(start.cost, 0, start)]
        count = 0
        while queue and not effort.is_over():
            cost, _, path = heapq.heappop(queue)
            if path.state.done == self.results.everything:
                return path
            if cost > best[path.state]:
                continue
            for after in self.steps(path, temporaries):
                if after.state not in best or after.cost < best[after.state]:
                    count += 1
                    best[after.state] = after.cost
                    heapq.heappush(queue, (after.cost, count, after))
        return None

    def _beam(
        self, temporaries: int, effort: OrderEffort, generator: random.Random, progress: Callable[[OrderProgress], None]
    ) -> Path | None:
        """Search product by product: half of the kept states have few additions in total, the other half few live values."""
        beam = [self._start()]
        products = len(self.results.useful)
        for depth in range(products):
            progress(OrderProgress(depth, products, temporaries))
            best: dict[OrderState, Path] = {}
            for path in beam:
                if effort.is_over():
                    return None
                for after in self.steps(path, temporaries):
                    if after.state not in best or after.cost < best[after.state].cost:
                        best[after.state] = after
            beam = self._kept(list(best.values()), effort.width, generator)
        return min(beam, key=lambda path: path.cost, default=None)

    def _kept(self, paths: Sequence[Path], width: int, generator: random.Random) -> list[Path]:
        if len(paths) <= width:
            return list(paths)
        keyed = []
        for path in paths:
            live = self.results.live(*self.results.of(path.state.done)).bit_count() + path.state.beside.bit_count()
            keyed.append((path.additions + path.ahead, live, path.traffic, generator.random(), path))
        cheap = heapq.nsmallest(width // 2, keyed, key=lambda k: k[:4])
        chosen = {id(k[4]) for k in cheap}
        others = [k for k in keyed if id(k[4]) not in chosen]
        lean = heapq.nsmallest(width - len(cheap), others, key=lambda k: (k[1], k[0], k[2], k[3]))
        return [k[4] for k in (*cheap, *lean)]

    def steps(self, path: Path, temporaries: int) -> Iterator[Path]:
        """The states that one more product leads to, with at most this many temporaries."""
        for product in members(self.results.everything & ~path.state.done):
            yield from self._products(path, product, temporaries)

    def _products(self, path: Path, product: int, temporaries: int) -> Iterator[Path]:
        """The ways to run a product next; they differ in the held lines that stay."""
        state = path.state
        directly = self.directly and self.results.takes(state.done, product) is not None
        live = self.results.live(*self.results.of(state.done))
        beside = not directly and (live & ~state.beside).bit_count() >= self.blocks
        room = temporaries - state.beside.bit_count() - beside
        sides = list(zip(self.factors, (state.left, state.right), strict=True))
        lines = [side.line[product] for side, _ in sides]
        if room < sum(line >= 0 for line in lines):
            return
        done = state.done | 1 << product
        adding = self.results.adding(state.done, product, directly)
        places = _settled(adding, state.beside | beside << product, self.blocks, done == self.results.everything)
        makings = [side.best(line, held)[1] for (side, held), line in zip(sides, lines, strict=True) if line >= 0 and line not in held]
        additions, traffic = path.additions + sum(m.additions for m in makings), path.traffic + sum(m.traffic for m in makings)
        first = ((i, line) for i, line in enumerate(lines) if line >= 0 and not self._users[i][line] & state.done)
        ahead = path.ahead - sum(self._cheapest[i][line] for i, line in first)
        for left, right in self._held(state, lines, done, room):
            move = OrderMove(product, left, right, directly, beside, places)
            yield Path(additions, traffic, ahead, OrderState(done, left, right, places), move, path)

    def _held(self, state: OrderState, lines: Sequence[int], done: int, room: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """The sets of lines that may be held during a product: its own, and as many others as fit."""
        own = [(side, line) for side, line in enumerate(lines) if line >= 0]
        others = [(0, line) for line in state.left] + [(1, line) for line in state.right]
        others = [(side, line) for side, line in others if line != lines[side] and self._helped[side][line] & ~done]
        for kept in combinations(others, min(len(others), room - len(own))):
            held = sorted((*own, *kept))
            yield tuple(line for side, line in held if side == 0), tuple(line for side, line in held if side == 1)


def _helped(side: HeldFactors, line: int) -> int:
    """The products whose factor costs less while this line is held."""
    cheaper = (o for o in range(len(side.lines)) if o == line or side.making(o, line).additions < side.making(o, -1).additions)
    return sum(1 << p for other in cheaper for p in side.users[other])


def _settled(adding: Adding, beside: int, blocks: int, last: bool) -> int:
    """The values in temporaries after sums have been added up.

    Sums that are written go into C while it has room, results first; values that are not written stay where they are. After the last
    product all results lie in C.
    """
    if last:
        return 0
    new = sum(1 << total for total in adding.aliases)
    written = adding.computed & adding.live
    after = beside & adding.live & ~written & ~new
    after |= sum(1 << total for total, value in adding.aliases.items() if beside >> value & 1)
    room = blocks - (adding.live & ~written & ~after).bit_count()
    return after | sum(1 << total for total in sorted(members(written), reverse=True)[max(0, room) :])
