"""What a thin product runs, its proved bound and its probable error, and what bounds its kernel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, hypot
from typing import TYPE_CHECKING, ClassVar

from bilinear.ir.element import COMPILED, ELEMENTS, FLOAT32
from bilinear.ir.thin_tile import LEAST_TERMS, THIN_TILES, ThinTriplesTile
from bilinear.methods.method import Bindable
from bilinear.planner.device import Device
from bilinear.planner.library import classical_error, probable_classical_of
from bilinear.planner.plan import Candidate
from bilinear.planner.policy import Policy
from bilinear.planner.problem import Problem

if TYPE_CHECKING:  # readers are imported lazily: most plans need none
    from bilinear.analysis.digit_bounds import Summation
    from bilinear.analysis.traffic import Streaming
from bilinear.methods.thin.times import is_turned, kind_of, thin_peak, units_in_hand, view_of

MOST_PARTS = 2**80
"""More parts than any sums have."""


@dataclass(frozen=True)
class Thin(Bindable):
    """How a thin product runs: the name of its tile, in how many parts sums are split, and whether C^T = B^T A^T is computed instead."""

    tile: str
    parts: int = 1
    swaps: bool = False
    method: ClassVar[str] = "thin"
    strategy = "thin"
    counts_calls: ClassVar[bool] = True
    may_be_far: ClassVar[bool] = True
    title: ClassVar[str] = "kernel for thin products"
    needs: ClassVar[str] = (
        "multiplies two arrays of one type (by triples: of sm_90, sums of at least "
        f"{LEAST_TERMS} terms; keeping B: one that its tile holds), and needs an out of that type"
    )
    less: ClassVar[str] = "plan with this workspace, for sums that are whole need none, or use algorithm='auto'"

    @property
    def name(self) -> str:
        """A readable name."""
        return self.strategy if self.parts == 1 else f"{self.strategy}, sums in {self.parts} parts"

    @property
    def summed_in(self) -> int:
        """The parts of sums."""
        return self.parts

    def bound(self, inner: int, dtype: str) -> float:
        """The bound that always holds: that of the classical multiply, or of digits if it is larger."""
        classical, tile = classical_error(inner, COMPILED[dtype]), THIN_TILES[dtype][self.tile]
        return max(triples_error(inner, self.parts, tile), classical) if isinstance(tile, ThinTriplesTile) else classical

    def probable(self, inner: int, dtype: str) -> float:
        """The probable error by norm in units of the classical multiply's."""
        tile = THIN_TILES[dtype][self.tile]
        if not isinstance(tile, ThinTriplesTile):
            return 1.0
        return max(1.0, _probable_triples(inner, self.parts, tile) / probable_classical_of(inner, dtype))

    def least_gain(self, policy: Policy) -> float:
        """The part of the library's time that it must save to be chosen."""
        return policy.least_gain_thin

    def least_saved(self, policy: Policy) -> float:
        """The microseconds that it must save."""
        return policy.least_saved_thin

    def why_not(self, problem: Problem, policy: Policy) -> str:
        """Why it may not run for a problem; empty if it may."""
        is_vector = min(problem.m, problem.n) < policy.least_thin
        return "the library multiplies by a vector at the speed of memory" if is_vector else ""

    def rate(self, problem: Problem, device: Device) -> float | None:
        """The operations a second of the tile's unit on a full device; None if the device has no rates."""
        rates = device.thin_rates(problem.dtype)
        return None if rates is None else thin_peak(THIN_TILES[problem.dtype][self.tile], rates) * 1e12

    def streaming(self, problem: Problem, device: Device, ms: float | None) -> Streaming | None:
        """The models' answer for a kernel that takes so long; None if the device has no rates."""
        from bilinear.analysis import traffic as models

        rates, rate = device.thin_rates(problem.dtype), self.rate(problem, device)
        if rates is None or rate is None:
            return None
        tile, element = THIN_TILES[problem.dtype][self.tile], ELEMENTS[problem.dtype]
        view = view_of(problem, tile)
        memory = device.bandwidth * 1e9
        units = ceil(view.m / tile.m) * ceil(view.n / tile.n) * self.parts
        blocks = min(units_in_hand(tile, view, element, device.shared), ceil(units / device.processors))
        lines = min(tile.m, view.m) + (0 if tile.keeps else min(tile.n, view.n))
        under_way = blocks * (tile.stages - 1) * lines * min(tile.k, view.k) * element.bytes
        extents = view.m, view.k, view.n
        reading = 1 - view.m * view.n / models.least_traffic(extents)
        needed = models.needed_under_way(reading * memory / device.processors, rates.latency * 1e-6)
        share = models.utilisation(under_way, needed)
        moving, multiplying = models.least_traffic(extents) * element.bytes / memory, models.operations(extents) / rate
        bound = models.bound_by(share, moving, multiplying, ms)
        return models.Streaming(
            kind_of(view), models.threshold(rate, memory, element.bytes), blocks, under_way, round(needed), share, bound
        )

    def check(self, problem: Problem) -> None:
        """Raise a `ValueError` if the fields make no sense."""
        if self.tile not in THIN_TILES.get(problem.dtype, {}):
            raise ValueError(f"there is no tile {self.tile!r}")
        if type(self.parts) is not int or not 0 < self.parts < MOST_PARTS:
            raise ValueError("its parts of sums make no sense")
        if self.swaps is not is_turned(problem, THIN_TILES[problem.dtype][self.tile]):
            raise ValueError("its tile does not compute the product this way round")


def thin_of(candidate: Candidate) -> Thin:
    """What a candidate by a tile runs."""
    if not isinstance(candidate.choice, Thin):
        raise TypeError("the candidate is by another method")
    return candidate.choice


def _terms_of_part(inner: int, parts: int, tile: ThinTriplesTile) -> int:
    """The terms of the longest part: all but the last one have whole slices."""
    return min(inner, ceil(ceil(inner / parts) / tile.k) * tile.k)


def in_triples(tile: ThinTriplesTile) -> Summation:
    """How the thin kernel adds up the products of bfloat16 digits: a warpgroup has its share of a slice in the unit."""
    from bilinear.analysis.digit_bounds import Summation

    return Summation(tile.k // tile.k_groups, others="before")


@lru_cache(maxsize=256)
def triples_error(inner: int, parts: int, tile: ThinTriplesTile) -> float:
    """The certain bound of sums in parts, which are added up in float32, in units of the largest elements of both operands."""
    from bilinear.analysis.digit_bounds import digit_bound
    from bilinear.analysis.rounding import gamma
    from bilinear.frontend.algorithms import load_digits

    part = digit_bound(load_digits("triples"), _terms_of_part(inner, parts, tile), in_triples(tile)).of_largest
    adding = gamma(parts, FLOAT32.unit_roundoff)
    return (part + adding + part * adding) * inner


@lru_cache(maxsize=256)
def _probable_triples(inner: int, parts: int, tile: ThinTriplesTile) -> float:
    """The probable error by norm. That of independent parts is the same in each, and their sum is rounded as a classical one."""
    from bilinear.analysis.digit_bounds import probable_classical, probable_digits
    from bilinear.frontend.algorithms import load_digits

    part = probable_digits(load_digits("triples"), _terms_of_part(inner, parts, tile), in_triples(tile))
    return hypot(part, probable_classical(parts, FLOAT32.unit_roundoff) if parts > 1 else 0.0)
