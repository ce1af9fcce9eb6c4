"""A scheme: the bilinear algorithm itself, as exact coefficients."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from bilinear.ir.linear import Form, LinearMap
from bilinear.source import Span


@dataclass(frozen=True)
class Places:
    """Where the parts of a scheme stand in its source."""

    header: Span
    products: tuple[Span, ...]
    outputs: tuple[Span, ...]


@dataclass(frozen=True)
class Scheme:
    """A bilinear scheme of the format <m,k,n;r>: A is m x k blocks, B is k x n, C is m x n.

    `u` maps the blocks of A to the r left factors, `v` the blocks of B to the r right factors, `w` the r products to the blocks of C.
    Blocks are numbered row-major, C is not transposed.
    """

    name: str
    m: int
    k: int
    n: int
    u: LinearMap
    v: LinearMap
    w: LinearMap
    products: tuple[str, ...]
    ring: str = "Q"
    citation: str = ""
    places: Places | None = field(default=None, compare=False, repr=False)

    @property
    def rank(self) -> int:
        """The number of products."""
        return len(self.products)

    @property
    def format(self) -> str:
        """The format as it is written: `<2,2,2;7>`."""
        return f"<{self.m},{self.k},{self.n};{self.rank}>"

    @property
    def additions(self) -> int:
        """Block additions of one level, counted as written."""
        return self.u.additions + self.v.additions + self.w.additions

    @cached_property
    def tables(self) -> tuple[tuple[Form, ...], tuple[Form, ...], tuple[Form, ...]]:
        """U (r x mk), V (r x kn) and W (mn x r) as sparse rows, sub-expressions expanded."""
        return self.u.matrix, self.v.matrix, self.w.matrix


def block_name(matrix: str, row: int, column: int) -> str:
    """The name of a block by its 0-based row and column: `A21`, or `A[1,10]` beyond nine."""
    if row < 9 and column < 9:
        return f"{matrix}{row + 1}{column + 1}"
    return f"{matrix}[{row + 1},{column + 1}]"
