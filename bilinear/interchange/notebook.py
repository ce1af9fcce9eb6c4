"""Read Jupyter notebooks whose cells assign three arrays: `name = (np.array([[...]]), np.array([[...]]), np.array([[...]]))`.

A cell is parsed, never executed: only lists of numbers are understood. Rows are blocks and columns products, or the other way round; the
blocks of C are numbered column by column, as in AlphaEvolve's results (https://github.com/google-deepmind/alphaevolve_results).
"""

from __future__ import annotations

import ast
import json
import warnings
from fractions import Fraction
from pathlib import Path
from typing import TypeAlias

from bilinear.errors import BilinearError, Diagnostic, fail
from bilinear.interchange.from_arrays import scheme_from_arrays
from bilinear.interchange.reader_parts import malformed, read_text
from bilinear.ir.number import Coefficient, generator
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Scheme
from bilinear.source import Source

MOST_NUMBERS = 2**20
"""The most numbers of an array."""
MOST_LETTERS = 2**20
"""The most characters of a cell with arrays; published ones have up to 50 thousand."""

Triple: TypeAlias = tuple[ast.expr, ast.expr, ast.expr]


def notebook_entries(path: str | Path) -> tuple[str, ...]:
    """The names of the triples of arrays in a notebook. Raises `BilinearError` (E251, E255, E653)."""
    names = tuple(_triples(Path(path)))
    if not names:
        raise fail("E653", f"{path} holds no scheme", "a cell assigns it: name = (np.array(...), np.array(...), np.array(...))")
    return names


def read_notebook(path: str | Path, entry: str = "", ring: Ring | None = None) -> Scheme:
    """The scheme under that name in a notebook, or its only one; complex numbers are read over Q[i].

    Raises `BilinearError`: E251 if the file cannot be read, E252 if an array holds anything but numbers, E253 and E357 if the sizes do not
    fit, E354 if several schemes are there, or none of that name, E255 if it is not a notebook, E653 if it holds no three arrays.
    """
    names = notebook_entries(path) if not entry else (entry,)
    if not entry and len(names) > 1:
        some = f"it holds {', '.join(names[:8])}{f' and {len(names) - 8} more' if len(names) > 8 else ''}"
        raise BilinearError(
            Diagnostic("E354", f"{path} holds {len(names)} schemes", notes=(some,), hints=(f"name one: entry={names[0]!r}",))
        )
    name = names[0]
    triples = _triples(Path(path), name)
    if name not in triples:
        raise fail("E354", f"{path} holds no scheme {entry[:40]!r}", f"it holds {', '.join(notebook_entries(path)[:20])}")
    u, v, w = (_rows(array, f"{path}[{name}]") for array in triples[name])
    return scheme_from_arrays(u, v, w, None, ring, True, name)


def _triples(path: Path, wanted: str = "") -> dict[str, Triple]:
    """The arrays by the name that a cell assigns them to; only cells with the wanted name are parsed."""
    found: dict[str, Triple] = {}
    for text in _cells(read_text(path)):
        for name, value in _assigned(text) if wanted in text else []:
            arrays = [_array(part) for part in value.elts] if isinstance(value, ast.Tuple | ast.List) else []
            u, v, w = arrays if len(arrays) == 3 else (None, None, None)
            if u is not None and v is not None and w is not None:
                found[name] = (u, v, w)
    return found


def _cells(source: Source) -> list[str]:
    """The cells that name arrays."""
    try:
        data = json.loads(source.text, parse_int=str, parse_float=str)
    except json.JSONDecodeError as error:
        raise malformed(source, error.pos, error.pos + 1, f"this is not JSON: {error.msg}", "here", code="E255") from None
    except RecursionError:
        raise malformed(source, 0, 1, "this JSON is nested too deeply", "begins here", code="E255") from None
    cells = data.get("cells") if isinstance(data, dict) else None
    if not isinstance(cells, list):
        raise malformed(source, 0, 1, "this is not a notebook: it has no cells", "begins here", code="E255")
    parts = [cell.get("source", "") for cell in cells if isinstance(cell, dict) and cell.get("cell_type") == "code"]
    texts = ["".join(map(str, part)) if isinstance(part, list) else str(part) for part in parts]
    found = [text for text in texts if text.count("array(") >= 3]
    if any(len(text) > MOST_LETTERS for text in found):
        raise malformed(source, 0, 1, f"a cell with arrays has more than {MOST_LETTERS} characters", "in this notebook")
    return found


def _assigned(text: str) -> list[tuple[str, ast.expr]]:
    """What a cell assigns to single names; nothing if it is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    single = [s for s in body if isinstance(s, ast.Assign) and len(s.targets) == 1]
    return [(s.targets[0].id, s.value) for s in single if isinstance(s.targets[0], ast.Name)]


def _array(value: ast.expr) -> ast.expr | None:
    """The list in `np.array([...], dtype=...)`; None if it is something else."""
    if not isinstance(value, ast.Call) or len(value.args) != 1 or not isinstance(value.args[0], ast.List | ast.Tuple):
        return None
    called = value.func.attr if isinstance(value.func, ast.Attribute) else value.func.id if isinstance(value.func, ast.Name) else ""
    return value.args[0] if called in ("array", "asarray") else None


def _rows(array: ast.expr, name: str) -> list[list[Coefficient]]:
    rows = array.elts if isinstance(array, ast.List | ast.Tuple) else []
    found: list[list[Coefficient]] = []
    numbers = 0
    for row in rows:
        entries = row.elts if isinstance(row, ast.List | ast.Tuple) else None
        numbers += len(entries or ())
        if entries is None or numbers > MOST_NUMBERS:
            what = "is not a row of numbers" if entries is None else f"goes beyond {MOST_NUMBERS} numbers"
            raise fail("E252", f"{name}: row {len(found) + 1} of an array {what}", "an array is a list of rows")
        found.append([_number(entry, name) for entry in entries])
    return found


def _number(value: ast.expr, name: str) -> Coefficient:
    """A number as it is written: `-0.5`, `0.5+0.5j`; a decimal is exact."""
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub | ast.UAdd) and not isinstance(value.operand, ast.UnaryOp):
        number = _number(value.operand, name)
        return -number if isinstance(value.op, ast.USub) else number
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add | ast.Sub) and not isinstance(value.left, ast.BinOp):
        left, right = _number(value.left, name), _number(value.right, name)
        return left + right if isinstance(value.op, ast.Add) else left - right
    constant = value.value if isinstance(value, ast.Constant) else None
    if isinstance(constant, complex):
        return generator("i") * _exact(constant.imag, name)
    if isinstance(constant, int | float) and not isinstance(constant, bool):
        return _exact(constant, name)
    raise fail("E252", f"{name}: line {value.lineno} of its cell holds something that is not a number", "numbers are 1, -0.5 and 0.5+0.5j")


def _exact(value: float, name: str) -> Fraction:
    """The decimal that a number was written as."""
    text = repr(value)
    if len(text) > 40 or "n" in text:
        raise fail("E252", f"{name}: an array holds {text[:40]}, which is not an exact number", "numbers are 1, -0.5 and 0.5+0.5j")
    return Fraction(text)
