"""Linear forms as single integers: the coefficient of value i is digit i in a large base, so a sum of forms is a sum of integers.

Digits are balanced: they may be negative, and no more than a quarter of the base. Bounds of the digits are carried along, so none ever
reaches into its neighbour, and all arithmetic is exact (Kronecker's substitution). In rings with a root, a second integer holds the
coefficients of the root.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import gcd, inf, lcm
from typing import TypeVar

from bilinear.ir.number import Coefficient, Symbolic, exact, generator, square

T = TypeVar("T")

_LETTERS = {2: "H", 4: "I", 8: "Q"}  # The codes of `struct` for unsigned numbers of so many bytes.
WIDTHS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)  # Bits of a digit, in the order of trying.


class TooLongError(ArithmeticError):
    """A coefficient does not fit into a digit."""


@dataclass(frozen=True, slots=True)
class Packed:
    """The form (`whole` + `root` * the root) / `denominator`; no digit's absolute value is above `most`."""

    whole: int
    root: int = 0
    denominator: int = 1
    most: int = 1

    def __bool__(self) -> bool:
        return bool(self.whole or self.root)


def widened(attempt: Callable[[Packing], T], root: str = "", is_integral: bool = True) -> T:
    """What `attempt` returns with the shortest digits that hold its coefficients; raises `TooLongError` if none of `WIDTHS` does.

    Roots and fractions come with larger numbers, so the shortest digits are not tried there.
    """
    for width in WIDTHS[0 if is_integral and not root else 1 : -1]:
        with suppress(TooLongError):
            return attempt(Packing(width, root))
    return attempt(Packing(WIDTHS[-1], root))


