"""After a syntax error: find the text that belongs to the broken statement."""

from __future__ import annotations

import re
from difflib import get_close_matches

from bilinear.frontend.reporter import first_word
from bilinear.frontend.syntax import Broken
from bilinear.source import Source, Span

WHOLE_LINE = frozenset({"scheme", "schedule", "digits", "source"})
KEYWORDS = WHOLE_LINE | {"stage", "restore", "basis"}

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
    if word in KEYWORDS or re.match(r"\s*[a-z]+[ \t]+[A-Za-z_{]", text) is None:
        return word
    near = get_close_matches(word, sorted(KEYWORDS), n=1, cutoff=0.75)
    return near[0] if near else word


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
