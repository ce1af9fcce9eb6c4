"""The three coefficient tables as coloured grids: one row a product; U, V and W over the blocks of A, B and C."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from bilinear.reporting.scheme_facts import Entries, Tables


@dataclass(frozen=True)
class Cell:
    """A readable coefficient and its shade: `p` or `n` for its sign, then 1 to 3 for below, at and above 1 in size; `z` is zero."""

    text: str
    shade: str


@dataclass(frozen=True)
class GridRow:
    """A product: its name, the product as an equation, and its cells under A, B and C."""

    name: str
    equation: str
    parts: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Grid:
    """A readable table: the names of the blocks of A, B and C, and a row for each product; `size` is large, medium or dense."""

    size: str
    parts: tuple[tuple[str, ...], ...]
    rows: tuple[GridRow, ...]


def shade(text: str) -> str:
    """The shade of an exact coefficient given as text; the written sign counts if it is not real."""
    value = _value(text)
    if value is None:
        return "n3" if text.startswith("-") else "p3"
    size = abs(value)
    return f"{'n' if value < 0 else 'p'}{1 if size < 1 else 2 if size == 1 else 3}"


def _value(text: str) -> float | None:
    """The value of a sum of fractions and real square roots; None for any other text."""
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


def readable(text: str) -> str:
    """A coefficient or form in typographic signs: a true minus, roots, Greek letters."""
    text = re.sub(r"sqrt\(([0-9]+)\)", r"√\1", text).replace("sqrt", "√")
    for plain, printed in (("-", "−"), ("*", "·"), ("lambda", "λ"), ("alpha", "α"), ("beta", "β")):
        text = text.replace(plain, printed)
    return re.sub(r"\[([αβλ])\]", r"\1", text)


def shortened(name: str, most: int = 8) -> str:
    """A name shortened to fit into a drawing."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


def coefficient_grid(tables: Tables, w: tuple[Entries, ...], equations: Sequence[str]) -> Grid:
    """The tables, of which `w` has a row for each product; `equations` are the products as text."""
    parts = (tables.a, tables.b, tables.c)
    rows = []
    for name, equation, *sparse in zip(tables.products, equations, tables.u, tables.v, w, strict=True):
        full = tuple(_cells(row, len(part)) for row, part in zip(sparse, parts, strict=True))
        rows.append(GridRow(name, equation, full))
    columns = sum(map(len, parts))
    return Grid("large" if columns <= 16 else "medium" if columns <= 30 else "dense", parts, tuple(rows))


def _cells(row: Entries, width: int) -> tuple[Cell, ...]:
    cells = [Cell("·", "z")] * width
    for index, text in row:
        cells[index] = Cell(readable(text), shade(text))
    return tuple(cells)
