"""Other representatives of a scheme: normal signs, changes of basis by its symmetries, and bases in which its maps have few terms."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from math import comb, gcd

import numpy as np

from bilinear.algebra.composition import INTEGERS, shortened
from bilinear.algebra.maps import after, bases_of, least_residue, maps_of, reduced, table_of
from bilinear.algebra.share_search import magnitude
from bilinear.errors import BilinearError, fail
from bilinear.ir.linear import Form, LinearMap, form, transposed_rows
from bilinear.ir.number import Coefficient, Symbolic, exact, is_negative, rational, residue, square
from bilinear.ir.ring import RATIONALS, Ring
from bilinear.ir.scheme import Bases, Scheme


def normalise_signs(scheme: Scheme) -> Scheme:
    """The scheme in which the first coefficient of every left and right factor has no minus; W takes the signs.

    Since (-a)*b = -(a*b), all four sign choices of a product give the same result. Named sums stay unchanged.
    """
    u, v, _ = scheme.tables
    left, right = ([-1 if row and is_negative(row[0][1]) else 1 for row in table] for table in (u, v))
    signs = [a * b for a, b in zip(left, right, strict=True)]
    w = scheme.w.mapped(lambda row: tuple((i, signs[i] * c if i < scheme.rank else c) for i, c in row))
    return replace(scheme, u=_signed(scheme.u, left), v=_signed(scheme.v, right), w=w, places=None)


def _signed(linear: LinearMap, signs: list[int]) -> LinearMap:
    outputs = tuple(tuple((i, sign * c) for i, c in row) for row, sign in zip(linear.outputs, signs, strict=True))
    return replace(linear, outputs=outputs)


Matrix = Sequence[Sequence[Coefficient]]
"""A square matrix of exact numbers, row by row."""


def change_basis(scheme: Scheme, p: Matrix, q: Matrix, r: Matrix) -> Scheme:
    """The scheme that computes C = P^-1 * S(P*A*Q^-1, Q*B*R^-1) * R, where S is the given one (de Groote 1978).

    P is m x m, Q is k x k, R is n x n, invertible over the ring of the scheme. If the scheme already acts in other bases, the change is
    merged into them. Otherwise each of U, V and W is kept as a program after the change, or written out as a table, whichever has fewer
    additions. Raises `BilinearError` (E643) if a matrix has the wrong size, foreign coefficients, or no inverse over the ring.
    """
    ring = scheme.ring
    sizes = (("P", p, scheme.m), ("Q", q, scheme.k), ("R", r, scheme.n))
    (p, p_), (q, q_), (r, r_) = (_with_inverse(name, matrix, size, ring) for name, matrix, size in sizes)
    a, b, c = _sandwich(p, q_), _sandwich(q, r_), _sandwich(p_, r)
    if scheme.bases is not None:
        own = bases_of(scheme)
        return reduced(replace(scheme, bases=Bases(after(a, own.a), after(b, own.b), after(own.c, c)), places=None))
    u, v, w = _cheaper(after(a, scheme.u)), _cheaper(after(b, scheme.v)), _cheaper(after(scheme.w, c))
    return reduced(replace(scheme, u=u, v=v, w=w, places=None))


def inverse(matrix: Matrix, ring: Ring) -> list[list[Coefficient]]:
    """The exact inverse of a square matrix over the field of fractions of a ring; `ZeroDivisionError` if it is singular."""
    size, space = len(matrix), VectorSpan(ring)
    for i, row in enumerate(matrix):
        space.extend(tuple(in_ring(x, ring) for x in (*row, *(int(i == j) for j in range(size)))))
    if not space.pivots.keys() >= set(range(size)):
        raise ZeroDivisionError("the matrix is singular")
    return [list(space.pivots[i][size:]) for i in range(size)]


def _with_inverse(name: str, matrix: Matrix, size: int, ring: Ring) -> tuple[Matrix, Matrix]:
    if len(matrix) != size or any(len(row) != size for row in matrix):
        raise _refused(name, f"is not {size} x {size}")
    foreign = next((x for row in matrix for x in row if not ring.holds(x)), None)
    if foreign is not None:
        raise _refused(name, f"has the coefficient {foreign}, which is not in {ring}")
    try:
        found = inverse(matrix, ring)
    except ZeroDivisionError:
        raise _refused(name, f"has no inverse over {ring}") from None
    if not all(ring.holds(x) for row in found for x in row):
        raise _refused(name, f"has no inverse over {ring}")
    return matrix, found


def _refused(name: str, what: str) -> BilinearError:
    return fail(
        "E643", f"the matrix {name} {what}", "P is m x m, Q is k x k, R is n x n; each needs an inverse over the ring of the scheme"
    )


def _sandwich(left: Matrix, right: Matrix) -> LinearMap:
    rows, columns = range(len(left)), range(len(right))
    size = len(columns)
    outputs = [form((a * size + b, left[i][a] * right[b][j]) for a in rows for b in columns) for i in rows for j in columns]
    return LinearMap(len(rows) * size, tuple(outputs))


def _cheaper(linear: LinearMap) -> LinearMap:
    table = table_of(linear)
    return linear if linear.additions <= table.additions else table


MOST_KERNELS = 4000
"""The most sets of rows whose kernels are all tried."""
MOST_BLOCKS = 9
"""If there are more sets, all columns with entries -1, 0 and 1 are tried instead, for up to this many blocks of a matrix."""
RESTARTS = 200
"""The number of orders tried for columns with equally many terms."""
TINY = 1e-9
"""Treated as zero when candidates are ordered; the candidates themselves are exact."""

Vector = tuple[Coefficient, ...]


@dataclass(frozen=True)
class _Column:
    """A column x of X, and the terms of U x: (row, coefficient)."""

    x: Vector
    image: Form

    @property
    def scalings(self) -> int:
        return sum(c not in (1, -1) for _, c in self.image)


def change_to_sparse_bases(scheme: Scheme, *, seed: int = 0) -> Scheme:
    """The scheme with changes of basis before U and V and after W, in which these have the fewest terms.

    Among bases with equally few terms, it prefers few scalings in U, V, W and few terms in the changes. With up to `MOST_KERNELS` sets of
    rows the number of terms is minimal; beyond, it is minimal for bases with entries -1, 0 and 1. The maps are tables; `share_sums` finds
    their common sums. A scheme over Z becomes one over Q if its bases are not over Z. Raises `BilinearError`: E651 over Q[lambda], E652 if
    a matrix has too many blocks.
    """
    if scheme.ring.is_approximate or scheme.ring.has_zero_divisors:
        raise fail("E651", f"{scheme.name} is over {scheme.ring}, where few numbers have an inverse", "take an exact scheme")
    u, v, w = scheme.tables
    m, k, n = scheme.m, scheme.k, scheme.n
    left, a = _sparse(scheme, u, m * k, seed)
    right, b = _sparse(scheme, v, k * n, seed)
    back, c = _sparse(scheme, transposed_rows(w, scheme.rank), m * n, seed)
    bases = Bases(LinearMap(m * k, a), LinearMap(k * n, b), LinearMap(m * n, transposed_rows(c, m * n)))
    maps = LinearMap(m * k, left), LinearMap(k * n, right), LinearMap(scheme.rank, transposed_rows(back, m * n))
    name = shortened(f"{scheme.name}_in_other_bases")
    changed = replace(scheme, name=name, u=maps[0], v=maps[1], w=maps[2], bases=bases, places=None)
    within = all(scheme.ring.holds(c) for linear in maps_of(changed) for row in linear.outputs for _, c in row)
    return reduced(changed if within else replace(changed, ring=RATIONALS))


def _sparse(scheme: Scheme, rows: Sequence[Form], size: int, seed: int) -> tuple[tuple[Form, ...], tuple[Form, ...]]:
    ring = scheme.ring
    columns = _candidates(rows, _vectors(scheme, rows, size), size, ring)
    generator = random.Random(seed)
    found = []
    for _ in range(RESTARTS):
        shuffled = sorted(generator.sample(columns, len(columns)), key=lambda column: (len(column.image), column.scalings))
        space = VectorSpan(ring)
        chosen = [column for column in shuffled if len(space.pivots) < size and space.extend(column.x)]
        change = inverse([[column.x[i] for column in chosen] for i in range(size)], ring)
        entries = [c for row in change for c in row if c] + [c for column in chosen for c in column.x if c]
        images = [c for column in chosen for _, c in column.image]
        scalings = sum(column.scalings for column in chosen), sum(c not in (1, -1) for c in entries)
        found.append(((not all(map(ring.holds, entries + images)), len(images), *scalings, len(entries)), chosen, change))
    _, chosen, change = min(found, key=lambda one: one[0])
    return transposed_rows([column.image for column in chosen], len(rows)), tuple(form(enumerate(row)) for row in change)


class VectorSpan:
    """The span of some vectors, with a basis in which each vector alone has a 1 at its own index."""

    def __init__(self, ring: Ring, pivots: dict[int, Vector] | None = None) -> None:
        self.ring = ring
        self.pivots = pivots or {}

    def extend(self, x: Vector) -> bool:
        """Add a vector; returns whether it was outside the space."""
        for place, row in self.pivots.items():
            x = self._without(x, place, row)
        modulus = self.ring.modulus
        units = (i for i, c in enumerate(x) if (isinstance(c, int) and gcd(c, modulus) == 1 if modulus else c))
        place = next(units, -1)
        if place < 0:
            return False
        factor = reciprocal(x[place], self.ring)
        monic = tuple(in_ring(factor * c, self.ring) for c in x)
        self.pivots = {i: self._without(row, place, monic) for i, row in self.pivots.items()} | {place: monic}
        return True

    def _without(self, x: Vector, place: int, row: Vector) -> Vector:
        return tuple(in_ring(c - x[place] * d, self.ring) for c, d in zip(x, row, strict=True)) if x[place] else x


def _candidates(rows: Sequence[Form], vectors: Iterator[Vector], size: int, ring: Ring) -> list[_Column]:
    """The candidate columns, each once up to a factor: the sparsest, up to the number of terms that a basis needs."""
    space, found, most = VectorSpan(ring), dict[Form, _Column](), math.inf
    for x in vectors:
        column = _scaled(x, rows, ring)
        if len(column.image) > most:
            break
        found.setdefault(column.image, column)
        if space.extend(x) and len(space.pivots) == size:
            most = len(column.image)
    return list(found.values())


def _vectors(scheme: Scheme, rows: Sequence[Form], size: int) -> Iterator[Vector]:
    """Candidates for columns, those with the fewest nonzero rows first."""
    seen: dict[Vector, None] = {}
    for row in rows:
        if row:
            factor, terms = reciprocal(row[0][1], scheme.ring), dict(row)
            seen[tuple(in_ring(terms.get(i, 0) * factor, scheme.ring) for i in range(size))] = None
    distinct = list(seen)
    if comb(len(distinct), size - 1) <= MOST_KERNELS:
        return iter(sorted(_kernels(distinct, size, VectorSpan(scheme.ring)), key=lambda x: len(_image(rows, x, scheme.ring))))
    if size <= MOST_BLOCKS and scheme.ring in (RATIONALS, INTEGERS):
        return _ternary(rows, size)
    message = f"{scheme.name} {scheme.format} is too large for the search for other bases"
    limit = f"at most {MOST_KERNELS} sets of rows are weighed, or over Q matrices of at most {MOST_BLOCKS} blocks"
    raise fail("E652", message, "search for a smaller scheme, and compose it", notes=(limit,))


def _kernels(rows: Sequence[Vector], size: int, space: VectorSpan) -> Iterator[Vector]:
    missing = size - 1 - len(space.pivots)
    if not missing:
        (free,) = set(range(size)) - space.pivots.keys()
        yield tuple(1 if i == free else in_ring(-space.pivots[i][free], space.ring) for i in range(size))
        return
    for number in range(len(rows) - missing + 1):
        larger = VectorSpan(space.ring, space.pivots)
        if larger.extend(rows[number]):
            yield from _kernels(rows[number + 1 :], size, larger)


def reciprocal(value: Coefficient, ring: Ring) -> Coefficient:
    """1/value in the ring or its field of fractions; `ZeroDivisionError` if there is none. Values with lambda are not supported.

    In Q[g] with g*g = s it is (a - b*g) / (a*a - s*b*b) for value = a + b*g.
    """
    if ring.modulus:
        return least_residue(Fraction(1, residue(value, ring.modulus)), ring.modulus)
    if not isinstance(value, Symbolic):
        return exact(1 / Fraction(value))
    root = square(ring.generator)
    if root is None:
        raise ZeroDivisionError(f"1/({value}) is not a polynomial in {ring.generator}")
    parts = dict(value.terms)
    a, b = parts.get((), Fraction(0)), parts[((ring.generator, 1),)]
    return (-value + 2 * a) / (a * a - root * b * b)


def _image(rows: Sequence[Form], x: Vector, ring: Ring) -> list[tuple[int, Coefficient]]:
    return [(i, value) for i, row in enumerate(rows) if (value := in_ring(sum((c * x[j] for j, c in row if x[j]), start=0), ring))]


def _ternary(rows: Sequence[Form], size: int) -> Iterator[Vector]:
    """All columns with entries -1, 0 and 1, up to sign."""
    vectors = [x for x in product((0, 1, -1), repeat=size) if next((c for c in x if c), 0) == 1]
    matrix = np.zeros((len(rows), size))
    for number, row in enumerate(rows):
        for i, c in row:
            matrix[number, i] = rational(c)
    nonzero = np.count_nonzero(np.abs(matrix @ np.array(vectors).T) > TINY, axis=0)
    return (vectors[i] for i in np.argsort(nonzero, kind="stable"))


def _scaled(x: Vector, rows: Sequence[Form], ring: Ring) -> _Column:
    """The column scaled so that most coefficients of its image are 1 or -1, and the first one is positive."""
    image = _image(rows, x, ring)
    sizes = Counter(magnitude(c) for _, c in image)
    factor = reciprocal(sizes.most_common(1)[0][0], ring)
    factor = -factor if is_negative(image[0][1]) else factor
    return _Column(tuple(in_ring(c * factor, ring) for c in x), form((i, in_ring(c * factor, ring)) for i, c in image))


def in_ring(value: Coefficient, ring: Ring) -> Coefficient:
    """A number as it is written in a ring: the least residue, or an integer if it is one."""
    return least_residue(value, ring.modulus) if ring.modulus else exact(value)
