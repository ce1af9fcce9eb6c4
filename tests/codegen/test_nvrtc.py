"""The CUDA compiler: images of small kernels, and the diagnostics if it cannot build; and what the name of an architecture means."""

from __future__ import annotations

import inspect
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from each_case import each
from shell import Shell

from bilinear.codegen.build import dtypes_of
from bilinear.codegen.cache import Cache
from bilinear.codegen.cuda import nvrtc
from bilinear.codegen.cuda.nvrtc import build_all
from bilinear.codegen.cuda.target import OLDEST, CudaTarget, target_of, targets_of
from bilinear.errors import BilinearError, Diagnostic
from bilinear.ir.element import COMPILED

REVERSE = """
extern "C" __global__ void reverse(double *x)
{
    __shared__ double copy[128];
    copy[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = copy[127 - threadIdx.x];
}
"""
LOOKUP = """
__constant__ double table[32] = {1, 2, 3};
extern "C" __global__ void lookup(double *x, const int *i) { x[threadIdx.x] = table[i[threadIdx.x]]; }
"""
SPILLING = """
extern "C" __global__ void __launch_bounds__(1024, 2) spilling(double *x)
{
    double r[64];
    #pragma unroll
    for (int i = 0; i < 64; i++) r[i] = x[i * 1024 + threadIdx.x];
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 64; i++) x[i * 1024 + threadIdx.x] = r[63 - i] * r[i];
}
"""
ARITHMETIC = 'extern "C" __global__ void f(float *x) { x[0] = x[1] / x[2] + sqrtf(x[3]) * x[4]; }'

needs_nvrtc = pytest.mark.skipif(nvrtc.available() is not None, reason=f"{nvrtc.available()}: {nvrtc.REMEDY}")


@pytest.fixture
def cache() -> Cache:
    return Cache(None)


def refusal(source: str, architecture: str, cache: Cache) -> Diagnostic:
    with pytest.raises(BilinearError) as caught:
        nvrtc.build(source, "bad", CudaTarget(architecture), cache=cache)
    (diagnostic,) = caught.value.diagnostics
    return diagnostic


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_90a"])
def test_real_architectures_give_cubins_with_their_resources(architecture: str, cache: Cache) -> None:
    built = nvrtc.build(REVERSE, "reverse", CudaTarget(architecture), cache=cache)
    assert (built.target.name, built.target.kind, built.cached) == (architecture, "cubin", False)
    assert built.image.startswith(b"\x7fELF")
    (own,) = built.resources
    assert (own.name, own.shared_bytes, own.spill_stores, own.spill_loads) == ("reverse", 1024, 0, 0)
    assert 4 <= own.registers <= 32


@needs_nvrtc
def test_virtual_architectures_give_ptx(cache: Cache) -> None:
    built = nvrtc.build(REVERSE, "reverse", CudaTarget("compute_90"), cache=cache)
    assert (built.target.kind, built.resources) == ("ptx", ())
    assert b".target sm_90" in built.image
    assert built.image.endswith(b"\0")  # the driver reads PTX up to its zero


@needs_nvrtc
def test_what_the_assembler_refuses_is_no_ptx(cache: Cache) -> None:
    found = refusal('extern "C" __global__ void bad() { asm volatile("no.instruction;"); }', "compute_90", cache)
    assert (found.code == "E601" and "no.instruction" in "".join(found.notes)) or "ptxas" in "".join(found.notes)


@needs_nvrtc
def test_spills_are_counted(cache: Cache) -> None:
    (spilling,) = nvrtc.build(SPILLING, "spilling", CudaTarget("sm_80"), cache=cache).resources
    assert spilling.registers <= 32
    assert min(spilling.spill_stores, spilling.spill_loads) >= 4 * (2 * 64 - 32)


@needs_nvrtc
def test_every_kernel_of_a_source_is_reported(cache: Cache) -> None:
    built = nvrtc.build(REVERSE + LOOKUP, "both", CudaTarget("sm_90"), cache=cache)
    assert {own.name: own.shared_bytes for own in built.resources} == {"reverse": 1024, "lookup": 0}