class Packing:
    """The arithmetic of packed forms with digits of `width` bits, over Q, or over Q with a root (`sqrt(3)`, `i`)."""

    def __init__(self, width: int, root: str = "") -> None:
        self.width = width
        self.limit = 1 << (width - 2)
        self.name = root
        self.square = (square(root) or 0) if root else 0
        self._coefficients: dict[tuple[int, int, int], Coefficient] = {}
        """Coefficients by their parts."""
        self._parts: dict[int, tuple[Symbolic, tuple[int, int, int]]] = {}
        """Symbolic coefficients with their parts, by identity: their hashes take longer than all the rest."""

    def unit(self, place: int) -> Packed:
        """The value with this number."""
        return Packed(1 << self.width * place)

    def sum(self, terms: Sequence[tuple[Packed, Coefficient]]) -> Packed:
        """A linear combination of forms."""
        found = self._sum(terms)
        if found.most > self.limit:
            found = self._sum([(self.tightened(value), c) for value, c in terms])
            self.bounded(found.most)
        return found

    def _sum(self, terms: Sequence[tuple[Packed, Coefficient]]) -> Packed:
        whole = most = 0
        for value, c in terms:  # integers alone are by far the most frequent
            if value.root or value.denominator != 1 or not isinstance(c, int):
                return self._sum_of_fractions(terms)
            if c == 1:
                whole += value.whole
                most += value.most
            elif c == -1:
                whole -= value.whole
                most += value.most
            else:
                whole += c * value.whole
                most += abs(c) * value.most
        return Packed(whole, 0, 1, most)

    def _sum_of_fractions(self, terms: Sequence[tuple[Packed, Coefficient]]) -> Packed:
        parts = []
        common = 1
        for value, c in terms:
            a, b, d = (c, 0, 1) if isinstance(c, int) else self.split(c)
            d *= value.denominator
            parts.append((value, a, b, d))
            if common % d:
                common = lcm(common, d)
        whole = root = most = 0
        for value, a, b, d in parts:
            x, y = (a, b) if d == common else (a * (common // d), b * (common // d))
            if x:
                whole += value.whole if x == 1 else x * value.whole
                root += x * value.root if value.root else 0
            if y:
                whole += y * self.square * value.root
                root += y * value.whole
            most += (abs(x) + abs(y * (self.square or 1))) * value.most
        return Packed(whole, root, common, most)

    def product(self, first: Packed, second: Packed) -> Packed:
        """The product of two forms as polynomials, whose places add up; no two pairs of digits may meet in one place."""
        whole, root = first.whole * second.whole, 0
        if first.root or second.root:
            whole += self.square * first.root * second.root
            root = first.whole * second.root + first.root * second.whole
        most = first.most * second.most * (1 + abs(self.square) if first.root and second.root else 1)
        return Packed(whole, root, first.denominator * second.denominator, self.bounded(most))

    def equal(self, first: Packed, second: Packed) -> bool:
        """True if two forms are the same."""
        if self._most_of_both(first, second) > self.limit:
            first, second = self.tightened(first), self.tightened(second)
            self.bounded(self._most_of_both(first, second))
        a, b = _to_common(first, second)
        return first.whole * a == second.whole * b and first.root * a == second.root * b

    def _most_of_both(self, first: Packed, second: Packed) -> int:
        """The bound of digits of two forms with a common denominator."""
        a, b = _to_common(first, second)
        return max(first.most * a, second.most * b)

    def split(self, value: Coefficient) -> tuple[int, int, int]:
        """The integers (a, b, d) of a coefficient (a + b * the root) / d; raises `ValueError` if it holds another generator."""
        if not isinstance(value, Symbolic):
            return value.numerator, 0, value.denominator
        known = self._parts.get(id(value))
        if known is None:
            if not value.generators <= {self.name}:
                raise ValueError(f"{value} is not a number over {self.name or 'Q'}")
            powers = {bool(monomial): c for monomial, c in value.terms}
            a, b = powers.get(False, Fraction(0)), powers.get(True, Fraction(0))
            d = lcm(a.denominator, b.denominator)
            known = self._parts[id(value)] = value, (int(a * d), int(b * d), d)  # which keeps the value, so that no other gets its identity
        return known[1]

    def coefficient(self, a: int, b: int, d: int) -> Coefficient:
        """The coefficient (a + b * the root) / d."""
        if not b:
            return _fraction(a, d)
        if (a, b, d) not in self._coefficients:
            self._coefficients[a, b, d] = _fraction(a, d) + exact(Fraction(b, d)) * generator(self.name)
        return self._coefficients[a, b, d]

    def form(self, value: Packed) -> tuple[tuple[int, Coefficient], ...]:
        """A packed form as (place, nonzero coefficient) pairs."""
        d = value.denominator
        if not value.root:
            return tuple((i, _fraction(a, d)) for i, a in enumerate(self.digits(value.whole)) if a)
        pairs: dict[int, tuple[int, int]] = {i: (a, 0) for i, a in enumerate(self.digits(value.whole)) if a}
        pairs |= {i: (pairs.get(i, (0, 0))[0], b) for i, b in enumerate(self.digits(value.root)) if b}
        return tuple((i, self.coefficient(*pairs[i], d)) for i in sorted(pairs))

    def moved(self, value: Packed, places: int) -> Packed:
        """A form with its values renumbered, `places` higher; those that would be below 0 must have coefficient 0."""
        bits = self.width * abs(places)
        whole, root = (value.whole >> bits, value.root >> bits) if places < 0 else (value.whole << bits, value.root << bits)
        return Packed(whole, root, value.denominator, value.most)

    def lies_in(self, value: Packed, first: int, end: int | None) -> bool:
        """True if only values from `first` to `end` (excluded; None: without an end) have a coefficient."""
        low = (1 << self.width * first) - 1
        high = inf if end is None else self.width * end
        return not ((value.whole | value.root) & low) and max(value.whole.bit_length(), value.root.bit_length()) < high

    def monic(self, value: Packed) -> tuple[Packed, Coefficient]:
        """The multiple of a form whose first coefficient is 1, and the form's factor of it."""
        a, b = self._first(value)
        whole = Packed(value.whole, value.root, 1, value.most)
        divisor = a * a - self.square * b * b if b else a
        if b:
            whole = self.sum([(whole, self.coefficient(a, -b, 1))])
        sign = 1 if divisor > 0 else -1
        return Packed(sign * whole.whole, sign * whole.root, abs(divisor), whole.most), self.coefficient(a, b, value.denominator)

    def whole(self, value: Packed, factor: int) -> tuple[int, int] | None:
        """A form times `factor` as integers without a denominator; None if they are no integers."""
        self.bounded(value.most * factor)
        (whole, rest), (root, more) = (divmod(number * factor, value.denominator) for number in (value.whole, value.root))
        return None if rest or more else (whole, root)

    def _first(self, value: Packed) -> tuple[int, int]:
        """The first coefficient of a form other than 0, times its denominator: its rational part, and the coefficient of the root."""
        both = value.whole | value.root
        shift = ((both & -both).bit_length() - 1) // self.width * self.width
        return self._lowest(value.whole >> shift), self._lowest(value.root >> shift)

    def terms(self, value: Packed) -> int:
        """The number of coefficients of a form that are not 0."""
        count = max(map(self._count, (value.whole, value.root)))
        bias = _bias(self.width, count)
        raw = self._unpacked(((value.whole + bias) ^ bias) | ((value.root + bias) ^ bias), count)
        return count - raw.count(0)

    def digits(self, number: int) -> Sequence[int]:
        """All digits, from place 0 on."""
        half, count = 1 << (self.width - 1), self._count(number)
        return [digit - half for digit in self._unpacked(number + _bias(self.width, count), count)]

    def _count(self, number: int) -> int:
        """So many digits hold a number; few counts occur."""
        return (number.bit_length() // self.width + 32) // 32 * 32

    def _unpacked(self, number: int, count: int) -> Sequence[int]:
        """The first digits of a number that is not negative, as they stand there."""
        step = self.width // 8
        data = number.to_bytes(count * step, "little")
        if step in _LETTERS:
            return struct.unpack(f"<{count}{_LETTERS[step]}", data)
        return [int.from_bytes(data[i : i + step], "little") for i in range(0, len(data), step)]

    def bounded(self, most: int) -> int:
        """A bound that digits of this width hold; raises `TooLongError` if they do not."""
        if most > self.limit:
            raise TooLongError
        return most

    def _lowest(self, number: int) -> int:
        digit = number & ((1 << self.width) - 1)
        return digit - (1 << self.width) if digit >> (self.width - 1) else digit

    def tightened(self, value: Packed) -> Packed:
        """A form in lowest terms, with the least bound of its digits."""
        digits = [*self.digits(value.whole), *self.digits(value.root)]
        shared = gcd(value.denominator, *digits)
        return Packed(value.whole // shared, value.root // shared, value.denominator // shared, max(map(abs, digits)) // shared)


def _to_common(first: Packed, second: Packed) -> tuple[int, int]:
    """The factors of two forms that give them a common denominator."""
    common = lcm(first.denominator, second.denominator)
    return common // first.denominator, common // second.denominator


@lru_cache(maxsize=2**12)
def _fraction(a: int, d: int) -> int | Fraction:
    return a if d == 1 else a // d if a % d == 0 else Fraction(a, d)


@lru_cache(maxsize=256)
def _bias(width: int, count: int) -> int:
    """Half the base in every digit: added to a number, it makes all digits positive."""
    return (1 << (width - 1)) * (((1 << width * count) - 1) // ((1 << width) - 1))
