"""How large the tables of a scheme become when its named sums are expanded, computed without expanding them.

Nested sums can double in every line, and so can their coefficients. The bounds here are sums and maxima over the steps. They cost as much
as reading the scheme, and are never below the true sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import lcm

from bilinear.errors import BilinearError, fail
from bilinear.ir.linear import Form, LinearMap
from bilinear.ir.number import Coefficient, Symbolic, square
from bilinear.ir.scheme import Scheme

MOST_WORK = 300_000
"""The most products of two coefficients in expanding the named sums."""
MOST_PACKED_WORK = 20_000_000
"""The same where all maps are expanded as packed forms."""
MOST_BITS = 1600
"""The most bits of an expanded numerator or denominator."""


def require_expandable(scheme: Scheme) -> None:
    """Refuse a scheme whose named sums take too much time or space to expand (E303)."""
    work, most = 0, _most_work(scheme)
    for size in _written_out(scheme):
        work += size.work
        if work > most:
            raise _too_large(scheme, f"its named sums grow to more than {most} terms when they are written out")
        if max(size.bits, size.denominator.bit_length()) > MOST_BITS:
            raise _too_large(scheme, f"its named sums grow to coefficients of more than {MOST_BITS} bits")


def _most_work(scheme: Scheme) -> int:
    return MOST_PACKED_WORK if scheme.bases is None and all(m.packs for m in (scheme.u, scheme.v, scheme.w)) else MOST_WORK


def _too_large(scheme: Scheme, told: str) -> BilinearError:
    most = _most_work(scheme)
    note = f"the tables of a scheme are proved as they are without names: at most {most} terms, of at most {MOST_BITS} bits"
    return fail("E303", f"{scheme.name} is too large to prove: {told}", "write its tables out, without named sums", notes=(note,))


@dataclass(frozen=True)
class _Size:
    """Bounds for one expanded form: its terms, its powers of the generator, its numbers, and the work of expanding it."""

    terms: int
    low: int
    high: int
    bits: int
    denominator: int
    work: int = 0


_BLOCK = _Size(1, 0, 0, 1, 1)


def _written_out(scheme: Scheme) -> Iterator[_Size]:
    """The sizes of all expanded forms; empty without named sums and changes of basis."""
    maps = (scheme.u, scheme.v, scheme.w)
    if scheme.bases is None:
        for linear in maps:
            if linear.steps:
                yield from _sizes(linear, [_BLOCK] * linear.inputs)
        return
    for linear, basis in ((scheme.u, scheme.bases.a), (scheme.v, scheme.bases.b), (scheme.bases.c, scheme.w)):
        inner = list(_sizes(basis, [_BLOCK] * basis.inputs))
        yield from inner
        yield from _sizes(linear, inner[len(basis.steps) :])


def _sizes(linear: LinearMap, values: list[_Size]) -> Iterator[_Size]:
    """The sizes of the steps and the outputs of a map of values of these sizes, in order."""
    known, most = list(values), max((value.terms for value in values), default=0) * linear.inputs
    for step in linear.steps:
        known.append(_substituted(step, known, most))
        yield known[-1]
    for output in linear.outputs:
        yield _substituted(output, known, most)


def _substituted(form: Form, known: list[_Size], most: int) -> _Size:
    parts = [(_coefficient(c), known[index]) for index, c in form]
    denominator = lcm(*(c.denominator * part.denominator for c, part in parts))
    room = denominator.bit_length()
    bits = max((c.bits + p.bits + room - c.denominator.bit_length() - p.denominator.bit_length() + 2 for c, p in parts), default=0)
    return _Size(
        min(most, sum(p.terms for _, p in parts)),
        min((c.low + p.low for c, p in parts), default=0),
        max((c.high + p.high for c, p in parts), default=0),
        bits + len(parts).bit_length() - 1,
        denominator,
        sum(c.terms * p.terms * (p.high - p.low + 1) for c, p in parts),
    )


def _coefficient(value: Coefficient) -> _Size:
    if not isinstance(value, Symbolic):
        return _Size(1, 0, 0, value.numerator.bit_length(), value.denominator)
    free = [sum(e for name, e in monomial if square(name) is None) for monomial, _ in value.terms]
    roots = sum(abs(square(name) or 0).bit_length() for name in value.generators)
    bits = max(c.numerator.bit_length() for _, c in value.terms) + roots + len(value.terms).bit_length()
    return _Size(len(value.terms), min(free), max(free), bits, lcm(*(c.denominator for _, c in value.terms)))
