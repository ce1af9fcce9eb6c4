"""A model of time and traffic for any number of ranks: closed formulas, on machines that are data (machines.toml)."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from itertools import pairwise
from math import isqrt

from bilinear.distributed.rank_plan import FIRST, Extents, doubling, longest
from bilinear.ir.linear import LinearMap
from bilinear.ir.scheme import Scheme


@dataclass(frozen=True)
class Machine:
    """Rates of a rank and of its links (machines.toml says what each is).

    `local` gives the seconds of an m x k by k x n product on one rank; None: `products` operations a second at any size.
    """

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
    """What one rank takes: seconds of sums, of products, and of messages; bytes that it receives.

    Products run in `parts` of the whole, one after another, and messages arrive in the same parts.
    """

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
    """Elements that all ranks read and write for the sums of A and B, and for those of C.

    A sum reads its terms and writes itself; a block that is used as it is costs nothing.
    """
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
