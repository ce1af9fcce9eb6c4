"""The projections of a check by generated kernels on a GPU with matrix units for float64, and a bound of their errors."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import sqrt
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from bilinear.backends.projections import Projected, Squares, in_fragments, projected
from bilinear.backends.target_here import has_digit_units
from bilinear.ir.matrix import Array
from bilinear.ir.projection_kernel import CHUNK, COLUMNS
from bilinear.runtime.projected import CheckedProduct, Residuals, longest_of, random_entries
from bilinear.runtime.thin_products import TINY, UNIT, gamma

MOST_KEPT = 8
"""Sets of random vectors that are kept on GPUs, each of a megabyte for 8192 columns."""


def residuals_on_gpu(problem: CheckedProduct) -> Residuals | None:
    """The projections of real matrices on a GPU, which are read once each; None for what takes the general way."""
    if not _suits(problem):
        return None
    alpha, beta = float(problem.alpha), float(problem.beta)
    x, size_x, longest_x = _random_vectors(problem.c.shape[-1], problem.seed, _device(problem.c))
    found = projected(problem.a, problem.b, problem.c, problem.before, x, alpha, beta, problem.is_wide)
    return _with_errors(found, problem, (alpha, beta), size_x, longest_x)


def _suits(problem: CheckedProduct) -> bool:
    """Whether these are float32 and float64 matrices without a batch, with the usual number of vectors, on a chip with the units."""
    given = [x for x in problem.arrays if x is not None]
    if not problem.on_gpu or problem.count != COLUMNS or problem.batch or problem.alpha == 0:
        return False
    if any(x.ndim != 2 or not x.size or str(x.dtype) not in ("float32", "float64") for x in given):
        return False
    return all(stride % x.dtype.itemsize == 0 for x in given for stride in x.strides) and has_digit_units()


def _device(x: Array) -> int:
    return int(x.device.id) if hasattr(x, "device") else 0


@lru_cache(MOST_KEPT)
def _random_vectors(length: int, seed: int, device: int) -> tuple[Array, float, float]:
    """The random vectors on a device, their Frobenius norm and their 2-norm, from above: the same as everywhere for a seed."""
    import cupy

    entries = random_entries(length, COLUMNS, seed)
    return cupy.asarray(in_fragments(entries.astype(np.float64))), float(np.linalg.norm(entries.astype(np.float64))), longest_of(entries)


def _with_errors(found: Projected, problem: CheckedProduct, factors: tuple[float, float], size_x: float, longest_x: float) -> Residuals:
    """The result:

    upper bounds of norms, and bounds of errors. Those of all rows follow from sums of squares, those of one row from the largest.
    """
    alpha, beta = (abs(factor) for factor in factors)
    (m, k), n, wide = problem.a.shape, problem.b.shape[1], problem.is_wide
    of_x = _VectorNorms(size_x, 0.0, 0.0)
    b = _bounds(*found.b[:2], _SumOrder(k, n, found.b[2]), of_x, wide)
    size_y = _from_above(found.y, k * COLUMNS)
    rest = _from_above(found.rest, k * COLUMNS) if wide else 0.0
    of_y = _VectorNorms(size_y, rest, b.error + UNIT * (rest if wide else size_y))
    parts = [(1.0, found.c, n, of_x), (alpha, found.a, k, of_y)]
    if found.before is not None:
        parts.append((beta, found.before, n, of_x))

    def bounded(rows: int, take: Callable[[Squares], float]) -> tuple[float, float]:
        """Of some rows: the norm of the projections, and a bound of that of their errors."""
        norm = sqrt(take(found.residual) + 2 * COLUMNS * rows * TINY)
        error = 4 * UNIT * norm + 16 * COLUMNS * rows * TINY
        for factor, own, terms, vectors in parts:
            part = _bounds(take(own.rows), take(own.tails), _SumOrder(rows, terms, own.splits), vectors, wide)
            error += factor * (part.error + 8 * UNIT * part.low + 16 * UNIT * UNIT * vectors.norm * part.size)
        return norm, error

    norm, error = bounded(m, attrgetter("total"))
    most, error_of_one = bounded(1, attrgetter("most"))
    scale = alpha * sqrt(found.a.rows.total) * sqrt(found.b[0])
    if found.before is not None:
        scale += beta * sqrt(found.before.rows.total)
    return Residuals(m, norm, error, most + error_of_one, found.worst, scale, longest_x)


class _VectorNorms(NamedTuple):
    """Vectors: their Frobenius norm, that of their rest, and a bound of their error."""

    norm: float
    rest: float
    error: float


class _SumOrder(NamedTuple):
    """How a projection is added up: its rows, the terms of each, and the parts in which they are added."""

    rows: int
    terms: int
    splits: int


class _RowBounds(NamedTuple):
    """For all rows of a projection: the norm of the matrix, and bounds of the error and of the norm of the sums' low parts."""

    size: float
    error: float
    low: float


def _bounds(squares: float, tails: float, chain: _SumOrder, vectors: _VectorNorms, is_wide: bool) -> _RowBounds:
    """Bound a projection by the squared norms of its rows and of their lower parts.

    Each row is bounded by the inequality of Cauchy and Schwarz, several together by the triangle inequality. Three things are rounded: the
    lower part of a row times the vectors, the row times the rest of the vectors, and the additions of exact sums. One chain of additions
    sums them up. Without pieces (not `is_wide`) the whole sum is one such chain.
    """
    terms, elements = chain.terms, chain.terms * chain.rows
    size = _from_above(squares, elements)
    added = 2 * (-(-terms // CHUNK)) + 2 * chain.splits
    tiny = elements * COLUMNS * TINY
    if not is_wide:
        low = UNIT * chain.splits * vectors.norm * size
        return _RowBounds(size, (gamma(terms + added + 8) * vectors.norm + vectors.error) * size + tiny, low)
    low = (vectors.norm + vectors.rest) * _from_above(tails, elements) + (vectors.rest + added * UNIT * vectors.norm) * size
    return _RowBounds(size, gamma(2 * terms + 2 * added + 8) * low + vectors.error * size + tiny, 2 * low)


def _from_above(squares: float, terms: int) -> float:
    """The norm of squares, with what underflow in these, and rounding, may have lost."""
    return sqrt(squares + 2 * terms * TINY) * (1 + gamma(terms + 8))
