"""Thin products through `matmul`, on a pretended GPU that runs the emitted kernels: exact, and in memory as promised."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import product
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from choices import in_thin_tile, running
from runtime.pretended_gpu import Array, Device, Gpu

import bilinear
from bilinear.backends import bound_launches, capture, loaded_kernels
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.emulator import skip_reason
from bilinear.errors import BilinearError, StageError, fail
from bilinear.ir.element import ELEMENTS
from bilinear.ir.thin_tile import THIN_TILES, ThinTriplesTile
from bilinear.methods import program
from bilinear.methods.planning import load_plan, make_plan
from bilinear.methods.thin.choice import thin_of
from bilinear.planner.device_files import load_device
from bilinear.planner.kept_plans import save_plan
from bilinear.planner.plan import Plan
from bilinear.planner.problem import Problem
from bilinear.runtime import auto
from bilinear.runtime.ahead import kernels_of
from bilinear.runtime.operands import layouts_of

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")
H200 = load_device("h200")
DESCRIBED = "h200"
SHAPES = ((700, 8, 8), (8, 900, 8), (300, 200, 3), (3, 200, 300), (70, 5, 90), (17, 1030, 9))


def integers(shape: tuple[int, int], dtype: str, by_columns: bool = False) -> Any:
    x = np.random.default_rng(sum(shape)).integers(-8, 9, shape).astype(dtype)
    return np.asfortranarray(x) if by_columns else x


def thin_plan(shape: tuple[int, int, int], dtype: str, split: bool, **options: Any) -> Plan:
    """A plan whose first thin candidate has its sums split, or whole."""
    plan = make_plan(Problem(*shape, dtype, **options), H200, explain=True)
    found = [c for c in plan.candidates if c.strategy == "thin" and (thin_of(c).parts > 1) == split]
    return replace(plan, candidates=(found[0],))


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("by_columns", [(), ("A",), ("B", "C"), ("A", "B", "C")])
def test_every_order_is_exact_with_factors(gpu: Gpu, dtype: str, by_columns: tuple[str, ...]) -> None:
    for m, k, n in SHAPES:
        a, b = integers((m, k), dtype, "A" in by_columns), integers((k, n), dtype, "B" in by_columns)
        old = integers((m, n), dtype, "C" in by_columns)
        plan, out = thin_plan((m, k, n), dtype, False, column_major=by_columns), Array(old.copy(order="K"))
        for _ in range(2):  # decided, then found again
            out.host[...] = old
            assert bilinear.matmul(Array(a), Array(b), out, plan=plan, alpha=3, beta=-2) is out
            np.testing.assert_array_equal(out.host, 3 * (a @ b) - 2 * old)
    assert gpu.library == 0


def test_split_sums_take_memory_of_the_pool_or_of_the_caller(gpu: Gpu) -> None:
    a, b = integers((17, 1030), "float32"), integers((1030, 9), "float32")
    plan, out = thin_plan((17, 1030, 9), "float32", True), Array(np.full((17, 9), np.nan, "float32"))
    needed = plan.chosen.workspace
    assert needed == thin_of(plan.chosen).parts * 17 * 9 * 4
    bilinear.matmul(Array(a), Array(b), out, plan=plan)
    np.testing.assert_array_equal(out.host, a @ b)
    assert [launch[0].split("_")[0] for launch in gpu.launches[-2:]] == ["thin", "sum"]
    buffer = Array(np.full(needed, 255, np.uint8))
    out.host[...] = np.nan
    bilinear.matmul(Array(a), Array(b), out, plan=plan, workspace=buffer)
    np.testing.assert_array_equal(out.host, a @ b)
    assert not (buffer.host == 255).all()
    with pytest.raises(BilinearError, match="E529"):
        bilinear.matmul(Array(a), Array(b), out, plan=plan, workspace=Array(np.zeros(needed - 4, np.uint8)))


@pytest.mark.parametrize("by_columns", [(), ("A",), ("B", "C")])
def test_the_kernels_built_ahead_are_those_that_run(gpu: Gpu, by_columns: tuple[str, ...]) -> None:
    for (m, k, n), split in product(((17, 1040, 9), (8, 400, 12), (304, 16, 8)), (False, True)):
        if split and k < 100:
            continue
        plan = thin_plan((m, k, n), "float32", split, column_major=by_columns)
        a, b = (aligned(x, name in by_columns) for x, name in ((integers((m, k), "float32"), "A"), (integers((k, n), "float32"), "B")))
        out = aligned(np.zeros((m, n), np.float32), "C" in by_columns)
        gpu.launches.clear()
        bilinear.matmul(Array(a), Array(b), Array(out), plan=plan)
        assert {name for name, _ in gpu.launches} == {kernel.name for kernel in kernels_of(plan, CudaTarget("sm_90"))}


def test_calls_with_the_callers_workspace_bind_their_launches_once(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    bound = []

    class Counted(bound_launches.BoundLaunches):
        def __init__(self, *arguments: Any) -> None:
            bound.append(arguments)
            super().__init__(*arguments)

    monkeypatch.setattr(program, "BoundLaunches", Counted)
    a, b = integers((17, 1030), "float32"), integers((1030, 9), "float32")
    plan, out = thin_plan((17, 1030, 9), "float32", True), Array(np.zeros((17, 9), "float32"))
    buffer = Array(np.empty(plan.chosen.workspace, np.uint8))
    for _ in range(3):
        out.host[...] = np.nan
        bilinear.matmul(Array(a), Array(b), out, plan=plan, workspace=buffer)
        np.testing.assert_array_equal(out.host, a @ b)
    assert len(bound) == 1


def test_partial_results_belong_to_the_graph_or_to_the_caller(gpu: Gpu) -> None:
    a, b = integers((17, 1030), "float32"), integers((1030, 9), "float32")
    plan, out = thin_plan((17, 1030, 9), "float32", True), Array(np.full((17, 9), np.nan, "float32"))
    for number in range(2):  # decided, then found again
        with gpu.using(is_capturing=True):
            bilinear.matmul(Array(a), Array(b), out, plan=plan)
        assert gpu.of_graph == [plan.chosen.workspace] * (number + 1)
        bilinear.matmul(Array(a), Array(b), out, plan=plan)
    buffer = Array(np.empty(plan.chosen.workspace, np.uint8))
    out.host[...] = np.nan
    with gpu.using(is_capturing=True):
        bilinear.matmul(Array(a), Array(b), out, plan=plan, workspace=buffer)
    np.testing.assert_array_equal(out.host, a @ b)


@pytest.mark.slow
def test_auto_takes_the_thin_kernel_for_matrices_and_the_library_for_stacks(gpu: Gpu) -> None:
    a, b = integers((1_000_000, 8), "float32"), integers((8, 8), "float32")
    assert make_plan(Problem(1_000_000, 8, 8, "float32"), H200).chosen.strategy == "thin"
    np.testing.assert_array_equal(bilinear.matmul(Array(a), Array(b)).host, a @ b)
    assert gpu.launches[-1][0].startswith("thin_") and gpu.library == 0
    stack = np.stack([a, a])
    np.testing.assert_array_equal(bilinear.matmul(Array(stack), Array(b)).host, stack @ b)
    assert gpu.library == 1


def test_auto_leaves_extents_beyond_those_of_plans_to_the_library(gpu: Gpu) -> None:
    tall, b = np.broadcast_to(np.float32(1), (2**31, 4)), np.ones((4, 4), np.float32)
    assert auto.plan_for(layouts_of(Array(tall), Array(b), None), "preserve", None) is None
    assert auto.plan_for(layouts_of(Array(tall[:-1]), Array(b), None), "preserve", None) is not None


def test_infinities_and_nan_spread_as_in_the_classical_multiply(gpu: Gpu) -> None:
    a, b = integers((300, 200), "float64"), integers((200, 3), "float64")
    a[5, 7], a[9, 199], b[0, 1] = np.inf, np.nan, -np.inf
    for split in (False, True):
        out = Array(np.full((300, 3), np.nan))
        bilinear.matmul(Array(a), Array(b), out, plan=thin_plan((300, 200, 3), "float64", split))
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(out.host, a @ b)


def test_a_plan_runs_on_operands_in_another_order_and_not_on_stacks(gpu: Gpu) -> None:
    plan = thin_plan((70, 300, 7), "float32", False)
    a, b = integers((70, 300), "float32", by_columns=True), integers((300, 7), "float32", by_columns=True)
    np.testing.assert_array_equal(bilinear.matmul(Array(a), Array(b), plan=plan).host, a @ b)
    assert gpu.launches and gpu.library == 0
    with pytest.raises(BilinearError, match="E544"):
        bilinear.matmul(Array(np.stack([a, a])), Array(b), plan=plan)


@pytest.mark.parametrize("split", [False, True])
def test_a_plan_whose_out_overlaps_an_operand_runs_its_kernel_aside(gpu: Gpu, split: bool) -> None:
    """C lies where A does: the library would give the same, but a plan says what runs."""
    m, k, n = 17, 1030, 9
    b, plan = integers((k, n), "float32"), thin_plan((m, k, n), "float32", split)
    for alpha, beta in ((1, 0), (3, -2)):
        a = integers((m, k), "float32")
        old = a[:, :n].copy()
        for _ in range(2):
            a[:, :n] = old
            wanted = alpha * (a @ b) + beta * old
            out = Array(a[:, :n])
            assert bilinear.matmul(Array(a), Array(b), out, plan=plan, alpha=alpha, beta=beta) is out
            np.testing.assert_array_equal(out.host, wanted)
    assert gpu.library == 0 and gpu.launches


def test_a_result_aside_counts_as_workspace(gpu: Gpu) -> None:
    m, n, a = 17, 9, integers((17, 1030), "float32")
    b, old, plan = integers((1030, 9), "float32"), a.copy(), thin_plan((17, 1030, 9), "float32", True)
    out, needed = Array(a[:, :n]), (plan.chosen.workspace or 0) + m * n * 4
    with pytest.raises(BilinearError, match=rf"E535.*a result aside from out.*{needed} bytes.*(?s:.)*give an out that overlaps no operand"):
        bilinear.matmul(Array(a), Array(b), out, plan=plan, workspace=needed - 1)
    np.testing.assert_array_equal(a, old)
    with gpu.using(is_capturing=True):
        bilinear.matmul(Array(a), Array(b), out, plan=plan, workspace=needed)
    np.testing.assert_array_equal(out.host, old @ b)


def test_a_workspace_within_out_is_refused_though_the_result_is_computed_aside(gpu: Gpu) -> None:
    memory = np.zeros(40_000, np.float32)
    a, out = memory[: 17 * 1030].reshape(17, 1030), memory[: 17 * 9].reshape(17, 9)
    b, plan = integers((1030, 9), "float32"), thin_plan((17, 1030, 9), "float32", True)
    with pytest.raises(BilinearError, match="E529"):
        bilinear.matmul(Array(a), Array(b), Array(out), plan=plan, beta=1, workspace=Array(memory.view(np.uint8)))


@pytest.mark.parametrize("split", [False, True])
def test_a_plan_runs_on_vectors(gpu: Gpu, split: bool) -> None:
    """A vector is a row on the left, a column on the right; the call that is found again runs the kernel, too."""
    k, n = 1030, 70
    x, b = integers((1, k), "float64")[0], integers((k, n), "float64")
    cases = ((x, b, (1, k, n)), (np.ascontiguousarray(b.T), x, (n, k, 1)), (x, x, (1, k, 1)))
    for left, right, shape in cases:
        plan = replace(thin_plan((1, k, n), "float64", split), problem=Problem(*shape))  # no tile suits two vectors
        out = Array(np.full(np.shape(left @ right), np.nan))
        for _ in range(3):
            out.host[...] = np.nan
            bilinear.matmul(Array(left), Array(right), out, plan=plan)
            np.testing.assert_array_equal(out.host, left @ right)
            np.testing.assert_array_equal(bilinear.matmul(Array(left), Array(right), plan=plan).host, left @ right)
        bilinear.matmul(Array(left), Array(right), out, plan=plan, alpha=2, beta=-3)
        np.testing.assert_array_equal(out.host, -(left @ right))
    assert gpu.library == 0


@pytest.mark.parametrize("failing", [0, 1])
def test_a_launch_that_the_driver_refuses_is_told_as_of_other_kernels(gpu: Gpu, failing: int) -> None:
    """The first of two launches writes only the workspace, the second one C."""
    a, b = integers((17, 1030), "float32"), integers((1030, 9), "float32")
    plan, out = thin_plan((17, 1030, 9), "float32", True), Array(np.zeros((17, 9), "float32"))
    bilinear.matmul(Array(a), Array(b), out, plan=plan)
    first = len(gpu.launches)

    def refuse(number: int) -> None:
        if number == first + failing:
            raise OSError("CUDA_ERROR_LAUNCH_FAILED")

    with gpu.using(before_launch=refuse), pytest.raises(StageError, match=r"a thin product failed: OSError: CUDA_ERROR") as caught:
        bilinear.matmul(Array(a), Array(b), out, plan=plan)
    assert caught.value.undefined == (("C",) if failing else ()) and caught.value.changed == ()


TRIPLES = [name for name, tile in THIN_TILES["float32"].items() if isinstance(tile, ThinTriplesTile)]


def plan_in_tile(shape: tuple[int, int, int], dtype: str, tile: str, parts: int) -> Plan:
    """A plan for a tile by its name."""
    plan = thin_plan(shape, dtype, False)
    return replace(plan, candidates=(in_thin_tile(plan.chosen, plan.problem, tile, parts),))


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", TRIPLES)
def test_a_tile_by_triples_runs_by_its_name(gpu: Gpu, name: str) -> None:
    tile = THIN_TILES["float32"][name]
    m, k, n = 2 * tile.m + 3, tile.k if tile.keeps else 5 * tile.k + 7, tile.n
    for parts in (1,) if tile.keeps else (1, 3):
        for by_columns in (False, True):
            a, b = (integers(shape, "float32", by_columns) for shape in ((m, k), (k, n)))
            out = Array(np.full((n, m), np.nan, "float32").T if by_columns else np.full((m, n), np.nan, "float32"))
            bilinear.matmul(Array(a), Array(b), out, plan=plan_in_tile((m, k, n), "float32", name, parts))
            np.testing.assert_array_equal(out.host, a @ b)
    assert any("triples" in launch for launch, _ in gpu.launches) and gpu.library == 0


def test_only_a_measured_device_offers_tiles_whose_slices_warps_fetch() -> None:
    offered = {file: load_device(file).thin_rates("float32") for file in ("a100", "h100", "h200", "b200", "l40s", "rtx4090", "rtx5090")}
    assert [file for file, rates in offered.items() if rates and any("triples" in tile.name for tile in rates.tiles)] == ["h100", "h200"]


def test_triples_run_on_one_architecture_alone() -> None:
    tile = THIN_TILES["float32"]["triples128x64x64-1-2x4"]
    assert [capability for capability in (80, 89, 90, 100, 120) if tile.runs_on(capability)] == [90]


@pytest.mark.parametrize("capability", ["89", "100"])
def test_triples_are_refused_by_other_devices(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, capability: str) -> None:
    monkeypatch.setattr(Device, "compute_capability", capability)
    a, b = integers((300, 70), "float32"), integers((70, 30), "float32")
    plan = plan_in_tile((300, 70, 30), "float32", "triples128x48x64-1-3x4", 1)
    with pytest.raises(BilinearError, match=r"E544.*by triples: of sm_90"):
        bilinear.matmul(Array(a), Array(b), plan=plan)


def test_every_tile_reads_every_order() -> None:
    assert all(tile.admits(ELEMENTS[dtype].lanes, False, False) for dtype, tiles in THIN_TILES.items() for tile in tiles.values())


def test_a_plan_comes_back_from_its_file(gpu: Gpu, tmp_path: Any) -> None:
    plan = thin_plan((17, 1030, 9), "float32", True)
    save_plan(plan, tmp_path / "thin.json")
    assert load_plan(tmp_path / "thin.json") == plan


def test_numpy_multiplies_by_a_plan_for_the_thin_kernel() -> None:
    a, b = integers((700, 8), "float32"), integers((8, 8), "float32")
    np.testing.assert_array_equal(bilinear.matmul(a, b, plan=thin_plan((700, 8, 8), "float32", False)), a @ b)


def split_by_auto() -> tuple[Any, Any]:
    """Operands for which `auto` splits the sums of the thin kernel."""
    a, b = integers((8, 200_000), "float32"), integers((200_000, 8), "float32")
    assert thin_of(make_plan(Problem(8, 200_000, 8, "float32"), H200).chosen).parts > 1
    return a, b


@pytest.mark.parametrize("is_known", [False, True])
def test_auto_takes_the_library_where_memory_for_partial_results_is_short(gpu: Gpu, is_known: bool) -> None:
    a, b = split_by_auto()
    out = Array(np.full((8, 8), np.nan, "float32"))
    if is_known:
        bilinear.matmul(Array(a), Array(b), out)
        assert gpu.library == 0
        out.host[...] = np.nan

    def refuse(count: int) -> None:
        raise MemoryError(f"no {count} bytes")

    with gpu.using(allocate=refuse):
        bilinear.matmul(Array(a), Array(b), out)
        assert gpu.library == 1
        np.testing.assert_array_equal(out.host, a @ b)
        with pytest.raises(MemoryError):
            bilinear.matmul(Array(a), Array(b), out, plan=thin_plan((8, 200_000, 8), "float32", True))


def test_auto_takes_the_library_where_the_kernel_cannot_be_built(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(kernel: Any, built: Any) -> Any:
        raise fail("E531", "too much")

    monkeypatch.setattr(loaded_kernels, "_function", refuse)
    a, b = split_by_auto()
    for number in (1, 2):
        np.testing.assert_array_equal(bilinear.matmul(Array(a), Array(b)).host, a @ b)
        assert gpu.library == number
    with pytest.raises(BilinearError, match="E531"):
        bilinear.matmul(Array(a), Array(b), plan=thin_plan((8, 200_000, 8), "float32", True))


def test_a_repeat_decides_anew_where_the_kernel_for_other_addresses_cannot_be_built(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(kernel: Any, built: Any) -> Any:
        raise fail("E531", "too much")

    a, b = split_by_auto()
    memory = aligned_memory(a.size + 4)
    even, odd = (memory[first : first + a.size].reshape(a.shape) for first in (0, 1))
    even[...], right = a, aligned_memory(b.size).reshape(b.shape)
    right[...] = b
    out = aligned_memory(64).reshape(8, 8)
    bilinear.matmul(Array(even), Array(right), Array(out))
    monkeypatch.setattr(loaded_kernels, "_function", refuse)
    odd[...], out[...] = a, np.nan
    bilinear.matmul(Array(odd), Array(right), Array(out))
    np.testing.assert_array_equal(out, a @ b)
    assert gpu.library == 1


def aligned_memory(elements: int) -> Any:
    """Memory for floats at a multiple of 16 bytes."""
    memory = np.zeros(elements + 4, np.float32)
    first = -memory.ctypes.data % 16 // 4
    return memory[first : first + elements]


def aligned(x: Any, by_columns: bool) -> Any:
    """A copy at a multiple of 16 bytes."""
    copy = aligned_memory(x.size).reshape(x.shape[::-1] if by_columns else x.shape)
    copy = copy.T if by_columns else copy
    copy[...] = x
    return copy


def test_more_memory_than_is_allowed_is_refused(gpu: Gpu) -> None:
    a, b = integers((17, 1030), "float32"), integers((1030, 9), "float32")
    plan, out = thin_plan((17, 1030, 9), "float32", True), Array(np.full((17, 9), np.nan, "float32"))
    needed = plan.chosen.workspace
    assert needed
    told = rf"E535.*needs {needed} bytes of workspace, {needed - 1} are allowed(?s:.)*sums that are whole need none"
    with pytest.raises(BilinearError, match=told):
        bilinear.matmul(Array(a), Array(b), out, plan=plan, workspace=needed - 1)
    assert not gpu.launches and np.isnan(out.host).all()
    bilinear.matmul(Array(a), Array(b), out, plan=plan, workspace=needed)
    np.testing.assert_array_equal(out.host, a @ b)


def test_a_workspace_between_elements_is_refused(gpu: Gpu) -> None:
    a, b = integers((17, 1030), "float32"), integers((1030, 9), "float32")
    split = thin_plan((17, 1030, 9), "float32", True)
    for plan in (split, bilinear.plan(17, 1030, 9, "float32", device="h200", levels=("winograd",))):
        buffer = np.zeros(1 << 20, np.uint8)[1:]
        with pytest.raises(BilinearError, match=r"E529.*not a multiple of 4"):
            bilinear.matmul(Array(a), Array(b), plan=plan, workspace=Array(buffer))
    out = Array(np.full((17, 9), np.nan, "float32"))
    bilinear.matmul(Array(a), Array(b), out, plan=split, workspace=Array(np.zeros(1 << 20, np.uint8)[4:]))
    np.testing.assert_array_equal(out.host, a @ b)


@pytest.mark.parametrize(
    ("fields", "why"), [({"parts": 0}, "parts of sums"), ({"swaps": True}, "this way round"), ({"tile": "usual"}, "no tile")]
)
def test_forged_thin_plans_are_refused(tmp_path: Any, fields: dict[str, Any], why: str) -> None:
    plan = make_plan(Problem(1_000_000, 8, 8, "float32"), H200)
    save_plan(replace(plan, candidates=(running(plan.chosen, **fields),)), tmp_path / "plan.json")
    with pytest.raises(BilinearError, match=f"E545.*{why}"):
        load_plan(tmp_path / "plan.json")


def test_a_kernel_with_more_shared_memory_than_the_gpu_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusal(RuntimeError):
        pass

    def refuse(*_: int) -> None:
        raise Refusal("CUDA_ERROR_INVALID_VALUE")

    cuda, loading = ModuleType("cupy.cuda"), ModuleType("cupy.cuda.function")
    module = SimpleNamespace(load=lambda image: None, get_function=lambda name: SimpleNamespace(ptr=1))
    vars(cuda)["driver"] = SimpleNamespace(
        funcGetAttribute=lambda attribute, function: 32, funcSetAttribute=refuse, CUDADriverError=Refusal
    )
    vars(loading)["Module"] = lambda: module
    for found in (ModuleType("cupy"), cuda, loading):
        monkeypatch.setitem(sys.modules, found.__name__, found)
    modes = []

    def exchange(mode: Any) -> None:
        modes.append(mode._obj.value)
        mode._obj.value = 0

    monkeypatch.setattr(capture, "cuda_driver", lambda: SimpleNamespace(cuThreadExchangeStreamCaptureMode=exchange))
    with pytest.raises(BilinearError, match=r"E531.*thin needs 172032 bytes of shared memory"):
        loaded_kernels.load_function(b"", "thin", 172_032)
    assert modes == [capture.RELAXED, 0], "a kernel is loaded in the relaxed mode of capture, and the thread has its own mode afterwards"
