"""A chain of matrices over ranks: the order of its products, and the group of ranks that computes each, by the model's times.

A part of a chain is computed by a group of ranks: either its two operands one after the other, each on the whole group, or both at once,
each on a group of its own. Costs of operands on a group of a given size do not depend on where it stands, so the best plan of a part for
each size of a group follows from those of shorter parts, as in the usual choice of an order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from bilinear.distributed.decompose import decompose, fewest_levels
from bilinear.distributed.distributions import Distribution, Pieces, Slab
from bilinear.distributed.model import Machine, estimate
from bilinear.distributed.rank_plan import RankPlan
from bilinear.distributed.spread import Rect, Run, Spread
from bilinear.ir.scheme import Scheme

NOWHERE = Rect((), ())
"""What a rank outside of a group holds."""


@dataclass(frozen=True)
class Part:
    """The matrices `span` (the first and the last, counted from 0) multiplied by the ranks of `group`, (first, one after the last).

    `spread` says where the result lies, `seconds` when it is there by the model. A product of two `operands` runs by a `plan` of the
    group's ranks, numbered from 0; a single matrix has neither.
    """

    span: Run
    group: Run
    spread: Spread
    seconds: float
    operands: tuple[Part, ...] = ()
    plan: RankPlan | None = None

    @property
    def parts(self) -> Iterator[Part]:
        """This part and those that it is made of, operands first."""
        for operand in self.operands:
            yield from operand.parts
        yield self

    def __str__(self) -> str:
        if not self.operands:
            return f"A{self.span[0] + 1}"
        return " ".join(f"({each})" if each.operands else str(each) for each in self.operands)


@dataclass(frozen=True)
class RankChainPlan:
    """A chain of matrices extents[i] x extents[i + 1] over ranks.

    `given` says how the matrices lie and `wanted` how the result is to lie. `together` are the model's seconds of the best order if all
    ranks compute one product after another.
    """

    extents: tuple[int, ...]
    given: tuple[Spread, ...]
    wanted: Spread
    root: Part
    together: float

    @property
    def ranks(self) -> int:
        """How many ranks."""
        return len(self.wanted)

    @property
    def products(self) -> tuple[Part, ...]:
        """The products; an operand comes before what reads it."""
        return tuple(part for part in self.root.parts if part.operands)

    def __repr__(self) -> str:
        return f"<RankChainPlan of {len(self.given)} matrices on {self.ranks} ranks: {self.root}>"

    def __str__(self) -> str:
        lines = [f"{self.root}: {self.root.seconds:.3g} s by the model, {self.together:.3g} s one product after another on all ranks"]
        for part in self.products:
            assert part.plan is not None
            m, k, n = part.plan.extents
            lines.append(f"  {part}: {m} x {k} by {k} x {n}, {part.plan.name} on {_on(part.group)}")
        return "\n".join(lines)


def plan_chain(
    extents: tuple[int, ...], ranks: int, given: Sequence[Distribution], machine: Machine, scheme: Scheme | None = None
) -> RankChainPlan:
    """The plan with the least time by the model of a machine, for matrices extents[i] x extents[i + 1].

    `given` are the distributions of the matrices and of the result. A product runs by `scheme` where the model says that this is faster
    than tiles of the result. Raises `BilinearError` as `decompose` does.
    """
    shapes = [*pairwise(extents), (extents[0], extents[-1])]
    lie = tuple(each.spread(*shape, ranks) for each, shape in zip(given, shapes, strict=True))
    times = _Times(extents, machine, scheme)
    last = len(extents) - 2
    root = _Tree(times, lie, ranks).part((0, last), (0, ranks))
    return RankChainPlan(extents, lie[:-1], lie[-1], root, times.best(0, last, ranks, False).seconds)


@dataclass(frozen=True)
class _Best:
    """The least seconds of a part on a group: its last product splits behind matrix `split`; `left` ranks compute the left operand.

    If `left` is 0, all ranks of the group compute both operands, one after the other.
    """

    seconds: float
    split: int = -1
    left: int = 0


class _Times:
    """The least seconds of all parts for all sizes of a group."""

    def __init__(self, extents: tuple[int, ...], machine: Machine, scheme: Scheme | None) -> None:
        self.extents, self.machine, self.scheme = extents, machine, scheme
        self.best = cache(self._best)
        self.product = cache(self._product)

    def _best(self, first: int, last: int, ranks: int, apart: bool) -> _Best:
        """The best way for the matrices first to last; operands are computed at once only if they may be `apart`."""
        if first == last:
            return _Best(0.0)
        return min(self._ways(first, last, ranks, apart), key=lambda way: way.seconds)

    def _ways(self, first: int, last: int, ranks: int, apart: bool) -> Iterator[_Best]:
        for split in range(first, last):
            seconds, _ = self.product(self.extents[first], self.extents[split + 1], self.extents[last + 1], ranks)
            operands = (first, split), (split + 1, last)
            yield _Best(seconds + sum(self.best(*each, ranks, apart).seconds for each in operands), split)
            for left in range(1, ranks) if apart and first < split < last - 1 else ():
                both = (self._on_its_own(*each, size, ranks) for each, size in zip(operands, (left, ranks - left), strict=True))
                yield _Best(seconds + max(both), split, left)

    def _on_its_own(self, first: int, last: int, ranks: int, around: int) -> float:
        """Seconds of a part on some of the ranks around: its matrices come from all of these, and its result goes to all."""
        moved = sum(self.extents[at] * self.extents[at + 1] for at in range(first, last + 1)) + self.extents[first] * self.extents[last + 1]
        latency, each = self.machine.link(0, around - 1)
        messages = (last - first + 2) * (around - 1) * latency
        return self.best(first, last, ranks, True).seconds + messages + moved * self.machine.itemsize * (1 / ranks - 1 / around) * each

    def _product(self, m: int, k: int, n: int, ranks: int) -> tuple[float, bool]:
        """Seconds of a product on a group, and whether that is by the scheme."""
        tiles = estimate(self.machine, (m, k, n), ranks).seconds
        if self.scheme is None:
            return tiles, False
        by_scheme = estimate(self.machine, (m, k, n), ranks, self.scheme, fewest_levels(self.scheme, ranks)).seconds
        return min(tiles, by_scheme), by_scheme < tiles


@dataclass(frozen=True)
class _Tree:
    """Parts with their groups, made from the best ways. `lie` says how the matrices and the result lie."""

    times: _Times
    lie: tuple[Spread, ...]
    ranks: int

    def part(self, span: Run, group: Run) -> Part:
        """A part and its operands on a group."""
        size, (first, last) = group[1] - group[0], span
        if first == last:
            return Part(span, group, self.lie[first] if size == self.ranks else self._slabs(span, group), 0.0)
        best = self.times.best(first, last, size, True)
        middle = group[0] + best.left
        groups = ((group[0], middle), (middle, group[1])) if best.left else (group, group)
        spans = (first, best.split), (best.split + 1, last)
        operands = tuple(self.part(*each) for each in zip(spans, groups, strict=True))
        spread = self.lie[-1] if span == (0, len(self.lie) - 2) else self._slabs(span, group)
        extents = tuple(self.times.extents[at] for at in (first, best.split + 1, last + 1))
        m, k, n = extents
        scheme = self.times.scheme if self.times.product(m, k, n, size)[1] else None
        given = [Pieces(each[slice(*group)]) for each in (operands[0].spread, operands[1].spread, spread)]
        return Part(span, group, spread, best.seconds, operands, decompose((m, k, n), size, given, scheme))

    def _slabs(self, span: Run, group: Run) -> Spread:
        """Rows of a part on the ranks of a group."""
        rows, columns = self.times.extents[span[0]], self.times.extents[span[1] + 1]
        inside = Slab.X.spread(rows, columns, group[1] - group[0])
        return (*(NOWHERE,) * group[0], *inside, *(NOWHERE,) * (self.ranks - group[1]))


def _on(group: Run) -> str:
    first, after = group
    return f"rank {first}" if after - first == 1 else f"ranks {first} to {after - 1}"
