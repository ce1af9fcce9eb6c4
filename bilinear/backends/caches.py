"""Parts of caches: a bound on their size, and keys that compare objects by identity."""

from __future__ import annotations

from typing import Generic, TypeVar

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


Thing_co = TypeVar("Thing_co", covariant=True)


class Same(Generic[Thing_co]):
    """An object as a key that equals only itself: hashing a schedule or a plan at every call would cost more than the launches."""

    __slots__ = ("what",)

    def __init__(self, what: Thing_co) -> None:
        self.what = what

    def __hash__(self) -> int:
        return id(self.what)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.what is other.what
