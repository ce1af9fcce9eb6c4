"""Tensors of a pretended PyTorch on a pretended GPU: on which stream and in whose memory they run, and what comes back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from runtime.blas import narrowed, widened
from runtime.pretended_gpu import Array, Gpu, pretend

import bilinear
from bilinear.emulator import skip_reason
from bilinear.errors import BilinearError
from bilinear.methods.digits.plans import same_bits_choice
from bilinear.runtime import arrays, decide, devices_here, gram_blocks, gram_plans, same_bits

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=str(skip_reason()))

STREAM = 4242
WINOGRAD: dict[str, Any] = {"algorithm": "winograd", "levels": 1}


@dataclass(frozen=True)
class Place:
    """A device, as PyTorch names it."""

    index: int = 0


@dataclass(frozen=True, eq=False)
class Tensor:
    """The parts of a tensor that `matmul` uses."""

    array: Array
    device: Place = field(default_factory=Place)
    requires_grad: bool = False
    is_cuda: bool = True
    is_meta: bool = False
    negates: bool = False
    dtype: str = "torch.float64"
    layout: str = "torch.strided"

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def stride(self) -> tuple[int, ...]:
        return tuple(stride // self.array.itemsize for stride in self.array.strides)

    def data_ptr(self) -> int:
        return int(self.array.data.ptr)

    def is_conj(self) -> bool:
        return False

    def resolve_conj(self) -> Tensor:
        return self

    def resolve_neg(self) -> Tensor:
        return replace(self, negates=False, array=Array(-self.array.host))

    def is_neg(self) -> bool:
        return self.negates

    def is_inference(self) -> bool:
        return False

    @property
    def mT(self) -> Tensor:
        return replace(self, array=self.array.swapaxes(-1, -2))

    def detach(self) -> Tensor:
        return replace(self, requires_grad=False)

    def view(self, dtype: str) -> Tensor:
        return replace(self, dtype=dtype, array=self.array.view(np.int16 if dtype == "torch.int16" else np.uint16))


class Torch(ModuleType):
    """The parts of PyTorch that `matmul` uses; it records its calls."""

    records = True
    int16, uint8, float64, strided = "torch.int16", "torch.uint8", "torch.float64", Tensor.layout
    nn = SimpleNamespace(Parameter=Tensor)
    compiler = SimpleNamespace(is_compiling=lambda: False)
    autograd = SimpleNamespace(forward_ad=SimpleNamespace(_current_level=-1), graph=SimpleNamespace(increment_version=lambda x: None))
    _C = SimpleNamespace(
        _functorch=SimpleNamespace(maybe_current_level=lambda: None),
        _len_torch_dispatch_stack=lambda: 0,
        _parse_dispatch_key=str,
        _dispatch_tls_is_dispatch_key_included=lambda key: False,
    )

    def __init__(self) -> None:
        super().__init__("torch")
        self.allocated: list[tuple[int, int, int]] = []
        self.Tensor = Tensor
        self.cuda = SimpleNamespace(
            current_stream=lambda device: SimpleNamespace(cuda_stream=STREAM),
            current_device=lambda: -1,  # no device has the kernel for 16 bits, which asks the driver
            caching_allocator_alloc=self.allocate,
            OutOfMemoryError=RuntimeError,
        )

    def allocate(self, size: int, device: int, stream: int) -> int:
        self.allocated.append((size, device, stream))
        return 1

    def empty(self, shape: Any, dtype: str, device: Place) -> Tensor:
        made = np.full(shape, 99, dtype.removeprefix("torch."))
        self.allocate(made.nbytes, device.index, self.cuda.current_stream(device).cuda_stream)
        return Tensor(Array(made), device, dtype=dtype)

    def is_grad_enabled(self) -> bool:
        return self.records

    def _is_functional_tensor(self, tensor: Tensor) -> bool:
        return False

    def from_dlpack(self, array: Array) -> Tensor:
        return Tensor(array)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    decide._decisions.clear()
    arrays._pool.cache_clear()
    monkeypatch.setattr(devices_here, "current_device", lambda: None)
    monkeypatch.setitem(sys.modules, "torch", Torch())
    yield pretend(monkeypatch)
    decide._decisions.clear()
    arrays._pool.cache_clear()


def torch() -> Any:
    return sys.modules["torch"]


def operands() -> tuple[Any, Any, Any, Any]:
    generator = np.random.default_rng(3)
    x, y = (generator.integers(-4, 5, (16, 16)).astype(float) for _ in range(2))
    return x, y, Tensor(Array(x.copy())), Tensor(Array(y.copy()))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_tensors_of_16_bits_are_multiplied_as_their_bits(gpu: Gpu, dtype: str) -> None:
    """In PyTorch's memory and on its stream; CuPy's and NumPy's arrays never name bfloat16."""
    x, y = (np.random.default_rng(seed).integers(-2, 3, (12, 12)) for seed in (1, 2))
    is_bfloat = dtype == "bfloat16"

    def tensor(whole: Any) -> Tensor:
        return Tensor(Array(narrowed(whole.astype(np.float32), is_bfloat)), dtype=f"torch.{dtype}")

    a, b, out = tensor(x), tensor(y), tensor(x)
    c = bilinear.matmul(a, b, **WINOGRAD)
    assert isinstance(c, Tensor) and c.dtype == a.dtype
    np.testing.assert_array_equal(widened(c.array.host, is_bfloat), x @ y)
    assert {(device, stream) for _, device, stream in torch().allocated} == {(0, STREAM)}
    assert {call[1] for call in gpu.by_cublas} == {STREAM} and len(gpu.by_cublas) == 7
    assert bilinear.matmul(a, b, out, alpha=2, beta=-1, **WINOGRAD) is out
    np.testing.assert_array_equal(widened(out.array.host, is_bfloat), 2 * (x @ y) - x)
    plan = bilinear.plan(12, 12, 12, dtype, device="h200", levels=("winograd",))
    np.testing.assert_array_equal(widened(bilinear.matmul(a, b, plan=plan).array.host, is_bfloat), x @ y)
    with pytest.raises(BilinearError, match=r"E775"):
        bilinear.matmul(a, b, algorithm="msmes", inputs="restore")


