"""Operations of A*A^T: by halving the rows, and by a scheme, above products of blocks by the classical multiply."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from bilinear.ir.gram import GramScheme


class Operations(NamedTuple):
    """Multiplications in units of b^3, additions of block elements in units of b^2, for blocks of b x b."""

    multiplications: Fraction
    additions: Fraction

    def __add__(self, other: object) -> Operations:
        if not isinstance(other, Operations):
            return NotImplemented
        return Operations(self.multiplications + other.multiplications, self.additions + other.additions)

    def times(self, count: int | Fraction) -> Operations:
        """The counts times this number."""
        return Operations(self.multiplications * count, self.additions * count)


def product(m: int, k: int, n: int) -> Operations:
    """A product of m x k by k x n blocks, powers of 2: Winograd's scheme (15 additions) until an extent is one block."""
    if min(m, k, n) == 1:
        return Operations(Fraction(m * k * n), Fraction(0))
    added = Operations(Fraction(0), Fraction(4 * m * k + 4 * k * n + 7 * m * n, 4))
    return product(m // 2, k // 2, n // 2).times(7) + added


def by_halving(n: int, k: int) -> Operations:
    """A*A^T of n x k blocks, n a power of 2: rows are halved down to one block; `product` off the diagonal, a triangle on it."""
    if n == 1:
        return Operations(Fraction(k, 2), Fraction(0))
    return by_halving(n // 2, k).times(2) + product(n // 2, k, n // 2)


def by_scheme(gram: GramScheme, n: int, k: int) -> Operations:
    """The same by a scheme while its grid divides the extents, then by halving. Sums on the diagonal of C are those of a triangle."""
    s = gram.scheme
    if n % s.m or k % s.k or n == 1:
        return by_halving(n, k)
    height, width, symmetric = n // s.m, k // s.k, len(gram.symmetric)
    right = [row for p, row in enumerate(gram.right) if p not in gram.symmetric]
    before = Fraction(sum(max(0, len(row) - 1) for row in (*s.tables[0], *right)) * height * width)
    after = sum(Fraction(len(s.tables[2][i * s.m + j]) - 1, 2 if i == j else 1) for i, j in gram.outputs) * height**2
    own = Operations(Fraction(0), Fraction(before + after))
    return own + by_scheme(gram, height, width).times(symmetric) + product(height, width, height).times(s.rank - symmetric)
