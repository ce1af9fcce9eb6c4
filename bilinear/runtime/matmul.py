"""`matmul`: the drop-in multiply."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bilinear.errors import fail
from bilinear.frontend import Loaded, load
from bilinear.planner.plan import choose_levels, make_plan
from bilinear.planner.prepare import INPUTS, Prepared, prepare
from bilinear.runtime.arrays import Kind, adopt, kind_of
from bilinear.runtime.executor import Executor, execute
from bilinear.runtime.safety import check_writable_inputs, is_writable, overlaps_itself, shares_memory

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
    stream: Any = None,
) -> Any:
    """alpha * a @ b + beta * out, with the shapes, dtypes and batches of `numpy.matmul`.

    `a` is (..., m, k), `b` is (..., k, n), of NumPy, CuPy or any library that speaks DLPack; the result is (..., m, n) of the same kind
    on the same device, in `out` where it is given. `algorithm` is the name or path of a scheme or schedule, or `auto` (the library's
    multiply). `levels` is the number of recursion levels; 0 is the library's multiply. `inputs` promises what happens to `a` and `b`:
    `preserve` never writes them, `restore` may write them and brings them back to rounding, `consume` leaves them undefined; the last
    two need an in-place schedule. With alpha = 0 the operands are not read, with beta = 0 `out` is not read. `stream` is a CuPy stream
    (the current one by default).

    Raises `ValueError` and `TypeError` where `numpy.matmul` does, `BilinearError` for what cannot run as asked, and `StageError` where a
    stage failed.
    """
    _check_options(inputs, levels, beta, out)
    kind = kind_of(a, b, out)
    left, right = adopt(a, kind), adopt(b, kind)
    given = None if out is None else adopt(out, kind)
    request = _Request(kind, alpha, beta, algorithm, levels, inputs)
    with stream if stream is not None and kind.on_gpu else nullcontext():
        result = request.multiply(left, right, given)
    return out if out is not None else kind.give_back(result)


def _check_options(inputs: str, levels: int | str, beta: Any, out: Any) -> None:
    if inputs not in INPUTS:
        raise fail("E513", f"inputs={inputs!r} is unknown", f"choose one of {', '.join(INPUTS)}")
    if levels != "auto" and (not isinstance(levels, int | np.integer) or isinstance(levels, bool) or levels < 0):
        raise fail("E514", f"levels={levels!r} is not a number of levels", "give an integer of at least 0, or 'auto'")
    if out is None and beta != 0:
        raise fail("E515", "beta scales out, and there is no out", "give out=, or leave beta at 0")


@dataclass(frozen=True)
class _Request:
    """One call: everything but the arrays."""

    kind: Kind
    alpha: Any
    beta: Any
    algorithm: str | Loaded
    levels: int | str
    inputs: str

    def multiply(self, a: Any, b: Any, out: Any) -> Any:
        xp = self.kind.module
        if a.ndim == 0 or b.ndim == 0:
            raise ValueError("matmul: a scalar operand has no rows and columns (use * to scale)")
        left, right = (a if a.ndim > 1 else a[None, :]), (b if b.ndim > 1 else b[:, None])
        if left.shape[-1] != right.shape[-2]:
            raise ValueError(f"matmul: the inner dimensions of {a.shape} and {b.shape} differ")
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        shape = batch + left.shape[-2:-1] * (a.ndim > 1) + right.shape[-1:] * (b.ndim > 1)
        dtype = xp.result_type(a, b)
        if out is None:
            out = xp.empty(shape, dtype)
        _check_out(out, shape, dtype)
        reason = self.why_library(dtype)
        if reason is not None:
            log.debug("matmul %s by %s of %s: the library's multiply (%s)", a.shape, b.shape, dtype, reason)
            self.by_library(a, b, out)
            return out
        target = out if a.ndim > 1 else out[..., None, :]
        target = target if b.ndim > 1 else target[..., None]
        self.by_schedule(left, right, target, batch, dtype)
        return out

    def why_library(self, dtype: Any) -> str | None:
        """Why the library's multiply runs instead of a schedule, or None."""
        if self.algorithm == "auto":
            return "algorithm is auto"
        if self.levels == 0:
            return "levels is 0"
        if self.alpha == 0:
            return "alpha is 0, so nothing is multiplied"
        if self.kind.on_gpu and dtype not in (np.float32, np.float64):
            return f"no kernels for {dtype}"
        if dtype.kind not in "fiuO" or dtype == np.float16:
            return f"no schedule runs on {dtype}"
        return None

    def by_library(self, a: Any, b: Any, out: Any) -> None:
        xp = self.kind.module
        if self.alpha == 0:
            out[...] = 0 if self.beta == 0 else out * self.beta
        elif self.alpha == 1 and self.beta == 0 and (isinstance(out, np.ndarray) or not _touches(out, a, b)):
            xp.matmul(a, b, out=out, casting="same_kind") if isinstance(out, np.ndarray) else xp.matmul(a, b, out=out)
        else:
            product = self.alpha * xp.matmul(a, b)
            out[...] = product if self.beta == 0 else product + self.beta * out

    def by_schedule(self, left: Any, right: Any, target: Any, batch: tuple[int, ...], dtype: Any) -> None:
        """Run the schedule on every matrix of the batch, through a copy of what has another dtype or overlaps."""
        xp = self.kind.module
        loaded = self.algorithm if isinstance(self.algorithm, Loaded) else _named(str(self.algorithm))
        if self.inputs != "preserve":
            self.check_in_place(loaded, left, right, target, batch, dtype)
        _check_ring(loaded, dtype, self.alpha, self.beta)
        left, right = left.astype(dtype, copy=False), right.astype(dtype, copy=False)
        aside = target.dtype != dtype or _touches(target, left, right)
        result = target.astype(dtype) if aside and self.beta != 0 else xp.empty(target.shape, dtype) if aside else target
        lefts = xp.broadcast_to(left, batch + left.shape[-2:]) if left.shape[:-2] != batch else left
        rights = xp.broadcast_to(right, batch + right.shape[-2:]) if right.shape[:-2] != batch else right
        executor = make_executor(self.kind)
        for index in np.ndindex(*batch):
            self.run(executor, loaded, lefts[index], rights[index], result[index])
        if aside:
            target[...] = result

    def run(self, executor: Executor, loaded: Loaded, a: Any, b: Any, c: Any) -> None:
        if self.inputs != "preserve":
            check_writable_inputs(executor, a, b, c, self.inputs)
        if c.size == 0:
            return
        prepared = self.prepared(loaded, a.shape[0], a.shape[1], b.shape[1])
        layout = frozenset(name for name, x in (("A", a), ("B", b), ("C", c)) if x.strides[0] == x.itemsize != x.strides[1])
        plan = make_plan(prepared.schedule, a.shape[0], a.shape[1], b.shape[1], c.dtype.itemsize, layout)
        log.debug("%s: workspace of %d bytes", prepared.schedule.name, plan.workspace_elements * c.dtype.itemsize)
        execute(executor, plan, a, b, c, self.alpha, self.beta)

    def prepared(self, loaded: Loaded, m: int, k: int, n: int) -> Prepared:
        levels = max(1, choose_levels(loaded.scheme, m, k, n)) if self.levels == "auto" else int(self.levels)
        return prepare(loaded.scheme, loaded.schedule, levels, self.inputs)

    def check_in_place(self, loaded: Loaded, left: Any, right: Any, target: Any, batch: tuple[int, ...], dtype: Any) -> None:
        if loaded.schedule is None or not loaded.schedule.in_place:
            message = f"inputs={self.inputs!r} needs an in-place schedule, and {loaded.scheme.name} is a scheme without one"
            raise fail("E525", message, "use algorithm='msmes', or inputs='preserve'")
        if {left.dtype, right.dtype, target.dtype} != {dtype}:
            message = f"inputs={self.inputs!r} runs in the caller's arrays, so a, b and out must have one dtype"
            raise fail("E526", message, "convert them first, or use inputs='preserve'")
        if self.inputs == "consume" and not left.shape[:-2] == right.shape[:-2] == batch:
            raise fail("E527", "inputs='consume' cannot use one matrix for several of a batch", "use inputs='restore'")


