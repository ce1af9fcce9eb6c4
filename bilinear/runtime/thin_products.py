"""Matrices times a few vectors in more than double precision, panel by panel, with a bound of every rounding error (docs/checking.md)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import ModuleType

from bilinear.analysis.accuracy import BITS
from bilinear.ir.matrix import Array, Dtype

UNIT = 2.0**-53
"""The unit roundoff of float64, in which everything here is computed."""
TINY = 2.0**-1022
"""What underflow changes in one operation, at most."""
PIECE_BITS, PIECES = 12, 2
"""Vectors that are not small integers are cut into this many pieces, of this many bits each, and a rest."""
PANEL_BYTES = {False: 2**20, True: 2**26}
"""How much of a matrix is converted at once, on a CPU (within its cache) and on a GPU."""


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
    """A panel times vectors: `high` + `low` (..., rows, s), where the norm of row i differs from the exact one by at most `error`[..., i].

    `norm` (..., rows) are the norms of the panel's rows.
    """

    high: Array
    low: Array
    error: Array
    norm: Array


def whole_numbers(xp: ModuleType, x: Array, dtype: Dtype) -> Vectors:
    """Random vectors of `BITS` bits as `Vectors`, without an error."""
    z = xp.asarray(x).astype(dtype)
    return Vectors(z, None, z, BITS, norms(xp, norms(xp, z)), 0.0)


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
        error = gamma(terms + 4) * size * z.norm[..., None] + size * _column(z.error) + terms * count * TINY
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
    error = gamma(terms + 8) * cut_off + 16 * UNIT**2 * size * z.norm[..., None] + size * _column(z.error) + terms * count * TINY
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


def _column(error: Array) -> Array:
    return error[..., None] if hasattr(error, "ndim") else error


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
