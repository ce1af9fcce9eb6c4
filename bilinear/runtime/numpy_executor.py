"""Plans on NumPy: the stages of a schedule as tiled array operations, without growing memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from bilinear.analysis.block_maps import components
from bilinear.ir.linear import Coefficient, Form
from bilinear.ir.plan import Plan
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Product, ProductStage, Stage, Target

Array = np.ndarray[Any, np.dtype[Any]]
Step = Callable[[], None]

LINEAR_TILE = 1 << 14
"""Elements of one block that a linear stage holds at a time: small enough for the second-level cache."""
PRODUCT_TILE = 1 << 20
"""Elements of a product that are held before they are added to their targets: the tile buffer of the CPU (8 MiB of doubles)."""


@dataclass
class NumpyExecutor:
    """Runs plans on 2-D NumPy arrays of any strides and any number type, objects included."""

    name: str = "numpy"

    def allocate(self, elements: int, like: Array) -> Array:
        """One uninitialised workspace buffer."""
        return np.empty(elements, like.dtype)

    def steps(self, plan: Plan, stages: tuple[Stage, ...], spaces: dict[str, Array], alpha: Any, beta: Any) -> list[Step]:
        """Each stage as a call that runs it; the buffers are allocated here, not in the calls."""
        views = _Views(plan, spaces)
        return [
            self._linear(stage, views, alpha, beta) if isinstance(stage, LinearStage) else self._products(stage, views, alpha, beta)
            for stage in stages
        ]

    def wait(self) -> None:
        """Everything here is synchronous."""

    def is_finite(self, array: Array) -> bool:
        """Whether every element is finite, looked at a tile at a time."""
        if array.dtype.kind not in "fc":
            return True
        return all(bool(np.isfinite(array[tile]).all()) for tile in _tiles(array.shape[0], array.shape[1], LINEAR_TILE))

    def _linear(self, stage: LinearStage, views: _Views, alpha: Any, beta: Any) -> Step:
        parts = [part for block_map in stage.maps for part in components(block_map)]
        jobs = [(part, tile) for part in parts for tile in _tiles(*views.extents(part.targets[0]), LINEAR_TILE)]
        workers = min(_workers(), max(1, len(jobs) // 4))
        values = max(len(part.map.steps) + len(part.map.outputs) for part in parts)
        dtype = views.dtype
        buffers = [np.empty((values + 1, LINEAR_TILE), dtype) for _ in range(workers)]

        def work(worker: int) -> None:
            with np.errstate(all="ignore"):
                for part, tile in jobs[worker::workers]:
                    _apply(part, tile, views, buffers[worker], alpha, beta)

        def run() -> None:
            if workers == 1:
                work(0)
            else:
                list(_pool().map(work, range(workers)))

        return run

    def _products(self, stage: ProductStage, views: _Views, alpha: Any, beta: Any) -> Step:
        height, width = views.extents(stage.products[0].targets[0].block)
        direct = all(_is_direct(product, alpha, beta) for product in stage.products)
        elements = 0 if direct else min(height * width, PRODUCT_TILE)
        buffer, scratch = np.empty(elements, views.dtype), np.empty(elements, views.dtype)

        def run() -> None:
            with np.errstate(all="ignore"):
                for product in stage.products:
                    left, right = views.block(product.left), views.block(product.right)
                    if direct:
                        np.matmul(left, right, out=views.block(product.targets[0].block))
                        continue
                    for tile in _tiles(height, width, PRODUCT_TILE):
                        _multiply(product, tile, left, right, views, buffer, scratch, alpha, beta)

        return run


class _Views:
    """Blocks of the spaces of a plan as array views."""

    def __init__(self, plan: Plan, spaces: dict[str, Array]) -> None:
        bm, bk, bn = plan.block
        extents = {"A": (bm, bk), "B": (bk, bn), "C": (bm, bn)}
        self._extents = {space.name: extents[space.shape] for space in plan.schedule.spaces}
        self._spaces = spaces
        self.dtype = spaces["C"].dtype

    def extents(self, block: Block) -> tuple[int, int]:
        return self._extents[block.space]

    def block(self, block: Block) -> Array:
        height, width = self._extents[block.space]
        row, column = block.row * height, block.column * width
        return self._spaces[block.space][row : row + height, column : column + width]


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_workers(), thread_name_prefix="bilinear")


@cache
def _workers() -> int:
    return min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def _tiles(height: int, width: int, elements: int) -> Iterator[tuple[slice, slice]]:
    """Tiles of at most `elements` elements that cover height x width, whole rows where they fit."""
    columns = min(width, elements)
    if columns == 0:
        return
    rows = max(1, min(height, elements // columns))
    if rows == height and columns < width or rows < 64 < height:
        rows = min(height, 64)
        columns = max(1, min(width, elements // max(1, rows)))
    for i in range(0, height, rows):
        for j in range(0, width, columns):
            yield slice(i, min(i + rows, height)), slice(j, min(j + columns, width))


def coefficient(value: Coefficient, dtype: np.dtype[Any]) -> Any:
    """An exact coefficient as a number of the array's type (rounded once for floats, exact for objects)."""
    if dtype.kind == "O":
        return value
    return dtype.type(value.numerator) / dtype.type(value.denominator) if value.denominator != 1 else dtype.type(int(value))


