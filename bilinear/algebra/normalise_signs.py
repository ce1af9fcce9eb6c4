"""Choose one representative among the schemes that differ only in the signs of their factors."""

from __future__ import annotations

from dataclasses import replace

from bilinear.ir.linear import Form, LinearMap
from bilinear.ir.number import is_negative
from bilinear.ir.scheme import Scheme


def normalise_signs(scheme: Scheme) -> Scheme:
    """The scheme in which the first coefficient of every left and right factor has no minus; W takes the signs.

    Since (-a)*b = -(a*b), all four sign choices of a product give the same result. Named sums stay unchanged.
    """
    u, v, _ = scheme.tables
    left, right = [_sign(row) for row in u], [_sign(row) for row in v]
    signs = [a * b for a, b in zip(left, right, strict=True)]
    return replace(scheme, u=_signed(scheme.u, left), v=_signed(scheme.v, right), w=_reading_signed(scheme.w, signs), places=None)


def _sign(row: Form) -> int:
    return -1 if row and is_negative(row[0][1]) else 1


def _signed(linear: LinearMap, signs: list[int]) -> LinearMap:
    outputs = tuple(tuple((i, sign * c) for i, c in row) for row, sign in zip(linear.outputs, signs, strict=True))
    return replace(linear, outputs=outputs)


def _reading_signed(linear: LinearMap, signs: list[int]) -> LinearMap:
    def row(terms: Form) -> Form:
        return tuple((i, signs[i] * c if i < linear.inputs else c) for i, c in terms)

    return replace(linear, outputs=tuple(map(row, linear.outputs)), steps=tuple(map(row, linear.steps)))
