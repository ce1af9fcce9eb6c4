"""A device as the performance model sees it: a few measured rates of products, passes over memory, digits and thin products."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from math import log

from bilinear.errors import fail
from bilinear.ir.tile import MOST_SHARED_BYTES
from bilinear.planner.library_points import LibraryPoints, Shape
from bilinear.planner.policy import USUAL_POLICY, USUAL_RULES, LibraryRules, Policy

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


LEAST_CAPABILITY = 80
"""The first compute capability, times ten, whose GPUs copy to shared memory asynchronously, as our kernels do."""
Table = tuple[tuple[float, float], ...]
"""(key, value) pairs with rising positive keys; between keys the logarithm of the key interpolates, beyond them the last value holds."""


@dataclass(frozen=True)
class TileRates:
    """What a device does with one tile of the product kernel, known by its name: `rows` x `columns` of a result, by one block of threads.

    `blocks` of them fit on a multiprocessor. `start` is what beginning and ending a tile costs, in steps of the inner dimension, `lone`
    the speed of a multiprocessor with a single block, relative to a full one, `share` the rate of a full device by the size of a block,
    relative to `product`, `unaligned` its speed where rows do not start at multiples of 16 bytes, and `exposed` the part of the
    epilogue that no other block's arithmetic hides.
    """

    name: str
    rows: int
    columns: int
    blocks: int
    start: float
    lone: float
    share: Table
    unaligned: float
    exposed: float


@dataclass(frozen=True)
class ElementRates:
    """What a device does with one element type.

    `tiles` are those of the product kernel. `product` gives the kernel's rate in TFLOP/s when the device is full, by
    the size of the whole multiply (m k n)**(1/3), for a long multiply heats the device and lowers its clock. `library` gives the rate of
    the library's own multiply.

    Relative speeds of the product kernel: `accumulating` where it adds to blocks, `strip` in the thin products that peeling leaves over.
    `epilogue` is the rate in GB/s at which a full device reads and writes blocks that products go to. `streaming` gives the share of the
    bandwidth that a linear kernel reaches, by how many blocks it reads and writes at once. `scattered`, `scattered_epilogue` and
    `library_unaligned` are the speeds, relative, of linear kernels, of the epilogue, and of the library without the alignment.
    """

    tiles: tuple[TileRates, ...]
    accumulating: float
    epilogue: float
    scattered_epilogue: float
    strip: float
    scattered: float
    streaming: Table
    product: Table
    library: Table
    library_unaligned: float

    def tile(self, name: str) -> TileRates:
        """The rates of the tile of this name."""
        return next(own for own in self.tiles if own.name == name)


@dataclass(frozen=True)
class DigitRates:
    """Rates of products by digits of an element type.

    `product` is the rate of the product kernel, in TFLOP/s (2 m k n for each result) for pairs and in TOP/s (as many modulo each p) for
    residues, when the device is full, by the size (m k n)**(1/3) of the whole multiply. Of a tile, `start` are the microseconds beyond
    that, `direct` those where it also writes C, `uneven` those where it does and rows of C are no multiples of 16 bytes; `loading` is the
    part by which it takes longer for each operand with such rows, if the product itself cuts it, and `tail` the part that a product takes
    once more.

    `search`, `expansion` and `recomposition` are the shares of the bandwidth that these passes reach, the last two by the number of
    products; a search takes `line` nanoseconds a term of a line at least. `launch` are the microseconds of one more launch, `unaligned`
    those that all takes longer if rows of A or of B are no multiples of 16 bytes.
    """

    product: Table
    start: float
    direct: float
    uneven: float
    loading: float
    tail: float
    search: float
    line: float
    expansion: Table
    recomposition: Table
    launch: float
    unaligned: float


@dataclass(frozen=True)
class Device:
    """A GPU. Rates of memory are in GB/s (10**9 bytes, read and written bytes counted alike), times in microseconds.

    `launch` is what one more launch costs, `call` what a call costs before its first launch, `scan` what looking at A and B for Inf and
    NaN costs beyond their traffic. `policy` and `library_rules` hold the thresholds that were fitted to it. `shared` is the shared memory
    in bytes that a block of threads can have.
    """

    name: str
    processors: int
    memory: int
    l2: int
    bandwidth: float
    launch: float
    call: float
    scan: float
    elements: tuple[tuple[str, ElementRates], ...]
    """By the name of the element type."""
    policy: Policy = USUAL_POLICY
    library_rules: LibraryRules = USUAL_RULES
    thin: tuple[tuple[str, ThinRates], ...] = ()
    """By the name of the element type; thin products of others are left to the library."""
    digits: tuple[tuple[str, DigitRates], ...] = ()
    """By what numbers are cut into: `pairs` of float32, `residues of float32`, `residues of float64`."""
    by_warps: tuple[tuple[str, DigitRates], ...] = ()
    """The same by the kernels for chips without warpgroups, on a chip with warpgroups, which runs none of them."""
    rounded: tuple[tuple[str, Table], ...] = ()
    """The rates in TFLOP/s of the library's products of float32 numbers rounded to such types, by the size (m k n)**(1/3)."""
    shared: int = MOST_SHARED_BYTES
    capability: int = 90
    """The compute capability, times ten."""
    estimate: str = ""
    """Where the figures of an estimate are from; empty for what was measured."""

    @property
    def title(self) -> str:
        """The name, and whether it is an estimate."""
        return f"{self.name}, an estimate" if self.estimate else self.name

    @property
    def runs_kernels(self) -> bool:
        """Whether our kernels run there, which copy to shared memory asynchronously; else all is left to the library."""
        return self.capability >= LEAST_CAPABILITY

    @property
    def memory_share(self) -> float:
        """The part of the memory that operands and workspace may fill."""
        return self.policy.memory_share

    def __hash__(self) -> int:
        """By a few fields: to hash all tables would double the microseconds in which a plan is found again."""
        return hash((self.name, self.bandwidth, self.launch))

    def rates(self, dtype: str) -> ElementRates:
        """The rates of an element type; raises `BilinearError` (E543) where none are known."""
        for name, own in self.elements:
            if name == dtype:
                return own
        raise fail("E543", f"the description of {self.name} has no rates of {dtype}", "take another element type, or add its rates")

    def tiles(self, dtype: str) -> tuple[str, ...]:
        """The tiles of the product kernel that run on the device."""
        return tuple(own.name for own in self.rates(dtype).tiles)

    def thin_rates(self, dtype: str) -> ThinRates | None:
        """The rates of thin products of an element type, if they are known."""
        return dict(self.thin).get(dtype)

    def digit_rates(self, digits: str) -> DigitRates | None:
        """The rates of products of such digits, if they are known."""
        return dict(self.digits).get(digits)

    def with_rates(self, dtype: str, rates: ElementRates) -> Device:
        """The same device with other rates of an element type."""
        return replace(self, elements=tuple((name, rates if name == dtype else own) for name, own in self.elements))


def at(table: Table, key: float) -> float:
    """The value of a table at a key."""
    i = bisect_right(table, (key, float("inf")))
    if i == 0 or i == len(table):
        return table[min(i, len(table) - 1)][1]
    (low, first), (high, second) = table[i - 1], table[i]
    return first + (second - first) * log(key / low) / log(high / low)
