"""`matmul`: the drop-in multiply."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Literal, TypeVar, Unpack, overload

from bilinear.errors import fail
from bilinear.ir.matrix import Array, ArrayT, Factor
from bilinear.planner.plan import Plan
from bilinear.runtime.accept import Casting, in_types
from bilinear.runtime.arrays import Kept, is_on_gpu, is_plain, records_gradients, stream_for, torch_of
from bilinear.runtime.budgets import Workspace
from bilinear.runtime.call import matmul_tensors, multiply_anew
from bilinear.runtime.options import Accuracy, CallOptions, Named, Options
from bilinear.runtime.repeat import Repeat, repeated
from bilinear.runtime.replay import asked_of, remember, replays

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, DTypeLike, NDArray

    Scalar = TypeVar("Scalar", bound=np.generic)
    NumpyT = TypeVar("NumpyT", bound=NDArray[Array])


@overload
def matmul(
    a: NumpyT | Kept, b: NumpyT | Kept, out: NumpyT | None = None, *, dtype: None = None, **options: Unpack[CallOptions]
) -> NumpyT: ...
@overload
def matmul(
    a: ArrayT | Kept, b: ArrayT | Kept, out: ArrayT | None = None, *, dtype: None = None, **options: Unpack[CallOptions]
) -> ArrayT: ...
@overload
def matmul(
    a: NDArray[np.generic],
    b: NDArray[np.generic],
    out: None = None,
    *,
    dtype: type[Scalar] | np.dtype[Scalar],
    **options: Unpack[CallOptions],
) -> NDArray[Scalar]: ...
@overload
def matmul(
    a: ArrayLike, b: ArrayLike, out: NDArray[Array] | None = None, *, dtype: DTypeLike | None = None, **options: Unpack[CallOptions]
) -> NDArray[Array]: ...
@overload
def matmul(a: ArrayT, b: ArrayT, out: ArrayT | None = None, *, dtype: object, **options: Unpack[CallOptions]) -> ArrayT: ...
def matmul(
    a: Array,
    b: Array,
    out: Array = None,
    *,
    alpha: Factor = 1,
    beta: Factor = 0,
    dtype: object = None,
    casting: Casting = "same_kind",
    algorithm: Named = "auto",
    levels: int | Literal["auto"] = "auto",
    inputs: Literal["preserve", "restore", "consume"] = "preserve",
    workspace: Workspace = None,
    tolerance: float | None = None,
    accuracy: Accuracy = None,
    plan: Plan | None = None,
    stream: AbstractContextManager[object] | None = None,
    modulus: int | None = None,
    gpus: int | Sequence[int] | Literal["all"] | None = None,
    memory: int | str | None = None,
    balance: Literal["static", "queue"] = "static",
    reproducible: Literal["bitwise"] | None = None,
    contention: Literal["colours", "atomics"] = "colours",
) -> Array:
    """alpha * a @ b + beta * out, with the shapes, dtypes and batches of `numpy.matmul`.

    Inf and NaN are multiplied like other numbers; they reach more elements of the result than in the classical product. With an infinite
    alpha, a schedule that subtracts one product from another gives NaN. Subclasses of NumPy's arrays come back as from `numpy.matmul`;
    those with a multiply of their own, such as masked arrays, use it. With BILINEAR_USE_LIBRARY=1 in the environment, every call is the
    library's multiply.

    If the handler of a signal (such as Ctrl-C) raises, the exception leaves when nothing writes `out` any more. If the plan writes `a`
    and `b`, it leaves after the current stage, with `a` and `b` restored; if that is impossible, the exception has a note that says so.

    A named algorithm multiplies complex matrices by three products of real ones, whose error is bounded by norm, but not for a small
    imaginary part by itself (docs/how-to/complex.md).

    If `b` is `a.T`, in the same memory, `auto` computes one triangle and mirrors it where that is predicted to gain (docs/how-to/gram.md).

    PyTorch's tensors are multiplied where they lie. The product of two tensors, into a new one, is recorded for gradients. Types that no
    schedule runs on are PyTorch's own products, with the warning of `algorithm` (docs/how-to/pytorch.md).

    Parameters
    ----------
    a, b : arrays of shapes (..., m, k) and (..., k, n)
        From NumPy, CuPy, PyTorch or any library that speaks DLPack. Either may be what `prepare` returned for it.
    out : array of shape (..., m, n), optional
        Where the result is written. By default a new array of the same kind on the same device.
    alpha : number
        Of the product's type. One beyond the type's range is refused (E528); one that rounds to 0 may count as 0. With alpha = 0 the
        operands are not read.
    beta : number
        The same, of the type of `out`. With beta = 0 `out` is not read.
    dtype : dtype, optional
        As in `numpy.matmul`: the type in which the product is computed, and that of a new result. Operands are converted to it first.
    casting : {"no", "equiv", "safe", "same_kind", "unsafe"}
        As in `numpy.matmul`: which casts of the operands, and of the product into `out`, are allowed (else E530). Converted copies are not
        counted as workspace.
    algorithm : str or Algorithm or sequence of them
        `auto`, or the name or path of a scheme or schedule, which is found as by `load` and read again if its files have changed.
        "strassen:2" is two levels of one; "winograd+strassen" or ["winograd", "strassen"] names each level, the outermost first. On a
        GPU whose description is known, `auto` runs the plan that was timed for the problem, or else the one that the performance model
        predicts to be fastest (docs/planning.md); on processors that `bilinear tune --cpu --keep` has described, the one that is
        predicted to gain (docs/many-core.md). Integer matrices run on the matrix units of a GPU of compute capability 9.0, exactly, by
        a named algorithm also of others from 8.0 on (docs/how-to/exact.md). Elsewhere it is the library's multiply. If only the library
        can multiply arrays of this type, a named algorithm is not used, and a `UserWarning` says so.
    levels : int or "auto"
        The number of recursion levels; 0 is the library's multiply. With a named algorithm "auto" is one level, and a further one while
        its blocks stay at least 1024 wide.
    inputs : {"preserve", "restore", "consume"}
        What happens to `a` and `b`: they are never written, they may be written and are restored to rounding, or they are left undefined.
        The last two need an in-place schedule.
    workspace : int or str or array, optional
        The most bytes that the plan may allocate, a size such as "2GiB", "none", or "unlimited" (the default). It may also be a
        one-dimensional array to use instead, because memory that was never touched is slow. A plan that needs more is refused, with the
        bytes that it needs. A result computed aside from `out` is as large as `out` and counts, too; it is never put into a given array.
        It is needed if `out` has another dtype than the product, overlaps an operand, or lacks the layout that a plan of parts was made
        for, or if beta is not 0 and the schedule overwrites C. A new result, converted copies of operands, and buffers that do not grow
        with the problem are not counted.
    tolerance : float, optional
        How far `restore` may move an element of `a` or `b`, relative to the largest magnitude in its finest block. All blocks are scanned
        first. If the schedule's drift bound exceeds the tolerance for one of them, or if sums may overflow, the call is refused and
        nothing is written (E533). By default only Inf and NaN are refused (E524): elements far smaller than the blocks that are added to
        theirs may then come back as zeros, and sums that overflow leave Inf and NaN.
    accuracy : float or "classical" or "twice", optional
        A budget for `auto`. A number limits the bound of max|C - A*B| / (max|A| max|B|), which holds for all data; "classical" and
        "twice" limit the probable error by norm to that of the classical multiply in this type, or to twice that. On a GPU that has the
        instructions, `auto` always weighs residues that keep "classical"; with an accuracy it also weighs `pairs` of float16 digits, which
        are exact only on integers of at most 11 bits (docs/digits.md). A bound that nothing keeps is refused (E519).
    plan : Plan, optional
        A plan of `bilinear.plan`, which runs exactly, with its own promise about the inputs.
    stream : stream, optional
        A CuPy stream, or for PyTorch's tensors also one of PyTorch. The default is the current stream of the arrays' library. On another
        stream, keep the arrays until it has finished with them. While a stream is captured in a CUDA graph, workspace belongs to the
        graph, and a call without `out`, or that would wait for the GPU, is refused (E536).
    modulus : int, optional
        The product of integers modulo p, from 2 to 2^62: exact, each element from 0 to p - 1, whatever integers the
        operands hold. The result is of their common type if that holds p - 1, else of int64; alpha and beta are integers. An algorithm may
        be one over Z, one whose fractions exist modulo p, or one over Z/p itself (docs/how-to/exact.md).
    gpus : int, sequence of int, or "all", optional
        How many GPUs, or which, multiply matrices of NumPy in blocks, so that they need not hold them (docs/distributed.md). If such a call
        fails or is interrupted, each element of `out` is its result, or what it was.
    memory : int or str, optional
        With gpus=, the most bytes on each GPU. The default is 90 % of what is free there.
    balance : {"static", "queue"}
        With gpus=, whether each computes an equal part of the result, or one that is done takes over blocks of the others. The blocks are
        the same, and so are the bits on GPUs of one kind.
    reproducible : "bitwise", optional
        Each element of the result is a function of its row of `a`, its column of `b`, the type and the accuracy, and of nothing else: not
        of other rows, layouts, workspace, or what multiplies (docs/how-to/reproducible.md).
    contention : {"colours", "atomics"}
        How a named in-place schedule adds several products of a stage to one block of C: one after the other, or at once by atomic
        additions on a GPU, where sums of rounded numbers differ from call to call.

    Returns
    -------
    array of shape (..., m, n)
        `out` if it is given.

    Raises
    ------
    ValueError, TypeError
        As `numpy.matmul` does, and for tensors what `torch.matmul` raises.
    BilinearError
        For options that cannot be met.
    MemoryError
        If the workspace cannot be allocated.
    StageError
        If a stage fails; it names the blocks that have changed.

    Examples
    --------
    >>> import numpy as np
    >>> import bilinear
    >>> a, b = np.arange(12).reshape(3, 4), np.arange(20).reshape(4, 5)
    >>> c = bilinear.matmul(a, b, algorithm="strassen", levels=1)
    >>> bool((c == a @ b).all())
    True
    >>> bilinear.matmul(a, b, c, alpha=2, beta=-1, algorithm="winograd", levels=1)[0]
    array([70, 76, 82, 88, 94])
    """
    if dtype is not None or casting != "same_kind":
        options: dict[str, Array] = {
            "alpha": alpha, "beta": beta, "algorithm": algorithm, "levels": levels, "inputs": inputs, "workspace": workspace,
            "tolerance": tolerance, "plan": plan, "accuracy": accuracy, "stream": stream, "gpus": gpus, "memory": memory,
            "balance": balance, "reproducible": reproducible, "contention": contention,
        }  # fmt: skip
        if modulus is not None:
            what = "dtype= and casting= are for products that are rounded or overflow"
            raise fail("E598", what, "leave them out, and convert the operands")
        if isinstance(a, Kept) or isinstance(b, Kept):
            raise fail("E538", "a prepared operand has its type already", "leave dtype= and casting= out")
        return in_types(lambda given, target: matmul(given[0], given[1], target, **options), (a, b), out, dtype, casting)
    torch = torch_of(a, b, out) if "torch" in sys.modules else None
    if replays.again is not None and not replays.stands_before and (torch is None or not torch.compiler.is_compiling()):
        limits = workspace, tolerance, plan, accuracy, reproducible, contention
        result = replays.again((a, b, out, stream, modulus, gpus, memory, balance, alpha, beta, algorithm, levels, inputs, *limits))
        if result is not NotImplemented:
            return result
    asked = Options(
        alpha, beta, algorithm, levels, inputs, workspace, tolerance, plan, accuracy, reproducible=reproducible, contention=contention
    )
    is_seen = torch is not None and (records_gradients(torch, a, b, out) or not is_plain(torch, a, b, out))
    if is_seen and gpus is memory is modulus is None and not (isinstance(a, Kept) or isinstance(b, Kept)):
        from bilinear.runtime.torch_operators import recorded

        return recorded(a, b, out, asked, stream)
    if algorithm != "auto" or accuracy is not None:
        asked = asked.as_named()
        if replays.again is not None and not is_seen and all(x is None for x in (gpus, memory, modulus, stream)) and balance == "static":
            result = replays.again(asked_of(a, b, out, asked))
            if result is not NotImplemented:
                return result
    if reproducible is not None and modulus is not None:
        raise fail("E820", "products modulo p are exact in any case, and take no reproducible=", "leave it out")
    if contention != "colours" and not gpus is memory is modulus is None:
        raise fail("E557", "contention= has no meaning with gpus=, memory= and modulus=", "leave it out")
    if gpus is not None or memory is not None or balance != "static":
        return _streamed(a, b, out, asked, gpus, memory, balance, stream is not None or modulus is not None)
    if modulus is not None:
        from bilinear.runtime.integers import matmul_modulo  # most calls need none of it

        return matmul_modulo(a, b, out, modulus, asked, stream)
    key = None
    if torch is None:
        key, repeat = repeated(a, b, out, asked)
        if repeat is not None:
            result = repeat.run(a, b, out, alpha, beta) if stream is None else _on(stream, repeat, a, b, out, asked)
            if result is not None:
                if repeat.offers and stream is None:
                    remember(a, b, out, asked, repeat)
                return result
    if isinstance(a, Kept) or isinstance(b, Kept):
        return _by_kept(a, b, out, asked, stream)
    return multiply_anew(a, b, out, asked, stream, key) if torch is None else matmul_tensors(torch, a, b, out, asked, stream)


replays.multiply = matmul


def _on(stream: AbstractContextManager[object], repeat: Repeat, a: Array, b: Array, out: Array, asked: Options) -> Array:
    with stream:
        return repeat.run(a, b, out, asked.alpha, asked.beta)


def _streamed(a: Array, b: Array, out: Array, asked: Options, gpus: object, memory: object, balance: str, beside: bool) -> Array:
    if gpus is None:
        raise fail("E773", "memory= and balance= are for products on GPUs, and no gpus= are named", "give gpus=, or use workspace=")
    if beside:
        raise fail("E773", "gpus= cannot be combined with stream= or modulus=", "leave them out")
    from bilinear.runtime.streamed import matmul_streamed  # most calls need none of it

    return matmul_streamed(a, b, out, asked, gpus, memory, balance)


def _by_kept(a: Array, b: Array, out: Array, asked: Options, stream: AbstractContextManager[object] | None) -> Array:
    """A product with a prepared operand. Options that were given to `prepare` are refused (E538)."""
    kept, other, side = (a, b, "A") if isinstance(a, Kept) else (b, a, "B")
    if kept.side != side or isinstance(other, Kept):
        what = (
            "both operands are prepared" if isinstance(other, Kept) else f"an operand that was prepared as {kept.side} is given as {side}"
        )
        raise fail("E538", what, "give the other operand as an array")
    if asked._replace(alpha=1, beta=0, workspace=None) != Options():
        raise fail("E538", "the plan of a prepared operand is settled", "give algorithm=, levels= and accuracy= to prepare()")
    with stream_for(is_on_gpu(other), stream):
        return kept.matmul(other, out, alpha=asked.alpha, beta=asked.beta, workspace=asked.workspace)
