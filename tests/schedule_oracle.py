"""Exact execution of one-level schedules on integer blocks that do not commute: every order of steps, and two levels interleaved."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bilinear.ir.number import Coefficient, Symbolic
from bilinear.ir.schedule import (
    AnySchedule,
    Block,
    LinearStage,
    Product,
    ProductStage,
    ScaledSchedule,
    ScaledTarget,
    Schedule,
    Stage,
    Target,
)

Matrix = NDArray[np.int64]
State = dict[Block, Matrix]
MOST_ORDERS = 24


class Undefined(Exception):
    """A block is read that nothing has been written to."""


def number(value: Coefficient, alpha: Any, beta: Any) -> Any:
    """A coefficient at numbers for alpha and beta; roots stay."""
    if not isinstance(value, Symbolic):
        return int(value) if value.denominator == 1 else value
    scales = {"alpha": alpha, "beta": beta}
    if not scales.keys() >= set(value.generators):
        return value
    return sum((int(c) if c.denominator == 1 else c) * prod(scales[name] ** e for name, e in monomial) for monomial, c in value.terms)


def random_blocks(schedule: AnySchedule, generator: random.Random, size: int) -> State:
    """Integer blocks of A, B and C."""
    blocks = [block for space in schedule.spaces[:3] for block in space.blocks]
    return {block: np.array([[generator.randint(-5, 5) for _ in range(size)] for _ in range(size)], dtype=np.int64) for block in blocks}


def start_of(schedule: AnySchedule, given: State) -> State:
    """What a schedule finds: where its result has no beta, C has no values."""
    return {block: value.copy() for block, value in given.items() if schedule.result.beta or block.space != "C"}


def wanted(schedule: AnySchedule, given: State, alpha: int, beta: int) -> State:
    """The result by the definition, and the operands that are to come back."""
    alpha, beta = number(schedule.result.alpha, alpha, beta), number(schedule.result.beta, alpha, beta)
    end = {block: value for block, value in given.items() if block.space in schedule.restores}
    for block in schedule.space("C").blocks:
        product = sum(given[Block("A", block.row, p)] @ given[Block("B", p, block.column)] for p in range(schedule.k))
        end[block] = alpha * product + beta * given[block]
    return end


def agrees(end: State, goal: State) -> bool:
    """Whether a final state is as wanted."""
    return all(block in end and np.array_equal(end[block], value) for block, value in goal.items())


def steps(stage: Stage) -> list[Any]:
    """The steps of a stage: pairs of target and row for linear ones, pairs of product and target for products."""
    if isinstance(stage, LinearStage):
        return [(m.sources, t, row, kept) for m in stage.maps for t, row, kept in zip(m.targets, m.map.matrix, m.kept, strict=True)]
    return [(product, target) for product in stage.products for target in product.targets]


def run_stage(schedule: AnySchedule, stage: Stage, state: Any, order: Sequence[int], alpha: Any, beta: Any) -> None:
    """One stage: every step reads the values from before; products that carry beta or overwrite go first, as the schedule says."""
    before = dict(state)
    listed = steps(stage)
    if isinstance(stage, LinearStage):
        for i in order:
            sources, target, row, kept = listed[i]
            terms = [(sources[j], c) for j, c in row] + ([(target, kept)] if kept else [])
            state[target] = _combined([(before_of(before, block), number(c, alpha, beta)) for block, c in terms], state)
        return
    scaled = isinstance(schedule, ScaledSchedule)
    for i in order if scaled else sorted(order, key=lambda i: listed[i][1].kept == 1):
        product, target = listed[i]
        value = before_of(before, product.left) @ before_of(before, product.right) * number(target.coefficient, alpha, beta)
        own = [(before_of(state if target.kept == 1 and not _plus(target) else before, target.block), target.kept)] if target.kept else []
        terms = [*own, *((before_of(before, block), c) for block, c in _plus(target))]
        state[target.block] = _combined([(x, number(c, alpha, beta)) for x, c in terms], state) + (value if scaled else alpha * value)


def _plus(target: Target) -> tuple[tuple[Block, Coefficient], ...]:
    return target.plus if isinstance(target, ScaledTarget) else ()


def before_of(state: State, block: Block) -> Matrix:
    if block not in state:
        raise Undefined(block)
    return state[block]


def _combined(terms: list[tuple[Matrix, Any]], state: State) -> Matrix:
    zero = np.zeros_like(next(iter(state.values())))
    total: Matrix = sum((c * value for value, c in terms), zero)
    return total


def orders(count: int, generator: random.Random) -> list[tuple[int, ...]]:
    """Every order of a few steps, a sample of the orders of many."""
    if count <= 4:
        return list(itertools.permutations(range(count)))
    return [tuple(generator.sample(range(count), count)) for _ in range(MOST_ORDERS)]


def computes_in_every_order(schedule: AnySchedule, seed: int = 0) -> bool:
    """Whether C comes out right and what is to come back does, whichever order the steps of a stage run in."""
    generator = random.Random(seed)
    alpha, beta = 3, -2
    given = random_blocks(schedule, generator, 2)
    goal = wanted(schedule, given, alpha, beta)
    counts = [len(steps(stage)) for stage in schedule.stages]
    prefix = start_of(schedule, given)
    try:
        for position, stage in enumerate(schedule.stages):
            ends = []
            for order in orders(counts[position], generator):
                state = dict(prefix)
                run_stage(schedule, stage, state, order, alpha, beta)
                ends.append(state)
            if not all(agrees(state, ends[0]) for state in ends):
                return False
            prefix = ends[0]
    except Undefined:
        return False
    return agrees(prefix, goal)


def computes_interleaved(schedule: AnySchedule, trials: int = 3, seed: int = 0) -> bool:
    """Whether two levels in place are right: the products of a stage run by the same schedule, their stages in random interleavings."""
    generator = random.Random(seed)
    for _ in range(trials):
        given = random_blocks(schedule, generator, 2 * max(schedule.m, schedule.k, schedule.n))
        state = start_of(schedule, given)
        try:
            for stage in schedule.stages:
                if isinstance(stage, LinearStage):
                    run_stage(schedule, stage, state, range(len(steps(stage))), 3, -2)
                else:
                    _interleave(schedule, stage, state, generator)
        except Undefined:
            return False
        if not agrees(state, wanted(schedule, given, 3, -2)):
            return False
    return True


def _interleave(schedule: AnySchedule, stage: ProductStage, state: State, generator: random.Random) -> None:
    if isinstance(schedule, Schedule):
        for _, target in steps(stage):
            state[target.block] *= number(target.kept, 3, -2)
        tasks = [_added_product(schedule, product, state) for product in stage.products]
    else:
        tasks = [_scaled_product(schedule, product, state) for product in stage.products]
    while tasks:
        task = generator.choice(tasks)
        if next(task, None) is None:
            tasks.remove(task)


def _parts(whole: Matrix, name: str, rows: int, columns: int) -> State:
    """Views of the blocks of a block."""
    height, width = whole.shape[0] // rows, whole.shape[1] // columns
    cut = [(i, j, whole[i * height : (i + 1) * height, j * width : (j + 1) * width]) for i in range(rows) for j in range(columns)]
    return {Block(name, i, j): view for i, j, view in cut}


def _added_product(schedule: Schedule, product: Product, state: State) -> Iterator[bool]:
    """An inner level of a schedule that implies its scaling: its products are added to all targets of the outer product."""
    inner = _parts(state[product.left], "A", schedule.m, schedule.k) | _parts(state[product.right], "B", schedule.k, schedule.n)
    outputs = [(t.coefficient, _parts(state[t.block], "C", schedule.m, schedule.n)) for t in product.targets]
    for stage in schedule.stages:
        if isinstance(stage, LinearStage):
            new = dict(inner)
            run_stage(schedule, stage, new, range(len(steps(stage))), 1, 1)
            for block, value in new.items():
                if value is not inner[block]:
                    inner[block][...] = value
            yield True
            continue
        for small in stage.products:
            value = inner[small.left] @ inner[small.right]
            for coefficient, output in outputs:
                for target in small.targets:
                    output[target.block] += 3 * int(coefficient * target.coefficient) * value  # type: ignore[arg-type]
            yield True


def _scaled_product(schedule: ScaledSchedule, product: Product, state: State) -> Iterator[bool]:
    """An inner level of a schedule with explicit scaling; its target is its C."""
    (target,) = product.targets
    result = schedule.result
    assert not _plus(target)
    alpha, beta = number(target.coefficient, 3, -2), number(target.kept, 3, -2)
    assert isinstance(result.alpha, Symbolic) or number(result.alpha, 0, 0) == alpha
    assert isinstance(result.beta, Symbolic) or number(result.beta, 0, 0) == beta
    whole = state.setdefault(target.block, np.zeros_like(state[product.left]))
    own = _parts(before_of(state, product.left), "A", schedule.m, schedule.k) | _parts(
        before_of(state, product.right), "B", schedule.k, schedule.n
    )
    own |= _parts(whole, "C", schedule.m, schedule.n)
    for stage in schedule.stages:
        new = dict(own)
        run_stage(schedule, stage, new, range(len(steps(stage))), alpha, beta)
        for block, value in new.items():
            if value is not own[block]:
                own[block][...] = value
        yield True
