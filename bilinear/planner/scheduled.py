"""What runs by a schedule: levels of algorithms, or a chain of them for parts of C; their proved bounds and probable errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bilinear.ir.element import COMPLEX, ELEMENTS, HALVES, MULTIPLIED, Element
from bilinear.ir.placement import ATOMICS, COLOURS, MOST_LEVELS
from bilinear.ir.tile import TILES, USUAL
from bilinear.planner.device import Device, Policy
from bilinear.planner.library_points import CUBLAS
from bilinear.planner.plan import Choice, Panel, name_of
from bilinear.planner.problem import Problem, require_contention
from bilinear.planner.profiles import Growth, outline, portfolio
from bilinear.planner.ways import OF_PARTS, Way, algorithm_named, kept_by_names, lowered, strategies


@dataclass(frozen=True)
class Scheduled(Choice):
    """Levels of algorithms by a schedule, with products in a tile.

    `strategy` says how each level runs: `expand` (all sums, all products, all results), `recurse` (one product at a time, few temporaries)
    or `inplace` (sums in A and B themselves). With a `rest` it is `borrow`: temporaries lie in the part of C that is computed later.
    """

    levels: tuple[str, ...]
    inputs: str = "preserve"
    strategy: str = "expand"
    tile: str = USUAL
    rest: tuple[Panel, ...] = ()
    contention: str = COLOURS
    method: ClassVar[str] = "schedule"
    may_be_far: ClassVar[bool] = True

    @property
    def way(self) -> Way:
        """The levels with what else decides the schedule."""
        return Way(self.levels, self.inputs, self.contention)

    @property
    def name(self) -> str:
        """The names of the levels."""
        return "; ".join(name_of(levels) for levels in (self.levels, *(part.choice.levels for part in self.rest)))

    @property
    def lowered_parts(self) -> tuple[Choice, ...]:
        """All parts."""
        return self, *(part.choice for part in self.rest)

    def bound(self, inner: int, dtype: str) -> float:
        """The bound that always holds: the largest of the parts."""
        own = complex_error(self.levels, inner, COMPLEX[dtype]) if dtype in COMPLEX else way_error(self.way, inner, ELEMENTS[dtype])
        return max(own, *(part.choice.bound(inner, dtype) for part in self.rest)) if self.rest else own

    def probable(self, inner: int, dtype: str) -> float:
        """The probable error by norm in units of the classical multiply's: the largest of the parts."""
        own = outline(self.way)
        return max((relative_above(own.growth, own.profile.k, inner), *(part.choice.probable(inner, dtype) for part in self.rest)))

    def least_gain(self, policy: Policy) -> float:
        """The part of the library's time to save: more where the arithmetic is the library's."""
        return policy.least_gain_plain if portfolio().is_plain(self.levels) else policy.least_gain

    def least_gain_complex(self, policy: Policy) -> float:
        """The same for three real products, whatever their arithmetic."""
        return max(policy.least_gain_complex, policy.least_gain)

    def rate(self, problem: Problem, device: Device) -> float | None:
        """The operations a second of what multiplies on a full device."""
        return max(rate for _, rate in device.rates(problem.dtype).product) * 1e12

    def check(self, problem: Problem) -> None:
        """Raise a `ValueError` if the fields make no sense."""
        tiles = (CUBLAS, USUAL) if problem.dtype in HALVES else TILES[MULTIPLIED[problem.dtype].name]
        if self.tile not in tiles:
            raise ValueError(f"there is no tile {self.tile!r}")
        require_contention(self.contention)
        if not isinstance(self.strategy, str) or not 0 < len(self.levels) <= MOST_LEVELS:
            raise ValueError("its levels make no sense")
        if self.rest and (problem.dtype in COMPLEX or problem.dtype in HALVES):
            raise ValueError("these matrices are not multiplied in parts")
        for part in self.rest:
            if part.choice.lowered_parts != (part.choice,):
                raise ValueError("its parts make no sense")
            part.choice.check(problem)


def scheduled(way: Way) -> Scheduled:
    """What runs a way, in the usual tile."""
    strategy = " + ".join(dict.fromkeys(outline(way).strategies))
    atomic = ", atomic" if way.contention == ATOMICS else ""
    return Scheduled(way.levels, way.inputs, f"{strategy}{atomic}", contention=way.contention)


@kept_by_names(256)
def way_error(way: Way, inner: int, element: Element) -> float:
    """The bound that always holds for a way: of its tables if one scheme is expanded, else of its schedule as it runs."""
    from bilinear.analysis.accuracy import error_bound, run_error_bound

    u, summed = element.roundoffs
    if set(strategies(way)) == {"expand"} and len(set(way.levels)) == 1:
        return u * error_bound(algorithm_named(way.levels[0]).scheme, len(way.levels), inner, u, summed).product
    return u * run_error_bound(lowered(way)[0], inner, u, summed).product


@kept_by_names(256)
def complex_error(levels: tuple[str, ...], inner: int, element: Element) -> float:
    """The bound that always holds for three real products by these levels."""
    from bilinear.analysis.accuracy import run_error_bound

    u = element.unit_roundoff
    return u * run_error_bound(lowered(Way(levels, OF_PARTS))[0], inner, u).product


def relative_above(growth: Growth, blocks: int, inner: int) -> float:
    """The probable error by norm, in units of the classical multiply's, of block schemes above it that cut K in so many blocks.

    That of a classical multiply with sums of K terms has the variance (K + 1) / 2, in units of that of a rounding.
    """
    amplified, rounded = growth
    return float(((amplified * (max(1, inner // blocks) + 1) / 2 + rounded) / ((inner + 1) / 2)) ** 0.5)
