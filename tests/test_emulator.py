"""The emulator itself, on small kernels written by hand: what is defined comes out right, what is not is reported."""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from each_case import each

from bilinear.emulator import (
    ORDERS,
    AccessError,
    AlignmentError,
    BarrierError,
    CompiledModule,
    CompileError,
    HangError,
    LaunchError,
    Order,
    TrapError,
    UndefinedError,
    compile_on_cpu,
    compiler_name,
    guarded,
    guarded_empty,
    skip_reason,
    without_barrier,
)
from bilinear.emulator import compiler as compiling

copies_are_checked = pytest.mark.skipif(compiler_name() != "g++", reason="only g++ checks copies of structures that lie unevenly")
pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the default cache will be made, in a temporary folder of its own."""
    monkeypatch.setattr(compiling, "CACHES", str(tmp_path))
    (tmp_path / "bilinear").mkdir()
    compiling._default_cache.cache_clear()
    yield tmp_path / "bilinear" / "emulated"
    compiling._default_cache.cache_clear()


def test_what_nobody_used_for_a_month_is_removed_and_nothing_else(home: Path) -> None:
    home.mkdir(mode=0o700)
    folders, files = ("building-x", f"{'2' * 32}.headers", "mine"), (f"{'0' * 32}.so", f"{'1' * 32}.so", "notes.txt", "mine/notes.txt")
    for name in folders:
        (home / name).mkdir()
    for name in files:
        (home / name).write_text("x")
    (home / "building-x" / "kernel.o").write_text("x")
    for name in (*files, *folders):
        os.utime(home / name, (0, 0))
    os.utime(home / files[1])
    assert compiling._default_cache() == home
    assert sorted(path.name for path in home.iterdir()) == ["1" * 32 + ".so", "mine", "notes.txt"]
    assert (home / "mine" / "notes.txt").read_text() == "x"


def test_a_cache_that_is_somebody_elses_is_not_used(home: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir(mode=0o700)
    (tmp_path / "theirs" / f"{'0' * 32}.so").write_text("x")
    for make in (lambda: home.write_text("x"), lambda: home.symlink_to(tmp_path / "theirs"), lambda: home.mkdir(mode=0o777)):
        make()
        home.chmod(0o777) if home.is_dir() and not home.is_symlink() else None
        compiling._default_cache.cache_clear()
        assert compiling._default_cache() != home
        home.rmdir() if home.is_dir() and not home.is_symlink() else home.unlink()
    assert list((tmp_path / "theirs").iterdir())


every_order = pytest.mark.parametrize("order", ORDERS)

MATMUL = """\
// C = A B in tiles of 16 x 16, two buffers, one barrier a step; shared memory is read 16 bytes at a time.
typedef long long Index;
constexpr int TILE = 16;
struct alignas(16) Pair { double lane[2]; };

template <int N> __device__ __forceinline__ double dot(const Pair* __restrict__ a, const double (*b)[TILE + 2], int column)
{
    double sum = 0;
    #pragma unroll
    for (int p = 0; p < N; ++p) {
        const Pair pair = a[p];
        sum = fma(pair.lane[0], b[2 * p][column], sum);
        sum = fma(pair.lane[1], b[2 * p + 1][column], sum);
    }
    return sum;
}

