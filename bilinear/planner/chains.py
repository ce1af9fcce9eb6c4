"""Chains: the order in which to multiply several matrices, by the costs of the products and the memory of intermediates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice, pairwise
from operator import index
from typing import NamedTuple, TypeVar

from bilinear.errors import fail
from bilinear.planner.plan import bytes_text, table_html

Member = TypeVar("Member")
MOST_MATRICES = 50  # The most matrices of a chain. 50 have 20,825 products, each of which is planned.
Span = tuple[int, int]  # The first and the last matrix of a part of a chain, counted from 0.
Splits = Callable[[int, int], Iterable[int]]  # From a part's span to the last matrices of its left operand.
SECONDS, MULTIPLICATIONS = "seconds", "multiplications"  # What an order minimises.


class ProductWay(NamedTuple):
    """A way to run a product: cost (seconds or multiplications), workspace, plan; `multiplications` if a factor is sparse."""

    cost: float
    workspace: int = 0
    plan: str = "-"
    multiplications: int | None = None


_NOTHING = ProductWay(0)
Ways = Callable[[int, int, int], Iterator[ProductWay]]  # From m, k, n to its products' ways, cheapest first.


@dataclass(frozen=True)
class ChainStep:
    """A product of two parts of a chain, `m` x `k` by `k` x `n`, with the name of its plan and its bytes of workspace.

    `held` are the bytes of all intermediates while it runs: operands, what waits for a later product, and the result, unless it is the
    chain's own. `seconds` is None where the planner has no times.
    """

    left: Span
    right: Span
    m: int
    k: int
    n: int
    plan: str
    seconds: float | None
    workspace: int
    held: int
    multiplications: int


@dataclass(frozen=True)
class ChainOrder:
    """An order as text, such as `(A1 A2) A3`, its products as they run, and the most bytes of intermediates and workspace."""

    text: str
    seconds: float | None
    multiplications: int
    peak: int
    steps: tuple[ChainStep, ...]


@dataclass(frozen=True)
class ChainPlan:
    """In which order to multiply a chain of matrices extents[i] x extents[i + 1], beside two usual orders.

    `by` is what was minimised: `seconds` as the planner predicts them for the device, or `multiplications` where it has no times. `chosen`
    takes at most `workspace` bytes, and so do the others if they can. It is None if there is no limit, and the device has room.
    """

    extents: tuple[int, ...]
    dtype: str
    device: str
    by: str
    workspace: int | None
    chosen: ChainOrder
    left_to_right: ChainOrder
    fewest_multiplications: ChainOrder

    def __repr__(self) -> str:
        where = f", {self.device}" if self.device else ""
        return f"<ChainPlan of {len(self.extents) - 1} matrices, {self.dtype}{where}: {self.chosen.text} by {self.by}>"

    def __str__(self) -> str:
        much = "long" if self.by == SECONDS else "many"
        told = [f"{name}, {order.text}: {self.ratio(order):.2f} times as {much}" for name, order in self._orders()[1:]]
        return f"{self.chosen.text} by {self.by}; {'; '.join(told)}"

    def _repr_html_(self) -> str:
        rows = [
            (name, x.text, "-" if x.seconds is None else f"{x.seconds * 1e3:.4g}", str(x.multiplications), bytes_text(x.peak))
            for name, x in self._orders()
        ]
        return table_html(repr(self)[1:-1], ("", "order", "ms", "multiplications", "memory"), rows)

    def _orders(self) -> list[tuple[str, ChainOrder]]:
        names = "chosen", "left to right", "fewest multiplications"
        return list(zip(names, (self.chosen, self.left_to_right, self.fewest_multiplications), strict=True))

    def ratio(self, order: ChainOrder) -> float:
        """How many times the seconds, or multiplications, of the chosen order another one takes."""
        own, other = ((x.multiplications if x.seconds is None else x.seconds) for x in (self.chosen, order))
        return other / own if own else 1.0


@dataclass(frozen=True)
class PartOrder:
    """An order of part of a chain, a single matrix without `operands`; `size` is its result's bytes, `peak` the most held."""

    span: Span
    size: int = 0
    peak: int = 0
    cost: float = 0
    way: ProductWay = _NOTHING
    operands: tuple[PartOrder, ...] = ()
    right_first: bool = False

    def steps(self, extents: Sequence[int], is_timed: bool, beside: int = 0) -> Iterator[ChainStep]:
        """The products in the order in which they run, while `beside` bytes wait for a later one."""
        if not self.operands:
            return
        left, right = self.operands
        first, second = (right, left) if self.right_first else (left, right)
        yield from first.steps(extents, is_timed, beside)
        yield from second.steps(extents, is_timed, beside + first.size)
        m, k, n = extents[self.span[0]], extents[right.span[0]], extents[self.span[1] + 1]
        cost, workspace, plan, multiplications = self.way
        held = beside + left.size + right.size + self.size
        count = m * k * n if multiplications is None else multiplications
        yield ChainStep(left.span, right.span, m, k, n, plan, cost if is_timed else None, workspace, held, count)

    def __str__(self) -> str:
        if not self.operands:
            return f"A{self.span[0] + 1}"
        return " ".join(f"({part})" if part.operands else str(part) for part in self.operands)


