"""`matmul`: the drop-in multiply."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

from bilinear.frontend import Loaded
from bilinear.ir.matrix import Array, Factor
from bilinear.planner.plan import Plan
from bilinear.runtime.arrays import adopt, adopt_out, kind_of
from bilinear.runtime.auto import budget_and_buffer, check_plan_options
from bilinear.runtime.environment import uses_library
from bilinear.runtime.magnitudes import check_tolerance_option
from bilinear.runtime.multiply import multiply
from bilinear.runtime.named import algorithm_as_it_is
from bilinear.runtime.options import Options, check_options
from bilinear.runtime.repeat import repeated
from bilinear.runtime.torch_tensors import adopt_tensor, surroundings, torch_of


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
    plan: Plan | None = None,
    stream: AbstractContextManager[object] | None = None,
) -> Array:
    """alpha * a @ b + beta * out, with the shapes, dtypes and batches of `numpy.matmul`.

    `a` is (..., m, k), `b` is (..., k, n), of NumPy, CuPy or any library that speaks DLPack; the result is (..., m, n) of the same kind on
    the same device, in `out` where it is given. `algorithm` is the name or path of a scheme or schedule, looked up as `bilinear.load` does
    and read as it is when the call is made, or `auto`: on a GPU that a description is known of, the plan that was timed for it or what the
    performance model finds fastest (docs/planning.md), else the library's multiply. `plan` is a plan of `bilinear.plan`, which runs
    exactly, with its own promise of the inputs. With BILINEAR_USE_LIBRARY=1 in the environment everything is the library's multiply.
    `levels` is the number of recursion levels; 0 is the library's multiply. `inputs` promises what happens to `a` and `b`: `preserve` never
    writes them, `restore` may write them and brings them back to rounding, `consume` leaves them undefined; the last two need an in-place
    schedule. With alpha = 0 the operands are not read, with beta = 0 `out` is not read. alpha is a number of the product's type, beta of
    the type of `out`; what is beyond its largest number is refused (E528), what rounds to 0 there may count as 0. Inf and NaN multiply as
    they are: where sums of products that alpha has multiplied cancel, an infinite one leaves NaN. `workspace` is the most bytes that the
    plan may allocate, "none" or "unlimited" (the default), or a one-dimensional array to be used in place of a fresh allocation, whose
    memory a first touch makes slow; what does not fit is refused with the bytes that are needed. A result aside from `out`, as large as
    `out`, counts among these bytes: it is made where `out` has another dtype than the product or overlaps an operand, where beta is not 0
    and the schedule overwrites what it computes, and where `out` does not lie as a plan of parts was made for; it is not laid in a given
    array. Not counted are a fresh result, copies of operands of another dtype than the product, and buffers that do not grow with the
    problem. `stream` is a CuPy stream, or for PyTorch's tensors one of PyTorch; the default is the current one of the library whose arrays
    these are. On another one, arrays are to be kept until it is through with them. While it is captured in a CUDA graph, nothing runs that
    takes memory of a pool or waits for an answer (E536).

    `tolerance` says how far `restore` may move an element of `a` or `b`, relative to the largest magnitude of the finest block that it
    lies in. The magnitudes of all blocks are scanned first; where the drift bound of the schedule is above the tolerance for one of
    them, or sums may overflow, the call is refused and nothing is written (E533). None, the default, refuses only Inf and NaN (E524):
    then elements far smaller than the blocks that theirs meets in sums may come back as zeros, and sums that overflow leave Inf and NaN.

    Subclasses of NumPy's arrays come back as from `numpy.matmul`; those with a multiply of their own, such as masked arrays, go to it.
    Signals whose handlers raise, Ctrl-C among them, leave when nothing writes `out` any more; where a plan writes `a` and `b`, after the
    stage that runs, with `a` and `b` brought back where that is possible, and a note of what is not.

    Raises `ValueError` and `TypeError` where `numpy.matmul` does, `BilinearError` for what cannot run as asked, `MemoryError` where the
    workspace cannot be had, and `StageError` where a stage failed.
    """
    if algorithm != "auto" and not isinstance(algorithm, Loaded) and not uses_library():
        algorithm = algorithm_as_it_is(str(algorithm))
    asked = alpha, beta, algorithm, levels, inputs, workspace, tolerance, plan
    key, repeat = repeated(a, b, out, asked)
    if repeat is not None:
        if stream is None:
            result = repeat.run(a, b, out, alpha, beta)
        else:
            with stream:
                result = repeat.run(a, b, out, alpha, beta)
        if result is not None:
            return result
    torch = torch_of(a, b, out) if key is None else None
    if torch is not None:
        with surroundings(torch, stream, a, b, out, workspace):
            left, right, target, buffer = (adopt_tensor(torch, x) for x in (a, b, out, workspace))
            own: dict[str, Any] = {"alpha": alpha, "beta": beta, "algorithm": algorithm, "levels": levels, "inputs": inputs}
            result = matmul(left, right, target, workspace=buffer, tolerance=tolerance, plan=plan, **own)
            return torch.from_dlpack(result) if out is None else out
    options = Options(*asked)
    check_options(options, out)
    if plan is not None:
        check_plan_options(plan, algorithm, levels, inputs)
    check_tolerance_option(tolerance, inputs if plan is None else plan.chosen.promise)
    kind = kind_of(a, b, out)
    left, right = adopt(a, kind), adopt(b, kind)
    given = None if out is None else adopt_out(out, kind)
    budget_and_buffer(workspace)  # which refuses what means nothing
    with stream if stream is not None and kind.on_gpu else _NO_STREAM:
        result = multiply(options.settled(kind), key, left, right, given)
    return out if out is not None else kind.give_back(result)


_NO_STREAM = nullcontext()
