"""Write an archive in AlphaTensor's format, as read by `alphatensor`. The arrays have one type, and C is transposed."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from bilinear.interchange.from_arrays import exact_number
from bilinear.interchange.writer_parts import cannot_write
from bilinear.ir.linear import Form, transposed_rows
from bilinear.ir.number import Coefficient, Symbolic
from bilinear.ir.scheme import Scheme


def npz_files(scheme: Scheme) -> dict[str, bytes]:
    """The archive NAME.npz with the entry "m,k,n"; steps and changes of basis are expanded.

    If U, V and W have equally many rows they are one array, else an array of arrays, which NumPy pickles: it needs `allow_pickle=True`. The
    archive does not state the ring. Raises `BilinearError` (E355) if a float would not be read back as the same number.
    """
    u, v, w = scheme.tables
    m, k, n = scheme.m, scheme.k, scheme.n
    columns = [transposed_rows(u, m * k), transposed_rows(v, k * n), tuple(w[i * n + j] for j in range(n) for i in range(m))]
    whole = all(isinstance(c, int) for table in scheme.tables for row in table for _, c in row)
    tables = [_array(scheme, rows, whole) for rows in columns]
    held: NDArray[np.generic] = np.stack(tables) if len({table.shape for table in tables}) == 1 else np.empty(3, dtype=object)
    if held.dtype == object:
        held[:] = tables
    file = BytesIO()
    np.savez_compressed(file, allow_pickle=True, **{f"{m},{k},{n}": held})
    return {f"{scheme.name}.npz": file.getvalue()}


def _array(scheme: Scheme, rows: Sequence[Form], whole: bool) -> NDArray[np.number]:
    table = np.zeros((len(rows), scheme.rank), dtype=np.int64 if whole else np.float64)
    for number, row in enumerate(rows):
        for place, value in row:
            table[number, place] = _number(scheme, value, whole)
    return table


def _number(scheme: Scheme, value: Coefficient, whole: bool) -> int | float:
    if isinstance(value, Symbolic):
        raise cannot_write(scheme, f"an archive holds numbers, not {value}", "write .sms, or a .bl file")
    if whole and abs(Fraction(value)) < 2**63:
        return int(value)
    try:
        number = value.numerator / value.denominator
    except OverflowError:
        number = float("inf")
    if whole or abs(Fraction(value)) >= 2**53 or exact_number(np.float64(number), scheme.name) != value:
        raise cannot_write(
            scheme, f"an archive holds floats, and {str(value)[:40]} is not the simplest fraction that rounds to one", "write .json"
        )
    return number
