"""Parse text to statements: the LALR parser, its tree as statements, and recovery that reports several syntax errors in one run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, cast

from bilinear.errors import Diagnostic
from bilinear.frontend.files import SUFFIX
from bilinear.frontend.messages import MESSAGES, Message, Reporter, first_word, shown
from bilinear.frontend.syntax import (
    BasisStatement,
    Broken,
    Citation,
    CompositionStatement,
    DigitsHeader,
    Expression,
    OperatorChain,
    Plain,
    ScheduleHeader,
    SchemeHeader,
    StageStatement,
    Statement,
    SymmetryCall,
    TableRow,
    Term,
    TermFactor,
    Update,
    Word,
)
from bilinear.reading import with_plain_signs
from bilinear.source import Source, Span

if TYPE_CHECKING:
    from lark import Lark, Token, Tree

    Child = Tree[Token] | Token | None


MOST_ERRORS = 20  # The most syntax errors reported in one run.
MOST_EQUATION_TEXT = 300_000  # Characters of a file's equations and schedules; tables are read faster.
MOST_ROWS = 30_000  # The most rows of tables in a file.
MOST_LETTERS = 200  # The most characters of a name.
MOST_REPARSED = 100_000  # The most characters of equations that recovery may read again: it bounds its time.

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
        accepted = frozenset(error.interactive_parser.accepts())  # type: ignore[no-untyped-call]
        place = None if getattr(getattr(error, "token", None), "type", "") == "$END" else error.pos_in_stream
        diagnostic, offset, opening = syntax_error(source, text, len(text) if place is None else place, accepted)
    reporter.found.append(diagnostic)
    statement, start, end = broken_statement(source, text, offset, opening)
    broken.append(statement)
    return text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]


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


MOST_NESTED = 50  # The deepest nesting of parentheses in an expression.
NESTED = "("  # The text of the word that replaces deeper nesting.


@dataclass
class TreeReader:
    """Reads the tree of one source; children are in the order of the grammar's rule."""

    source: Source

    def statements(self, tree: Tree[Token]) -> list[Statement]:
        """The statements of a whole text, in order."""
        return [self._statement(cast("Tree[Token]", child)) for child in tree.children]

    def _statement(self, tree: Tree[Token]) -> Statement:
        children = cast("list[Child]", tree.children)
        if tree.data == "update":
            return self._update(children)
        if tree.data == "row":
            label = self._word(children[0])
            name = label.text[:-1].rstrip()
            place = Word(name, Span(self.source, label.span.start, label.span.start + len(name)))
            cells = self._word(children[1]) if children[1] is not None else None
            return TableRow(place, cells, self._span(label, cells or label))
        if tree.data in ("stage", "basis", "citation"):
            first, second = self._word(children[0]) if children[0] is not None else None, self._word(children[1])
            span = self._span(first or second, second)
            if tree.data == "citation":
                return Citation(_unescaped(second.text[1:-1]), span)
            steps = tuple(self._update(cast("Tree[Token]", child).children) for child in children[3:-1])
            return BasisStatement(second, steps, span) if tree.data == "basis" else StageStatement(first is not None, steps, span)
        if tree.data == "composition":
            keyword, title, format_, ring = (self._word(child) if child is not None else None for child in children[:4])
            value = self._expression(children[5], MOST_NESTED)
            return CompositionStatement(_sure(title), format_, ring, value, Span(self.source, _sure(keyword).span.start, value.span.end))
        words = [self._word(child) if child is not None else None for child in children]
        span = self._span(words[0], next(word for word in reversed(words) if word is not None))
        if tree.data == "scheme":
            return SchemeHeader(_sure(words[1]), _sure(words[2]), words[3], span, words[4])
        header = DigitsHeader if tree.data == "digits" else ScheduleHeader
        return header(_sure(words[1]), _sure(words[3]), words[4], span)

    def _expression(self, child: Child, depth: int) -> Expression:
        """An expression; text nested deeper than `depth` becomes one word, which names nothing."""
        tree = cast("Tree[Token]", child)
        kind = getattr(tree, "data", None)
        if kind is None:
            return self._word(child)
        children = cast("list[Child]", tree.children)
        if kind in ("call", "enclosed"):
            function = self._word(children[0])
            span = Span(self.source, function.span.start, self._word(children[-1]).span.end)
            if depth == 0:
                return Word(NESTED, span)
            value = self._expression(children[-2], depth - 1)
            return SymmetryCall(function, value, span) if kind == "call" else value
        if len(children) == 1:
            return self._expression(children[0], depth)
        parts = [self._expression(part, depth) for part in children[::2]]
        rest = tuple(zip(map(self._word, children[1::2]), parts[1:], strict=True))
        return OperatorChain(parts[0], rest, Span(self.source, parts[0].span.start, parts[-1].span.end))

    def _word(self, child: Child) -> Word:
        token = cast("Token", child)
        text = token.value.rstrip()
        start = cast(int, token.start_pos)
        return Word(text, Span(self.source, start, start + len(text)))

    def _span(self, first: Word | None, last: Word | None) -> Span:
        return Span(self.source, _sure(first).span.start, _sure(last).span.end)

    def _update(self, children: Sequence[Child]) -> Update:
        targets = tuple(self._plain(cast("Tree[Token]", child).children) for child in cast("Tree[Token]", children[0]).children)
        terms = self._sum(cast("Tree[Token]", children[2]).children)
        span = Span(self.source, targets[0].span.start, terms[-1].span.end)
        return Update(targets, self._word(children[1]), terms, span)

    def _sum(self, children: Sequence[Child]) -> tuple[Term, ...]:
        return tuple(self._term(sign, cast("Tree[Token]", tree).children) for sign, tree in zip(children[::2], children[1::2], strict=True))

    def _term(self, sign: Child, children: Sequence[Child]) -> Term:
        number = self._word(children[0]) if children[0] is not None else None
        factors = tuple(self._factor(child) for child in children[1:] if child is not None)
        start = number.span.start if number is not None else factors[0].span.start
        return Term(_sign(sign), number, factors, Span(self.source, start, factors[-1].span.end))

    def _factor(self, child: Child) -> TermFactor:
        group = cast("Tree[Token]", child)
        if getattr(group, "data", None) != "group":
            plain = self._plain((None, None, child))
            return TermFactor((plain,), plain.span)
        children = cast("list[Child]", group.children)
        pairs = zip(children[1:-1:2], children[2:-1:2], strict=True)
        terms = tuple(self._plain((sign, *cast("Tree[Token]", tree).children)) for sign, tree in pairs)
        return TermFactor(terms, self._span(self._word(children[0]), self._word(children[-1])))

    def _plain(self, children: Sequence[Child]) -> Plain:
        sign, number, name = children
        first = next(child for child in children if child is not None)
        coefficient = self._word(number) if number is not None else None
        word = self._word(name)
        return Plain(_sign(sign), coefficient, word, self._span(self._word(first), word))


