"""Plans of A*A^T: the blocks of one triangle, each by a plan of its own, cut where that takes least."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from bilinear.planner.chains import ProductWay
from bilinear.planner.plan import bytes_text, table_html

Range = tuple[int, int]
COLUMNS = "blocks", "shape", "diagonal", "ms", "plan", "workspace"
LEAST = 512  # With predicted times rows are not cut below this: launches dominate, and rates say little.
ALIGNMENT = 64  # Rows are cut at such multiples, so that blocks begin where copies and units can read.
TRIANGLE_TILE = "pairs"
ONE_TRIANGLE = f"{TRIANGLE_TILE}, one triangle"
"""The plan of a block on the diagonal that is computed and mirrored by one launch (methods/digits/launches.py)."""
_Tree = int | tuple["_Tree", "_Tree"]  # How the rows are cut: rows that stay together, or two parts.


@dataclass(frozen=True)
class GramStep:
    """A block of the lower triangle: rows `rows` of A times the transposed rows `columns`; on the diagonal they are the same.

    `plan` names what multiplies, `seconds` (None: not predicted) and `workspace` are its own.
    """

    rows: Range
    columns: Range
    plan: str
    seconds: float | None
    workspace: int

    @property
    def is_diagonal(self) -> bool:
        """Whether the block lies on the diagonal."""
        return self.rows == self.columns

    @property
    def is_mirrored(self) -> bool:
        """Whether what multiplies also writes the block's mirror image."""
        return self.plan == ONE_TRIANGLE

    @property
    def results(self) -> int:
        """The elements of C that are computed."""
        height, width = self.rows[1] - self.rows[0], self.columns[1] - self.columns[0]
        return height * (height + 1) // 2 if self.is_mirrored else height * width


@dataclass(frozen=True)
class GramPlan:
    """How A*A^T, A n x k, is computed: the blocks of its lower triangle, in the order in which they run.

    `seconds` (None: not predicted) are those of all blocks and of the mirroring, where both triangles are wanted; `plain` are those of the
    best plan that multiplies A by A^T as two matrices, on processors of NumPy's multiply, which computes one triangle of A*A^T by itself.
    """

    n: int
    k: int
    dtype: str
    device: str
    workspace: int | None
    steps: tuple[GramStep, ...]
    seconds: float | None = None
    plain: float | None = None

    @property
    def multiplications(self) -> int:
        """The multiplications of all blocks by the classical multiply, at most n^2 k."""
        return sum(step.results for step in self.steps) * self.k

    @property
    def peak(self) -> int:
        """The most bytes of workspace that a block needs."""
        return max((step.workspace for step in self.steps), default=0)

    @property
    def gains(self) -> bool:
        """Whether the plan is predicted to be faster than the best plan for two matrices."""
        return self.seconds is not None and self.plain is not None and self.seconds < self.plain

    def __repr__(self) -> str:
        where = f", {self.device}" if self.device else ""
        diagonal = sum(step.is_diagonal for step in self.steps)
        return f"<GramPlan of A*A^T, A {self.n} x {self.k}, {self.dtype}{where}: {diagonal} blocks on the diagonal>"

    def __str__(self) -> str:
        told = "no time is known" if self.seconds is None else f"{self.seconds * 1e3:.4g} ms"
        return f"{repr(self)[1:-1]}, {told}, {bytes_text(self.peak)} of workspace"

    def _repr_html_(self) -> str:
        return table_html(repr(self)[1:-1], COLUMNS, self.table())

    def table(self) -> list[tuple[str, ...]]:
        """A row of text for each kind of block, in the order in which the first of them runs: how many there are, and what one takes."""
        kinds = Counter(replace(x, rows=(0, x.rows[1] - x.rows[0]), columns=_place(x)) for x in self.steps)
        return [
            (
                str(count),
                f"{step.rows[1]} x {step.columns[1] - step.columns[0]}",
                "on" if step.is_diagonal else "below",
                "-" if step.seconds is None else f"{step.seconds * 1e3:.4g}",
                step.plan,
                bytes_text(step.workspace),
            )
            for step, count in kinds.items()
        ]


