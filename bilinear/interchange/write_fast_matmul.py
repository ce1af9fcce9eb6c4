"""Write a table of the fast-matmul collection, as read by `fast_matmul`."""

from __future__ import annotations

from fractions import Fraction

from bilinear.algebra.fold_bases import fold_bases
from bilinear.interchange.writer_parts import cannot_write, ring_comment, steps_over_inputs
from bilinear.ir.linear import Form, transposed_rows
from bilinear.ir.number import Coefficient, Symbolic
from bilinear.ir.scheme import Scheme


def fast_matmul_files(scheme: Scheme) -> dict[str, bytes]:
    """The file, named as in the collection: NAMEmkn-rank-nonzeros.

    Steps become substituted temporaries, each over the blocks alone; changes of basis are expanded. Raises `BilinearError` (E355) if a
    coefficient is not a polynomial in lambda with rational coefficients.
    """
    scheme = fold_bases(scheme)
    u, v, w = scheme.u, scheme.v, scheme.w
    left = transposed_rows(u.outputs, u.inputs + len(u.steps))
    right = transposed_rows(v.outputs, v.inputs + len(v.steps))
    tables = [_table(scheme, left, scheme.rank), _table(scheme, right, scheme.rank), _table(scheme, w.outputs, w.inputs + len(w.steps))]
    text = ring_comment(scheme) * (not scheme.ring.is_approximate) + "#\n".join(tables)
    if u.steps or v.steps or w.steps:
        defined = (_table(scheme, steps_over_inputs(linear), linear.inputs) for linear in (u, v, w))
        text += "# Substitution information\n" + "#\n".join(defined)
    nonzeros = sum(len(row) for table in scheme.tables for row in table)
    sizes = (
        "".join(map(str, (scheme.m, scheme.k, scheme.n)))
        if max(scheme.m, scheme.k, scheme.n) < 10
        else f"_{scheme.m}x{scheme.k}x{scheme.n}"
    )
    return {f"{scheme.name}{sizes}-{scheme.rank}-{nonzeros}": text.encode()}


def _table(scheme: Scheme, rows: list[list[tuple[int, Coefficient]]] | tuple[Form, ...], columns: int) -> str:
    lines = []
    for row in rows:
        numbers = dict(row)
        lines.append(" ".join(_number(scheme, numbers.get(i, 0)) for i in range(columns)) + "\n")
    return "".join(lines)


def _number(scheme: Scheme, value: Coefficient) -> str:
    if not isinstance(value, Symbolic):
        return str(value)
    if value.generators != {"lambda"}:
        raise cannot_write(scheme, f"these tables have no sign for {value}", "write .sms, or a .bl file")
    terms = [_term(sum(e for _, e in monomial), c) for monomial, c in value.terms]
    return terms[0] if len(terms) == 1 else f"({'+'.join(terms)})"


def _term(power: int, c: Fraction) -> str:
    if power == 0:
        return str(c)
    sign = "" if c == 1 else "-" if c == -1 else str(c)
    exponent = str(abs(power)) if abs(power) > 1 else ""
    return f"{sign}x{exponent}{'i' if power < 0 else ''}"
