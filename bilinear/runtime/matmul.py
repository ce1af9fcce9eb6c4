"""`matmul`: the drop-in multiply."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Literal

import numpy as np

from bilinear.frontend import Loaded
from bilinear.ir.matrix import Array, Factor
from bilinear.planner.plan import Plan
from bilinear.runtime.environment import USE_LIBRARY, uses_library, value_of
from bilinear.runtime.named import algorithm_as_it_is
from bilinear.runtime.on_arrays import multiply_anew
from bilinear.runtime.repeat import repeated
from bilinear.runtime.torch_tensors import check_recorded, matmul_tensors, records_gradients, torch_of


def matmul(
    a: Array,
    b: Array,
    out: Array = None,
    *,
    alpha: Factor = 1,
    beta: Factor = 0,
    algorithm: str | Loaded = "auto",
    levels: int | Literal["auto"] = "auto",
    inputs: Literal["preserve", "restore", "consume"] = "preserve",
    workspace: Array = None,
    tolerance: float | None = None,
    accuracy: float | Literal["classical", "twice"] | None = None,
    plan: Plan | None = None,
    stream: AbstractContextManager[object] | None = None,
) -> Array:
    """alpha * a @ b + beta * out, with the shapes, dtypes and batches of `numpy.matmul`.

    `a` is (..., m, k) and `b` is (..., k, n), from NumPy, CuPy or any library that speaks DLPack. The result is (..., m, n), of the same
    kind and on the same device; if `out` is given, it is written there. alpha is a number of the product's type, beta of `out`'s. A number
    beyond the type's range is refused (E528); one that rounds to 0 in the type may count as 0. With alpha = 0 the operands are not read,
    with beta = 0 `out` is not read. Inf and NaN are multiplied like other numbers: with an infinite alpha, a schedule that subtracts one
    product from another gives NaN.

    `algorithm` is `auto`, or the name or path of a scheme or schedule, which is found as by `bilinear.load` and read again if its files
    have changed. On a GPU whose description is known, `auto` runs the plan that was timed for the problem, or else the one that the
    performance model predicts to be fastest (docs/planning.md); on processors that `bilinear tune --cpu --keep` has described, the one that
    is predicted to gain (docs/many-core.md). Elsewhere it is the library's multiply. `levels` is the number of recursion levels; 0 is the
    library's multiply, and with a named algorithm "auto" is one level, and a further one while its blocks stay at least 1024 wide. If only
    the library can multiply arrays of this type, a named algorithm is not used, and a `UserWarning` says so. `plan` is a plan of
    `bilinear.plan`, which runs exactly, with its own promise about the inputs. With BILINEAR_USE_LIBRARY=1 in the environment, every call
    is the library's multiply.

    `inputs` says what happens to `a` and `b`: `preserve` never writes them, `restore` may write them and restores them to rounding,
    `consume` leaves them undefined. The last two need an in-place schedule. `tolerance` limits how far `restore` may move an element of `a`
    or `b`, relative to the largest magnitude in its finest block. All blocks are scanned first. If the schedule's drift bound exceeds the
    tolerance for one of them, or if sums may overflow, the call is refused and nothing is written (E533). None, the default, refuses only
    Inf and NaN (E524): elements far smaller than the blocks that are added to theirs may then come back as zeros, and sums that overflow
    leave Inf and NaN.

    `workspace` is the most bytes that the plan may allocate, "none", or "unlimited" (the default). It may also be a one-dimensional array
    to use instead, because memory that was never touched is slow. A plan that needs more is refused, with the bytes that it needs. A result
    computed aside from `out` is as large as `out` and counts, too; it is never put into a given array. It is needed if `out` has another
    dtype than the product, overlaps an operand, or lacks the layout that a plan of parts was made for, or if beta is not 0 and the schedule
    overwrites C. A new result, converted copies of operands, and buffers that do not grow with the problem are not counted.

    `accuracy` is a budget for `auto`: a number limits the bound of max|C - A*B| / (max|A| max|B|), which holds for all data; "classical"
    and "twice" limit the probable error by norm to that of the classical multiply in this type, or to twice that. With an accuracy, `auto`
    also weighs products of digits, several times as fast in float32 on a GPU that has the instructions; they are exact only on integers
    of at most 11 bits (docs/digits.md). A bound that nothing keeps is refused (E519).

    `stream` is a CuPy stream, or for PyTorch's tensors also one of PyTorch. The default is the current stream of the arrays' library. On
    another stream, keep the arrays until it has finished with them. While a stream is captured in a CUDA graph, a call that would allocate
    from a pool or wait for the GPU is refused (E536).

    Subclasses of NumPy's arrays come back as from `numpy.matmul`; those with a multiply of their own, such as masked arrays, use it. If
    the handler of a signal (such as Ctrl-C) raises, the exception leaves when nothing writes `out` any more. If the plan writes `a` and
    `b`, it leaves after the current stage, with `a` and `b` restored; if that is impossible, the exception has a note that says so.

    PyTorch's tensors are multiplied where they lie. The product of two tensors, into a new one, is recorded for gradients. Types that no
    schedule runs on, such as bfloat16, are PyTorch's own products, with the same warning (docs/how-to/pytorch.md).

    Raises `ValueError` and `TypeError` as `numpy.matmul` does (for tensors also what `torch.matmul` raises), `BilinearError` for options
    that cannot be met, `MemoryError` if the workspace cannot be allocated, and `StageError` if a stage fails.
    """
    by_library = value_of(USE_LIBRARY) is not None and uses_library()
    named = algorithm
    if algorithm != "auto" and not by_library and not isinstance(algorithm, Loaded):
        algorithm = algorithm_as_it_is(str(algorithm))
    accuracy = accuracy.item() if isinstance(accuracy, np.generic) else accuracy
    asked = alpha, beta, algorithm, levels, inputs, workspace, tolerance, plan, accuracy
    key, repeat = (None, None) if by_library else repeated(a, b, out, asked)
    if repeat is not None:  # as in `matmul_arrays`, without the time of one call more
        if stream is None:
            result = repeat.run(a, b, out, alpha, beta)
        else:
            with stream:
                result = repeat.run(a, b, out, alpha, beta)
        if result is not None:
            return result
    torch = torch_of(a, b, out) if key is None else None
    if torch is None:
        return multiply_anew(a, b, out, asked, stream, key)
    if records_gradients(torch, a, b, out):
        check_recorded(torch, a, b, out, (alpha, beta, named, *asked[3:]), stream)
        from bilinear.runtime.torch_matmul import recorded

        return recorded(a, b, str(named), levels)
    return matmul_tensors(torch, a, b, out, asked, stream)
