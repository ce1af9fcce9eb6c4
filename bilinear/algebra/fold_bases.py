"""Fold the changes of basis of a scheme into its maps."""

from __future__ import annotations

from dataclasses import replace

from bilinear.algebra.maps import after
from bilinear.ir.linear import identity
from bilinear.ir.scheme import Bases, Scheme


def fold_bases(scheme: Scheme) -> Scheme:
    """The same scheme without bases: their forms become the first steps of u and v, and the outputs of w become steps of the new w.

    Before: any scheme. After: `bases` is None, and the tables U, V and W are the same.
    """
    if scheme.bases is None:
        return scheme
    a, b, c = scheme.bases.a, scheme.bases.b, scheme.bases.c
    return replace(scheme, u=after(a, scheme.u), v=after(b, scheme.v), w=after(scheme.w, c), bases=None)


def on_blocks(scheme: Scheme) -> Scheme:
    """The scheme itself if its changes of basis are square on the blocks, else the scheme without them."""
    bases = scheme.bases
    if bases is None or all(linear.inputs == len(linear.outputs) for linear in (bases.a, bases.b, bases.c)):
        return scheme
    return fold_bases(scheme)


def bases_of(scheme: Scheme) -> Bases:
    """The changes of basis; the identity if there are none."""
    m, k, n = scheme.m, scheme.k, scheme.n
    return scheme.bases or Bases(identity(m * k), identity(k * n), identity(m * n))
