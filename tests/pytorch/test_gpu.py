"""Operators, layers and the context on CUDA tensors, beside PyTorch's own multiply; integers must come out exactly."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from pytorch.conftest import Runs
from pytorch.needed import integers, torch

import bilinear.torch
from bilinear.backends import loaded_kernels
from bilinear.ir.matrix import Array

pytestmark = pytest.mark.gpu
DEVICE = "cuda"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "transformer.py"
MM, BMM = torch.ops.bilinear.mm.default, torch.ops.bilinear.bmm.default
by_strassen = partial(bilinear.torch.matmul, algorithm="strassen", levels=1)


def there(*shape: int, seed: int = 0, dtype: object = None) -> Array:
    return integers(*shape, seed=seed, dtype=dtype).to(DEVICE)


def asking(*tensors: Array) -> tuple[Array, ...]:
    return tuple(x.clone().requires_grad_() for x in tensors)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # the check itself reads it
@pytest.mark.parametrize("how", [("strassen", 1), ("auto", None)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("operator", "a", "b"), [(MM, (70, 65), (65, 33)), (MM, (0, 6), (6, 9)), (BMM, (3, 40, 66), (3, 66, 50))])
def test_what_pytorch_asks_of_operators(
    operator: Array, a: tuple[int, ...], b: tuple[int, ...], dtype: Array, how: tuple[str, int | None]
) -> None:
    torch.library.opcheck(operator, (*asking(there(*a, dtype=dtype), there(*b, dtype=dtype)), *how))


def test_gradients_of_two_orders() -> None:
    operands = asking(there(5, 4), there(4, 6))
    assert torch.autograd.gradcheck(by_strassen, operands)
    assert torch.autograd.gradgradcheck(by_strassen, operands)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_are_exact_products_by_the_same_algorithm(dtype: Array, runs: Runs) -> None:
    a, b = asking(there(301, 200, dtype=dtype), there(200, 150, dtype=dtype))
    c = by_strassen(a, b)
    weights = there(301, 150, seed=5, dtype=dtype)
    c.backward(weights)
    assert torch.equal(c, a @ b) and torch.equal(a.grad, weights @ b.T) and torch.equal(b.grad, a.T @ weights)
    assert [name for name, *_ in runs] == ["strassen"] * 3


@pytest.mark.filterwarnings("ignore")  # what a compiler says is not ours
def test_compiled_without_a_break() -> None:
    def twice(a: Array, b: Array) -> Array:
        return by_strassen(by_strassen(a, b).relu(), b)

    a, b = there(64, 64), there(64, 64, seed=1)
    torch._dynamo.reset()
    compiled = torch.compile(twice, fullgraph=True, backend="aot_eager")
    found, wanted = asking(a, b), asking(a, b)
    compiled(*found).sum().backward()
    torch.relu(wanted[0] @ wanted[1]).matmul(wanted[1]).sum().backward()
    assert torch.equal(found[0].grad, wanted[0].grad) and torch.equal(found[1].grad, wanted[1].grad)


def test_vmap_and_gradients_of_samples() -> None:
    a, b = there(5, 24, 36), there(5, 36, 18)
    assert torch.equal(torch.vmap(by_strassen)(a, b), torch.vmap(torch.mm)(a, b))
    found, wanted = (
        torch.vmap(torch.func.grad(lambda a, b, multiply=multiply: multiply(a, b).square().sum()))(a, b)
        for multiply in (by_strassen, torch.matmul)
    )
    assert torch.equal(found, wanted)


def test_autocast_as_of_mm() -> None:
    a, b = there(64, 64, dtype=torch.float32), there(64, 64, dtype=torch.float32)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        wanted, found = torch.mm(a, b), bilinear.torch.matmul(a, b)
    assert found.dtype == wanted.dtype == torch.bfloat16 and torch.equal(found, wanted)


def test_a_layer_and_a_model_run_by_the_algorithm(runs: Runs) -> None:
    torch.manual_seed(1)
    layer = bilinear.torch.Linear(96, 64, device=DEVICE, dtype=torch.float64, algorithm="winograd", levels=1)
    x = there(8, 10, 96)
    torch.testing.assert_close(layer(x), torch.nn.functional.linear(x, layer.weight, layer.bias), rtol=1e-12, atol=1e-12)
    assert {name for name, *_ in runs} == {"winograd"}
    model = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True, dtype=torch.float64, device=DEVICE)
    x = there(4, 16, 64)
    wanted = model(x)
    with bilinear.torch.using("strassen", levels=1):
        found = model(x)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)
    assert {name for name, *_ in runs} == {"winograd", "strassen"}
    found.sum().backward()
    assert all(bool(parameter.grad.isfinite().all()) for parameter in model.parameters())


def test_operators_run_on_the_current_stream() -> None:
    side, a, b = torch.cuda.Stream(), there(512, 512, dtype=torch.float32), there(512, 512, seed=1, dtype=torch.float32)
    wanted = a @ b
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(10_000_000)
        late = a * 2
        found = by_strassen(late, b)
    side.synchronize()
    assert torch.equal(found, 2 * wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.int64])
@pytest.mark.parametrize(
    "options", [{}, {"algorithm": "winograd", "levels": 1}, {"algorithm": "classical", "levels": 1, "alpha": 2, "beta": -1}]
)
def test_repeated_calls_are_the_product_wherever_tensors_lie(dtype: Array, options: dict[str, Array]) -> None:
    """The first call of a layout, and later ones on other tensors; of views, into `out`, aside from an operand, and on another stream."""
    if dtype in (torch.bfloat16, torch.float16, torch.int64):
        options = {}  # a schedule would round its products, and multiplies no integers aside from an operand
    alpha, beta = options.get("alpha", 1), options.get("beta", 0)
    for turn in range(3):
        a, b = there(96, 64, seed=turn, dtype=dtype), there(64, 96, seed=turn + 9, dtype=dtype)
        wanted = alpha * (a.double() @ b.double()) if dtype != torch.complex64 else alpha * (a @ b)
        if beta == 0:
            assert torch.equal(bilinear.matmul(a, b, **options), wanted.to(dtype))
            assert torch.equal(bilinear.matmul(b.mT, a.mT, **options), wanted.to(dtype).mT)
        for out in (torch.full((96, 96), 5, dtype=dtype, device=DEVICE), torch.full((96, 200), 5, dtype=dtype, device=DEVICE)[:, 3:99]):
            assert bilinear.matmul(a, b, out, **options) is out
            assert torch.equal(out, (wanted + 5 * beta).to(dtype))
        square = there(64, 64, seed=turn, dtype=dtype)
        own = square.clone()
        bilinear.matmul(own, own, own, **options)
        exact = square.double() @ square.double() if dtype != torch.complex64 else square @ square
        assert torch.equal(own, (alpha * exact + beta * square).to(dtype))
    side, late = torch.cuda.Stream(), there(96, 64, dtype=dtype)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(10_000_000)
        late = late * 2
        out = bilinear.matmul(late, b, torch.zeros(96, 96, dtype=dtype, device=DEVICE), **options)
    side.synchronize()
    exact = late.double() @ b.double() if dtype != torch.complex64 else late @ b
    assert torch.equal(out, (alpha * exact).to(dtype))


def test_repeated_calls_are_captured_and_replayed_on_other_numbers() -> None:
    a, b, out = there(512, 512, dtype=torch.float32), there(512, 512, seed=1, dtype=torch.float32), torch.zeros(512, 512, device=DEVICE)
    for options in ({}, {"algorithm": "winograd", "levels": 2}, {"accuracy": "classical"}):
        for _ in range(2):
            bilinear.matmul(a, b, out, **options)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            bilinear.matmul(a, b, out, **options)
        for seed in range(3):
            a.copy_(there(512, 512, seed=seed, dtype=torch.float32))
            graph.replay()
            assert torch.equal(out, a @ b)


def test_a_kernel_is_loaded_while_pytorch_captures() -> None:
    """PyTorch's capture mode is "global", in which CUDA lets no thread load a module."""
    a, b = there(160, 96, dtype=torch.float64), there(96, 224, seed=1, dtype=torch.float64)
    loaded_kernels._functions.clear()
    loaded_kernels._loaded.clear()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = bilinear.torch.matmul(a, b, algorithm="winograd", levels=1)
    assert loaded_kernels._functions, "the kernels were loaded there"
    for seed in range(2):
        a.copy_(there(160, 96, seed=seed, dtype=torch.float64))
        graph.replay()
        assert torch.equal(out, a @ b)


