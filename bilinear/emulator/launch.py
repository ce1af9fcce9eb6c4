"""Launch compiled kernels, and report what went wrong."""

from __future__ import annotations

import ctypes
import math
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt


class LaunchError(Exception):
    """A launch that was aborted; `kernel`, `block` and `line` (0 if unknown) say where."""

    def __init__(self, message: str, kernel: str, block: tuple[int, int, int], thread: tuple[int, int, int], line: int) -> None:
        super().__init__(message)
        self.kernel, self.block, self.thread, self.line = kernel, block, thread, line


class BarrierError(LaunchError):
    """The threads of a block do not all reach the same barrier."""


class AccessError(LaunchError):
    """An access outside an array, or through a null pointer."""


class AlignmentError(AccessError):
    """An access through a pointer that is not aligned for its type."""


class UndefinedError(LaunchError):
    """Integer arithmetic with an undefined result."""


class TrapError(LaunchError):
    """The kernel called `__trap()`."""


class HangError(LaunchError):
    """The launch exceeded its time limit."""


class AsyncError(LaunchError):
    """A transaction barrier, an asynchronous copy or a warpgroup's multiplication is misused."""


FAILURES: dict[int, type[LaunchError]] = {
    1: BarrierError,
    2: AccessError,
    3: AlignmentError,
    4: UndefinedError,
    5: TrapError,
    6: HangError,
    7: AsyncError,
}


Array = npt.NDArray[np.generic]


Value = Array | tuple[Array, int] | int | float | np.generic | None


SCALARS: dict[str, Any] = {
    "double": ctypes.c_double,
    "float": ctypes.c_float,
    "bool": ctypes.c_bool,
    "char": ctypes.c_int8,
    "short": ctypes.c_short,
    "int": ctypes.c_int,
    "unsigned": ctypes.c_uint,
    "unsigned int": ctypes.c_uint,
    "long": ctypes.c_long,
    "unsigned long": ctypes.c_ulong,
    "size_t": ctypes.c_size_t,
    "long long": ctypes.c_longlong,
    "unsigned long long": ctypes.c_ulonglong,
    "cuda_on_cpu::Field": ctypes.c_uint64,
    "Residue": ctypes.c_uint64,  # of templates/modular.cu.j2
}


ELEMENTS = {
    "double": "f8",
    "float": "f4",
    "int": "i4",
    "unsigned": "u4",
    "unsigned int": "u4",
    "long long": "i8",
    "unsigned long long": "u8",
    "cuda_on_cpu::Field": "u8",
}


def _words(ctype: str) -> str:
    return " ".join(re.sub(r"\b(const|volatile|__restrict__)\b", " ", ctype).replace("*", " * ").split())


def _pointer(ctype: str, value: Value) -> int:
    if value is None:
        return 0
    if isinstance(value, (int, np.integer)):
        return int(value)
    array, offset = value if isinstance(value, tuple) else (value, 0)
    if not isinstance(array, np.ndarray):
        raise TypeError(f"a parameter of type {ctype} takes an array, an (array, offset) pair or an address, not {value!r}")
    element = ELEMENTS.get(_words(ctype).removesuffix("*").strip())
    if element is not None and array.dtype != np.dtype(element):
        raise TypeError(f"a parameter of type {ctype} does not take an array of {array.dtype}")
    return array.ctypes.data + offset * array.itemsize


def marshal(ctype: str, value: Value) -> Any:
    """A ctypes object that holds the value of one parameter.

    Raises TypeError for a value of the wrong kind and OverflowError for an integer that the parameter cannot hold.
    """
    words = _words(ctype)
    if "*" in words:
        return ctypes.c_void_p(_pointer(ctype, value))
    if words == "TensorMap":
        return (ctypes.c_uint64 * 16)(*np.asarray(value).tolist())
    kind = SCALARS.get(words)
    if kind is None:
        raise TypeError(f"no parameter of type {ctype!r} can be passed")
    if isinstance(value, (np.ndarray, tuple)) or value is None:
        raise TypeError(f"a parameter of type {ctype} takes a number, not {type(value).__name__}")
    if kind in (ctypes.c_double, ctypes.c_float):
        return kind(float(value))
    if not isinstance(value, (int, np.integer, np.bool_)):
        raise TypeError(f"a parameter of type {ctype} takes an integer, not {value!r}")
    held = kind(int(value))
    if held.value != int(value):
        raise OverflowError(f"{value} does not fit a parameter of type {ctype}")
    return held


