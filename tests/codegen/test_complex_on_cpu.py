"""Kernels for complex matrices, which read and write interleaved parts where they lie, beside the classical product in integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codegen.emulated import EmulatedExecutor
from codegen.test_kernels_on_cpu import layout

from bilinear.backends.executor import execute
from bilinear.emulator import skip_reason
from bilinear.frontend import load
from bilinear.ir.matrix import Call, matrix_of
from bilinear.lowering.place import place_schedule
from bilinear.lowering.prepare import Level, prepare_complex

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=str(skip_reason()))

CASES = [
    ("winograd", "complex64", "CFS", "", 3),
    ("winograd", "complex128", "FSF", "A", 0),
    ("split_k", "complex64", "SCC", "AB", -1),
    ("strassen", "complex128", "CCC", "B", 1),
]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("name", "dtype", "orders", "conjugated", "beta"), CASES)
def test_complex_products_are_exact(name: str, dtype: str, orders: str, conjugated: str, beta: int) -> None:
    m, k, n = 17, 23, 19
    generator = np.random.default_rng(5)
    whole = [generator.integers(-4, 5, s) + 1j * generator.integers(-4, 5, s) for s in ((m, k), (k, n), (m, n))]
    a, b, c = (layout(x.astype(dtype), order) for x, order in zip(whole, orders, strict=True))
    if beta == 0:
        c[...] = np.nan
    x, y = (z.conj() if letter in conjugated else z for letter, z in zip("AB", whole, strict=False))
    wanted = 2 * (x @ y) + (beta * whole[2] if beta else 0)
    loaded = load(name)
    schedule = prepare_complex((Level(loaded.scheme, loaded.schedule),), conjugated)
    columns = frozenset(letter for letter, order in zip("ABC", orders, strict=True) if order == "F")
    placement = place_schedule(schedule, m, k, n, c.real.itemsize, columns)
    assert placement.strips and placement.core[0]
    (u, ui), (v, vi), (w, wi) = (matrix_of(array).parts for array in (a, b, c))
    number: Any = c.real.dtype.type
    execute(EmulatedExecutor(), placement, Call(u, v, w, number(2), number(beta), imaginary=(ui, vi, wi)))
    np.testing.assert_array_equal(c, wanted)
    np.testing.assert_array_equal(a, whole[0])
    np.testing.assert_array_equal(b, whole[1])
