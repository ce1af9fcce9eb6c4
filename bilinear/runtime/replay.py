"""Replay: calls that ran before are found and issued again by C (`templates/replay.c`), which the user's compiler builds behind the first.

What Python has run is given to C with everything that the call depends on; C answers NotImplemented for all others. Without a compiler or
Python's headers every call is one of Python.
"""

from __future__ import annotations

import ctypes
import logging
import sys
import sysconfig
from array import array
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from threading import Thread
from types import ModuleType

from bilinear.backends.capture import cuda_driver
from bilinear.backends.shared_library import module_compiler, shared_library
from bilinear.errors import BilinearError
from bilinear.ir.matrix import Array
from bilinear.resources import templates_folder
from bilinear.runtime.arrays import watcher
from bilinear.runtime.devices_here import DEVICE, value_of
from bilinear.runtime.options import Options
from bilinear.runtime.repeat import Repeat

_STREAM = "get_current_stream_ptr", b"intptr_t (void)"
"""CuPy's C function for the handle of the current stream, and its type."""
_EXCHANGE = b"dlpack_exchange_api"
"""What PyTorch's C functions for tensors are called; in the struct of dlpack.h five follow the version and an older struct."""


class Replays:
    """What C offers; nothing, before it is loaded."""

    again: Callable[[tuple[object, ...]], Array] | None = None
    """The result of a call that `asked_of` tells, or NotImplemented."""
    record: Callable[[Array, Array], Array] = staticmethod(lambda a, b: NotImplemented)
    """What multiplies two tensors and records their gradients, once PyTorch's operators are there."""

    def recorded(self, a: Array, b: Array) -> Array:
        """By that; NotImplemented without it."""
        return self.record(a, b)

    module: ModuleType | None = None
    is_refused = False  # Whether it could not be built or loaded.


replays = Replays()


def asked_of(a: Array, b: Array, out: Array, asked: Options) -> tuple[object, ...]:
    """The arguments of `matmul` that these options stand for, as C compares them: by identity."""
    return a, b, out, None, None, None, None, "static", *asked[:9], asked.reproducible, asked.contention


def remember(a: Array, b: Array, out: Array, asked: Options, repeat: Repeat, torch: ModuleType | None = None) -> None:
    """Let C issue a call from now on that a repeat has just run, if it can. The first time C is built, behind the caller."""
    if type(asked.alpha) is not int or asked.alpha != 1 or asked.beta != 0 or value_of(DEVICE) is not None:
        return
    _begin()
    if replays.module is None:
        repeat.offers *= not replays.is_refused
        return
    is_read = a.ndim == b.ndim == 2 and (_uses_arrays() if torch is None else _uses_tensors(torch))
    found = None
    with suppress(MemoryError):  # there is a result already
        found = repeat.in_c if is_read else None
    repeat.offers = 0 if found is None else repeat.offers - 1
    if found is None:
        return
    shape = a.shape[0], b.shape[1]
    if torch is None:
        empty = sys.modules["cupy"].empty
        make, memory = partial(empty, shape, a.dtype), partial(empty, (1, found.workspace), "u1")
    else:
        make = partial(torch.empty, shape, dtype=a.dtype, device=a.device)
        memory = partial(torch.empty, (1, found.workspace), dtype=torch.uint8, device=a.device)
    is_recorded = out is None and asked == Options()
    words = (found.is_aligned, is_recorded, found.swaps, *repeat.reaches, *found.numbers)
    given = asked_of(a, b, out, asked)
    numbers = array("q", (int(word) for word in words)).tobytes()
    types = a.dtype, b.dtype, None if out is None else out.dtype
    kept = numbers, found.memory, make, memory if found.workspace else None, given[3:], found.alive, types
    replays.module.keep((given, kept))


@cache
def _begin() -> None:
    """Build and load C on a thread that no process waits for."""
    Thread(target=_load, daemon=True).start()


def _load() -> None:
    try:
        replays.module = load()
        replays.again = replays.module.replay
    except (BilinearError, ImportError, OSError, AttributeError, RuntimeError) as error:  # the last while the interpreter ends
        replays.is_refused = True
        logging.getLogger("bilinear").info("repeated calls stay Python's: %s", error)


def load() -> ModuleType:
    """The module in C, built if it is not in the cache. Raises `BilinearError` (E614) or `ImportError` where that is impossible."""
    driver = cuda_driver()
    if driver is None or sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise ImportError("the driver is not found by its name, or Python has no GIL")
    module_compiler()
    text = (templates_folder() / "replay.c").read_text(encoding="utf-8")
    place = shared_library("replay", text, f"-I{sysconfig.get_path('include')}")
    module = module_at(place)
    functions = driver.cuCtxGetCurrent, driver.cuStreamIsCapturing, driver.cuLaunchKernel
    module.use_driver(tuple(ctypes.cast(function, ctypes.c_void_p).value for function in functions))
    return module


def module_at(place: Path) -> ModuleType:
    """The module of a shared library."""
    spec = spec_from_file_location("bilinear_replay", place)
    if spec is None or spec.loader is None:
        raise ImportError(f"{place} is no module")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def _uses_arrays() -> bool:
    """Let C read CuPy's arrays; False in a release without the function that it calls."""
    import cupy
    from cupy_backends.cuda import stream

    name, kind = _STREAM
    function = _pointer(getattr(stream, "__pyx_capi__", {}).get(name), kind)
    if function:
        replays.module.use_arrays((cupy.ndarray, function))  # type: ignore[union-attr]
    return bool(function)


@cache
def _uses_tensors(torch: ModuleType) -> bool:
    """Let C read PyTorch's tensors; False in a release without DLPack's functions in C."""
    table = _pointer(getattr(torch.Tensor, "__dlpack_c_exchange_api__", None), _EXCHANGE)
    if not table:
        return False
    version, _, _, _, _, view, stream = (ctypes.c_uint64 * 7).from_address(table)
    if version & 0xFFFFFFFF != 1:  # the major one
        return False

    told = torch.Tensor, torch.nn.Parameter, view, stream, watcher(torch), torch.is_grad_enabled, replays.recorded
    replays.module.use_tensors(told)  # type: ignore[union-attr]
    return True


def _pointer(capsule: object, name: bytes) -> int:
    """The address in a capsule of this name; 0 for others."""
    valid, get = ctypes.pythonapi.PyCapsule_IsValid, ctypes.pythonapi.PyCapsule_GetPointer
    valid.argtypes = get.argtypes = [ctypes.py_object, ctypes.c_char_p]
    get.restype = ctypes.c_void_p
    return (get(capsule, name) or 0) if valid(capsule, name) else 0
