"""Targets: what the name of a CUDA architecture means, and which names are refused."""

from __future__ import annotations

import re
from typing import Any

import pytest
from shell import Shell

from bilinear.codegen.build import dtypes_of
from bilinear.codegen.cuda.nvrtc import build_all
from bilinear.codegen.cuda.target import CudaTarget, target_of, targets_of
from bilinear.errors import BilinearError
from bilinear.ir.element import COMPILED


@pytest.mark.parametrize(
    ("name", "kind", "capability"),
    [("sm_80", "cubin", 80), ("sm_90a", "cubin", 90), ("compute_90", "ptx", 90), ("compute_100f", "ptx", 100), ("sm_120", "cubin", 120)],
)
def test_a_name_says_how_its_images_are_built_and_where_they_lie(name: str, kind: str, capability: int) -> None:
    target = CudaTarget(name)
    assert (target.kind, target.capability, str(target)) == (kind, capability, name)
    assert target.options == (f"--gpu-architecture={name}", "--std=c++17", "--ptxas-options=-v")
    assert target.path("product") == f"{kind}/{name}/product.{kind}"


@pytest.mark.parametrize(
    "name", ["sm_80a", "sm_90f", "compute_80a", "sm_9", "sm_90 ", "sm90", "lto_90", "", "sm_90\n", "sm_\u0669\u0660", "sm_" + "9" * 5000]
)
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


@pytest.mark.parametrize(
    ("name", "capability", "wanted"),
    [
        ("sm_80", 80, True), ("sm_80", 89, True), ("sm_80", 90, False), ("sm_90", 89, False), ("sm_90a", 90, True), ("sm_90a", 100, False),
        ("compute_80", 90, True), ("compute_90", 120, True), ("compute_90", 89, False), ("sm_100", 103, True), ("sm_120", 100, False),
    ],
)  # fmt: skip
def test_which_images_run_where(name: str, capability: int, wanted: bool) -> None:
    assert CudaTarget(name).runs_on(capability) == wanted


@pytest.mark.parametrize(
    ("target", "threads", "registers", "shared_bytes", "resident"),
    [
        ("sm_90", 128, 168, 65536, 3),  # by registers: 4 warps of 5376 in 65536; shared memory would hold 3, too
        ("sm_80", 128, 156, 65536, 2),  # by shared memory: 66560 bytes of 164 KiB
        ("sm_90", 256, 30, 0, 8),  # by warps: 8 of 64
        ("sm_86", 256, 30, 0, 6),  # 8 of 48
        ("sm_80", 32, 16, 0, 32),  # by blocks
        ("sm_103", 1024, 64, 0, 1),  # as sm_100
    ],
)
def test_blocks_are_resident_as_the_scarcest_resource_allows(
    target: str, threads: int, registers: int, shared_bytes: int, resident: int
) -> None:
    assert CudaTarget(target).resident(threads, registers, shared_bytes) == resident
