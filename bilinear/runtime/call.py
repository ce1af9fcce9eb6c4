"""A call of matmul on arrays and on PyTorch's tensors: repeated if it ran before on a GPU, else accepted, decided and run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from math import prod
from types import ModuleType

from bilinear.backends.caches import keep
from bilinear.backends.capture import LARGE, fitting
from bilinear.errors import BilinearError, fail
from bilinear.frontend import Loaded
from bilinear.ir.element import HALVES, Element
from bilinear.ir.matrix import Array, Factor, is_own_transpose
from bilinear.ir.tile import LONGEST_SUM
from bilinear.runtime import arrays
from bilinear.runtime.accept import accepted
from bilinear.runtime.devices_here import builds_behind
from bilinear.runtime.magnitudes import check_tolerance_option
from bilinear.runtime.multiply import multiply
from bilinear.runtime.options import LEAST_EXTENT, Options, check_options, warn_unused
from bilinear.runtime.repeat import MOST_REPEATS, Key, Repeat, asked_key, repeated
from bilinear.runtime.replay import remember
from bilinear.runtime.trials import is_open


def matmul_arrays(a: Array, b: Array, out: Array, asked: Options) -> Array:
    """alpha * a @ b + beta * out, as `matmul` says it, by what is asked for. A call that ran before on a GPU is found first."""
    key, repeat = repeated(a, b, out, asked)
    result = None if repeat is None else repeat.run(a, b, out, asked.alpha, asked.beta)
    return multiply_anew(a, b, out, asked, None, key) if result is None else result


def multiply_anew(a: Array, b: Array, out: Array, asked: Options, stream: AbstractContextManager[object] | None, key: Key | None) -> Array:
    """The same for a call that is not repeated; what runs is kept under its key."""
    check_options(asked, out)
    check_tolerance_option(asked.tolerance, asked.inputs if asked.plan is None else asked.plan.chosen.promise)
    with accepted({"a": a, "b": b}, {"out": out}, asked.workspace, stream, own=True) as (kind, (left, right), (given,), _):
        if is_own_transpose(left, right) and asked.is_unsaid:
            from bilinear.runtime.gram_blocks import own_product  # most calls need none of it

            result = own_product(asked, kind, left, given)
            if result is not None:
                return out if out is not None else kind.give_back(result)
        result = multiply(asked, kind, key, left, right, given)
        return out if out is not None else kind.give_back(result)


class TensorRepeat:
    """What was kept for CuPy's arrays, for tensors of the same layouts on a device."""

    def __init__(self, torch: ModuleType, repeat: Repeat, result: Array) -> None:
        from cupy.cuda import runtime

        self._torch, self.repeat = torch, repeat
        self._shape, self._dtype, self._device = tuple(result.shape), result.dtype, result.device
        self._index, self._here, self._is_captured = result.device.index, runtime.getDevice, runtime.streamIsCapturing
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # the public function makes an object each time
        self._stream = raw or (lambda index: torch.cuda.current_stream(index).cuda_stream)

    def run(self, a: Array, b: Array, out: Array, alpha: Factor, beta: Factor) -> Array | None:
        """alpha * a @ b + beta * out. None, with nothing written, if the call must be decided anew.

        That is so on another current device, while the stream is captured, if tensors may overlap, or if memory is short.
        """
        torch, repeat = self._torch, self.repeat
        handle = self._stream(self._index)
        left, right, target = a.data_ptr(), b.data_ptr(), 0 if out is None else out.data_ptr()
        if self._here() != self._index or self._is_captured(handle) or repeat.may_overlap(left, right, target):
            return None
        if repeat.workspace >= LARGE and fitting(repeat.workspace, repeat.result_bytes(out), of_torch=True) is not None:
            return None
        is_new = out is None
        try:
            space = torch.empty(repeat.workspace, dtype=torch.uint8, device=self._device) if repeat.workspace else None
            if is_new:
                out = torch.empty(self._shape, dtype=self._dtype, device=self._device)
                target = out.data_ptr()
            with arrays.cupy_stream(handle):
                repeat.launch(left, right, target, alpha, beta, 0 if space is None else space.data_ptr())
        except (BilinearError, MemoryError, torch.cuda.OutOfMemoryError):
            return None
        if not is_new:
            arrays.tell_written(torch, out)
        return out


def by_torch(torch: ModuleType, a: Array, b: Array, out: Array, alpha: Factor = 1, beta: Factor = 0) -> Array | None:
    """a @ b by PyTorch itself. None, with nothing written, for factors, and for an `out` that it would refuse or resize, or on processors
    whose elements may share memory.
    """
    if alpha != 1 or beta != 0:
        return None
    if out is None:
        return torch.matmul(a, b)
    fits = a.ndim == b.ndim == 2 and a.shape[1] == b.shape[0] and out.shape == (a.shape[0], b.shape[1]) and out.dtype == a.dtype
    if not fits or any(x.layout is not torch.strided for x in (a, b, out)):
        return None
    is_dense = out.is_cuda or out.is_contiguous() or out.mT.is_contiguous()
    memory = out.untyped_storage().data_ptr()
    if not is_dense or memory in (a.untyped_storage().data_ptr(), b.untyped_storage().data_ptr()):
        return None
    return torch.mm(a, b, out=out)


