"""Kernels are built for every architecture that has their instructions, spill nothing, and fit its shared memory."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest
from each_case import each

from bilinear.codegen.build import build_kernels
from bilinear.codegen.cuda import nvrtc
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.ir.digit_kernel import WarpDigitProductKernel
from bilinear.ir.digits import largest_moduli
from bilinear.ir.element import INTEGERS
from bilinear.ir.launch import Kernel
from bilinear.ir.matrix import Layout
from bilinear.ir.residue_kernel import WarpResidueProductKernel
from bilinear.ir.rounded import RoundKernel
from bilinear.ir.tile import DIGIT_TILES, LOADING_TILES, MOST_SHARED_BYTES
from bilinear.lowering.prepare import plain
from bilinear.methods.digits.choice import Digits, scheme_of
from bilinear.methods.digits.integers import IntegerMultiply
from bilinear.methods.digits.launches import CutKernel, CutMultiply, DigitMultiply, ResidueMultiply, stem_of
from bilinear.methods.digits.lower import IntegerTypes, OperandOrder, lower_digits, lower_loading
from bilinear.planner.profiles import portfolio

pytestmark = pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))

SHARED = {"sm_80": 163 * 1024, "sm_86": 99 * 1024, "sm_89": 99 * 1024, "sm_90a": 227 * 1024, "sm_100": 227 * 1024, "sm_120": 99 * 1024}
"""Shared memory that a block of threads can have. NVIDIA's CUDA C++ Programming Guide, compute capabilities."""
WINOGRAD = ("winograd",)


def layouts(dtype: str, left: str = "C", right: str = "C") -> tuple[Layout, Layout, Layout]:
    """Those of A, B and C, which lie by rows (C) or by columns (F)."""
    kind = np.dtype(dtype)
    strides = {"C": (64 * kind.itemsize, kind.itemsize), "F": (kind.itemsize, 64 * kind.itemsize)}
    a, b, c = (Layout((64, 64), strides[order], kind) for order in (left, right, "C"))
    return a, b, c


def kernels_of(multiply: CutMultiply) -> set[Kernel | CutKernel]:
    """All kernels of a product, the classical one among them, for operands at any address, too."""
    return {launch.kernel for aligned in (True, False) for launch, _ in multiply.launches(aligned, 2)}  # type: ignore[misc]


@cache
def products(by_warps: bool) -> dict[str, CutMultiply]:
    int64 = INTEGERS["int64"]
    types = IntegerTypes(int64, int64, int64, largest_moduli(17))
    found: dict[str, CutMultiply] = {
        f"pairs {left}{right}": DigitMultiply(*layouts("float32", left, right), Digits((), "pairs"), by_warps)
        for left in "CF"
        for right in "CF"
    }
    return found | {
        "pairs winograd": DigitMultiply(*layouts("float32"), Digits(WINOGRAD, "pairs"), by_warps),
        "pairs complex": DigitMultiply(*layouts("complex64"), Digits((), "pairs"), by_warps),
        "residues7": ResidueMultiply(*layouts("float32"), Digits(WINOGRAD, "residues7"), by_warps),
        "residues14": ResidueMultiply(*layouts("float64", "F"), Digits((), "residues14"), by_warps),
        "residues17": ResidueMultiply(*layouts("float64", "F", "F"), Digits(WINOGRAD, "residues17"), by_warps),
        "residues14 complex": ResidueMultiply(*layouts("complex128"), Digits((), "residues14"), by_warps),
        "integers": IntegerMultiply(*layouts("int64"), plain().scheme, types, by_warps),
    }


def check(kernel: Kernel | CutKernel, architecture: str) -> None:
    """It is built, spills nothing to speak of, and a block of it fits on a multiprocessor."""
    target = CudaTarget(architecture.rstrip("a"))
    built = build_kernels((kernel,), target)[0]
    assert built.image.startswith(b"\x7fELF")
    for own in built.resources:
        assert own.spill_stores + own.spill_loads <= 512, f"{own.name} spills"
        assert own.registers * kernel.threads[0] * kernel.threads[1] <= 65536
        assert own.shared_bytes <= 48 * 1024 and own.shared_bytes + kernel.shared_bytes <= SHARED[architecture]


