"""A scheme drawn: its tables as a coloured grid while it can be read, else as a picture ordered by likeness; and its data flow."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from bilinear.ir.linear import transposed_rows
from bilinear.reporting.facts import Entries, ExpandedTables, SharedSums, readable
from bilinear.visible import visible

GridCell = tuple[str, str]
"""A readable coefficient and its shade: `p` or `n` for its sign, then 1 to 3 for below, at and above 1, 4 if not real; `z` is zero."""
GridRow = tuple[str, str, tuple[tuple[GridCell, ...], ...]]
"""A product: its name, the product as an equation, and its cells under A, B and C."""


@dataclass(frozen=True)
class CoefficientGrid:
    """A readable table: the names of the blocks of A, B and C, and a row for each product; `size` is large, medium or dense."""

    size: str
    parts: tuple[tuple[str, ...], ...]
    rows: tuple[GridRow, ...]

    @property
    def unreal(self) -> str:
        """What coefficients that are no real numbers have: λ or i; empty if there are none."""
        found = [text for _, _, parts in self.rows for part in parts for text, shade in part if shade[1:] == "4"]
        return "" if not found else "λ" if "λ" in found[0] else "i"


def shade(text: str) -> str:
    """The shade of an exact coefficient given as text; the written sign counts if it is not real."""
    value = _value(text)
    if value is None:
        return f"{'n' if text.startswith('-') else 'p'}4"
    size = abs(value)
    return f"{'n' if value < 0 else 'p'}{1 if size < 1 else 2 if size == 1 else 3}"


def _value(text: str) -> float | None:
    total = 0.0
    for sign, term in re.findall(r"([+-]?)((?:sqrt\(-?[0-9]+\)|[^+-])+)", text):
        size = -1.0 if sign == "-" else 1.0
        for factor in term.split("*"):
            root = re.fullmatch(r"sqrt\(([0-9]+)\)", factor)
            if root is None and re.fullmatch(r"[0-9]+(/[0-9]+)?", factor) is None:
                return None
            size *= math.sqrt(int(root[1])) if root is not None else float(Fraction(factor))
        total += size
    return total


def shortened(name: str, most: int = 8) -> str:
    """A name shortened to fit into a drawing."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


def coefficient_grid(tables: ExpandedTables, w: tuple[Entries, ...], equations: Sequence[str]) -> CoefficientGrid:
    """The tables, of which `w` has a row for each product; `equations` are the products as text."""
    parts = (tables.a, tables.b, tables.c)
    rows = []
    for name, equation, *sparse in zip(tables.products, equations, tables.u, tables.v, w, strict=True):
        full = tuple(_cells(row, len(part)) for row, part in zip(sparse, parts, strict=True))
        rows.append((name, equation, full))
    columns = sum(map(len, parts))
    return CoefficientGrid("large" if columns <= 16 else "medium" if columns <= 30 else "dense", parts, tuple(rows))


def _cells(row: Entries, width: int) -> tuple[GridCell, ...]:
    cells = [("·", "z")] * width
    for index, text in row:
        cells[index] = readable(text), shade(text)
    return tuple(cells)


MOST_CELLS = 4000  # A larger table is drawn as a picture without numbers.
MOST_ENTRIES = 300_000  # The most coefficients of a picture; each takes some 7 bytes.
MOST_LABELLED = 110  # The most columns with names beside them on a page; with more a reader zooms in.
GAP = 2  # Empty columns between two tables.
LABEL = 5  # The width of a name next to the picture, in cells.
CELL = 10  # The units of a cell in the paths of a picture.
SIZES = {"1": 5, "2": 8, "3": 10, "4": 10}
"""The size of a mark in a cell, by the second letter of its shade: below, at and above 1 in size, not real."""
SHADES = {
    "n3": "below −1",
    "n2": "minus one",
    "n1": "between −1 and 0",
    "p1": "between 0 and 1",
    "p2": "one",
    "p3": "above 1",
    "n4": "with λ or i, negative",
    "p4": "with λ or i",
}


class PicturePart(NamedTuple):
    """One of the three tables in a picture: U, V or W, its first column, and the names of its columns."""

    name: str
    left: int
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Marks:
    """All coefficients of one value: its text and shade, and a path of lines as long as their width, or of points that become discs."""

    value: str
    shade: str
    path: str


