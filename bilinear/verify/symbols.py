"""The ring of the symbolic run: polynomials whose words are blocks of A, of B, of C, and products of a block of A and one of B.

A value is an element of sympy's sparse ring K[alpha, beta, a, b, c]; a**i stands for the i-th block of A, b**j for the j-th of B and c**k
for the k-th of C, counted from 1. Every product multiplies a form over A by a form over B, in this order (anything else is a failure), so a
word a**i * b**j is one product of blocks, and commuting variables lose nothing. Five letters keep words short for any number of blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import lcm
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from bilinear.analysis.brent import products_of_coefficients
from bilinear.errors import BilinearError, fail
from bilinear.ir.number import Coefficient, Symbolic
from bilinear.ir.ring import Ring
from bilinear.ir.schedule import AnySchedule, Block
from bilinear.ir.scheme import Scheme
from bilinear.verify.rings import Number
from bilinear.verify.small import shortened

if TYPE_CHECKING:
    from bilinear.verify.engine import Domain, PolyElement


Key = TypeVar("Key")

LETTERS = {"A": 2, "B": 3, "C": 4}
"""The positions of the spaces' exponents in a word (alpha, beta, a, b, c)."""
Word = tuple[int, ...]
Value: TypeAlias = "PolyElement"
"""An element of the ring."""


def domain_of(ring: Ring) -> Domain:
    """sympy's domain of a ring's coefficients, always a field: Z is looked at in Q."""
    from bilinear.verify.engine import GF, QQ, I, Symbol, sqrt

    if ring.modulus:
        return GF(ring.modulus, symmetric=False)
    if ring.is_approximate:
        return QQ.frac_field(Symbol("lambda"))
    if ring.generator:
        root = re.fullmatch(r"sqrt\((-?[0-9]+)\)", ring.generator)
        return QQ.algebraic_field(I if root is None else sqrt(int(root[1])))
    return QQ


def _domain(schedule: AnySchedule) -> Domain:
    """The integers, for several levels with integer coefficients: nothing is divided there, and arithmetic dominates the time.

    A schedule of several levels has no explicit scaling, so all its coefficients are in its forms and products.
    """
    from bilinear.verify.engine import QQ, ZZ

    domain = domain_of(schedule.ring)
    return ZZ if domain == QQ and schedule.levels > 1 and all(isinstance(c, int) for c in schedule.coefficients) else domain


class Symbols:
    """The ring of one schedule, its blocks as letters, and its values as text."""

    def __init__(self, schedule: AnySchedule) -> None:
        from bilinear.verify.engine import ring

        self.domain = _domain(schedule)
        self.ring, self.alpha, self.beta, *letters = ring("alpha beta a b c", self.domain)
        self.generators: dict[str, Value] = {"alpha": self.alpha, "beta": self.beta}
        self.original: dict[Block, Value] = {}
        self.names: list[list[str]] = []
        for space, letter in zip(schedule.spaces[:3], letters, strict=True):
            self.original |= {block: letter**number for number, block in enumerate(space.blocks, 1)}
            self.names.append([str(block) for block in space.blocks])

    def scalar(self, value: Coefficient) -> Value:
        """A coefficient as an element of the domain, or of the ring if it contains alpha or beta."""
        if not isinstance(value, Symbolic):
            whole = self.domain(value.numerator)
            return whole if value.denominator == 1 else whole / self.domain(value.denominator)
        zero, one = (self.ring.zero, self.ring.one) if value.generators & {"alpha", "beta"} else (self.domain.zero, self.domain.one)
        total = zero
        for monomial, coefficient in value.terms:
            term = one * self.scalar(coefficient)
            for name, exponent in monomial:
                term = term * self._generator(name) ** exponent if exponent > 0 else term * (1 / self._generator(name)) ** -exponent
            total += term
        return total

    def _generator(self, name: str) -> Value:
        if name not in self.generators:
            from bilinear.verify.engine import I, Symbol, sqrt

            root = re.fullmatch(r"sqrt\((-?[0-9]+)\)", name)
            element = sqrt(int(root[1])) if root is not None else I if name == "i" else Symbol(name)
            self.generators[name] = self.domain.from_sympy(element)
        return self.generators[name]

    def vanishes(self, value: Value) -> bool:
        """True if a value is zero; over Q[lambda], if all its terms have positive order in lambda."""
        if not value or not hasattr(self.domain, "field"):
            return not value
        return all(_order(coefficient) > 0 for coefficient in value.values())

    def is_form(self, value: Value, side: str) -> bool:
        """True if a value is a linear form over the blocks of one operand; its coefficients may contain alpha and beta."""
        letter = LETTERS[side]
        return all(word[letter] and sum(word[2:]) == word[letter] for word in value)

    def text(self, value: Value, limit: int = 12) -> str:
        """A value in terms of the block names, cut off after `limit` terms."""
        text = ""
        for word, coefficient in sorted(value.items(), key=_reading_order)[:limit]:
            sign, size = self.signed(coefficient)
            size = shortened(size)
            factors = [f"{name}^{e}" if e > 1 else name for name, e in zip(("alpha", "beta"), word[:2], strict=True) if e]
            factors += [names[e - 1] for names, e in zip(self.names, word[2:], strict=True) if e]
            body = "*".join(([size] if size != "1" or not factors else []) + factors)
            text += f" {sign} {body}" if text else f"{sign if sign == '-' else ''}{body}"
        return (text or "0") + (f" + ... ({len(value)} terms)" if len(value) > limit else "")

    def signed(self, coefficient: Number) -> tuple[str, str]:
        """A coefficient as a sign and the text after it."""
        shown = self.bracketed(coefficient)
        return ("-", shown[1:]) if shown.startswith("-") else ("+", shown)

    def whole(self, vector: Mapping[Key, Number]) -> dict[Key, Number]:
        """Over Q a multiple of the vector without fractions; over other rings the vector itself."""
        if not self.domain.is_QQ:
            return dict(vector)
        scale = lcm(*(int(value.denominator) for value in vector.values()))
        return {key: value * self.domain(scale) for key, value in vector.items()}

    def key(self, coefficient: Number) -> Number | str:
        """A hashable form of a coefficient that is equal for equal coefficients; sympy's algebraic numbers do not hash that way."""
        return coefficient if self.domain.is_QQ or self.domain.is_ZZ or self.domain.is_FiniteField else self.bracketed(coefficient)

    def length(self, coefficient: Number) -> int:
        """The bits of all numbers in a coefficient."""
        if self.domain.is_QQ:
            return int(coefficient.numerator.bit_length() + coefficient.denominator.bit_length())
        if self.domain.is_FiniteField:
            return 0
        ratio = None if self.domain.is_Algebraic else (coefficient.numer, coefficient.denom)
        numbers = coefficient.to_list() if ratio is None else [*ratio[0].values(), *ratio[1].values()]
        return sum(int(c.numerator).bit_length() + int(c.denominator).bit_length() for c in numbers)

    def bracketed(self, coefficient: Number) -> str:
        """A number as the language writes it, in brackets if it is not rational."""
        if self.domain.is_QQ or self.domain.is_ZZ:
            return str(coefficient)
        if hasattr(self.domain, "field") and len(coefficient.denom) == 1:
            shown = _laurent(coefficient)
        else:
            shown = str(self.domain.to_sympy(coefficient)).replace(" ", "").replace("**", "^").replace("I", "i")
        return shown if re.fullmatch(r"-?[0-9]+(/[0-9]+)?", shown) else f"[{shown}]"


