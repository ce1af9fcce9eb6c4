"""Calls of a plan with a prepared operand; compared with plain calls they show what preparation saves."""

from __future__ import annotations

from functools import partial

from bilinear.ir.matrix import Array
from bilinear.measure.timing import Call
from bilinear.planner.plan import Plan
from bilinear.runtime.matmul import matmul
from bilinear.runtime.prepared import prepare

SIDES = LEFT, RIGHT = "left", "right"


class KeptCall:
    """C = A * B by a plan that keeps its results from one operand alone between calls.

    Calls do not check whether the operand has changed. Raises `BilinearError` (E539) if there is nothing to keep.
    """

    def __init__(self, plan: Plan, side: str, a: Array, b: Array, c: Array) -> None:
        self._plan, self._side, self._arrays = plan, side, (a, b, c)
        self._call = self._prepared()

    def __call__(self) -> None:
        """Multiply."""
        self._call()

    def renew(self) -> None:
        """Prepare the operand again, because it has changed."""
        self._call = self._prepared()

    def anew(self) -> None:
        """Prepare the operand, and multiply."""
        self.renew()
        self()

    def _prepared(self) -> Call:
        (a, b, c), plan = self._arrays, self._plan
        if self._side == LEFT:
            return partial(matmul, prepare(a, columns=plan.problem.n, plan=plan, check=False), b, c)
        return partial(matmul, a, prepare(b, rows=plan.problem.m, plan=plan, check=False), c)
