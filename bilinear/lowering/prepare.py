"""Prepare: lower an algorithm to a schedule that can run, and prove it before and after the passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import combinations, pairwise
from math import prod

from bilinear.algebra.complex_products import four_products, of_conjugates, three_products
from bilinear.algebra.fold_bases import fold_bases
from bilinear.errors import fail
from bilinear.frontend.files import restoring_schedules
from bilinear.ir.bilinear_map import BilinearAlgorithm
from bilinear.ir.linear import LinearMap
from bilinear.ir.placement import LEVELS_ALLOWED, MOST_LEVELS, MOST_PRODUCTS, STAGE
from bilinear.ir.schedule import AnySchedule, Block, Product, ProductStage, Schedule, Target
from bilinear.ir.scheme import Scheme
from bilinear.ir.thread import CUDA_THREAD, NO_ROOM, Thread
from bilinear.lowering.coefficients import require_numbers
from bilinear.lowering.complex_level import complex_level
from bilinear.lowering.proofs import proved, proved_schedule, right_schedule
from bilinear.passes.colour_products import colour_products
from bilinear.passes.drop_restoration import drop_restoration
from bilinear.passes.fuse_linear_stages import fuse_linear_stages
from bilinear.passes.imply_scaling import imply_scaling, why_not_implied
from bilinear.passes.mark_first_writes import mark_first_writes
from bilinear.passes.nest_levels import nest_levels, why_not_nested
from bilinear.passes.one_product_a_stage import one_product_a_stage
from bilinear.passes.scheme_to_schedule import complex_to_products, scheme_to_schedule
from bilinear.verify.bilinear_map import prove_map
from bilinear.verify.composed import prove_composed
from bilinear.verify.schedule import ScheduleProof
from bilinear.verify.scheme import SchemeProof


@dataclass(frozen=True)
class Prepared:
    """A proved algorithm at some number of levels: the author's schedule, the lowered one, and the proofs of scheme and schedule.

    `written` is the schedule as its author wrote it, None if there is none, and `authored` the one that runs, with implied scaling. Both
    are proved; `authored_proof` and `written_proof` prove them again with all facts, for reports.
    """

    scheme: Scheme
    written: AnySchedule | None
    authored: Schedule
    schedule: Schedule
    scheme_proof: SchemeProof
    schedule_proof: ScheduleProof

    @cached_property
    def authored_proof(self) -> ScheduleProof:
        """The proof of the authored schedule, with all facts."""
        return proved_schedule(mark_first_writes(self.authored), self.scheme, is_proved=True)

    @cached_property
    def written_proof(self) -> ScheduleProof | None:
        """The proof of the schedule as written, with all facts; None if there is no schedule."""
        return None if self.written is None else proved_schedule(mark_first_writes(self.written), self.scheme, is_proved=True)


@dataclass(frozen=True)
class Level:
    """One level of a multiply: a scheme, and the schedule to run it by (None: expansion, products and recomposition)."""

    scheme: Scheme
    schedule: AnySchedule | None = None


def runnable(schedule: Schedule) -> Schedule:
    """The schedule as the proof executes it: contention split into stages, first writes marked."""
    return mark_first_writes(colour_products(schedule))


def is_runnable(scheme: Scheme, schedule: AnySchedule | None, inputs: str) -> bool:
    """True if an algorithm can be lowered. Approximate and modular schemes and some schedules can only be proved."""
    foreign = schedule is not None and not _gives_way(schedule, inputs) and bool(why_not_implied(schedule))
    return not (foreign or scheme.ring.modulus or scheme.ring.is_approximate)


def _gives_way(schedule: AnySchedule, inputs: str) -> bool:
    """True if the promise rules out the schedule, so that the plain schedule of the scheme runs instead."""
    return inputs == "preserve" and schedule.writes_operands


def natural_inputs(schedule: AnySchedule | None) -> str:
    """The default promise of an algorithm: `restore` or `consume` if its schedule writes the inputs, else `preserve`."""
    if schedule is None or not schedule.writes_operands:
        return "preserve"
    return "restore" if schedule.keeps >= {"A", "B"} else "consume"


def check_compilable(schedule: AnySchedule) -> None:
    """Refuse to compile or run a schedule that has no form with implied scaling (E411)."""
    why = why_not_implied(schedule)
    if why:
        hints = ("bilinear verify shows what it does", "run the scheme instead, or a schedule without such steps")
        raise fail("E411", f"{schedule.name} is a schedule to prove, not to run", *hints, span=schedule.span, notes=(why,))


def check_promise(scheme: Scheme, schedule: AnySchedule | None, inputs: str) -> None:
    """Refuse a promise that the algorithm cannot keep (E525)."""
    if inputs == "preserve":
        return
    if schedule is None:
        message = f"inputs={inputs!r} needs an in-place schedule, and {scheme.name} is a scheme without one"
        raise fail("E525", message, _with_a_schedule(scheme))
    if inputs == "restore" and not schedule.keeps >= {"A", "B"}:
        hint = "use inputs='consume', or inputs='preserve'"
        raise fail("E525", f"{schedule.name} does not restore both A and B", hint, span=schedule.span)


def _with_a_schedule(scheme: Scheme) -> str:
    """What to do where a scheme has no in-place schedule: take one that is shipped for it, or have one found."""
    names = restoring_schedules(scheme.name)
    if names:
        return f"use algorithm={names[0]!r}, the shipped schedule of {scheme.name} that restores A and B, or inputs='preserve'"
    return "use inputs='preserve', or a schedule: `bilinear schedule --in-place` looks for one"


def prepare(scheme: Scheme, schedule: AnySchedule | None, levels: int, inputs: str, mode: str = STAGE, modulus: int = 0) -> Prepared:
    """Lower a scheme, or its schedule, to `levels` levels and prove every step.

    `inputs` is `preserve`, `restore` or `consume`; under `preserve` the plain schedule replaces one that writes A or B. Linear stages of
    several levels are fused into one pass only in the default mode of execution. With a `modulus` the schedule runs on integers modulo p,
    and the scheme may be over Z/p. Raises `BilinearError` if a proof fails.
    """
    return _prepared(scheme, schedule, levels, inputs, CUDA_THREAD if mode == STAGE else NO_ROOM, modulus)


@lru_cache(maxsize=64)
def _prepared(scheme: Scheme, schedule: AnySchedule | None, levels: int, inputs: str, thread: Thread, modulus: int) -> Prepared:
    require_levels(levels)
    check_promise(scheme, schedule, inputs)
    one = _prove_level(Level(scheme, schedule), inputs, modulus)
    require_products(f"{levels} levels of {scheme.name if schedule is None else schedule.name}", products_of([one] * levels))
    lowered, schedule_proof = _lower_and_prove([one] * levels, inputs, thread)
    return Prepared(scheme, schedule, one.authored, lowered, one.scheme_proof, schedule_proof)


@lru_cache(maxsize=64)
def prepare_levels(levels: tuple[Level, ...], inputs: str) -> Schedule:
    """Lower levels, which may differ and are listed outermost first, to one flat schedule; every level and the result are proved.

    Raises `BilinearError` if a proof fails or a level cannot stand below another (E408).
    """
    require_levels(len(levels))
    ones = [_prove_level(level, inputs) for level in levels]
    require_products(f"these {len(levels)} levels", products_of(ones))
    for level, one in zip(levels, ones, strict=True):
        if one.authored.writes_operands:
            check_promise(level.scheme, level.schedule, inputs)
    return _lower_and_prove(ones, inputs)[0]


@lru_cache(maxsize=64)
def prepare_complex(levels: tuple[Level, ...], conjugated: str = "", core: BilinearAlgorithm | None = None) -> Schedule:
    """The flat schedule for complex matrices: each real product of `core` runs by these levels. Every level and the result are proved.

    Without a `core` there are three products. `conjugated` names the operands whose conjugates are multiplied: "", "A", "B" or "AB". A and
    B are preserved. Raises `BilinearError` as `prepare_levels` does, and if `core` does not multiply complex numbers (E350).
    """
    require_levels(len(levels))
    inner = [_prove_level(level, "preserve") for level in levels]
    algorithm = three_products(conjugated) if core is None else of_conjugates(core, conjugated)
    outermost = complex_level(inner[0].authored, algorithm, conjugated)
    ones = [_prove_complex(algorithm, outermost), *inner]
    require_products(f"complex products by these {len(levels)} levels", products_of(ones))
    return replace(_lower_and_prove(ones, "preserve")[0], name=outermost.name)


@lru_cache(maxsize=64)
def lowered_complex(levels: tuple[Level, ...]) -> Schedule:
    """The same without proofs, for plans."""
    authored = [authored_schedule(level.scheme, level.schedule, "preserve") for level in levels]
    return lower_levels([complex_level(authored[0], three_products(), ""), *authored], "preserve")


@lru_cache(maxsize=4)
def plain_complex(conjugated: str = "") -> Schedule:
    """The plain multiply of complex matrices by four real products, without workspace, for the strips of peeling."""
    schedule = complex_to_products(four_products(conjugated), conjugated)
    return _prove_complex(four_products(conjugated), schedule).authored


def _prove_complex(algorithm: BilinearAlgorithm, schedule: Schedule) -> _Proved:
    """The outermost level of a schedule for complex matrices, with its proofs."""
    prove_map(algorithm).require()
    schedule = runnable(schedule)
    proof = prove_composed(schedule, [schedule])
    proof.require()
    return _Proved(algorithm, schedule, proof)


def require_levels(levels: int) -> None:
    """Refuse an invalid number of levels (E502) before anything of that size is built."""
    if not isinstance(levels, int) or isinstance(levels, bool) or not 1 <= levels <= MOST_LEVELS:
        raise fail("E502", f"levels={levels!r} is not a number of levels", f"give an integer from 1: {LEVELS_ALLOWED}")


def products_of(levels: Sequence[_Proved]) -> int:
    """The products of levels; a schedule may have more of them than its scheme."""
    return prod(max(level.scheme.rank, level.authored.products) for level in levels)


def require_products(what: str, products: int) -> None:
    """Refuse levels of too many products (E501)."""
    if products > MOST_PRODUCTS:
        raise fail("E501", f"{what} are {products:,} products", f"take fewer levels: {LEVELS_ALLOWED}")


def authored_schedule(scheme: Scheme, schedule: AnySchedule | None, inputs: str) -> Schedule:
    """The schedule of one level: the author's if the promise allows it, else expansion, products and recomposition.

    Raises `BilinearError` (E411) if the author's schedule cannot be lowered and the plain one does not replace it.
    """
    if schedule is None or _gives_way(schedule, inputs):
        return scheme_to_schedule(fold_bases(scheme))
    check_compilable(schedule)
    return imply_scaling(schedule)


@dataclass(frozen=True)
class _Proved:
    """A level with its proofs."""

    scheme: Scheme | BilinearAlgorithm
    authored: Schedule
    authored_proof: ScheduleProof


@dataclass(frozen=True)
class _ProvedScheme(_Proved):
    """A level of real matrices with its proofs."""

    scheme: Scheme
    scheme_proof: SchemeProof


@lru_cache(maxsize=64)
def _prove_level(level: Level, inputs: str, modulus: int = 0) -> _ProvedScheme:
    scheme, schedule = level.scheme, level.schedule
    scheme_proof = proved(scheme)
    require_numbers(scheme, scheme_proof, modulus)
    if schedule is not None:  # prove it even if another schedule runs, so that a wrong schedule is always reported
        right_schedule(mark_first_writes(schedule), scheme)
    authored = authored_schedule(scheme, schedule, inputs)
    return _ProvedScheme(scheme, authored, right_schedule(mark_first_writes(authored), scheme), scheme_proof)


def _lower_and_prove(levels: Sequence[_Proved], inputs: str, thread: Thread = CUDA_THREAD) -> tuple[Schedule, ScheduleProof]:
    for outer, inner in combinations(levels, 2):
        if "" != outer.authored.ring.generator != inner.authored.ring.generator != "":
            rings = f"{outer.scheme.name} is over {outer.scheme.ring}, and {inner.scheme.name} over {inner.scheme.ring}"
            raise fail("E408", f"no ring holds the coefficients of these levels: {rings}", "choose another level", span=outer.authored.span)
    for outer, inner in pairwise(levels):
        refused = why_not_nested(outer.authored, inner.authored)
        if not refused and inner.authored.writes_operands:
            refused = outer.authored_proof.why_not or inner.authored_proof.why_not
        if refused:
            name, hint = outer.authored.name, "use levels=1" if outer is inner else "choose another level"
            what = f"{name} cannot recurse" if outer is inner else f"{inner.authored.name} cannot run the products of {name}"
            raise fail("E408", f"{what}: {refused}", hint, span=outer.authored.span)
    lowered = lower_levels([level.authored for level in levels], inputs, thread)
    authored = [mark_first_writes(level.authored) for level in levels]
    if [lowered] == authored:
        return lowered, levels[0].authored_proof
    if len(levels) == 1 and isinstance(scheme := levels[0].scheme, Scheme):
        proof = proved_schedule(lowered, scheme, is_proved=True)
    else:
        proof = prove_composed(lowered, authored)
    proof.require()
    return lowered, proof


def lower_levels(authored: Sequence[Schedule], inputs: str, thread: Thread = CUDA_THREAD) -> Schedule:
    """Combine schedules of one level, listed outermost first, into the one that will run; a pass holds as much as a `thread` can.

    The result is not proved yet. If a level that allocates nothing is above one that allocates, its products run one at a time to save
    memory.
    """
    kept = [
        one_product_a_stage(outer) if outer.runs_in_place and not all(inner.runs_in_place for inner in authored[i + 1 :]) else outer
        for i, outer in enumerate(authored)
    ]
    lowered = fuse_linear_stages(nest_levels(kept), thread)
    return runnable(drop_restoration(lowered) if inputs == "consume" else lowered)


@lru_cache(maxsize=1)
def plain() -> Prepared:
    """The plain multiply as a schedule of one product, for the strips of peeling."""
    one = LinearMap(1, (((0, 1),),))
    product = Product(Block("A", 0, 0), Block("B", 0, 0), (Target(Block("C", 0, 0)),))
    schedule = Schedule("plain", "plain", 1, 1, 1, (ProductStage((product,)),), in_place=True, restores=("A", "B"))
    return prepare(Scheme("plain", 1, 1, 1, one, one, one, ("M1",)), schedule, 1, "restore")
