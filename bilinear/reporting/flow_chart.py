"""The data flow of a scheme: from the blocks of A and B through the products to the blocks of C."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bilinear.ir.linear import transposed_rows
from bilinear.reporting.coefficients import readable, shade, shortened
from bilinear.reporting.facts import Entries, Tables

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


def flow_note(tables: Tables) -> str:
    """Why the chart is left out; empty if it is drawn."""
    edges = sum(len(row) for table in (tables.u, tables.v, tables.w) for row in table)
    if len(tables.products) > MOST_PRODUCTS or edges > MOST_EDGES:
        return f"The data flow is not drawn: {edges} edges of {len(tables.products)} products would hide each other."
    return ""


def flow(tables: Tables, equations: Sequence[str]) -> tuple[Flow, ...]:
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
