"""Time thin products on the current GPU, the library's calls and tiles of our own kernel, and fit the kernel's rates to the times."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from math import exp, inf, log
from statistics import median
from time import perf_counter
from typing import NamedTuple, TypeVar

import numpy as np

from bilinear.backends.cublas import multiply_of
from bilinear.backends.cublas_lt import proposed
from bilinear.backends.gemm import gemm_of
from bilinear.backends.machine import target_here
from bilinear.backends.timing import Call, queued
from bilinear.codegen.build import build_kernels
from bilinear.ir.element import ELEMENTS
from bilinear.ir.kernel import ThinKernel
from bilinear.ir.matrix import Dtype, Layout, dense
from bilinear.ir.thin_tile import THIN_TILES
from bilinear.methods.thin.choice import Thin, View, is_turned, thin_candidates, thin_of, thin_seconds, view_of
from bilinear.methods.thin.launches import kernel_for, thin_multiply_of
from bilinear.planner.device import Device, ThinRates, ThinTileRates, at
from bilinear.planner.device_files import load_device
from bilinear.planner.library_points import CUBLAS, CUBLASLT, ORDERS, Measured, Shape, library_points
from bilinear.planner.plan import Candidate
from bilinear.planner.problem import SHORT, Problem

STEPS = (1.3, 1.3, 1.15, 1.1, 1.07, 1.04)
SHARED = ("launch", "latency", "adding", "again", "copies", "torn", "gathering")
OWN = ("along", "across", "arithmetic", "short_along", "short_across")
MOST_SHARE = 1.2
MOST_MOVED, MOST_MOVED_OWN = 4.0, 1.25  # How far a rate of all tiles, and one of a tile's own, may move.
PULL, PULL_OWN = 2.0, 1.0
"""A rate that moved by a factor counts like so many points that are off by that factor. Few points tell of each rate: those that moved
freely took up what the model does not know, and predicted other products worse than those that they began with."""
R = TypeVar("R", ThinRates, ThinTileRates)


class ThinPoint(NamedTuple):
    """A measurement: a tile and parts of sums on a product, and microseconds."""

    tile: str
    view: View
    parts: int
    us: float


def off(device: Device, rates: ThinRates, known: list[ThinPoint], dtype: str) -> list[float]:
    """|log(predicted / measured)| of each point; one that is far off counts at most as a factor of e."""
    own, element = {tile.name: tile for tile in rates.tiles}, ELEMENTS[dtype]
    tiles = THIN_TILES[dtype]
    seconds = (thin_seconds(own[p.tile], tiles[p.tile], p.view, p.parts, element, device, rates) for p in known)
    return [min(1.0, abs(log(predicted * 1e6 / p.us))) for predicted, p in zip(seconds, known, strict=True)]


def fit(device: Device, rates: ThinRates, known: list[ThinPoint], dtype: str) -> ThinRates:
    """The rates that predict the points best, and are near those given.

    One rate after the other is moved by smaller and smaller steps as long as the sum of |log(predicted / measured)| and of the weighted
    moves falls. Only tiles with points change.
    """
    start = rates
    of_tile = {tile.name: [p for p in known if p.tile == tile.name] for tile in rates.tiles}
    for step in STEPS:
        for factor in (step, 1 / step):
            rates = _settle(rates, start, SHARED, factor, MOST_MOVED, PULL, lambda x: sum(off(device, x, known, dtype)))
            for i, first in enumerate(start.tiles):
                some = of_tile[first.name]
                alone = lambda x, some=some, shared=rates: sum(off(device, replace(shared, tiles=(x,)), some, dtype))  # noqa: E731
                own = _settle(rates.tiles[i], first, OWN, factor, MOST_MOVED_OWN, PULL_OWN, alone)
                rates = replace(rates, tiles=(*rates.tiles[:i], own, *rates.tiles[i + 1 :]))
    return rates


def _settle(rates: R, start: R, names: Sequence[str], factor: float, most: float, pull: float, misses: Callable[[R], float]) -> R:
    """Move one rate of these names after the other, by a factor at a time, as long as that pays."""

    def cost(x: R) -> float:
        return misses(x) + pull * sum(abs(log(getattr(x, name) / getattr(start, name))) for name in names)

    least = cost(rates)
    for name in names:
        while (changed := _moved(rates, start, name, factor, most)) and (now := cost(changed)) < least - 1e-6:
            rates, least = changed, now
    return rates


def _moved(rates: R, start: R, name: str, factor: float, most: float) -> R | None:
    """The rates with one of them multiplied, to four digits; None if it is too far from its initial value."""
    value = float(f"{min(MOST_SHARE if name in OWN else inf, getattr(rates, name) * factor):.4g}")
    near = getattr(start, name) / most <= value <= getattr(start, name) * most
    return replace(rates, **{name: value}) if near else None  # type: ignore[arg-type]  # a field of this name


LIBRARY_SECONDS = 16.0  # For the library's calls on thin products of one type: some 2,000 points on an H200.
MOST_ELEMENTS = 2**28  # Of a matrix, if the device has the memory for it.
SHARE_OF_MEMORY = 0.25
ROUNDS, IN_A_ROW = 3, 4
HOLD_MS = 0.25  # For so long the device is held while a few calls are queued.
MOST_BRIEF = 0.15  # The most of the drawn shapes below `BRIEF` and `BRIEF_WORK`, which take about 10 us.
BRIEF, BRIEF_WORK = 6_000_000, 100_000_000
TIMED_TILES, TIMED_SHAPES, TIMED_BRIEF = 3, 44, 0.3
"""On each of so many drawn shapes, of which this part may be brief, so many of our own tiles are timed: those predicted to be fastest."""
TIMED_PARTS, MOST_SLOWER = (2, 4, 8), 4.0
"""Each tile is also timed with its sums in so many parts, unless that is predicted to take so many times as long as the fastest: times of
one tile and shape, which differ by their parts alone, tell what it costs to add up parts."""


class ThinCase(NamedTuple):
    """A product with a result by columns."""

    shape: Shape
    order: str


def drawn(seed: int, most_elements: int = MOST_ELEMENTS, brief: float = MOST_BRIEF) -> Iterator[ThinCase]:
    """Draw products with sides of random lengths, which are spread evenly on a logarithmic scale; a side is short up to `SHORT`.

    Half of them have one short side and four in ten have two. Of the others any side may be short. In one of ten all sides are powers of
    two, in three of ten longer sides are multiples of 8. `brief` is as `MOST_BRIEF`.
    """
    draw = random.Random(seed)

    def side(least: float, most: float) -> int:
        return round(exp(draw.uniform(log(least), log(most))))

    while True:
        kind, even = draw.random(), draw.random()
        sides = [draw.randint(1, SHORT), side(64, 20_000), side(64, 20_000)]
        if kind > 0.6:
            sides = [draw.randint(1, SHORT), draw.randint(1, SHORT), side(2_000 if kind > 0.93 else 20_000, 1.2e7)]
        elif kind > 0.5:
            sides = [draw.randint(1, SHORT), side(64, 3_000), side(20_000, 1e6)]
        elif kind < 0.1:
            sides = [side(1, SHORT), side(1, 20_000), side(1, 20_000)]
        if even > 0.9:
            sides = [2 ** round(log(x, 2)) for x in sides]
        elif even > 0.6:
            sides = [x if x <= SHORT else x // 8 * 8 for x in sides]
        draw.shuffle(sides)
        m, n, k = sides
        is_brief = m * k + k * n + m * n < BRIEF and m * n * k < BRIEF_WORK
        if max(m * k, k * n, m * n) <= most_elements and (not is_brief or draw.random() < brief):
            yield ThinCase((m, n, k), draw.choice(ORDERS))


def layouts(case: ThinCase, dtype: Dtype) -> tuple[Layout, Layout, Layout]:
    """A, B and C without gaps."""
    (m, n, k), order = case
    return dense((m, k), dtype, order[0] == "N"), dense((k, n), dtype, order[1] == "N"), dense((m, n), dtype, True)


def problem_of(case: ThinCase, dtype: str) -> Problem:
    """The planner's problem."""
    (m, n, k), order = case
    by_column = tuple(name for name, way in zip("AB", order, strict=True) if way == "N")
    return Problem(m, k, n, dtype, column_major=(*by_column, "C"))


