"""Kept: values that are found again by a key, the newest of them."""

from __future__ import annotations

from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


def keep(kept: dict[Key, Value], key: Key, value: Value, most: int) -> None:
    """Keep a value, and of all about `most`; the oldest goes first.

    Threads and signal handlers may do the same at any moment. Each step is whole, so that no lock is needed, which a handler would wait
    for in vain where it interrupts its holder.
    """
    for oldest in list(kept)[: max(0, len(kept) + 1 - most)]:
        kept.pop(oldest, None)
    kept[key] = value
