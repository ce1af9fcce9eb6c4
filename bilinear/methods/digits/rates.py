"""Describe what a device does with products of digits: time them launch by launch, and find the planner's rates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from math import cbrt, ceil, log
from statistics import median
from typing import NamedTuple

import numpy as np

from bilinear.backends.machine import has_digit_units, multiplies_by_warps, target_here
from bilinear.backends.timing import BRIEF_MS, normal_operands, settled, settled_steps
from bilinear.codegen.build import build_kernels
from bilinear.ir.digit_kernel import DigitProductKernel, ExpandKernel, LargestKernel, LoadingKernel, RecomposeKernel
from bilinear.ir.matrix import Layout, dense
from bilinear.ir.residue_kernel import ResidueExpandKernel, ResidueProductKernel, ResidueRecomposeKernel, ScaleKernel
from bilinear.ir.tile import DIGIT_TILES, FLOAT_TILES, LOADING_TILES
from bilinear.methods.digits.binding import kernels_of, multiply_of
from bilinear.methods.digits.choice import DigitGeometry, Digits, digits_timed, element_of
from bilinear.methods.digits.plans import USUAL_RESIDUES, digit_ms, geometry_for, loaded_candidate, product_seconds_of_digits
from bilinear.planner.device import Device, DigitRates, Extents
from bilinear.planner.problem import Problem

SEARCH, EXPANSION, PRODUCT, RECOMPOSITION, BESIDE = range(5)
PASSES: tuple[tuple[type, ...], ...] = (
    (LargestKernel, ScaleKernel),
    (ExpandKernel, ResidueExpandKernel),
    (DigitProductKernel, LoadingKernel, ResidueProductKernel),
    (RecomposeKernel, ResidueRecomposeKernel),
)
"""The kernels of each pass, in the order of `DigitTimes`; others clear words, or end at once."""


class DigitCase(NamedTuple):
    """A product of digits of this name below these levels, of matrices of these extents (m, k, n) by rows."""

    products: str
    extents: Extents
    levels: tuple[str, ...] = ()
    by_warps: bool = False  # Whether warps multiply, as on chips without warpgroups.


class DigitTimes(NamedTuple):
    """Seconds of the passes that find scales, of those that cut, of the products, and of putting together; and of all launches."""

    search: float
    expansion: float
    product: float
    recomposition: float
    whole: float


class DigitBench:
    """Times of products of digits on the current GPU, in seconds."""

    def able_digits(self, names: Iterable[str], by_warps: bool) -> Sequence[str]:
        """Those products of digits, by warps or by warpgroups, that the device has the instructions for."""
        if not has_digit_units() or (multiplies_by_warps() and not by_warps):
            return ()
        return tuple(name for name in names if not (name in LOADING_TILES and by_warps))

    def build_digits(self, cases: Sequence[DigitCase]) -> None:
        """Build the kernels of these products, which are timed next, into the cache, several at once."""
        build_kernels([*dict.fromkeys(kernel for case in cases for kernel in kernels_of(*how(case)))], target_here())

    def digits(self, case: DigitCase, number: int) -> DigitTimes | None:
        """The times of a product in the round of this number, by the launches that `matmul` runs; None without memory for it."""
        import cupy

        multiply = multiply_of(*how(case))
        operands = normal_operands(case.extents, np.dtype(str(element_of(case.products))), multiply.workspace)
        if operands is None:
            return None
        a, b, c, workspace = (int(x.data.ptr) for x in operands)
        multiprocessors = cupy.cuda.Device().attributes["MultiProcessorCount"]
        kernels = [launch.kernel for launch, _ in multiply.launches(True, multiprocessors)]
        passes = [next((i for i, types in enumerate(PASSES) if isinstance(kernel, types)), BESIDE) for kernel in kernels]
        stream = cupy.cuda.get_current_stream().ptr
        with multiply.bound(True).ready((a, b, c, workspace, c), *multiply.factors(1, 0), stream) as steps:
            ms = settled_steps(steps)
        search, expansion, product, recomposition = (
            1e-3 * sum(one for one, own in zip(ms, passes, strict=True) if own == kind) for kind in range(BESIDE)
        )
        steps_alone = DigitTimes(search, expansion, product, recomposition, 1e-3 * sum(ms))
        if sum(ms) >= BRIEF_MS:
            return steps_alone
        whole = 1e-3 * settled(partial(multiply, a, b, c, 1, 0, workspace))  # without the events between launches
        return DigitTimes(*(seconds * whole / steps_alone.whole for seconds in steps_alone))


def how(case: DigitCase) -> tuple[Layout, Layout, Layout, Digits, bool]:
    """A, B and C by rows, and how the product runs."""
    (m, k, n), dtype = case.extents, np.dtype(str(element_of(case.products)))
    a, b, c = (dense(shape, dtype) for shape in ((m, k), (k, n), (m, n)))
    return a, b, c, Digits(case.levels, case.products), case.by_warps


NAMES = (*DIGIT_TILES, *LOADING_TILES, *USUAL_RESIDUES.values())
"""The products that are timed: residues with the moduli that keep the usual accuracy."""
LEVELS = (("winograd",), ("winograd", "winograd"))  # Levels for which cutting and putting together are timed.
SIZES = (1024, 2048, 4096, 8192, 16384)
ROUNDS = 3  # How often each product is timed, interleaved: at its power limit a chip changes its clock.
UNALIGNED = 2048  # A product of this size is also timed with rows at no multiples of 16 bytes.
WIDE, DEPTHS = 8192, (512, 2048)  # A result with sums of two lengths, which tell a tile's cost beside sums.
FEW = ((1024, 4096, 1024), (384, 4608, 2816))  # Products of few tiles, which tell what all tiles cost once.
TAILS = tuple(i / 20 for i in range(31))
FLAT = ((1.0, 1.0),)
NOTHING = DigitRates(FLAT, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, FLAT, FLAT, 0.0, 0.0)  # Still to be measured.
Times = dict[DigitCase, DigitTimes]


def with_digits(bench: DigitBench, device: Device, tell: Callable[[str], None]) -> Device:
    """The device with rates of all products of digits that it has the instructions and the memory for.

    A device with warpgroups gets rates of products by warps, too: those of chips without warpgroups are estimated from them.
    """
    families = [(name, by_warps) for by_warps in (False, True) for name in bench.able_digits(NAMES, by_warps)]
    own = [family for family in families if family[1] == families[0][1]]  # what the device runs itself
    tell("kernels for digits")
    bench.build_digits([case for family in families for case in digit_cases(*family)])
    rounds: list[Times] = []
    for number in range(ROUNDS):
        rounds.append({})
        for name, by_warps in families if number == 0 else own:
            tell(f"products of {digits_timed(name)}{' by warps' if by_warps else ''}, round {number + 1} of {ROUNDS}")
            timed = ((case, bench.digits(case, number)) for case in digit_cases(name, by_warps))
            rounds[-1] |= {case: times for case, times in timed if times is not None}
    times = {case: medians([one[case] for one in rounds if case in one]) for case in rounds[0]}
    rates = {(digits_timed(name), by_warps): digit_rates(times, device, name, by_warps) for name, by_warps in families}
    groups, warps = (tuple((name, own) for (name, of), own in rates.items() if own is not None and of == by) for by in (False, True))
    return replace(device, digits=groups or warps, by_warps=warps if groups else ())


def digit_cases(name: str, by_warps: bool = False) -> tuple[DigitCase, ...]:
    """All products from which the rates of one are found."""
    own = Cases(name, by_warps)
    found = [*own.squares, *own.depths(), *own.few, own.unaligned, *(own.uneven if name in FLOAT_TILES else ())]
    found += [] if name in LOADING_TILES else [own.square(WIDE, levels) for levels in LEVELS]
    found += own.depths(LEVELS[0]) if name in DIGIT_TILES else []
    return tuple(found)


class Cases(NamedTuple):
    """The products of digits of a name, by warps or by warpgroups."""

    name: str
    by_warps: bool

    def square(self, n: int, levels: tuple[str, ...] = ()) -> DigitCase:
        """Of square matrices."""
        return DigitCase(self.name, (n, n, n), levels, self.by_warps)

    @property
    def squares(self) -> list[DigitCase]:
        """Those by whose sizes the products have their rates."""
        return [self.square(n) for n in SIZES if not (self.by_warps and n > WIDE)]

    @property
    def few(self) -> list[DigitCase]:
        """Of few tiles."""
        return [DigitCase(self.name, extents, (), self.by_warps) for extents in FEW]

    @property
    def unaligned(self) -> DigitCase:
        """One whose rows are no multiples of 16 bytes."""
        return DigitCase(self.name, (UNALIGNED, UNALIGNED - 1, UNALIGNED - 1), (), self.by_warps)

    @property
    def uneven(self) -> list[DigitCase]:
        """Those in which the rows of A, or of B and C, are no multiples of 16 bytes."""
        return [DigitCase(self.name, (WIDE, DEPTHS[1] - i, WIDE - 1 + i), (), self.by_warps) for i in (1, 0)]

    def depths(self, levels: tuple[str, ...] = ()) -> list[DigitCase]:
        """Those with a wide result and sums of two lengths."""
        return [DigitCase(self.name, (WIDE, depth * 2 ** len(levels), WIDE), levels, self.by_warps) for depth in DEPTHS]


def medians(rounds: Sequence[DigitTimes]) -> DigitTimes:
    """The median time of each pass. The clock changes from round to round, and with it all passes of one."""
    whole = median(one.whole for one in rounds)
    return DigitTimes(*(median(one[i] * whole / one.whole for one in rounds) for i in range(len(DigitTimes._fields))))


def digit_rates(times: Times, device: Device, name: str, by_warps: bool = False) -> DigitRates | None:
    """The rates of products of this name, to four digits; None if the device has no memory to time them."""
    own = Cases(name, by_warps)
    if not all(case in times for case in (own.square(WIDE), *own.depths(), *own.few)):
        return None
    rates = _with_tile_costs(own, times, _passes(own, times, device), device)
    squares = [case for case in own.squares if case in times]

    def fitted(tail: float) -> DigitRates:
        """With this tail, the rates of the products, by their size, that fit the other rates."""
        found = replace(rates, tail=tail)
        return replace(found, product=tuple((float(case.extents[0]), _rate(case, times[case], found, device)) for case in squares))

    def off(rates: DigitRates) -> float:
        """The sum of |log(predicted / measured)| of the products alone, where they are few."""
        seconds = ((case, product_seconds_of_digits(_geometry(case), device, rates, _size(case))) for case in own.few)
        return sum(abs(log(predicted / times[case].product)) for case, predicted in seconds)

    rates = min(map(fitted, TAILS), key=off)
    least = squares[0]
    known, of_one = (_predicted(least, replace(rates, launch=us), device) for us in (0.0, 1.0))
    rates = replace(rates, launch=max(0.0, times[least].whole - known) / (of_one - known))
    if own.unaligned in times and own.square(UNALIGNED) in times:
        slow, usual = (times[case].whole - _predicted(case, rates, device) for case in (own.unaligned, own.square(UNALIGNED)))
        rates = replace(rates, unaligned=max(0.0, 1e6 * (slow - usual)))
    found = (tuple((key, four(x)) for key, x in own) if isinstance(own, tuple) else four(own) for own in vars(rates).values())
    return DigitRates(*found)  # type: ignore[arg-type]  # each of its own type


def _passes(cases: Cases, times: Times, device: Device) -> DigitRates:
    operands, result = (count * WIDE**2 * element_of(cases.name).bytes / (device.bandwidth * 1e9) for count in (2, 1))
    expansion, recomposition = list[tuple[float, float]](), list[tuple[float, float]]()
    for levels in ((), *LEVELS):
        case = cases.square(WIDE, levels)
        g, own = _geometry(case), times.get(case)
        if own is not None and own.expansion:
            expansion.append((float(g.rank), (operands + sum(g.digit_bytes) / (device.bandwidth * 1e9)) / own.expansion))
        if own is not None and own.recomposition:
            recomposition.append((float(g.rank), (result + g.product_bytes / (device.bandwidth * 1e9)) / own.recomposition))
    search = min(1.0, operands / times[cases.square(WIDE)].search)
    few = cases.few[0]
    line = 1e9 * times[few].search / 2 / few.extents[1]
    return replace(NOTHING, search=search, line=line, expansion=tuple(expansion) or FLAT, recomposition=tuple(recomposition) or FLAT)


def _with_tile_costs(own: Cases, times: Times, rates: DigitRates, device: Device) -> DigitRates:
    """What a tile costs beside its sums: with sums twice as long, those take twice as long."""
    wide, inner = own.depths(), own.depths(LEVELS[0])
    g = _geometry(wide[0])
    waves = ceil(g.tiles / device.processors)
    beside = _beside_sums(wide, times, device)
    start = min(beside, _beside_sums(inner, times, device)) if all(case in times for case in inner) else beside
    rates = replace(rates, start=1e6 * start, direct=1e6 * (beside - start))
    if not g.is_direct or not all(case in times for case in own.uneven):
        return rates
    sums, left, right = (times[case].product / waves - beside for case in (wide[1], *own.uneven))
    loading = max(0.0, left / sums - 1) if own.name in LOADING_TILES else 0.0
    return replace(rates, loading=loading, uneven=1e6 * max(0.0, right - sums * (1 + loading)))


def _beside_sums(cases: Sequence[DigitCase], times: Times, device: Device) -> float:
    """Seconds of a tile without its sums, from two depths."""
    shallow, deep = (times[case].product / ceil(_geometry(case).tiles / device.processors) for case in cases)
    first, second = (_geometry(case).slices for case in cases)
    return max(0.0, shallow - first * (deep - shallow) / (second - first))


def _rate(case: DigitCase, own: DigitTimes, rates: DigitRates, device: Device) -> float:
    """The rate by which the model predicts the time of these products."""
    g, size = _geometry(case), _size(case)
    sums = product_seconds_of_digits(g, device, replace(NOTHING, tail=rates.tail), size)  # at 1 TFLOP/s
    beside = product_seconds_of_digits(g, device, replace(rates, product=FLAT), size) - sums
    return sums / max(own.product - beside, 0.5 * own.product)


def _predicted(case: DigitCase, rates: DigitRates, device: Device) -> float:
    """The seconds that the planner predicts, without the host's."""
    problem = Problem(*case.extents, str(element_of(case.products)))
    known = replace(device, call=0.0, digits=((digits_timed(case.products), rates),))
    if case.products in LOADING_TILES:
        return 1e-3 * (loaded_candidate(problem, known, (), case.products).ms or 0.0)
    return 1e-3 * (digit_ms(problem, known, _geometry(case), case.products) or 0.0)


def _size(case: DigitCase) -> float:
    return cbrt(case.extents[0] * case.extents[1] * case.extents[2])


def _geometry(case: DigitCase) -> DigitGeometry:
    return geometry_for(Problem(*case.extents, str(element_of(case.products))), case.levels, case.products)


def four(value: float) -> float:
    """A number to four digits."""
    return float(f"{value:.4g}")
