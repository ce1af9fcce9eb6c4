"""Write three of plinopt's matrices, and three more for changes of basis, as read by `plinopt`."""

from __future__ import annotations

from bilinear.interchange.writer_parts import cannot_write, ring_comment
from bilinear.ir.linear import Form
from bilinear.ir.number import Coefficient, Symbolic
from bilinear.ir.scheme import Scheme


def sms_files(scheme: Scheme) -> dict[str, bytes]:
    """The files MxKxN_RANK_NAME_L.sms, _R.sms and _P.sms, steps expanded; with changes of basis the -ALT and -CoB files.

    A root is written X, and a comment defines X. Raises `BilinearError` (E355) if a coefficient is neither rational nor a rational times
    the root; polynomials in lambda are not.
    """
    core = f"{scheme.m}x{scheme.k}x{scheme.n}_{scheme.rank}_{scheme.name}"
    tables = [(scheme.u.matrix, scheme.u.inputs), (scheme.v.matrix, scheme.v.inputs), (scheme.w.matrix, scheme.w.inputs)]
    if scheme.bases is None:
        return _three(scheme, core, tables)
    changes = [(change.matrix, change.inputs) for change in (scheme.bases.a, scheme.bases.b, scheme.bases.c)]
    return {**_three(scheme, f"{core}-ALT", tables), **_three(scheme, f"{core}-CoB", changes)}


def _three(scheme: Scheme, stem: str, tables: list[tuple[tuple[Form, ...], int]]) -> dict[str, bytes]:
    return {f"{stem}_{letter}.sms": _matrix(scheme, rows, columns) for letter, (rows, columns) in zip("LRP", tables, strict=True)}


def _matrix(scheme: Scheme, rows: tuple[Form, ...], columns: int) -> bytes:
    values = [f"{i + 1} {j + 1} {_value(scheme, c)}\n" for i, row in enumerate(rows) for j, c in row]
    root = scheme.ring.generator
    comment = f"# X is a placeholder for {'a square root of -1' if root == 'i' else root}\n" if root else ring_comment(scheme)
    return f"{comment}{len(rows)} {columns} R\n{''.join(values)}0 0 0\n".encode()


def _value(scheme: Scheme, value: Coefficient) -> str:
    if not isinstance(value, Symbolic):
        return str(value)
    if scheme.ring.is_approximate or len(value.terms) != 1:
        raise cannot_write(scheme, f"these matrices have no sign for {value}", "write a .bl file, or a fast-matmul table")
    return f"{value.terms[0][1]}*X"