def _joined(left: PartOrder, right: PartOrder, way: ProductWay, size: int) -> PartOrder:
    """The product of two parts. That operand is computed first after which the peak is lower; the left one if that makes no difference."""
    both = left.size + right.size + size + way.workspace
    peaks = max(left.peak, left.size + right.peak, both), max(right.peak, right.size + left.peak, both)
    cost = left.cost + right.cost + way.cost
    return PartOrder((left.span[0], right.span[1]), size, min(peaks), cost, way, (left, right), peaks[1] < peaks[0])


def _front(found: Iterable[PartOrder]) -> list[PartOrder]:
    """The orders that no other beats in both cost and peak, the cheapest first."""
    front: list[PartOrder] = []
    for part in sorted(found, key=_by_cost):
        if not front or part.peak < front[-1].peak:
            front.append(part)
    return front


def _by_cost(part: PartOrder) -> tuple[float, int]:
    return part.cost, part.peak


@dataclass(frozen=True)
class MatrixChain:
    """Matrices extents[i] x extents[i + 1], with elements of `itemsize` bytes, and the `ways` to run their products.

    `stored` has the stored elements of those that are sparse, by their place. Each multiplication by one of them costs `each`; what they
    are multiplied to is dense.
    """

    extents: tuple[int, ...]
    itemsize: int
    ways: Ways
    stored: Mapping[int, int] = field(default_factory=dict)
    each: float = 1.0

    def ways_between(self, first: int, split: int, last: int) -> Iterator[ProductWay]:
        """The ways of the product of the parts from `first` to `split` and from there to `last`."""
        m, k, n = self.extents[first], self.extents[split + 1], self.extents[last + 1]
        left, right = (self.stored.get(one) if one == other else None for one, other in ((first, split), (split + 1, last)))
        if left is None and right is None:
            return self.ways(m, k, n)
        count = (m * k if left is None else left) * (k * n if right is None else right) // max(k, 1)
        return iter((ProductWay(count * self.each, plan="sparse", multiplications=count),))

    def cheapest(self, splits: Splits = range) -> PartOrder:
        """The cheapest order among the parenthesisations of these splits: costs add up, so each part of it is the cheapest one."""
        return self._orders(splits, lambda found: [min(found, key=_by_cost)], 1)[0]

    def within(self, most: int | None, splits: Splits = range) -> PartOrder | None:
        """The cheapest of these orders with a peak of at most `most` bytes (None: no limit); None if there is none.

        It is the exact minimum over the parenthesisations, over which operand of each product is computed first, and over the ways of each
        product. If the cheapest order exceeds the limit, each part keeps the orders that no other beats in both cost and peak. What waits
        beside a part adds as much to the peak of each of them, so no other order of the part is needed.
        """
        free = self.cheapest(splits)
        if most is None or free.peak <= most:
            return free
        return next((part for part in self._orders(splits, _front, None) if part.peak <= most), None)

    def _orders(self, splits: Splits, kept: Callable[[Iterable[PartOrder]], list[PartOrder]], most_ways: int | None) -> list[PartOrder]:
        whole = (0, len(self.extents) - 2)

        @cache
        def orders(first: int, last: int) -> list[PartOrder]:
            if first == last:
                return [PartOrder((first, last))]
            size = 0 if (first, last) == whole else self.extents[first] * self.extents[last + 1] * self.itemsize
            return kept(
                _joined(left, right, way, size)
                for split in splits(first, last)
                for way in islice(self.ways_between(first, split, last), most_ways)
                for left in orders(first, split)
                for right in orders(split + 1, last)
            )

        return orders(*whole)

    def order(self, part: PartOrder, is_timed: bool) -> ChainOrder:
        """An order of the whole chain with its figures."""
        steps = tuple(part.steps(self.extents, is_timed))
        return ChainOrder(str(part), part.cost if is_timed else None, sum(x.multiplications for x in steps), part.peak, steps)