_repeats: dict[Key, tuple[Callable[..., Array | None] | None, object]] = {}
"""What runs a call again, with what was asked for, which keeps alive what its key names by identity; None if nothing can be repeated."""


def found_again(torch: ModuleType, a: Array, b: Array, out: Array, asked: Options) -> tuple[Key | None, Array]:
    """The key under which a call is to be kept, if it is; and the result of one that ran before on a GPU, or None.

    Only calls with dense tensors in the memory that holds their elements have one, on processors those of `auto`. As for CuPy's arrays it
    holds no values, and of the addresses only whether B is A^T.
    """
    kinds, strided = (torch.Tensor, torch.nn.Parameter), torch.strided
    for x in (a, b) if out is None else (a, b, out):
        if type(x) not in kinds or x.layout is not strided or x.is_conj() or x.is_neg():
            return None, None
    if not a.is_cuda and asked.algorithm != "auto":
        return None, None
    own = asked_key(asked)
    if own is None:
        return None, None
    left, right = a.stride(), b.stride()
    is_transposed = left == right[::-1] and a.data_ptr() == b.data_ptr()
    target = None if out is None else (out.shape, out.stride(), out.dtype, out.device)
    key = a.shape, left, a.dtype, a.device, b.shape, right, b.dtype, b.device, target, is_transposed, own
    found = _repeats.get(key)
    if found is None:
        return key, None
    run = found[0]
    result = None if run is None else run(a, b, out, asked.alpha, asked.beta)
    own = getattr(run, "__self__", None)
    if result is not None and isinstance(own, TensorRepeat) and own.repeat.offers:
        remember(a, b, out, asked, own.repeat, torch)
    return None, result


def keep_pytorchs(torch: ModuleType, key: Key, a: Array, b: Array, asked: Options) -> None:
    """Keep a call that PyTorch multiplied for `auto`, small on processors; named algorithms' calls warn each time."""
    if asked.algorithm == "auto" and (a.is_cuda or min(a.shape + b.shape, default=0) < LEAST_EXTENT):
        keep(_repeats, key, (partial(by_torch, torch), asked), MOST_REPEATS)


def is_product(asked: Options) -> bool:
    """Whether a call asks for the product by some algorithm and levels, and for nothing else."""
    alpha, beta, _, _, inputs, *limits = asked[:9]
    is_unscaled = type(alpha) in (int, float) and type(beta) in (int, float) and alpha == 1 and beta == 0
    return is_unscaled and inputs == "preserve" and asked.reproducible is None and all(x is None for x in limits)


def multiplies_by_itself(a: Array, b: Array, asked: Options) -> bool:
    """Whether PyTorch's own multiply is to run for two tensors; warns if it does so in place of a named algorithm.

    It runs for types, layouts and devices that no schedule runs on, and on processors for `auto` that has nothing to weigh. Raises
    `BilinearError` for options that have no meaning.
    """
    check_options(asked, None)
    if asked.reproducible is not None:
        return False
    is_unnamed = asked.is_plain(arrays.NUMPY)
    named = None if is_unnamed else asked.algorithm
    reason = _why_itself(a) or _why_itself(b)
    if reason is None:
        is_pytorchs = not a.is_cuda and arrays.name_of(a.dtype) not in arrays.ONLY_AS_ARRAYS
        return is_unnamed and is_pytorchs and asked.described_cpu(arrays.NUMPY, a, b) is None
    if isinstance(named, Loaded):
        warn_unused(named.name, reason)
    return True


def _why_itself(tensor: Array) -> str | None:
    dtype, reason = arrays.name_of(tensor.dtype), arrays.why_not_dense(tensor)
    if reason is not None:
        return reason
    if not tensor.is_cuda and str(tensor.device).partition(":")[0] != "cpu":
        return f"no schedule runs on the device {tensor.device}"
    return None if dtype in arrays.TYPES else f"no schedule runs on {dtype}"


def matmul_tensors(
    torch: ModuleType, a: Array, b: Array, out: Array, asked: Options, stream: AbstractContextManager[object] | None
) -> Array:
    """`matmul` of tensors whose gradients are not recorded, or of tensors and arrays. A call that ran before on a GPU is found first."""
    key, result = (None, None) if stream is not None else found_again(torch, a, b, out, asked)
    if result is not None:
        return result
    if asked.reproducible is not None and all(isinstance(x, torch.Tensor) for x in (a, b)) and a.dtype == b.dtype:
        element = HALVES.get(arrays.name_of(a.dtype))
        if element is not None:
            result, again = _same_bits_of_half(torch, a, b, out, asked, stream, element)
            if key is not None and again is not None:
                keep(_repeats, key, (TensorRepeat(torch, again, result).run, asked), MOST_REPEATS)
            return result
    result, is_pytorchs = _matmul_anew(torch, a, b, out, asked, stream)
    if key is not None:
        if is_pytorchs:
            keep_pytorchs(torch, key, a, b, asked)
        elif a.is_cuda and arrays.name_of(a.dtype) not in HALVES:
            with arrays.as_arrays(torch, None, (a, b), (out,)) as (left, right, target):  # another stream would end a capture
                repeat = repeated(left, right, target, asked)[1]
                if repeat is not None or not (builds_behind() or is_open()):  # else the library may have stood in for another plan
                    kept = TensorRepeat(torch, repeat, result).run if repeat is not None and repeat.is_launched else None
                    keep(_repeats, key, (kept, asked), MOST_REPEATS)
    return result


