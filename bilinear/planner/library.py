"""The library's multiply as a plan's choice: its errors, and its time for thin products by measured points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bilinear.ir.element import COMPILED, COMPLEX, ELEMENTS, Element
from bilinear.planner.device import Device
from bilinear.planner.library_points import Kernels, Shape
from bilinear.planner.plan import LIBRARIES, LIBRARY, Candidate, Choice
from bilinear.planner.problem import SHORT, Problem


@dataclass(frozen=True)
class Library(Choice):
    """The library's multiply by one of the names in `LIBRARIES`."""

    strategy: str = LIBRARY
    method: ClassVar[str] = "library"
    title: ClassVar[str] = "the library's multiply"
    has_kernels: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """Its name."""
        return self.strategy

    def bound(self, inner: int, dtype: str) -> float:
        """The bound that always holds for the classical multiply; both products of parts are in one sum of a complex one."""
        return classical_error(2 * inner if dtype in COMPLEX else inner, COMPILED[dtype])

    def probable(self, inner: int, dtype: str) -> float:
        """That of the classical multiply itself."""
        return 1.0

    def rate(self, problem: Problem, device: Device) -> float | None:
        """The operations a second of what multiplies on a full device."""
        return max(rate for _, rate in device.rates(problem.dtype).library) * 1e12

    def check(self, problem: Problem) -> None:
        """Raise a `ValueError` for another name."""
        if self.strategy not in LIBRARIES:
            raise ValueError(f"there is no library {self.strategy!r}")


LIBRARY_ITSELF = Candidate(Library(), None, 0)  # The library's multiply, of which no time is known.


def classical_error(inner: int, element: Element) -> float:
    """The bound that always holds for the classical multiply."""
    from bilinear.analysis.accuracy import classical_bound

    u, summed = element.roundoffs
    return classical_bound(inner, u, summed) * u


def probable_classical_of(inner: int, dtype: str) -> float:
    """The probable error by norm of the classical multiply in a type."""
    from bilinear.analysis.digit_bounds import probable_classical

    return probable_classical(inner, (COMPLEX.get(dtype) or ELEMENTS[dtype]).roundoffs[1])


def is_thin(problem: Problem) -> bool:
    """Whether one extent at least is short."""
    return min(problem.m, problem.k, problem.n) <= SHORT


def by_columns(problem: Problem) -> tuple[str, Shape]:
    """The order of both operands, and m, n and k, of the product that BLAS computes, whose result lies by columns."""
    p = problem
    a, b, c = (name in p.column_major for name in "ABC")
    if c:
        return "".join("NT"[not by_column] for by_column in (a, b)), (p.m, p.n, p.k)
    return "".join("NT"[by_column] for by_column in (b, a)), (p.n, p.m, p.k)


def thin_library(problem: Problem, device: Device, kernels: Kernels | None = None) -> Candidate | None:
    """The library's multiply for a thin product by the points in the device's description; None if it has none.

    The time is that of the call that is faster; it is known better with the kernels that cublasLt proposes. The call itself is chosen when
    it first runs.
    """
    rates, p = device.thin_rates(problem.dtype), problem
    if rates is None or not is_thin(p):
        return None
    (order, extents), element = by_columns(p), ELEMENTS[p.dtype]
    times = rates.library.times(order, extents, element.lanes, kernels)
    return Candidate(Library(), min(times.values()) * rates.least_us(extents, element.bytes, device.bandwidth) * 1e-3, 0)
