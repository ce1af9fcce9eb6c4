"""Write a scheme in the format of a published collection: a table of fast-matmul, JSON, plinopt's matrices, or AlphaTensor's archive."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from fractions import Fraction
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from bilinear.algebra.maps import fold_bases
from bilinear.errors import BilinearError, fail
from bilinear.interchange.arrays import exact_number
from bilinear.ir.linear import Form, LinearMap, transposed_rows
from bilinear.ir.number import Coefficient, Symbolic
from bilinear.ir.scheme import Scheme


def steps_over_inputs(linear: LinearMap) -> tuple[Form, ...]:
    """The steps, each over the inputs alone."""
    return LinearMap(linear.inputs, tuple(((linear.inputs + i, 1),) for i in range(len(linear.steps))), linear.steps).matrix


def ring_comment(scheme: Scheme) -> str:
    """The comment that names the ring, if it is not Q."""
    return "" if str(scheme.ring) == "Q" else f"# ring: {scheme.ring}\n"


def cannot_write(scheme: Scheme, what: str) -> BilinearError:
    """The error that a format cannot express something (E355)."""
    return fail("E355", f"{scheme.name} cannot be written so: {what}")


def fast_matmul_files(scheme: Scheme) -> dict[str, bytes]:
    """The file, named as in the collection: NAMEmkn-rank-nonzeros.

    Steps become substituted temporaries, each over the blocks alone; changes of basis are expanded. Raises `BilinearError` (E355) if a
    coefficient is not a polynomial in lambda with rational coefficients.
    """
    scheme = fold_bases(scheme)
    u, v, w = scheme.u, scheme.v, scheme.w
    left = transposed_rows(u.outputs, u.inputs + len(u.steps))
    right = transposed_rows(v.outputs, v.inputs + len(v.steps))
    sized = ((left, scheme.rank), (right, scheme.rank), (w.outputs, w.inputs + len(w.steps)))
    tables = [_text_table(scheme, rows, columns) for rows, columns in sized]
    text = ring_comment(scheme) * (not scheme.ring.is_approximate) + "#\n".join(tables)
    if u.steps or v.steps or w.steps:
        defined = (_text_table(scheme, steps_over_inputs(linear), linear.inputs) for linear in (u, v, w))
        text += "# Substitution information\n" + "#\n".join(defined)
    nonzeros = sum(len(row) for table in scheme.tables for row in table)
    m, k, n = scheme.m, scheme.k, scheme.n
    extents = f"{m}{k}{n}" if max(m, k, n) < 10 else f"_{m}x{k}x{n}"
    return {f"{scheme.name}{extents}-{scheme.rank}-{nonzeros}": text.encode()}


def _text_table(scheme: Scheme, rows: list[list[tuple[int, Coefficient]]] | tuple[Form, ...], columns: int) -> str:
    lines = []
    for row in rows:
        numbers = dict(row)
        lines.append(" ".join(_table_number(scheme, numbers.get(i, 0)) for i in range(columns)) + "\n")
    return "".join(lines)


def _table_number(scheme: Scheme, value: Coefficient) -> str:
    if not isinstance(value, Symbolic):
        return str(value)
    if value.generators != {"lambda"}:
        raise cannot_write(scheme, f"these tables have no sign for {value}")
    terms = [_term(sum(e for _, e in monomial), c) for monomial, c in value.terms]
    return terms[0] if len(terms) == 1 else f"({'+'.join(terms)})"


def _term(power: int, c: Fraction) -> str:
    if power == 0:
        return str(c)
    sign = "" if c == 1 else "-" if c == -1 else str(c)
    exponent = str(abs(power)) if abs(power) > 1 else ""
    return f"{sign}x{exponent}{'i' if power < 0 else ''}"


def json_files(scheme: Scheme) -> dict[str, bytes]:
    """The file, named as in the collection: steps reduced, bases expanded. Raises `BilinearError` (E355) for irrational numbers."""
    scheme = fold_bases(scheme)
    u, v, w = scheme.u, scheme.v, scheme.w
    data: dict[str, object] = {"n": [scheme.m, scheme.k, scheme.n], "m": scheme.rank, "z2": scheme.ring.modulus == 2}
    if str(scheme.ring) not in ("Q", "Z/2"):
        data["ring"] = str(scheme.ring)
    outputs = tuple(w.outputs[i * scheme.n + j] for j in range(scheme.n) for i in range(scheme.m))
    reduced = bool(u.steps or v.steps or w.steps)
    if reduced:
        for letter, steps, rows in (("u", u.steps, u.outputs), ("v", v.steps, v.outputs), ("w", w.steps, outputs)):
            data[f"{letter}_fresh"] = [_sparse(scheme, row) for row in steps]
            data[letter] = [_sparse(scheme, row) for row in rows]
    else:
        columns = transposed_rows(outputs, scheme.rank)
        for letter, rows, size in (("u", u.outputs, u.inputs), ("v", v.outputs, v.inputs), ("w", columns, len(outputs))):
            data[letter] = [[_json_number(scheme, dict(row).get(i, 0)) for i in range(size)] for row in rows]
    name = f"{scheme.m}x{scheme.k}x{scheme.n}_m{scheme.rank}_{scheme.name}{'_reduced' if reduced else ''}.json"
    lines = ",\n".join(f"    {json.dumps(key)}: {_rows(value)}" for key, value in data.items())
    return {name: f"{{\n{lines}\n}}\n".encode()}


def _rows(value: object) -> str:
    if not isinstance(value, list) or not value or not isinstance(value[0], list):
        return json.dumps(value)
    return "[\n" + ",\n".join(f"        {json.dumps(row)}" for row in value) + "\n    ]"


def _sparse(scheme: Scheme, row: Form) -> list[dict[str, int | str]]:
    return [{"index": i, "value": _json_number(scheme, c)} for i, c in row]


def _json_number(scheme: Scheme, value: Coefficient) -> int | str:
    if isinstance(value, Symbolic):
        raise cannot_write(scheme, f"the JSON files have no sign for {value}")
    return value if isinstance(value, int) else str(value)


def sms_files(scheme: Scheme) -> dict[str, bytes]:
    """The files MxKxN_RANK_NAME_L.sms, _R.sms and _P.sms, steps expanded; with changes of basis the -ALT and -CoB files.

    A root is written X, and a comment defines X. Raises `BilinearError` (E355) if a coefficient is neither rational nor a rational times
    the root; polynomials in lambda are not.
    """
    core = f"{scheme.m}x{scheme.k}x{scheme.n}_{scheme.rank}_{scheme.name}"
    root, maps, bases = scheme.ring.generator, (scheme.u, scheme.v, scheme.w), scheme.bases
    sets = {core: maps} if bases is None else {f"{core}-ALT": maps, f"{core}-CoB": (bases.a, bases.b, bases.c)}
    comment = f"# X is a placeholder for {'a square root of -1' if root == 'i' else root}\n" if root else ring_comment(scheme)
    files = {}
    for stem, three in sets.items():
        for letter, linear in zip("LRP", three, strict=True):
            values = [f"{i + 1} {j + 1} {_sms_value(scheme, c)}\n" for i, row in enumerate(linear.matrix) for j, c in row]
            files[f"{stem}_{letter}.sms"] = f"{comment}{len(linear.matrix)} {linear.inputs} R\n{''.join(values)}0 0 0\n".encode()
    return files


def _sms_value(scheme: Scheme, value: Coefficient) -> str:
    if not isinstance(value, Symbolic):
        return str(value)
    if scheme.ring.is_approximate or len(value.terms) != 1:
        raise cannot_write(scheme, f"these matrices have no sign for {value}")
    return f"{value.terms[0][1]}*X"


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
            table[number, place] = _archive_number(scheme, value, whole)
    return table


def _archive_number(scheme: Scheme, value: Coefficient, whole: bool) -> int | float:
    if isinstance(value, Symbolic):
        raise cannot_write(scheme, f"an archive holds numbers, not {value}")
    if whole and abs(Fraction(value)) < 2**63:
        return int(value)
    try:
        number = value.numerator / value.denominator
    except OverflowError:
        number = float("inf")
    if whole or abs(Fraction(value)) >= 2**53 or exact_number(np.float64(number), scheme.name) != value:
        raise cannot_write(scheme, f"an archive holds floats, and {str(value)[:40]} is not the simplest fraction that rounds to one")
    return number


WRITERS = {"fast-matmul": fast_matmul_files, "json": json_files, "sms": sms_files, "npz": npz_files}


def export_files(scheme: Scheme, form: str) -> dict[str, bytes]:
    """A scheme's files by names in its collection. Raises `BilinearError`: E351 for the format, E355 for a coefficient."""
    if form not in WRITERS:
        raise fail("E351", f"nothing is written as {form[:40]!r}", f"known are {', '.join(WRITERS)}")
    try:
        return WRITERS[form](scheme)
    except BilinearError as error:
        others = [name for name, write in WRITERS.items() if name != form and _writes(write, scheme)]
        hint = f"a .bl file holds it{''.join(f', or --to {name}' for name in others)}"
        raise fail("E355", error.diagnostics[0].message, hint) from None


def _writes(write: Callable[[Scheme], object], scheme: Scheme) -> bool:
    try:
        write(scheme)
    except BilinearError:
        return False
    return True


def what_is_lost(scheme: Scheme, form: str) -> tuple[str, ...]:
    """What a format cannot store, beyond names, as messages for the user."""
    lost = []
    if scheme.bases is not None and form != "sms":
        lost.append("its changes of basis are written out: the tables are those of the ordinary basis")
    if any(linear.steps for linear in (scheme.u, scheme.v, scheme.w)) and form in ("sms", "npz"):
        lost.append("its named sums are written out")
    plain = fold_bases(scheme)
    nested = any(index >= linear.inputs for linear in (plain.u, plain.v, plain.w) for step in linear.steps for index, _ in step)
    if nested and form == "fast-matmul":
        lost.append("its named sums are written over the blocks alone")
    if form == "npz" and str(scheme.ring) != "Q":
        lost.append(f"an archive tells no ring: read it with ring={str(scheme.ring)!r}")
    return tuple(lost)
