"""The kernel that cuts operands into digits itself is built for its chip in every order of operands, and spills nothing that it sums."""

from __future__ import annotations

from itertools import product

import pytest

from bilinear.codegen.build import build_kernel
from bilinear.codegen.cuda import nvrtc
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.ir.tile import LOADING_TILES, MOST_SHARED_BYTES
from bilinear.methods.digits.lower import OperandOrder, lower_loading

pytestmark = pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))
ORDERS = [OperandOrder(along, whole) for along, whole in product((False, True), repeat=2)]


@pytest.mark.sample(1)
@pytest.mark.parametrize("tile", LOADING_TILES)
@pytest.mark.parametrize(("left", "right"), list(product(ORDERS, repeat=2)), ids=str)
def test_it_is_built_and_spills_at_most_what_writes_c(tile: str, left: OperandOrder, right: OperandOrder) -> None:
    kernel = lower_loading(LOADING_TILES[tile], left, right).product
    built = build_kernel(kernel, CudaTarget("sm_90"))
    (found,) = built.resources
    assert built.target.name == "sm_90a" and kernel.features == "a"
    assert found.spill_stores <= 4 and found.registers * kernel.tile.threads <= 65536  # one register, which is read where C is written
    assert kernel.shared_bytes + found.shared_bytes <= MOST_SHARED_BYTES