@needs_nvrtc
def test_arithmetic_is_ieee(cache: Cache) -> None:
    """Subnormal numbers are kept, and divisions and roots are rounded to nearest."""
    text = nvrtc.build(ARITHMETIC, "f", CudaTarget("compute_90"), cache=cache).image
    assert b"ftz" not in text
    assert b"approx" not in text
    assert b"div.rn.f32" in text
    assert b"sqrt.rn.f32" in text


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_90", "compute_90"])
def test_what_was_built_before_is_not_built_again(architecture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = nvrtc.build(REVERSE, "reverse", CudaTarget(architecture), cache=Cache(tmp_path))
    again = nvrtc.build(REVERSE, "reverse", CudaTarget(architecture), cache=Cache(None))
    assert first.image == again.image
    monkeypatch.setattr(nvrtc, "_Compiler", None)
    kept = nvrtc.build(REVERSE, "reverse", CudaTarget(architecture), cache=Cache(tmp_path))
    assert (first.cached, again.cached, kept.cached) == (False, False, True)
    assert (kept.image, kept.resources, kept.log) == (first.image, first.resources, first.log)


@needs_nvrtc
def test_source_architecture_and_compiler_make_different_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc.build(REVERSE, "reverse", CudaTarget("sm_90"), cache=Cache(tmp_path))
    assert not nvrtc.build(REVERSE + "\n", "reverse", CudaTarget("sm_90"), cache=Cache(tmp_path)).cached
    assert not nvrtc.build(REVERSE, "reverse", CudaTarget("sm_90a"), cache=Cache(tmp_path)).cached
    monkeypatch.setattr(nvrtc, "compiler_version", lambda: "another one")
    assert not nvrtc.build(REVERSE, "reverse", CudaTarget("sm_90"), cache=Cache(tmp_path)).cached


@needs_nvrtc
def test_a_damaged_entry_is_built_again(tmp_path: Path) -> None:
    first = nvrtc.build(REVERSE, "reverse", CudaTarget("sm_90"), cache=Cache(tmp_path))
    (path,) = (path for path in tmp_path.rglob("*") if path.is_file())
    path.write_bytes(path.read_bytes()[:-9])
    again = nvrtc.build(REVERSE, "reverse", CudaTarget("sm_90"), cache=Cache(tmp_path))
    assert (again.cached, again.image) == (False, first.image)
    assert nvrtc.build(REVERSE, "reverse", CudaTarget("sm_90"), cache=Cache(tmp_path)).cached


@needs_nvrtc
def test_a_refused_source_shows_the_log_and_is_not_kept(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    found = refusal('extern "C" __global__ void bad(float *x) { x[0] = y; }', "sm_90", cache)
    assert (found.code, found.message) == ("E601", "the compiler refuses bad")
    assert 'bad.cu(1): error: identifier "y" is undefined' in found.notes
    assert "please report this" in found.hints[0]
    assert cache.size() == 0


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_35", "sm_91", "compute_91"])
def test_an_unknown_architecture_lists_the_known_ones(architecture: str, cache: Cache) -> None:
    found = refusal(REVERSE, architecture, cache)
    assert found.code == "E603"
    assert "sm_80" in found.hints[0]
    assert "sm_90" in found.hints[0]


@pytest.mark.slow
@needs_nvrtc
def test_every_architecture_that_is_listed_is_built(cache: Cache) -> None:
    for number in (number for number in nvrtc.architectures() if number >= OLDEST):
        assert nvrtc.build(REVERSE, "reverse", CudaTarget(f"sm_{number}"), cache=cache).resources


@needs_nvrtc
def test_the_version_is_told() -> None:
    assert nvrtc.compiler_version().startswith("NVRTC 13.0")


LONG = 'extern "C" __global__ void busy(double *x) {' + "".join(f"x[{i}] += x[{i + 1}] * {i};" for i in range(900)) + "}"
COMPILES = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job is started with it ignored
from bilinear.codegen.cache import Cache
from bilinear.codegen.cuda import nvrtc
from bilinear.codegen.cuda.target import CudaTarget
nvrtc.architectures()
print("begins", flush=True)
try:
    nvrtc.build(sys.argv[1], "busy", CudaTarget("sm_90"), cache=Cache(None))
    print("built")
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.slow
@needs_nvrtc
def test_an_interrupt_at_any_moment_reaches_the_one_who_compiles() -> None:
    said = []
    for moment in np.linspace(0.01, 0.3, 16):
        with subprocess.Popen([sys.executable, "-c", COMPILES, LONG], stdout=subprocess.PIPE, text=True, start_new_session=True) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "begins\n"
            time.sleep(moment)
            os.killpg(child.pid, signal.SIGINT)
            said.append(child.stdout.read())
            assert child.wait() == 0
    assert "interrupted\n" in said and set(said) <= {"interrupted\n", "built\n"}


@pytest.mark.slow
@needs_nvrtc
def test_many_are_built_at_once_in_their_order(tmp_path: Path) -> None:
    targets = [CudaTarget(name) for name in ("sm_80", "sm_90", "compute_90")]
    requests = [(source, name, target) for source, name in ((REVERSE, "reverse"), (ARITHMETIC, "f")) for target in targets]
    done: list[int] = []
    found = nvrtc.build_all(requests, cache=Cache(tmp_path), done=done.append)
    assert [(built.target, built.cached) for built in found] == [(target, False) for _, _, target in requests]
    for built, (_, name, target) in zip(found, requests, strict=True):
        assert (b".target sm_90" in built.image) if target.is_virtual else built.image.startswith(b"\x7fELF")
        assert name.encode() in built.image
        assert target.is_virtual or [one.name for one in built.resources] == [name]
    assert done == sorted(done)
    assert done[0] == 0
    assert all(built.cached for built in nvrtc.build_all(requests, cache=Cache(tmp_path)))


@needs_nvrtc
def test_a_refused_source_among_many_stops_the_others(tmp_path: Path) -> None:
    requests = [(REVERSE, "reverse", CudaTarget("sm_90")), ("no CUDA", "bad", CudaTarget("sm_90")), (LONG, "busy", CudaTarget("sm_80"))]
    with pytest.raises(BilinearError) as caught:
        nvrtc.build_all(requests, cache=Cache(tmp_path))
    assert caught.value.diagnostics[0].code == "E601"


@needs_nvrtc
def test_a_compiler_that_dies_is_a_diagnostic(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc.architectures()
    monkeypatch.setattr(inspect, "getsource", lambda module: "import os; os.abort()")
    found = refusal(REVERSE, "sm_90", cache)
    assert (found.code, found.message) == ("E602", "the compiler's process ended with exit code -6 at bad")


@pytest.fixture
def forgotten() -> Iterator[None]:
    found = nvrtc._library, nvrtc.compiler_version, nvrtc.architectures
    for function in found:
        function.cache_clear()
    yield
    for function in found:
        function.cache_clear()


@pytest.mark.usefixtures("forgotten")
def test_without_the_compiler_the_remedy_is_told(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    assert nvrtc.available() == "cuda-pathfinder, which finds NVRTC, is not installed"
    found = refusal(REVERSE, "sm_90", cache)
    assert found.code == "E602"
    assert found.hints == ("pip install '.[nvrtc]' in the folder of the checkout",)


@needs_nvrtc
@pytest.mark.usefixtures("forgotten")
def test_a_library_that_is_not_found_or_is_none_is_told(cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda import pathfinder

    def missing(name: str) -> None:
        raise RuntimeError(f"Failure finding lib{name}.so\nsearched in many places")

    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", missing)
    assert nvrtc.available() == "NVRTC is not usable: Failure finding libnvrtc.so"
    assert refusal(REVERSE, "sm_90", cache).code == "E602"
    (broken := tmp_path / "libnvrtc.so").write_text("no library")
    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", lambda name: SimpleNamespace(abs_path=str(broken)))
    assert nvrtc.available() == f"NVRTC is not usable: {broken}: file too short"


@pytest.mark.parametrize(
    ("name", "kind", "capability"),
    [("sm_80", "cubin", 80), ("sm_90a", "cubin", 90), ("compute_90", "ptx", 90), ("compute_100f", "ptx", 100), ("sm_120", "cubin", 120)],
)
def test_a_name_says_how_its_images_are_built_and_where_they_lie(name: str, kind: str, capability: int) -> None:
    target = CudaTarget(name)
    assert (target.kind, target.capability, str(target)) == (kind, capability, name)
    assert target.options == (f"--gpu-architecture={name}", "--std=c++17", "--ptxas-options=-v")
    assert target.path("product") == f"{kind}/{name}/product.{kind}"


@each("name", ["sm_80a", "sm_90f", "compute_80a", "sm_9", "sm_90 ", "sm90", "lto_90", "", "sm_90\n", "sm_\u0669\u0660", "sm_" + "9" * 5000])
def test_what_names_no_architecture_is_refused(name: str) -> None:
    with pytest.raises(BilinearError, match=r"E603.*names no CUDA architecture") as caught:
        CudaTarget(name)
    assert caught.value.diagnostics[0].hints == (
        "name a chip, such as sm_80 or sm_90, for a cubin, compute_NN for PTX, or one of ampere, ada, hopper, blackwell",
    )


@pytest.mark.parametrize("name", ["sm_70", "sm_75", "compute_75", "compute_50", "turing"])
def test_what_is_too_old_is_refused_in_every_form(name: str, shell: Shell) -> None:
    """By a list, at a build, and by the command before its work; what is recommended works."""
    with pytest.raises(BilinearError, match="E603") as caught:
        targets_of([name])
    (hint,) = caught.value.diagnostics[0].hints
    assert all(targets_of([word]) for word in re.findall(r"sm_\d+|ampere|ada|hopper|blackwell", hint))
    if name != "turing":
        with pytest.raises(BilinearError, match=rf"E603.*no kernels for {name}: they copy asynchronously, which begins with sm_80"):
            build_all([("", "none", CudaTarget(name))])
    status, out, err = shell("compile", "strassen", "--arch", name)
    assert (status, out) == (1, "") and "error[E603]" in err


@pytest.mark.parametrize("names", ["sm_90", [], (), iter(())])
def test_no_list_of_names_is_refused(names: Any) -> None:
    with pytest.raises(BilinearError, match=r"E603.*names no architecture"):
        targets_of(names)


def test_a_name_that_is_said_twice_is_one_target() -> None:
    assert targets_of(["sm_90", "compute_90", "sm_90"]) == (CudaTarget("sm_90"), CudaTarget("compute_90"))


@pytest.mark.parametrize("names", ["float32", [], (), iter(()), ["float32", "int8"]])
def test_no_list_of_element_types_is_refused(names: Any) -> None:
    with pytest.raises(BilinearError, match=r"E503.*no kernels for dtypes=") as caught:
        dtypes_of(names)
    assert caught.value.diagnostics[0].hints == (f"give a list of some of {', '.join(COMPILED)}",)


def test_an_element_type_that_is_said_twice_is_one() -> None:
    assert dtypes_of(["float32", "float64", "float32"]) == ("float32", "float64")


def test_a_device_has_the_target_of_its_capability() -> None:
    assert target_of("90") == target_of(90) == CudaTarget("sm_90")


@each(
    ("name", "capability", "wanted"),
    [
        ("sm_80", 80, True), ("sm_80", 89, True), ("sm_80", 90, False), ("sm_90", 89, False), ("sm_90a", 90, True), ("sm_90a", 100, False),
        ("compute_80", 90, True), ("compute_90", 120, True), ("compute_90", 89, False), ("sm_100", 103, True), ("sm_120", 100, False),
    ],
)  # fmt: skip
def test_which_images_run_where(name: str, capability: int, wanted: bool) -> None:
    assert CudaTarget(name).runs_on(capability) == wanted


@each(
    ("target", "threads", "registers", "shared_bytes", "occupancy"),
    [
        ("sm_90", 128, 168, 65536, (3, 0.1875, "registers")),  # 4 warps of 5376 in 65536; shared memory would hold 3, too
        ("sm_80", 128, 156, 65536, (2, 0.125, "shared memory")),  # 66560 bytes of 164 KiB
        ("sm_90", 256, 30, 0, (8, 1.0, "threads")),  # 8 warps of 64
        ("sm_86", 256, 30, 0, (6, 1.0, "threads")),  # 8 of 48
        ("sm_80", 32, 16, 0, (32, 0.5, "blocks")),
        ("sm_103", 1024, 64, 0, (1, 0.5, "registers")),  # as sm_100
    ],
)
def test_blocks_are_resident_as_the_scarcest_resource_allows(
    target: str, threads: int, registers: int, shared_bytes: int, occupancy: tuple[int, float, str]
) -> None:
    assert CudaTarget(target).occupancy(threads, registers, shared_bytes) == occupancy
