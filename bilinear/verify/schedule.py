"""The proof of a schedule: run it exactly on symbols, and compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bilinear.errors import BilinearError, Diagnostic
from bilinear.ir.schedule import AnySchedule, Block, LinearStage, ProductStage
from bilinear.ir.scheme import Scheme
from bilinear.verify.facts import LINEAR, LOST, OperandFate, ScheduleCosts, ShapeConditions, StageFact, first_of
from bilinear.verify.hazards import find_hazards, find_shared_operands, needed_after, steps_of, why_not_recursive
from bilinear.verify.recovery import Recovery
from bilinear.verify.symbolic_run import SymbolicRun, Value, Word

ILL_DEFINED = frozenset({"E401", "E402", "E405", "E409"})  # After these the fate of A and B is not reported.
UNDEFINED = frozenset({"E402", "E405"})  # After these values mean nothing: no wrong result is reported.
Lines = tuple[str, ...]


@dataclass(frozen=True)
class ScheduleProof:
    """The decision about one schedule.

    `restored` names the operands that end unchanged. `recursive` says whether its products may run by the same schedule in place; if not,
    `why_not` gives the reason. `direct`: C is right, but not by the products of the scheme that the schedule names. For correct one-level
    schedules, `fates` describes the final A and B, `shapes` the problems that fit, and `costs` the costs.
    """

    schedule: str
    scheme: str
    levels: int
    stages: tuple[StageFact, ...]
    restored: tuple[str, ...]
    recursive: bool
    failures: tuple[Diagnostic, ...]
    why_not: str = ""
    direct: bool = False
    fates: tuple[OperandFate, ...] = ()
    shapes: ShapeConditions | None = None
    costs: ScheduleCosts | None = None

    @property
    def holds(self) -> bool:
        """True if nothing fails."""
        return not self.failures

    def require(self) -> None:
        """Raise `BilinearError` with every failure, if there are any."""
        if not self.holds:
            raise BilinearError(first_of(self.failures))


def prove_schedule(schedule: AnySchedule, scheme: Scheme | None = None) -> ScheduleProof:
    """Decide whether a schedule with marked first writes computes alpha*A*B + beta*C, or what its result says, and keeps its promises.

    `scheme` is the scheme whose products a one-level schedule should use; one that computes C by other products is right as well. In-place
    recursion is safe at every level if it is safe for one: an inner level adds its product and restores its operands, and the outer level
    assumes no more. Raises `BilinearError` if a one-level schedule is too large to prove (E412).
    """
    run = SymbolicRun(schedule, scheme)
    run.run(schedule)
    meaningless = any(d.code in UNDEFINED for d in run.failures)
    wrong = [] if meaningless else _wrong_results(run)
    changed = {block.space for block, value in run.symbols.original.items() if run.state.get(block) != value}
    restored = tuple(name for name in ("A", "B") if name not in changed)
    failures = [*run.failures, *_shared_operands(schedule), *(run.strangers if wrong else []), *wrong]
    sound = schedule.levels == 1 and not wrong and not any(d.code in ILL_DEFINED for d in run.failures)
    fates = Recovery(schedule, run.symbols, run.state).fates() if sound else ()
    failures += _broken_promises(run, fates)
    why_not = why_not_recursive(schedule, restored)
    return ScheduleProof(
        schedule.name,
        schedule.scheme,
        schedule.levels,
        tuple(run.facts),
        restored,
        not why_not,
        tuple(failures),
        why_not,
        direct=bool(run.strangers) and not wrong and not meaningless,
        fates=fates,
        shapes=shape_conditions(schedule, run.history) if sound else None,
        costs=schedule_costs(schedule, run.history, run.symbols.original) if sound else None,
    )


def is_sound(schedule: AnySchedule) -> bool:
    """True if no steps of a stage interfere, neither directly nor in the recursion that the schedule claims."""
    hazards = any(True for number, stage in enumerate(schedule.stages, 1) for _ in find_hazards(number, stage, schedule))
    return not hazards and not _shared_operands(schedule)


def schedule_holds(schedule: AnySchedule, scheme: Scheme | None = None) -> bool:
    """True if the proof of a schedule holds: the verdict of `prove_schedule` without the other facts."""
    if not is_sound(schedule):
        return False
    run = SymbolicRun(schedule, scheme)
    run.run(schedule)
    return not run.failures and not _wrong_results(run) and not _broken_promises(run, ())


def _shared_operands(schedule: AnySchedule) -> list[Diagnostic]:
    """The operands that prevent the in-place recursion that a schedule claims (E404)."""
    if not schedule.in_place:
        return []
    stages = [(number, stage) for number, stage in enumerate(schedule.stages, 1) if isinstance(stage, ProductStage)]
    return [diagnostic for number, stage in stages for _, diagnostic in find_shared_operands(number, stage, schedule.written)]


def _wrong_results(run: SymbolicRun) -> list[Diagnostic]:
    """The blocks of C with a wrong final value (E406)."""
    s, symbols, original = run.schedule, run.symbols, run.symbols.original
    alpha, beta = symbols.scalar(s.result.alpha), symbols.scalar(s.result.beta)
    found = []
    for block in s.space("C").blocks:
        terms = (original[Block("A", block.row, p)] * original[Block("B", p, block.column)] for p in range(s.k))
        wanted = alpha * sum(terms, symbols.ring.zero) + beta * original[block]
        if block not in run.state:
            found.append(Diagnostic("E406", f"{s.name}: nothing is written to {block}", s.span))
        elif not symbols.vanishes(run.state[block] - wanted):
            message = f"{s.name}: {block} is not {str(s.result).removeprefix('C = ')}"
            hint = "a product is missing, doubled, or has the wrong sign in this block"
            note = f"the difference is {symbols.text(run.state[block] - wanted)}"
            found.append(Diagnostic("E406", message, s.span, notes=(note,), hints=(hint,)))
    if found:
        steps = ((f"of stage {number}" if span is None else f"at {span}", block) for number, block, span in run.wasted[:4])
        wasted = (f"nothing reads what the step {where} writes to {block}" for where, block in steps)
        found[0] = replace(found[0], notes=(*found[0].notes, *wasted))
    return found


def _broken_promises(run: SymbolicRun, fates: tuple[OperandFate, ...]) -> list[Diagnostic]:
    """The blocks that are not restored as promised (E407), and steps that would restore them."""
    s = run.schedule
    found: list[Diagnostic] = []
    for block, value in run.symbols.original.items():
        if block.space not in s.restores or run.state[block] == value:
            continue
        message = f"{s.name} promises to restore {block.space}, but {block} does not come back"
        note = f"{block} ends as {run.symbols.text(run.state[block])}"
        fate = next((f for f in fates if f.operand == block.space), None)
        told_before = any(f"restore {block.space}," in d.message for d in found)
        more, hints = ((), ()) if fate is None or told_before else _way_back(fate, s)
        found.append(Diagnostic("E407", message, s.span, notes=(note, *more), hints=hints))
    return found


def _way_back(fate: OperandFate, schedule: AnySchedule) -> tuple[Lines, Lines]:
    """Notes and hints on how an operand can be restored, or why it cannot; a hint uses only coefficients of the schedule's ring."""
    if fate.divisor:
        return (f"{fate.operand} can be had back where {fate.divisor} can be divided by, which {schedule.ring} does not allow",), ()
    if fate.verdict == LINEAR:
        stages = " ".join(f"restore stage {{ {steps} }}" for steps in fate.restoring)
        return (), (f"this brings {fate.operand} back: {stages}",)
    if fate.verdict == LOST and not fate.confused:
        return (f"{fate.operand} is not determined at every input", *fate.counterexample), ()
    return tuple(f"it is lost: {change} leaves no trace" for change in fate.confused), ()


