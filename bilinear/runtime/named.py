"""Load the algorithm that a multiply names, and load it again if its files have changed."""

from __future__ import annotations

from bilinear.backends.newest import keep
from bilinear.frontend import Loaded, load_any
from bilinear.frontend.algorithms import AnyLoaded, of_blocks
from bilinear.frontend.files import Looks

MOST_NAMED = 64
"""The most algorithms that are kept; the oldest is dropped."""

_named: dict[str, tuple[Looks, AnyLoaded]] = {}


def algorithm_as_it_is(asked: str) -> Loaded:
    """The algorithm that `load` returns: the same object until one of its files changes, or a name leads to another file.

    Every call reads the users' files and compares them byte by byte. Shipped files are read once. Raises `BilinearError`.
    """
    return of_blocks(any_as_it_is(asked))


def any_as_it_is(asked: str) -> AnyLoaded:
    """The same for what `load_any` returns."""
    known = _named.get(asked)
    if known is not None and known[0].still_hold():
        return known[1]
    looks = Looks()
    loaded = load_any(asked, looks)
    if looks.can_be_kept:
        keep(_named, asked, (looks, loaded), MOST_NAMED)
    return loaded