def nearest(address: int, args: Sequence[Value]) -> str:
    """Describe an address relative to the closest array that was passed."""
    best: tuple[int, str] | None = None
    for number, value in enumerate(args):
        array = value[0] if isinstance(value, tuple) else value
        if not isinstance(array, np.ndarray):
            continue
        steps = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True) if size]
        low = array.ctypes.data + sum(step for step in steps if step < 0)
        high = array.ctypes.data + sum(step for step in steps if step > 0) + (array.itemsize if array.size else 0)
        if address < low:
            found = (low - address, f", {low - address} bytes before argument {number}")
        elif address >= high:
            found = (address - high, f", {address - high} bytes past the end of argument {number}")
        else:
            found = (0, f", byte {address - low} of argument {number}")
        if best is None or found[0] < best[0]:
            best = found
    return "" if best is None else best[1]


Extent = int | Sequence[int]
Order = Literal["ascending", "descending", "random"]

ORDERS: tuple[Order, ...] = ("ascending", "descending", "random")


def _extent(name: str, value: Extent, most: tuple[int, int, int]) -> tuple[int, int, int]:
    sizes = (value,) if isinstance(value, int) else tuple(int(size) for size in value)
    x, y, z = sizes + (1,) * (3 - len(sizes))
    if not all(1 <= size <= limit for size, limit in zip((x, y, z), most, strict=True)):
        raise ValueError(f"{name} {(x, y, z)} is not within 1 and {most}")
    return x, y, z


