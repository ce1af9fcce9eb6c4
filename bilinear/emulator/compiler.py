"""Compile CUDA C to a library for the CPU with the host's C++ compiler, and cache the result."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from bilinear.emulator.launch import CompiledModule

HEADER = Path(__file__).with_name("cuda_on_cpu.h")
HOPPER = tuple(HEADER.with_name(name) for name in ("hopper_on_cpu.h", "units_on_cpu.h", "warpgroup_on_cpu.h"))
USES_HOPPER = re.compile(r"\b(?:CLUSTER|Barrier|half_bits|half_value|group_multiply)\b")
WARP = HEADER.with_name("warp_on_cpu.h")
USES_WARP = re.compile(r"\b(?:copy_16|load_matrices)\b")
CHECKS = "-fsanitize=alignment,bounds,signed-integer-overflow,integer-divide-by-zero,shift"
STRICTER = {"g++": ",bounds-strict"}  # also checks the bounds of an array at the end of a structure
FASTER = {"g++": "-O0"}  # A third of -O1's time, and few numbers a text. Zig would add its own checks.
FLAGS = (
    "-std=c++20",
    "-fPIC",
    "-pthread",
    "-fvisibility=hidden",  # two modules must not share the shared memory of a template that both instantiate
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-ftrivial-auto-var-init=pattern",  # uninitialised variables hold the same garbage in every run
    "-U_FORTIFY_SOURCE",
    "-w",
)
MONTH = 30 * 86400.0
NO_COMPILER = "no C++20 compiler (g++, clang++, or that of the wheel ziglang)"
OURS = re.compile(r"[0-9a-f]{32}(?:\.so|\.headers)|building-.*")
"""The names in the cache: of libraries, of what they share, and of the folders in which both are built; other names are not ours."""
CACHES = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
"""Where this user keeps caches: as it is when the process begins, whatever a test sets."""


class CompileError(Exception):
    """The host compiler rejected the text; the message is the compiler's."""


@functools.cache
def _compiler() -> tuple[tuple[str, ...], str, str] | None:
    """The first compiler that builds C++20 with all flags: its command and these, its version, its flag for the checks; else None.

    If the machine has none, the wheel `ziglang` provides one: clang with its own libraries.
    """
    program = "#include <bit>\ntemplate <auto value> int f() { return std::popcount(unsigned(value)); }\nint g() { return f<3>(); }\n"
    for name, command in _candidates():
        checks, whole = CHECKS + STRICTER.get(name, ""), (*command, FASTER.get(name, "-O1"), *FLAGS)
        with tempfile.TemporaryDirectory() as folder:
            probe = [*whole, checks, "-x", "c++", "-", "-c", "-o", f"{folder}/probe.o"]
            if subprocess.run(probe, input=program, text=True, capture_output=True, check=False).returncode:
                continue
        return whole, subprocess.run([*command, "--version"], text=True, capture_output=True, check=True).stdout, checks
    return None


def _candidates() -> Iterator[tuple[str, tuple[str, ...]]]:
    for name in ("g++", "clang++"):
        path = shutil.which(name)
        if path is not None:
            yield name, (path,)
    if find_spec("ziglang") is not None:
        yield "zig", (sys.executable, "-m", "ziglang", "c++")


def compiler_name() -> str:
    """The name of the compiler that serves; empty if there is none."""
    found = _compiler()
    return "" if found is None else "zig" if "ziglang" in found[0] else os.path.basename(found[0][0])


def skip_reason() -> str | None:
    """Why nothing can be emulated here; None if it can."""
    if sys.platform != "linux":
        return "the CUDA emulator needs Linux"
    if platform.machine() not in ("x86_64", "aarch64"):
        return f"the CUDA emulator was not written for {platform.machine()}"
    if _compiler() is None:
        return NO_COMPILER
    return None


