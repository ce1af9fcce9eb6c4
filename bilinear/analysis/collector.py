"""Pause Python's collector of cycles: while millions of tuples are made, it walks over all objects again and again, and finds no cycle."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def uncollected(function: Callable[P, T]) -> Callable[P, T]:
    """The function with the collector of cycles paused while it runs; the collector goes on afterwards, also after an exception.

    A collector that is off stays off. Objects outside cycles are freed at once, as always.
    """

    @wraps(function)
    def paused(*args: P.args, **kwargs: P.kwargs) -> T:
        if not gc.isenabled():
            return function(*args, **kwargs)
        gc.disable()
        try:
            return function(*args, **kwargs)
        finally:
            gc.enable()

    return paused
