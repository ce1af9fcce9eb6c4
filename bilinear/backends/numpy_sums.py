"""Linear stages on NumPy's arrays: independent parts, in an order in which few results must wait, a tile at a time."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import NamedTuple

from bilinear.analysis.block_maps import components
from bilinear.backends.array_sums import ElementArithmetic
from bilinear.backends.array_tiles import Array, Tile, is_by_column, shaped
from bilinear.backends.caches import Same
from bilinear.ir.linear import Form
from bilinear.ir.matrix import Factor, Matrix
from bilinear.ir.number import Coefficient
from bilinear.ir.placement import Placement
from bilinear.ir.schedule import BETA, Block, BlockMap, LinearStage

MOST_ORDERED = 256
"""Stages whose sums are kept in order; the oldest goes first."""


def kept_factor(factor: Coefficient, beta: Factor) -> Factor | Coefficient:
    """The number by which an old value is multiplied in a call with this beta."""
    return beta if factor == BETA else factor


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
    return tuple(_ordered_part(part) for block_map in stage.what.maps for part in components(block_map))


def _ordered_part(part: BlockMap) -> _OrderedPart:
    place = {block: i for i, block in enumerate(part.sources)}
    steps = tuple(_ordered(step, None) for step in part.map.steps)
    outputs = tuple(_ordered(output, place.get(t)) for output, t in zip(part.map.outputs, part.targets, strict=True))
    return _OrderedPart(part, steps, outputs, tuple(_write_order(part)))


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
