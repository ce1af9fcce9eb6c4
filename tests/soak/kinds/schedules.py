"""Mutated schedules: the proof beside a lock-step simulator, and what is proved run on integers."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np
from schedule_oracle import computes_interleaved
from soak.case import PASSED, REFUSED, Case, Finding
from soak.command import call, drawn, within
from soak.lockstep import End, IllFormed, run_schedule
from soak.schedule_edits import edited, gathered, in_rows

from bilinear.backends.executor import execute
from bilinear.backends.numpy_executor import NumpyExecutor
from bilinear.errors import BilinearError
from bilinear.frontend import load
from bilinear.frontend.printer import print_schedule, print_scheme
from bilinear.ir.matrix import call_of
from bilinear.ir.schedule import AnySchedule, LinearStage, ProductStage, Schedule
from bilinear.ir.scheme import Scheme
from bilinear.lowering.place import place_schedule
from bilinear.lowering.prepare import natural_inputs, prepare
from bilinear.passes.imply_scaling import why_not_implied
from bilinear.passes.order_products import colour_products, mark_first_writes
from bilinear.verify import schedule as proofs
from bilinear.verify.schedule import ScheduleProof

AUTHORED = ("msmes", "hopcroft_kerr_in_place", "laderman_in_place", "winograd_in_place", "winograd_depth_first", "classical")
LOWERED = ("msmes", "winograd_depth_first", "strassen", "winograd", "naive2x2", "hopcroft_kerr", "split_k")
JUDGED = frozenset({"E403", "E406", "E407"})
"""What is refused because values are wrong; every other code refuses what a stage may be made of."""


def run(case: Case) -> str:
    """Edit a schedule, let it be proved, and run it."""
    draw = drawn(case)
    authored = draw.random() < 0.6
    scheme, base = _base(draw.choice(AUTHORED if authored else LOWERED), authored)
    mutant = edited(base, draw) if draw.random() < 0.95 else base
    marked = mark_first_writes(mutant) if authored else mutant
    proof = _proof(marked, scheme)
    _compare(proof, marked, draw)
    if proof is None or not proof.holds:
        if authored and draw.random() < 0.15:
            _require_told(mutant, scheme, case, draw)
        return REFUSED
    if draw.random() < 0.5:
        _run_on_integers(mutant if authored else marked, scheme, authored, draw)
    return PASSED


@cache
def _base(name: str, authored: bool) -> tuple[Scheme, AnySchedule]:
    """A shipped schedule as its author wrote it, or as it is lowered."""
    loaded = load(name)
    if authored:
        assert loaded.schedule is not None
        return loaded.scheme, in_rows(loaded.schedule)
    prepared = prepare(loaded.scheme, loaded.schedule, 1, natural_inputs(loaded.schedule))
    return prepared.scheme, in_rows(prepared.schedule)


def _proof(schedule: AnySchedule, scheme: Scheme) -> ScheduleProof | None:
    """The proof; None where the schedule is too large, or of no shape, to be proved."""
    with within():
        try:
            return proofs.prove_schedule(schedule, scheme)
        except BilinearError:
            return None


def _compare(proof: ScheduleProof | None, schedule: AnySchedule, draw: random.Random) -> None:
    """The verdict beside what the simulator finds."""
    try:
        end = run_schedule(schedule, draw)
    except IllFormed as error:
        if proof is not None and proof.holds:
            raise Finding(f"a schedule is proved that means nothing: {error}\n{_text(schedule)}") from None
        return
    if proof is None:
        return
    is_right = end.right and end.kept >= set(schedule.restores)
    if proof.holds and not is_right:
        raise Finding(f"a wrong schedule is proved: {_told(end)}\n{_text(schedule)}")
    if proof.holds and set(proof.restored) != end.kept:
        raise Finding(f"{proof.restored} are said to come back: {_told(end)}\n{_text(schedule)}")
    codes = {failure.code for failure in proof.failures}
    if codes and codes <= JUDGED and is_right:
        raise Finding(f"a right schedule is refused: {sorted(codes)}\n{_text(schedule)}")
    if proof.holds and proof.recursive and _is_whole(schedule) and not computes_interleaved(schedule, trials=1, seed=draw.randrange(99)):
        raise Finding(f"a schedule is said to recurse in place, and does not\n{_text(schedule)}")


def _is_whole(schedule: AnySchedule) -> bool:
    """Whether the simulator of two levels knows the coefficients: square grids of integers, without workspaces."""
    for stage in schedule.stages:
        rows = [row for m in stage.maps for row in m.map.matrix] if isinstance(stage, LinearStage) else []
        targets = [t for p in stage.products for t in p.targets] if isinstance(stage, ProductStage) else []
        if not all(isinstance(c, int) for row in rows for _, c in row) or not all(isinstance(t.coefficient, int) for t in targets):
            return False
    return schedule.m == schedule.k == schedule.n and isinstance(schedule, Schedule) and not (schedule.overwrites or schedule.workspaces)


def _run_on_integers(schedule: AnySchedule, scheme: Scheme, authored: bool, draw: random.Random) -> None:
    """The NumPy engine beside the classical product of integers, bit by bit."""
    if why_not_implied(schedule):
        return
    inputs = natural_inputs(schedule)
    if authored:
        try:
            schedule = prepare(scheme, schedule, 1, inputs).schedule
        except BilinearError as error:
            raise Finding(f"proved, and not prepared: {error}\n{_text(schedule)}") from None
    assert isinstance(schedule, Schedule)
    schedule = colour_products(gathered(schedule))  # an engine is given no two products of a stage that add to one block
    m, k, n = (draw.randint(1, 9) * size + draw.randint(0, 2) for size in (schedule.m, schedule.k, schedule.n))
    generator = np.random.default_rng(draw.randrange(2**32))
    whole = [generator.integers(-16, 17, shape) * 64 for shape in ((m, k), (k, n), (m, n))]
    a, b, c = (x.astype(np.float64) for x in whole)
    alpha, beta = draw.choice((1, -1, 3)), 0 if schedule.overwrites else draw.choice((0, 1, -2))
    execute(NumpyExecutor(), place_schedule(schedule, m, k, n, 8), call_of(a, b, c, alpha, beta))
    wanted = alpha * (whole[0] @ whole[1]) + beta * whole[2]
    if not np.array_equal(c, wanted):
        raise Finding(f"proved, and wrong on integers at {m}x{k}x{n}, alpha {alpha}, beta {beta}\n{_text(schedule)}")
    changed = [name for name, now, was in (("A", a, whole[0]), ("B", b, whole[1])) if not np.array_equal(now, was)]
    if inputs != "consume" and changed:
        raise Finding(f"{inputs}, and {changed} changed at {m}x{k}x{n}\n{_text(schedule)}")


def _require_told(schedule: AnySchedule, scheme: Scheme, case: Case, draw: random.Random) -> None:
    """The command line refuses the text of a wrong schedule, too, soon and with a code; where its text is right, it is right."""
    try:
        text = print_scheme(scheme) + "\n" + print_schedule(schedule)
    except BilinearError:
        return
    path = case.folder / "x.bl"
    path.write_text(text, encoding="utf-8")
    answer = call("verify", path)
    if answer.status:
        return
    end = run_schedule(mark_first_writes(_again(path)), draw)
    if not end.right or not end.kept >= set(schedule.restores):
        raise answer.finding(f"a wrong schedule is proved: {_told(end)}")


def _again(path: Any) -> AnySchedule:
    found = load(path).schedule
    assert found is not None
    return found


def _told(end: End) -> str:
    return f"C is {'right' if end.right else 'wrong'}, {sorted(end.kept)} come back"


def _text(schedule: AnySchedule) -> str:
    """The schedule in the language where it has words for it."""
    try:
        return print_schedule(schedule)
    except Exception:
        return repr(schedule)
