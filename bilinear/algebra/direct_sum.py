"""Direct sums: a large product as two smaller ones side by side."""

from __future__ import annotations

from bilinear.algebra.common_ring import joined_ring, maps_of, reduced
from bilinear.algebra.credits import joined_citations, joined_name, numbered
from bilinear.algebra.fold_bases import fold_bases
from bilinear.algebra.maps import number_of_terms, together
from bilinear.algebra.size_limits import require_size
from bilinear.errors import fail
from bilinear.ir.linear import Form, LinearMap
from bilinear.ir.scheme import Scheme

AXES = ("m", "k", "n")


def direct_sum(first: Scheme, second: Scheme, axis: str) -> Scheme:
    """The scheme that splits one dimension, `m`, `k` or `n`, and runs `first` on one part and `second` on the other; ranks add up.

    Along m: C1 = A1*B above C2 = A2*B. Along n: C1 = A*B1 beside C2 = A*B2. Along k: C = A1*B1 + A2*B2, which costs m*n more additions. The
    products of `first` come first. Named sums are kept, and changes of basis are folded into them. Raises `BilinearError`: E640 if no ring
    holds both, E641 if the scheme grows too large, E642 if the other two dimensions differ.
    """
    one, two = (first.m, first.k, first.n), (second.m, second.k, second.n)
    for letter, x, y in zip(AXES, one, two, strict=True):
        if letter != axis and x != y:
            message = f"{first.format} and {second.format} do not fit together along {axis}: {letter} is {x} and {y}"
            raise fail("E642", message, f"schemes that are added along {axis} agree in the other two dimensions")
    ring = joined_ring(first, second)
    m, k, n = (x + y if letter == axis else x for letter, x, y in zip(AXES, one, two, strict=True))
    rank = first.rank + second.rank
    require_size(m, k, n, rank, sum(number_of_terms(linear) for scheme in (first, second) for linear in maps_of(scheme)))
    first, second = fold_bases(first), fold_bases(second)
    u = together(m * k, [(first.u, _part(m, k, first.m, first.k, 0)), (second.u, _part(m, k, second.m, second.k, -1))])
    v = together(k * n, [(first.v, _part(k, n, first.k, first.n, 0)), (second.v, _part(k, n, second.k, second.n, -1))])
    w = together(rank, [(first.w, range(first.rank)), (second.w, range(first.rank, rank))])
    places = [*_part(m, n, first.m, first.n, 0), *_part(m, n, second.m, second.n, -1)]
    name, citation = joined_name(first, f"plus_{axis}", second), joined_citations(first, second)
    return reduced(Scheme(name, m, k, n, u, v, _added(w, places, m * n), numbered(rank), ring, citation))


def _part(rows: int, columns: int, own_rows: int, own_columns: int, corner: int) -> list[int]:
    """The numbers of the blocks in the first (0) or last (-1) corner of a grid."""
    top, left = (rows - own_rows, columns - own_columns) if corner else (0, 0)
    return [(top + i) * columns + left + j for i in range(own_rows) for j in range(own_columns)]


def _added(w: LinearMap, places: list[int], size: int) -> LinearMap:
    """The map with outputs at the same place added up; such outputs share no product and no step, so their terms stay in order."""
    rows: list[Form] = [()] * size
    for place, output in zip(places, w.outputs, strict=True):
        rows[place] = tuple(sorted(rows[place] + output))
    return LinearMap(w.inputs, tuple(rows), w.steps)
