"""For which architecture kernels are built on a device: its own, or the one that the environment names."""

from __future__ import annotations

import os
from functools import lru_cache

from bilinear.codegen.cuda.target import CudaTarget, target_of, targets_of
from bilinear.errors import fail
from bilinear.ir.tile import LEAST_CAPABILITY

ARCHITECTURE = "BILINEAR_ARCHITECTURE"
"""The variable that names an architecture, such as compute_80, to run the kernels of other chips."""


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
