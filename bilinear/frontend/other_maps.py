"""Read digits, schemes of digits, and schemes for other maps than the product of two matrices: of complex numbers, and for A*A^T."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from bilinear.frontend.messages import Reporter, did_you_mean, listed, shown
from bilinear.frontend.names import FormatAndRing, claims_in, is_block, read_format, read_numbers
from bilinear.frontend.schemes import read_citation, read_scheme_of
from bilinear.frontend.syntax import Broken, Citation, DigitsHeader, Plain, SchemeHeader, Statement, TableRow, Term, Update, Word
from bilinear.ir.bilinear_map import BilinearAlgorithm, complex_product
from bilinear.ir.complex_scheme import ComplexAlgorithm
from bilinear.ir.digits import (
    LARGEST_MODULUS,
    MOST_DIGITS,
    MOST_MODULI,
    DigitScheme,
    Representation,
    common_factors,
    digit_product,
    root_of_minus_one,
)
from bilinear.ir.element import COMPLEX, FLOAT32, KNOWN, MULTIPLIED
from bilinear.ir.gram import GramScheme
from bilinear.ir.linear import Form, LinearMap
from bilinear.ir.ring import Ring, parse_ring
from bilinear.ir.schedule import Block
from bilinear.source import Span

COMPLEX_CLAIM, GRAM_CLAIM = "of complex numbers", "B = A^T"
_BLOCKS = {"A.re": "A11", "A.im": "A12", "B.re": "B11", "B.im": "B21", "C.re": "C11", "C.im": "C12"}
"""The block of a 2 x 2 by 2 x 2 scheme that stands for a part while equations are read."""
_INPUTS = {"A": (0, 1), "B": (0, 2)}  # The numbers of those blocks.


def is_of_complex(header: SchemeHeader) -> bool:
    """Whether a header claims to be of complex numbers."""
    return header.claims is not None and " ".join(header.claims.text.removeprefix(":").split()) == COMPLEX_CLAIM


def read_complex(header: SchemeHeader, body: Sequence[Statement], reporter: Reporter) -> ComplexAlgorithm | None:
    """The algorithm of a header with this claim; None if an error was reported (E235, E237)."""
    format_ = read_format(header, reporter)
    if format_ is None:
        return None
    if (format_.m, format_.k, format_.n) != (1, 1, 1):
        hint = f"write <1,1,1;{format_.rank}>: matrices of complex numbers are multiplied by it above any scheme"
        reporter.report("E237", "a scheme of complex numbers multiplies two numbers", header.format.span, "expected <1,1,1;r>", hint=hint)
        return None
    before = reporter.count
    defined = {target.name.text for s in body if isinstance(s, Update) for target in s.targets}
    missing = [part for part in ("C.re", "C.im") if part not in defined]
    if missing and not any(isinstance(s, Broken | TableRow) for s in body):
        hint = f"add an equation: {missing[0]} = ..."
        reporter.report("E215", f"{listed(missing)} never defined", header.name.span, "an incomplete scheme", hint=hint)
    rows = next((s for s in body if isinstance(s, TableRow)), None)
    if rows is not None:
        reporter.report("E237", "a scheme of complex numbers has no table", rows.span, "a row", hint="write equations: M1 = A.re * B.re")
    statements = _renamed(body, lambda word: _block_of_part(word, reporter))
    if reporter.count > before:
        return None
    scheme = read_scheme_of(FormatAndRing(2, 2, 2, format_.rank, format_.ring), header, statements, reporter, lambda given, n: (0, 1))
    if scheme is None:
        return None
    u, v = (_of_parts(linear, _INPUTS[letter]) for letter, linear in (("A", scheme.u), ("B", scheme.v)))
    w = LinearMap(scheme.w.inputs, scheme.w.matrix[:2])
    core = BilinearAlgorithm(scheme.name, complex_product(), u, v, w, format_.ring)
    return ComplexAlgorithm(scheme.name, core, scheme.products, scheme.citation)


def _of_parts(linear: LinearMap, inputs: tuple[int, int]) -> LinearMap:
    def turned(row: Form) -> Form:
        return tuple((inputs.index(index), c) for index, c in row)

    return LinearMap(2, tuple(map(turned, linear.matrix)))


def _block_of_part(word: Word, reporter: Reporter) -> str:
    """The block that stands for a part of a number; what is no part is reported (E235)."""
    if word.text not in _BLOCKS and ("." in word.text or is_block(word.text) or word.text in "ABC"):
        hint = did_you_mean(word.text, _BLOCKS) or f"the parts are {listed(_BLOCKS)}"
        reporter.report("E235", f"{shown(word.text)} is not part of a complex number", word.span, "not a part", hint=hint)
    return _BLOCKS.get(word.text, word.text)


def _renamed(body: Sequence[Statement], rename: Callable[[Word], str]) -> list[Statement]:
    """The statements with other names in their equations, at the same places."""

    def plain(one: Plain) -> Plain:
        return replace(one, name=Word(rename(one.name), one.name.span))

    def term(one: Term) -> Term:
        return replace(one, factors=tuple(replace(factor, terms=tuple(map(plain, factor.terms))) for factor in one.factors))

    def equation(one: Update) -> Update:
        return replace(one, targets=tuple(map(plain, one.targets)), terms=tuple(map(term, one.terms)))

    return [equation(s) if isinstance(s, Update) else s for s in body]


def read_gram(header: SchemeHeader, claims: Word, body: Sequence[Statement], reporter: Reporter) -> GramScheme | None:
    """The scheme of a header with claims; None if an error was reported (E793)."""
    text = claims.text.removeprefix(":").strip()
    if "".join(text.split()) != "".join(GRAM_CLAIM.split()):
        hint = f"for an algorithm for A*A^T write: scheme NAME <m,k,m;r>: {GRAM_CLAIM}; for complex numbers <1,1,1;r>: of complex numbers"
        reporter.report("E793", f"{shown(text) if text else 'this'} is not a claim of a scheme", claims.span, "not known", hint=hint)
        return None
    format_ = read_format(header, reporter)
    if format_ is None:
        return None
    if format_.m != format_.n:
        message = f"A*A^T has as many columns as rows, the format says {format_.m} and {format_.n}"
        reporter.report("E793", message, header.format.span, "not square", hint="write <m,k,m;r>")
        return None
    scheme = read_scheme_of(format_, header, body, reporter, lambda given, _: _triangle(given, format_))
    if scheme is None:
        return None
    sides = {_side(i, format_.n) for i, form in enumerate(scheme.w.outputs) if form}
    if sides >= {-1, 1}:
        hint = "leave out the blocks below the diagonal, or those above it"
        reporter.report("E793", "both triangles of C are defined", header.name.span, "one gives the other", hint=hint)
        return None
    if scheme.bases is not None:
        reporter.report("E793", "an algorithm for A*A^T has no changes of basis", header.name.span, "not known", hint="multiply them out")
        return None
    return GramScheme(scheme, 1 in sides)


def _triangle(given: Iterable[int], format_: FormatAndRing) -> list[int]:
    """The blocks that have to be defined: the upper triangle if a block above the diagonal is given, else the lower one."""
    other = -1 if any(_side(i, format_.n) > 0 for i in given) else 1
    return [i for i in range(format_.m * format_.n) if _side(i, format_.n) != other]


def _side(block: int, columns: int) -> int:
    """1 above the diagonal, 0 on it, -1 below."""
    row, column = divmod(block, columns)
    return (column > row) - (column < row)


SCALED = "scaled by rows of A and columns of B"
_CLAIMS = ("float16 x 2", "int8 modulo 256 255 253", "lambda = 2^-11", SCALED, "unscaled", "unshifted", "truncated")
_WORDS = frozenset({SCALED, "unscaled", "unshifted", "truncated"})
_CUT = ("float32", "float64", *COMPLEX)
_DIGITS = re.compile(r"([a-z]+[0-9]+) x ([1-9][0-9]{0,2})")
_MODULI = re.compile(r"int8 modulo((?: [1-9][0-9]{0,5})+)")
_LAMBDA = re.compile(r"lambda ?= ?2\^-([1-9][0-9]{0,2})")


@dataclass
class _DigitClaims:
    digits: tuple[str, int] | None = None
    moduli: tuple[int, ...] = ()
    bits: int = 0
    words: frozenset[str] = frozenset()
    places: dict[str, Span] = field(default_factory=dict)


def read_digits(header: DigitsHeader, body: Sequence[Statement], reporter: Reporter) -> Representation | None:
    """The representation that a declaration describes; None if an error was reported (E233, E234)."""
    before = reporter.count
    citation = read_citation(body, reporter)
    stranger = next((s for s in body if not isinstance(s, Citation | Broken)), None)
    if stranger is not None:
        hint = "begin a scheme with: scheme NAME <1,1,1;r> over " + header.name.text
        reporter.report("E218", "a declaration of digits has nothing but a source", stranger.span, "not expected", hint=hint)
    if header.of.text not in _CUT:
        hint = did_you_mean(header.of.text, _CUT) or f"{listed(_CUT)} are cut into digits"
        reporter.report("E234", f"{shown(header.of.text)} is not a type that is cut into digits", header.of.span, "not known", hint=hint)
    claims = _read_claims(header, reporter)
    if reporter.count > before:
        return None
    problem = _problem(claims, header.of.text)
    if problem is not None:
        place, message, hint = problem
        reporter.report("E234", message, claims.places[place], "does not fit", hint=hint)
        return None
    name, count = claims.digits or ("", len(claims.moduli))
    step = Fraction(1, 2**claims.bits)
    scaled, shifted, rounded = SCALED in claims.words, "unshifted" not in claims.words, "truncated" not in claims.words
    of, digit, is_complex = MULTIPLIED[header.of.text], KNOWN.get(name), header.of.text in COMPLEX
    own = header.name.text, of, digit, count, step, claims.moduli, scaled, shifted, rounded, citation, header.span
    return Representation(*own, gaussian=is_complex)


def _read_claims(header: DigitsHeader, reporter: Reporter) -> _DigitClaims:
    claims, before = _DigitClaims(), reporter.count
    for text, span in claims_in(header.claims) if header.claims is not None else ():
        digits, moduli, step = _DIGITS.fullmatch(text), _MODULI.fullmatch(text), _LAMBDA.fullmatch(text)
        is_second = (digits or moduli) and (claims.digits or claims.moduli)
        if is_second or (step and claims.bits) or text in claims.words:
            reporter.report("E233", f"{shown(text)} says again what the digits are", span, "said before", hint="leave one of them out")
        elif digits is not None:
            claims.digits, claims.places["digits"] = (digits[1], int(digits[2])), span
        elif moduli is not None:
            claims.moduli, claims.places["digits"] = tuple(map(int, moduli[1].split())), span
        elif step is not None:
            claims.bits, claims.places["lambda"] = int(step[1]), span
        elif text in _WORDS:
            claims.places[text] = span
            claims.words |= {text}
        else:
            hint = did_you_mean(text, _CLAIMS) or f"known are: {'; '.join(_CLAIMS)}"
            reporter.report("E233", f"{shown(text)} says nothing of digits", span, "not known", hint=hint)
    if reporter.count > before:
        return claims
    if claims.digits is None and not claims.moduli:
        hint = "write what they are: float16 x 2, lambda = 2^-11; or: int8 modulo 256 255 253"
        reporter.report("E233", f"{shown(header.name.text)} has no digits", header.span, "not complete", hint=hint)
    elif len(claims.words & {SCALED, "unscaled"}) != 1:
        hint = f"write: {SCALED}; or: unscaled"
        reporter.report("E233", "digits are scaled or unscaled", header.span, "say one of both", hint=hint)
    return claims


def _problem(claims: _DigitClaims, of: str) -> tuple[str, str, str] | None:
    """Why these digits cannot stand for numbers: the claim that is wrong, what is wrong with it, and what to do."""
    if claims.digits is None:
        return _problem_of_moduli(claims, of in COMPLEX)
    name, count = claims.digits
    if of in COMPLEX:
        return "digits", f"{of} is not cut into digits of {shown(name)}", f"{of} is cut into residues: int8 modulo 241 233 229"
    digit = KNOWN.get(name)
    if digit is None or digit.bytes > 2:
        hint = did_you_mean(name, ("float16", "bfloat16")) or "digits are float16, bfloat16, or int8 modulo p"
        return "digits", f"{shown(name)} is not a type of digits", hint
    if count > MOST_DIGITS:
        return "digits", f"{count} digits are too many", f"a number has at most {MOST_DIGITS}"
    if of != "float32":
        return (
            "digits",
            f"products of {name} are added up in float32, which is not {of}",
            f"{of} is cut into residues: int8 modulo 256 255 253",
        )
    if count == 1 and (claims.bits or "unshifted" in claims.words):
        return "lambda" if claims.bits else "unshifted", "one digit has no lambda", "leave it out"
    if SCALED in claims.words and digit.most == FLOAT32.most:
        return SCALED, f"{name} has the exponents of float32: products of scaled digits would overflow", "write: unscaled"
    if claims.bits != digit.significand and count > 1:
        hint = f"{name} has {digit.significand} significant bits: lambda = 2^-{digit.significand}"
        where = "lambda" if claims.bits else "digits"
        return where, f"a digit of {name} leaves 2^-{digit.significand} of a number, which is lambda", hint
    return None


def _problem_of_moduli(claims: _DigitClaims, is_complex: bool) -> tuple[str, str, str] | None:
    if len(claims.moduli) > MOST_MODULI:
        return "digits", f"{len(claims.moduli)} moduli are too many", f"a number has at most {MOST_MODULI}"
    least, largest, shared = min(claims.moduli), max(claims.moduli), common_factors(claims.moduli)
    if claims.bits or "unshifted" in claims.words:
        place = "lambda" if claims.bits else "unshifted"
        return place, f"residues have no {'lambda' if claims.bits else 'order'}", "leave it out: all moduli are alike"
    if largest > LARGEST_MODULUS or least < 2:
        wrong = largest if largest > LARGEST_MODULUS else least
        return "digits", f"residues modulo {wrong} are not numbers of int8", f"moduli are 2 to {LARGEST_MODULUS}"
    if shared:
        hint = "moduli are coprime in pairs, so that a number is known by its residues"
        return "digits", f"{shared[0][0]} and {shared[0][1]} share a factor", hint
    rootless = next((p for p in claims.moduli if root_of_minus_one(p) is None), None)
    if is_complex and rootless is not None:
        what = f"-1 has no square root modulo {rootless}" if rootless % 2 else f"2 has no inverse modulo {rootless}"
        return "digits", what, "complex numbers are cut modulo numbers whose prime factors are all 1 modulo 4: 241 233 229"
    return None


def digits_of(header: SchemeHeader, known: Container[str], unsure: bool) -> str:
    """The name after `over` if digits have it, else an empty string. If `unsure` which digits there are, any name but a ring's counts."""
    name = header.ring.text[len("over") :].strip() if header.ring is not None else ""
    return name if name in known or (unsure and parse_ring(name) is None) else ""