_ESCAPE = re.compile(r"\\(x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|.)")
_NAMED = {"n": "\n", "r": "\r", "t": "\t"}


def _sign(child: Child) -> int:
    return -1 if child is not None and cast("Token", child).value == "-" else 1


def _sure(word: Word | None) -> Word:
    assert word is not None, "the grammar requires this word"
    return word


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda m: chr(int(m[1][1:], 16)) if m[1][1:] else _NAMED.get(m[1], m[1]), text)


WHOLE_LINE = frozenset({"scheme", "schedule", "digits", "source"})
KEYWORDS = WHOLE_LINE | {"stage", "restore", "basis"}
WITHIN = {"OF": ("of",), "RING": ("over",), "STAGE": ("stage",), "PLUS": ("rotate", "transpose")}
"""Words that belong inside of statements, by what the parser accepts in their place, or behind another word in their place."""

_OPERATOR = re.compile(r"\([ \t]*(?:x|\+[ \t]*[mkn])[ \t]*\)")
_STRING = re.compile(r'"(?:\\["\\nrtxuU]|[^"\\\n])*"')
_CLOSED = re.compile(r"\{[^{}]*\}")
_BRACE = re.compile(r"[{}]")


def skeleton(text: str) -> str:
    """The text with strings and operators such as (x) masked, so that their content is ignored."""
    plain = _STRING.sub(lambda m: '"' + "x" * (len(m[0]) - 2) + '"', text)
    return _OPERATOR.sub(lambda m: "x" * len(m[0]), plain)


def unclosed_brace(text: str, offset: int) -> int | None:
    """The place of the innermost `{` before an offset that has no `}` yet."""
    opened: list[int] = []
    for match in _BRACE.finditer(text, 0, offset):
        if match[0] == "{":
            opened.append(match.start())
        elif opened:
            opened.pop()
    return opened[-1] if opened else None


def statement_start(text: str, offset: int) -> int:
    """The start of the statement around an offset: after a separator or `{`, or at its line if `;` is part of the statement."""
    start = text.rfind("\n", 0, offset) + 1
    if first_word(text[start:offset]) in WHOLE_LINE:
        return start
    line = _CLOSED.sub(lambda m: "x" * len(m[0]), text[start:offset])
    return start + max(line.rfind(mark) + 1 for mark in ";{")


def keyword_of(text: str) -> str:
    """The keyword with which a statement begins, or the one that its first word was meant to be: `schedul foo` begins a schedule."""
    word = first_word(text)
    if word in KEYWORDS or re.match(r"\s*[A-Za-z]+[ \t]+[A-Za-z_{\"]", text) is None:
        return word
    return near(word, KEYWORDS) or word


def near(word: str, words: Iterable[str]) -> str | None:
    """The one of these words that another one was meant to be, whatever its case."""
    return next(iter(get_close_matches(word.lower(), sorted(words), n=1, cutoff=0.75)), None)


