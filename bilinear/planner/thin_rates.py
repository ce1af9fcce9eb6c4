"""What a device does with thin products: rates of our own kernel by tile, and the times of the library's calls on a grid of extents."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from math import exp, log

ORDERS = ("NN", "NT", "TN", "TT")
"""Whether BLAS takes the operands of a result by columns as they lie, or transposed."""
EXTENTS = (1, 2, 4, 8, 16, 32, 64, 256, 1024, 4096, 16384, 65536, 1048576)
"""The grid of the library's times: m, n and k are among these."""
Times = tuple[float | None, ...]
"""Microseconds for every shape (m, n, k) of the grid, k fastest; None where it was not timed."""
Shape = tuple[int, int, int]
"""m, n and k of a product with a result by columns."""
LEAST_WEIGHT = 0.3
"""Of the points around a shape, whose weights add up to 1, those that were timed have more than this."""
LONG_SUM = 64
"""Shorter sums are not split; a slice of a tile may hold them whole."""
SHORT = 64
"""A product is thin if one of its extents is at most this."""


@dataclass(frozen=True)
class ThinTileRates:
    """One tile of the thin kernel, known by its name.

    `along` and `across` are the shares of the device's bandwidth at which it reads an A whose neighbours in memory are terms of one
    sum, or are not; with sums of at most `LONG_SUM` terms these are `short_along` and `short_across`. `arithmetic` is the share of the
    multiply-add pipes' speed that it reaches.
    """

    name: str
    along: float
    across: float
    arithmetic: float
    short_along: float
    short_across: float


@dataclass(frozen=True)
class ThinRates:
    """What a device does with thin products of one element type. Times are in microseconds.

    `pipes` is the speed of the multiply-add pipes in TFLOP/s, `launch` what a call costs, `latency` the time until a slice that was asked
    for has arrived, `gathering` and `adding` what it costs to add up sums that the threads of a block, and several blocks, have shared.
    `again` is the rate of what is read once more, from the cache, relative to the device's bandwidth; `copies` are those to shared memory
    that a multiprocessor starts in a microsecond; what is written element by element takes `torn` times as long; of the time that
    multiprocessors with fewer blocks would idle, `tail` is the part that is lost.

    `library` has the times of each call of the library for each of the `ORDERS`.
    """

    pipes: float
    launch: float
    latency: float
    adding: float
    again: float
    copies: float
    torn: float
    gathering: float
    tail: float
    tiles: tuple[ThinTileRates, ...]
    library: tuple[tuple[str, tuple[tuple[str, Times], ...]], ...]

    def __hash__(self) -> int:
        """By a few fields, as of `Device`."""
        return hash((self.pipes, self.launch, self.tiles))

    def library_us(self, order: str, shape: Shape, least_us: Callable[[Shape], float]) -> dict[str, float]:
        """The time of each call of the library, without those of which no time near the shape is known.

        Between the points of the grid, how many times as long as `least_us` a call takes is interpolated by logarithms.
        """
        corners = _corners(shape)
        found = {}
        for name, times in dict(self.library)[order]:
            known = [(weight, point, us) for weight, point, us in ((weight, point, times[at]) for weight, point, at in corners) if us]
            total = sum(weight for weight, *_ in known)
            if total > LEAST_WEIGHT:
                found[name] = least_us(shape) * exp(sum(weight * log(us / least_us(point)) for weight, point, us in known) / total)
        return found


def _corners(shape: Shape) -> list[tuple[float, Shape, int]]:
    """The points of the grid around a shape, with their weights and indices. Beyond the grid its last points count."""
    axes = []
    for extent in shape:
        low = min(bisect_right(EXTENTS, extent), len(EXTENTS) - 1) - 1
        share = min(1.0, log(extent / EXTENTS[low]) / log(EXTENTS[low + 1] / EXTENTS[low]))
        axes.append(((low, 1 - share), (low + 1, share)))
    corners = []
    for (i, p), (j, q), (k, r) in product(*axes):
        if p * q * r:
            corners.append((p * q * r, (EXTENTS[i], EXTENTS[j], EXTENTS[k]), (i * len(EXTENTS) + j) * len(EXTENTS) + k))
    return corners