def read_digit_scheme(
    header: SchemeHeader, body: Sequence[Statement], representation: Representation, reporter: Reporter
) -> DigitScheme | None:
    """The scheme of a header `over` digits and its statements; None if an error was reported.

    Its values are the digits of one number of A and of one of B, so it is read as a scheme of a row of digits by a column of digits.
    """
    if representation.is_modular:
        hint = f"take {representation.name} itself: winograd (x) {representation.name}"
        reporter.report("E237", "residues multiply each for itself, and need no scheme", header.span, "over residues", hint=hint)
        return None
    numbers = read_numbers(header.format, reporter)
    if numbers is None:
        return None
    if numbers[:3] != (1, 1, 1):
        hint = f"write <1,1,1;{numbers[3]}>, and compose: winograd (x) {header.name.text}"
        reporter.report("E237", "a scheme over digits multiplies two numbers", header.format.span, "expected <1,1,1;r>", hint=hint)
        return None
    before = reporter.count
    statements = _renamed(body, lambda word: _block_of_digit(word, representation, reporter))
    if reporter.count > before:
        return None
    ring = Ring("Q[lambda]")
    scheme = read_scheme_of(FormatAndRing(1, representation.count, 1, numbers[3], ring), header, statements, reporter)
    if scheme is None:
        return None
    core = BilinearAlgorithm(scheme.name, digit_product(representation), scheme.u, scheme.v, scheme.w, ring)
    return DigitScheme(scheme.name, representation, core, citation=scheme.citation, places=scheme.places, products=scheme.products)


def _block_of_digit(word: Word, of: Representation, reporter: Reporter) -> str:
    """The block of a row or of a column that stands for a digit: A.l is A12, B.l is B21, C is C11; an unknown digit is reported (E235)."""
    if word.text == "C":
        return "C11"
    matrix, point, digit = word.text.partition(".")
    if not point:
        return word.text
    if digit in of.digits:
        i = of.digits.index(digit)
        return str(Block(matrix, 0, i) if matrix == "A" else Block(matrix, i, 0))
    known = [f"{matrix}.{d}" for d in of.digits]
    hint = did_you_mean(word.text, known) or f"its digits are {listed(known)}"
    reporter.report("E235", f"{of.name} has no digit {shown(word.text)}", word.span, "not a digit", hint=hint)
    return word.text
