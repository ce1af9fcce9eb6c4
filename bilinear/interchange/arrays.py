"""Schemes from arrays U, V and W: in memory, in MATLAB's text, in Python files, and in the cells of Jupyter notebooks.

In each array a row is a product, or a column is: the sizes decide. Python is parsed, never executed: only lists of numbers are understood.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bilinear.errors import fail
from bilinear.interchange.reader_parts import (
    MOST_NONZEROS,
    MOST_PRODUCTS,
    NOTHING_ASKED,
    Asked,
    Beginning,
    Dims,
    Maps,
    Reading,
    assemble,
    dims_of,
    malformed,
    parse_rational,
    parsed_json,
    picked,
    read_number,
    read_text,
    said_ring,
)
from bilinear.ir.linear import Form, LinearMap, transposed_rows
from bilinear.ir.number import Coefficient, Symbolic, exact, generator
from bilinear.ir.ring import RATIONALS, Ring
from bilinear.ir.scheme import Scheme
from bilinear.source import Source

Table = NDArray[np.generic]
MOST_BITS = 128  # The most bits of a numerator or denominator; no published scheme has more.


def scheme_from_arrays(
    u: object, v: object, w: object, dims: Dims | None = None, ring: Ring | None = None, transposed: bool = False, name: str = "arrays"
) -> Scheme:
    """The scheme of three tables that have a column a product: U (mk x r), V (kn x r), W (mn x r), or a row a product.

    The sizes decide between the two, for each table where they leave no doubt, else for all three alike. Blocks are numbered row by row;
    with `transposed` those of C column by column, as in AlphaTensor. Complex numbers are read over Q[i]. Raises `BilinearError`: E253 if
    the sizes do not fit, E357 if the arrays are not two-dimensional or contain a value that is not an exact number.
    """
    tables = [_table(table, f"{name}.{letter}") for table, letter in zip((u, v, w), "uvw", strict=True)]
    ways = _fitting([table.shape for table in tables], dims)
    alike = [way for way in ways if len(set(way)) == 1]
    by_columns = alike[0] if alike else ways[0] if len(ways) == 1 else (True,) * 3
    tables = [table.T if columns else table for table, columns in zip(tables, by_columns, strict=True)]
    u_rows, v_rows, w_columns = (_forms(table, name) for table in tables)
    blocks = [table.shape[1] for table in tables]
    complex_numbers = any(isinstance(c, Symbolic) for rows in (u_rows, v_rows, w_columns) for row in rows for _, c in row)
    outputs, found = transposed_rows(w_columns, blocks[2]), dims_of(*blocks)
    if transposed and found is not None:
        m, _, n = found
        outputs = tuple(outputs[j * m + i] for i in range(m) for j in range(n))
    over = ring or (Ring("Q[i]") if complex_numbers else RATIONALS)
    left, right = LinearMap(blocks[0], tuple(u_rows)), LinearMap(blocks[1], tuple(v_rows))
    last = LinearMap(len(w_columns), outputs)
    return assemble(Maps(Source(name, ""), name, left, right, last, over), dims)


def _table(table: object, name: str) -> Table:
    try:
        array = np.asarray(table) if isinstance(table, np.ndarray) else np.array(table, dtype=object)
    except ValueError:
        raise fail("E357", f"{name} is not a table: its rows are not of one length") from None
    if array.ndim != 2 or array.dtype.kind not in "iufcbO":
        raise fail("E357", f"{name} is not a table of numbers: {array.ndim} dimensions of {array.dtype}", "give arrays of two dimensions")
    if max(array.shape) > MOST_PRODUCTS or np.count_nonzero(array) > MOST_NONZEROS:
        raise fail(
            "E357", f"{name} is too large: {array.shape[0]} x {array.shape[1]}", f"at most {MOST_NONZEROS} coefficients other than 0"
        )
    return array


def _fitting(shapes: Sequence[tuple[int, ...]], dims: Dims | None) -> list[tuple[bool, ...]]:
    """The choices of rows and columns as products for which the common size is a rank, and the others are numbers of blocks."""

    def fits(columns: tuple[bool, ...]) -> bool:
        ranks = {shape[column] for shape, column in zip(shapes, columns, strict=True)}
        a, b, c = (shape[not column] for shape, column in zip(shapes, columns, strict=True))
        found = dims_of(a, b, c) if len(ranks) == 1 else None
        return found is not None and (dims is None or found == tuple(dims))

    return [way for way in product((True, False), repeat=3) if fits(way)]


def _forms(table: Table, name: str) -> list[Form]:
    if table.dtype.kind == "O":
        return [tuple((int(i), exact_number(row[i], name)) for i in np.nonzero(row)[0]) for row in table]
    known = {value: exact_number(value, name) for value in np.unique(table)}
    return [tuple((int(i), known[row[i]]) for i in np.nonzero(row)[0]) for row in table]


def exact_number(value: object, name: str) -> Coefficient:
    """The exact number that is meant: for a float, the simplest fraction that rounds to it. Raises `BilinearError` (E357)."""
    if isinstance(value, (bool, np.bool_, int, np.integer)):
        number = Fraction(int(value))
    elif isinstance(value, Symbolic):
        return value
    elif isinstance(value, Fraction):
        number = value
    elif isinstance(value, (complex, np.complexfloating)):
        real, imaginary = exact_number(value.real, name), exact_number(value.imag, name)
        return real + generator("i") * imaginary if imaginary else real
    elif isinstance(value, (float, np.floating)) and np.isfinite(value):
        number = _simplest(value)
    else:
        hint = "coefficients are integers, finite floats, fractions, and complex numbers of these"
        raise fail("E357", f"{name} holds {str(value)[:40]!r}, which is not a coefficient", hint)
    bits = max(abs(number.numerator), number.denominator).bit_length()
    if bits > MOST_BITS:
        raise fail("E357", f"{name} holds a number of {bits} bits", f"numerators and denominators have at most {MOST_BITS}")
    return exact(number)


def _simplest(value: float | np.floating) -> Fraction:
    """The fraction of small denominator that rounds to a float, such as 1/3 for 0.333...; the float itself if there is none.

    A denominator has at most two fifths of a float's bits (2^20 for 64 bits), so few floats are near such a fraction by chance.
    """
    whole = Fraction(float(value))
    digits = np.finfo(type(value)).nmant * 2 // 5
    near = whole.limit_denominator(2**digits)
    return near if type(value)(near.numerator / near.denominator) == value else whole


MOST_NUMBERS = 2**20  # The most numbers of an array in a text.
MOST_LETTERS = 2**20  # The most characters of Python with arrays; published cells have up to 50 thousand.
NAMES = ("UVW", "ABC")  # What the three arrays of a scheme are called; A, B and C in tensor decompositions.
_MATRIX = re.compile(r"^[ \t]*([UVWABC])[ \t]*=[ \t]*\[([^\[\]]*)(\](?:[ \t]*\.?('))?)?", re.MULTILINE | re.IGNORECASE)
_ROW = re.compile(r"[^;\n]+")
_SKIPPED = re.compile(r"%[^\n]*|\.\.\.[^\n]*(?:\n|\Z)")


def read_matlab(path: Path, asked: Asked = NOTHING_ASKED) -> Reading:
    """The scheme of the matrices that a file assigns: `U = [1 0; 0 1/2; ...];`, and V and W likewise, or A, B and C, as in texts on tensor
    decompositions (Tichavsky, Phan, Cichocki 2017). Nothing else in it is read.

    Rows are parted by `;` or line ends; a matrix may be transposed, `[...]'`. Blocks are numbered row by row, or column by column as MATLAB
    stores them. Raises `BilinearError`: E251 if the file cannot be read, E252 if an entry is not a number, E253 and E357 if the sizes do
    not fit, E254 if a matrix is incomplete, E653 if the file does not assign the three, or A, B and C are no tables of a scheme.
    """
    source = read_text(path)
    text = _SKIPPED.sub(lambda part: " " * len(part[0]), source.text)
    found = {match[1].upper(): match for match in _MATRIX.finditer(text)}
    names = next((names for names in NAMES if all(name in found for name in names)), "")
    if not names:
        raise fail("E653", f"{path} holds no scheme: it assigns {', '.join(sorted(found)) or 'no matrix'} of U, V and W", MATLAB)
    u, v, w = (_matrix(source, text, found[name]) for name in names)
    if names == "ABC" and not are_tables((u, v, w)):
        raise fail("E653", f"{path} holds no scheme: the sizes of its A, B and C are not those of one", MATLAB)
    return Reading(scheme_from_arrays(u, v, w, None, asked.ring or said_ring(source), name=path.stem), False, by_columns=True)


def are_tables(three: Sequence[Sequence[Sequence[object]]]) -> bool:
    """True if three arrays of whole rows have the sizes of a scheme's U, V and W."""
    sizes = [(len(rows), len(rows[0]) if rows else 0) for rows in three]
    whole = all(len(row) == columns for rows, (_, columns) in zip(three, sizes, strict=True) for row in rows)
    return whole and min(min(size) for size in sizes) > 0 and bool(_fitting(sizes, None))


