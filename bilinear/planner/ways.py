"""Ways: levels of shipped algorithms by which a problem may run, and the schedules that they lower to."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from bilinear.ir.schedule import Schedule
from bilinear.planner.model import Profile, profile_of

if TYPE_CHECKING:  # readers and passes are imported lazily: planning from the table of outlines needs none of them
    from bilinear.frontend import Loaded


class Way(NamedTuple):
    """The algorithm of each level, the outermost first, and the promise of the inputs."""

    levels: tuple[str, ...]
    inputs: str = "preserve"


@lru_cache(maxsize=64)
def algorithm_named(name: str) -> Loaded:
    """A shipped algorithm, read once a process; files in the working folder are ignored."""
    from bilinear.frontend import load_shipped

    return load_shipped(name)


@lru_cache(maxsize=64)
def hashes(levels: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """For each level the hashes of its scheme and of its schedule; the latter is empty if there is none."""
    from bilinear.analysis.identity import schedule_hash, scheme_hash

    loaded = [algorithm_named(name) for name in levels]
    return tuple((scheme_hash(x.scheme), "" if x.schedule is None else schedule_hash(x.schedule)) for x in loaded)


@lru_cache(maxsize=64)
def authored(name: str, inputs: str) -> Schedule:
    """The schedule by which a level of a shipped algorithm runs."""
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
    """The schedule as it would run, and its counts. It is proved only when it runs."""
    from bilinear.lowering.prepare import lower_levels

    schedule = lower_levels([authored(name, way.inputs) for name in way.levels], way.inputs)
    return schedule, profile_of(schedule)