def meant_within(text: str, offset: int, accepted: frozenset[str]) -> str | None:
    """The word that the one at an offset, or just before it, was meant to be: `off` for `of`."""
    found = re.compile(r"[A-Za-z]+").match(text, offset) or re.search(r"[A-Za-z]+(?=[ \t]*\Z)", text[:offset])
    words = [word for name in accepted for word in WITHIN.get(name, ())]
    return None if found is None or found[0] in words else near(found[0], words)


def broken_statement(source: Source, text: str, offset: int, opening: bool) -> tuple[Broken, int, int]:
    """The broken statement around an offset, and what to blank: after an `opening`, a `{` without a `}`, its whole stage."""
    marked = skeleton(text)
    start, end = _range(marked, offset)
    if opening:
        following = re.compile(r"\n[ \t]*(?:scheme|schedule|digits|source|restore|stage|basis)\b").search(marked, offset)
        start, end = statement_start(marked, offset), following.start() if following is not None else len(marked)
    while start < end and marked[start].isspace():
        start += 1
    word = keyword_of(text[start : start + 200])
    return Broken(word, word in ("scheme", "schedule", "digits"), Span(source, start, end)), start, end


def _range(text: str, offset: int) -> tuple[int, int]:
    start = statement_start(text, offset)
    word = keyword_of(text[start : start + 200])
    if word in ("stage", "restore", "basis"):
        return start, _stage_end(text, offset)
    stops = "\n" if word in WHOLE_LINE else "\n;}"
    ends = [place for mark in stops if (place := text.find(mark, offset)) >= 0]
    end = min(ends, default=len(text))
    if not text[start:end].strip():
        return offset, offset + 1
    return start, end


def _stage_end(text: str, offset: int) -> int:
    """The end of a stage whose keywords are wrong: its `}`, unless another statement begins before."""
    close = text.find("}", offset)
    following = re.compile(r"\n\s*(?:scheme|schedule|digits|source|restore|stage|basis)\b").search(text, offset)
    if close >= 0 and (following is None or close < following.start()):
        return close + 1
    stop = text.find("\n", offset)
    return stop if stop >= 0 else len(text)


Finding = tuple[Diagnostic, int, bool]  # A syntax error, where recovery starts, if it is a `{` without `}`.


def syntax_error(source: Source, text: str, offset: int, accepted: frozenset[str]) -> Finding:
    """The diagnostic for the text at an offset where only the accepted terminals are allowed."""
    marked = skeleton(text)
    opened = unclosed_brace(marked, offset)
    line = marked.rfind("\n", 0, offset) + 1
    keyword = first_word(marked[line : line + 200]) in KEYWORDS
    if opened is not None and (not marked[offset:].strip() or (keyword and opened < line)):
        return _diagnostic(_pick(accepted, "unclosed brace", ""), source, opened, opened + 1), opened, True
    starts = "SCHEME" in accepted or {"RBRACE", "NAME"} <= accepted
    before = marked[:offset].rstrip()
    dangling = marked[:line].rstrip()
    if not starts and dangling[-1:] in tuple("+-*=,") and _begins_statement(marked, line):
        place = len(dangling) - 1
        return _diagnostic(_pick(accepted, "operator before a statement", ""), source, place, place + 1), place, False
    at_end = (not starts and "\n" in marked[len(before) : offset]) or not marked[offset:].strip()
    if at_end:
        offset = len(before)
    return _finding(source, marked, offset, accepted | {"START"} if starts else accepted, at_end)


def _finding(source: Source, text: str, offset: int, accepted: frozenset[str], at_end: bool) -> Finding:
    group = text.rfind("(", 0, offset)
    head = first_word(text[statement_start(text, offset) :][:200])
    grouped = text.find(")", max(group, 0), offset) < 0 <= group >= statement_start(text, offset)
    message = _pick(accepted, "end" if at_end else _kind(text, offset), "group" if grouped else head)
    if message.code == "E109":
        return _diagnostic(message, source, group, group + 1), group, False
    if message.code == "E111" and (meant := keyword_of(text[statement_start(text, offset) :][:200])) != head:
        start = text.index(head, statement_start(text, offset))
        place = Span(source, start, start + len(head))
        what = f"no statement begins with {shown(head)}"
        return Diagnostic("E111", what, place, "no keyword", hints=(f"did you mean {meant}?",)), start, False
    word = re.compile(r'[A-Za-z0-9_]+|"[^"\n]*"?|.', re.DOTALL).match(text, offset)
    end = offset if at_end or word is None else word.end()
    diagnostic, meant_here = _diagnostic(message, source, offset, end), meant_within(text, offset, accepted)
    if meant_here is not None:
        diagnostic = replace(diagnostic, hints=(f"did you mean {meant_here}?", *diagnostic.hints))
    return diagnostic, min(offset, max(0, len(text) - 1)), False


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
    """True if the line at an offset looks like the start of a statement."""
    words = r"(?:scheme|schedule|digits|source|restore|stage|basis)\b"
    pattern = rf"[ \t]*(?:{words}|[A-Za-z_][A-Za-z0-9_]*(?:\[[^\]\n]*\])?[ \t]*(?:\+=|-=|=|:))"
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
