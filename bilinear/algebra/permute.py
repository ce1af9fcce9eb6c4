"""The six permutations of a scheme: the symmetries of the matrix multiplication tensor that exchange A, B and C."""

from __future__ import annotations

from dataclasses import replace

from bilinear.algebra.credits import shortened
from bilinear.algebra.fold_bases import on_blocks
from bilinear.algebra.maps import reading, reordered, transposed
from bilinear.ir.linear import LinearMap
from bilinear.ir.scheme import Bases, Scheme


def rotate(scheme: Scheme) -> Scheme:
    """The scheme <k,n,m;r> from trace(A*B*C) = trace(B*C*A); three rotations return the original scheme.

    The new U is V, the new V is the transposed W over transposed blocks, and the new W is the transposed U (Hopcroft, Musinski 1973).
    Programs of U and W are run backwards, so shared sums stay shared.
    """
    scheme = on_blocks(scheme)
    m, k, n, bases = scheme.m, scheme.k, scheme.n, scheme.bases
    v, w = _reads_columns(transposed(scheme.w), m, n), _gives_columns(transposed(scheme.u), m, k)
    if bases is not None:
        bases = Bases(bases.b, _on_columns(transposed(bases.c), m, n), _on_columns(transposed(bases.a), m, k))
    name = shortened(f"{scheme.name}_rotated")
    return replace(scheme, name=name, m=k, k=n, n=m, u=scheme.v, v=v, w=w, bases=bases, places=None)


def transpose(scheme: Scheme) -> Scheme:
    """The scheme <n,k,m;r> from C^T = B^T * A^T; applying it twice returns the original scheme."""
    scheme = on_blocks(scheme)
    m, k, n, bases = scheme.m, scheme.k, scheme.n, scheme.bases
    u, v, w = _reads_columns(scheme.v, k, n), _reads_columns(scheme.u, m, k), _gives_columns(scheme.w, m, n)
    if bases is not None:
        bases = Bases(_on_columns(bases.b, k, n), _on_columns(bases.a, m, k), _on_columns(bases.c, m, n))
    name = shortened(f"{scheme.name}_transposed")
    return replace(scheme, name=name, m=n, n=m, u=u, v=v, w=w, bases=bases, places=None)


def permutations(scheme: Scheme) -> tuple[Scheme, ...]:
    """The scheme, its two rotations, and their transposes: <m,k,n>, <k,n,m>, <n,m,k>, <n,k,m>, <m,n,k>, <k,m,n>."""
    rotations = (scheme, rotate(scheme), rotate(rotate(scheme)))
    return (*rotations, *map(transpose, rotations))


def _columns(rows: int, columns: int) -> list[int]:
    """For each block in row-major order its number in the transposed grid."""
    return [j * rows + i for i in range(rows) for j in range(columns)]


def _reads_columns(linear: LinearMap, rows: int, columns: int) -> LinearMap:
    """A map over the blocks of a grid as one over the transposed grid."""
    return reading(linear, _columns(rows, columns))


def _gives_columns(linear: LinearMap, rows: int, columns: int) -> LinearMap:
    """A map into the blocks of a grid as one into the transposed grid."""
    return reordered(linear, _columns(columns, rows))


def _on_columns(linear: LinearMap, rows: int, columns: int) -> LinearMap:
    """A change of basis for the transposed matrix."""
    return _gives_columns(_reads_columns(linear, rows, columns), rows, columns)
