"""The smallest units of meaning, each with its diagnostics: numbers, blocks, formats, and the names of one scheme."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from bilinear.algebra.composition import limits, within_bounds
from bilinear.frontend.messages import Reporter, did_you_mean, listed, shown
from bilinear.frontend.syntax import Plain, SchemeHeader, Word
from bilinear.ir.linear import Form, form
from bilinear.ir.number import Coefficient, Symbolic, generator
from bilinear.ir.ring import RATIONALS, RINGS, Ring, parse_ring
from bilinear.ir.schedule import Block
from bilinear.ir.scheme import WrittenSum, WrittenTerm, block_name
from bilinear.source import Span

MOST_DIGITS = 100  # The most digits of an integer; this bounds the time of exact arithmetic.
MOST_EXPONENT = 64
MOST_BITS = 1600  # The most bits of a numerator or denominator, also in sums and products of coefficients.
MOST_LETTERS = 1000  # The most characters of one coefficient.
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


MOST_TERMS = 256  # The most terms of a polynomial coefficient.

_BLOCK = re.compile(r"([ABC])(?:([1-9])([1-9])|\[[ \t]*([0-9]{1,9})[ \t]*,[ \t]*([0-9]{1,9})[ \t]*\])")

Grid = dict[str, tuple[int, int]]  # The rows and columns of blocks of A, B and C.


def grid(m: int, k: int, n: int) -> Grid:
    """The grids of a format."""
    return {"A": (m, k), "B": (k, n), "C": (m, n)}


def read_number(text: str, span: Span, reporter: Reporter, ring: Ring = RATIONALS) -> Coefficient | None:
    """An exact coefficient; None if it is malformed or not in the ring, which is reported (E205)."""
    try:
        value = parse_number(text)
    except NumberError as error:
        reporter.report("E205", f"{shown(text)} is not a number", span, "expected a coefficient", hint=str(error))
        return None
    if ring.holds(value):
        return value
    reporter.report("E205", f"{shown(str(value))} is not in {ring}", span, f"not in {ring}", hint=_wider(value, ring))
    return None


def _wider(value: Coefficient, ring: Ring) -> str:
    if not isinstance(value, Symbolic):
        return f"its denominator is zero in {ring}" if ring.modulus else "leave out 'over Z', the ring is then Q"
    missing = sorted(value.generators - {ring.generator})
    if len(value.generators) == 1 and missing[0] not in ("alpha", "beta"):
        return f"write: over Q[{missing[0]}], in the header of the scheme"
    return "a scheme has one generator: sqrt(d), i, or lambda"


def is_block(text: str) -> bool:
    """True if a word has the form of a block."""
    return text[0] in "ABC" and (text[1:2] == "[" or (len(text) == 3 and text[1] in "123456789" and text[2] in "123456789"))


def read_block(word: Word, blocks: Grid, reporter: Reporter) -> Block | None:
    """The block that a word names; None if it is not in the grid, which is reported (E210)."""
    match = _BLOCK.fullmatch(word.text)
    if match is None:
        hint = f"write a row and a column, such as {word.text[0]}[1,10]"
        reporter.report("E210", f"{shown(word.text)} is not a block", word.span, "expected a row and a column", hint=hint)
        return None
    space, row, column = match[1], int(match[2] or match[4]), int(match[3] or match[5])
    rows, columns = blocks[space]
    if not (1 <= row <= rows and 1 <= column <= columns):
        note = f"{space} has {_count(rows, 'row')} and {_count(columns, 'column')} of blocks, numbered from 1"
        reporter.report("E210", f"there is no block {shown(word.text)}", word.span, "outside of the format", note=note)
        return None
    return Block(space, row - 1, column - 1)


def number_of(block: Block, blocks: Grid) -> int:
    """The row-major number of a block."""
    return block.row * blocks[block.space][1] + block.column


def add_up(terms: Iterable[tuple[int, Coefficient]], span: Span, reporter: Reporter) -> Form | None:
    """The linear form with these terms; None if a sum grows too large, which is reported (E205)."""
    total: dict[int, Coefficient] = {}
    for index, coefficient in terms:
        value = total.get(index, 0) + coefficient
        if longest(value) > MOST_BITS or (isinstance(value, Symbolic) and len(value.terms) > MOST_TERMS):
            reporter.report("E205", "the coefficients of this sum are too long", span, note="exact sums of many fractions grow")
            return None
        total[index] = value
    return form(total)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def claims_in(word: Word) -> Iterator[tuple[str, Span]]:
    """The claims of a header, which commas part, with single blanks, and their places."""
    for match in re.finditer(r"[^,:]+", word.text):
        if claim := match[0].strip():
            start = word.span.start + match.start() + match[0].index(claim)
            yield " ".join(claim.split()), Span(word.span.source, start, start + len(claim))


_FORMAT = re.compile(r"<\s*([0-9]+)\s*,\s*([0-9]+)\s*,\s*([0-9]+)\s*;\s*([0-9]+)\s*>")


@dataclass(frozen=True)
class FormatAndRing:
    """A format <m,k,n;r> and the ring of its coefficients."""

    m: int
    k: int
    n: int
    rank: int
    ring: Ring


def read_format(header: SchemeHeader, reporter: Reporter, digits: Iterable[str] = ()) -> FormatAndRing | None:
    """The format of a scheme; None if it is malformed or unsupported, which is reported. `digits` may have been meant."""
    numbers = read_numbers(header.format, reporter)
    if numbers is None:
        return None
    ring = read_ring(header.ring, reporter, digits)
    return FormatAndRing(*numbers, ring) if ring is not None else None


def read_numbers(word: Word, reporter: Reporter) -> tuple[int, int, int, int] | None:
    """m, k, n and r of a format; None if it is malformed or out of bounds, which is reported (E201, E202)."""
    match = _FORMAT.fullmatch(word.text)
    hint = "<2,2,2;7> multiplies 2 x 2 by 2 x 2 blocks with 7 products"
    if match is None:
        reporter.report("E201", f"{shown(word.text)} is not a format", word.span, "expected <m,k,n;r>", hint=hint)
        return None
    if max(map(len, match.groups())) > 9:
        reporter.report("E202", "the format is too large", word.span, "out of bounds", note=limits())
        return None
    m, k, n, rank = map(int, match.groups())
    if min(m, k, n, rank) == 0:
        reporter.report("E201", "a format has no zeros", word.span, "expected positive numbers", hint=hint)
        return None
    if not within_bounds(m, k, n, rank):
        reporter.report("E202", "the format is too large", word.span, "out of bounds", note=limits())
        return None
    return m, k, n, rank


def read_ring(word: Word | None, reporter: Reporter, digits: Iterable[str] = ()) -> Ring | None:
    """The ring of a scheme's coefficients, Q by default; a ring that schemes cannot be written over is reported (E203)."""
    if word is None:
        return Ring()
    text = word.text[len("over") :].strip()
    ring = parse_ring(text)
    if ring is None:
        name = shown(text) if text else "this"
        hint = did_you_mean(text, digits) or f"write over one of {RINGS}, or nothing, which means Q"
        reporter.report("E203", f"{name} is not a ring that schemes can be written over", word.span, "not known", hint=hint)
    return ring


