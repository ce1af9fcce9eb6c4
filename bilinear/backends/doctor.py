"""What this machine can do, and what to install for the rest."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

import numpy as np

from bilinear.backends.machine import cpu_name, description, driver_version, gpu_name, library_name
from bilinear.backends.shared_library import module_compiler
from bilinear.codegen.cache import default_cache
from bilinear.codegen.cuda import nvrtc
from bilinear.emulator import compiler_name, skip_reason
from bilinear.errors import BilinearError, fail, install
from bilinear.planner.kept_plans import kept_cpu
from bilinear.resources import shipped_runtime

NO_FOLDER = "set BILINEAR_CACHE_DIR to a folder that can be written"
TUNE, TUNE_CPU = "bilinear tune --keep", "bilinear tune --cpu --keep"


@dataclass(frozen=True)
class Ability:
    """One ability: whether it is usable here, what was found, and the command that would help."""

    what: str
    usable: bool
    detail: str
    remedy: str = ""

    def to_json(self) -> dict[str, object]:
        """The fields."""
        return asdict(self)


def why_no_gpu() -> str | None:
    """Why kernels cannot be built for a GPU and run on it; None if they can."""
    return why_no_device() or nvrtc.available()


def why_no_device() -> str | None:
    """Why built kernels cannot run on a GPU; None if they can."""
    if find_spec("cupy") is None:
        return "CuPy is not installed"
    try:
        import cupy

        if not cupy.cuda.is_available():
            return "CuPy finds no usable device"
        cupy.cuda.Device().compute_capability  # noqa: B018  (fails where the driver does not answer)
    except Exception as error:
        return f"CuPy fails: {error}"
    return None


def native_architecture() -> str:
    """The architecture of the current GPU, such as `sm_90`. Raises `BilinearError` (E512) if none is usable."""
    reason = why_no_gpu()
    if reason is not None:
        raise fail("E512", f"there is no native architecture: {reason}", "name one, such as hopper or sm_90, or run `bilinear doctor`")
    import cupy

    return f"sm_{cupy.cuda.Device().compute_capability}"


def examine() -> list[Ability]:
    """Everything that `bilinear doctor` reports, in the order in which a user needs it."""
    cache = default_cache()
    undescribed = "no description: `auto` is NumPy's multiply" if kept_cpu(cpu_name(), library_name()) is None else None
    unkept, compiler = "in memory only" if cache.folder is None else None, "install g++ 10 or newer, or `pip install ziglang`"
    return [
        Ability("run on the CPU", True, f"NumPy {np.__version__}, {os.cpu_count()} core(s), Python {platform.python_version()}"),
        _unless(nvrtc.available(), "build kernels", nvrtc.compiler_version, install("nvrtc")),
        _unless(why_no_gpu(), "run on a GPU", _gpu, f"{install('cuda13,nvrtc')}, on a machine with an NVIDIA GPU and driver"),
        *_description(),
        _unless(undescribed, "plan for the processors", lambda: f"a measured description of {cpu_name()}, {library_name()}", TUNE_CPU),
        _unless(skip_reason(), "execute CUDA C on the CPU (tests)", compiler_name, compiler),
        _module_compiler(),
        _unless(unkept, "keep built kernels", lambda: f"{cache.folder}, {cache.size() / 2**20:.1f} MiB", NO_FOLDER),
        _package("look for schemes", "numba", "discover"),
    ]


def _unless(reason: str | None, what: str, found: Callable[[], str], remedy: str) -> Ability:
    """An ability with what was found; or, for a reason, its lack with a remedy."""
    return Ability(what, True, found()) if reason is None else Ability(what, False, reason, remedy)


def _package(what: str, name: str, extra: str) -> Ability:
    """Whether an optional package is installed. It is not imported, because that takes longer than all the rest."""
    try:
        return Ability(what, True, f"{name} {version(name)}")
    except PackageNotFoundError:
        return Ability(what, False, f"{name} is not installed", install(extra))


def _module_compiler() -> Ability:
    """What builds the C that issues repeated calls; without it Python does."""
    what = "repeat calls on a GPU in C"
    if shipped_runtime() is not None:
        return Ability(what, True, "part of this wheel")
    try:
        return Ability(what, True, module_compiler())
    except BilinearError as error:
        (told,) = error.diagnostics
        return Ability(what, False, told.message, *told.hints)


def _gpu() -> str:
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    name, memory = properties["name"].decode(), properties["totalGlobalMem"] / 2**30
    return f"{name}, {memory:.0f} GiB, sm_{cupy.cuda.Device().compute_capability}, CuPy {cupy.__version__}"


def _description() -> list[Ability]:
    """The description by which plans are made for the GPU; nothing without a GPU."""
    if why_no_gpu() is not None:
        return []
    device, what = description(gpu_name(), driver_version()), "plan for the GPU"
    if device is None:
        return [Ability(what, False, "no description: `auto` is the library's multiply", TUNE)]
    told = f"an estimate ({device.estimate}); `{TUNE}` measures it" if device.estimate else f"a measured description of {device.name}"
    return [Ability(what, True, told)]