@functools.cache
def _default_cache() -> Path:
    """A private folder of this user, shared by all processes; what none of them has used for a month is removed."""
    folder = Path(CACHES) / "bilinear" / "emulated"
    try:
        if folder.is_absolute():  # else this user has no home
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = folder.lstat()
        is_private = stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid() and not state.st_mode & 0o077
    except OSError:
        is_private = False
    if not is_private or not os.access(folder, os.W_OK):
        return Path(tempfile.mkdtemp(prefix="cuda-on-cpu-"))
    now = time.time()
    for file in folder.iterdir():
        with contextlib.suppress(OSError):
            if now - file.lstat().st_mtime > MONTH and OURS.fullmatch(file.name):
                shutil.rmtree(file) if file.is_dir() else file.unlink()
    return folder


ALIGNMENT = r"(?:(?:alignas|__align__)\s*\([^()]*\)\s*)?"
DYNAMIC = re.compile(rf"extern\s+__shared__\s+{ALIGNMENT}(\w[\w:\s]*?)\s+{ALIGNMENT}(\w+)\s*\[\s*\]\s*;")
CONSTANT = re.compile(r"(?:\bstatic\s+)?\b__constant__\b(?:\s+const\b)?")
ALIGNED = re.compile(r"(?:alignas|__align__)\s*\(\s*(\d+)\s*\)")
ARGUMENTS = r"\s*\(((?:[^()]|\([^()]*\))*)\)\s*"
BOUNDS = re.compile(rf"__launch_bounds__{ARGUMENTS}(\w+)\s*\(")
CLUSTER = re.compile(rf"\bCLUSTER{ARGUMENTS}(?:__global__\s+|void\s+|__launch_bounds__{ARGUMENTS})*(\w+)\s*\(")
BARRIER = re.compile(r"__syncthreads\s*\(\s*\)\s*;")


def _prepare(source: str, kernels: Mapping[str, Sequence[str]]) -> str:
    """The text for the host compiler, with line numbers unchanged so that reports can name them."""
    text = DYNAMIC.sub(_dynamic_shared, source)
    text = CONSTANT.sub("static const", text)
    lines = [text]
    for name, types in kernels.items():
        lines.append(f"CUDA_ON_CPU_KERNEL({', '.join([name, *types])})")
    for bounds, name in BOUNDS.findall(source):
        if name in kernels:
            lines.append(f"CUDA_ON_CPU_LAUNCH_BOUNDS({name}, {bounds})")
    for blocks, _, name in CLUSTER.findall(source):
        if name in kernels:
            lines.append(f"CUDA_ON_CPU_CLUSTER({name}, {blocks})")
    return "\n".join(lines) + "\n"


def _dynamic_shared(declaration: re.Match[str]) -> str:
    """A pointer in place of an `extern __shared__` array; outside all braces, a macro for it."""
    element, name = declaration.groups()
    pointer = f"static_cast<{element}*>(cuda_on_cpu_dynamic_shared())"
    before = declaration.string[: declaration.start()]
    if before.count("{") > before.count("}"):
        return f"{element}* const {name} = {pointer};"
    line = declaration.string.count("\n", 0, declaration.end()) + 1
    return f"\n#define {name} ({pointer})\n#line {line}\n"


def without_barrier(source: str) -> Iterator[tuple[int, str]]:
    """For every `__syncthreads();` outside comments: its line number, from 1, and the text without it."""
    for match in BARRIER.finditer(source):
        start = source.rfind("\n", 0, match.start()) + 1
        if "//" in source[start : match.start()]:
            continue
        yield source.count("\n", 0, match.start()) + 1, source[: match.start()] + ";" + source[match.end() :]


def _headers_for(source: str) -> tuple[Path, ...]:
    """The headers of the instructions that a text uses. Instructions of a warp follow Hopper's, because they use the same memory."""
    if USES_WARP.search(source):
        return (*HOPPER, WARP)
    return HOPPER if USES_HOPPER.search(source) else ()


