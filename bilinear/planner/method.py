"""A method as planning sees it: a way to multiply with candidates for a problem. Those of `bilinear/methods` are handed over."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from bilinear.planner.device import Device
from bilinear.planner.plan import Candidate, Choice
from bilinear.planner.problem import Problem


class Method(Protocol):
    """A way to multiply that competes with the library's multiply and with schedules.

    Of its candidates, by time, at most `most_weighed` are told unless all are explained, and at most `most_timed` are timed (None: all).
    """

    @property
    def choice(self) -> type[Choice]:
        """The type of what it runs, a dataclass."""

    @property
    def products(self) -> tuple[str, ...]:
        """The names by which a caller asks for it below levels."""

    @property
    def most_weighed(self) -> int | None:
        """The most candidates that are told."""

    @property
    def most_timed(self) -> int | None:
        """The most candidates that are timed."""

    def products_of(self, dtype: str) -> tuple[str, ...]:
        """The names of its products of a type."""

    def candidates(self, problem: Problem, device: Device, budget: int, most_ms: float) -> Iterable[Candidate]:
        """Its candidates, within a budget of bytes where that can be. What cannot take less than `most_ms` may be left out."""

    def named(self, problem: Problem, device: Device, levels: tuple[str, ...], products: str, budget: int) -> Candidate:
        """The candidate that a caller names; its time is None if the device has no rates for it.

        Raises `BilinearError` if its numbers are of another type, or if these levels cannot stand above it.
        """


Methods = tuple[Method, ...]
"""Those that compete, in the order in which they are told."""
