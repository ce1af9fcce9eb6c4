"""Fewer additions: find the sums that the forms of a scheme share, and compute each once.

Each of U, V and W is searched directly and transposed: a program of the transposed map, run backwards, computes the map, with as many
additions up to the difference of inputs and outputs (Fiduccia 1973). Values may cancel where that helps.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from bilinear.algebra.maps import transposed
from bilinear.algebra.share_bases import program_over_basis
from bilinear.algebra.share_greedy import most_common_pairs
from bilinear.algebra.share_programs import partial_sums, program_of, tidied
from bilinear.algebra.share_search import Budget, Walk
from bilinear.algebra.share_values import PLAIN, Made, Pair, Rows, pack_rows
from bilinear.errors import fail
from bilinear.ir.linear import LinearMap
from bilinear.ir.ring import RATIONALS, Ring
from bilinear.ir.scheme import Scheme

WORK = 10_000_000
"""The default number of sums of two values to try: at most about ten seconds."""
GREEDY_STARTS = 8
BASES = 12
"""The number of bases tried if rows have coefficients other than 1 and -1."""
MOST_PAIRS = 24
"""The most pairs of coefficients; if a map has more, its rows are packed over multiples of the inputs."""


@dataclass(frozen=True)
class Shared:
    """A scheme with shared sums. `least` says for each of U, V and W whether fewer sums and differences are proved impossible.

    `work` is the number of sums of two values tried. The result depends only on the seed and the work allowed, unless the time limit cut
    the search (`was_cut`); then it depends on the machine.
    """

    scheme: Scheme
    least: tuple[bool, bool, bool]
    work: int
    was_cut: bool


@dataclass(frozen=True)
class Progress:
    """The progress of a search: the operand, work done and allowed, and the additions of the best program for its map so far."""

    operand: str
    done: int
    allowed: int
    additions: int

    def __str__(self) -> str:
        return f"sums of {self.operand}: {self.additions}"


def share_sums(
    scheme: Scheme,
    *,
    seed: int = 0,
    work: int = WORK,
    seconds: float = math.inf,
    tries: int = 1,
    progress: Callable[[Progress], None] = lambda state: None,
) -> Shared:
    """The scheme with programs of few additions, then few scalings, and never more additions than before.

    `work` bounds the search, and the result depends only on it, the `seed` and the number of `tries`; a limit in `seconds` for all of them
    can only cut the search short. Each further try has the next seed and as much work, and the best program of each map is kept. Bases,
    products and ring stay the same. A scaling is a multiplication by something other than 1 and -1. Raises `BilinearError` (E650) if an
    option is invalid.
    """
    if work < 1 or tries < 1 or not seconds > 0:
        raise fail("E650", f"work={work}, tries={tries}, seconds={seconds:g}: each must be positive")
    deadline = time.monotonic() + seconds
    best = _share(scheme, seed, work, deadline, progress)
    for more in range(1, tries):
        if all(best.least) or best.was_cut:
            break
        best = _better(best, _share(scheme, seed + more, work, deadline, progress))
    return best


def _better(first: Shared, second: Shared) -> Shared:
    """Map by map the program with fewer additions: all programs are of one scheme's tables."""
    maps = [min(pair, key=_cost) for pair in zip(_maps(first.scheme), _maps(second.scheme), strict=True)]
    a, b, c = (one or other for one, other in zip(first.least, second.least, strict=True))
    scheme = replace(first.scheme, u=maps[0], v=maps[1], w=maps[2])
    return Shared(scheme, (a, b, c), first.work + second.work, first.was_cut or second.was_cut)


def _maps(scheme: Scheme) -> tuple[LinearMap, LinearMap, LinearMap]:
    return scheme.u, scheme.v, scheme.w


def _share(scheme: Scheme, seed: int, work: int, deadline: float, progress: Callable[[Progress], None]) -> Shared:
    whole = Budget(work, deadline)
    found = []
    for number, (operand, linear) in enumerate(zip("ABC", _maps(scheme), strict=True)):
        tell = partial(_tell, progress, operand, work, whole)
        found.append(_MapSearch(linear, scheme.ring, whole.part(3 - number), seed, tell).run())
    (u, a), (v, b), (w, c) = found
    return Shared(replace(scheme, u=u, v=v, w=w, places=None), (a, b, c), work - whole.work, whole.was_cut)


def _tell(progress: Callable[[Progress], None], operand: str, allowed: int, budget: Budget, additions: int) -> None:
    progress(Progress(operand, allowed - budget.work, allowed, additions))


class _MapSearch:
    """The search for one map, in both directions."""

    def __init__(self, linear: LinearMap, ring: Ring, budget: Budget, seed: int, progress: Callable[[int], None]) -> None:
        self.linear = linear
        self.ring = ring
        self.budget = budget
        self.seed = seed
        self.progress = progress

    def run(self) -> tuple[LinearMap, bool]:
        """The best program, and whether it is proved to be minimal."""
        few_inputs = self.linear.inputs <= len(self.linear.outputs)
        start = self.linear if few_inputs else transposed(self.linear)
        found, is_least = self._program(start, self.budget.part(2))
        turned = tidied(transposed(found))
        if not is_least:
            turned, is_least = self._program(turned, self.budget)
            found = min(found, tidied(transposed(turned)), key=_cost)
        programs = [found] if few_inputs else [turned, tidied(transposed(found))]
        sound = [program for program in programs if program.matrix == self.linear.matrix]  # packed coefficients might have overflowed
        return min(self.linear, *sound, key=_cost), is_least and bool(sound)

    def _program(self, start: LinearMap, budget: Budget) -> tuple[LinearMap, bool]:
        """A program with few additions, from a known one, and whether it is proved minimal among those with coefficients 1 and -1."""
        generator = random.Random(self.seed)
        for fractions in (True, False) if self.ring == RATIONALS else (False,):
            rows = pack_rows(start.matrix, start.inputs, fractions=fractions)
            guesses: list[tuple[Made, set[Pair]]] = []
            while len(guesses) < GREEDY_STARTS and not (guesses and budget.is_spent):
                guesses.append(most_common_pairs(rows.values, rows.units, generator))
                budget.spend(sum(len(row) ** 2 for row in start.matrix))
            pairs = {pair for _, used in guesses for pair in used}
            if len(pairs) <= MOST_PAIRS:
                break
        if rows.whole and start.inputs < len(start.outputs) and not pairs <= set(PLAIN):
            found = [program_over_basis(rows.values, start.inputs, generator, budget) for _ in range(BASES)]
            for made, used in sorted(filter(None, found), key=lambda program: len(program[0])):
                if len(pairs | used) <= MOST_PAIRS:
                    guesses.append((made, used))
                    pairs |= used
        walk = Walk(rows.units, rows.values, pairs, budget, self.seed)
        made = walk.run([made for made, _ in guesses], _values_of(start, rows), self.progress)
        whole = not self.ring.modulus and all(c in (1, -1) for row in start.matrix for _, c in row)
        return program_of(start.inputs, rows, walk.origins(made)), whole and walk.is_least(made)


def _values_of(linear: LinearMap, rows: Rows) -> list[int]:
    return [value for row in partial_sums(linear) if (value := rows.value_of(row))]


def _cost(linear: LinearMap) -> tuple[int, int]:
    return linear.additions, linear.scalings
