"""Shared parts of the readers: what a reader is, bounded files, exact numbers and expressions, formats from table sizes, and errors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import isqrt, lcm
from pathlib import Path
from typing import NamedTuple

from bilinear.errors import BilinearError, Diagnostic, fail
from bilinear.ir.linear import Form, LinearMap, transposed_rows
from bilinear.ir.number import Coefficient, Symbolic, exact, generator
from bilinear.ir.ring import RATIONALS, Ring, parse_ring
from bilinear.ir.scheme import Bases, Scheme
from bilinear.reading import TooLargeError, read_input, text_of, with_plain_signs
from bilinear.source import Source

MOST_BYTES = 4 * 2**20  # The largest file that is read, in bytes.
MOST_BLOCKS = 4096
MOST_PRODUCTS = 100_000
MOST_NONZEROS = 2**17  # The most nonzero coefficients of a table; published ones have a few thousand.
MOST_DIGITS = 100  # The most digits of a numerator or denominator.
MOST_POWER = 64
MOST_EXPANDED = 2**22  # The most terms of expanded temporaries, or of tables with changes of basis.
MOST_BITS = 4096

Dims = tuple[int, int, int]

_TERM = re.compile(r"([+-]?)([0-9]+(?:/[0-9]+)?|[0-9]*\.[0-9]+)?(?:\*?([xX])([0-9]*)(i?))?", re.ASCII)
_COMMENTS = re.compile(r"(?:(?:#|//|%)[^\n]*(?:\n|\Z)|\s)*")
_SAID = re.compile(r"^# ring: (\S{1,40})\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Beginning:
    """The start of a file, by which a reader recognizes its format: its bytes, the same as text, and whether that is the whole file."""

    name: str
    data: bytes
    whole: bool

    @cached_property
    def text(self) -> str:
        """The text, decoded as `read_text` does."""
        return with_plain_signs(text_of(self.data, "replace"))

    @cached_property
    def content(self) -> str:
        """The text without leading blank lines and lines that are comments (#, // or %)."""
        return self.text[len(_COMMENTS.match(self.text)[0]) :]  # type: ignore[index]


@dataclass(frozen=True)
class Asked:
    """What a caller states about a file: which of its schemes, its ring, and whether its blocks of C are numbered column by column."""

    entry: str = ""
    ring: Ring | None = None
    transposed: bool | None = None


NOTHING_ASKED = Asked()


class Reading(NamedTuple):
    """A scheme as read from a file, not yet proved; `transposed` is the numbering assumed for its blocks of C."""

    scheme: Scheme
    transposed: bool
    found: tuple[str, ...] = ()  # What the reader determined by trying, or left out.
    by_columns: bool = False  # True if the blocks of A and B, too, may be numbered column by column.


def read_text(path: Path, most: int | None = None) -> Source:
    """The text of a file of at most `most` bytes. Raises `BilinearError` (E251) if it is missing, too large, or not text."""
    data = read_data(path, MOST_BYTES if most is None else most)
    try:
        return Source(str(path), with_plain_signs(text_of(data)))
    except UnicodeDecodeError as error:
        raise fail("E251", f"{path} is not UTF-8: byte {error.start} does not decode", "is this a file of coefficients?") from None


def read_data(path: Path, most: int) -> bytes:
    """A file of at most `most` bytes. Raises `BilinearError` (E251) if it is missing or too large."""
    try:
        return read_input(path, most)
    except TooLargeError:
        raise fail("E251", f"{path} is larger than {most // 2**20} MiB", "is this a file of coefficients?") from None
    except OSError as error:
        raise fail("E251", f"{str(path)[:200]!r} cannot be read: {error.strerror or error}") from None


def parsed_json(source: Source, claims: str, hint: str) -> dict[str, object]:
    """The object of a JSON file; decimals stay as text, so that they are read exactly.

    Raises `BilinearError`: E653 if nothing in the text matches `claims`, the keys of a scheme, and E255 if it is not an object of JSON.
    """
    if not re.search(claims, source.text):
        raise fail("E653", f"{source.name} holds no scheme", hint)

    def integer(digits: str) -> int | str:
        return int(digits) if len(digits) <= MOST_DIGITS else digits

    try:
        data = json.loads(source.text, parse_int=integer, parse_float=str, parse_constant=str)
    except json.JSONDecodeError as error:
        raise malformed(source, error.pos, error.pos + 1, f"this is not JSON: {error.msg}", "here", code="E255") from None
    except RecursionError:
        raise malformed(source, 0, 1, "this JSON is nested too deeply", "begins here", code="E255") from None
    if not isinstance(data, dict):
        raise malformed(source, 0, 1, "this JSON is not an object", "a scheme is {...}", code="E255")
    return data


def picked(path: str | Path, names: Sequence[str], entry: str) -> str:
    """The entry that is asked for, or the only one; refuses a file of several without a choice, and an unknown name (E354)."""
    if not entry and len(names) > 1:
        note = f"it holds {', '.join(names[:8])}{f' and {len(names) - 8} more' if len(names) > 8 else ''}"
        message = f"{path} holds {len(names)} schemes"
        raise BilinearError(Diagnostic("E354", message, notes=(note,), hints=(f"name one: entry={names[0]!r}",)))
    if (entry or not names) and entry not in names:
        raise fail("E354", f"{path} holds no scheme {entry[:40]!r}", f"it holds {', '.join(names[:20]) or 'nothing'}")
    return entry or names[0]


def malformed(source: Source, start: int, end: int, message: str, label: str, hint: str = "", code: str = "E252") -> BilinearError:
    """The error that the text between two offsets of a file does not fit its format."""
    hints = (hint,) if hint else ()
    return BilinearError(Diagnostic(code, message, source.span(start, max(start + 1, end)), label=label, hints=hints))


def parse_term(text: str) -> tuple[Fraction, str, int] | None:
    """A number, perhaps with a power of x (`-1/2`, `x2` = x^2, `xi` = 1/x): number, letter, exponent; None for neither."""
    match = _TERM.fullmatch(text) if len(text) <= 3 * MOST_DIGITS else None
    if match is None or not (match[2] or match[3]) or (match[4] and len(match[4]) > 2):
        return None
    power = (int(match[4] or 1) if match[3] else 0) * (-1 if match[5] else 1)
    number = parse_rational(match[2] or "1")
    if number is None or abs(power) > MOST_POWER:
        return None
    return (-number if match[1] == "-" else number), match[3] or "", power


def parse_rational(text: str) -> Fraction | None:
    """An integer, fraction or decimal, exactly; None if it is none of these, or longer than `MOST_DIGITS`."""
    if not re.fullmatch(r"[+-]?([0-9]+(/[0-9]+)?|[0-9]*\.[0-9]+)", text, re.ASCII) or any(
        len(part) > MOST_DIGITS for part in text.lstrip("+-").split("/")
    ):
        return None
    try:
        return Fraction(text)
    except ZeroDivisionError:
        return None


def read_number(source: Source, word: re.Match[str], text: str = "") -> Coefficient:
    """The number that a word is, or that its `text` is (E252)."""
    value = _rational(text or word[0])
    if value is None:
        raise malformed(source, word.start(), word.end(), f"{word[0][:40]!r} is not a number", "not read", "numbers are -1, 0.5 and 1/2")
    return value


@lru_cache(maxsize=4096)
def _rational(text: str) -> Coefficient | None:
    value = parse_rational(text)
    return None if value is None else exact(value)


def lines_of(source: Source) -> Iterator[tuple[int, str]]:
    """The stripped lines, with their offsets."""
    for match in re.finditer(r"[^\r\n]+", source.text):
        text = match[0].strip()
        yield match.start() + match[0].find(text), text


def said_ring(source: Source) -> Ring | None:
    """The ring named in a comment, which our writers add if it is not Q: `# ring: Z/2`."""
    match = _SAID.search(source.text)
    return parse_ring(match[1]) if match is not None else None


def dims_of(a: int, b: int, c: int) -> Dims | None:
    """The m, k, n for which A has mk blocks, B has kn and C has mn; None if there are none."""
    if min(a, b, c) < 1:
        return None
    m = isqrt(a * c // b)
    if m == 0 or a % m or c % m or (a // m) * (c // m) != b:
        return None
    return m, a // m, c // m


@dataclass(frozen=True)
class Maps:
    """The content of a file before its target is known: three linear maps over a ring, perhaps in other bases."""

    source: Source
    name: str
    u: LinearMap
    v: LinearMap
    w: LinearMap
    ring: Ring = RATIONALS
    bases: Bases | None = None

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The numbers of left values, right values and outputs."""
        if self.bases is None:
            return self.u.inputs, self.v.inputs, len(self.w.outputs)
        return self.bases.a.inputs, self.bases.b.inputs, len(self.bases.c.outputs)


def by_products(
    source: Source, name: str, dims: Dims, tables: Sequence[Sequence[Form]], transposed: bool, ring: Ring = RATIONALS
) -> Scheme:
    """The scheme of three tables that have a row a product, over the blocks of A, of B, and of C (column by column if `transposed`)."""
    m, k, n = dims
    u, v, w = tables
    blocks = transposed_rows(w, m * n)
    outputs = tuple(blocks[j * m + i] for i in range(m) for j in range(n)) if transposed else blocks
    maps = LinearMap(m * k, tuple(u)), LinearMap(k * n, tuple(v)), LinearMap(len(w), outputs)
    return assemble(Maps(source, name, *maps, ring), dims)


def assemble(maps: Maps, dims: Dims | None) -> Scheme:
    """The scheme of three maps. Raises `BilinearError` (E253) if the sizes are not a format, or not that of `dims`."""
    require_one_rank(maps)
    a, b, c = maps.sizes
    told = f"A has {a} blocks, B {b}, C {c}"
    found = dims_of(a, b, c)
    if found is None:
        raise fail(
            "E253", f"{maps.source.name} is not a multiplication of matrices: {told}", "is it another bilinear map, or a part of a scheme?"
        )
    if dims is not None and found != tuple(dims):
        raise fail("E253", f"{maps.source.name} is of the format {shape(found)}, not {shape(dims)}: {told}")
    products = tuple(f"M{p + 1}" for p in range(maps.w.inputs))
    stem = re.sub(r"[^A-Za-z0-9_]+", "_", maps.name)[:80].strip("_")
    name = stem if stem[:1].isalpha() else f"scheme_{stem}".rstrip("_")
    return Scheme(name, *found, maps.u, maps.v, maps.w, products, maps.ring, bases=maps.bases)


def require_one_rank(maps: Maps) -> None:
    """Refuse maps that are too large or of different ranks (E253)."""
    source, u, v, w = maps.source, maps.u, maps.v, maps.w
    for linear in (u, v, w):
        if len(linear.steps) * linear.inputs > MOST_EXPANDED:
            raise fail("E253", f"{source.name} has too many temporaries: {len(linear.steps)} over {linear.inputs} values")
        if linear.steps and _longest(linear) > MOST_BITS:
            raise fail("E253", f"{source.name}: the coefficients of its temporaries may grow to more than {MOST_BITS} bits")
    if maps.bases is not None:
        bases, (x, y, z) = maps.bases, (linear.steps + linear.outputs for linear in (u, v, w))
        pairs = ((x, bases.a.outputs), (y, bases.b.outputs), (bases.c.outputs, z[-len(w.outputs) :]))
        work = sum(len(inner[i]) for outer, inner in pairs for row in outer for i, _ in row if i < len(inner))
        if work > MOST_EXPANDED:
            raise fail("E253", f"{source.name}: composing it with its changes of basis takes {work} steps", f"at most {MOST_EXPANDED}")
    rank = len(u.outputs)
    if max(maps.sizes) > MOST_BLOCKS or rank > MOST_PRODUCTS:
        told = "A has {} blocks, B {}, C {}".format(*maps.sizes)
        raise fail("E253", f"{source.name} is too large: {told}, and {rank} products", f"at most {MOST_BLOCKS} and {MOST_PRODUCTS}")
    if not rank == len(v.outputs) == w.inputs:
        counts = f"U makes {rank} left factors, V {len(v.outputs)} right factors, and W reads {w.inputs} products"
        raise fail("E253", f"{source.name} is of no one rank: {counts}", "the three tables belong to different schemes")


def _longest(linear: LinearMap) -> int:
    """A bound on the bits of a coefficient in the expanded map: of its numerator along the steps, and of all denominators together."""
    bits, denominators = [0] * linear.inputs, 0
    for terms in linear.steps:
        numbers = [(i, number) for i, c in terms for number in ([x for _, x in c.terms] if isinstance(c, Symbolic) else [c])]
        bits.append(max((c.numerator.bit_length() + bits[i] for i, c in numbers), default=0) + len(terms).bit_length())
        denominators += lcm(*(c.denominator for _, c in numbers)).bit_length() - 1
    return max(bits) + denominators


def shape(dims: Dims) -> str:
    """A format without its rank: `<2,2,2>`."""
    return f"<{','.join(map(str, dims))}>"


MOST_NESTED = 40  # The deepest nesting of parentheses.
MOST_LENGTH = 4 * MOST_DIGITS  # The most digits of a coefficient in products of numbers.

LOST_INDEX = "a block has its row and column, a12, a_{1,2} or a[1,12]; `pdftotext -layout` keeps more of them than a plain copy"

Linear = dict[Hashable, Coefficient]
Value = Coefficient | Linear
Product = tuple[Coefficient, list[Linear]]  # A number times linear forms.
MOST_EXPRESSIONS = 2**20  # The largest file of expressions in bytes; published ones have some ten thousand.

_SIGNS = {1: Fraction(1), -1: Fraction(-1)}
_NUMBER = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:j(?![A-Za-z0-9_]))?"
_TOKEN = re.compile(rf"\s*(?:({_NUMBER})|([A-Za-z]+(?:[0-9_]+|\[[0-9]+,[0-9]+\])?)|([-+*/()]))", re.ASCII)


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
        shared: Callable[[Linear], Linear] = lambda form: form,
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
            hint = LOST_INDEX if re.fullmatch("[abcABC][lI]*", token) else ""
            raise self._wrong(f"{token[:40]!r} is not known here", "not read", hint=hint)
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

    def _wrong(self, message: str, label: str, code: str = "E252", hint: str = "") -> BilinearError:
        return malformed(self.source, self.begin, self.begin + max(1, len(self.token)), message, label, hint, code)
