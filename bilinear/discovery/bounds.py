"""How few products a scheme may have: bounds from below that are proved for what a walk looks for.

A walk looks for schemes over Z/2, or over Z with coefficients -1, 0 and 1, which are schemes over Z/2 when their signs are dropped. So what
no scheme over Z/2 can do, no walk finds. The bounds say nothing about approximate schemes, over Q[lambda].
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations


@dataclass(frozen=True)
class Bound:
    """A number of products below which no walk finds a scheme, and the `source` that proves it."""

    rank: int
    source: str


def fewest_products(m: int, k: int, n: int) -> Bound:
    """The best known bound from below on the rank of <m,k,n> over Z/2; it is the same for all orders of m, k and n.

    Sources: J. E. Hopcroft, L. R. Kerr, *On minimizing the number of multiplications necessary for matrix multiplication*, SIAM J. Appl.
    Math. 20 (1971), for <2,2,n> and <2,3,3>; M. Bläser, *Lower bounds for the multiplicative complexity of matrix multiplication*, Comput.
    Complexity 8 (1999), and *On the complexity of the multiplication of matrices of small formats*, J. Complexity 19 (2003), for <3,3,3>.

    Examples
    --------
    >>> fewest_products(2, 2, 2)
    Bound(rank=7, source='Hopcroft and Kerr, 1971')
    >>> fewest_products(3, 1, 2).rank
    6
    """
    small, middle, large = sorted((m, k, n))
    found = [Bound(middle * large, "a matrix has as many blocks")]
    if small >= 2:
        found += [Bound(_substituted(*order), "Bläser, 1999") for order in permutations((m, k, n)) if order[2] >= order[0]]
    if (small, middle) == (2, 2):
        found.append(Bound(-(-7 * large // 2), "Hopcroft and Kerr, 1971"))
    if (small, middle, large) == (2, 3, 3):
        found.append(Bound(15, "Hopcroft and Kerr, 1971"))
    if (small, middle, large) == (3, 3, 3):
        found.append(Bound(19, "Bläser, 2003"))
    return max(reversed(found), key=lambda bound: bound.rank)


def _substituted(m: int, k: int, n: int) -> int:
    """Bläser's bound for n >= m >= 2, over every field."""
    return m * k + k * n + m - k + n - 3
