"""Headroom: by how many bits the forms of a map may exceed its inputs."""

from __future__ import annotations

from fractions import Fraction

from bilinear.ir.linear import LinearMap
from bilinear.ir.number import to_float


def headroom(linear: LinearMap) -> int:
    """The least h so that forms of numbers below 1 in magnitude are below 2^h: the largest sum of a row's |coefficients| is at most 2^h."""
    most = max(sum(abs(Fraction(to_float(c))) for _, c in row) for row in linear.matrix)
    h = 0
    while 2**h < most:
        h += 1
    return h
