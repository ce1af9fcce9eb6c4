"""Direct calls of the library: the BLAS call for each layout, on integers in host memory, and `matmul` on a pretended GPU."""

from __future__ import annotations

import random
import sys
import threading
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from artifact.built_folders import needs_emulator
from each_case import each
from numpy.lib.stride_tricks import as_strided
from runtime.blas import gemm
from runtime.pretended_gpu import Array, Gpu

import bilinear
from bilinear.backends.gemm import MOST, NOT_TRANSPOSED, TRANSPOSED, Gemm, gemm_of
from bilinear.errors import BilinearError
from bilinear.ir.matrix import Layout, layout_of

DOUBLE = np.dtype("f8")
LAYOUTS = list(product("CF", (0, 3)))
"""Row or column order, and the number of elements between two rows or columns."""
OUTSIDE = -77


def by_rows(rows: int, columns: int) -> Layout:
    return Layout((rows, columns), (8 * columns, 8), DOUBLE)


def laid_out(x: Any, order: Any, gap: int, generator: random.Random) -> tuple[Any, Any]:
    """The matrix in larger memory, and that memory. The stride of a dimension of extent 1 is arbitrary."""
    rows, columns = x.shape
    memory = np.full((rows + 3, columns + gap) if order == "C" else (rows + gap, columns + 3), OUTSIDE, x.dtype, order=order)
    view = memory[2 : rows + 2, :columns] if order == "C" else memory[:rows, 2 : columns + 2]
    strides = [stride if extent > 1 else generator.choice([0, -8, 8, 3, 640]) for stride, extent in zip(view.strides, x.shape, strict=True)]
    view = as_strided(view, x.shape, strides)
    view[...] = x
    return view, memory


@pytest.mark.parametrize("c_layout", LAYOUTS)
def test_every_layout_is_multiplied_in_one_call(c_layout: tuple[str, int]) -> None:
    """By rows or by columns, with and without gaps between them; only C is written."""
    generator, numbers = random.Random(str(c_layout)), np.random.default_rng(3)
    for extents, a_layout, b_layout in product(product((1, 2, 5), repeat=3), LAYOUTS, LAYOUTS):
        m, k, n = extents
        whole = [numbers.integers(-9, 10, shape) for shape in ((m, k), (k, n), (m, n))]
        views, memories = zip(
            *(laid_out(x, *y, generator) for x, y in zip(whole, (a_layout, b_layout, c_layout), strict=True)), strict=True
        )
        a, b, c = views
        before = [memory.copy() for memory in memories]
        asked = gemm_of(*map(layout_of, (a, b, c)))
        assert asked is not None, (extents, a_layout, b_layout, c_layout)
        factors = np.array([3, -2])
        first, second = (b, a) if asked.swaps else (a, b)
        operands = (first.ctypes.data, asked.leading[0], second.ctypes.data, asked.leading[1])
        scalars = (factors.ctypes.data, factors[1:].ctypes.data)
        gemm("i", *asked.operations, *asked.extents, scalars[0], *operands, scalars[1], c.ctypes.data, asked.leading[2])
        np.testing.assert_array_equal(c, 3 * (whole[0] @ whole[1]) - 2 * whole[2])
        c[...] = whole[2]
        for memory, old in zip(memories, before, strict=True):
            np.testing.assert_array_equal(memory, old)


def test_what_can_be_read_both_ways_is_not_transposed() -> None:
    """So row-major matrices and vectors give the same call as the baseline of a benchmark."""
    for m, k, n in product((1, 7), repeat=3):
        a, b, c = (by_rows(*shape) for shape in ((m, k), (k, n), (m, n)))
        assert gemm_of(a, b, c) == Gemm(True, (NOT_TRANSPOSED, NOT_TRANSPOSED), (n, m, k), (n, k, n))
    by_column = [by_rows(*shape[::-1]).T for shape in ((3, 4), (4, 5), (3, 5))]
    assert gemm_of(*by_column) == Gemm(False, (NOT_TRANSPOSED, NOT_TRANSPOSED), (3, 5, 4), (3, 4, 3))
    assert gemm_of(by_column[0], by_rows(4, 5), by_rows(3, 5)) == Gemm(True, (NOT_TRANSPOSED, TRANSPOSED), (5, 3, 4), (5, 3, 5))


WIDE = np.zeros((12, 12))
PACKED = np.zeros(6, [("x", "f8"), ("y", "f4")])["x"]


