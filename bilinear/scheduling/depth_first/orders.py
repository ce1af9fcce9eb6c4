"""Search for an order of single products with few live temporaries and few sums formed twice.

A state records which products are done, which sums of A and B are held, and which values lie in temporaries instead of C; the partial sums
of products follow from the products (`Results`). Small schemes are searched exhaustively, others by a beam.
"""

from __future__ import annotations

import heapq
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from bilinear.scheduling.depth_first.sums import Adding, HeldFactors, Results, members

EXACT_PRODUCTS = 8
"""The most products for which every order is searched."""


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
    """One product, added directly to a sum that has begun, or written to a temporary (`beside`) or to C; and the lines held meanwhile.

    `places` are the values in temporaries after sums have been added up.
    """

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