class _CpuLaunch(ctypes.Structure):
    """Mirrors `cuda_on_cpu::Launch`."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("order", ctypes.c_int32),
        ("workers", ctypes.c_uint32),
        ("cluster", ctypes.c_uint32),
        ("shared_alignment", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
        ("shared_bytes", ctypes.c_uint64),
        ("milliseconds", ctypes.c_uint64),
        ("arenas", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("failure", ctypes.c_int32),
        ("failed_block", ctypes.c_uint32 * 3),
        ("failed_thread", ctypes.c_uint32 * 3),
        ("line", ctypes.c_uint32),
        ("address", ctypes.c_uint64),
        ("message", ctypes.c_char * 512),
    )


MOST_WORKERS = 64
MOST_SHARED_BYTES = 227 * 1024
MOST_BLOCKS = 8  # in a cluster: what every device of the architecture can run
_lock = threading.Lock()  # a launch owns the process's signal handlers and the stacks below
_arenas: dict[int, list[int]] = {}  # by size; one for each block that runs, reused by every launch


class CompiledModule:
    """Compiled kernels, ready to launch."""

    def __init__(self, library: Path, source: str, kernels: Mapping[str, Sequence[str]], shared_alignment: int = 16) -> None:
        self.source, self.shared_alignment = source, shared_alignment
        self.kernels = {name: tuple(types) for name, types in kernels.items()}
        self.path = library
        self._library = ctypes.CDLL(str(library))
        self._library.cuda_on_cpu_arena.restype = ctypes.c_void_p
        self._library.cuda_on_cpu_arena_size.restype = ctypes.c_size_t

    def launch(
        self,
        kernel: str,
        grid: Extent,
        block: Extent,
        args: Sequence[Value],
        *,
        order: Order = "ascending",
        seed: int = 0,
        threads: int = 2,
        shared_bytes: int = 0,
        seconds: float = 0,
    ) -> None:
        """Run a kernel to its end.

        `order` is the order of the blocks, and of a block's threads between two barriers (`random`: a new order in every phase, determined
        by `seed`). `threads` blocks run at a time, or clusters if the text declares the kernel with `CLUSTER(n)`. `shared_bytes` is the
        size of dynamic shared memory. A launch that takes more than `seconds` is aborted.

        Raises a LaunchError if the kernel does what CUDA leaves undefined; ValueError, TypeError or OverflowError if CUDA would refuse the
        launch or change an argument's value.
        """
        grids = _extent("grid", grid, (2**31 - 1, 65535, 65535))
        blocks = _extent("block", block, (1024, 1024, 64))
        self._check(kernel, len(args), math.prod(blocks), shared_bytes)
        cluster = self._cluster(kernel, grids[0])
        workers = max(1, min(threads, math.prod(grids) // cluster, MOST_WORKERS))
        values = [marshal(ctype, value) for ctype, value in zip(self.kernels[kernel], args, strict=True)]
        arguments = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(value) for value in values))
        with _lock:
            arenas = (ctypes.c_void_p * (workers * cluster))(*self._take_arenas(workers * cluster))
            launch = _CpuLaunch(
                grid=grids,
                block=blocks,
                order=ORDERS.index(order),
                workers=workers,
                cluster=cluster,
                shared_alignment=self.shared_alignment,
                seed=seed & (2**64 - 1),
                shared_bytes=shared_bytes,
                milliseconds=math.ceil(1000 * seconds),
                arenas=ctypes.addressof(arenas),
                arguments=ctypes.addressof(arguments),
            )
            self._library[f"cuda_on_cpu_launch_{kernel}"](ctypes.byref(launch))
        if launch.failure:
            raise self._error(kernel, launch, args)

    def _check(self, kernel: str, arguments: int, threads: int, shared_bytes: int) -> None:
        if arguments != len(self.kernels[kernel]):
            raise TypeError(f"{kernel} has {len(self.kernels[kernel])} parameters, not {arguments}")
        if threads > self._most_threads(kernel):
            raise ValueError(f"{kernel} takes at most {self._most_threads(kernel)} threads a block, not {threads}")
        if not 0 <= shared_bytes <= MOST_SHARED_BYTES:
            raise ValueError(f"{shared_bytes} bytes of shared memory are not within 0 and {MOST_SHARED_BYTES}")

    def _take_arenas(self, count: int) -> list[int]:
        arenas = _arenas.setdefault(self._library.cuda_on_cpu_arena_size(), [])
        while len(arenas) < count:
            arena = self._library.cuda_on_cpu_arena()
            if not arena:
                raise MemoryError("no address space for the emulator's stacks")
            arenas.append(arena)
        return arenas[:count]

    def _most_threads(self, kernel: str) -> int:
        return min(1024, self._declared("bounds", kernel, 1024))

    def _cluster(self, kernel: str, columns: int) -> int:
        """The blocks of a cluster; they follow one another in x."""
        blocks = self._declared("cluster", kernel, 1)
        if not 1 <= blocks <= MOST_BLOCKS:
            raise ValueError(f"{kernel} has {blocks} blocks in a cluster, not 1 to {MOST_BLOCKS}")
        if columns % blocks:
            raise ValueError(f"{kernel} runs in clusters of {blocks} blocks, and {columns} blocks in x are not a multiple of it")
        return blocks

    def _declared(self, what: str, kernel: str, default: int) -> int:
        try:
            return int(self._library[f"cuda_on_cpu_{what}_{kernel}"]())
        except AttributeError:
            return default

    def _error(self, kernel: str, launch: _CpuLaunch, args: Sequence[Value]) -> LaunchError:
        kind = FAILURES[launch.failure]
        block, thread = _triple(launch.failed_block), _triple(launch.failed_thread)
        where = f"{kernel}, block {block}" if kind is BarrierError else f"{kernel}, block {block}, thread {thread}"
        if kind is HangError:
            where = kernel
        message = f"{where}: {launch.message.decode(errors='replace')}"
        if launch.address:
            message += f" {launch.address:#x}" if kind is not AlignmentError else f", not {launch.address:#x}"
            message += nearest(launch.address, args)
        lines = self.source.split("\n")
        if 0 < launch.line <= len(lines):
            message += f"\n{launch.line:>5} | {lines[launch.line - 1].strip()}"
        return kind(message, kernel, block, thread, launch.line)


def _triple(values: Iterable[int]) -> tuple[int, int, int]:
    x, y, z = (int(value) for value in values)
    return x, y, z