def test_a_repeated_call_notices_what_it_cannot_repeat() -> None:
    """Conjugate and negative views, a gradient that is asked for, another shape of `out`, and an algorithm whose file has changed."""
    a, b = there(40, 40, dtype=torch.complex64), there(40, 40, seed=1, dtype=torch.complex64)
    for _ in range(2):
        assert torch.equal(bilinear.matmul(a * 1j, b), (a * 1j) @ b)
        assert torch.equal(bilinear.matmul((a * 1j).conj(), b), (a * 1j).conj() @ b)
        assert torch.equal(bilinear.matmul((a * 1j).imag, b.real), (a * 1j).imag @ b.real)
    x, y = there(40, 40, dtype=torch.float32), there(40, 40, seed=1, dtype=torch.float32)
    for _ in range(3):
        (own,) = asking(x)
        bilinear.matmul(own, y).sum().backward()
        assert torch.equal(own.grad, torch.ones_like(x) @ y.T)
        assert not bilinear.matmul(x, y).requires_grad
    with pytest.raises(ValueError, match="out"):
        bilinear.matmul(x, y, torch.zeros(40, 41, device=DEVICE))


def test_a_transformer_trains_as_with_the_librarys_multiply() -> None:
    command = [sys.executable, str(EXAMPLE), "--steps", "5", "--width", "64"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    differ = re.search(r"the losses differ by (\S+) of themselves", done.stdout)
    assert differ is not None and float(differ[1]) < 1e-3, done.stdout


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", [(2500, 700), (2, 2048, 64), (1100, 90)])
def test_blocks_of_a_triangle_of_16_bits(dtype: Array, transposed: bool, shape: tuple[int, ...]) -> None:
    """One call of cuBLAS by lists of addresses, rows that are left over, and a mirror image: exact, also in place of a symmetric `out`."""
    a = torch.randint(-1, 2, shape, device=DEVICE).to(dtype)
    given = a.mT.contiguous() if transposed else a
    wanted = torch.matmul(a.double(), a.double().mT)
    assert wanted.abs().max() < 2**11 and torch.equal(bilinear.gram(given, transposed=transposed), wanted.to(dtype))
    out = torch.ones_like(wanted, dtype=torch.float32)
    assert torch.equal(bilinear.gram(given, out, transposed=transposed, alpha=2, beta=-1).double(), 2 * wanted - 1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_triangle_of_tensors_by_rows_in_one_kernel(dtype: torch.dtype) -> None:
    """Tiles that are not whole, a batch, lines that are apart, beta, an out on its own operand; and in a graph, on other numbers."""
    x = (integers(3, 392, 144).to(dtype).cuda() % 2)[:, :, :136]
    square = (x.double() @ x.double().mT).to(dtype)
    assert torch.equal(bilinear.gram(x), square) and torch.equal(bilinear.gram(x[0]), square[0])
    out = square.clone()
    assert bilinear.gram(x, out, alpha=2, beta=-1) is out and torch.equal(out, square)
    own = square[0].clone().fmod(2)
    wanted = own.double() @ own.double().mT
    assert torch.equal(bilinear.gram(own, own), wanted.to(dtype))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = bilinear.gram(x[1])
    x[1] = x[2]
    graph.replay()
    assert torch.equal(result, square[2])
