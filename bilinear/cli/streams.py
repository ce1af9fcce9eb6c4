"""Standard output and standard error: what they cannot write is escaped, and what goes wrong with them is an exit code."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from signal import SIGINT, SIGPIPE
from typing import TextIO

FAILED = 1
"""The exit code for what the user can mend."""
INTERRUPTED, UNREAD = 128 + SIGINT, 128 + SIGPIPE
"""The exit codes after Ctrl-C, and where whoever reads the output has gone: those of a program that the signal ends."""


def prepare_streams() -> bool:
    """Let both streams escape what their encoding has no bytes for; whether there is a standard output to write to."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - it lives as long as the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    return sys.stdout is not None


def tell(*texts: str) -> None:
    """Print to standard error, where that can be written."""
    with suppress(OSError):
        print(*texts, sep="\n", file=sys.stderr, flush=True)


def written_out() -> int:
    """Flush standard output; the exit code where that fails."""
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
    """Let what is still to be written go nowhere, so that the interpreter does not fail on it again as it ends."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
