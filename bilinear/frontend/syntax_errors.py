"""The diagnostics for a place where the parser could not continue."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bilinear.errors import Diagnostic
from bilinear.frontend.messages import MESSAGES, Message
from bilinear.frontend.recover import KEYWORDS, keyword_of, line_start, skeleton, statement_start, unclosed_brace
from bilinear.frontend.reporter import first_word, shown
from bilinear.source import Source, Span


@dataclass(frozen=True)
class SyntaxFinding:
    """A syntax error: its diagnostic, where recovery starts, and whether that is a `{` without a `}`."""

    diagnostic: Diagnostic
    offset: int
    opening: bool = False


def syntax_error(source: Source, text: str, offset: int, accepted: frozenset[str]) -> SyntaxFinding:
    """The diagnostic for the text at an offset where only the accepted terminals are allowed."""
    marked = skeleton(text)
    opened = unclosed_brace(marked, offset)
    line = line_start(marked, offset)
    keyword = first_word(marked[line : line + 200]) in KEYWORDS
    if opened is not None and (not marked[offset:].strip() or (keyword and opened < line)):
        return SyntaxFinding(_diagnostic(_pick(accepted, "unclosed brace", ""), source, opened, opened + 1), opened, True)
    starts = "SCHEME" in accepted or {"RBRACE", "NAME"} <= accepted
    before = marked[:offset].rstrip()
    dangling = marked[:line].rstrip()
    if not starts and dangling[-1:] in tuple("+-*=,") and _begins_statement(marked, line):
        place = len(dangling) - 1
        return SyntaxFinding(_diagnostic(_pick(accepted, "operator before a statement", ""), source, place, place + 1), place)
    at_end = (not starts and "\n" in marked[len(before) : offset]) or not marked[offset:].strip()
    if at_end:
        offset = len(before)
    return _finding(source, marked, offset, accepted | {"START"} if starts else accepted, at_end)


def _finding(source: Source, text: str, offset: int, accepted: frozenset[str], at_end: bool) -> SyntaxFinding:
    group = text.rfind("(", 0, offset)
    head = first_word(text[statement_start(text, offset) :][:200])
    grouped = text.find(")", max(group, 0), offset) < 0 <= group >= statement_start(text, offset)
    message = _pick(accepted, "end" if at_end else _kind(text, offset), "group" if grouped else head)
    if message.code == "E109":
        return SyntaxFinding(_diagnostic(message, source, group, group + 1), group)
    if message.code == "E111" and (meant := keyword_of(text[statement_start(text, offset) :][:200])) != head:
        start = text.index(head, statement_start(text, offset))
        place = Span(source, start, start + len(head))
        what = f"no statement begins with {shown(head)}"
        return SyntaxFinding(Diagnostic("E111", what, place, "no keyword", hints=(f"did you mean {meant}?",)), start)
    word = re.compile(r'[A-Za-z0-9_]+|"[^"\n]*"?|.', re.DOTALL).match(text, offset)
    end = offset if at_end or word is None else word.end()
    return SyntaxFinding(_diagnostic(message, source, offset, end), min(offset, max(0, len(text) - 1)))


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
