"""Processes that were started with some word in their environment, however they are related by now."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

MARK = "SOAK_MARK"
"""The variable that holds the word; a child inherits it, and keeps it where its parent dies."""


def marked(word: str) -> list[int]:
    """The processes that live, other than this one, and were started with this word."""
    wanted, found = f"{MARK}={word}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (folder / "environ").read_bytes().split(b"\0")
            state = (folder / "stat").read_bytes().rpartition(b")")[2].split()[0]
            if wanted in words and state not in (b"Z", b"X") and int(folder.name) != os.getpid():
                found.append(int(folder.name))
    return found


def kill_marked(word: str) -> list[int]:
    """Kill them, and what they start meanwhile; says which they were."""
    killed: list[int] = []
    while living := [pid for pid in marked(word) if pid not in killed]:
        for pid in living:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed += living
    return killed
