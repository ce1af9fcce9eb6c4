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
from bilinear.resources import shipped_runtime, templates_folder
from bilinear.runtime.arrays import watcher
from bilinear.runtime.devices_here import DEVICE, value_of
from bilinear.runtime.options import Options
from bilinear.runtime.repeat import Repeat

_STREAM = "get_current_stream_ptr", b"intptr_t (void)"  # CuPy's C function for the current stream's handle.
_EXCHANGE = b"dlpack_exchange_api"
"""What PyTorch's C functions for tensors are called; in the struct of dlpack.h five follow the version and an older struct."""
_PYTORCHS = {
    "libc10.so": (
        "_ZN3c108GradMode10is_enabledEv",
        "_ZN3c104impl28tls_is_dispatch_key_includedENS_11DispatchKeyE",
        "_ZNK3c1010TensorImpl13requires_gradEv",
        "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv",
    ),
    "libtorch_cpu.so": ("_ZN2at6native6is_negERKNS_6TensorE",),
}
"""PyTorch's functions that tell whether gradients are recorded, a key is included, a tensor asks for gradients, how many modes there are,
and whether a tensor is negated. Through Python each takes some 60 to 100 ns."""
GIVEN = "a", "b", "out", "stream", "modulus", "gpus", "memory", "balance", *Options._fields[:9], "reproducible", "contention"
"""The parameters of `matmul` that C compares, as `asked_of` lists them."""


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
    multiply: Callable[..., Array] | None = None  # `matmul`.
    stands_before = False  # Whether C looks for a call of `matmul` before Python sees it.
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
        stand_before(replays.module, replays.multiply)
    except (BilinearError, ImportError, OSError, AttributeError, RuntimeError) as error:  # the last while the interpreter ends
        replays.is_refused = True
        logging.getLogger("bilinear").info("repeated calls stay Python's: %s", error)


def load() -> ModuleType:
    """The module in C, of the wheel or the cache, or built. Raises `BilinearError` (E614) or `ImportError` where that is impossible."""
    driver = cuda_driver()
    if driver is None or sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise ImportError("the driver is not found by its name, or Python has no GIL")
    place = shipped_runtime()
    if place is None:
        module_compiler()
        text = (templates_folder() / "replay.c").read_text(encoding="utf-8")
        place = shared_library("replay", text, f"-I{sysconfig.get_path('include')}")
    module = module_at(place)
    functions = driver.cuCtxGetCurrent, driver.cuStreamIsCapturing, driver.cuLaunchKernel
    module.use_driver(tuple(ctypes.cast(function, ctypes.c_void_p).value for function in functions))
    return module


def stand_before(module: ModuleType, multiply: Callable[..., Array] | None) -> None:
    """Let C answer calls of `matmul`, which stays the function that it is. Python can change a function's vectorcall from 3.12 on."""
    interface = ctypes.pythonapi
    if multiply is None or not hasattr(interface, "PyFunction_SetVectorcall"):
        return
    find, put = interface.PyVectorcall_Function, interface.PyFunction_SetVectorcall
    find.argtypes, find.restype = [ctypes.py_object], ctypes.c_void_p
    put.argtypes, put.restype = [ctypes.py_object, ctypes.c_void_p], None
    defaults = multiply.__kwdefaults__ or {}
    put(multiply, module.stand_before((GIVEN, tuple(map(defaults.get, GIVEN)), find(multiply))))
    replays.stands_before = True


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
        replays.module.use_arrays((cupy.ndarray, function, *_places_in_arrays(cupy)))  # type: ignore[union-attr]
    return bool(function)


