"""Products of float32 matrices rounded to fewer bits: for those who ask for less than the library's multiply gives."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from bilinear.errors import fail
from bilinear.ir.element import FLOAT32
from bilinear.ir.rounded import ROUNDINGS, Rounding
from bilinear.planner.device import Device, at
from bilinear.planner.digit_geometry import CELL
from bilinear.planner.plan import ROUNDED, Candidate
from bilinear.planner.problem import Problem

LINE = 8
"""Lines of rounded numbers begin at multiples of so many: of 16 bytes."""
PASS = 0.85
"""The share of the bandwidth at which numbers are rounded."""


def rounded_candidates(problem: Problem, device: Device) -> Iterator[Candidate]:
    """The products of a problem of float32 for which the device has rates; none unless a bound is asked for, for classes are closer."""
    if problem.dtype == FLOAT32.name and not isinstance(problem.accuracy, str | None):
        for name in dict(device.rounded):
            yield rounded_candidate(problem, device, (), name)


def rounded_candidate(problem: Problem, device: Device, levels: tuple[str, ...], name: str) -> Candidate:
    """The product of numbers rounded so; its time is None if the device has no rates for it.

    Raises `BilinearError` (E543) for numbers of another type, and for levels above it.
    """
    if problem.dtype != FLOAT32.name or levels:
        what = f"{name} stands for {FLOAT32}, not for {problem.dtype}" if not levels else f"{name} is multiplied below no level"
        raise fail("E543", what, "plan for float32 without levels, or take `pairs`")
    return Candidate((), "preserve", ROUNDED, _ms(problem, device, ROUNDINGS[name]), rounded_bytes(problem, ROUNDINGS[name]), tile=name)


def lines_of(shape: tuple[int, ...], by_columns: bool) -> tuple[int, int]:
    """How many lines a matrix has in memory, and how many numbers of it lie in one."""
    rows, columns = shape
    return (columns, rows) if by_columns else (rows, columns)


def line_bytes(line: int, own: Rounding) -> int:
    """Bytes from a line of rounded numbers to the next."""
    return ceil(line / LINE) * LINE * own.stored


def rounded_bytes(problem: Problem, own: Rounding) -> int:
    """Bytes of the rounded operands."""
    p = problem
    left, right = (lines_of(sides, name in p.column_major) for name, sides in (("A", (p.m, p.k)), ("B", (p.k, p.n))))
    return sum(ceil(count * line_bytes(line, own) / CELL) * CELL for count, line in (left, right))


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


def rounded_rate(problem: Problem, device: Device, name: str, seconds: float) -> float:
    """The rate in TFLOP/s of the library's product for which these seconds of the whole are predicted."""
    left = max(seconds - _rounding_seconds(problem, device, ROUNDINGS[name]), 0.5 * seconds)
    return 2e-12 * problem.m * problem.k * problem.n / left