@pytest.mark.parametrize(("architecture", "name"), [("sm_80", "pairs FC"), ("sm_120", "residues7")])
def test_products_by_warps_are_built(architecture: str, name: str) -> None:
    found = [x for x in kernels_of(products(True)[name]) if isinstance(x, WarpDigitProductKernel | WarpResidueProductKernel)]
    (kernel,) = found
    assert not kernel.features
    check(kernel, architecture)


@pytest.mark.slow
def test_a_chip_with_warpgroups_can_run_the_products_by_warps() -> None:
    """As the assembly of an older architecture, which `BILINEAR_ARCHITECTURE` names."""
    target = CudaTarget("compute_80")
    assert target.runs_on(90) and not target.has_warpgroups and not CudaTarget("compute_90").has_warpgroups
    for name, instruction in (
        ("pairs CF", b"mma.sync.aligned.m16n8k16.row"),
        ("residues7", b"mma.sync.aligned.m16n8k32.row"),
    ):
        (kernel,) = (x for x in kernels_of(products(True)[name]) if isinstance(x, WarpDigitProductKernel | WarpResidueProductKernel))
        built = build_kernels((kernel,), target)[0]
        assert built.target == target and instruction in built.image and b"wgmma" not in built.image


def test_all_kernels_fit_the_shared_memory_of_every_architecture() -> None:
    for architecture, most in SHARED.items():
        by_warps = not CudaTarget(architecture).has_warpgroups
        for multiply in products(by_warps).values():
            assert all(kernel.shared_bytes <= most for kernel in kernels_of(multiply))


@pytest.mark.slow
@pytest.mark.parametrize("architecture", SHARED)
def test_all_kernels_are_built_for_every_architecture(architecture: str) -> None:
    """All for the oldest and for Hopper; for the others those of a product of pairs and of one of residues, which use all instructions."""
    by_warps = not CudaTarget(architecture).has_warpgroups
    named = products(by_warps)
    wanted = named if architecture in ("sm_80", "sm_90a") else ("pairs winograd", "residues17")
    for kernel in set().union(*(kernels_of(named[name]) for name in wanted)):
        check(kernel, architecture)
    assert by_warps == (architecture != "sm_90a")


@each("architecture", ["sm_80", "sm_90", "sm_120"])
@each("width", [1, 4])
def test_rounding_is_built_everywhere(architecture: str, width: int) -> None:
    (found,) = build_kernels((RoundKernel(width),), CudaTarget(architecture))[0].resources
    assert found.spill_stores == found.spill_loads == 0 and found.registers <= 64


@pytest.mark.slow
@pytest.mark.parametrize("levels", portfolio().pairs, ids=str)
@pytest.mark.parametrize("along", [False, True])
def test_sums_above_pairs_stay_in_registers(levels: tuple[str, ...], along: bool) -> None:
    order = OperandOrder(along, True)
    own = lower_digits(scheme_of(levels), stem_of(levels), DIGIT_TILES["pairs"], order, order, True)
    assert own.recompose is not None
    for kernel in (*own.expand, own.recompose):
        (found,) = build_kernels((kernel,), CudaTarget("sm_90"))[0].resources
        assert found.spill_stores == found.spill_loads == 0, kernel.name


ORDERS = [OperandOrder(along, whole) for along, whole in product((False, True), repeat=2)]


@pytest.mark.sample(1, slow=5)
@pytest.mark.parametrize("tile", LOADING_TILES)
@pytest.mark.parametrize(("left", "right"), list(product(ORDERS, repeat=2)), ids=str)
def test_it_is_built_and_spills_at_most_what_writes_c(tile: str, left: OperandOrder, right: OperandOrder) -> None:
    _, kernel = lower_loading(LOADING_TILES[tile], left, right)
    built = build_kernels((kernel,), CudaTarget("sm_90"))[0]
    (found,) = built.resources
    assert built.target.name == "sm_90a" and kernel.features == "a"
    assert found.spill_stores <= 4 and found.registers * kernel.tile.threads <= 65536  # one register, which is read where C is written
    assert kernel.shared_bytes + found.shared_bytes <= MOST_SHARED_BYTES
