"""What surrounds a call: the variables that each call reads, the devices that are here, and their descriptions."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from bilinear.errors import BilinearError, fail
from bilinear.planner.cpu import Cpu
from bilinear.planner.device import USUAL_POLICY, USUAL_RULES, Device, LibraryRules, Policy
from bilinear.planner.device_files import load_description, load_device
from bilinear.planner.estimates import TUNING_SECONDS
from bilinear.planner.library_points import LibraryPoints

if TYPE_CHECKING:
    from logging import Logger

USE_LIBRARY, DEVICE, BUILD = b"BILINEAR_USE_LIBRARY", b"BILINEAR_DEVICE", b"BILINEAR_BUILD"


def _reader() -> Callable[[bytes], bytes | None]:
    """A function that reads a variable: on POSIX the C library's `getenv`, because `os.environ.get` takes five times as long.

    `os.environ` writes to the C library, too. Both hold the GIL, so no variable changes while it is read.
    """
    if os.name != "posix":
        return lambda name: os.fsencode(os.environ.get(name.decode(), "")) or None
    getenv = ctypes.PyDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    return getenv


value_of = _reader()  # The value of a variable, as bytes; None if it is not set.


def uses_library() -> bool:
    """Whether BILINEAR_USE_LIBRARY makes every call the library's multiply."""
    value = value_of(USE_LIBRARY)
    return value is not None and value not in (b"", b"0")


def builds_behind() -> bool:
    """Whether BILINEAR_BUILD lets the library multiply while a plan's kernels are built. Raises `BilinearError` (E547) for other words."""
    value = value_of(BUILD) or b"now"
    if value not in (b"now", b"behind"):
        raise fail("E547", f"BILINEAR_BUILD={os.fsdecode(value)!r} says neither now nor behind", "set it to one of them, or unset it")
    return value == b"behind"


CPU = "cpu"  # The device that stands for the processors here.


def log() -> Logger:
    """The logger. `logging` is imported late: a first plan, which logs nothing, would take a tenth longer."""
    import logging

    return logging.getLogger("bilinear")


def device_of(device: str | Device | None) -> Device | None:
    """The description that `device` names or is; for None that of the current GPU, or None."""
    return device if isinstance(device, Device) else current_device() if device is None else load_device(str(device))


def description_of(device: str | Device | Cpu | None) -> Device | Cpu | None:
    """The same, also of processors: those here, which "cpu" names, or those in a file. Raises `BilinearError` (E554) if none is known."""
    if isinstance(device, Cpu):
        return device
    if device == CPU:
        return described_cpu()
    return load_description(device) if isinstance(device, str) else device_of(device)


def current_device() -> Device | None:
    """The description of the current GPU: the one in BILINEAR_DEVICE, else one that `bilinear tune` kept, else a shipped one, an estimate.

    None without a GPU, and on one before sm_80 that nobody has described.
    """
    return _described(os.environ.get("BILINEAR_DEVICE", ""), index_of_gpu())


def current_cpu() -> Cpu | None:
    """The description of the processors here that `bilinear tune --cpu` kept, or None."""
    from bilinear.backends.machine import cpu_name, library_name

    return _described_cpu(cpu_name(), library_name())


def described_cpu() -> Cpu:
    """The same; raises `BilinearError` (E554) without one."""
    cpu = current_cpu()
    if cpu is None:
        raise fail("E554", "there is no description of the processors here", "`bilinear tune --cpu --keep` measures one")
    return cpu


@lru_cache(maxsize=4)
def _described_cpu(name: str, library: str) -> Cpu | None:
    from bilinear.planner.kept_plans import kept_cpu

    return kept_cpu(name, library)


def policy_here() -> Policy:
    """The thresholds of the current GPU, or the usual ones if it has no description."""
    device = current_device()
    return USUAL_POLICY if device is None else device.policy


def library_choice(dtype: str) -> tuple[LibraryRules, LibraryPoints | None]:
    """What chooses between the library's calls on the current GPU: rules, and for thin products measured points, of its description.

    With BILINEAR_USE_LIBRARY these are the usual rules alone, because the library must run whatever a description says.
    """
    device = None if uses_library() else current_device()
    if device is None:
        return USUAL_RULES, None
    rates = device.thin_rates(dtype)
    return device.library_rules, None if rates is None else rates.library


def gpu_here() -> tuple[str, int] | None:
    """Name and driver version of the current GPU, under which plans are kept. None without a GPU, or if BILINEAR_DEVICE is set."""
    if "cupy" not in sys.modules or os.environ.get("BILINEAR_DEVICE"):  # to search for a missing CuPy takes longer than to choose a plan
        return None
    index = index_of_gpu()
    return None if index < 0 else _identity(index)


def index_of_gpu() -> int:
    """The number of the current GPU, -1 if there is none."""
    try:
        import cupy

        return int(cupy.cuda.Device().id)
    except Exception as error:  # of many types, for a missing CuPy, driver or GPU
        log().debug("no GPU: %s", error)
        return -1


@lru_cache(maxsize=64)
def _identity(index: int) -> tuple[str, int]:
    """Name and driver version of the current GPU; its number is the key of the cache."""
    from bilinear.backends.machine import driver_version, gpu_name

    return gpu_name(), driver_version()


@lru_cache(maxsize=64)
def _described(named: str, index: int) -> Device | None:
    if named:
        try:
            return load_device(named)
        except BilinearError as error:
            raise BilinearError(replace(one, notes=(*one.notes, "BILINEAR_DEVICE names it")) for one in error.diagnostics) from None
    if index < 0:
        return None
    from bilinear.backends.machine import description

    name, driver = _identity(index)
    device = description(name, driver)
    if device is None:
        log().info("no description of %s: auto is the library's multiply; `bilinear tune --keep` makes one", name)
    elif device.estimate:
        told = "the description of %s is an estimate (%s); `bilinear tune --keep` replaces it, and takes about %d seconds"
        log().info(told, name, device.estimate, TUNING_SECONDS)
    return device
