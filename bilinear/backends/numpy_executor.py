"""Placements on NumPy: the stages of a schedule as tiled array operations in buffers of fixed size."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from bilinear.analysis.block_maps import components
from bilinear.backends import workers
from bilinear.backends.array_sums import ElementArithmetic, Tile, is_by_column, is_readable, shaped, tile_count, tiles_along, tiles_by_row
from bilinear.backends.caches import Same
from bilinear.backends.executor import ready_on_views
from bilinear.backends.factor import kept_factor
from bilinear.ir.linear import Form
from bilinear.ir.matrix import Array, Call, Dtype, Factor, Matrix, matrix_of
from bilinear.ir.placement import Placement
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Product, ProductStage, Stage

Step = Callable[[], None]

LINEAR_TILE = 1 << 14  # Elements that one addition takes: few for the cache, enough to hide Python.
LINEAR_BUFFER = 1 << 22  # Bytes of a worker for the values of a tile: enough for 32 in double precision.
PRODUCT_BUFFER = 1 << 23  # Bytes of a product that are held before they are added to their targets.
MOST_HELD = workers.MOST_WORKERS * LINEAR_BUFFER + 4 * PRODUCT_BUFFER
"""The most bytes that a call holds beside its operands and its workspace, for any problem: each worker's buffer, a tile of a product, and
for operands that BLAS cannot read where they lie, a packed tile of each and a partial product."""


@dataclass
class NumpyExecutor:
    """Runs placements on matrices in host memory, of any strides and any number type, objects included, as NumPy's views.

    The executor owns the tile buffers. All stages share them, so stages that undo others need no more memory.
    """

    name: str = "numpy"
    arithmetic: ElementArithmetic = field(default_factory=ElementArithmetic)
    _buffers: dict[str, Array] = field(default_factory=dict)

    def allocate(self, elements: int, dtype: Dtype) -> Matrix:
        """One uninitialised workspace buffer."""
        return matrix_of(np.empty(elements, dtype))

    def steps(self, placement: Placement, stages: tuple[Stage, ...], spaces: dict[str, Matrix], alpha: Factor, beta: Factor) -> list[Step]:
        """Each stage as a call that runs it; the buffers are allocated here, not in the calls."""
        views = Views(placement, spaces)
        return [
            self._linear(stage, views, beta) if isinstance(stage, LinearStage) else self._products(stage, views, alpha, beta)
            for stage in stages
        ]

    def ready(self, placement: Placement, call: Call) -> AbstractContextManager[Sequence[Step]]:
        """Each strip and each stage of the core as a call."""
        return ready_on_views(self, placement, call)

    def wait(self) -> None:
        """Everything here is synchronous."""

    def is_captured(self) -> bool:
        """Never: there are no graphs on the CPU."""
        return False

    def is_finite(self, *matrices: Matrix) -> bool:
        """Whether every element is finite."""
        return all(_is_finite(matrix.memory) for matrix in matrices)

    def digest(self, matrix: Matrix) -> int:
        """A number that tells whether a matrix has changed, read a tile at a time; objects count by identity."""
        array: Array = matrix.memory
        found = hashlib.blake2b(digest_size=8)
        for tile in tiles_by_row(array.shape[0], array.shape[1], LINEAR_TILE):
            found.update(np.ascontiguousarray(array[tile]).tobytes())
        return int.from_bytes(found.digest(), "little")

    def magnitudes(self, matrix: Matrix, rows: int, columns: int) -> Array:
        """max|x| of each of rows x columns equal blocks, read a tile at a time."""
        array: Array = matrix.memory
        height, width = array.shape[0] // rows, array.shape[1] // columns
        found = np.zeros((rows, columns), array.dtype)
        for i, j in np.ndindex(rows, columns):
            block = array[i * height : (i + 1) * height, j * width : (j + 1) * width]
            for tile in tiles_along((height, width), is_by_column(block), LINEAR_TILE):
                found[i, j] = np.maximum(found[i, j], np.maximum(block[tile].max(), -block[tile].min()))  # both keep NaN
        return np.abs(found)  # no -0

    def _held(self, name: str, size: int, dtype: Dtype) -> Array:
        """The buffer of this name, of `size` bytes for any problem, so it never has to grow. Untouched pages cost nothing."""
        if name not in self._buffers:
            self._buffers[name] = np.empty(size // dtype.itemsize, dtype)
        return self._buffers[name]

    def _worker_buffers(self, tiles: int, dtype: Dtype) -> list[Array]:
        """One buffer for each thread that shares this many tiles. A few tiles are not worth another thread."""
        return [self._held(f"worker {i}", LINEAR_BUFFER, dtype) for i in range(min(workers.worker_count(), max(1, tiles // 4)))]

    def _linear(self, stage: LinearStage, views: Views, beta: Factor) -> Step:
        parts = [LinearPart(part, views, beta, self.arithmetic) for part in ordered_parts(Same(stage))]
        rows = max(part.rows for part in parts)
        size = max(1, min(LINEAR_TILE, LINEAR_BUFFER // views.dtype.itemsize // rows))
        held = self._worker_buffers(sum(tile_count(part.extents, size) for part in parts), views.dtype)
        buffers = [buffer[: rows * size].reshape(rows, size) for buffer in held]

        def tiles() -> Iterator[tuple[LinearPart, Tile]]:
            return ((part, tile) for part in parts for tile in tiles_along(part.extents, part.by_column, size))

        def combine(each: tuple[LinearPart, Tile], worker: int) -> None:
            part, tile = each
            part.run(tile, buffers[worker])

        return lambda: workers.share(tiles, combine, len(buffers))

    def _products(self, stage: ProductStage, views: Views, alpha: Factor, beta: Factor) -> Step:
        runs = [self._product(product, views, alpha, beta) for product in stage.products]

        def run() -> None:
            with np.errstate(all="ignore"):
                for multiply in runs:
                    multiply()

        return run

    def _product(self, product: Product, views: Views, alpha: Factor, beta: Factor) -> Step:
        """One product: computed in its target if it is only stored there, else added to its targets a tile at a time."""
        left, right = views.block(product.left), views.block(product.right)
        outs = [
            (views.block(t.block), self.arithmetic.factor(t.coefficient, alpha, views.dtype), kept_factor(t.kept, beta))
            for t in product.targets
        ]
        readable = is_readable(left) and is_readable(right)
        if readable and len(outs) == 1 and outs[0][1:] == (1, 0) and is_readable(outs[0][0]):
            return partial(self.arithmetic.multiply, left, right, outs[0][0])
        extents, by_column = outs[0][0].shape, is_by_column(outs[0][0])
        result = self._held("product", PRODUCT_BUFFER, views.dtype)
        multiply = self.arithmetic.multiply if readable else self._packed(views.dtype)
        scratches = self._worker_buffers(tile_count(extents, LINEAR_TILE), views.dtype)

        def run() -> None:
            for rows, columns in tiles_along(extents, by_column, result.size):
                value = shaped(result, (rows.stop - rows.start, columns.stop - columns.start), by_column)
                multiply(left[rows], right[:, columns], value)
                targets = [(out[rows, columns], factor, keep) for out, factor, keep in outs]
                tiles = partial(tiles_along, value.shape, by_column, LINEAR_TILE)
                workers.share(tiles, partial(_scatter, self.arithmetic, value, targets, by_column, scratches), len(scratches))

        return run

    def _packed(self, dtype: Dtype) -> Callable[[Array, Array, Array], None]:
        """A multiply of operands that BLAS cannot read where they lie. It packs a tile of each; NumPy would copy them whole."""
        lefts, rights, partials = (self._held(name, PRODUCT_BUFFER, dtype) for name in ("left", "right", "partial product"))

        def multiply(left: Array, right: Array, out: Array) -> None:
            k = left.shape[1]
            depth = max(1, lefts.size // max(out.shape))
            if k == 0:
                out[...] = 0
            part = shaped(partials, out.shape, False)
            for start in range(0, k, depth):
                inner = slice(start, min(start + depth, k))
                a = shaped(lefts, left[:, inner].shape, False)
                b = shaped(rights, right[inner].shape, False)
                np.copyto(a, left[:, inner])
                np.copyto(b, right[inner])
                np.matmul(a, b, out=part)
                if start == 0:
                    np.copyto(out, part)
                else:
                    np.add(out, part, out=out)

        return multiply


def _is_finite(array: Array) -> bool:
    tiles = tiles_by_row(array.shape[0], array.shape[1], LINEAR_TILE)
    if array.dtype.kind == "O":  # numbers of any type: x - x is 0 only if x is finite
        with np.errstate(all="ignore"):
            return all(bool((np.subtract(array[tile], array[tile]) == 0).all()) for tile in tiles)
    return array.dtype.kind not in "fc" or all(bool(np.isfinite(array[tile]).all()) for tile in tiles)


Targets = list[tuple[Array, Any, Any]]
"""Where a product is added: the block, the factor of the product, and that of the old value, numbers of the block's type."""


