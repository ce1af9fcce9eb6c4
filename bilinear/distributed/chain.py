"""`multi_dot` over the ranks of a communicator: a chain of matrices, by products on all ranks or on groups of them at once.

Which, a model of time and traffic for any number of ranks says: closed formulas, on machines that are data (machines.toml).
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from hashlib import sha256
from importlib.resources import files
from itertools import pairwise
from math import isqrt
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from bilinear.distributed.connection import Connection, connected
from bilinear.distributed.distributions import Distribution, Pieces, Rect, Run, Slab, Spread
from bilinear.distributed.multiply import (
    CLASSICAL,
    TIMEOUT,
    adopted,
    agreed,
    carrier,
    check_pieces,
    current,
    require_carrier,
    require_whole,
    said,
    scheme_named,
)
from bilinear.distributed.rank import HOME_A, Multiply, Steps, moved, numbered_from, steps_of
from bilinear.distributed.rank_plan import FIRST, Extents, RankPlan, decompose, doubling, fewest_levels, longest
from bilinear.errors import fail
from bilinear.frontend import Loaded
from bilinear.ir.linear import LinearMap
from bilinear.ir.matrix import Array
from bilinear.ir.scheme import Scheme
from bilinear.lowering.prepare import ready
from bilinear.planner import chains
from bilinear.planner.chains import MOST_MATRICES
from bilinear.planner.problem import require_reproducible
from bilinear.runtime.arrays import Kind, is_on_gpu
from bilinear.runtime.matmul import matmul as multiply_here
from bilinear.runtime.options import ProductOptions, runs_in_place
from bilinear.runtime.same_bits import require_same_bits

if TYPE_CHECKING:
    from mpi4py import MPI


@dataclass(frozen=True)
class Machine:
    """Rates of a rank and its links (machines.toml); `local`: seconds of an m x k by k x n product, else `products` a second."""

    text: str
    itemsize: int
    ranks_per_host: int
    products: float
    memory: float
    holds: float
    near: float
    far: float
    near_latency: float
    far_latency: float
    local: Callable[[int, int, int], float] | None = field(default=None, repr=False)  # an address in it would differ from rank to rank

    def multiply(self, m: float, k: float, n: float) -> float:
        """Seconds of an m x k by k x n product on one rank."""
        return 2 * m * k * n / self.products if self.local is None else self.local(*(max(1, round(x)) for x in (m, k, n)))

    def link(self, source: int, target: int) -> tuple[float, float]:
        """Latency, and seconds for each byte, of a message between two ranks."""
        if source // self.ranks_per_host == target // self.ranks_per_host:
            return self.near_latency, 1 / self.near
        return self.far_latency, 1 / self.far


@dataclass(frozen=True)
class Estimate:
    """What one rank takes: seconds of sums, products and messages, bytes received; both come in `parts`, one after another."""

    sums: float
    products: float
    messages: float
    received: float
    parts: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """Sums, then the first part of the messages; while a part is multiplied the next arrives."""
        hidden = sum(max(self.products * part, self.messages * after) for part, after in pairwise(self.parts))
        return self.sums + self.messages * self.parts[0] + hidden + self.products * self.parts[-1]


@lru_cache(maxsize=1)
def machines() -> dict[str, Machine]:
    """The machines that are described."""
    text = files("bilinear.distributed").joinpath("machines.toml").read_text(encoding="utf-8")
    return {name: Machine(**fields) for name, fields in tomllib.loads(text).items()}


def estimate(machine: Machine, extents: Extents, ranks: int, scheme: Scheme | None = None, levels: int = 1) -> Estimate:
    """C = A B of an m x k by k x n product: in tiles, or by levels of a scheme, breadth first; matrices lie where they are needed first.

    With fewer ranks than products a rank multiplies `products / ranks` of them, and all but a `1 / ranks` of their factors, and as much of
    its products, travels. With more, `ranks / products` ranks share one, in p x q tiles.
    """
    if scheme is None:
        return _in_tiles(machine, extents, ranks)
    products = scheme.rank**levels
    m, k, n = (extent / blocks**levels for extent, blocks in zip(extents, (scheme.m, scheme.k, scheme.n), strict=True))
    sharing = max(1, ranks // products)
    p, q = _grid(sharing)
    each = max(1.0, products / ranks)
    moved = each * (m * k / p + k * n / q + m * n / sharing) * (1 - 1 / ranks) * machine.itemsize
    waits = each * 3 * (ranks - 1)
    return Estimate(
        sum(sums(scheme, levels, extents)) / ranks * machine.itemsize / machine.memory,
        products * sharing / ranks * machine.multiply(m / p, k, n / q),
        _travel(machine, ranks, moved, waits),
        moved,
        (1 / max(1, round(each)),) * max(1, round(each)),
    )


def _in_tiles(machine: Machine, extents: Extents, ranks: int) -> Estimate:
    """A travels along the rows of the grid, B along its columns, and the rank that has most of both on other hosts is waited for."""
    m, k, n = extents
    p, q = _grid(ranks)
    across, down = (elements * machine.itemsize for elements in (m * k / p * (1 - 1 / q), k * n / q * (1 - 1 / p)))
    parts = tuple(width / k for width in doubling(k, -(-k // FIRST), longest(k, round(min(m / p, n / q)))))
    if p * q != round(p) * round(q) or ranks == 1:
        travel = _travel(machine, ranks, across + down, len(parts) * (p + q - 2))
    else:
        shared = _on_one_host(round(p), round(q), machine.ranks_per_host)
        messages = len(parts) * (q - 1), len(parts) * (p - 1)
        travel = max(sum(_moved(machine, *each) for each in zip(near, (across, down), messages, strict=True)) for near in shared)
    return Estimate(0.0, machine.multiply(m / p, k, n / q), travel, across + down, parts)


@lru_cache(maxsize=256)
def _on_one_host(p: int, q: int, host: int) -> frozenset[tuple[float, float]]:
    """Which parts of the others in its row, and in its column, of a p x q grid lie on a rank's host: the pairs that there are."""
    found = set()
    for rank in range(min(p, host) * q):
        begin = rank // host * host
        beside = [other for other in range(begin, min(begin + host, p * q)) if other != rank]
        row, column = sum(other // q == rank // q for other in beside), sum(other % q == rank % q for other in beside)
        found.add((row / max(1, q - 1), column / max(1, p - 1)))
    return frozenset(found)


def _grid(ranks: int) -> tuple[float, float]:
    """The sides of a grid that is as square as the divisors allow; of a prime number, of tiles of equal areas."""
    p = next(each for each in range(isqrt(ranks), 0, -1) if ranks % each == 0)
    return (p, ranks / p) if 2 * p * p >= ranks else (ranks**0.5, ranks**0.5)


def _travel(machine: Machine, ranks: int, received: float, messages: float) -> float:
    """Seconds in which one port receives that, evenly from all others."""
    return 0.0 if ranks == 1 else _moved(machine, (min(machine.ranks_per_host, ranks) - 1) / (ranks - 1), received, messages)


def _moved(machine: Machine, near: float, received: float, messages: float) -> float:
    """Seconds in which one port receives that, of which a part comes from the same host over the near link."""
    latency = near * machine.near_latency + (1 - near) * machine.far_latency
    return messages * latency + received * (near / machine.near + (1 - near) / machine.far)


def sums(scheme: Scheme, levels: int, extents: tuple[float, float, float]) -> tuple[float, float]:
    """Elements that all ranks read and write for sums: of each its terms and itself; a block used as it is costs nothing."""
    before = after = 0.0
    count, (m, k, n) = 1, extents
    for _ in range(levels):
        m, k, n = m / scheme.m, k / scheme.k, n / scheme.n
        before += count * (m * k * _passes(scheme.u) + k * n * _passes(scheme.v))
        after += count * m * n * _passes(scheme.w)
        count *= scheme.rank
    return before, after


def _passes(linear: LinearMap) -> int:
    """Blocks that are read and written to compute a map."""
    return sum(len(form) + 1 for form in (*linear.steps, *linear.outputs) if len(form) > 1)


NOWHERE = Rect((), ())  # What a rank outside of a group holds.


@dataclass(frozen=True)
class ChainPart:
    """The matrices `span` (the first and the last, counted from 0) multiplied by the ranks of `group`, (first, one after the last).

    `spread` says where the result lies, `seconds` when it is there by the model. A product of two `operands` runs by a `plan` of the
    group's ranks, numbered from 0; a single matrix has neither.
    """

    span: Run
    group: Run
    spread: Spread
    seconds: float
    operands: tuple[ChainPart, ...] = ()
    plan: RankPlan | None = None

    @property
    def parts(self) -> Iterator[ChainPart]:
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
    root: ChainPart
    together: float

    @property
    def ranks(self) -> int:
        """How many ranks."""
        return len(self.wanted)

    @property
    def products(self) -> tuple[ChainPart, ...]:
        """The products; an operand comes before what reads it."""
        return tuple(part for part in self.root.parts if part.operands)

    def __repr__(self) -> str:
        return f"<RankChainPlan of {len(self.given)} matrices on {self.ranks} ranks: {self.root}>"

    def __str__(self) -> str:
        lines = [f"{self.root}: {self.root.seconds:.3g} s by the model, {self.together:.3g} s one product after another on all ranks"]
        for part in self.products:
            assert part.plan is not None
            m, k, n = part.plan.extents
            first, after = part.group
            ranks = f"rank {first}" if after - first == 1 else f"ranks {first} to {after - 1}"
            lines.append(f"  {part}: {m} x {k} by {k} x {n}, {part.plan.name} on {ranks}")
        return "\n".join(lines)


def plan_chain(
    extents: tuple[int, ...],
    ranks: int,
    given: Sequence[Distribution],
    machine: Machine,
    scheme: Scheme | None = None,
    same_bits: bool = False,
) -> RankChainPlan:
    """The plan with the least time by the model of a machine, for matrices extents[i] x extents[i + 1].

    `given` are the distributions of the matrices and of the result. A product runs by `scheme` where the model says that this is faster
    than tiles of the result. With the `same_bits` the order is that of fewest multiplications, as on one machine, and no product cuts its
    sums. Raises `BilinearError` as `decompose` does.
    """
    shapes = [*pairwise(extents), (extents[0], extents[-1])]
    lie = tuple(each.spread(*shape, ranks) for each, shape in zip(given, shapes, strict=True))
    steps = chains.plan_chain(extents, "", 1, "", None, None).chosen.steps if same_bits else ()
    tree, last = _Tree(extents, machine, scheme, lie, ranks, {(s.left[0], s.right[1]): s.left[1] for s in steps}), len(extents) - 2
    return RankChainPlan(extents, lie[:-1], lie[-1], tree.part((0, last), (0, ranks)), tree.best(0, last, ranks, False).seconds)


class _LeastSeconds(NamedTuple):
    """The least seconds of a part on a group: its last product splits behind matrix `split`; `left` ranks compute the left operand.

    If `left` is 0, all ranks of the group compute both operands, one after the other.
    """

    seconds: float
    split: int = -1
    left: int = 0


class _Tree:
    """The least seconds of all parts for all sizes of a group, and parts with their groups, made from the best ways.

    `lie` says how the matrices and the result lie; parts in `splits` are split behind that matrix.
    """

    def __init__(
        self,
        extents: tuple[int, ...],
        machine: Machine,
        scheme: Scheme | None,
        lie: tuple[Spread, ...],
        ranks: int,
        splits: Mapping[Run, int],
    ) -> None:
        self.extents, self.machine, self.scheme, self.lie, self.ranks, self.splits = extents, machine, scheme, lie, ranks, splits
        self.best = cache(self._best)
        self.product = cache(self._product)

    def _best(self, first: int, last: int, ranks: int, apart: bool) -> _LeastSeconds:
        """The best way for the matrices first to last; operands are computed at once only if they may be `apart`."""
        if first == last:
            return _LeastSeconds(0.0)
        return min(self._ways(first, last, ranks, apart), key=lambda way: way.seconds)

    def _ways(self, first: int, last: int, ranks: int, apart: bool) -> Iterator[_LeastSeconds]:
        for split in (self.splits[first, last],) if self.splits else range(first, last):
            seconds, _ = self.product(self.extents[first], self.extents[split + 1], self.extents[last + 1], ranks)
            operands = (first, split), (split + 1, last)
            yield _LeastSeconds(seconds + sum(self.best(*each, ranks, apart).seconds for each in operands), split)
            for left in range(1, ranks) if apart and first < split < last - 1 else ():
                both = (self._on_its_own(*each, size, ranks) for each, size in zip(operands, (left, ranks - left), strict=True))
                yield _LeastSeconds(seconds + max(both), split, left)

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

    def part(self, span: Run, group: Run) -> ChainPart:
        """A part and its operands on a group."""
        size, (first, last) = group[1] - group[0], span
        if first == last:
            return ChainPart(span, group, self.lie[first] if size == self.ranks else self._slabs(span, group), 0.0)
        best = self.best(first, last, size, True)
        middle = group[0] + best.left
        groups = ((group[0], middle), (middle, group[1])) if best.left else (group, group)
        spans = (first, best.split), (best.split + 1, last)
        operands = tuple(self.part(*each) for each in zip(spans, groups, strict=True))
        spread = self.lie[-1] if span == (0, len(self.lie) - 2) else self._slabs(span, group)
        m, k, n = (self.extents[at] for at in (first, best.split + 1, last + 1))
        scheme = self.scheme if self.product(m, k, n, size)[1] else None
        given = [Pieces(each[slice(*group)]) for each in (operands[0].spread, operands[1].spread, spread)]
        return ChainPart(span, group, spread, best.seconds, operands, decompose((m, k, n), size, given, scheme, whole=bool(self.splits)))

    def _slabs(self, span: Run, group: Run) -> Spread:
        """Rows of a part on the ranks of a group."""
        inside = Slab.X.spread(self.extents[span[0]], self.extents[span[1] + 1], group[1] - group[0])
        return (*(NOWHERE,) * group[0], *inside, *(NOWHERE,) * (self.ranks - group[1]))


MACHINE = "h200"


@dataclass(frozen=True)
class AskedChain:
    """What a call asks for beside its pieces."""

    extents: tuple[int, ...]
    distributions: Distribution | Sequence[Distribution] = Slab.X
    decomposition: str | Loaded = CLASSICAL
    machine: str | Machine = MACHINE
    algorithm: str = "auto"
    local_levels: int | Literal["auto"] = "auto"
    reproducible: Literal["bitwise"] | None = None


def multi_dot(
    pieces: Sequence[Array],
    *,
    extents: Sequence[int],
    distributions: Distribution | Sequence[Distribution],
    decomposition: str | Loaded = CLASSICAL,
    machine: str | Machine = MACHINE,
    algorithm: str = "auto",
    local_levels: int | Literal["auto"] = "auto",
    reproducible: Literal["bitwise"] | None = None,
    comm: MPI.Intracomm | None = None,
    timeout: float = TIMEOUT,
) -> Array:
    """This rank's piece of A1 A2 ... AM, a new array; every rank of `comm` must call.

    `extents` are M + 1 numbers: matrix i is extents[i] x extents[i + 1], counted from 0. `distributions` say how the matrices and the
    result lie: one for all, or M + 1. `pieces` are this rank's, of one type of integers or floating-point numbers. They are not written.

    The order of the products, and which ranks compute each of them, are those of `chain_plan`; with `reproducible="bitwise"` the order is
    that of `bilinear.multi_dot`, whose bits these are. All else is as in `matmul`, errors included.
    """
    asked = AskedChain(tuple(extents), distributions, decomposition, machine, algorithm, local_levels, reproducible)
    return run_chain(connected(comm, timeout), list(pieces), asked, timeout)


def chain_plan(
    extents: Sequence[int],
    ranks: int,
    *,
    distributions: Distribution | Sequence[Distribution] = Slab.X,
    decomposition: str | Loaded = CLASSICAL,
    machine: str | Machine = MACHINE,
    dtype: str = "float64",
) -> RankChainPlan:
    """The order of a chain on so many ranks, and the ranks that compute each product, by the least time in the model of a machine.

    `machine` is the name of one that is described, or a `Machine`. A product runs by the `decomposition` if the model says that it is
    faster than "2d", otherwise by "2d". Raises `BilinearError`: E550 for extents of no chain, E760, E761, and what `load` raises.
    """
    return _plan_for(AskedChain(tuple(extents), distributions, decomposition, machine), dtype, ranks)[0]


def run_chain(connection: Connection, pieces: list[Array], asked: AskedChain, timeout: float) -> Array:
    """`multi_dot` on a connection."""

    def planned() -> tuple[tuple[RankChainPlan, Kind, list[Array]], str]:
        plan, digest = _plan_for(asked, str(pieces[0].dtype) if pieces else "float64", connection.comm.size)
        if len(pieces) != len(plan.given):
            raise fail("E767", f"{len(pieces)} pieces for a chain of {len(plan.given)} matrices", "give the rank's piece of each matrix")
        check_pieces({f"A{at}": piece for at, piece in enumerate(pieces, 1)}, plan.given, connection.comm.rank)
        kind, own = adopted(*pieces)
        require_carrier(kind.on_gpu, connection.comm.size)
        if asked.reproducible is not None:
            with current(own[0], kind.on_gpu):
                require_same_bits(own[0].dtype, kind.on_gpu)
        return (plan, kind, own), digest

    first = pieces[0] if pieces else None
    plan, kind, own = agreed(connection, said(first, asked, carrier(is_on_gpu(first))), planned, timeout)
    consumes = runs_in_place(asked.algorithm, asked.local_levels, str(own[0].dtype))
    inputs: Literal["preserve", "consume"] = "consume" if consumes else "preserve"
    options: ProductOptions = {"algorithm": asked.algorithm, "levels": asked.local_levels, "inputs": inputs}
    multiply = partial(multiply_here, **options, reproducible=asked.reproducible)
    with current(own[0], kind.on_gpu):
        return kind.give_back(connection.run(chain_steps(plan, connection.comm.rank, own, multiply, consumes), kind.on_gpu))


def chain_steps(plan: RankChainPlan, rank: int, pieces: list[Array], multiply: Multiply, consumes: bool = False) -> Steps:
    """A rank's piece of the product of a chain. First every matrix goes to the group that reads it."""
    held: dict[int, Array] = {}
    for part in sorted((part for part in plan.root.parts if not part.operands), key=lambda part: part.span):
        at, _ = part.span
        held[at] = yield from moved(pieces[at], plan.given[at], part.spread, rank, HOME_A)
    return (yield from _product(plan.root, rank, held, multiply, consumes))


def _product(part: ChainPart, rank: int, held: dict[int, Array], multiply: Multiply, consumes: bool) -> Steps:
    """A rank's piece of a part of the chain; the rank is in the part's group."""
    if part.plan is None:
        return held.pop(part.span[0])
    operands: list[Array] = []
    for operand in part.operands:
        if rank in range(*operand.group):
            operands.append((yield from _product(operand, rank, held, multiply, consumes)))
        else:
            operands.append(None)
    any_of_them = next(x for x in operands if x is not None)
    a, b = (np.empty_like(any_of_them, shape=(0, 0)) if x is None else x for x in operands)
    del operands, any_of_them
    first, _ = part.group
    return (yield from numbered_from(first, steps_of(replace(part.plan, consumes=consumes), rank - first, a, b, multiply)))


def _plan_for(asked: AskedChain, dtype: str, ranks: int) -> tuple[RankChainPlan, str]:
    extents, given = asked.extents, asked.distributions
    if not 3 <= len(extents) <= MOST_MATRICES + 1:
        hint = f"give M + 1 extents for 2 to {MOST_MATRICES} matrices"
        raise fail("E550", f"{len(extents)} extents are of no chain", hint)
    each = tuple(given) if isinstance(given, Sequence) else (given,) * len(extents)
    if len(each) != len(extents):
        raise fail("E761", f"{len(each)} distributions", f"give those of {len(extents) - 1} matrices and of the result, or one for all")
    machine = asked.machine
    if isinstance(machine, str):
        if machine not in machines():
            raise fail("E760", f"no machine {machine!r} is described", f"choose one of {', '.join(machines())}, or give a Machine")
        machine = machines()[machine]
    require_reproducible(asked.reproducible)
    require_whole("reproducible", asked.reproducible, asked.decomposition, asked.algorithm, asked.local_levels)
    return _planned(extents, ranks, each, scheme_named(asked.decomposition), machine, dtype, asked.reproducible is not None)


@lru_cache(maxsize=16)
def _planned(
    extents: tuple[int, ...],
    ranks: int,
    given: tuple[Distribution, ...],
    scheme: Scheme | None,
    machine: Machine,
    dtype: str,
    same_bits: bool,
) -> tuple[RankChainPlan, str]:
    if not all(isinstance(extent, int) and not isinstance(extent, bool) and extent > 0 for extent in extents):
        raise fail("E760", f"the extents {extents!r} are not all positive integers", "matrix i is extents[i] x extents[i + 1]")
    plan = plan_chain(extents, ranks, given, machine, None if scheme is None else ready(scheme, np.dtype(dtype)), same_bits)
    told = [(part.span, part.spread, part.plan and (part.plan.name, part.plan.home, part.plan.tasks)) for part in plan.root.parts]
    return plan, sha256(repr(told).encode()).hexdigest()[:16]
