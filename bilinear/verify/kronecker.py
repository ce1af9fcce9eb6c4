"""Kronecker products of packed forms, by which the terms of several levels are combined.

Block (i m' + i', j k' + j') of a matrix is block (i', j') of its block (i, j), so a finest block has a number that is a sum of one part for
each level, and the forms of a combination are products of polynomials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod

from bilinear.ir.linear import Form
from bilinear.ir.packed import Packed, Packing, TooLongError, widened
from bilinear.ir.scheme import Scheme

Places = tuple[int, ...]


def combined_forms(packing: Packing, levels: Sequence[Sequence[Form]], places: Sequence[Places]) -> list[Packed]:
    """The Kronecker products of forms, one of each level, the last level's changing first."""
    found = [packing.unit(0)]
    for forms, own in zip(levels, places, strict=True):
        packed = [packing.tightened(packing.sum([(packing.unit(own[i]), c) for i, c in form])) for form in forms]
        found = [packing.product(outer, inner) for outer in found for inner in packed]
    return found


def places_of_levels(rows: Sequence[int], columns: Sequence[int]) -> list[Places]:
    """For each level: the contribution of each of its blocks, row by row, to the number of a finest block.

    `rows` and `columns` are those of each level's grid.
    """
    width, found = prod(columns), []
    for level, (height, breadth) in enumerate(zip(rows, columns, strict=True), 1):
        down, across = prod(rows[level:]) * width, prod(columns[level:])
        found.append(tuple(i * down + j * across for i in range(height) for j in range(breadth)))
    return found


def is_product_of(scheme: Scheme, multiplies: Callable[[Scheme], bool]) -> bool:
    """True if a scheme is exactly the tensor product of the two that it names as its factors, and each of them `multiplies`.

    Then it multiplies too (see `verify.composed`). False says nothing: other schemes are decided by their own equations.
    """
    if len(scheme.factors) != 2:
        return False
    rings = {x.ring for x in (scheme, *scheme.factors)}
    roots = {ring.generator for ring in rings} - {""}
    if len(roots) > 1 or any(ring.modulus or ring.is_approximate for ring in rings):
        return False
    try:
        agree = widened(lambda packing: _are_combined(packing, scheme), next(iter(roots), ""))
    except (TooLongError, ValueError):
        return False
    return agree and all(is_product_of(factor, multiplies) or multiplies(factor) for factor in scheme.factors)


def _are_combined(packing: Packing, scheme: Scheme) -> bool:
    """True if U, V and W are the Kronecker products of the tables of the scheme's factors."""
    outer, inner = scheme.factors
    m, k, n, ranks = (outer.m, inner.m), (outer.k, inner.k), (outer.n, inner.n), (outer.rank, inner.rank)
    if (scheme.m, scheme.k, scheme.n, scheme.rank) != tuple(map(prod, (m, k, n, ranks))):
        return False
    u, v, w = zip(outer.tables, inner.tables, strict=True)
    blocks = [i + j for i in places_of_levels(m, n)[0] for j in places_of_levels(m, n)[1]]
    outputs = dict(zip(blocks, combined_forms(packing, w, places_of_levels((1, 1), ranks)), strict=True))
    needed = [
        *combined_forms(packing, u, places_of_levels(m, k)),
        *combined_forms(packing, v, places_of_levels(k, n)),
        *(outputs[block] for block in range(len(outputs))),
    ]
    found = [row for table in _packed_tables(packing, scheme) for row in table]
    return len(found) == len(needed) and all(map(packing.equal, found, needed))


def _packed_tables(packing: Packing, scheme: Scheme) -> Iterator[Iterable[Packed]]:
    if scheme.bases is None:
        return (linear.packed(packing) for linear in (scheme.u, scheme.v, scheme.w))
    return ((packing.sum([(packing.unit(i), c) for i, c in row]) for row in table) for table in scheme.tables)
