"""Projections of A, B and C on a GPU for a check of their product: one launch a matrix, two for the rest (docs/checking.md)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import NamedTuple

import numpy as np

from bilinear.backends.bound_launches import CELL, Bound, Place, Values
from bilinear.backends.cuda_executor import CudaExecutor, launch_kernel
from bilinear.backends.loaded_kernels import built_function
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
    CheckKernel,
    ProjectionKernel,
    ResidualKernel,
    VectorsKernel,
)

ROWS_OF_A_BLOCK = ProjectionKernel.threads[0] // 32 * ROWS_OF_A_WARP
MOST_SPLITS = 16
A, B, C, D, X, SCRATCH = range(6)
"""The bases: A, B, C, C0, the random vectors, and memory for what lies between."""
Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


class Sizes(NamedTuple):
    """The squared norms of the rows of a matrix, and of their lower parts, as they were added up; and how many parts each sum has."""

    rows: Floats
    tails: Floats
    splits: int


class Projected(NamedTuple):
    """The squared norms of the rows of (C X - alpha A Y - beta C0 X) with Y = B X, the sizes of the matrices, and Y's and its rest's."""

    residual: Floats
    a: Sizes
    b: Sizes
    c: Sizes
    before: Sizes | None
    y: float
    rest: float


@dataclass(frozen=True)
class _Plan:
    """The launches, the bytes of the memory between them, and where what is read lies in it: `found`, `sizes` and `norms`, in doubles."""

    bound: Bound
    doubles: int
    found: int
    sizes: int
    norms: int
    splits: dict[int, int]


def in_fragments(vectors: Floats) -> Floats:
    """Vectors (k, `COLUMNS`) in the order in which lanes read them, with zeros up to a whole chunk: they are their only piece."""
    k = -(-len(vectors) // CHUNK) * CHUNK
    whole = np.zeros((k, COLUMNS))
    whole[: len(vectors)] = vectors
    return np.ascontiguousarray(whole.reshape(k // 8, 2, 4, COLUMNS // 8, 8).transpose(0, 3, 4, 2, 1)).ravel()


def projected(a: Array, b: Array, c: Array, before: Array, x: Array, alpha: float, beta: float, is_wide: bool) -> Projected:
    """What is left of C on the current device: a wait for it is in this call. `x` are `in_fragments` of the random vectors, on the device.

    The matrices are of float32 or float64, `before` may be None. They are read once each. Raises what CuPy raises for want of memory.
    """
    import cupy

    device = cupy.cuda.Device()
    layouts = tuple(None if m is None else layout_of(m) for m in (a, b, c, before))
    plan = _plan(layouts, is_wide, device.attributes["MultiProcessorCount"], device.id)
    scratch = cupy.empty(plan.doubles, "float64")
    pointers = [0 if m is None else m.data.ptr for m in (a, b, c, before)]
    with plan.bound.ready((*pointers, x.data.ptr, scratch.data.ptr), alpha, beta, CudaExecutor().stream()) as steps:
        for step in steps:
            step()
    return _read(plan, scratch[plan.found :].get(), *(a.shape[0], b.shape[0]), before is not None)


def _read(plan: _Plan, host: Floats, m: int, k: int, has_before: bool) -> Projected:
    """What the last launches wrote."""
    width = 7 if has_before else 5
    at = plan.sizes - plan.found
    rows = np.ascontiguousarray(host[: m * width].reshape(m, width).T)
    own = np.ascontiguousarray(host[at : at + 2 * k].reshape(k, 2).T)
    y, rest = host[plan.norms - plan.found :].reshape(-1, 2).sum(0)
    sizes = [Sizes(rows[1 + 2 * i], rows[2 + 2 * i], plan.splits[x]) for i, x in enumerate((C, A, D)) if x in plan.splits]
    return Projected(rows[0], sizes[1], Sizes(own[0], own[1], plan.splits[B]), sizes[0], sizes[2] if has_before else None, y, rest)


def splits_for(rows: int, columns: int, processors: int) -> int:
    """Into how many parts the sums of a projection are cut, so that all multiprocessors have as much to do."""
    blocks, slots = ceil(rows / (ROWS_OF_A_BLOCK)), BLOCKS_AT_ONCE * processors
    most = min(MOST_SPLITS, ceil(columns / CHUNK))
    return min(range(1, most + 1), key=lambda n: (ceil(blocks * n / slots) / n * (1 + n / 64), n))


@lru_cache(64)
def _plan(layouts: tuple[Layout | None, ...], is_wide: bool, processors: int, device: int) -> _Plan:
    """The launches for matrices of these layouts, on the current device."""
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
    found = take(m * (5 if before is None else 7))
    sizes, norms = take(2 * k), take(chunks * COLUMNS * 2)

    def project(x: int) -> tuple[CheckKernel, int, int, Values]:
        layout, from_y = given[x], x == A
        element = ELEMENTS[layout.dtype.name]
        kernel = ProjectionKernel(
            f"projection_{element.cuda}_{_how(is_wide)}{'_of_sums' if from_y and is_wide else ''}", element, is_wide, from_y and is_wide
        )
        rs, cs = (stride // layout.itemsize for stride in layout.strides)
        rows, columns = layout.shape
        values: Values = {
            "X": Place(x, 0, tuple(layout.strides), layout.itemsize),
            "X_rs": rs,
            "X_cs": cs,
            "rows": rows,
            "columns": columns,
        }
        values |= {"Z": _at(table) if from_y else Place(X, 0, (0, 0), CELL), "parts": _at(parts[x])}
        return kernel, ceil(rows / (ROWS_OF_A_BLOCK)), splits[x], values | {"each": ceil(ceil(columns / CHUNK) / splits[x])}

    def launches() -> Iterator[tuple[CheckKernel, int, int, Values]]:
        yield project(B)
        between: Values = {
            "parts": _at(parts[B]),
            "splits": splits[B],
            "rows": k,
            "Z": _at(table),
            "sizes": _at(sizes),
            "norms": _at(norms),
        }
        yield vectors, chunks, 1, between
        yield from (project(x) for x in given if x != B)
        last: Values = {f"{'ABCD'[x]}_{what}": v for x in given for what, v in (("parts", _at(parts[x])), ("splits", splits[x]))}
        kernel = ResidualKernel(f"projected_rows{'' if before is None else '_with_c'}", before is not None)
        yield kernel, ceil(m * COLUMNS / kernel.threads[0]), 1, last | {"rows": m, "found": _at(found), "alpha": "alpha", "beta": "beta"}

    bound = [
        (PlainLaunch(kernel, Grid(((Cover("blocks", 1),),), y)), built_function(kernel, device), values | {"blocks": blocks})
        for kernel, blocks, y, values in launches()
    ]
    return _Plan(Bound(FLOAT64, bound, launch_kernel()), end, found, sizes, norms, splits)


def _how(is_wide: bool) -> str:
    return "wide" if is_wide else "plain"


def _at(doubles: int) -> Place:
    """A place in the memory between the launches."""
    return Place(SCRATCH, doubles * CELL, (0, 0), CELL)