extern "C" __global__ void __launch_bounds__(TILE * TILE)
matmul(const double* __restrict__ a, const double* __restrict__ b, double* __restrict__ c, Index m, Index k, Index n)
{
    __shared__ alignas(16) double left[2][TILE][TILE + 2];
    __shared__ __align__(16) double right[2][TILE][TILE + 2];
    const int x = threadIdx.x, y = threadIdx.y;
    const Index row = Index(blockIdx.y) * TILE + y, column = Index(blockIdx.x) * TILE + x;
    auto put = [&](int buffer, Index k0) {
        left[buffer][y][x] = row < m && k0 + x < k ? __ldg(&a[row * k + k0 + x]) : 0.0;
        right[buffer][y][x] = k0 + y < k && column < n ? __ldg(&b[(k0 + y) * n + column]) : 0.0;
    };
    put(0, 0);
    __syncthreads();
    double sum = 0;
    int buffer = 0;
    for (Index k0 = 0; k0 < k; k0 += TILE) {
        if (k0 + TILE < k) put(buffer ^ 1, k0 + TILE);
        sum += dot<TILE / 2>(reinterpret_cast<const Pair*>(left[buffer][y]), right[buffer], x);
        __syncthreads();
        buffer ^= 1;
    }
    if (row < m && column < n) c[row * n + column] = sum;
}
"""
MATMUL_KERNELS = {"matmul": ["const double *", "const double *", "double *", "long long", "long long", "long long"]}


def multiply(module: CompiledModule, order: Order, seed: int = 0, threads: int = 2) -> bool:
    """Whether the tiled product of integer matrices is exact."""
    m, k, n = 37, 50, 41
    random = np.random.default_rng(1)
    a, b = (random.integers(-9, 10, shape).astype(np.float64) for shape in ((m, k), (k, n)))
    c = guarded_empty((m, n))
    module.launch("matmul", (3, 3), (16, 16), [guarded(a, read_only=True), guarded(b), c, m, k, n], order=order, seed=seed, threads=threads)
    return bool(np.array_equal(c, a @ b))


def one(body: str, parameters: str = "double* a", before: str = "") -> CompiledModule:
    """A module with one kernel, `k`, whose first source line is that of `body`."""
    source = f'{before} extern "C" __global__ void k({parameters}) {{ {body} }}\n'
    return compile_on_cpu(source, {"k": [part.rsplit(" ", 1)[0] for part in parameters.split(",") if part.strip()]})


@every_order
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_tiled_product_is_exact(order: Order, threads: int) -> None:
    module = compile_on_cpu(MATMUL, MATMUL_KERNELS)
    assert all(multiply(module, order, seed, threads) for seed in range(3))


def test_every_missing_barrier_is_noticed() -> None:
    mutants = list(without_barrier(MATMUL))
    assert [line for line, _ in mutants] == [i for i, line in enumerate(MATMUL.split("\n"), 1) if "__syncthreads" in line]
    for line, text in mutants:
        assert text.count("\n") == MATMUL.count("\n")
        mutant = compile_on_cpu(text, MATMUL_KERNELS)
        assert not all(multiply(mutant, order) for order in ORDERS), f"line {line}"


def test_commented_barriers_are_no_mutants() -> None:
    text = "// a __syncthreads(); of old\nif (x) __syncthreads();\n"
    assert list(without_barrier(text)) == [(2, "// a __syncthreads(); of old\nif (x) ;\n")]


def test_the_order_is_that_of_the_blocks_and_of_the_threads() -> None:
    module = one("s[atomicAdd(&s[0], 1) + 1] = blockIdx.x * blockDim.x + threadIdx.x; __syncthreads();", "int* s")

    def seen(order: Order, seed: int = 0) -> list[int]:
        log = np.zeros(65, np.int32)
        module.launch("k", 4, 16, [log], order=order, seed=seed, threads=1)
        assert sorted(log[1:]) == list(range(64))
        return [int(entry) for entry in log[1:]]

    assert seen("ascending") == list(range(64))
    assert seen("descending") == list(range(63, -1, -1))
    assert seen("random", 3) == seen("random", 3)
    assert len({tuple(seen("random", seed)) for seed in range(8)}) == 8


def test_every_phase_has_its_own_random_order() -> None:
    module = one("for (int p = 0; p < 2; ++p) { s[1 + p * 32 + (atomicAdd(&s[0], 1) & 31)] = threadIdx.x; __syncthreads(); }", "int* s")
    log = np.zeros(65, np.int32)
    module.launch("k", 1, 32, [log], order="random", threads=1)
    assert sorted(log[1:33]) == sorted(log[33:]) == list(range(32))
    assert list(log[1:33]) != list(log[33:])


def test_indices_and_extents_have_three_dimensions() -> None:
    parameters, total = "int* s", 3 * 2 * 2 * 4 * 3 * 2
    body = """
    const unsigned t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    const unsigned b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    s[b * blockDim.x * blockDim.y * blockDim.z + t] += 1;"""
    for order in ORDERS:
        log = np.zeros(total, np.int32)
        one(body, parameters).launch("k", (3, 2, 2), (4, 3, 2), [log], order=order)
        assert (log == 1).all()


def test_shared_memory_is_not_a_number_at_the_start_of_every_block() -> None:
    module = one("__shared__ double t[32]; a[blockIdx.x] = t[3]; t[3] = 1; if (threadIdx.x == 99) t[threadIdx.x & 31] = 2;")
    a = np.zeros(5)
    module.launch("k", 5, 1, [a], threads=1)
    assert np.isnan(a).all()


@pytest.mark.parametrize("scope", ["function", "file"])
def test_dynamic_shared_memory(scope: str) -> None:
    declaration = "extern __shared__ __align__(16) double t[];"
    inside, outside = (declaration, "") if scope == "function" else ("", declaration)
    body = f"{inside} if (n) t[threadIdx.x] = threadIdx.x; __syncthreads(); a[threadIdx.x] = t[31 - threadIdx.x];"
    module = one(body, "double* a, int n", outside)
    a = np.zeros(32)
    module.launch("k", 1, 32, [a, 1], shared_bytes=256)
    assert np.array_equal(a, np.arange(32)[::-1])
    module.launch("k", 1, 32, [a, 0], shared_bytes=256)
    assert np.isnan(a).all()
    with pytest.raises(AccessError, match="end of dynamic shared memory"):
        module.launch("k", 1, 32, [a, 1], shared_bytes=240)


def test_shared_memory_of_templates_belongs_to_one_module() -> None:
    template = "template <int N> __device__ double* tile() { __shared__ double t[N]; return t; }"
    first = one("tile<8>()[threadIdx.x] = 1; __syncthreads(); a[threadIdx.x] = tile<8>()[7 - threadIdx.x];", before=template)
    second = one("a[threadIdx.x] = tile<8>()[threadIdx.x];", before=template)
    a = np.zeros(8)
    first.launch("k", 1, 8, [a], threads=1)
    assert (a == 1).all()
    second.launch("k", 1, 8, [a], threads=1)
    assert np.isnan(a).all()


def test_a_warp_barrier_orders_its_warp_only() -> None:
    body = """
    __shared__ int t[64];
    t[threadIdx.x] = threadIdx.x;
    if (threadIdx.x < 32) __syncwarp();
    s[threadIdx.x] = t[threadIdx.x ^ 31];"""
    log = np.zeros(64, np.int32)
    one(body, "int* s").launch("k", 1, 64, [log])
    assert np.array_equal(log[:32], np.arange(32)[::-1])
    assert (log[32:] == -1).any()


def test_threads_may_end_before_a_warp_barrier() -> None:
    one("if (threadIdx.x & 1) return; __syncwarp();").launch("k", 1, 64, [None])
    one("if (threadIdx.x & 1) __syncwarp(0xaaaaaaaa); else __syncwarp(0x55555555);").launch("k", 1, 64, [None])


@pytest.mark.parametrize("other", ["__syncwarp();", "__syncwarp(1);", "__syncthreads();"])
def test_parts_of_a_warp_at_different_barriers(other: str) -> None:
    with pytest.raises(
        BarrierError, match=r"[12] have exited, 3[01] wait at the (warp )?barrier of line 2, 32 wait at the warp barrier of line 3"
    ):
        one(f"if (threadIdx.x == 0) return; if (threadIdx.x % 32 < 16)\n{other}\nelse __syncwarp();").launch("k", 1, 64, [None])


@every_order
def test_threads_that_end_before_a_barrier(order: Order) -> None:
    module = one("if (blockIdx.x == 2 && blockIdx.y == 1 && threadIdx.x >= 24) return; __syncthreads();")
    with pytest.raises(
        BarrierError, match=r"^k, block \(2, 1, 0\): of 32 threads, 8 have exited, 24 wait at the barrier of line 1"
    ) as caught:
        module.launch("k", (3, 2), 32, [None], order=order)
    assert (caught.value.kernel, caught.value.block, caught.value.line) == ("k", (2, 1, 0), 1)


@every_order
def test_threads_at_different_barriers(order: Order) -> None:
    module = one("if (threadIdx.x < 5)\n__syncthreads();\nelse\n__syncthreads();")
    with pytest.raises(BarrierError, match="0 have exited") as caught:
        module.launch("k", 1, 32, [None], order=order)
    assert "5 wait at the barrier of line 2" in str(caught.value) and "27 wait at the barrier of line 4" in str(caught.value)
    assert "__syncthreads();" in str(caught.value).split("\n")[1]


@every_order
def test_unequal_numbers_of_barriers(order: Order) -> None:
    module = one("for (int i = 0; i <= threadIdx.x / 16; ++i) __syncthreads();")
    module.launch("k", 7, 16, [None], order=order)
    with pytest.raises(BarrierError, match="16 have exited, 16 wait"):
        module.launch("k", 7, 32, [None], order=order)


@pytest.mark.parametrize(
    "statement",
    [
        "a[0] = p->lane[1];",
        *(pytest.param(copy, marks=copies_are_checked) for copy in ("*p = Pair{1, 2};", "Pair q = *p; a[0] = q.lane[0];", "p[1] = p[0];")),
    ],
)
def test_misaligned_vector_access(statement: str) -> None:
    pair = "struct alignas(16) Pair { double lane[2]; };"
    module = one(f"Pair* p = reinterpret_cast<Pair*>(a + 2);\n {statement}", before=pair)
    room = guarded_empty(8, at="start")
    module.launch("k", 1, 1, [room])
    with pytest.raises(AlignmentError, match=r"'[\w ]*Pair' needs 16-byte alignment, not 0x\w+, byte 24 of argument 0") as caught:
        module.launch("k", 1, 1, [(room, 1)])
    assert caught.value.line == 2 and statement in str(caught.value)


def test_misaligned_scalar_types() -> None:
    room = np.zeros(64)
    with pytest.raises(AlignmentError, match="8-byte"):
        one("a[0] = 1;").launch("k", 1, 1, [room.ctypes.data + 4])


@copies_are_checked
def test_misaligned_cuda_vector_types() -> None:
    room = np.zeros(64)
    aligned = -(-room.ctypes.data // 16) * 16
    copy = one("*reinterpret_cast<double2*>(a + 2) = *reinterpret_cast<double2*>(a);")
    copy.launch("k", 1, 1, [aligned])
    with pytest.raises(AlignmentError, match="16-byte"):
        copy.launch("k", 1, 1, [aligned + 8])


@pytest.mark.parametrize("order", ["C", "F"])
def test_guarded_arrays_are_copies_beside_a_precipice(order: str) -> None:
    original = np.asarray(np.arange(30.0).reshape(5, 6), order="F" if order == "F" else "C")
    read, write = one("a[30] = a[i];", "double* a,int i"), one("a[i] = 7;", "double* a,int i")
    end, start = guarded(original), guarded(original, at="start")
    for copy in (end, start):
        assert np.array_equal(copy, original) and copy.strides == original.strides
        write.launch("k", 1, 1, [copy, 0])
        write.launch("k", 1, 1, [copy, 29])
        assert copy[0, 0] == copy[-1, -1] == 7
    with pytest.raises(AccessError, match=r"thread \(0, 0, 0\): write to 0x\w+, 0 bytes past the end of argument 0"):
        write.launch("k", 1, 1, [end, 30])
    with pytest.raises(AccessError, match="8 bytes before argument 0"):
        write.launch("k", 1, 1, [start, -1])
    with pytest.raises(AccessError, match="8 bytes before argument 0"):
        read.launch("k", 1, 1, [start, -1])


def test_guarded_empty_is_not_a_number() -> None:
    for shape in (0, 1, (3, 5), (300, 300)):
        array = guarded_empty(shape)
        assert np.isnan(array).all()
        array[...] = 1
    assert guarded_empty((3, 4), np.float32, "F").strides == (4, 12)


def test_read_only_arrays_are_never_written() -> None:
    a = guarded(np.ones(4), read_only=True)
    module = one("const double old = a[1]; b[0] = old; if (b[1]) { a[1] = 2; a[1] = old; }", "volatile double* a,double* b")
    module.launch("k", 1, 1, [a, np.zeros(2)])
    with pytest.raises(AccessError, match=r"write to .*, byte 8 of argument 0"):
        module.launch("k", 1, 1, [a, np.ones(2)])
    assert not a.flags.writeable


def test_faults_leave_the_process_as_it_was() -> None:
    def handlers() -> list[object]:
        return [signal.getsignal(number) for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)]

    before, enabled = handlers(), faulthandler.is_enabled()
    bad, good = one("a[1 << 30] = threadIdx.x;"), one("__syncthreads(); a[threadIdx.x] = 1;")
    room = guarded_empty(32)
    for threads in (1, 2) * 10:
        with pytest.raises(AccessError):
            bad.launch("k", 9, 32, [room], threads=threads)
        room[:] = 0
        good.launch("k", 9, 32, [room], threads=threads)
        assert (room == 1).all()
    assert handlers() == before and faulthandler.is_enabled() == enabled


def test_faults_in_either_kind_of_worker_name_their_block() -> None:
    module = one("if (blockIdx.x == 5 && threadIdx.y == 2) a[0] = 1;")
    for order in ORDERS:
        with pytest.raises(AccessError, match="null") as caught:
            module.launch("k", 50, (4, 4), [None], order=order)
        assert caught.value.block == (5, 0, 0) and caught.value.thread[1] == 2


def test_static_arrays_have_bounds() -> None:
    module = one("__shared__ double t[4][8]; t[1][i] = 1; a[0] = t[1][i];", "double* a,int i")
    a = np.zeros(1)
    module.launch("k", 1, 1, [a, 7])
    with pytest.raises(AccessError, match="index 8 out of bounds"):
        module.launch("k", 1, 1, [a, 8])
    with pytest.raises(AccessError, match="index -1 out of bounds"):
        module.launch("k", 1, 1, [a, -1])


def test_stack_overflow() -> None:
    body = "double* b = static_cast<double*>(__builtin_alloca(n)); for (int i = n / 8 - 1; i >= 0; --i) b[i] = i; a[0] = b[7];"
    module = one(body, "volatile double* a,int n")
    module.launch("k", 1, 3, [np.zeros(1), 65536])
    with pytest.raises(AccessError, match="stack overflow"):
        module.launch("k", 1, 3, [np.zeros(1), 160000])


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("i * 65536", "multiplication"),
        ("i + 2147483647", "addition"),
        ("-2147483647 - i", "subtraction"),
        ("1 / (i - 65536)", "division by zero"),
        ("1 << i", "shift"),
    ],
)
def test_undefined_integer_arithmetic(expression: str, message: str) -> None:
    with pytest.raises(UndefinedError, match=message):
        one(f"s[0] = {expression};", "int* s,int i").launch("k", 1, 1, [np.zeros(1, np.int32), 65536])


def test_trap() -> None:
    with pytest.raises(TrapError, match=r"block \(1, 0, 0\), thread \(3, 0, 0\): trap"):
        one("if (blockIdx.x == 1 && threadIdx.x == 3) __trap();").launch("k", 2, 4, [None])


def test_words_of_the_language() -> None:
    source = """