def _words(x: object) -> list[int]:
    """What an object holds, by words."""
    return list((ctypes.c_uint64 * (type(x).__basicsize__ // 8)).from_address(id(x)))


def _places_in_arrays(cupy: ModuleType) -> tuple[object, ...]:
    """The bytes at which CuPy's arrays hold extents, strides, type and memory, and this its address; then the type of the memory.

    Nothing, unless each is the only place that holds what three arrays of an invented memory say. An address is followed only where all
    three hold the ends of a vector of their length.
    """
    memory = cupy.cuda.UnownedMemory(2**46, 2**20, None, 0)
    pointers = [cupy.cuda.MemoryPointer(memory, 512 * number) for number in (1, 2, 3)]
    shapes = (6, 5), (3, 7, 11), (2, 9, 4, 13)
    arrays = [cupy.ndarray(shape, "d", pointer, order="F") for shape, pointer in zip(shapes, pointers, strict=True)]

    def places(objects: list[Array], holds: Callable[[Array, list[int]], bool]) -> list[int]:
        """The places in all of the objects from which on the words hold something."""
        each = [_words(x) for x in objects]
        return [8 * i for i in range(2, len(each[0]) - 1) if all(holds(x, words[i:]) for x, words in zip(arrays, each, strict=True))]

    try:
        vectors = places(arrays, lambda x, words: 0 < words[0] == words[1] - 8 * x.ndim)
        held = [[tuple((ctypes.c_int64 * x.ndim).from_address(_words(x)[i // 8])) for x in arrays] for i in vectors]
        (dtype,) = places(arrays, lambda x, words: words[0] == id(x.dtype))
        (data,) = places(arrays, lambda x, words: words[0] == id(x.data))
        (address,) = places(pointers, lambda x, words: words[0] == x.data.ptr)
    except ValueError:
        return ()
    return (
        (*vectors, dtype, data, address, cupy.cuda.MemoryPointer)
        if held == [[x.shape for x in arrays], [x.strides for x in arrays]]
        else ()
    )


@cache
def _uses_tensors(torch: ModuleType) -> bool:
    """Let C read PyTorch's tensors; False in a release without DLPack's functions in C."""
    table = _pointer(getattr(torch.Tensor, "__dlpack_c_exchange_api__", None), _EXCHANGE)
    if not table:
        return False
    version, _, _, _, _, view, stream = (ctypes.c_uint64 * 7).from_address(table)
    if version & 0xFFFFFFFF != 1:  # the major one
        return False

    written = torch.autograd.graph.increment_version
    told = torch.Tensor, torch.nn.Parameter, view, stream, watcher(torch), torch.is_grad_enabled, replays.recorded, written
    replays.module.use_tensors((*told, *_functions_of(torch)))  # type: ignore[union-attr]
    return True


def _functions_of(torch: ModuleType) -> tuple[object, ...]:
    """The functions of PyTorch's libraries and what they are asked with; nothing if one is missing, or tells something else than Python."""
    try:
        folder = Path(str(torch.__file__)).parent / "lib"
        each = [getattr(ctypes.CDLL(str(folder / library)), name) for library, names in _PYTORCHS.items() for name in names]
        key, level = int(torch._C._parse_dispatch_key("VmapMode")), torch._C._functorch.maybe_current_level
        torch.autograd.forward_ad._current_level.__index__()
    except (OSError, AttributeError, TypeError, ValueError):
        return ()
    records, _, asks, modes, negated = each
    records.restype = asks.restype = negated.restype = ctypes.c_bool
    asks.argtypes = negated.argtypes = [ctypes.c_void_p]
    plain, complex_ = torch.empty(2, 3), torch.empty(2, 3, dtype=torch.complex64)
    probes = plain, torch.empty(2, requires_grad=True), torch.nn.Parameter(plain), complex_.conj().imag, complex_.imag
    places = set.intersection(*({i for i, word in enumerate(_words(x)) if word == x._cdata} for x in probes))
    if len(places) != 1 or modes() != torch._C._len_torch_dispatch_stack() or records() != torch.is_grad_enabled():
        return ()
    place = 8 * places.pop()
    if any((negated(id(x) + place), asks(x._cdata)) != (x.is_neg(), x.requires_grad) for x in probes):
        return ()
    return *(ctypes.cast(each[i], ctypes.c_void_p).value for i in (0, 1, 2, 4, 3)), place, key, level, torch.autograd.forward_ad


def _pointer(capsule: object, name: bytes) -> int:
    """The address in a capsule of this name; 0 for others."""
    valid, get = ctypes.pythonapi.PyCapsule_IsValid, ctypes.pythonapi.PyCapsule_GetPointer
    valid.argtypes = get.argtypes = [ctypes.py_object, ctypes.c_char_p]
    get.restype = ctypes.c_void_p
    return (get(capsule, name) or 0) if valid(capsule, name) else 0