def _matmul_anew(
    torch: ModuleType, a: Array, b: Array, out: Array, asked: Options, stream: AbstractContextManager[object] | None
) -> tuple[Array, bool]:
    """The same, decided anew, and whether PyTorch multiplied."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.dtype != b.dtype:
        with suppress(RuntimeError):  # two types without a common one are refused as they are
            common = torch.promote_types(a.dtype, b.dtype)  # which PyTorch's products leave to the caller
            a, b = a.to(common), b.to(common)
    element = arrays.half_of(torch, a, b, out)
    if element is not None:
        from bilinear.runtime.half import by_half  # most calls need none of it

        check_options(asked, out)
        with accepted({"a": a, "b": b}, {"out": out}, asked.workspace, stream, bits=True) as (kind, (left, right), (target,), buffer):
            half = by_half(asked._replace(workspace=buffer), kind, element, left, right, target)  # on 16 bits: CuPy need not know bfloat16
            if half is not None:
                return out if out is not None else kind.give_back(half).view(a.dtype), False
        is_plain = asked.is_unsaid and asked.alpha == 1 and asked.accuracy is None and stream is None
        own = by_torch(torch, a, b, out) if is_plain else None
        if own is not None:
            return own, True
    is_plain = stream is None and is_product(asked) and isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.dtype == b.dtype
    if is_plain and (out is None or asked.algorithm == "auto") and multiplies_by_itself(a, b, asked):
        own = by_torch(torch, a, b, out)
        if own is not None:
            return own, True
    conjugated = "".join(name for name, x in zip("AB", (a, b), strict=True) if isinstance(x, torch.Tensor) and x.is_conj())
    a, b = (x.conj() if name in conjugated else x for name, x in zip("AB", (a, b), strict=True))  # the memory as it is
    with arrays.as_arrays(torch, stream, (a, b), (out, asked.workspace)) as (left, right, target, buffer):
        result = matmul_arrays(left, right, target, asked._replace(workspace=buffer, conjugated=conjugated))
        if asked.inputs == "consume":
            arrays.tell_written(torch, a, b)
        return arrays.give_tensor(torch, result) if out is None else out, False


def _same_bits_of_half(
    torch: ModuleType, a: Array, b: Array, out: Array, asked: Options, stream: AbstractContextManager[object] | None, element: Element
) -> tuple[Array, Repeat | None]:
    """The same bits for tensors of 16 bits, and what may be repeated: on a GPU kernels read and write them where they lie.

    They are converted for an `out` of another type, for an accuracy, and for long sums: then float32 products, C included, are rounded at
    the end.
    """
    from bilinear.runtime.same_bits import by_same_bits  # most calls need none of it

    check_options(asked, out)
    rounds = out is None or out.dtype == a.dtype
    if rounds and a.is_cuda and asked.accuracy is None and prod(a.shape[-1:]) <= LONGEST_SUM:
        x, y, to = (t.resolve_neg() if t is not None and stream is None and t.is_neg() else t for t in (a, b, out))
        if arrays.half_of(torch, x, y, to) is not None:
            with accepted({"a": x, "b": y}, {"out": to}, asked.workspace, stream, bits=True) as (kind, (left, right), (target,), buffer):
                result, repeat = by_same_bits(asked._replace(workspace=buffer), kind, left, right, target, element)
                result = kind.give_back(result).view(a.dtype) if to is None else to
            return (result, repeat) if to is out else (out.copy_(result), None)
    if stream is not None:
        what = "these tensors of 16 bits are converted on PyTorch's current stream, not on the one that is given"
        raise fail("E821", what, "leave stream= out, or convert them to float32")
    wide = None if out is None else out.float()
    with accepted({"a": a.float(), "b": b.float()}, {"out": wide}, asked.workspace) as (kind, (left, right), (target,), buffer):
        own = element if rounds and not kind.on_gpu else None
        result, _ = by_same_bits(asked._replace(workspace=buffer), kind, left, right, target, own)
        value = kind.give_back(result) if wide is None else wide
    if out is value:
        return out, None
    rounded = value.to(a.dtype if out is None else out.dtype).masked_fill_(value.isnan(), float("nan"))
    return (rounded if out is None else out.copy_(rounded)), None
