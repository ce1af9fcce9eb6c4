"""After a syntax error: its diagnostic, and the text that belongs to the broken statement."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches

from bilinear.errors import Diagnostic
from bilinear.frontend.messages import MESSAGES, Message
from bilinear.frontend.reporter import first_word, shown
from bilinear.frontend.syntax import Broken
from bilinear.source import Source, Span

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


def line_start(text: str, offset: int) -> int:
    """The start of the line that contains an offset."""
    return text.rfind("\n", 0, offset) + 1


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
    start = line_start(text, offset)
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
    """The broken statement around an offset, and the range of text to blank.

    `opening` says that the offset is a `{` without a `}`: its whole stage is dropped.
    """
    marked = skeleton(text)
    start, end = _stage_range(marked, offset) if opening else _range(marked, offset)
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


def _stage_range(text: str, offset: int) -> tuple[int, int]:
    """The range of a stage without a `}`: up to the next line that begins a statement."""
    following = re.compile(r"\n[ \t]*(?:scheme|schedule|digits|source|restore|stage|basis)\b").search(text, offset)
    return statement_start(text, offset), following.start() if following is not None else len(text)


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
    diagnostic, meant_here = _diagnostic(message, source, offset, end), meant_within(text, offset, accepted)
    if meant_here is not None:
        diagnostic = replace(diagnostic, hints=(f"did you mean {meant_here}?", *diagnostic.hints))
    return SyntaxFinding(diagnostic, min(offset, max(0, len(text) - 1)))


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