def _scatter(
    arithmetic: ElementArithmetic, value: Array, targets: Targets, by_column: bool, scratches: list[Array], tile: Tile, worker: int
) -> None:
    """Add a tile of a product to every target, while it is in the cache."""
    spare = shaped(scratches[worker], value[tile].shape, by_column)
    for out, factor, keep in targets:
        arithmetic.add(out[tile], value[tile], spare, factor, keep)


MOST_ORDERED = 256  # Stages whose sums are kept in order; the oldest goes first.


class Views:
    """Blocks of the spaces of a placement as array views."""

    def __init__(self, placement: Placement, spaces: dict[str, Matrix]) -> None:
        bm, bk, bn = placement.block
        extents = {"A": (bm, bk), "B": (bk, bn), "C": (bm, bn)}
        self._extents = {space.name: extents[space.shape] for space in placement.schedule.spaces}
        self._spaces: dict[str, Array] = {name: space.memory for name, space in spaces.items()}
        self.dtype = next(iter(self._spaces.values())).dtype

    def block(self, block: Block) -> Array:
        """The view of a block."""
        height, width = self._extents[block.space]
        row, column = block.row * height, block.column * width
        return self._spaces[block.space][row : row + height, column : column + width]


class _OrderedPart(NamedTuple):
    """An independent part of a linear stage: the terms of its sums in the order of the additions, and the order of its outputs."""

    map: BlockMap
    steps: tuple[Form, ...]
    outputs: tuple[Form, ...]
    order: tuple[tuple[int, bool], ...]


