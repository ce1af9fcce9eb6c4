"""The projections (C - alpha*A*B - beta*C0) X of a check, row by row: of floats with bounds of every rounding error (docs/checking.md), of
integers exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import sqrt
from operator import attrgetter
from types import ModuleType

import numpy as np

from bilinear.analysis.accuracy import BITS
from bilinear.backends.machine import has_digit_units
from bilinear.backends.projections import Projected, Squares, in_fragments, projected
from bilinear.ir.matrix import Array, Dtype
from bilinear.ir.projection_kernel import CHUNK, COLUMNS

UNIT = 2.0**-53  # The unit roundoff of float64, in which everything here is computed.
TINY = 2.0**-1022  # What underflow changes in one operation, at most.
PIECE_BITS, PIECES = 12, 2  # Vectors of other than small integers are cut into so many pieces, and a rest.
PANEL_BYTES = {False: 2**20, True: 2**26}  # How much of a matrix is converted at once, on a CPU and a GPU.


@dataclass(frozen=True)
class Vectors:
    """Vectors as columns Z (..., k, s), or a batch of them, as the sum of pieces of a few bits and a rest.

    `pieces` (..., k, q s) are q of them side by side, each of `bits` bits above a unit of its column; `rest` is None if it is 0. `whole`
    is the rounded sum, `norm` (...) bounds its Frobenius norm, and `error` that of its difference from the vectors that are meant.
    """

    pieces: Array
    rest: Array | None
    whole: Array
    bits: int
    norm: Array
    error: Array


@dataclass(frozen=True)
class PanelProduct:
    """A panel times vectors: `high` + `low` (..., rows, s), row norms off by at most `error`, and the panel's own `norm`."""

    high: Array
    low: Array
    error: Array
    norm: Array


def cut(xp: ModuleType, product: PanelProduct) -> Vectors:
    """The result of a product, cut into pieces, so that the high part of another product with it is exact."""
    remains, pieces = product.high, []
    for _ in range(PIECES):
        piece, remains = _split(xp, remains, PIECE_BITS, -2)
        pieces.append(piece)
    rest = remains + product.low
    norm, error = norms(xp, norms(xp, product.high + product.low)), norms(xp, product.error)
    error = error + UNIT * norms(xp, norms(xp, rest))
    return Vectors(xp.concatenate(pieces, axis=-1), rest, product.high + product.low, PIECE_BITS, norm, error)


def joined(xp: ModuleType, products: list[PanelProduct]) -> PanelProduct:
    """Panels of one product below each other."""
    parts = zip(*((p.high, p.low, p.error, p.norm) for p in products), strict=True)
    high, low, error, norm = (xp.concatenate(list(part), axis=axis) for part, axis in zip(parts, (-2, -2, -1, -1), strict=True))
    return PanelProduct(high, low, error, norm)


def times(xp: ModuleType, panel: Array, z: Vectors, is_wide: bool) -> PanelProduct:
    """A panel (..., rows, k) of floats or complex numbers times vectors.

    If `is_wide`, the panel is cut in two, so that all products of its high part with the pieces are exact; otherwise its elements have so
    few bits that an error of the order of k units of float64 does not matter.
    """
    k, count = panel.shape[-1], z.whole.shape[-1]
    terms = k * (2 if panel.dtype.kind == "c" else 1)
    size = norms(xp, panel)
    if not is_wide:
        high = xp.matmul(panel, z.whole)
        error = gamma(terms + 4) * size * z.norm[..., None] + size * z.error[..., None] + terms * count * TINY
        return PanelProduct(high, high * 0, error, size)
    bits = max(4, 52 - z.bits - max(0, (terms - 1).bit_length()))
    upper, lower = _split(xp, panel, bits, -1)
    columns = z.pieces if z.rest is None else xp.concatenate([z.pieces, z.rest], axis=-1)
    parts = xp.matmul(upper, columns)
    high, low = parts[..., :count], xp.matmul(lower, z.whole)
    for start in range(count, columns.shape[-1], count):
        part = parts[..., start : start + count]
        if start < z.pieces.shape[-1]:
            high, part = _exact_sum(high, part)
        low = low + part
    cut_off = norms(xp, lower) * z.norm[..., None]
    if z.rest is not None:
        cut_off = cut_off + (size + norms(xp, lower)) * norms(xp, norms(xp, z.rest))[..., None]
    error = gamma(terms + 8) * cut_off + 16 * UNIT**2 * size * z.norm[..., None] + size * z.error[..., None] + terms * count * TINY
    return PanelProduct(high, low, error, size)


