"""`Linear`, and the context: which of PyTorch's functions run by the algorithm, what they give, and what is said where they do not."""

from __future__ import annotations

import copy
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from described import check_examples, check_parameters
from each_case import each
from pytorch.conftest import Runs
from pytorch.needed import integers, torch

import bilinear.torch
from bilinear.errors import BilinearError
from bilinear.ir.matrix import Array
from bilinear.torch.mode import _BESIDE, _TAKEN

A, B, C = integers(4, 6), integers(6, 4, seed=1), integers(4, 4, seed=2)
BATCHES = integers(3, 4, 6), integers(3, 6, 4), integers(3, 4, 4)
TAKEN: list[Callable[[], Array]] = [
    lambda: torch.mm(A, B),
    lambda: torch.mm(input=A, mat2=B),
    lambda: A.mm(B),
    lambda: torch.bmm(*BATCHES[:2]),
    lambda: BATCHES[0].bmm(BATCHES[1]),
    lambda: torch.matmul(A, B),
    lambda: torch.linalg.matmul(A, B),
    lambda: A.matmul(other=B),
    lambda: A @ B,
    lambda: A @ B[:, 0],
    lambda: A[0] @ BATCHES[1],
    lambda: A.__rmatmul__(B),
    lambda: torch.nn.functional.linear(A, B.T, C[0]),
    lambda: torch.nn.functional.linear(BATCHES[0], B.T, bias=C[0]),
    lambda: torch.nn.functional.linear(A[0], B.T),
    lambda: torch.addmm(C, A, B),
    lambda: torch.addmm(C[0], A, B, beta=-3, alpha=2),
    lambda: C.addmm(A, B, beta=2),
    lambda: torch.addmm(C / 0, A, B, beta=0),
    lambda: torch.baddbmm(BATCHES[2], *BATCHES[:2], alpha=2),
    lambda: C[0].baddbmm(*BATCHES[:2]),
]
BESIDE: list[Callable[[], Array]] = [
    lambda: torch.einsum("ij,jk", A, B),
    lambda: torch.tensordot(A, B, 1),
    lambda: torch.linalg.multi_dot([A, B, C]),
    lambda: torch.addbmm(C, *BATCHES[:2]),
    lambda: C.clone().addmm_(A, B),
    lambda: BATCHES[2].clone().baddbmm_(*BATCHES[:2]),
    lambda: torch.mm(A, B, out=torch.empty(4, 4, dtype=A.dtype)),
    lambda: torch.mm(A.to_sparse(), B),
    lambda: torch.mm(A.bfloat16(), B.bfloat16()),
]


@pytest.mark.parametrize("call", range(len(TAKEN)))
def test_a_product_runs_by_the_algorithm(call: int, runs: Runs) -> None:
    wanted = TAKEN[call]()
    with bilinear.torch.using("winograd", levels=1):
        found = TAKEN[call]()
    assert torch.equal(found, wanted) and found.shape == wanted.shape
    assert [name for name, *_ in runs] == ["winograd"]
    assert torch.equal(TAKEN[call](), wanted) and len(runs) == 1  # outside it is PyTorch's again


@pytest.mark.parametrize("call", range(len(BESIDE)))
def test_a_named_algorithm_that_does_not_run_says_so(call: int, runs: Runs) -> None:
    wanted = BESIDE[call]()
    with (
        bilinear.torch.using("winograd", levels=1),
        pytest.warns(UserWarning, match="winograd is not used: .*; the library multiplies") as told,
    ):
        found = BESIDE[call]()
    assert torch.equal(found, wanted) and runs == []
    assert {warning.filename for warning in told} == {__file__}
    for quietly in (bilinear.torch.using(), bilinear.torch.using("winograd", levels=0)):
        with quietly:
            assert torch.equal(BESIDE[call](), wanted)


def test_every_function_of_the_tables_is_pytorchs() -> None:
    assert all(callable(function) for function in (*_TAKEN, *_BESIDE)) and not set(_TAKEN) & _BESIDE


