"""Examine an algorithm: a report of every proof that applies to it, also when it is refused."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from bilinear.analysis.accuracy import LevelsKept, accuracy_facts, levels_kept
from bilinear.analysis.identity import scheme_hash
from bilinear.codegen.build import LaunchProgram
from bilinear.errors import BilinearError
from bilinear.explain.why_wrong import RefusedError
from bilinear.frontend import Loaded, LoadedComplex, LoadedDigits, LoadedGram
from bilinear.frontend.algorithms import AnyLoaded
from bilinear.ir.element import IN_ARRAYS
from bilinear.ir.placement import MOST_LEVELS, MOST_PRODUCTS
from bilinear.ir.schedule import Schedule
from bilinear.lowering.prepare import PreparedAlgorithm, check_promise, is_runnable, prepare, proved, proved_schedule, require_levels
from bilinear.passes.order_products import mark_first_writes
from bilinear.reporting.certificate import certificate_text, map_certificate_text, on_record, record, rocq_text
from bilinear.reporting.map_report import ComplexReport, DigitReport, GramReport, complex_report, digit_report, gram_report
from bilinear.reporting.report import Report, make_report, proof_report
from bilinear.verify.digits import maps_of
from bilinear.verify.schedule import ScheduleProof, prove_schedule
from bilinear.verify.scheme import SchemeProof, prove_scheme
from bilinear.verify.symbolic_run import TOO_LARGE

AnyReport = Report | DigitReport | ComplexReport | GramReport
"""What a proof leads to: each has a text and is written as JSON, Markdown and HTML."""
DTYPES = tuple(IN_ARRAYS)  # The element types of programs by default; errors are reported for them, too.
INNER = 4096  # The inner extent for which errors are reported.
LEVELS = 3  # Errors are reported for this many levels, and for those requested.
MANY_PRODUCTS, MORE_PRODUCTS = 100, 400
"""In-place schedules with more products are reported only on request; with more than the second number only if an accuracy is given."""


def examine(loaded: Loaded, levels: int, inputs: str, accuracy: float | None = None) -> Report:
    """The report of a proved algorithm; raises `BilinearError` if a proof fails.

    An algorithm that can run is also proved at `levels` levels, as it runs. Approximate and modular schemes, foreign schedules, and schemes
    with too many products to run flat are proved as written. With an `accuracy`, max|C - A*B| in units of max|A| * max|B|, the report says
    how many levels keep it.
    """
    require_levels(levels)
    if _runs(loaded, inputs):
        return report_of(loaded, prepare(loaded.scheme, loaded.schedule, levels, inputs), inputs, accuracy=accuracy)
    return proof_report(loaded, *_proved_as_written(loaded, inputs))


def _runs(loaded: Loaded, inputs: str) -> bool:
    return is_runnable(loaded.scheme, loaded.schedule, inputs) and (loaded.schedule is not None or loaded.scheme.rank <= MOST_PRODUCTS)


def _proved_as_written(loaded: Loaded, inputs: str) -> tuple[SchemeProof, ScheduleProof | None]:
    proof = proved(loaded.scheme)
    if loaded.schedule is None:
        return proof, None
    check_promise(loaded.scheme, loaded.schedule, inputs)
    return proof, proved_schedule(mark_first_writes(loaded.schedule), loaded.scheme)


def report_of(
    loaded: Loaded, prepared: PreparedAlgorithm, inputs: str, programs: Sequence[LaunchProgram] = (), accuracy: float | None = None
) -> Report:
    """The report of a prepared algorithm, with its errors by level, and its kernels if there are any."""
    own = _in_place(loaded, prepared, inputs, MANY_PRODUCTS if accuracy is None else MORE_PRODUCTS)
    levels = prepared.schedule.levels
    dtypes = tuple(dict.fromkeys((*DTYPES, *(program.dtype for program in programs))))
    facts = accuracy_facts(loaded.scheme, own, INNER, dtypes, most_levels=max(levels, LEVELS))
    kept: tuple[LevelsKept, ...] = ()
    if accuracy is not None:
        most = max((n for n in range(MOST_LEVELS + 1) if loaded.scheme.rank**n <= MOST_PRODUCTS), default=0)
        kept = levels_kept(loaded.scheme, facts, accuracy, most, bool(own))
    return make_report(loaded, prepared, inputs, programs, facts, kept)


def _in_place(loaded: Loaded, prepared: PreparedAlgorithm, inputs: str, most_products: int) -> list[Schedule]:
    """The in-place schedule at the prepared number of levels and at others that are quickly proved; empty if it is not in place."""
    if inputs == "preserve" or not prepared.schedule.runs_in_place:
        return []
    found = [prepared.schedule]
    for levels in range(1, LEVELS + 1):
        if levels != prepared.schedule.levels and loaded.scheme.rank**levels <= most_products:
            with suppress(BilinearError):  # a schedule may allow only one level
                found.append(prepare(loaded.scheme, loaded.schedule, levels, inputs).schedule)
    return found


def refusal(loaded: Loaded, error: BilinearError) -> Report:
    """The report of an algorithm whose proof failed with `error`; other errors are raised again."""
    if not all(diagnostic.code[:2] in ("E3", "E4") for diagnostic in error.diagnostics):
        raise error
    known = error.proof if isinstance(error, RefusedError) else None
    proof = known if isinstance(known, SchemeProof) else prove_scheme(loaded.scheme)
    schedule = known if isinstance(known, ScheduleProof) else _schedule_proof(loaded, error)
    return proof_report(loaded, proof, schedule, error.diagnostics)


def _schedule_proof(loaded: Loaded, error: BilinearError) -> ScheduleProof | None:
    if loaded.schedule is None or any(diagnostic.code == TOO_LARGE for diagnostic in error.diagnostics):
        return None
    try:
        return prove_schedule(mark_first_writes(loaded.schedule), loaded.scheme)
    except BilinearError:
        return None


def examined(loaded: AnyLoaded, levels: int, inputs: str, accuracy: float | None = None) -> tuple[AnyReport, BilinearError | None]:
    """The report of anything that is proved, and why it is refused if so; `inputs` and `accuracy` are of block algorithms."""
    require_levels(levels)
    match loaded:
        case LoadedDigits(scheme=digits):
            return digit_report(digits, levels)
        case LoadedComplex(scheme=numbers):
            return complex_report(numbers, levels), None
        case LoadedGram(scheme=gram):
            return gram_report(gram), None
    try:
        return examine(loaded, levels, inputs, accuracy), None
    except BilinearError as error:
        return refusal(loaded, error), error


def certificate_of(loaded: AnyLoaded, levels: int, inputs: str) -> str:
    """The certificate of a proved algorithm, as JSON text; raises `BilinearError` where a proof fails."""
    match loaded:
        case LoadedDigits(scheme=digits):
            return map_certificate_text(digits.name, maps_of(digits), digits.parts)
        case LoadedComplex(scheme=numbers):
            return map_certificate_text(numbers.name, (numbers.core,), numbers.parts)
        case LoadedGram(scheme=gram):
            return map_certificate_text(gram.name, (gram.algorithm,))
    if _runs(loaded, inputs):
        return certificate_for(prepare(loaded.scheme, loaded.schedule, levels, inputs))
    proof, _ = _proved_as_written(loaded, inputs)
    return certificate_text(loaded.scheme, [loaded.schedule] if loaded.schedule is not None else [], proof.order)


def certificate_for(prepared: PreparedAlgorithm) -> str:
    """The certificate of a prepared algorithm: its scheme, the schedule as written, and as it runs."""
    return certificate_text(prepared.scheme, [mark_first_writes(prepared.authored), prepared.schedule], prepared.scheme_proof.order)


def rocq_of(loaded: Loaded, levels: int, inputs: str) -> str:
    """The theorems about a proved algorithm for Rocq: about its scheme, the schedule as written, and as it runs.

    Raises `BilinearError` where a proof fails, or the theorems do not speak of the algorithm (E595).
    """
    if _runs(loaded, inputs):
        prepared = prepare(loaded.scheme, loaded.schedule, levels, inputs)
        return rocq_text(prepared.scheme, [mark_first_writes(prepared.authored), prepared.schedule])
    _proved_as_written(loaded, inputs)
    return rocq_text(loaded.scheme, [mark_first_writes(loaded.schedule)] if loaded.schedule is not None else [])


def accepted_on_record(loaded: Loaded, inputs: str) -> str:
    """Who accepted the theorems of a proved algorithm's one level, whose text is made anew; empty if nobody is known to have."""
    if scheme_hash(loaded.scheme) not in {each.scheme for each in record()}:
        return ""
    try:
        return on_record(rocq_of(loaded, 1, inputs))
    except BilinearError:  # a schedule of a shipped scheme may have no theorems
        return ""
