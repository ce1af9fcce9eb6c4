"""Tiles: how a block of threads computes its part of a product, by which instruction, on which unit of the chip."""

from __future__ import annotations

from dataclasses import dataclass, field

from bilinear.ir.element import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, Element

MOST_SHARED_BYTES = 227 * 1024  # Of a block on sm_90; a multiprocessor's share 1 KiB more.
USUAL, LARGE, SMALL = "usual", "large", "small"  # Sizes of tiles: every unit has one of each.


@dataclass(frozen=True)
class Instruction:
    """A multiply instruction: sum (m x n) += left (m x k) * right (k x n) by `lanes` threads, and the unit that runs it.

    Operands are converted to one type to be `multiplied`, and sums are `accumulated` in another. A finished sum is scaled by alpha, and
    added to the old value, in the arithmetic of what is stored.
    `since` is the first compute capability, times ten, that has it. Raises `ValueError` if the fields contradict each other.
    """

    name: str
    unit: str
    multiplied: Element
    accumulated: Element
    shape: tuple[int, int, int]
    lanes: int
    since: int

    def __post_init__(self) -> None:
        m, n, _ = self.shape
        if min(self.shape) < 1 or self.lanes not in (1, 32, 128) or m * n % self.lanes:
            raise ValueError(f"{self.name}: {self.lanes} threads cannot share sums of {m} x {n}")
        if self.accumulated.significand < self.multiplied.significand:
            raise ValueError(f"{self.name}: sums of {self.accumulated} are narrower than what is multiplied")


WGMMA_FLOAT16 = Instruction("wgmma.m64n128k16.f32.f16.f16", "float16 matrix units", FLOAT16, FLOAT32, (64, 128, 16), 128, 90)
"""It truncates sums instead of rounding them. Only chips of compute capability 9.0 have it."""
FMA_FLOAT32 = Instruction("fma.rn.f32", "float32 pipes", FLOAT32, FLOAT32, (1, 1, 1), 1, 0)
FMA_FLOAT64 = Instruction("fma.rn.f64", "float64 pipes", FLOAT64, FLOAT64, (1, 1, 1), 1, 0)
MMA_FLOAT64 = Instruction("mma.m16n8k8.f64", "float64 matrix units", FLOAT64, FLOAT64, (16, 8, 8), 32, 90)
"""Before sm_90, the kernel text uses four `mma.m8n8k4.f64` instead, which sm_80 has."""
WGMMA_BFLOAT16 = Instruction("wgmma.m64nNk16.f32.bf16.bf16", "bfloat16 matrix units", BFLOAT16, FLOAT32, (64, 8, 16), 128, 90)
"""For any number of columns that is a multiple of eight. It truncates sums, and only chips of compute capability 9.0 have it."""


@dataclass(frozen=True)
class Tile:
    """An m x n tile of the result, computed in slices of depth k by m_warps x n_warps warps; `stages` slices are in flight.

    `name` is unique among the tiles of an element type. Registers are limited so that `blocks` blocks of threads fit on a multiprocessor.
    """

    name: str
    size: str
    m: int
    n: int
    k: int
    m_warps: int
    n_warps: int
    stages: int
    blocks: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.m_warps * self.n_warps


@dataclass(frozen=True)
class SimtTile(Tile):
    """Multiplies with ordinary instructions; the threads of a warp form a 4 x 8 grid."""

    instruction: Instruction = FMA_FLOAT32
    template: str = field(default="product_simt.cu.j2", init=False)

    def slice_elements(self, lanes: int) -> int:
        """Elements of one slice of both operands in shared memory; rows of A are padded by `lanes` elements to avoid bank conflicts."""
        return self.k * (self.m + lanes + self.n)


@dataclass(frozen=True)
class MmaTile(Tile):
    """Multiplies on matrix units. Narrower elements are converted to the unit's type, and each product's sum is rounded once."""

    instruction: Instruction = MMA_FLOAT64
    template: str = field(default="product_mma.cu.j2", init=False)

    def slice_elements(self, lanes: int) -> int:
        """Elements of one slice of both operands in shared memory; unaligned rows of floats are padded by `lanes` elements."""
        longer = lanes if lanes > 2 else 0
        return self.m * (self.k + longer) + self.k * (self.n + longer)


ProductTile = SimtTile | MmaTile


