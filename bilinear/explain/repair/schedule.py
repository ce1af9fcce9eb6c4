"""The search for the fewest edits that make a schedule correct.

A schedule is first tried as numbers modulo a prime: random numbers for the blocks of A and B, and random weights for those of C. Products
are forms over A times forms over B in this order, so commuting numbers hide nothing. The steps on A, the steps on B and the targets of
products give three factors of one sum, as in a scheme; promised operands must be restored. Candidates that pass are proved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from bilinear.errors import BilinearError
from bilinear.explain.repair.edits import KINDS
from bilinear.explain.repair.join import has_residue
from bilinear.explain.repair.step_edits import StepEdit
from bilinear.explain.repair.steps import LinearStep, Step, Steps, read_steps
from bilinear.explain.repair.trial import BUILT, PROVED_STEP, Budget, Repair, Trial, start_of
from bilinear.ir.schedule import AnySchedule, Schedule
from bilinear.ir.scheme import Scheme
from bilinear.verify.schedule import is_sound, schedule_holds

MOST_EDITS = 3
MOST_ON_ONE_SIDE = 2
MOST_WORK = 100_000_000
"""The limit of a search, in combinations of edits examined: about a second. All other work is converted to this unit."""
MOST_PROVED = 40
MOST_STEPS = 50_000
"""The most steps that are tried in place of another."""


@dataclass(frozen=True)
class Search:
    """The result of a search: repairs with the fewest edits, those closest to the text first.

    `complete` is the number of edits up to which all combinations were tried. If the work limit ended the search, `looked` counts the
    combinations examined; else it is 0.
    """

    repairs: tuple[Repair, ...] = ()
    complete: int = 0
    looked: int = 0


def search_schedule_repairs(schedule: AnySchedule, scheme: Scheme, work: int = MOST_WORK) -> Search:
    """The repairs with the fewest edits, within an amount of `work`; every repair returned is proved.

    At most three edits are combined, at most two of them on one of A, B and the targets.
    """
    steps = read_steps(schedule)
    if steps is None or not _has_residues(steps) or _too_many(steps):
        return Search()
    trial, budget = Trial(steps), Budget(work)
    complete = 0
    for size in range(1, MOST_EDITS + 1):
        splits = [s for s in product(range(MOST_ON_ONE_SIDE + 1), repeat=3) if sum(s) == size]
        if not all(trial.has_sets(split) for split in splits):
            return Search((), complete)
        found = list(trial.candidates(splits, budget)) if len(trial.unsound) <= size else []
        if size == 1:
            found += [(edit,) for edit in trial.missing_products()]
        repairs = _proved(steps, scheme, sorted(found, key=_closeness), budget)
        if repairs:
            return Search(repairs, complete)
        if not budget.left:
            return Search((), complete, budget.looked)
        complete = size if size <= MOST_ON_ONE_SIDE else complete
    return Search((), complete)


def _proved(steps: Steps, scheme: Scheme, ordered: Sequence[Repair], budget: Budget) -> tuple[Repair, ...]:
    """The repairs that are proved; of several that give the same schedule only the first counts."""
    different: dict[Schedule, Repair] = {}
    proofs = 0
    for repair in ordered:
        if not budget.take(BUILT):
            break
        repaired = _with_edits(steps, repair)
        if repaired in different or not is_sound(repaired):
            continue
        proofs += 1
        if proofs > MOST_PROVED or not budget.take(PROVED_STEP * sum(map(len, steps.stages))):
            budget.take(budget.left)
            break
        if _holds(repaired, scheme):
            different[repaired] = repair
    return tuple(different.values())


def _holds(schedule: Schedule, scheme: Scheme) -> bool:
    try:
        return schedule_holds(schedule, scheme)
    except BilinearError:  # too large to prove
        return False


def _with_edits(steps: Steps, edits: Sequence[StepEdit]) -> Schedule:
    """The schedule after some edits."""
    stages: list[list[Step | None]] = [list(stage) for stage in steps.stages]
    for edit in edits:
        if edit.number < len(steps.stages[edit.stage]):
            stages[edit.stage][edit.number] = edit.new
        else:
            stages[edit.stage].append(edit.new)
    return Steps(steps.schedule, tuple(tuple(step for step in stage if step is not None) for stage in stages)).build()


def _closeness(repair: Repair) -> tuple[object, ...]:
    kinds = tuple(sorted((KINDS.index(e.kind) for e in repair), reverse=True))
    return kinds, tuple((e.stage, e.number, start_of(e.span), e.text) for e in repair)


def _has_residues(steps: Steps) -> bool:
    terms = [t for stage in steps.stages for s in stage for t in (s.terms if isinstance(s, LinearStep) else s.targets)]
    return all(has_residue(c) for _, c in terms)


def _too_many(steps: Steps) -> bool:
    blocks = max(len(space.blocks) for space in steps.schedule.spaces)
    written = sum(len(stage) + 1 for stage in steps.stages)
    return 2 * blocks * blocks * written > MOST_STEPS