def test_what_pytorch_refuses_is_refused_as_by_pytorch() -> None:
    wrong: list[Callable[[], Array]] = [
        lambda: torch.mm(A, A),
        lambda: torch.mm(A, BATCHES[1]),
        lambda: torch.bmm(BATCHES[0], BATCHES[1][:2]),
        lambda: torch.addmm(integers(3, 3), A, B),
        lambda: torch.nn.functional.linear(A, B),
    ]
    for call in wrong:
        with pytest.raises(RuntimeError):
            call()
        with bilinear.torch.using("strassen", levels=1), pytest.raises(RuntimeError):
            call()
    with bilinear.torch.using("strassen", levels=1), pytest.warns(UserWarning, match="different types"), pytest.raises(RuntimeError):
        torch.mm(A, B.float())


def test_an_alpha_of_0_does_what_it_does_in_pytorch(runs: Runs) -> None:
    """It multiplies nothing in `addmm`, and so no NaN reaches the result."""
    for function, shapes in ((torch.addmm, ((4, 4), (4, 6), (6, 4))), (torch.baddbmm, ((2, 4, 4), (2, 4, 6), (2, 6, 4)))):
        addend, a, b = integers(*shapes[0]), torch.full(shapes[1], torch.nan, dtype=A.dtype), integers(*shapes[2])
        for beta in (0, 2):
            wanted = function(addend, a, b, alpha=0, beta=beta)
            assert function is torch.baddbmm or torch.equal(wanted, beta * addend)
            with bilinear.torch.using("strassen", levels=1):
                torch.testing.assert_close(function(addend, a, b, alpha=0, beta=beta), wanted, rtol=0, atol=0, equal_nan=True)
    assert not runs


def test_tensors_without_memory_have_shapes() -> None:
    a, b = torch.empty(2, 3, 4, device="meta"), torch.empty(4, 5, device="meta")
    layer = bilinear.torch.Linear(4, 5, device="meta", algorithm="strassen", levels=1)
    with bilinear.torch.using("strassen", levels=1):
        found = [a @ b, torch.nn.Linear(4, 5, device="meta")(a), torch.bmm(a, b.expand(2, 4, 5)), torch.addmm(b[:3], a[0], b)]
    found += [bilinear.torch.matmul(a, b, algorithm="strassen", levels=1), layer(a), bilinear.torch.linear(a, b.T)]
    found.append(bilinear.matmul(a.requires_grad_(), b))
    assert all(x.device.type == "meta" for x in found)
    assert [tuple(x.shape) for x in found] == [(2, 3, 5), (2, 3, 5), (2, 3, 5), (3, 5), (2, 3, 5), (2, 3, 5), (2, 3, 5), (2, 3, 5)]


def test_what_is_no_tensor_is_refused() -> None:
    calls: tuple[Callable[[Array, Array], Array], ...] = (
        bilinear.torch.matmul,
        bilinear.torch.linear,
        lambda a, b: bilinear.torch.Linear(6, 6)(a),
    )
    for call in calls:
        with pytest.raises(TypeError, match=r"(?s)E518.*of type ndarray.*use bilinear\.matmul"):
            call(A.numpy(), B.numpy())


def test_the_innermost_context_counts(runs: Runs) -> None:
    with bilinear.torch.using("winograd", levels=1):
        with bilinear.torch.using("strassen", levels=1):
            A @ B
        A @ B
        with bilinear.torch.using():
            A @ B  # on processors `auto` is the library
    assert [name for name, *_ in runs] == ["strassen", "winograd"]


def test_a_subclass_multiplies_itself() -> None:
    class Own(torch.Tensor):  # type: ignore[misc]
        pass

    own = A.as_subclass(Own)
    with bilinear.torch.using("strassen", levels=1), pytest.warns(UserWarning, match="subclass"):
        assert isinstance(own @ B, Own)