@dataclass(frozen=True)
class DigitTile:
    """An m x n tile of a product of digits, in slices of depth k; `stages` slices are in flight.

    `consumers` warpgroups multiply, `loaders` copy slices. `cluster` blocks of threads share the slices of B. The unit truncates its sums,
    so sums of first digits are added up in registers every `chunk` terms. Blocks run in bands of `band` tiles of rows.
    """

    name: str
    scheme: str = "pairs"  # The scheme by which digits multiply.
    m: int = 128
    n: int = 128
    k: int = 64
    stages: int = 3
    consumers: int = 2
    cluster: int = 2
    chunk: int = 256
    band: int = 16
    registers: int = 224
    instruction: Instruction = WGMMA_FLOAT16
    loaders: int = field(default=1, init=False)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 128 * (self.consumers + self.loaders)

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block of threads: the stages, and padding that aligns them to 1024 bytes."""
        return self.stages * 4 * (self.m + self.n) * self.k + 1024

    @property
    def slice_bytes(self) -> int:
        """Bytes of a slice of 128 lines, both digits of them."""
        return 128 * self.k * 4


@dataclass(frozen=True)
class LoadingTile(DigitTile):
    """A tile of float32 numbers that the product kernel cuts itself, without digits in a workspace.

    Loaders cut B in shared memory, `at_once` vectors of four numbers at a time in each thread; consumers cut A in registers.
    """

    cluster: int = 1
    registers: int = 224
    loaders: int = 1
    loader_registers: int = 56
    at_once: int = 4

    @property
    def slice_bytes(self) -> int:
        """Bytes of a slice of 128 lines in a workspace: none."""
        return 0


@dataclass(frozen=True)
class WarpTile:
    """How m_warps x n_warps warps multiply a tile of digits by an instruction, in slices of depth k; `stages` slices are in flight.

    `line_bytes` are the bytes of shared memory of one term of all lines of the tile. The stages fit in 99 KiB, which every chip has.
    """

    instruction: str
    k: int
    line_bytes: int
    m_warps: int = 2
    n_warps: int = 4
    stages: int = 3
    cluster: int = field(default=1, init=False)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.m_warps * self.n_warps

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block of threads."""
        return self.stages * self.k * self.line_bytes


LEAST_CAPABILITY = 80  # The first compute capability, times ten, whose warps do so and copy asynchronously.
WARP_PAIRS = WarpTile("mma.m16n8k16.f32.f16.f16.f32", k=32, line_bytes=2 * 2 * (128 + 128))
"""For float16, two digits of each number. The unit truncates its sums, like that of warpgroups."""
WARP_RESIDUES = WarpTile("mma.m16n8k32.s32.s8.s8.s32", k=64, line_bytes=128 + 256, stages=4)  # For int8.

_FLOAT32 = (
    SimtTile(USUAL, USUAL, m=64, n=128, k=16, m_warps=2, n_warps=2, stages=3, blocks=3),
    SimtTile(LARGE, LARGE, m=128, n=256, k=16, m_warps=2, n_warps=4, stages=3, blocks=1),
    SimtTile(SMALL, SMALL, m=32, n=64, k=32, m_warps=1, n_warps=2, stages=3, blocks=6),
    MmaTile("doubles-usual", USUAL, m=64, n=64, k=32, m_warps=2, n_warps=2, stages=3, blocks=3),
    MmaTile("doubles-large", LARGE, m=64, n=128, k=32, m_warps=2, n_warps=2, stages=3, blocks=2),
    MmaTile("doubles-small", SMALL, m=32, n=32, k=32, m_warps=2, n_warps=1, stages=3, blocks=8),
)
_FLOAT64 = (
    MmaTile(USUAL, USUAL, m=64, n=64, k=32, m_warps=2, n_warps=2, stages=2, blocks=3),
    MmaTile(LARGE, LARGE, m=128, n=128, k=32, m_warps=4, n_warps=2, stages=2, blocks=1),
    MmaTile(SMALL, SMALL, m=32, n=32, k=32, m_warps=2, n_warps=2, stages=3, blocks=4),
)
TILES: dict[str, dict[str, ProductTile]] = {
    FLOAT32.name: {tile.name: tile for tile in _FLOAT32},
    FLOAT64.name: {tile.name: tile for tile in _FLOAT64},
    FLOAT16.name: {tile.name: tile for tile in _FLOAT32 if tile.instruction == FMA_FLOAT32},
    BFLOAT16.name: {tile.name: tile for tile in _FLOAT32 if tile.instruction == FMA_FLOAT32},
}
"""The tiles of the product kernel by element type and name; tiles named by their size alone run on the type's own unit."""

WARP_TILES: dict[str, ProductTile] = {
    element.name: SimtTile("warp", "warp", m=32, n=32, k=8, m_warps=1, n_warps=1, stages=2, blocks=1, instruction=instruction)
    for element, instruction in ((FLOAT32, FMA_FLOAT32), (FLOAT64, FMA_FLOAT64), (FLOAT16, FMA_FLOAT32), (BFLOAT16, FMA_FLOAT32))
}
"""The tile that one warp computes alone, by element type: each warp of a block of threads multiplies its own operands."""


def beside(dtype: str, name: str, size: str) -> str:
    """The name of the tile of another size on the same unit."""
    unit = TILES[dtype][name].instruction.unit
    return next(tile.name for tile in TILES[dtype].values() if (tile.instruction.unit, tile.size) == (unit, size))


def tile_on(dtype: str, unit: str, size: str = USUAL) -> str:
    """The name of the tile of this size for an element type on a unit; raises `KeyError` if there is none."""
    for tile in TILES[dtype].values():
        if (tile.instruction.unit, tile.size) == (unit, size):
            return tile.name
    raise KeyError(f"no {size} tile of {dtype} runs on {unit}")


