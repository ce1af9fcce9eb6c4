"""The engine on a real GPU, beside the classical product in integers. Skipped without one; `--require-gpu` makes that a failure."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bilinear
from bilinear.errors import BilinearError
from bilinear.ir.plan import TILES

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
MIXED = [
    (("winograd_depth_first", "winograd"), "preserve"),
    (("winograd_in_place", "winograd"), "restore"),
    (("laderman", "winograd"), "preserve"),
]
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
@pytest.mark.parametrize(("name", "inputs", "levels"), CASES)
def test_integers_come_out_bit_for_bit(name: str, inputs: Any, levels: int, dtype: str) -> None:
    for number, (m, k, n) in enumerate(SHAPES):
        whole = [integers(shape, number) for shape in ((m, k), (k, n), (m, n))]
        for orders in ("CCC", "FCF", "CFC", "SSS"):
            a, b, c = (on_gpu(x, dtype, order) for x, order in zip(whole, orders, strict=True))
            bilinear.matmul(a, b, c, alpha=2, beta=-1, algorithm=name, levels=levels, inputs=inputs)
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


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("shape", SHAPES[:3])
def test_every_tile_is_exact(shape: tuple[int, int, int], tile: int, dtype: str) -> None:
    m, k, n = shape
    x, y = integers((m, k), 1), integers((k, n), 2)
    choice = bilinear.plan(m, k, n, dtype, device="h200", levels=("winograd",))
    choice = replace(choice, candidates=(replace(choice.chosen, tile=tile), *choice.candidates[1:]))
    for order in "CFS":
        c = cupy().full((m, n), np.nan, dtype)
        bilinear.matmul(on_gpu(x, dtype, order), on_gpu(y, dtype, order), c, plan=choice)
        np.testing.assert_array_equal(c.get(), x @ y)


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


def test_nothing_is_allocated_in_place_after_warm_up() -> None:
    xp = cupy()
    a, b = (xp.random.default_rng(1).standard_normal((1500, 1500)) for _ in range(2))
    c = xp.empty((1500, 1500))
    for levels in (1, 2, 3):
        bilinear.matmul(a, b, c, algorithm="msmes", levels=levels, inputs="restore")
        pool = xp.get_default_memory_pool()
        before = pool.used_bytes(), pool.total_bytes(), xp.cuda.runtime.memGetInfo()[0]
        bilinear.matmul(a, b, c, algorithm="msmes", levels=levels, inputs="restore")
        assert (pool.used_bytes(), pool.total_bytes(), xp.cuda.runtime.memGetInfo()[0]) == before


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


def test_complex_half_and_auto_go_to_the_library() -> None:
    xp = cupy()
    for dtype in ("complex64", "complex128", "float16"):
        a = xp.ones((64, 64), dtype)
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
            filled.copy_(a)  # the stream is busy: what does not wait for it multiplies zeros or garbage
        c = bilinear.matmul(filled, b, algorithm="winograd", levels=2)
        doubled = c * 2
    side.synchronize()
    assert bool((doubled.cpu().long() == 2 * wanted).all())
    assert pool.total_bytes() == held
    assert torch.cuda.max_memory_allocated() == used + int((8.5625 + 2) * a.nbytes)
    del c, doubled, filled
    assert torch.cuda.memory_allocated() == used


def test_an_output_folder_runs_without_us(tmp_path: Path) -> None:
    bilinear.compile("msmes", levels=2, output=tmp_path / "built", architectures=("sm_80", "sm_90", "compute_90"))
    example = Path(__file__).parents[2] / "examples" / "run_without_bilinear.py"
    done = subprocess.run([sys.executable, str(example), str(tmp_path / "built")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "without" not in done.stderr
