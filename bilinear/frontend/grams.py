"""Read schemes with the claim `B = A^T`: algorithms for A*A^T."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bilinear.frontend.headers import Format, read_format
from bilinear.frontend.reporter import Reporter, shown
from bilinear.frontend.schemes import read_scheme_of
from bilinear.frontend.syntax import SchemeHeader, Statement, Word
from bilinear.ir.gram import GramScheme

CLAIM = "B = A^T"


def read_gram(header: SchemeHeader, claims: Word, body: Sequence[Statement], reporter: Reporter) -> GramScheme | None:
    """The scheme of a header with claims; None if an error was reported (E793)."""
    text = claims.text.removeprefix(":").strip()
    if "".join(text.split()) != "".join(CLAIM.split()):
        hint = f"for an algorithm for A*A^T write: scheme NAME <m,k,m;r>: {CLAIM}; for complex numbers <1,1,1;r>: of complex numbers"
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


def _triangle(given: Iterable[int], format_: Format) -> list[int]:
    """The blocks that have to be defined: the upper triangle if a block above the diagonal is given, else the lower one."""
    other = _is_below if any(_is_above(i, format_) for i in given) else _is_above
    return [i for i in range(format_.m * format_.n) if not other(i, format_)]


def _is_above(block: int, format_: Format) -> bool:
    return block // format_.n < block % format_.n


def _is_below(block: int, format_: Format) -> bool:
    return block // format_.n > block % format_.n
