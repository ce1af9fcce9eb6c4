"""The portfolio: which ways are weighed beside the library's multiply."""

from __future__ import annotations

from collections.abc import Iterator

from bilinear.planner.choice import Problem
from bilinear.planner.profiles import outline
from bilinear.planner.ways import Way

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


def ways(problem: Problem) -> tuple[Way, ...]:
    """All that is weighed besides the library."""
    found = [Way((name,) * levels) for name, most in SCHEMES for levels in range(1, most + 1)]
    found += [Way(levels) for levels in MIXED]
    if not problem.accumulate:
        found += [Way(levels) for name in RECURSE for levels in (*_above(name), (name, FASTEST, FASTEST, FASTEST))]
    if problem.inputs != "preserve":
        found += [Way(levels, problem.inputs) for name in IN_PLACE for levels in _above(name)]
    return tuple(way for way in found if outline(way).products <= MOST_PRODUCTS)


def _above(name: str) -> Iterator[tuple[str, ...]]:
    """One or more of three levels of an algorithm, above none or more of the fastest; and one above the one of the fewest products."""
    for levels in range(1, 4):
        for outer in range(1, levels + 1):
            yield (name,) * outer + (FASTEST,) * (levels - outer)
    yield name, FEWEST
