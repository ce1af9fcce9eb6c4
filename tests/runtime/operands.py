"""Operands for the tests of the engine: integer-valued, in every memory layout."""

from __future__ import annotations

from typing import Any

import numpy as np

ALGORITHMS = ("naive2x2", "strassen", "winograd", "laderman", "hopcroft_kerr", "msmes")
LAYOUTS = ("C", "F", "strided", "reversed", "transposed slice", "negative columns", "unaligned")


def integers(generator: np.random.Generator, shape: tuple[int, ...], dtype: Any = np.float64, low: int = -4, high: int = 5) -> Any:
    """Random integers in low..high-1 as an array of this type."""
    return generator.integers(low, high, shape).astype(dtype)


def residues(seed: int, shape: tuple[int, ...], p: int) -> Any:
    """Numbers from 0 to p - 1 by rows, a sixth of them the largest."""
    generator = np.random.default_rng(seed)
    x = generator.integers(0, p, shape)
    x[generator.random(shape) < 1 / 6] = p - 1
    return x


def exact_modulo(a: Any, b: Any, p: int, alpha: int = 1, beta: int = 0, old: Any = 0) -> Any:
    """The product in Python's integers."""
    return (alpha * (a.astype(object) @ b.astype(object)) + beta * (old.astype(object) if beta else 0)) % p


def laid_out(array: Any, layout: str) -> Any:
    """A writable view with the values of a matrix, in this memory layout. NaN (77 for other types) lies between its elements."""
    rows, columns = array.shape
    if layout == "C":
        return array.copy()
    if layout == "F":
        return np.asfortranarray(array.copy())
    if layout == "unaligned":
        raw = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
        raw[...] = array
        return raw
    filler = np.nan if array.dtype.kind == "f" else 77
    space = np.full((2 * rows + 1, 3 * columns + 2), filler).astype(array.dtype)
    views = {
        "strided": space[: 2 * rows : 2, : 3 * columns : 3],
        "reversed": space[:rows, :columns][::-1, ::-1],
        "negative columns": space[:rows, columns - 1 :: -1] if columns else space[:rows, :0],
        "transposed slice": np.full((columns + 3, rows + 2), filler).astype(array.dtype)[1 : 1 + columns, 2 : 2 + rows].T,
    }
    view = views[layout]
    view[...] = array
    return view


def laid(x: Any, dtype: Any, by_columns: bool, padded: int = 0, apart: int = 1) -> Any:
    """A matrix in either order, its lines and its elements apart by others that are NaN (99 for integers)."""
    rows, columns = x.shape[::-1] if by_columns else x.shape
    filler = 99 if np.dtype(dtype).kind in "iu" else np.nan
    view = np.full((rows, columns * apart + padded), filler, dtype)[:, : columns * apart : apart]
    view = view.T if by_columns else view
    view[...] = x
    return view


def in_layout(x: Any, layout: str) -> Any:
    """A matrix by rows, by columns, with gaps between its rows, by every second column, or backwards; other numbers lie in the gaps."""
    m, n = x.shape
    space = np.full((max(m, n), 2 * max(m, n) + 3), 77).astype(x.dtype)
    own = space[:m, :n].copy()
    views = {"rows": own, "columns": space[:n, :m].copy().T, "gaps": space[:m, :n], "seconds": space[:m, : 2 * n : 2], "back": own[::-1]}
    view = views[layout]
    view[...] = x
    return view
