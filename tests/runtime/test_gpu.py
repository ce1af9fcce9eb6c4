"""The engine on a real GPU, compared with the classical product in integers. Skipped without one; `--require-gpu` makes that a failure."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from choices import running

import bilinear
from bilinear.backends.cublas import multiply_of, suits_lt
from bilinear.backends.cublas_lt import launch_of
from bilinear.backends.gemm import gemm_of
from bilinear.errors import BilinearError
from bilinear.ir.matrix import layout_of
from bilinear.ir.tile import LARGE, TILES
from bilinear.planner.device import LibraryRules
from bilinear.planner.plan import Panel
from bilinear.planner.scheduled import Scheduled
from bilinear.planner.ways import hashes
from bilinear.runtime import replay
from bilinear.runtime.options import Options
from bilinear.runtime.replay import replays

pytestmark = pytest.mark.gpu

CASES = [
    ("msmes", "restore", 1),
    ("msmes", "restore", 2),
    ("msmes", "restore", 3),
    ("msmes", "consume", 2),
    ("strassen", "preserve", 1),
    ("strassen", "preserve", 3),
    ("winograd", "preserve", 2),
    ("laderman", "preserve", 1),
    ("laderman", "preserve", 2),
    ("hopcroft_kerr", "preserve", 2),
    ("naive2x2", "preserve", 1),
    ("classical", "preserve", 1),
    ("winograd_depth_first", "preserve", 1),
    ("winograd_depth_first", "preserve", 2),
    ("winograd_in_place", "restore", 2),
]
AT_ONCE = [("msmes", "restore", 2), ("winograd_in_place", "restore", 1), ("laderman_in_place", "consume", 1)]
MIXED = [
    (("winograd_depth_first", "winograd"), "preserve"),
    (("winograd_in_place", "winograd"), "restore"),
    (("laderman", "winograd"), "preserve"),
]
WIDE = ("float32", "float64")  # Types that hold the integers of these tests, and their sums.
SHAPES = [(256, 256, 256), (1000, 333, 517), (129, 2050, 67), (5, 4000, 3), (1, 1, 1)]


def cupy() -> Any:
    return pytest.importorskip("cupy")


def integers(shape: tuple[int, int], seed: int) -> Any:
    return np.random.default_rng(seed).integers(-4, 5, shape)


def on_gpu(x: Any, dtype: str, order: str) -> Any:
    """A device copy in row order, column order, or with gaps of NaN between rows and columns."""
    if order != "S":
        return cupy().array(x, dtype, order=order)
    wide = cupy().full((x.shape[0] * 2, x.shape[1] * 2), np.nan, dtype)
    wide[::2, ::2] = cupy().asarray(x)
    return wide[::2, ::2]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("name", "inputs", "levels", "contention"), [*((*case, "colours") for case in CASES), *((*case, "atomics") for case in AT_ONCE)]
)
def test_integers_come_out_bit_for_bit(name: str, inputs: Any, levels: int, contention: Any, dtype: str) -> None:
    for number, (m, k, n) in enumerate(SHAPES):
        whole = [integers(shape, number) for shape in ((m, k), (k, n), (m, n))]
        for orders in ("CCC", "FCF", "CFC", "SSS"):
            a, b, c = (on_gpu(x, dtype, order) for x, order in zip(whole, orders, strict=True))
            bilinear.matmul(a, b, c, alpha=2, beta=-1, algorithm=name, levels=levels, inputs=inputs, contention=contention)
            np.testing.assert_array_equal(c.get(), 2 * (whole[0] @ whole[1]) - whole[2])
            if inputs != "consume":
                np.testing.assert_array_equal(a.get(), whole[0])
                np.testing.assert_array_equal(b.get(), whole[1])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("levels", "inputs"), MIXED)
def test_a_plan_of_different_levels_is_exact(levels: tuple[str, ...], inputs: str, dtype: str) -> None:
    m, k, n = 1000, 333, 517
    left, right = integers((m, k), 1), integers((k, n), 2)
    a, b, c = (on_gpu(x, dtype, "C") for x in (left, right, np.full((m, n), np.nan)))
    bilinear.matmul(a, b, c, alpha=3, plan=bilinear.plan(m, k, n, dtype, device="h200", inputs=inputs, levels=levels))
    np.testing.assert_array_equal(c.get(), 3 * (left @ right))
    np.testing.assert_array_equal(a.get(), left)
    np.testing.assert_array_equal(b.get(), right)


@pytest.mark.parametrize(("dtype", "tile"), [(dtype, tile) for dtype in WIDE for tile in TILES[dtype]])
@pytest.mark.parametrize("shape", SHAPES[:3])
def test_every_tile_is_exact(shape: tuple[int, int, int], tile: str, dtype: str) -> None:
    m, k, n = shape
    x, y = integers((m, k), 1), integers((k, n), 2)
    choice = bilinear.plan(m, k, n, dtype, device="h200", levels=("winograd",))
    choice = replace(choice, candidates=(running(choice.chosen, tile=tile), *choice.candidates[1:]))
    for order in "CFS":
        c = cupy().full((m, n), np.nan, dtype)
        bilinear.matmul(on_gpu(x, dtype, order), on_gpu(y, dtype, order), c, plan=choice)
        np.testing.assert_array_equal(c.get(), x @ y)


@pytest.mark.parametrize(("dtype", "tile"), [(dtype, tile) for dtype in WIDE for tile in TILES[dtype]])
def test_rows_that_begin_anywhere_are_exact(tile: str, dtype: str) -> None:
    """Views of several tiles and slices, surrounded by NaN, whose rows begin at any element; the result is such a view, too."""
    m, k, n = 300, 129, 261
    x, y = integers((m, k), 1), integers((k, n), 2)
    choice = bilinear.plan(m, k, n, dtype, device="h200", levels=("classical",), accumulate=True)
    choice = replace(choice, candidates=(running(choice.chosen, tile=tile), *choice.candidates[1:]))
    for late in range(4):
        for longer in range(4):
            wide = [cupy().full((rows, late + columns + longer), np.nan, dtype) for rows, columns in ((m, k), (k, n), (m, n))]
            a, b, c = (w[:, late : w.shape[1] - longer] for w in wide)
            a[...], b[...], c[...] = cupy().asarray(x), cupy().asarray(y), 1
            bilinear.matmul(a, b, c, beta=-1, plan=choice)
            np.testing.assert_array_equal(c.get(), x @ y - 1)
            outside = wide[2].size - int(cupy().isnan(wide[2]).sum())
            assert outside == m * n, "nothing beside the result is written"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(4099, 4099, 4099), (6001, 7003, 5005)])
def test_cores_of_whole_sectors_are_exact(shape: tuple[int, int, int], dtype: str) -> None:
    m, k, n = shape
    x, y = (integers(sides, 3).astype(dtype) for sides in ((m, k), (k, n)))
    wanted = x @ y  # partial sums stay below 2**24, so the library on the CPU is exact, too
    cases: tuple[tuple[str, Any, str], ...] = (("winograd", "preserve", "C"), ("winograd", "preserve", "F"), ("msmes", "restore", "C"))
    for name, inputs, order in cases:
        a, b, c = on_gpu(x, dtype, order), on_gpu(y, dtype, order), cupy().full((m, n), np.nan, dtype)
        bilinear.matmul(a, b, c, algorithm=name, levels=2, inputs=inputs)
        np.testing.assert_array_equal(c.get(), wanted)
        np.testing.assert_array_equal(a.get(), x)
        np.testing.assert_array_equal(b.get(), y)


def test_matrices_of_more_than_2_to_the_31_elements() -> None:
    """One after the other, because each needs tens of gigabytes."""
    xp = cupy()
    cases: tuple[tuple[str, Any], ...] = (("classical", "preserve"), ("winograd", "preserve"), ("msmes", "restore"))
    for m, k, n in ((46400, 8, 46400), (46400, 46400, 8), (8, 46400, 46400)):
        x, y = (np.random.default_rng(seed).integers(-1, 2, sides, "int8") for seed, sides in enumerate(((m, k), (k, n))))
        a, b, c = xp.asarray(x).astype("float32"), xp.asarray(y).astype("float32"), xp.empty((m, n), "float32")
        assert max(a.size, b.size, c.size) > 2**31
        for name, inputs in cases:
            c.fill(np.nan)
            bilinear.matmul(a, b, c, algorithm=name, levels=1, inputs=inputs)
            rows, columns = [0, m // 2 - 1, m // 2, m - 1], [0, n // 2 - 1, n // 2, n - 1]
            np.testing.assert_array_equal(c[rows].get(), x[rows].astype("float32") @ y.astype("float32"))
            np.testing.assert_array_equal(c[:, columns].get(), x.astype("float32") @ y[:, columns].astype("float32"))
            assert not bool(xp.isnan(c).any())
        del a, b, c
        xp.get_default_memory_pool().free_all_blocks()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("inputs", ["preserve", "restore"])
@pytest.mark.parametrize("order", "CF")
def test_temporaries_in_what_is_computed_later(order: str, inputs: Any, dtype: str) -> None:
    m, k, n = 2100, 1500, 2304
    x, y = (integers(sides, 4).astype(dtype) for sides in ((m, k), (k, n)))
    plan = chained(m, k, n, dtype, inputs, order)
    for _ in range(2):
        a, b, c = (on_gpu(one, dtype, order) for one in (x, y, np.full((m, n), np.nan)))
        before = cupy().get_default_memory_pool().total_bytes()
        bilinear.matmul(a, b, c, plan=plan, workspace="none")
        assert cupy().get_default_memory_pool().total_bytes() == before
        np.testing.assert_array_equal(c.get(), x @ y)
        np.testing.assert_array_equal(a.get(), x)
        np.testing.assert_array_equal(b.get(), y)


def chained(m: int, k: int, n: int, dtype: str, inputs: str, order: str) -> Any:
    """A plan whose first rows of C keep their temporaries in later rows."""
    known = bilinear.plan(m, k, n, dtype, device="h200", levels=("winograd_depth_first", "winograd_depth_first"))
    last = Panel(700, Scheduled(("msmes" if inputs == "restore" else "classical",), inputs, tile=LARGE))
    first = running(known.chosen, 0, rest=(Panel(400, Scheduled(("winograd_depth_first",))), last))
    by_column = ("C",) if order == "F" else ()
    problem = replace(known.problem, inputs=inputs, column_major=by_column)
    return replace(known, problem=problem, candidates=(first,), sha256=hashes(first.all_levels))


def test_nothing_is_allocated_in_place_after_warm_up() -> None:
    """In one of some tries: what is free on the device changes with other processes, too."""
    xp = cupy()
    a, b = (xp.random.default_rng(1).standard_normal((1500, 1500)) for _ in range(2))
    c, pool = xp.empty((1500, 1500)), xp.get_default_memory_pool()

    def held() -> tuple[int, ...]:
        return pool.used_bytes(), pool.total_bytes(), xp.cuda.runtime.memGetInfo()[0]

    def allocates(levels: int) -> bool:
        before = held()
        bilinear.matmul(a, b, c, algorithm="msmes", levels=levels, inputs="restore")
        return held() != before

    for levels in (1, 2, 3):
        allocates(levels)
        assert not all(allocates(levels) for _ in range(20))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_two_runs_give_the_same_bits(dtype: str) -> None:
    xp = cupy()
    a, b = (xp.random.default_rng(2).standard_normal((700, 700), dtype=dtype) for _ in range(2))
    cases: tuple[tuple[str, Any], ...] = (("msmes", "restore"), ("winograd", "preserve"))
    for name, inputs in cases:
        outs = [xp.full((700, 700), np.nan, dtype) for _ in range(2)]
        first, second = (bilinear.matmul(a.copy(), b.copy(), out, algorithm=name, levels=2, inputs=inputs) for out in outs)
        assert bool((first.view("uint8") == second.view("uint8")).all())


def test_the_current_stream_is_used() -> None:
    xp = cupy()
    stream = xp.cuda.Stream(non_blocking=True)
    a, b = xp.ones((512, 512)), xp.ones((512, 512))
    with stream:
        c = bilinear.matmul(a, b, algorithm="strassen")
    stream.synchronize()
    assert bool((c == 512).all())
    d = bilinear.matmul(a, b, algorithm="strassen", stream=stream)
    stream.synchronize()
    assert bool((d == 512).all())


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_cannot_be_restored_are_refused_before_anything_is_written(value: float) -> None:
    xp = cupy()
    a, b = xp.ones((300, 300)), xp.ones((300, 300))
    b[299, 7] = value
    c = xp.full((300, 300), 5.0)
    with pytest.raises(BilinearError, match="Inf or a NaN"):
        bilinear.matmul(a, b, c, algorithm="msmes", inputs="restore")
    assert bool((c == 5).all())
    assert bool((a == 1).all())


def test_operands_that_share_memory_are_refused() -> None:
    xp = cupy()
    a = xp.ones((300, 300))
    for left, right in ((a, a), (a, a.T)):
        with pytest.raises(BilinearError, match="share memory"):
            bilinear.matmul(left, right, algorithm="msmes", inputs="restore")
    wide = xp.ones((300, 600))
    c = bilinear.matmul(wide[:, :300], wide[:, 300:], algorithm="msmes", inputs="restore")
    assert bool((c == 300).all())


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize(("alpha", "beta"), [(1, 0), (2 - 1j, 3j)])
def test_complex_matrices_are_multiplied_by_real_products(dtype: str, alpha: complex, beta: complex) -> None:
    xp, generator = cupy(), np.random.default_rng(0)
    a, b, c = (
        (generator.integers(-4, 5, s) + 1j * generator.integers(-4, 5, s)).astype(dtype) for s in ((301, 260), (260, 275), (301, 275))
    )
    for x, y in ((a, b), (np.asfortranarray(a), b), (np.repeat(a, 2, 1)[:, ::2], np.asfortranarray(b))):
        out = xp.asarray(c)
        bilinear.matmul(xp.asarray(x), xp.asarray(y), out, alpha=alpha, beta=beta, algorithm="winograd", levels=2)
        np.testing.assert_array_equal(out.get(), alpha * (a @ b) + beta * c)


def test_half_precision_runs_by_name() -> None:
    xp = cupy()
    a = xp.ones((64, 64), "float16")
    assert bool((bilinear.matmul(a, a, algorithm="strassen") == 64).all())
    a = xp.ones((64, 64))
    assert bool((bilinear.matmul(a, a) == 64).all())


def test_torch_tensors_come_back_as_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    a, b = torch.ones((300, 200), device="cuda", dtype=torch.float64), torch.ones((200, 100), device="cuda", dtype=torch.float64)
    c = bilinear.matmul(a, b, algorithm="strassen", levels=1)
    assert isinstance(c, torch.Tensor)
    assert c.device.type == "cuda"
    assert bool((c == 200).all())
    out = torch.empty((300, 100), device="cuda", dtype=torch.float64)
    assert bilinear.matmul(a, b, out, algorithm="msmes", inputs="restore") is out
    torch.cuda.synchronize()
    assert bool((out == 200).all())


def test_memory_for_tensors_is_pytorchs_and_its_stream_is_used() -> None:
    torch = pytest.importorskip("torch")
    pool = cupy().get_default_memory_pool()
    a, b = (torch.randint(-4, 5, (1024, 1024), device="cuda").to(torch.float32) for _ in range(2))
    wanted = torch.from_numpy(a.cpu().numpy().astype("int64") @ b.cpu().numpy().astype("int64"))
    bilinear.matmul(a, b, algorithm="winograd", levels=2)  # builds and loads
    torch.cuda.synchronize()
    pool.free_all_blocks()
    held, used = pool.total_bytes(), torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        filled = torch.empty_like(a)
        for _ in range(50):
            filled.copy_(a)  # the stream is busy: a multiply that does not wait for it gets zeros or garbage
        c = bilinear.matmul(filled, b, algorithm="winograd", levels=2)
        doubled = c * 2
    side.synchronize()
    assert bool((doubled.cpu().long() == 2 * wanted).all())
    assert pool.total_bytes() == held
    assert torch.cuda.max_memory_allocated() == used + int((8.5625 + 2) * a.nbytes)
    del c, doubled, filled
    assert torch.cuda.memory_allocated() == used


@pytest.mark.parametrize(("algorithm", "dtypes"), [("msmes", ("float64", "float32")), ("winograd", ("complex64", "complex128"))])
def test_an_output_folder_runs_without_us(algorithm: str, dtypes: tuple[str, ...], tmp_path: Path) -> None:
    bilinear.compile(algorithm, levels=2, dtypes=dtypes, output=tmp_path / "built", architectures=("sm_80", "sm_90", "compute_90"))
    example = Path(__file__).parents[2] / "examples" / "run_without_bilinear.py"
    done = subprocess.run([sys.executable, str(example), str(tmp_path / "built")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "without" not in done.stderr


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_parts_of_complex_matrices_that_are_matrices_of_their_own(dtype: str) -> None:
    generator = np.random.default_rng(8)
    a, ai, b, bi = (generator.integers(-4, 5, (300, 300)) for _ in range(4))
    x, xi, y, yi = (cupy().asarray(z, dtype, order=order) for z, order in zip((a, ai, b, bi), "CFCF", strict=True))
    real, imaginary = bilinear.matmul_parts((x, xi), (y, yi), levels=1)
    np.testing.assert_array_equal(real.get(), a @ b - ai @ bi)
    np.testing.assert_array_equal(imaginary.get(), a @ bi + ai @ b)


@pytest.mark.parametrize(("shape", "even"), [((1100, 2048, 1280), True), ((300, 1001, 777), False)])
@pytest.mark.parametrize("algorithm", ["classical", "walk_444_mod2"])
def test_packed_matrices_over_z2(shape: tuple[int, int, int], even: bool, algorithm: str) -> None:
    (m, k, n), generator = shape, np.random.default_rng(3)
    a, b = (generator.integers(0, 2, extents, dtype=np.uint8) for extents in ((m, k), (k, n)))
    x, y = (cupy().asarray(np.packbits(z, axis=1)) for z in (a, b))
    if not even:
        x = cupy().pad(x, ((0, 0), (1, 2)))[:, 1:-2]
    found = bilinear.matmul_bits(x, y, algorithm=algorithm)
    assert isinstance(found, cupy().ndarray)
    wanted = (a.astype(np.float32) @ b.astype(np.float32)).astype(np.int64) % 2
    np.testing.assert_array_equal(np.unpackbits(found.get(), axis=1, count=n), wanted)


def by_cublas(x: Any, dtype: str, order: str) -> Any:
    """A device copy in row or column order, with or without NaN between rows or columns, in the middle of other memory."""
    if order in "CF":
        return cupy().array(x, dtype, order=order)
    rows, columns = x.shape
    memory = cupy().full((rows + 2, columns + 5) if order == "c" else (rows + 5, columns + 2), np.nan, dtype, order=order.upper())
    view = memory[1 : rows + 1, 2 : columns + 2]
    view[...] = cupy().asarray(x)
    return view


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(256, 256, 256), (129, 250, 67), (300, 1, 200), (1, 300, 200), (300, 200, 1), (1, 300, 1), (1, 1, 1)])
def test_the_librarys_multiply_is_exact_in_every_layout(shape: tuple[int, int, int], dtype: str) -> None:
    """It is one call, the first time and repeated; gaps stay NaN, and with beta = 0 C is not read."""
    m, k, n = shape
    whole = [integers(sides, number) for number, sides in enumerate(((m, k), (k, n), (m, n)))]
    for orders in product("CFcf", repeat=3):
        for alpha, beta in ((1, 0), (1, 0), (-0.5, 3), (0, 2)):
            a, b, c = (by_cublas(x, dtype, order) for x, order in zip(whole, orders, strict=True))
            assert multiply_of(layout_of(a), layout_of(b), layout_of(c)) is not None
            if beta == 0:
                c[...] = np.nan
            assert bilinear.matmul(a, b, c, alpha=alpha, beta=beta, levels=0) is c
            np.testing.assert_array_equal(c.get(), alpha * (whole[0] @ whole[1]) + beta * whole[2])
            np.testing.assert_array_equal(a.get(), whole[0])
            np.testing.assert_array_equal(b.get(), whole[1])
            for x in (a, b, c):
                assert x.base is None or int(cupy().isnan(x.base).sum()) == x.base.size - x.size
        a, b = (by_cublas(x, dtype, order) for x, order in zip(whole[:2], orders[:2], strict=True))
        np.testing.assert_array_equal(bilinear.matmul(a, b, alpha=2, levels=0).get(), 2 * (whole[0] @ whole[1]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("inner", [LibraryRules().short_sum, 512])
def test_the_librarys_multiply_is_as_precise_as_its_type(inner: int, dtype: str) -> None:
    """Products of numbers of 24 bits are wrong in TF32, which has 11."""
    x = np.random.default_rng(5).standard_normal((512, inner)).astype(dtype)
    a = cupy().asarray(x)
    wanted = x.astype("float64") @ x.T.astype("float64")
    error = np.abs(bilinear.matmul(a, a.T, levels=0).get() - wanted).max() / np.abs(wanted).max()
    assert error < 64 * np.finfo(dtype).eps


FLOATS = [(1, 1, 1), (18153, 46, 2), (2, 17, 9999), (513, LibraryRules().short_sum, 511), (25, 249, 43)]
DOUBLES = [(17844, 21, 700), (363, 363, 363), (13622, 10, 4), (1, 6164, 1), (1, 2**15 - 1, 1)]


@pytest.mark.parametrize(("shape", "dtype"), [*((s, "float32") for s in FLOATS), *((s, "float64") for s in DOUBLES)])
def test_cublaslt_runs_what_suits_it(shape: tuple[int, int, int], dtype: str) -> None:
    m, k, n = shape
    x, y = integers((m, k), 1), integers((k, n), 2)
    a, b = (cupy().asarray(z, dtype=dtype) for z in (x, y))
    c = cupy().full((m, n), np.nan, dtype)
    gemm = gemm_of(*map(layout_of, (a, b, c)))
    assert gemm is not None and suits_lt(gemm, a.dtype)
    launch = launch_of(gemm, a.dtype, cupy().cuda.runtime.getDevice())
    factors = np.array([1, 0], dtype)
    addresses = (b.data.ptr, a.data.ptr) if gemm.swaps else (a.data.ptr, b.data.ptr)
    handle, one = int(cupy().cuda.Device().cublas_handle), factors.ctypes.data
    assert launch is not None and launch(handle, *addresses, c.data.ptr, one, one + a.itemsize, 0)
    np.testing.assert_array_equal(c.get(), x @ y)
    for _ in range(2):
        c[...] = np.nan
        bilinear.matmul(a, b, c, levels=0)
        np.testing.assert_array_equal(c.get(), x @ y)


def test_the_librarys_multiply_runs_on_the_current_stream_of_each_thread() -> None:
    xp = cupy()
    wanted = integers((1024, 1024), 1)

    def multiply(_: int) -> bool:
        stream = xp.cuda.Stream(non_blocking=True)
        with stream:
            a, b, c = xp.zeros((1024, 1024)), xp.asarray(wanted, "float64"), xp.empty((1024, 1024))
            identity = xp.eye(1024)
            for _ in range(50):
                xp.copyto(a, identity * 3)  # the stream is busy: a multiply that does not wait for it gets zeros
            bilinear.matmul(a, b, c, levels=0)
            doubled = c * 2
        d = xp.empty((1024, 1024))
        stream.synchronize()
        bilinear.matmul(a, b, d, levels=0, stream=stream)
        stream.synchronize()
        return bool((doubled.get() == 6 * wanted).all() and (d.get() == 3 * wanted).all())

    assert multiply(0)
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(multiply, range(8)))


def test_what_calls_keep_is_given_back_and_results_stay() -> None:
    xp = cupy()
    bilinear.free()
    pool, x = xp.get_default_memory_pool(), xp.ones((1024, 1024), "float32")
    c = bilinear.matmul(x, x, algorithm="winograd", levels=2)
    held = pool.total_bytes()
    assert bilinear.free() == held - pool.total_bytes() > 0
    assert pool.total_bytes() >= x.nbytes + c.nbytes and bool((c == 1024).all())


def test_what_c_repeats_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """C's calls, after Python's, of the library, thin tiles and schedules, in both orders, into `out` and new arrays, on two streams."""
    import cupy

    replay._begin()
    deadline = time.monotonic() + 60
    while replays.again is None and not replays.is_refused and time.monotonic() < deadline:
        time.sleep(0.1)
    if replays.again is None:
        pytest.skip("C cannot be built here")
    calls, asked_of_python = 0, []

    def noted(*given: Any, **named: Any) -> Options:  # C answers a call before Python makes its options
        asked_of_python.append(given)
        return Options(*given, **named)

    monkeypatch.setattr(sys.modules[bilinear.matmul.__module__], "Options", noted)
    generator = np.random.default_rng(9)
    options: list[dict[str, Any]] = [{}, {"algorithm": bilinear.load("winograd"), "levels": 1}]
    shapes = (64, 64, 64), (257, 129, 65), (512, 384, 640), (4096, 3, 128), (1024, 1024, 1024), (96, 1000, 40)
    for (m, k, n), dtype, order, asked in product(shapes, ("float32", "float64"), ("CC", "FC", "CF"), options):
        x, y = generator.integers(-4, 5, (m, k)).astype(float), generator.integers(-4, 5, (k, n)).astype(float)
        a, b = (cupy.asarray(whole.astype(dtype), order=o) for whole, o in zip((x, y), order, strict=True))
        for given, call in product((True, False), range(5)):
            with cupy.cuda.Stream(non_blocking=True) if call == 4 else cupy.cuda.Stream.null:
                out = cupy.full((m, n), -7, dtype) if given else None
                found = cupy.asnumpy(bilinear.matmul(a, b, out, **asked))
            np.testing.assert_array_equal(found, x @ y, f"{m} x {k} x {n} {dtype} {order}, call {call}")
            calls += 1
    assert len(asked_of_python) < 9 * calls // 10
