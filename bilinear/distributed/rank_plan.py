"""The language of a distributed multiply: who holds what, who multiplies what. Frozen and exact; it knows no arrays and no network."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from bilinear.distributed.spread import Rect, Run, Runs, Spread, run
from bilinear.ir.scheme import Scheme

Extents = tuple[int, int, int]
"""(m, k, n) of a product of m x k by k x n."""


@dataclass(frozen=True)
class Task:
    """A part of one product of the breadth-first levels: rows of its left factor by columns of its right one, over a range of k."""

    product: int
    rows: Run
    inner: Runs
    columns: Run

    @property
    def operands(self) -> tuple[Rect, Rect]:
        """What is read of the left and of the right factor."""
        return Rect(run(*self.rows), self.inner), Rect(self.inner, run(*self.columns))

    @property
    def result(self) -> Rect:
        """What is computed of the product."""
        return Rect(run(*self.rows), run(*self.columns))

    @property
    def extents(self) -> Extents:
        """(m, k, n) of what is multiplied."""
        (m, k), (_, n) = (x.shape for x in self.operands)
        return m, k, n


@dataclass(frozen=True)
class Move:
    """One message: a rank sends another a part of a matrix, or of a factor or product of which `product` is the number."""

    source: int
    target: int
    product: int
    part: Rect


@dataclass(frozen=True)
class RankPlan:
    """C = A B of `extents` over ranks.

    The levels `depth` run one product after another, those of `breadth` all of theirs at once; both are listed outermost first. Without
    levels, the tasks are parts of A B itself. `given` says how A and B come and how C is to leave, `home` how they lie while sums are
    computed (of matrices padded with zeros to whole blocks), `form` how a factor or a product of the breadth-first levels lies: each for A,
    B and C. `tasks` are those of each rank, in their order; consecutive ones of one result are added up.
    """

    extents: Extents
    depth: tuple[Scheme, ...]
    breadth: tuple[Scheme, ...]
    given: tuple[Spread, Spread, Spread]
    home: tuple[Spread, Spread, Spread]
    form: tuple[Spread, Spread, Spread]
    tasks: tuple[tuple[Task, ...], ...]

    @property
    def ranks(self) -> int:
        """How many ranks."""
        return len(self.tasks)

    @property
    def levels(self) -> tuple[Scheme, ...]:
        """All levels, the outermost first."""
        return self.depth + self.breadth

    @property
    def rounds(self) -> int:
        """How often the tasks run: the products of the depth-first levels."""
        return prod(scheme.rank for scheme in self.depth)

    @property
    def products(self) -> int:
        """The products of the breadth-first levels."""
        return prod(scheme.rank for scheme in self.breadth)

    @property
    def name(self) -> str:
        """The decomposition in words: `2d`, `winograd^2`, `winograd^1 depth first, winograd^1`."""
        if not self.levels:
            return "2d"
        depth = f"{self.depth[0].name}^{len(self.depth)} depth first, " if self.depth else ""
        return f"{depth}{self.breadth[0].name}^{len(self.breadth)}"


def moves_between(source: Spread, target: Spread, product: int = 0) -> tuple[Move, ...]:
    """The messages that bring a matrix from one spread to another; what a rank holds already is not sent."""
    found = []
    for p, held in enumerate(source):
        for q, wanted in enumerate(target):
            part = held.meet(wanted)
            if p != q and part.size:
                found.append(Move(p, q, product, part))
    return tuple(found)


def operand_moves(plan: RankPlan, side: int) -> tuple[Move, ...]:
    """The messages of one round that bring the tasks their left (0) or right (1) operands."""
    found = []
    for target, tasks in enumerate(plan.tasks):
        for task in tasks:
            for source, held in enumerate(plan.form[side]):
                part = held.meet(task.operands[side])
                if source != target and part.size:
                    found.append(Move(source, target, task.product, part))
    return tuple(found)


def begins_result(tasks: tuple[Task, ...], at: int) -> bool:
    """Whether a task is the first that is added up to its result."""
    return at == 0 or _result(tasks[at - 1]) != _result(tasks[at])


def ends_result(tasks: tuple[Task, ...], at: int) -> bool:
    """Whether there is a task number `at`, and it is the last that is added up to its result."""
    return at < len(tasks) and (at + 1 == len(tasks) or begins_result(tasks, at + 1))


def _result(task: Task) -> tuple[int, Rect]:
    return task.product, task.result


def results_of(tasks: tuple[Task, ...]) -> tuple[tuple[Task, ...], ...]:
    """The tasks of a rank, those that are added up to one result together."""
    groups: list[list[Task]] = []
    for task in tasks:
        if groups and _result(groups[-1][0]) == _result(task):
            groups[-1].append(task)
        else:
            groups.append([task])
    return tuple(map(tuple, groups))


def product_moves(plan: RankPlan) -> tuple[Move, ...]:
    """The messages of one round that bring the results of the tasks to where they are summed."""
    found = []
    for source, tasks in enumerate(plan.tasks):
        for group in results_of(tasks):
            for target, wanted in enumerate(plan.form[2]):
                part = wanted.meet(group[0].result)
                if source != target and part.size:
                    found.append(Move(source, target, group[0].product, part))
    return tuple(found)
