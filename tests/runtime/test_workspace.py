"""A workspace of the caller's: used if it fits, else refused."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from runtime.operands import integers

import bilinear
from bilinear.errors import BilinearError
from bilinear.runtime.operands import accumulate


def operands(dtype: str = "float64") -> tuple[Any, Any]:
    generator = np.random.default_rng(3)
    return integers(generator, (70, 60)).astype(dtype), integers(generator, (60, 50)).astype(dtype)


def refused(workspace: Any) -> str:
    a, b = operands()
    with pytest.raises(BilinearError) as caught:
        bilinear.matmul(a, b, algorithm="strassen", levels=1, workspace=workspace)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "E529"
    return str(diagnostic)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["uint8", "float64"])
def test_the_callers_buffer_is_used_and_the_product_is_exact(dtype: str, kind: str) -> None:
    a, b = operands(dtype)
    buffer = np.zeros(1 << 20, kind)
    for _ in range(2):
        c = bilinear.matmul(a, b, algorithm="strassen", levels=2, workspace=buffer)
        np.testing.assert_array_equal(c, a.astype(np.int64) @ b.astype(np.int64))
    assert buffer.any()


def test_a_buffer_of_exactly_the_bytes_that_are_asked_for_serves() -> None:
    needed = int(re.findall(r"must have (\d+)", refused(np.zeros(8)))[0])
    a, b = operands()
    buffer = np.empty(needed, np.uint8)
    np.testing.assert_array_equal(bilinear.matmul(a, b, algorithm="strassen", levels=1, workspace=buffer), a @ b)
    refused(np.empty(needed - 1, np.uint8))


def test_what_cannot_serve_is_refused() -> None:
    refused([0.0] * 100_000)
    refused(np.zeros((300, 300)))
    refused(np.zeros(1 << 20)[::2])
    fixed = np.zeros(1 << 20)
    fixed.flags.writeable = False
    refused(fixed)


@pytest.mark.parametrize("options", [{}, {"levels": 0}, {"alpha": 2}, {"algorithm": "strassen", "levels": 0}])
def test_what_cannot_serve_is_refused_although_the_librarys_multiply_needs_none(options: dict[str, Any]) -> None:
    a, b = operands()
    out, fixed, memory = np.full((70, 50), 7.0), np.zeros(9), np.ones(70 * 60)
    fixed.flags.writeable = False
    buffers: list[Any] = [[0.0] * 9, np.zeros((3, 3)), np.zeros(9)[::2], fixed, b"x", out.reshape(-1)[:9], memory]
    for workspace in buffers:
        with pytest.raises(BilinearError, match="E529"):
            bilinear.matmul(memory.reshape(70, 60), b, out, workspace=workspace, **options)
    assert (out == 7).all()
    np.testing.assert_array_equal(bilinear.matmul(a, b, out, workspace=np.zeros(9), **options), options.get("alpha", 1) * (a @ b))


@pytest.mark.parametrize("workspace", [[0.0] * 9, np.zeros((3, 3)), np.zeros(9)[::2]])
def test_a_product_by_the_transpose_refuses_it_too(workspace: Any) -> None:
    with pytest.raises(BilinearError, match="E529"):
        bilinear.gram(operands()[0], workspace=workspace)


def test_a_buffer_that_holds_an_operand_is_refused() -> None:
    buffer = np.ones(1 << 20)
    a, b = buffer[: 70 * 60].reshape(70, 60), np.ones((60, 50))
    with pytest.raises(BilinearError, match="workspace shares memory with an operand or out"):
        bilinear.matmul(a, b, algorithm="strassen", levels=1, workspace=buffer)
    assert (buffer == 1).all()


def test_objects_lie_in_a_buffer_of_objects_and_numbers_in_no_other() -> None:
    a, b = (x.astype(int).astype(object) * Fraction(1, 3) for x in operands())
    for buffer in (np.empty(1 << 16), np.empty(1 << 19, np.uint8)):
        with pytest.raises(BilinearError, match=r"E529.*holds (float64|uint8), but must hold object"):
            bilinear.matmul(a, b, algorithm="strassen", levels=1, workspace=buffer)
    buffer = np.empty(1 << 16, object)
    np.testing.assert_array_equal(bilinear.matmul(a, b, algorithm="strassen", levels=1, workspace=buffer), a @ b)
    assert "holds object, but must hold float64" in refused(buffer)


def needed_beside_out(a: Any, b: Any, out: Any, allowed: int | str, **options: Any) -> int:
    """The bytes that a refusal (E535) asks for; nothing is written."""
    kept = out.copy()
    with pytest.raises(BilinearError, match="E535") as caught:
        bilinear.matmul(a, b, out, workspace=allowed, levels=1, **options)
    np.testing.assert_array_equal(out, kept)
    return int(re.findall(r"needs (\d+) bytes", str(caught.value))[0])


DEPTH_FIRST = 30 * 36 + 36 * 25
"""Elements of the temporaries of winograd_depth_first at 60 x 72 by 72 x 50: X holds a block of A or of C, Y one of B."""


def test_a_result_aside_from_out_counts_as_workspace() -> None:
    """If beta is not 0 and the schedule overwrites C, exactly the temporaries and a result as large as `out` are needed."""
    generator = np.random.default_rng(3)
    a, b, c = integers(generator, (60, 72)), integers(generator, (72, 50)), integers(generator, (60, 50))
    wanted, aside = a @ b + 2 * c, 60 * 50 * 8
    options: dict[str, Any] = {"algorithm": "winograd_depth_first", "beta": 2}
    own = needed_beside_out(a, b, c, 0, algorithm="winograd_depth_first")
    assert own >= DEPTH_FIRST * 8
    assert needed_beside_out(a, b, c, "none", **options) == own + aside
    assert needed_beside_out(a, b, c, own + aside - 1, **options) == own + aside
    bilinear.matmul(a, b, c.copy(), algorithm="winograd_depth_first", levels=1, workspace=own)
    bilinear.matmul(a, b, c, levels=1, workspace=own + aside, **options)
    np.testing.assert_array_equal(c, wanted)


def test_a_result_of_another_dtype_or_on_an_operand_counts_too() -> None:
    generator = np.random.default_rng(3)
    a, b = integers(generator, (2, 60, 60)), integers(generator, (2, 60, 60))
    wanted = a @ b
    own = needed_beside_out(a, b, np.zeros((2, 60, 60)), 0, algorithm="strassen")
    for out in (np.zeros((2, 60, 60), object), a):
        assert needed_beside_out(a, b, out, own, algorithm="strassen") == own + 2 * 60 * 60 * 8
        bilinear.matmul(a, b, out, algorithm="strassen", levels=1, workspace=own + 2 * 60 * 60 * 8)
        np.testing.assert_array_equal(out, wanted)


class Short(np.ndarray):
    """A product that cannot be converted, because memory is short."""

    def astype(self, *_: Any, **__: Any) -> Any:
        raise MemoryError


def test_memory_that_is_short_for_a_conversion_leaves_out() -> None:
    """If the library ran instead, it would scale `out` a second time."""
    out = np.full((3, 3), 2.0)
    with pytest.raises(MemoryError):
        accumulate(out, np.ones((3, 3), np.float32).view(Short), 3.0)
    assert (out == 2).all()


def test_in_place_needs_none() -> None:
    a, b = operands()
    c = bilinear.matmul(a.copy(), b.copy(), algorithm="msmes", levels=1, inputs="restore", workspace=np.zeros(1))
    np.testing.assert_array_equal(c, a @ b)


def test_a_workspace_within_out_is_refused_though_the_result_is_computed_aside() -> None:
    """`out` has another type, and its old values are needed after the workspace was written."""
    memory = np.zeros(100_000, np.float32)
    out = memory[: 2 * 70 * 50].view(np.float64).reshape(70, 50)
    a, b = operands("float32")
    with pytest.raises(BilinearError, match="E529"):
        bilinear.matmul(a, b, out, beta=1, algorithm="winograd", levels=1, workspace=memory)
