"""Recursion counts: the arithmetic, the calls and the storage of a schedule that computes its products recursively.

`published_counts` counts as A. Khan, M. Al-Mouhamed and A. Fatayer do ("Optimizing the Matrix Multiply Using Strassen and Winograd
Algorithms with Limited Recursions on Many Core", tables 2 and 3), `recursion_counts` counts everything that runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from bilinear.ir.schedule import AnySchedule, LinearStage


@dataclass(frozen=True)
class RecursionCounts:
    """Scalar operations, recursive calls, and elements of temporaries that are held at once."""

    multiplications: int
    additions: int
    calls: int
    storage: int

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return self.multiplications + self.additions


def block_additions(schedule: AnySchedule) -> int:
    """The additions of blocks in one level, as the schedule is written. Copies and scalings are none."""
    maps = [m for stage in schedule.stages if isinstance(stage, LinearStage) for m in stage.maps]
    products = [p for stage in schedule.stages if not isinstance(stage, LinearStage) for p in stage.products]
    in_maps = sum(m.map.additions + sum(factor != 0 for factor in m.kept) for m in maps)
    return in_maps + sum(len(target.terms) for product in products for target in product.targets)


def temporaries(schedule: AnySchedule) -> int:
    """The blocks of one level's workspaces."""
    return sum(len(space.blocks) for space in schedule.workspaces)


def recursion_counts(schedule: AnySchedule, size: int, levels: int, tests_on_entry: bool = False) -> RecursionCounts:
    """The counts of `levels` levels for matrices of size x size; the products of the last level are classical.

    If a call `tests_on_entry`, it decides itself whether it multiplies classically; otherwise its caller has decided, and makes no call.
    Raises `ValueError` unless the grid is square and divides the matrices.
    """
    rank, blocks = schedule.products, _blocks(schedule, size, levels)
    last, own = blocks[-1], block_additions(schedule)
    return RecursionCounts(
        rank**levels * last**3,
        rank**levels * last**2 * (last - 1) + sum(own * rank**level * block**2 for level, block in enumerate(blocks)),
        sum(rank**level for level in range(1, levels + tests_on_entry)),
        temporaries(schedule) * sum(block**2 for block in blocks),
    )


def published_counts(schedule: AnySchedule, size: int, levels: int, tests_on_entry: bool = False) -> RecursionCounts:
    """The same by the rule of the published tables: the operations of a single branch of the recursion.

    The tables count the additions of each level once, and the products of one call of the last level, each with as many additions as
    multiplications. If the caller tests, the tables leave out the calls of the first level instead of those of the last.
    """
    rank, blocks = schedule.products, _blocks(schedule, size, levels)
    products = rank * blocks[-1] ** 3
    squares = sum(block**2 for block in blocks)
    calls = sum(rank**level for level in range(1 if tests_on_entry else 2, levels + 1))
    return RecursionCounts(products, products + block_additions(schedule) * squares, calls, temporaries(schedule) * squares)


def _blocks(schedule: AnySchedule, size: int, levels: int) -> list[int]:
    """The side of a block at each level."""
    grid = schedule.m
    if (grid, grid) != (schedule.k, schedule.n) or levels < 1 or size % grid**levels:
        raise ValueError(
            f"{levels} levels of {schedule.m} x {schedule.k} by {schedule.k} x {schedule.n} blocks do not divide {size} x {size}"
        )
    return [size // grid**level for level in range(1, levels + 1)]