def test_tensors_of_16_bits_without_an_algorithm_are_pytorchs_own(gpu: Gpu) -> None:
    a: Any = Tensor(Array(np.zeros((4, 4), np.uint16)), dtype="torch.bfloat16")
    torch().matmul = lambda x, y: "its own"
    assert bilinear.matmul(a, a) == bilinear.matmul(a, a, algorithm="winograd", levels=0) == "its own"
    assert gpu.by_cublas == [] and gpu.launches == []


def test_result_and_workspace_are_of_pytorchs_pool_and_stream(gpu: Gpu) -> None:
    x, y, a, b = operands()
    for _ in range(2):  # the second call is a repeat
        torch().allocated.clear()
        c = bilinear.matmul(a, b, **WINOGRAD)
        assert isinstance(c, Tensor)
        np.testing.assert_array_equal(c.array.host, x @ y)
        assert {(device, stream) for _, device, stream in torch().allocated} == {(0, STREAM)}
        assert sorted(size for size, *_ in torch().allocated) == [16 * 16 * 8, 15 * 8 * 8 * 8]  # 3.75 N^2 of workspace
    assert {stream for _, stream in gpu.launches} == {STREAM}
    assert gpu.allocate is None


def test_a_repeated_call_makes_no_array_of_a_tensor(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found by the tensors' layout. What it cannot repeat is decided anew."""
    x, y, a, b = operands()
    out, wide = Tensor(Array(np.full((16, 16), np.nan))), Array(np.zeros((16, 40)))
    calls: list[tuple[Any, dict[str, Any]]] = [(out, {"alpha": 2, **WINOGRAD}), (None, {}), (None, WINOGRAD)]
    for target, options in calls:
        bilinear.matmul(a, b, target, **options)
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["cupy"], "from_dlpack", lambda tensor: pytest.fail("made an array"))
        for target, options in calls:
            left = Tensor(Array(x + 1))
            found = bilinear.matmul(left, b, target, **options)
            np.testing.assert_array_equal(found.array.host, options.get("alpha", 1) * ((x + 1) @ y))
    for again in (Tensor(wide[:, :16]), a):  # another layout, and an operand
        wanted = 2 * (a.array.host @ y)
        np.testing.assert_array_equal(bilinear.matmul(a, b, again, alpha=2, **WINOGRAD).array.host, wanted)
    np.testing.assert_array_equal(bilinear.matmul(replace(b, negates=True), b).array.host, -(y @ y))
    with gpu.using(is_capturing=True):
        bilinear.matmul(b, b, out, alpha=2, **WINOGRAD)
    np.testing.assert_array_equal(out.array.host, 2 * (y @ y))
    assert gpu.of_graph == [15 * 8 * 8 * 8]


def test_out_is_written_and_given_back(gpu: Gpu) -> None:
    x, y, a, b = operands()
    out = Tensor(Array(np.full((16, 16), np.nan)))
    assert bilinear.matmul(a, b, out, algorithm="msmes", levels=1, inputs="restore") is out
    np.testing.assert_array_equal(out.array.host, x @ y)
    assert torch().allocated == []


