"""The projections (C - alpha*A*B - beta*C0) X, row by row, of floats with their errors, and of integers exactly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from bilinear.analysis.accuracy import BITS
from bilinear.ir.matrix import Array, Dtype
from bilinear.runtime.thin_products import (
    PANEL_BYTES,
    UNIT,
    Vectors,
    cut,
    joined,
    norms,
    subtract,
    times,
    whole_numbers,
)


@dataclass(frozen=True)
class CheckedProduct:
    """What is checked: C (*batch, m, n) against alpha*A*B + beta*C0, in the working type, with `count` vectors from a seed.

    The leading axes of A and B broadcast to `batch`; `before` is C0, or None.
    """

    xp: ModuleType
    on_gpu: bool
    a: Array
    b: Array
    c: Array
    before: Array
    alpha: Array
    beta: Array
    dtype: Dtype
    batch: tuple[int, ...]
    count: int
    seed: int

    @property
    def arrays(self) -> tuple[Array, Array, Array, Array]:
        """A, B, C and C0."""
        return self.a, self.b, self.c, self.before

    @property
    def is_wide(self) -> bool:
        """Whether an array is of double precision, so that the check needs more."""
        return any(x is not None and x.dtype.itemsize >= 8 * (1 + (x.dtype.kind == "c")) and x.dtype.kind in "fc" for x in self.arrays)


@dataclass(frozen=True)
class Residuals:
    """The projected rows: their number, the norm of all, a bound of the norm of their errors, and the largest norm with its error.

    `worst` is the number of the row with the largest norm, in the order of C's rows; `longest` is the 2-norm of X, from above.
    """

    rows: int
    norm: float
    error: float
    most: float
    worst: int
    scale: float
    longest: float


def residuals_of_floats(problem: CheckedProduct) -> Residuals:
    """The projections of floats or complex numbers."""
    residual, error, scale, longest = rows_of_floats(problem)
    norm, size = float(np.linalg.norm(residual)), float(np.linalg.norm(error))
    return Residuals(residual.size, norm, size, float((residual + error).max(initial=0.0)), largest_in(residual), scale, longest)


def rows_of_floats(problem: CheckedProduct) -> tuple[Array, Array, float, float]:
    """The norms of the projected rows and of their errors, in the order of C's rows; the scale; the 2-norm of X, from above."""
    xp, entries = problem.xp, random_entries(problem.c.shape[-1], problem.count, problem.seed)
    x = whole_numbers(xp, entries, problem.dtype)
    found, scale = [(np.empty(0), np.empty(0))], 0.0
    shared = _vectors_of_b(problem, problem.b[None], x) if problem.b.ndim == 2 else None
    for a, b, c, before in _groups(problem):
        y, size_b = shared or _vectors_of_b(problem, b, x)
        parts = [_projected(problem, rows, y, x) for rows in _panels(problem, a, c, before)]
        residual, error, size_a, size_before = (_host(xp.concatenate(of, axis=-1)) for of in zip(*parts, strict=True))
        found.append((residual.ravel(), error.ravel()))
        sizes = np.linalg.norm(size_a, axis=-1) * _host(size_b) + np.linalg.norm(size_before, axis=-1)
        scale += float((sizes**2).sum())
    residual, error = (np.concatenate(of) for of in zip(*found, strict=True))
    return residual, error, scale**0.5, longest_of(entries)


def residuals_exactly(problem: CheckedProduct) -> Array:
    """Which rows of C X, with integers modulo 2^w, are not those of (alpha*A*B + beta*C0) X."""
    xp, dtype, bits = problem.xp, problem.dtype, 8 * problem.dtype.itemsize
    alpha, beta = (xp.asarray(factor).astype(dtype) for factor in (problem.alpha, problem.beta))
    generator = np.random.default_rng(problem.seed)
    entries = generator.integers(0, 2**bits, (problem.c.shape[-1], problem.count), np.dtype(f"u{dtype.itemsize}"), endpoint=False)
    x, wrong = xp.asarray(entries.astype(dtype)), [np.empty(0, bool)]
    for a, b, c, before in _groups(problem):
        y = alpha * xp.concatenate([xp.matmul(rows, x) for (rows,) in _panels(problem, b)], axis=-2)
        parts = []
        for rows_a, rows_c, rows_before in _panels(problem, a, c, before):
            left = xp.matmul(rows_c, x) - xp.matmul(rows_a, y)
            if rows_before is not None:
                left = left - beta * xp.matmul(rows_before, x)
            parts.append((left != 0).any(axis=-1))
        wrong.append(_host(xp.concatenate(parts, axis=-1)).ravel())
    return np.concatenate(wrong)


