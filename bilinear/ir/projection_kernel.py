"""Kernels that check a product: matrices times vectors in more than double precision, and the residuals (docs/checking.md)."""

from __future__ import annotations

from dataclasses import dataclass, field

from bilinear.ir.element import FLOAT64, Element
from bilinear.ir.kernel import Argument

COLUMNS, CHUNK, ROWS_OF_A_WARP = 16, 32, 16
"""The vectors; the columns of a matrix, and rows of vectors, that share a unit; the rows that a warp takes."""
BLOCKS_AT_ONCE = 3
"""Blocks of threads of a projection that a multiprocessor holds at once, which limits their registers."""
RECORD = 2 * COLUMNS + 2
"""Doubles of a row of a projection: sums, their roundoff, and the squared norms of the row and of its lower part."""
VECTORS_RECORD = 4
PIECE_BITS, UPPER_BITS = 12, 35
"""Bits of an exact piece of a vector, and of the upper part of a matrix: a sum of `CHUNK` products has 52."""


def _indices(*names: str) -> tuple[Argument, ...]:
    return tuple(Argument("index", name) for name in names)


@dataclass(frozen=True)
class ProjectionKernel:
    """The rows of X (rows x columns) times `COLUMNS` vectors Z. blockIdx.y says which chunks of columns, `each` of them, add to `parts`.

    If it `is_wide`, products of the upper parts of X with the `exact` pieces of Z add up without rounding within a chunk. Products with the
    lower parts and, if Z `has_rest`, with the rest of Z are small. Z holds its pieces, then its rest, then the whole vectors.
    """

    name: str
    element: Element
    is_wide: bool
    has_rest: bool
    threads: tuple[int, int] = (128, 1)
    blocks: int = field(default=BLOCKS_AT_ONCE, init=False)
    arguments: tuple[Argument, ...] = (
        *(Argument("pointer", "X"), *_indices("X_rs", "X_cs", "rows", "columns")),
        *(Argument("bytes", "Z"), *_indices("each"), Argument("bytes", "parts")),
    )
    columns: int = field(default=COLUMNS, init=False)
    chunk: int = field(default=CHUNK, init=False)
    shift: float = field(default=2.0 ** (53 - UPPER_BITS), init=False)
    shared_bytes: int = field(default=0, init=False)
    template: str = field(default="projection.cu.j2", init=False)

    @property
    def exact(self) -> int:
        """The pieces of Z whose products are exact."""
        return 2 if self.has_rest else 1

    @property
    def pieces(self) -> int:
        """The pieces of Z that are stored; if there is no rest, the whole is the only one."""
        return self.exact + 2 if self.has_rest else 1


@dataclass(frozen=True)
class VectorsKernel:
    """Adds up the `splits` parts of a projection and writes them as vectors for the next one, in pieces if it `is_wide`.

    Each block writes a column of `VECTORS_RECORD` doubles to `found`: the squared norms of its rows of the matrix, of their lower parts, of
    the vectors, and of the rest of these.
    """

    name: str
    is_wide: bool
    element: Element = FLOAT64
    threads: tuple[int, int] = (32 * COLUMNS, 1)
    arguments: tuple[Argument, ...] = (
        *(Argument("bytes", "parts"), *_indices("splits", "rows")),
        *(Argument("bytes", name) for name in ("Z", "found")),
    )
    columns: int = field(default=COLUMNS, init=False)
    chunk: int = field(default=CHUNK, init=False)
    shift: float = field(default=2.0 ** (53 - PIECE_BITS), init=False)
    shared_bytes: int = field(default=0, init=False)
    template: str = field(default="projected_vectors.cu.j2", init=False)

    @property
    def pieces(self) -> int:
        """Two exact pieces, the rest and the whole; or the whole alone."""
        return 4 if self.is_wide else 1


@dataclass(frozen=True)
class ResidualKernel:
    """The squared norms of the rows of C X - alpha A Y - beta C0 X, and those of C, A and C0 and of their lower parts.

    Each block writes a column of `record` doubles to `found`: the sums of these `values` over its rows, the largest of each, and the row
    with the largest first one.
    """

    name: str
    before: bool
    element: Element = FLOAT64
    threads: tuple[int, int] = (256, 1)
    columns: int = field(default=COLUMNS, init=False)
    chunk: int = field(default=CHUNK, init=False)
    shared_bytes: int = field(default=0, init=False)
    template: str = field(default="projected_rows.cu.j2", init=False)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """The projections, C0's only if there is one."""
        named = ("C", "A", "D") if self.before else ("C", "A")
        parts = (argument for x in named for argument in (Argument("bytes", f"{x}_parts"), *_indices(f"{x}_splits")))
        return (*parts, *_indices("rows"), Argument("bytes", "found"), Argument("scalar", "alpha"), Argument("scalar", "beta"))

    @property
    def matrices(self) -> int:
        """The matrices with rows: C, A and perhaps C0."""
        return 3 if self.before else 2

    @property
    def values(self) -> int:
        """What is known of a row."""
        return 1 + 2 * self.matrices

    @property
    def record(self) -> int:
        """The doubles of a column."""
        return 2 * self.values + 1

    @property
    def rows_of_a_block(self) -> int:
        """The rows of C that a block takes."""
        return self.threads[0] // self.columns


CheckKernel = ProjectionKernel | VectorsKernel | ResidualKernel