def subtract(xp: ModuleType, minuend: PanelProduct, factor: Array, product: PanelProduct) -> PanelProduct:
    """minuend - factor * product."""
    scaled = product.high if factor == 1 else factor * product.high
    size, high, low = abs(factor), minuend.high - scaled, minuend.low - factor * product.low
    error = minuend.error + size * product.error + UNIT * norms(xp, high) + 8 * UNIT * (norms(xp, low) + size * norms(xp, product.low))
    return replace(minuend, high=high, low=low, error=error if factor == 1 else error + 4 * UNIT * norms(xp, scaled))


def norms(xp: ModuleType, x: Array) -> Array:
    """The 2-norms of the last axis, from above where squares underflow."""
    squares = sum(xp.einsum("...i,...i->...", part, part) for part in ((x.real, x.imag) if x.dtype.kind == "c" else (x,)))
    return xp.sqrt(squares + 2 * x.shape[-1] * TINY)


def gamma(roundings: int) -> float:
    """n u / (1 - n u), the relative error of n roundings."""
    return roundings * UNIT / (1 - roundings * UNIT)


def _split(xp: ModuleType, x: Array, bits: int, axis: int) -> tuple[Array, Array]:
    """x = upper + lower, exactly: `upper` has `bits` bits above a unit that is common along the axis, and |lower| <= 2^-bits max|x|.

    Adding a number 2^(53 - bits) times as large rounds to the unit, and subtracting it is exact (Dekker 1971; Rump, Ogita, Oishi 2008).
    """
    if x.size == 0:
        return x, x
    if x.dtype.kind == "c":
        largest = xp.maximum(abs(x.real).max(axis=axis, keepdims=True), abs(x.imag).max(axis=axis, keepdims=True)) * (1 + 1j)
    else:
        largest = xp.maximum(x.max(axis=axis, keepdims=True), -x.min(axis=axis, keepdims=True))
    shift = largest * 2.0 ** (53 - bits)
    upper = x + shift
    upper -= shift
    return upper, x - upper


def _exact_sum(x: Array, y: Array) -> tuple[Array, Array]:
    """The rounded sum and what was lost (D. E. Knuth's TwoSum)."""
    total = x + y
    back = total - x
    return total, (x - (total - back)) + (y - back)


@dataclass(frozen=True)
class CheckedProduct:
    """What is checked: C (*batch, m, n) against alpha*A*B + beta*C0 (`before`), by `count` vectors; A and B broadcast."""

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
    z = xp.asarray(entries).astype(problem.dtype)
    size = norms(xp, norms(xp, z))
    x = Vectors(z, None, z, BITS, size, size * 0)
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
            if narrow.kind == "i":  # an unsigned C holds what is below 0 wrapped around
                rest = rest.astype(f"i{rest.dtype.itemsize}")
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


MOST_KEPT = 8  # Sets of random vectors that are kept on GPUs, each of a megabyte for 8192 columns.


def residuals_on_gpu(problem: CheckedProduct) -> Residuals | None:
    """The projections of real matrices on a GPU, which are read once each; None for what takes the general way."""
    if not _suits(problem):
        return None
    alpha, beta = float(problem.alpha), float(problem.beta)
    device = int(problem.c.device.id) if hasattr(problem.c, "device") else 0
    x, size_x, longest_x = _random_vectors(problem.c.shape[-1], problem.seed, device)
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


