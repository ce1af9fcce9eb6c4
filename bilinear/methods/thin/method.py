"""The method: tiles of our own kernels for products with a short extent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import ceil
from typing import TYPE_CHECKING

from bilinear.errors import fail
from bilinear.ir.element import ELEMENTS
from bilinear.ir.matrix import Layout
from bilinear.ir.thin_tile import THIN_TILES, AnyThinTile
from bilinear.methods.thin.choice import Thin, View, suits, thin_seconds, units_in_hand, view_of
from bilinear.planner.device import LONG_SUM, Device
from bilinear.planner.library import is_thin
from bilinear.planner.plan import Candidate
from bilinear.planner.problem import Problem

if TYPE_CHECKING:  # launches are imported with the first call on a GPU
    from bilinear.ir.launch import AnyKernel
    from bilinear.methods.thin.launches import ThinMultiply

WAVES = (1, 2, 4)
"""Sums are split so that the units, each a tile and a part, fill the device this many times."""
MOST_TIMED = 8
"""Tiles that are timed in a search."""


class ThinProducts:
    """The method: tiles of our own kernels for products with a short extent."""

    choice = Thin
    products: tuple[str, ...] = ()
    most_weighed: int | None = 1
    most_timed: int | None = MOST_TIMED

    def products_of(self, dtype: str) -> tuple[str, ...]:
        """None is asked for by a name."""
        return ()

    def named(self, problem: Problem, device: Device, levels: tuple[str, ...], products: str, budget: int) -> Candidate:
        """Refused (E543): tiles have no names below levels."""
        raise fail("E543", f"there are no products {products!r}", "leave products= out")

    def candidates(self, problem: Problem, device: Device, budget: int, most_ms: float) -> Iterator[Candidate]:
        """See `thin_candidates`."""
        return thin_candidates(problem, device)

    def kernels(self, choice: Thin, a: Layout, b: Layout, c: Layout, has_warpgroups: bool = True) -> Iterable[AnyKernel]:
        """See `kernels_of`."""
        from bilinear.methods.thin.launches import kernels_of

        return kernels_of(a, b, c, choice)

    def bind(self, choice: Thin, a: Layout, b: Layout, c: Layout) -> ThinMultiply | None:
        """See `thin_multiply_of`."""
        from bilinear.methods.thin.launches import thin_multiply_of

        return thin_multiply_of(a, b, c, choice)


def thin_candidates(problem: Problem, device: Device) -> Iterator[Candidate]:
    """Every tile that suits a thin problem, its sums whole and split."""
    rates = device.thin_rates(problem.dtype)
    if rates is None or not is_thin(problem):
        return
    element = ELEMENTS[problem.dtype]
    for own in rates.tiles:
        tile = THIN_TILES[problem.dtype][own.name]
        view = view_of(problem, tile)
        if not suits(tile, view, element, device.shared):
            continue
        for parts in _parts(tile, view, device.processors * units_in_hand(tile, view, element, device.shared)):
            if not tile.holds(view.k, view.n, parts):
                continue
            workspace = parts * view.m * view.n * element.bytes if parts > 1 else 0
            ms = thin_seconds(own, tile, view, parts, element, device, rates, problem.accumulate) * 1e3
            yield Candidate(Thin(tile.name, parts, view.swaps), ms, workspace)


def _parts(tile: AnyThinTile, view: View, slots: int) -> Iterator[int]:
    """In how many parts to split sums, each of whole slices of the tile, for a device that holds so many blocks of threads."""
    tiles = ceil(view.m / tile.m) * ceil(view.n / tile.n)
    wanted = [1]
    if view.k > LONG_SUM:
        wanted += [max(1, min(ceil(view.k / tile.k), waves * slots // tiles)) for waves in WAVES]
    yield from dict.fromkeys(ceil(view.k / (ceil(ceil(view.k / parts) / tile.k) * tile.k)) for parts in wanted)


THIN = ThinProducts()
