"""Colour for a reader at a terminal: errors, notes and hints, and the verdict of a proof; nowhere else."""

from __future__ import annotations

import os
import re
from typing import TextIO

BOLD_RED, RED, BLUE, GREEN = "1;31", "31", "34", "32"
_PARTS = (
    (re.compile(r"^((?:\S.*?: )?)(error(?:\[E\d{3}\])?:)", re.MULTILINE), BOLD_RED),
    (re.compile(r"^( +\| *)(\^+.*)$", re.MULTILINE), RED),
    (re.compile(r"^(  )(note:)", re.MULTILINE), BLUE),
    (re.compile(r"^(  )(hint:)", re.MULTILINE), GREEN),
    (re.compile(r"\A([^\n]*: )(proved)$", re.MULTILINE), GREEN),
    (re.compile(r"\A([^\n]*: )(refused|wrong)$", re.MULTILINE), BOLD_RED),
)
"""Patterns whose second group is coloured."""


def allows_colour(stream: TextIO) -> bool:
    """Whether a stream is a terminal with colours whose user has not asked for none (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def coloured(text: str) -> str:
    """The text with escape sequences of a terminal; text of users contains none, because it was made visible before."""
    for pattern, colour in _PARTS:
        text = pattern.sub(rf"\g<1>\033[{colour}m\g<2>\033[0m", text)
    return text
