"""Tiles of the kernels for thin products on matrix units: those for doubles, and those for bfloat16."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

from bilinear.ir.thin_tile_facts import ThinTileFacts
from bilinear.ir.tile import MMA_FLOAT64, WGMMA_BFLOAT16, Instruction

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
    blocks: int
    """Blocks that a multiprocessor holds for doubles. Many small ones are faster than few large ones: they wait at barriers apart."""
    float_blocks: int
    keeps: bool = False
    staged: bool = True
    instruction: Instruction = MMA_FLOAT64
    template: str = field(default="thin_mma.cu.j2", init=False)
    times_doubles: float = field(default=1.0, init=False)

    @property
    def block(self) -> tuple[int, int, int] | None:
        """The rows, columns and terms of an instruction: those outside of the result are left out."""
        return self.instruction.shape

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
    least_capability: int = field(default=90, init=False)
    features: str = field(default="a", init=False)
    barrier_bytes: int = field(default=128, init=False)
    """What the barriers take of shared memory."""

    @property
    def registers(self) -> int:
        """Registers of a thread that multiplies, if those that fetch are a warpgroup and give theirs away; else 0."""
        raise NotImplementedError

    @property
    def given_registers(self) -> int:
        """Registers that a thread that fetches keeps, if it gives others away; else 0."""
        return KEPT_REGISTERS if self.registers else 0

    @property
    def writes_parts(self) -> bool:
        """Whether each warp writes its own short parts of lines: it does."""
        return True

    @property
    def strips(self) -> bool:
        """Whether a block keeps B for a strip of columns."""
        return self.keeps

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
    times_doubles: float = field(default=2.5, init=False)
    copies_lines: bool = field(default=True, init=False)

    @property
    def block(self) -> None:
        """None: warpgroups multiply whole tiles."""
        return None

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
    copies_beside: bool = field(default=True, init=False)

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
        """Registers of a thread that multiplies, if those that fetch are a warpgroup and give theirs away; else 0.

        Each quarter of a multiprocessor has a quarter of the warps, and of the registers.
        """
        usual = REGISTERS // (128 * ceil(self.threads * self.blocks / 128)) // 8 * 8
        if self.fetchers % 4 or usual >= MOST_NAMED:
            return 0
        return usual + self.fetchers * (usual - KEPT_REGISTERS) // (self.threads // 32 - self.fetchers) // 8 * 8

    def shared_elements(self, lanes: int, left_along: bool, right_along: bool, by_rows: bool) -> int:
        """Elements in shared memory: barriers, slices of A, whose lines are padded to avoid bank conflicts, and of B, which have none."""
        left = (self.m * (self.k + 2) if left_along else self.k * (self.m + 4)) + lanes
        return self.barrier_bytes * lanes // 16 + self.stages * left + (1 if self.keeps else self.stages) * self.k * self.n
