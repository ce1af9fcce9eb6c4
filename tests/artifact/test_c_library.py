"""The C library of a schedule: compiled by the host's C compiler, and run on a stand-in for the CUDA driver that emulates its kernels."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import pytest
from artifact.built_folders import VERSIONS, made, needs_emulator, refusal
from shell import Shell

from bilinear.artifact.c_library import Images, c_library, file_names
from bilinear.artifact.check_folder import require_generated
from bilinear.artifact.read import read_folder
from bilinear.artifact.write import output_files
from bilinear.codegen.build import LaunchProgram
from bilinear.codegen.cuda import nvrtc
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.emulator import compile_on_cpu
from bilinear.emulator.compiler import HEADER
from bilinear.lowering.place import place_schedule
from bilinear.writing import write_folder

FAKE = Path(__file__).with_name("fake_cuda.cpp")
CC = ("gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1")
C_TYPES = {"float64": "double", "float32": "float"}
TARGETS = tuple(map(CudaTarget, ("sm_80", "compute_90", "sm_90", "sm_100a")))
needs_compilers = pytest.mark.skipif(not (shutil.which("gcc") and shutil.which("g++")), reason="no gcc and g++")
needs_nvrtc = pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))
SHIPPED = [
    *(
        ("msmes", 1, ""),
        ("s_mm", 1, ""),
        ("winograd", 2, ""),
        ("winograd_depth_first", 2, ""),
        ("msmes", 2, "consume"),
        ("classical", 1, ""),
    ),
    *(("accurate_sqrt3", 1, ""), ("accurate_halves", 1, ""), ("hopcroft_kerr_in_place", 1, ""), ("laderman", 1, ""), ("split_k", 1, "")),
    *(("smirnov_336", 1, ""), ("r_s_mm", 1, ""), ("w_mm", 1, ""), ("naive2x2", 1, ""), ("winograd_in_place", 2, ""), ("dps_444", 1, "")),
]
"""Schedules in place and with workspaces, that overwrite C, of several levels, with fractions and roots; the others are no different."""


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in for the driver's library."""
    library = tmp_path_factory.mktemp("driver") / "libcuda.so.1"
    flags = ("-std=c++20", "-O0", "-shared", "-fPIC", "-w", f"-I{HEADER.parent}", "-Wl,-soname,libcuda.so.1")
    subprocess.run(("g++", *flags, str(FAKE), "-o", str(library)), check=True)
    return library


def emitted(folder: Path, algorithm: str, levels: int = 1, inputs: str = "") -> str:
    """Write a C library, with marked bytes in place of images, and a table of what they stand for. Returns its name."""
    loaded, options, programs, remainders = made(algorithm, inputs, tuple(C_TYPES), levels)
    kernels = [own.kernel.name for program in (*programs, *remainders) for own in program.kernels]
    images = {name: [(target, f"{name} for {target}\n".encode() * 5) for target in TARGETS] for name in kernels}
    for path, content in c_library(loaded, options.inputs, programs, remainders, images).items():
        (folder / path).write_bytes(content)
    for name in kernels:
        (folder / f"{name}.image").write_bytes(dict(images[name])[CudaTarget("sm_90")])
    stand_in(folder, (*programs, *remainders), lambda name: folder / f"{name}.image")
    return file_names(loaded, options.inputs)[0]


def stand_in(folder: Path, programs: Sequence[LaunchProgram], image_of: Callable[[str], Path]) -> None:
    """Write the table by which the stand-in for the driver runs the kernels of images in the emulator."""
    table = []
    for program in programs:
        types = {"pointer": f"{C_TYPES[program.dtype]} *", "index": "long long", "scalar": C_TYPES[program.dtype]}
        for own in program.kernels:
            name, arguments = own.kernel.name, own.kernel.arguments
            module = compile_on_cpu(own.source, {name: [types[argument.kind] for argument in arguments]})
            table.append(f"{name} {len(arguments)} {module.path} {module.shared_alignment} {image_of(name)}\n")
    (folder / "kernels").write_text("".join(table))


def linked(folder: Path, driver: Path, *words: str) -> None:
    subprocess.run((*CC, *words, f"-Wl,-rpath,{driver.parent}", "-ldl"), cwd=folder, check=True)


