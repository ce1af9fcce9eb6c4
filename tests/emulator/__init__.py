"""Runs emitted CUDA C on a CPU: compiled by the host's C++ compiler, one fiber per CUDA thread, undefined behaviour reported."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import math
import mmap
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

__all__ = [
    "AccessError",
    "AlignmentError",
    "BarrierError",
    "CompileError",
    "LaunchError",
    "Module",
    "ORDERS",
    "Order",
    "TrapError",
    "UndefinedError",
    "compile_on_cpu",
    "guarded",
    "guarded_empty",
    "skip_reason",
    "without_barrier",
]

Array = npt.NDArray[Any]
Value = Array | tuple[Array, int] | int | float | np.generic | None
Extent = int | Sequence[int]
Order = Literal["ascending", "descending", "random"]

ORDERS: tuple[Order, ...] = ("ascending", "descending", "random")
HEADER = Path(__file__).with_name("cuda_on_cpu.h")
CHECKS = "-fsanitize=alignment,bounds,signed-integer-overflow,integer-divide-by-zero,shift"
FLAGS = (
    "-std=c++20",
    "-O1",
    "-fPIC",
    "-pthread",
    "-fvisibility=hidden",  # two modules must never share the shared memory of a template that both instantiate
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-ftrivial-auto-var-init=pattern",  # a variable that was never written holds rubbish, and the same rubbish in every run
    "-U_FORTIFY_SOURCE",
    "-w",
)
DAY = 86400.0


class CompileError(Exception):
    """The host compiler refused the text; the message is the compiler's."""


class LaunchError(Exception):
    """A launch that was ended; `kernel`, `block` and `line` (0 when unknown) say where."""

    def __init__(self, message: str, kernel: str, block: tuple[int, int, int], thread: tuple[int, int, int], line: int) -> None:
        super().__init__(message)
        self.kernel, self.block, self.thread, self.line = kernel, block, thread, line


class BarrierError(LaunchError):
    """The threads of a block do not all reach the same barrier."""


class AccessError(LaunchError):
    """An access outside of an array, or through a null pointer."""


class AlignmentError(AccessError):
    """An access through a pointer that is not a multiple of its type's alignment."""


class UndefinedError(LaunchError):
    """Integer arithmetic without a defined result."""


class TrapError(LaunchError):
    """The kernel called `__trap()`."""


FAILURES: dict[int, type[LaunchError]] = {1: BarrierError, 2: AccessError, 3: AlignmentError, 4: UndefinedError, 5: TrapError}


# ------------------------------------------------------------------------------------------------------------------ the host compiler


@functools.cache
def _compiler() -> tuple[str, str] | None:
    """The first compiler that builds C++20 with every flag in use, and its version; None when there is none."""
    program = "#include <bit>\ntemplate <auto value> int f() { return std::popcount(unsigned(value)); }\nint g() { return f<3>(); }\n"
    for name in ("g++", "clang++"):
        path = shutil.which(name)
        if path is None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            probe = [path, *FLAGS, CHECKS, "-x", "c++", "-", "-c", "-o", f"{folder}/probe.o"]
            if subprocess.run(probe, input=program, text=True, capture_output=True, check=False).returncode:
                continue
        return path, subprocess.run([path, "--version"], text=True, capture_output=True, check=True).stdout
    return None


def skip_reason() -> str | None:
    """Why nothing can be emulated here; None when it can."""
    if sys.platform != "linux":
        return "the CUDA emulator needs Linux"
    if platform.machine() not in ("x86_64", "aarch64"):
        return f"the CUDA emulator was not written for {platform.machine()}"
    if _compiler() is None:
        return "no C++20 compiler (g++ or clang++)"
    return None


@functools.cache
def _default_cache() -> Path:
    """A folder of this user's own, shared by the processes of a test run; what lies there for more than a day is removed."""
    folder = Path(tempfile.gettempdir()) / f"cuda-on-cpu-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    state = folder.stat()
    if state.st_uid != os.getuid() or state.st_mode & 0o077 or folder.is_symlink():
        return Path(tempfile.mkdtemp(prefix="cuda-on-cpu-"))
    now = time.time()
    for file in folder.iterdir():
        with contextlib.suppress(OSError):
            if now - file.stat().st_mtime > DAY:
                file.unlink() if file.is_file() else shutil.rmtree(file, ignore_errors=True)
    return folder


