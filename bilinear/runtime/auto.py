"""Auto: choose a plan for a problem, or for some arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from bilinear.backends.caches import keep
from bilinear.errors import BilinearError, fail
from bilinear.ir.element import COMPLEX, ELEMENTS, HALVES, IN_ARRAYS, MULTIPLIED
from bilinear.ir.placement import COLOURS, MOST_EXTENT
from bilinear.methods.planning import complex_plan, make_plan, pinned_plan, same_bits_plan
from bilinear.methods.registry import METHODS
from bilinear.planner.cpu import Cpu, cpu_plan
from bilinear.planner.device import Device
from bilinear.planner.library import is_thin
from bilinear.planner.model import is_aligned
from bilinear.planner.plan import Plan
from bilinear.planner.problem import Problem, require_contention, require_reproducible
from bilinear.planner.ways import kept_by_names
from bilinear.runtime import devices_here
from bilinear.runtime.budgets import budget_and_buffer
from bilinear.runtime.operands import Layouts

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


MOST_MEASURED = 4096  # The most measured plans that a process holds; the oldest is found in its file.


def plan(
    m: int,
    k: int,
    n: int,
    dtype: DTypeLike = "float64",
    *,
    device: str | Device | Cpu | None = None,
    inputs: str = "preserve",
    workspace: int | str | None = None,
    accuracy: float | str | None = None,
    explain: bool = False,
    levels: Sequence[str] | None = None,
    products: str | None = None,
    accumulate: bool = False,
    reproducible: Literal["bitwise"] | None = None,
    contention: Literal["colours", "atomics"] = "colours",
) -> Plan:
    """The plan for C (m x n) = A (m x k) * B (k x n): what `matmul(..., plan=...)` runs, and why each alternative lost.

    Parameters
    ----------
    m, k, n : int
        The extents of the problem.
    dtype : dtype
        float64, float32, complex128 or complex64 (three real products, docs/how-to/complex.md).
    device : str or Device or Cpu, optional
        The name of a shipped description, a file of `bilinear tune` (also with `--cpu`), what was read from one, or "cpu" for the
        processors here as `bilinear tune --cpu --keep` has described them. The default is the current GPU, for which a plan that
        `bilinear tune --shape` found for this problem comes first.
    inputs : {"preserve", "restore", "consume"}
        What may happen to A and B.
    workspace : int or str or array, optional
        The most bytes of workspace, a size such as "2GiB", "none" or "unlimited" (the default). For processors an array stands for memory
        that is kept between calls.
    accuracy : float or "classical" or "twice", optional
        The largest allowed error bound, in units of max|A| * max|B|, or the most that the probable error by norm may be, in units of the
        classical multiply's. Without one, `residues` that keep "classical" may be chosen; with one, other digits, too (docs/digits.md).
    explain : bool
        Compute errors for every candidate.
    levels : sequence of str, optional
        Algorithms to run instead of choosing, the outermost level first: ("winograd_depth_first", "winograd").
    products : str, optional
        What multiplies below them: "pairs" are two float16 digits of each float32, "pairs_on_load" the same, cut without
        workspace and below no level, "residues15" residues modulo 15 numbers, and "residues" those with the fewest moduli that keep the
        accuracy, "classical" if none is given. "tf32" and "bfloat16" are the library's products of numbers with 11 and 8 bits.
    accumulate : bool
        Plan for a beta other than 0.
    reproducible : "bitwise", optional
        As in `matmul`: every plan has the same bits, and the accuracy alone chooses the moduli (docs/how-to/reproducible.md).
    contention : {"colours", "atomics"}
        As in `matmul`, for levels that are named. Nothing that is chosen adds atomically.

    Returns
    -------
    Plan
        Its text shows the best candidates.

    Raises
    ------
    BilinearError
        E408, E501, E513, E519, E534, E541 to E543, E554, E567, E591, E592, E785 to E787, E820, E821.

    Examples
    --------
    >>> import bilinear
    >>> plan = bilinear.plan(8192, 8192, 8192, "float64", device="h200")
    >>> plan
    <Plan of 8192 x 8192 by 8192 x 8192, float64, NVIDIA H200: residues14>
    >>> bilinear.plan(8192, 8192, 8192, "float64", device="h200", workspace="none").chosen.workspace
    0
    """
    budget, buffer = budget_and_buffer(workspace)
    budget = budget if buffer is None else int(buffer.nbytes)
    accuracy = accuracy.item() if isinstance(accuracy, np.generic) else accuracy
    m, k, n = (int(e) if isinstance(e, np.integer) else e for e in (m, k, n))
    name, known = dtype_name(dtype), None if device == devices_here.CPU else devices_here.description_of(device)
    require_reproducible(reproducible)
    require_contention(contention)
    if contention != COLOURS and (levels is None or products is not None or name not in IN_ARRAYS):
        what = f"contention={contention!r} is a way to run named levels of {' or '.join(IN_ARRAYS)}"
        raise fail("E557", what, 'name some that run in place, such as msmes, with inputs="restore"; or leave it out')
    if reproducible is not None and not (levels is products is None):
        raise fail("E820", "reproducible= chooses what multiplies, and takes no levels and products", "leave them out")
    asked = partial(Problem, m, k, n, name, inputs, budget, accuracy, accumulate=accumulate)
    if device == devices_here.CPU or isinstance(known, Cpu):
        require_numbers_of_processors(name)
        if reproducible is not None:
            raise fail("E820", "on processors nothing is chosen for reproducible=", "call matmul without a plan")
        if levels is not None or products is not None:
            raise fail("E543", "levels and products pin a plan for a GPU", "give algorithm= and levels= to matmul")
        return cpu_plan(asked(), known or devices_here.described_cpu(), buffer is not None, explain)
    problem = asked()
    if problem.dtype in HALVES and products is not None:
        raise fail("E778", f"products of {problem.dtype} are planned for a GPU, and are the library's", "leave products= out")
    if known is None:
        raise fail("E541", "there is no GPU here, or no description of it is known", "give device='h200', or a file of `bilinear tune`")
    if not is_aligned(k, n, MULTIPLIED.get(problem.dtype, ELEMENTS["float64"]).name):
        problem = replace(problem, lies_evenly=False)
    if reproducible is not None:
        return same_bits_plan(problem, known)
    if levels is not None and (isinstance(levels, str) or not isinstance(levels, Sequence) or not all(isinstance(x, str) for x in levels)):
        raise fail("E543", f"levels={levels!r} names no algorithms", 'give them as ("winograd_depth_first", "winograd")')
    if problem.dtype in HALVES:
        from bilinear.methods.halves import half_plan  # which is imported with what multiplies

        return half_plan(problem, known.title, None if levels is None else tuple(levels))
    if levels is not None or products is not None:
        return pinned_plan(problem, known, tuple(levels or ()), products, contention)
    return _chosen(problem, known, explain, devices_here.gpu_here() if device is None else None)


def require_numbers_of_processors(dtype: str) -> None:
    """Refuse (E543, E786, E778) types of which no plan is made for processors."""
    if dtype in COMPLEX:
        what = f"plans of {dtype} are chosen for a GPU, from what is planned for {COMPLEX[dtype]}"
        raise fail("E786", what, "give algorithm= and levels= to matmul, or plan for a GPU")
    if dtype in HALVES:
        raise fail("E778", f"products of {dtype} are planned for a GPU, and are the library's", "name a GPU, such as device='h200'")
    if dtype not in IN_ARRAYS:
        raise fail("E543", f"no plans for dtype={dtype!r}", f"choose one of {', '.join(IN_ARRAYS)}: these are planned for processors")


def dtype_name(dtype: DTypeLike) -> str:
    """The name of a dtype. Anything that NumPy refuses is returned as text, which the refusal will show."""
    if isinstance(dtype, str) and dtype in ELEMENTS:  # NumPy takes longer to name a dtype than a lookup takes to find the plan
        return dtype
    try:
        found = np.dtype(dtype)
        return str(found) if found.names is None else str(dtype)
    except (TypeError, ValueError):
        return str(dtype)


def plan_for(
    layouts: Layouts, inputs: str, budget: int | None, accumulate: bool = False, accuracy: float | str | None = None
) -> Plan | None:
    """The plan for arrays on the current GPU: timed, else the model's; None (the library) without a description or a plan."""
    a, b, *_ = layouts
    is_planned = a.element is not None or str(a.dtype) in COMPLEX
    if max(layouts.extents) > MOST_EXTENT or layouts.overlaps or not is_planned:
        return None
    if not layouts.are_matrices_of(a.dtype) or 0 in (*a.shape, *b.shape) or (device := devices_here.current_device()) is None:
        return None
    problem = replace(problem_of(layouts, inputs, budget, accumulate), accuracy=accuracy)
    return _logged(_chosen, problem, device, False, gpu_of(layouts))


