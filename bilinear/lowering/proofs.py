"""The proofs of a scheme and of its schedule of one level; wrong ones are refused with the cause and a repair."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from bilinear.algebra.fold_bases import fold_bases
from bilinear.errors import BilinearError
from bilinear.ir.schedule import AnySchedule, Schedule
from bilinear.ir.scheme import Scheme
from bilinear.lowering.coefficients import require_elements, require_numbers
from bilinear.verify.composed import is_large, prove_by_terms, prove_large
from bilinear.verify.schedule import ScheduleProof, prove_schedule
from bilinear.verify.scheme import SchemeProof, prove_scheme


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
    """The proof of a schedule of one level of a proved scheme. If its terms decide, the proof holds no facts for reports.

    Raises `BilinearError` as `proved_schedule` does.
    """
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
