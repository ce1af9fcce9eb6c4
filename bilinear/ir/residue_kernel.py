"""Kernels that multiply matrices as residues in int8: scales, expansion and cutting, products modulo each p, recomposition.

A line is a row of A or a column of B. An operand lies `along` if its neighbours in memory are terms of one sum. Residues lie in panels of
`PANEL` lines and slices of `SLICE` terms, those modulo each p apart. Whole numbers are held in limbs of 24 bits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, prod

from bilinear.ir.digit_kernel import FACTORS, OPERAND, RESULT, SCALES, TURNS, indices
from bilinear.ir.digits import Representation
from bilinear.ir.element import Element
from bilinear.ir.evaluation import Evaluation
from bilinear.ir.integers import IntegerElement
from bilinear.ir.kernel import Argument
from bilinear.ir.residue_tile import PANEL, SLICE, ModularTile

LIMB = 24
"""Bits of a limb. A whole number has three."""
MOST_BITS = 3 * LIMB - 1
"""Bits of the largest whole number, without its sign."""
MOST_UNROLLED = 16
"""With more forms than this, the loop over the moduli is not unrolled."""
SUM_BITS = 52
"""Bits of sums of residues times pieces of a weight: one less than a float64 holds, for a carry."""


@dataclass(frozen=True)
class ScaleKernel:
    """Finds the exponent of the scale of every line from its 2-norm, which may be at most `room`, the bits of a float64, after scaling.

    Both parts of complex elements count in one norm.
    """

    name: str
    element: Element
    along: bool
    width: int
    is_complex: bool = False
    arguments: tuple[Argument, ...] = (*OPERAND, *indices("room"), Argument("words", "exponents"), Argument("flag", "flag"))
    shared_bytes: int = field(default=0, init=False)
    template: str = field(default="residue_scale.cu.j2", init=False)

    @property
    def threads(self) -> tuple[int, int]:
        """Threads of a block along x and y: a warp has a line, or 32 lines are shared by more threads."""
        return (32, 8 if self.along else 16)

    @property
    def lines(self) -> int:
        """Lines of a block of threads."""
        return self.threads[1] if self.along else self.threads[0]


@dataclass(frozen=True)
class ResidueExpandKernel:
    """Forms of an operand's blocks, of scaled numbers rounded to integers, modulo each p. `sources` has the place of each block.

    Residues are multiplied by `factors`, one for each p: 1, or the inverses that the Chinese remainder theorem takes. Integers are not
    scaled; with a `modulus` they are taken modulo that first. Of complex elements `parts` says which part a source is.
    """

    name: str
    comment: str
    element: Element | IntegerElement
    along: bool
    width: int
    lanes: int
    moduli: tuple[int, ...]
    factors: tuple[int, ...]
    sources: tuple[tuple[int, int], ...]
    forms: int
    evaluation: Evaluation
    modulus: int = 0
    parts: tuple[int, ...] = ()
    threads: tuple[int, int] = (32, 8)
    shared_bytes: int = field(default=0, init=False)
    template: str = field(default="residue_expand.cu.j2", init=False)

    @property
    def is_whole(self) -> bool:
        """Whether the operand holds integers, which are not scaled."""
        return isinstance(self.element, IntegerElement)

    @property
    def is_complex(self) -> bool:
        """Whether elements have two parts."""
        return bool(self.parts)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Its parameters."""
        shape = *OPERAND, *indices("block_lines", "block_terms", "panels", "slices")
        digits = Argument("bytes", "D")
        return (*shape, digits) if self.is_whole else (*shape, Argument("words", "exponents"), digits, Argument("flag", "flag"))

    @property
    def packed(self) -> str:
        """The CUDA type of as many bytes as there are lanes."""
        return {2: "unsigned short", 4: "unsigned"}[self.lanes]

    @property
    def blocks(self) -> int:
        """Blocks of threads for a panel's slice: of 8 lines and 32 * lanes terms, or of 32 lines and 8 * lanes terms."""
        return PANEL * SLICE // (self.threads[0] * self.threads[1] * self.lanes)

    @property
    def unrolled(self) -> int:
        """Moduli that are unrolled: all of them, unless the text for many forms would be too long."""
        return len(self.moduli) if self.forms <= MOST_UNROLLED else 1

    @property
    def weights(self) -> tuple[tuple[int, ...], ...]:
        """For each p what every byte of the three limbs weighs modulo p, those of a limb in one word, the lowest byte first."""

        def word(p: int, factor: int, limb: int) -> int:
            return sum(pow(2, LIMB * limb + 8 * byte, p) * factor % p << 8 * byte for byte in range(3))

        return tuple(tuple(word(p, factor, limb) for limb in range(3)) for p, factor in zip(self.moduli, self.factors, strict=True))

    @property
    def biases(self) -> tuple[int, ...]:
        """What takes back, modulo each p, that 2^23 is added to the last limb so that it is not negative."""
        return tuple(-pow(2, MOST_BITS, p) * factor % p for p, factor in zip(self.moduli, self.factors, strict=True))


