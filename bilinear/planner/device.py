"""A device as the performance model sees it: a few measured rates of products, passes over memory, digits and thin products.

Beside its rates its description has a policy: thresholds that were fitted to it.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from math import log

from bilinear.errors import fail
from bilinear.ir.tile import MOST_SHARED_BYTES
from bilinear.planner.library_points import LibraryPoints, Shape

Extents = tuple[int, int, int]  # (m, k, n) of a multiply, in elements.


NEVER = 2**31  # A least extent that no matrix on one GPU reaches.


@dataclass(frozen=True)
class Policy:
    """What the planner weighs on a device, and what it takes to be chosen. The defaults are for a device that nobody has fitted.

    The library's multiply runs unless a plan is predicted to save more than the part `least_gain` of its time, because the model is no
    more exact. Other limits hold for some plans: `least_gain_plain` for the product kernel without a scheme, which does what the library
    does and is seldom much faster; `least_gain_thin` for the kernel for thin products, whose times are known less well, and which must also
    save `least_saved_thin` microseconds, because the library's shortest times are not known; `least_gain_digits` for products of digits;
    `least_gain_complex` for three real products, because the cost of reading and writing every second element is not measured.

    The planner does not weigh plans with a block of fewer than `least_block` rows or columns. For plain plans whose operands are one
    matrix each, with rows that begin at multiples of 16 bytes, `least_plain_block` has other limits by element type. Plans that are timed
    before they are chosen may have blocks down to `least_timed_block`, plain ones of any size if sums have `least_timed_inner` terms.
    Products of digits that are computed in parts to save workspace have parts of at least `least_digit_block` rows and columns, half as
    many columns in memory that C lends.

    `auto` leaves products to the library if an extent is below `least_complex` for complex numbers (unless products of digits take less
    than half of its time), `least_integers` for integers, and `least_halves` for numbers of 16 bits. The kernel for thin products runs if
    C has at least `least_thin` rows and columns: a library multiplies by a vector at the speed of memory.

    More than `many_products` products take seconds to prove and to compile: they are weighed where a multiply takes `long_ms`
    milliseconds. Operands and workspace may fill the part `memory_share` of the device's memory where no budget is given.
    """

    least_gain: float = 0.04
    least_gain_plain: float = 0.08
    least_gain_thin: float = 0.15
    least_saved_thin: float = 5.0
    least_thin: int = 2
    least_gain_digits: float = 0.05
    least_gain_complex: float = 0.25
    least_block: int = 512
    least_plain_block: tuple[tuple[str, Extents], ...] = (("float32", (17, 64, 17)),)
    least_timed_block: int = 128
    least_timed_inner: int = 16
    least_digit_block: int = 1024
    least_complex: int = 1024
    least_integers: int = 2048
    least_halves: int = NEVER
    many_products: int = 1_000
    long_ms: float = 100.0
    memory_share: float = 0.9

    def least_extents(self, dtype: str, is_plain: bool) -> Extents:
        """The least extents of a block; `is_plain` for plain ways on even rows."""
        usual = (self.least_block,) * 3
        return dict(self.least_plain_block).get(dtype, usual) if is_plain else usual


@dataclass(frozen=True)
class LibraryRules:
    """For which problems cublasLt is asked before cuBLAS, because its multiply is usually faster. The defaults were fitted to an H200.

    A sum has k terms. C is contiguous along its extent m, and n is the other one. Matrices are even if rows begin at multiples of 16 bytes.

    - float32: k <= `short_sum`, unless the matrices are even and C has more than `most_even` elements. On an H200 cublasLt takes 6
      microseconds for cuBLAS's 25 at 18153 x 46 x 2.
    - float32, uneven: k <= `medium_sum` where C has at least `many_results` elements.
    - float64, uneven: k <= `medium_sum` where m and n are at least `many`: 483 microseconds for 607 at 17844 x 21 x 7000.
    - float64: m <= `few` and n > `long`.
    - float64: n from `some_least` to `some_most`, m >= `wide` and k >= `deep`. Of 51 such shapes cublasLt was 2 % ahead or more at 23, up
      to 36 %, and behind at 5, up to 14 %.
    - float64: m = n = 1 and k from `dot_least` to `dot_most`: 5.6 microseconds for 33 at 16,384 terms. `cupy.matmul`, which takes 8.4,
      runs where cublasLt refuses, and for such dot products of float32, where it takes 8 for cuBLAS's 12.
    """

    short_sum: int = 256
    medium_sum: int = 512
    many: int = 128
    many_results: int = 500_000
    most_even: int = 2_000_000
    few: int = 4
    long: int = 10_000
    some_least: int = 8
    some_most: int = 32
    wide: int = 7_000
    deep: int = 2_000
    dot_least: int = 1_024
    dot_most: int = 2**15 - 1


USUAL_POLICY, USUAL_RULES = Policy(), LibraryRules()  # Without a description, and for one anew.


LONG_SUM = 64  # Shorter sums are not split; a slice of a tile may hold them whole.
LEAST_LAUNCH = 2.0  # Microseconds of every product; no rate, for points are multiples of a time with it.


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


LEAST_CAPABILITY = 80  # The first compute capability, times ten, that copies to shared memory asynchronously.
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
    elements: tuple[tuple[str, ElementRates], ...]  # By the name of the element type.
    policy: Policy = USUAL_POLICY
    library_rules: LibraryRules = USUAL_RULES
    thin: tuple[tuple[str, ThinRates], ...] = ()  # By element type; other thin products are the library's.
    digits: tuple[tuple[str, DigitRates], ...] = ()
    """By what numbers are cut into: `pairs` of float32, `residues of float32`, `residues of float64`."""
    by_warps: tuple[tuple[str, DigitRates], ...] = ()
    """The same by the kernels for chips without warpgroups, on a chip with warpgroups, which runs none of them."""
    rounded: tuple[tuple[str, Table], ...] = ()
    """The rates in TFLOP/s of the library's products of float32 numbers rounded to such types, by the size (m k n)**(1/3)."""
    shared: int = MOST_SHARED_BYTES
    capability: int = 90  # The compute capability, times ten.
    estimate: str = ""  # Where the figures of an estimate are from; empty for what was measured.

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
