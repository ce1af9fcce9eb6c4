"""Ways: the levels of shipped algorithms that are weighed beside the library's multiply, and what each comes to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from bilinear.ir.schedule import Schedule
from bilinear.planner.choice import Problem
from bilinear.planner.model import Profile, profile_of
from bilinear.planner.profiles import Outline, outline

if TYPE_CHECKING:  # what reads and lowers is imported where it is needed: a plan from the table of outlines needs none of it
    from bilinear.frontend import Loaded

PLAIN = ("classical", "split_k")
"""What does the arithmetic of the library's multiply: the product kernel alone, and sums in parts that are computed beside each other."""
SCHEMES = (
    ("classical", 1),
    ("split_k", 6),
    ("winograd", 4),
    ("strassen", 3),
    ("hopcroft_kerr", 2),
    ("laderman", 2),
    ("alphatensor_424", 1),
    ("dps_444", 1),
)
"""Schemes that are weighed with a workspace, each to so many levels."""
MIXED = (
    ("laderman", "winograd"),
    ("hopcroft_kerr", "winograd"),
    ("alphatensor_424", "winograd"),
    ("winograd", "dps_444"),
)
"""Levels of different schemes that are weighed, the outermost first."""
FASTEST = "winograd"
"""What runs below levels that save memory."""
FEWEST = "dps_444"
"""Two levels in one, of fewer products, that run below those, too."""
RECURSE = ("winograd_depth_first",)
"""Depth-first schedules, of few temporaries, for the outer levels."""
IN_PLACE = ("winograd_in_place", "msmes")
"""Schedules without a workspace, for the outer levels where the inputs may be written."""
MOST_PRODUCTS = 2_500


@dataclass(frozen=True, order=True)
class Way:
    """The algorithm of each level, the outermost first, and the promise of the inputs."""

    levels: tuple[str, ...]
    inputs: str = "preserve"

    @property
    def outline(self) -> Outline:
        """What planning needs of its schedule."""
        return outline(self.levels, self.inputs)


def ways(problem: Problem) -> tuple[Way, ...]:
    """All that is weighed besides the library."""
    found = [Way((name,) * levels) for name, most in SCHEMES for levels in range(1, most + 1)]
    found += [Way(levels) for levels in MIXED]
    if not problem.accumulate:
        found += [Way(levels) for name in RECURSE for levels in (*_above(name), (name, FASTEST, FASTEST, FASTEST))]
    if problem.inputs != "preserve":
        found += [Way(levels, problem.inputs) for name in IN_PLACE for levels in _above(name)]
    return tuple(way for way in found if way.outline.products <= MOST_PRODUCTS)


def _above(name: str) -> Iterator[tuple[str, ...]]:
    """One or more of three levels of an algorithm, above none or more of the fastest; and one above the one of the fewest products."""
    for levels in range(1, 4):
        for outer in range(1, levels + 1):
            yield (name,) * outer + (FASTEST,) * (levels - outer)
    yield name, FEWEST


@lru_cache(maxsize=64)
def algorithm_named(name: str) -> Loaded:
    """A shipped algorithm, read once a process."""
    from bilinear.frontend import load

    return load(name)


@lru_cache(maxsize=64)
def hashes(levels: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """For each level the hashes of the scheme and of the schedule, the latter empty where there is none."""
    from bilinear.analysis.identity import schedule_hash, scheme_hash

    loaded = [algorithm_named(name) for name in levels]
    return tuple((scheme_hash(x.scheme), "" if x.schedule is None else schedule_hash(x.schedule)) for x in loaded)


@lru_cache(maxsize=64)
def authored(name: str, inputs: str) -> Schedule:
    """What runs a level of a shipped algorithm."""
    from bilinear.lowering.prepare import authored_schedule

    loaded = algorithm_named(name)
    return authored_schedule(loaded.scheme, loaded.schedule, inputs)


@lru_cache(maxsize=256)
def strategies(way: Way) -> tuple[str, ...]:
    """How each level runs."""
    schedules = [authored(name, way.inputs) for name in way.levels]
    return tuple("recurse" if s.overwrites else "expand" if s.workspaces else "inplace" for s in schedules)


@lru_cache(maxsize=64)
def lowered(way: Way) -> tuple[Schedule, Profile]:
    """The schedule as it would run, and its counts. It is proved when it runs, not here."""
    from bilinear.lowering.prepare import lower_levels

    schedule = lower_levels([authored(name, way.inputs) for name in way.levels], way.inputs)
    return schedule, profile_of(schedule)