def test_what_is_no_algorithm_is_refused_at_once() -> None:
    for make in (bilinear.torch.using, lambda name: bilinear.torch.Linear(2, 2, algorithm=name)):
        with pytest.raises(BilinearError, match="E121"):
            make("nosuch")
    with pytest.raises(BilinearError, match="E514"):
        bilinear.torch.using("strassen", levels=-1)


def encoder() -> Array:
    torch.manual_seed(0)
    return torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).double()


def gradients(model: Array, loss: Array) -> list[Array]:
    model.zero_grad()
    loss.backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


def test_all_products_of_a_model_and_of_its_gradients(runs: Runs) -> None:
    """Of the attention and of the layers, six products; backwards each is two, but for the first one's, whose input asks for none."""
    model, x = encoder(), torch.linspace(-1, 1, 80, dtype=torch.float64).reshape(2, 5, 8)
    wanted = gradients(model, model(x).square().sum())
    with bilinear.torch.using("strassen", levels=1):
        loss = model(x).square().sum()
    forwards = len(runs)
    found = gradients(model, loss)  # after the context
    assert (forwards, len(runs)) == (4, 4 + 7) and {name for name, *_ in runs} == {"strassen"}
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


def test_attention_that_shows_its_weights(runs: Runs) -> None:
    attention, x = torch.nn.MultiheadAttention(8, 2, batch_first=True, dtype=torch.float64), integers(2, 5, 8) / 8
    wanted = attention(x, x, x)
    with bilinear.torch.using("strassen", levels=1):
        found = attention(x, x, x)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    assert len(runs) == 4  # the projections, queries by keys, weights by values, the output


@pytest.mark.filterwarnings("ignore")  # what a compiler says is not ours
@pytest.mark.parametrize("inside", [True, False])
def test_a_compiled_model(inside: bool, runs: Runs) -> None:
    model, x = encoder(), torch.linspace(-1, 1, 80, dtype=torch.float64).reshape(2, 5, 8)
    wanted = gradients(model, model(x).square().sum())

    def run(forward: Array, x: Array) -> Array:
        with bilinear.torch.using("strassen", levels=1):
            return forward(x)

    torch._dynamo.reset()
    if inside:
        found = torch.compile(lambda x: run(model, x), fullgraph=True, backend="aot_eager")(x)
    else:
        found = run(torch.compile(model, fullgraph=True, backend="aot_eager"), x)
    torch.testing.assert_close(gradients(model, found.square().sum()), wanted, rtol=1e-12, atol=1e-12)
    assert len(runs) == 4 + 7 and {name for name, *_ in runs} == {"strassen"}


def test_a_compiled_function_warns_when_it_is_traced() -> None:
    def product(a: Array, b: Array) -> Array:
        with bilinear.torch.using("strassen", levels=1):
            return torch.einsum("ij,jk", a, b)

    torch._dynamo.reset()
    with pytest.warns(UserWarning, match="strassen is not used: einsum"):
        assert torch.equal(torch.compile(product, fullgraph=True, backend="aot_eager")(A, B), A @ B)