# ------------------------------------------------------------------------------------------------- from CUDA C to what a C++ compiler takes

ALIGNMENT = r"(?:(?:alignas|__align__)\s*\([^()]*\)\s*)?"
DYNAMIC = re.compile(rf"extern\s+__shared__\s+{ALIGNMENT}(\w[\w:\s]*?)\s+{ALIGNMENT}(\w+)\s*\[\s*\]\s*;")
CONSTANT = re.compile(r"(?:\bstatic\s+)?\b__constant__\b(?:\s+const\b)?")
BOUNDS = re.compile(r"__launch_bounds__\s*\(((?:[^()]|\([^()]*\))*)\)\s*(\w+)\s*\(")
BARRIER = re.compile(r"__syncthreads\s*\(\s*\)\s*;")


def _prepare(source: str, kernels: Mapping[str, Sequence[str]]) -> str:
    """The text for the host compiler. Its lines keep their numbers, so that reports can name them."""
    text = DYNAMIC.sub(_dynamic_shared, source)
    text = CONSTANT.sub("static const", text)
    lines = [text]
    for name, types in kernels.items():
        lines.append(f"CUDA_ON_CPU_KERNEL({', '.join([name, *types])})")
    for bounds, name in BOUNDS.findall(source):
        if name in kernels:
            lines.append(f"CUDA_ON_CPU_LAUNCH_BOUNDS({name}, {bounds})")
    return "\n".join(lines) + "\n"


def _dynamic_shared(declaration: re.Match[str]) -> str:
    """A pointer in place of an `extern __shared__` array; outside of all braces, a macro that stands for it."""
    element, name = declaration.groups()
    pointer = f"static_cast<{element}*>(cuda_on_cpu_dynamic_shared())"
    before = declaration.string[: declaration.start()]
    if before.count("{") > before.count("}"):
        return f"{element}* const {name} = {pointer};"
    line = declaration.string.count("\n", 0, declaration.end()) + 1
    return f"\n#define {name} ({pointer})\n#line {line}\n"


def without_barrier(source: str) -> Iterator[tuple[int, str]]:
    """For every `__syncthreads();` outside of comments: its line number, from 1, and the text without it."""
    for match in BARRIER.finditer(source):
        start = source.rfind("\n", 0, match.start()) + 1
        if "//" in source[start : match.start()]:
            continue
        yield source.count("\n", 0, match.start()) + 1, source[: match.start()] + ";" + source[match.end() :]


# ---------------------------------------------------------------------------------------------------------------------------- arguments

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
}
ELEMENTS: dict[str, str] = {"double": "f8", "float": "f4", "int": "i4", "unsigned": "u4", "unsigned int": "u4"}
ELEMENTS |= {"long long": "i8", "unsigned long long": "u8"}


def _words(ctype: str) -> str:
    return " ".join(re.sub(r"\b(const|volatile|__restrict__)\b", " ", ctype).replace("*", " * ").split())


def _pointer(ctype: str, value: Value) -> int:
    """The address that a pointer parameter gets."""
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


def _marshal(ctype: str, value: Value) -> Any:
    """A ctypes object that holds the value of one parameter.

    Raises TypeError for a value of the wrong kind and OverflowError for an integer that the parameter cannot hold.
    """
    words = _words(ctype)
    if "*" in words:
        return ctypes.c_void_p(_pointer(ctype, value))
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


def _extent(name: str, value: Extent, most: tuple[int, int, int]) -> tuple[int, int, int]:
    sizes = (value,) if isinstance(value, int) else tuple(int(size) for size in value)
    x, y, z = sizes + (1,) * (3 - len(sizes))
    if not all(1 <= size <= limit for size, limit in zip((x, y, z), most, strict=True)):
        raise ValueError(f"{name} {(x, y, z)} is not within 1 and {most}")
    return x, y, z


# ------------------------------------------------------------------------------------------------------------------------------ launches


