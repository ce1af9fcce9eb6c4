"""Products of float32 matrices whose numbers are rounded to fewer bits first: what the library multiplies, and the kernel that rounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

from bilinear.ir.element import FLOAT32, Element
from bilinear.ir.kernel import Argument, WithoutShared, indices
from bilinear.ir.reference import KernelValues, bfloat16

LINE = 8  # Rounded numbers in 16 bytes.
CELL = 256  # Bytes to whose multiples rounded operands are aligned.


@dataclass(frozen=True)
class Rounding:
    """A type to which numbers are rounded: its significant bits, and whether what lies behind them is cut off instead.

    `stored` are the bytes of a number, 0 if the unit reads float32 and drops the bits itself. `library` and `compute` are the numbers by
    which cuBLAS knows the type of the operands and how they are multiplied; C and all sums are float32.
    """

    name: str
    bits: int
    cuts: bool
    stored: int
    library: int
    compute: int

    def line_bytes(self, line: int) -> int:
        """Bytes from a line of so many rounded numbers to the next: lines begin at multiples of 16 bytes."""
        return ceil(line / LINE) * LINE * self.stored


def lines_of(shape: tuple[int, ...], by_columns: bool) -> tuple[int, int]:
    """How many lines a matrix has in memory, and how many numbers of it lie in one."""
    rows, columns = shape
    return (columns, rows) if by_columns else (rows, columns)


FLOAT32_LIBRARY = 0  # `CUDA_R_32F`.
ROUNDINGS = {
    own.name: own
    for own in (
        Rounding("tf32", 11, True, 0, FLOAT32_LIBRARY, 77),  # CUBLAS_COMPUTE_32F_FAST_TF32
        Rounding("bfloat16", 8, False, 2, 14, 68),  # CUDA_R_16BF, CUBLAS_COMPUTE_32F
    )
}
"""By name. TF32 is taken to cut off, because what the unit does with the other bits is not documented."""


@dataclass(frozen=True)
class RoundKernel(WithoutShared):
    """Rounds a matrix of `lines` lines to bfloat16: X has lines `apart` elements from each other, Y lines of `pitch` numbers."""

    width: int  # Elements of X that are read at once: 4, or 1 where lines begin at no multiple of 16 bytes.
    element: Element = FLOAT32
    threads: tuple[int, int] = (256, 1)
    arguments: tuple[Argument, ...] = (
        Argument("pointer", "X"),
        *indices("apart", "line", "lines", "pitch"),
        Argument("words", "Y"),
    )
    lanes: int = field(default=4, init=False)  # Numbers of a thread.
    template: str = field(default="rounded.cu.j2", init=False)

    @property
    def name(self) -> str:
        """The name of the function."""
        return f"rounded_bfloat16_{self.width}"

    def reference(self, values: KernelValues) -> None:
        """Round; behind a line are zeros."""
        apart, line, lines, pitch = values("apart", "line", "lines", "pitch")
        to = values.view("Y", "u2", (lines, pitch), (pitch, 1))
        to[...] = 0
        to[:, :line] = bfloat16(values.view("X", "f4", (lines, line), (apart, 1)))