def test_a_given_stream_is_used(gpu: Gpu) -> None:
    x, y, a, b = operands()
    with gpu.using(stream=5):
        c = bilinear.matmul(a, b, stream=nullcontext(), **WINOGRAD)
    np.testing.assert_array_equal(c.array.host, x @ y)
    assert {stream for _, stream in gpu.launches} == {5}
    assert {stream for *_, stream in torch().allocated} == {5}


def test_a_given_stream_of_pytorch_is_used(gpu: Gpu) -> None:
    x, y, a, b = operands()
    c = bilinear.matmul(a, b, stream=SimpleNamespace(cuda_stream=6), **WINOGRAD)
    np.testing.assert_array_equal(c.array.host, x @ y)
    assert {stream for _, stream in gpu.launches} == {stream for *_, stream in torch().allocated} == {6}


@pytest.mark.parametrize("elsewhere", [{"device": Place(1)}, {"device": "cpu", "is_cuda": False}])
def test_a_workspace_of_another_device_is_refused(gpu: Gpu, elsewhere: dict[str, Any]) -> None:
    _, _, a, b = operands()
    buffer = Tensor(Array(np.empty(1024)), **elsewhere)
    with pytest.raises(BilinearError, match="E511"):
        bilinear.matmul(a, b, workspace=buffer, **WINOGRAD)