class _Launch(ctypes.Structure):
    """Mirrors `cuda_on_cpu::Launch`."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("order", ctypes.c_int32),
        ("workers", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
        ("shared_bytes", ctypes.c_uint64),
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
_lock = threading.Lock()  # a launch owns the signal handlers of the process and the stacks below
_arenas: dict[int, list[int]] = {}  # by size; one a worker, reused by every launch of every module


class Module:
    """Compiled kernels, ready to be launched."""

    def __init__(self, library: Path, source: str, kernels: Mapping[str, Sequence[str]]) -> None:
        self.source = source
        self.kernels = {name: tuple(types) for name, types in kernels.items()}
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
    ) -> None:
        """Run a kernel to its end.

        `order` is the order of the blocks, and of the threads of a block between two barriers (`random`: another one in every phase,
        the same for the same `seed`). `threads` blocks run at a time. `shared_bytes` is the size of dynamic shared memory.

        Raises a LaunchError when the kernel does what CUDA leaves undefined; ValueError, TypeError, OverflowError when CUDA would refuse
        the launch, or pass another value than the one given.
        """
        types = self.kernels[kernel]
        if len(args) != len(types):
            raise TypeError(f"{kernel} has {len(types)} parameters, not {len(args)}")
        grids = _extent("grid", grid, (2**31 - 1, 65535, 65535))
        blocks = _extent("block", block, (1024, 1024, 64))
        if math.prod(blocks) > self._most_threads(kernel):
            raise ValueError(f"{kernel} takes at most {self._most_threads(kernel)} threads a block, not {math.prod(blocks)}")
        if not 0 <= shared_bytes <= MOST_SHARED_BYTES:
            raise ValueError(f"{shared_bytes} bytes of shared memory are not within 0 and {MOST_SHARED_BYTES}")
        workers = max(1, min(threads, math.prod(grids), MOST_WORKERS))
        values = [_marshal(ctype, value) for ctype, value in zip(types, args, strict=True)]
        arguments = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(value) for value in values))
        with _lock:
            arenas = (ctypes.c_void_p * workers)(*self._take_arenas(workers))
            launch = _Launch(
                grid=grids,
                block=blocks,
                order=ORDERS.index(order),
                workers=workers,
                seed=seed & (2**64 - 1),
                shared_bytes=shared_bytes,
                arenas=ctypes.addressof(arenas),
                arguments=ctypes.addressof(arguments),
            )
            self._library[f"cuda_on_cpu_launch_{kernel}"](ctypes.byref(launch))
        if launch.failure:
            raise self._error(kernel, launch, args)

    def _take_arenas(self, count: int) -> list[int]:
        arenas = _arenas.setdefault(self._library.cuda_on_cpu_arena_size(), [])
        while len(arenas) < count:
            arena = self._library.cuda_on_cpu_arena()
            if not arena:
                raise MemoryError("no address space for the emulator's stacks")
            arenas.append(arena)
        return arenas[:count]

    def _most_threads(self, kernel: str) -> int:
        try:
            return min(1024, int(self._library[f"cuda_on_cpu_bounds_{kernel}"]()))
        except AttributeError:
            return 1024

    def _error(self, kernel: str, launch: _Launch, args: Sequence[Value]) -> LaunchError:
        """What happened, where, and the source line or the argument that it concerns."""
        kind = FAILURES[launch.failure]
        block, thread = _triple(launch.failed_block), _triple(launch.failed_thread)
        where = f"{kernel}, block {block}" if kind is BarrierError else f"{kernel}, block {block}, thread {thread}"
        message = f"{where}: {launch.message.decode(errors='replace')}"
        if launch.address:
            message += f" {launch.address:#x}" if kind is not AlignmentError else f", not {launch.address:#x}"
            message += _nearest(launch.address, args)
        lines = self.source.split("\n")
        if 0 < launch.line <= len(lines):
            message += f"\n{launch.line:>5} | {lines[launch.line - 1].strip()}"
        return kind(message, kernel, block, thread, launch.line)


def _triple(values: Any) -> tuple[int, int, int]:
    x, y, z = (int(value) for value in values)
    return x, y, z


def _nearest(address: int, args: Sequence[Value]) -> str:
    """Where an address lies, seen from the closest of the arrays that were passed."""
    best: tuple[int, str] | None = None
    for number, value in enumerate(args):
        array = value[0] if isinstance(value, tuple) else value
        if not isinstance(array, np.ndarray):
            continue
        low, high = _byte_bounds(array)
        if address < low:
            found = (low - address, f", {low - address} bytes before argument {number}")
        elif address >= high:
            found = (address - high, f", {address - high} bytes past the end of argument {number}")
        else:
            found = (0, f", byte {address - low} of argument {number}")
        if best is None or found[0] < best[0]:
            best = found
    return "" if best is None else best[1]


def _byte_bounds(array: Array) -> tuple[int, int]:
    steps = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True) if size]
    low = array.ctypes.data + sum(step for step in steps if step < 0)
    high = array.ctypes.data + sum(step for step in steps if step > 0)
    return low, high + (array.itemsize if array.size else 0)


_modules: dict[str, Module] = {}


def compile_on_cpu(
    source: str,
    kernels: Mapping[str, Sequence[str]],
    cache: Path | None = None,
    flags: Sequence[str] = (),
) -> Module:
    """Compile emitted CUDA C; `kernels` gives the C types of the parameters of each kernel to be launched.

    The same text is compiled once, whatever the process, as long as `cache` (by default a folder below the system's temporary one) is
    kept. Raises CompileError with the compiler's message, also when a kernel's parameters are not of the declared types.
    """
    compiler = _compiler()
    if compiler is None:
        raise CompileError(skip_reason() or "no compiler")
    text = _prepare(source, kernels)
    command = [compiler[0], *FLAGS, *flags]
    parts = (text, source, HEADER.read_text(), compiler[1], *command, CHECKS)
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    if key not in _modules:
        folder = _default_cache() if cache is None else cache
        library = folder / f"{key}.so"
        if not library.exists():
            _build(command, text, library)
        _modules[key] = Module(library, source, kernels)
    return _modules[key]


def _build(command: Sequence[str], text: str, library: Path) -> None:
    """Build in a folder of our own and rename at the end, so that another process sees all of the library or nothing.

    The sanitizer is asked for when compiling but not when linking: its handlers are the header's, not those of its run-time library.
    """
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        emitted, compiled, linked = (f"{folder}/kernel{suffix}" for suffix in (".cpp", ".o", ".so"))
        Path(emitted).write_text(text)
        _run([*command, CHECKS, "-include", str(HEADER), "-c", emitted, "-o", compiled], folder)
        _run([*command, "-shared", "-Wl,-Bsymbolic", "-Wl,--no-undefined", compiled, "-o", linked], folder)
        os.replace(linked, library)


def _run(command: Sequence[str], folder: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompileError(done.stderr.replace(f"{folder}/", "").strip())


# --------------------------------------------------------------------------------------------------------------- arrays beside a precipice

_PAGE = 65536  # a multiple of every page size in use
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def _protect(address: int, size: int, protection: int) -> None:
    if size and _libc.mprotect(address, size, protection):
        raise OSError(ctypes.get_errno(), "mprotect")


def guarded_empty(
    shape: int | Sequence[int],
    dtype: npt.DTypeLike = np.float64,
    order: Literal["C", "F"] = "C",
    at: Literal["end", "start"] = "end",
) -> Array:
    """An array of all-ones bytes (NaN) whose end, or start, touches an inaccessible page: one byte further is a fault.

    At the end, it starts at no more than its natural alignment. The pages are released with the array.
    """
    kind = np.dtype(dtype)
    shapes = (shape,) if isinstance(shape, int) else tuple(shape)
    size = math.prod(shapes) * kind.itemsize
    whole = max(1, -(-size // _PAGE)) * _PAGE
    memory = mmap.mmap(-1, whole + 3 * _PAGE)  # one page is lost to alignment: only the system's own page size is promised
    first = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    skipped = -first % _PAGE
    _protect(first + skipped, _PAGE, 0)
    _protect(first + skipped + _PAGE + whole, _PAGE, 0)
    begin = skipped + _PAGE + (whole - size if at == "end" else 0)
    array: Array = np.ndarray(shapes, kind, buffer=memory, offset=begin, order=order)
    ctypes.memset(array.ctypes.data, 0xFF, size)
    return array


def guarded(array: Array, at: Literal["end", "start"] = "end", read_only: bool = False) -> Array:
    """A copy of an array, in its memory order, whose end, or start, touches an inaccessible page.

    With `read_only` its own pages are read only too, so that even a write that is undone later is a fault.
    """
    copy = guarded_empty(array.shape, array.dtype, "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C", at)
    copy[...] = array
    if read_only:
        copy.flags.writeable = False
        start = copy.ctypes.data // _PAGE * _PAGE
        _protect(start, -(-(copy.ctypes.data + copy.nbytes - start) // _PAGE) * _PAGE, mmap.PROT_READ)
    return copy
