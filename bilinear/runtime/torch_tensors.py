"""`matmul` of PyTorch's tensors: what is recorded for gradients, what PyTorch multiplies by itself, and the rest as arrays."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from types import ModuleType

from bilinear.frontend import load_for_arrays
from bilinear.ir.element import FLOAT32, HALVES, Element
from bilinear.ir.matrix import Array
from bilinear.runtime.accept import accepted
from bilinear.runtime.arrays import NUMPY
from bilinear.runtime.environment import USE_LIBRARY, uses_library, value_of
from bilinear.runtime.named import algorithm_as_it_is
from bilinear.runtime.on_arrays import Asked, matmul_arrays
from bilinear.runtime.options import Options, check_options, check_plan_options
from bilinear.runtime.repeat import Key
from bilinear.runtime.torch_memory import ONLY_AS_ARRAYS, TYPES, adopt_tensor, as_arrays, give_tensor, name_of, unrecorded, why_not_dense
from bilinear.runtime.torch_repeat import by_torch, keep_tensors, repeated_tensors
from bilinear.runtime.unused import warn_unused


def check_recorded(torch: ModuleType, a: Array, b: Array, out: Array, asked: Asked, stream: object) -> None:
    """Refuse (E516) what the operators, which record gradients, do not compute."""
    if not _is_product(torch, a, b, out, asked, stream):
        raise unrecorded("gradients are recorded of products of two tensors, without out=, factors and other options")
    if not isinstance(asked[2], str):
        raise unrecorded("gradients are recorded where an algorithm is given by its name or path")


def _is_product(torch: ModuleType, a: Array, b: Array, out: Array, asked: Asked, stream: object) -> bool:
    """Whether a call asks for the product of two tensors by some algorithm and levels, and for nothing else."""
    alpha, beta, _, _, inputs, *others = asked
    plain = type(alpha) in (int, float) and alpha == 1 and type(beta) in (int, float) and beta == 0 and inputs == "preserve"
    return plain and all(x is None for x in (out, stream, *others)) and isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)


def multiplies_by_itself(a: Array, b: Array, asked: Options) -> bool:
    """Whether PyTorch's own multiply is to run for two tensors; warns if it does so in place of a named algorithm.

    It runs for types, layouts and devices that no schedule runs on, and on processors for `auto` that has nothing to weigh. Raises
    `BilinearError` for options that have no meaning.
    """
    check_options(asked, None)
    is_unnamed = asked.is_plain(NUMPY)
    named = None if is_unnamed else asked.algorithm
    named = algorithm_as_it_is(named, load_for_arrays) if isinstance(named, str) else named
    reason = _why_itself(a) or _why_itself(b)
    if reason is None:
        is_pytorchs = not a.is_cuda and name_of(a.dtype) not in ONLY_AS_ARRAYS
        return is_unnamed and is_pytorchs and asked.described_cpu(NUMPY, a, b) is None
    if named is not None:
        warn_unused(named.name, reason)
    return True


def _why_itself(tensor: Array) -> str | None:
    dtype, reason = name_of(tensor.dtype), why_not_dense(tensor)
    if reason is not None:
        return reason
    if not tensor.is_cuda and str(tensor.device).partition(":")[0] != "cpu":
        return f"no schedule runs on the device {tensor.device}"
    return None if dtype in TYPES else f"no schedule runs on {dtype}"


def matmul_tensors(torch: ModuleType, a: Array, b: Array, out: Array, asked: Asked, stream: AbstractContextManager[object] | None) -> Array:
    """`matmul` of tensors whose gradients are not recorded, or of tensors and arrays. A call that ran before on a GPU is found first."""
    asked, key, result = (asked, None, None) if stream is not None else found_again(torch, a, b, out, asked)
    if result is not None:
        return result
    result, is_pytorchs = _matmul_anew(torch, a, b, out, asked, stream)
    if key is not None:
        if is_pytorchs and asked[2] == "auto":  # else a warning belongs to each call
            keep_tensors(torch, key, None, asked, result)
        elif not is_pytorchs and name_of(a.dtype) not in HALVES:
            keep_tensors(torch, key, (adopt_tensor(torch, a), adopt_tensor(torch, b), adopt_tensor(torch, out)), asked, result)
    return result


def found_again(torch: ModuleType, a: Array, b: Array, out: Array, asked: Asked) -> tuple[Asked, Key | None, Array]:
    """What is asked for, with the algorithm that its name means now; the key under which the call is to be kept, if it is; and the result
    of a call that ran before on a GPU, or None.
    """
    if value_of(USE_LIBRARY) is not None and uses_library():
        return asked, None, None
    if isinstance(asked[2], str) and asked[2] != "auto":
        asked = (*asked[:2], algorithm_as_it_is(asked[2], load_for_arrays), *asked[3:])
    key, repeat = repeated_tensors(torch, a, b, out, asked)
    if repeat is None:
        return asked, key, None
    return asked, None, repeat.run(a, b, out, asked[0], asked[1])


def _matmul_anew(
    torch: ModuleType, a: Array, b: Array, out: Array, asked: Asked, stream: AbstractContextManager[object] | None
) -> tuple[Array, bool]:
    """The same, decided anew, and whether PyTorch multiplied."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.dtype != b.dtype:
        with suppress(RuntimeError):  # two types without a common one are refused as they are
            common = torch.promote_types(a.dtype, b.dtype)  # which PyTorch's products leave to the caller
            a, b = a.to(common), b.to(common)
    element = half_of(torch, a, b, out)
    if element is not None:
        half = _by_half(torch, element, a, b, out, asked, stream)
        if half is not None:
            return half, False
        options = Options(*asked)
        is_plain = options.is_unsaid and options.alpha == 1 and options.accuracy is None and stream is None
        own = by_torch(torch, a, b, out) if is_plain else None
        if own is not None:
            return own, True
    if _is_product(torch, a, b, out, asked, stream) and a.dtype == b.dtype and multiplies_by_itself(a, b, Options(*asked)):
        return torch.matmul(a, b), True
    conjugated = "".join(name for name, x in zip("AB", (a, b), strict=True) if isinstance(x, torch.Tensor) and x.is_conj())
    a, b = (x.conj() if name in conjugated else x for name, x in zip("AB", (a, b), strict=True))  # the memory as it is
    with as_arrays(torch, stream, (a, b), (out, asked[5])) as (left, right, target, buffer):
        result = matmul_arrays(left, right, target, (*asked[:5], buffer, *asked[6:]), None, conjugated)
        return give_tensor(torch, result) if out is None else out, False


