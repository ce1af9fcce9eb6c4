"""What a device does with thin products: rates of our own kernel by tile, and the times of the library's calls on a grid of extents."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import product
from math import exp, log

ORDERS = ("NN", "NT", "TN", "TT")
"""Whether BLAS takes the operands of a result by columns as they lie, or transposed."""
SHORT = 64
"""A product is thin if one of its extents is at most this."""


@dataclass(frozen=True)
class ThinTileRates:
    """One tile of the thin kernel, known by its name.

    `along` and `across` are the shares of the device's bandwidth at which it reads an A whose neighbours in memory are terms of one sum, or
    are not; `arithmetic` is the share of the multiply-add pipes' speed that it reaches.
    """

    name: str
    along: float
    across: float
    arithmetic: float


@dataclass(frozen=True)
class ThinRates:
    """What a device does with thin products of one element type. Times are in microseconds.

    `pipes` is the speed of the multiply-add pipes in TFLOP/s, `launch` what a call costs, `latency` the time until a slice that was asked
    for has arrived, `adding` the cost of adding up sums that were split; `again` is the rate of what is read once more, from the cache,
    relative to the device's bandwidth.

    `library` has, for each of the orders NN, NT, TN and TT (whether BLAS takes A and B as they lie or transposed, with C by columns) and
    each call of the library, the time of every shape (m, n, k) of the grid of `extents`, None where it is not known, k fastest.
    """

    pipes: float
    launch: float
    latency: float
    adding: float
    again: float
    tiles: tuple[ThinTileRates, ...]
    extents: tuple[int, ...]
    library: tuple[tuple[str, tuple[tuple[str, tuple[float | None, ...]], ...]], ...]

    def __hash__(self) -> int:
        """By a few fields, as of `Device`."""
        return hash((self.pipes, self.launch, self.tiles))

    def library_us(self, order: str, m: int, n: int, k: int) -> dict[str, float]:
        """The time of each call of the library, between the points of the grid by the logarithms of times and extents."""
        corners = self._corners((m, n, k))
        found = {}
        for name, times in dict(self.library)[order]:
            known = [(weight, times[at]) for at, weight in corners]
            total = sum(weight for weight, us in known if us is not None)
            if total > 0.5:
                found[name] = exp(sum(weight * log(us) for weight, us in known if us is not None) / total)
        return found

    def _corners(self, shape: tuple[int, int, int]) -> list[tuple[int, float]]:
        """The indices of the grid's points around a shape, with their weights. Beyond the grid its last points are extended."""
        axes = []
        for extent in shape:
            low = min(max(bisect_right(self.extents, extent) - 1, 0), len(self.extents) - 2)
            axes.append((low, log(extent / self.extents[low]) / log(self.extents[low + 1] / self.extents[low])))
        corners = []
        for steps in product((0, 1), repeat=3):
            at, weight = 0, 1.0
            for (low, share), step in zip(axes, steps, strict=True):
                at, weight = at * len(self.extents) + low + step, weight * (share if step else 1 - share)
            if weight:
                corners.append((at, weight))
        return corners
