"""Fold the changes of basis of a scheme into its maps."""

from __future__ import annotations

from dataclasses import replace

from bilinear.ir.linear import Form, LinearMap
from bilinear.ir.scheme import Scheme


def fold_bases(scheme: Scheme) -> Scheme:
    """The same scheme without bases: their forms become the first steps of u and v, and what w gave becomes steps of the new w.

    Pre: any scheme. Post: `bases` is None, and the tables U, V and W are the same.
    """
    if scheme.bases is None:
        return scheme
    a, b, c = scheme.bases.a, scheme.bases.b, scheme.bases.c
    return replace(scheme, u=_after(a, scheme.u), v=_after(b, scheme.v), w=_after(scheme.w, c), bases=None)


def _after(first: LinearMap, second: LinearMap) -> LinearMap:
    """The map that runs one map after another: what the first gives are steps that the second reads."""
    offset = first.inputs + len(first.steps)
    given = [row[0][0] if len(row) == 1 and row[0][1] == 1 else offset + i for i, row in enumerate(first.outputs)]
    place = given + list(range(offset + len(first.outputs), offset + len(first.outputs) + len(second.steps)))

    def moved(row: Form) -> Form:
        return tuple(sorted((place[i], coefficient) for i, coefficient in row))

    steps = first.steps + first.outputs + tuple(map(moved, second.steps))
    return _without_copies(LinearMap(first.inputs, tuple(map(moved, second.outputs)), steps))


def _without_copies(linear: LinearMap) -> LinearMap:
    """The map without the steps that nothing reads."""
    rows = linear.steps + linear.outputs
    read = {index for row in rows for index, _ in row}
    kept = [i for i in range(len(linear.steps)) if linear.inputs + i in read]
    place = {i: i for i in range(linear.inputs)} | {linear.inputs + i: linear.inputs + new for new, i in enumerate(kept)}
    steps = tuple(tuple((place[j], c) for j, c in linear.steps[i]) for i in kept)
    return LinearMap(linear.inputs, tuple(tuple((place[j], c) for j, c in row) for row in linear.outputs), steps)
