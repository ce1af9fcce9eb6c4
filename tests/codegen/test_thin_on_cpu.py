"""The kernels for thin products, emulated: exact on integers for every layout, any extents, sums in parts, alpha and beta."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codegen.emulated import c_type

from bilinear.codegen.render import render
from bilinear.emulator import CompiledModule, compile_on_cpu, compiler_name, guarded, skip_reason
from bilinear.ir.element import ELEMENTS, FLOAT64, IN_ARRAYS
from bilinear.ir.kernel import PartsKernel, ThinKernel
from bilinear.ir.thin_tile import AnyThinTile, ThinMmaTile, ThinTile
from bilinear.methods.thin.launches import BUSY_THREADS, parts_kernel

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")

TILES = (
    ThinTile(64, 8, 32, 8, 1, 4, 3, 1),
    ThinTile(32, 8, 8, 8, 2, 1, 3, 1),
    ThinTile(16, 16, 32, 2, 2, 4, 2, 1),
    ThinTile(32, 32, 8, 4, 8, 1, 2, 1),
    ThinMmaTile(32, 16, 16, 2, 1, 1, 3, 1, 1),
    ThinMmaTile(16, 16, 32, 1, 1, 2, 2, 1, 1, staged=False),
    ThinMmaTile(32, 16, 16, 1, 2, 1, 2, 1, 1),
    ThinMmaTile(32, 32, 64, 2, 1, 1, 2, 1, 1, keeps=True),
)

WHOLE = (61, 37, 7, 1, 0), (65, 100, 19, 3, 0)
UNEVEN = (1, 1, 1, 1, 1), (70, 33, 9, 2, 1), (72, 33, 9, 1, 0)
"""m, k, n, parts of sums, and elements between lines."""


def emulated(kernel: ThinKernel | PartsKernel, part: str = "", instead: str = "") -> CompiledModule:
    """A kernel, also with a part of its text replaced.

    Tests have many texts that run on few numbers, and g++ takes three times as long where it optimises. Zig always optimises here: it adds
    checks of its own to what is not optimised, and kernels do not run with them.
    """
    text = render(kernel)
    assert part in text
    types = {kernel.name: [c_type(argument, kernel.element) for argument in kernel.arguments]}
    return compile_on_cpu(text.replace(part, instead) if part else text, types, flags=("-O0",) if compiler_name() == "g++" else ())


def laid(x: Any, by_rows: bool, padded: int) -> Any:
    """The matrix in memory that ends with its last line, lines `padded` elements apart."""
    matrix = x if by_rows else x.T
    lines = np.zeros((matrix.shape[0], matrix.shape[1] + padded), x.dtype)
    lines[:, : matrix.shape[1]] = matrix
    view = guarded(lines)[:, : matrix.shape[1]]
    return view if by_rows else view.T


def strides(x: Any) -> tuple[int, ...]:
    return tuple(stride // x.itemsize for stride in x.strides)


@pytest.mark.sample(2, slow=14)
@pytest.mark.parametrize("dtype", IN_ARRAYS)
@pytest.mark.parametrize("tile", TILES, ids=lambda tile: tile.name)
@pytest.mark.parametrize("orders", range(8))
def test_every_layout_is_exact(tile: AnyThinTile, dtype: str, orders: int) -> None:
    assert_exact(tile, dtype, orders)


def assert_exact(tile: AnyThinTile, dtype: str, orders: int) -> None:
    """Whole and split sums of lines at multiples of 16 bytes and elsewhere, for a way in which A, B and C lie."""
    element, generator = ELEMENTS[dtype], np.random.default_rng(orders)
    a_by_rows, b_by_rows, by_rows = (bool(orders >> bit & 1) for bit in range(3))
    for is_whole in (True, False):
        width = element.lanes if is_whole else 1
        kernel = ThinKernel("thin", element, tile, a_by_rows, not b_by_rows, by_rows, width, width)
        module = emulated(kernel)
        for m, k, n, wanted, gap in WHOLE if is_whole else UNEVEN:
            if not tile.holds(k, n, wanted):
                continue
            padded = [-extent % element.lanes if is_whole else gap for extent in (k if a_by_rows else m, n if b_by_rows else k)]
            a, b = generator.integers(-8, 9, (m, k)).astype(dtype), generator.integers(-8, 9, (k, n)).astype(dtype)
            left, right = laid(a, a_by_rows, padded[0]), laid(b, b_by_rows, padded[1])
            old = generator.integers(-8, 9, (m, n)).astype(dtype)
            depth = -(-k // (wanted * tile.k)) * tile.k
            parts = -(-k // depth)
            out = laid(old, by_rows, 3 * gap)
            call = alpha, beta = element_of(dtype, 2), element_of(dtype, 3)
            if parts == 1:
                target, apart, factors = out, 0, call
            else:
                target = guarded(np.full((parts, m, n) if by_rows else (parts, n, m), np.nan, dtype))
                apart, factors = m * n, (element_of(dtype, 1), element_of(dtype, 0))
            steps = strides(out) if parts == 1 else ((n, 1) if by_rows else (1, m))
            arguments = (left, *strides(left), right, *strides(right), target, *steps, m, k, n, parts, depth, apart, *factors)
            module.launch("thin", (3, 1, 1), (tile.threads, 1, 1), arguments, shared_bytes=kernel.shared_bytes)
            if parts > 1:
                summing = PartsKernel("sum_parts", element)
                line = (strides(out), m, n) if by_rows else (strides(out)[::-1], n, m)
                added = (target, out, *line[0], line[1], line[2], parts, alpha, beta)
                emulated(summing).launch("sum_parts", (-(-m * n // 32), 1, 1), (32, 32, 1), added)
            assert (out == 2 * (a.astype(object) @ b.astype(object)) + 3 * old).all(), (m, k, n, parts, is_whole)


@pytest.mark.sample(6)
@pytest.mark.parametrize("by_rows", [True, False])
@pytest.mark.parametrize("parts", [2, 5, 40])
@pytest.mark.parametrize("count", [3, 5_000, BUSY_THREADS])
def test_parts_of_sums_are_added_by_as_many_threads_as_there_is_work_for(count: int, parts: int, by_rows: bool) -> None:
    """Few threads share an element where there are many; each element of C is written once, with its old value."""
    m, n = count, 3
    kernel = parts_kernel(FLOAT64, m * n, parts)
    sharers = kernel.threads[1]
    assert sharers == 1 or sharers // 2 < parts
    assert (sharers == 1) == (m * n >= BUSY_THREADS)
    generator = np.random.default_rng(parts)
    partial = guarded(generator.integers(-9, 10, (parts, m, n) if by_rows else (parts, n, m)).astype("float64"))
    old = generator.integers(-9, 10, (m, n)).astype("float64")
    out = laid(old, by_rows, 1)
    line = (strides(out), m, n) if by_rows else (strides(out)[::-1], n, m)
    arguments = (partial, out, *line[0], line[1], line[2], parts, 2.0, 3.0)
    emulated(kernel).launch(kernel.name, (-(-m * n // kernel.threads[0]), 1, 1), (*kernel.threads, 1), arguments)
    wanted = partial.sum(axis=0) if by_rows else partial.sum(axis=0).T
    assert (out == 2 * wanted + 3 * old).all()


def element_of(dtype: str, value: int) -> Any:
    return np.dtype(dtype).type(value)