def is_product(word: Word) -> bool:
    """True if a word is a block of A times a block of B."""
    return bool(word[2] and word[3])


def _reading_order(term: tuple[Word, Number]) -> tuple[tuple[int, int], tuple[int, ...]]:
    """The sort key of terms: highest powers of alpha and beta first, then letters a, b, c, each by its block number."""
    word = term[0]
    return (-word[0], -word[1]), tuple(e if e else 10**9 for e in word[2:])


def _laurent(coefficient: Number) -> str:
    """A rational function of lambda whose denominator is a power of lambda, as the language writes it: `lambda^2-1/2*lambda^-1`."""
    (((down,), scale),) = coefficient.denom.terms()
    text = ""
    for (up,), c in coefficient.numer.terms():
        size, power = c / scale, up - down
        letter = "lambda" + (f"^{power}" if power != 1 else "") if power else ""
        body = "*".join(([str(abs(size))] if abs(size) != 1 or not letter else []) + [letter] * bool(letter))
        text += ("-" if size < 0 else "+" if text else "") + body
    return text or "0"


def _order(coefficient: Number) -> int:
    """The lowest power of lambda in a rational function of it."""
    return int(min(m[0] for m in coefficient.numer.monoms()) - min(m[0] for m in coefficient.denom.monoms()))


TOO_LARGE = "E412"
MOST_STATES = 50_000
"""The most stages times blocks; every stage stores a state of every block."""
MOST_WORK = 150_000
"""The most terms multiplied and added up; for a schedule of a large scheme, `WORK_OF_SCHEME` times the work of the scheme's proof."""
WORK_OF_SCHEME = 4
"""Expansion, products and recomposition take up to three times as many coefficient products as the proof of their scheme."""
MOST_BITS = 1600
"""The most bits of a coefficient, over all its numbers."""


class WorkLimit:
    """The work of one run so far; too much is refused (E412)."""

    def __init__(self, schedule: AnySchedule, symbols: Symbols, scheme: Scheme | None) -> None:
        self.schedule = schedule
        self.symbols = symbols
        self.work = 0
        self.most_work = max(MOST_WORK, WORK_OF_SCHEME * products_of_coefficients(scheme) if scheme is not None else 0)
        states = len(schedule.stages) * sum(len(space.blocks) for space in schedule.spaces)
        if states > MOST_STATES:
            raise self._refused(f"its stages have {states} states of blocks, at most {MOST_STATES} are followed")

    def count(self, terms: int) -> None:
        """Add the terms of a step that is about to be computed."""
        self.work += terms
        if self.work > self.most_work:
            raise self._refused(f"its steps add up more than {self.most_work} terms")

    def require_short(self, values: Iterable[Value]) -> None:
        """Refuse coefficients that have grown too long."""
        if any(self.symbols.length(coefficient) > MOST_BITS for value in values for coefficient in value.values()):
            raise self._refused(f"its coefficients grow to more than {MOST_BITS} bits")

    def _refused(self, told: str) -> BilinearError:
        hint = "prove its parts as schedules of their own"
        return fail(TOO_LARGE, f"{self.schedule.name} is too large to prove: {told}", hint, span=self.schedule.span)
