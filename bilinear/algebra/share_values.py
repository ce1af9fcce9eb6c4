"""The rows of a map up to a factor, each packed into one integer, so that adding two forms is one integer addition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import gcd, lcm

from bilinear.ir.linear import Form
from bilinear.ir.number import Coefficient, Symbolic, exact, is_negative, rational

DIGIT = 48
"""Bits of a packed coefficient."""
LARGEST = 1 << 12
"""Rows with larger coefficients are packed over multiples of the inputs, with coefficients 1 and -1."""

Pair = tuple[int, int]
"""Coprime coefficients (p, q) of a sum p * v + q * w, p positive."""
PLAIN: tuple[Pair, ...] = ((1, 1), (1, -1))

Packed = tuple[int, Coefficient]
"""A packed form and its factor."""
Made = dict[int, tuple[int, int]]
"""Packed values in an order in which they can be made, each with the two values (inputs or earlier ones) that make it."""


@dataclass(frozen=True)
class Rows:
    """The rows of a map: a packed form over the atoms (0 for an empty row) and its factor.

    An atom is a multiple of an input. The last coefficient of a form is positive, and its coefficients are coprime. If forms are `whole`,
    the atoms are the inputs; else the coefficients are 1 and -1.
    """

    atoms: tuple[Packed, ...]
    packed: tuple[Packed, ...]
    whole: bool

    @property
    def values(self) -> tuple[int, ...]:
        """The packed forms without their factors."""
        return tuple(value for value, _ in self.packed)

    @property
    def units(self) -> tuple[int, ...]:
        """The atoms as packed forms."""
        return tuple(1 << DIGIT * i for i in range(len(self.atoms)))

    def value_of(self, row: Form) -> int:
        """A form over the inputs, packed over the atoms without its factor; 0 if it cannot be packed."""
        if self.whole:
            value = 0 if _is_symbolic([row]) else _whole(row)[0]
            return value if all(abs(c) <= LARGEST for _, c in unpack(value)) else 0
        numbers = {atom: number for number, atom in enumerate(self.atoms)}
        terms, _ = _signs(row)
        return abs(pack((numbers[atom], sign) for atom, sign in terms)) if all(atom in numbers for atom, _ in terms) else 0


def pack(terms: Iterable[tuple[int, int]]) -> int:
    """Pack a form with whole coefficients into one integer."""
    return sum(coefficient << (DIGIT * index) for index, coefficient in terms)


def unpack(packed: int) -> Iterator[tuple[int, int]]:
    """The terms of the form that an integer encodes."""
    index, half = 0, 1 << (DIGIT - 1)
    while packed:
        digit = ((packed + half) & ((1 << DIGIT) - 1)) - half
        if digit:
            yield index, digit
        packed, index = (packed - digit) >> DIGIT, index + 1


@lru_cache(maxsize=1 << 18)
def primitive(packed: int) -> int:
    """The form divided by the greatest common divisor of its coefficients, with its sign normalised."""
    common = 0
    for _, coefficient in unpack(packed):
        common = gcd(common, coefficient)
        if common == 1:
            return abs(packed)
    return abs(packed) // common


def pack_rows(matrix: Sequence[Form], inputs: int, *, fractions: bool) -> Rows:
    """Pack the rows of a map with this number of inputs.

    With `fractions`, rational rows become multiples of forms with whole coefficients over the inputs, so sums such as a + 2b are found in
    any multiple. Otherwise, and for all other numbers, rows have coefficients 1 and -1 over multiples of the inputs.
    """
    if fractions and not _is_symbolic(matrix):
        packed = tuple(map(_whole, matrix))
        if all(abs(c) <= LARGEST for value, _ in packed for _, c in unpack(value)):
            return Rows(tuple((i, 1) for i in range(inputs)), packed, True)
    numbers: dict[Packed, int] = {}
    found = []
    for terms, factor in map(_signs, matrix):
        value = pack((numbers.setdefault(atom, len(numbers)), sign) for atom, sign in terms)
        found.append((abs(value), -factor if value < 0 else factor))
    return Rows(tuple(numbers), tuple(found), False)


def _is_symbolic(matrix: Sequence[Form]) -> bool:
    return any(isinstance(c, Symbolic) for row in matrix for _, c in row)


def _whole(row: Form) -> Packed:
    if not row:
        return 0, 1
    numbers = [rational(c) for _, c in row]
    factor = Fraction(gcd(*(c.numerator for c in numbers)), lcm(*(c.denominator for c in numbers)))
    factor = -factor if numbers[-1] < 0 else factor
    return pack((i, int(c / factor)) for (i, _), c in zip(row, numbers, strict=True)), exact(factor)


def _signs(row: Form) -> tuple[list[tuple[Packed, int]], Coefficient]:
    """The atoms of a form and their signs; if all coefficients have one magnitude, it is the factor."""
    sizes = {magnitude(c) for _, c in row}
    factor = sizes.pop() if len(sizes) == 1 else 1
    return [((i, magnitude(c) if sizes else 1), -1 if is_negative(c) else 1) for i, c in row], factor


def magnitude(value: Coefficient) -> Coefficient:
    """The absolute value of a number."""
    return -value if is_negative(value) else value
