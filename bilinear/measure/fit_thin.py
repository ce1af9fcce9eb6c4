"""Fit the rates of the thin kernel to measured points.

It moves one rate after the other by smaller and smaller steps as long as the mean of |log(predicted / measured)| falls. A point that is far
off counts at most as a factor of e.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf, log
from statistics import fmean
from typing import NamedTuple, TypeVar

from bilinear.ir.element import ELEMENTS
from bilinear.ir.thin_tile import THIN_TILES
from bilinear.methods.thin.times import View, thin_seconds
from bilinear.planner.device import Device
from bilinear.planner.thin_rates import ThinRates, ThinTileRates

STEPS = (1.3, 1.3, 1.15, 1.1, 1.07, 1.04)
SHARED = ("launch", "latency", "adding", "again", "copies", "torn", "gathering")
OWN = ("along", "across", "arithmetic", "short_along", "short_across")
MOST_SHARE = 1.2
MOST_MOVED, MOST_MOVED_OWN = 8.0, 1.25
"""How far a rate that all tiles share, and one of a tile's own, may move. Few points tell of each tile: on an H100, rates that moved
further predicted other products worse than those that they began with."""
R = TypeVar("R", ThinRates, ThinTileRates)


class ThinPoint(NamedTuple):
    """A measurement: a tile and parts of sums on a product, and microseconds."""

    tile: str
    view: View
    parts: int
    us: float


def off(device: Device, rates: ThinRates, known: list[ThinPoint], dtype: str) -> list[float]:
    """|log(predicted / measured)| of each point."""
    own, element = {tile.name: tile for tile in rates.tiles}, ELEMENTS[dtype]
    tiles = THIN_TILES[dtype]
    seconds = (thin_seconds(own[p.tile], tiles[p.tile], p.view, p.parts, element, device, rates) for p in known)
    return [min(1.0, abs(log(predicted * 1e6 / p.us))) for predicted, p in zip(seconds, known, strict=True)]


def fit(device: Device, rates: ThinRates, known: list[ThinPoint], dtype: str, shared: Sequence[str] = SHARED) -> ThinRates:
    """The rates that predict the points best, none of them much larger or smaller than before.

    Of the rates that all tiles share, those named are fitted. Only tiles with points change.
    """
    start = rates
    of_tile = {tile.name: [p for p in known if p.tile == tile.name] for tile in rates.tiles}
    for step in STEPS:
        for factor in (step, 1 / step):
            for name in shared:
                while (
                    known
                    and (changed := _moved(rates, start, name, factor, MOST_MOVED))
                    and _is_better(changed, rates, known, device, dtype)
                ):
                    rates = changed
            for i, first in enumerate(start.tiles):
                for name in OWN:
                    while some := of_tile[first.name]:
                        tile = _moved(rates.tiles[i], first, name, factor, MOST_MOVED_OWN, MOST_SHARE)
                        if tile is None:
                            break
                        other = replace(rates, tiles=(*rates.tiles[:i], tile, *rates.tiles[i + 1 :]))
                        if not _is_better(other, rates, some, device, dtype):
                            break
                        rates = other
    return rates


def _moved(rates: R, start: R, name: str, factor: float, moved: float, most: float = inf) -> R | None:
    """The rates with one of them multiplied, to four digits; None if it is too far from its initial value."""
    value = float(f"{min(most, getattr(rates, name) * factor):.4g}")
    near = getattr(start, name) / moved <= value <= getattr(start, name) * moved
    return replace(rates, **{name: value}) if near else None  # type: ignore[arg-type]  # a field of this name


def _is_better(changed: ThinRates, than: ThinRates, some: list[ThinPoint], device: Device, dtype: str) -> bool:
    return fmean(off(device, changed, some, dtype)) < fmean(off(device, than, some, dtype)) - 1e-6
