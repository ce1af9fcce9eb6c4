"""A warp's matrix instructions and asynchronous copies on the CPU: layouts element by element, and what misuse is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bilinear.emulator import (
    ORDERS,
    AsyncError,
    BarrierError,
    CompiledModule,
    LaunchError,
    compile_on_cpu,
    guarded,
    guarded_empty,
    skip_reason,
)

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")

REGISTERS = """\
// One instruction of every warp: registers are filled by the tables of the PTX ISA, element by element, without load_matrices.
extern "C" __global__ void floats(const unsigned short* a, const unsigned short* b, float* c)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    a += threadIdx.x / 32 * 256, b += threadIdx.x / 32 * 128, c += threadIdx.x / 32 * 128;
    unsigned left[4] = {}, right[2] = {};
    float sum[4];
    for (int i = 0; i < 8; ++i) {
        const int row = i < 2 || (i >= 4 && i < 6) ? g : g + 8, k = t * 2 + i % 2 + (i >= 4 ? 8 : 0);
        left[i / 2] |= unsigned(a[row * 16 + k]) << 16 * (i % 2);
    }
    for (int i = 0; i < 4; ++i) right[i / 2] |= unsigned(b[(t * 2 + i % 2 + (i >= 2 ? 8 : 0)) * 8 + g]) << 16 * (i % 2);
    for (int i = 0; i < 4; ++i) sum[i] = c[(i < 2 ? g : g + 8) * 8 + t * 2 + i % 2];
    multiply_add(sum, left, right[0], right[1]);
    for (int i = 0; i < 4; ++i) c[(i < 2 ? g : g + 8) * 8 + t * 2 + i % 2] = sum[i];
}
extern "C" __global__ void bytes(const unsigned char* a, const unsigned char* b, int* c)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    a += threadIdx.x / 32 * 512, b += threadIdx.x / 32 * 256, c += threadIdx.x / 32 * 128;
    unsigned left[4] = {}, right[2] = {};
    int sum[4];
    for (int i = 0; i < 16; ++i) {
        const int row = i < 4 || (i >= 8 && i < 12) ? g : g + 8, k = t * 4 + i % 4 + (i >= 8 ? 16 : 0);
        left[i / 4] |= unsigned(a[row * 32 + k]) << 8 * (i % 4);
    }
    for (int i = 0; i < 8; ++i) right[i / 4] |= unsigned(b[(t * 4 + i % 4 + (i >= 4 ? 16 : 0)) * 8 + g]) << 8 * (i % 4);
    for (int i = 0; i < 4; ++i) sum[i] = c[(i < 2 ? g : g + 8) * 8 + t * 2 + i % 2];
    multiply_add(sum, left, right[0], right[1]);
    for (int i = 0; i < 4; ++i) c[(i < 2 ? g : g + 8) * 8 + t * 2 + i % 2] = sum[i];
}
void load_matrices();    // its header is that of multiply_add, too
"""
TYPES = {
    "floats": ["const unsigned short *", "const unsigned short *", "float *"],
    "bytes": ["const unsigned char *", "const unsigned char *", "int *"],
}
WARPS = 3


@pytest.mark.parametrize("order", ORDERS)
def test_products_of_warps_are_exact(order: Any) -> None:
    module, generator = compile_on_cpu(REGISTERS, TYPES), np.random.default_rng(1)
    a, b = (generator.integers(-99, 100, shape) for shape in ((WARPS, 16, 16), (WARPS, 16, 8)))
    c = generator.integers(-99, 100, (WARPS, 16, 8)).astype(np.float32)
    wanted = c + a @ b
    halves = [guarded(x.astype(np.float16).view(np.uint16), read_only=True) for x in (a, b)]
    module.launch("floats", 1, 32 * WARPS, [*halves, c], order=order)
    np.testing.assert_array_equal(c, wanted)
    a, b = (generator.integers(-128, 128, shape) for shape in ((WARPS, 16, 32), (WARPS, 32, 8)))
    sums = generator.integers(-(2**31), 2**31, (WARPS, 16, 8)).astype(np.int32)
    wrapped = sums + (a @ b).astype(np.int32)
    module.launch("bytes", 1, 32 * WARPS, [*(x.astype(np.int8).view(np.uint8) for x in (a, b)), sums], order=order)
    np.testing.assert_array_equal(sums, wrapped)


def test_sums_of_floats_are_cut_off() -> None:
    """2^24 + 1 + 1 is 2^24 + 2; 2^24 + 1 and 2^24 + 3 are no float32, and lose their last bit."""
    module = compile_on_cpu(REGISTERS, TYPES)
    a, b = np.zeros((16, 16), np.float16), np.zeros((16, 8), np.float16)
    a[:, 0], b[0], b[1] = 1, 1, 1
    for second, wanted in ((0, 2**24), (1, 2**24 + 2), (2, 2**24 + 2)):
        a[:, 1], c = second, np.full((16, 8), 2.0**24, np.float32)
        module.launch("floats", 1, 32, [a.view(np.uint16), b.view(np.uint16), c])
        assert (c == wanted).all()


LOADS = """\
// Every warp copies four matrices into shared memory, and loads the second, the first, the fourth and the third.
extern "C" __global__ void load(const unsigned short* from, unsigned* to, int turned)
{
    extern __shared__ __align__(16) unsigned char memory[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned at = shared_address(memory) + warp * 512;
    copy_16(at + lane * 16, from + (warp * 32 + lane) * 8);
    copies_commit();
    copies_wait<0>();
    __syncwarp();
    unsigned found[4];
    if (turned) load_matrices<1>(found, at + (lane ^ 8) * 16);
    else load_matrices<0>(found, at + (lane ^ 8) * 16);
    for (int i = 0; i < 4; ++i) to[threadIdx.x * 4 + i] = found[i];
}
"""
LOAD = {"load": ["const unsigned short *", "unsigned *", "int"]}


def loaded(module: CompiledModule, turned: bool, **options: Any) -> Any:
    """For warps, lanes and matrices the two elements of a lane; elements are numbered."""
    numbers, found = guarded(np.arange(WARPS * 256, dtype=np.uint16), read_only=True), guarded_empty((WARPS, 32, 4), np.uint32)
    module.launch("load", 1, 32 * WARPS, [numbers, found, int(turned)], shared_bytes=512 * WARPS, **options)
    return found.view(np.uint16).reshape(WARPS, 32, 4, 2)


@pytest.mark.parametrize("turned", [False, True])
def test_a_lane_gets_two_neighbours_of_a_row_or_of_a_column(turned: bool) -> None:
    for order in ORDERS:
        found = loaded(compile_on_cpu(LOADS, LOAD), turned, order=order)
        for warp, lane, matrix, second in np.ndindex(found.shape):
            row, column = lane // 4, 2 * (lane % 4) + second
            row, column = (column, row) if turned else (row, column)
            assert found[warp, lane, matrix, second] == warp * 256 + (matrix ^ 1) * 64 + row * 8 + column


WRONG = {  # by what is wrong: what stands in the text, what instead, and what is told, or nothing where the result is wrong
    "no wait": ("copies_wait<0>();", "", "ends while this copy is on its way"),
    "a wait for another group": ("copies_wait<0>();", "copies_wait<1>();", "ends while this copy is on its way"),
    "no group": ("copies_commit();", "", "ends while this copy is on its way"),
    "a source that is not aligned": ("lane) * 8)", "lane) * 8 + 1)", "the source of a copy is not aligned to 16 bytes"),
    "a place that is not aligned": ("copy_16(at + lane * 16", "copy_16(at + lane * 8", "not a multiple of 16"),
    "a place outside": ("copy_16(at + lane * 16", "copy_16(at + lane * 16 + 512", "16 bytes outside dynamic shared memory"),
    "a row outside": ("<0>(found, at", "<0>(found, 1024 + at", "16 bytes outside dynamic shared memory"),
    "a lane that does not take part": (
        "    if (turned) load",
        "    if (lane == 7) return;\n    if (turned) load",
        "not all lanes of the warp",
    ),
    "lanes that load apart": ("    if (turned) load", "    if (lane % 2) load", "wait"),
    "rows of other threads without a barrier": ("__syncwarp();", "", ""),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_told_or_shows(name: str) -> None:
    old, new, told = WRONG[name]
    assert LOADS.count(old) == 1
    module = compile_on_cpu(LOADS.replace(old, new), LOAD)
    if not told:
        assert (loaded(module, False) != loaded(compile_on_cpu(LOADS, LOAD), False)).any()
        return
    with pytest.raises(LaunchError, match=told) as raised:
        loaded(module, False)
    assert isinstance(raised.value, AsyncError | BarrierError)
