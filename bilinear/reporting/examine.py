"""Examine an algorithm: every proof that applies to it, as a report, also of what is refused."""

from __future__ import annotations

from collections.abc import Sequence

from bilinear.analysis.accuracy import accuracy_facts
from bilinear.codegen.program import Program
from bilinear.errors import BilinearError
from bilinear.frontend import Loaded
from bilinear.passes.mark_first_writes import mark_first_writes
from bilinear.planner.prepare import Prepared, is_runnable, prepare, proved, proved_schedule
from bilinear.reporting.certificate import certificate_text
from bilinear.reporting.report import Report, make_report, proof_report
from bilinear.verify.bounds import TOO_LARGE
from bilinear.verify.refused import RefusedError
from bilinear.verify.schedule import ScheduleProof, prove_schedule
from bilinear.verify.scheme import SchemeProof, prove_scheme

DTYPES = ("float64", "float32")
INNER = 4096
"""The inner extent for which errors are told."""


def examine(loaded: Loaded, levels: int, inputs: str) -> Report:
    """The report of a proved algorithm; raises `BilinearError` where a proof fails.

    What can run is proved at `levels` levels as well, as it runs; approximate and modular schemes and foreign schedules as written.
    """
    if is_runnable(loaded.scheme, loaded.schedule, inputs):
        return report_of(loaded, prepare(loaded.scheme, loaded.schedule, levels, inputs), inputs)
    proof = proved(loaded.scheme)
    if loaded.schedule is None:
        return proof_report(loaded, proof)
    return proof_report(loaded, proof, proved_schedule(mark_first_writes(loaded.schedule), loaded.scheme))


def report_of(loaded: Loaded, prepared: Prepared, inputs: str, programs: Sequence[Program] = ()) -> Report:
    """The report of a prepared algorithm, with its errors by level, and with its kernels where there are any."""
    own = [prepared.schedule] if inputs != "preserve" and prepared.schedule.runs_in_place else []
    return make_report(loaded, prepared, inputs, programs, accuracy_facts(loaded.scheme, own, INNER, DTYPES))


def refusal(loaded: Loaded, error: BilinearError) -> Report:
    """The report of an algorithm whose proof `error` refused; other errors are raised again."""
    if not all(diagnostic.code[:2] in ("E3", "E4") for diagnostic in error.diagnostics):
        raise error
    known = error.proof if isinstance(error, RefusedError) else None
    proof = known if isinstance(known, SchemeProof) else prove_scheme(loaded.scheme)
    schedule = known if isinstance(known, ScheduleProof) else _schedule_proof(loaded, error)
    return proof_report(loaded, proof, schedule, error.diagnostics)


def _schedule_proof(loaded: Loaded, error: BilinearError) -> ScheduleProof | None:
    """The proof of the schedule of an algorithm; None where there is none, or where it is too large to be proved."""
    if loaded.schedule is None or any(diagnostic.code == TOO_LARGE for diagnostic in error.diagnostics):
        return None
    try:
        return prove_schedule(mark_first_writes(loaded.schedule), loaded.scheme)
    except BilinearError:
        return None


def certificate_of(loaded: Loaded, levels: int, inputs: str) -> str:
    """The certificate of a proved algorithm, as JSON text; raises `BilinearError` where a proof fails."""
    if is_runnable(loaded.scheme, loaded.schedule, inputs):
        return certificate_for(prepare(loaded.scheme, loaded.schedule, levels, inputs))
    proof = proved(loaded.scheme)
    if loaded.schedule is not None:
        proved_schedule(mark_first_writes(loaded.schedule), loaded.scheme)
    return certificate_text(loaded.scheme, [loaded.schedule] if loaded.schedule is not None else [], proof.order)


def certificate_for(prepared: Prepared) -> str:
    """The certificate of a prepared algorithm: its scheme, the schedule as written, and as it runs."""
    return certificate_text(prepared.scheme, [mark_first_writes(prepared.authored), prepared.schedule], prepared.scheme_proof.order)
