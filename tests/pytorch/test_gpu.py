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


def test_a_transformer_trains_as_with_the_librarys_multiply() -> None:
    command = [sys.executable, str(EXAMPLE), "--steps", "5", "--width", "64"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    differ = re.search(r"the losses differ by (\S+) of themselves", done.stdout)
    assert differ is not None and float(differ[1]) < 1e-3, done.stdout
