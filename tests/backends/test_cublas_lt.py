"""cublasLt by its C interface: a pretended library that checks its descriptors, on integers in ordinary memory."""

from __future__ import annotations

import ctypes
import gc
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from artifact.built_folders import needs_emulator
from runtime.blas import gemm
from runtime.pretended_gpu import Array, Gpu, undescribed

import bilinear
from bilinear.backends import cublas as library
from bilinear.backends import cublas_lt
from bilinear.backends.cublas import suits_lt
from bilinear.backends.gemm import Gemm, gemm_of
from bilinear.errors import BilinearError
from bilinear.ir.matrix import layout_of
from bilinear.planner.choose import timed_plan
from bilinear.planner.device import Device, LibraryRules
from bilinear.planner.device_files import load_device
from bilinear.planner.kept_plans import keep_plan
from bilinear.planner.library import Library
from bilinear.planner.library_points import LibraryPoints
from bilinear.planner.plan import LIBRARIES, LIBRARY, Candidate
from bilinear.planner.problem import Problem
from bilinear.runtime import auto, devices_here, repeat

RULES = LibraryRules()
REFUSED = 15  # `CUBLAS_STATUS_NOT_SUPPORTED`.
KERNEL = b"kernel"
TYPES: dict[str, tuple[Any, ...]] = {
    "MatmulDesc": (ctypes.c_int, ctypes.c_int),
    "MatrixLayout": (ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64),
    "MatmulPreference": (),
}
"""The argument types for each kind of descriptor."""