@dataclass(frozen=True)
class Picture:
    """The tables without numbers, in cells: a square for each positive coefficient, a disc for each negative one.

    `rows` are the names of the products, top to bottom; `labels` is true if names fit next to the picture.
    """

    width: int
    rows: tuple[str, ...]
    parts: tuple[PicturePart, ...]
    marks: tuple[Marks, ...]
    labels: bool

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """The shades in the picture, with their meanings."""
        found = {marks.shade for marks in self.marks}
        return tuple((shade, words) for shade, words in SHADES.items() if shade in found)


@dataclass(frozen=True)
class Coefficients:
    """A grid or a picture, and a note if something is left out."""

    grids: tuple[CoefficientGrid, ...]
    pictures: tuple[Picture, ...]
    note: str


def coefficients(tables: ExpandedTables, equations: Sequence[str]) -> Coefficients:
    """The tables as a grid while readable, as a picture while it can be drawn; `equations` are the products as text."""
    columns = len(tables.a) + len(tables.b) + len(tables.c)
    w = transposed_rows(tables.w, len(tables.products))
    entries = sum(len(row) for table in (tables.u, tables.v, w) for row in table)
    cells = columns * len(tables.products)
    if cells <= MOST_CELLS:
        return Coefficients((coefficient_grid(tables, w, equations),), (), "")
    if entries <= MOST_ENTRIES:
        note = f"{cells} coefficients are too many to be read here; squares are the positive ones, discs the negative ones."
        order = "Rows and columns stand in an order that shows what they share; the JSON report has them as they were written."
        return Coefficients((), (_picture(tables, w),), f"{note} {order}")
    return Coefficients((), (), f"{entries} coefficients that are not zero are too many to be drawn; the JSON report holds them.")


def _picture(tables: ExpandedTables, w: tuple[Entries, ...]) -> Picture:
    names = (tables.a, tables.b, tables.c)
    rows, columns = order_by_likeness((tables.u, tables.v, w), tuple(map(len, names)))
    marks: dict[str, list[tuple[int, int]]] = {}
    parts: list[PicturePart] = []
    left = 0
    for name, table, own, order in zip("UVW", (tables.u, tables.v, w), names, columns, strict=True):
        parts.append(PicturePart(name, left, tuple(visible(own[j]) for j in order)))
        place = {j: left + i for i, j in enumerate(order)}
        for y, row in enumerate(rows):
            for j, text in table[row]:
                marks.setdefault(text, []).append((place[j], y))
        left += len(order) + GAP
    found = tuple(Marks(readable(text), shade(text), _path(shade(text), places)) for text, places in sorted(marks.items()))
    products = tuple(visible(tables.products[row]) for row in rows)
    return Picture(left - GAP, products, tuple(parts), found, left <= MOST_LABELLED >= len(rows))


def order_by_likeness(tables: Sequence[Sequence[Entries]], widths: Sequence[int]) -> tuple[list[int], list[list[int]]]:
    """An order of the rows that tables share, and one of the columns of each, that is doubly lexical.

    Rows and columns, read as words over the places that are not zero, are both sorted. So similar ones stand together, and the repetitions
    of a composed scheme become visible (A. Lubiw, Doubly lexical orderings of matrices, SIAM J. Comput. 16 (1987), 854-879). Sorting rows
    and columns in turn ends in such an order.
    """
    rows, columns = list(range(len(tables[0]))), [list(range(width)) for width in widths]
    turned = [transposed_rows(tuple(table), width) for table, width in zip(tables, widths, strict=True)]
    before = None
    while (rows, columns) != before:
        before = rows, columns
        places = [{j: i for i, j in enumerate(order)} for order in columns]
        words = [[word for table, place in zip(tables, places, strict=True) for word in _word(table[row], place)] for row in rows]
        rows = [row for _, row in sorted(zip(words, rows, strict=True), key=lambda pair: pair[0])]
        place = {row: i for i, row in enumerate(rows)}
        columns = [sorted(order, key=lambda j, own=own: _word(own[j], place)) for own, order in zip(turned, columns, strict=True)]  # type: ignore[misc]
    return rows, columns


def _word(row: Entries, place: dict[int, int]) -> list[float]:
    """The places of a row's coefficients in order; the end sorts after any place, so that 1 1 comes before 1 0."""
    return [*sorted(place[index] for index, _ in row), float("inf")]