@lru_cache(maxsize=MOST_ORDERED)
def ordered_parts(stage: Same[LinearStage]) -> tuple[_OrderedPart, ...]:
    """The parts of a stage. For small matrices, to find them would take longer than to run them."""
    found = []
    for part in (part for block_map in stage.what.maps for part in components(block_map)):
        place = {block: i for i, block in enumerate(part.sources)}
        steps = tuple(_ordered(step, None) for step in part.map.steps)
        outputs = tuple(_ordered(output, place.get(t)) for output, t in zip(part.map.outputs, part.targets, strict=True))
        found.append(_OrderedPart(part, steps, outputs, tuple(_write_order(part))))
    return tuple(found)


class LinearPart:
    """An independent part of a linear stage, ready to run: its blocks as views, and the order in which its outputs are written."""

    def __init__(self, part: _OrderedPart, views: Views, beta: Factor, arithmetic: ElementArithmetic) -> None:
        self._combine, self._add = arithmetic.combine, arithmetic.add
        self._sources = [views.block(block) for block in part.map.sources]
        self._targets = [views.block(block) for block in part.map.targets]
        self._kept = [kept_factor(factor, beta) for factor in part.map.kept]
        self._steps, self._outputs, self._order = part.steps, part.outputs, part.order
        self.extents: tuple[int, int] = self._targets[0].shape
        self.by_column = is_by_column(self._targets[0])
        self.rows = 2 + len(self._steps) + sum(held for _, held in self._order)

    def run(self, tile: Tile, buffer: Array) -> None:
        """Read a tile of every source, and write a tile of every target as soon as nothing reads its old value any more."""
        values = [source[tile] for source in self._sources]
        shape = self._targets[0][tile].shape
        free = [shaped(row, shape, self.by_column) for row in buffer[: self.rows]]
        scratch = free.pop()
        for step in self._steps:
            values.append(free.pop())
            self._combine(step, values, values[-1], scratch)
        waiting = []
        for position, held in self._order:
            out, keep = self._targets[position][tile], self._kept[position]
            if keep == 0 and not held:
                self._combine(self._outputs[position], values, out, scratch)
                continue
            self._combine(self._outputs[position], values, free[-1], scratch)
            if held:
                waiting.append((out, free.pop(), keep))
            else:
                self._add(out, free[-1], scratch, 1, keep)
        for out, result, keep in waiting:
            self._add(out, result, scratch, 1, keep)


def _write_order(part: BlockMap) -> list[tuple[int, bool]]:
    """An order of the outputs in which few must wait: (position, whether a later output reads the old value of its target)."""
    place = {block: i for i, block in enumerate(part.sources)}
    own = [place.get(target) for target in part.targets]
    reads = [{index for index, _ in output} for output in part.map.outputs]
    readers = Counter(index for indices in reads for index in indices)
    left = list(range(len(own)))
    order: list[tuple[int, bool]] = []

    def is_read_by_others(position: int) -> bool:
        index = own[position]
        return index is not None and readers[index] > (index in reads[position])

    while left:
        position = next((p for p in left if not is_read_by_others(p)), left[0])
        order.append((position, is_read_by_others(position)))
        left.remove(position)
        readers.subtract(reads[position])
    return order


def _ordered(terms: Form, own: int | None) -> Form:
    """The terms in the order in which they are added: first the target's own value, which is overwritten, then one with coefficient 1."""
    return tuple(sorted(terms, key=lambda term: (term[0] != own, term[1] != 1)))
