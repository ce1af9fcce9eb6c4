"""Every way to multiply tensors, in every context of PyTorch, beside `torch.matmul`: exact on integers, or refused by a stable code."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from pytorch.needed import integers, torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

import bilinear.torch
from bilinear.errors import BilinearError
from bilinear.ir.matrix import Array
from bilinear.runtime.options import Options

A, B = integers(6, 4), integers(4, 6, seed=1)
Multiply = Callable[[Array, Array], Array]
NAMED: dict[str, Any] = {"algorithm": "winograd", "levels": 1}
LAYER = bilinear.torch.Linear(4, 6, dtype=torch.float64, **NAMED)


def in_context(multiply: Multiply, a: Array, b: Array) -> Array:
    with bilinear.torch.using("winograd", levels=1):
        return multiply(a, b)


def added(a: Array, b: Array) -> Array:
    return torch.addmm(a.sum(-1)[:, None], a, b, beta=2, alpha=3)


def unread(a: Array, b: Array) -> Array:
    return torch.addmm(b.sum(-2)[..., None, :], a, b, beta=0, alpha=3)


WAYS: dict[str, tuple[Multiply, Multiply]] = {
    "torch.matmul": (bilinear.torch.matmul, torch.matmul),
    "torch.matmul, named": (partial(bilinear.torch.matmul, **NAMED), torch.matmul),
    "torch.linear": (lambda a, b: bilinear.torch.linear(a, b.mT, b[0], **NAMED), lambda a, b: torch.nn.functional.linear(a, b.mT, b[0])),
    "using": (partial(in_context, torch.matmul), torch.matmul),
    "using addmm": (partial(in_context, added), added),
    "using addmm, beta = 0": (partial(in_context, unread), unread),
    "matmul": (bilinear.matmul, torch.matmul),
    "matmul, named": (partial(bilinear.matmul, **NAMED), torch.matmul),
    "matmul, levels": (partial(bilinear.matmul, algorithm=["winograd", "strassen"]), torch.matmul),
    "matmul, alpha": (partial(bilinear.matmul, alpha=2, **NAMED), lambda a, b: 2 * (a @ b)),
    "matmul, accuracy": (partial(bilinear.matmul, accuracy=1e-3), torch.matmul),
    "matmul, bits": (partial(bilinear.matmul, reproducible="bitwise", accuracy="twice"), torch.matmul),
    "matmul, workspace": (partial(bilinear.matmul, workspace=10**6, algorithm="strassen", levels=1), torch.matmul),
    "gram": (lambda a, b: bilinear.gram(a).sum() * b, lambda a, b: (a @ a.mT).sum() * b),
    "gram, 16 bits": (lambda a, b: bilinear.gram(a.bfloat16()), lambda a, b: a.bfloat16() @ a.bfloat16().mT),
    "gram, bits": (
        lambda a, b: bilinear.gram(a, transposed=True, reproducible="bitwise") @ b,
        lambda a, b: (a.mT @ a) @ b,
    ),
    "gram, triangle": (
        lambda a, b: bilinear.gram(b, transposed=True, triangle="lower", algorithm="rxtx", products="winograd"),
        lambda a, b: torch.tril(b.mT @ b),
    ),
}


def asking(*tensors: Array) -> list[Array]:
    return [x.detach().clone().requires_grad_() for x in tensors]


def loss(multiply: Multiply, a: Array, b: Array) -> Array:
    return multiply(a, b).square().sum()


def gradients(multiply: Multiply, a: Array = A, b: Array = B) -> object:
    given = asking(a, b)
    return torch.autograd.grad(loss(multiply, *given), given, allow_unused=True)


def second_gradients(multiply: Multiply) -> object:
    given = asking(A, B)
    first = torch.autograd.grad(loss(multiply, *given), given, create_graph=True, allow_unused=True)
    return torch.autograd.grad(sum(x.square().sum() for x in first if x is not None), given, allow_unused=True)


def batched_gradients(multiply: Multiply) -> object:
    given = asking(A, B)
    c = multiply(*given)
    return torch.autograd.grad(c, given, torch.stack([c.detach(), integers(*c.shape)]), is_grads_batched=True, allow_unused=True)


def tangents(multiply: Multiply) -> object:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(multiply(forward_ad.make_dual(A, A + 1), forward_ad.make_dual(B, B - 2)))


def compiled(multiply: Multiply, backend: str = "aot_eager", dynamic: bool | None = None) -> object:
    torch._dynamo.reset()
    whole = torch.compile(lambda a, b: multiply(a + 1, b) - 1, fullgraph=True, backend=backend, dynamic=dynamic)
    return whole(A, B), gradients(whole), gradients(whole, A[:5], B)


def exported(multiply: Multiply) -> object:
    class Model(torch.nn.Module):  # type: ignore[misc]
        def forward(self, a: Array, b: Array) -> Array:
            return multiply(a, b)

    return torch.export.export(Model(), (A, B)).module()(A + 1, B)


def shapes(multiply: Multiply) -> object:
    c = multiply(A.to("meta"), B.to("meta"))
    with FakeTensorMode():
        d = multiply(torch.ones(6, 4), torch.ones(4, 6))
    return c.shape, c.dtype, c.device, d.shape, d.dtype


def autocast(multiply: Multiply) -> object:
    with torch.autocast("cpu", dtype=torch.bfloat16), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no schedule runs on bfloat16
        return multiply(A, B)  # float64 is left alone


def inferred(multiply: Multiply) -> object:
    with torch.inference_mode():
        return multiply(A.clone(), B)


def two(multiply: Multiply, a: Array, b: Array) -> Array:
    return multiply(a, b)


def views(multiply: Multiply) -> object:
    return [multiply(a, b) for a, b in ((A.mT[:, :4].mT, B), (torch._neg_view(A), B), (A[:1].expand(6, 4), B[:, :1].expand(4, 6)))]


CONTEXTS: dict[str, Callable[[Multiply], object]] = {
    "plain": lambda f: f(A, B),
    "views": views,
    "gradients": gradients,
    "gradients of neg views": lambda f: gradients(f, torch._neg_view(A), B),
    "second gradients": second_gradients,
    "batched gradients": batched_gradients,
    "tangents": tangents,
    "checkpoint": lambda f: gradients(partial(checkpoint, f, use_reentrant=False)),
    "func.grad": lambda f: torch.func.grad(partial(loss, f), argnums=(0, 1))(A, B),
    "func.vjp": lambda f: torch.func.vjp(f, A, B)[1](f(A, B)),
    "func.jvp": lambda f: torch.func.jvp(f, (A, B), (A + 1, B - 2)),
    "func.linearize": lambda f: torch.func.linearize(f, A, B)[1](A + 1, B - 2),
    "func.functionalize": lambda f: torch.func.functionalize(partial(two, f))(A, B),
    "func.hessian": lambda f: torch.func.hessian(partial(loss, f))(A, B),
    "func.jacfwd": lambda f: torch.func.jacfwd(f, argnums=1)(A, B),
    "vmap": lambda f: torch.vmap(f, in_dims=(1, None))(integers(6, 3, 4), B),
    "vmap of both": lambda f: torch.vmap(f, in_dims=(0, 2))(integers(3, 6, 4), integers(4, 6, 3)),
    "vmap of grad": lambda f: torch.vmap(torch.func.grad(partial(loss, f)), in_dims=(0, None))(integers(3, 6, 4), B),
    "grad of vmap": lambda f: torch.func.grad(lambda a: torch.vmap(f, in_dims=(0, None))(a, B).square().sum())(integers(3, 6, 4)),
    "vmap of jvp": lambda f: torch.vmap(lambda a: torch.func.jvp(f, (a, B), (a, B)))(integers(3, 6, 4)),
    "compiled": compiled,
    "compiled for any shape": partial(compiled, dynamic=True),
    "exported": exported,
    "traced": lambda f: make_fx(partial(two, f), tracing_mode="symbolic")(A, B)(A + 1, B),
    "meta and fake": shapes,
    "autocast": autocast,
    "inference": inferred,
}


def same(found: object, wanted: object) -> bool:
    if isinstance(wanted, torch.Tensor):
        return isinstance(found, torch.Tensor) and found.dtype == wanted.dtype and torch.equal(found, wanted)
    if isinstance(wanted, list | tuple) and not isinstance(wanted, torch.Size):
        return isinstance(found, list | tuple) and all(map(same, found, wanted)) and len(found) == len(wanted)
    return found == wanted


@pytest.mark.filterwarnings("ignore")  # what a compiler says is not ours
@pytest.mark.parametrize("context", CONTEXTS)
def test_every_way_is_torch_matmul_in_every_context(context: str) -> None:
    run, differ = CONTEXTS[context], []
    for name, (ours, torchs) in WAYS.items():
        try:
            if not same(run(ours), run(torchs)):
                differ.append(name)
        except Exception as error:
            differ.append(f"{name}: {type(error).__name__}: {str(error)[:200]}")
    assert not differ, "\n".join(differ)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.filterwarnings("ignore")
def test_a_step_of_newton_and_schulz_is_compiled_whole(backend: str) -> None:
    """As in Muon: A A^T, a polynomial of it into `out`, and its product with A."""

    def step(a: Array) -> Array:
        square = bilinear.gram(a, algorithm="winograd", levels=1)
        polynomial = -4 * square
        bilinear.matmul(square, square, polynomial, alpha=2, beta=1, **NAMED)
        return 3 * a + bilinear.matmul(polynomial, a)

    torch._dynamo.reset()
    square = A @ A.mT
    assert torch.equal(torch.compile(step, fullgraph=True, backend=backend)(A), 3 * A + (2 * square @ square - 4 * square) @ A)


STRASSEN = bilinear.load("strassen")
BY_OBJECT: dict[str, Any] = {"algorithm": STRASSEN, "levels": 1}
SEEN: dict[str, tuple[str, Multiply]] = {
    "out": ("E516", lambda a, b: bilinear.matmul(a, b, torch.zeros(6, 6, dtype=A.dtype))),
    "beta": ("E515", lambda a, b: bilinear.matmul(a, b, beta=1)),
    "inputs": ("E516", partial(bilinear.matmul, inputs="restore", algorithm="msmes")),
    "tolerance": ("E516", partial(bilinear.matmul, tolerance=1.0)),
    "buffer": ("E516", partial(bilinear.matmul, workspace=torch.zeros(99, dtype=A.dtype), **NAMED)),
    "modulus": ("E516", lambda a, b: bilinear.matmul(a, b, modulus=7)),
    "no accuracy": ("E543", partial(bilinear.matmul, accuracy=-1.0)),
    "no alpha": ("E528", partial(bilinear.matmul, alpha=2j)),
    "an array": ("E516", lambda a, b: bilinear.matmul(a, b.detach().numpy())),
    "multi_dot": ("E516", lambda a, b: bilinear.multi_dot([a, b, a])),
    "einsum": ("E516", partial(bilinear.einsum, "ij,jk->ik")),
    "gram": ("E516", lambda a, b: bilinear.gram(a, alpha=2)),
    "an object, traced": ("E517", lambda a, b: torch.vmap(partial(bilinear.matmul, b=b, **BY_OBJECT))(a[None])),
    "gram, traced": ("E517", lambda a, b: torch.vmap(partial(bilinear.gram, alpha=2))(a.detach()[None])),
    "a plan, traced": ("E517", lambda a, b: torch.vmap(partial(bilinear.matmul, b=b.detach(), inputs="consume"))(a.detach()[None])),
    "multi_dot, traced": ("E517", lambda a, b: torch.vmap(lambda a: bilinear.multi_dot([a, B, a]))(a.detach()[None])),
    "multi_dot, functional": ("E517", lambda a, b: torch.func.functionalize(lambda a: bilinear.multi_dot([a, B, a]))(A)),
    "multi_dot, tangents": ("E517", lambda a, b: tangents(lambda a, b: bilinear.multi_dot([a, b, a]))),
    "a tangent of a tangent": ("E517", lambda a, b: torch.func.jacfwd(torch.func.jacfwd(partial(bilinear.matmul, b=B)))(A)),
    "gram, a tangent of a tangent": ("E517", lambda a, b: torch.func.jacfwd(torch.func.jacfwd(bilinear.gram))(A)),
    "gram of vectors": ("E791", lambda a, b: torch.vmap(bilinear.gram)(A)),
    "gram of complex": ("E792", lambda a, b: bilinear.gram(torch.complex(a, a).to("meta"))),
    "gram, 16 bits and an accuracy": ("E519", lambda a, b: bilinear.gram(A.bfloat16(), accuracy=1.0)),
    "multi_dot, meta": ("E517", lambda a, b: bilinear.multi_dot([a.detach().to("meta")] * 2)),
}


NAN, W = A * float("nan"), B.mT
FORMS: dict[str, Callable[[], Array]] = {
    "another shape, unread": lambda: torch.addmm(torch.ones(5), A, B, beta=0),
    "a batch, unread": lambda: torch.addmm(torch.ones(1, 6, 6), A, B, beta=0),
    "NaN, unread": lambda: torch.addmm(NAN[:, :1], A, B, beta=0),
    "alpha = 0 of NaN": lambda: torch.addmm(A @ B, NAN, B, alpha=0, beta=2),
    "batches, alpha = 0": lambda: torch.baddbmm(A @ B, NAN[None], B[None], alpha=0).isnan(),
    "no terms": lambda: torch.addmm(A @ B, A[:, :0], B[:0], beta=3),
    "integers, alpha = 2.5": lambda: torch.addmm((A @ B).int(), A.int(), B.int(), alpha=2.5),
    "integers, beta = 0.5": lambda: torch.addmm((A @ B).int(), A.int(), B.int(), beta=0.5),
    "integers, alpha = 2j": lambda: torch.addmm((A @ B).int(), A.int(), B.int(), alpha=2j),
    "beta = True": lambda: torch.addmm(A @ B, A, B, beta=True),
    "alpha = 2j": lambda: torch.addmm(torch.complex(A @ B, A @ B), torch.complex(A, A), torch.complex(B, B), alpha=2j),
    "an expanded out": lambda: torch.mm(A, B, out=A[:, :1].expand(6, 6)),
    "a batch of weights": lambda: torch.nn.functional.linear(A, W[None]),
    "a vector of weights": lambda: torch.nn.functional.linear(A, W[0], W[0, :1]),
    "another bias": lambda: torch.nn.functional.linear(A, W, torch.ones(6, dtype=torch.float32)),
    "a matrix as bias": lambda: torch.nn.functional.linear(A[0], W, torch.ones(1, 6, dtype=A.dtype)),
    "a number as bias": lambda: torch.nn.functional.linear(A, W, A[0, 0]),
    "autocast of an addend": lambda: in_autocast(lambda: torch.addmm(A @ B, A.float(), B.float())),
    "autocast of a bias": lambda: in_autocast(lambda: torch.nn.functional.linear(A.float(), W.float(), torch.ones(6))),
    "autocast of complex": lambda: in_autocast(lambda: torch.mm(torch.complex(A, A), torch.complex(B, B).conj())),
}


def in_autocast(run: Callable[[], Array]) -> Array:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return run()


@pytest.mark.filterwarnings("ignore")  # that an algorithm does not run
def test_every_form_in_a_context_is_what_pytorch_makes_of_it() -> None:
    differ = []
    for name, form in FORMS.items():
        found = []
        for run in (form, lambda form=form: in_context(lambda *_: form(), A, B)):
            try:
                found.append(run())
            except Exception as error:
                found.append(type(error))
        if not same(*found):
            differ.append((name, found))
    assert not differ


def test_matrices_of_16_bits_on_processors_by_their_transposes() -> None:
    """Sums are float32, and rounded once, into `out` of either type; the other triangle stays."""
    square = A @ A.mT
    for dtype in (torch.bfloat16, torch.float16):
        for kept in (dtype, torch.float32):
            out = torch.full((6, 6), 3, dtype=kept)
            assert bilinear.gram(A.to(dtype), out, alpha=2, beta=-1, triangle="lower") is out
            assert same(out, torch.tril(2 * square - 3).add(3 * torch.ones(6, 6).triu(1)).to(kept))


@pytest.mark.filterwarnings("ignore")  # what PyTorch says of itself is not ours
@pytest.mark.parametrize("call", SEEN)
def test_what_would_lose_a_derivative_or_is_not_traced_is_refused(call: str) -> None:
    code, multiply = SEEN[call]
    with pytest.raises(BilinearError, match=code):
        multiply(*asking(A, B))


def test_an_algorithm_that_is_an_object_gives_gradients() -> None:
    assert same(gradients(partial(bilinear.matmul, **BY_OBJECT)), gradients(torch.matmul))


def test_factors_and_conjugates_of_complex_gradients() -> None:
    def conjugated(multiply: Multiply, a: Array, b: Array) -> Array:
        c = multiply(a.conj(), b.mH)
        return c.real.square() + c.imag

    def scaled(a: Array, b: Array) -> Array:
        return (2 - 1j) * (a @ b)

    given = torch.complex(A, A.flip(0)), torch.complex(B, B.flip(1)).mT
    ways = partial(bilinear.matmul, alpha=2 - 1j, **NAMED), scaled
    assert same(*(gradients(partial(conjugated, way), *given) for way in ways))


def test_the_options_of_a_call_can_be_made_while_pytorch_compiles() -> None:
    """PyTorch's compiler up to 2.13 makes defaults of these types alone."""
    assert {type(x) for x in Options()} <= {type(None), int, str}
