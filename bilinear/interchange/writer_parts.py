"""Shared parts of the writers: exact tables of a scheme, and the error for a number that a format cannot express."""

from __future__ import annotations

from bilinear.errors import BilinearError, fail
from bilinear.ir.linear import Form, LinearMap, substitute
from bilinear.ir.scheme import Scheme


def steps_over_inputs(linear: LinearMap) -> tuple[Form, ...]:
    """The steps, each over the inputs alone."""
    values: list[Form] = [((i, 1),) for i in range(linear.inputs)]
    for step in linear.steps:
        values.append(substitute(step, values))
    return tuple(values[linear.inputs :])


def ring_comment(scheme: Scheme) -> str:
    """The comment that names the ring, if it is not Q."""
    return "" if str(scheme.ring) == "Q" else f"# ring: {scheme.ring}\n"


def cannot_write(scheme: Scheme, what: str, *hints: str) -> BilinearError:
    """The error that a format cannot express something (E355)."""
    return fail("E355", f"{scheme.name} cannot be written so: {what}", *hints)
