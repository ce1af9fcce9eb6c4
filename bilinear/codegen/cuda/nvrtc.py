"""CUDA C to machine code with NVRTC, which needs neither a GPU nor a driver."""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any

from bilinear.codegen.cache import Cache, default_cache
from bilinear.codegen.cuda import nvrtc_child
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.errors import BilinearError, Diagnostic, fail

REMEDY = "pip install 'bilinear[nvrtc]'"


@dataclass(frozen=True)
class KernelResources:
    """What one kernel needs on a multiprocessor, as the assembler reports it: registers a thread, and bytes."""

    name: str
    registers: int
    shared_bytes: int
    spill_stores: int
    spill_loads: int


@dataclass(frozen=True)
class Built:
    """One image: a cubin, or PTX, for which no resources are known."""

    target: CudaTarget
    image: bytes
    resources: tuple[KernelResources, ...]
    log: str
    cached: bool


def available() -> str | None:
    """Why no kernel can be built here; None if one can."""
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None:
        return "cuda-bindings is not installed"
    try:
        compiler_version()
    except BilinearError as error:
        return error.diagnostics[0].message
    return None


@cache
def compiler_version() -> str:
    """Name and version of the compiler, with the version of the bindings that drive it."""
    from importlib.metadata import PackageNotFoundError, version

    major, minor = _call("nvrtcVersion")
    try:
        exact = f" ({version('nvidia-cuda-nvrtc')})"
    except PackageNotFoundError:
        exact = ""
    return f"NVRTC {major}.{minor}{exact}"


@cache
def architectures() -> tuple[int, ...]:
    """The compute capabilities that the compiler knows, times ten."""
    return tuple(_call("nvrtcGetSupportedArchs")[0])


def build(source: str, name: str, target: CudaTarget, *, cache: Cache | None = None) -> Built:
    """Compile one kernel's source for a target, or take its image from the cache.

    Raises `BilinearError`: E601 with the compiler's log, E602 if the compiler is missing, E603 if it does not know the target.
    """
    _require_known(target)
    store = cache if cache is not None else default_cache()
    key = store.key(source, *target.options, compiler_version())
    known = store.get(key)
    if known is not None:
        log, image = known
        return Built(target, image, _resources(log), log, cached=True)
    log, image = _compile(source, name, target)
    store.put(key, log, image)
    return Built(target, image, _resources(log), log, cached=False)


def _require_known(target: CudaTarget) -> None:
    """Refuse a target that the compiler cannot build for (E603)."""
    if target.capability not in architectures():
        known = ", ".join(f"sm_{number}" for number in architectures())
        raise fail("E603", f"{compiler_version()} cannot build for {target.name!r}", f"choose among {known}, or compute_NN for PTX")


def _compile(source: str, name: str, target: CudaTarget) -> tuple[str, bytes]:
    """The compiler's log and the image, from a process of its own. The process ends with this call, even by an exception."""
    image = "PTX" if target.is_virtual else "CUBIN"
    request = {"path": sys.path, "source": source, "name": name, "options": target.options, "image": image}
    command = (sys.executable, "-I", "-c", inspect.getsource(nvrtc_child))
    try:
        ended = subprocess.run(command, input=json.dumps(request).encode(), capture_output=True, start_new_session=True, check=False)
    except OSError as error:
        raise fail("E602", f"the compiler's process cannot begin: {error.strerror or error}", REMEDY) from None
    if ended.returncode:
        said = tuple(ended.stderr.decode(errors="replace").splitlines()[-1:])
        hint = "this happens where memory is short; otherwise please report it with the .bl file"
        what = f"the compiler's process ended with exit code {ended.returncode} at {name}"
        raise BilinearError(Diagnostic("E602", what, notes=said, hints=(hint,)))
    head, _, built = ended.stdout.partition(b"\n")
    reply = json.loads(head)
    if reply["refused"]:
        hint = "generated sources always compile unless a template was changed: please report this with the .bl file"
        raise BilinearError(Diagnostic("E601", f"the compiler refuses {name}", notes=tuple(reply["log"].splitlines()[:20]), hints=(hint,)))
    return reply["log"], built


def _call(function: str) -> tuple[Any, ...]:
    """The results of an NVRTC function that compiles nothing."""
    try:
        from cuda.bindings import nvrtc

        status, *results = getattr(nvrtc, function)()
    except (ImportError, RuntimeError) as error:
        raise fail("E602", f"NVRTC is not usable: {str(error).splitlines()[0]}", REMEDY) from None
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise fail("E602", f"NVRTC failed in {function}", REMEDY)
    return tuple(results)


_PROPERTIES = re.compile(
    r"Compiling entry function '(?P<name>\w+)'.*?"
    r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)


def _resources(log: str) -> tuple[KernelResources, ...]:
    found = []
    for match in _PROPERTIES.finditer(log):
        shared = re.search(r"(\d+) bytes smem", match["rest"])
        numbers = (int(match["registers"]), int(shared[1]) if shared else 0, int(match["stores"]), int(match["loads"]))
        found.append(KernelResources(match["name"], *numbers))
    return tuple(found)
