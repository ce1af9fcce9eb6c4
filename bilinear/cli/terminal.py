"""Text on a terminal: long lines are wrapped at words, and errors, hints and the verdict of a proof are coloured."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from io import TextIOWrapper
from shutil import get_terminal_size
from signal import SIGINT, SIGPIPE
from textwrap import wrap
from typing import TextIO

FAILED = 1
"""The exit code for user errors."""
INTERRUPTED, UNREAD = 128 + SIGINT, 128 + SIGPIPE
"""The exit codes after Ctrl-C and after a closed output pipe: those of a program killed by the signal."""


def prepare_streams() -> bool:
    """Make both streams escape characters that they cannot encode; returns whether there is a standard output."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - it lives as long as the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    return sys.stdout is not None


def tell(*texts: str) -> None:
    """Print to standard error, if it can be written."""
    with suppress(OSError):
        for text in (wrapped(text, columns_of(sys.stderr)) for text in texts):
            print(coloured(text) if allows_colour(sys.stderr) else text, file=sys.stderr, flush=True)


def written_out() -> int:
    """Flush standard output; returns the exit code if that fails."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _abandon(sys.stdout)
        return UNREAD
    except OSError as error:
        _abandon(sys.stdout)
        tell(f"error: standard output cannot be written: {error.strerror}")
        return FAILED
    finally:
        try:
            sys.stderr.flush()
        except OSError:
            _abandon(sys.stderr)
    return 0


def _abandon(stream: TextIO) -> None:
    """Discard the buffered output, so that the interpreter does not fail again at exit."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


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
