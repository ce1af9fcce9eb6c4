"""Prepare: lower an algorithm to a schedule that can run, and prove it, before and after the passes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from bilinear.errors import BilinearError, fail
from bilinear.ir.linear import LinearMap
from bilinear.ir.schedule import Schedule
from bilinear.ir.scheme import Scheme
from bilinear.passes.colour_products import colour_products
from bilinear.passes.drop_restoration import drop_restoration
from bilinear.passes.fold_bases import fold_bases
from bilinear.passes.fuse_linear_stages import fuse_linear_stages
from bilinear.passes.mark_first_writes import mark_first_writes
from bilinear.passes.nest_levels import nest_levels
from bilinear.passes.scheme_to_schedule import scheme_to_schedule
from bilinear.planner.rings import require_numbers
from bilinear.verify.schedule import ScheduleProof, check_compilable, prove_schedule
from bilinear.verify.scheme import SchemeProof, prove_scheme

INPUTS = ("preserve", "restore", "consume")
MOST_PRODUCTS = 5_000
"""More products than this in one flat schedule are refused: its proof would take minutes, and its blocks would be small."""

MOST_LEVELS = 20
"""Levels whose products are counted; with more of them every scheme of rank 2 or more has too many."""


@dataclass(frozen=True)
class Prepared:
    """A proved algorithm at some number of levels: the author's schedule, the lowered one, and the proofs of all three."""

    scheme: Scheme
    authored: Schedule
    schedule: Schedule
    scheme_proof: SchemeProof
    authored_proof: ScheduleProof
    schedule_proof: ScheduleProof


def runnable(schedule: Schedule) -> Schedule:
    """The schedule with contention split into stages and first writes marked: what the proof executes."""
    return mark_first_writes(colour_products(schedule))


def is_runnable(scheme: Scheme, schedule: Schedule | None, inputs: str) -> bool:
    """Whether an algorithm, once proved, can be lowered at all: approximate and modular schemes and foreign schedules are only proved."""
    foreign = schedule is not None and schedule.scales_itself and inputs != "preserve"
    return not (foreign or scheme.ring.modulus or scheme.ring.is_approximate)


def natural_inputs(schedule: Schedule | None) -> str:
    """What an algorithm promises of its inputs unless told otherwise: its schedule restores them or consumes them, a scheme preserves."""
    if schedule is None:
        return "preserve"
    return "restore" if schedule.keeps >= {"A", "B"} else "consume"


def check_promise(scheme: Scheme, schedule: Schedule | None, inputs: str) -> None:
    """Refuse a promise that the algorithm cannot keep (E525)."""
    if inputs == "preserve":
        return
    if schedule is None:
        message = f"inputs={inputs!r} needs an in-place schedule, and {scheme.name} is a scheme without one"
        raise fail("E525", message, "use the schedule msmes, or inputs='preserve'")
    if inputs == "restore" and not schedule.keeps >= {"A", "B"}:
        raise fail(
            "E525", f"{schedule.name} does not restore both A and B", "use inputs='consume', or inputs='preserve'", span=schedule.span
        )


def proved(scheme: Scheme) -> SchemeProof:
    """The proof of a scheme; a wrong one is refused with what is wrong and what mends it (E301)."""
    proof = prove_scheme(scheme)
    if not proof.holds:
        raise _explained(proof, scheme)
    return proof


def proved_schedule(schedule: Schedule, scheme: Scheme) -> ScheduleProof:
    """The proof of a schedule of one level; a wrong one is refused with what is wrong and what mends it (E4xx)."""
    proof = prove_schedule(schedule, scheme)
    if not proof.holds:
        raise _explained(proof, scheme, schedule)
    return proof


def _explained(proof: SchemeProof | ScheduleProof, scheme: Scheme, schedule: Schedule | None = None) -> BilinearError:
    from bilinear.verify.explain import explained  # the search is needed by nobody whose scheme is right

    return explained(proof, scheme, schedule)


@lru_cache(maxsize=64)
def prepare(scheme: Scheme, schedule: Schedule | None, levels: int, inputs: str) -> Prepared:
    """Lower a scheme, or its in-place schedule, to `levels` levels and prove every step.

    `inputs` is `preserve`, `restore` or `consume`; under `preserve` a schedule that writes A or B gives way to the plain one.
    Raises `BilinearError` where a proof fails.
    """
    scheme_proof = proved(scheme)
    require_numbers(scheme, scheme_proof)
    if schedule is not None and inputs != "preserve":
        check_compilable(schedule)
    check_promise(scheme, schedule, inputs)
    if schedule is not None:  # also where another one runs: nobody is told that a wrong schedule is proved
        proved_schedule(mark_first_writes(schedule), scheme)
    authored = schedule if schedule is not None and inputs != "preserve" else scheme_to_schedule(fold_bases(scheme))
    authored_proof = proved_schedule(mark_first_writes(authored), scheme)
    if levels > 1 and authored.runs_in_place and not authored_proof.recursive:
        raise fail("E408", f"{authored.name} cannot recurse in place: {authored_proof.why_not}", "use levels=1", span=authored.span)
    if scheme.rank ** min(levels, MOST_LEVELS) > MOST_PRODUCTS:
        raise fail(
            "E501", f"{levels} levels of {scheme.name} are {_power(scheme.rank, levels)} products", f"at most {MOST_PRODUCTS} are run flat"
        )
    lowered = lower_levels(authored, levels, inputs)
    schedule_proof = prove_schedule(lowered)
    schedule_proof.require()
    return Prepared(scheme, authored, lowered, scheme_proof, authored_proof, schedule_proof)


def lower_levels(authored: Schedule, levels: int, inputs: str) -> Schedule:
    """A schedule of one level at `levels` levels, as it will run; not yet proved."""
    lowered = fuse_linear_stages(nest_levels([authored] * levels))
    return runnable(drop_restoration(lowered) if inputs == "consume" else lowered)


def _power(rank: int, levels: int) -> str:
    return str(rank**levels) if levels <= MOST_LEVELS else f"{rank}^{levels}"


@lru_cache(maxsize=1)
def plain() -> Prepared:
    """The plain multiply as a schedule of one product, for what peeling leaves over."""
    one = LinearMap(1, (((0, 1),),))
    return prepare(Scheme("plain", 1, 1, 1, one, one, one, ("M1",)), _plain_schedule(), 1, "restore")


def _plain_schedule() -> Schedule:
    from bilinear.ir.schedule import Block, Product, ProductStage, Target

    product = Product(Block("A", 0, 0), Block("B", 0, 0), (Target(Block("C", 0, 0)),))
    return Schedule("plain", "plain", 1, 1, 1, (ProductStage((product,)),), in_place=True, restores=("A", "B"))