def checked(folder: Path, *words: str, refuses: str = "", kernels: str = "kernels") -> tuple[int, str]:
    """The status and the last line of the library's own check."""
    environment = {**os.environ, "FAKE_CUDA_KERNELS": str(folder / kernels), "FAKE_CUDA_REFUSES": refuses}
    done = subprocess.run(("./check", *words), cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, (done.stdout + done.stderr).splitlines()[-1]


@needs_emulator
@needs_compilers
@pytest.mark.sample(1, slow=4)
@pytest.mark.parametrize(("algorithm", "levels", "inputs"), SHIPPED)
def test_a_library_multiplies_every_shape_as_the_classical_product(
    algorithm: str, levels: int, inputs: str, tmp_path: Path, driver: Path
) -> None:
    name = emitted(tmp_path, algorithm, levels, inputs)
    linked(tmp_path, driver, f"{name}.c", f"{name}_check.c", "-o", "check")
    assert checked(tmp_path) == (0, f"{name} is right")
    linked(tmp_path, tmp_path / "nowhere", f"{name}.c", f"{name}_check.c", "-o", "check")
    assert checked(tmp_path) == (2, "not checked: libcuda.so.1 is not found, or too old: install NVIDIA's driver")


@needs_emulator
@needs_compilers
@pytest.mark.slow
def test_errors_of_the_driver_reach_the_caller_with_a_text(tmp_path: Path, driver: Path) -> None:
    linked(tmp_path, driver, f"{(name := emitted(tmp_path, 's_mm'))}.c", f"{name}_check.c", "-o", "check")
    (tmp_path / "none").touch()
    assert checked(tmp_path, "8", "8", "8", refuses="cuLaunchKernel") == (1, "a call fails: an error of the driver (1001)")
    assert checked(tmp_path, "8", "8", "8", refuses="cuMemAllocAsync") == (1, "a call fails: an error of the driver (1002)")
    assert checked(tmp_path, "8", "8", "8", kernels="none") == (1, "s_mm_open fails: an error of the driver (1209)")
    source = (tmp_path / f"{name}.c").read_text()
    (tmp_path / f"{name}.c").write_text(source.replace("10 * major + minor)", "75)"))
    linked(tmp_path, driver, f"{name}.c", f"{name}_check.c", "-o", "check")
    assert checked(tmp_path)[1].startswith("s_mm_open fails: no image of the kernels runs on this device")


@pytest.mark.slow
@needs_emulator
@needs_compilers
def test_the_check_of_a_library_finds_what_is_wrong_in_it(tmp_path: Path, driver: Path) -> None:
    source = tmp_path / f"{emitted(tmp_path, 'winograd')}.c"
    right = source.read_text()
    faults = (
        ("? job->one : job->beta", "? job->beta : job->beta"),
        ("below, all, job->beta", "below, all, job->one"),
        ("if (!workspaces[own].alive[other])", "if (workspaces[own].alive[other])"),
        ("cells[ALPHA] = job->alpha", "cells[ALPHA] = job->one"),
        ("job->base[space] = base;", "job->base[space] = space == B && op == WINOGRAD_TRANS ? job->base[A] : base;"),
        ("rows * rounded(columns, lane)", "rows * columns"),
    )
    for old, new in (*faults, ("", "")):
        assert old in right
        source.write_text(right.replace(old, new, 1))
        linked(tmp_path, driver, source.name, "winograd_check.c", "-o", "check")
        status, told = checked(tmp_path, "11", "8", "13")
        assert (status, told) == ((1, "winograd is WRONG") if old else (0, "winograd is right")), new


@pytest.mark.sample(2)
@needs_compilers
@pytest.mark.parametrize(("algorithm", "levels"), [("msmes", 1), ("s_mm", 1), ("s_mm", 2), ("winograd", 3), ("winograd_depth_first", 3)])
def test_workspaces_are_those_of_placements(algorithm: str, levels: int, tmp_path: Path, driver: Path) -> None:
    """Also where large extents are cut to whole sectors; where lines are no multiples of 16 bytes, either memory order fits."""
    loaded, options, programs, remainders = made(algorithm, "", tuple(C_TYPES), levels)
    images = {own.kernel.name: [(TARGETS[0], b"image")] for program in (*programs, *remainders) for own in program.kernels}
    for path, content in c_library(loaded, options.inputs, programs, remainders, images).items():
        (tmp_path / path).write_bytes(content)
    name = file_names(loaded, options.inputs)[0]
    linked(tmp_path, driver, f"{name}.c", "-shared", "-fPIC", "-o", "own.so")
    library = ctypes.CDLL(str(tmp_path / "own.so"))
    for program, letter in zip(programs, "ds", strict=True):
        function, size = library[f"{name}_{letter}gemm_workspace_bytes"], {"d": 8, "s": 4}[letter]
        function.restype, function.argtypes = ctypes.c_size_t, [ctypes.c_int64] * 3
        assert function(2**31 - 1, 2**31 - 1, 2**31 - 1) == function(-1, 960, 960) == 0
        for m, k, n in product((1, 37, 960, 5003), (64, 4099), (37, 4096, 7777)):
            orders = [frozenset(), frozenset("ABC")]
            wanted = [place_schedule(program.schedule, m, k, n, size, order).workspace_elements * size for order in orders]
            assert max(wanted) <= (found := function(m, n, k)) <= 1.3 * max(wanted), (m, k, n)
            if k == 64 and m == 960 and n == 4096:
                assert wanted == [found, found]


@pytest.mark.slow
@needs_nvrtc
@needs_emulator
@needs_compilers
def test_compile_writes_a_library_that_holds_the_images_of_the_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, driver: Path
) -> None:
    folder = tmp_path / "out"
    words = ("compile", "split_k", "--emit", "c", "--arch", "sm_90,compute_90", "--shape", "9", "-o", folder)
    status, said, error = Shell(monkeypatch, capsys)(*words)
    assert (status, "certificate, C library;" in said) == (0, True), error
    _, _, programs, remainders = made("split_k", "", tuple(C_TYPES))
    stand_in(folder, (*programs, *remainders), lambda name: folder / "cubin" / "sm_90" / f"{name}.cubin")
    linked(folder, driver, "split_k.c", "split_k_check.c", "-o", "check")
    assert checked(folder, "11", "8", "13") == (0, "split_k is right")
    assert [row.verdict for row in require_generated(read_folder(folder))] == ["equal"]


def test_a_changed_library_is_refused(tmp_path: Path) -> None:
    loaded, options, programs, remainders = made("msmes", "", tuple(C_TYPES))
    images: Images = {own.kernel.name: [] for program in (*programs, *remainders) for own in program.kernels}
    library = c_library(loaded, options.inputs, programs, remainders, images)
    for path in ("", *library):
        views = {**library, path: library[path].replace(b"msmes", b"other", 1)} if path else library
        folder = tmp_path / f"with {path}"
        write_folder(folder, output_files(loaded, options, programs, remainders, VERSIONS, views))
        if not path:
            assert [row.verdict for row in require_generated(read_folder(folder))] == ["equal"]
        else:
            assert refusal(folder, trust=False).message.startswith(f"{path} is not what algorithm.bl")
            assert json.loads((folder / "manifest.json").read_text())["files"].keys() >= library.keys()