def schedule_costs(schedule: AnySchedule, history: Sequence[Mapping[Block, Value]], original: Mapping[Block, Value]) -> ScheduleCosts:
    """The costs of a schedule from the states after each stage."""
    stages = [stage for stage in schedule.stages if isinstance(stage, ProductStage)]
    widths = tuple(len(stage.products) for stage in stages)
    groups = tuple(max(Counter(block for block, _ in stage.writes).values()) for stage in stages)
    moments = zip(needed_after(schedule), history, strict=True)
    live = max((sum(1 for b in blocks if b in state and state[b] != original.get(b)) for blocks, state in moments), default=0)
    kinds = [isinstance(stage, LinearStage) for stage in schedule.stages]
    passes = sum(1 for i, linear in enumerate(kinds) if not linear or i == 0 or not kinds[i - 1])
    depths: dict[Block, int] = {}
    for stage in schedule.stages:
        written: dict[Block, int] = {}
        for step in steps_of(stage):
            depth = 1 + max((depths.get(block, 0) for block in step.reads), default=0)
            written |= {block: max(depth, written.get(block, 0)) for block in step.writes}
        depths |= written
    return ScheduleCosts(live, max(depths.values(), default=0), widths, groups, passes)


EXTENTS = {"A": ("M", "K"), "B": ("K", "N"), "C": ("M", "N")}
WORDS = {"A": "a form over A", "B": "a form over B", "C": "a block of C's size"}


