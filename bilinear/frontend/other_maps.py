"""Read schemes for other maps than the product of two matrices, by their claims: `of complex numbers`, and `B = A^T`, which is A*A^T."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from bilinear.frontend.atoms import is_block
from bilinear.frontend.headers import FormatAndRing, read_format
from bilinear.frontend.reporter import Reporter, did_you_mean, listed, shown
from bilinear.frontend.schemes import read_scheme_of
from bilinear.frontend.syntax import Broken, Plain, SchemeHeader, Statement, TableRow, Term, Update, Word
from bilinear.ir.bilinear_map import BilinearAlgorithm, complex_product
from bilinear.ir.complex_scheme import ComplexAlgorithm
from bilinear.ir.gram import GramScheme
from bilinear.ir.linear import Form, LinearMap

COMPLEX_CLAIM, GRAM_CLAIM = "of complex numbers", "B = A^T"
_BLOCKS = {"A.re": "A11", "A.im": "A12", "B.re": "B11", "B.im": "B21", "C.re": "C11", "C.im": "C12"}
"""The block of a 2 x 2 by 2 x 2 scheme that stands for a part while equations are read."""
_INPUTS = {"A": (0, 1), "B": (0, 2)}
"""The numbers of those blocks."""


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
    before = len(reporter.found) + reporter.unreported
    defined = {target.name.text for s in body if isinstance(s, Update) for target in s.targets}
    missing = [part for part in ("C.re", "C.im") if part not in defined]
    if missing and not any(isinstance(s, Broken | TableRow) for s in body):
        hint = f"add an equation: {missing[0]} = ..."
        reporter.report("E215", f"{listed(missing)} never defined", header.name.span, "an incomplete scheme", hint=hint)
    rows = next((s for s in body if isinstance(s, TableRow)), None)
    if rows is not None:
        reporter.report("E237", "a scheme of complex numbers has no table", rows.span, "a row", hint="write equations: M1 = A.re * B.re")
    statements = [_renamed(s, reporter) if isinstance(s, Update) else s for s in body]
    if len(reporter.found) + reporter.unreported > before:
        return None
    scheme = read_scheme_of(FormatAndRing(2, 2, 2, format_.rank, format_.ring), header, statements, reporter, lambda given, n: (0, 1))
    if scheme is None:
        return None
    u, v = (_of_parts(linear, _INPUTS[letter]) for letter, linear in (("A", scheme.u), ("B", scheme.v)))
    w = LinearMap(scheme.w.inputs, scheme.w.matrix[:2])
    core = BilinearAlgorithm(scheme.name, complex_product(), u, v, w, format_.ring)
    return ComplexAlgorithm(scheme.name, core, scheme.products, scheme.citation)


def _of_parts(linear: LinearMap, inputs: tuple[int, int]) -> LinearMap:
    """A map of blocks as one of the two that stand for parts."""

    def turned(row: Form) -> Form:
        return tuple((inputs.index(index), c) for index, c in row)

    return LinearMap(2, tuple(map(turned, linear.matrix)))


def _renamed(equation: Update, reporter: Reporter) -> Update:
    """An equation with blocks for parts; what is no part is reported (E235)."""

    def plain(one: Plain) -> Plain:
        word = one.name
        if word.text in _BLOCKS:
            return replace(one, name=Word(_BLOCKS[word.text], word.span))
        if "." in word.text or is_block(word.text) or word.text in "ABC":
            hint = did_you_mean(word.text, _BLOCKS) or f"the parts are {listed(_BLOCKS)}"
            reporter.report("E235", f"{shown(word.text)} is not part of a complex number", word.span, "not a part", hint=hint)
        return one

    def term(one: Term) -> Term:
        return replace(one, factors=tuple(replace(factor, terms=tuple(map(plain, factor.terms))) for factor in one.factors))

    return replace(equation, targets=tuple(map(plain, equation.targets)), terms=tuple(map(term, equation.terms)))


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
    given = [i for i, form in enumerate(scheme.w.outputs) if form]
    if any(_is_above(i, format_) for i in given) and any(_is_below(i, format_) for i in given):
        hint = "leave out the blocks below the diagonal, or those above it"
        reporter.report("E793", "both triangles of C are defined", header.name.span, "one gives the other", hint=hint)
        return None
    if scheme.bases is not None:
        reporter.report("E793", "an algorithm for A*A^T has no changes of basis", header.name.span, "not known", hint="multiply them out")
        return None
    return GramScheme(scheme, any(_is_above(i, format_) for i in given))


def _triangle(given: Iterable[int], format_: FormatAndRing) -> list[int]:
    """The blocks that have to be defined: the upper triangle if a block above the diagonal is given, else the lower one."""
    other = _is_below if any(_is_above(i, format_) for i in given) else _is_above
    return [i for i in range(format_.m * format_.n) if not other(i, format_)]


def _is_above(block: int, format_: FormatAndRing) -> bool:
    return block // format_.n < block % format_.n


def _is_below(block: int, format_: FormatAndRing) -> bool:
    return block // format_.n > block % format_.n
