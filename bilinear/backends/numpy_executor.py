"""Plans on NumPy: the stages of a schedule as tiled array operations, without growing memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

import numpy as np

from bilinear.analysis.block_maps import components
from bilinear.backends import workers
from bilinear.backends.executor import ready_on_views
from bilinear.ir.linear import Form
from bilinear.ir.number import HELD, Coefficient, Symbolic, rounded, to_float
from bilinear.ir.placement import Plan
from bilinear.ir.schedule import BETA, Block, BlockMap, LinearStage, Product, ProductStage, Stage, Target

Array = np.ndarray[Any, np.dtype[Any]]
Step = Callable[[], None]
Tile = tuple[slice, slice]

LINEAR_TILE = 1 << 14
"""Elements of one block that an addition takes at a time: small enough for the second-level cache, large enough for Python."""
LINEAR_BUFFER = 1 << 22
"""Bytes that each worker holds for the values of a tile: enough for the largest tile of 32 values in double precision."""
PRODUCT_BUFFER = 1 << 23
"""Bytes of a product that are held before they are added to their targets."""
MOST_HELD = workers.MOST_WORKERS * LINEAR_BUFFER + 4 * PRODUCT_BUFFER
"""Bytes that a call holds at most beyond its operands and the workspace of its plan, whatever the problem: each worker's buffer, a tile
of a product, and, for operands that BLAS cannot read where they lie, a packed tile of each and a partial product."""


@dataclass
class NumpyExecutor:
    """Runs plans on 2-D NumPy arrays of any strides and any number type, objects included.

    The tile buffers belong to the executor: stages share them, and the stages that undo others need no memory of their own.
    """

    name: str = "numpy"
    _buffers: dict[str, Array] = field(default_factory=dict)

    def allocate(self, elements: int, like: Array) -> Array:
        """One uninitialised workspace buffer."""
        return np.empty(elements, like.dtype)

    def steps(self, plan: Plan, stages: tuple[Stage, ...], spaces: dict[str, Array], alpha: Any, beta: Any) -> list[Step]:
        """Each stage as a call that runs it; the buffers are allocated here, not in the calls."""
        views = _Views(plan, spaces)
        return [
            self._linear(stage, views, beta) if isinstance(stage, LinearStage) else self._products(stage, views, alpha, beta)
            for stage in stages
        ]

    def ready(
        self, plan: Plan, a: Array, b: Array, c: Array, buffer: Array | None, alpha: Any, beta: Any
    ) -> AbstractContextManager[Sequence[Step]]:
        """Each strip and each stage of the core as a call."""
        return ready_on_views(self, plan, a, b, c, buffer, alpha, beta)

    def wait(self) -> None:
        """Everything here is synchronous."""

    def is_captured(self) -> bool:
        """Nothing here is."""
        return False

    def is_finite(self, *matrices: Array) -> bool:
        """Whether every element is finite."""
        return all(map(_is_finite, matrices))

    def magnitudes(self, array: Array, rows: int, columns: int) -> Array:
        """max|x| of each of rows x columns equal blocks, looked at a tile at a time."""
        height, width = array.shape[0] // rows, array.shape[1] // columns
        found = np.zeros((rows, columns), array.dtype)
        for i, j in np.ndindex(rows, columns):
            block = array[i * height : (i + 1) * height, j * width : (j + 1) * width]
            for tile in _tiles_along((height, width), _is_by_column(block), LINEAR_TILE):
                found[i, j] = np.maximum(found[i, j], np.maximum(block[tile].max(), -block[tile].min()))  # both keep NaN
        return np.abs(found)  # no -0

    def _held(self, name: str, size: int, dtype: np.dtype[Any]) -> Array:
        """The buffer of this name, of `size` bytes whatever the problem, so that it never has to grow; untouched pages cost nothing."""
        if name not in self._buffers:
            self._buffers[name] = np.empty(size // dtype.itemsize, dtype)
        return self._buffers[name]

    def _worker_buffers(self, tiles: int, dtype: np.dtype[Any]) -> list[Array]:
        """A buffer for each thread that shares this many tiles; a few tiles are not worth another thread."""
        return [self._held(f"worker {i}", LINEAR_BUFFER, dtype) for i in range(min(workers.worker_count(), max(1, tiles // 4)))]

    def _linear(self, stage: LinearStage, views: _Views, beta: Any) -> Step:
        parts = [
            _Part(part, views, [_kept(factor, beta) for factor in part.kept]) for block_map in stage.maps for part in components(block_map)
        ]
        rows = max(part.rows for part in parts)
        size = max(1, min(LINEAR_TILE, LINEAR_BUFFER // views.dtype.itemsize // rows))
        held = self._worker_buffers(sum(_tile_count(part.extents, size) for part in parts), views.dtype)
        buffers = [buffer[: rows * size].reshape(rows, size) for buffer in held]

        def tiles() -> Iterator[tuple[_Part, Tile]]:
            return ((part, tile) for part in parts for tile in _tiles_along(part.extents, part.by_column, size))

        def combine(each: tuple[_Part, Tile], worker: int) -> None:
            part, tile = each
            part.run(tile, buffers[worker])

        return lambda: workers.share(tiles, combine, len(buffers))

    def _products(self, stage: ProductStage, views: _Views, alpha: Any, beta: Any) -> Step:
        runs = [self._product(product, views, alpha, beta) for product in stage.products]

        def run() -> None:
            with np.errstate(all="ignore"):
                for multiply in runs:
                    multiply()

        return run

    def _product(self, product: Product, views: _Views, alpha: Any, beta: Any) -> Step:
        """One product: stored where it is wanted if nothing is added to it, else a tile at a time."""
        left, right = views.block(product.left), views.block(product.right)
        outs = [(views.block(t.block), _factor(t, alpha, views.dtype), _kept(t.kept, beta)) for t in product.targets]
        readable = _is_readable(left) and _is_readable(right)
        if readable and len(outs) == 1 and outs[0][1:] == (1, 0) and _is_readable(outs[0][0]):
            return partial(_multiply, left, right, outs[0][0])
        extents, by_column = outs[0][0].shape, _is_by_column(outs[0][0])
        result = self._held("product", PRODUCT_BUFFER, views.dtype)
        multiply = _multiply if readable else self._packed(views.dtype)
        scratches = self._worker_buffers(_tile_count(extents, LINEAR_TILE), views.dtype)

        def run() -> None:
            for rows, columns in _tiles_along(extents, by_column, result.size):
                value = _shaped(result, (rows.stop - rows.start, columns.stop - columns.start), by_column)
                multiply(left[rows], right[:, columns], value)
                targets = [(out[rows, columns], factor, keep) for out, factor, keep in outs]
                tiles = partial(_tiles_along, value.shape, by_column, LINEAR_TILE)
                workers.share(tiles, partial(_scatter, value, targets, by_column, scratches), len(scratches))

        return run

    def _packed(self, dtype: np.dtype[Any]) -> Callable[[Array, Array, Array], None]:
        """The multiply of operands that BLAS cannot read where they lie: NumPy would copy them whole, this packs a tile of each."""
        lefts, rights, partials = (self._held(name, PRODUCT_BUFFER, dtype) for name in ("left", "right", "partial product"))

        def multiply(left: Array, right: Array, out: Array) -> None:
            k = left.shape[1]
            depth = max(1, lefts.size // max(out.shape))
            if k == 0:
                out[...] = 0
            part = _shaped(partials, out.shape, False)
            for start in range(0, k, depth):
                inner = slice(start, min(start + depth, k))
                a = _shaped(lefts, left[:, inner].shape, False)
                b = _shaped(rights, right[inner].shape, False)
                np.copyto(a, left[:, inner])
                np.copyto(b, right[inner])
                np.matmul(a, b, out=part)
                if start == 0:
                    np.copyto(out, part)
                else:
                    np.add(out, part, out=out)

        return multiply


def _is_finite(array: Array) -> bool:
    """Whether every element is finite, looked at a tile at a time."""
    tiles = _tiles(array.shape[0], array.shape[1], LINEAR_TILE)
    if array.dtype.kind == "O":  # numbers of any type: only what is not finite differs from itself
        with np.errstate(all="ignore"):
            return all(bool(((array[tile] - array[tile]) == 0).all()) for tile in tiles)
    return array.dtype.kind not in "fc" or all(bool(np.isfinite(array[tile]).all()) for tile in tiles)


def _kept(factor: Coefficient, beta: Any) -> Any:
    """What an old value is multiplied by in a call with this beta."""
    return beta if factor == BETA else factor


class _Views:
    """Blocks of the spaces of a plan as array views."""

    def __init__(self, plan: Plan, spaces: dict[str, Array]) -> None:
        bm, bk, bn = plan.block
        extents = {"A": (bm, bk), "B": (bk, bn), "C": (bm, bn)}
        self._extents = {space.name: extents[space.shape] for space in plan.schedule.spaces}
        self._spaces = spaces
        self.dtype = spaces["C"].dtype

    def block(self, block: Block) -> Array:
        height, width = self._extents[block.space]
        row, column = block.row * height, block.column * width
        return self._spaces[block.space][row : row + height, column : column + width]


class _Part:
    """An independent part of a linear stage, ready to run: its blocks as views, and the order in which its outputs are written."""

    def __init__(self, part: BlockMap, views: _Views, kept: list[Any]) -> None:
        place = {block: i for i, block in enumerate(part.sources)}
        self._sources = [views.block(block) for block in part.sources]
        self._targets = [views.block(block) for block in part.targets]
        self._kept = kept
        self._steps = [_ordered(step, None) for step in part.map.steps]
        self._outputs = [_ordered(output, place.get(t)) for output, t in zip(part.map.outputs, part.targets, strict=True)]
        self._order = _write_order(part)
        self.extents: tuple[int, int] = self._targets[0].shape
        self.by_column = _is_by_column(self._targets[0])
        self.rows = 2 + len(self._steps) + sum(held for _, held in self._order)

    def run(self, tile: Tile, buffer: Array) -> None:
        """Read a tile of every source, and write a tile of every target as soon as nothing reads its old value any more."""
        values = [source[tile] for source in self._sources]
        shape = self._targets[0][tile].shape
        free = [_shaped(row, shape, self.by_column) for row in buffer[: self.rows]]
        scratch = free.pop()
        for step in self._steps:
            values.append(free.pop())
            _combine(step, values, values[-1], scratch)
        waiting = []
        for position, held in self._order:
            out, keep = self._targets[position][tile], self._kept[position]
            if keep == 0 and not held:
                _combine(self._outputs[position], values, out, scratch)
                continue
            _combine(self._outputs[position], values, free[-1], scratch)
            if held:
                waiting.append((out, free.pop(), keep))
            else:
                _add(out, free[-1], scratch, 1, keep)
        for out, result, keep in waiting:
            _add(out, result, scratch, 1, keep)


def _write_order(part: BlockMap) -> list[tuple[int, bool]]:
    """The outputs in an order in which few must wait: (position, whether an output after it reads the old value of its target)."""
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
    """The terms in the order in which they are added: the target's own value first, for it is overwritten, then a coefficient of 1."""
    return tuple(sorted(terms, key=lambda term: (term[0] != own, term[1] != 1)))