class PretendedLt:
    """Descriptors by number, and products by NumPy. Invalid calls fail. The function named in `refusing` returns an error."""

    def __init__(self) -> None:
        self.descriptors: dict[int, list[Any]] = {}
        self.made = 0
        self.asked: list[tuple[Any, ...]] = []
        self.refusing = ""
        self.finds = 1
        self.needs = 0
        self.kernels = (55, 11, 31), (55, 15, 31)
        self.refuses_large = False
        self.workspaces: list[int | None] = []
        self.holds: Callable[[], bool] = lambda: False
        for kind in TYPES:
            setattr(self, f"cublasLt{kind}Create", lambda place, *values, kind=kind: self._make(kind, place, values))
            setattr(self, f"cublasLt{kind}Destroy", lambda descriptor: self.descriptors.pop(descriptor.value) and 0)
        self.cublasLtMatmulPreferenceSetAttribute = self.cublasLtMatmulDescSetAttribute

    def _make(self, kind: str, place: Any, values: tuple[Any, ...]) -> int:
        assert tuple(map(type, values)) == TYPES[kind]
        if self.refusing == kind:
            return REFUSED
        self.made += 1
        self.descriptors[self.made] = [value.value for value in values]
        place._obj.value = self.made
        return 0

    def cublasLtMatmulDescSetAttribute(self, descriptor: Any, attribute: int, value: Any, size: Any) -> int:
        assert size.value == ctypes.sizeof(value._obj) == (8 if attribute == 1 else 4)
        self.descriptors[descriptor.value].append((attribute, value._obj.value))
        return 0

    def cublasLtMatmulAlgoGetHeuristic(self, handle: Any, *rest: Any) -> int:
        *descriptors, count, result, found = rest
        product, first, second, read, written, preference = descriptors
        assert handle.value == threading.get_ident() and count == 1 and len(result) == 96 and read is written
        (attribute, most), *alignments = self.descriptors[preference.value]
        assert attribute == 1 and most in (0, 2**20, 2**25) and alignments == [(5, 16), (6, 16), (7, 16), (8, 16)]
        self._sizes(product, first, second, written)
        if most == 2**25 and self.refuses_large:
            return REFUSED
        result[: len(KERNEL)] = KERNEL
        result[len(KERNEL)] = most == 2**25
        result[64:72] = min(most, self.needs).to_bytes(8, sys.byteorder)
        result[72] = REFUSED if self.refusing == "state" else 0
        found._obj.value = self.finds
        return 0

    def cublasLtMatmulAlgoConfigGetAttribute(self, kernel: Any, attribute: int, value: Any, size: Any, written: Any) -> int:
        """Id, tile and stages, which a test may set; others with a large workspace than with a small one."""
        assert kernel[: len(KERNEL)] == KERNEL and size.value == ctypes.sizeof(value._obj) == 4
        value._obj.value = self.kernels[kernel[len(KERNEL)][0]][(0, 1, 6).index(attribute)]
        written._obj.value = 4
        return 0

    def _sizes(
        self, product: Any, first: Any, second: Any, layout: Any
    ) -> tuple[tuple[int, int], tuple[int, int, int], tuple[int, int, int]]:
        """Whether each operand is transposed, m, n, k, and the leading dimensions, after checking that they fit together."""
        compute, scale, (transa, of_a), (transb, of_b) = self.descriptors[product.value]
        assert (compute, scale) in ((68, 0), (70, 1)) and (transa, transb) == (3, 4)
        (*left, lda), (*right, ldb), (*result, ldc) = (self.descriptors[x.value] for x in (first, second, layout))
        (type_a, rows_a, columns_a), (type_b, rows_b, columns_b), (type_c, m, n) = left, right, result
        k = rows_a if of_a else columns_a
        assert type_a == type_b == type_c == scale
        assert (rows_a, columns_a, rows_b, columns_b) == ((k, m) if of_a else (m, k)) + ((n, k) if of_b else (k, n))
        return (of_a, of_b), (m, n, k), (lda, ldb, ldc)

    def cublasLtMatmul(self, handle: int, product: Any, alpha: int, *rest: Any) -> int:
        a, first, b, second, beta, c, read, written, layout, kernel, workspace, size, stream = rest
        assert handle == threading.get_ident() and kernel[: len(KERNEL)] == KERNEL
        assert size in (0, self.needs) and (workspace is None) == (size == 0)
        assert workspace is None or self.holds(), "memory that another may have by now"
        self.workspaces.append(workspace)
        assert c == written and read is layout and all(address % 16 == 0 for address in (a, b, c))
        if self.refusing == "Matmul":
            return REFUSED
        operations, (m, n, k), (lda, ldb, ldc) = self._sizes(product, first, second, layout)
        self.asked.append((stream, m, n, k))
        kind = "sd"[self.descriptors[product.value][1]]
        gemm(kind, *operations, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
        return 0


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    with undescribed(monkeypatch) as found:
        found.lt = PretendedLt()
        yield found


def operands(seed: int, dtype: str = "float32", orders: Any = "CCC", k: int = 3) -> tuple[list[Any], list[Array]]:
    generator = np.random.default_rng(seed)
    whole = [generator.integers(-4, 5, shape).astype(dtype) for shape in ((5, k), (k, 4), (5, 4))]
    return whole, [Array(np.array(x, order=order)) for x, order in zip(whole, orders, strict=True)]


def check(whole: list[Any], arrays: list[Array], alpha: float = 1, beta: float = 0) -> None:
    (x, y, z), (a, b, c) = whole, arrays
    if beta == 0:
        c.host[...] = np.nan
    bilinear.matmul(a, b, c, alpha=alpha, beta=beta)
    np.testing.assert_array_equal(c.host, alpha * (x @ y) + beta * z)


@needs_emulator
@pytest.mark.parametrize("orders", ["CCC", "FCF", "CFC", "FFF", "CCF", "FFC"])
def test_short_sums_of_float32_are_its_own(orders: Any, gpu: Gpu) -> None:
    """First and repeated calls, with factors, on the current stream. The descriptors of a product are made once."""
    for seed, (alpha, beta) in enumerate([(1, 0), (1, 0), (2.5, 0), (1, -0.5), (-1, 2)]):
        with gpu.using(stream=seed):
            check(*operands(seed, orders=orders), alpha, beta)
    assert [stream for stream, *_ in gpu.lt.asked] == [0, 1, 2, 3, 4]
    assert not gpu.by_cublas and gpu.lt.made == 5


def suits(m: int, k: int, n: int, dtype: str = "float64", rules: LibraryRules = RULES) -> bool:
    return suits_lt(Gemm(True, (0, 0), (n, m, k), (n, k, n)), np.dtype(dtype), rules)


def test_which_problems_suit() -> None:
    """Doubles: unaligned rows with medium sums; few columns and many rows; wide results; and long dot products."""
    short, medium, even, deep, wide, long, few = 256, 512, 2_000_000, 2_000, 7_000, 10_000, 4
    assert suits(9000, short, 2, "float32") and suits(1, 1, 1, "float32") and not suits(9000, short + 1, 2, "float32")
    assert suits(401, 333, 5003, "float32") and suits(401, 332, 5002, "float32") and not suits(401, 332, 5004, "float32")
    assert suits(13649, 419, 47, "float32") and not suits(139, 364, 195, "float32") and not suits(5003, 513, 5003, "float32")
    assert suits(1000, short, even // 1000, "float32") and not suits(1001, short, even // 1000, "float32")
    assert suits(1001, short, even // 1000 + 1, "float32")
    assert all(suits(m, deep, wide) for m in range(8, 33)) and not suits(16, deep, wide, "float32")
    assert not any((suits(7, deep, wide), suits(33, deep, wide), suits(16, deep - 2, wide), suits(16, deep, wide - 2)))
    assert suits(17844, 21, 7000) and suits(363, 363, 363) and suits(128, medium, 129) and not suits(17844, 20, 7000)
    assert not suits(128, medium + 1, 129) and not suits(127, 21, 4000) and not suits(4000, 21, 127)
    assert suits(long + 1, 2, few) and not suits(long, 2, few) and not suits(long + 1, 2, few + 2) and not suits(few, 2, 2 * long)
    assert suits(1, 1024, 1) and suits(1, 2**15 - 1, 1) and not suits(1, 1023, 1) and not suits(1, 2**15, 1) and not suits(8, 8, 8)


def test_the_rules_are_those_of_the_device() -> None:
    """Each rule of a description changes which problems suit."""
    for shape, dtype, rules in (
        ((9000, 300, 2), "float32", replace(RULES, short_sum=300)), ((1001, 256, 2000), "float32", replace(RULES, most_even=3 * 10**6)),
        ((139, 364, 195), "float32", replace(RULES, many_results=1)), ((127, 21, 4001), "float64", replace(RULES, many=127)),
        ((128, 513, 129), "float64", replace(RULES, medium_sum=513)), ((9000, 2, 4), "float64", replace(RULES, long=8999)),
        ((10001, 2, 6), "float64", replace(RULES, few=6)), ((7, 2000, 7000), "float64", replace(RULES, some_least=7)),
        ((33, 2000, 7000), "float64", replace(RULES, some_most=33)), ((16, 2000, 6000), "float64", replace(RULES, wide=6000)),
        ((16, 1000, 7000), "float64", replace(RULES, deep=1000)), ((1, 1000, 1), "float64", replace(RULES, dot_least=1000)),
        ((1, 40000, 1), "float64", replace(RULES, dot_most=40000)),
    ):  # fmt: skip
        assert suits(*shape, dtype, rules) and not suits(*shape, dtype)


@needs_emulator
def test_a_call_goes_by_the_rules_of_its_device(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """cuBLAS multiplies floats with sums of 300 terms, unless a description has other rules; BILINEAR_USE_LIBRARY reads no description."""
    here = replace(load_device("h200"), thin=(), library_rules=replace(RULES, short_sum=300))
    for described, is_lt, is_set in ((None, False, False), (here, True, False), (here, False, True)):
        monkeypatch.setattr(devices_here, "_described", lambda named, index, found=described: found)
        monkeypatch.setattr(repeat, "_repeats", {})
        monkeypatch.setenv("BILINEAR_USE_LIBRARY", "1" if is_set else "")
        gpu.by_cublas.clear()
        gpu.lt.asked.clear()
        _, (a, b, c) = operands(1, k=300)
        bilinear.matmul(a, b, c, levels=0)
        assert bool(gpu.lt.asked) == is_lt and bool(gpu.by_cublas) != is_lt


def pointed(cublas: tuple[float, ...], cublaslt: tuple[float, ...], **columns: Any) -> Device:
    """A description with these points for floats; with one, which is the shape of `operands`, unless other columns are given."""
    known = {"kernels": ("55.11.31", "55.15.31"), "m": (4,), "n": (5,), "k": (3,), "order": (0,), "small": (0,), "large": (1,)}
    points = LibraryPoints(**{**known, "cublas": cublas, "cublaslt": cublaslt, **columns})
    h200 = load_device("h200")
    rates = h200.thin_rates("float32")
    assert rates is not None
    return replace(h200, thin=(("float32", replace(rates, library=points, tiles=())),))


@needs_emulator
def test_measured_points_choose_the_call_of_thin_products(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Points come before the rules, which choose cublasLt here, unless nothing is known of the difference."""
    for cublas, cublaslt, by_lt in ((1.0, 1.1, False), (1.1, 1.0, True), (1.0, 1.0, True)):
        device = pointed((cublas,), (cublaslt,))
        monkeypatch.setattr(devices_here, "_described", lambda named, index, found=device: found)
        monkeypatch.setattr(repeat, "_repeats", {})
        gpu.by_cublas.clear()
        gpu.lt.asked.clear()
        check(*operands(1))
        assert (bool(gpu.lt.asked), bool(gpu.by_cublas)) == (by_lt, not by_lt)


@needs_emulator
def test_points_of_the_kernels_that_are_proposed_count_most(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nearer point says cublasLt, the one with the proposed kernels cuBLAS; both are as near if the large workspace is refused."""
    columns = {"m": (4, 8), "n": (5, 5), "k": (3, 3), "order": (0, 0), "small": (1, 0), "large": (1, 1)}
    device = pointed((1.1, 1.0), (1.0, 1.1), **columns)
    monkeypatch.setattr(devices_here, "_described", lambda named, index: device)
    for kernels, refuses, by_lt in (
        (((55, 11, 31), (55, 15, 31)), False, False),
        (((55, 15, 31), (55, 15, 31)), False, True),
        (((9, 9, 9), (9, 9, 9)), True, True),
    ):
        monkeypatch.setattr(repeat, "_repeats", {})
        monkeypatch.setattr(cublas_lt, "_product", lru_cache(cublas_lt._product.__wrapped__))
        gpu.lt.kernels, gpu.lt.refuses_large = kernels, refuses
        gpu.by_cublas.clear()
        gpu.lt.asked.clear()
        check(*operands(2))
        assert (bool(gpu.lt.asked), bool(gpu.by_cublas)) == (by_lt, not by_lt), kernels


@needs_emulator
def test_doubles_that_suit_are_its_own(gpu: Gpu) -> None:
    generator = np.random.default_rng(3)
    x, y = generator.integers(-4, 5, (130, 7)).astype(float), generator.integers(-4, 5, (7, 131)).astype(float)
    for alpha, beta in ((1, 0), (2.5, 0), (1, -0.5)):
        c = Array(generator.integers(-4, 5, (130, 131)).astype(float))
        wanted = alpha * (x @ y) + beta * c.host
        bilinear.matmul(Array(x.copy()), Array(y.copy()), c, alpha=alpha, beta=beta)
        np.testing.assert_array_equal(c.host, wanted)
    assert len(gpu.lt.asked) == 3 and not gpu.by_cublas


@needs_emulator
def test_what_is_split_lies_in_memory_of_the_pool(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call takes as much as the proposed kernel needs. If there is no memory, cuBLAS runs."""
    gpu.lt.needs, gpu.lt.holds = 4096, gpu.holds
    for seed in range(2):
        check(*operands(seed))
    assert gpu.taken == [4096, 4096] and gpu.lt.workspaces == [gpu.WORKSPACE] * 2

    with gpu.using(is_capturing=True):
        check(*operands(2))
    assert gpu.lt.workspaces[2:] == [gpu.WORKSPACE] and gpu.of_graph == [4096], "the workspace belongs to the graph"

    def full(count: int) -> Any:
        raise MemoryError("full")

    monkeypatch.setattr(sys.modules["cupy"].cuda, "alloc", full)
    check(*operands(3))
    assert len(gpu.lt.asked) == 3 and len(gpu.by_cublas) == 1


@needs_emulator
def test_while_a_stream_is_captured_cublas_has_a_workspace_of_the_graph(gpu: Gpu) -> None:
    """CuPy's binding refuses then. Products that the rules leave to cuBLAS stay its own, in first and repeated calls."""
    with gpu.using(is_capturing=True):
        for seed in range(2):
            check(*operands(seed, "float64"), 2, -1)
        assert len(gpu.by_cublas) == 2 and gpu.of_graph == [library.CAPTURED_WORKSPACE] * 2 and not gpu.lt.asked
        _, (a, b, c) = operands(3, k=RULES.short_sum + 1)
        sparse = Array(np.zeros((10, 2 * RULES.short_sum + 2), np.float32)[::2, ::2])
        for _ in range(2):
            with pytest.raises(BilinearError, match=r"E536.*CuPy multiplies these operands"):
                bilinear.matmul(sparse, b, c)
        with gpu.using(status=13), pytest.raises(BilinearError, match=r"E536.*status 13"):
            bilinear.matmul(a, b, c)


@needs_emulator
def test_a_dot_that_is_left_to_cupy_is_captured_by_it(gpu: Gpu) -> None:
    x, y = np.ones((1, 2048), "float32"), np.ones((2048, 1), "float32")
    with gpu.using(is_capturing=True):
        for _ in range(2):
            c = Array(np.full((1, 1), np.nan, "float32"))
            bilinear.matmul(Array(x), Array(y), c)
            assert c.host[0, 0] == 2048
    assert len(gpu.by_cublas) == 2 and not gpu.lt.asked


@needs_emulator
def test_all_else_goes_to_cublas(gpu: Gpu) -> None:
    check(*operands(1, "float64"))
    check(*operands(1, k=RULES.short_sum + 1))
    assert len(gpu.by_cublas) == 2 and not gpu.lt.made


@needs_emulator
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_plan_may_name_the_library(library: str, dtype: str, gpu: Gpu) -> None:
    """First and repeated calls. Without a name the rules choose cublasLt for the floats and cuBLAS for the doubles."""
    named = Candidate(Library(library), 1.0)
    plan = timed_plan(Problem(5, 3, 4, dtype, lies_evenly=False), load_device("h200"), (named, Candidate(Library(), 2.0)))
    for seed in range(3):
        (x, y, z), (a, b, c) = operands(seed, dtype)
        bilinear.matmul(a, b, c, plan=plan, alpha=2, beta=-1)
        np.testing.assert_array_equal(c.host, 2 * (x @ y) - z)
    by_lt = library == "cublaslt" or (library == LIBRARY and dtype == "float32")
    assert (len(gpu.lt.asked), len(gpu.by_cublas)) == ((3, 0) if by_lt else (0, 3))


@needs_emulator
@pytest.mark.parametrize("library", ["cublas", "cublaslt"])
def test_auto_runs_a_library_that_was_kept(library: str, gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """First and repeated calls, although the rules would choose cublasLt for the floats and cuBLAS for the doubles."""
    name, driver = devices_here._identity(0)
    here = replace(load_device("h200"), name=name)
    monkeypatch.setattr(devices_here, "_described", lambda named, index: here)
    other = Candidate(Library(), 2.0)
    for dtype in ("float32", "float64"):
        problem = Problem(5, 3, 4, dtype, lies_evenly=False)
        keep_plan(timed_plan(problem, here, (Candidate(Library(library), 1.0), other)), driver)
    for cached in (auto._chosen, auto._logged):
        cached.cache_clear()
    for dtype in ("float32", "float64"):
        for seed in range(3):
            check(*operands(seed, dtype))
    assert (len(gpu.lt.asked), len(gpu.by_cublas)) == ((6, 0) if library == "cublaslt" else (0, 6))
    for cached in (auto._chosen, auto._logged):
        cached.cache_clear()


@needs_emulator
def test_matrices_at_odd_addresses_go_to_cublas(gpu: Gpu) -> None:
    whole, _ = operands(2)
    for odd in range(3):
        arrays = []
        for number, x in enumerate(whole):
            memory = np.zeros(x.size + 8, np.float32)
            start = -memory.ctypes.data % 16 // 4 + (number == odd)
            arrays.append(Array(memory[start : start + x.size].reshape(x.shape)))
            arrays[-1].host[...] = x
        check(whole, arrays)
    assert len(gpu.by_cublas) == 3 and not gpu.lt.asked


@pytest.mark.sample(2)
@needs_emulator
@pytest.mark.parametrize("refusing", ["MatmulDesc", "MatrixLayout", "MatmulPreference", "nothing is found", "state", "Matmul"])
def test_what_it_refuses_goes_to_cublas(refusing: str, gpu: Gpu) -> None:
    if refusing == "nothing is found":
        gpu.lt.finds = 0
    else:
        gpu.lt.refusing = refusing
    for seed in range(3):
        check(*operands(seed))
    assert len(gpu.by_cublas) == 3 and not gpu.lt.asked
    if refusing != "Matmul":
        gc.collect()
        assert not gpu.lt.descriptors, "what was made before the refusal is destroyed"
    gpu.lt.refusing, gpu.lt.finds = "", 1
    x, (a, b, _) = operands(9)
    for _ in range(2):
        np.testing.assert_array_equal(bilinear.matmul(a, b).host, x[0] @ x[1])
    assert len(gpu.lt.asked) == 2, "a refusal is not kept"


@needs_emulator
def test_descriptors_live_as_long_as_their_product(gpu: Gpu) -> None:
    check(*operands(1))
    assert len(gpu.lt.descriptors) == 5
    cublas_lt._product.cache_clear()
    check(*operands(2))  # the repeat still has it
    assert len(gpu.lt.descriptors) == 5
    repeat._repeats.clear()
    gc.collect()
    assert not gpu.lt.descriptors


@needs_emulator
def test_every_thread_may_use_it(gpu: Gpu) -> None:
    """The pretended library refuses another thread's handle, even that of the thread that made the descriptors."""
    failed: list[BaseException] = []

    def multiply(seed: int) -> None:
        try:
            check(*operands(seed))
        except BaseException as error:
            failed.append(error)

    multiply(0)
    for seed in range(4):
        thread = threading.Thread(target=multiply, args=(seed,))
        thread.start()
        thread.join()
    assert not failed and len(gpu.lt.asked) == 5 and gpu.lt.made == 5


@needs_emulator
def test_without_the_library_cublas_runs_and_a_line_says_so(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    finding = cublas_lt._library
    with undescribed(monkeypatch) as gpu:
        cublas = sys.modules["cupy_backends.cuda.libs"].cublas
        cublas.getVersion = lambda handle: 990100
        monkeypatch.setattr(cublas_lt, "_library", finding)
        finding.cache_clear()
        with caplog.at_level(logging.INFO, "bilinear"):
            for seed in range(2):
                check(*operands(seed))
            check(*operands(3, k=4))
        finding.cache_clear()
    assert len(gpu.by_cublas) == 3
    assert [record.message for record in caplog.records if "cublasLt" in record.message] == ["cublasLt 99 cannot be found"]


@needs_emulator
def test_the_library_is_told_what_its_multiply_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without argument types, ctypes would pass addresses as 32-bit ints."""
    finding = cublas_lt._library
    with undescribed(monkeypatch):
        sys.modules["cupy_backends.cuda.libs"].cublas.getVersion = lambda handle: 130100
        names: list[str] = []

        def load(name: str) -> Any:
            names.append(name)
            return SimpleNamespace(cublasLtMatmul=SimpleNamespace())

        monkeypatch.setattr(ctypes, "CDLL", load)
        finding.cache_clear()
        library = finding()
        finding.cache_clear()
    assert names == ["libcublasLt.so.13"] and library is not None
    assert library.cublasLtMatmul.argtypes == (*[ctypes.c_void_p] * 14, ctypes.c_size_t, ctypes.c_void_p)


@pytest.mark.parametrize("orders", ["CCC", "FCF", "CFC", "FFF", "CCF", "FFC", "CFF", "FCC"])
def test_it_is_asked_for_the_call_that_would_run(orders: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a problem as for matrices that lie so."""
    asked: list[Gemm] = []
    monkeypatch.setattr(cublas_lt, "proposed", lambda gemm, dtype, device: asked.append(gemm))
    shapes = (12, 5), (5, 7), (12, 7)
    problem = Problem(12, 5, 7, "float32", column_major=tuple(name for name, order in zip("ABC", orders, strict=True) if order == "F"))
    cublas_lt.proposed_for(problem, 0)
    own = gemm_of(*(layout_of(np.zeros(shape, "float32", order)) for shape, order in zip(shapes, orders, strict=True)))  # type: ignore[call-overload]
    assert own is not None and asked == [replace(own, swaps=False)]


def test_the_plan_of_a_thin_product_here_knows_what_it_proposes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both points are as near; the library's time is that of the kernels that it proposes, and nothing is asked for other devices."""
    columns = {"m": (8, 8), "n": (500, 500), "k": (300, 300), "order": (0, 0), "small": (0, 1), "large": (1, 1)}
    device = pointed((1.0, 4.0), (1.0, 4.0), **columns)
    monkeypatch.setattr(devices_here, "_described", lambda named, index: device)
    monkeypatch.setattr(devices_here, "index_of_gpu", lambda: 0)
    monkeypatch.setattr(devices_here, "gpu_here", lambda: ("a GPU", 1))
    times, asked = [], []
    for kernels in (("55.11.31", "55.15.31"), ("55.15.31", "55.15.31"), None):

        def proposed_for(problem: Problem, index: int, found: Any = kernels) -> Any:
            asked.append(problem)
            return found

        monkeypatch.setattr(cublas_lt, "proposed_for", proposed_for)
        auto._chosen.cache_clear()
        times.append(next(one.ms or 0.0 for one in auto.plan(500, 300, 8, "float32").candidates if one.strategy == LIBRARY))
    auto._chosen.cache_clear()
    assert times[0] < times[2] < times[1] and len(asked) == 3
    auto.plan(500, 300, 8, "float32", device="h200")
    auto.plan(500, 300, 500, "float32")
    assert len(asked) == 3
