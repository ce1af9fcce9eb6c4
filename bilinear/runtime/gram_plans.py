"""Which blocks `gram` computes: by the description of a device, or by a size; and `plan_gram`, which shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bilinear.errors import fail
from bilinear.frontend import Loaded
from bilinear.ir.element import ELEMENTS, IN_ARRAYS
from bilinear.ir.matrix import Array
from bilinear.ir.placement import MOST_EXTENT
from bilinear.methods.digits.plans import triangle_candidate
from bilinear.planner.chains import ProductWay
from bilinear.planner.choose import why_inaccurate, with_errors
from bilinear.planner.cpu import Cpu, cpu_plan, library_seconds
from bilinear.planner.device import Device
from bilinear.planner.gram import ONE_TRIANGLE, TRIANGLE_TILE, BlockTimes, GramPlan, plan_by_size, plan_by_times
from bilinear.planner.plan import LIBRARY
from bilinear.planner.problem import Problem, require_accuracy
from bilinear.planner.ways import kept_by_names
from bilinear.runtime.auto import dtype_name, plan
from bilinear.runtime.budgets import budget_and_buffer
from bilinear.runtime.decide import check_library_accuracy
from bilinear.runtime.devices_here import current_cpu, description_of, device_of, uses_library
from bilinear.runtime.options import LEAST_EXTENT, Options

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

TILE = {False: 256, True: 1024}  # Rows of a block computed aside for one triangle, on processors and GPUs.
TOGETHER = 1024  # With a named algorithm rows are halved once at least, down to so many.


def plan_for_call(options: Options, on_gpu: bool, one_triangle: bool, x: Array) -> GramPlan:
    """The plan for a matrix of this shape and type, of which perhaps only one triangle may be written."""
    (n, k), dtype, most_together = x.shape[-2:], str(x.dtype), TILE[on_gpu]
    is_auto = options.algorithm == "auto" and options.levels == "auto" and not uses_library()
    if is_auto and options.reproducible is None:
        found = None if one_triangle else described_plan(options, on_gpu, x)
        if found is not None:
            return found
    named = options.algorithm.name if isinstance(options.algorithm, Loaded) else str(options.algorithm)
    if options.reproducible is not None or (named != "auto" and options.levels != 0 and not uses_library()):
        together = min(TOGETHER, -(-n // 2))
    else:
        named = named if is_auto else LIBRARY
        together = n if not on_gpu and dtype in IN_ARRAYS else most_together
    return plan_by_size(n, k, dtype, min(together, most_together) if one_triangle else together, named)


def described_plan(options: Options, on_gpu: bool, x: Array) -> GramPlan | None:
    """The plan by the description of the device on which a matrix lies; None without one, and for what it does not describe."""
    (n, k), dtype = x.shape[-2:], str(x.dtype)
    if dtype not in IN_ARRAYS or x.ndim != 2 or not 0 < min(n, k) <= max(n, k) <= MOST_EXTENT:
        return None
    question = n, k, dtype, options.most_bytes, options.accuracy
    if on_gpu:
        device = device_of(None)
        return None if device is None else _on_gpu(*question, device, False)
    cpu = current_cpu() if min(n, k) >= LEAST_EXTENT else None
    return None if cpu is None or cpu.rates(dtype) is None else _on_cpu(*question, cpu, options.buffer is not None)


def plan_gram(
    n: int,
    k: int,
    dtype: DTypeLike = "float64",
    *,
    device: str | Device | Cpu | None = None,
    workspace: int | str | None = None,
    accuracy: float | str | None = None,
) -> GramPlan:
    """The plan of `gram` for an n x k matrix: its blocks, what multiplies each, and the time, compared with a multiply of two matrices.

    Parameters
    ----------
    n, k : int
        The extents of A; the result is n x n.
    dtype : dtype
        float64 or float32.
    device : str or Device or Cpu, optional
        As in `plan`, for each block.
    workspace : int or str, optional
        As in `plan`, for each block.
    accuracy : float or "classical" or "twice", optional
        As in `plan`, for each block.

    Returns
    -------
    GramPlan
        Its text shows the blocks.

    Raises
    ------
    BilinearError
        E519, E534, E541, E543, E554.

    Examples
    --------
    >>> import bilinear
    >>> plan = bilinear.plan_gram(8192, 8192, "float64", device="h200")
    >>> plan
    <GramPlan of A*A^T, A 8192 x 8192, float64, NVIDIA H200: 16 blocks on the diagonal>
    >>> plan.gains
    True
    """
    budget, _ = budget_and_buffer(workspace)
    require_accuracy(accuracy)
    n, k = (int(e) if isinstance(e, np.integer) else e for e in (n, k))
    name = dtype_name(dtype)
    if name not in IN_ARRAYS:
        what = f"no plans of A*A^T for dtype={name!r}"
        raise fail("E543", what, f"choose one of {', '.join(IN_ARRAYS)}: gram cuts others by their size alone")
    Problem(n, k, n, name, "preserve", budget, accuracy)  # refuses what is not a problem
    known = description_of(device)
    if isinstance(known, Cpu):
        check_library_accuracy(accuracy, k, np.dtype(name))
        return _on_cpu(n, k, name, budget, accuracy, known, False)
    if known is None:
        raise fail("E541", "there is no GPU here, or no description of it is known", "give device='h200', or a file of `bilinear tune`")
    return _on_gpu(n, k, name, budget, accuracy, known, device is not None)


@kept_by_names(256)
def _on_gpu(n: int, k: int, dtype: str, budget: int | None, accuracy: float | str | None, device: Device, named: bool) -> GramPlan:
    """The plan on a GPU. Timed plans come first, unless the device is `named`."""
    given = device if named else None

    def product(rows: int, columns: int) -> ProductWay:
        found = plan(rows, k, columns, dtype, device=given, workspace=budget, accuracy=accuracy).chosen
        return ProductWay((found.ms or 0.0) * 1e-3, found.workspace or 0, found.name)

    def diagonal(rows: int) -> ProductWay:
        usual = product(rows, rows)
        own = _by_triangle(Problem(rows, k, rows, dtype, "preserve", budget, accuracy), device)
        return usual if own is None or own.cost >= usual.cost else own

    mirroring = n * n * ELEMENTS[dtype].bytes / (device.bandwidth * 1e9)  # half of them read, as many written
    return plan_by_times(n, k, dtype, device.title, budget, BlockTimes(product, diagonal, mirroring, product(n, n).cost))


def _by_triangle(problem: Problem, device: Device) -> ProductWay | None:
    """The product that computes one triangle by pairs of digits, if an accuracy is asked for that it keeps, within the limit."""
    found = None if problem.accuracy is None else triangle_candidate(problem, device, TRIANGLE_TILE)
    if found is None or found.ms is None or why_inaccurate(with_errors(found, problem, explain=False), problem.accuracy):
        return None
    needed = found.workspace or 0
    return None if problem.workspace is not None and needed > problem.workspace else ProductWay(found.ms * 1e-3, needed, ONE_TRIANGLE)


@kept_by_names(256)
def _on_cpu(n: int, k: int, dtype: str, budget: int | None, accuracy: float | str | None, cpu: Cpu, is_warm: bool) -> GramPlan:
    """The plan on processors, where the library computes one triangle of A*A^T: half of its time for two matrices at best."""
    rates = cpu.rates(dtype)
    if rates is None:
        cpu_plan(Problem(n, k, n, dtype), cpu)
        raise AssertionError("a type without rates was planned")

    def product(rows: int, columns: int) -> ProductWay:
        found = cpu_plan(Problem(rows, k, columns, dtype, "preserve", budget, accuracy), cpu, is_warm).chosen
        return ProductWay((found.ms or 0.0) * 1e-3, found.workspace or 0, found.name)

    def diagonal(rows: int) -> ProductWay:
        return ProductWay(library_seconds((rows, k, rows), rates) / 2, 0, LIBRARY)

    return plan_by_times(n, k, dtype, cpu.name, budget, BlockTimes(product, diagonal, 0.0, diagonal(n).cost, cpu.least_gain))
