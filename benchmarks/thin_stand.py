"""Time thin products on the current GPU: the library's calls on a grid of extents, and tiles of our own kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from bilinear.backends.cublas import multiply_of
from bilinear.backends.thin import thin_multiply_of
from bilinear.ir.matrix import Layout
from bilinear.measure.timing import milliseconds
from bilinear.planner.plan import CUBLAS, CUBLASLT, Thin
from bilinear.planner.thin_rates import EXTENTS, ORDERS, SHORT

MOST_ELEMENTS = 2**29
"""The largest matrix of the grid; memory for three of them is taken."""
ROUNDS, LEAST_US = 3, 120.0
"""The median of so many rounds counts; each takes at least so many microseconds, or 20 calls."""


class Shape(NamedTuple):
    """The extents of a product with a column-major result."""

    m: int
    n: int
    k: int


def grid() -> Iterator[Shape | None]:
    """The shapes of the grid; None in place of those that are not timed, because they are not thin, or a matrix is too large."""
    for shape in map(Shape._make, product(EXTENTS, repeat=3)):
        m, n, k = shape
        is_timed = min(shape) <= SHORT and max(m * k, k * n, m * n) <= MOST_ELEMENTS
        yield shape if is_timed else None


def layouts(shape: Shape, order: str, dtype: Any) -> tuple[Layout, Layout, Layout]:
    """A, B and C without gaps."""
    m, n, k = shape
    return _layout((m, k), order[0] == "T", dtype), _layout((k, n), order[1] == "T", dtype), _layout((m, n), False, dtype)


def _layout(shape: tuple[int, int], by_rows: bool, dtype: Any) -> Layout:
    size = dtype.itemsize
    return Layout(shape, (shape[1] * size, size) if by_rows else (size, shape[0] * size), dtype)


class Stand:
    """Memory for the operands of every shape of the grid, filled with random numbers, and a clock."""

    def __init__(self, dtype: Any) -> None:
        import cupy

        self.dtype = np.dtype(dtype)
        self._memory = [cupy.random.standard_normal(MOST_ELEMENTS, dtype=self.dtype) for _ in range(3)]
        self.addresses = [x.data.ptr for x in self._memory]

    def microseconds(self, call: Callable[[], None]) -> float:
        """The median time of a call among calls in a row."""
        call()
        in_a_row = max(1, min(20, round(LEAST_US / max(1e3 * milliseconds(call), 1.0))))
        return median(1e3 * milliseconds(call, in_a_row) for _ in range(ROUNDS))

    def library(self, shape: Shape, order: str, name: str) -> float | None:
        """Microseconds of cuBLAS or cublasLt; None if it cannot run."""
        multiply = multiply_of(*layouts(shape, order, self.dtype), name)
        if multiply is None:
            return None
        a, b, c = self.addresses
        return self.microseconds(lambda: multiply(a, b, c, 1, 0))

    def thin(self, shape: Shape, order: str, thin: Thin) -> float | None:
        """Microseconds of a thin product; None if it cannot run."""
        multiply = thin_multiply_of(*layouts(shape, order, self.dtype), thin)
        if multiply is None:
            return None
        a, b, c = self.addresses
        return self.microseconds(lambda: multiply(a, b, c, 1, 0))


def library_times(dtype: Any, progress: Callable[[str, int, int], None]) -> dict[str, dict[str, list[float | None]]]:
    """Microseconds of cuBLAS and of cublasLt by order, for the shapes of the grid in order."""
    stand, shapes = Stand(dtype), list(grid())
    found: dict[str, dict[str, list[float | None]]] = {}
    for number, order in enumerate(ORDERS):
        found[order] = {CUBLAS: [], CUBLASLT: []}
        for i, shape in enumerate(shapes):
            progress(f"the library's {stand.dtype} products", number * len(shapes) + i, len(ORDERS) * len(shapes))
            for name, times in found[order].items():
                us = None if shape is None else stand.library(shape, order, name)
                times.append(None if us is None else float(f"{us:.4g}"))
    return found