__constant__ double TABLE[2] = { 1.5, 2.5 };
static __constant__ const int MORE[2] = { 3, 4 };
__device__ const int PLACES[1][2] = { { 5, 6 } };
__device__ __forceinline__ int bits(float x) { return __float_as_int(x); }
extern "C" __global__ void words(double* __restrict__ d, unsigned* u)
{
    d[0] = TABLE[1] + MORE[0] + PLACES[0][1];
    d[1] = min(2, 3LL) + max(1.0f, 2.0) + min(threadIdx.x, 7u);
    d[2] = isfinite(d[0]) && !isfinite(1.0f / float(threadIdx.x)) && !isfinite(nan(""));
    d[3] = fmaf(2.0f, 3.0f, 4.0f) + fma(2.0, 3.0, 4.0) + bits(1.0f) - 0x3f800000;
    const float4 v = make_float4(1, 2, 3, 4);
    d[4] = v.w + __longlong_as_double(__double_as_longlong(0.5)) + abs(-2.5);
    u[0] = 0; u[1] = 1; u[2] = 2; u[3] = 7;
    atomicOr(&u[0], 6u);
    u[4] = atomicMax(&u[1], 9u);
    u[5] = atomicCAS(&u[2], 2u, __float_as_uint(1.0f));
    atomicAnd(&u[3], 5);
    __threadfence();
}
"""
    d, u = np.zeros(5), np.zeros(6, np.uint32)
    compile_on_cpu(source, {"words": ["double *", "unsigned *"]}).launch("words", 1, 1, [d, u])
    assert list(d) == [11.5, 4, 1, 20, 7]
    assert list(u) == [6, 9, 0x3F800000, 5, 1, 2]


def test_atomics_of_all_blocks_add_up() -> None:
    module = one("atomicAdd(s, 3); atomicAdd(a, 0.5); __shared__ int t; t = 0; __syncthreads(); atomicAdd(&t, 1);", "int* s,double* a")
    s, a = np.zeros(1, np.int32), np.zeros(1)
    module.launch("k", 500, 64, [s, a], threads=4, order="random")
    assert s[0] == 96000 and a[0] == 16000


def test_arguments() -> None:
    module = one("a[2] = x + y + n + f;", "double* a,float x,double y,long long n,bool f")
    a = np.arange(12.0).reshape(3, 4)
    module.launch("k", 1, 1, [a[:, ::2], 0.5, np.float64(0.25), np.int64(2**40), True])
    assert a[0, 2] == 2.0**40 + 1.75
    module.launch("k", 1, 1, [(a, 4), 0, 0, 7, False])
    module.launch("k", 1, 1, [a.ctypes.data + 64, 0, 0, 8, False])
    assert a[1, 2] == 7 and a[2, 2] == 8


@each(
    ("arguments", "error", "message"),
    [
        ([np.zeros(1)], TypeError, "2 parameters, not 1"),
        ([np.zeros(1, np.float32), 1], TypeError, "does not take an array of float32"),
        ([1.5, 1], TypeError, "takes an array"),
        ([np.zeros(1), 2**31], OverflowError, "does not fit"),
        ([np.zeros(1), 1.5], TypeError, "takes an integer"),
        ([np.zeros(1), np.zeros(1)], TypeError, "takes a number"),
    ],
)
def test_wrong_arguments(arguments: list[object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        one("", "double* a,int n").launch("k", 1, 1, arguments)  # type: ignore[arg-type]


def test_wrong_extents() -> None:
    module = compile_on_cpu('extern "C" __global__ void __launch_bounds__(8 * 8, 2) k() {}', {"k": []})
    module.launch("k", 1, 64, [])
    with pytest.raises(ValueError, match="at most 64 threads"):
        module.launch("k", 1, 65, [])
    with pytest.raises(ValueError, match="grid"):
        module.launch("k", (1, 65536), 1, [])
    with pytest.raises(ValueError, match="at most 1024 threads"):
        one("").launch("k", 1, (32, 33), [None])
    with pytest.raises(ValueError, match="shared memory"):
        module.launch("k", 1, 1, [], shared_bytes=10**6)


def test_what_the_compiler_refuses() -> None:
    with pytest.raises(CompileError, match=r"kernel\.cpp:1:.*nonsense"):
        one("nonsense;")
    with pytest.raises(CompileError, match="declared parameters of k are not those of the kernel"):
        compile_on_cpu('extern "C" __global__ void k(int n) {}', {"k": ["long long"]})


def test_a_text_is_compiled_once(tmp_path: Path) -> None:
    text = 'extern "C" __global__ void once() {}'
    module = compile_on_cpu(text, {"once": []}, cache=tmp_path)
    assert compile_on_cpu(text, {"once": []}, cache=tmp_path) is module
    compile_on_cpu(text.replace("once", "twice"), {"twice": []}, cache=tmp_path)
    assert sorted(file.suffix for file in tmp_path.iterdir()) == [".headers", ".so", ".so"]


def test_the_portable_context_switch() -> None:
    module = compile_on_cpu(MATMUL, MATMUL_KERNELS, flags=["-DCUDA_ON_CPU_UCONTEXT"])
    assert all(multiply(module, order) for order in ORDERS)
    with pytest.raises(LaunchError):
        module.launch("matmul", 1, (16, 16), [None, None, None, 1, 1, 1])
    assert multiply(module, "random")


@every_order
@pytest.mark.parametrize("threads", [1, 3])
def test_a_launch_that_does_not_end_is_ended(order: Order, threads: int) -> None:
    module = one("if (threadIdx.x == 5 && blockIdx.x == 1) for (volatile int i = 0; i >= 0; i = 1) {} __syncthreads(); a[0] = 1;")
    a = np.zeros(1)
    with pytest.raises(HangError, match=r"^k: not ended after 0\.2 seconds$") as caught:
        module.launch("k", 4, 32, [a], order=order, threads=threads, seconds=0.2)
    assert caught.value.kernel == "k"
    module.launch("k", 1, 32, [a], order=order, threads=threads, seconds=30)
    assert a[0] == 1
