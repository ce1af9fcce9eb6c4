"""Schemes over every kind of ring, each right in its own."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from bilinear.frontend import load
from bilinear.ir.linear import LinearMap, form
from bilinear.ir.number import Coefficient, generator
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Bases, Scheme


def ratio(numerator: int, denominator: int) -> Coefficient:
    """A fraction as a coefficient."""
    return Fraction(numerator, denominator)


def scaled(scheme: Scheme, product: int, factor: Coefficient, inverse: Coefficient, ring: str) -> Scheme:
    """The same scheme with one left factor multiplied by a number, and its product by the inverse."""
    u = tuple(form((i, factor * c) for i, c in row) if p == product else row for p, row in enumerate(scheme.u.outputs))
    w = tuple(form((p, inverse * c if p == product else c) for p, c in row) for row in scheme.w.outputs)
    return replace(scheme, u=LinearMap(scheme.u.inputs, u), w=LinearMap(scheme.rank, w), ring=Ring(ring))


def over_z2() -> Scheme:
    """Strassen's scheme with every sign dropped: right modulo 2 only."""
    strassen = load("strassen").scheme
    u, v, w = (tuple(form((i, 1) for i, _ in row) for row in table) for table in strassen.tables)
    return replace(strassen, u=LinearMap(4, u), v=LinearMap(4, v), w=LinearMap(7, w), ring=Ring("Z/2"))


def approximate() -> Scheme:
    """The classical scheme with A11 + lambda^2 A12 for A11 in the first product: A*B + O(lambda^2)."""
    naive = load("naive2x2").scheme
    first = form([*naive.u.outputs[0], (1, generator("lambda", 2))])
    return replace(naive, u=LinearMap(4, (first, *naive.u.outputs[1:])), ring=Ring("Q[lambda]"))


def with_bases() -> Scheme:
    """Strassen's scheme over A11 - A22 in the place of A11, and with C11 as C11' + 2 C12'."""
    strassen = load("strassen").scheme
    u = tuple(form([*row, *((3, c) for i, c in row if i == 0)]) for row in strassen.u.outputs)
    w = (form([*strassen.w.outputs[0], *((p, -2 * c) for p, c in strassen.w.outputs[1])]), *strassen.w.outputs[1:])
    same = [((i, 1),) for i in range(4)]
    a = LinearMap(4, (((0, 1), (3, -1)), *same[1:]))
    c = LinearMap(4, (((0, 1), (1, 2)), *same[1:]))
    return replace(strassen, u=LinearMap(4, u), w=LinearMap(7, w), bases=Bases(a, LinearMap(4, tuple(same)), c))


def in_rings() -> list[tuple[Scheme, int | None]]:
    strassen, half = load("strassen").scheme, Ring("Q")
    root, lam, i = generator("sqrt(3)"), generator("lambda"), generator("i")
    third = generator("sqrt(3)") * ratio(1, 3)
    return [
        (replace(strassen, ring=Ring("Z")), None),
        (scaled(strassen, 2, 2, ratio(1, 2), str(half)), None),
        (scaled(strassen, 2, 2, ratio(1, 2), "Z/7"), None),
        (over_z2(), None),
        (scaled(strassen, 0, root, third, "Q[sqrt(3)]"), None),
        (scaled(strassen, 4, 1 + root, ratio(1, 2) * (root - 1), "Q[sqrt(3)]"), None),
        (scaled(strassen, 6, i, -i, "Q[i]"), None),
        (scaled(strassen, 1, lam, generator("lambda", -1), "Q[lambda]"), None),
        (approximate(), 2),
        (with_bases(), None),
    ]
