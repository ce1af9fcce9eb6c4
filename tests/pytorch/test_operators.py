"""The operators beside PyTorch's own multiply: values, gradients of two orders, and the rules that PyTorch asks for."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytorch.conftest import Runs
from pytorch.needed import integers, torch

import bilinear.torch
from bilinear.errors import BilinearError
from bilinear.ir.matrix import Array

MM, BMM = torch.ops.bilinear.mm.default, torch.ops.bilinear.bmm.default
HOW = ("strassen", 1), ("winograd", 2), ("auto", None)
by_strassen = partial(bilinear.torch.matmul, algorithm="strassen", levels=1)


def twice(a: Array, b: Array) -> Array:
    return by_strassen(by_strassen(a, b).relu(), b)


def asking(*tensors: Array) -> tuple[Array, ...]:
    return tuple(x.clone().requires_grad_() for x in tensors)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # the check itself reads it
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("operator", "a", "b"),
    [
        (MM, (7, 6), (6, 9)),
        (MM, (0, 6), (6, 9)),
        (MM, (4, 0), (0, 4)),
        (BMM, (3, 4, 6), (3, 6, 5)),
    ],
)
def test_what_pytorch_asks_of_operators(
    operator: Array, a: tuple[int, ...], b: tuple[int, ...], dtype: Array, how: tuple[str, int | None]
) -> None:
    """Schema, gradients, shapes without values, and traces."""
    torch.library.opcheck(operator, (*asking(integers(*a, dtype=dtype), integers(*b, dtype=dtype)), *how))
    torch.library.opcheck(operator, (integers(*a, dtype=dtype), integers(*b[:-2], *b[:-3:-1], dtype=dtype).mT))


@pytest.mark.parametrize("shapes", [((5, 4), (4, 6)), ((2, 4, 3), (2, 3, 4)), ((2, 1, 4, 3), (3, 3, 2)), ((4,), (4, 3)), ((2, 3, 4), (4,))])
def test_gradients_of_two_orders(shapes: tuple[tuple[int, ...], ...]) -> None:
    operands = asking(*(integers(*shape) for shape in shapes))
    assert torch.autograd.gradcheck(by_strassen, operands)
    assert torch.autograd.gradgradcheck(by_strassen, operands)


@pytest.mark.parametrize("operator", [MM, BMM])
def test_gradients_of_the_bare_operators(operator: Array) -> None:
    batch = () if operator is MM else (2,)
    operands = asking(integers(*batch, 4, 3), integers(*batch, 3, 2))
    assert torch.autograd.gradcheck(lambda a, b: operator(a, b, "strassen", 1), operands)
    assert torch.autograd.gradgradcheck(lambda a, b: operator(a, b, "strassen", 1), operands)


def test_gradients_are_products_by_the_same_algorithm(runs: Runs) -> None:
    a, b = asking(integers(6, 4), integers(4, 8))
    by_strassen(a, b).sum().backward()
    assert runs == [("strassen", (6, 4), (4, 8)), ("strassen", (6, 8), (8, 4)), ("strassen", (4, 6), (6, 8))]
    assert torch.equal(a.grad, torch.ones(6, 8, dtype=a.dtype) @ b.T) and torch.equal(b.grad, a.T @ torch.ones(6, 8, dtype=a.dtype))


def test_only_what_a_gradient_reads_is_kept(runs: Runs) -> None:
    """The gradient of A reads B alone, so A may be overwritten, and nothing is multiplied for B."""
    (a,), b = asking(integers(4, 4)), integers(4, 4, seed=1)
    c = by_strassen(a, b)
    with torch.no_grad():
        a.zero_()
    c.sum().backward()
    assert torch.equal(a.grad, torch.ones_like(a) @ b.T) and len(runs) == 2
    c = by_strassen(a, b)
    b.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        c.sum().backward()


extents = st.integers(1, 5)


@given(m=extents, k=extents, n=extents, batches=st.sampled_from([((), ()), ((2,), ()), ((), (3,)), ((2, 1), (3,)), ((0,), (0,))]))
def test_shapes_are_those_of_torch_matmul(m: int, k: int, n: int, batches: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    left, right = integers(*batches[0], m, k), integers(*batches[1], k, n)
    for a, b in ((left, right), (left, right.flatten()[:k]), (left.flatten()[:k], right)):
        if a.numel() and b.numel():
            assert torch.equal(by_strassen(a, b), torch.matmul(a, b))


@pytest.mark.parametrize("shapes", [((2, 3), (2, 3)), ((2,), (3,)), ((2, 2, 3), (3, 3, 2)), ((), (2, 2))])
def test_what_does_not_fit_is_refused_as_by_pytorch(shapes: tuple[tuple[int, ...], ...]) -> None:
    a, b = (integers(*shape) for shape in shapes)
    with pytest.raises(RuntimeError) as own:
        torch.matmul(a, b)
    with pytest.raises(RuntimeError) as found:
        by_strassen(a, b)
    assert str(found.value) == str(own.value)


@pytest.mark.parametrize("b", [integers(3, 2), integers(2, 2, 2), integers(2, 2, dtype=torch.float32)])
def test_operators_refuse_what_mm_refuses(b: Array) -> None:
    with pytest.raises(RuntimeError) as own:
        torch.mm(integers(2, 2), b)
    with pytest.raises(RuntimeError) as found:
        MM(integers(2, 2), b, "strassen", 1)
    assert str(found.value) == str(own.value)


def test_what_is_no_algorithm_is_refused() -> None:
    a = integers(4, 4)
    with pytest.raises(BilinearError, match="E121"):
        bilinear.torch.matmul(a, a, algorithm="nosuch")
    for levels in (-1, True, "two"):
        with pytest.raises(BilinearError, match="E514"):
            bilinear.torch.matmul(a, a, algorithm="strassen", levels=levels)  # type: ignore[arg-type]
    with pytest.raises(BilinearError, match="E514"):
        MM(a, a, "strassen", -1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_types_without_a_schedule_are_pytorchs_own(dtype: Array, runs: Runs) -> None:
    """A named algorithm that does not run says so, also where its gradients are computed."""
    a, b = asking(integers(6, 4, dtype=dtype), integers(4, 6, dtype=dtype))
    assert torch.equal(bilinear.torch.matmul(a, b), torch.mm(a, b))
    with pytest.warns(UserWarning, match=f"strassen is not used: no schedule runs on {str(dtype)[6:]}; the library multiplies"):
        c = by_strassen(a, b)
    assert torch.equal(c, torch.mm(a, b)) and runs == []
    with pytest.warns(UserWarning, match="strassen is not used"):
        c.backward(torch.ones_like(c))
    assert torch.equal(a.grad, torch.ones_like(c) @ b.mH)
    bilinear.torch.matmul(a, b, algorithm="strassen", levels=0)  # is the library's by its levels


def test_a_warning_points_at_the_caller() -> None:
    layer = bilinear.torch.Linear(4, 4, algorithm="strassen", levels=1, dtype=torch.bfloat16)
    with pytest.warns(UserWarning, match="strassen is not used") as found:
        layer(integers(4, 4, dtype=torch.bfloat16))
    assert [warning.filename for warning in found] == [__file__]


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64])
def test_integers_are_exact_and_wrap(dtype: Array, runs: Runs) -> None:
    a, b = integers(8, 6, dtype=dtype) * 30, integers(6, 4, dtype=dtype) * 30
    assert torch.equal(by_strassen(a, b), torch.mm(a, b)) and len(runs) == 1


def test_views_and_conjugates_are_multiplied_as_they_are_read(runs: Runs) -> None:
    a = integers(12, 8)
    for view in (a[::2, 1:7], a.T[1:7, ::2], torch._neg_view(a)[:6, :6], a[:1, :6].expand(6, 6)):
        assert torch.equal(by_strassen(view, view.T), view @ view.T)
    assert len(runs) == 4
    z = torch.complex(a, a.flip(0))[:6, :6].conj()
    assert torch.equal(by_strassen(z, z.T), z @ z.T) and torch.equal(by_strassen(z, z.mH), z @ z.mH)
    assert len(runs) == 6


def test_gradients_of_complex_products_are_conjugate_products(runs: Runs) -> None:
    a, b = asking(*(torch.complex(integers(*shape), integers(*shape, seed=3)) for shape in ((6, 4), (4, 6))))
    c = by_strassen(a, b)
    c.backward(torch.ones_like(c))
    assert torch.equal(a.grad, torch.ones_like(c) @ b.mH) and torch.equal(b.grad, a.mH @ torch.ones_like(c))
    assert len(runs) == 3


def test_operands_on_processors_are_not_copied(runs: Runs) -> None:
    a, b = asking(integers(8, 8), integers(8, 8, seed=1))
    c = by_strassen(a, b.T)
    left, right, out = runs.operands
    pointers = [x.__array_interface__["data"][0] for x in (left, right, out)]
    assert pointers == [a.data_ptr(), b.data_ptr(), c.data_ptr()] and right.strides == (8, 64)


def test_sparse_tensors_are_pytorchs_own() -> None:
    a, b = integers(4, 4), integers(4, 4, seed=1)
    with pytest.warns(UserWarning, match="strassen is not used: no schedule runs on tensors of layout sparse_coo"):
        assert torch.equal(by_strassen(a.to_sparse(), b), a @ b)


@pytest.mark.parametrize("name", ["mm", "bmm"])
@pytest.mark.parametrize("dims", [(0, None), (None, 0), (1, None), (None, -1), (2, 1)])
def test_vmap_as_of_pytorchs_own(name: str, dims: tuple[int | None, int | None], runs: Runs) -> None:
    batch = () if name == "mm" else (4,)
    a, b = (integers(*batch, 4, 4, *(() if at is None else (4,)), seed=seed) for seed, at in enumerate(dims))
    wanted = torch.vmap(getattr(torch, name), in_dims=dims)(a, b)
    assert torch.equal(torch.vmap(by_strassen, in_dims=dims)(a, b), wanted)
    bare = getattr(torch.ops.bilinear, name)
    assert torch.equal(torch.vmap(lambda a, b: bare(a, b, "strassen", 1), in_dims=dims)(a, b), wanted)
    assert len(runs) == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_autocast_as_of_mm(dtype: Array) -> None:
    a, b = asking(integers(4, 6, dtype=dtype), integers(6, 4, dtype=dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wanted, found, bare = torch.mm(a, b), bilinear.torch.matmul(a, b), MM(a, b)
    assert torch.equal(found, wanted) and torch.equal(bare, wanted) and found.dtype == wanted.dtype
    found.sum().backward()
    assert a.grad.dtype == dtype
    if dtype == torch.float32:
        with torch.autocast("cpu", dtype=torch.bfloat16), pytest.warns(UserWarning, match="bfloat16"):
            by_strassen(a, b)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.filterwarnings("ignore")  # what a compiler says is not ours
def test_compiled_without_a_break(backend: str, runs: Runs) -> None:
    a, b = integers(6, 6), integers(6, 6, seed=1)
    wanted = asking(a, b)
    torch.relu(wanted[0] @ wanted[1]).matmul(wanted[1]).sum().backward()
    torch._dynamo.reset()
    compiled = torch.compile(twice, fullgraph=True, backend=backend)
    found = asking(a, b)
    compiled(*found).sum().backward()
    assert torch.equal(found[0].grad, wanted[0].grad) and torch.equal(found[1].grad, wanted[1].grad)
    assert [name for name, *_ in runs] == ["strassen"] * 6


def test_the_library_multiplies_if_the_environment_says_so(monkeypatch: pytest.MonkeyPatch, runs: Runs) -> None:
    monkeypatch.setenv("BILINEAR_USE_LIBRARY", "1")
    a = integers(4, 4)
    assert torch.equal(by_strassen(a, a), a @ a) and runs == []
