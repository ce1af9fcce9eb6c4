"""Text from outside, such as a citation, a file's name or a device's, as text that stays on its line and shows all that it holds."""

from __future__ import annotations

import re
from collections.abc import Iterable

MOST = 10_000
"""Characters of a line that is printed."""
WIDEST = 10
"""Characters of the longest escape."""
_BLANK = "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef"
"""Characters that Python calls printable and that no font shows."""
_UNSEEN = re.compile(f"[{_BLANK}]")


def visible(text: str, most: int = MOST) -> str:
    r"""A text in which every character can be seen, on one line, cut after `most` characters.

    What cannot be seen is written as Python's `repr` writes it (`\n`, `\x1b`, `\u202e`): control characters, line and paragraph separators,
    marks of direction, characters without width, halves of surrogate pairs, and what Unicode does not assign. A backslash stays, so a text
    that is visible already comes back as it is.
    """
    if text.isascii() and text.isprintable() and len(text) <= most:
        return text
    shown = "".join(c if c.isprintable() and not _UNSEEN.match(c) else _escaped(c) for c in text[: most + 1])
    return f"{shown[:most]}..." if len(shown) > most else shown


def visible_lines(lines: Iterable[str]) -> str:
    """Lines for readers, each visible and on a line of its own."""
    return "\n".join(map(visible, lines))


def _escaped(character: str) -> str:
    """As `repr` writes it, also where `repr` would not."""
    code = ord(character)
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character)
    return named or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