DIGIT_TILES = {tile.name: tile for tile in (DigitTile("pairs"),)}
"""The tiles of products of float16 digits, by name, if the expansion cuts them."""
LOADING_TILES = {tile.name: tile for tile in (LoadingTile("pairs_on_load"),)}
"""The tiles of products of float16 digits, by name, if the product kernel cuts them."""
FLOAT_TILES: dict[str, DigitTile] = DIGIT_TILES | LOADING_TILES  # All tiles of float16 digits, by name.


PANEL, DIGIT_SLICE, RESIDUE_SLICE = 128, 64, 128
"""Lines that are neighbours in memory; terms of digits (with both digits of each) and of residues that are."""
MOST_BLOCKS = 64  # The most blocks whose sums are cut into digits or residues in one pass over memory.
LONGEST_SUM = 131_072  # Products of residues are added up in int32 for at most this many terms.


@dataclass(frozen=True)
class ModularTile:
    """An m x n tile of a product modulo one of `count` numbers, in slices of depth k; `stages` slices are in flight.

    `consumers` warpgroups multiply, one more copies. `cluster` blocks of threads share the slices of B. Sums in int32 are reduced every
    `chunk` terms. Blocks run in bands of `band` tiles of rows.
    """

    count: int
    m: int = 128
    n: int = 256
    k: int = RESIDUE_SLICE
    stages: int = 4
    consumers: int = 2
    cluster: int = 2
    chunk: int = LONGEST_SUM
    band: int = 16
    registers: int = 224

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 128 * (self.consumers + 1)

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block of threads: the stages, the results, and padding that aligns them to 1024 bytes."""
        return self.stages * (self.m + self.n) * self.k + self.m * self.n + 1024

    @property
    def slice_bytes(self) -> int:
        """Bytes of a panel's slice, modulo each p."""
        return PANEL * RESIDUE_SLICE * self.count


@dataclass(frozen=True)
class ResidueTile(ModularTile):
    """A tile of products of residues of floats, of the type `of`; `gaussian` ones are of complex numbers, by two products."""

    of: Element = field(kw_only=True)
    gaussian: bool = field(default=False, kw_only=True)

    @property
    def name(self) -> str:
        """The name of its residues."""
        return f"{'gaussian' if self.gaussian else 'residues'}{self.count}"


RESIDUE_TILES = {
    tile.name: tile
    for of, gaussian, counts in (
        (FLOAT32, False, (7, 8, 9)),
        (FLOAT64, False, (13, 14, 15, 16, 17)),
        (FLOAT32, True, (7, 8, 9)),
        (FLOAT64, True, (14, 15, 16, 17)),
    )
    for tile in (ResidueTile(count, of=of, gaussian=gaussian) for count in counts)
}
"""The tiles of products of residues, by name."""


@dataclass(frozen=True)
class ByteTile(ModularTile):
    """A tile of products of integers 128 h + l of at most `LARGEST_IN_BYTES`, to which numbers of the type `of`, of 16 bits, are scaled.

    The products of h, of l and of h + l, in int32, give theirs, for sums of up to `LONGEST_SUM` terms (A. Karatsuba, Yu. Ofman, Dokl. Akad.
    Nauk SSSR 145 (1962)).
    """

    count: int = 3
    of: Element = field(kw_only=True)

    @property
    def name(self) -> str:
        """The name of such products."""
        return f"bytes of {self.of}"


LARGEST_IN_BYTES = 2.0**13  # Then |l| <= 64, |h| <= 64, |h + l| < 128, and 127^2 LONGEST_SUM is below 2^31.
BYTE_TILES = {tile.name: tile for tile in (ByteTile(of=FLOAT16), ByteTile(of=BFLOAT16))}  # By name.
RESIDUES = "residues"  # The name of the residues with the fewest moduli that keep the accuracy.


@dataclass(frozen=True)
class Thread:
    """The limits of a thread. They decide how many linear stages one pass takes, and how many elements of a block a thread handles.

    - `most_live`: values that a pass holds at once
    - `most_work`: reads, additions and writes of one part of a pass
    - `bytes_read_ahead`: bytes that are read before they are needed
    - `most_bytes`: bytes of live values; with more, a thread handles fewer elements of each block
    - `bytes_of_a_block`: bytes of each block that a thread handles. With at most `few_live` live values it handles twice as many, because
      few blocks need longer accesses to keep memory busy
    """

    most_live: int
    most_work: int
    bytes_read_ahead: int
    most_bytes: int
    bytes_of_a_block: int
    few_live: int


NO_ROOM = Thread(most_live=0, most_work=0, bytes_read_ahead=0, most_bytes=0, bytes_of_a_block=0, few_live=0)
"""A thread with no room: with it every linear stage remains a pass of its own."""
CUDA_THREAD = Thread(most_live=96, most_work=3_000, bytes_read_ahead=448, most_bytes=768, bytes_of_a_block=8, few_live=8)
"""A thread of every target that `CudaTarget` names has 255 registers of 4 bytes, and addresses take many of them.

96 live doubles (768 bytes) take 192 registers; 448 bytes that are read early take 112. A part of 3,000 operations still fits the
instruction cache, and is ordered and compiled in seconds. 8 bytes of a block are one double: 32 neighbouring threads read two lines of 128
bytes.
"""
