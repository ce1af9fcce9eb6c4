"""The tensor product: one scheme applied to the blocks of another."""

from __future__ import annotations

from bilinear.algebra.common_ring import joined_ring, reduced
from bilinear.algebra.credits import joined_citations, joined_name, numbered
from bilinear.algebra.fold_bases import bases_of, on_blocks
from bilinear.algebra.maps import kronecker, number_of_terms, reading, reordered
from bilinear.algebra.size_limits import require_size
from bilinear.ir.linear import LinearMap
from bilinear.ir.scheme import Bases, Scheme


def tensor(outer: Scheme, inner: Scheme) -> Scheme:
    """The scheme <m*m', k*k', n*n'; r*r'> in which `inner` computes every product of `outer`.

    Block (i, j) of the outer A holds the inner blocks (i*m' + i', j*k' + j'); product p of the outer scheme and q of the inner one is
    product p*r' + q. U, V and W are Kronecker products (Strassen 1969 for levels of one scheme; Buergisser, Clausen, Shokrollahi, Algebraic
    Complexity Theory, 1997, for tensors), run one factor after the other, so shared sums stay shared. Changes of basis are tensored as
    well. For approximate schemes the error keeps a positive order. Raises `BilinearError`: E640 if no ring holds both, E641 if the scheme
    grows too large.
    """
    outer, inner = on_blocks(outer), on_blocks(inner)
    ring = joined_ring(outer, inner)
    m, k, n = outer.m * inner.m, outer.k * inner.k, outer.n * inner.n
    x, y = bases_of(outer), bases_of(inner)
    pairs = ((outer.u, inner.u), (outer.v, inner.v), (outer.w, inner.w), (x.a, y.a), (x.b, y.b), (x.c, y.c))
    require_size(m, k, n, outer.rank * inner.rank, sum(_terms(*pair) for pair in pairs))
    a = _grid(outer.m, outer.k, inner.m, inner.k)
    b = _grid(outer.k, outer.n, inner.k, inner.n)
    c = _grid(outer.m, outer.n, inner.m, inner.n)
    u, v, w = reading(kronecker(outer.u, inner.u), a), reading(kronecker(outer.v, inner.v), b), kronecker(outer.w, inner.w)
    bases = None
    if outer.bases is not None or inner.bases is not None:
        bases = Bases(_on_grid(x.a, y.a, a), _on_grid(x.b, y.b, b), _on_grid(x.c, y.c, c))
    name, citation = joined_name(outer, "x", inner), joined_citations(outer, inner)
    products = numbered(outer.rank * inner.rank)
    return reduced(Scheme(name, m, k, n, u, v, reordered(w, _inverse(c)), products, ring, citation, bases=bases, factors=(outer, inner)))


def _terms(outer: LinearMap, inner: LinearMap) -> int:
    """An upper bound on the terms of the Kronecker product, in the order that has more."""
    orders = ((outer, inner), (inner, outer))
    return max(number_of_terms(x) * y.inputs + len(x.outputs) * number_of_terms(y) for x, y in orders)


def _grid(rows: int, columns: int, inner_rows: int, inner_columns: int) -> list[int]:
    """For each outer block and each inner one within it, the row-major number of the fine block."""
    return [
        (i * inner_rows + s) * columns * inner_columns + j * inner_columns + t
        for i in range(rows)
        for j in range(columns)
        for s in range(inner_rows)
        for t in range(inner_columns)
    ]


def _on_grid(outer: LinearMap, inner: LinearMap, grid: list[int]) -> LinearMap:
    """The Kronecker product of two changes of basis, with both sides in row-major order."""
    return reordered(reading(kronecker(outer, inner), grid), _inverse(grid))


def _inverse(order: list[int]) -> list[int]:
    there = {new: old for old, new in enumerate(order)}
    return [there[i] for i in range(len(order))]
