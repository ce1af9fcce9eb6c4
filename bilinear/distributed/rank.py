"""What one rank does of a plan, without a network: a generator that says what to send and to receive, and is resumed when that is done."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from time import perf_counter
from typing import NewType, Protocol

import numpy as np

from bilinear.backends.array_sums import add, added_up, blocks_of, coefficient, evaluate, evaluate_into
from bilinear.distributed.distributions import Rect, Run, Runs, Spread
from bilinear.distributed.rank_plan import RankPlan, begins_result, dealt_out, ends_result, is_block
from bilinear.ir.linear import LinearMap
from bilinear.ir.matrix import Array
from bilinear.ir.scheme import Scheme

FEW = 64  # Up to so many blocks are copied one by one, each by a kernel; more are gathered by indices.
Index = tuple[object, ...]


def window(x: Array, held: Rect, part: Rect) -> Array | None:
    """A view of a part of what is held; None if the part does not lie in one piece."""
    local = part.inside(held)
    if len(local.rows) > 1 or len(local.columns) > 1:
        return None
    return x[tuple(slice(*runs[0]) if runs else slice(0, 0) for runs in (local.rows, local.columns))]


def take(x: Array, held: Rect, part: Rect) -> Array:
    """A part of what is held: a view if it lies in one piece."""
    view = window(x, held, part)
    if view is not None:
        return view
    local = part.inside(held)
    if not _is_few(local):
        return x[_indices(local)]
    out = np.empty_like(x, shape=part.shape, order="C")
    for there, here in _blocks(local):
        out[here] = x[there]
    return out


def put(x: Array, held: Rect, part: Rect, value: Array) -> None:
    """Write a part of what is held."""
    if not part.size:
        return
    local = part.inside(held)
    if not _is_few(local):
        x[_indices(local)] = value
        return
    for there, here in _blocks(local):
        x[there] = value[here]


def dense(x: Array) -> Array:
    """The array without gaps."""
    return x if x.flags.c_contiguous else x.copy()


def _is_few(local: Rect) -> bool:
    return len(local.rows) * len(local.columns) <= FEW


def _blocks(local: Rect) -> Iterator[tuple[Index, Index]]:
    """The places of each block in what is held and in the part itself."""
    for rows, own_rows in _beside(local.rows):
        for columns, own_columns in _beside(local.columns):
            yield (slice(*rows), slice(*columns)), (slice(*own_rows), slice(*own_columns))


def _beside(runs: Runs) -> Iterator[tuple[Run, Run]]:
    """Runs with their places one after another."""
    return zip(runs, pairwise((0, *accumulate(stop - start for start, stop in runs))), strict=True)


def _indices(local: Rect) -> Index:
    rows, columns = (np.concatenate([np.arange(0), *(np.arange(*run) for run in runs)]) for runs in (local.rows, local.columns))
    return np.ix_(rows, columns)


HOME_A, HOME_B, LEFT, RIGHT, PRODUCT, RESULT, PACE = range(7)
"""Tags: messages of one tag between two ranks arrive in the order in which they are sent."""

Ticket = NewType("Ticket", int)
Message = tuple[int, int, Array]  # The other rank, a tag, and an array without gaps.


class Multiply(Protocol):
    """The product of what one rank holds."""

    def __call__(self, a: Array, b: Array, out: Array = None, *, beta: int = 0) -> Array:
        """a @ b + beta * out, written to `out` if there is one."""


@dataclass
class Post:
    """One round of messages: begin to send and to receive them. The answer is a ticket.

    All ranks post the same rounds in the same order. Two ranks list the messages between them in the same order. So an engine without
    tags can match messages by their order, and no round waits for a later one.
    """

    sends: list[Message] = field(default_factory=list)
    receives: list[Message] = field(default_factory=list)


@dataclass(frozen=True)
class Wait:
    """Wait until all of a ticket has been sent and received."""

    ticket: Ticket


Steps = Generator[Post | Wait, Ticket, Array]  # A computation of an array that asks for messages on the way.


def steps_of(plan: RankPlan, rank: int, a: Array, b: Array, multiply: Multiply) -> Steps:
    """A rank's piece of C, from its pieces of A and B, which have one element type."""
    return _Rank(plan, rank, multiply, b.dtype).product(a, b)