def _place(step: GramStep) -> Range:
    """The columns of a block, counted from its rows on the diagonal, from 1 elsewhere."""
    start = 0 if step.is_diagonal else 1
    return start, start + step.columns[1] - step.columns[0]


class BlockTimes(NamedTuple):
    """What the blocks of a problem take on a device: `product` of so many rows and columns, `diagonal` of so many rows.

    `mirroring` are the seconds of writing the other triangle, `plain` those of `GramPlan`. A plan of several blocks is chosen only if it
    saves the part `least_gain` of that.
    """

    product: Callable[[int, int], ProductWay]
    diagonal: Callable[[int], ProductWay]
    mirroring: float
    plain: float
    least_gain: float = 0.0


def plan_by_times(n: int, k: int, dtype: str, device: str, workspace: int | None, times: BlockTimes) -> GramPlan:
    """The plan with the least sum of times among those that halve rows, or cut them at a power of two, again and again."""

    @cache
    def best(rows: int) -> tuple[float, _Tree]:
        whole: tuple[float, _Tree] = (times.diagonal(rows).cost, rows)
        halves = (_joined(best(first), best(rows - first), times.product(rows - first, first).cost) for first in _cuts(rows))
        return min((whole, *halves), key=lambda found: found[0])

    cost, tree = best(n)
    if cost + times.mirroring >= (1 - times.least_gain) * times.plain:
        cost, tree = times.diagonal(n).cost, n
    steps = []
    for rows, columns in _blocks(tree, 0):
        height, width = rows[1] - rows[0], columns[1] - columns[0]
        way = times.diagonal(height) if rows == columns else times.product(height, width)
        steps.append(GramStep(rows, columns, way.plan, way.cost, way.workspace))
    seconds = cost + (times.mirroring if len(steps) > 1 else 0.0)
    return GramPlan(n, k, dtype, device, workspace, tuple(steps), seconds, times.plain)


def _joined(first: tuple[float, _Tree], second: tuple[float, _Tree], beside: float) -> tuple[float, _Tree]:
    return first[0] + second[0] + beside, (first[1], second[1])


def _cuts(rows: int) -> list[int]:
    if rows < 2 * LEAST:
        return []
    power = 1 << ((rows - 1).bit_length() - 1)
    return sorted({_half(rows), power})


def plan_by_size(n: int, k: int, dtype: str, most: int, plan: str) -> GramPlan:
    """The plan that halves rows until at most `most` stay together; `plan` names what multiplies the blocks below the diagonal."""
    blocks = _blocks(_halved(n, max(1, most)), 0)
    steps = (GramStep(rows, columns, "library" if rows == columns else plan, None, 0) for rows, columns in blocks)
    return GramPlan(n, k, dtype, "", None, tuple(steps))


def _halved(rows: int, most: int) -> _Tree:
    if rows <= most:
        return rows
    first = _half(rows)
    return _halved(first, most), _halved(rows - first, most)


def _half(rows: int) -> int:
    """Half of some rows, rounded up to the alignment where that is little."""
    half = -(-rows // 2)
    return half if rows < 4 * ALIGNMENT else -(-half // ALIGNMENT) * ALIGNMENT


def _rows(tree: _Tree) -> int:
    return tree if isinstance(tree, int) else _rows(tree[0]) + _rows(tree[1])


def _blocks(tree: _Tree, start: int) -> Iterator[tuple[Range, Range]]:
    """The blocks of the lower triangle, a larger one before those of its halves: what is refused for its workspace is refused first."""
    if isinstance(tree, int):
        yield (start, start + tree), (start, start + tree)
        return
    first, second = tree
    middle = start + _rows(first)
    yield (middle, middle + _rows(second)), (start, middle)
    yield from _blocks(first, start)
    yield from _blocks(second, middle)
