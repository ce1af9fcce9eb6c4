"""A lock-step simulator of schedules: blocks are matrices of integers modulo a prime, and all steps of a stage read the old values.

It knows the rules of docs/language.md and docs/certificate.md, and nothing of the package's proofs or passes. A wrong schedule passes one
trial with a probability below 10^-15.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bilinear.ir.number import Symbolic
from bilinear.ir.schedule import AnySchedule, LinearStage, Schedule

PRIME = 2**61 - 1281
"""A prime modulo which 2, 3 and 5 have roots; it is 3 modulo 4, which makes them easy to find."""
SIZE = 2  # Blocks of 2 x 2 do not commute.
Matrix = list[list[int]]
State = dict[str, Matrix]
ADDS, SETS, STARTS, SCALES = "adds", "sets", "starts", "scales"
"""What becomes of a block's old value: it stays, is lost, is lost even where the stage has written it before, or is multiplied by beta."""


class IllFormed(Exception):
    """The schedule means nothing: a block is read before it is written, or two steps of a stage write one block."""


class Unknown(Exception):
    """A number that has no image modulo the prime."""


@dataclass(frozen=True)
class Step:
    """A block becomes what it keeps, plus a form over blocks, plus a coefficient times a product of two blocks."""

    target: str
    keeps: str
    terms: tuple[tuple[str, int], ...] = ()
    product: tuple[str, str, int] | None = None


@dataclass(frozen=True)
class Grid:
    """The sizes of a schedule, and what its C begins and ends as: alpha*A*B + beta*C; `c_begins` is None where C holds nothing."""

    m: int
    k: int
    n: int
    alpha: int
    beta: int
    c_begins: int | None


@dataclass(frozen=True)
class End:
    """How a run ended: whether C is right, and which of A and B are as they were."""

    right: bool
    kept: frozenset[str]


def named(space: str, row: int, column: int) -> str:
    """The name of a block by its 0-based place; of a temporary the bare name."""
    return space if row < 0 else f"{space}[{row + 1},{column + 1}]"


def simulate(grid: Grid, stages: Iterable[Sequence[Step]], draw: random.Random) -> End:
    """Run the stages on random blocks. Raises IllFormed."""
    start = {
        named(space, i, j): [[draw.randrange(PRIME) for _ in range(SIZE)] for _ in range(SIZE)]
        for space, rows, columns in (("A", grid.m, grid.k), ("B", grid.k, grid.n), ("C", grid.m, grid.n))
        for i in range(rows)
        for j in range(columns)
    }
    state = {block: value for block, value in start.items() if block[:2] != "C[" or grid.c_begins is not None}
    if grid.c_begins is not None:
        state |= {block: _total([(grid.c_begins, value)]) for block, value in state.items() if block[:2] == "C["}
    for stage in stages:
        state = _after(state, stage, grid.beta)
    right = all(state.get(block) == value for block, value in _wanted(grid, start).items())
    changed = {block[0] for block, value in start.items() if block[0] in "AB" and state[block] != value}
    return End(right, frozenset("AB") - changed)


def _after(before: State, stage: Sequence[Step], beta: int) -> State:
    """The state after a stage: what each step contributes is made of the values from before."""
    sums: dict[str, list[tuple[int, Matrix]]] = {}
    lost: dict[str, str] = {}
    for step in stage:
        parts = [(c, _read(before, block)) for block, c in step.terms]
        if step.product is not None:
            left, right, c = step.product
            parts.append((c, _times(_read(before, left), _read(before, right))))
        if step.keeps == STARTS:
            sums[step.target] = []
        elif step.keeps != ADDS and step.target in lost:
            raise IllFormed(f"two steps write {step.target}")
        sums.setdefault(step.target, []).extend(parts)
        if step.keeps != ADDS:
            lost[step.target] = step.keeps
    after = dict(before)
    for target, parts in sums.items():
        keeps = lost.get(target, ADDS)
        old = [] if keeps in (SETS, STARTS) else [(beta if keeps == SCALES else 1, _read(before, target))]
        after[target] = _total([*old, *parts])
    return after


