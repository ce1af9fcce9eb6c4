"""The kernel that multiplies matrices over Z/2 whose elements are packed, eight in a byte."""

from __future__ import annotations

from dataclasses import dataclass, field

from bilinear.ir.element import FLOAT32, Element
from bilinear.ir.kernel import Argument

LANE = 16
"""Bytes of a row of B and C that a thread holds."""
WORD = 8
"""Bytes of a row of A that a thread reads at once, a chunk of 64 terms."""


@dataclass(frozen=True)
class BitProductKernel:
    """C = A * B over Z/2, rows packed as `numpy.packbits` packs them; a block computes `rows` rows a thread of 16 bytes of C.

    For a chunk of 64 terms the threads form the 16 sums of every 4 rows of B in shared memory; each 4 bits of A choose one of them
    (Arlazarov, Dinic, Kronrod, Faradzev 1970). The rows of A, B and C begin `a_pitch`, `b_pitch` and `c_pitch` bytes apart, and those of B
    and C have `bytes` bytes.
    """

    is_aligned: bool
    """Whether rows of B and C begin and end at multiples of 16 bytes, and rows of A at multiples of 8."""
    rows: int = 4
    threads: tuple[int, int] = (256, 1)
    element: Element = FLOAT32
    arguments: tuple[Argument, ...] = (
        *(Argument("bytes", name) for name in "ABC"),
        *(Argument("index", name) for name in ("m", "k", "bytes", "a_pitch", "b_pitch", "c_pitch")),
    )
    shared_bytes: int = field(default=0, init=False)
    template: str = field(default="bit_product.cu.j2", init=False)

    @property
    def name(self) -> str:
        """The name of the function."""
        return f"bit_product_{'lanes' if self.is_aligned else 'bytes'}"

    @property
    def tall(self) -> int:
        """The rows of C of a block."""
        return self.rows * self.threads[0]
