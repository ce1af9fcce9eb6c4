"""A scheme: the bilinear algorithm itself, as exact coefficients."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

from bilinear.ir.linear import Form, LinearMap, substitute
from bilinear.ir.number import Coefficient
from bilinear.ir.ring import RATIONALS, Ring
from bilinear.source import Span


def exponent_of(m: int, k: int, n: int, rank: int) -> float:
    """3 log(rank) / log(mkn): recursing with <m,k,n;rank> and its permutations takes N^exponent products for N x N matrices."""
    return 3 * math.log(rank) / math.log(m * k * n) if m * k * n > 1 else 3.0


def least_rank(m: int, k: int, n: int) -> int:
    """A lower bound of the number of products of any scheme <m,k,n>, over any field.

    The products span the blocks of A, of B and of C, so there are at least as many products as blocks of each. For 2 x 2 by 2 x 2 there are
    at least seven (S. Winograd, On multiplication of 2 x 2 matrices, Linear Algebra Appl. 4 (1971), 381-388).
    """
    return 7 if m == k == n == 2 else max(m * k, k * n, m * n)


@dataclass(frozen=True)
class WrittenTerm:
    """One term of an equation: its coefficient in the scheme, and its place in the source.

    `table` is `u`, `v` or `w`, or empty as long as the row is not known. `row` is the number of a step of this map, or of an output if
    `step` is false; `index` and `coefficient` are as in the row's form. `span` covers the term without its sign, `name` the name in it. A
    sign may precede a `signed` term. If `product`, the term is a product that is multiplied here, so no other name can stand here.
    """

    index: int
    coefficient: Coefficient
    span: Span
    name: Span
    signed: bool = True
    product: bool = False
    table: str = ""
    step: bool = False
    row: int = 0


@dataclass(frozen=True)
class WrittenSum:
    """The place of a sum that defines a row of a map; a `bare` one is a factor without parentheses."""

    table: str
    step: bool
    row: int
    span: Span
    bare: bool = False


@dataclass(frozen=True)
class Places:
    """The places of a scheme's parts in its source: `terms` and `sums` of equations, or `rows` of a table, cells by product."""

    header: Span
    products: tuple[Span, ...]
    outputs: tuple[Span, ...]
    terms: tuple[WrittenTerm, ...] = ()
    sums: tuple[WrittenSum, ...] = ()
    rows: tuple[Span, ...] = ()


@dataclass(frozen=True)
class Bases:
    """Changes of basis (Karstadt, Schwartz 2017): `a` and `b` map blocks to inputs of u and v, `c` outputs of w to blocks."""

    a: LinearMap
    b: LinearMap
    c: LinearMap


@dataclass(frozen=True)
class Scheme:
    """A bilinear scheme of the format <m,k,n;r>: A is m x k blocks, B is k x n, C is m x n.

    `u` maps the blocks of A to the r left factors, `v` the blocks of B to the r right factors, `w` the r products to the blocks of C.
    Blocks are numbered row-major, C is not transposed. With `bases` the three maps act in other bases, and the basis changes run before and
    after. `factors` names two schemes if this one claims to be their tensor product; the claim is checked before anything relies on it.
    """

    name: str
    m: int
    k: int
    n: int
    u: LinearMap
    v: LinearMap
    w: LinearMap
    products: tuple[str, ...]
    ring: Ring = RATIONALS
    citation: str = ""
    places: Places | None = field(default=None, compare=False, repr=False)
    bases: Bases | None = None
    factors: tuple[Scheme, ...] = field(default=(), compare=False, repr=False)

    @property
    def rank(self) -> int:
        """The number of products."""
        return len(self.products)

    @property
    def format(self) -> str:
        """The format as written: `<2,2,2;7>`."""
        return f"<{self.m},{self.k},{self.n};{self.rank}>"

    @property
    def additions(self) -> int:
        """Block additions of one level, counted as written."""
        return self.u.additions + self.v.additions + self.w.additions

    @cached_property
    def tables(self) -> tuple[tuple[Form, ...], tuple[Form, ...], tuple[Form, ...]]:
        """U (r x mk), V (r x kn) and W (mn x r) as sparse rows, sub-expressions and changes of basis expanded."""
        u, v, w = self.u.matrix, self.v.matrix, self.w.matrix
        if self.bases is None:
            return u, v, w
        left = tuple(substitute(row, self.bases.a.matrix) for row in u)
        right = tuple(substitute(row, self.bases.b.matrix) for row in v)
        return left, right, tuple(substitute(row, w) for row in self.bases.c.matrix)


def block_name(matrix: str, row: int, column: int) -> str:
    """The name of a block by its 0-based row and column: `A21`, or `A[1,10]` beyond nine."""
    if row < 9 and column < 9:
        return f"{matrix}{row + 1}{column + 1}"
    return f"{matrix}[{row + 1},{column + 1}]"


def block_names(matrix: str, rows: int, columns: int) -> tuple[str, ...]:
    """The names of all blocks of a matrix, row by row."""
    return tuple(block_name(matrix, i, j) for i in range(rows) for j in range(columns))
