"""What one rank does of a plan, without a network: a generator that says what to send and to receive, and is resumed when that is done."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NewType

import numpy as np

from bilinear.backends.array_forms import added_up, blocks_of, evaluate
from bilinear.backends.array_sums import add, coefficient
from bilinear.distributed.parts import dense, place_of, put, take
from bilinear.distributed.plan import Plan, Task, results_of, sending_order
from bilinear.distributed.spread import Rect, Spread
from bilinear.ir.matrix import Array
from bilinear.ir.scheme import Scheme

HOME_A, HOME_B, LEFT, RIGHT, PRODUCT, RESULT = range(6)
"""Tags: messages of one tag between two ranks arrive in the order in which they are sent."""

Multiply = Callable[[Array, Array], Array]
Ticket = NewType("Ticket", int)


@dataclass
class Post:
    """Begin to send and to receive arrays without gaps: (rank, tag, array) each. The answer is a ticket."""

    sends: list[tuple[int, int, Array]] = field(default_factory=list)
    receives: list[tuple[int, int, Array]] = field(default_factory=list)


@dataclass(frozen=True)
class Wait:
    """Wait until all of a ticket has been sent and received."""

    ticket: Ticket


Steps = Generator[Post | Wait, Ticket, Array]
"""A computation of an array that asks for messages on the way."""


def steps_of(plan: Plan, rank: int, a: Array, b: Array, multiply: Multiply) -> Steps:
    """A rank's piece of C, from its pieces of A and B, which have one element type."""
    return _Rank(plan, rank, multiply, b.dtype).product(a, b)


def moved(x: Array, source: Spread, target: Spread, rank: int, tag: int) -> Steps:
    """The rank's part of a matrix in another spread; what lies beyond the matrix is padding, and zero."""
    if source == target:
        return x
    held, wanted = source[rank], target[rank]
    out, post, arrivals = np.zeros_like(x, shape=wanted.shape, order="C"), Post(), _Arrivals()
    for other in range(len(source)):
        leaves, comes = held.meet(target[other]), wanted.meet(source[other])
        if other == rank:
            put(out, wanted, comes, take(x, held, comes))
        else:
            if leaves.size:
                post.sends.append((other, tag, dense(take(x, held, leaves))))
            arrivals.expect(post, other, tag, out, wanted, comes)
    ticket = yield post
    yield Wait(ticket)
    arrivals.put()
    return out


def numbered_from(first: int, steps: Steps) -> Steps:
    """The computation of a rank of a group whose ranks are numbered from `first` on."""
    try:
        asked = next(steps)
        while True:
            if isinstance(asked, Post):
                sends, receives = ([(first + rank, tag, x) for rank, tag, x in each] for each in (asked.sends, asked.receives))
                asked = Post(sends, receives)
            asked = steps.send((yield asked))
    except StopIteration as done:
        return done.value