def test_a_module_that_is_still_being_imported_is_not_asked(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    x = np.arange(16.0).reshape(4, 4)
    np.testing.assert_array_equal(bilinear.matmul(x, x), x @ x)


def test_what_is_not_what_lies_in_memory_is_refused(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch exports a view that negates without its sign."""
    _, _, a, b = operands()
    with pytest.raises(BilinearError, match="E517"):
        bilinear.matmul(a, b, replace(a, negates=True), stream=torch().cuda.current_stream(a.device), **WINOGRAD)

    def refuse(tensor: Tensor) -> Any:
        raise BufferError("Can't export tensors with the conjugate bit set")

    monkeypatch.setattr(sys.modules["cupy"], "from_dlpack", refuse)
    with pytest.raises(BilinearError, match=r"E517.*conjugate bit"):
        bilinear.matmul(a, b, **WINOGRAD)


def test_tensors_of_two_devices_are_refused(gpu: Gpu) -> None:
    _, _, a, b = operands()
    with pytest.raises(BilinearError, match="different devices"):
        bilinear.matmul(a, replace(b, device=Place(1)), **WINOGRAD)


def test_memory_that_is_short_is_told(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, a, b = operands()

    def short(*_: int) -> int:
        raise RuntimeError("CUDA out of memory")

    torch().cuda.caching_allocator_alloc = short
    out = Tensor(Array(np.full((16, 16), 7.0)))
    with pytest.raises(MemoryError, match="workspace of 7680 bytes"):
        bilinear.matmul(a, b, out, **WINOGRAD)
    assert (out.array.host == 7).all()


@pytest.mark.sample(4)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("refuses", [False, True])
@pytest.mark.parametrize("shape", [(20, 12), (3, 20, 12), (16, 5)])
def test_blocks_of_a_triangle_in_16_bits_are_one_call(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, dtype: str, refuses: bool, shape: tuple[int, ...]
) -> None:
    """By rows and by columns, into 16 bits and float32, beside rows that fill no block; if cuBLAS refuses, block by block."""
    is_bfloat, n, k = dtype == "bfloat16", *shape[-2:]
    monkeypatch.setattr(gram_blocks, "AT_ONCE", 6)
    monkeypatch.setattr(gram_blocks, "ALIGNMENT", 3)
    monkeypatch.setitem(gram_plans.TILE, True, 8)
    gpu.status = int(refuses)
    x = np.random.default_rng(1).integers(-2, 3, shape)

    def bits(whole: Any) -> Array:
        return Array(narrowed(whole.astype(np.float32), is_bfloat))

    a, wanted = Tensor(bits(x), dtype=f"torch.{dtype}"), x @ x.swapaxes(-1, -2)
    np.testing.assert_array_equal(widened(bilinear.gram(a).array.host, is_bfloat), wanted)
    batches = [call for call in gpu.by_cublas if call[0] == "batch"]
    assert len(batches) == 1 and batches[0][2] & 16 and (refuses or len(gpu.by_cublas) == 1 + len(x.reshape(-1, n, k)))
    old = np.random.default_rng(2).integers(-2, 3, (*shape[:-2], n, n))
    out = Tensor(bits(np.tril(old) + 9 * np.triu(np.ones_like(old), 1)), dtype=f"torch.{dtype}")
    symmetric = np.tril(old) + np.tril(old, -1).swapaxes(-1, -2)
    bilinear.gram(a, out, alpha=2, beta=-1)
    np.testing.assert_array_equal(widened(out.array.host, is_bfloat), 2 * wanted - symmetric)
    wide = Tensor(Array(np.zeros((*shape[:-2], n, n), np.float32)), dtype="torch.float32")
    turned = Tensor(bits(x.swapaxes(-1, -2).copy()), dtype=f"torch.{dtype}")
    bilinear.gram(turned, wide, transposed=True)
    np.testing.assert_array_equal(wide.array.host, wanted)
    with pytest.raises(BilinearError, match="E519"):
        bilinear.gram(a, accuracy=1e-30)
    before = len(gpu.by_cublas)
    with pytest.raises(BilinearError, match=r"E8(20|21)"):
        bilinear.gram(a, reproducible="bitwise")
    assert len(gpu.by_cublas) == before
    same = bilinear.gram(Array(x.astype(np.float16)), reproducible="bitwise")
    assert (same.host == wanted).all() and not any(call[0] == "batch" for call in gpu.by_cublas[before:])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_tensors_of_16_bits_with_the_same_bits_are_planned_once(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    planned, is_bfloat, choose = list[str](), dtype == "bfloat16", same_bits_choice
    monkeypatch.setattr(same_bits, "same_bits_choice", lambda *given: planned.append(given[2]) or choose(*given))  # type: ignore[func-returns-value]
    x, y = (np.random.default_rng(seed).integers(-8, 9, shape) for seed, shape in ((1, (20, 12)), (2, (12, 17))))

    def tensor(whole: Any) -> Tensor:
        return Tensor(Array(narrowed(whole.astype(np.float32), is_bfloat)), dtype=f"torch.{dtype}")

    a, b, out = tensor(x), tensor(y), tensor(np.zeros((20, 17)))
    wanted = narrowed((x @ y).astype(np.float32), is_bfloat)
    for turn in range(3):
        a.array.host[0], wanted[0] = 0, 0
        assert bilinear.matmul(a, b, out, reproducible="bitwise") is out
        assert (out.array.host == wanted).all() and planned == [f"bytes of {dtype}"], turn
    launched = len(gpu.launches)
    with pytest.raises(BilinearError, match=r"E536|captured"), gpu.using(is_capturing=True):
        bilinear.matmul(a, b, reproducible="bitwise")
    assert len(gpu.launches) == launched and gpu.library == 0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("options", [{}, {"algorithm": "winograd", "levels": 1}])
def test_a_tensor_of_16_bits_by_its_own_transpose(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, dtype: str, options: dict[str, Any]) -> None:
    """One triangle is multiplied, and the other one copied, by cuBLAS in 16 bits or into float32."""
    is_bfloat = dtype == "bfloat16"
    monkeypatch.setitem(gram_plans.TILE, True, 8)
    monkeypatch.setattr(gram_plans, "TOGETHER", 8)
    x, old = (np.random.default_rng(seed).integers(-2, 3, shape) for seed, shape in ((1, (20, 12)), (2, (20, 20))))

    def tensor(whole: Any) -> Tensor:
        return Tensor(Array(narrowed(whole.astype(np.float32), is_bfloat)), dtype=f"torch.{dtype}")

    a = tensor(x)
    found = bilinear.gram(a, **options)
    assert isinstance(found, Tensor) and found.dtype == a.dtype
    np.testing.assert_array_equal(widened(found.array.host, is_bfloat), x @ x.T)
    assert len(gpu.by_cublas) > 1 and gpu.library == len(gpu.by_cublas)
    out, symmetric = tensor(old + old.T), old + old.T
    assert bilinear.gram(a, out, alpha=2, beta=-1, **options) is out
    np.testing.assert_array_equal(widened(out.array.host, is_bfloat), 2 * (x @ x.T) - symmetric)
    lower = tensor(symmetric)
    bilinear.gram(a, lower, triangle="lower", alpha=0, beta=3, **options)
    np.testing.assert_array_equal(widened(lower.array.host, is_bfloat), 3 * np.tril(symmetric) + np.triu(symmetric, 1))
    wide = Tensor(Array(np.zeros((12, 12), np.float32)), dtype="torch.float32")
    bilinear.gram(a, wide, transposed=True, **options)
    np.testing.assert_array_equal(wide.array.host, x.T @ x)
    with pytest.raises(BilinearError, match="E794"):
        bilinear.gram(a, algorithm="rxtx")
    with pytest.raises(BilinearError, match="E519"):
        bilinear.gram(a, accuracy=0.1)
