"""The projections of a check by generated kernels on a GPU with matrix units for float64, and a bound of their errors."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from bilinear.backends.projections import Floats, Projected, Sizes, in_fragments, projected
from bilinear.backends.target_here import has_digit_units
from bilinear.ir.matrix import Array
from bilinear.ir.projection_kernel import CHUNK, COLUMNS
from bilinear.runtime.projected import Problem, Residuals, longest, random_entries
from bilinear.runtime.thin_products import TINY, UNIT, gamma

MOST_KEPT = 8
"""So many sets of random vectors stay on GPUs: of a megabyte each for 8192 columns."""


def residuals_on_gpu(problem: Problem) -> Residuals | None:
    """The projections of real matrices on a GPU, which are read once each; None for what takes the general way."""
    if not _suits(problem):
        return None
    alpha, beta = float(problem.alpha), float(problem.beta)
    x, size_x, longest_x = _random_vectors(problem.c.shape[-1], problem.seed, _device(problem.c))
    found = projected(problem.a, problem.b, problem.c, problem.before, x, alpha, beta, problem.is_wide)
    return _with_errors(found, problem, (alpha, beta), size_x, longest_x)


def _suits(problem: Problem) -> bool:
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
    return cupy.asarray(in_fragments(entries.astype(np.float64))), float(np.linalg.norm(entries.astype(np.float64))), longest(entries)


def _with_errors(found: Projected, problem: Problem, factors: tuple[float, float], size_x: float, longest_x: float) -> Residuals:
    """What was found, with norms from above, and the bound of the errors of every row."""
    alpha, beta = factors
    k, n = problem.b.shape
    wide, of_x = problem.is_wide, _Vectors(size_x, 0.0, 0.0)
    b = _bounds(found.b, n, of_x, wide)
    size_y = _from_above(found.y, k * COLUMNS)
    rest = _from_above(found.rest, k * COLUMNS) if wide else 0.0
    of_y = _Vectors(float(size_y), float(rest), float(np.linalg.norm(b.error) + UNIT * (rest if wide else size_y)))
    c, a = _bounds(found.c, n, of_x, wide), _bounds(found.a, k, of_y, wide)
    parts = [(1.0, c, of_x), (abs(alpha), a, of_y)]
    if found.before is not None:
        parts.append((abs(beta), _bounds(found.before, n, of_x, wide), of_x))
    residual = np.sqrt(found.residual + 2 * COLUMNS * TINY)
    error = 4 * UNIT * residual + 16 * COLUMNS * TINY
    for factor, own, vectors in parts:
        error += factor * (own.error + 8 * UNIT * own.low + 16 * UNIT * UNIT * vectors.norm * own.rows)
    size_a, size_b, size_before = (float(np.linalg.norm(own.rows)) for own in (a, b, parts[-1][1]))
    scale = abs(alpha) * size_a * size_b + (abs(beta) * size_before if found.before is not None else 0.0)
    return Residuals(residual, error, scale, longest_x)


class _Vectors(NamedTuple):
    """Of vectors: their Frobenius norm, that of their rest, and by how much they are off."""

    norm: float
    rest: float
    error: float


class _Bounds(NamedTuple):
    """Of the rows of a projection: the norms of the matrix, bounds of the errors, and those of the norms of the low parts of sums."""

    rows: Floats
    error: Floats
    low: Floats


def _bounds(sizes: Sizes, terms: int, vectors: _Vectors, is_wide: bool) -> _Bounds:
    """Bounds by Cauchy and Schwarz, row by row.

    What is not exact is the lower part of the row times the vectors, the row times the rest, and what additions of exact sums lost; they
    are added up in one chain. Without pieces (not `is_wide`) the whole sum is such a chain.
    """
    size = _from_above(sizes.rows, terms)
    added = 2 * (-(-terms // CHUNK)) + 2 * sizes.splits
    tiny = terms * COLUMNS * TINY
    if not is_wide:
        low = UNIT * sizes.splits * vectors.norm * size
        return _Bounds(size, (gamma(terms + added + 8) * vectors.norm + vectors.error) * size + tiny, low)
    low = (vectors.norm + vectors.rest) * _from_above(sizes.tails, terms) + (vectors.rest + added * UNIT * vectors.norm) * size
    return _Bounds(size, gamma(2 * terms + 2 * added + 8) * low + vectors.error * size + tiny, 2 * low)


def _from_above(squares: Floats | float, terms: int) -> Floats:
    """Norms of squares, with what underflow in these, and rounding, may have lost."""
    found: Floats = np.sqrt(squares + 2 * terms * TINY) * (1 + gamma(terms + 8))
    return found