def _wanted(grid: Grid, start: State) -> State:
    end = {}
    for i in range(grid.m):
        for j in range(grid.n):
            block = named("C", i, j)
            products = [_times(start[named("A", i, p)], start[named("B", p, j)]) for p in range(grid.k)]
            end[block] = _total([*((grid.alpha, product) for product in products), (grid.beta, start[block])])
    return end


def _read(state: State, block: str) -> Matrix:
    if block not in state:
        raise IllFormed(f"{block} is read before it is written")
    return state[block]


def _times(a: Matrix, b: Matrix) -> Matrix:
    return [[sum(a[i][p] * b[p][j] for p in range(SIZE)) % PRIME for j in range(SIZE)] for i in range(SIZE)]


def _total(parts: Sequence[tuple[int, Matrix]]) -> Matrix:
    return [[sum(c * x[i][j] for c, x in parts) % PRIME for j in range(SIZE)] for i in range(SIZE)]


def image(value: Any, alpha: int, beta: int) -> int:
    """A coefficient modulo the prime. Raises Unknown for lambda, a root that is not there, and a denominator that is not a unit."""
    if not isinstance(value, Symbolic):
        return quotient(value.numerator, value.denominator)
    total = 0
    for monomial, factor in value.terms:
        size = quotient(factor.numerator, factor.denominator)
        for name, exponent in monomial:
            size = size * pow(generator_image(name, alpha, beta), exponent, PRIME) % PRIME
        total += size
    return total % PRIME


def quotient(numerator: int, denominator: int) -> int:
    """A fraction modulo the prime. Raises Unknown where its denominator is not a unit."""
    if denominator % PRIME == 0:
        raise Unknown(f"1/{denominator}")
    return numerator * pow(denominator, -1, PRIME) % PRIME


def generator_image(name: str, alpha: int, beta: int) -> int:
    """alpha, beta, or a root modulo the prime. Raises Unknown where there is none."""
    if name in ("alpha", "beta"):
        return alpha if name == "alpha" else beta
    if not name.startswith("sqrt("):
        raise Unknown(name)
    square = int(name[5:-1]) % PRIME
    root = pow(square, (PRIME + 1) // 4, PRIME)  # as the prime is 3 modulo 4
    if root * root % PRIME != square:
        raise Unknown(name)
    return root


def run_schedule(schedule: AnySchedule, draw: random.Random) -> End:
    """Simulate a schedule of the package whose first writes are marked. Raises IllFormed, Unknown."""
    alpha, beta = draw.randrange(1, PRIME), draw.randrange(1, PRIME)

    def number(value: Any) -> int:
        return image(value, alpha, beta)

    result = schedule.result
    ends = number(result.alpha), number(result.beta)
    grid = Grid(schedule.m, schedule.k, schedule.n, *ends, 1 if result.beta else None)
    return simulate(grid, [_steps(schedule, stage, number, alpha) for stage in schedule.stages], draw)


def _steps(schedule: AnySchedule, stage: Any, number: Callable[[Any], int], alpha: int) -> list[Step]:
    def name(block: Any) -> str:
        return named(block.space, block.row, block.column)

    def keeps(factor: Any) -> str:
        return ADDS if factor == 1 else SCALES if factor else STARTS

    steps = []
    if isinstance(stage, LinearStage):
        for block_map in stage.maps:
            for target, row, kept in zip(block_map.targets, block_map.map.matrix, block_map.kept, strict=True):
                steps.append(
                    Step(name(target), keeps(kept) if kept else SETS, tuple((name(block_map.sources[i]), number(c)) for i, c in row))
                )
        return steps
    for product in stage.products:
        for target in product.targets:
            coefficient = number(target.coefficient)
            plus: tuple[tuple[str, int], ...] = ()
            if isinstance(schedule, Schedule):
                coefficient = coefficient * alpha % PRIME
                what = keeps(target.kept)
            else:
                only_adds = target.kept == 1 and not target.plus
                own = () if only_adds or not target.kept else ((target.block, target.kept),)
                what = ADDS if only_adds else SETS
                plus = tuple((name(block), number(c)) for block, c in (*own, *target.plus))
            steps.append(Step(name(target.block), what, plus, (name(product.left), name(product.right), coefficient)))
    return steps
