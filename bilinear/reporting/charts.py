"""Charts: marks on an axis, lines through points, the rounding errors by level, and the data flow of a scheme."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bilinear.analysis.accuracy import LevelAccuracy
from bilinear.ir.linear import transposed_rows
from bilinear.reporting.coefficients import readable, shade, shortened
from bilinear.reporting.facts import Entries, ExpandedTables


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


ERRORS_WIDTH, ERRORS_HEIGHT = 440.0, 240.0
ERRORS_LEFT, ERRORS_RIGHT, TOP, BOTTOM = 56.0, 16.0, 16.0, 36.0
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
    right, bottom = ERRORS_WIDTH - ERRORS_RIGHT, ERRORS_HEIGHT - BOTTOM

    def across(level: int) -> float:
        return ERRORS_LEFT + 14 + (right - ERRORS_LEFT - 28) * (level - first) / (last - first)

    def down(decade: float) -> float:
        return round(bottom - (bottom - TOP) * (decade - low) / (high - low), 1)

    series = []
    for kind, values in lines.items():
        points = tuple((across(f.levels), down(math.log10(v))) for f, v in zip(facts, values, strict=True) if 0 < v < math.inf)
        series.append(ErrorSeries(kind, path_through(points), points))
    return ErrorChart(
        f"{dtype}, {facts[0].inner} x {facts[0].inner} matrices",
        ERRORS_WIDTH,
        ERRORS_HEIGHT,
        ERRORS_LEFT,
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


MOST_PRODUCTS = 64
MOST_EDGES = 900
MOST_LABELS = 48
"""With more labels, edges would hide each other; then the chart, or its coefficients, are left out."""

WIDTH, NODE, HEIGHT, MARGIN = 960.0, 52.0, 20.0, 18.0
LEFT, MIDDLE, RIGHT = 60.0, 480.0, 900.0


@dataclass(frozen=True)
class FlowNode:
    """A block or a product: its name, its kind (a, b, c, or product), and its centre."""

    name: str
    kind: str
    x: float
    y: float


@dataclass(frozen=True)
class Edge:
    """A term: an SVG path, `p` or `n` for its sign; `label` is a coefficient other than 1 and -1, at (x, y)."""

    path: str
    sign: str
    label: str
    x: float
    y: float


@dataclass(frozen=True)
class ProductFlow:
    """A product's node with all its edges, and the product as an equation."""

    node: FlowNode
    equation: str
    edges: tuple[Edge, ...]


@dataclass(frozen=True)
class Flow:
    """The whole chart. Nodes are `node` wide and `height_of_node` high around their centres."""

    width: float
    height: float
    node: float
    height_of_node: float
    blocks: tuple[FlowNode, ...]
    products: tuple[ProductFlow, ...]


def flow_note(tables: ExpandedTables) -> str:
    """Why the chart is left out; empty if it is drawn."""
    edges = sum(len(row) for table in (tables.u, tables.v, tables.w) for row in table)
    if len(tables.products) > MOST_PRODUCTS or edges > MOST_EDGES:
        return f"The data flow is not drawn: {edges} edges of {len(tables.products)} products would hide each other."
    return ""


def flow(tables: ExpandedTables, equations: Sequence[str]) -> tuple[Flow, ...]:
    """The chart, or nothing if it would be too dense."""
    if flow_note(tables):
        return ()
    count = len(tables.products)
    pitch = 44.0 if count <= 9 else 30.0 if count <= 26 else 22.0
    height = max(count * pitch, (len(tables.a) + len(tables.b) + 1) * (HEIGHT + 4), len(tables.c) * (HEIGHT + 4)) + 2 * MARGIN
    left = [*zip(tables.a, "a" * len(tables.a), strict=True), ("", ""), *zip(tables.b, "b" * len(tables.b), strict=True)]
    inputs = [FlowNode(name, kind, LEFT, y) for (name, kind), y in zip(left, _spread(len(left), height), strict=True) if name]
    a, b = inputs[: len(tables.a)], inputs[len(tables.a) :]
    c = [FlowNode(name, "c", RIGHT, y) for name, y in zip(tables.c, _spread(len(tables.c), height), strict=True)]
    products = []
    rows = zip(tables.products, _spread(count, height), tables.u, tables.v, transposed_rows(tables.w, count), equations, strict=True)
    for name, y, u, v, w, equation in rows:
        node = FlowNode(shortened(name), "product", MIDDLE, y)
        edges = (*_edges(u, a, node, into=True), *_edges(v, b, node, into=True), *_edges(w, c, node, into=False))
        products.append(ProductFlow(node, equation, edges))
    return (Flow(WIDTH, height, NODE, HEIGHT, (*inputs, *c), _labelled(products)),)


def _spread(count: int, height: float) -> list[float]:
    """The centres of `count` nodes, spaced evenly down the chart."""
    step = (height - 2 * MARGIN) / count
    return [MARGIN + step * (i + 0.5) for i in range(count)]


def _edges(row: Entries, blocks: Sequence[FlowNode], product: FlowNode, into: bool) -> list[Edge]:
    edges = []
    for index, text in row:
        start, end = (blocks[index], product) if into else (product, blocks[index])
        x1, x2 = start.x + NODE / 2, end.x - NODE / 2
        bend = (x2 - x1) * 0.45
        path = f"M{x1:g} {start.y:.1f}C{x1 + bend:g} {start.y:.1f} {x2 - bend:g} {end.y:.1f} {x2:g} {end.y:.1f}"
        label = "" if text in ("1", "-1") else readable(text)
        edges.append(Edge(path, shade(text)[0], label, (x1 + x2) / 2, (start.y + end.y) / 2))
    return edges


def _labelled(products: Sequence[ProductFlow]) -> tuple[ProductFlow, ...]:
    """The products, without edge labels if there would be too many."""
    if sum(1 for p in products for e in p.edges if e.label) <= MOST_LABELS:
        return tuple(products)
    return tuple(ProductFlow(p.node, p.equation, tuple(Edge(e.path, e.sign, "", e.x, e.y) for e in p.edges)) for p in products)