def plan_chain(
    extents: tuple[int, ...],
    dtype: str,
    itemsize: int,
    device: str,
    ways: Ways | None,
    most: int | None,
    stored: Mapping[int, int] | None = None,
    each: float = 1.0,
) -> ChainPlan:
    """The cheapest order by `ways` in seconds, or by multiplications, in at most `most` bytes. Raises `BilinearError` (E535)."""
    stored = stored or {}
    chain = MatrixChain(extents, itemsize, ways or _multiplications, stored, each)
    found = chain.within(most)
    if found is None:
        free: Ways = lambda m, k, n: iter((_NOTHING,))  # noqa: E731  # without costs the cheapest order has the lowest peak
        least = MatrixChain(extents, itemsize, free, stored, 0.0).cheapest().peak
        message = f"the intermediates of the chain need {least} bytes of workspace, {most} are available"
        raise fail("E535", message, "allow that many bytes, or multiply the chain in parts")
    splits = {part.span: part.operands[0].span[1] for part in _parts(MatrixChain(extents, itemsize, _multiplications, stored).cheapest())}
    usual: tuple[Splits, ...] = lambda first, last: (last - 1,), lambda first, last: (splits[first, last],)
    orders = (chain.within(most, own) or chain.cheapest(own) for own in usual)
    chosen, left_to_right, fewest = (chain.order(part, ways is not None) for part in (found, *orders))
    by = MULTIPLICATIONS if ways is None else SECONDS
    return ChainPlan(extents, dtype, device, by, most, chosen, left_to_right, fewest)


def _parts(part: PartOrder) -> Iterator[PartOrder]:
    """A part and those that it is made of, without single matrices."""
    if part.operands:
        yield part
        for operand in part.operands:
            yield from _parts(operand)


def _multiplications(m: int, k: int, n: int) -> Iterator[ProductWay]:
    yield ProductWay(m * k * n)


def members(chain: Iterable[Member]) -> tuple[Member, ...]:
    """The members of a chain. Raises `BilinearError` (E550) if it is not a sequence."""
    if not isinstance(chain, Iterable):
        raise fail("E550", f"a chain of type {type(chain).__name__}", "give a sequence, such as a list")
    return tuple(chain)


def chain_extents(shapes: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """The extents of a chain; a vector is a row at its front and a column at its end. Raises `BilinearError` (E550)."""
    shapes = members(shapes)
    if not 2 <= len(shapes) <= MOST_MATRICES:
        hint = f"give 2 to {MOST_MATRICES}, and multiply a longer chain in parts"
        raise fail("E550", f"a chain of {len(shapes)} matri{'x' if len(shapes) == 1 else 'ces'}", hint)
    matrices = [_matrix(at, shape, len(shapes) - 1) for at, shape in enumerate(shapes)]
    for at, (left, right) in enumerate(pairwise(matrices), 1):
        if left[1] != right[0]:
            what = f"matrices {at} and {at + 1} of the chain have shapes {tuple(shapes[at - 1])} and {tuple(shapes[at])}"
            raise fail("E550", what, "give each matrix as many rows as the one before it has columns")
    return matrices[0][0], *(matrix[1] for matrix in matrices)


def _matrix(at: int, given: Iterable[int], last: int) -> tuple[int, int]:
    """Rows and columns of the matrix `at` some place, counted from 0."""
    shape = tuple(given) if isinstance(given, Iterable) else given
    what = f"matrix {at + 1} of the chain has shape {shape}"
    if not isinstance(shape, tuple):
        raise fail("E550", what, "give its rows and columns, such as (300, 200)")
    if len(shape) != 2 and not (len(shape) == 1 and at in (0, last)):
        raise fail("E550", what, "give matrices; the first and the last may be vectors")
    if not all(hasattr(extent, "__index__") and extent >= 0 for extent in shape):
        raise fail("E550", what, "give extents that are integers of at least 0")
    extents = tuple(map(index, shape))
    if len(extents) == 1:
        return (1, *extents) if at == 0 else (*extents, 1)
    return extents[0], extents[1]
