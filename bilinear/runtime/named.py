"""Load the algorithm that a multiply names, and load it again if its files have changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, overload

from bilinear.backends.caches import keep
from bilinear.frontend import Loaded, load
from bilinear.frontend.files import Looks

MOST_NAMED = 64
"""The most algorithms that are kept; the oldest is dropped."""
Found = TypeVar("Found")

_named: dict[tuple[str, Callable[[str, Looks], object]], tuple[Looks, object]] = {}


@overload
def algorithm_as_it_is(asked: str) -> Loaded: ...
@overload
def algorithm_as_it_is(asked: str, read: Callable[[str, Looks], Found]) -> Found: ...
def algorithm_as_it_is(asked: str, read: Callable[[str, Looks], object] = load) -> object:
    """The algorithm that `load`, or another function of the frontend, returns.

    It is the same object until one of its files changes, or a name leads to another file. Every call reads the users' files and compares
    them byte by byte. Shipped files are read once. Raises `BilinearError`.
    """
    known = _named.get((asked, read))
    if known is not None and known[0].still_hold():
        return known[1]
    looks = Looks()
    loaded = read(asked, looks)
    if looks.can_be_kept:
        keep(_named, (asked, read), (looks, loaded), MOST_NAMED)
    return loaded
