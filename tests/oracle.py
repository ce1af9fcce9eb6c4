"""Exact oracles: schedules run on integer matrices that do not commute, one step at a time, beside the classical product."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import numpy as np
from schedule_oracle import Undefined, run_stage, steps

from bilinear.ir.number import Coefficient
from bilinear.ir.schedule import Block, Schedule
from bilinear.ir.scheme import Scheme

Matrix = Any
State = dict[Block, Matrix]


def random_state(schedule: Schedule, generator: random.Random, size: int = 2) -> State:
    """Random integer matrices of size x size for every block of A, B and C; workspaces are absent."""
    return {
        block: np.array([[generator.randint(-9, 9) for _ in range(size)] for _ in range(size)], dtype=object)
        for space in schedule.spaces
        if space.name in ("A", "B", "C")
        for block in space.blocks
    }


def classical(schedule: Schedule, state: State, alpha: Coefficient, beta: Coefficient) -> State:
    """alpha * A * B + beta * C by the definition, block by block; a schedule that overwrites leaves nothing of C."""

    def entry(i: int, j: int) -> Matrix:
        return sum(state[Block("A", i, p)] @ state[Block("B", p, j)] for p in range(schedule.k))

    outputs = schedule.space("C").blocks
    kept = 0 if schedule.overwrites else beta
    return {block: alpha * entry(block.row, block.column) + kept * state[block] for block in outputs}


def execute(schedule: Schedule, state: State, alpha: Coefficient, beta: Coefficient, generator: random.Random) -> State:
    """Run a schedule with marked first writes; the steps of a stage in random order, each reading the values from before the stage.

    Products of a stage are added in random order too, except that a first write stays first: it is what carries beta, or overwrites.
    """
    now = dict(state)
    for stage in schedule.stages:
        order = list(range(len(steps(stage))))
        generator.shuffle(order)
        run_stage(schedule, stage, now, order, alpha, beta)
    return now


def computes(schedule: Schedule, trials: int = 4, seed: int = 0) -> bool:
    """Whether a schedule gives alpha*A*B + beta*C, and leaves as they were the operands it promises to restore."""
    generator = random.Random(seed)
    for _ in range(trials):
        alpha, beta = Fraction(generator.randint(1, 5), generator.randint(1, 3)), Fraction(generator.randint(-5, 5), 2)
        state = random_state(schedule, generator)
        try:
            end = execute(schedule, state, alpha, beta, generator)
        except Undefined:
            return False
        wanted = classical(schedule, state, alpha, beta)
        wanted |= {block: value for block, value in state.items() if block.space in schedule.restores}
        if not all(np.array_equal(end[block], value) for block, value in wanted.items()):
            return False
    return True


def scheme_computes(scheme: Scheme, trials: int = 3, seed: int = 0) -> bool:
    """Whether the tables of a scheme multiply random integer block matrices whose blocks do not commute, modulo p if it is over Z/p."""
    generator = random.Random(seed)
    u, v, w = scheme.tables
    m, k, n = scheme.m, scheme.k, scheme.n

    def blocks(count: int) -> list[Matrix]:
        return [np.array([[generator.randint(-9, 9) for _ in range(2)] for _ in range(2)], dtype=object) for _ in range(count)]

    zero = np.zeros((2, 2), dtype=object)
    for _ in range(trials):
        a, b = blocks(m * k), blocks(k * n)
        products = [
            sum((a[i] * c for i, c in left), zero) @ sum((b[i] * c for i, c in right), zero) for left, right in zip(u, v, strict=True)
        ]
        for position, row in enumerate(w):
            i, j = divmod(position, n)
            wanted = sum((a[i * k + p] @ b[p * n + j] for p in range(k)), zero)
            found = sum((products[p] * c for p, c in row), zero) - wanted
            if not np.array_equal(found % scheme.ring.modulus if scheme.ring.modulus else found, zero):
                return False
    return True
