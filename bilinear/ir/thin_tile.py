"""Tiles of the kernels for thin products: on multiply-add pipes, also with a warp for copies, and the tables of all of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from bilinear.ir.element import FLOAT32, FLOAT64
from bilinear.ir.thin_tile_facts import ThinTileFacts
from bilinear.ir.thin_unit_tile import ThinBulkMmaTile, ThinMmaTile, ThinTriplesTile


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
    keeps: bool = field(default=False, init=False)

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
        """Elements in shared memory: all slices of both operands, whose lines are padded to avoid bank conflicts.

        An operand lies `along` if its neighbours in memory are terms of one sum.
        """
        padded = lanes if self.m_threads * self.n_threads < 32 else 0
        left = self.m * (self.k + lanes) if left_along else self.k * (self.m + padded * self.m_threads)
        right = self.n * (self.k + lanes) if right_along else self.k * (self.n + padded * self.n_threads)
        return self.stages * (left + right)


@dataclass(frozen=True)
class ThinBulkTile(ThinTile):
    """Such a tile whose slices are fetched by warps of their own, by bulk copies of all 16 bytes with a part of them.

    A warp starts one copy after the other, so short lines need several `fetchers`. No barrier holds up a whole block, and rows without
    gaps are one copy. If the tile `keeps` B, it runs only products whose B is one slice, which each thread reads once. If results are
    `staged` in shared memory, rows of C are written 16 bytes at a time even if their length is odd.
    """

    keeps: bool = False
    staged: bool = False
    fetchers: int = 1
    template: str = field(default="thin_bulk.cu.j2", init=False)
    least_capability: int = field(default=90, init=False)
    barrier_bytes: int = field(default=128, init=False)
    """What the barriers take of shared memory."""
    long_line: int = field(default=64, init=False)
    held_bytes: int = field(default=256, init=False)
    """The most bytes of B that a thread holds in registers."""

    @property
    def threads(self) -> int:
        """Threads of a block: those that multiply, and the warps that fetch."""
        return super().threads + 32 * self.fetchers

    @property
    def name(self) -> str:
        """Its extents, threads, stages and fetchers, by which it is known."""
        kind = "bulk_staged" if self.staged else "bulk_kept" if self.keeps else "bulk"
        return f"{kind}{super().name}-{self.stages}x{self.fetchers}"

    def holds(self, k: int, n: int, parts: int) -> bool:
        """Whether it can run a product of these extents with sums in so many parts."""
        return not self.keeps or (k <= self.k and n <= self.n and parts == 1)

    def admits(self, lanes: int, left_along: bool, right_along: bool) -> bool:
        """Whether operands that lie so can be read: as by `ThinTile`, but a kept B is in shared memory by rows."""
        return super().admits(lanes, left_along, right_along and not self.keeps)

    def shared_elements(self, lanes: int, left_along: bool, right_along: bool, by_rows: bool) -> int:
        """Elements in shared memory: barriers, slices, a kept B, the sums that half of the threads give away, and staged results.

        A slice, and each line that may come by itself, has room for the 16 bytes in which it begins.
        """
        has_room = not self.keeps if left_along else self.m >= self.long_line
        left = (self.m if left_along else self.k) * ((self.k if left_along else self.m) + (lanes if has_room else 0)) + lanes
        right = self.k * self.n if self.keeps else (self.n * (self.k + lanes) if right_along else self.k * self.n) + lanes
        slices = self.stages * left + right if self.keeps else self.stages * (left + right)
        results = self.k_threads // 2 + (1 if self.staged and by_rows else 0)
        return self.barrier_bytes * lanes // 16 + slices + results * self.m * self.n


_THIN_FLOAT32 = (
    ThinTile(64, 4, 64, 16, 1, 16, 4, 2),
    ThinTile(128, 4, 64, 32, 1, 8, 3, 2),
    ThinTile(128, 4, 32, 32, 1, 4, 4, 4),
    ThinTile(512, 4, 8, 128, 1, 1, 4, 4),
    ThinTile(128, 8, 64, 32, 1, 8, 3, 2),
    ThinTile(256, 8, 32, 32, 1, 8, 3, 1),
    ThinTile(256, 8, 8, 32, 2, 1, 4, 8),
    ThinTile(1024, 8, 8, 128, 2, 1, 2, 2),
    ThinTile(128, 16, 32, 16, 2, 4, 4, 2),
    ThinTile(256, 16, 32, 32, 2, 4, 4, 1),
    ThinTile(256, 16, 16, 64, 2, 1, 3, 3),
    ThinTile(256, 16, 16, 32, 4, 1, 2, 4),
    ThinTile(512, 16, 16, 64, 4, 1, 2, 2),
    ThinTile(128, 32, 32, 16, 4, 4, 3, 1),
    ThinTile(128, 32, 16, 16, 4, 2, 4, 2),
    ThinTile(128, 64, 16, 16, 8, 2, 4, 1),
    ThinTile(128, 64, 16, 16, 8, 1, 3, 2),
    ThinTile(8, 8, 256, 2, 2, 64, 4, 2),
    ThinTile(16, 16, 128, 2, 2, 32, 4, 2),
    ThinTile(16, 16, 256, 2, 4, 32, 3, 1),
    ThinTile(32, 32, 64, 4, 4, 16, 3, 2),
    ThinTile(64, 64, 32, 8, 8, 4, 4, 1),
    ThinTile(64, 64, 8, 8, 8, 1, 3, 6),
    ThinTile(64, 128, 16, 8, 16, 1, 2, 4),
    ThinTile(128, 128, 8, 16, 16, 1, 2, 2),
    ThinTile(128, 128, 16, 16, 16, 1, 3, 2),
)
_THIN_FLOAT64 = (
    ThinTile(64, 2, 64, 16, 1, 16, 3, 2),
    ThinTile(512, 2, 8, 128, 1, 1, 3, 4),
    ThinTile(64, 4, 64, 16, 1, 16, 3, 2),
    ThinTile(128, 4, 32, 32, 1, 8, 3, 2),
    ThinTile(256, 4, 16, 32, 1, 8, 3, 1),
    ThinTile(512, 4, 8, 128, 1, 1, 3, 3),
    ThinTile(128, 8, 32, 32, 1, 8, 3, 1),
    ThinTile(256, 8, 16, 32, 1, 8, 3, 1),
    ThinTile(256, 8, 8, 64, 2, 1, 3, 3),
    ThinTile(512, 8, 8, 128, 2, 1, 3, 2),
    ThinTile(128, 16, 16, 16, 2, 4, 3, 2),
    ThinTile(128, 16, 16, 32, 4, 1, 2, 5),
    ThinTile(256, 16, 16, 64, 4, 1, 2, 2),
    ThinTile(128, 32, 16, 16, 8, 2, 3, 2),
    ThinTile(64, 32, 16, 16, 8, 2, 4, 2),
    ThinTile(8, 8, 128, 2, 2, 32, 3, 3),
    ThinTile(8, 8, 256, 2, 2, 64, 3, 1),
    ThinTile(16, 16, 64, 4, 4, 16, 4, 2),
    ThinTile(32, 32, 32, 8, 8, 4, 4, 2),
    ThinTile(64, 64, 8, 8, 16, 1, 2, 3),
    ThinTile(64, 64, 16, 8, 16, 1, 2, 3),
)
_THIN_MMA = (
    ThinMmaTile(128, 16, 16, 4, 1, 1, 3, 2, 3, keeps=True),
    ThinMmaTile(64, 16, 16, 2, 1, 1, 3, 4, 8, keeps=True),
    ThinMmaTile(64, 16, 64, 4, 1, 1, 2, 2, 3, keeps=True),
    ThinMmaTile(64, 32, 16, 2, 2, 1, 3, 3, 4, keeps=True),
    ThinMmaTile(64, 32, 32, 2, 1, 1, 2, 3, 6, keeps=True),
    ThinMmaTile(64, 32, 64, 2, 2, 1, 2, 2, 3, keeps=True),
    ThinMmaTile(64, 64, 16, 2, 2, 1, 4, 2, 3, keeps=True),
    ThinMmaTile(64, 64, 32, 2, 2, 1, 2, 2, 3, keeps=True),
    ThinMmaTile(32, 64, 64, 2, 2, 1, 3, 2, 3, keeps=True),
    ThinMmaTile(32, 64, 64, 2, 1, 1, 2, 2, 4, keeps=True),
    ThinMmaTile(64, 64, 16, 2, 2, 1, 3, 2, 3),
    ThinMmaTile(64, 64, 16, 2, 1, 1, 3, 2, 4),
    ThinMmaTile(64, 16, 32, 4, 1, 1, 4, 2, 3, staged=False),
    ThinMmaTile(64, 32, 32, 2, 2, 1, 3, 2, 3, staged=False),
    ThinMmaTile(64, 32, 32, 2, 1, 1, 2, 3, 6, staged=False),
    ThinMmaTile(32, 64, 32, 2, 2, 1, 3, 2, 3, staged=False),
    ThinMmaTile(32, 16, 64, 2, 1, 1, 3, 3, 6, staged=False),
    ThinMmaTile(16, 16, 64, 1, 1, 4, 4, 3, 4, staged=False),
    ThinMmaTile(32, 32, 64, 1, 1, 4, 3, 2, 3, staged=False),
)
_BULK_FLOAT32 = (
    ThinBulkTile(256, 8, 8, 64, 2, 1, 3, 4, keeps=True),
    ThinBulkTile(128, 16, 16, 32, 4, 1, 3, 3, keeps=True),
    ThinBulkTile(256, 16, 16, 64, 2, 1, 4, 3, keeps=True),
    ThinBulkTile(256, 16, 16, 64, 2, 1, 3, 3, keeps=True, staged=True),
    ThinBulkTile(64, 4, 256, 16, 1, 16, 3, 1, fetchers=4),
    ThinBulkTile(8, 8, 512, 2, 2, 64, 6, 1, fetchers=2),
    ThinBulkTile(16, 16, 256, 2, 4, 32, 5, 1, fetchers=2),
)
_BULK_FLOAT64 = (
    ThinBulkTile(128, 8, 8, 32, 4, 1, 3, 4, keeps=True),
    ThinBulkTile(64, 16, 16, 16, 8, 1, 3, 3, keeps=True),
    ThinBulkTile(128, 16, 16, 32, 4, 1, 4, 3, keeps=True),
    ThinBulkTile(128, 16, 16, 32, 4, 1, 3, 3, keeps=True, staged=True),
)
_TRIPLES = (
    ThinTriplesTile(192, 16, 64, 3, 1),
    ThinTriplesTile(64, 32, 64, 2, 2, fetchers=2),
    ThinTriplesTile(192, 32, 64, 2, 1),
    ThinTriplesTile(128, 48, 64, 3, 1),
    ThinTriplesTile(128, 64, 64, 2, 1),
    ThinTriplesTile(192, 48, 64, 2, 1),
    ThinTriplesTile(192, 64, 64, 2, 1),
    ThinTriplesTile(64, 48, 64, 3, 1, k_groups=2),
    ThinTriplesTile(64, 16, 64, 3, 3, keeps=True, fetchers=1),
    ThinTriplesTile(64, 32, 64, 6, 1, keeps=True, turns=3),
    ThinTriplesTile(64, 48, 64, 6, 1, keeps=True, turns=3),
    ThinTriplesTile(64, 64, 64, 6, 1, keeps=True, turns=3),
    ThinTriplesTile(64, 64, 48, 6, 1, keeps=True, turns=3),
    ThinTriplesTile(64, 64, 32, 6, 1, keeps=True, turns=3),
    ThinTriplesTile(64, 64, 64, 6, 1, keeps=True, turns=2),
    ThinTriplesTile(64, 128, 64, 6, 1, keeps=True, turns=2),
    ThinTriplesTile(64, 128, 48, 6, 1, keeps=True, turns=2),
    ThinTriplesTile(64, 128, 32, 6, 1, keeps=True, turns=2),
)
_BULK_MMA = (
    ThinBulkMmaTile(256, 24, 16, 8, 5, 1),
    ThinBulkMmaTile(256, 48, 16, 8, 5, 1, fetchers=4),
    ThinBulkMmaTile(256, 64, 16, 8, 4, 1, fetchers=4),
    ThinBulkMmaTile(128, 48, 32, 4, 4, 1, fetchers=4),
    ThinBulkMmaTile(128, 48, 16, 4, 4, 2, fetchers=4),
    ThinBulkMmaTile(128, 64, 32, 8, 4, 1, fetchers=4),
    ThinBulkMmaTile(64, 32, 32, 4, 4, 2),
    ThinBulkMmaTile(64, 64, 32, 4, 3, 2, fetchers=4),
    ThinBulkMmaTile(128, 32, 32, 4, 3, 2, keeps=True, fetchers=4),
    ThinBulkMmaTile(128, 64, 64, 8, 2, 1, keeps=True, fetchers=4),
    ThinBulkMmaTile(64, 64, 64, 2, 4, 1, keeps=True, n_warps=2, turns=2, fetchers=4),
    ThinBulkMmaTile(64, 64, 32, 2, 6, 1, keeps=True, n_warps=2, turns=2, fetchers=4),
)
AnyThinTile = ThinTile | ThinMmaTile
THIN_TILES: dict[str, dict[str, AnyThinTile]] = {
    FLOAT32.name: {tile.name: tile for tile in (*_THIN_FLOAT32, *_THIN_MMA, *_BULK_FLOAT32, *_TRIPLES)},
    FLOAT64.name: {tile.name: tile for tile in (*_THIN_FLOAT64, *_THIN_MMA, *_BULK_FLOAT64, *_BULK_MMA)},
}
"""The tiles of the kernel for thin products, by element type and name."""