@lru_cache(MOST_KEPT)
def _random_vectors(length: int, seed: int, device: int) -> tuple[Array, float, float]:
    """The random vectors on a device, their Frobenius norm and their 2-norm, from above: the same as everywhere for a seed."""
    import cupy

    entries = random_entries(length, COLUMNS, seed)
    return cupy.asarray(in_fragments(entries.astype(np.float64))), float(np.linalg.norm(entries.astype(np.float64))), longest_of(entries)


def _with_errors(found: Projected, problem: CheckedProduct, factors: tuple[float, float], size_x: float, longest_x: float) -> Residuals:
    """Upper bounds of norms, and bounds of errors. Those of all rows follow from sums of squares, those of one row from the largest."""
    alpha, beta = (abs(factor) for factor in factors)
    (m, k), n, wide = problem.a.shape, problem.b.shape[1], problem.is_wide
    of_x = size_x, 0.0, 0.0
    _, error_b, _ = _bounds(*found.b[:2], (k, n, found.b[2]), of_x, wide)
    size_y = _from_above(found.y, k * COLUMNS)
    rest = _from_above(found.rest, k * COLUMNS) if wide else 0.0
    of_y = size_y, rest, error_b + UNIT * (rest if wide else size_y)
    parts = [(1.0, found.c, n, of_x), (alpha, found.a, k, of_y)]
    if found.before is not None:
        parts.append((beta, found.before, n, of_x))

    def bounded(rows: int, take: Callable[[Squares], float]) -> tuple[float, float]:
        """Of some rows: the norm of the projections, and a bound of that of their errors."""
        norm = sqrt(take(found.residual) + 2 * COLUMNS * rows * TINY)
        error = 4 * UNIT * norm + 16 * COLUMNS * rows * TINY
        for factor, own, terms, vectors in parts:
            size, error_of_part, low = _bounds(take(own.rows), take(own.tails), (rows, terms, own.splits), vectors, wide)
            error += factor * (error_of_part + 8 * UNIT * low + 16 * UNIT * UNIT * vectors[0] * size)
        return norm, error

    norm, error = bounded(m, attrgetter("total"))
    most, error_of_one = bounded(1, attrgetter("most"))
    scale = alpha * sqrt(found.a.rows.total) * sqrt(found.b[0])
    if found.before is not None:
        scale += beta * sqrt(found.before.rows.total)
    return Residuals(m, norm, error, most + error_of_one, found.worst, scale, longest_x)


def _bounds(
    squares: float, tails: float, order: tuple[int, int, int], vectors: tuple[float, float, float], is_wide: bool
) -> tuple[float, float, float]:
    """Bound a projection by the squared norms of its rows and of their lower parts: the norm of the matrix, and bounds of the error and of
    the norm of the sums' low parts.

    `order` has its rows, the terms of each, and the parts in which they are added up; `vectors` their Frobenius norm, that of their rest,
    and a bound of their error.
    Each row is bounded by the inequality of Cauchy and Schwarz, several together by the triangle inequality. Three things are rounded: the
    lower part of a row times the vectors, the row times the rest of the vectors, and the additions of exact sums. One chain of additions
    sums them up. Without pieces (not `is_wide`) the whole sum is one such chain.
    """
    (rows, terms, splits), (norm, rest, error) = order, vectors
    elements = terms * rows
    size = _from_above(squares, elements)
    added = 2 * (-(-terms // CHUNK)) + 2 * splits
    tiny = elements * COLUMNS * TINY
    if not is_wide:
        return size, (gamma(terms + added + 8) * norm + error) * size + tiny, UNIT * splits * norm * size
    low = (norm + rest) * _from_above(tails, elements) + (rest + added * UNIT * norm) * size
    return size, gamma(2 * terms + 2 * added + 8) * low + error * size + tiny, 2 * low


def _from_above(squares: float, terms: int) -> float:
    """The norm of squares, with what underflow in these, and rounding, may have lost."""
    return sqrt(squares + 2 * terms * TINY) * (1 + gamma(terms + 8))
