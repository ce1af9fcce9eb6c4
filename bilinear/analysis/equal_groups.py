"""Equal groups: work that consecutive linear stages repeat on other blocks.

Levels are Kronecker products, so a stage of several levels is one small map on very many blocks. A result about one group of blocks that no
other group reads or writes holds for all groups that are equal up to the names of their blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

from bilinear.analysis.block_maps import part_of, places_of_components
from bilinear.ir.linear import LinearMap
from bilinear.ir.schedule import Block, BlockMap

NOTHING = BlockMap((), (), LinearMap(0, ()))
"""The map of no blocks."""
Members = tuple[tuple[int, ...], ...]
"""The parts of a group: for each layer the numbers of its parts."""


class Layer:
    """Simultaneous maps as one, and its independent parts; parts with equal maps have equal `kinds`, the numbers of the maps in `known`."""

    def __init__(self, whole: BlockMap, known: dict[LinearMap, int]) -> None:
        self.whole = whole
        self.places = tuple(places_of_components(whole))
        self.parts = tuple(part_of(whole, rows, steps) for rows, steps in self.places)
        self._together: dict[tuple[int, ...], BlockMap] = {(i,): part for i, part in enumerate(self.parts)}
        self.kinds = tuple(known.setdefault(part.map, len(known)) for part in self.parts)

    def together(self, numbers: tuple[int, ...]) -> BlockMap:
        """Some of the parts as one map, its values in the order of the whole map."""
        if numbers not in self._together:
            rows, steps = (sorted(i for number in numbers for i in self.places[number][side]) for side in (0, 1))
            self._together[numbers] = part_of(self.whole, rows, steps) if rows else NOTHING
        return self._together[numbers]


def equal_groups(layers: Sequence[Layer], state: Callable[[Block], Hashable]) -> Iterable[tuple[Members, int]]:
    """One of each kind of group, and how many groups are of its kind.

    Groups are of one kind if they differ by the names of blocks, and corresponding blocks have one `state`.
    """
    kinds: dict[Hashable, tuple[Members, int]] = {}
    for members in _groups(layers):
        kind = _kind(layers, members, state)
        first, count = kinds.get(kind, (members, 0))
        kinds[kind] = first, count + 1
    return kinds.values()


def _groups(layers: Sequence[Layer]) -> Iterator[Members]:
    """The parts of all layers, grouped by the blocks that they share."""
    parent: dict[Block, Block] = {}

    def root(block: Block) -> Block:
        while (above := parent[block]) is not block:
            parent[block] = block = parent[above]
        return block

    for layer in layers:
        for part in layer.parts:
            own = root(parent.setdefault(part.targets[0], part.targets[0]))
            for block in part.sources + part.targets:
                if block in parent:
                    parent[root(block)] = own
                else:
                    parent[block] = own
    found: dict[Block, tuple[list[int], ...]] = {}
    for place, layer in enumerate(layers):
        for i, part in enumerate(layer.parts):
            own = root(part.targets[0])
            if own not in found:
                found[own] = tuple([] for _ in layers)
            found[own][place].append(i)
    return (tuple(map(tuple, numbers)) for numbers in found.values())


def _kind(layers: Sequence[Layer], members: Members, state: Callable[[Block], Hashable]) -> Hashable:
    names: dict[Block, int] = {}
    kind: list[Hashable] = []
    for place, numbers in enumerate(members):
        for i in numbers:
            part = layers[place].parts[i]
            blocks = tuple([names.setdefault(block, len(names)) for block in part.sources + part.targets])
            kind.append((place, layers[place].kinds[i], blocks, part.kept))
    return (*kind, tuple(map(state, names)))