def _path(shade: str, places: Iterable[tuple[int, int]]) -> str:
    """A path with a mark at each place, each relative to the last; a square is a line, for printed points leave no mark."""
    ordered = sorted(places, key=lambda place: (place[1], place[0]))
    size = SIZES[shade[1]] if shade[0] == "p" else 0
    x, y = ordered[0]
    steps = [f"M{x * CELL + (CELL - size) / 2:g} {y * CELL + CELL // 2}h{size}"]
    steps += [f"m{(x1 - x0) * CELL - size} {(y1 - y0) * CELL}h{size}" for (x0, y0), (x1, y1) in pairwise(ordered)]
    return "".join(steps)


MOST_PRODUCTS = 64
MOST_EDGES = 900
MOST_DEPTH = 4
BEND = 0.45  # How far an edge leaves its nodes horizontally, as a part of its width.
PARTS = (0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74)  # Where an edge's label may stand, by preference.
MOST_LABELS = 48  # With more labels, edges hide each other, and labels or the chart are left out.

WIDTH, NODE, HEIGHT, MARGIN = 960.0, 52.0, 20.0, 18.0
LEFT, MIDDLE, RIGHT = 60.0, 480.0, 900.0


@dataclass(frozen=True)
class FlowNode:
    """A block, a shared sum or a product: its name, its kind (a, b, c, sum or product), and its centre."""

    name: str
    kind: str
    x: float
    y: float


@dataclass(frozen=True)
class Edge:
    """A term: a curve from one point to another, `p` or `n` for its sign; `label` is a coefficient other than 1 and -1, `part` along it."""

    start: tuple[float, float]
    end: tuple[float, float]
    sign: str
    label: str
    part: float = 0.5

    @property
    def path(self) -> str:
        """The curve as an SVG path."""
        (x1, y1), (x2, y2), bend = self.start, self.end, BEND * (self.end[0] - self.start[0])
        return f"M{x1:g} {y1:.1f}C{x1 + bend:g} {y1:.1f} {x2 - bend:g} {y2:.1f} {x2:g} {y2:.1f}"

    @property
    def x(self) -> float:
        """Where the label stands across."""
        t, s = self.part, 1 - self.part
        return self.start[0] + (self.end[0] - self.start[0]) * (3 * s * s * t * BEND + 3 * s * t * t * (1 - BEND) + t**3)

    @property
    def y(self) -> float:
        """Where the label stands down the chart."""
        t = self.part
        return self.start[1] + (self.end[1] - self.start[1]) * (3 - 2 * t) * t * t


@dataclass(frozen=True)
class ProductFlow:
    """The node of a product with all its edges, or of a sum with those that it adds, and its equation."""

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


def flow_note(tables: ExpandedTables, shared: tuple[SharedSums, ...] = ()) -> str:
    """Why the chart is left out; empty if it is drawn."""
    edges = sum(len(row) for own in _maps(tables, shared) for row in (*own.steps, *own.outputs))
    if len(tables.products) > MOST_PRODUCTS or edges > MOST_EDGES:
        return f"The data flow is not drawn: {edges} edges of {len(tables.products)} products would hide each other."
    return ""


