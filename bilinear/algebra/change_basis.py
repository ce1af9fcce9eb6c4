"""Changes of basis: the symmetries that sandwich A, B and C between invertible matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bilinear.algebra.combined import reciprocal, reduced
from bilinear.algebra.maps import after, bases_of, table_of
from bilinear.errors import BilinearError, fail
from bilinear.ir.linear import LinearMap, form
from bilinear.ir.number import Coefficient, exact, residue
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Bases, Scheme

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
    size = len(matrix)
    rows = [[*row, *(int(i == j) for j in range(size))] for i, row in enumerate(matrix)]
    for column in range(size):
        pivot = next((i for i in range(column, size) if not _is_zero(rows[i][column], ring)), None)
        if pivot is None:
            raise ZeroDivisionError("the matrix is singular")
        rows[column], rows[pivot] = rows[pivot], rows[column]
        factor = reciprocal(rows[column][column], ring)
        rows[column] = [factor * x for x in rows[column]]
        for i in range(size):
            if i != column and rows[i][column]:
                rows[i] = [x - rows[i][column] * y for x, y in zip(rows[i], rows[column], strict=True)]
    return [[exact(x) for x in row[size:]] for row in rows]


def _is_zero(value: Coefficient, ring: Ring) -> bool:
    return residue(value, ring.modulus) == 0 if ring.modulus else not value


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
    """The map X -> left * X * right on the entries of X, row by row."""
    rows, columns = range(len(left)), range(len(right))
    size = len(columns)
    outputs = [form((a * size + b, left[i][a] * right[b][j]) for a in rows for b in columns) for i in rows for j in columns]
    return LinearMap(len(rows) * size, tuple(outputs))


def _cheaper(linear: LinearMap) -> LinearMap:
    table = table_of(linear)
    return linear if linear.additions <= table.additions else table
