"""The promises of `inputs=`: preserve never writes, restore restores, consume may leave anything; and what each refuses."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from each_case import each
from runtime.operands import integers

import bilinear
from bilinear.errors import BilinearError

MSMES: dict[str, Any] = {"algorithm": "msmes", "levels": 1}


def operands(*shapes: tuple[int, ...]) -> list[Any]:
    generator = np.random.default_rng(4)
    return [integers(generator, shape) for shape in shapes]


def refuse(code: str, a: Any, b: Any, out: Any = None, **options: Any) -> None:
    """The call is refused with this code, and nothing is written."""
    kept = [np.array(x) for x in (a, b)] + [None if out is None else np.array(out)]
    with pytest.raises(BilinearError) as caught:
        bilinear.matmul(a, b, out, **MSMES | options)
    assert code in [d.code for d in caught.value.diagnostics]
    for x, old in zip((a, b, out), kept, strict=True):
        if old is not None:
            assert all(value is before or value == before for value, before in zip(x.flat, old.flat, strict=True) if before == before)


READ_ONLY_PAGES = """
import mmap, sys
import numpy as np
import bilinear

def on_read_only_pages(array):
    pages = mmap.mmap(-1, array.nbytes)
    pages.write(array.tobytes())
    view = np.frombuffer(pages, array.dtype).reshape(array.shape)
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(view.ctypes.data), ctypes.c_size_t(-(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE), 1) == 0
    return view

generator = np.random.default_rng(0)
a, b = (generator.integers(-4, 5, s).astype(float) for s in ((203, 187), (187, 171)))
x, y = on_read_only_pages(a), on_read_only_pages(b)
for name in ("strassen", "winograd", "laderman", "hopcroft_kerr", "msmes"):
    for levels in (1, 2):
        assert (bilinear.matmul(x, y, algorithm=name, levels=levels) == a @ b).all()
