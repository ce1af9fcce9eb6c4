"""Named: the algorithm that a multiply is asked for by name, path or composition, as it is when the call is made."""

from __future__ import annotations

from bilinear.backends.newest import keep
from bilinear.frontend import Loaded, load
from bilinear.frontend.files import Looks

MOST_NAMED = 64
"""Algorithms that are kept; the oldest goes first."""

_named: dict[str, tuple[Looks, Loaded]] = {}


def algorithm_as_it_is(asked: str) -> Loaded:
    """What `load` gives; the same object as long as every file that it was made of, and every name on the way to one, is what it was.

    The files of users are read at every call and compared, byte by byte; what is shipped is read once. Raises `BilinearError`.
    """
    known = _named.get(asked)
    if known is not None and known[0].still_hold():
        return known[1]
    looks = Looks()
    loaded = load(asked, looks)
    if looks.can_be_kept:
        keep(_named, asked, (looks, loaded), MOST_NAMED)
    return loaded