_PARTS = re.compile(r"[^\s,;]+")


def begins_commas(begins: Beginning) -> bool:
    """True for a file of three tables of numbers that a comma parts; of a longer one, where at least one table is whole."""
    parts = _tables_of(begins.text) if re.search(r"[0-9][ \t]*,", begins.text) else []
    sizes = [[[word[0] for word in row] for row in rows] for rows in parts]
    if not all(parse_rational(word) is not None for rows in sizes for row in rows for word in row):
        return False
    return are_tables(sizes) if begins.whole and len(sizes) == 3 else not begins.whole and 1 < len(sizes) <= 3


def read_commas(path: Path, asked: Asked = NOTHING_ASKED) -> Reading:
    """The scheme of three tables, U, V and W, of numbers parted by commas, semicolons or blanks, as Smirnov (2013) lists coefficients.

    A blank line, a line of words (a title) or a line of # parts the tables. In each, a row is a product, or a column is: the sizes decide.
    Raises `BilinearError`: E251 if the file cannot be read, E252 if a word is not a number, E253 and E357 if the sizes do not fit, E254 if
    there are not three tables.
    """
    source = read_text(path)
    tables = [[[read_number(source, word) for word in row] for row in rows] for rows in _tables_of(source.text)]
    if len(tables) != 3:
        raise fail("E254", f"{path} holds {len(tables)} tables, not U, V and W", "tables are parted by blank lines or titles")
    u, v, w = tables
    return Reading(scheme_from_arrays(u, v, w, None, asked.ring or said_ring(source), name=path.stem), False, by_columns=True)