print("never written")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs mprotect")
def test_preserve_never_writes_an_operand_not_even_for_a_moment() -> None:
    """The operands lie on read-only pages: a single store would end the process."""
    done = subprocess.run([sys.executable, "-c", READ_ONLY_PAGES], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "never written" in done.stdout, done.stderr


@pytest.mark.parametrize("inputs", ["restore", "consume"])
def test_read_only_overlapping_and_repeated_operands_are_refused(inputs: str) -> None:
    a, b = operands((8, 8), (8, 8))
    frozen = a.copy()
    frozen.flags.writeable = False
    refuse("E521", frozen, b, inputs=inputs)
    refuse("E521", a, np.broadcast_to(b[0], (8, 8)), inputs=inputs)
    line = np.arange(30.0)
    folded = np.lib.stride_tricks.as_strided(line, (8, 8), (16, 8))
    refuse("E522", folded, b, inputs=inputs)
    refuse("E522", np.lib.stride_tricks.as_strided(line, (8, 8), (0, 8)), b, inputs=inputs)
    refuse("E523", a, a, inputs=inputs)
    refuse("E523", a, a.T, inputs=inputs)
    refuse("E523", a[:6, :6], a[2:, :6], inputs=inputs)
    refuse("E523", a, b, a, inputs=inputs)
    refuse("E523", a, b, b[::-1], inputs=inputs)
    wide = np.zeros((8, 15))
    refuse("E523", a, wide[:, :8], wide[:, 7:], inputs=inputs)
    refuse("E526", a.astype(np.float32), b, inputs=inputs)
    refuse("E526", a, b, np.zeros((8, 8), np.float32), inputs=inputs)
    refuse("E526", a.astype(">f8"), b.astype(">f8"), np.zeros((8, 8), ">f8"), inputs=inputs)
    for name in ("strassen", "laderman"):
        refuse("E525", a, b, inputs=inputs, algorithm=name)


@each("value", [np.inf, -np.inf, np.nan])
@each("dtype", [np.float32, np.float64, object])
def test_values_that_cannot_be_restored_are_refused(value: float, dtype: Any) -> None:
    a, b = (x.astype(dtype) for x in operands((9, 9), (9, 9)))
    b[8, 8] = value
    refuse("E524", a, b, np.zeros((9, 9), dtype), inputs="restore")


def test_a_batch_is_refused_before_its_first_matrix_is_written() -> None:
    a, b, out = operands((3, 8, 8), (3, 8, 8), (3, 8, 8))
    b[2, 7, 7] = np.nan
    refuse("E524", a, b, out, inputs="restore")
    a, out = operands((3, 8, 8), (3, 8, 8))
    refuse("E523", a, b, out=a[::-1], inputs="consume")
    refuse("E527", a[0], b, out, inputs="consume")


def test_a_batch_of_one_product_may_be_consumed() -> None:
    """NumPy broadcasts the result (1,) of a row by a vector to an out of (1, 1): a batch, but no matrix is in two products."""
    a, b = operands((1, 32), (32, 1))
    out, wanted = np.full((1, 1), 5.0), 3 * (a @ b) + 5
    bilinear.matmul(a, b[:, 0], out, algorithm="msmes", levels=2, inputs="consume", alpha=3, beta=1)
    np.testing.assert_array_equal(out, wanted)


def test_matrices_beside_each_other_in_one_array_do_not_overlap() -> None:
    wide = np.zeros((8, 24))
    a, b, out = wide[:, :8], wide[:, 8:16], wide[:, 16:]
    a[...], b[...] = operands((8, 8), (8, 8))
    wanted = a @ b
    every: tuple[Any, ...] = ("preserve", "restore", "consume")
    for inputs in every:
        kept = a.copy(), b.copy()
        bilinear.matmul(a, b, out, inputs=inputs, **MSMES)
        np.testing.assert_array_equal(out, wanted)
        a[...], b[...] = kept


@pytest.mark.parametrize("levels", [1, 2])
def test_batches_in_place(levels: int) -> None:
    a, b, out = operands((2, 3, 19, 17), (3, 17, 22), (2, 3, 19, 22))
    wanted, kept = a @ b, (a.copy(), b.copy())
    bilinear.matmul(a, b, out, algorithm="msmes", levels=levels, inputs="restore")
    np.testing.assert_array_equal(out, wanted)
    assert np.array_equal(a, kept[0]) and np.array_equal(b, kept[1])
    b = np.stack([b, b])
    out[...] = np.nan
    bilinear.matmul(a, b, out, algorithm="msmes", levels=levels, inputs="consume")
    np.testing.assert_array_equal(out, wanted)


def test_one_matrix_for_a_whole_batch_is_restored_after_each() -> None:
    a, b = operands((16, 16), (5, 16, 16))
    kept = a.copy()
    np.testing.assert_array_equal(bilinear.matmul(a, b, inputs="restore", **MSMES), kept @ b)
    np.testing.assert_array_equal(a, kept)


@pytest.mark.parametrize("inputs", ["restore", "consume"])
def test_vectors_in_place(inputs: Any) -> None:
    a, x = operands((12, 10), (10,))
    wanted = a @ x
    np.testing.assert_array_equal(bilinear.matmul(a, x, inputs=inputs, **MSMES), wanted)


@pytest.mark.parametrize("name", ["strassen", "msmes"])
def test_preserve_takes_operands_in_any_relation(name: str) -> None:
    (a,) = operands((12, 12))
    options: Any = {"algorithm": name, "levels": 2}
    np.testing.assert_array_equal(bilinear.matmul(a, a, **options), a @ a)
    np.testing.assert_array_equal(bilinear.matmul(a, a.T, **options), a @ a.T)
    np.testing.assert_array_equal(bilinear.matmul(a[:-2], a[2:].T, **options), a[:-2] @ a[2:].T)
    for beta in (0, 3):
        views: list[Any] = [lambda x: x, lambda x: x.T, lambda x: x[::-1], lambda x: x[::-1, ::-1]]
        for view in views:
            x = a.copy()
            wanted = 2 * (x @ x.T) + beta * view(x)
            bilinear.matmul(x, x.T, view(x), alpha=2, beta=beta, **options)
            np.testing.assert_array_equal(view(x), wanted)
        wide = np.zeros((12, 20))
        wide[:, :12] = a
        wanted = a @ a + beta * wide[:, 6:18]
        bilinear.matmul(wide[:, :12], a, wide[:, 6:18], beta=beta, **options)
        np.testing.assert_array_equal(wide[:, 6:18], wanted)
    row = np.broadcast_to(a[0], (12, 12))
    np.testing.assert_array_equal(bilinear.matmul(row, row.T, **options), row @ row.T)


def test_a_batch_whose_out_overlaps_its_operand() -> None:
    a, b = operands((4, 8, 8), (4, 8, 8))
    stack = np.concatenate([a, np.zeros((1, 8, 8))])
    wanted = a @ b
    bilinear.matmul(stack[:4], b, stack[1:], algorithm="strassen", levels=1)
    np.testing.assert_array_equal(stack[1:], wanted)


def test_the_library_path_writes_no_operand() -> None:
    a, b = operands((8, 8), (8, 8))
    a.flags.writeable = b.flags.writeable = False
    np.testing.assert_array_equal(bilinear.matmul(a, b, inputs="restore"), a @ b)
    np.testing.assert_array_equal(bilinear.matmul(a, b, inputs="consume", algorithm="msmes", levels=0), a @ b)
