"""Make text from outside, such as a citation or a file name, visible: on one line, with every character shown."""

from __future__ import annotations

import re
from collections.abc import Iterable

MOST = 10_000  # The most characters of a printed line.
WIDEST = 10  # The length of the longest escape.
_BLANK = "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef"
"""Characters that Python calls printable but that no font shows."""
_UNSEEN = re.compile(f"[{_BLANK}]")


def visible(text: str, most: int = MOST) -> str:
    r"""A text on one line in which every character can be seen, cut after `most` characters.

    Invisible characters are written as Python's `repr` writes them (`\n`, `\x1b`, `\u202e`): control characters, line and paragraph
    separators, direction marks, zero-width characters, halves of surrogate pairs, and unassigned code points. A backslash stays, so a text
    that is already visible is unchanged.
    """
    if text.isascii() and text.isprintable() and len(text) <= most:
        return text
    shown = "".join(c if c.isprintable() and not _UNSEEN.match(c) else _escaped(c) for c in text[: most + 1])
    return f"{shown[:most]}..." if len(shown) > most else shown


def visible_lines(lines: Iterable[str]) -> str:
    """Lines for readers: each is visible and stays on one line."""
    return "\n".join(map(visible, lines))


def _escaped(character: str) -> str:
    """The escape in the style of `repr`, even if `repr` would not escape."""
    code = ord(character)
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character)
    return named or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