def _tile_shape(extents: tuple[int, int], elements: int) -> tuple[int, int]:
    """Whole rows where one fits, else equal pieces of a row."""
    height, width = extents
    pieces = -(-width // elements)
    columns = -(-width // max(1, pieces))
    return max(1, min(height, elements // max(1, columns))), max(1, columns)


def _tiles(height: int, width: int, elements: int) -> Iterator[Tile]:
    """Tiles of at most `elements` elements that cover height x width."""
    rows, columns = _tile_shape((height, width), elements)
    for i in range(0, height, rows):
        for j in range(0, width, columns):
            yield slice(i, min(i + rows, height)), slice(j, min(j + columns, width))


def _tiles_along(extents: tuple[int, int], by_column: bool, elements: int) -> Iterator[Tile]:
    """Tiles of whole rows, or of whole columns where those are contiguous."""
    if not by_column:
        return _tiles(*extents, elements)
    return ((rows, columns) for columns, rows in _tiles(extents[1], extents[0], elements))


def _tile_count(extents: tuple[int, int], elements: int) -> int:
    rows, columns = _tile_shape(extents, elements)
    return -(-extents[0] // rows) * -(-extents[1] // columns)


def _is_by_column(array: Array) -> bool:
    """Whether neighbours in a column lie closer together than neighbours in a row."""
    return abs(array.strides[0]) < abs(array.strides[1])


def _shaped(buffer: Array, shape: tuple[int, int], by_column: bool) -> Array:
    """The start of a buffer as a matrix."""
    start = buffer[: shape[0] * shape[1]]
    return start.reshape(shape[::-1]).T if by_column else start.reshape(shape)


def _is_readable(array: Array) -> bool:
    """Whether NumPy multiplies the array where it lies: else it makes a copy as large as the array."""
    if array.dtype.char not in "fd" or array.size == 0:
        return bool(array.flags.aligned)
    row, column = array.strides if not _is_by_column(array) else array.strides[::-1]
    width = array.shape[0] if _is_by_column(array) else array.shape[1]
    return bool(array.flags.aligned and column == array.itemsize and row % column == 0 and row >= column * width)


def coefficient(value: Coefficient, dtype: np.dtype[Any]) -> Any:
    """An exact coefficient as a number of the array's type: rounded once for floats, modulo the range for integers, exact for objects."""
    if dtype.kind == "O":
        return value
    if isinstance(value, Symbolic):
        return dtype.type(to_float(value))
    if dtype.kind in "iu":
        if value.denominator != 1:
            raise ArithmeticError(f"{dtype} cannot hold the coefficient {value}")
        return np.uint64(int(value) % 2**64).astype(dtype)
    if max(abs(value.numerator), value.denominator) <= HELD:
        return dtype.type(value.numerator) / dtype.type(value.denominator)
    return _nearest(value, dtype)


@lru_cache(maxsize=4096)
def _nearest(value: int | Fraction, dtype: np.dtype[Any]) -> Any:
    """The number of a floating-point type nearest to a rational."""
    kind = np.finfo(dtype)
    mantissa, exponent = rounded(value, kind.nmant + 1, kind.minexp - kind.nmant)
    return np.ldexp(dtype.type(mantissa), exponent)


def _combine(terms: Form, values: list[Array], out: Array, scratch: Array) -> None:
    """out = the linear form over the values; `out` may be the value of the first term."""
    if not terms:
        out[...] = 0
        return
    (index, first), *rest = terms
    if first == 1 and rest and rest[0][1] in (1, -1):
        (other, sign), *rest = rest
        (np.add if sign == 1 else np.subtract)(values[index], values[other], out=out)
    elif first == 1:
        np.copyto(out, values[index])
    else:
        np.multiply(values[index], coefficient(first, out.dtype), out=out)
    for index, c in rest:
        _add(out, values[index], scratch, c if c in (1, -1) else coefficient(c, out.dtype), 1)


def _factor(target: Target, alpha: Any, dtype: np.dtype[Any]) -> Any:
    """What the product is multiplied by."""
    with np.errstate(over="ignore"):  # integers wrap around, as they do in arrays
        return alpha * coefficient(target.coefficient, dtype)


def _multiply(left: Array, right: Array, out: Array) -> None:
    np.matmul(left, right, out=out)


def _scatter(value: Array, targets: list[tuple[Array, Any, Any]], by_column: bool, scratches: list[Array], tile: Tile, worker: int) -> None:
    """Add a tile of a product to every target, while it is in the cache."""
    spare = _shaped(scratches[worker], value[tile].shape, by_column)
    for out, factor, keep in targets:
        _add(out[tile], value[tile], spare, factor, keep)


def _add(out: Array, value: Array, scratch: Array, factor: Any, keep: Any) -> None:
    """out = keep * out + factor * value; with keep = 0 the old value is not read, and `value` may be `out` itself."""
    if keep == 0:
        if factor != 1:
            np.multiply(value, factor, out=out)
        elif value is not out:
            np.copyto(out, value)
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
