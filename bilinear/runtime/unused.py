"""The warning that a named algorithm does not run."""

from __future__ import annotations

import sys
import warnings

_INSIDE = "bilinear", "torch"
"""The packages whose frames are skipped: this one, and PyTorch, which calls its operators, also from code without a module."""


RUN_ON = "dense arrays of integers, float32, float64, complex64 and complex128, and on a GPU of float16 and bfloat16"
"""What schedules run on."""


def warn_unused(name: str, reason: str) -> None:
    """Warn that the named algorithm does not run, at the first caller outside of this package and of PyTorch."""
    frame, levels = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "torch").partition(".")[0] in _INSIDE:
        frame, levels = frame.f_back, levels + 1
    warnings.warn(f"{name} is not used: {reason}; the library multiplies (schedules run on {RUN_ON})", stacklevel=levels)
