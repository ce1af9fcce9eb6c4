"""Files of other projects to begin from: by the package's writers, and for the formats that it only reads by these few lines."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from bilinear.algebra.maps import fold_bases
from bilinear.errors import BilinearError
from bilinear.frontend import load
from bilinear.interchange.exporting import WRITERS, export_files
from bilinear.ir.linear import Form
from bilinear.ir.scheme import Scheme

NAMES = (
    *("strassen", "winograd", "classical", "split_k", "naive2x2", "winograd_223", "hopcroft_kerr", "laderman", "karstadt_schwartz"),
    *("bini", "accurate_halves", "accurate_sqrt3", "benson_ballard_324", "alphatensor_424", "perminov_333"),
)
"""Shipped schemes whose files are small."""


@cache
def valid_files(name: str, form: str) -> dict[str, bytes]:
    """The files of a shipped scheme in a format, by their names; none where the format has no signs for its numbers."""
    scheme = load(name).scheme
    if form in WRITERS:
        try:
            return export_files(scheme, form)
        except BilinearError:
            return {}
    if str(scheme.ring) not in ("Z", "Q"):
        return {}
    if form == "exp":
        return {f"{name}.exp": _exp(scheme).encode()}
    if form == "m":
        return {f"{name}.m": _lists(scheme).encode()}
    return {f"{scheme.m}x{scheme.k}x{scheme.n}_{name}_{letter}.slp": text.encode() for letter, text in _programs(scheme).items()}


def columns_of(rows: Iterable[Form], width: int) -> list[Form]:
    """The columns of a table."""
    found: list[list[tuple[int, object]]] = [[] for _ in range(width)]
    for index, row in enumerate(rows):
        for column, value in row:
            found[column].append((index, value))
    return [tuple(column) for column in found]  # type: ignore[arg-type]


def _exp(scheme: Scheme) -> str:
    """A product a line; the blocks of C are transposed."""

    def total(space: str, terms: Form, columns: int, turned: bool = False) -> str:
        places = ((divmod(index, columns), c) for index, c in terms)
        named = (f"{space}{j + 1}{i + 1}" if turned else f"{space}{i + 1}{j + 1}" for (i, j), _ in places)
        return "(" + "".join(f"{'-' if c < 0 else '+'}{abs(c)}*{name}" for name, (_, c) in zip(named, terms, strict=True)).lstrip("+") + ")"  # type: ignore[operator,arg-type]

    u, v, w = scheme.tables
    lines = zip(u, v, columns_of(w, scheme.rank), strict=True)
    return "\n".join(f"{total('a', a, scheme.k)}*{total('b', b, scheme.n)}*{total('c', c, scheme.n, True)}" for a, b, c in lines) + "\n"


def _lists(scheme: Scheme) -> str:
    """Products of three matrices each, as Mathematica writes them; the one of C is transposed."""

    def matrix(terms: Form, rows: int, columns: int, turned: bool = False) -> str:
        known = dict(terms)
        cells = [[str(known.get(i * columns + j, 0)) for j in range(columns)] for i in range(rows)]
        if turned:
            cells = [list(column) for column in zip(*cells, strict=True)]
        return "{" + ", ".join("{" + ", ".join(row) + "}" for row in cells) + "}"

    (u, v, w), (m, k, n) = scheme.tables, (scheme.m, scheme.k, scheme.n)
    products = zip(u, v, columns_of(w, scheme.rank), strict=True)
    lines = [f"  {{{matrix(a, m, k)}, {matrix(b, k, n)}, {matrix(c, m, n, True)}}}" for a, b, c in products]
    return f"(* {scheme.name} *) {scheme.name.replace('_', '')} = {{\n" + ",\n".join(lines) + "\n};\n"


def _programs(scheme: Scheme) -> dict[str, str]:
    """plinopt's three programs."""

    def text(rows: tuple[Form, ...]) -> str:
        sums = ("".join(f"{'-' if c < 0 else '+'}i{index}*{abs(c)}" for index, c in row).lstrip("+") for row in rows)  # type: ignore[operator,arg-type]
        return "".join(f"o{number}:={total or '0'};\n" for number, total in enumerate(sums))

    u, v, w = fold_bases(scheme).tables
    return {"L": text(u), "R": text(v), "P": text(w)}
