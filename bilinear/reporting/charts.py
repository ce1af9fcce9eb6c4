"""Charts: marks on an axis, lines through points, and the rounding errors by level."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bilinear.analysis.accuracy import LevelAccuracy


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


WIDTH, HEIGHT = 440.0, 240.0
LEFT, RIGHT, TOP, BOTTOM = 56.0, 16.0, 16.0, 36.0
SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class ErrorSeries:
    """A line through points; `kind` is `always` or `likely`."""

    kind: str
    path: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class ErrorChart:
    """One chart: its title, the frame, the marks of both axes, and its lines."""

    title: str
    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    levels: tuple[Tick, ...]
    errors: tuple[Tick, ...]
    series: tuple[ErrorSeries, ...]


def error_charts(accuracy: Sequence[LevelAccuracy]) -> tuple[ErrorChart, ...]:
    """One chart for each element type for which the classical multiply and at least one level are known."""
    dtypes = dict.fromkeys(fact.dtype for fact in accuracy)
    by_type = {dtype: sorted((f for f in accuracy if f.dtype == dtype), key=lambda f: f.levels) for dtype in dtypes}
    return tuple(_chart(dtype, facts) for dtype, facts in by_type.items() if len(facts) > 1 and facts[0].levels == 0)


def _chart(dtype: str, facts: Sequence[LevelAccuracy]) -> ErrorChart:
    lines = {"always": [f.deterministic for f in facts], "likely": [f.probabilistic for f in facts]}
    lines = {kind: [value / values[0] for value in values] for kind, values in lines.items()}
    known = [value for values in lines.values() for value in values if 0 < value < math.inf]
    ticks = _round_values(min(known), max(known))
    low, high = math.log10(ticks[0]), math.log10(ticks[-1])
    first, last = facts[0].levels, facts[-1].levels
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def across(level: int) -> float:
        return LEFT + 14 + (right - LEFT - 28) * (level - first) / (last - first)

    def down(decade: float) -> float:
        return round(bottom - (bottom - TOP) * (decade - low) / (high - low), 1)

    series = []
    for kind, values in lines.items():
        points = tuple((across(f.levels), down(math.log10(v))) for f, v in zip(facts, values, strict=True) if 0 < v < math.inf)
        series.append(ErrorSeries(kind, path_through(points), points))
    return ErrorChart(
        f"{dtype}, {facts[0].inner} x {facts[0].inner} matrices",
        WIDTH,
        HEIGHT,
        LEFT,
        right,
        TOP,
        bottom,
        tuple(Tick(across(f.levels), str(f.levels)) for f in facts),
        tuple(Tick(down(math.log10(tick)), _multiple(tick)) for tick in ticks),
        tuple(series),
    )


def _multiple(value: float) -> str:
    """A mark's text, which has to fit left of the axis: from 10000 on a power of ten as one."""
    return f"{value:g}" if value < 10_000 else "10" + str(round(math.log10(value))).translate(SUPERSCRIPT)


def _round_values(low: float, high: float) -> list[float]:
    """Powers of ten, with 2 and 5 times these if they are few, around the values: at least two."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(max(high, 2 * low)))
    factors = (1, 2, 5) if last - first <= 2 else (1,)
    values = [factor * 10.0**decade for decade in range(first, last + 1) for factor in factors]
    below = max(i for i, value in enumerate(values) if value <= low)
    above = next(i for i, value in enumerate(values) if value >= high and i > below)
    return values[below : above + 1]