def shape_conditions(schedule: AnySchedule, history: Sequence[Mapping[Block, Value]]) -> ShapeConditions:
    """The conditions on M x K times K x N, from the states after each stage.

    A form over A has the shape of A's blocks, and so on; a product has that of C's. A temporary without a declared shape is as large as its
    contents require, but all values summed in it must have one shape.
    """
    equal: dict[str, str] = {extent: extent for extent in "MKN"}
    reasons: list[str] = []
    holds: dict[str, set[str]] = {}
    own = {space.name: space.shape for space in schedule.spaces}
    for number, block, held in _held(history):
        shapes = held | ({own[block.space]} if own[block.space] else set())
        if not own[block.space]:
            holds.setdefault(block.space, set()).update(held)
        if _unify(equal, shapes):
            what = " and ".join(WORDS[s] for s in sorted(shapes) if s != own[block.space])
            reasons.append(f"stage {number} leaves {what} in {block}")
    temporaries = tuple(f"{name} holds blocks as large as those of {' and '.join(sorted(shapes))}" for name, shapes in holds.items())
    return ShapeConditions(_statement(schedule, equal), tuple(reasons), temporaries)


def _held(history: Sequence[Mapping[Block, Value]]) -> Iterator[tuple[int, Block, set[str]]]:
    before: Mapping[Block, Value] = {}
    for number, state in enumerate(history, 1):
        for block, value in state.items():
            if value is not before.get(block) and (shapes := {_shape(word) for word in value}):
                yield number, block, shapes
        before = state


def _shape(word: Word) -> str:
    if word[4] or (word[2] and word[3]):
        return "C"
    return "A" if word[2] else "B"


def _unify(equal: dict[str, str], shapes: set[str]) -> bool:
    """Require these shapes to be equal; returns whether that is a new condition."""
    first, *rest = sorted(shapes)
    changed = False
    for other in rest:
        for x, y in zip(EXTENTS[first], EXTENTS[other], strict=True):
            low, high = sorted((equal[x], equal[y]), key="MKN".index)
            if low != high:
                changed = True
                equal.update({extent: low for extent, root in equal.items() if root == high})
    return changed


def _statement(schedule: AnySchedule, equal: Mapping[str, str]) -> str:
    sizes = {"M": schedule.m, "K": schedule.k, "N": schedule.n}
    groups = [[extent for extent in "MKN" if equal[extent] == root] for root in "MKN"]
    (joined,) = [group for group in groups if len(group) > 1] or [[]]
    if not joined:
        return ""
    same = len({sizes[extent] for extent in joined}) == 1
    text = " = ".join(extent if same or sizes[extent] == 1 else f"{extent}/{sizes[extent]}" for extent in joined)
    return f"square problems only: {text}" if len(joined) == 3 and same else f"only problems with {text}"
