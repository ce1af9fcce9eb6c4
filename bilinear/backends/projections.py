"""Projections of A, B and C on a GPU for a check of their product: one launch a matrix, two for the rest (docs/checking.md)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import NamedTuple

import numpy as np

from bilinear.backends.bound_launches import CELL, BoundLaunches, MatrixPlace, Values
from bilinear.backends.cuda_executor import CudaExecutor, launch_kernel
from bilinear.backends.loaded_kernels import built_functions
from bilinear.ir.element import ELEMENTS, FLOAT64
from bilinear.ir.kernel import Cover, Grid
from bilinear.ir.launch import PlainLaunch
from bilinear.ir.matrix import Array, Layout, layout_of
from bilinear.ir.projection_kernel import (
    BLOCKS_AT_ONCE,
    CHUNK,
    COLUMNS,
    RECORD,
    ROWS_OF_A_WARP,
    VECTORS_RECORD,
    CheckKernel,
    ProjectionKernel,
    ResidualKernel,
    VectorsKernel,
)

ROWS_OF_A_BLOCK = ProjectionKernel.threads[0] // 32 * ROWS_OF_A_WARP
MOST_SPLITS = 16
A, B, C, D, X, SCRATCH = range(6)  # The bases: A, B, C, C0, the random vectors, memory for what lies between.
Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


class Squares(NamedTuple):
    """Squared norms of rows, as they were added up: their sum and the largest of them."""

    total: float
    most: float


class Sizes(NamedTuple):
    """The squared norms of the rows of a matrix, and of their lower parts; and how many parts each sum of a projection has."""

    rows: Squares
    tails: Squares
    splits: int


class Projected(NamedTuple):
    """The squared norms of the rows of (C X - alpha A Y - beta C0 X) with Y = B X, the row of the largest, and the sizes of the matrices.

    `b` are sums alone; `y` and `rest` are the squared norms of Y and of its rest.
    """

    residual: Squares
    worst: int
    a: Sizes
    b: tuple[float, float, int]
    c: Sizes
    before: Sizes | None
    y: float
    rest: float


@dataclass(frozen=True)
class _ProjectionPlan:
    """The launches, the doubles of the memory between them, and where in it records begin: of B X, and of the rows, of a `width`."""

    bound: BoundLaunches
    doubles: int
    vectors: int
    found: int
    width: int
    splits: dict[int, int]


def in_fragments(vectors: Floats) -> Floats:
    """Vectors (k, `COLUMNS`) in the order in which lanes read them, with zeros up to a whole chunk: they are their only piece."""
    k = -(-len(vectors) // CHUNK) * CHUNK
    whole = np.zeros((k, COLUMNS))
    whole[: len(vectors)] = vectors
    return np.ascontiguousarray(whole.reshape(k // 8, 2, 4, COLUMNS // 8, 8).transpose(0, 3, 4, 2, 1)).ravel()


def projected(a: Array, b: Array, c: Array, before: Array, x: Array, alpha: float, beta: float, is_wide: bool) -> Projected:
    """The residuals of C on the current device; the call waits for them. `x` are `in_fragments` of the random vectors, on the device.

    The matrices are of float32 or float64, `before` may be None. They are read once each. Raises CuPy's error if memory is short.
    """
    import cupy

    device = cupy.cuda.Device()
    layouts = tuple(None if m is None else layout_of(m) for m in (a, b, c, before))
    plan = _plan(layouts, is_wide, _processors(device.id), device.id)
    scratch = cupy.empty(plan.doubles, "float64")
    pointers = [0 if m is None else m.data.ptr for m in (a, b, c, before)]
    with plan.bound.ready((*pointers, x.data.ptr, scratch.data.ptr), alpha, beta, CudaExecutor().stream()) as steps:
        for step in steps:
            step()
    host = scratch[plan.vectors :].get()
    at = plan.found - plan.vectors
    size, tail, y, rest = host[:at].reshape(VECTORS_RECORD, -1).sum(1).tolist()
    records = host[at:].reshape(plan.width, -1)
    values = plan.width // 2
    totals, most = records[:values].sum(1).tolist(), records[values : 2 * values].max(1).tolist()
    squares = list(map(Squares, totals, most))
    sizes = {x: Sizes(squares[1 + 2 * i], squares[2 + 2 * i], plan.splits[x]) for i, x in enumerate((C, A, D)) if x in plan.splits}
    worst = int(records[-1, int(records[values].argmax())])  # a NaN counts as the largest
    return Projected(squares[0], worst, sizes[A], (size, tail, plan.splits[B]), sizes[C], sizes.get(D), y, rest)


@lru_cache(16)
def _processors(device: int) -> int:
    import cupy

    return int(cupy.cuda.Device(device).attributes["MultiProcessorCount"])


def splits_for(rows: int, columns: int, processors: int) -> int:
    """Into how many parts the sums of a projection are cut, so that all multiprocessors have as much to do."""
    blocks, slots = ceil(rows / (ROWS_OF_A_BLOCK)), BLOCKS_AT_ONCE * processors
    most = min(MOST_SPLITS, ceil(columns / CHUNK))
    return min(range(1, most + 1), key=lambda n: (ceil(blocks * n / slots) / n * (1 + n / 64), n))


@lru_cache(64)
def _plan(layouts: tuple[Layout | None, ...], is_wide: bool, processors: int, device: int) -> _ProjectionPlan:
    a, b, c, before = layouts
    assert a is not None and b is not None and c is not None
    (m, k), end = a.shape, 0

    def take(doubles: int) -> int:
        nonlocal end
        begin, end = end, end + -(-doubles // 2) * 2
        return begin

    given = {x: layout for x, layout in ((A, a), (B, b), (C, c), (D, before)) if layout is not None}
    splits = {x: splits_for(layout.shape[0], layout.shape[1], processors) for x, layout in given.items()}
    vectors = VectorsKernel(f"projected_vectors_{_how(is_wide)}", is_wide)
    chunks = -(-k // CHUNK)
    table = take(chunks * CHUNK * COLUMNS * vectors.pieces)
    parts = {x: take(splits[x] * layout.shape[0] * RECORD) for x, layout in given.items()}
    last = ResidualKernel(f"projected_rows{'' if before is None else '_with_c'}", before is not None)
    blocks_of_last = ceil(m / last.rows_of_a_block)
    of_vectors = take(chunks * VECTORS_RECORD)
    found, end = end, end + blocks_of_last * last.record

    def project(x: int) -> tuple[CheckKernel, int, int, Values]:
        layout, from_y = given[x], x == A
        element = ELEMENTS[layout.dtype.name]
        kernel = ProjectionKernel(
            f"projection_{element.cuda}_{_how(is_wide)}{'_of_sums' if from_y and is_wide else ''}", element, is_wide, from_y and is_wide
        )
        rs, cs = (stride // layout.itemsize for stride in layout.strides)
        rows, columns = layout.shape
        place = MatrixPlace(x, 0, tuple(layout.strides), layout.itemsize)
        values: Values = {"X": place, "X_rs": rs, "X_cs": cs, "rows": rows, "columns": columns}
        values |= {"Z": _at(table) if from_y else MatrixPlace(X, 0, (0, 0), CELL), "parts": _at(parts[x])}
        return kernel, ceil(rows / (ROWS_OF_A_BLOCK)), splits[x], values | {"each": ceil(ceil(columns / CHUNK) / splits[x])}

    def launches() -> Iterator[tuple[CheckKernel, int, int, Values]]:
        yield project(B)
        between: Values = {"parts": _at(parts[B]), "splits": splits[B], "rows": k, "Z": _at(table), "found": _at(of_vectors)}
        yield vectors, chunks, 1, between
        yield from (project(x) for x in given if x != B)
        own: Values = {f"{'ABCD'[x]}_{what}": v for x in given for what, v in (("parts", _at(parts[x])), ("splits", splits[x]))}
        yield last, blocks_of_last, 1, own | {"rows": m, "found": _at(found), "alpha": "alpha", "beta": "beta"}

    planned = list(launches())
    functions = built_functions([kernel for kernel, *_ in planned], device)
    bound = [
        (PlainLaunch(kernel, Grid(((Cover("blocks", 1),),), y)), function, values | {"blocks": blocks})
        for (kernel, blocks, y, values), function in zip(planned, functions, strict=True)
    ]
    return _ProjectionPlan(BoundLaunches(FLOAT64, bound, launch_kernel()), end, of_vectors, found, last.record, splits)


def _how(is_wide: bool) -> str:
    return "wide" if is_wide else "plain"


def _at(doubles: int) -> MatrixPlace:
    return MatrixPlace(SCRATCH, doubles * CELL, (0, 0), CELL)
