"""Equal groups: all of what stages do, sorted by kind, and each kind what its groups are."""

from __future__ import annotations

from collections import Counter

from bilinear.analysis.block_maps import beside, components, then
from bilinear.analysis.evaluation_order import GroupLayer, equal_groups
from bilinear.frontend import load
from bilinear.ir.linear import LinearMap
from bilinear.ir.schedule import Block, BlockMap, LinearStage
from bilinear.passes.nest_levels import nest_levels
from bilinear.passes.scheme_to_schedule import scheme_to_schedule


def expansion(levels: int) -> list[BlockMap]:
    """The first map of each level of the left operand."""
    schedule = nest_levels([scheme_to_schedule(load("winograd").scheme)] * levels)
    stages = [stage for stage in schedule.stages if isinstance(stage, LinearStage)][:levels]
    return [beside(m for m in stage.maps if m.targets[0].space.startswith("X")) for stage in stages]


def test_the_groups_are_the_components_of_the_composition() -> None:
    known: dict[LinearMap, int] = {}
    maps = expansion(3)
    assert all(m.targets for m in maps)
    for first in range(2):
        layers = [GroupLayer(m, known) for m in maps[first : first + 2]]
        groups = list(equal_groups(layers, lambda block: 0))
        whole = then(maps[first], maps[first + 1])
        assert sum(count for _, count in groups) == len(components(whole))
        for members, count in groups:
            one = then(*(layer.together(numbers) for layer, numbers in zip(layers, members, strict=True)))
            assert sum(part.map == one.map for part in components(whole)) == count


def test_states_and_shared_blocks_tell_groups_apart() -> None:
    def copy(number: int) -> BlockMap:
        return BlockMap((Block("A", 0, number),), (Block("S", number, 0),), LinearMap(1, (((0, 2),),)))

    layer = GroupLayer(beside(map(copy, range(6))), {})
    assert [count for _, count in equal_groups([layer], lambda block: 0)] == [6]
    kinds = Counter(count for _, count in equal_groups([layer], lambda block: block.row % 3 if block.space == "S" else 0))
    assert kinds == {2: 3}
    crossed = GroupLayer(BlockMap((Block("S", 0, 0), Block("S", 1, 0)), (Block("T", 0, 0),), LinearMap(2, (((0, 1), (1, 1)),))), {})
    assert sorted(count for _, count in equal_groups([layer, crossed], lambda block: 0)) == [1, 4]