def _combine(terms: Form, values: list[Array], out: Array, scratch: Array) -> None:
    """out = the linear form over the values."""
    if not terms:
        out[...] = 0
        return
    (index, first), *rest = terms
    if first == 1:
        np.copyto(out, values[index])
    else:
        np.multiply(values[index], coefficient(first, out.dtype), out=out)
    for index, c in rest:
        if c == 1:
            np.add(out, values[index], out=out)
        elif c == -1:
            np.subtract(out, values[index], out=out)
        else:
            np.multiply(values[index], coefficient(c, out.dtype), out=scratch)
            np.add(out, scratch, out=out)


def _apply(part: BlockMap, tile: tuple[slice, slice], views: _Views, buffer: Array, alpha: Any, beta: Any) -> None:
    """Run one part on one tile: read, map, and only then write."""
    values = [views.block(block)[tile] for block in part.sources]
    shape = values[0].shape if values else views.block(part.targets[0])[tile].shape
    count = shape[0] * shape[1]
    held = [row[:count].reshape(shape) for row in buffer]
    scratch = held.pop()
    for step in part.map.steps:
        result = held.pop()
        _combine(step, values, result, scratch)
        values.append(result)
    results = []
    for output in part.map.outputs:
        result = held.pop()
        _combine(output, values, result, scratch)
        results.append(result)
    for target, result in zip(part.targets, results, strict=True):
        out = views.block(target)[tile]
        if target.space == "C":
            _add(out, result, scratch, alpha, beta)
        else:
            np.copyto(out, result)


def _is_direct(product: Product, alpha: Any, beta: Any) -> bool:
    """Whether a product is simply stored: one target, overwritten, with coefficient 1."""
    if len(product.targets) != 1:
        return False
    target = product.targets[0]
    plain = target.block.space != "C" or (alpha == 1 and beta == 0)
    return target.first and target.coefficient == 1 and plain


def _multiply(
    product: Product,
    tile: tuple[slice, slice],
    left: Array,
    right: Array,
    views: _Views,
    buffer: Array,
    scratch: Array,
    alpha: Any,
    beta: Any,
) -> None:
    """Multiply one tile of a product and add it to every target."""
    rows, columns = tile
    shape = (rows.stop - rows.start, columns.stop - columns.start)
    count = shape[0] * shape[1]
    result, spare = buffer[:count].reshape(shape), scratch[:count].reshape(shape)
    np.matmul(left[rows], right[:, columns], out=result)
    for target in product.targets:
        out = views.block(target.block)[tile]
        factor, keep = _factors(target, alpha, beta, out.dtype)
        _add(out, result, spare, factor, keep)


def _factors(target: Target, alpha: Any, beta: Any, dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """What the product and the old value are multiplied by."""
    c = coefficient(target.coefficient, dtype)
    if target.block.space != "C":
        return c, 0 if target.first else 1
    return alpha * c, beta if target.first else 1


def _add(out: Array, value: Array, scratch: Array, factor: Any, keep: Any) -> None:
    """out = keep * out + factor * value; with keep = 0 the old value is not read."""
    if keep == 0:
        np.multiply(value, factor, out=out)
        return
    if keep != 1:
        np.multiply(out, keep, out=out)
    if factor == 1:
        np.add(out, value, out=out)
    elif factor == -1:
        np.subtract(out, value, out=out)
    else:
        np.multiply(value, factor, out=scratch)
        np.add(out, scratch, out=out)
