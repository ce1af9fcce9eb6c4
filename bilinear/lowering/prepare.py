"""Prepare: lower an algorithm to a schedule that can run, and prove it before and after the passes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import combinations, pairwise
from math import prod

import numpy as np

from bilinear.algebra.complex_products import four_products, of_conjugates, on_complex_blocks, three_products
from bilinear.algebra.maps import fold_bases
from bilinear.errors import BilinearError, fail
from bilinear.frontend.files import restoring_schedules
from bilinear.ir.bilinear_map import WHOLE, BilinearAlgorithm, Grid
from bilinear.ir.element import ELEMENTS, FLOAT64
from bilinear.ir.linear import LinearMap
from bilinear.ir.number import Coefficient, Symbolic, is_normal, residue, square
from bilinear.ir.placement import ATOMICS, COLOURS, LEVELS_ALLOWED, MOST_LEVELS, MOST_PRODUCTS, STAGE
from bilinear.ir.schedule import AnySchedule, Block, Product, ProductStage, Schedule, Target
from bilinear.ir.scheme import Scheme
from bilinear.ir.tile import CUDA_THREAD, NO_ROOM, Thread
from bilinear.passes.drop_restoration import drop_restoration
from bilinear.passes.fuse_linear_stages import fuse_linear_stages
from bilinear.passes.imply_scaling import imply_scaling, why_not_implied
from bilinear.passes.nest_levels import nest_levels, why_not_nested
from bilinear.passes.order_products import colour_products, mark_first_writes, one_product_a_stage, scale_contended
from bilinear.passes.scheme_to_schedule import complex_to_products, complex_to_schedule, scheme_to_schedule
from bilinear.verify.bilinear_map import prove_map
from bilinear.verify.composed import is_large, prove_by_terms, prove_composed, prove_large
from bilinear.verify.schedule import ScheduleProof, prove_schedule
from bilinear.verify.scheme import SchemeProof, prove_scheme

MOST_SHOWN = 60  # The most characters of a coefficient in a message.


def require_numbers(scheme: Scheme, proof: SchemeProof, modulus: int = 0) -> None:
    """Refuse a scheme that does not multiply matrices of numbers (E506): one over Z/p, or an approximate one.

    With a `modulus`, numbers are integers modulo it. Then a scheme over Z/p is one for p alone (E594).
    """
    span = scheme.places.header if scheme.places else None
    if modulus and scheme.ring.modulus not in (0, modulus):
        message = f"{scheme.name} is proved over {scheme.ring}, and the product is asked for modulo {modulus}"
        raise fail("E594", message, "take a scheme over Z, or give the modulus for which it is proved", span=span)
    if scheme.ring.modulus and not modulus:
        message = f"{scheme.name} is proved over {scheme.ring} only, so it is not compiled for floats or integers"
        lifts = proof.facts is not None and proof.facts.for_reals
        over_q = "as it is written it holds over Q too: leave out the ring" if lifts else "over Q its Brent equations fail"
        hint = f"{over_q}; matmul(..., modulus={scheme.ring.modulus}) runs it"
        raise fail("E506", message, hint, span=span)
    if scheme.ring.is_approximate:
        message = f"{scheme.name} is approximate: it multiplies up to terms in lambda, and no lambda makes it exact"
        raise fail("E506", message, "`bilinear verify` proves it and says its order; compile an exact scheme", span=span)


def require_rationals(scheme: Scheme, code: str, what: str, hint: str) -> None:
    """Refuse a scheme over another ring than Z and Q, or with a coefficient that is not rational, by an error of this code."""
    strange = next((c for table in scheme.tables for row in table for _, c in row if isinstance(c, Symbolic)), None)
    if strange is not None or scheme.ring.modulus:
        why = f"is over {scheme.ring}" if strange is None else f"has the coefficient {strange}"
        raise fail(code, f"{what} are found for schemes over Z and Q, and {scheme.name} {why}", hint)


def require_residues(scheme: Scheme, coefficients: Iterable[Coefficient], modulus: int) -> None:
    """Refuse coefficients that are not numbers modulo p (E594): roots, and fractions whose denominator shares a factor with p."""
    for value in dict.fromkeys(coefficients):
        try:
            residue(value, modulus)
        except ValueError:
            message = f"{scheme.name} has the coefficient {value}, which is not a number modulo {modulus}"
            raise fail("E594", message, "take a scheme over Z, such as winograd") from None


def require_elements(scheme: Scheme, coefficients: Iterable[Coefficient], dtype: str, kind: str) -> None:
    """Refuse coefficients that an element type cannot hold (E528); `kind` is NumPy's letter of the type.

    Integer types cannot hold fractions or roots, and real types cannot hold roots of negative numbers. A floating-point type cannot hold a
    number that overflows or underflows in it. No coefficient is rounded to zero or to infinity.
    """
    name, held = scheme.name, ELEMENTS.get(dtype, FLOAT64).arithmetic
    for value in dict.fromkeys(coefficients):
        imaginary = isinstance(value, Symbolic) and any((square(g) or 0) < 0 for g in value.generators)
        if kind in "iub" and isinstance(value, Fraction | Symbolic):
            raise fail("E528", f"{name} has the coefficient {value}, which {dtype} cannot hold", "convert to floats or to Fractions")
        if kind == "f" and imaginary:
            message = f"{name} has the coefficient {value}, which is not a real number: it multiplies complex matrices"
            raise fail("E528", message, "choose a scheme with real coefficients, or take complex64 or complex128")
        if kind == "f" and not is_normal(value, held.name):
            coefficient = str(value)
            shown = coefficient if len(coefficient) <= MOST_SHOWN else coefficient[: MOST_SHOWN - 3] + "..."
            hint = "scale its products" if held == FLOAT64 else "scale its products, or take float64"
            message = f"{scheme.name} has the coefficient {shown}, which is too large or too small for {dtype}"
            note = f"the least is {held.smallest_normal:.3g}, the largest {held.largest:.3g}"
            raise fail("E528", message, hint, span=scheme.places.header if scheme.places else None, notes=(note,))
        if kind == "O" and isinstance(value, Symbolic):
            raise fail("E528", f"{name} has the coefficient {value}, which is not a Fraction", "convert to a floating-point type")


def complex_level(inner: Schedule | None, algorithm: BilinearAlgorithm, conjugated: str, grid: Grid = WHOLE) -> Schedule:
    """The outermost level of complex matrices, above a level of real ones: expanded, or adding products to C if that level adds to C.

    The algorithm multiplies the conjugates of the operands in `conjugated`, on this grid of blocks.
    """
    expanded = complex_to_schedule(algorithm, conjugated, grid)
    if inner is None:
        return expanded
    found = complex_to_products(algorithm, conjugated, grid) if why_not_nested(expanded, inner) else expanded
    return replace(found, name=f"{algorithm.name}-{inner.name}")


def proved(scheme: Scheme) -> SchemeProof:
    """Prove a scheme. A wrong one is refused with the cause and a repair (E301)."""
    proof = prove_scheme(scheme)
    if not proof.holds:
        raise _explained(proof, scheme)
    return proof


def proved_schedule(schedule: AnySchedule, scheme: Scheme, is_proved: bool = False) -> ScheduleProof:
    """Prove a schedule of one level of a scheme, which may be proved already. A wrong one is refused with the cause and a repair (E4xx)."""
    large = prove_large(schedule, scheme, is_proved) if isinstance(schedule, Schedule) else None
    proof = large or prove_schedule(schedule, scheme)
    if not proof.holds:
        raise _explained(proof, scheme, schedule)
    return proof


def right_schedule(schedule: AnySchedule, scheme: Scheme) -> ScheduleProof:
    """The proof of a one-level schedule of a proved scheme, without facts if terms decide. Raises what `proved_schedule` does."""
    by_terms = prove_by_terms(schedule) if isinstance(schedule, Schedule) and not is_large(schedule, scheme) else None
    return by_terms or proved_schedule(schedule, scheme, is_proved=True)


def _explained(proof: SchemeProof | ScheduleProof, scheme: Scheme, schedule: AnySchedule | None = None) -> BilinearError:
    from bilinear.explain.why_wrong import explained  # only a wrong scheme needs the search

    return explained(proof, scheme, schedule)


@lru_cache(maxsize=64)
def ready(scheme: Scheme, dtype: np.dtype[np.generic]) -> Scheme:
    """The scheme without changes of basis, proved, with coefficients that the type can represent. Raises `BilinearError`."""
    require_numbers(scheme, proved(scheme))
    plain = fold_bases(scheme)
    maps = plain.u, plain.v, plain.w
    written = (c for linear in maps for form in (*linear.steps, *linear.outputs) for _, c in form)
    summed = (c for table in plain.tables for form in table for _, c in form)
    require_elements(plain, (*written, *summed), str(dtype), dtype.kind)
    return plain


@dataclass(frozen=True)
class PreparedAlgorithm:
    """A proved algorithm at some number of levels: the author's schedule, the lowered one, and the proofs of scheme and schedule.

    `written` is the schedule as its author wrote it, None if there is none, and `authored` the one that runs, with implied scaling. Both
    are proved; `authored_proof` and `written_proof` prove them again with all facts, for reports.
    """

    scheme: Scheme
    written: AnySchedule | None
    authored: Schedule
    schedule: Schedule
    scheme_proof: SchemeProof

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


def runnable(schedule: Schedule, contention: str = COLOURS) -> Schedule:
    """The schedule as the proof executes it: contention split into stages, or kept for atomic additions; first writes marked."""
    return mark_first_writes((colour_products if contention == COLOURS else scale_contended)(schedule))


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
        hint = "use inputs='preserve', or a schedule: `bilinear schedule --in-place` looks for one"
        if names := restoring_schedules(scheme.name):
            hint = f"use algorithm={names[0]!r}, the shipped schedule of {scheme.name} that restores A and B, or inputs='preserve'"
        raise fail("E525", message, hint)
    if inputs == "restore" and not schedule.keeps >= {"A", "B"}:
        hint = "use inputs='consume', or inputs='preserve'"
        raise fail("E525", f"{schedule.name} does not restore both A and B", hint, span=schedule.span)


def prepare(
    scheme: Scheme,
    schedule: AnySchedule | None,
    levels: int,
    inputs: str,
    mode: str = STAGE,
    modulus: int = 0,
    contention: str = COLOURS,
) -> PreparedAlgorithm:
    """Lower a scheme, or its schedule, to `levels` levels and prove every step.

    `inputs` is `preserve`, `restore` or `consume`; under `preserve` the plain schedule replaces one that writes A or B. Linear stages of
    several levels are fused into one pass only in the default mode of execution. With a `modulus` the schedule runs on integers modulo p,
    and the scheme may be over Z/p. `contention` is one of `CONTENTION`. Raises `BilinearError` if a proof fails.
    """
    return _prepared(scheme, schedule, levels, inputs, CUDA_THREAD if mode == STAGE else NO_ROOM, modulus, contention)


@lru_cache(maxsize=64)
def _prepared(
    scheme: Scheme, schedule: AnySchedule | None, levels: int, inputs: str, thread: Thread, modulus: int, contention: str
) -> PreparedAlgorithm:
    require_levels(levels)
    check_promise(scheme, schedule, inputs)
    one = _prove_level(Level(scheme, schedule), inputs, modulus)
    require_products(f"{levels} levels of {scheme.name if schedule is None else schedule.name}", products_of([one] * levels))
    lowered = _lower_and_prove([one] * levels, inputs, thread, contention)
    return PreparedAlgorithm(scheme, schedule, one.authored, lowered, one.scheme_proof)


@lru_cache(maxsize=64)
def prepare_levels(levels: tuple[Level, ...], inputs: str, modulus: int = 0, contention: str = COLOURS) -> Schedule:
    """Lower levels, which may differ and are listed outermost first, to one flat schedule; every level and the result are proved.

    Raises `BilinearError` if a proof fails or a level cannot stand below another (E408).
    """
    require_levels(len(levels))
    ones = [_prove_level(level, inputs, modulus) for level in levels]
    require_products(f"these {len(levels)} levels", products_of(ones))
    for level, one in zip(levels, ones, strict=True):
        if one.authored.writes_operands:
            check_promise(level.scheme, level.schedule, inputs)
    return _lower_and_prove(ones, inputs, contention=contention)


@lru_cache(maxsize=64)
def prepare_complex(levels: tuple[Level, ...], conjugated: str = "", core: BilinearAlgorithm | None = None) -> Schedule:
    """The flat schedule for complex matrices: each real product of `core` runs by these levels. Every level and the result are proved.

    Without a `core` there are three products. A first level with complex coefficients runs on complex blocks, and `core` below it (E528 for
    one further below). `conjugated` names the operands whose conjugates are multiplied: "", "A", "B" or "AB". A and B are preserved. Raises
    `BilinearError` as `prepare_levels` does, and if `core` does not multiply complex numbers (E350).
    """
    require_levels(len(levels))
    if below := next((level.scheme for level in levels[1:] if level.scheme.ring.is_complex), None):
        message = f"{below.name} has complex coefficients, and below the first level products are real"
        raise fail("E528", message, "take 1 level of it, the first")
    inner = [_prove_level(level, "preserve") for level in levels]
    algorithm, grid, block = three_products() if core is None else core, WHOLE, levels[0].scheme
    if block.ring.is_complex:
        algorithm, grid, inner = on_complex_blocks(algorithm, block), (block.m, block.k, block.n), inner[1:]
    algorithm = of_conjugates(algorithm, conjugated, grid)
    outermost = complex_level(inner[0].authored if inner else None, algorithm, conjugated, grid)
    ones = [_prove_complex(algorithm, outermost), *inner]
    require_products(f"complex products by these {len(levels)} levels", products_of(ones))
    return replace(_lower_and_prove(ones, "preserve"), name=outermost.name)


@lru_cache(maxsize=64)
def lowered_complex(levels: tuple[Schedule, ...]) -> Schedule:
    """The same without proofs, for plans."""
    return lower_levels([complex_level(levels[0], three_products(), ""), *levels], "preserve")


@lru_cache(maxsize=4)
def plain_complex(conjugated: str = "") -> Schedule:
    """The plain multiply of complex matrices by four real products, without workspace, for the strips of peeling."""
    schedule = complex_to_products(four_products(conjugated), conjugated)
    return _prove_complex(four_products(conjugated), schedule).authored


def _prove_complex(algorithm: BilinearAlgorithm, schedule: Schedule) -> _Proved:
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


def _lower_and_prove(levels: Sequence[_Proved], inputs: str, thread: Thread = CUDA_THREAD, contention: str = COLOURS) -> Schedule:
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
    lowered = lower_levels([level.authored for level in levels], inputs, thread, contention)
    if contention == ATOMICS and not any(s.contended for s in lowered.stages if isinstance(s, ProductStage)):
        message = f"contention={ATOMICS!r} has no meaning for {lowered.name}: no two products of a stage add to one block of C"
        raise fail("E557", message, "leave it out, or take an in-place schedule such as msmes with inputs='restore'")
    authored = [mark_first_writes(level.authored) for level in levels]
    if [lowered] == authored:
        return lowered
    if len(levels) == 1 and isinstance(scheme := levels[0].scheme, Scheme):
        proved_schedule(lowered, scheme, is_proved=True).require()
    else:
        prove_composed(lowered, authored).require()
    return lowered


def lower_levels(authored: Sequence[Schedule], inputs: str, thread: Thread = CUDA_THREAD, contention: str = COLOURS) -> Schedule:
    """Combine schedules of one level, listed outermost first, into the one that will run; a pass holds as much as a `thread` can.

    The result is not proved yet. If a level that allocates nothing is above one that allocates, its products run one at a time.
    """
    kept = [
        one_product_a_stage(outer) if outer.runs_in_place and not all(inner.runs_in_place for inner in authored[i + 1 :]) else outer
        for i, outer in enumerate(authored)
    ]
    lowered = fuse_linear_stages(nest_levels(kept), thread)
    return runnable(drop_restoration(lowered) if inputs == "consume" else lowered, contention)


@lru_cache(maxsize=1)
def plain() -> PreparedAlgorithm:
    """The plain multiply as a schedule of one product, for the strips of peeling."""
    one = LinearMap(1, (((0, 1),),))
    product = Product(Block("A", 0, 0), Block("B", 0, 0), (Target(Block("C", 0, 0)),))
    schedule = Schedule("plain", "plain", 1, 1, 1, (ProductStage((product,)),), in_place=True, restores=("A", "B"))
    return prepare(Scheme("plain", 1, 1, 1, one, one, one, ("M1",)), schedule, 1, "restore")
