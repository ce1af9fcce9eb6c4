"""Kernels that round numbers, and that form the sums of dps_444 for pairs, are built for their chips and spill nothing."""

from __future__ import annotations

import pytest

from bilinear.codegen.build import build_kernel
from bilinear.codegen.cuda import nvrtc
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.ir.rounded import RoundKernel
from bilinear.ir.tile import DIGIT_TILES
from bilinear.methods.digits.geometry import scheme_of
from bilinear.methods.digits.launches import stem_of
from bilinear.methods.digits.lower import OperandOrder, lower_digits
from bilinear.planner.profiles import portfolio

pytestmark = pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_120"])
@pytest.mark.parametrize("width", [1, 4])
def test_rounding_is_built_everywhere(architecture: str, width: int) -> None:
    (found,) = build_kernel(RoundKernel(width), CudaTarget(architecture)).resources
    assert found.spill_stores == found.spill_loads == 0 and found.registers <= 64


@pytest.mark.parametrize("levels", portfolio().pairs, ids=str)
@pytest.mark.parametrize("along", [False, True])
def test_sums_above_pairs_stay_in_registers(levels: tuple[str, ...], along: bool) -> None:
    order = OperandOrder(along, True)
    own = lower_digits(scheme_of(levels), stem_of(levels), DIGIT_TILES["pairs"], order, order, True)
    assert own.recompose is not None
    for kernel in (*own.expand, own.recompose):
        (found,) = build_kernel(kernel, CudaTarget("sm_90")).resources
        assert found.spill_stores == found.spill_loads == 0, kernel.name
