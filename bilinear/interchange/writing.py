"""What the writers share: exact tables of a scheme, and how a number that a format has no sign for is refused."""

from __future__ import annotations

from dataclasses import replace

from bilinear.errors import BilinearError, fail
from bilinear.ir.linear import Form, LinearMap, substitute
from bilinear.ir.number import Coefficient
from bilinear.ir.scheme import Scheme


def in_ordinary_basis(scheme: Scheme) -> tuple[LinearMap, LinearMap, LinearMap]:
    """The maps of a scheme; its plain tables where it has changes of basis."""
    if scheme.bases is None:
        return scheme.u, scheme.v, scheme.w
    u, v, w = scheme.tables
    return LinearMap(scheme.m * scheme.k, u), LinearMap(scheme.k * scheme.n, v), LinearMap(scheme.rank, w)


def writable(scheme: Scheme) -> Scheme:
    """The scheme as the language can write it: in the ordinary basis where its changes of basis lead to more or fewer values."""
    bases = scheme.bases
    if bases is None or all(change.inputs == len(change.outputs) for change in (bases.a, bases.b, bases.c)):
        return scheme
    u, v, w = in_ordinary_basis(scheme)
    return replace(scheme, u=u, v=v, w=w, bases=None)


def steps_over_inputs(linear: LinearMap) -> tuple[Form, ...]:
    """The steps, each over the inputs alone."""
    values: list[Form] = [((i, 1),) for i in range(linear.inputs)]
    for step in linear.steps:
        values.append(substitute(step, values))
    return tuple(values[linear.inputs :])


def transposed_rows(rows: tuple[Form, ...], columns: int) -> list[list[tuple[int, Coefficient]]]:
    """The columns of a sparse matrix."""
    found: list[list[tuple[int, Coefficient]]] = [[] for _ in range(columns)]
    for number, row in enumerate(rows):
        for place, value in row:
            found[place].append((number, value))
    return found


def ring_comment(scheme: Scheme) -> str:
    """The line that tells the ring, where it is not Q."""
    return "" if str(scheme.ring) == "Q" else f"# ring: {scheme.ring}\n"


def cannot_write(scheme: Scheme, what: str, *hints: str) -> BilinearError:
    """The error that a format has no way to write something (E355)."""
    return fail("E355", f"{scheme.name} cannot be written so: {what}", *hints)
