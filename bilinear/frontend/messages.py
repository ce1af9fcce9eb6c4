"""The syntax messages as one table, which the parser searches and the tests run; and the diagnostics of one run."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches

from bilinear.errors import BilinearError, Diagnostic
from bilinear.source import Span
from bilinear.visible import visible

MOST = 50  # The most diagnostics reported in one run; further ones are only counted.


class Reporter:
    """The diagnostics found so far."""

    def __init__(self) -> None:
        self.found: list[Diagnostic] = []
        self.unreported = 0

    @property
    def full(self) -> bool:
        """True if further findings are only counted."""
        return len(self.found) >= MOST

    @property
    def count(self) -> int:
        """The number of findings, reported or only counted."""
        return len(self.found) + self.unreported

    def report(self, code: str, message: str, span: Span | None, label: str = "", *, note: str = "", hint: str = "") -> None:
        """Add a diagnostic, or count it if there are too many."""
        if self.full:
            self.unreported += 1
            return
        self.found.append(Diagnostic(code, message, span, label, (note,) if note else (), (hint,) if hint else ()))

    def finish(self) -> None:
        """Raise `BilinearError` with all diagnostics in the order of their places, if there are any."""
        if not self.found:
            return
        ordered = sorted(self.found, key=lambda d: d.span.start if d.span is not None else -1)
        if self.full:
            last = ordered[-1]
            ordered[-1] = replace(last, notes=(*last.notes, f"the first {MOST} errors are shown, there may be more"))
        raise BilinearError(ordered)


def shown(text: str, width: int = 40) -> str:
    """A user's text, quoted, printable, and cut to a readable length."""
    return f"'{visible(text, width)}'"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint with the nearest known names, or nothing."""
    if len(name) > 64:
        return ""
    candidates = [k for _, k in zip(range(400), known, strict=False)]
    folded = [k for k in candidates if k.lower() == name.lower()]
    near = folded or get_close_matches(name, candidates, n=3, cutoff=0.6)
    return f"did you mean {' or '.join(near)}?" if near else ""


def listed(names: Iterable[str], most: int = 6) -> str:
    """A list of names, cut after a few."""
    every = list(names)
    if len(every) > most:
        return f"{', '.join(every[:most])} and {len(every) - most} more"
    return ", ".join(every)


def first_word(text: str) -> str:
    """The name at the start of a text, or nothing."""
    match = re.match(r"\s*([A-Za-z_][A-Za-z0-9_]*)", text)
    return match.group(1) if match else ""


@dataclass(frozen=True)
class Message:
    """A syntax message and its condition: what the parser could have accepted, what it found, and in which statement.

    An empty condition always holds. `START` among the accepted terminals stands for the start of a statement or step.
    """

    code: str
    message: str
    label: str
    hint: str
    example: str
    accepts: str = ""
    found: str = ""
    heads: tuple[str, ...] = ()


_SCHEME_HINT = "a header reads: scheme strassen <2,2,2;7>, and perhaps: over Z"
COMPOSITION_HINT = "a composition reads: scheme big = laderman (x) strassen; operators are (x), (+m), (+k), (+n); files stand in quotes"
_DIGITS_HINT = "a declaration reads: digits pair of float32: float16 x 2, lambda = 2^-11, scaled by rows of A and columns of B"
_SCHEDULE_HINT = "a header reads: schedule msmes of strassen: in-place, restores A B"

MESSAGES = (
    Message(
        "E106",
        "this brace is never closed",
        "no } belongs to this",
        "close it with }",
        "schedule s of x\n  stage { A11 += A22\n  stage { B11 += B22 }",
        found="unclosed brace",
    ),
    Message(
        "E107",
        "nothing follows the operator",
        "an operand is missing",
        "a line that ends in an operator goes on in the next line",
        "scheme x <1,1,1;1>\n  S1 = A11 +\n  S2 = A11",
        found="operator before a statement",
    ),
    Message(
        "E649",
        "a composition is not complete",
        "expected a scheme",
        COMPOSITION_HINT,
        "scheme x = strassen (x)",
        accepts="FUNCTION",
    ),
    Message(
        "E649",
        "{found} in a composition",
        "expected an operator, or the end",
        COMPOSITION_HINT,
        "scheme x = strassen strassen",
        accepts="TENSOR",
    ),
    Message(
        "E110",
        "parentheses do not nest",
        "inside of another parenthesis",
        "name the inner sum in an equation of its own",
        "scheme x <1,1,1;1>\n  M1 = ((A11)) * B11",
        accepts="NAME",
        found="(",
        heads=("group",),
    ),
    Message(
        "E109",
        "this parenthesis is not closed",
        "no ) belongs to this",
        "a sum of names with coefficients stands in parentheses, or schemes with operators between them",
        "scheme x <1,1,1;1>\n  M1 = (A11 * B11",
        accepts="RPAR",
    ),
    Message(
        "E112",
        "{found} is not part of the language",
        "not expected",
        "coefficients are integers or rationals such as -1/2; comments begin with #",
        "scheme x <1,1,1;1>\n  S1 = 0.5 A11",
        found="other",
    ),
    Message(
        "E102", "the header of a scheme is not complete", "expected a name", _SCHEME_HINT, "scheme <1,1,1;1>", "TITLE", heads=("scheme",)
    ),
    Message(
        "E102",
        "the header of a scheme is not complete",
        "expected a format <m,k,n;r>",
        _SCHEME_HINT,
        "scheme x\n  M1 = A11*B11",
        "FORMAT",
    ),
    Message("E102", "{found} after the header of a scheme", "not expected", _SCHEME_HINT, "scheme x <1,1,1;1> Z", "RING"),
    Message(
        "E102",
        "the header of a scheme is not complete",
        "expected a format before the ring, or = and a composition",
        _SCHEME_HINT,
        "scheme x over Z",
        "EQUALS",
    ),
    Message("E649", "this ) closes nothing", "no ( belongs to this", "take it out", "scheme x = strassen)", found=")", heads=("scheme",)),
    Message("E116", "the declaration of digits is not complete", "expected a name", _DIGITS_HINT, "digits", "TITLE", heads=("digits",)),
    Message("E116", "the declaration of digits is not complete", "expected: of TYPE", _DIGITS_HINT, "digits pair", "OF", heads=("digits",)),
    Message(
        "E116",
        "{found} after the type",
        "expected a colon before what the digits are",
        _DIGITS_HINT,
        "digits pair of float32 float16 x 2",
        "CLAIMS",
        heads=("digits",),
    ),
    Message(
        "E103", "the header of a schedule is not complete", "expected a name", _SCHEDULE_HINT, "schedule", "TITLE", heads=("schedule",)
    ),
    Message("E103", "the header of a schedule is not complete", "expected: of SCHEME", _SCHEDULE_HINT, "schedule x", "OF"),
    Message(
        "E103",
        "{found} after the header of a schedule",
        "expected a colon before the claims",
        _SCHEDULE_HINT,
        "schedule x of y in-place",
        "CLAIMS",
    ),
    Message(
        "E104",
        "a citation stands in double quotes",
        "not a quoted text",
        'for example: source "Strassen (1969)"',
        "source Strassen",
        "STRING",
    ),
    Message(
        "E104", "{found} after a citation", "not expected", "put each statement on a line of its own", 'source "x" "y"', heads=("source",)
    ),
    Message(
        "E105",
        "restore must be followed by stage",
        "expected: stage",
        "write: restore stage { ... }",
        "restore { A11 -= A22 }",
        "STAGE",
        heads=("restore",),
    ),
    Message(
        "E114",
        "a change of basis is not complete",
        "expected A, B or C",
        "write: basis A { A12 += A21 }",
        "scheme x <1,1,1;1>\n  basis { A11 = 2 A11 }",
        "NAME",
        heads=("basis",),
    ),
    Message(
        "E114",
        "the steps of a change of basis stand in braces",
        "expected {",
        "write: basis A { A12 += A21 }",
        "scheme x <1,1,1;1>\n  basis A A11 = 2 A11 }",
        "LBRACE",
        heads=("basis",),
    ),
    Message(
        "E114",
        "{found} after a change of basis",
        "not expected",
        "put each statement on a line of its own",
        "scheme x <1,1,1;1>\n  basis A { } basis B { }",
        heads=("basis",),
    ),
    Message("E105", "the steps of a stage stand in braces", "expected {", "write: stage { A21 += A22 }", "stage A21 += A22 }", "LBRACE"),
    Message(
        "E105",
        "{found} after a stage",
        "not expected",
        "put each stage on a line of its own",
        "stage { } stage { }",
        heads=("stage", "restore"),
    ),
    Message("E101", "this } closes nothing", "no stage is open", "take it out", "scheme x <1,1,1;1>\n  }", "START", "}"),
    Message(
        "E101",
        "a statement cannot begin with {found}",
        "not expected",
        "a statement begins with a name; a sum goes on behind a line that ends in an operator",
        "scheme x <1,1,1;1>\n  C11 = M1\n  * M2",
        accepts="START",
    ),
    Message(
        "E107",
        "nothing follows the operator",
        "expected the name of a block, a sub-expression or a product",
        "blocks are written A11, or A[1,10] beyond nine",
        "scheme x <1,1,1;1>\n  S1 = A11 + * A11",
        accepts="NAME",
    ),
    Message(
        "E111",
        "a statement cannot begin with an operator",
        "expected = or += or -=",
        "a sum goes on behind a line that ends in an operator",
        "scheme x <1,1,1;1>\n  C11 = A11*B11\n  + A11*B11",
        accepts="OPERATOR",
        heads=("",),
    ),
    Message(
        "E111",
        "expected an operator after the target",
        "expected = or += or -=",
        "an equation reads S1 = A21 + A22, a step A21 += A22, a row of a table M1: 1 0 | 1 0 | 1 0",
        "scheme x <1,1,1;1>\n  S1 A11",
        accepts="OPERATOR",
    ),
    Message(
        "E108",
        "{found} after a complete product",
        "not expected",
        "a product has two factors; a coefficient stands in front: 1/2*S1*T1",
        "scheme x <1,1,1;1>\n  M1 = A11 * B11 * A11",
        accepts="SIGN",
        found="*",
    ),
    Message(
        "E108",
        "{found} after a complete sum",
        "an operator is missing before this",
        "join terms with + or -, and factors with *",
        "scheme x <1,1,1;1>\n  S1 = A11 A11",
        accepts="SIGN",
    ),
    Message(
        "E101", "unexpected {found}", "not expected", "put each statement on a line of its own", "schedule x of y\n  stage {\n  } stage { }"
    ),
)
"""The first row that applies is used; the last one always applies."""
