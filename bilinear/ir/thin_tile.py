"""Tiles of the kernels for thin products, on multiply-add pipes and on matrix units, and the tables of all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import ClassVar

from bilinear.ir.element import FLOAT32, FLOAT64
from bilinear.ir.tile import MMA_FLOAT64, WGMMA_BFLOAT16, Instruction


class ThinTileFacts:
    """Facts of a template, which the tiles of one kind have in common. Those here are of tiles on the multiply-add pipes."""

    least_capability = 80  # The least compute capability, times ten: all such copy asynchronously.
    features = ""  # The suffix of the architecture if no later one runs it.
    times_doubles = 0.0  # Products of its unit for one of the unit for doubles, by data sheets; 0 on pipes.
    copies_lines = False  # Whether a slice takes the time of its lines to copy, however long they are.
    copies_beside = False  # Whether copies take no time of multiplying warps, and less than the memory's.
    fetches = False
    """Whether warps of their own fetch slices. Then each warp that multiplies writes its own short parts of lines of the result, which may
    end within what memory writes at once."""
    keeps: bool = False  # Whether B is one slice, which a block of threads keeps.
    turns: int = 1  # Units, each a tile of the result, that a block of threads has in hand at once.
    block: ClassVar[tuple[int, int, int] | None] = None
    """The rows, columns and terms of an instruction, if those outside of the result are left out."""

    def runs_on(self, capability: int) -> bool:
        """Whether a device of this compute capability, times ten, has its instructions."""
        return capability == self.least_capability if self.features else capability >= self.least_capability

    @property
    def strips(self) -> bool:
        """Whether a block keeps B for a strip of columns, so that a result may be wider than the tile although B is one slice."""
        return self.fetches and self.keeps

    @property
    def on_units(self) -> bool:
        """Whether it multiplies on matrix units."""
        return self.times_doubles > 0


LEAST_TERMS = 20
"""Shorter sums of products of digits have a larger probable error than those of products of numbers, because the unit truncates."""

REGISTERS, MOST_NAMED, KEPT_REGISTERS = 65536, 256, 56
"""Registers of a multiprocessor, those that a thread can name, and those that a thread which fetches keeps. They are given in eights."""


@dataclass(frozen=True)
class ThinMmaTile(ThinTileFacts):
    """An m x n tile of such a result, computed in slices of depth k by m_warps x n_warps warps on the matrix units for doubles.

    Each of these places has `k_warps` warps, which share the depth of a slice. `stages` slices are in flight. If the tile `keeps` B, it
    runs only products whose B is one slice, which is copied once by each block of threads. If results are `staged` in shared memory, they
    are written in the order in which C lies; if sums are long, what is written does not matter.
    """

    m: int
    n: int
    k: int
    m_warps: int
    n_warps: int
    k_warps: int
    stages: int
    blocks: int  # Blocks that a multiprocessor holds for doubles: many small ones wait at barriers apart.
    float_blocks: int
    keeps: bool = False
    staged: bool = True
    instruction: Instruction = MMA_FLOAT64
    template: str = field(default="thin_mma.cu.j2", init=False)
    times_doubles = 1.0
    block: ClassVar[tuple[int, int, int] | None] = MMA_FLOAT64.shape

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.m_warps * self.n_warps * self.k_warps

    @property
    def name(self) -> str:
        """Its extents and warps, by which it is known."""
        kind = "kept" if self.keeps else "staged" if self.staged else "mma"
        return f"{kind}{self.m}x{self.n}x{self.k}-{self.m_warps}x{self.n_warps}x{self.k_warps}"

    @property
    def gathers(self) -> bool:
        """Whether warps share sums, and gather them when a unit ends."""
        return self.k_warps > 1

    def holds(self, k: int, n: int, parts: int) -> bool:
        """Whether it can run a product of these extents with sums in so many parts."""
        return not self.keeps or (k <= self.k and n <= self.n and parts == 1)

    def admits(self, lanes: int, left_along: bool, right_along: bool) -> bool:
        """Whether operands that lie so can be read: fragments are read element by element, however they lie."""
        return True

    def resident(self, lanes: int) -> int:
        """Blocks of threads that fit on a multiprocessor with the registers that they need."""
        return self.float_blocks if lanes > 2 else self.blocks

    def shared_elements(self, lanes: int, left_along: bool, right_along: bool, by_rows: bool) -> int:
        """Elements in shared memory: slices of A and of B, whose lines are padded to avoid bank conflicts, and a tile of results."""
        left, right = (
            lines * (self.k + 8) if along else self.k * (lines + lanes) for lines, along in ((self.m, left_along), (self.n, right_along))
        )
        staged = self.m * (self.n + 8) if by_rows else self.n * (self.m + lanes)
        return self.stages * left + (1 if self.keeps else self.stages) * right + (staged if self.staged else 0)


@dataclass(frozen=True)
class ThinFetchedTile(ThinMmaTile):
    """A tile whose slices are fetched by `fetchers` warps of their own, so that no barrier delays the warps that multiply and write.

    If the tile `keeps` B, a block of threads keeps a strip of B's columns in shared memory. A result may have many strips: a block finishes
    its units of one strip before it begins the next. `turns` groups of warps can then work on a tile each: while one writes its results,
    the others multiply.
    """

    k_warps: int = field(default=1, init=False)
    float_blocks: int = field(default=0, init=False)
    turns: int = 1
    fetchers: int = 4
    least_capability = 90
    features = "a"
    fetches = True
    barrier_bytes: int = field(default=128, init=False)  # What the barriers take of shared memory.

    @property
    def registers(self) -> int:
        """Registers of a thread that multiplies, if those that fetch are a warpgroup and give theirs away; else 0."""
        raise NotImplementedError

    @property
    def given_registers(self) -> int:
        """Registers that a thread that fetches keeps, if it gives others away; else 0."""
        return KEPT_REGISTERS if self.registers else 0

    def holds(self, k: int, n: int, parts: int) -> bool:
        """Whether it can run a product of these extents with sums in so many parts."""
        return not self.keeps or (k <= self.k and parts == 1)

    def resident(self, lanes: int) -> int:
        """Blocks of threads that fit on a multiprocessor with the registers that they need."""
        return self.blocks


@dataclass(frozen=True)
class ThinTriplesTile(ThinFetchedTile):
    """Such a tile of float32 on the matrix units for bfloat16, by warpgroups of 64 rows each.

    Each number is three bfloat16 digits, and six products of them make one (`algorithms/digits/triples.bl`). Digits of A are cut in
    registers; those of a slice of B are cut once by each block of threads. `k_groups` warpgroups share the depth of a slice.
    """

    m_warps: int = field(default=4, init=False)
    n_warps: int = field(default=1, init=False)
    staged: bool = field(default=True, init=False)
    k_groups: int = 1
    instruction: Instruction = WGMMA_BFLOAT16
    template: str = field(default="thin_triples.cu.j2", init=False)
    times_doubles = 2.5
    copies_lines = True
    block = None  # warpgroups multiply whole tiles

    @property
    def threads(self) -> int:
        """Threads of a block: those that multiply, and the warps that fetch."""
        return 2 * self.m * self.k_groups * self.turns + 32 * self.fetchers

    @property
    def name(self) -> str:
        """Its extents, the warpgroups along k or with tiles of their own, stages and fetchers, by which it is known."""
        kind = "triples_kept" if self.keeps else "triples"
        return f"{kind}{self.m}x{self.n}x{self.k}-{self.k_groups * self.turns}-{self.stages}x{self.fetchers}"

    @property
    def registers(self) -> int:
        """Registers of a thread that multiplies, if those that fetch are a warpgroup and give theirs away; else 0.

        The block is alone on its multiprocessor, and has too many threads for each to have all that it may name.
        """
        if self.fetchers < 4 or self.blocks > 1 or self.threads <= REGISTERS // MOST_NAMED:
            return 0
        usual = REGISTERS // self.threads // 8 * 8
        return (self.threads * usual - 32 * self.fetchers * KEPT_REGISTERS) // (self.threads - 32 * self.fetchers) // 8 * 8

    def holds(self, k: int, n: int, parts: int) -> bool:
        """Whether it can run a product of these extents with sums in so many parts, as accurately as the classical multiply."""
        return k >= LEAST_TERMS and super().holds(k, n, parts)

    @property
    def gathers(self) -> bool:
        """Whether warpgroups share sums, and gather them when a unit ends."""
        return self.k_groups > 1

    def shared_elements(self, lanes: int, left_along: bool, right_along: bool, by_rows: bool) -> int:
        """Elements in shared memory: digits of B, barriers, slices, the sums that half of the warpgroups give away, and rows to write.

        Each line of a slice has room for the 16 bytes in which it begins, and so much that a fragment's elements lie in different banks.
        """
        both = (self.m, left_along), (self.n, right_along)
        left, right = ((lines * (self.k + 4) if along else self.k * (lines + 8)) + lanes for lines, along in both)
        slices = self.stages * (left if self.keeps else left + right)
        digits = 3 * 32 * self.n * -(-self.k // 64) * (1 if self.keeps else 2)
        results = 4 * self.turns * 16 * (min(self.n, 64) + 8) if self.keeps and by_rows else 0
        return digits + self.barrier_bytes // 4 + slices + self.k_groups // 2 * self.m * self.n + results


@dataclass(frozen=True)
class ThinBulkMmaTile(ThinFetchedTile):
    """Such a tile of float64 on the matrix units for doubles. A warp has m / m_warps rows and n / n_warps columns."""

    n_warps: int = field(default=1, kw_only=True)
    staged: bool = field(default=False, init=False)
    fetchers: int = 2
    template: str = field(default="thin_bulk_mma.cu.j2", init=False)
    copies_beside = True

    @property
    def threads(self) -> int:
        """Threads of a block: those that multiply, and the warps that fetch."""
        return 32 * (self.m_warps * self.n_warps * self.turns + self.fetchers)

    @property
    def name(self) -> str:
        """Its extents, warps along m (and n, and tiles in hand), stages and fetchers, by which it is known."""
        kind = "strips" if self.keeps else "ring"
        warps = f"{self.m_warps}x{self.n_warps}x{self.turns}" if self.n_warps * self.turns > 1 else f"{self.m_warps}"
        return f"{kind}{self.m}x{self.n}x{self.k}-{warps}-{self.stages}x{self.fetchers}"

    @property
    def registers(self) -> int:
        """Registers of a thread that multiplies if fetching warpgroups give theirs away, by quarters of a multiprocessor; else 0."""
        usual = REGISTERS // (128 * ceil(self.threads * self.blocks / 128)) // 8 * 8
        if self.fetchers % 4 or usual >= MOST_NAMED:
            return 0
        return usual + self.fetchers * (usual - KEPT_REGISTERS) // (self.threads // 32 - self.fetchers) // 8 * 8

    def shared_elements(self, lanes: int, left_along: bool, right_along: bool, by_rows: bool) -> int:
        """Elements in shared memory: barriers, slices of A, whose lines are padded to avoid bank conflicts, and of B, which have none."""
        left = (self.m * (self.k + 2) if left_along else self.k * (self.m + 4)) + lanes
        return self.barrier_bytes * lanes // 16 + self.stages * left + (1 if self.keeps else self.stages) * self.k * self.n


@dataclass(frozen=True)
class ThinTile(ThinTileFacts):
    """An m x n tile of a result with a short extent, computed in slices of depth k by m_threads x n_threads threads.

    Each of these places has `k_threads` threads, which share the depth of a slice. `stages` slices are in flight. Registers are limited so
    that `blocks` blocks of threads fit on a multiprocessor.
    """

    m: int
    n: int
    k: int
    m_threads: int
    n_threads: int
    k_threads: int
    stages: int
    blocks: int
    template: str = field(default="thin.cu.j2", init=False)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.m_threads * self.n_threads * self.k_threads

    @property
    def name(self) -> str:
        """Its extents and threads, by which it is known."""
        return f"{self.m}x{self.n}x{self.k}-{self.m_threads}x{self.n_threads}x{self.k_threads}"

    @property
    def gathers(self) -> bool:
        """Whether threads share sums, and gather them when a unit ends."""
        return self.k_threads > 1

    def holds(self, k: int, n: int, parts: int) -> bool:
        """Whether it can run a product of these extents with sums in so many parts: any."""
        return min(k, n, parts) > 0

    def admits(self, lanes: int, left_along: bool, right_along: bool) -> bool:
        """Whether operands that lie so can be read in vectors of `lanes` elements: rows of A that are neighbours, or columns of B."""
        rows, columns = self.m // self.m_threads, self.n // self.n_threads
        return (left_along or rows % lanes == 0) and (right_along or columns % lanes == 0)

    def resident(self, lanes: int) -> int:
        """Blocks of threads that fit on a multiprocessor with the registers that they need."""
        return self.blocks

    def shared_elements(self, lanes: int, left_along: bool, right_along: bool, by_rows: bool) -> int:
        """Elements in shared memory: all slices, of lines padded against bank conflicts; `along`: neighbours are terms of one sum."""
        padded = lanes if self.m_threads * self.n_threads < 32 else 0
        left = self.m * (self.k + lanes) if left_along else self.k * (self.m + padded * self.m_threads)
        right = self.n * (self.k + lanes) if right_along else self.k * (self.n + padded * self.n_threads)
        return self.stages * (left + right)


_THIN_FLOAT32 = (
    ThinTile(64, 4, 64, 16, 1, 16, 4, 2),
    ThinTile(512, 4, 8, 128, 1, 1, 4, 4),
    ThinTile(128, 8, 64, 32, 1, 8, 3, 2),
    ThinTile(1024, 8, 8, 128, 2, 1, 2, 2),
    ThinTile(256, 16, 16, 32, 4, 1, 2, 4),
    ThinTile(128, 32, 16, 16, 4, 2, 4, 2),
    ThinTile(128, 64, 16, 16, 8, 1, 3, 2),
    ThinTile(8, 8, 256, 2, 2, 64, 4, 2),
    ThinTile(16, 16, 128, 2, 2, 32, 4, 2),
    ThinTile(32, 32, 64, 4, 4, 16, 3, 2),
)
_THIN_FLOAT64 = (
    ThinTile(512, 4, 8, 128, 1, 1, 3, 3),
    ThinTile(8, 8, 128, 2, 2, 32, 3, 3),
)
_THIN_MMA = (
    ThinMmaTile(64, 16, 16, 2, 1, 1, 3, 4, 8, keeps=True),
    ThinMmaTile(64, 16, 64, 4, 1, 1, 2, 2, 3, keeps=True),
    ThinMmaTile(64, 32, 16, 2, 2, 1, 3, 3, 4, keeps=True),
    ThinMmaTile(64, 32, 32, 2, 1, 1, 2, 3, 6, keeps=True),
    ThinMmaTile(64, 32, 64, 2, 2, 1, 2, 2, 3, keeps=True),
    ThinMmaTile(64, 64, 32, 2, 2, 1, 2, 2, 3, keeps=True),
    ThinMmaTile(32, 64, 64, 2, 2, 1, 3, 2, 3, keeps=True),
    ThinMmaTile(64, 64, 16, 2, 2, 1, 3, 2, 3),
    ThinMmaTile(64, 64, 16, 2, 1, 1, 3, 2, 4),
    ThinMmaTile(64, 32, 32, 2, 2, 1, 3, 2, 3, staged=False),
    ThinMmaTile(64, 32, 32, 2, 1, 1, 2, 3, 6, staged=False),
    ThinMmaTile(32, 16, 64, 2, 1, 1, 3, 3, 6, staged=False),
    ThinMmaTile(16, 16, 64, 1, 1, 4, 4, 3, 4, staged=False),
    ThinMmaTile(32, 32, 64, 1, 1, 4, 3, 2, 3, staged=False),
)
_TRIPLES = (
    ThinTriplesTile(64, 32, 64, 2, 2, fetchers=2),
    ThinTriplesTile(192, 32, 64, 2, 1),
    ThinTriplesTile(128, 48, 64, 3, 1),
    ThinTriplesTile(128, 64, 64, 2, 1),
    ThinTriplesTile(192, 48, 64, 2, 1),
    ThinTriplesTile(192, 64, 64, 2, 1),
    ThinTriplesTile(64, 48, 64, 3, 1, k_groups=2),
    ThinTriplesTile(64, 16, 64, 3, 3, keeps=True, fetchers=1),
    ThinTriplesTile(64, 48, 64, 6, 1, keeps=True, turns=3),
    ThinTriplesTile(64, 64, 64, 6, 1, keeps=True, turns=3),
    ThinTriplesTile(64, 64, 48, 6, 1, keeps=True, turns=3),
    ThinTriplesTile(64, 64, 32, 6, 1, keeps=True, turns=3),
    ThinTriplesTile(64, 64, 64, 6, 1, keeps=True, turns=2),
    ThinTriplesTile(64, 128, 64, 6, 1, keeps=True, turns=2),
)
_BULK_MMA = (
    ThinBulkMmaTile(256, 64, 16, 8, 4, 1, fetchers=4),
    ThinBulkMmaTile(128, 48, 16, 4, 4, 2, fetchers=4),
    ThinBulkMmaTile(128, 64, 32, 8, 4, 1, fetchers=4),
    ThinBulkMmaTile(64, 32, 32, 4, 4, 2),
    ThinBulkMmaTile(128, 32, 32, 4, 3, 2, keeps=True, fetchers=4),
    ThinBulkMmaTile(128, 64, 64, 8, 2, 1, keeps=True, fetchers=4),
)
AnyThinTile = ThinTile | ThinMmaTile
THIN_TILES: dict[str, dict[str, AnyThinTile]] = {
    FLOAT32.name: {tile.name: tile for tile in (*_THIN_FLOAT32, *_THIN_MMA, *_TRIPLES)},
    FLOAT64.name: {tile.name: tile for tile in (*_THIN_FLOAT64, *_THIN_MMA, *_BULK_MMA)},
}
"""The tiles of the kernel for thin products, by element type and name."""
