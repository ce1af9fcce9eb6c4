"""A dictionary of bounded size, which keeps the newest values."""

from __future__ import annotations

from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


def keep(kept: dict[Key, Value], key: Key, value: Value, most: int) -> None:
    """Keep a value, and drop the oldest ones so that about `most` remain.

    Threads and signal handlers may call this at any moment. Each step is atomic, so it takes no lock; with one, a signal handler that
    interrupts the holder would wait forever.
    """
    for oldest in list(kept)[: max(0, len(kept) + 1 - most)]:
        kept.pop(oldest, None)
    kept[key] = value
