"""Parse text to statements: the LALR parser, and recovery that reports several syntax errors in one run."""

from __future__ import annotations

import re
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from bilinear.frontend.files import SUFFIX
from bilinear.frontend.recover import KEYWORDS, broken_statement, skeleton
from bilinear.frontend.reporter import Reporter, first_word
from bilinear.frontend.syntax import Broken, Statement
from bilinear.frontend.syntax_errors import syntax_error
from bilinear.frontend.tree import TreeReader
from bilinear.reading import with_plain_signs
from bilinear.source import Source, Span

if TYPE_CHECKING:
    from lark import Lark, Token, Tree
    from lark.exceptions import UnexpectedInput

MOST_ERRORS = 20
"""The most syntax errors reported in one run."""
MOST_EQUATION_TEXT = 300_000
"""The most characters of equations and schedules in a file. Tables are read faster and do not count."""
MOST_ROWS = 30_000
"""The most rows of tables in a file."""
MOST_LETTERS = 200
"""The most characters of a name."""
MOST_REPARSED = 100_000
"""The most characters of equations that recovery may read again, which bounds its time."""

_ROW = re.compile(r"^[ \t]*[A-Za-z_][A-Za-z0-9_]*[ \t]*:[^\n]*$", re.MULTILINE)
_LONG_NAME = re.compile(
    rf"\b(?:(?:scheme|schedule|digits|of)[ \t]+([A-Za-z_][A-Za-z0-9_-]{{{MOST_LETTERS},}})|([A-Za-z_][A-Za-z0-9_]{{{MOST_LETTERS},}}))"
)
_SEGMENT = re.compile(r"[^\n;]+")
_LAST_NAME = re.compile(r"\b([A-Za-z_]\w{0,39}(?:\[[^\]\n]{1,20}\])?)[ \t]*\Z")
_LATEX = re.compile(r"\\|_\{|\$")
_BLOCK = re.compile(r"\b[AB](?:[1-9][1-9]\b|\[|\.)")
_OTHER_BLOCK = re.compile(r"\b(?:[ab]_?[1-9][1-9]|[AB]_[1-9][1-9]|[abAB]_?[1-9][0-9]*_[1-9][0-9]*)\b|\b[ab]\[[1-9]")
_IMPLIED = re.compile(r"(?:\)|\b[AB][1-9][1-9])[ \t]*(\(|[A-Za-z_][A-Za-z0-9_]*)|\b(?!sqrt\b)[A-Za-z_][A-Za-z0-9_]*[ \t]*(\()")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUOTED = re.compile(r'"(?:\\.|[^"\\\n])*"')
_OUTSIDE_QUOTES = re.compile(rf'{_QUOTED.pattern}|[^"]+|"')
_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|#[^\n]*')


