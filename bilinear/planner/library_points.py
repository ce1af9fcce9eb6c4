"""The library's calls on thin products: times that were measured on drawn shapes, and which call is fastest between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, log2, prod
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # which imports NumPy
    from bilinear.ir.matrix import Array

CUBLAS, CUBLASLT = "cublas", "cublaslt"  # The names of the calls.
ORDERS = ("NN", "NT", "TN", "TT")  # Whether BLAS takes the operands, C by columns, as they lie or transposed.
NEAREST, NEAR = 8, 0.05  # So many points decide the faster call, of weight 1 / (distance + `NEAR`).
FITTED, FLAT = 30, 0.3  # A plane over logarithms of extents fits so many points; `FLAT` keeps its slopes low.
ANOTHER_ORDER, ANOTHER_ALIGNMENT, ANOTHER_KERNEL, UNKNOWN_KERNEL = 3.0, 0.7, 4.0, 1.0
"""What is added to the distance if the orders differ in one operand or in both, for lines that are multiples of 16 bytes in one shape only,
and for another kernel or an unknown one. `benchmarks/fit_library_points.py` prints what choices by these values lose."""
BRIEF, ANOTHER_ORDER_IF_BRIEF = 2**22, 8.0  # A product of fewer multiply-adds is brief: its order matters.
MOST_APART = 1.0  # The most by which a call counts as slower, as a logarithm: no point outweighs others.
UNKNOWN = "unknown"  # The kernel of a point for which cublasLt was not asked.
Kernels = tuple[str, str]
"""The kernels that cublasLt proposes with a small workspace, which its call runs, and with a large one, which cuBLAS mostly runs."""
Shape = tuple[int, int, int]  # m, n and k of a product with a result by columns.


class Measured(NamedTuple):
    """A product with a result by columns, the kernels that cublasLt proposes, and microseconds of both calls."""

    shape: Shape
    order: str
    kernels: Kernels
    cublas: float
    cublaslt: float


@dataclass(frozen=True)
class LibraryPoints:
    """Measured points, column by column: m, n, k, the number of the order, the numbers of both kernels, and the times of both calls.

    A time is a multiple of the least that the device could take (`ThinRates.least_us`), so it means something on a device that is faster or
    slower. The distance of two shapes is the sum of the squares of the base-2 logarithms of the ratios of their extents.
    """

    kernels: tuple[str, ...]
    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]
    order: tuple[int, ...]
    small: tuple[int, ...]
    large: tuple[int, ...]
    cublas: tuple[float, ...]
    cublaslt: tuple[float, ...]

    def __hash__(self) -> int:
        """By the length, as of `Device`."""
        return hash(len(self.m))

    def times(self, order: str, shape: Shape, lanes: int, kernels: Kernels | None = None) -> dict[str, float]:
        """How many times as long as the device's least each call is likely to take; `lanes` are the elements in 16 bytes.

        With the `kernels` that cublasLt proposes the errors are half as large. No estimate lies outside of the times it is made from.
        """
        import numpy as np

        near, weights = self._near(order, shape, lanes, kernels, FITTED)
        own = self._columns
        offsets = np.stack([np.ones(len(near)), *(column[near] - log2(extent) for column, extent in zip(own.extents, shape, strict=True))])
        logs = np.stack([column[near] for column in own.logs], axis=1)
        weighted = offsets * weights
        plane = np.linalg.solve(weighted @ offsets.T + np.diag([0.0, *[FLAT / len(near)] * 3]), weighted @ logs)
        return dict(zip((CUBLAS, CUBLASLT), np.exp(plane[0].clip(logs.min(0), logs.max(0))).tolist(), strict=True))

    def faster(self, order: str, shape: Shape, lanes: int, kernels: Kernels | None) -> str | None:
        """The call that is likely to be faster, of a product for which cublasLt proposes these kernels.

        Points with the same time for both calls do not count: a description gives one time to both where it knows only the shorter. None
        if no others are known.
        """
        apart = self._columns.apart
        if not apart.any():
            return None
        near, weights = self._near(order, shape, lanes, kernels, NEAREST, apart != 0)
        return CUBLASLT if weights @ apart[near] < 0 else CUBLAS

    def _near(
        self, order: str, shape: Shape, lanes: int, kernels: Kernels | None, count: int, of: Array | None = None
    ) -> tuple[Array, Array]:
        """The `count` nearest points, `of` those that are True, and their weights, which add up to 1."""
        import numpy as np

        own = self._columns
        distances = sum((column - log2(extent)) ** 2 for column, extent in zip(own.extents, shape, strict=True))
        another = ANOTHER_ORDER_IF_BRIEF if prod(shape) < BRIEF else ANOTHER_ORDER
        distances = distances + another * (own.order != ORDERS.index(order))
        m, n, k = shape
        for column, line in zip(own.lines, (k if order[0] == "T" else m, n if order[1] == "T" else k, m), strict=True):
            distances = distances + ANOTHER_ALIGNMENT * ((column % lanes == 0) != (line % lanes == 0))
        unknown = self.kernels.index(UNKNOWN) if UNKNOWN in self.kernels else -1
        for column, kernel in zip(own.proposed, kernels or (), strict=False):
            wanted = self.kernels.index(kernel) if kernel in self.kernels else -2
            distances = distances + np.where(column == unknown, UNKNOWN_KERNEL, ANOTHER_KERNEL * (column != wanted))
        if of is not None:
            distances[~of] = inf
        near = distances.argsort(kind="stable")[: count if of is None else min(count, int(of.sum()))]
        weights = 1 / (distances[near] + NEAR)
        return near, weights / weights.sum()

    @cached_property
    def _columns(self) -> _Columns:
        import numpy as np  # imported here: to list what is shipped takes no NumPy

        m, n, k, order = (np.array(column) for column in (self.m, self.n, self.k, self.order))
        lines = np.where(np.isin(order, (2, 3)), k, m), np.where(np.isin(order, (1, 3)), n, k), m
        proposed = np.array(self.small), np.array(self.large)
        logs = np.log(self.cublas), np.log(self.cublaslt)
        apart = (logs[1] - logs[0]).clip(-MOST_APART, MOST_APART)
        return _Columns((np.log2(m), np.log2(n), np.log2(k)), order, lines, proposed, logs, apart)


class _Columns(NamedTuple):
    """The points as arrays: logarithms of m, n and k, numbers of orders, the lengths of the lines of A, B and C, the numbers of the
    kernels, logarithms of the times, and by how much cublasLt is slower."""

    extents: tuple[Array, ...]
    order: Array
    lines: tuple[Array, ...]
    proposed: tuple[Array, ...]
    logs: tuple[Array, ...]
    apart: Array


def library_points(measured: Sequence[Measured], least_us: Callable[[Shape], float]) -> LibraryPoints:
    """What was measured, as multiples of the least that the device could take."""
    kernels = tuple(sorted({kernel for one in measured for kernel in one.kernels}))
    numbers = {kernel: number for number, kernel in enumerate(kernels)}
    least = [least_us(one.shape) for one in measured]
    m, n, k = zip(*(one.shape for one in measured), strict=True)
    small, large = zip(*((numbers[kernel] for kernel in one.kernels) for one in measured), strict=True)
    cublas, cublaslt = (
        tuple(float(f"{us / us0:.3g}") for us, us0 in zip(times, least, strict=True))
        for times in ([one.cublas for one in measured], [one.cublaslt for one in measured])
    )
    return LibraryPoints(kernels, m, n, k, tuple(ORDERS.index(one.order) for one in measured), small, large, cublas, cublaslt)