@lru_cache(maxsize=64)
def _shipped(name: str) -> Loaded:
    return load(name)


def _named(name: str) -> Loaded:
    """The algorithm of this name: a shipped one is read once a process, a file at every call, for it may have changed."""
    return _shipped(name) if name.isidentifier() and not Path(name).exists() else load(name)


def make_executor(kind: Kind) -> Executor:
    """The backend for a kind of array."""
    if kind.on_gpu:
        from bilinear.runtime.cuda_executor import CudaExecutor

        return CudaExecutor()
    from bilinear.runtime.numpy_executor import NumpyExecutor

    return NumpyExecutor()


def _touches(out: Any, a: Any, b: Any) -> bool:
    return shares_memory(out, a) or shares_memory(out, b)


def _check_out(out: Any, shape: tuple[int, ...], dtype: Any) -> None:
    if out.shape != shape:
        raise ValueError(f"matmul: out has shape {out.shape}, the result {shape}")
    if not np.can_cast(dtype, out.dtype, "same_kind"):
        raise TypeError(f"matmul: out of {out.dtype} cannot hold {dtype}")
    if not is_writable(out):
        raise ValueError("matmul: out is read-only")
    if overlaps_itself(out):
        raise ValueError("matmul: elements of out share memory")


def _check_ring(loaded: Loaded, dtype: Any, alpha: Any, beta: Any) -> None:
    """Integers cannot hold fractions: refuse them instead of rounding (E528)."""
    if dtype.kind not in "iu":
        return
    scheme = loaded.scheme
    if any(isinstance(c, Fraction) for linear in (scheme.u, scheme.v, scheme.w) for f in linear.steps + linear.outputs for _, c in f):
        raise fail("E528", f"{scheme.name} has fractional coefficients, which {dtype} cannot hold", "convert to floats or to Fractions")
    for name, value in (("alpha", alpha), ("beta", beta)):
        if not isinstance(value, int | np.integer):
            raise fail("E528", f"{name}={value!r} is no integer, and the result is {dtype}", "convert the operands to floats")
