"""The method: products of rounded numbers, for those who ask for less than the library's multiply gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, ClassVar

from bilinear.errors import fail
from bilinear.ir.element import FLOAT32
from bilinear.ir.matrix import Layout
from bilinear.ir.rounded import CELL, ROUNDINGS, Rounding, RoundKernel, lines_of
from bilinear.planner.device import Device, at
from bilinear.planner.library import probable_classical_of
from bilinear.planner.plan import Candidate, Choice
from bilinear.planner.problem import Problem

if TYPE_CHECKING:  # launches are imported with the first call on a GPU
    from bilinear.methods.rounded.launches import RoundedBench, RoundedMultiply

SIZES = (1024, 2048, 4096, 8192, 16384)  # The sizes of square matrices on which the library is timed.
PASS = 0.85  # The share of the bandwidth at which numbers are rounded.


@dataclass(frozen=True)
class Rounded(Choice):
    """How a product of rounded numbers runs: the name of their type."""

    tile: str
    method: ClassVar[str] = "rounded"
    strategy = "rounded"
    title: ClassVar[str] = "product of rounded numbers"
    needs: ClassVar[str] = "multiplies two matrices or vectors of float32 whose rows or columns lie side by side, and needs such an out"

    @property
    def name(self) -> str:
        """The name of the type."""
        return self.tile

    def bound(self, inner: int, dtype: str) -> float:
        """The bound that always holds."""
        from bilinear.analysis.digit_bounds import rounded_bound

        return rounded_bound(ROUNDINGS[self.tile], inner)

    def probable(self, inner: int, dtype: str) -> float:
        """The probable error by norm in units of the classical multiply's."""
        from bilinear.analysis.digit_bounds import rounded_probable

        return rounded_probable(ROUNDINGS[self.tile], inner) / probable_classical_of(inner, dtype)

    def rate(self, problem: Problem, device: Device) -> float | None:
        """The operations a second on a full device."""
        table = dict(device.rounded).get(self.tile)
        return None if table is None else max(rate for _, rate in table) * 1e12

    def check(self, problem: Problem) -> None:
        """Raise a `ValueError` if the fields make no sense."""
        if problem.dtype != FLOAT32.name or self.tile not in ROUNDINGS:
            raise ValueError(f"there is no tile {self.tile!r}")


class RoundedProducts:
    """The method: products by cuBLAS of numbers with fewer bits."""

    choice = Rounded
    products: tuple[str, ...] = tuple(ROUNDINGS)
    most_weighed: int | None = None
    most_timed: int | None = None

    def products_of(self, dtype: str) -> tuple[str, ...]:
        """The names of the types to which numbers of a type are rounded."""
        return self.products if dtype == FLOAT32.name else ()

    def candidates(self, problem: Problem, device: Device, budget: int, most_ms: float) -> Iterator[Candidate]:
        """Those of float32 for which the device has rates; none unless a bound is asked for, for classes are closer."""
        if problem.dtype == FLOAT32.name and not isinstance(problem.accuracy, str | None):
            for name in dict(device.rounded):
                yield self.named(problem, device, (), name, budget)

    def named(self, problem: Problem, device: Device, levels: tuple[str, ...], products: str, budget: int) -> Candidate:
        """The product of numbers rounded so, without a time if it has no rates. Raises `BilinearError` (E543) for types and levels."""
        if problem.dtype != FLOAT32.name or levels:
            what = f"{products} multiplies {FLOAT32}, not {problem.dtype}" if not levels else f"{products} takes no levels above it"
            raise fail("E543", what, "plan for float32 without levels, or take `pairs`")
        own, p = ROUNDINGS[products], problem
        each = (lines_of(sides, name in p.column_major) for name, sides in (("A", (p.m, p.k)), ("B", (p.k, p.n))))
        needed = sum(ceil(count * own.line_bytes(line) / CELL) * CELL for count, line in each)
        return Candidate(Rounded(products), _ms(problem, device, own), needed)

    def kernels(self, choice: Rounded, a: Layout, b: Layout, c: Layout, has_warpgroups: bool = True) -> set[RoundKernel]:
        """Those that round the operands, unless the unit drops bits itself."""
        from bilinear.methods.rounded.launches import kernel_for

        return {kernel_for(x, True) for x in (a, b)} if ROUNDINGS[choice.tile].stored else set()

    def bind(self, choice: Rounded, a: Layout, b: Layout, c: Layout) -> RoundedMultiply | None:
        """See `rounded_multiply_of`."""
        from bilinear.methods.rounded.launches import rounded_multiply_of

        return rounded_multiply_of(a, b, c, choice.tile)

    def measured(self, bench: RoundedBench, device: Device, tell: Callable[[str], None]) -> Device:
        """The device with their rates."""
        tell("rounded products")
        for name in ROUNDINGS:
            seconds = {n: found for n in SIZES if (found := bench.rounded(name, n)) is not None}
            table = tuple((float(n), _rate(Problem(n, n, n, FLOAT32.name), device, ROUNDINGS[name], found)) for n, found in seconds.items())
            device = replace(device, rounded=(*device.rounded, (name, table))) if table else device
        return device


ROUNDED = RoundedProducts()


def _ms(problem: Problem, device: Device, own: Rounding) -> float | None:
    table = dict(device.rounded).get(own.name)
    if table is None:
        return None
    product = 2 * problem.m * problem.k * problem.n / (at(table, (problem.m * problem.k * problem.n) ** (1 / 3)) * 1e12)
    return (product + _rounding_seconds(problem, device, own)) * 1e3 + device.call * 1e-3


def _rounding_seconds(problem: Problem, device: Device, own: Rounding) -> float:
    """What it takes to round the operands: two launches that read and write them."""
    if not own.stored:
        return 0.0
    moved = (problem.m * problem.k + problem.k * problem.n) * (problem.itemsize + own.stored)
    return moved / (PASS * device.bandwidth * 1e9) + 2 * device.launch * 1e-6


def _rate(problem: Problem, device: Device, own: Rounding, seconds: float) -> float:
    """The rate in TFLOP/s of the library's product for which these seconds of the whole are predicted."""
    left = max(seconds - _rounding_seconds(problem, device, own), 0.5 * seconds)
    return 2e-12 * problem.m * problem.k * problem.n / left