def test_autocast_inside(runs: Runs) -> None:
    layer = torch.nn.Linear(6, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wanted = layer(A.float())
        with bilinear.torch.using():
            found = layer(A.float())
    assert found.dtype == torch.bfloat16 and torch.equal(found, wanted) and runs == []
    found.float().sum().backward()
    assert layer.weight.grad.dtype == layer.bias.grad.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_row_has_the_same_bits_in_every_batch(dtype: torch.dtype) -> None:
    """Forwards and backwards, alone and in a batch, also where a module multiplies; what PyTorch would multiply is refused."""
    torch.manual_seed(3)
    layer = torch.nn.Sequential(torch.nn.Linear(33, 70), torch.nn.Tanh(), torch.nn.Linear(70, 5)).to(dtype)
    x = torch.randn(64, 33, dtype=dtype, requires_grad=True)
    with bilinear.torch.using(reproducible="bitwise"):
        y = layer(x)
        y.sum().backward()
        for rows in (slice(0, 1), slice(3, 10), slice(20, 64)):
            part = x.detach()[rows].clone().requires_grad_()
            z = layer(part)
            z.sum().backward()
            assert torch.equal(z, y[rows]) and torch.equal(part.grad, x.grad[rows])
        assert torch.equal(torch.bmm(x[None], layer[0].weight.mT[None])[0], x @ layer[0].weight.mT)
        for call in BESIDE[:-1]:
            with pytest.raises(BilinearError, match=r"E821"):
                call()
        with pytest.raises(BilinearError, match=r"E821.*scaled_dot_product_attention"):
            torch.nn.functional.scaled_dot_product_attention(*[x.reshape(1, 64, 33)] * 3)
    with pytest.raises(BilinearError, match="E820"):
        bilinear.torch.using("winograd", reproducible="bitwise")
    own = bilinear.torch.Linear(33, 70, dtype=dtype, reproducible="bitwise")
    assert torch.equal(own(x)[5:6], own(x[5:6])) and "reproducible='bitwise'" in repr(own)


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_is_pytorchs_with_other_products(bias: bool, runs: Runs) -> None:
    torch.manual_seed(1)
    own = torch.nn.Linear(6, 4, bias, dtype=torch.float64)
    torch.manual_seed(1)
    layer = bilinear.torch.Linear(6, 4, bias, dtype=torch.float64, algorithm="strassen", levels=1)
    for shape in ((8, 6), (2, 3, 6), (6,), (0, 6)):
        x = integers(*shape)
        torch.testing.assert_close(layer(x), own(x), rtol=1e-13, atol=1e-13)
    assert {name for name, *_ in runs} == {"strassen"}
    assert own.state_dict().keys() == layer.state_dict().keys()
    layer.load_state_dict(own.state_dict())


def test_a_layer_is_exact_on_integers() -> None:
    layer = bilinear.torch.Linear(6, 4, dtype=torch.float64, algorithm="winograd", levels=1)
    with torch.no_grad():
        layer.weight.copy_(integers(4, 6))
        layer.bias.copy_(integers(4))
    assert torch.equal(layer(integers(8, 6)), integers(8, 6) @ integers(4, 6).T + integers(4))


def test_a_layer_is_shown_copied_and_saved() -> None:
    layer = bilinear.torch.Linear(6, 4, algorithm="strassen", levels=2)
    assert str(layer) == "Linear(in_features=6, out_features=4, bias=True, algorithm='strassen', levels=2)"
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    for other in (copy.deepcopy(layer), torch.load(file, weights_only=False)):
        assert str(other) == str(layer) and torch.equal(other.weight, layer.weight)


def test_a_layer_that_is_compiled_or_cast(runs: Runs) -> None:
    layer = bilinear.torch.Linear(6, 4, algorithm="strassen", levels=1)
    x = integers(8, 6, dtype=torch.float32)
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), torch.nn.functional.linear(x, layer.weight, layer.bias))
    assert len(runs) == 1
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.warns(UserWarning, match="no schedule runs on bfloat16"):
        assert layer(x).dtype == torch.bfloat16


def test_the_public_names_are_listed_and_nothing_else() -> None:
    assert dir(bilinear.torch) == ["Linear", "linear", "matmul", "using"]


@pytest.mark.parametrize("name", bilinear.torch.__all__)
def test_the_docstrings_describe_all_and_their_examples_run(name: str) -> None:
    check_parameters(getattr(bilinear.torch, name))
    check_examples(getattr(bilinear.torch, name))


SMALL = "--hidden 16 --inner 24 --heads 2 --length 4 --batch 1 --steps 2 --repeats 1"


@each("script", ["muon.py --shapes 24x40 --repeats 1 --no-compile", f"layer.py {SMALL}"])
def test_benchmarks_of_models_run_and_check_themselves(script: str) -> None:
    folder = Path(__file__).parents[2] / "benchmarks"
    done = subprocess.run([sys.executable, *script.split()], cwd=folder, capture_output=True, text=True, check=True)
    assert ("bilinear" if "muon" in script else "using auto prefill") in done.stdout
