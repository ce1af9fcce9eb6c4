"""The machine: the current GPU and the architecture kernels are built for there (with CuPy and a device), and the processors."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import cast

import numpy as np

from bilinear.codegen.cuda.target import CudaTarget, target_of, targets_of
from bilinear.errors import fail
from bilinear.ir.tile import LEAST_CAPABILITY
from bilinear.planner.device import Device
from bilinear.planner.device_files import device_named, estimated
from bilinear.planner.estimates import DataSheet, data_sheet
from bilinear.planner.kept_plans import kept_description


def gpu_name() -> str:
    """The name of the current GPU."""
    import cupy

    return str(cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode())


def driver_version() -> int:
    """The version of the driver of the GPU, as 13000 for CUDA 13.0."""
    import cupy

    return int(cupy.cuda.runtime.driverGetVersion())


def description(name: str, driver: int) -> Device | None:
    """The description of the current GPU: a kept one, a shipped one, or an estimate; None before sm_80 where nobody has made one."""
    known = kept_description(name, driver) or device_named(name)
    sheet = reported_sheet() if known is None else None
    return known if sheet is None else estimated(sheet)


def reported_sheet() -> DataSheet | None:
    """The figures of the current GPU as its driver reports them; None if it has no estimate."""
    import cupy

    device = cupy.cuda.Device()
    found = device.attributes
    return data_sheet(
        gpu_name(),
        int(device.compute_capability),
        found["MultiProcessorCount"],
        int(cupy.cuda.runtime.getDeviceProperties(device.id)["totalGlobalMem"]),
        found["L2CacheSize"],
        found["MaxSharedMemoryPerBlockOptin"],
        found["ClockRate"] * 1e-3,
        found["MemoryClockRate"] * 1e-3,
        found["GlobalMemoryBusWidth"],
    )


ARCHITECTURE = "BILINEAR_ARCHITECTURE"  # Names an architecture whose kernels shall run, such as compute_80.


def target_here(device: int | None = None) -> CudaTarget:
    """The target of a device, by default of the current one: that of `BILINEAR_ARCHITECTURE`, or the device's own.

    Raises `BilinearError`: E603 if the variable names no architecture, E783 if its images do not run on the device.
    """
    import cupy

    here = cupy.cuda.Device() if device is None else cupy.cuda.Device(device)
    return _target(here.compute_capability, os.environ.get(ARCHITECTURE, ""))


@lru_cache(maxsize=16)
def _target(capability: str, named: str) -> CudaTarget:
    own = target_of(capability)
    if not named:
        return own
    (target,) = targets_of((named,))
    if not target.runs_on(own.capability):
        what = f"{ARCHITECTURE}={named}: images for {target} do not run on this GPU, {own}"
        raise fail("E783", what, "name an older virtual architecture, such as compute_80, or unset it")
    return target


def has_digit_units() -> bool:
    """Whether products of digits and of residues run on the current device."""
    return target_here().capability >= LEAST_CAPABILITY


def multiplies_by_warps() -> bool:
    """Whether they run by warps there: warpgroups multiply on one chip alone."""
    return not target_here().has_warpgroups


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
