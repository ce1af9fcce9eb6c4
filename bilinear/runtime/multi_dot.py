"""`multi_dot`: multiply a chain of matrices in the order that is planned to be fastest."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import lru_cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np

from bilinear.errors import fail
from bilinear.ir.element import ELEMENTS
from bilinear.ir.matrix import Array, ArrayT, Dtype, layout_of
from bilinear.ir.placement import MOST_EXTENT
from bilinear.planner import chains
from bilinear.planner.chains import ChainPlan, ProductWay, chain_extents
from bilinear.planner.cpu import Cpu
from bilinear.planner.device import Device
from bilinear.planner.problem import require_inputs, require_reproducible
from bilinear.runtime import devices_here
from bilinear.runtime.accept import accepted, check_apart, check_out
from bilinear.runtime.auto import dtype_name, plan
from bilinear.runtime.budgets import budget_and_buffer
from bilinear.runtime.devices_here import uses_library
from bilinear.runtime.matmul import matmul
from bilinear.runtime.multiply import looked_at
from bilinear.runtime.options import Named, ProductOptions, check_levels

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

log = logging.getLogger("bilinear")
INDEX_BYTES = 4  # What a sparse matrix has beside each stored element.


def multi_dot(
    arrays: Sequence[ArrayT],
    *,
    out: ArrayT | None = None,
    device: str | Device | Cpu | None = None,
    algorithm: Named = "auto",
    levels: int | Literal["auto"] = "auto",
    inputs: Literal["preserve", "restore", "consume"] = "preserve",
    workspace: int | str | None = None,
    reproducible: Literal["bitwise"] | None = None,
    stream: AbstractContextManager[object] | None = None,
) -> ArrayT:
    """The product of all arrays, as `numpy.linalg.multi_dot` gives it, in the order of `plan_chain`.

    All products are computed in the common type of all arrays. Intermediates are allocated once, and freed after the product that reads
    them. Those of a sparse matrix are its library's, and dense.

    Parameters
    ----------
    arrays : sequence of arrays
        Matrices that fit each other, of one kind: NumPy's, CuPy's, PyTorch's, or of any library that speaks DLPack. The first may be a
        vector, which is a row, and the last one a column; the result lacks that dimension then. Beside NumPy's arrays some, but not all,
        may be SciPy's sparse matrices, beside CuPy's those of `cupyx.scipy.sparse`; then `inputs` is "preserve".
    out : array, optional
        Where the last product is written; it has the shape of the result.
    device : str or Device or Cpu, optional
        The description, as in `plan`, whose times decide the order. The default is that of the GPU on which the arrays are. NumPy's
        arrays without a `device`, types that the description lacks, and products by a named algorithm, which has no such times (E557),
        are ordered by the number of multiplications.
    algorithm : str or Algorithm or sequence of them
        As in `matmul`, for each product.
    levels : int or "auto"
        As in `matmul`, for each product.
    inputs : {"preserve", "restore", "consume"}
        As in `matmul`, for each product.
    workspace : int or str, optional
        The most bytes of intermediates and workspaces together, or "unlimited" (the default).
    reproducible : "bitwise", optional
        As in `matmul`, for each product. The order is the one with the fewest multiplications, whatever the device and the workspace, so
        the result depends on the matrices and their shapes alone.
    stream : stream, optional
        As in `matmul`.

    Returns
    -------
    array
        `out` if it is given.

    Raises
    ------
    BilinearError
        E550 for arrays that are no chain, E535 if the intermediates exceed `workspace`, and what `matmul` raises.

    Examples
    --------
    >>> import numpy as np
    >>> import bilinear
    >>> a, b, c = np.ones((2, 30)), np.ones((30, 3)), np.ones((3, 4))
    >>> bilinear.multi_dot([a, b, c])
    array([[90., 90., 90., 90.],
           [90., 90., 90., 90.]])
    """
    given = chains.members(arrays)
    require_inputs(inputs)
    check_levels(levels, algorithm)
    if device is not None and not algorithm == levels == "auto":
        raise fail("E557", "device= orders products by the times of `auto`, and these are by a named algorithm", "leave device= out")
    require_reproducible(reproducible)
    if device is not None and reproducible is not None:
        raise fail("E820", "device= orders products by their times, and the order decides the bits", "leave device= out")
    budget = _budget(workspace)
    if not given:
        chain_extents(())
    sparse: dict[int, Array] = {at: x for at, x in enumerate(given) if is_sparse(x)}
    if sparse and len(sparse) == len(given):
        raise fail("E550", "all matrices of the chain are sparse", "multiply them by their library")
    if sparse and (inputs != "preserve" or reproducible is not None):
        raise fail("E557", "the library of sparse matrices keeps no such promise", "leave inputs= and reproducible= out")
    named = {f"matrix {at} of the chain": x for at, x in enumerate(given, 1) if at - 1 not in sparse}
    with accepted(named, {"out": out}, stream=stream, own=True) as (kind, dense, (view,), _):
        rest = iter(dense)
        matrices = [sparse[at] if at in sparse else next(rest) for at in range(len(given))]
        if sparse and any(("cupy" in type(x).__module__) != kind.on_gpu for x in sparse.values()):
            what = "sparse and dense matrices of the chain lie in different memory"
            raise fail("E550", what, "give SciPy's with NumPy's, CuPy's with CuPy's")
        extents, dtype = chain_extents([x.shape for x in matrices]), np.result_type(*(x.dtype for x in matrices))
        inside = tuple(None if matrices[at].ndim == 1 else slice(None) for at in (0, -1))
        shape = (*matrices[0].shape[:-1], *matrices[-1].shape[1:])
        if out is not None and view.shape != shape:
            raise fail("E550", f"out has shape {view.shape}, the product of the chain {shape}", "give an out of that shape, or none")
        if out is not None:
            check_out(layout_of(view), (), shape, dtype)
        target = None if out is None else view[inside]
        if inputs == "consume":
            check_apart(matrices)
        options: ProductOptions = {"algorithm": algorithm, "levels": levels, "inputs": inputs, "reproducible": reproducible}
        has_times = algorithm == levels == "auto" and reproducible is None and (kind.on_gpu or device is not None)
        times = _times(device, str(dtype)) if has_times else (None, None)
        stored = tuple((at, int(x.nnz)) for at, x in sparse.items())
        found = _planned(extents, str(dtype), *times, inputs, budget if reproducible is None else None, stored)
        found = replace(found, workspace=budget)
        if budget is not None and found.chosen.peak > budget:
            what = f"the intermediates of {found.chosen.text} need {found.chosen.peak} bytes of workspace, {budget} are available"
            raise fail("E535", what, "allow that many bytes, or leave reproducible= out: another order would have other bits")
        for at, within in ((0, (inside[0], ...)), (-1, (..., inside[1]))):
            matrices[at] = matrices[at] if is_sparse(matrices[at]) else matrices[at][within]
        if inputs != "preserve":  # a later product must not be refused after the first one has written its operands
            _run(found, matrices, dtype, target, partial(looked_at, kind, **options))
        result = _run(found, matrices, dtype, target, partial(matmul, **options))
        return out if out is not None else kind.give_back(result[tuple(0 if at is None else at for at in inside)])


def _run(plan: ChainPlan, matrices: Sequence[Array], dtype: Dtype, target: Array, multiply: Callable[..., Array]) -> Array:
    """Run the products. An intermediate is freed after the product that reads it."""
    parts, steps = {(at, at): matrix for at, matrix in enumerate(matrices)}, plan.chosen.steps
    for step in steps:
        left, right = parts.pop(step.left), parts.pop(step.right)
        if is_sparse(left) or is_sparse(right):
            parts[step.left[0], step.right[1]] = _by_library(left, right, dtype, target if step is steps[-1] else None)
            continue
        if np.result_type(left.dtype, right.dtype) != dtype:
            left = left.astype(dtype)
        allowed = None if plan.workspace is None else plan.workspace - step.held
        parts[step.left[0], step.right[1]] = multiply(left, right, target if step is steps[-1] else None, workspace=allowed)
    return parts[0, len(matrices) - 1]


def is_sparse(x: object) -> bool:
    """Whether this is a sparse matrix of SciPy or of CuPy, in any of their formats."""
    return hasattr(x, "tocsr") and hasattr(x, "nnz")


def _by_library(left: Array, right: Array, dtype: Dtype, target: Array | None) -> Array:
    """The dense product with a sparse factor, which its library multiplies from the left."""
    left, right = (x.tocsr().astype(dtype) if is_sparse(x) else x.astype(dtype, copy=False) for x in (left, right))
    product = (right.T @ left.T).T if not is_sparse(left) else left @ right
    result: Array = product.toarray() if is_sparse(product) else product
    if target is None:
        return result
    target[...] = result
    return target


def _budget(workspace: int | str | None) -> int | None:
    """The most bytes that a chain may take; None if there is no limit. Refuses (E534) an array: intermediates are not put into one."""
    budget, buffer = budget_and_buffer(workspace)
    if buffer is not None:
        raise fail("E534", "the workspace of a chain is an array", "give bytes, or 'unlimited'")
    return budget


def plan_chain(
    shapes: Sequence[Sequence[int]],
    dtype: DTypeLike = "float64",
    *,
    device: str | Device | Cpu | None = None,
    inputs: str = "preserve",
    workspace: int | str | None = None,
    stored: Mapping[int, int] | None = None,
) -> ChainPlan:
    """In which order `multi_dot` multiplies matrices of these shapes, what that takes, and what two usual orders take.

    Parameters
    ----------
    shapes : sequence of shapes
        The first and the last one may be those of vectors.
    dtype : dtype
        The common type of the matrices.
    device : str or Device or Cpu, optional
        As in `plan`. Without a GPU and a `device`, and for types for which the device's description has no rates, the order minimises
        multiplications instead of seconds (`by` is `multiplications`).
    inputs : {"preserve", "restore", "consume"}
        As in `plan`.
    workspace : int or str, optional
        As in `plan`.
    stored : mapping of int to int, optional
        The stored elements of matrices that are sparse, by their place, counted from 0.

    Returns
    -------
    ChainPlan
        Its text shows the orders side by side.

    Raises
    ------
    BilinearError
        E513, E534, E535, E541 to E543, E550.

    Examples
    --------
    >>> import bilinear
    >>> bilinear.plan_chain([(1000, 2000), (2000, 1000), (1000, 1)], device="h200")
    <ChainPlan of 3 matrices, float64, NVIDIA H200: A1 (A2 A3) by seconds>
    """
    require_inputs(inputs)
    name = dtype_name(dtype)
    return _planned(chain_extents(shapes), name, *_times(device, name), inputs, _budget(workspace), tuple((stored or {}).items()))


def _times(device: str | Device | Cpu | None, dtype: str) -> tuple[Device | Cpu | None, tuple[str, int] | None]:
    """The description of a device if it has times of an element type, and the GPU whose timed plans come first."""
    known = devices_here.description_of(device)
    if known is None or uses_library() or dtype not in dict(known.elements):
        return None, None
    return known, devices_here.gpu_here() if device is None else None


@lru_cache(maxsize=256)
def _planned(
    extents: tuple[int, ...],
    dtype: str,
    device: Device | Cpu | None,
    gpu: tuple[str, int] | None,
    inputs: str,
    budget: int | None,
    stored: tuple[tuple[int, int], ...] = (),
) -> ChainPlan:
    """The plan of a chain, once; without a device, or for extents that are not planned, by the number of multiplications.

    A multiplication by a stored element is taken to read an element of the other factor, at the bandwidth of a GPU's memory. Processors
    have no such rate, so chains with sparse matrices are ordered by multiplications there.
    """
    try:
        itemsize = ELEMENTS[dtype].bytes if dtype in ELEMENTS else np.dtype(dtype).itemsize
    except TypeError:
        raise fail("E543", f"no plans for dtype={dtype!r}", f"choose one of {', '.join(ELEMENTS)}, or another type of NumPy") from None
    if device is None or (stored and isinstance(device, Cpu)) or not all(0 < extent <= MOST_EXTENT for extent in extents):
        found = chains.plan_chain(extents, dtype, itemsize, "", None, budget, dict(stored))
    else:
        sizes = {at: m * n * itemsize for at, (m, n) in enumerate(pairwise(extents))}
        sizes |= {at: count * (itemsize + INDEX_BYTES) for at, count in stored}
        free = max(0, int(device.memory * device.memory_share) - sum(sizes.values()) - extents[0] * extents[-1] * itemsize)
        ways = partial(_ways, dtype, None if gpu is not None else device, inputs, budget)
        each = 0.0 if isinstance(device, Cpu) else itemsize / (device.bandwidth * 1e9)
        plan_within = partial(chains.plan_chain, extents, dtype, itemsize, device.name, ways, stored=dict(stored), each=each)
        found = plan_within(None if budget is None else min(budget, free))
        found = found if found.chosen.peak <= free else plan_within(free)
    log.info("multi_dot, %s of %s: %s", "x".join(map(str, extents)), dtype, found)
    return found


def _ways(dtype: str, device: Device | Cpu | None, inputs: str, budget: int | None, m: int, k: int, n: int) -> Iterator[ProductWay]:
    """The planner's choices for a product, as the workspace that is allowed falls by a quarter at least: parts of C fit into any of it."""
    while True:
        chosen = plan(m, k, n, dtype, device=device, inputs=inputs, workspace=budget).chosen
        workspace = chosen.workspace or 0
        yield ProductWay((chosen.ms or 0.0) * 1e-3, workspace, chosen.name)
        if not workspace:
            return
        budget = workspace * 3 // 4
