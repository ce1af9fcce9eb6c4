"""Schedules for complex matrices are proved: against symbols that do not commute, and no wrong one passes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from oracle import State, execute

from bilinear.algebra.complex_products import four_products, three_products
from bilinear.errors import BilinearError
from bilinear.frontend import load
from bilinear.ir.schedule import IMAGINARY, Block, LinearStage, ProductStage, Schedule
from bilinear.lowering.prepare import Level, authored_schedule, plain_complex, prepare_complex
from bilinear.passes.order_products import mark_first_writes
from bilinear.passes.scheme_to_schedule import complex_to_products, complex_to_schedule
from bilinear.verify.bilinear_map import prove_map
from bilinear.verify.composed import by_levels

CONJUGATED = ["", "A", "B", "AB"]


def by(*names: str, conjugated: str = "") -> Schedule:
    loaded = [load(name) for name in names]
    return prepare_complex(tuple(Level(x.scheme, x.schedule) for x in loaded), conjugated)


@pytest.mark.parametrize("conjugated", CONJUGATED)
def test_the_maps_multiply_complex_numbers(conjugated: str) -> None:
    generator = random.Random(1)
    for algorithm in (three_products(conjugated), four_products(conjugated)):
        assert prove_map(algorithm).holds
        for other in CONJUGATED:
            assert prove_map(replace(algorithm, target=three_products(other).target)).holds is (other == conjugated)
        x, y = (complex(generator.randint(-9, 9), generator.randint(-9, 9)) for _ in "AB")
        u, v, w = ([[(i, int(str(c))) for i, c in row] for row in table] for table in algorithm.tables)
        left, right = ([sum(c * (z.real, z.imag)[i] for i, c in row) for row in table] for z, table in ((x, u), (y, v)))
        re, im = (sum(c * left[p] * right[p] for p, c in row) for row in w)
        assert complex(re, im) == (x.conjugate() if "A" in conjugated else x) * (y.conjugate() if "B" in conjugated else y)


def product(schedule: Schedule, state: State, alpha: int, beta: int) -> State:
    """alpha * A * B + beta * C of complex matrices by the definition, as parts."""
    a, b = (-1 if letter in schedule.conjugated else 1 for letter in "AB")
    found: State = {}
    for block in schedule.space("C").blocks:
        own = Block(IMAGINARY["C"], block.row, block.column)
        re, im = beta * state[block], beta * state[own]
        for p in range(schedule.k):
            x, xi = (state[Block(space, block.row, p)] for space in ("A", IMAGINARY["A"]))
            y, yi = (state[Block(space, p, block.column)] for space in ("B", IMAGINARY["B"]))
            re, im = re + alpha * (x @ y - a * b * (xi @ yi)), im + alpha * (b * (x @ yi) + a * (xi @ y))
        found |= {block: re, own: im}
    return found


@pytest.mark.parametrize("conjugated", CONJUGATED)
@pytest.mark.parametrize("names", [("winograd",), ("classical",), ("split_k",), ("winograd_depth_first",), ("strassen", "winograd_223")])
def test_schedules_multiply_matrices_that_do_not_commute(names: tuple[str, ...], conjugated: str) -> None:
    schedule, generator = by(*names, conjugated=conjugated), random.Random(len(names))
    _agrees(schedule, generator)
    assert schedule.is_complex and schedule.conjugated == conjugated and not schedule.writes_operands


@pytest.mark.parametrize("conjugated", CONJUGATED)
def test_strips_are_four_products(conjugated: str) -> None:
    schedule = plain_complex(conjugated)
    assert schedule.products == 4 and not schedule.workspaces
    _agrees(schedule, random.Random(2))


def _agrees(schedule: Schedule, generator: random.Random) -> None:
    blocks = [block for space in schedule.operands for block in space.blocks]
    state = {b: np.array([[generator.randint(-9, 9) for _ in range(2)] for _ in range(2)], dtype=object) for b in blocks}
    after = execute(schedule, state, 3, -2, generator)
    for block, value in product(schedule, state, 3, -2).items():
        assert (after[block] == value).all()
    for block in (*schedule.blocks_of("A"), *schedule.blocks_of("B")):
        assert after[block] is state[block]


def test_products_are_three_times_as_many() -> None:
    assert by("winograd").products == 21 and by("laderman", "winograd").products == 3 * 23 * 7


def turned(schedule: Schedule) -> Iterator[Schedule]:
    """The schedule with one coefficient turned, one at a time."""
    for at, stage in enumerate(schedule.stages):
        for changed in _turned_maps(stage) if isinstance(stage, LinearStage) else _turned_products(stage):
            yield replace(schedule, stages=(*schedule.stages[:at], changed, *schedule.stages[at + 1 :]))


def _turned_maps(stage: LinearStage) -> Iterator[LinearStage]:
    for i, one in enumerate(stage.maps):
        for j, row in enumerate(one.map.outputs):
            for p, (index, c) in enumerate(row):
                rows = (*one.map.outputs[:j], (*row[:p], (index, -c), *row[p + 1 :]), *one.map.outputs[j + 1 :])
                maps = (*stage.maps[:i], replace(one, map=replace(one.map, outputs=rows)), *stage.maps[i + 1 :])
                yield replace(stage, maps=maps)


def _turned_products(stage: ProductStage) -> Iterator[ProductStage]:
    for i, one in enumerate(stage.products):
        targets = (replace(one.targets[0], coefficient=-one.targets[0].coefficient), *one.targets[1:])
        yield ProductStage((*stage.products[:i], replace(one, targets=targets), *stage.products[i + 1 :]))


@pytest.mark.parametrize("make", [complex_to_schedule, complex_to_products])
def test_no_turned_sign_is_proved(make: object) -> None:
    assert callable(make)
    level = mark_first_writes(make(three_products(), ""))
    inner = mark_first_writes(authored_schedule(load("strassen").scheme, None, "preserve"))
    flat, wrong = by("strassen"), 0
    for other in turned(flat):
        assert by_levels(other, [level, inner]) is None
        wrong += 1
    assert wrong > 60 and by_levels(flat, [level, inner]) is not None
    assert all(by_levels(other, [other]) is None for other in turned(level))


def test_conjugates_and_real_products_are_not_mistaken_for_one_another() -> None:
    inner = mark_first_writes(authored_schedule(load("strassen").scheme, None, "preserve"))
    levels = {c: mark_first_writes(complex_to_schedule(three_products(c), c)) for c in CONJUGATED}
    for conjugated in CONJUGATED:
        flat = by("strassen", conjugated=conjugated)
        assert [c for c in CONJUGATED if by_levels(flat, [levels[c], inner]) is not None] == [conjugated]
        assert by_levels(flat, [inner]) is None and by_levels(inner, [levels[conjugated], inner]) is None
    lied = replace(levels["A"], conjugated="")
    assert by_levels(lied, [lied]) is None


def test_what_can_only_be_proved_does_not_run() -> None:
    with pytest.raises(BilinearError, match="E506"):
        by("bini")
