"""`matmul`: the drop-in multiply."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from bilinear.backends.capture import not_captured
from bilinear.backends.chain import operands_of
from bilinear.backends.cublas import multiply_of
from bilinear.backends.executor import Executor, allocate_workspace, execute
from bilinear.backends.factor import check_object_factors, check_scaling, factor
from bilinear.errors import BilinearError, fail
from bilinear.frontend import Loaded
from bilinear.ir.placement import INPUTS, Placement
from bilinear.lowering.prepare import check_promise
from bilinear.planner.plan import CUBLAS, LIBRARY, Plan
from bilinear.runtime import auto
from bilinear.runtime.arrays import Kind, adopt, adopt_out, kind_of
from bilinear.runtime.auto import budget_and_buffer, check_plan_options, over_budget
from bilinear.runtime.decide import Asked, Decision, decide, placement_for
from bilinear.runtime.environment import uses_library
from bilinear.runtime.magnitudes import check_tolerance, check_tolerance_option
from bilinear.runtime.named import algorithm_as_it_is
from bilinear.runtime.problem import ArrayProblem
from bilinear.runtime.recipe import Recipe, Same, largest_scaling
from bilinear.runtime.repeat import CupyRepeat, Key, LibraryRepeat, PlacementRepeat, Reaches, keep_repeat, key_of, repeated
from bilinear.runtime.safety import check_writable_inputs, indices, is_writable, shares_memory
from bilinear.runtime.torch_tensors import adopt_tensor, surroundings, torch_of

if TYPE_CHECKING:  # imported with the first call on a GPU
    from bilinear.backends.cuda_executor import CudaExecutor

log = logging.getLogger("bilinear")


def matmul(
    a: Any,
    b: Any,
    out: Any = None,
    *,
    alpha: Any = 1,
    beta: Any = 0,
    algorithm: str | Loaded = "auto",
    levels: int | Literal["auto"] = "auto",
    inputs: Literal["preserve", "restore", "consume"] = "preserve",
    workspace: Any = None,
    tolerance: float | None = None,
    plan: Plan | None = None,
    stream: Any = None,
) -> Any:
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
    key = key_of(a, b, out, alpha, beta, algorithm, levels, inputs, workspace, tolerance, plan)
    repeat = repeated(key)
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
            asked: dict[str, Any] = {"alpha": alpha, "beta": beta, "algorithm": algorithm, "levels": levels, "inputs": inputs}
            result = matmul(left, right, target, workspace=buffer, tolerance=tolerance, plan=plan, **asked)
            return torch.from_dlpack(result) if out is None else out
    _check_options(inputs, levels, alpha, beta, out)
    if plan is not None:
        check_plan_options(plan, algorithm, levels, inputs)
    check_tolerance_option(tolerance, inputs if plan is None else plan.chosen.promise)
    kind = kind_of(a, b, out)
    left, right = adopt(a, kind), adopt(b, kind)
    given = None if out is None else adopt_out(out, kind)
    request = _Request(kind, alpha, beta, algorithm, levels, inputs, *budget_and_buffer(workspace), tolerance, plan, key)
    with stream if stream is not None and kind.on_gpu else _NO_STREAM:
        result = request.multiply(left, right, given)
    return out if out is not None else kind.give_back(result)


_NO_STREAM = nullcontext()


def _check_options(inputs: str, levels: int | str, alpha: Any, beta: Any, out: Any) -> None:
    if inputs not in INPUTS:
        raise fail("E513", f"inputs={inputs!r} is unknown", f"choose one of {', '.join(INPUTS)}")
    if levels != "auto" and (not isinstance(levels, (int, np.integer)) or isinstance(levels, bool) or levels < 0):
        raise fail("E514", f"levels={levels!r} is not a number of levels", "give an integer of at least 0, or 'auto'")
    for name, value in (("alpha", alpha), ("beta", beta)):
        if type(value) not in (int, float) and np.ndim(value) != 0:
            raise fail("E528", f"{name} is an array of {np.ndim(value)} dimension(s), not a number", "scale the operands by it")
    if out is None and beta != 0:
        raise fail("E515", "beta scales out, and there is no out", "give out=, or leave beta at 0")


class _Request(NamedTuple):
    """One call: everything but the arrays."""

    kind: Kind
    alpha: Any
    beta: Any
    algorithm: str | Loaded
    levels: int | str
    inputs: str
    budget: int | None = None
    workspace: Any = None
    tolerance: float | None = None
    plan: Plan | None = None
    key: Key | None = None

    def multiply(self, a: Any, b: Any, out: Any) -> Any:
        asked = self.asked()
        if asked.algorithm is asked.plan is asked.device is None and self.alpha == 1 and self.beta == 0 and not self.kind.on_gpu:
            log.debug("matmul %s by %s: the library's multiply (algorithm is auto, or levels is 0)", a.shape, b.shape)
            return np.matmul(a, b, out=out)
        touches = out is not None and _touches(out, a, b)
        decision = decide(asked, a, b, out, touches)
        if out is None and self.kind.on_gpu and make_executor(self.kind).is_captured():
            raise not_captured("a fresh result would have to be kept as long as the graph", "give out=, an array that is")
        if decision.recipe is None:
            result = self.by_library(decision.problem, a, b, out, touches, decision.library)
            if not touches:  # where arrays overlap, nothing else was asked for
                self.keep(decision, a, b, result)
            return result
        result = self.kind.module.empty(decision.problem.shape, decision.problem.dtype) if out is None else out
        try:
            self.by_schedule(decision.problem, decision.recipe, decision.placement, a, b, result)
        except (BilinearError, MemoryError) as error:  # raised before anything is written, but where A and B were consumed
            if not decision.is_automatic or (isinstance(error, MemoryError) and decision.recipe.promise == "consume"):
                raise
            name = decision.recipe.loaded.scheme.name
            log.info("matmul %s by %s: %s cannot run (%s); the library's multiply", a.shape, b.shape, name, error)
            return self.by_library(decision.problem, a, b, result, touches)
        self.keep(decision, a, b, result)
        return result

    def keep(self, decision: Decision, a: Any, b: Any, out: Any) -> None:
        """Keep what ran to be repeated: the library's multiply, or a placement on three matrices as they lie."""
        if self.key is None or repeated(self.key) is not None:
            return
        problem, recipe, placement = decision.problem, decision.recipe, decision.placement
        if recipe is None:
            multiply = multiply_of(a, b, out, decision.library, auto.library_rules()) if self.alpha != 0 else None
            known = self.kind.module, problem, Reaches(a, b, out)
            keep_repeat(self.key, CupyRepeat(*known) if multiply is None else LibraryRepeat(*known, multiply))
        elif placement is not None and a.ndim == b.ndim == out.ndim == 2 and self.adds_with(placement):
            executor = _cuda_executor()
            bound = executor.bind(placement, a, b, out) if placement.rest is None else None
            keep_repeat(self.key, PlacementRepeat(executor, problem, placement, recipe.promise, bound, Reaches(a, b, out)))

    def asked(self) -> Asked:
        """What decides, beside the operands, what runs."""
        rest = bool(self.alpha != 0), bool(self.beta != 0), self.kind.on_gpu
        if uses_library():
            return Asked(None, 0, self.inputs, None, None, None, *rest)
        budget = self.budget if self.workspace is None else getattr(self.workspace, "nbytes", 0)
        if self.plan is not None:
            return Asked(None, 0, self.inputs, budget, Same(self.plan), None, *rest)
        is_auto = self.algorithm == "auto"
        found = auto.current_device() if self.kind.on_gpu and (self.levels == "auto" if is_auto else self.levels != 0) else None
        device = None if found is None else Same(found)
        if is_auto:
            return Asked(None, 0, self.inputs, budget, None, device, *rest)
        return Asked(None if self.levels == 0 else Same(self.algorithm), self.levels, self.inputs, budget, None, device, *rest)

    def factors(self, problem: ArrayProblem, a: Any, b: Any, out: Any) -> tuple[Any, Any]:
        """alpha as a number of the product's type, beta of the type of `out`."""
        target = problem.dtype if out is None else out.dtype
        if "O" in (problem.dtype.kind, target.kind):
            check_object_factors(self.alpha, self.beta, a, b, out)
        return factor("alpha", self.alpha, problem.dtype), factor("beta", self.beta, target)

    def by_library(self, problem: ArrayProblem, a: Any, b: Any, out: Any, touches: bool, library: str = LIBRARY) -> Any:
        xp = self.kind.module
        if self.alpha == 1 and self.beta == 0 and not self.kind.on_gpu:
            return np.matmul(a, b, out=out)
        alpha, beta = self.factors(problem, a, b, out)
        if out is None and self.alpha != 0 and not self.kind.on_gpu:  # of the subclass that NumPy chooses, with its mask
            return np.multiply(alpha, np.matmul(a, b))
        out = xp.empty(problem.shape, problem.dtype) if out is None else out
        is_direct = self.kind.on_gpu and self.alpha != 0 and not touches
        multiply = multiply_of(a, b, out, library, auto.library_rules()) if is_direct else None
        is_captured = multiply is None and self.kind.on_gpu and make_executor(self.kind).is_captured()
        if is_captured and is_direct:  # rather than CuPy's own, which may take memory
            multiply = multiply_of(a, b, out, CUBLAS)
        if multiply is not None:
            multiply(a.data.ptr, b.data.ptr, out.data.ptr, alpha, beta)
        elif self.alpha == 0 and self.beta == 0:
            out[...] = 0
        elif self.alpha == 0:
            out *= beta
        elif is_captured:
            hint = "capture matrices of float32 or float64 by rows or by columns, or give them algorithm='classical'"
            raise not_captured("CuPy's multiply of these operands may take memory of its pool, and calls no cuBLAS then", hint)
        elif self.alpha == 1 and self.beta == 0 and not touches:
            xp.matmul(a, b, out=out)
        else:
            product = xp.asarray(xp.matmul(a, b))
            _accumulate(out, product if self.alpha == 1 else alpha * product, beta)
        return out

    def by_schedule(self, problem: ArrayProblem, recipe: Recipe, placement: Placement | None, a: Any, b: Any, out: Any) -> None:
        """Run a placement on every matrix of the batch; without one, make one for the operands as matrices of the product's type.

        Aside where `out` has another dtype or overlaps an operand, or where the schedule cannot add to it.
        """
        alpha, beta = self.factors(problem, a, b, out)
        executor = make_executor(self.kind)
        left, right, target = _as_matrices(a, b, out)
        is_captured, dtype, aside = executor.is_captured(), problem.dtype, False
        if is_captured:
            self.check_capture(recipe, left.dtype == right.dtype == dtype)
        if recipe.promise != "preserve":
            self.check_in_place(executor, recipe, left, right, target)
        if placement is None or not self.adds_with(placement):
            left, right = left.astype(dtype, copy=False), right.astype(dtype, copy=False)
            aside = target.dtype != dtype or _touches(target, left, right) or not recipe.suits(target)
            if not aside and target.size:
                aside = not self.adds_with(placement_for(recipe, left, right, target))
            placement = placement_for(recipe, left, right, None if aside else target) if target.size else None
        if is_captured and placement is not None:
            self.check_captured_placement(placement, aside)
        if placement is not None:
            check_scaling(alpha, largest_scaling(placement), dtype)
            self.check_budget(placement, dtype.itemsize, target.size if aside else 0)
        is_by_columns = placement is not None and "C" in placement.column_major
        result = _fresh(self.kind.module, target.shape, dtype, is_by_columns) if aside else target
        if placement is not None:
            self.run_all(executor, placement, left, right, result, alpha, 0 if aside else beta)
        if aside:
            _accumulate(target, result, beta)

    def check_capture(self, recipe: Recipe, is_of_one_type: bool) -> None:
        """Refuse (E536) what a graph cannot hold, before anything is launched: looks at A and B, and converted operands."""
        if recipe.promise == "restore" or self.tolerance is not None:
            hint = "choose what leaves A and B alone: inputs='preserve', without tolerance="
            raise not_captured("A and B cannot be looked at, for Inf and NaN or for their magnitudes", hint)
        if not is_of_one_type:
            raise not_captured("operands would be converted in memory of the pool", "give a, b and out of one dtype")

    def check_captured_placement(self, placement: Placement, aside: bool) -> None:
        """The same of a placement: a result aside from `out`, and a workspace that is not the caller's."""
        if aside:
            hint = "give out of the operands' dtype, apart from them, by rows, and beta=0"
            raise not_captured("the result would be made aside, in memory of the pool", hint)
        if placement.allocated_elements and self.workspace is None:
            hint = "give workspace=, an array that lives as long as the graph"
            raise not_captured("the workspace would be memory of the pool, which others get after this call", hint)

    def adds_with(self, placement: Placement) -> bool:
        """Whether a placement can add to a result where that is asked for: some overwrite it."""
        return not (placement.overwrites and self.beta != 0)

    def check_budget(self, placement: Placement, itemsize: int, aside: int = 0) -> None:
        """Refuse (E535) a placement whose workspace, with so many elements of a result aside from `out`, is more than is allowed."""
        needed = (placement.allocated_elements + aside) * itemsize
        log.debug("%s: workspace of %d bytes", placement.schedule.name, needed)
        if self.budget is not None and needed > self.budget:
            raise over_budget(placement.schedule.name + (", with a result aside from out," if aside else ""), needed, self.budget)

    def run_all(self, executor: Executor, placement: Placement, left: Any, right: Any, result: Any, alpha: Any, beta: Any) -> None:
        """The same placement, in the same workspace, for every matrix of the batch."""
        own = self.workspace is None or not placement.allocated_elements
        workspace = allocate_workspace(executor, placement, result) if own else self.given_workspace(placement, left, right, result)
        if left.ndim == right.ndim == result.ndim == 2:
            execute(executor, placement, left, right, result, alpha, beta, workspace)
            return
        for index in indices(result.shape[:-2]):
            execute(executor, placement, _matrix(left, index), _matrix(right, index), result[index], alpha, beta, workspace)

    def given_workspace(self, placement: Placement, left: Any, right: Any, result: Any) -> Any:
        """The caller's buffer as elements of the result's type; refused (E529) where it cannot serve."""
        buffer, needed = self.workspace, placement.allocated_elements * result.dtype.itemsize
        if not isinstance(buffer, self.kind.module.ndarray) or buffer.ndim != 1 or not buffer.flags.c_contiguous or not is_writable(buffer):
            message = "workspace is no writable, contiguous, one-dimensional array of the operands' kind"
            raise fail("E529", message, f"give one of {needed} bytes")
        if buffer.dtype != result.dtype and (buffer.dtype.hasobject or result.dtype.hasobject):
            message = f"workspace holds {buffer.dtype}, and what it has to hold is {result.dtype}"
            raise fail("E529", message, f"give {placement.allocated_elements} elements of {result.dtype}")
        if buffer.nbytes < needed or any(shares_memory(buffer, x) for x in (left, right, result)):
            raise fail("E529", f"workspace has {buffer.nbytes} bytes, {needed} are needed, apart from a, b and out", "give a larger buffer")
        return buffer if buffer.dtype == result.dtype else buffer.view(np.uint8)[:needed].view(result.dtype)

    def check_in_place(self, executor: Executor, recipe: Recipe, left: Any, right: Any, target: Any) -> None:
        writing = recipe.writing
        check_promise(writing.loaded.scheme, writing.loaded.schedule, writing.inputs)
        if not left.dtype == right.dtype == target.dtype or not left.dtype.isnative:
            message = f"inputs={writing.inputs!r} runs in the caller's arrays, so a, b and out must have one dtype, in native byte order"
            raise fail("E526", message, "convert them first, or use inputs='preserve'")
        if writing.inputs == "consume" and not left.shape[:-2] == right.shape[:-2] == target.shape[:-2]:
            raise fail("E527", "inputs='consume' cannot use one matrix for several of a batch", "use inputs='restore'")
        check_writable_inputs(executor, left, right, target, writing.inputs)
        if self.tolerance is not None:
            self.check_drift(executor, recipe, left, right, target)

    def check_drift(self, executor: Executor, recipe: Recipe, left: Any, right: Any, target: Any) -> None:
        """Refuse a multiply that may move the operands farther than the tolerance (E533)."""
        if not target.size:
            return
        products = prod(target.shape[:-2])
        calls = products // max(1, prod(left.shape[:-2])), products // max(1, prod(right.shape[:-2]))
        for placement, operands in operands_of(placement_for(recipe, left, right, target), left, right):
            check_tolerance(executor, placement, operands, calls, float(self.tolerance or 0))


