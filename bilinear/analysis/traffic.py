"""Simple models of a multiply on a machine with a slow memory and a fast one of S elements: intensity, balance, tiles, bounds of traffic.

Traffic is counted in elements that are read from the slow memory or written to it. The models are those of G. Zachmann's lecture *Massively
Parallel Algorithms: Dense Matrix Algorithms* (University of Bremen, 2013), for any extents instead of squares of side n.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, isqrt, sqrt

LATENCY, MEMORY, ARITHMETIC = "latency", "memory", "arithmetic"  # What bounds the time of a plan.
ENOUGH = 0.5  # With less than this share of the needed bytes or work under way, latency bounds a kernel.
Extents = tuple[int, int, int]  # (m, k, n) of a product of m x k by k x n.


def operations(extents: Extents) -> int:
    """Operations of a classical multiply: a multiplication and an addition for each of m k n products of elements."""
    m, k, n = extents
    return 2 * m * k * n


def least_traffic(extents: Extents) -> int:
    """The least traffic: each element of A and B is read once, each of C written once (intensity 2 n^3 / 3 n^2 in the lecture)."""
    m, k, n = extents
    return m * k + k * n + m * n


def intensity(done: float, moved: float) -> float:
    """Arithmetic intensity: operations for each byte (or element) that is moved."""
    return done / moved


def balance(operations_per_second: float, bytes_per_second: float) -> float:
    """Machine balance, operations for each byte: below this intensity memory limits the speed, above it arithmetic."""
    return operations_per_second / bytes_per_second


def balancing_side(machine_balance: float, itemsize: int) -> int:
    """The least side of square tiles whose multiply reaches the balance.

    Tiles of side t move 2 n^3 / t elements beside C, so the intensity is t operations for each element, t / itemsize for each byte.
    """
    return ceil(machine_balance * itemsize)


def fitting_side(fast: int) -> int:
    """The largest side of square tiles of A, B and C, one each, that fit into `fast` elements together: sqrt(S / 3); at least 1."""
    return max(1, isqrt(fast // 3))


def operand_reads(extents: Extents, rows: int, columns: int) -> int:
    """Elements of A and B that a multiply reads if it computes C in tiles of `rows` x `columns`, with smaller ones at the edges.

    It reads all of A for each column of tiles, all of B for each row of tiles, however deep the slices of A and B are.
    """
    m, k, n = extents
    return m * k * ceil(n / columns) + k * n * ceil(m / rows)


def tiled_traffic(extents: Extents, rows: int, columns: int) -> int:
    """All traffic of this multiply: a tile of C stays in the fast memory until it is done, so each element is written once."""
    return operand_reads(extents, rows, columns) + extents[0] * extents[2]


def traffic_bound(extents: Extents, fast: int) -> int:
    """The least traffic of any order of a classical multiply C = A B with a fast memory of S elements: the larger of two bounds.

    Every element of A and B is read, and every element of C written. Also, J.-W. Hong and H. T. Kung (*I/O complexity: the red-blue pebble
    game*, STOC 1981) proved that the traffic is of the order m k n / sqrt(S). With a constant, by T. M. Smith, B. Lowery, J. Langou and R.
    A. van de Geijn (*A tight I/O lower bound for matrix multiplication*, arXiv:1702.02017): C += A B reads at least 2 m k n / sqrt(S) - 2 S
    elements. A multiply that only writes C reads at most m n elements less, and it writes as many.
    """
    m, k, n = extents
    return max(least_traffic(extents), isqrt((2 * m * k * n) ** 2 // fast) - 2 * fast)


def traffic_order(size: float, block: float, omega: float, fast: int) -> float:
    """The order of the least traffic of a recursive multiply of n x n matrices whose blocks are multiplied classically.

    It is (n / b)^omega (b / sqrt(S))^3 S, with b the larger of sqrt(S) and the side of the blocks; the constant is unknown. If blocks fit
    into the fast memory, that is (n / sqrt(S))^omega S: G. Ballard, J. Demmel, O. Holtz and O. Schwartz (*Graph expansion and communication
    costs of fast matrix multiplication*, J. ACM 59, 2012). If they do not: L. De Stefani (*The I/O complexity of hybrid algorithms for
    square matrix multiplication*, ISAAC 2019). `size` is n, or the cube root of m k n.
    """
    side = max(sqrt(fast), block)
    return float((size / side) ** omega * (side / sqrt(fast)) ** 3 * fast)


def threshold(operations_per_second: float, bytes_per_second: float, itemsize: int) -> float:
    """The columns of B above which arithmetic takes longer than reading A: 2 operations for each column and element of A.

    The paper counts a multiply-add once, against a peak that counts it twice, so its threshold is twice as high.
    """
    return operations_per_second / bytes_per_second * itemsize / 2


def bound_by(share: float, moving: float, multiplying: float, ms: float | None = None) -> str:
    """What bounds a kernel that can use this share of the bandwidth, whose traffic and arithmetic take so many seconds at full speed.

    If `ms`, the milliseconds that are predicted for it, are more than twice as many, launches and waiting are the larger part: latency.
    """
    at_full_speed = max(moving / share, multiplying)
    if share < ENOUGH or (ms is not None and at_full_speed < ENOUGH * ms * 1e-3):
        return LATENCY
    return MEMORY if moving / share >= multiplying else ARITHMETIC


@dataclass(frozen=True)
class Streaming:
    """A thin product's kernel on a device; `kind` says which extents are short.

    Above `threshold` columns, arithmetic takes longer than reading A.

    `blocks` of threads are on a multiprocessor, with `under_way` bytes of slices. To read at full speed needs `needed` bytes: reads have
    the part of the bandwidth that writing C, which nothing waits for, leaves them. So they can use the `share` of it. `bound_by` says
    whether latency, memory or arithmetic sets the time.
    """

    kind: str
    threshold: float
    blocks: int
    under_way: int
    needed: int
    share: float
    bound_by: str