def _tables_of(text: str) -> list[list[list[re.Match[str]]]]:
    """The rows of words of each table in a text; what is no number and begins with a letter or a # is a title."""
    found: list[list[list[re.Match[str]]]] = [[]]
    for line in re.finditer(r"[^\n]*(?:\n|\Z)", text):
        words = list(_PARTS.finditer(text, *line.span()))
        if words and not re.match(r"[A-Za-z#%]", words[0][0]):
            found[-1].append(words)
        elif found[-1]:
            found.append([])
    return [rows for rows in found if rows]


MATLAB = "MATLAB's scheme is U = [1 0; 0 1], V and W, Mathematica's {{{1}}, {{1}}, {{1}}}"


def _matrix(source: Source, text: str, match: re.Match[str]) -> list[list[Coefficient]]:
    if not match[3]:
        raise malformed(source, match.start(1), match.end(1), "a matrix is not closed", "of this one", code="E254")
    rows: list[list[Coefficient]] = []
    for row in _ROW.finditer(text, match.start(2), match.end(2)):
        numbers = [
            read_number(source, word, word[0].removesuffix(".")) for word in re.compile(r"[^\s,]+").finditer(text, row.start(), row.end())
        ]
        rows += [numbers] if numbers else []
        if len(rows) > MOST_PRODUCTS or len(rows) * len(numbers) > 4 * MOST_NUMBERS:
            raise malformed(source, match.start(1), match.end(1), "the matrix is too large", "this one", code="E253")
        if numbers and len(numbers) != len(rows[0]):
            label = f"{len(numbers)} numbers, {len(rows[0])} in the first row"
            raise malformed(source, row.start(), row.end(), "the rows of a matrix are not of one length", label, code="E253")
    return [list(column) for column in zip(*rows, strict=True)] if match[4] else rows


Triple: TypeAlias = tuple[ast.expr, ast.expr, ast.expr]
LETTERS = "UVW"  # The name of the scheme whose three arrays are assigned one by one.


def python_entries(path: Path) -> tuple[str, ...]:
    """The names of the triples of arrays in a notebook or a Python file. Raises `BilinearError` (E251, E255, E653)."""
    names = tuple(_triples(path))
    if not names:
        hint = "Python assigns it: name = (np.array(...), np.array(...), np.array(...)), or U = [[...]], V and W"
        raise fail("E653", f"{path} holds no scheme", hint)
    return names