KINDS = {"A": "a form over A", "B": "a form over B", "M": "a form over products"}


@dataclass(frozen=True)
class Value:
    """A value that forms of a kind are over: an input or a step of u (A), v (B) or w (M)."""

    kind: str
    index: int


@dataclass
class Factors:
    """A product while its scheme is being read."""

    name: str
    left: Form
    right: Form
    span: Span


@dataclass
class Names:
    """The definitions so far. A name without a value was defined by a statement with an error, so its uses are not reported."""

    header: FormatAndRing
    reporter: Reporter
    later: dict[str, Span] = field(default_factory=dict)
    values: dict[str, Value | None] = field(default_factory=dict)
    places: dict[str, Span] = field(default_factory=dict)
    steps: dict[str, list[Form]] = field(default_factory=lambda: {"A": [], "B": [], "M": []})
    step_names: dict[str, list[str]] = field(default_factory=lambda: {"A": [], "B": [], "M": []})
    products: list[Factors] = field(default_factory=list)
    outputs: dict[int, tuple[Form | None, Span]] = field(default_factory=dict)
    columns: dict[int, list[tuple[int, Coefficient]]] = field(default_factory=dict)
    """For each block of C, its column of a table: (product, coefficient)."""
    written: list[WrittenTerm] = field(default_factory=list)
    sums: list[WrittenSum] = field(default_factory=list)
    rows: list[Span] = field(default_factory=list)  # The cells of each row of a table.

    def __post_init__(self) -> None:
        h = self.header
        self.blocks: Grid = grid(h.m, h.k, h.n)
        self.inputs = {"A": h.m * h.k, "B": h.k * h.n, "M": h.rank}

    def define(self, word: Word, value: Value | None) -> None:
        """Define a name, or mark it as defined with an error."""
        self.values[word.text] = value
        self.places[word.text] = word.span

    def is_new(self, word: Word) -> bool:
        """True if a name is free; a second definition is reported (E208)."""
        first = self.places.get(word.text)
        if first is None:
            return True
        self.twice(word, first)
        return False

    def twice(self, word: Word, first: Span) -> None:
        """Report a second definition (E208)."""
        note = f"the first definition is at {first}"
        self.reporter.report(
            "E208", f"{shown(word.text)} is defined twice", word.span, "defined again", note=note, hint="rename one of them"
        )

    def add_step(self, kind: str, word: Word, step: Form) -> None:
        """Define a sub-expression of a kind."""
        self.define(word, Value(kind, self.inputs[kind] + len(self.steps[kind])))
        self.steps[kind].append(step)
        self.step_names[kind].append(word.text)

    def add_product(self, name: str, left: Form, right: Form, span: Span) -> Value:
        """Add the next product; one without a name yet gets an empty one."""
        self.products.append(Factors(name, left, right, span))
        return Value("M", len(self.products) - 1)

    def coefficient(self, sign: int, number: Word | None) -> Coefficient | None:
        """A signed coefficient, 1 if none is written; None if it is wrong, which is reported (E205)."""
        value = 1 if number is None else read_number(number.text, number.span, self.reporter, self.header.ring)
        return value * sign if value is not None else None

    def look_up(self, plain: Plain) -> Value | None:
        """The value of a name in a sum; None if it has none, which is reported unless its definition already was."""
        word = plain.name
        if is_block(word.text):
            block = read_block(word, self.blocks, self.reporter)
            if block is None:
                return None
            if block.space == "C":
                hint = "name the sum in an equation of its own, and use that name in both places"
                self.reporter.report("E214", f"{word.text} is read, but blocks of C are results", word.span, "a result", hint=hint)
                return None
            return Value(block.space, number_of(block, self.blocks))
        if word.text not in self.values:
            self._unknown(word)
            return None
        return self.values[word.text]

    def _meant(self, name: str) -> str:
        """What an unknown name may stand for: a name like it, the same number behind another letter, or else what there is."""
        known = [other for other, value in self.values.items() if value is not None]
        alike = [other for other in known[:400] if name[1:].isdecimal() and other[1:] == name[1:]]
        blocks = (block_name(s, i, j) for s in "AB" for i in range(self.blocks[s][0]) for j in range(self.blocks[s][1]))
        near = did_you_mean(name, [*known, *blocks])
        if alike or near:
            return f"did you mean {' or '.join(alike[:3])}?" if alike else near
        products = [product.name for product in self.products if product.name]
        if name[1:].isdecimal() and len(products) > 1:
            return f"the products are {products[0]} to {products[-1]}"
        return f"known here are {listed(known)}" if known else ""

    def _unknown(self, word: Word) -> None:
        place = self.later.get(word.text)
        if place is not None:
            note = f"it is defined at {place}"
            message = f"{shown(word.text)} is used before it is defined"
            self.reporter.report("E209", message, word.span, "not yet known", note=note, hint="put its definition before this")
        else:
            hint = "" if self.reporter.full else self._meant(word.text)
            if "." in word.text:
                hint = "digits stand in schemes over digits: scheme pairs <1,1,1;3> over pair"
            self.reporter.report("E209", f"{shown(word.text)} is not defined", word.span, "not known", hint=hint)
        self.values[word.text] = None
