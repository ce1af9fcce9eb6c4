"""`matmul(..., gpus=)`: matrices in memory of the host or of one GPU, multiplied block after block on GPUs that need not hold them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Literal

import numpy as np

from bilinear.backends.factor import factor
from bilinear.backends.stream_engine import run_streamed
from bilinear.errors import fail
from bilinear.ir.element import COMPLEX
from bilinear.ir.matrix import Array, Factor
from bilinear.methods.registry import METHODS
from bilinear.planner.problem import Problem, require_reproducible
from bilinear.planner.streamed import BALANCES, BUS, QUEUE, StreamPlan, stream_plan
from bilinear.runtime import devices_here
from bilinear.runtime.accept import accepted, shares_memory
from bilinear.runtime.budgets import budget_and_buffer
from bilinear.runtime.call import matmul_arrays
from bilinear.runtime.options import Named, Options, check_options, runs_in_place
from bilinear.runtime.same_bits import require_kernels, require_same_bits

log = logging.getLogger("bilinear")

LINK = 150e9  # Bytes a second from and to matrices on another GPU, each way, over NVLink: an estimate.
SAME_BITS, COPIED = 4, 2
"""Residues take up to so many times the memory of their blocks; complex blocks, whose parts are copied, so many times as much."""
TYPES = "float32", "float64", "complex64", "complex128"


def plan_streamed(
    extents: tuple[int, int, int],
    dtype: str = "float32",
    *,
    gpus: int = 1,
    memory: int,
    device: str | None = None,
    accuracy: float | str | None = None,
    accumulate: bool = False,
    algorithm: Named = "auto",
    levels: int | Literal["auto"] = "auto",
    reproducible: str | None = None,
    bus: float = BUS,
) -> StreamPlan:
    """The blocks in which `matmul(..., gpus=)` multiplies; needs no GPU if `device` names a description.

    Parameters
    ----------
    extents : tuple of int
        (m, k, n): A is m x k, B is k x n.
    dtype : str
        One of float32, float64, complex64, complex128.
    gpus, memory : int
        The number of GPUs, and bytes on each.
    device : str, optional
        The name of a description; by default that of the current GPU.
    accuracy : float or str, optional
        As in `matmul`.
    accumulate : bool
        Whether beta is not 0.
    algorithm, levels
        As in `matmul`. The workspace of what is named is reserved; a schedule that runs in place needs none, and consumes its blocks.
    reproducible : str, optional
        As in `matmul`: k is not cut.
    bus : float
        Bytes a second between host and GPU, each way. The default is an estimate.

    Returns
    -------
    StreamPlan
        Its text shows blocks, traffic and time; `json()` has them all.

    Raises
    ------
    BilinearError
        E543, E554, E774, E820, and what `load` raises.

    Examples
    --------
    >>> from bilinear.runtime.streamed import plan_streamed
    >>> plan = plan_streamed((65536, 65536, 65536), "float32", memory=16 * 2**30, device="h200")
    >>> plan.slot_bytes <= plan.memory, plan.total.stored == 65536**2
    (True, True)
    """
    require_reproducible(reproducible)
    m, k, n = extents
    problem = Problem(m, k, n, dtype, accuracy=accuracy, accumulate=accumulate)
    whole = reproducible is not None
    consumes = runs_in_place(algorithm, levels, dtype)
    reserve = int(not consumes and (algorithm != "auto" or levels != "auto"))
    if whole:
        reserve = SAME_BITS * (COPIED if dtype in COMPLEX else 1)
    known = devices_here.device_of(device)
    return stream_plan(METHODS, problem, min(gpus, m * n), memory, known, reserve=reserve, whole=whole, consumes=consumes, bus=bus)


def matmul_streamed(a: Array, b: Array, out: Array, asked: Options, gpus: object, memory: object, balance: str) -> Array:
    """alpha * a @ b + beta * out in host memory, on the GPUs that are asked for."""
    if asked.plan is not None or asked.tolerance is not None or asked.inputs != "preserve" or asked.workspace is not None:
        what = "gpus= plans each block by itself, and reads a and b alone"
        raise fail("E773", what, "leave out plan=, tolerance=, inputs= and workspace=; memory= limits what each GPU holds")
    if balance not in BALANCES:
        raise fail("E773", f"balance={balance!r} is no way to share blocks", f"choose one of {', '.join(BALANCES)}")
    with accepted({"a": a, "b": b}, {"out": out}) as (kind, *_):
        pass
    present = [x for x in (a, b, out) if x is not None]  # others than arrays are refused by `_check`
    if kind.on_gpu and all(isinstance(x, kind.module.ndarray) for x in present) and len({x.device.id for x in present}) > 1:
        raise fail("E772", "the matrices lie on several GPUs", "move them to one, or give a rank of MPI each (docs/distributed.md)")
    _check(a, b, out)
    check_options(asked, out)
    module = kind.module
    with a.device if kind.on_gpu else nullcontext():
        result = module.empty((a.shape[0], b.shape[1]), a.dtype) if out is None else out
    alpha, beta = factor("alpha", asked.alpha, a.dtype), factor("beta", asked.beta, a.dtype)
    if asked.reproducible is not None:
        require_same_bits(a.dtype, kind.on_gpu)
    if alpha == 0 or 0 in (*a.shape, b.shape[1]):
        with a.device if kind.on_gpu else nullcontext():
            if asked.reproducible is not None:  # its rule has signed zeros and NaN, too
                return matmul_arrays(a, b, result, asked)
            result[...] = 0 if beta == 0 else result * beta
        return result
    if asked.reproducible is not None:
        require_kernels(a.dtype, (alpha, beta))
    if not isinstance(memory, str | int | np.integer | None):
        raise fail("E773", f"memory={memory!r} is not a size", "give bytes, or a size such as '16GiB'")
    limit, _ = budget_and_buffer(memory)
    numbers = _numbers(gpus)[: result.size]
    from bilinear.backends.stream_cupy import CupyDevice, free_memory, reachable

    matrices = (a, b, result)
    if kind.on_gpu:
        matrices = reachable(a, b, result, beta != 0)
    budget = min(free_memory(number) for number in numbers)
    chosen = plan_streamed(
        (*a.shape, b.shape[1]),
        a.dtype.name,
        gpus=len(numbers),
        memory=budget if limit is None else min(budget, limit),
        accuracy=asked.accuracy,
        accumulate=bool(beta != 0),
        algorithm=asked.algorithm or "auto",
        levels=asked.levels,
        reproducible=asked.reproducible,
        bus=LINK if kind.on_gpu else BUS,
    )
    log.debug("matmul with gpus=%s: %s", numbers, chosen)
    halved = asked.reproducible is not None and a.dtype.kind == "c"
    multiply = partial(_block, asked._replace(workspace=chosen.workspace // (COPIED if halved else 1)))
    devices = [CupyDevice(number, a.dtype, multiply) for number in numbers]
    run_streamed(chosen, devices, matrices, (alpha, beta), by_queue=balance == QUEUE)
    if matrices[2] is not result:
        with a.device:
            result[...] = matrices[2]
    return result


def _block(asked: Options, a: Array, b: Array, c: Array, factors: tuple[Factor, Factor], inputs: str) -> None:
    """One product of blocks on the current GPU. `consume` allows what `preserve` may choose, too."""
    matmul_arrays(a, b, c, asked._replace(alpha=factors[0], beta=factors[1], inputs=inputs))


def _check(a: Array, b: Array, out: Array) -> None:
    """Refuse (E772) what is not two matrices of NumPy or of CuPy, of one type, and a result of another type, shape or place."""
    given = [x for x in (a, b, out) if x is not None]
    cupy = sys.modules.get("cupy")
    if {type(x) for x in given} not in ({np.ndarray}, {getattr(cupy, "ndarray", np.ndarray)}):
        kinds = ", ".join(type(x).__name__ for x in given)
        raise fail("E772", f"gpus= streams matrices of NumPy, or of CuPy on one GPU, these are {kinds}", "give arrays of one of both")
    if any(x.ndim != 2 or x.dtype != a.dtype or not x.dtype.isnative for x in given) or a.dtype.name not in TYPES:
        kinds = ", ".join(f"{x.ndim}-dimensional {x.dtype}" for x in given)
        raise fail("E772", f"gpus= multiplies two matrices of one type, these are {kinds}", f"convert them to one of {', '.join(TYPES)}")
    if a.shape[1] != b.shape[0] or (out is not None and out.shape != (a.shape[0], b.shape[1])):
        raise fail("E772", f"the shapes {', '.join(str(x.shape) for x in given)} do not fit", "give m x k, k x n, and for out m x n")
    if out is not None and any(shares_memory(out, x) for x in (a, b)):
        raise fail("E772", "out may share memory with a or b", "give another out")


def _numbers(gpus: object) -> list[int]:
    """The numbers of the GPUs that are asked for; refuses (E773) those that are not here."""
    try:
        from bilinear.backends.stream_cupy import gpu_count

        here = gpu_count()
    except Exception as error:  # of many types, for a missing CuPy, driver or GPU
        raise fail("E773", f"gpus= needs CuPy and a GPU: {error}", "install CuPy on a machine with a GPU, or leave gpus= out") from None
    return numbers_of(gpus, here)


def numbers_of(gpus: object, here: int) -> list[int]:
    """`gpus=` as numbers of GPUs of which there are `here`; refuses (E773) what is not here."""
    found: Sequence[object] = ()
    if gpus == "all":
        found = range(here)
    elif isinstance(gpus, int | np.integer) and not isinstance(gpus, bool):
        found = range(int(gpus))
    elif isinstance(gpus, list | tuple):
        found = gpus
    numbers = [int(x) for x in found if isinstance(x, int | np.integer) and not isinstance(x, bool) and 0 <= x < here]
    if not numbers or len(numbers) != len(found) or len(set(numbers)) != len(numbers):
        raise fail("E773", f"gpus={gpus!r} names no GPUs of the {here} here", "give their number, a list of different numbers, or 'all'")
    return numbers
