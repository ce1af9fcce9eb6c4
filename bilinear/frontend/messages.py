"""The syntax messages as one table: the parser looks its errors up in it, and the tests run its examples."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bilinear.errors import Diagnostic
from bilinear.frontend.recover import KEYWORDS, line_start, skeleton, statement_start, unclosed_brace
from bilinear.frontend.reporter import first_word, shown
from bilinear.source import Source, Span


@dataclass(frozen=True)
class Message:
    """A syntax message and when it applies: what the parser could have accepted, what it found, in which statement.

    An empty condition always holds. `START` among the accepted stands for the begin of a statement or step.
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
_SCHEDULE_HINT = "a header reads: schedule msmes of strassen: in-place, restores A B"

MESSAGES = (
    Message(
        "E106",
        "this stage is never closed",
        "no } belongs to this",
        "close the stage with }",
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
        "in parentheses stands a sum of names, with coefficients in front",
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
"""The first row that applies is taken; the last one always does."""


@dataclass(frozen=True)
class Finding:
    """A syntax error: its diagnostic, where recovery starts, and whether that is a brace that is never closed."""

    diagnostic: Diagnostic
    offset: int
    opening: bool = False


def syntax_error(source: Source, text: str, offset: int, accepted: frozenset[str]) -> Finding:
    """What to say about the text at an offset where only the accepted terminals could stand."""
    marked = skeleton(text)
    opened = unclosed_brace(marked, offset)
    line = line_start(marked, offset)
    keyword = first_word(marked[line : line + 200]) in KEYWORDS
    if opened is not None and (not marked[offset:].strip() or (keyword and opened < line)):
        return Finding(_diagnostic(_pick(accepted, "unclosed brace", ""), source, opened, opened + 1), opened, True)
    starts = "SCHEME" in accepted or {"RBRACE", "NAME"} <= accepted
    before = marked[:offset].rstrip()
    dangling = marked[:line].rstrip()
    if not starts and dangling[-1:] in tuple("+-*=,") and _begins_statement(marked, line):
        place = len(dangling) - 1
        return Finding(_diagnostic(_pick(accepted, "operator before a statement", ""), source, place, place + 1), place)
    at_end = not starts and "\n" in marked[len(before) : offset] or not marked[offset:].strip()
    if at_end:
        offset = len(before)
    return _finding(source, marked, offset, accepted | {"START"} if starts else accepted, at_end)


def _finding(source: Source, text: str, offset: int, accepted: frozenset[str], at_end: bool) -> Finding:
    group = text.rfind("(", 0, offset)
    head = first_word(text[statement_start(text, offset) :][:200])
    grouped = text.find(")", max(group, 0), offset) < 0 <= group >= statement_start(text, offset)
    message = _pick(accepted, "end" if at_end else _kind(text, offset), "group" if grouped else head)
    if message.code == "E109":
        return Finding(_diagnostic(message, source, group, group + 1), group)
    word = re.compile(r'[A-Za-z0-9_]+|"[^"\n]*"?|.', re.DOTALL).match(text, offset)
    end = offset if at_end or word is None else word.end()
    return Finding(_diagnostic(message, source, offset, end), min(offset, max(0, len(text) - 1)))


def _pick(accepted: frozenset[str], found: str, head: str) -> Message:
    return next(
        m
        for m in MESSAGES
        if (not m.accepts or m.accepts in accepted) and (not m.found or m.found == found) and (not m.heads or head in m.heads)
    )


def _kind(text: str, offset: int) -> str:
    character = text[offset]
    if character.isascii() and (character.isalnum() or character in '_"<>{[];:,|=\n'):
        return "word"
    return character if character in "()+-*}" else "other"


def _begins_statement(text: str, start: int) -> bool:
    """Whether the line at an offset reads like the begin of a statement."""
    pattern = r"[ \t]*(?:(?:scheme|schedule|source|restore|stage)\b|[A-Za-z_][A-Za-z0-9_]*(?:\[[^\]\n]*\])?[ \t]*(?:\+=|-=|=|:))"
    return re.compile(pattern).match(text, start) is not None


def _diagnostic(message: Message, source: Source, start: int, end: int) -> Diagnostic:
    found = shown(source.text[start:end]) if end > start else "the end of the line"
    return Diagnostic(
        message.code,
        message.message.replace("{found}", found),
        Span(source, start, end),
        message.label,
        hints=(message.hint,) if message.hint else (),
    )