def fits(problem: CheckedProduct, narrow: Dtype) -> bool:
    """Whether a narrower type of integers holds all elements of C - beta*C0."""
    limits = np.iinfo(str(narrow))
    for _, _, c, before in _groups(problem):
        for rows, old in _panels(problem, c, before):
            rest = rows if old is None else rows - problem.beta * old
            rest = (
                rest.astype(f"i{rest.dtype.itemsize}") if narrow.kind == "i" else rest
            )  # an unsigned C holds what is below 0 wrapped around
            if rest.size and not (limits.min <= int(rest.min()) and int(rest.max()) <= limits.max):
                return False
    return True


def is_zero(problem: CheckedProduct) -> bool:
    """Whether C is zero, and each term of what it should be has a factor that is zero."""
    a, b, c, before = (x is None or not bool(x.any()) for x in problem.arrays)
    return c and (a or b or problem.alpha == 0) and (before or problem.beta == 0)


def _vectors_of_b(problem: CheckedProduct, b: Array, x: Vectors) -> tuple[Vectors, Array]:
    """B X, cut into pieces, and the norms of the matrices of B."""
    products = [times(problem.xp, rows, x, problem.is_wide) for (rows,) in _panels(problem, b)]
    product = joined(problem.xp, products)
    return cut(problem.xp, product), norms(problem.xp, product.norm)


def _projected(problem: CheckedProduct, rows: tuple[Array, ...], y: Vectors, x: Vectors) -> tuple[Array, Array, Array, Array]:
    """For some rows: the norms of their projections, the errors of these norms, and the norms of the rows of alpha*A and beta*C0."""
    (a, c, before), xp = rows, problem.xp
    found = times(xp, c, x, problem.is_wide)
    sizes = [found.norm * 0, found.norm * 0]
    for at, (factor, panel, z) in enumerate(((problem.alpha, a, y), (problem.beta, before, x))):
        if factor != 0 and panel is not None:
            product = times(xp, panel, z, problem.is_wide)
            found, sizes[at] = subtract(xp, found, factor, product), abs(factor) * product.norm
    residual = norms(xp, found.high + found.low)
    return residual, found.error + 4 * UNIT * (residual + norms(xp, found.low)), sizes[0], sizes[1]


def _groups(problem: CheckedProduct) -> Iterator[tuple[Array, ...]]:
    """The matrices of a batch as three-dimensional arrays: as many at once as fit into a panel, at least one."""
    if not problem.batch:
        yield tuple(None if x is None else x[None] for x in (problem.a, problem.b, problem.c, problem.before))
        return
    xp = problem.xp
    full = [None if x is None else xp.broadcast_to(x, (*problem.batch, *x.shape[-2:])) for x in problem.arrays]
    size = max(1, *(x.shape[-1] * x.shape[-2] for x in full if x is not None)) * problem.dtype.itemsize
    step = max(1, PANEL_BYTES[problem.on_gpu] // size)
    for index in np.ndindex(*problem.batch[:-1]):
        for start in range(0, problem.batch[-1], step):
            yield tuple(None if x is None else x[(*index, slice(start, start + step))] for x in full)


def _panels(problem: CheckedProduct, *matrices: Array) -> Iterator[tuple[Array, ...]]:
    """The same rows of several batches (g, rows, columns) at a time, in the working type; nothing is copied that has it already."""
    first = matrices[0]
    width = max(x.shape[0] * x.shape[-1] for x in matrices if x is not None) * problem.dtype.itemsize
    step = max(1, PANEL_BYTES[problem.on_gpu] // max(1, width))
    for start in range(0, max(1, first.shape[-2]), step):
        rows = slice(start, start + step)
        yield tuple(None if x is None else x[:, rows].astype(problem.dtype, copy=False) for x in matrices)


def random_entries(length: int, count: int, seed: int) -> Array:
    """The random vectors of a seed: `count` columns of odd integers between -2^BITS and 2^BITS."""
    return 2 * np.random.default_rng(seed).integers(0, 2**BITS, (length, count), np.int16) - (2**BITS - 1)


def longest_of(entries: Array) -> float:
    """The 2-norm of X, from above: it is the root of the largest eigenvalue of X^T X, whose entries are integers below 2^53."""
    whole = entries.astype(np.float64)
    return float(np.sqrt(np.linalg.eigvalsh(whole.T @ whole)[-1])) * (1 + 1e-9) if whole.size else 1.0


def largest_in(rows: Array) -> int:
    """The index of the largest entry; a NaN is larger than every number."""
    return int(np.argmax(np.where(np.isnan(rows), np.inf, rows))) if rows.size else 0


def _host(x: Array) -> Array:
    return x.get() if hasattr(x, "get") else np.asarray(x)