def _fresh(xp: Any, shape: tuple[int, ...], dtype: Any, by_columns: bool) -> Any:
    """A matrix, or a batch of them, by rows or by columns."""
    return xp.empty((*shape[:-2], shape[-1], shape[-2]), dtype).swapaxes(-1, -2) if by_columns else xp.empty(shape, dtype)


def _as_matrices(a: Any, b: Any, out: Any) -> tuple[Any, Any, Any]:
    """Operands and result as plain (..., rows, columns) arrays: a vector is a row on the left, a column on the right."""
    left, right, target = (np.asarray(x) if isinstance(x, np.ndarray) else x for x in (a, b, out))
    if a.ndim == 1:
        left, target = left[None, :], target[..., None, :] if b.ndim > 1 else target[..., None]
    if b.ndim == 1:
        right, target = right[:, None], target[..., None]
    return left, right, target


def _matrix(array: Any, index: tuple[int, ...]) -> Any:
    """The matrix of an operand for an index of the batch: extents that are missing or 1 repeat."""
    own = index[len(index) - (array.ndim - 2) :]
    return array[tuple(0 if extent == 1 else i for i, extent in zip(own, array.shape, strict=False))]


def make_executor(kind: Kind) -> Executor:
    """The backend for a kind of array."""
    if kind.on_gpu:
        return _cuda_executor()
    from bilinear.backends.numpy_executor import NumpyExecutor

    return NumpyExecutor()


@cache
def _cuda_executor() -> CudaExecutor:
    from bilinear.backends.cuda_executor import CudaExecutor

    return CudaExecutor()


def _touches(out: Any, a: Any, b: Any) -> bool:
    return shares_memory(out, a) or shares_memory(out, b)


def _accumulate(out: Any, product: Any, beta: Any) -> None:
    """out = product + beta * out, in the type of `out`; with beta = 0 `out` is not read."""
    if beta == 0:
        out[...] = product
        return
    added = product.astype(out.dtype, copy=False)  # before the first write, for memory may be short
    out *= beta
    out += added