def gpu_of(layouts: Layouts) -> tuple[str, int] | None:
    """Name and driver version of the GPU for which a plan for arrays of these layouts may be kept; None if none is."""
    return devices_here.gpu_here() if all(x.ndim == 2 and not x.has_gaps for x in layouts[:2]) else None


def cpu_plan_for(layouts: Layouts, cpu: Cpu, budget: int | None, is_warm: bool, accuracy: float | str | None = None) -> Plan | None:
    """The plan for arrays in the host's memory, a given workspace `is_warm`; None (the library) if none runs or is weighed."""
    if layouts.overlaps or layouts.own_multiply is not None or not layouts.are_matrices_of(layouts.a.dtype):
        return None
    if cpu.rates(str(layouts.a.dtype)) is None or max(layouts.extents) > MOST_EXTENT:
        return None
    if any(min(x.strides) != x.itemsize for x in layouts.given):  # no BLAS reads these where they lie
        return None
    return _logged(cpu_plan, replace(problem_of(layouts, "preserve", budget), accuracy=accuracy), cpu, is_warm)


def problem_of(layouts: Layouts, inputs: str, budget: int | None, accumulate: bool = False, dtype: str = "") -> Problem:
    """The planner's problem for matrices of these layouts and of one type, the arrays' own or the one whose bits they hold, with limits."""
    gaps, even = layouts.out is not None and layouts.out.has_gaps, all(x.lies_evenly for x in layouts.given)
    return Problem(*layouts.extents, dtype or str(layouts.a.dtype), inputs, budget, None, layouts.by_column, accumulate, gaps, even)


