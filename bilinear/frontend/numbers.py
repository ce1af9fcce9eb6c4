"""Coefficients as written: integers, rationals, and sums of powers of generators such as 1/2-sqrt(3)/6 or -lambda^-1."""

from __future__ import annotations

import re
from fractions import Fraction

from bilinear.ir.number import Coefficient, Symbolic, generator

MOST_DIGITS = 100
"""The most digits of an integer; this bounds the time of exact arithmetic."""
MOST_EXPONENT = 64
MOST_BITS = 1600
"""The most bits of a numerator or denominator, also in sums and products of coefficients."""
MOST_LETTERS = 1000
"""The most characters of one coefficient."""
GENERATORS = "sqrt(d), i, lambda, alpha and beta"

_TOKEN = re.compile(r"\s*(?:([0-9]+)|(sqrt\(\s*-?[0-9]{1,9}\s*\)|i\b|lambda\b|alpha\b|beta\b)|([+*/^-]))")


class NumberError(ValueError):
    """The text is not a coefficient; the message gives the reason in the words of a diagnostic."""


def parse_number(text: str) -> Coefficient:
    """The exact value of a coefficient, brackets allowed; `NumberError` if the text is not one."""
    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if len(inner) > MOST_LETTERS:
        raise NumberError(f"a coefficient has at most {MOST_LETTERS} characters")
    value = _NumberReader(_tokens(inner)).sum()
    if longest(value) > MOST_BITS:
        raise NumberError(f"numerator and denominator have at most {MOST_BITS} binary digits")
    return value


def longest(value: Coefficient) -> int:
    """The bits of the longest numerator or denominator in a coefficient."""
    numbers = [c for _, c in value.terms] if isinstance(value, Symbolic) else [value]
    return max(max(c.numerator.bit_length(), c.denominator.bit_length()) for c in numbers)


def _tokens(text: str) -> list[str]:
    tokens, place, text = [], 0, text.rstrip()
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise NumberError(f"coefficients are integers, rationals such as -1/2, and sums with {GENERATORS}")
        if match[1] and len(match[1]) > MOST_DIGITS:
            raise NumberError(f"numerator and denominator have at most {MOST_DIGITS} digits")
        tokens.append("".join(match[0].split()))
        place = match.end()
    return tokens


class _NumberReader:
    """Reads sum = [sign] term {sign term}, term = factor {(* | /) factor}, factor = integer | generator [^ [-] integer]."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens[::-1]

    def next(self, *expected: str) -> str:
        """The next token, consumed if it is one of those expected; else the empty string."""
        return self.tokens.pop() if self.tokens and self.tokens[-1] in expected else ""

    def sum(self) -> Coefficient:
        total: Coefficient = 0
        sign = self.next("+", "-")
        while True:
            term = self.term()
            total = total - term if sign == "-" else total + term
            sign = self.next("+", "-")
            if not sign:
                break
        if self.tokens:
            raise NumberError(f"{self.tokens[-1][:40]} is not expected there")
        return total

    def term(self) -> Coefficient:
        value = self.factor(inverse=False)
        while operator := self.next("*", "/"):
            value = value * self.factor(inverse=operator == "/")
        return value

    def factor(self, inverse: bool) -> Coefficient:
        if not self.tokens or self.tokens[-1] in "+-*/^":
            raise NumberError("a number or a generator is missing")
        token = self.tokens.pop()
        if not token.isdigit():
            return generator(token, -self.exponent() if inverse else self.exponent())
        if inverse and int(token) == 0:
            raise NumberError("this divides by zero")
        return Fraction(1, int(token)) if inverse else int(token)

    def exponent(self) -> int:
        if not self.next("^"):
            return 1
        sign = self.next("-")
        digits = self.tokens.pop() if self.tokens else ""
        if not digits.isdigit() or len(digits) > 3 or int(digits) > MOST_EXPONENT:
            raise NumberError(f"an exponent is an integer of at most {MOST_EXPONENT}")
        return -int(digits) if sign else int(digits)
