"""What the charts have in common: marks on an axis, round steps between them, and lines through points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Tick:
    """A mark on an axis: its place and its text."""

    at: float
    text: str


def round_step(extent: float, parts: int) -> float:
    """The least of 1, 2 and 5 times a power of ten that divides the extent into at most so many parts, about."""
    rough = extent / parts
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * f for f in (1, 2, 5, 10) if power * f >= rough)


def path_through(points: Sequence[tuple[float, float]]) -> str:
    """A line as the data of an SVG path."""
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points)