@dataclass(frozen=True)
class ResidueProductKernel:
    """Products of residues, each reduced modulo its p. They lie in P in rows of `pitch` bytes."""

    name: str
    element: Element | IntegerElement
    tile: ModularTile
    moduli: tuple[int, ...]
    arguments: tuple[Argument, ...] = (
        Argument("bytes", "DA"),
        Argument("bytes", "DB"),
        *indices("panels_m", "panels_n", "slices"),
        Argument("bytes", "P"),
        *indices("m", "pitch"),
    )
    features: str = field(default="a", init=False)
    """The suffix of the architecture: its instructions are those of one chip."""
    template: str = field(default="residue_product.cu.j2", init=False)

    @property
    def bounds(self) -> str:
        """The launch bounds for the compiler: threads of a block, and blocks of a multiprocessor."""
        return f"{self.tile.threads}, 1"

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block of threads: the stages, the bytes of its results, and what aligns them to 1024 bytes."""
        return self.tile.stages * (self.tile.m + self.tile.n) * self.tile.k + self.tile.m * self.tile.n + 1024

    @property
    def threads(self) -> tuple[int, int]:
        """Threads of a block along x and y."""
        return (self.tile.threads, 1)


@dataclass(frozen=True)
class ResidueRecomposeKernel:
    """C = alpha * (forms of products, put together, without their scales) + beta * C. `targets` has the place of each form's block in C.

    Of complex elements the real parts of all blocks come first. Forms are at most 2^headroom times as large as residues. The product of
    residues modulo p weighs M/p, cut into pieces that floats hold.
    """

    name: str
    comment: str
    element: Element
    width: int
    lanes: int
    representation: Representation
    targets: tuple[tuple[int, int], ...]
    headroom: int
    evaluation: Evaluation
    is_complex: bool = False
    threads: tuple[int, int] = (32, 8)
    shared_bytes: int = field(default=0, init=False)
    template: str = field(default="residue_recompose.cu.j2", init=False)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Its parameters."""
        products = Argument("bytes", "P"), *indices("block_m", "block_n", "pitch")
        return (*products, *RESULT, *SCALES, *FACTORS, *(TURNS if self.is_complex else ()))

    @property
    def bits(self) -> int:
        """Bits of a piece: sums of residues, of at most 7 bits, times pieces are exact in float64."""
        return SUM_BITS - 7 - self.headroom - self.representation.count.bit_length()

    @cached_property
    def modulus(self) -> tuple[float, ...]:
        """M in pieces, the lowest first, each times its power of two."""
        return self._pieces(self.representation.product)

    @cached_property
    def weights(self) -> tuple[tuple[float, ...], ...]:
        """M/p in pieces, for each p."""
        return tuple(self._pieces(self.representation.product // p) for p in self.representation.moduli)

    @property
    def inverse(self) -> float:
        """1/M, rounded."""
        return 1 / self.representation.product

    def _pieces(self, x: int) -> tuple[float, ...]:
        count, mask = ceil(self.representation.product.bit_length() / self.bits), (1 << self.bits) - 1
        return tuple(float((x >> self.bits * i & mask) << self.bits * i) for i in range(count))


@dataclass(frozen=True)
class IntegerRecomposeKernel:
    """C = alpha * (forms of products, put together) + beta * C in an integer type, which wraps around, or modulo `modulus`.

    `targets` has the place of each form's block in C. The multiple of M that is subtracted is the sum of the forms over their p, rounded:
    C is at most (1 - 2^-30) M/2 in size, and the sum of at most `MOST_MODULI` terms in float64 is off by less than 2^-31.
    """

    name: str
    comment: str
    element: IntegerElement
    width: int
    lanes: int
    moduli: tuple[int, ...]
    modulus: int
    targets: tuple[tuple[int, int], ...]
    evaluation: Evaluation
    arguments: tuple[Argument, ...] = (Argument("bytes", "P"), *indices("block_m", "block_n", "pitch"), *RESULT, *FACTORS)
    threads: tuple[int, int] = (32, 8)
    shared_bytes: int = field(default=0, init=False)
    template: str = field(default="integer_recompose.cu.j2", init=False)

    @property
    def ring(self) -> int:
        """The number modulo which sums are computed: the modulus, or 2^64."""
        return self.modulus or 2**64

    @property
    def product(self) -> int:
        """M, the product of the moduli, modulo the ring."""
        return prod(self.moduli) % self.ring

    @property
    def weights(self) -> tuple[int, ...]:
        """M/p modulo the ring, for each p."""
        return tuple(prod(self.moduli) // p % self.ring for p in self.moduli)


ResidueKernel = ScaleKernel | ResidueExpandKernel | ResidueProductKernel | ResidueRecomposeKernel | IntegerRecomposeKernel
