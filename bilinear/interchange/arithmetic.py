"""Sums and products in straight-line programs and products of sums: numbers, names, + - * /, parentheses.

A value is a number or a linear form: a dictionary from whatever a name stands for to its coefficient. Python evaluates nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from fractions import Fraction

from bilinear.errors import BilinearError
from bilinear.interchange.reading import MOST_DIGITS, malformed, parse_rational
from bilinear.source import Source

MOST_NESTED = 40
"""The deepest nesting of parentheses."""
MOST_LENGTH = 4 * MOST_DIGITS
"""The most digits of a coefficient in products of numbers."""

Linear = dict[Hashable, Fraction]
Value = Fraction | Linear
MOST_BYTES = 2**20
"""The largest file of expressions in bytes; published ones have some ten thousand."""

_SIGNS = {1: Fraction(1), -1: Fraction(-1)}
_TOKEN = re.compile(r"\s*(?:([0-9]+(?:\.[0-9]+)?|\.[0-9]+)|([A-Za-z]+(?:[0-9_]+|\[[0-9]+,[0-9]+\])?)|([-+*/()]))", re.ASCII)


def as_it_is(form: Linear) -> Linear:
    """The form itself, so that a sum in parentheses is multiplied out."""
    return form


class Arithmetic:
    """A reader of one expression between two offsets of a source.

    `lookup` returns what a name stands for, or None if it is unknown. `shared` returns the replacement for a sum of several terms that is
    multiplied by a number other than 1 and -1.
    """

    def __init__(
        self, source: Source, start: int, end: int, lookup: Callable[[str], Value | None], shared: Callable[[Linear], Linear] = as_it_is
    ) -> None:
        self.source, self.at, self.end = source, start, end
        self.lookup, self.shared = lookup, shared
        self.nested = 0
        self.kind, self.token, self.begin = "end", "", start
        self._advance()

    def whole_sum(self) -> Value:
        """The value of the whole expression."""
        value = self._sum()
        self._require_end()
        return value

    def whole_product(self) -> tuple[Fraction, list[Linear]]:
        """The whole expression as a product: the number, and the sums of names."""
        product = self._product()
        self._require_end()
        return product

    def _sum(self) -> Value:
        total: Value | None = None
        sign = 1
        while True:
            while self.token in ("+", "-"):
                sign = -sign if self.token == "-" else sign
                self._advance()
            total = self._added(total, self._scaled(_SIGNS[sign], self._term()))
            if self.token not in ("+", "-"):
                return total
            sign = 1

    def _term(self) -> Value:
        number, forms = self._product()
        if len(forms) > 1:
            raise self._wrong("two values are multiplied", "only numbers may multiply values")
        return self._scaled(number, forms[0]) if forms else number

    def _product(self) -> tuple[Fraction, list[Linear]]:
        number, forms, divide = Fraction(1), [], False
        while True:
            value = self._factor()
            if isinstance(value, dict):
                if divide:
                    raise self._wrong("a number is divided by a value", "only numbers may divide")
                forms.append(value)
            elif divide and value == 0:
                raise self._wrong("this divides by zero", "here")
            else:
                number = self._bounded(number / value if divide else number * value)
            if self.token not in ("*", "/") and not self._goes_on:
                return number, forms
            divide = self.token == "/"
            if self.token in ("*", "/"):
                self._advance()

    def _factor(self) -> Value:
        sign = 1
        while self.token in ("-", "+"):
            sign = -sign if self.token == "-" else sign
            self._advance()
        value = self._parenthesis() if self.token == "(" else self._atom()
        return self._scaled(_SIGNS[sign], value)

    def _atom(self) -> Value:
        kind, token = self.kind, self.token
        if kind not in ("number", "name"):
            raise self._missing("a number or a name is missing", "here")
        value: Value | None = parse_rational(token) if kind == "number" else self.lookup(token)
        if value is None:
            raise self._wrong(f"{token[:40]!r} is not known here", "not read")
        self._advance()
        return value

    def _parenthesis(self) -> Value:
        self.nested += 1
        if self.nested > MOST_NESTED:
            raise self._wrong("parentheses nest too deeply", f"at most {MOST_NESTED}")
        self._advance()
        value = self._sum()
        if self.token != ")":
            raise self._missing("a parenthesis is not closed", "')' is missing")
        self._advance()
        self.nested -= 1
        return value

    def _scaled(self, number: Fraction, value: Value) -> Value:
        if number == 1:
            return value
        if isinstance(value, Fraction):
            return self._bounded(number * value)
        if abs(number) != 1 and len(value) > 1:
            value = self.shared(value)
        return {name: self._bounded(number * c) for name, c in value.items()}

    def _added(self, total: Value | None, value: Value) -> Value:
        if total is None:
            return value
        if isinstance(total, Fraction) and isinstance(value, Fraction):
            return self._bounded(total + value)
        if isinstance(total, Fraction) or isinstance(value, Fraction):
            raise self._wrong("a number is added to a value", "sums are of values, or of numbers")
        for name, c in value.items():
            total[name] = self._bounded(total[name] + c) if name in total else c
        return total

    def _bounded(self, number: Fraction) -> Fraction:
        if max(abs(number.numerator), number.denominator) >= 10**MOST_LENGTH:
            raise self._wrong("a coefficient grows too long", f"more than {MOST_LENGTH} digits")
        return number

    @property
    def _goes_on(self) -> bool:
        """True if a product continues without a sign: 2a11, 3(a11 + a12)."""
        return self.kind == "name" or self.token == "("

    def _advance(self) -> None:
        match = _TOKEN.match(self.source.text, self.at, self.end)
        if match is not None:
            self.kind = ("number", "name", "sign")[match.lastindex - 1 if match.lastindex else 2]
            self.token = match[match.lastindex or 0]
            self.begin, self.at = match.end() - len(self.token), match.end()
            return
        rest = self.source.text[self.at : self.end]
        self.begin = self.at + len(rest) - len(rest.lstrip())
        self.kind, self.token = ("other", "") if rest.strip() else ("end", "")

    def _require_end(self) -> None:
        if self.kind != "end":
            raise self._wrong(f"{self.token or self.source.text[self.begin]!r} cannot stand here", "here")

    def _missing(self, message: str, label: str) -> BilinearError:
        return self._wrong(message, label, "E254" if self.kind == "end" else "E252")

    def _wrong(self, message: str, label: str, code: str = "E252") -> BilinearError:
        return malformed(self.source, self.begin, self.begin + max(1, len(self.token)), message, label, code=code)
