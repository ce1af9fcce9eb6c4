"""The projections of a check by generated kernels on a GPU with matrix units for float64, and a bound of their errors."""

from __future__ import annotations

from functools import lru_cache

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
    wide = problem.is_wide
    error_y, _ = _errors(found.b, n, size_x, 0.0, 0.0, wide)
    size_y = _one_from_above(found.y, k * COLUMNS)
    rest = _one_from_above(found.rest, k * COLUMNS) if wide else 0.0
    of_y = float(np.linalg.norm(error_y)) + UNIT * (rest if wide else size_y)
    parts: list[tuple[float, Sizes, float, tuple[Floats, Floats]]] = [
        (1.0, found.c, size_x, _errors(found.c, n, size_x, 0.0, 0.0, wide)),
        (abs(alpha), found.a, size_y, _errors(found.a, k, size_y, rest, of_y, wide)),
    ]
    if found.before is not None:
        parts.append((abs(beta), found.before, size_x, _errors(found.before, n, size_x, 0.0, 0.0, wide)))
    error = 4 * UNIT * found.residual + 16 * COLUMNS * TINY
    for factor, sizes, norm, (own, low) in parts:
        error = error + factor * own + 8 * UNIT * (factor * low + 2 * UNIT * factor * _from_above(sizes.rows, n + k) * norm)
    size_a, size_b, size_before = (_norm(x, n + k) for x in (found.a, found.b, found.before))
    scale = abs(alpha) * size_a * size_b + abs(beta) * size_before
    return Residuals(found.residual + (2 * COLUMNS * TINY) ** 0.5, error, scale, longest_x)


def _errors(sizes: Sizes, terms: int, norm: float, rest: float, of_vectors: float, is_wide: bool) -> tuple[Floats, Floats]:
    """Bounds of the errors of the projected rows of a matrix, and of the norms of the low parts of their sums.

    The vectors are of this Frobenius norm, with a rest, and are off by `of_vectors`. By Cauchy and Schwarz, row by row: what is not exact
    is the lower part of the row times the vectors, the row times the rest, and what additions of exact sums lost; they are added up in
    one chain. Without pieces (not `is_wide`) the whole sum is such a chain.
    """
    size, tail = _from_above(sizes.rows, terms), _from_above(sizes.tails, terms)
    added = 2 * (-(-terms // CHUNK)) + 2 * sizes.splits
    known = size * of_vectors + terms * COLUMNS * TINY
    if not is_wide:
        return gamma(terms + added + 8) * size * norm + known, UNIT * sizes.splits * size * norm
    low = tail * norm + (size + tail) * rest + added * UNIT * size * norm
    return gamma(2 * terms + 2 * added + 8) * low + known, 2 * low


def _from_above(norms: Floats, terms: int) -> Floats:
    """Norms with what underflow in their squares, and rounding, may have lost."""
    found: Floats = np.sqrt(np.square(norms) + 2 * terms * TINY) * (1 + gamma(terms + 8))
    return found


def _one_from_above(norm: float, terms: int) -> float:
    return float(_from_above(np.array([norm]), terms)[0])


def _norm(sizes: Sizes | None, terms: int) -> float:
    return 0.0 if sizes is None else float(np.linalg.norm(_from_above(sizes.rows, terms)))
