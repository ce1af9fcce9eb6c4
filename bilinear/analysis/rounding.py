"""Rounding of linear maps: how often a straight-line program rounds a value, and how much the value may grow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import nextafter

from bilinear.ir.complex_scheme import Products
from bilinear.ir.linear import Form, LinearMap
from bilinear.ir.number import Coefficient, Symbolic, to_float

SLACK = 1 + 2.0**-30
"""The factor on bounds computed in double precision: sums of at most 2**20 nonnegative terms lose less."""

MOST_ROUNDINGS = 8
"""The roundings of a coefficient that is not a small rational: its parts, their quotient or root, and the multiplication."""

_EXACT = 256
"""Integers up to here are exact in every floating-point type (bfloat16 has 8 bits)."""

_SMALLEST, _LARGEST = 2.0**-126, 2.0**127
"""Coefficients between these are normal numbers of float32 and of every wider type."""


def magnitude(value: Coefficient) -> float:
    """|value| as a float; `SLACK` covers its rounding. Raises `ValueError` if the coefficient is not a real number."""
    if not isinstance(value, Symbolic):
        return abs(to_float(value)) or (nextafter(0.0, 1.0) if value else 0.0)
    parts = sum(abs(to_float(Symbolic((term,)))) for term in value.terms)
    return abs(to_float(value)) + 2.0**-40 * parts


def roundings(value: Coefficient) -> int:
    """The number of roundings of a product with this coefficient, including the coefficient's conversion to the element type."""
    if isinstance(value, Symbolic):
        return MOST_ROUNDINGS
    size = abs(Fraction(value))
    if size.numerator > _EXACT or size.denominator > _EXACT:
        return MOST_ROUNDINGS
    if size.numerator & (size.numerator - 1) == 0 and size.denominator & (size.denominator - 1) == 0:
        return 0
    return 1 if size.denominator == 1 else 2


def underflow(value: Coefficient) -> float:
    """The additional error of multiplying by this coefficient due to underflow, in smallest subnormal numbers.

    A result that underflows is rounded to a multiple of the smallest subnormal number, by at most half of it. Products with integers are
    such multiples already. So are sums, because both terms are multiples: a sum is exact or normal.
    """
    return 0.0 if not isinstance(value, Symbolic) and value.denominator == 1 else 1.0


def is_in_range(value: Coefficient) -> bool:
    """True if a coefficient is a normal number in float32 and every wider type; otherwise its value changes in the conversion."""
    return value in (-1, 0, 1) or _SMALLEST <= magnitude(value) <= _LARGEST


def sum_roundings(terms: Form) -> int:
    """The most roundings of a term in a sum, for any order, with or without fused multiply-adds."""
    return max(0, len(terms) - 1) + max((roundings(c) for _, c in terms), default=0)


def gamma(count: float, unit_roundoff: float, finer: float = 0.0) -> float:
    """n*u / (1 - n*u), Higham, Accuracy and Stability of Numerical Algorithms, lemma 3.1; infinite if n*u is at least 1.

    `finer` is added to n*u for roundings with other unit roundoffs: the lemma holds for the sum of all.
    """
    product = count * unit_roundoff + finer
    return product / (1 - product) if product < 1 else float("inf")


def path_rows(linear: LinearMap) -> list[dict[int, float]]:
    """Each output as input -> sum over all paths of the product of |coefficients|: |matrix| if nothing cancels, else more."""
    values: list[dict[int, float]] = [{i: 1.0} for i in range(linear.inputs)]
    for terms in linear.steps + linear.outputs:
        values.append(_combined(((i, magnitude(c)) for i, c in terms), values))
    return values[linear.inputs + len(linear.steps) :]


def path_depth(linear: LinearMap) -> int:
    """The most roundings between an input and an output of the program."""
    depths = [0] * linear.inputs
    for terms in linear.steps + linear.outputs:
        depths.append(sum_roundings(terms) + max((depths[i] for i, _ in terms), default=0))
    return max(depths[linear.inputs + len(linear.steps) :], default=0)


def _combined(terms: Iterable[tuple[int, float]], values: Sequence[dict[int, float]]) -> dict[int, float]:
    total: dict[int, float] = {}
    for index, size in terms:
        for i, weight in values[index].items():
            total[i] = total.get(i, 0.0) + size * weight
    return total


@dataclass(frozen=True)
class Side:
    """One side of a scheme (U, V or W) as the programs run in turn: a change of basis and the map itself."""

    programs: tuple[LinearMap, ...]

    @cached_property
    def rows(self) -> tuple[dict[int, float], ...]:
        """For each output the path sums over the inputs of the first program."""
        values: list[dict[int, float]] = path_rows(self.programs[0])
        for program in self.programs[1:]:
            values = [_combined(row.items(), values) for row in path_rows(program)]
        return tuple(values)

    @cached_property
    def depth(self) -> int:
        """Roundings on the longest path of one level."""
        return sum(path_depth(program) for program in self.programs)

    @cached_property
    def terms(self) -> int:
        """The most terms in a row of the matrix, at least 1."""
        return max(1, max((len(row) for row in self.rows), default=1))

    @cached_property
    def scalings(self) -> int:
        """The roundings of a product of the side's coefficients, for any number of levels: 0 if all are powers of two."""
        coefficients = (c for program in self.programs for terms in program.steps + program.outputs for _, c in terms)
        return MOST_ROUNDINGS if any(roundings(c) for c in coefficients) else 0

    def flat_depth(self, levels: int) -> int:
        """The most roundings of a path through `levels` levels that are run one by one, fused, or multiplied out in any groups.

        A group is either a program that keeps its shared values, where the depths of its levels add up, or the plain matrix of h levels,
        whose rows have at most terms**h entries. Fusing only renames values and drops unread ones.
        """
        deepest = [0]
        for level in range(1, levels + 1):
            flat = max(deepest[level - h] + self.terms**h - 1 + self.scalings for h in range(1, level + 1))
            deepest.append(max(flat, deepest[level - 1] + self.depth))
        return deepest[levels]


@lru_cache(maxsize=64)
def sides(scheme: Products) -> tuple[Side, Side, Side]:
    """The programs of U, V and W, changes of basis included."""
    if scheme.bases is None:
        return Side((scheme.u,)), Side((scheme.v,)), Side((scheme.w,))
    return Side((scheme.bases.a, scheme.u)), Side((scheme.bases.b, scheme.v)), Side((scheme.w, scheme.bases.c))
