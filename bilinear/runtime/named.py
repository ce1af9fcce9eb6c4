"""Load the algorithm that a multiply names, and load it again if its files have changed."""

from __future__ import annotations

from typing import Literal, overload

from bilinear.backends.caches import keep
from bilinear.frontend import Loaded, load, load_any
from bilinear.frontend.algorithms import AnyLoaded
from bilinear.frontend.files import Looks

MOST_NAMED = 64
"""The most algorithms that are kept; the oldest is dropped."""

_named: dict[tuple[str, bool], tuple[Looks, AnyLoaded]] = {}


@overload
def algorithm_as_it_is(asked: str, of_any_kind: Literal[False] = False) -> Loaded: ...
@overload
def algorithm_as_it_is(asked: str, of_any_kind: Literal[True]) -> AnyLoaded: ...
def algorithm_as_it_is(asked: str, of_any_kind: bool = False) -> AnyLoaded:
    """The algorithm that `load` (`load_any`) returns: the same object until one of its files changes, or a name leads to another file.

    Every call reads the users' files and compares them byte by byte. Shipped files are read once. Raises `BilinearError`.
    """
    known = _named.get((asked, of_any_kind))
    if known is not None and known[0].still_hold():
        return known[1]
    looks = Looks()
    loaded = load_any(asked, looks) if of_any_kind else load(asked, looks)
    if looks.can_be_kept:
        keep(_named, (asked, of_any_kind), (looks, loaded), MOST_NAMED)
    return loaded
