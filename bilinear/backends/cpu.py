"""The processors that NumPy multiplies on: their name and that of the library behind NumPy, under which a description is kept."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import cast

import numpy as np

LIMITS = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "OMP_NUM_THREADS")
"""The variables that limit a library's threads. It reads them when it is loaded."""


@cache
def cpu_name() -> str:
    """The model of the processors, how many of them this process may use, and what limits the library's threads."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits = "".join(f", {name}={os.environ[name]}" for name in LIMITS if os.environ.get(name))
    return f"{_model()}, {count} core{'s' * (count > 1)}{limits}"[:200]


@cache
def library_name() -> str:
    """NumPy's version, and the library that multiplies for it."""
    blas: Mapping[str, object] = {}
    with suppress(Exception):  # what NumPy tells of its build differs from version to version
        blas = cast("Mapping[str, object]", np.__config__.CONFIG["Build Dependencies"]["blas"])
    return f"numpy {np.__version__}, {blas.get('name', 'unknown')} {blas.get('version', '')}".strip()[:200]


def memory_bytes() -> int:
    """The memory of the machine; 4 GiB where the system does not tell."""
    with suppress(AttributeError, OSError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 2**32


def _model() -> str:
    with suppress(OSError, UnicodeDecodeError, StopIteration), Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return platform.processor() or platform.machine() or "processors"
