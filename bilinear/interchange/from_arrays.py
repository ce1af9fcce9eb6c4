"""Schemes from arrays in memory: U, V and W as NumPy arrays or nested lists of integers, floats, fractions or complex numbers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from bilinear.errors import BilinearError, fail
from bilinear.interchange.reader_parts import MOST_NONZEROS, MOST_PRODUCTS, Dims, Maps, assemble, dims_of
from bilinear.ir.linear import Form, LinearMap
from bilinear.ir.number import Coefficient, Symbolic, exact, generator
from bilinear.ir.ring import RATIONALS, Ring
from bilinear.ir.scheme import Scheme
from bilinear.source import Source

Table = NDArray[np.generic]
MOST_BITS = 128
"""The most bits of a numerator or denominator; no published scheme has more."""


def scheme_from_arrays(
    u: object, v: object, w: object, dims: Dims | None = None, ring: Ring | None = None, transposed: bool = False, name: str = "arrays"
) -> Scheme:
    """The scheme of three tables that have a column a product: U (mk x r), V (kn x r), W (mn x r), or a row a product, all three alike.

    The sizes decide between the two. Blocks are numbered row by row; with `transposed` those of C column by column, as in AlphaTensor.
    Complex numbers are read over Q[i]. Raises `BilinearError`: E253 if the sizes do not fit, E357 if the arrays are not two-dimensional or
    contain a value that is not an exact number.
    """
    tables = [_table(table, f"{name}.{letter}") for table, letter in zip((u, v, w), "uvw", strict=True)]
    columns = _by_columns([table.shape for table in tables], dims)
    u_rows, v_rows, w_columns = (_forms(table.T if columns else table, name) for table in tables)
    blocks = [table.shape[0 if columns else 1] for table in tables]
    complex_numbers = any(isinstance(c, Symbolic) for rows in (u_rows, v_rows, w_columns) for row in rows for _, c in row)
    outputs: list[list[tuple[int, Coefficient]]] = [[] for _ in range(blocks[2])]
    for product, column in enumerate(w_columns):
        for block, value in column:
            outputs[block].append((product, value))
    found = dims_of(*blocks)
    if transposed and found is not None:
        m, _, n = found
        outputs = [outputs[j * m + i] for i in range(m) for j in range(n)]
    over = ring or (Ring("Q[i]") if complex_numbers else RATIONALS)
    left, right = LinearMap(blocks[0], tuple(u_rows)), LinearMap(blocks[1], tuple(v_rows))
    last = LinearMap(len(w_columns), tuple(map(tuple, outputs)))
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


def _by_columns(shapes: list[tuple[int, ...]], dims: Dims | None) -> bool:
    """True if a column is a product: the common size is the rank, the others are numbers of blocks."""

    def fits(blocks: list[int], ranks: list[int]) -> bool:
        found = dims_of(blocks[0], blocks[1], blocks[2]) if len(set(ranks)) == 1 else None
        return found is not None and (dims is None or found == tuple(dims))

    rows, columns = [s[0] for s in shapes], [s[1] for s in shapes]
    return fits(rows, columns) or not fits(columns, rows)


def _forms(table: Table, name: str) -> list[Form]:
    """The rows of a table without zeros; each distinct number of a numeric type is read once."""
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
        raise _no_number(value, name)
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


def _no_number(value: object, name: str) -> BilinearError:
    hint = "coefficients are integers, finite floats, fractions, and complex numbers of these"
    return fail("E357", f"{name} holds {str(value)[:40]!r}, which is not a coefficient", hint)
