"""Sums and products in straight-line programs, formulas and products of sums: numbers, names, + - * /, parentheses.

A value is a number or a linear form: a dictionary from whatever a name stands for to its coefficient. Python evaluates nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from fractions import Fraction

from bilinear.errors import BilinearError
from bilinear.interchange.reader_parts import MOST_DIGITS, malformed, parse_rational
from bilinear.ir.number import Coefficient, Symbolic, generator
from bilinear.source import Source

MOST_NESTED = 40
"""The deepest nesting of parentheses."""
MOST_LENGTH = 4 * MOST_DIGITS
"""The most digits of a coefficient in products of numbers."""

Linear = dict[Hashable, Coefficient]
Value = Coefficient | Linear
Product = tuple[Coefficient, list[Linear]]
"""A number times linear forms."""
MOST_BYTES = 2**20
"""The largest file of expressions in bytes; published ones have some ten thousand."""

_SIGNS = {1: Fraction(1), -1: Fraction(-1)}
_NUMBER = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:j(?![A-Za-z0-9_]))?"
_TOKEN = re.compile(rf"\s*(?:({_NUMBER})|([A-Za-z]+(?:[0-9_]+|\[[0-9]+,[0-9]+\])?)|([-+*/()]))", re.ASCII)


def as_it_is(form: Linear) -> Linear:
    """The form itself, so that a sum in parentheses is multiplied out."""
    return form


class ArithmeticReader:
    """A reader of one expression between two offsets of a source.

    `lookup` returns what a name stands for, or None if it is unknown. `shared` returns the replacement for a sum of several terms that is
    multiplied by a number other than 1 and -1. `multiply` returns the value of a product of two values, or None if they have none; without
    it sums hold no such products. Numbers such as 0.5j are read if they may be `imaginary`.
    """

    def __init__(
        self,
        source: Source,
        start: int,
        end: int,
        lookup: Callable[[str], Value | None],
        shared: Callable[[Linear], Linear] = as_it_is,
        multiply: Callable[[Linear, Linear], Linear | None] = lambda left, right: None,
        imaginary: bool = False,
    ) -> None:
        self.source, self.at, self.end = source, start, end
        self.lookup, self.shared, self.multiply, self.imaginary = lookup, shared, multiply, imaginary
        self.nested = 0
        self.kind, self.token, self.begin = "end", "", start
        self._advance()

    def whole_sum(self) -> Value:
        """The value of the whole expression."""
        number, forms = self._sum()
        self._require_end()
        if len(forms) > 1:
            raise self._multiplied()
        return forms[0] if forms else number

    def whole_product(self) -> Product:
        """The whole expression as a product: the number, and the sums of names."""
        product = self._product()
        self._require_end()
        return product

    def _sum(self) -> Product:
        """A sum as one number or form; or, if it is a single product of several forms, that product."""
        total: Value | None = None
        sign = 1
        while True:
            while self.token in ("+", "-"):
                sign = -sign if self.token == "-" else sign
                self._advance()
            number, forms = self._product()
            if len(forms) == 2:
                product = self.multiply(*forms)
                forms = [product] if product is not None else forms
            if len(forms) > 1 and (total is not None or self.token in ("+", "-")):
                raise self._multiplied()
            if len(forms) > 1:
                return sign * number, forms
            total = self._added(total, self._scaled(_SIGNS[sign], self._scaled(number, forms[0]) if forms else number))
            if self.token not in ("+", "-"):
                return (Fraction(1), [total]) if isinstance(total, dict) else (total, [])
            sign = 1

    def _product(self) -> Product:
        number: Coefficient = Fraction(1)
        forms: list[Linear] = []
        divide = False
        while True:
            factor, values = self._factor()
            if divide and (values or isinstance(factor, Symbolic)):
                raise self._wrong("a number is divided by a value", "only rational numbers may divide")
            if divide and factor == 0:
                raise self._wrong("this divides by zero", "here")
            number = self._bounded(number / Fraction(factor) if divide and not isinstance(factor, Symbolic) else number * factor)
            forms += values
            if self.token not in ("*", "/") and not self._goes_on:
                return number, forms
            divide = self.token == "/"
            if self.token in ("*", "/"):
                self._advance()

    def _factor(self) -> Product:
        sign = 1
        while self.token in ("-", "+"):
            sign = -sign if self.token == "-" else sign
            self._advance()
        number, forms = self._parenthesis() if self.token == "(" else self._atom()
        if len(forms) != 1:
            return sign * number, forms
        return number, [{name: sign * c for name, c in forms[0].items()}]

    def _atom(self) -> Product:
        kind, token = self.kind, self.token
        if kind not in ("number", "name"):
            raise self._missing("a number or a name is missing", "here")
        value = self._number(token) if kind == "number" else self.lookup(token)
        if value is None:
            raise self._wrong(f"{token[:40]!r} is not known here", "not read")
        self._advance()
        return (Fraction(1), [value]) if isinstance(value, dict) else (value, [])

    def _number(self, token: str) -> Coefficient | None:
        number = parse_rational(token.removesuffix("j").removesuffix("."))
        if number is None or not token.endswith("j"):
            return number
        return number * generator("i") if self.imaginary else None

    def _parenthesis(self) -> Product:
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

    def _scaled(self, number: Coefficient, value: Value) -> Value:
        if number == 1:
            return value
        if not isinstance(value, dict):
            return self._bounded(number * value)
        if number not in (1, -1) and len(value) > 1:
            value = self.shared(value)
        return {name: self._bounded(number * c) for name, c in value.items()}

    def _added(self, total: Value | None, value: Value) -> Value:
        if total is None:
            return value
        if not isinstance(total, dict) and not isinstance(value, dict):
            return self._bounded(total + value)
        if not isinstance(total, dict) or not isinstance(value, dict):
            raise self._wrong("a number is added to a value", "sums are of values, or of numbers")
        for name, c in value.items():
            total[name] = self._bounded(total[name] + c) if name in total else c
        return total

    def _bounded(self, number: Coefficient) -> Coefficient:
        parts = [c for _, c in number.terms] if isinstance(number, Symbolic) else [number]
        if any(max(abs(part.numerator), part.denominator) >= 10**MOST_LENGTH for part in parts):
            raise self._wrong("a coefficient grows too long", f"more than {MOST_LENGTH} digits")
        return number

    def _multiplied(self) -> BilinearError:
        return self._wrong("two values are multiplied", "only numbers may multiply values")

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
