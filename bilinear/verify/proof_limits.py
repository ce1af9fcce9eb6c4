"""Limits on the proof of one schedule: values that double with every stage are refused before they fill the memory."""

from __future__ import annotations

from collections.abc import Iterable

from bilinear.analysis.integer_tables import products_of_coefficients
from bilinear.errors import BilinearError, fail
from bilinear.ir.schedule import AnySchedule
from bilinear.ir.scheme import Scheme
from bilinear.verify.symbols import Symbols, Value

TOO_LARGE = "E412"
MOST_STATES = 50_000
"""The most stages times blocks; every stage stores a state of every block."""
MOST_WORK = 150_000
"""The most terms multiplied and added up; for a schedule of a large scheme, `WORK_OF_SCHEME` times the work of the scheme's proof."""
WORK_OF_SCHEME = 4
"""Expansion, products and recomposition take up to three times as many coefficient products as the proof of their scheme."""
MOST_BITS = 1600
"""The most bits of a coefficient, over all its numbers."""


class Bounds:
    """The work of one run so far; too much is refused (E412)."""

    def __init__(self, schedule: AnySchedule, symbols: Symbols, scheme: Scheme | None) -> None:
        self.schedule = schedule
        self.symbols = symbols
        self.work = 0
        self.most_work = max(MOST_WORK, WORK_OF_SCHEME * products_of_coefficients(scheme) if scheme is not None else 0)
        states = len(schedule.stages) * sum(len(space.blocks) for space in schedule.spaces)
        if states > MOST_STATES:
            raise self._refused(f"its stages have {states} states of blocks, at most {MOST_STATES} are followed")

    def count(self, terms: int) -> None:
        """Add the terms of a step that is about to be computed."""
        self.work += terms
        if self.work > self.most_work:
            raise self._refused(f"its steps add up more than {self.most_work} terms")

    def require_short(self, values: Iterable[Value]) -> None:
        """Refuse coefficients that have grown too long."""
        if any(self.symbols.length(coefficient) > MOST_BITS for value in values for coefficient in value.values()):
            raise self._refused(f"its coefficients grow to more than {MOST_BITS} bits")

    def _refused(self, told: str) -> BilinearError:
        hint = "prove its parts as schedules of their own"
        return fail(TOO_LARGE, f"{self.schedule.name} is too large to prove: {told}", hint, span=self.schedule.span)