_modules: dict[str, CompiledModule] = {}


def compile_on_cpu(
    source: str,
    kernels: Mapping[str, Sequence[str]],
    cache: Path | None = None,
    flags: Sequence[str] = (),
    include: Sequence[Path] = (),
) -> CompiledModule:
    """Compile emitted CUDA C; `kernels` gives the C types of the parameters of each kernel to be launched.

    `include` are further headers before the text; the headers for instructions of Hopper and of warps are included if the text uses them.

    A text is compiled only once, across processes, while `cache` (by default a folder below the system's temporary one) exists. Raises
    CompileError with the compiler's message, also if a kernel's parameters differ from the declared types.
    """
    compiler = _compiler()
    if compiler is None:
        raise CompileError(skip_reason() or "no compiler")
    text = _prepare(source, kernels)
    command, checks = [*compiler[0], *flags], compiler[2]
    headers = (HEADER, *_headers_for(source))
    common = _key(*_texts(headers), compiler[1], *command, checks)
    key = _key(common, text, source, *_texts(include))
    if key not in _modules:
        folder = _default_cache() if cache is None else cache
        library = folder / f"{key}.so"
        if library.is_file():
            with contextlib.suppress(OSError):
                os.utime(library)
        else:
            prepared = _prepared(command, checks, headers, folder / f"{common}.headers")
            _build([*command, checks], text, library, prepared, include)
        declared = (number for match in DYNAMIC.finditer(source) for number in ALIGNED.findall(match[0]))
        _modules[key] = CompiledModule(library, source, kernels, max(16, *map(int, declared), 0))
    return _modules[key]


def _key(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _texts(headers: Sequence[Path]) -> list[str]:
    return [header.read_text(encoding="utf-8") for header in headers]


def _prepared(command: Sequence[str], checks: str, headers: Sequence[Path], prepared: Path) -> Path:
    """The folder of what all texts have in common that use these headers: the headers as one, by g++ precompiled, and what runs kernels."""
    if prepared.is_dir():
        with contextlib.suppress(OSError):
            os.utime(prepared)
        return prepared
    prepared.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="building-", dir=prepared.parent) as folder:
        made = Path(folder) / "made"
        made.mkdir()
        (made / "all.h").write_text("\n".join(_texts(headers)), encoding="utf-8")
        (made / "runtime.cpp").write_text('#define CUDA_ON_CPU_RUNTIME\n#include "all.h"\n', encoding="utf-8")
        _run([*command, checks, "-O1", "-c", f"{made}/runtime.cpp", "-o", f"{made}/runtime.o"], folder)
        if compiler_name() == "g++":
            _run([*command, checks, "-x", "c++-header", f"{made}/all.h", "-o", f"{made}/all.h.gch"], folder)
        with contextlib.suppress(OSError):  # another process was faster
            os.replace(made, prepared)
    return prepared


def _build(command: Sequence[str], text: str, library: Path, prepared: Path, include: Sequence[Path]) -> None:
    """Build in a private folder and rename at the end, so that another process sees the whole library or nothing.

    The sanitizer is enabled for compiling but not for linking, because the header provides its handlers.
    """
    with tempfile.TemporaryDirectory(prefix="building-", dir=library.parent) as folder:
        emitted, compiled, linked = (f"{folder}/kernel{suffix}" for suffix in (".cpp", ".o", ".so"))
        Path(emitted).write_text(text, encoding="utf-8")
        before = [word for header in (prepared / "all.h", *include) for word in ("-include", str(header))]
        _run([*command, *before, "-c", emitted, "-o", compiled], folder)
        _run([*command[:-1], "-shared", "-Wl,-Bsymbolic", "-Wl,--no-undefined", compiled, f"{prepared}/runtime.o", "-o", linked], folder)
        os.replace(linked, library)


def _run(command: Sequence[str], folder: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompileError(done.stderr.replace(f"{folder}/", "").strip())
