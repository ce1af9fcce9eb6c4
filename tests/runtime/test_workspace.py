"""A workspace of the caller's own: used where it serves, refused where it does not."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from runtime.operands import integers

import bilinear
from bilinear.errors import BilinearError


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
    needed = int(re.findall(r"(\d+) are needed", refused(np.zeros(8)))[0])
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


def test_a_buffer_that_holds_an_operand_is_refused() -> None:
    buffer = np.ones(1 << 20)
    a, b = buffer[: 70 * 60].reshape(70, 60), np.ones((60, 50))
    with pytest.raises(BilinearError, match="apart from a, b and out"):
        bilinear.matmul(a, b, algorithm="strassen", levels=1, workspace=buffer)
    assert (buffer == 1).all()


def test_in_place_needs_none() -> None:
    a, b = operands()
    c = bilinear.matmul(a.copy(), b.copy(), algorithm="msmes", levels=1, inputs="restore", workspace=np.zeros(1))
    np.testing.assert_array_equal(c, a @ b)
