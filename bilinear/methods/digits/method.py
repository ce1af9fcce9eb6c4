"""The method: products of digits, residues among them, their candidates, and how they are bound to matrices.

Some candidates compute rows of C in parts, with the digits of a part in the rows that are computed later. Digits that do not fit there go
to the workspace, if there is one. No rows follow the last part, so its product must fit the workspace, or need none.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

from bilinear.ir.element import COMPLEX
from bilinear.ir.matrix import Layout
from bilinear.ir.tile import DIGIT_TILES, FLOAT_TILES, LOADING_TILES, PANEL, RESIDUE_TILES, RESIDUES
from bilinear.methods.digits.choice import CELL, Digits, digits_of, levels_above, products_of
from bilinear.methods.digits.plans import (
    CUTS,
    candidate_in_blocks,
    complex_candidates,
    fitted,
    geometry_for,
    loaded_candidate,
    named_candidate,
    pair_candidates,
    residue_candidates,
)
from bilinear.planner.device import Device
from bilinear.planner.model import fastest_tile
from bilinear.planner.plan import Candidate, Panel
from bilinear.planner.problem import Problem
from bilinear.planner.profiles import Levels, outline
from bilinear.planner.scheduled import Scheduled
from bilinear.planner.ways import Way

if TYPE_CHECKING:  # imported late
    from bilinear.ir.launch import AnyKernel
    from bilinear.methods.digits.launches import CutMultiply
    from bilinear.methods.digits.rates import DigitBench

STEPS, MOST_STEPS = 36, 29  # A part may compute so many 36ths of the rows left, in whole panels.
COLUMNS = (*CUTS, 20, 24, 32, 40, 48, 64)  # Numbers of blocks of columns in which a part may be computed.
NARROWER = 2  # How many times fewer columns these blocks may have: a part then has more rows.
MOST_PARTS = 12
LENDABLE = "ABP"  # The names of the digits of A, those of B, and the products, in their order in a workspace.
SUBSETS = tuple("".join(chosen) for count in range(len(LENDABLE), -1, -1) for chosen in combinations(LENDABLE, count))
"""All choices among these, the largest first."""
PLAIN = ("classical",)  # The levels of the last rows, unless a product of digits computes them.
Part = tuple[int, Candidate]  # A number of rows, and what computes them.


@dataclass(frozen=True)
class Lending:
    """The fastest chain of parts for a problem within a budget of bytes, by products of digits of this name below some of these levels."""

    problem: Problem
    device: Device
    products: str
    levels: tuple[Levels, ...]
    budget: int = 0

    def best(self) -> Candidate | None:
        """The chain as a candidate, of all begun by rows of least time the fastest; None if no rows can be lent."""
        if not self.problem.lends:
            return None
        chains: list[tuple[Part, ...]] = []
        done: tuple[Part, ...] = ()
        left, _ = self.problem.lines
        while len(done) < MOST_PARTS and (part := self._part(left)) is not None:
            done, left = (*done, part), left - part[0]
            chains.append((*done, (left, self._last(left))))
        if not chains:
            return None
        (_, first), *later = chain = min(chains, key=_total_ms)
        choice = replace(digits_of(first), rest=tuple(Panel(rows, x.choice) for rows, x in later))
        return Candidate(choice, _total_ms(chain), max(part.workspace or 0 for _, part in chain))

    def _part(self, left: int) -> Part | None:
        """The next part if so many rows are left; None if those that are computed later never hold its digits."""
        step = max(left // STEPS // PANEL, 1) * PANEL
        fits: list[Part] = []
        for rows in range(step, min(MOST_STEPS * step, left - 1), step):
            candidate = self._fitted(rows, left - rows)
            if candidate is None:  # more rows have more digits, and leave less memory for them
                break
            fits.append((rows, candidate))
        return min(fits, key=lambda one: (one[1].ms or 0.0) / one[0], default=None)

    def _fitted(self, rows: int, later: int) -> Candidate | None:
        """The fastest product of so many rows that `later` rows and the budget hold, in as few blocks of columns as possible."""
        problem, (_, across) = self.problem.of_lines(rows), self.problem.lines
        room = later * across * problem.itemsize - 2 * CELL  # C, and a row of it, may begin anywhere
        found: list[Candidate] = []
        for levels in self.levels:
            least = self.device.policy.least_digit_block // NARROWER
            counts = [count for count in COLUMNS if count == 1 or across >= count * least]
            lies = partial(self._lies, problem, levels, room)
            first = bisect_left(counts, True, key=lambda count: lies(count) is not None)  # more blocks need less memory
            if first < len(counts) and (areas := lies(counts[first])) is not None:
                lent, held = areas
                one = candidate_in_blocks(problem, self.device, levels, self.products, (1, counts[first]), self.problem)
                found.append(Candidate(replace(digits_of(one), lent=lent), one.ms, held))
        return min(found, key=lambda candidate: candidate.ms or 0.0, default=None)

    def _lies(self, problem: Problem, levels: Levels, room: int, count: int) -> tuple[str, int] | None:
        """Which digits lie in C, if a part has so many blocks of columns (all, if they fit), and the bytes of the others."""
        ends = geometry_for(problem, levels, self.products, (1, count)).places
        words, *sizes = (end - begin for begin, end in pairwise(ends))
        for lent in SUBSETS:
            outside = sum(size for name, size in zip(LENDABLE, sizes, strict=True) if name not in lent)
            if words + sum(sizes) - outside <= room and outside <= self.budget:
                return lent, outside
        return None

    def _last(self, rows: int) -> Candidate:
        """What computes the last rows, within the budget or without workspace."""
        problem = self.problem.of_lines(rows)
        stored = (fitted(problem, self.device, levels, self.products, self.budget) for levels in self.levels)
        found = [self._unstored(problem), *(candidate for candidate in stored if (candidate.workspace or 0) <= self.budget)]
        return min(found, key=lambda candidate: candidate.ms or 0.0)

    def _unstored(self, problem: Problem) -> Candidate:
        (on_load,) = LOADING_TILES
        if self.products in DIGIT_TILES and self.device.digit_rates(on_load) is not None:
            return loaded_candidate(problem, self.device, (), on_load)
        own = outline(Way(PLAIN))
        seconds, tile = fastest_tile(own.profile, own.placed(problem, problem.itemsize), problem.dtype, self.device)
        return Candidate(Scheduled(PLAIN, strategy="inplace", tile=tile), seconds * 1e3, 0)


def _total_ms(chain: tuple[Part, ...]) -> float:
    return sum(part.ms or 0.0 for _, part in chain)


class DigitProducts:
    """Products by pairs of float16 digits and by residues, below levels or alone, stored, cut on load, or in memory that C lends."""

    choice = Digits
    products: tuple[str, ...] = (*FLOAT_TILES, RESIDUES, *RESIDUE_TILES)
    most_weighed: int | None = None
    most_timed: int | None = None
    named = staticmethod(named_candidate)

    def products_of(self, dtype: str) -> tuple[str, ...]:
        """The names of products of a type."""
        return *products_of(dtype), RESIDUES

    def candidates(self, problem: Problem, device: Device, budget: int, most_ms: float) -> Iterator[Candidate]:
        """The candidates within a budget of bytes where that can be; residues only if they may take less than `most_ms`.

        Pairs of digits are weighed only if an accuracy is requested, because they hold integers of at most 11 bits.
        """
        if problem.dtype in COMPLEX:
            yield from complex_candidates(problem, device)
            return
        found = [*residue_candidates(problem, device, budget, most_ms)]
        if problem.accuracy is not None:
            found += pair_candidates(problem, device, budget)
        yield from found
        for products in dict.fromkeys(x.tile for x in found if not x.levels and not x.choice.needs_little):
            if geometry_for(problem, (), products).places[-1] > budget:  # which does not hold the digits of all of C
                lent = Lending(problem, device, products, levels_above(products), budget).best()
                yield from () if lent is None else (lent,)

    def kernels(self, choice: Digits, a: Layout, b: Layout, c: Layout, has_warpgroups: bool = True) -> tuple[AnyKernel, ...]:
        """See `kernels_of`."""
        from bilinear.methods.digits.binding import kernels_of

        return kernels_of(a, b, c, choice, not has_warpgroups)

    def bind(self, choice: Digits, a: Layout, b: Layout, c: Layout) -> CutMultiply | None:
        """See `digit_multiply_of`."""
        from bilinear.methods.digits.binding import digit_multiply_of

        return digit_multiply_of(a, b, c, choice)

    def measured(self, bench: DigitBench, device: Device, tell: Callable[[str], None]) -> Device:
        """The device with their rates."""
        from bilinear.methods.digits.rates import with_digits

        return with_digits(bench, device, tell)


DIGITS = DigitProducts()
