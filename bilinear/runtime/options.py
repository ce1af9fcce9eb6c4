"""The options of a call."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bilinear.backends.same import Same
from bilinear.errors import fail
from bilinear.frontend import Loaded
from bilinear.ir.matrix import Array, Factor
from bilinear.planner.device import Device
from bilinear.planner.plan import Plan
from bilinear.planner.problem import require_inputs
from bilinear.runtime import auto
from bilinear.runtime.arrays import NUMPY, Kind
from bilinear.runtime.environment import uses_library


class Options(NamedTuple):
    """The options of a call, and the `kind` of its operands.

    After `settled`, `algorithm` is None for `auto` and for the library's multiply. `device` describes the GPU if the decision needs it:
    for `auto` to choose a plan, for a named algorithm to choose its tile.
    """

    alpha: Factor
    beta: Factor
    algorithm: str | Loaded | None
    levels: int | str
    inputs: str
    workspace: Array
    tolerance: float | None
    plan: Plan | None
    device: Device | None = None
    kind: Kind = NUMPY

    def settled(self, kind: Kind) -> Options:
        """These options for operands of this kind, after reading the environment and describing the GPU."""
        if uses_library():
            return self._replace(kind=kind, algorithm=None, levels=0, plan=None)
        if self.plan is not None:
            return self._replace(kind=kind, algorithm=None, levels=0)
        is_auto = self.algorithm == "auto"
        asks = kind.on_gpu and (self.levels == "auto" if is_auto else self.levels != 0)
        device = auto.current_device() if asks else None
        if is_auto or self.levels == 0:
            return self._replace(kind=kind, algorithm=None, levels=0, device=device)
        return self._replace(kind=kind, device=device)

    @property
    def budget(self) -> int | None:
        """The most bytes of workspace; None if there is no limit, or a buffer of the caller's."""
        return auto.budget_and_buffer(self.workspace)[0]

    @property
    def buffer(self) -> Array:
        """The caller's own workspace, or None."""
        return auto.budget_and_buffer(self.workspace)[1]

    @property
    def is_automatic(self) -> bool:
        """Whether timed plans and the model decide what runs."""
        return self.algorithm is None and self.plan is None and self.device is not None

    def is_plain(self, kind: Kind) -> bool:
        """Whether these options, before they are settled, come to NumPy's own multiply of arrays in the host's memory."""
        if kind.on_gpu or self.alpha != 1 or self.beta != 0:
            return False
        return (self.plan is None and (self.algorithm == "auto" or self.levels == 0)) or uses_library()

    @property
    def most_bytes(self) -> int | None:
        """The most bytes of workspace that a chosen plan may need; the size of the caller's buffer if there is one."""
        budget, buffer = auto.budget_and_buffer(self.workspace)
        return budget if buffer is None else getattr(buffer, "nbytes", 0)

    @property
    def question(self) -> tuple[object, ...]:
        """Everything in the options that decides what runs. Algorithm, plan and device count by identity: hashing them is slow."""
        named = tuple(None if x is None else Same(x) for x in (self.algorithm, self.plan, self.device))
        return named, self.levels, self.inputs, self.most_bytes, bool(self.alpha != 0), bool(self.beta != 0)


def check_options(options: Options, out: Array) -> None:
    """Refuse options that have no meaning: E513, E514, E515, E528."""
    alpha, beta, _, levels, inputs, *_ = options
    require_inputs(inputs)
    if levels != "auto" and (not isinstance(levels, (int, np.integer)) or isinstance(levels, bool) or levels < 0):
        raise fail("E514", f"levels={levels!r} is not a number of levels", "give an integer of at least 0, or 'auto'")
    factors: tuple[tuple[str, Array], ...] = (("alpha", alpha), ("beta", beta))
    for name, value in factors:
        if type(value) not in (int, float) and np.ndim(value) != 0:
            raise fail("E528", f"{name} is an array of {np.ndim(value)} dimension(s), not a number", "scale the operands by it")
    if out is None and beta != 0:
        raise fail("E515", "beta scales out, and there is no out", "give out=, or leave beta at 0")