@kept_by_names(1024)
def _chosen(problem: Problem, device: Device, explain: bool, gpu: tuple[str, int] | None) -> Plan:
    """The plan that was kept for a problem on this GPU, else the model's choice, which knows what the library proposes here."""
    if gpu is not None:
        from bilinear.planner.kept_plans import kept_plan

        kept = measured.get((problem, gpu)) or kept_plan(METHODS, problem, *gpu)
        if kept is not None:
            return kept
    if problem.dtype in COMPLEX:
        return complex_plan(problem, device, explain)
    kernels = None
    if gpu is not None and is_thin(problem):
        from bilinear.backends.cublas_lt import proposed_for

        kernels = proposed_for(problem, devices_here.index_of_gpu())
    return make_plan(problem, device, explain, kernels)


@kept_by_names(1024)
def _logged(choose: Callable[..., Plan], problem: Problem, *how: object) -> Plan:
    """The plan that a function chooses; the cache makes it appear in the log once."""
    plan = choose(problem, *how)
    p, chosen = plan.problem, plan.chosen
    devices_here.log().info("auto, %d x %d x %d of %s on %s: %s (%s)", p.m, p.k, p.n, p.dtype, plan.device, chosen.name, chosen.why)
    return plan


measured: dict[tuple[Problem, tuple[str, int]], Plan] = {}  # What the calls of this process have measured.


def keep_measured(plan: Plan, driver: int) -> None:
    """Choose this plan for its problem from now on: in this process, and in later ones if there is a place to keep it."""
    from bilinear.planner.kept_plans import keep_plan

    keep(measured, (plan.problem, (plan.device, driver)), plan, MOST_MEASURED)
    for cached in (_chosen, _logged):
        cached.cache_clear()
    try:
        keep_plan(plan, driver)
    except BilinearError as error:
        devices_here.log().warning("a measured plan is not kept for other processes: %s", error)
