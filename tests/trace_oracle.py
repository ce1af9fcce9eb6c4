"""Which changes of the inputs a schedule loses, by execution at random inputs alone: no symbol, no kernel."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray
from schedule_oracle import random_blocks, run_stage, start_of, steps

from bilinear.ir.schedule import AnySchedule, Block

TRIALS = 8


def left_over(schedule: AnySchedule, given: Any, alpha: int, beta: int) -> dict[Block, Any]:
    """The final blocks of A and B."""
    state: Any = start_of(schedule, given)
    for stage in schedule.stages:
        run_stage(schedule, stage, state, range(len(steps(stage))), alpha, beta)
    return {block: value for block, value in state.items() if block.space in "AB"}


def leaves_no_trace(schedule: AnySchedule, update: str, seed: int = 0) -> bool:
    """Whether `A11 += X ; A21 -= 2 X` changes nothing of what is left, at random inputs of 2 x 2 blocks, with a random X."""
    generator = random.Random(seed)
    for _ in range(TRIALS):
        first = random_blocks(schedule, generator, 2)
        x = next(iter(random_blocks(schedule, generator, 2).values()))
        second = dict(first)
        for step in update.split(" ; "):
            match = re.fullmatch(r"([ABC])(\d)(\d) ([+-])= (?:(\d+) )?X", step)
            assert match is not None
            block = Block(match[1], int(match[2]) - 1, int(match[3]) - 1)
            second[block] = second[block] + int(match[4] + (match[5] or "1")) * x
        alpha, beta = generator.randint(2, 9), generator.randint(2, 9)
        ends = [left_over(schedule, state, alpha, beta) for state in (first, second)]
        if any(np.any(ends[0][block] != value) for block, value in ends[1].items()):
            return False
    return True


def lost_everywhere(schedule: AnySchedule, side: str, seed: int = 0) -> int:
    """How many dimensions of an operand no random input tells: from the ranks of the derivatives at all of them.

    What is left is of degree two in the inputs, so central differences are its derivatives, exactly.
    """
    generator = random.Random(seed)
    rows: list[NDArray[np.float64]] = []
    blocks: list[Block] = []
    for _ in range(TRIALS):
        point = random_blocks(schedule, generator, 1)
        blocks = list(point)
        alpha, beta = generator.randint(2, 9), generator.randint(2, 9)
        columns = []
        for block in blocks:
            ends = [left_over(schedule, {**point, block: point[block] + h}, alpha, beta) for h in (1, -1)]
            columns.append([float((ends[0][b] - ends[1][b]).item()) / 2 for b in sorted(ends[0])])
        rows.append(np.array(columns).T)
    jacobian = np.vstack(rows)
    own = np.array([block.space == side for block in blocks])
    return int(own.sum() - np.linalg.matrix_rank(jacobian) + np.linalg.matrix_rank(jacobian[:, ~own]))
