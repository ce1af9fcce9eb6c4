"""Write a JSON file of the FastMatrixMultiplication collection, as read by `fmm_json`."""

from __future__ import annotations

import json

from bilinear.algebra.fold_bases import fold_bases
from bilinear.interchange.writer_parts import cannot_write
from bilinear.ir.linear import Form, transposed_rows
from bilinear.ir.number import Coefficient, Symbolic
from bilinear.ir.scheme import Scheme


def json_files(scheme: Scheme) -> dict[str, bytes]:
    """The file, named as in the collection; steps give the reduced form, and changes of basis are expanded.

    Raises `BilinearError` (E355) if a coefficient is not rational.
    """
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
            data[letter] = [[_number(scheme, dict(row).get(i, 0)) for i in range(size)] for row in rows]
    name = f"{scheme.m}x{scheme.k}x{scheme.n}_m{scheme.rank}_{scheme.name}{'_reduced' if reduced else ''}.json"
    lines = ",\n".join(f"    {json.dumps(key)}: {_rows(value)}" for key, value in data.items())
    return {name: f"{{\n{lines}\n}}\n".encode()}


def _rows(value: object) -> str:
    """A value on one line, or a row a line."""
    if not isinstance(value, list) or not value or not isinstance(value[0], list):
        return json.dumps(value)
    return "[\n" + ",\n".join(f"        {json.dumps(row)}" for row in value) + "\n    ]"


def _sparse(scheme: Scheme, row: Form) -> list[dict[str, int | str]]:
    return [{"index": i, "value": _number(scheme, c)} for i, c in row]


def _number(scheme: Scheme, value: Coefficient) -> int | str:
    if isinstance(value, Symbolic):
        raise cannot_write(scheme, f"the JSON files have no sign for {value}", "write .sms, a fast-matmul table, or a .bl file")
    return value if isinstance(value, int) else str(value)
