"""CUDA C to machine code with NVRTC, which needs neither a GPU nor a driver."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from ctypes import CDLL, byref, c_int
from dataclasses import dataclass
from functools import cache

from bilinear.codegen.cache import Cache, Entry, default_cache
from bilinear.codegen.cuda import nvrtc_child
from bilinear.codegen.cuda.target import OLDEST, CudaTarget, require_built_for
from bilinear.errors import BilinearError, Diagnostic, fail, install

REMEDY = install("nvrtc")


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
    try:
        compiler_version()
    except BilinearError as error:
        return error.diagnostics[0].message
    return None


@cache
def compiler_version() -> str:
    """Name and version of the compiler."""
    from importlib.metadata import PackageNotFoundError, version

    major, minor = c_int(), c_int()
    CDLL(_library()).nvrtcVersion(byref(major), byref(minor))
    try:
        exact = f" ({version('nvidia-cuda-nvrtc')})"
    except PackageNotFoundError:
        exact = ""
    return f"NVRTC {major.value}.{minor.value}{exact}"


@cache
def architectures() -> tuple[int, ...]:
    """The compute capabilities that the compiler knows, times ten."""
    library, count = CDLL(_library()), c_int()
    library.nvrtcGetNumSupportedArchs(byref(count))
    found = (c_int * count.value)()
    library.nvrtcGetSupportedArchs(found)
    return tuple(found)


Request = tuple[str, str, CudaTarget]  # What to build: a kernel's source, its name, and the target.


def build(source: str, name: str, target: CudaTarget, *, cache: Cache | None = None) -> Built:
    """Compile one kernel's source for a target, or take its image from the cache; raises as `build_all`."""
    (built,) = build_all([(source, name, target)], cache=cache)
    return built


def build_all(
    requests: Sequence[Request], *, cache: Cache | None = None, done: Callable[[int], None] = lambda done: None
) -> tuple[Built, ...]:
    """Compile sources for targets, as many at once as there are cores, or take their images from the cache.

    PTX is assembled, too: what the assembler refuses is no image. `done` is called with the number of images that are there. Raises
    `BilinearError`: E601 with the compiler's log, E602 if the compiler is missing, E603 if no kernels can be built for a target.
    Compilers that still run end with the call, even by an exception.
    """
    for _, _, target in requests:
        require_built_for(target)
        if target.capability not in architectures():
            known = ", ".join(f"sm_{number}" for number in architectures() if number >= OLDEST)
            raise fail("E603", f"{compiler_version()} cannot build for {target.name!r}", f"choose among {known}, or compute_NN for PTX")
    wanted, requests = requests, tuple(dict.fromkeys([*requests, *((source, name, target.assembled) for source, name, target in requests)]))
    store = cache if cache is not None else default_cache()
    keys = [store.key(source, *target.options, compiler_version()) for source, _, target in requests]
    entries = [store.get(key) for key in keys]
    missing = [number for number, entry in enumerate(entries) if entry is None]
    waiting, running = deque(missing), deque[tuple[int, _Compiler]]()
    try:
        while waiting or running:
            done(min(len(requests) - len(waiting) - len(running), len(wanted)))
            while waiting and len(running) < (os.cpu_count() or 1):
                running.append((waiting[0], _Compiler(*requests[waiting.popleft()])))
            number, compiler = running[0]
            entries[number] = entry = compiler.result()
            store.put(keys[number], *entry)
            running.popleft()
    finally:
        for _, compiler in running:
            compiler.stop()
    found = {
        request: Built(request[2], entry[1], _resources(entry[0]), entry[0], cached=number not in missing)
        for number, (request, entry) in enumerate(zip(requests, entries, strict=True))
        if entry is not None
    }
    return tuple(found[request] for request in wanted)


class _Compiler:
    """A process that compiles one source. Request and reply are files without a name, so that nobody waits for a pipe."""

    def __init__(self, source: str, name: str, target: CudaTarget) -> None:
        self._name = name
        request = {"library": _library(), "source": source, "name": name, "options": target.options}
        request["image"] = "PTX" if target.is_virtual else "CUBIN"
        command = (sys.executable, "-IS", "-c", inspect.getsource(nvrtc_child))
        try:
            self._reply, self._errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115  # closed with the result
            with tempfile.TemporaryFile() as asked:
                asked.write(json.dumps(request).encode())
                asked.seek(0)
                self._process = subprocess.Popen(command, stdin=asked, stdout=self._reply, stderr=self._errors, start_new_session=True)
        except OSError as error:
            raise fail("E602", f"the compiler's process cannot begin: {error.strerror or error}", REMEDY) from None

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._reply.close()
        self._errors.close()

    def result(self) -> Entry:
        """The compiler's log and the image, when it has ended."""
        code = self._process.wait()
        with self._reply as reply, self._errors as errors:
            reply.seek(0), errors.seek(0)
            head, said = reply.readline(), errors.read().decode(errors="replace").splitlines()[-1:]
            image = reply.read()
        if code:
            hint = "this happens where memory is short; otherwise please report it with the .bl file"
            what = f"the compiler's process ended with exit code {code} at {self._name}"
            raise BilinearError(Diagnostic("E602", what, notes=tuple(said), hints=(hint,)))
        found = json.loads(head)
        if found["refused"]:
            what, notes = f"the compiler refuses {self._name}", tuple(found["log"].splitlines()[:20])
            hint = "generated sources always compile unless a template was changed: please report this with the .bl file"
            raise BilinearError(Diagnostic("E601", what, notes=notes, hints=(hint,)))
        return found["log"], image


@cache
def _library() -> str:
    """The place of NVRTC, which is called without its bindings for Python: they take long to import. Raises `BilinearError` (E602)."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        place: str = load_nvidia_dynamic_lib("nvrtc").abs_path
        CDLL(place)
        return place
    except ImportError:
        raise fail("E602", "cuda-pathfinder, which finds NVRTC, is not installed", REMEDY) from None
    except (OSError, RuntimeError) as error:
        raise fail("E602", f"NVRTC is not usable: {str(error).splitlines()[0]}", REMEDY) from None


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