def half_of(torch: ModuleType, a: Array, b: Array, out: Array = None) -> Element | None:
    """The type of 16 bits of A, B and, if it is given, `out`, or with an `out` of float32: dense tensors on a GPU, in the memory that holds
    their elements. None for others.
    """
    given = [a, b, *(() if out is None else (out,))]
    if not all(isinstance(x, torch.Tensor) for x in given) or a.dtype != b.dtype:
        return None
    name = name_of(a.dtype)
    is_dense = all(x.is_cuda and why_not_dense(x) is None and not x.is_neg() for x in given)
    return HALVES.get(name) if is_dense and {name_of(x.dtype) for x in given} <= {name, FLOAT32.name} else None


def _by_half(torch: ModuleType, element: Element, a: Array, b: Array, out: Array, asked: Asked, stream: object) -> Array | None:
    """The product of such tensors, as CuPy's arrays of their 16 bits: CuPy need not know bfloat16. None for what PyTorch is to multiply."""
    from bilinear.runtime.half import by_half  # most calls need none of it

    options = Options(*asked)
    check_options(options, out)
    if options.plan is not None:
        check_plan_options(options.plan, options.algorithm, options.levels, options.inputs)
    if options.algorithm != "auto" and isinstance(options.algorithm, str):
        options = options._replace(algorithm=algorithm_as_it_is(options.algorithm))
    with accepted({"a": a, "b": b}, {"out": out}, options.workspace, stream, bits=True) as (kind, (left, right), (target,), buffer):
        result = by_half(options._replace(workspace=buffer), kind, element, left, right, target)
        if result is None or out is not None:
            return None if result is None else out
        return kind.give_back(result).view(a.dtype)