class ThinStand:
    """Memory for the operands of thin products of one type, filled with random numbers, and a clock."""

    def __init__(self, dtype: str) -> None:
        import cupy

        self.dtype, self.device = np.dtype(dtype), int(cupy.cuda.Device().id)
        cupy.get_default_memory_pool().free_all_blocks()
        self.most_elements = min(MOST_ELEMENTS, int(cupy.cuda.Device().mem_info[0] * SHARE_OF_MEMORY) // self.dtype.itemsize)
        self._memory = [cupy.random.standard_normal(self.most_elements, dtype=self.dtype) for _ in range(3)]
        self._operands = tuple(int(x.data.ptr) for x in self._memory)

    def library(self, case: ThinCase) -> Measured | None:
        """Microseconds of cuBLAS and of cublasLt; None if one of them cannot run."""
        own, (a, b, c) = layouts(case, self.dtype), self._operands
        gemm, calls = gemm_of(*own), dict[str, Call]()
        kernels = None if gemm is None else proposed(gemm, self.dtype, self.device)
        for name in (CUBLAS, CUBLASLT):
            multiply = multiply_of(*own, name)
            if multiply is not None:
                calls[name] = partial(multiply, a, b, c, 1, 0)
        if kernels is None or len(calls) < 2:
            return None
        us = self._microseconds(calls)
        return Measured(case.shape, case.order, kernels, us[CUBLAS], us[CUBLASLT])

    def thin(self, case: ThinCase, found: Candidate) -> float | None:
        """Microseconds of a thin product; None if it cannot run."""
        (a, b, c), name = self._operands, Thin.strategy
        multiply = thin_multiply_of(*layouts(case, self.dtype), thin_of(found))
        return None if multiply is None else self._microseconds({name: partial(multiply, a, b, c, 1, 0)})[name]

    def _microseconds(self, calls: dict[str, Call]) -> dict[str, float]:
        """The median time of each call on the device, without the host's."""
        for call in calls.values():
            call()
        return {name: 1e3 * median(values) for name, values in queued(calls, ROUNDS, IN_A_ROW, HOLD_MS).items()}


class ThinBench:
    """Times of thin products on the current GPU, in microseconds."""

    def thin_tiles(self, dtype: str, device: Device) -> list[ThinPoint]:
        """Times of tiles of our own kernel that the description predicts to be fast, on drawn products."""
        stand = ThinStand(dtype)
        found = [(case, one) for case in timed_cases(stand.most_elements) for one in timed_tiles(case, dtype, device)]
        build_kernels([*dict.fromkeys(kernel_of(case, dtype, one.tile) for case, one in found)], target_here())
        times = ((case, one, stand.thin(case, one)) for case, one in found)
        return [
            ThinPoint(one.tile, view_of(problem_of(case, dtype), THIN_TILES[dtype][one.tile]), thin_of(one).parts, us)
            for case, one, us in times
            if us is not None
        ]

    def thin_library(
        self, dtype: str, seconds: float, tell: Callable[[float], None] = lambda share: None, seed: int = 1, brief: float = MOST_BRIEF
    ) -> list[Measured]:
        """Times of the library's calls on as many random products as time allows; `tell` is called with the share that has passed."""
        stand, begun, found = ThinStand(dtype), perf_counter(), list[Measured]()
        for case in drawn(seed, stand.most_elements, brief):
            over = perf_counter() - begun
            if over > seconds:
                break
            tell(over / seconds)
            one = stand.library(case)
            found += [] if one is None else [one]
        return found


def timed_cases(most_elements: int = MOST_ELEMENTS) -> list[ThinCase]:
    """The products on which our own tiles are timed."""
    return list(islice(drawn(2, most_elements, TIMED_BRIEF), TIMED_SHAPES))


def timed_tiles(case: ThinCase, dtype: str, device: Device) -> list[Candidate]:
    """The tiles that are predicted to be fastest, each in several parts of sums."""
    found = sorted(thin_candidates(problem_of(case, dtype), device, TIMED_PARTS), key=lambda one: one.ms or 0.0)
    names = list(dict.fromkeys(one.tile for one in found))[:TIMED_TILES]
    return [one for one in found if one.tile in names and (one.ms or 0.0) <= MOST_SLOWER * (found[0].ms or 0.0)]


def kernel_of(case: ThinCase, dtype: str, tile: str) -> ThinKernel:
    """The kernel of a tile."""
    a, b, c = layouts(case, np.dtype(dtype))
    if is_turned(problem_of(case, dtype), THIN_TILES[dtype][tile]):
        a, b, c = b.T, a.T, c.T
    return kernel_for(ELEMENTS[dtype], THIN_TILES[dtype][tile], a, b, c, is_aligned=True)


def with_thin(bench: ThinBench, device: Device, tell: Callable[[str], None]) -> Device:
    """The device with rates of thin products: those of our kernel are fitted, from those of an H200; the library's calls are timed."""
    known = load_device("h200")
    for dtype in THIN_TILES:
        start, what = known.thin_rates(dtype), f"thin products of {dtype}"
        if start is None:
            raise LookupError(f"the description of {known.name} has no rates of {what}")
        tell(what)
        peak = at(device.rates(dtype).product, 4096) / at(known.rates(dtype).product, 4096)
        able = tuple(own for own in start.tiles if THIN_TILES[dtype][own.name].runs_on(device.capability))
        start = replace(start, pipes=start.pipes * peak, tiles=able)
        rates = fit(device, start, bench.thin_tiles(dtype, replace(device, thin=((dtype, start),))), dtype)

        def told(share: float, of: str = what) -> None:
            tell(f"the library on {of}, {share:.0%}")

        measured = bench.thin_library(dtype, LIBRARY_SECONDS, told)
        least = partial(rates.least_us, itemsize=ELEMENTS[dtype].bytes, bandwidth=device.bandwidth)
        device = replace(device, thin=(*device.thin, (dtype, replace(rates, library=library_points(measured, least)))))
    return device