def read_python(path: Path, asked: Asked) -> Reading:
    """The scheme under a name in a notebook or a Python file, or its only one; complex numbers are read over Q[i].

    In `name = (u, v, w)` the blocks of C are numbered column by column, as in AlphaEvolve's results
    (https://github.com/google-deepmind/alphaevolve_results); in `U = ...`, `V = ...`, `W = ...` row by row. Raises `BilinearError`: E251 if
    the file cannot be read, E252 if an array holds anything but numbers, E253 and E357 if the sizes do not fit, E354 if several schemes are
    there, or none of that name, E255 if it is not a notebook, E653 if it holds no three arrays.
    """
    name = picked(path, python_entries(path) if not asked.entry else (asked.entry,), asked.entry)
    triples = _triples(path, name)
    if name not in triples:
        raise fail("E354", f"{path} holds no scheme {name[:40]!r}", f"it holds {', '.join(python_entries(path)[:20])}")
    u, v, w = (_rows(array, f"{path}[{name}]") for array in triples[name])
    transposed = name != LETTERS
    return Reading(scheme_from_arrays(u, v, w, None, asked.ring, transposed, name if transposed else path.stem), transposed)


def _triples(path: Path, wanted: str = "") -> dict[str, Triple]:
    """The arrays by the name that Python assigns them to; only cells with the wanted name are parsed."""
    found: dict[str, Triple] = {}
    letters: dict[str, ast.expr] = {}
    source = read_text(path)
    for text in _cells(source) if source.text.lstrip().startswith("{") else [source.text]:
        for name, value in _assigned(source, text) if wanted == LETTERS or wanted in text else []:
            parts = _entries(value)
            arrays = [_array(part, bare=isinstance(value, ast.Tuple)) for part in parts] if len(parts) == 3 else []
            u, v, w = arrays or (None, None, None)
            if u is not None and v is not None and w is not None:
                found[name] = (u, v, w)
            products = _by_products(value) if name not in found else None
            if products is not None:
                found[name] = products
            array = _array(value, bare=True) if name.upper() in LETTERS else None
            if array is not None:
                letters[name.upper()] = array
    if len(letters) == 3:
        found[LETTERS] = (letters["U"], letters["V"], letters["W"])
    return found


def _cells(source: Source) -> list[str]:
    data = parsed_json(source, r'"cells"', "a notebook has cells")
    cells = data.get("cells")
    if not isinstance(cells, list):
        raise malformed(source, 0, 1, "this is not a notebook: it has no cells", "begins here", code="E255")
    parts = [cell.get("source", "") for cell in cells if isinstance(cell, dict) and cell.get("cell_type") == "code"]
    texts = ["".join(map(str, part)) if isinstance(part, list) else str(part) for part in parts]
    return [text for text in texts if "array(" in text or "[[" in text]


def _assigned(source: Source, text: str) -> list[tuple[str, ast.expr]]:
    if len(text) > MOST_LETTERS:
        raise fail("E653", f"{source.name} holds {len(text)} characters of Python", f"at most {MOST_LETTERS} are read, of a file or a cell")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    single = [s for s in body if isinstance(s, ast.Assign) and len(s.targets) == 1]
    return [(s.targets[0].id, s.value) for s in single if isinstance(s.targets[0], ast.Name)]


def _by_products(value: ast.expr) -> Triple | None:
    """U, V and W of a list of products, each three rows of numbers, or three matrices: `[((1, 0), (1, 1), (0, 1)), ...]`."""
    products = [[_flat(part) for part in _entries(one)] for one in _entries(value)]
    if any(len(parts) != 3 for parts in products):
        return None
    tables = [[parts[letter] for parts in products] for letter in range(3)]
    u, v, w = (ast.List([ast.List(row, ast.Load()) for row in table], ast.Load()) for table in tables)
    return (u, v, w) if are_tables(tables) else None


def _flat(value: ast.expr) -> list[ast.expr]:
    return [number for row in _entries(value) for number in _entries(row) or [row]]


def _entries(value: ast.expr) -> list[ast.expr]:
    return value.elts if isinstance(value, ast.List | ast.Tuple) else []


def _array(value: ast.expr, bare: bool) -> ast.expr | None:
    """The list in `np.array([...], dtype=...)`, or a `bare` list of lists; None if it is something else."""
    if bare and _entries(value) and all(isinstance(row, ast.List | ast.Tuple) for row in _entries(value)):
        return value
    if not isinstance(value, ast.Call) or len(value.args) != 1 or not isinstance(value.args[0], ast.List | ast.Tuple):
        return None
    called = value.func.attr if isinstance(value.func, ast.Attribute) else value.func.id if isinstance(value.func, ast.Name) else ""
    return value.args[0] if called in ("array", "asarray") else None


def _rows(array: ast.expr, name: str) -> list[list[Coefficient]]:
    found: list[list[Coefficient]] = []
    numbers = 0
    for row in _entries(array):
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
    text = repr(value)
    if len(text) > 40 or "n" in text:
        raise fail("E252", f"{name}: an array holds {text[:40]}, which is not an exact number", "numbers are 1, -0.5 and 0.5+0.5j")
    return Fraction(text)
