"""Trials: the first calls of a shape run the likely plans in turn, each timed at the caller's own work; the fastest one is kept."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bilinear.errors import fail
from bilinear.planner.choose import in_order, timed_plan
from bilinear.planner.device import Device
from bilinear.planner.plan import Candidate, Plan
from bilinear.planner.problem import Problem
from bilinear.runtime import auto, devices_here

if TYPE_CHECKING:
    from cupy.cuda import Event

Subject = tuple[Problem, tuple[str, int]]  # A problem, and the name and the driver of the GPU.

MEASURE, NEVER = b"BILINEAR_MEASURE", b"never"
LEAST_MS = 1.0  # A product that is predicted to take less is not worth a trial.
MOST, NEAR, LIBRARY_NEAR = 3, 2.0, 8.0
"""The most plans that are tried beside the library's multiply, and how many times the prediction of the fastest plan theirs may be."""
ROUNDS = 3  # Turns of each plan. The first one, in which kernels are built and loaded, is not timed.
MOST_TRIALS = 1024  # The most trials that are under way; further products run what is predicted.
_open: dict[Subject, PlanTrial] = {}
log = logging.getLogger("bilinear")


class PlanTrial:
    """The plans that are tried for a problem, the predicted one first, and the events around their runs."""

    def __init__(self, subject: Subject, device: Device, candidates: Sequence[Candidate]) -> None:
        self._subject, self._device = subject, device
        self.plans = [timed_plan(subject[0], device, (candidate,)) for candidate in candidates]
        self.runs: list[list[tuple[Event, Event]]] = [[] for _ in candidates]
        self.failed = set[int]()

    @property
    def next(self) -> int:
        """The plan whose turn it is."""
        return min((n for n in range(len(self.plans)) if n not in self.failed), key=lambda n: len(self.runs[n]), default=0)

    def settle(self) -> None:
        """Keep the fastest plan once all have had their turns, for this process and for later ones on such a GPU."""
        left = [n for n in range(len(self.plans)) if n not in self.failed]
        if not left or any(len(self.runs[n]) < ROUNDS for n in left) or _open.pop(self._subject, None) is None:
            return
        timed = [replace(self.plans[n].chosen, ms=min(map(_elapsed, self.runs[n][1:])), why="") for n in left]
        problem, (name, driver) = self._subject
        plan = replace(timed_plan(problem, self._device, in_order(timed)), device=name)
        log.info("measured on %s: %s", name, "; ".join(map(str, plan.candidates)))
        auto.keep_measured(plan, driver)


def _elapsed(run: tuple[Event, Event]) -> float:
    from cupy.cuda import get_elapsed_time

    run[1].synchronize()
    return float(get_elapsed_time(*run))


@dataclass(frozen=True)
class Turn:
    """A call in which a plan is tried."""

    trial: PlanTrial
    number: int

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Time what the block launches. It says if the plan `fails`, so that another one runs."""
        from cupy.cuda import Event

        start, end = Event(), Event()
        start.record()
        yield
        end.record()
        self.trial.runs[self.number].append((start, end))
        self.trial.settle()

    def fails(self) -> None:
        """Try the plan no more."""
        self.trial.failed.add(self.number)


def asked_on(device: Device) -> bytes:
    """What BILINEAR_MEASURE asks for, or its default for a device. Raises `BilinearError` (E548) if it holds another word."""
    asked = devices_here.value_of(MEASURE) or (b"first" if device.estimate else NEVER)
    if asked not in (NEVER, b"first", b"always"):
        raise fail("E548", f"BILINEAR_MEASURE={os.fsdecode(asked)!r} is none of never, first and always", "set one of them, or unset it")
    return asked


def settle(call: Callable[[], object], device: Device) -> None:
    """Repeat a call of `auto` until no plan is tried any more."""
    for _ in range(0 if asked_on(device) == NEVER else ROUNDS * (MOST + 1)):
        call()
        if not is_open():
            return


def is_open() -> bool:
    """Whether any trial is under way: then a call may be decided otherwise when it comes again."""
    return bool(_open)


def trial_of(plan: Plan, device: Device, gpu: tuple[str, int] | None) -> PlanTrial | None:
    """The trial to which a call with a plan belongs; None if nothing is to be measured, or all is. Raises what `asked_on` raises."""
    asked = asked_on(device)
    if gpu is None or asked == NEVER or (plan.chosen.ms or 0.0) < LEAST_MS:
        return None
    subject = plan.problem, gpu
    if subject in auto.measured or (asked == b"first" and plan.is_timed):
        return None
    found = _open.get(subject)
    if found is None and len(_open) < MOST_TRIALS:
        candidates = _tried(plan)
        found = _open.setdefault(subject, PlanTrial(subject, device, candidates)) if len(candidates) > 1 else None
    return found


def _tried(plan: Plan) -> list[Candidate]:
    """The candidates that are tried: the chosen one, of each method the fastest, then others by time; and the library's multiply."""
    best = min(c.ms or 0.0 for c in plan.candidates if c.able and c.ms)
    near = [c for c in plan.candidates if c.able and c.ms and c.ms <= (NEAR if c.choice.has_kernels else LIBRARY_NEAR) * best]
    own, others = ([c for c in near if c.choice.has_kernels is ours] for ours in (True, False))
    firsts = {c.choice.method: c for c in reversed(own)}
    ranked = sorted(own, key=lambda c: (c is not plan.chosen, c is not firsts[c.choice.method], c.ms or 0.0))
    return sorted([*ranked[:MOST], *others[:1]], key=lambda c: c is not plan.chosen)