@each(
    "odd",
    [
        WIDE[::2, ::2][:4, :4],
        WIDE[:4, :4][::-1],
        WIDE[:4, :4][:, ::-1],
        np.broadcast_to(WIDE[:1, :4], (4, 4)),
        np.broadcast_to(WIDE[:4, :1], (4, 4)),
        as_strided(WIDE, (4, 4), (8, 8)),
        as_strided(WIDE, (4, 4), (24, 8)),
        as_strided(WIDE, (4, 4), (36, 8)),
        Layout((4, 4), (8 * (MOST + 1), 8), DOUBLE),
        np.zeros((1, 4, 4)),
    ],
)
def test_other_layouts_are_left_to_cupy(odd: Any) -> None:
    x, odd = by_rows(4, 4), layout_of(odd)
    assert gemm_of(x, x, x) is not None and gemm_of(Layout((4, 4), (8 * MOST, 8), DOUBLE), x, x) is not None
    assert gemm_of(odd, x, x) is gemm_of(x, odd, x) is gemm_of(x, x, odd) is None


def test_extents_that_are_no_ints_or_nothing_are_left_to_cupy() -> None:
    for m, k, n in ((0, 2, 2), (2, 0, 2), (2, 2, 0)):
        assert gemm_of(by_rows(m, k), by_rows(k, n), by_rows(m, n)) is None
    for rows, fits in ((MOST, True), (MOST + 1, False)):
        tall = Layout((rows, 1), (8, 8), DOUBLE)
        assert (gemm_of(tall, by_rows(1, 1), tall) is not None) == fits
        assert (gemm_of(tall.T, tall, by_rows(1, 1)) is not None) == fits
    assert gemm_of(layout_of(PACKED[:, None]), by_rows(1, 2), by_rows(6, 2)) is None, "strides that are no whole numbers of elements"


def operands(seed: int, dtype: str = "float64", orders: Any = "CCC") -> tuple[list[Any], list[Array]]:
    generator = np.random.default_rng(seed)
    whole = [generator.integers(-4, 5, shape).astype(dtype) for shape in ((5, 3), (3, 4), (5, 4))]
    return whole, [Array(np.array(x, order=order)) for x, order in zip(whole, orders, strict=True)]


@needs_emulator
@each(("dtype", "kind"), [("float32", "s"), ("float64", "d")])
@each("orders", ["CCC", "FCF", "CFC", "FFF"])
def test_first_and_repeated_calls_ask_for_the_same(orders: Any, dtype: str, kind: str, gpu: Gpu) -> None:
    """Also with factors: one call, which reads C only if beta is not 0."""
    asked: set[tuple[Any, ...]] = set()
    addresses = {5, 6, 8, 10, 11}
    factors: list[tuple[float | np.float32, float]] = [(1, 0), (1, 0), (2.5, 0), (1, -0.5), (-1, 2), (np.float32(2), 0), (1, 0)]
    for seed, (alpha, beta) in enumerate(factors):
        (x, y, z), (a, b, c) = operands(seed, dtype, orders)
        if beta == 0:
            c.host[...] = np.nan
        gpu.by_cublas.clear()
        bilinear.matmul(a, b, c, alpha=alpha, beta=beta)
        np.testing.assert_array_equal(c.host, alpha * (x @ y) + beta * np.nan_to_num(z))
        ((own, stream, *arguments),) = gpu.by_cublas
        assert (own, stream) == (kind, 77)
        asked.add(tuple(x for i, x in enumerate(arguments) if i not in addresses))
    assert len(asked) == 1


@needs_emulator
def test_a_fresh_result_is_computed_by_the_same_call(gpu: Gpu) -> None:
    for seed in range(3):
        (x, y, _), (a, b, _) = operands(seed)
        np.testing.assert_array_equal(bilinear.matmul(a, b, alpha=seed + 1).host, (seed + 1) * (x @ y))
    assert len(gpu.by_cublas) == gpu.library == 3


@needs_emulator
def test_a_row_by_a_column_of_medium_length_is_left_to_cupy(gpu: Gpu) -> None:
    for length, direct in ((1, True), (1023, True), (1024, False), (2**15 - 1, False), (2**15, True)):
        x, y = np.ones((1, length)), np.full((length, 1), 2.0)
        gpu.by_cublas.clear()
        for _ in range(2):
            assert bilinear.matmul(Array(x), Array(y)).host == [[2 * length]]
        assert len(gpu.by_cublas) == 2 * direct