@dataclass
class _Rank:
    plan: Plan
    rank: int
    multiply: Multiply
    dtype: np.dtype

    def product(self, a: Array, b: Array) -> Steps:
        given, home = self.plan.given, self.plan.home
        a = yield from moved(a, given[0], home[0], self.rank, HOME_A)
        b = yield from moved(b, given[1], home[1], self.rank, HOME_B)
        c = yield from self._depth(a, b, self.plan.depth)
        del a, b
        return (yield from moved(c, home[2], given[2], self.rank, RESULT))

    def _depth(self, a: Array, b: Array, levels: tuple[Scheme, ...]) -> Steps:
        """One product after another, each added to the blocks of C before the next."""
        if not levels:
            return (yield from self._breadth(a, b))
        scheme = levels[0]
        u, v, w = scheme.tables
        left, right = blocks_of(a, scheme.m, scheme.k), blocks_of(b, scheme.k, scheme.n)
        out = np.empty_like(a, shape=(left[0].shape[0] * scheme.m, right[0].shape[1] * scheme.n), order="C")
        blocks, begun = blocks_of(out, scheme.m, scheme.n), set[int]()
        for product in range(scheme.rank):
            found = yield from self._depth(added_up(u[product], left), added_up(v[product], right), levels[1:])
            for block, row in enumerate(w):
                for index, c in row:
                    if index == product:
                        add(blocks[block], found, np.empty_like(found), coefficient(c, self.dtype), int(block in begun))
                        begun.add(block)
        return out

    def _breadth(self, a: Array, b: Array) -> Steps:
        """All products at once: every factor's strips go to the rank that multiplies it, the strips of its product come back."""
        breadth = self.plan.breadth
        factors = _expanded(a, breadth, 0), _expanded(b, breadth, 1)
        sent = yield self._operands_for_others(factors)
        products: list[Array] = [np.empty_like(a, shape=self.plan.form[2][self.rank].shape, order="C") for _ in range(self.plan.products)]
        arrivals = _Arrivals()
        back = yield self._results_from_others(products, arrivals)
        returned = yield from self._tasks(factors, products)
        del factors
        for ticket in (sent, back, *returned):
            yield Wait(ticket)
        arrivals.put()
        return _collapsed(products, breadth)

    def _operands_for_others(self, factors: tuple[list[Array], list[Array]]) -> Post:
        post, packed = Post(), dict[tuple[int, int, Rect], Array]()
        for target, at in sending_order(self.plan, self.rank):
            task = self.plan.tasks[target][at]
            for side in (0, 1):
                held = self.plan.form[side][self.rank]
                part = held.meet(task.operands[side])
                if part.size:
                    key = side, task.product, part
                    if key not in packed:
                        packed[key] = dense(take(factors[side][task.product], held, part))
                    post.sends.append((target, LEFT + side, packed[key]))
        return post

    def _results_from_others(self, products: list[Array], arrivals: _Arrivals) -> Post:
        post, wanted = Post(), self.plan.form[2][self.rank]
        for source, tasks in enumerate(self.plan.tasks):
            for group in results_of(tasks) if source != self.rank else ():
                product = group[0].product
                arrivals.expect(post, source, PRODUCT, products[product], wanted, wanted.meet(group[0].result))
        return post

    def _tasks(self, factors: tuple[list[Array], list[Array]], products: list[Array]) -> Generator[Post | Wait, Ticket, list[Ticket]]:
        """Multiply; the operands of a task travel while the one before it is multiplied. Tickets of the results that are on their way."""
        tasks, total, returned = self.plan.tasks[self.rank], None, []
        following = (yield from self._fetch(tasks[0], factors)) if tasks else None
        for task, after in pairwise([*tasks, None]):
            assert task is not None and following is not None
            (operands, arrivals, ticket), following = following, (yield from self._fetch(after, factors)) if after is not None else None
            yield Wait(ticket)
            arrivals.put()
            found = self.multiply(*operands)
            total = found if total is None else np.add(total, found, out=total)
            del operands, arrivals, found
            if after is None or (after.product, after.result) != (task.product, task.result):
                returned.append((yield self._hand_out(task, total, products)))
                total = None
        return returned

    def _fetch(
        self, task: Task, factors: tuple[list[Array], list[Array]]
    ) -> Generator[Post | Wait, Ticket, tuple[tuple[Array, Array], _Arrivals, Ticket]]:
        """Begin to receive the operands of a task."""
        post, arrivals, found = Post(), _Arrivals(), []
        for side in (0, 1):
            form, wanted, own = self.plan.form[side], task.operands[side], factors[side][task.product]
            mine = form[self.rank].meet(wanted)
            if mine == wanted:
                found.append(take(own, form[self.rank], wanted))
                continue
            operand = np.empty_like(own, shape=wanted.shape, order="C")
            put(operand, wanted, mine, take(own, form[self.rank], mine))
            for source in range(self.plan.ranks):
                if source != self.rank:
                    arrivals.expect(post, source, LEFT + side, operand, wanted, form[source].meet(wanted))
            found.append(operand)
        ticket = yield post
        return (found[0], found[1]), arrivals, ticket

    def _hand_out(self, task: Task, found: Array, products: list[Array]) -> Post:
        """Keep the rank's own part of a result, and send the others theirs."""
        post, form = Post(), self.plan.form[2]
        for target, wanted in enumerate(form):
            part = wanted.meet(task.result)
            if target == self.rank:
                put(products[task.product], wanted, part, take(found, task.result, part))
            elif part.size:
                post.sends.append((target, PRODUCT, dense(take(found, task.result, part))))
        return post


class _Arrivals:
    """Messages that arrive beside the place to which they belong, because that has gaps."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Array, Rect, Rect, Array]] = []

    def expect(self, post: Post, source: int, tag: int, out: Array, held: Rect, part: Rect) -> None:
        """Receive a part of `out`, which holds `held`."""
        if not part.size:
            return
        index = place_of(held, part)
        place = out[index] if isinstance(index[0], slice) else None
        if place is None or not place.flags.c_contiguous:
            place = np.empty_like(out, shape=part.shape, order="C")
            self.waiting.append((out, held, part, place))
        post.receives.append((source, tag, place))

    def put(self) -> None:
        """Move what has arrived to its place."""
        for out, held, part, buffer in self.waiting:
            put(out, held, part, buffer)
        self.waiting.clear()


def _expanded(x: Array, levels: tuple[Scheme, ...], side: int) -> list[Array]:
    """The factors of all products of the levels, in the order of the outermost first."""
    found = [x]
    for scheme in levels:
        linear, grid = ((scheme.u, (scheme.m, scheme.k)), (scheme.v, (scheme.k, scheme.n)))[side]
        found = [form for each in found for form in evaluate(linear, blocks_of(each, *grid))]
    return found


def _collapsed(products: list[Array], levels: tuple[Scheme, ...]) -> Array:
    """C of the products of all levels."""
    if not levels:
        return products[0]
    scheme, each = levels[0], len(products) // levels[0].rank
    found = [_collapsed(products[at : at + each], levels[1:]) for at in range(0, len(products), each)]
    height, width = found[0].shape
    out = np.empty_like(found[0], shape=(scheme.m * height, scheme.n * width), order="C")
    for block, value in zip(blocks_of(out, scheme.m, scheme.n), evaluate(scheme.w, found), strict=True):
        block[...] = value
    return out
