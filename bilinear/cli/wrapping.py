"""Wrap long lines of prose on a terminal, indented, so that the terminal does not break words."""

from __future__ import annotations

import re
from shutil import get_terminal_size
from textwrap import wrap
from typing import TextIO

LEAST_COLUMNS = 40
"""Nothing is made narrower than this."""
INDENT = 2
"""The additional indentation of continued lines."""
_AS_IS = re.compile(r"\s*[0-9]* *\|")
"""Lines of a source with their carets, and rows of a table in Markdown."""
_COMMAND = re.compile(r"`[^`\n]*`")
_HELD = "\N{NO-BREAK SPACE}"


def columns_of(stream: TextIO) -> int | None:
    """The width of a terminal; None if the stream goes elsewhere."""
    if stream.isatty():
        return max(LEAST_COLUMNS, get_terminal_size().columns)
    return None


def wrapped(text: str, columns: int | None) -> str:
    """The text with lines of at most this many characters; None: unchanged.

    Words stay whole even if they are longer, and so do commands in backticks that fit a line, so that they can be copied.
    """
    if columns is None:
        return text
    return "\n".join(part for line in text.split("\n") for part in _parts(line, columns))


def _parts(line: str, columns: int) -> list[str]:
    if len(line) <= columns or _AS_IS.match(line) is not None or _HELD in line:
        return [line]
    margin = len(line) - len(line.lstrip())
    further = " " * min(margin + INDENT, columns // 2)
    room = columns - len(further)
    held = _COMMAND.sub(lambda m: m[0].replace(" ", _HELD) if len(m[0]) <= room else m[0], line)
    found = wrap(held, columns, subsequent_indent=further, break_long_words=False, break_on_hyphens=False)
    return [part.replace(_HELD, " ") for part in found]
