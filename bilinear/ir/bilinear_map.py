"""Bilinear maps as exact tensors, and algorithms for them. The matrix product is the usual map; its algorithms are `Scheme`s."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from bilinear.ir.linear import Form, LinearMap
from bilinear.ir.number import Coefficient
from bilinear.ir.ring import RATIONALS, Ring
from bilinear.ir.scheme import block_name, block_names

Grid = tuple[int, int, int]  # The blocks m, k and n of matrices of m x k and k x n blocks.
WHOLE: Grid = (1, 1, 1)

Terms = dict[tuple[int, int], Coefficient]  # An output: the coefficient of each (left value, right value).


@dataclass(frozen=True)
class BilinearMap:
    """A bilinear map: each output is a sum of products of one `left` value and one `right` value, given by name.

    `rows` lists the terms (left, right, coefficient) of each output, in order. An output in `symmetric` equals its own transpose, like a
    diagonal block of A*A^T. In it X*Y^T and Y*X^T count as one term, written with left <= right. With an `order`, algorithms may differ
    from the map by terms of that order in lambda.
    """

    title: str
    left: tuple[str, ...]
    right: tuple[str, ...]
    outputs: tuple[str, ...]
    rows: tuple[tuple[tuple[int, int, Coefficient], ...], ...]
    symmetric: frozenset[int] = frozenset()
    order: int = 0

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The number of left values, right values and outputs."""
        return len(self.left), len(self.right), len(self.outputs)

    def terms(self, output: int) -> Terms:
        """The terms of one output, by pair of values."""
        return {(i, j): c for i, j, c in self.rows[output]}


@dataclass(frozen=True)
class BilinearAlgorithm:
    """An algorithm for a bilinear map: `u` forms the left factors, `v` the right factors, and `w` the outputs from the products."""

    name: str
    target: BilinearMap
    u: LinearMap
    v: LinearMap
    w: LinearMap
    ring: Ring = RATIONALS

    @property
    def rank(self) -> int:
        """The number of products."""
        return self.w.inputs

    @cached_property
    def tables(self) -> tuple[tuple[Form, ...], tuple[Form, ...], tuple[Form, ...]]:
        """U, V and W as sparse rows, with sub-expressions expanded."""
        return self.u.matrix, self.v.matrix, self.w.matrix


def product_with_transpose(m: int, k: int, upper: bool, first: int = 0) -> BilinearMap:
    """A*A^T for an m x k matrix A, a triangle row by row, its blocks cyclic from `first`; right factors are transposed sums."""
    blocks = block_names("A", m, k)
    names = blocks[first:] + blocks[:first]
    place = {name: i for i, name in enumerate(names)}
    places = [(i, j) for i in range(m) for j in (range(i, m) if upper else range(i + 1))]
    rows = tuple(tuple((place[blocks[i * k + p]], place[blocks[j * k + p]], 1) for p in range(k)) for i, j in places)
    symmetric = frozenset(number for number, (i, j) in enumerate(places) if i == j)
    triangle = "upper" if upper else "lower"
    from_block = f", blocks numbered from {names[0]} on" if first else ""
    outputs = tuple(block_name("C", i, j) for i, j in places)
    right = tuple(f"{name}^T" for name in names)
    return BilinearMap(f"A*A^T, A {m} x {k}, {triangle} triangle{from_block}", names, right, outputs, rows, symmetric)


def product_of_commuting(m: int, k: int, n: int) -> BilinearMap:
    """A*B for entries that commute with one another: x*y and y*x are one term. A factor may be a sum over the blocks of A and of B."""
    names = (*block_names("A", m, k), *block_names("B", k, n))
    rows = tuple(tuple((i * k + p, m * k + p * n + j, 1) for p in range(k)) for i in range(m) for j in range(n))
    title = f"A*B, A {m} x {k}, B {k} x {n}, with entries that commute"
    return BilinearMap(title, names, names, block_names("C", m, n), rows, frozenset(range(m * n)))


def complex_product(conjugated: str = "", grid: Grid = WHOLE) -> BilinearMap:
    """A product of complex m x k by k x n blocks, some conjugated ("", "A", "B", "AB"): the real parts come first."""
    m, k, n = grid
    a, b = (-1 if letter in conjugated else 1 for letter in "AB")
    pairs = [[(i * k + p, p * n + j) for p in range(k)] for i in range(m) for j in range(n)]
    real = (tuple(t for x, y in row for t in ((x, y, 1), (x + m * k, y + k * n, -a * b))) for row in pairs)
    imaginary = (tuple(t for x, y in row for t in ((x, y + k * n, b), (x + m * k, y, a))) for row in pairs)
    left, right = (f"conj({letter})" if letter in conjugated else letter for letter in "AB")
    numbers = [block_names(*x) if grid != WHOLE else (x[0],) for x in (("A", m, k), ("B", k, n), ("C", m, n))]
    x, y, z = (tuple(f"{name}.{part}" for part in ("re", "im") for name in names) for names in numbers)
    return BilinearMap(f"{left}*{right} of complex numbers", x, y, z, (*real, *imaginary))


def polynomial_product(left: int, right: int, degree: int) -> BilinearMap:
    """The product of polynomials of degrees `left` and `right`: coefficients 0 to `degree`, so either all of them or a short product."""
    rows = tuple(tuple((i, d - i, 1) for i in range(left + 1) if 0 <= d - i <= right) for d in range(degree + 1))
    short = "" if degree == left + right else f" modulo x^{degree + 1}"
    title = f"polynomials of degrees {left} and {right}{short}"
    return BilinearMap(title, _numbered("a", left), _numbered("b", right), _numbered("c", degree), rows)


def product_modulo(polynomial: Sequence[int], p: int) -> BilinearMap:
    """The product in Z/p[x] modulo the monic polynomial x^d + sum of polynomial[i] * x^i."""
    d = len(polynomial)
    powers = [[int(i == j) for j in range(d)] for i in range(d)]
    while len(powers) < 2 * d - 1:
        last = powers[-1]
        powers.append([((last[i - 1] if i else 0) - last[-1] * c) % p for i, c in enumerate(polynomial)])
    rows = tuple(tuple((i, j, c) for i in range(d) for j in range(d) if (c := powers[i + j][e])) for e in range(d))
    names = (_numbered("a", d - 1), _numbered("b", d - 1), _numbered("c", d - 1))
    return BilinearMap(f"Z/{p}[x] modulo {_written([*polynomial, 1])}", *names, rows)


def _written(polynomial: Sequence[int]) -> str:
    powers = ("", "x", *(f"x^{i}" for i in range(2, len(polynomial))))
    terms = [f"{c if c != 1 or not x else ''}{'*' if c != 1 and x else ''}{x}" for c, x in zip(polynomial, powers, strict=False) if c]
    return " + ".join(reversed(terms))


def _numbered(letter: str, degree: int) -> tuple[str, ...]:
    return tuple(f"{letter}{i}" for i in range(degree + 1))