@needs_emulator
def test_what_cupy_multiplies_as_before(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other and mixed types, batches, gaps in both directions, a result that overlaps or has another type, and TF32 if CUPY_TF32 is set."""
    whole, (a, b, c) = operands(1)
    x, y = whole[:2]
    for dtype in ("float16", "int64"):
        left, right = (Array(z.astype(dtype)) for z in (x, y))
        for _ in range(2):
            np.testing.assert_array_equal(bilinear.matmul(left, right).host, x @ y)
    for _ in range(2):
        np.testing.assert_array_equal(bilinear.matmul(Array(np.stack([x, 2 * x])), b).host, [x @ y, 2 * (x @ y)])
        np.testing.assert_array_equal(bilinear.matmul(Array(x.astype("float32")), b).host, x @ y)
        wide = np.full((5, 3), 0.5, "float64").repeat(2, 1).repeat(2, 0)
        np.testing.assert_array_equal(bilinear.matmul(Array(wide[::2, ::2]), b, alpha=2).host, np.full((5, 3), 1.0) @ y)
        both = np.concatenate([x, np.zeros((5, 4))], 1)
        np.testing.assert_array_equal(bilinear.matmul(Array(both[:, :3]), b, Array(both[:, 2:6]), alpha=2).host, 2 * (x @ y))
    assert not gpu.by_cublas and gpu.library == 12
    monkeypatch.setenv("CUPY_TF32", "1")
    (x, y, _), (a, b, c) = operands(2, "float32")
    np.testing.assert_array_equal(bilinear.matmul(a, b, c, alpha=3).host, 3 * (x @ y))
    assert not gpu.by_cublas
    bilinear.matmul(*operands(2)[1])
    assert len(gpu.by_cublas) == 1, "float64 knows no TF32"


@needs_emulator
def test_blocks_of_one_matrix_beside_each_other_are_multiplied_directly(gpu: Gpu) -> None:
    """Their address ranges overlap, so a repeat must look again; the gaps stay unchanged."""
    (x, y, z), _ = operands(4)
    for _ in range(2):
        memory = np.full((5, 8), np.nan)
        memory[:, :3], memory[:, 4:] = x, z
        bilinear.matmul(Array(memory[:, :3]), Array(y), Array(memory[:, 4:]), beta=2)
        np.testing.assert_array_equal(memory[:, 4:], x @ y + 2 * z)
        assert np.isnan(memory[:, 3]).all()
    assert len(gpu.by_cublas) == 2


@needs_emulator
@pytest.mark.parametrize("options", [{"alpha": 1j}, {"beta": 2j}, {"alpha": "2"}])
def test_factors_that_are_no_numbers_of_the_type_are_refused(options: dict[str, Any], gpu: Gpu) -> None:
    _, (a, b, c) = operands(1)
    for _ in range(2):
        with pytest.raises(BilinearError, match="E528"):
            bilinear.matmul(a, b, c, **options)
        bilinear.matmul(a, b, c)
    assert len(gpu.by_cublas) == 2


@needs_emulator
def test_with_alpha_0_nothing_is_multiplied(gpu: Gpu) -> None:
    _, (a, b, c) = operands(1)
    for _ in range(2):
        a.host[...] = np.nan
        np.testing.assert_array_equal(bilinear.matmul(a, b, c, alpha=0).host, np.zeros((5, 4)))
    assert not gpu.library


@needs_emulator
def test_each_thread_has_its_own_handle_and_streams_are_entered(gpu: Gpu) -> None:
    """The pretended library refuses the handle of another thread."""
    found: list[Any] = []

    def multiply(seed: int) -> None:
        (x, y, _), (a, b, c) = operands(seed)
        bilinear.matmul(a, b, c, stream=gpu.using(stream=seed))
        found.append(np.array_equal(c.host, x @ y))

    for seed in range(4):
        multiply(seed)
        thread = threading.Thread(target=multiply, args=(10 + seed,))
        thread.start()
        thread.join()
    assert found == [True] * 8
    assert [stream for _, stream, *_ in gpu.by_cublas] == [0, 10, 1, 11, 2, 12, 3, 13]


@needs_emulator
def test_another_device_has_its_own_handle(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = sys.modules["cupy"].cuda
    handles: list[int] = []
    call = lambda handle, *_: handles.append(handle)  # noqa: E731
    monkeypatch.setattr(sys.modules["cupy_backends.cuda.libs"].cublas, "dgemm", call)
    monkeypatch.setattr(cuda, "Device", lambda device: SimpleNamespace(cublas_handle=100 + device))
    _, (a, b, c) = operands(1)
    for device in (5, 6, 5, 6):
        monkeypatch.setattr(cuda.runtime, "getDevice", lambda device=device: device)
        bilinear.matmul(a, b, c)
    assert handles == [105, 106, 105, 106]
