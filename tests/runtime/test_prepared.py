"""Prepared operands: the same products as without preparation, and a refusal where something does not belong together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codegen.emulated import address
from runtime.operands import integers
from runtime.pretended_gpu import Array, Gpu

import bilinear
from bilinear.backends.numpy_executor import NumpyExecutor
from bilinear.codegen.render import render
from bilinear.emulator import compile_on_cpu, skip_reason
from bilinear.errors import BilinearError
from bilinear.ir.element import IN_ARRAYS, Element
from bilinear.ir.kernel import DigestKernel
from bilinear.ir.matrix import matrix_of

SHAPES = [(70, 60, 50), (64, 64, 64), (9, 33, 17), (41, 7, 8)]


def operands(m: int, k: int, n: int, dtype: Any = np.float64) -> tuple[Any, Any]:
    draw = np.random.default_rng(m + k + n)
    return integers(draw, (m, k)).astype(dtype), integers(draw, (k, n)).astype(dtype)


def exact(a: Any, b: Any) -> Any:
    return a.astype(np.int64) @ b.astype(np.int64)


def code(call: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(BilinearError) as caught:
        call(*arguments, **options)
    return caught.value.diagnostics[0].code


@pytest.mark.sample(30)
@pytest.mark.parametrize(("name", "levels"), [("strassen", 1), ("winograd", 2), ("msmes", 1), ("laderman", 1), ("winograd", "auto")])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "object"])
def test_products_are_exact_on_either_side(name: str, levels: Any, shape: Any, dtype: str) -> None:
    a, b = (x.astype(dtype) for x in operands(*shape))
    right = bilinear.prepare(b, rows=shape[0], algorithm=name, levels=levels)
    left = bilinear.prepare(a, columns=shape[2], algorithm=name, levels=levels)
    expected = exact(a, b)
    for _ in range(2):
        for c in (bilinear.matmul(a, right), bilinear.matmul(left, b)):
            np.testing.assert_array_equal(c.astype(np.int64), expected)
    out = np.ones_like(a @ b)
    assert bilinear.matmul(a, right, out, alpha=2, beta=3) is out
    np.testing.assert_array_equal(out.astype(np.int64), 2 * expected + 3)


def test_the_bits_are_those_without_preparation() -> None:
    draw = np.random.default_rng(1)
    a, b = draw.standard_normal((90, 80)), draw.standard_normal((80, 70))
    for x, y in ((a, b), (np.asfortranarray(a), b), (a, np.asfortranarray(b)), (a[::-1], b[:, ::-1])):
        kept = bilinear.prepare(y, rows=90, algorithm="winograd", levels=2)
        np.testing.assert_array_equal(bilinear.matmul(x, kept), bilinear.matmul(x, y, algorithm="winograd", levels=2))


def test_batches_and_other_numbers_of_rows() -> None:
    a, b = operands(40, 32, 24)
    kept = bilinear.prepare(b, rows=40, algorithm="strassen", levels=2)
    for rows in (1, 3, 8, 40, 77):
        x = operands(rows, 32, 24)[0]
        np.testing.assert_array_equal(bilinear.matmul(x, kept), exact(x, b))
    batch = np.stack([a, 2 * a, 3 * a])
    np.testing.assert_array_equal(bilinear.matmul(batch, kept), exact(batch, b))


def test_what_is_kept_is_what_is_said() -> None:
    kept = bilinear.prepare(np.ones((64, 64)), rows=64, algorithm="winograd", levels=1)
    assert kept.shape == (64, 64)
    assert kept.bytes == 4 * 32 * 32 * 8  # Winograd's form has four sums of blocks of B
    assert repr(kept) == "<Prepared right operand 64 x 64, float64, for winograd: keeps 32.00 KiB>"


def test_a_changed_operand_is_refused() -> None:
    a, b = operands(32, 32, 32)
    kept = bilinear.prepare(b, rows=32, algorithm="strassen", levels=1)
    b[31, 31] += 1
    assert code(bilinear.matmul, a, kept) == "E537"
    b[31, 31] -= 1
    np.testing.assert_array_equal(bilinear.matmul(a, kept), exact(a, b))
    b[[0, 1]] = b[[1, 0]]
    assert code(bilinear.matmul, a, kept) == "E537"


def test_auto_on_the_cpu_is_the_library_and_keeps_nothing() -> None:
    a, b = operands(20, 20, 20)
    kept = bilinear.prepare(b, rows=20)
    assert kept.bytes == 0 and "the library's multiply" in repr(kept)
    b += 1  # nothing was computed from it
    np.testing.assert_array_equal(bilinear.matmul(a, kept), exact(a, b))


def test_the_library_if_the_environment_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = operands(20, 20, 20)
    kept = bilinear.prepare(b, rows=20, algorithm="strassen", levels=1)
    monkeypatch.setenv("BILINEAR_USE_LIBRARY", "1")
    np.testing.assert_array_equal(bilinear.matmul(a, kept), exact(a, b))


def test_what_does_not_belong_together_is_refused() -> None:
    a, b = operands(8192, 8, 8)
    strassen: dict[str, Any] = {"algorithm": "strassen", "levels": 1}
    kept = bilinear.prepare(b, rows=8, **strassen)
    assert code(bilinear.matmul, a.astype(np.float32), kept) == "E538"
    assert code(bilinear.matmul, a[0], kept) == "E538"
    assert code(bilinear.matmul, kept, a) == "E538"
    assert code(bilinear.matmul, kept, kept) == "E538"
    assert code(bilinear.matmul, a, kept, algorithm="winograd") == "E538"
    assert code(bilinear.matmul, a, kept, inputs="restore") == "E538"
    assert code(bilinear.prepare, b) == "E538"
    assert code(bilinear.prepare, b, rows=4, columns=4) == "E538"
    assert code(bilinear.prepare, b, rows=0) == "E538"
    assert code(bilinear.prepare, b[0], rows=4) == "E538"
    assert code(bilinear.prepare, b, rows=8, algorithm="winograd_depth_first", levels=1) == "E539"
    assert code(bilinear.prepare, b, rows=8, algorithm="nothing") == "E121"
    with pytest.raises(ValueError, match="inner dimensions"):
        bilinear.matmul(a[:, :5], kept)


def test_other_blocks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """From some extents on blocks are cut to whole sectors, so that another number of rows cuts B elsewhere."""
    monkeypatch.setattr("bilinear.lowering.place.PEELED_FROM", 150)
    b = operands(8, 302, 302)[1]
    kept = bilinear.prepare(b, rows=8, algorithm="strassen", levels=1)
    assert code(bilinear.matmul, np.ones((300, 302)), kept) == "E538"


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kernels_find_what_is_kept(gpu: Gpu, dtype: str) -> None:
    a, b = operands(70, 40, 33, dtype)
    for right in (b, np.asfortranarray(b)):
        kept = bilinear.prepare(Array(right), rows=70, algorithm="winograd", levels=1)
        before = len(gpu.launches)
        np.testing.assert_array_equal(bilinear.matmul(Array(a), kept).host, exact(a, b))
        with_kept = [name for name, _ in gpu.launches[before:]]
        before = len(gpu.launches)
        np.testing.assert_array_equal(bilinear.matmul(Array(a), Array(right), algorithm="winograd", levels=1).host, exact(a, b))
        assert len(with_kept) <= len(gpu.launches) - before
        right[3, 4] += 1
        assert code(bilinear.matmul, Array(a), kept) == "E537"
        right[3, 4] -= 1


@pytest.mark.skipif(skip_reason() is not None, reason=str(skip_reason()))
@pytest.mark.parametrize("element", IN_ARRAYS.values(), ids=str)
def test_the_digest_sees_every_bit_and_every_place(element: Element) -> None:
    kernel = DigestKernel(f"digest_{element.cuda}", element, (8, 1))
    module = compile_on_cpu(render(kernel), {kernel.name: [f"{element.cuda} *", *["long long"] * 4, f"{element.cuda} *"]})

    def digest(x: Any) -> int:
        sums = np.zeros(3, np.uint64)
        strides = [stride // x.itemsize for stride in x.strides]
        module.launch(kernel.name, (3, 1, 1), (8, 1, 1), [address(x), *strides, *x.shape, address(sums)])
        return int(sums.sum(dtype=np.uint64))

    x = np.random.default_rng(2).standard_normal((5, 13)).astype(element.name)
    seen = {digest(x)}
    assert digest(x.copy()) in seen
    bits = 8 * x.itemsize
    changes = {(i, j, (13 * i + j) % bits) for i, j in np.ndindex(x.shape)} | {(4, 12, bit) for bit in range(bits)}
    for i, j, bit in changes:  # a bit of each element, and each bit of one
        changed = x.copy()
        changed.view(f"u{x.itemsize}")[i, j] ^= np.array(1 << bit, f"u{x.itemsize}")
        seen.add(digest(changed))
    swapped = x.copy()
    swapped[[0, 1]] = swapped[[1, 0]]
    seen |= {digest(swapped), digest(x[:, ::-1].copy()), digest(-x), digest(0 * x), digest(-0.0 * x)}
    assert len(seen) == 1 + len(changes) + 5


def test_the_digest_of_numpy_sees_a_change() -> None:
    x = np.arange(300.0 * 200).reshape(300, 200)
    engine = NumpyExecutor()
    before = engine.digest(matrix_of(x))
    assert before == engine.digest(matrix_of(x.copy()))
    x[299, 199] = -1
    assert before != engine.digest(matrix_of(x))


def test_a_call_of_the_library_keeps_the_accuracy_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = operands(20, 20, 20)
    asked: list[Any] = []
    kept = bilinear.prepare(b, rows=20, accuracy=1e-12)

    def multiply(*arrays: Any, **options: Any) -> Any:
        asked.append(options["accuracy"])
        return arrays[0] @ arrays[1]

    monkeypatch.setattr("bilinear.runtime.prepared.matmul", multiply)
    np.testing.assert_array_equal(kept.matmul(a), exact(a, b))
    assert asked == [1e-12]


def test_during_capture_nobody_can_look_for_a_change(gpu: Gpu) -> None:
    a, b = operands(20, 16, 12)
    kept, unchecked = (bilinear.prepare(Array(b), rows=20, algorithm="winograd", levels=1, check=check) for check in (True, False))
    out, space = Array(np.zeros((20, 12))), Array(np.zeros(10_000))
    gpu.is_capturing = True
    assert code(bilinear.matmul, Array(a), kept, out, workspace=space) == "E536"
    bilinear.matmul(Array(a), unchecked, out, workspace=space)
    gpu.is_capturing = False
    np.testing.assert_array_equal(out.host, exact(a, b))
