"""What a device does with thin products: rates of our own kernel by tile, and the library's times at measured points."""

from __future__ import annotations

from dataclasses import dataclass

from bilinear.planner.library_points import LibraryPoints, Shape

LONG_SUM = 64
"""Shorter sums are not split; a slice of a tile may hold them whole."""
LEAST_LAUNCH = 2.0
"""Microseconds that every product takes at least. It is no rate of a device, because points are multiples of a time that holds it."""


@dataclass(frozen=True)
class ThinTileRates:
    """One tile of the thin kernel, known by its name.

    `along` and `across` are the shares of the device's bandwidth at which it reads an A whose neighbours in memory are terms of one
    sum, or are not; with sums of at most `LONG_SUM` terms these are `short_along` and `short_across`. `arithmetic` is the share of the
    speed of its multiply-add pipes, or matrix units, that it reaches.
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

    `pipes` is the speed of the multiply-add pipes in TFLOP/s, `units` that of the matrix units for doubles, `launch` what a call costs,
    `latency` the time until a slice that was asked for has arrived, `gathering` and `adding` what it costs to add up sums that the threads
    of a block, and several blocks, have shared. `again` is the rate of what is read once more, from the cache, relative to the device's
    bandwidth; `copies` are those to shared memory that a multiprocessor starts in a microsecond; what is written element by element takes
    `torn` times as long; of the time that multiprocessors with fewer blocks would idle, `tail` is the part that is lost.

    `library` has the library's times at the measured points, as multiples of `least_us`.
    """

    pipes: float
    units: float
    launch: float
    latency: float
    adding: float
    again: float
    copies: float
    torn: float
    gathering: float
    tail: float
    tiles: tuple[ThinTileRates, ...]
    library: LibraryPoints

    def __hash__(self) -> int:
        """By a few fields, as of `Device`."""
        return hash((self.pipes, self.launch, self.tiles))

    def least_us(self, shape: Shape, itemsize: int, bandwidth: float) -> float:
        """The least that a product takes on a device whose memory moves so many GB/s: a launch, and its traffic or its arithmetic."""
        m, n, k = shape
        return LEAST_LAUNCH + max((m * k + k * n + m * n) * itemsize / (bandwidth * 1e3), 2 * m * n * k / (self.pipes * 1e6))
