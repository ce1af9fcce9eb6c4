"""Orders of evaluation compute the map, and hold as few values as they say; equal groups of a stage are of one kind each."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

from each_case import each
from hypothesis import example, given
from hypothesis import strategies as st

from bilinear.analysis.block_maps import beside, components, then
from bilinear.analysis.evaluation_order import GroupLayer, equal_groups, evaluate, holds_at_most, live_values, own_inputs, read_ahead
from bilinear.frontend import load
from bilinear.ir.linear import Add, Evaluation, LinearMap, Operation, Read, form
from bilinear.ir.number import Coefficient, Symbolic
from bilinear.ir.schedule import Block, BlockMap, LinearStage
from bilinear.lowering.prepare import prepare
from bilinear.passes.nest_levels import nest_levels
from bilinear.passes.scheme_to_schedule import scheme_to_schedule

Own = tuple[int | None, ...]
COEFFICIENTS = st.sampled_from([1, -1, 2, Fraction(1, 3)])


@st.composite
def maps(draw: Any) -> tuple[LinearMap, Own]:
    """A small program with zeros, copies and unused values, and outputs of which some stand where an input stood."""
    inputs = draw(st.integers(1, 6))

    def some_form(values: int) -> Any:
        return form(draw(st.dictionaries(st.integers(0, values - 1), COEFFICIENTS, max_size=5)))

    steps = tuple(some_form(inputs + i) for i in range(draw(st.integers(0, 6))))
    outputs = tuple(some_form(inputs + len(steps)) for _ in range(draw(st.integers(1, 6))))
    places = draw(st.permutations(range(inputs)))
    own = tuple(places[i] if i < inputs and draw(st.booleans()) else None for i in range(len(outputs)))
    return LinearMap(inputs, outputs, steps), own


def exactly(coefficient: Coefficient) -> Fraction:
    assert not isinstance(coefficient, Symbolic)
    return Fraction(coefficient)


def run(evaluation: Evaluation, memory: list[Fraction], own: Own) -> list[Fraction]:
    """What the instructions write, where an output overwrites the input that it stands for; fails where a value is not there yet."""
    memory = list(memory)
    values: dict[int, Fraction] = {}
    written: dict[int, Fraction] = {}
    for instruction in evaluation.instructions:
        if isinstance(instruction, Read):
            assert instruction.value not in values, "read twice"
            values[instruction.value] = memory[instruction.value]
        elif isinstance(instruction, Add):
            assert instruction.begins == (instruction.value not in values)
            total = sum((exactly(c) * values[index] for index, c in instruction.terms), Fraction(0))
            values[instruction.value] = values.get(instruction.value, Fraction(0)) + total
        else:
            assert instruction.output not in written, "written twice"
            written[instruction.output] = values[instruction.value]
            place = own[instruction.output] if own else None
            if place is not None:
                memory[place] = values[instruction.value]
    return [written[i] for i in range(len(written))]


@given(maps(), st.integers(0, 12))
def test_a_map_holds_no_more_than_its_order_says(found: tuple[LinearMap, Own], most: int) -> None:
    linear, own = found
    assert holds_at_most(linear, own, most) == (evaluate(linear, own).live <= most)


def counted(instructions: tuple[Operation, ...]) -> list[int]:
    """Live values by definition: those that some instruction up to here and one after it (in a write: or itself) name."""

    def names(instruction: Operation) -> set[int]:
        return {instruction.value, *(i for i, _ in getattr(instruction, "terms", ()))}

    counts = []
    for position, instruction in enumerate(instructions):
        before = set().union(*map(names, instructions[: position + 1]))
        after = set().union(*map(names, instructions[position + (instruction.kind != "write") :]))
        counts.append(len(before & after))
    return counts


@given(case=maps(), most=st.integers(0, 8))
@example(case=(LinearMap(2, (((1, 1),), ((0, 1),))), (0, 1)), most=0)  # a swap: both inputs are read before either is written
@example(case=(LinearMap(1, ((), ((0, 2),))), (0, None)), most=0)  # a zero where an input stood that is still wanted
@example(case=(LinearMap(3, (((0, 1), (1, 1), (2, 1)),)), (None,)), most=2)  # the third input is read when the first two are one sum
def test_orders_compute_the_map_and_count_what_they_hold(case: tuple[LinearMap, Own], most: int) -> None:
    linear, own = case
    memory = [Fraction(7**i) for i in range(linear.inputs)]
    wanted = [sum((exactly(c) * memory[index] for index, c in row), Fraction(0)) for row in linear.matrix]
    evaluation = evaluate(linear, own)
    earlier = read_ahead(evaluation, most)
    for evaluated in (evaluation, earlier):
        assert run(evaluated, memory, own) == wanted
        assert list(live_values(evaluated.instructions)) == counted(evaluated.instructions)
        assert evaluated.live == max(counted(evaluated.instructions), default=0)
    assert earlier.live <= max(evaluation.live, most)


def test_each_form_costs_what_the_map_says() -> None:
    linear = load("winograd").scheme.u
    additions = sum(len(i.terms) - i.begins for i in evaluate(linear).instructions if isinstance(i, Add))
    assert additions == linear.additions == 4


def parts(name: str, levels: int) -> list[BlockMap]:
    loaded = load(name)
    inputs = "preserve" if loaded.schedule is None else "restore"
    stages = prepare(loaded.scheme, loaded.schedule, levels, inputs).schedule.stages
    return [part for stage in stages if isinstance(stage, LinearStage) for m in stage.maps for part in components(m)]


@each(
    ("name", "levels", "most"),
    [("winograd", 1, 4), ("winograd", 2, 16), ("winograd", 3, 46), ("strassen", 3, 86), ("msmes", 3, 39), ("hopcroft_kerr", 2, 63)],
)
def test_the_lowered_maps_need_few_registers(name: str, levels: int, most: int) -> None:
    """Pinned, for a worse order costs occupancy: evaluated as they are written, three levels of winograd hold 148 values."""
    assert max(evaluate(part.map, own_inputs(part)).live for part in parts(name, levels)) <= most


def test_reading_ahead_uses_what_is_free() -> None:
    (expansion, *_) = parts("winograd", 2)
    evaluation = evaluate(expansion.map)
    first = [isinstance(i, Read) for i in read_ahead(evaluation, 99).instructions[:16]]
    assert all(first) and len(first) == len(expansion.sources)
    assert read_ahead(evaluation, 0) == evaluation


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
