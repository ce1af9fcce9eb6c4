"""Execution modes: a stage as groups of tasks, of which the lowering makes a launch each (docs/modes.md).

A task of a linear stage forms one block, and a task of a product stage is one product. A place of a linear stage is a component of its
map; a place of a product stage is what one recomposition reads. The classes are those of Kasiviswanathan (2013), section 3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Generic, TypeVar

from bilinear.analysis.block_maps import components, restrict
from bilinear.errors import fail
from bilinear.ir.placement import ALIKE, GROUPS, ITEMS, KERNELS, MODES, STAGE
from bilinear.ir.schedule import BlockMap, LinearStage, Product, ProductStage, Schedule, Stage

MOST_FORMS_BESIDE = 32  # Warps of a block that form blocks side by side; a block has at most 1024 threads.
MOST_PRODUCTS_BESIDE = 16  # Warps of a block that multiply side by side; so each thread has 128 registers.

T = TypeVar("T")


@dataclass(frozen=True)
class RowGroup(Generic[T]):
    """The rows of one launch; None pads the rows of a place. A block runs `turns` rows one after the other, or `beside` rows at once."""

    rows: tuple[T | None, ...]
    turns: int = 1
    beside: int = 1


def require_mode(mode: str, floats: str = "own") -> None:
    """Refuse an unknown execution mode (E503), and one that has no tile on the units for products of floats (E557)."""
    if mode not in MODES:
        raise fail("E503", f"no kernels for mode={mode!r}", f"choose one of {', '.join(MODES)}")
    if mode == ITEMS and floats != "own":
        raise fail("E557", f"floats={floats!r} has no meaning with mode={mode!r}: a warp multiplies on its own pipes", "leave it out")


def require_tasks(schedule: Schedule, mode: str) -> None:
    """Refuse (E557) a mode that cuts stages into tasks if some stage reads a block that it writes: its steps are simultaneous."""
    if mode == STAGE:
        return
    for number, stage in enumerate(schedule.stages, 1):
        maps = stage.maps if isinstance(stage, LinearStage) else ()
        changed = {b for m in maps for b in m.sources} & {b for m in maps for b in m.targets}
        if changed:
            message = f"mode={mode!r} has no meaning for {schedule.name}: its stage {number} reads and writes {min(changed)}"
            raise fail("E557", message, "use inputs='preserve' and a scheme without a schedule, or leave the mode out")


def linear_groups(stage: LinearStage, mode: str, kind_of: Callable[[BlockMap], Hashable]) -> list[RowGroup[BlockMap]]:
    """The tasks of a linear stage by launches. Places of equal kind run the same map."""
    places = [piece for block_map in stage.maps for piece in components(block_map)]
    if mode == STAGE:
        return [RowGroup(tuple(places))]
    if mode == GROUPS:
        return [RowGroup(tuple(task for place in places for task in _tasks(place)))]
    kinds: dict[Hashable, list[BlockMap]] = {}
    for place in places:
        kinds.setdefault(kind_of(place), []).append(place)
    if mode == ALIKE:
        return [RowGroup(tuple(own)) for own in kinds.values()]
    groups: list[RowGroup[BlockMap]] = []
    for own in kinds.values():
        split = [_tasks(place) for place in own]
        groups += _columns(split) if mode == KERNELS else [_side_by_side(split, MOST_FORMS_BESIDE)]
    return groups


def product_groups(stage: ProductStage, following: Stage | None, mode: str) -> list[RowGroup[Product]]:
    """The products of a stage by launches; the `following` stage, if it is linear, tells their places."""
    if mode in (STAGE, GROUPS):
        return [RowGroup(stage.products)]
    places = _places(stage, following)
    if mode == KERNELS:
        return _columns(places)
    if mode == ITEMS:
        return [_side_by_side(places, MOST_PRODUCTS_BESIDE)]
    turns = max(map(len, places))
    return [RowGroup(_padded(places, turns), turns=turns)]


def _tasks(place: BlockMap) -> tuple[BlockMap, ...]:
    return tuple(restrict(place, {target}) for target in place.targets)


def _places(stage: ProductStage, following: Stage | None) -> list[list[Product]]:
    """The products by the component of the following map that reads them."""
    maps = following.maps if isinstance(following, LinearStage) else ()
    pieces = [piece for block_map in maps for piece in components(block_map)]
    reader = {block: number for number, piece in enumerate(pieces) for block in piece.sources}
    places: dict[int | None, list[Product]] = {}
    for product in stage.products:
        places.setdefault(reader.get(product.targets[0].block), []).append(product)
    return list(places.values())


def _columns(places: Sequence[Sequence[T]]) -> list[RowGroup[T]]:
    return [RowGroup(tuple(task for task in column if task is not None)) for column in zip_longest(*places)]


def _side_by_side(places: Sequence[Sequence[T]], most: int) -> RowGroup[T]:
    """All places, each in blocks of equally many warps, at most so many."""
    tasks = max(map(len, places))
    blocks = -(-tasks // most)
    beside = -(-tasks // blocks)
    return RowGroup(_padded(places, beside * blocks), beside=beside)


def _padded(places: Sequence[Sequence[T]], length: int) -> tuple[T | None, ...]:
    return tuple(row for place in places for row in (*place, *(None,) * (length - len(place))))