def parse_statements(source: Source, reporter: Reporter) -> list[Statement]:
    """The statements of a source in order; those that do not parse are reported and become `Broken`."""
    text = without_comments(source.text)
    rest, rows = _ROW.subn("", text)
    equations = len(rest)
    if rows > MOST_ROWS:
        note = f"tables may have {MOST_ROWS} rows in a file"
        hint = "put the schemes into several files"
        reporter.report("E113", f"{rows} rows of tables are too many", Span(source, 0, 1), note=note, hint=hint)
        return []
    if equations > MOST_EQUATION_TEXT:
        hint = "write the scheme as a coefficient table, which has no such limit"
        note = f"equations and stages may have {MOST_EQUATION_TEXT} characters in a file"
        reporter.report("E113", f"{equations} characters of equations are too many", Span(source, 0, 1), note=note, hint=hint)
        return []
    if _has_long_names(source, _QUOTED.sub(lambda m: " " * len(m[0]), text), reporter):
        return []
    if _written_as_in_papers(source, text, reporter):
        return []
    text = _without_assignments(source, text, reporter)
    broken: list[Broken] = []
    for _ in range(max(1, min(MOST_ERRORS, MOST_REPARSED // max(equations, 1)))):
        tree = _parse(text, source, reporter, broken)
        if not isinstance(tree, str):
            return sorted([*TreeReader(source).statements(tree), *broken], key=lambda s: s.span.start)
        if tree == text:
            break
        text = tree
    return []


def _has_long_names(source: Source, text: str, reporter: Reporter) -> bool:
    """True if some names are too long to show in a message; they are reported (E115)."""
    found = list(islice(_LONG_NAME.finditer(text), MOST_ERRORS))
    for match in found:
        start, end = match.span(match.lastindex or 0)
        hint = f"names have at most {MOST_LETTERS}"
        reporter.report("E115", f"a name of {end - start} characters", Span(source, start, end), "too long", hint=hint)
    return bool(found)


def _written_as_in_papers(source: Source, text: str, reporter: Reporter) -> bool:
    """True if equations are written as papers print them, which is reported once (E117)."""
    found = as_in_papers(text)
    if not found:
        return False
    (place, what), file = min(found), source.name if source.name.endswith(SUFFIX) else "FILE"
    note = f"there are {len(found)} such places" if found[1:] else ""
    hint = f"`bilinear import {file}` reads formulas as papers print them, and with -o writes them in the language"
    word = _WORD.match(text, place)
    span = Span(source, place, word.end() if word is not None else place + 1)
    reporter.report("E117", "these equations are written as in a paper, not in the language", span, what, note=note, hint=hint)
    return True


def as_in_papers(text: str) -> list[tuple[int, str]]:
    """The places where equations, in a text without comments, are written as papers print them, and how; `bilinear import` reads them.

    There are none if the file writes some of its blocks or products as the language does: then it has a slip, which the parser reports.
    """
    text = skeleton(text)
    found = [(match.start(), "LaTeX") for match in _LATEX.finditer(text)]
    equations = [match for match in _SEGMENT.finditer(text) if "=" in match[0] and first_word(match[0]) not in KEYWORDS]
    if not any(_BLOCK.search(equation[0]) for equation in equations):
        defined = {first_word(equation[0]) for equation in equations}
        names = (match for equation in equations for match in _OTHER_BLOCK.finditer(text, equation.start(), equation.end()))
        found += [(match.start(), "a block of another name than A12 or A[1,2]") for match in names if match[0] not in defined]
    products = [match for equation in equations if (match := _IMPLIED.search(text, equation.start(), equation.end()))]
    if len(products) > 1:
        found += [(match.start(match.lastindex or 0), "a product without *") for match in products]
    return found


def _without_assignments(source: Source, text: str, reporter: Reporter) -> str:
    """The text with each `:=` as it is meant, = or the : of a row, so that nothing else is said of it; they are reported (E112)."""
    masked = _QUOTED.sub(lambda m: " " * len(m[0]), text)
    found = [match for match in _SEGMENT.finditer(masked) if ":=" in match[0]] if ":=" in masked else []
    if not found:
        return text
    before, _, rest = found[0][0].partition(":=")
    place, name = found[0].start() + len(before), _LAST_NAME.search(before[-MOST_LETTERS:])
    sign = ":" if "|" in rest else "="
    hint = f"write {sign} alone" + (f": {name[1]}{':' if sign == ':' else ' ='} ..." if name is not None else "")
    note = f"there are {len(found)} of them" if len(found) > 1 else ""
    reporter.report("E112", "':=' is not part of the language", Span(source, place, place + 2), "not expected", note=note, hint=hint)
    pieces, last = [], 0
    for match in found:
        pieces += [text[last : match.start()], text[match.start() : match.end()].replace(":=", ": " if "|" in match[0] else " =")]
        last = match.end()
    return "".join([*pieces, text[last:]])


def _parse(text: str, source: Source, reporter: Reporter, broken: list[Broken]) -> Tree[Token] | str:
    """The tree of a text; if it does not parse, the text with the offending statement blanked out."""
    from lark.exceptions import UnexpectedInput

    try:
        return _parser().parse(text)
    except UnexpectedInput as error:
        found = syntax_error(source, text, _offset(error, text), _accepted(error))
    reporter.found.append(found.diagnostic)
    statement, start, end = broken_statement(source, text, found.offset, found.opening)
    broken.append(statement)
    return text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]


def _offset(error: UnexpectedInput, text: str) -> int:
    token = getattr(error, "token", None)
    if token is not None and token.type == "$END":
        return len(text)
    return error.pos_in_stream if error.pos_in_stream is not None else len(text)


def _accepted(error: UnexpectedInput) -> frozenset[str]:
    """The terminals that the parser would have accepted."""
    return frozenset(error.interactive_parser.accepts())  # type: ignore[no-untyped-call]


def without_comments(text: str) -> str:
    """The text with comments and a byte order mark blanked, and with plain signs outside quotes, so that all offsets stay valid."""
    if text.startswith("\ufeff"):
        text = " " + text[1:]
    text = _COMMENT.sub(lambda m: m[0] if m[0][0] == '"' else " " * len(m[0]), text)
    return text if text.isascii() else _OUTSIDE_QUOTES.sub(lambda m: m[0] if m[0][0] == '"' else with_plain_signs(m[0]), text)


@cache
def _parser() -> Lark:
    from lark import Lark

    grammar = Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer="contextual", maybe_placeholders=True)
