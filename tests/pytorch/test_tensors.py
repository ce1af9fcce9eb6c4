"""`bilinear.matmul` and `multi_dot` on PyTorch's tensors in the memory of processors: NumPy's rules, where they lie."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
from pytorch.conftest import Runs
from pytorch.needed import integers, torch
from soak.case import PASSED, REFUSED, Case
from soak.kinds import torch as cases

import bilinear
from bilinear.backends.same_bits import same_bits_product
from bilinear.errors import BilinearError
from bilinear.ir.matrix import Array
from bilinear.ir.tile import LARGEST_IN_BYTES
from bilinear.runtime import arrays

A, B = integers(8, 6), integers(6, 8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
@pytest.mark.parametrize("algorithm", ["auto", "strassen"])
def test_a_product_of_tensors_is_a_tensor(algorithm: str, dtype: Array) -> None:
    a, b = A.to(dtype), B.to(dtype)
    for left, right in ((a, b), (b.T, b), (a, b[:, 0]), (a[0], b[:, 0]), (a.reshape(2, 4, 6), b)):
        c = bilinear.matmul(left, right, algorithm=algorithm, levels="auto" if algorithm == "auto" else 1)
        assert isinstance(c, torch.Tensor) and c.dtype == dtype and torch.equal(c, left @ right)


def test_tensors_are_written_where_they_lie() -> None:
    out, a, b = torch.full((8, 8), 3.0, dtype=torch.float64), A.clone(), B.clone()
    assert bilinear.matmul(a, b, out, alpha=2, beta=1, algorithm="winograd", levels=1) is out
    assert torch.equal(out, 2 * (A @ B) + 3)
    assert bilinear.matmul(a, b, out.T, algorithm="msmes", levels=1, inputs="restore").data_ptr() == out.data_ptr()
    assert torch.equal(out.T, A @ B) and torch.equal(a, A) and torch.equal(b, B)
    buffer = torch.empty(1000, dtype=torch.float64)
    assert torch.equal(bilinear.matmul(a, b, algorithm="winograd", levels=1, workspace=buffer), A @ B)
    parameter = torch.nn.Parameter(torch.zeros(6, 6, dtype=torch.float64))
    with torch.no_grad():
        bilinear.matmul(b, a, parameter, algorithm="strassen", levels=1)
    assert torch.equal(parameter, B @ A)


def test_gradients_that_need_what_was_overwritten_are_refused() -> None:
    """As after writes of PyTorch: they would be those of the new numbers. A tensor of inference has none, and is written."""
    x, buffer = torch.eye(8, dtype=torch.float64), torch.zeros(1000, dtype=torch.float64)
    named: dict[str, Any] = {"algorithm": "winograd", "levels": 1}
    writes: list[Callable[[Array], object]] = [
        lambda y: bilinear.matmul(x, x, y, **named),
        lambda y: bilinear.matmul(y, x.clone(), algorithm="msmes", levels=1, inputs="consume"),
        lambda y: bilinear.matmul(x, x, out=y.T, **named, workspace=buffer),
        lambda y: bilinear.gram(x, y),
        lambda y: bilinear.einsum("ij,jk->ik", x, x, out=y, **named),
        lambda y: bilinear.multi_dot([x, x, x], out=y, **named),
        lambda y: bilinear.matmul(x, x, y, reproducible="bitwise"),
    ]
    for write in writes:
        kept, wanted = torch.full((8, 8), 2.0, dtype=torch.float64), torch.ones(8, 8, dtype=torch.float64, requires_grad=True)
        for _ in range(2):  # once more, as calls are kept
            product = wanted * kept
            write(kept)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                product.sum().backward()
    with torch.inference_mode():
        plain = torch.zeros(8, 8, dtype=torch.float64)
        assert torch.equal(bilinear.matmul(x, x, plain, **named), x)


def test_a_gradient_is_recorded(runs: Runs) -> None:
    a, b = A.clone().requires_grad_(), B.clone().requires_grad_()
    c = bilinear.matmul(a, b, algorithm="strassen", levels=1)
    c.sum().backward()
    assert torch.equal(c, A @ B) and torch.equal(a.grad, torch.ones_like(c) @ B.T) and torch.equal(b.grad, A.T @ torch.ones_like(c))
    assert [name for name, *_ in runs] == ["strassen"] * 3
    with torch.autocast("cpu", dtype=torch.bfloat16):  # it names its type itself
        assert bilinear.matmul(a.float(), b.float(), algorithm="strassen", levels=1).dtype == torch.float32
    with torch.no_grad():
        assert not bilinear.matmul(a, b, algorithm="strassen", levels=1).requires_grad


def test_a_tensor_is_multiplied_by_its_own_transpose() -> None:
    a = torch.arange(63.0).reshape(9, 7) % 5
    assert torch.equal(bilinear.gram(a), a @ a.T)
    out = torch.full((7, 7), 3.0)
    assert bilinear.gram(a, out, transposed=True, triangle="upper", beta=2, algorithm="rxtx", products="winograd") is out
    assert torch.equal(out, torch.triu(a.T @ a + 6) + torch.tril(torch.full((7, 7), 3.0), -1))
    with pytest.raises(BilinearError, match="E792"):
        bilinear.gram(a.to(torch.complex64))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("triangle", [None, "lower", "upper"])
@pytest.mark.parametrize(
    "options", [{}, {"algorithm": "winograd", "levels": 1}, {"algorithm": "rxtx", "levels": 1, "products": "strassen"}]
)
def test_gradients_of_a_gram_matrix_are_those_of_pytorch(transposed: bool, triangle: Any, options: dict[str, Any]) -> None:
    """Of two orders; on integers bit for bit."""
    a, weights = integers(2, 8, 12).requires_grad_(), integers(2, *((12, 12) if transposed else (8, 8)), seed=5)
    only = {None: lambda x: x, "lower": torch.tril, "upper": torch.triu}[triangle]
    wanted = only(a.mT @ a if transposed else a @ a.mT)
    found = bilinear.gram(a, transposed=transposed, triangle=triangle, **options)
    assert found.requires_grad and torch.equal(found, wanted)
    first, second = (torch.autograd.grad((x * weights).sum(), a, create_graph=True)[0] for x in (found, wanted))
    assert torch.equal(first, second)
    again = [torch.autograd.grad((x * x).sum(), a)[0] for x in (first, second)]
    assert torch.equal(*again)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_types_without_a_schedule_are_pytorchs_own(dtype: Array, runs: Runs) -> None:
    a, b = A.to(dtype), B.to(dtype)
    assert torch.equal(bilinear.matmul(a, b), a @ b)
    with pytest.warns(UserWarning, match=f"winograd is not used: no schedule runs on {str(dtype)[6:]}; the library multiplies") as told:
        assert torch.equal(bilinear.matmul(a, b, algorithm="winograd", levels=1), a @ b)
    assert runs == [] and [warning.filename for warning in told] == [__file__]


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_conjugates_are_multiplied_without_copies(dtype: Array, runs: Runs) -> None:
    a, b = torch.complex(A, A.flip(0)).to(dtype), torch.complex(B, B.flip(1)).to(dtype)
    for x, y in ((a.conj(), b), (b.mH, a.mH), (a, b.conj()), (a.conj(), b.conj()), (a.conj().T, b.T.conj().resolve_conj())):
        wanted = x.resolve_conj() @ y.resolve_conj()
        assert torch.equal(bilinear.matmul(x, y, algorithm="strassen", levels=1), wanted)
        assert [p.ctypes.data for p in runs.operands[:2]] == [x.data_ptr(), y.data_ptr()]
        assert torch.equal(bilinear.matmul(x, y, algorithm="strassen", levels=1, alpha=2j), 2j * wanted)
        assert torch.equal(bilinear.matmul(x, y, torch.zeros_like(wanted), alpha=3), 3 * wanted), "the library's multiply"
    out = torch.ones(8, 8, dtype=dtype).mul(1j).conj()
    assert bilinear.matmul(a, b, out, alpha=2, beta=1, algorithm="strassen", levels=1) is out and out.is_conj()
    assert torch.equal(out, 2 * (a @ b) - 1j)


TYPES = ("bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128")


@pytest.mark.parametrize("left", TYPES)
@pytest.mark.parametrize("algorithm", ["auto", "winograd"])
def test_two_types_have_pytorchs_common_type(left: str, algorithm: str) -> None:
    levels: Any = "auto" if algorithm == "auto" else 1
    for right in TYPES:
        common = torch.promote_types(getattr(torch, left), getattr(torch, right))
        a, b = (A.abs() % 2).to(getattr(torch, left)), (B.abs() % 2).to(getattr(torch, right))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of types without a schedule
            found = bilinear.matmul(a, b, algorithm=algorithm, levels=levels)
        assert found.dtype == common
        assert torch.equal(found, (a.double() @ b.double()).to(common)) if not (a.is_complex() or b.is_complex()) else found.real.max() > 0


def test_a_type_that_is_not_multiplied_is_told_with_those_that_are() -> None:
    a = A.to(torch.bfloat16)
    with pytest.raises(BilinearError, match=r"(?s)E517.*BFloat16.*convert it: .* tensors of bool, complex128"):
        bilinear.matmul(a, a, alpha=2, algorithm="winograd", levels=1)


def test_types_that_only_arrays_multiply() -> None:
    a = A.abs()
    for dtype in (torch.uint16, torch.uint64):
        assert torch.equal(bilinear.matmul(a.to(dtype), a.T.to(dtype)).long(), (a @ a.T).long())
    assert torch.equal(bilinear.matmul(A > 0, B > 0), (A > 0).double() @ (B > 0).double() > 0)


def test_a_tensor_on_a_gpu_needs_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    there = SimpleNamespace(is_cuda=True, device="cuda:0")
    monkeypatch.setattr(torch, "Tensor", SimpleNamespace)
    with pytest.raises(BilinearError, match="E512"), arrays.surroundings(torch, None, there):
        pass


def views() -> list[Array]:
    return [A.bfloat16(), A.to_sparse(), torch.empty(8, 6, device="meta"), A.to(torch.float8_e4m3fn)]


@pytest.mark.parametrize("at", range(len(views())))
def test_what_does_not_lie_in_memory_as_numbers_is_refused(at: int) -> None:
    for right in (B, B.to(views()[at].dtype)) if at else (B.bfloat16(),):
        with pytest.raises(BilinearError, match=r"E51[17]"):
            bilinear.matmul(views()[at], right, torch.empty(8, 8, dtype=torch.float64))


def test_views_that_conjugate_or_negate_are_read_as_what_they_stand_for() -> None:
    x = torch.complex(A, A.flip(0))
    y, z = x.mH, torch._neg_view(A)
    assert torch.equal(bilinear.einsum("ij,kj->ik", x, x.conj()), x @ y)
    assert torch.equal(bilinear.tensordot(x, y, 1), x @ y)
    assert torch.equal(bilinear.multi_dot([x, y, x.conj()]), x @ y @ x.conj())
    assert torch.equal(bilinear.gram(z), A @ A.T) and torch.equal(
        bilinear.matmul(z, B, alpha=2, algorithm="strassen", levels=1), -2 * A @ B
    )
    assert bilinear.check(x, y, x @ y, tolerance=1e-12).passed
    assert torch.equal(bilinear.matmul(bilinear.prepare(z, columns=8, algorithm="strassen", levels=1), B), -A @ B)
    for out in (torch._neg_view(torch.zeros(8, 8, dtype=A.dtype)), torch.zeros(8, 8, dtype=x.dtype).conj()):
        assert bilinear.einsum("ij,jk->ik", A, B, out=out) is out
        assert torch.equal(out.resolve_conj().resolve_neg(), (A @ B).to(out.dtype))
        with pytest.raises(RuntimeError, match=r"conjugate|negative"):
            out.numpy()  # it is still such a view


@pytest.mark.parametrize(
    ("dtype", "casting", "wanted"),
    [(torch.float32, "same_kind", torch.float32), ("float32", "unsafe", torch.float32), (torch.bfloat16, "same_kind", torch.bfloat16)],
)
def test_types_and_casts_of_tensors(dtype: Any, casting: Any, wanted: Array) -> None:
    found: Any = bilinear.matmul(A, B.to(torch.int64), dtype=dtype, casting=casting)
    assert found.dtype == wanted and torch.equal(found.to(A.dtype), A @ B)
    rules: list[tuple[Any, Any]] = [(torch.int64, "same_kind"), (torch.float32, "safe"), (torch.complex128, "equiv")]
    for refused, rule in rules:
        with pytest.raises(BilinearError, match="E530"):
            bilinear.matmul(A, B, dtype=refused, casting=rule)
    out = torch.zeros(8, 8, dtype=torch.int32)
    assert bilinear.matmul(A, B, out, casting="unsafe") is out and torch.equal(out, (A @ B).to(torch.int32))


def test_levels_that_are_named_multiply_tensors_and_their_gradients() -> None:
    for algorithm in ("strassen:2", ["winograd", "strassen"]):
        x = A.clone().requires_grad_()
        bilinear.matmul(x, B, algorithm=algorithm).sum().backward()
        assert torch.equal(x.grad, torch.ones(8, 8, dtype=A.dtype) @ B.T)


def test_a_repeated_call_on_processors_is_found_by_its_layout(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    out = torch.zeros(8, 8, dtype=A.dtype)
    for target in (None, out):
        bilinear.matmul(A, B, target)
    with monkeypatch.context() as patch:
        patch.setattr("bilinear.runtime.call._matmul_anew", lambda *_: pytest.fail("decided anew"))
        assert torch.equal(bilinear.matmul(A + 1, B), (A + 1) @ B)
        assert bilinear.matmul(A, B - 1, out) is out and torch.equal(out, A @ (B - 1))
        assert torch.equal(torch.vmap(bilinear.matmul)(A[None], B[None])[0], A @ B)
    assert torch.equal(bilinear.matmul(torch._neg_view(A), B), -A @ B)
    assert bilinear.matmul(A, B, out.T, alpha=2).data_ptr() == out.data_ptr() and torch.equal(out.T, 2 * (A @ B))
    square = A[:6].clone()
    assert torch.equal(bilinear.matmul(square, B[:, :6], square), A[:6] @ B[:, :6])
    bilinear.matmul(A, B, algorithm="winograd", levels=1)
    assert [name for name, *_ in runs][-1] == "winograd"


def test_an_expanded_out_is_refused() -> None:
    out = torch.zeros(1, 8, dtype=A.dtype).expand(8, 8)
    for how in ({}, {"algorithm": "strassen", "levels": 1}, {"alpha": 2}):
        with pytest.raises(BilinearError, match=r"E520.*share memory"):
            bilinear.matmul(A, B, out, **how)
    assert not out.any()


def test_a_stream_is_for_tensors_on_a_gpu() -> None:
    nonsense: Any = "nonsense"
    with pytest.raises(BilinearError, match="E510"):
        bilinear.gram(A, stream=nonsense)
    with pytest.raises(BilinearError, match="E510"):
        bilinear.matmul(A, B, alpha=2, stream=nonsense)


def test_tensors_beside_arrays() -> None:
    for a, b in ((A, B.numpy()), (A.numpy(), B)):
        c = bilinear.matmul(a, b, algorithm="strassen", levels=1)
        assert isinstance(c, torch.Tensor) and torch.equal(c, A @ B)
    out = np.empty((8, 8))
    assert bilinear.matmul(A, B, out, algorithm="strassen", levels=1) is out and np.array_equal(out, (A @ B).numpy())


def test_a_chain_of_tensors() -> None:
    found = bilinear.multi_dot([A, B, A], algorithm="strassen", levels=1)
    assert isinstance(found, torch.Tensor) and torch.equal(found, A @ B @ A)


@pytest.mark.parametrize("inputs", ["preserve", "restore"])
def test_options_are_checked_as_for_arrays(inputs: Literal["preserve", "restore"]) -> None:
    with pytest.raises(BilinearError, match="E514"):
        bilinear.matmul(A, B, levels=-1, inputs=inputs)
    with pytest.raises(BilinearError, match="E121"):
        bilinear.matmul(A.half(), B.half(), algorithm="nosuch", inputs=inputs)
    with pytest.raises(ValueError, match="inner dimensions"):
        bilinear.matmul(A, A, algorithm="strassen", inputs=inputs)


def test_a_composed_algorithm_multiplies_conjugates_and_gives_gradients() -> None:
    generator = torch.Generator().manual_seed(3)
    a, b = (torch.complex(*torch.randint(-9, 10, (2, *size), generator=generator).double()) for size in ((12, 9), (11, 9)))
    found = bilinear.matmul(a, b.mH, algorithm="complex4 (x) winograd", levels=1)
    assert torch.equal(found, a @ b.mH)
    a.requires_grad_()
    bilinear.matmul(a, b.mH, algorithm="complex4 (x) winograd", levels=1).real.sum().backward()
    assert torch.equal(a.grad, torch.ones(12, 11, dtype=a.dtype) @ b)
    with pytest.raises(BilinearError, match="E799"):
        bilinear.matmul(a.detach().real, b.real.mH, algorithm="complex3 (x) winograd")


def test_packed_tensors_of_bits_are_multiplied() -> None:
    generator = np.random.default_rng(4)
    a, b = (generator.integers(0, 2, shape, dtype=np.uint8) for shape in ((30, 40), (40, 50)))
    x, y = (torch.from_numpy(np.packbits(z, axis=1)) for z in (a, b))
    wanted = np.packbits(((a.astype(int) @ b) % 2).astype(np.uint8), axis=1)
    out = torch.empty(30, 7, dtype=torch.uint8)
    assert bilinear.matmul_bits(x, y, out, algorithm="walk_444_mod2") is out
    assert torch.equal(out, torch.from_numpy(wanted)) and torch.equal(bilinear.matmul_bits(x, y), out)


def test_parts_that_are_tensors_of_their_own() -> None:
    a, ai, b, bi = (integers(20, 20, seed=seed) for seed in range(4))
    real, imaginary = bilinear.matmul_parts((a, ai), (b.T, bi), levels=1)
    assert torch.equal(real, a @ b.T - ai @ bi) and torch.equal(imaginary, a @ bi + ai @ b.T)
    out = torch.empty(20, 20, dtype=a.dtype), torch.empty(20, 20, dtype=a.dtype)
    assert bilinear.matmul_parts((a, ai), (b.T, bi), out) is out and torch.equal(out[0], real)
    with pytest.raises(BilinearError, match="E516"):
        bilinear.matmul_parts((a.requires_grad_(), ai), (b, bi))


def test_hostile_cases_end_well(tmp_path: Path) -> None:
    """Arrays of the soak's kinds of calls as tensors (docs/soak.md)."""
    assert {cases.run(Case("torch", seed, tmp_path)) for seed in range(60)} == {PASSED, REFUSED}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_bits_of_16_are_those_of_integers_rounded(dtype: torch.dtype) -> None:
    a, b = torch.randn(5, 40, generator=torch.manual_seed(1)).to(dtype), torch.randn(40, 3).to(dtype)
    a[2, 3] = float("nan")
    wanted = torch.from_numpy(same_bits_product(a.double().numpy(), b.double().numpy(), LARGEST_IN_BYTES, np.dtype("f4")))
    found, numbers = bilinear.matmul(a, b, reproducible="bitwise"), [0, 1, 3, 4]
    assert torch.equal(found[numbers].view(torch.int16), wanted.to(dtype)[numbers].view(torch.int16))
    assert set(found[2].view(torch.int16).tolist()) == {{torch.float16: 0x7E00, torch.bfloat16: 0x7FC0}[dtype]}  # not as PyTorch casts
    out = torch.full((5, 3), 0.7, dtype=dtype)
    wanted = wanted * torch.tensor(0.3) + 2 * out.float()
    assert bilinear.matmul(a, b, out, alpha=0.3, beta=2, reproducible="bitwise") is out
    assert torch.equal(out[numbers].view(torch.int16), wanted.to(dtype)[numbers].view(torch.int16))
    wide = torch.empty(5, 3)
    assert torch.equal(
        bilinear.matmul(a, b, wide, reproducible="bitwise")[numbers], bilinear.matmul(a.float(), b.float(), reproducible="bitwise")[numbers]
    )
    with pytest.raises(BilinearError, match=r"E821.*16 bits"):
        bilinear.matmul(a, b, stream=object(), reproducible="bitwise")  # type: ignore[call-overload]