def moved(x: Array, source: Spread, target: Spread, rank: int, tag: int) -> Steps:
    """The rank's part of a matrix in another spread; what lies beyond the matrix is padding, and zero."""
    if source == target:
        return x
    held, wanted = source[rank], target[rank]
    out, post, arrivals = np.zeros_like(x, shape=wanted.shape, order="C"), Post(), _MessageRound()
    for other in range(len(source)):
        leaves, comes = held.meet(target[other]), wanted.meet(source[other])
        if other == rank:
            put(out, wanted, comes, take(x, held, comes))
        else:
            if leaves.size:
                post.sends.append((other, tag, dense(take(x, held, leaves))))
            arrivals.expect(post, other, tag, out, wanted, comes)
    arrivals.ticket = yield post
    yield from arrivals.end()
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
    plan: RankPlan
    rank: int
    multiply: Multiply
    dtype: np.dtype

    def product(self, a: Array, b: Array) -> Steps:
        given, home = self.plan.given, self.plan.home
        a = yield from moved(a, given[0], home[0], self.rank, HOME_A)
        b = yield from moved(b, given[1], home[1], self.rank, HOME_B)
        c = yield from (self._rounds(a, b) if self.plan.by_queue else self._depth(a, b, self.plan.depth))
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

    def _rounds(self, a: Array, b: Array) -> Steps:
        """The blocks of C in rounds: one a rank, then half of those left. After each, all say how long theirs took an element."""
        plan, spent = self.plan, [0.0]
        left, paces = [deque(tasks) for tasks in plan.tasks], [1.0] * plan.ranks
        strips = _ProductStrips(plan.form[2][self.rank], a, 1)

        def timed(a: Array, b: Array, out: Array = None, *, beta: int = 0) -> Array:
            begun = _seconds(a, b)
            found = self.multiply(a, b, out, beta=beta)
            spent[0] += _seconds(found) - begun
            return found

        most = plan.ranks
        while any(left):
            dealt, spent[0] = dealt_out(left, paces, most), 0.0
            yield from _Rank(replace(plan, tasks=dealt, by_queue=False), self.rank, timed, self.dtype)._breadth(a, b, strips)
            size = sum(task.result.size for task in dealt[self.rank])
            told = [np.full_like(a, spent[0] / size if size else paces[self.rank], np.float64, shape=(1,)) for _ in paces]
            others = [rank for rank in range(plan.ranks) if rank != self.rank]
            post = Post([(rank, PACE, told[self.rank]) for rank in others], [(rank, PACE, told[rank]) for rank in others])
            yield Wait((yield post))
            paces, most = [float(pace[0]) for pace in told], max(plan.ranks, sum(map(len, left)) // 2)
        return strips.strip(0)

    def _breadth(self, a: Array, b: Array, products: _ProductStrips | None = None) -> Steps:
        """All products at once: every factor's strips go to the rank that multiplies it, the strips of its product come back.

        The operands of a task travel while the one before it is multiplied, its result while the next one is.
        """
        breadth, tasks = self.plan.breadth, self.plan.tasks[self.rank]
        products = products or _ProductStrips(self.plan.form[2][self.rank], a, self.plan.products)
        returning = list[_MessageRound]()
        if self.plan.begins_with_blocks:  # they travel while sums are computed
            following = yield from self._fetch(0, (_plain(a, breadth, 0), _plain(b, breadth, 1)))
            factors = _expanded(a, breadth, 0), _expanded(b, breadth, 1)
        else:
            factors = _expanded(a, breadth, 0), _expanded(b, breadth, 1)
            following = yield from self._fetch(0, factors)
        for at in range(max(map(len, self.plan.tasks))):
            fetched, following = following, (yield from self._fetch(at + 1, factors))
            yield from fetched.end()
            if at < len(tasks):
                out = products.target(tasks[at].product, tasks[at].result, begins_result(tasks, at))
                left, right = fetched.operands
                self.multiply(left, right, out, beta=int(not begins_result(tasks, at)))
                del left, right
            del fetched
            returning.append((yield from self._return(at, products)))
            if len(returning) > 1:
                yield from returning.pop(0).end()
        del factors, following
        yield from returning.pop().end()
        return _collapsed([products.strip(at) for at in range(self.plan.products)], breadth)

    def _fetch(self, at: int, factors: tuple[list[Array], list[Array]]) -> Generator[Post | Wait, Ticket, _MessageRound]:
        """Begin to receive the operands of the rank's task number `at`, and to send others theirs."""
        post, found = Post(), _MessageRound()
        packed: dict[tuple[int, int, Rect], Array] = {}
        for target, tasks in enumerate(self.plan.tasks):
            for side in (0, 1) if at < len(tasks) else ():
                wanted, form, product = tasks[at].operands[side], self.plan.form[side], tasks[at].product
                held, factor = form[self.rank], factors[side][product]
                part = held.meet(wanted)
                if target == self.rank:
                    found.operands.append(self._operand(post, found, side, factor, wanted))
                elif part.size:
                    key = side, product, part
                    if key not in packed:
                        packed[key] = dense(take(factor, held, part))
                    post.sends.append((target, LEFT + side, packed[key]))
        found.ticket = yield post
        return found

    def _operand(self, post: Post, found: _MessageRound, side: int, factor: Array, wanted: Rect) -> Array:
        """The rank's own operand, of which some parts are still to arrive."""
        form = self.plan.form[side]
        mine = form[self.rank].meet(wanted)
        if mine == wanted and not self.plan.consumes:
            return take(factor, form[self.rank], wanted)
        operand = np.empty_like(factor, shape=wanted.shape, order="C")
        put(operand, wanted, mine, take(factor, form[self.rank], mine))
        for source, held in enumerate(form):
            if source != self.rank:
                found.expect(post, source, LEFT + side, operand, wanted, held.meet(wanted))
        return operand

    def _return(self, at: int, products: _ProductStrips) -> Generator[Post | Wait, Ticket, _MessageRound]:
        """Begin to send the result of the rank's task number `at` to where it is summed, and to receive those of others."""
        post, found, form = Post(), _MessageRound(), self.plan.form[2]
        for source, tasks in enumerate(self.plan.tasks):
            if not ends_result(tasks, at):
                continue
            task = tasks[at]
            if source != self.rank:
                part = form[self.rank].meet(task.result)
                if part.size:
                    found.expect(post, source, PRODUCT, products.strip(task.product), form[self.rank], part)
                continue
            if products.total is None:
                continue
            for target, wanted in enumerate(form):
                part = wanted.meet(task.result)
                if target == self.rank:
                    put(products.strip(task.product), wanted, part, take(products.total, task.result, part))
                elif part.size:
                    post.sends.append((target, PRODUCT, dense(take(products.total, task.result, part))))
            products.total = None
        found.ticket = yield post
        return found


def _seconds(*arrays: Array) -> float:
    """The time at which arrays are there; a GPU is waited for."""
    for array in arrays:
        if not isinstance(array, np.ndarray):
            array[:1, :1].get()
    return perf_counter()


class _ProductStrips:
    """The rank's strips of all products, allocated when first needed; `total` is the task's result, if other ranks hold parts."""

    def __init__(self, held: Rect, like: Array, count: int) -> None:
        self.held, self.like, self.total = held, like, None
        self.strips: list[Array] = [None] * count

    def strip(self, product: int) -> Array:
        """The rank's strip of a product."""
        if self.strips[product] is None:
            self.strips[product] = np.empty_like(self.like, shape=self.held.shape, order="C")
        return self.strips[product]

    def target(self, product: int, result: Rect, begins: bool) -> Array:
        """Where a task writes its result: to the rank's strip, if that has all of it in one piece."""
        if self.held.meet(result) == result and (own := window(self.strip(product), self.held, result)) is not None:
            return own
        if begins:
            self.total = np.empty_like(self.like, shape=result.shape, order="C")
        return self.total


class _MessageRound:
    """Messages that are under way, some of which arrive beside the place to which they belong, because that has gaps."""

    def __init__(self) -> None:
        self.operands: list[Array] = []
        self.ticket: Ticket | None = None
        self.waiting: list[tuple[Array, Rect, Rect, Array]] = []

    def expect(self, post: Post, source: int, tag: int, out: Array, held: Rect, part: Rect) -> None:
        """Receive a part of `out`, which holds `held`."""
        if not part.size:
            return
        place = window(out, held, part)
        if place is None or not place.flags.c_contiguous:
            place = np.empty_like(out, shape=part.shape, order="C")
            self.waiting.append((out, held, part, place))
        post.receives.append((source, tag, place))

    def end(self) -> Generator[Post | Wait, Ticket, None]:
        """Wait for the messages, and move what has arrived to its place."""
        assert self.ticket is not None
        yield Wait(self.ticket)
        for out, held, part, buffer in self.waiting:
            put(out, held, part, buffer)
        self.waiting.clear()


def _sums_of(scheme: Scheme, side: int) -> tuple[LinearMap, tuple[int, int]]:
    """The factors of a scheme as sums of the blocks of A (side 0) or of B, and how many rows and columns of blocks there are."""
    return ((scheme.u, (scheme.m, scheme.k)), (scheme.v, (scheme.k, scheme.n)))[side]


def _expanded(x: Array, levels: tuple[Scheme, ...], side: int) -> list[Array]:
    found = [x]
    for scheme in levels:
        linear, grid = _sums_of(scheme, side)
        found = [form for each in found for form in evaluate(linear, blocks_of(each, *grid))]
    return found


def _plain(x: Array, levels: tuple[Scheme, ...], side: int) -> list[Array]:
    """The factors that are blocks of the matrix; None for sums."""
    found = [x]
    for scheme in levels:
        linear, grid = _sums_of(scheme, side)
        blocks = [None if each is None else blocks_of(each, *grid) for each in found]
        found = [own[form[0][0]] if own and is_block(form, linear) else None for own in blocks for form in linear.outputs]
    return found


def _collapsed(products: list[Array], levels: tuple[Scheme, ...]) -> Array:
    if not levels:
        return products[0]
    scheme, each = levels[0], len(products) // levels[0].rank
    found = [_collapsed(products[at : at + each], levels[1:]) for at in range(0, len(products), each)]
    height, width = found[0].shape
    out = np.empty_like(found[0], shape=(scheme.m * height, scheme.n * width), order="C")
    evaluate_into(scheme.w, found, blocks_of(out, scheme.m, scheme.n))
    return out
