"""Time in which a process could run, but others had the processors. Limits do not count it, so that a busy machine makes no findings."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

MOST_TIMES = 30  # How many times its limit a process may take on a busy machine.


def held_up(pid: int) -> float:
    """The seconds that the thread of a process that had to wait longest has waited for a processor; 0 where the system does not say."""
    longest = 0
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError, ValueError, IndexError):
                longest = max(longest, int((thread / "schedstat").read_text().split()[1]))
    return longest / 1e9


def is_over(seconds: float, held: float, limit: float) -> bool:
    """Whether a process has had its time after so many seconds, of which others have `held` it up for some."""
    return seconds > limit and (seconds - held > limit or seconds > MOST_TIMES * limit)
