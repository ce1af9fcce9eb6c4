"""Whether an algorithm that is named is as accurate as requested."""

from __future__ import annotations

import numpy as np

from bilinear.analysis.accuracy import PROBABLE, error_allowance
from bilinear.errors import fail
from bilinear.frontend import Loaded
from bilinear.measure.check_multiply import lowered_for
from bilinear.planner.accuracy import why_inaccurate
from bilinear.planner.library import Library
from bilinear.planner.plan import Candidate, name_of
from bilinear.planner.problem import require_accuracy
from bilinear.planner.profiles import growth_of
from bilinear.planner.scheduled import relative_above


def require_accurate(loaded: Loaded, inner: int, dtype: str, levels: int, inputs: str, accuracy: float | str) -> None:
    """Refuse (E519) an algorithm whose bound for sums of `inner` terms, or whose probable error, is above the accuracy.

    E543 for what is not an accuracy.
    """
    require_accuracy(accuracy)
    number = np.dtype(dtype)
    u = float(np.finfo(dtype).eps) / 2  # for a complex type the type of its parts
    bound = error_allowance(loaded.scheme, lowered_for(loaded, number, levels, inputs), inner, u)
    probable = relative_above(growth_of((loaded.scheme,) * levels), loaded.scheme.k**levels, inner)
    probable *= PROBABLE if number.kind == "c" else 1
    why = why_inaccurate(Candidate(Library(), error=bound, probable=probable), accuracy)
    if why:
        what = f"{name_of((loaded.scheme.name,) * levels)} in {dtype}: {why}"
        raise fail("E519", what, "allow more, take fewer levels, or let `bilinear plan --accuracy` choose")
