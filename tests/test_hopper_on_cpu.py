"""Hopper's asynchronous instructions on the CPU: correct kernels are exact, and each of their mutants fails."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest

from bilinear.emulator import (
    ORDERS,
    AccessError,
    AsyncError,
    BarrierError,
    CompiledModule,
    HangError,
    LaunchError,
    Order,
    compile_on_cpu,
    guarded,
    guarded_empty,
    skip_reason,
)

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")

Floats = npt.NDArray[np.float32]
Halves = npt.NDArray[np.float16]
Major = Literal["k", "mn"]

RING = """\
// C = A B for float16 digits in tiles of 128 x 128: a warpgroup of which one thread copies, and two that multiply 64 rows each. The sums
// of every two steps are added up in registers. Tiles of 64 x 64 elements lie swizzled in global memory. The blocks of a cluster take
// neighbouring tiles of rows, and each copies its part of B to all.
typedef unsigned long long Barrier;
constexpr int STAGES = 3, TILE = 64 * 64 * 2, STAGE = 4 * TILE, CHUNK = 2, CONSUMERS = 2;

extern "C" __global__ void CLUSTER(BLOCKS) __launch_bounds__(128 * (CONSUMERS + 1), 1)
ring(const unsigned char* __restrict__ a, const unsigned char* __restrict__ b, float* __restrict__ c, int steps, int n)
{
    extern __shared__ __align__(1024) unsigned char buffer[];
    __shared__ __align__(8) Barrier full[STAGES], empty[STAGES];
    const int warpgroup = threadIdx.x / 128, rank = blockIdx.x % BLOCKS;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            barrier_init(&full[s], 1);
            barrier_init(&empty[s], CONSUMERS * BLOCKS);
        }
        barrier_fence();
    }
    __syncthreads();
    cluster_sync();
    if (warpgroup == 0) {
        registers_give<24>();
        if (threadIdx.x == 0) {
            for (int i = 0; i < steps; ++i) {
                const int s = i % STAGES;
                unsigned char* const to = buffer + s * STAGE;
                if (i >= STAGES) barrier_wait(&empty[s], (i / STAGES - 1) & 1);
                barrier_expect(&full[s], STAGE);
                for (int h = 0; h < 2; ++h) {
                    const unsigned char* const from_a = a + ((blockIdx.x * 2 + h) * steps + i) * TILE;
                    const unsigned char* const from_b = b + ((blockIdx.y * 2 + h) * steps + i) * TILE;
                    copy_bulk(to + h * TILE, from_a, TILE, &full[s]);
                    if (BLOCKS == 1) copy_bulk(to + (2 + h) * TILE, from_b, TILE, &full[s]);
                    else if (h == rank) copy_bulk_to(to + (2 + h) * TILE, from_b, TILE, &full[s], 3);
                }
            }
        }
    } else {
        registers_take<232>();
        const int w = warpgroup - 1;
        float acc[64], sum[64];
        for (int i = 0; i < 64; ++i) sum[i] = 0;
        auto release = [&](int s) { if (threadIdx.x % 128 < BLOCKS) barrier_arrive(&empty[s], threadIdx.x % 128); };
        int s = 0, parity = 0;
        for (int i = 0; i < steps; ++i) {
            barrier_wait(&full[s], parity);
            const unsigned char* const at = buffer + s * STAGE;
            const unsigned long long left = ALONG_A ? descriptor(at + w * TILE, 16, 1024) : descriptor(at + w * TILE, TILE, 1024);
            const unsigned long long right = ALONG_B ? descriptor(at + 2 * TILE, 16, 1024) : descriptor(at + 2 * TILE, TILE, 1024);
            group_fence();
            for (int k = 0; k < 4; ++k)
                group_multiply<ALONG_A, ALONG_B>(acc, left + k * (ALONG_A ? 2 : 128), right + k * (ALONG_B ? 2 : 128), i % CHUNK + k != 0);
            group_commit();
            if (i % CHUNK != 0) {
                group_wait<1>();
                release(s == 0 ? STAGES - 1 : s - 1);
            }
            if (i % CHUNK == CHUNK - 1 || i == steps - 1) {
                group_wait<0>();
                for (int j = 0; j < 64; ++j) sum[j] += acc[j];
                release(s);
            }
            if (++s == STAGES) { s = 0; parity ^= 1; }
        }
        const int lane = threadIdx.x % 32, row = blockIdx.x * 128 + w * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4;
        for (int i = 0; i < 64; ++i)
            c[(long long)(row + 8 * (i / 2 % 2)) * n + blockIdx.y * 128 + 8 * (i / 4) + 2 * (lane % 4) + i % 2] = sum[i];
    }
    cluster_sync();
}
"""
TYPES = {"ring": ["const unsigned char *", "const unsigned char *", "float *", "int", "int"]}
SHARED_BYTES = 3 * 4 * 8192


def ring(blocks: int = 2, a: Major = "k", b: Major = "k", text: str = RING) -> CompiledModule:
    constants = f"constexpr int BLOCKS = {blocks}, ALONG_A = {int(a == 'k')}, ALONG_B = {int(b == 'k')};\n"
    return compile_on_cpu(constants + text, TYPES)


def tiles(rows: Halves, major: Major) -> npt.NDArray[np.uint8]:
    """A matrix of rows of A, or columns of B, by k: its tiles of 64 x 64 one after the other, their lines swizzled."""
    m, k = rows.shape
    found = np.empty((m // 64, k // 64, 64, 8, 8), np.float16)
    for i in range(m // 64):
        for j in range(k // 64):
            tile = rows[i * 64 : i * 64 + 64, j * 64 : j * 64 + 64]
            parts = (tile if major == "k" else tile.T).reshape(64, 8, 8)
            for line in range(64):
                for part in range(8):
                    found[i, j, line, part ^ line % 8] = parts[line, part]
    return found.view(np.uint8).reshape(-1)


def multiply(module: CompiledModule, a: Major = "k", b: Major = "k", order: Order = "ascending", seed: int = 0, threads: int = 2) -> bool:
    """Whether the product of integer matrices is exact."""
    m, n, steps = 256, 256, 5
    random = np.random.default_rng(1)
    left, right = (random.integers(-9, 10, (size, 64 * steps)).astype(np.float16) for size in (m, n))
    c = guarded_empty((m, n), np.float32)
    inputs = [guarded(tiles(rows, major), read_only=True) for rows, major in ((left, a), (right, b))]
    module.launch(
        "ring",
        (m // 128, n // 128),
        384,
        [*inputs, c, steps, n],
        order=order,
        seed=seed,
        threads=threads,
        shared_bytes=SHARED_BYTES,
        seconds=60,
    )
    return bool(np.array_equal(c, left.astype(np.float64) @ right.astype(np.float64).T))


every_order = pytest.mark.parametrize("order", ORDERS)


@pytest.mark.sample(6)
@every_order
@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize(("a", "b"), [("k", "k"), ("mn", "mn"), ("mn", "k")])
def test_a_ring_of_stages_is_exact(order: Order, blocks: int, a: Major, b: Major) -> None:
    assert multiply(ring(blocks, a, b), a, b, order)


def test_a_ring_of_stages_is_exact_in_many_orders() -> None:
    assert all(multiply(ring(), order="random", seed=seed, threads=threads) for seed in range(1, 6) for threads in (1, 3))


WAIT_FULL = "            barrier_wait(&full[s], parity);\n"
WAIT_EMPTY = "if (i >= STAGES) barrier_wait(&empty[s], (i / STAGES - 1) & 1);"
WAIT_ONE = "                group_wait<1>();\n"
RELEASE_ONE = "                release(s == 0 ? STAGES - 1 : s - 1);\n"
EXPECT = "barrier_expect(&full[s], STAGE);"
MULTICAST = "copy_bulk_to(to + (2 + h) * TILE, from_b, TILE, &full[s], 3);"
LEFT = "descriptor(at + w * TILE, 16, 1024)"

PRODUCER = "i < steps; ++i) {\n                const int s"
SOURCE_B = "(blockIdx.y * 2 + h) * steps + i"

LATE = "copy of line 3. (has yet to bring the operand|to the same shared memory is still on its way)"
EARLY = f"more than the 1 arrivals that the barrier expects|{LATE}"
MUTANTS = {  # by what is wrong: what stands in the text, what instead, and how a launch ends
    "no wait for the copies": (WAIT_FULL, "\n", EARLY),
    "one thread waits for the copies": (WAIT_FULL, f"if (threadIdx.x % 128 == 0) {WAIT_FULL}", LATE),
    "the other parity": ("&full[s], parity)", "&full[s], parity ^ 1)", EARLY),
    "a parity that stays": ("{ s = 0; parity ^= 1; }", "s = 0;", LATE),
    "no wait for the release": (WAIT_EMPTY, "", EARLY),
    "a release before the wait": (WAIT_ONE + RELEASE_ONE, RELEASE_ONE + WAIT_ONE, f"wrong|{LATE}"),
    "a release in this block only": ("barrier_arrive(&empty[s], threadIdx.x % 128)", "barrier_arrive(&empty[s], rank)", LATE),
    "no wait for the last group": ("                group_wait<0>();\n", "\n", "wrong"),
    "a wait that leaves too much": ("group_wait<1>", "group_wait<2>", "wrong"),
    "no commit": ("group_commit();", "", "wrong"),
    "no fence": ("group_fence();", "", "no group_fence"),
    "no fence after registers were used": ("group_fence();", "if (i == 0) group_fence();", "no group_fence"),
    "too many arrivals expected": ("CONSUMERS * BLOCKS)", "CONSUMERS * BLOCKS + 1)", "1 waits at the barrier_wait of line 29, 127 "),
    "too many bytes expected": (EXPECT, "barrier_expect(&full[s], STAGE + 16);", "32768 bytes .* expects 32784"),
    "too few bytes expected": (EXPECT, "barrier_expect(&full[s], STAGE - 16);", "32768 bytes .* expects 32752"),
    "no bytes expected": (EXPECT, "barrier_arrive(&full[s], rank);", f"8192 bytes that it does not expect|{LATE}"),
    "no multicast": (MULTICAST, MULTICAST.replace("3", "1 << rank"), "24576 bytes .* expects 32768"),
    "no cluster_sync at the start": ("    cluster_sync();\n    if (warpgroup", "    if (warpgroup", "no initialised barrier"),
    "no cluster_sync at the end": ("    cluster_sync();\n}", "}", "block . of the cluster has ended"),
    "no barrier_fence": ("barrier_fence();", "", "no barrier_fence since block"),
    "another swizzle": ("acc, left", "acc, (left ^ 3ull << 62)", "0x80.* does not describe"),
    "another stride": (LEFT, LEFT.replace("1024", "512"), "wrong"),
    "lines of another tile": (LEFT, LEFT.replace("w *", "128 + w *"), "wrong"),
    "a pattern that starts elsewhere": ("__align__(1024) ", "__align__(16) ", "operand outside dynamic shared memory|yet to bring"),
    "other rows": ("threadIdx.x % 128 / 32 * 16", "threadIdx.x % 128 / 32 * 8", "wrong"),
    "an accumulator written too early": ("group_commit();", "group_commit(); acc[5] = 0;", "register 5 of the accumulator"),
    "a descriptor of a thread's own": ("right + k", "right + (threadIdx.x == 200) + k", "another thread of the warpgroup"),
    "a thread that does not multiply": ("group_multiply", "if (threadIdx.x != 300) group_multiply", "different numbers"),
    "a step too many": (PRODUCER, PRODUCER.replace("<", "<="), "ends while this copy is on its way|read from .* past the end"),
    "a source past the end": (SOURCE_B, SOURCE_B + " + 1", r"AccessError.* read from .*, 0 bytes past the end of argument 1\n   36 "),
}  # fmt: skip


def outcome(module: CompiledModule, order: Order) -> str:
    try:
        return "exact" if multiply(module, order=order) else "wrong"
    except LaunchError as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_fails(name: str) -> None:
    old, new, failure = MUTANTS[name]
    assert RING.count(old) == 1
    mutant = ring(text=RING.replace(old, new))
    for order in ORDERS:
        assert re.search(failure, outcome(mutant, order)), outcome(mutant, order)


@pytest.mark.slow
def test_the_portable_context_switch_runs_clusters() -> None:
    constants = "constexpr int BLOCKS = 2, ALONG_A = 1, ALONG_B = 1;\n"
    assert multiply(compile_on_cpu(constants + RING, TYPES, flags=["-DCUDA_ON_CPU_UCONTEXT"]), order="random")


@pytest.mark.parametrize("before", ["void CLUSTER(1 + 1)", "void CLUSTER(2) __launch_bounds__(32 * (1), 1)", "CLUSTER(2) __global__ void"])
def test_the_text_says_how_many_blocks_a_cluster_has(before: str) -> None:
    module = compile_on_cpu(f'extern "C" {before}\nk() {{ cluster_sync(); }}', {"k": []})
    module.launch("k", 4, 32, [])
    with pytest.raises(ValueError, match="clusters of 2 blocks, and 3 blocks in x"):
        module.launch("k", 3, 32, [])


def test_a_cluster_has_at_most_eight_blocks() -> None:
    with pytest.raises(ValueError, match="k has 9 blocks in a cluster, not 1 to 8"):
        one("", blocks=9).launch("k", 9, 32, [None])
    s = np.zeros(1, np.int32)
    one("cluster_sync(); atomicAdd(a, 1);", blocks=8).launch("k", 8, 32, [s])
    assert s[0] == 256


ONE = """\
extern "C" __global__ void CLUSTER({blocks}) k({parameters})
{{
    extern __shared__ __align__(1024) unsigned char buffer[];
    __shared__ Barrier b;
    {body}
}}
"""


def one(body: str, parameters: str = "int* a", blocks: int = 1) -> CompiledModule:
    """A module with one kernel, `k`; its body begins in line 5."""
    types = [part.strip().rsplit(" ", 1)[0] for part in parameters.split(",")]
    return compile_on_cpu(ONE.format(blocks=blocks, parameters=parameters, body=body), {"k": types})


INIT = "if (threadIdx.x == 0) { barrier_init(&b, 1); barrier_fence(); } __syncthreads();"


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("barrier_arrive(&b, 0);", "there is no initialised barrier"),
        ("barrier_init(&b, 0);", "a barrier for 0 arrivals"),
        ("barrier_init(&b, 1); barrier_init(&b, 1);", "initialised already"),
        (f"{INIT} barrier_arrive(&b, 1);", "the cluster has no block 1"),
        (f"{INIT} barrier_wait(&b, 2);", "parity 2"),
        (f"{INIT} barrier_expect(&b, 1 << 20);", "0 to 1048575 bytes"),
        (f"{INIT} copy_bulk(buffer, a, 24, &b);", "24 bytes, not of a positive multiple of 16"),
        (f"{INIT} copy_bulk(buffer, a + 1, 16, &b);", "source of a bulk copy is not aligned"),
        (f"{INIT} copy_bulk(buffer + 8, a, 16, &b);", "not a multiple of 16"),
        (f"{INIT} copy_bulk_to(buffer, a, 16, &b, 0);", "a copy to no block"),
        (f"{INIT} copy_bulk_to(buffer, a, 16, &b, 2);", "the cluster has no block 1"),
        (f"{INIT} copy_bulk(buffer, a, 16, &b); copy_bulk(buffer, a, 32, &b);", "copy of line 5 to the same shared memory is"),
        (f"{INIT} copy_bulk(buffer, a, 16, &b);", "ends while this copy is on its way"),
        ("shared_address(&b);", "only dynamic shared memory has addresses"),
        ("descriptor(buffer + 8, 16, 1024);", "not aligned to 16 bytes"),
        ("descriptor(buffer, 16, 1000);", "1000 bytes are no offset"),
        ("group_fence();", "less than 128 threads"),
    ],
)  # fmt: skip
def test_misuse_is_named_with_its_line(statement: str, message: str) -> None:
    a = guarded(np.zeros(32, np.int32))
    with pytest.raises(AsyncError, match=message) as caught:
        one(statement).launch("k", 1, 1, [a], shared_bytes=64)
    assert caught.value.line == 5


def test_copies_stay_within_shared_memory_and_their_source() -> None:
    copy = one(
        f"{INIT} if (threadIdx.x == 0) {{ barrier_expect(&b, 64); copy_bulk(buffer + n, a, 64, &b); }} barrier_wait(&b, 0);",
        "int* a, int n",
    )
    copy.launch("k", 1, 32, [guarded(np.zeros(16, np.int32)), 16], shared_bytes=80)
    with pytest.raises(AccessError, match="outside shared memory"):
        copy.launch("k", 1, 32, [guarded(np.zeros(16, np.int32)), 32], shared_bytes=80)
    with pytest.raises(AccessError, match=r"read from .* 0 bytes past the end of argument 0") as caught:
        copy.launch("k", 1, 32, [guarded(np.zeros(12, np.int32)), 0], shared_bytes=80)
    assert caught.value.line == 5


@every_order
def test_a_copy_shows_only_after_its_barrier(order: Order) -> None:
    body = """
    const int* const there = reinterpret_cast<const int*>(buffer);
    if (threadIdx.x == 0) { buffer[0] = 1; barrier_init(&b, 1); barrier_fence(); barrier_expect(&b, 16); copy_bulk(buffer, a, 16, &b); }
    __syncthreads();
    s[threadIdx.x] = there[0];
    barrier_wait(&b, 0);
    s[32 + threadIdx.x] = there[0];"""
    a, s = np.full(4, 7, np.int32), np.zeros(64, np.int32)
    one(body, "int* a, int* s").launch("k", 1, 32, [guarded(a), s], order=order, shared_bytes=16)
    assert (s[:32] == -1).all() and (s[32:] == 7).all()


@every_order
def test_the_blocks_of_a_cluster_run_together_and_have_memory_of_their_own(order: Order) -> None:
    body = """
    __shared__ int fixed[32];
    int* const dynamic = reinterpret_cast<int*>(buffer);
    const int rank = blockIdx.x % 2;
    if (threadIdx.x == 0) { barrier_init(&b, 32); barrier_fence(); }
    s[(blockIdx.x * 32 + threadIdx.x) * 2] = fixed[threadIdx.x] == -1 && dynamic[threadIdx.x] == -1;
    fixed[threadIdx.x] = dynamic[threadIdx.x] = blockIdx.x;
    cluster_sync();
    barrier_arrive(&b, rank ^ 1);
    barrier_wait(&b, 0);
    __syncthreads();
    if (threadIdx.x >= 16) return;
    cluster_sync();
    for (int i : {0, 16}) s[(blockIdx.x * 32 + threadIdx.x + i) * 2 + 1] = fixed[31 - threadIdx.x - i] + dynamic[threadIdx.x + i];"""
    s, module = np.full((12, 32, 2), -1, np.int32), one(body, "int* s", blocks=2)
    module.launch("k", (6, 2), 32, [s], order=order, shared_bytes=128)
    blocks = np.arange(6)
    assert (s[:6, :, 0] == 1).all() and (s[:6, :, 1] == 2 * blocks[:, None]).all()
    with pytest.raises(ValueError, match="clusters of 2 blocks, and 5 blocks in x are not a multiple"):
        module.launch("k", 5, 32, [s])


def test_what_fails_in_a_cluster_names_its_block() -> None:
    body = "cluster_sync(); if (blockIdx.x == 3 && threadIdx.x == 7) {} cluster_sync();"
    s = guarded_empty(4, np.int32)
    for order in ORDERS:
        with pytest.raises(AccessError, match="write to") as caught:
            one(body.replace("{}", "a[4] = 0;"), blocks=2).launch("k", 6, 32, [s], order=order)
        assert caught.value.block == (3, 0, 0) and "thread (7, 0, 0)" in str(caught.value)
        with pytest.raises(BarrierError, match=r"32 wait at the cluster_sync of line 5; block 1 .* 1 waits at the warp barrier of line 5"):
            one(body.replace("{}", "__syncwarp(2);"), blocks=2).launch("k", 6, 32, [s], order=order)
        with pytest.raises(HangError):
            one(body.replace("{}", "for (volatile int i = 0; i >= 0; i = 1);"), blocks=2).launch("k", 6, 32, [s], order=order, seconds=0.2)


SINGLE = """
    const unsigned char* const from = reinterpret_cast<const unsigned char*>(a);
    if (threadIdx.x == 0) {
        barrier_init(&b, 1);
        barrier_fence();
        barrier_expect(&b, 3 * 8192);
        copy_bulk(buffer, from, 3 * 8192, &b);
    }
    __syncthreads();
    barrier_wait(&b, 0);
    float d[64];
    for (int i = 0; i < 64; ++i) d[i] = c[threadIdx.x * 64 + i];
    group_fence();
    group_multiply<1, 1>(d, descriptor(buffer, 16, 1024), descriptor(buffer + 8192, 16, 1024), keep);
    group_commit();
    shown[threadIdx.x] = d[threadIdx.x % 64];
    group_wait<0>();
    for (int i = 0; i < 64; ++i) c[threadIdx.x * 64 + i] = d[i];"""


def cut(exact: Fraction) -> Fraction:
    """A number without the bits below its first 24."""
    scaled = abs(exact) * 2**80
    assert scaled.denominator == 1
    bits = max(0, int(scaled).bit_length() - 24)
    return Fraction(int(scaled) >> bits << bits, 2**80) * (1 if exact > 0 else -1)


HELD = """
    const unsigned short* const from = reinterpret_cast<const unsigned short*>(a);
    const unsigned char* const right = reinterpret_cast<const unsigned char*>(a) + 64 * 16 * 2;
    if (threadIdx.x == 0) {
        barrier_init(&b, 1);
        barrier_fence();
        barrier_expect(&b, 2 * 8192);
        copy_bulk(buffer, right, 2 * 8192, &b);
    }
    __syncthreads();
    barrier_wait(&b, 0);
    float d[64];
    for (int i = 0; i < 64; ++i) d[i] = c[threadIdx.x * 64 + i];
    unsigned held[4] = {};
    for (int i = 0; i < 8; ++i) {
        const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + i / 2 % 2 * 8, k = threadIdx.x % 4 * 2 + i % 2 + i / 4 * 8;
        held[i / 2] |= unsigned(from[row * 16 + k]) << 16 * (i % 2);
    }
    group_fence();
    group_multiply<1>(d, held, descriptor(buffer, 16, 1024), keep);
    group_commit();
    group_wait<0>();
    for (int i = 0; i < 64; ++i) c[threadIdx.x * 64 + i] = d[i];"""


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("in_registers", [False, True])
def test_a_multiplication_is_exact_and_then_cut(in_registers: bool, keep: bool) -> None:
    """Both operands in shared memory, or the first in registers, which are filled by the table of the PTX ISA, element by element."""
    random = np.random.default_rng(4)
    a, b = ((random.standard_normal((size, 64)) * 2.0 ** random.integers(-8, 8, (size, 64))).astype(np.float16) for size in (64, 128))
    old = random.standard_normal((64, 128)).astype(np.float32)
    thread, i = np.indices((128, 64))
    rows, columns = thread // 32 * 16 + thread % 32 // 4 + i // 2 % 2 * 8, i // 4 * 8 + thread % 4 * 2 + i % 2
    d, shown = np.ascontiguousarray(old[rows, columns]), np.full(128, np.nan, np.float32)
    if in_registers:
        operands = guarded(np.concatenate([np.ascontiguousarray(a[:, :16]).view(np.uint8).ravel(), tiles(b, "k")]))
        one(HELD, "const void* a, float* c, bool keep").launch("k", 1, 128, [operands, d, keep], shared_bytes=2 * 8192)
    else:
        shown[...] = 0
        operands, module = (
            guarded(np.concatenate([tiles(a, "k"), tiles(b, "k")])),
            one(SINGLE, "const void* a, float* c, float* shown, bool keep"),
        )
        module.launch("k", 1, 128, [operands, d, shown, keep], shared_bytes=3 * 8192)
    assert np.isnan(shown).all(), "a result is read before it was waited for"
    for thread_, i_ in ((t, j) for t in range(0, 128, 5) for j in range(0, 64, 3)):
        m, n = rows[thread_, i_], columns[thread_, i_]
        exact = sum((Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a[m, :16], b[n, :16], strict=True)), Fraction(0))
        assert Fraction(float(d[thread_, i_])) == cut(exact + (Fraction(float(old[m, n])) if keep else 0))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("group_wait<0>();", "held[2] ^= 1; group_wait<0>();", "register 2 of the operand was written during a multiplication"),
        ("group_fence();", "", "no group_fence since the registers of the operand could be used"),
        ("    group_multiply<1>", "    if (threadIdx.x != 5) group_multiply<1>", "different numbers"),
    ],
)
def test_registers_of_an_operand_belong_to_the_unit_until_it_is_done(old: str, new: str, message: str) -> None:
    operands, d = guarded(np.zeros(64 * 16 * 2 + 2 * 8192, np.uint8)), np.zeros((128, 64), np.float32)
    module = one(HELD.replace(old, new), "const void* a, float* c, bool keep")
    with pytest.raises(AsyncError, match=message):
        module.launch("k", 1, 128, [operands, d, True], shared_bytes=2 * 8192)


def test_half_precision_is_that_of_numpy() -> None:
    halves = np.arange(2**16, dtype=np.uint16)
    values = np.concatenate(
        [np.random.default_rng(0).integers(0, 2**32, 10**5, dtype=np.uint32), (halves.astype(np.uint32) << 13) + (112 << 23)]
    )
    finite = halves[:0x7C00].view(np.float16).astype(np.float32)
    ties = (finite[1:] + finite[:-1]) / 2
    with np.errstate(all="ignore"):
        floats = np.concatenate([values.view(np.float32), np.array([65519, 65520, 2**-25, 3 * 2**-26], np.float32), ties, -ties])
        expected = floats.astype(np.float16)
    body = """
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) to[i] = half_bits(from[i]);
    if (i < 65536) back[i] = half_value(i);"""
    found, back = np.zeros(len(floats), np.uint16), np.zeros(2**16, np.float32)
    one(body, "const float* from, unsigned short* to, float* back, int n").launch(
        "k", len(floats) // 256 + 1, 256, [floats, found, back, len(floats)]
    )
    nan = np.isnan(expected)
    assert np.array_equal(nan, np.isnan(found.view(np.float16))) and np.array_equal(expected.view(np.uint16)[~nan], found[~nan])
    exact = halves.view(np.float16).astype(np.float32)
    assert (
        np.array_equal(back[~np.isnan(exact)].view(np.uint32), exact[~np.isnan(exact)].view(np.uint32))
        and np.isnan(back[np.isnan(exact)]).all()
    )
