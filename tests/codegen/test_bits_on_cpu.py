"""The kernel for packed matrices over Z/2: built for its chips, and executed on the CPU by the calls that launch it."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from codegen.emulated import c_types
from each_case import each

import bilinear
from bilinear.codegen.build import build_kernels
from bilinear.codegen.cuda import nvrtc
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.codegen.render import render
from bilinear.emulator import ORDERS, CompiledModule, Order, compile_on_cpu, guarded, skip_reason
from bilinear.ir.kernel import BitProductKernel
from bilinear.methods import bits
from bilinear.runtime.arrays import Kind

needs_emulator = pytest.mark.skipif(skip_reason() is not None, reason=str(skip_reason()))


@cache
def emulated(kernel: BitProductKernel) -> CompiledModule:
    return compile_on_cpu(render(kernel), {kernel.name: c_types(kernel)})  # type: ignore[arg-type]  # a kernel without a schedule


class Launches(list[BitProductKernel]):
    """The kernels that ran, in a given order of their threads."""

    order: Order = "ascending"

    def __call__(self, kernel: BitProductKernel, blocks: tuple[int, int, int], values: list[int]) -> None:
        self.append(kernel)
        emulated(kernel).launch(kernel.name, blocks, (*kernel.threads, 1), values, order=self.order, seed=len(self))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Launches:
    """NumPy's arrays lie on a pretended GPU, whose launches are emulated."""
    launches = Launches()
    module: Any = SimpleNamespace(empty=np.empty, zeros=np.zeros, ascontiguousarray=np.ascontiguousarray, ndarray=np.ndarray)
    monkeypatch.setattr("bilinear.runtime.accept.kind_of", lambda *arrays: Kind(module, True, lambda result: result))
    monkeypatch.setattr(bits, "address_of", lambda array: int(array.ctypes.data))
    monkeypatch.setattr(bits, "launch", launches)
    return launches


def drawn(m: int, k: int, n: int) -> tuple[Any, Any, Any]:
    """Two packed matrices, and their product by the definition, packed."""
    generator = np.random.default_rng([m, k, n])
    a, b = (generator.integers(0, 2, shape, dtype=np.uint8) for shape in ((m, k), (k, n)))
    wanted = (a.astype(np.int64) @ b) % 2
    return np.packbits(a, axis=1), np.packbits(b, axis=1), np.packbits(wanted.astype(np.uint8), axis=1)


def placed(x: Any, even: bool) -> Any:
    """A copy that ends at an inaccessible page, or one whose rows begin at odd places with other bytes between them."""
    if even:
        return guarded(x)
    wide = np.full((x.shape[0], x.shape[1] + 3), 0xA5, np.uint8)
    wide[:, 1:-2] = x
    return guarded(wide)[:, 1:-2]


@needs_emulator
@each("order", ORDERS)
@each(
    ("shape", "even"),
    [
        ((1030, 128, 256), True),
        ((40, 320, 128), True),
        ((1, 1, 1), True),
        ((9, 100, 203), True),
        ((9, 100, 203), False),
        ((1025, 65, 129), False),
    ],
)
def test_products_are_exact(gpu: Launches, shape: tuple[int, int, int], even: bool, order: Order) -> None:
    gpu.clear()
    gpu.order = order
    a, b, wanted = drawn(*shape)
    found = bilinear.matmul_bits(placed(a, even), placed(b, even))
    assert (found == wanted).all()
    aligned = even and a.shape[1] % 8 == 0 and b.shape[1] % 16 == 0
    assert [kernel.is_aligned for kernel in gpu] == [aligned]


@needs_emulator
def test_bits_behind_the_columns_of_a_do_not_count(gpu: Launches) -> None:
    a, b, wanted = drawn(20, 67, 64)
    a[:, -1] |= 0b00011111
    assert (bilinear.matmul_bits(a, b) == wanted).all() and len(gpu) == 1


@needs_emulator
def test_47_products_run_on_blocks_of_bits(gpu: Launches) -> None:
    a, b, wanted = drawn(130, 256, 515)
    assert (bilinear.matmul_bits(a, b, algorithm="walk_444_mod2") == wanted).all()
    assert len(gpu) == 47
    out = np.zeros_like(wanted)
    assert bilinear.matmul_bits(a, b, out, algorithm="strassen", levels=2) is out and (out == wanted).all()
    assert len(gpu) == 47 + 49


@needs_emulator
def test_a_wrong_text_is_found(gpu: Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    """A barrier less, or bits that choose from the wrong end, give a wrong product or a report."""
    kernel = BitProductKernel(True)
    source = render(kernel)
    a, b, wanted = drawn(64, 128, 128)
    for cut in ("        __syncthreads();    // nobody reads the sums of the chunk before\n", "BITS - 1 - "):
        assert cut in source
        broken = compile_on_cpu(source.replace(cut, ""), {kernel.name: c_types(kernel)})  # type: ignore[arg-type]
        c, failed = np.zeros_like(wanted), False
        values = [x.ctypes.data for x in (a, b, c)] + [64, 128, 16, 16, 16, 16]
        for order in ORDERS:
            try:
                broken.launch(kernel.name, (1, 1, 1), (*kernel.threads, 1), values, order=order)
                failed |= bool((c != wanted).any())
            except Exception:
                failed = True
        assert failed, cut


@pytest.mark.sample(2)
@pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_120"])
@pytest.mark.parametrize("is_aligned", [True, False])
def test_it_is_built_everywhere_without_spills(architecture: str, is_aligned: bool) -> None:
    (found,) = build_kernels((BitProductKernel(is_aligned),), CudaTarget(architecture))[0].resources
    assert found.spill_stores == found.spill_loads == 0 and found.registers <= 128 and found.shared_bytes == 4096
