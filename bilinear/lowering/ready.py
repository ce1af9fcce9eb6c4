"""Schemes whose sums are computed on whole blocks, without a schedule."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from bilinear.algebra.fold_bases import fold_bases
from bilinear.ir.scheme import Scheme
from bilinear.lowering.coefficients import require_elements, require_numbers
from bilinear.lowering.proofs import proved


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
