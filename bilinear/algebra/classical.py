"""The classical scheme of any format."""

from __future__ import annotations

from bilinear.algebra.common_ring import INTEGERS
from bilinear.algebra.credits import numbered
from bilinear.algebra.size_limits import require_size
from bilinear.ir.linear import LinearMap
from bilinear.ir.scheme import Scheme


def classical(m: int, k: int, n: int) -> Scheme:
    """The scheme <m,k,n;mkn> of all products A[i,p] * B[p,j], grouped by block of C. Raises `BilinearError` (E641)."""
    require_size(m, k, n, m * k * n, 3 * m * k * n)
    triples = [(i, p, j) for i in range(m) for j in range(n) for p in range(k)]
    u = LinearMap(m * k, tuple(((i * k + p, 1),) for i, p, _ in triples))
    v = LinearMap(k * n, tuple(((p * n + j, 1),) for _, p, j in triples))
    w = LinearMap(m * k * n, tuple(tuple((c * k + p, 1) for p in range(k)) for c in range(m * n)))
    return Scheme(f"classical_{m}_{k}_{n}", m, k, n, u, v, w, numbered(m * k * n), INTEGERS)
