"""Standard output and error: characters that they cannot encode are escaped, and their failures become exit codes."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from signal import SIGINT, SIGPIPE
from typing import TextIO

from bilinear.cli.terminal import allows_colour, coloured, columns_of, wrapped

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