def flow(
    tables: ExpandedTables, equations: Sequence[str], shared: tuple[SharedSums, ...] = (), sums: Sequence[str] = ()
) -> tuple[Flow, ...]:
    """The chart, or nothing if it would be too dense; shared sums, with their equations, are nodes between blocks and products."""
    if flow_note(tables, shared):
        return ()
    u, v, w = _maps(tables, shared)
    count = len(tables.products)
    pitch = 44.0 if count <= 9 else 30.0 if count <= 26 else 22.0
    most = max(len(tables.a) + len(tables.b) + 1, len(tables.c), *map(len, (*_columns(u, v), *_columns(w))))
    height = max(count * pitch, most * (HEIGHT + 4)) + 2 * MARGIN
    left = [*zip(tables.a, "a" * len(tables.a), strict=True), ("", ""), *zip(tables.b, "b" * len(tables.b), strict=True)]
    inputs = [FlowNode(name, kind, LEFT, y) for (name, kind), y in zip(left, _spread(len(left), height), strict=True) if name]
    products = [FlowNode(shortened(name), "product", MIDDLE, y) for name, y in zip(tables.products, _spread(count, height), strict=True)]
    c = [FlowNode(name, "c", RIGHT, y) for name, y in zip(tables.c, _spread(len(tables.c), height), strict=True)]
    s, t = _sums((u, v), LEFT, MIDDLE, height)
    (r,) = _sums((w,), MIDDLE, RIGHT, height)
    a, b, m = [*inputs[: len(tables.a)], *s], [*inputs[len(tables.a) :], *t], [*products, *r]
    into = [_edges(row, source, node) for own, source, nodes in ((u, a, s), (v, b, t)) for row, node in zip(own.steps, nodes, strict=True)]
    ends = [(source, edge) for row, node in zip((*w.steps, *w.outputs), (*r, *c), strict=True) for source, edge in _ends(row, m, node)]
    out = [[edge for source, edge in ends if source == number] for number in range(len(m))]
    own = [
        [*_edges(left, a, node), *_edges(right, b, node), *more]
        for left, right, node, more in zip(u.outputs, v.outputs, products, out, strict=False)
    ]
    drawn = zip((*products, *s, *t, *r), (*equations, *(sums if s or t or r else ())), (*own, *into, *out[count:]), strict=True)
    return (Flow(WIDTH, height, NODE, HEIGHT, (*inputs, *c), _labelled([ProductFlow(n, e, tuple(edges)) for n, e, edges in drawn])),)


def _maps(tables: ExpandedTables, shared: tuple[SharedSums, ...]) -> tuple[SharedSums, SharedSums, SharedSums]:
    """U, V and W with their sums, or as tables if there are none or too many, one upon the other, for the width of the chart."""
    deepest = max((len(_columns(*own)) for own in (shared[:2], shared[2:])), default=0) if shared else 0
    u, v, w = shared if 0 < deepest <= MOST_DEPTH else (SharedSums(0, (), (), rows) for rows in (tables.u, tables.v, tables.w))
    return u, v, w


def _columns(*maps: SharedSums) -> list[list[tuple[int, int]]]:
    found: dict[int, list[tuple[int, int]]] = {}
    for number, own in enumerate(maps):
        depths = [0] * own.inputs
        for step, row in enumerate(own.steps):
            depths.append(1 + max(depths[index] for index, _ in row))
            found.setdefault(depths[-1], []).append((number, step))
    return [found[depth] for depth in sorted(found)]


def _sums(maps: Sequence[SharedSums], left: float, right: float, height: float) -> list[list[FlowNode]]:
    columns = _columns(*maps)
    places: dict[tuple[int, int], tuple[float, float]] = {}
    for number, column in enumerate(columns, 1):
        x = left + (right - left) * number / (len(columns) + 1)
        places |= {key: (x, y) for key, y in zip(column, _spread(len(column), height), strict=True)}
    return [[FlowNode(shortened(name), "sum", *places[i, j]) for j, name in enumerate(own.names)] for i, own in enumerate(maps)]


def _spread(count: int, height: float) -> list[float]:
    step = (height - 2 * MARGIN) / count
    return [MARGIN + step * (i + 0.5) for i in range(count)]


def _edges(row: Entries, sources: Sequence[FlowNode], end: FlowNode) -> list[Edge]:
    return [edge for _, edge in _ends(row, sources, end)]


def _ends(row: Entries, sources: Sequence[FlowNode], end: FlowNode) -> Iterator[tuple[int, Edge]]:
    """An edge to a node for each term of its form, with the number of the node from which it comes."""
    for index, text in row:
        start = sources[index]
        label = "" if text in ("1", "-1") else readable(text)
        yield index, Edge((start.x + NODE / 2, start.y), (end.x - NODE / 2, end.y), shade(text)[0], label)


def _labelled(products: Sequence[ProductFlow]) -> tuple[ProductFlow, ...]:
    is_few = sum(1 for p in products for e in p.edges if e.label) <= MOST_LABELS
    placed: list[Edge] = []

    def apart(edge: Edge) -> Edge:
        if not edge.label or not is_few:
            return replace(edge, label="")
        tried = [replace(edge, part=part) for part in PARTS]
        free = (e for e in tried if all(abs(e.x - o.x) > 7 * max(len(e.label), len(o.label)) or abs(e.y - o.y) > 11 for o in placed))
        placed.append(next(free, edge))
        return placed[-1]

    return tuple(replace(p, edges=tuple(map(apart, p.edges))) for p in products)
