"""Auto: describe the current GPU, choose a plan for some arrays, and check that a given plan fits them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from bilinear.errors import BilinearError, fail
from bilinear.ir.element import COMPLEX, ELEMENTS, MULTIPLIED
from bilinear.ir.matrix import Array, Dtype
from bilinear.ir.placement import MOST_EXTENT
from bilinear.planner.choose import make_plan
from bilinear.planner.cpu import Cpu, cpu_plan
from bilinear.planner.device import Device
from bilinear.planner.device_files import load_device
from bilinear.planner.estimates import TUNING_SECONDS
from bilinear.planner.library_points import LibraryPoints
from bilinear.planner.model import is_aligned
from bilinear.planner.pinned import pinned_plan
from bilinear.planner.plan import Plan
from bilinear.planner.policy import USUAL_RULES, LibraryRules
from bilinear.planner.problem import Problem
from bilinear.planner.ways import follows_from_names
from bilinear.runtime.environment import uses_library
from bilinear.runtime.layouts import Layouts

CPU = "cpu"
"""The device that stands for the processors here."""

if TYPE_CHECKING:
    from logging import Logger

    from numpy.typing import DTypeLike

_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,3})?) ?([KMGT])(|B|iB)", re.ASCII)
"""A size with its unit: `2G` and `2GiB` are 2 * 1024^3 bytes, `2GB` are 2 * 1000^3."""


def plan(
    m: int,
    k: int,
    n: int,
    dtype: DTypeLike = "float64",
    *,
    device: str | Device | None = None,
    inputs: str = "preserve",
    workspace: int | str | None = None,
    accuracy: float | str | None = None,
    explain: bool = False,
    levels: Sequence[str] | None = None,
    products: str | None = None,
    accumulate: bool = False,
) -> Plan:
    """The plan for C (m x n) = A (m x k) * B (k x n): what `matmul(..., plan=...)` runs, and why each alternative lost.

    Parameters
    ----------
    m, k, n : int
        The extents of the problem.
    dtype : dtype
        float64, float32, complex128 or complex64 (three real products, docs/how-to/complex.md).
    device : str or Device, optional
        The name of a shipped description, a file of `bilinear tune`, a `Device`, or "cpu" for the processors here as `bilinear tune --cpu
        --keep` has described them. The default is the current GPU, for which a plan that `bilinear tune --shape` found for this problem
        comes first.
    inputs : {"preserve", "restore", "consume"}
        What may happen to A and B.
    workspace : int, str or array, optional
        The most bytes of workspace, a size such as "2GiB", "none" or "unlimited" (the default). For processors an array stands for memory
        that is kept between calls.
    accuracy : float, "classical" or "twice", optional
        The largest allowed error bound, in units of max|A| * max|B|, or the most that the probable error by norm may be, in units of the
        classical multiply's. With an accuracy, products of digits may be chosen (docs/digits.md).
    explain : bool
        Compute errors for every candidate.
    levels : sequence of str, optional
        Algorithms to run instead of choosing, the outermost level first: ("winograd_depth_first", "winograd").
    products : str, optional
        What multiplies below them: "pairs" are two float16 digits of each float32, "residues15" residues modulo 15 numbers, and
        "residues" those with the fewest moduli that keep the accuracy, "classical" if none is given.
    accumulate : bool
        Plan for a beta other than 0.

    Returns
    -------
    Plan
        Its text shows the best candidates.

    Raises
    ------
    BilinearError
        E408, E501, E513, E519, E534, E541 to E543, E554, E567, E591, E592.

    Examples
    --------
    >>> import bilinear
    >>> plan = bilinear.plan(8192, 8192, 8192, "float64", device="h200")
    >>> plan
    <Plan of 8192 x 8192 by 8192 x 8192, float64, NVIDIA H200: winograd, then dps_444>
    >>> bilinear.plan(8192, 8192, 8192, "float64", device="h200", workspace="none").chosen.workspace
    0
    """
    budget, buffer = budget_and_buffer(workspace)
    budget = budget if buffer is None else int(buffer.nbytes)
    accuracy = accuracy.item() if isinstance(accuracy, np.generic) else accuracy
    m, k, n = (int(e) if isinstance(e, np.integer) else e for e in (m, k, n))
    problem = Problem(m, k, n, dtype_name(dtype), inputs, budget, accuracy, accumulate=accumulate)
    if problem.dtype in COMPLEX and (device == CPU or levels is not None or products is not None):
        what = f"plans of {problem.dtype} are chosen for a GPU, from what is planned for {COMPLEX[problem.dtype]}"
        raise fail("E786", what, "give algorithm= and levels= to matmul, or plan for a GPU without levels and products")
    if device == CPU:
        return _plan_on_cpu(problem, levels is not None or products is not None, buffer, explain)
    known = device_of(device)
    if known is None:
        raise fail("E541", "there is no GPU here, or no description of it is known", "give device='h200', or a file of `bilinear tune`")
    if not is_aligned(k, n, MULTIPLIED.get(problem.dtype, ELEMENTS["float64"]).name):
        problem = replace(problem, lies_evenly=False)
    if levels is not None and (isinstance(levels, str) or not isinstance(levels, Sequence)):
        raise fail("E543", f"levels={levels!r} names no algorithms", 'give them as ("winograd_depth_first", "winograd")')
    if levels is not None or products is not None:
        return pinned_plan(problem, known, tuple(levels or ()), products)
    return _chosen(problem, known, explain, gpu_here() if device is None else None)


def _plan_on_cpu(problem: Problem, is_pinned: bool, buffer: Array, explain: bool) -> Plan:
    cpu = current_cpu()
    if cpu is None:
        raise fail("E554", "there is no description of the processors here", "`bilinear tune --cpu --keep` measures one")
    if is_pinned:
        raise fail("E543", "levels and products pin a plan for a GPU", "give algorithm= and levels= to matmul")
    return cpu_plan(problem, cpu, buffer is not None, explain)


def _log() -> Logger:
    """The logger. `logging` is imported late: a first plan, which logs nothing, would take a tenth longer."""
    import logging

    return logging.getLogger("bilinear")


def dtype_name(dtype: DTypeLike) -> str:
    """The name of a dtype. Anything that NumPy refuses is returned as text, which the refusal will show."""
    if isinstance(dtype, str) and dtype in ELEMENTS:  # NumPy takes longer to name a dtype than a lookup takes to find the plan
        return dtype
    try:
        return str(np.dtype(dtype))
    except (TypeError, ValueError):
        return str(dtype)


def device_of(device: str | Device | None) -> Device | None:
    """The description that `device` names or is; for None that of the current GPU, or None."""
    return device if isinstance(device, Device) else current_device() if device is None else load_device(str(device))


def current_device() -> Device | None:
    """The description of the current GPU: the one in BILINEAR_DEVICE, else one that `bilinear tune` kept, else a shipped one, an estimate.

    None without a GPU, and on one before sm_80 that nobody has described.
    """
    return _described(os.environ.get("BILINEAR_DEVICE", ""), _index())


def current_cpu() -> Cpu | None:
    """The description of the processors here that `bilinear tune --cpu` kept, or None."""
    from bilinear.backends.cpu import cpu_name, library_name

    return _described_cpu(cpu_name(), library_name())


@lru_cache(maxsize=4)
def _described_cpu(name: str, library: str) -> Cpu | None:
    from bilinear.planner.kept_plans import kept_cpu

    return kept_cpu(name, library)


def library_choice(dtype: str) -> tuple[LibraryRules, LibraryPoints | None]:
    """By what the library's multiply is called on the current GPU: the rules of its description, and the points of thin products.

    With BILINEAR_USE_LIBRARY they are the usual rules alone: the library must run whatever a description says.
    """
    device = None if uses_library() else current_device()
    if device is None:
        return USUAL_RULES, None
    rates = device.thin_rates(dtype)
    return device.library_rules, None if rates is None else rates.library


def gpu_here() -> tuple[str, int] | None:
    """Name and driver version of the current GPU, under which plans are kept. None without a GPU, or if BILINEAR_DEVICE is set."""
    if "cupy" not in sys.modules or os.environ.get("BILINEAR_DEVICE"):  # a vain search for CuPy takes longer than a choice
        return None
    index = _index()
    return None if index < 0 else _identity(index)


def _index() -> int:
    """The number of the current GPU, -1 if there is none."""
    try:
        import cupy

        return int(cupy.cuda.Device().id)
    except Exception as error:  # no CuPy, no driver and no GPU raise many kinds
        _log().debug("no GPU: %s", error)
        return -1


@lru_cache(maxsize=64)
def _identity(index: int) -> tuple[str, int]:
    """Name and driver version of the current GPU; its number is the key of the cache."""
    from bilinear.backends.gpu import driver_version, gpu_name

    return gpu_name(), driver_version()


@lru_cache(maxsize=64)
def _described(named: str, index: int) -> Device | None:
    if named:
        return load_device(named)
    if index < 0:
        return None
    from bilinear.backends.gpu import description

    name, driver = _identity(index)
    device = description(name, driver)
    if device is None:
        _log().info("no description of %s: auto is the library's multiply; `bilinear tune --keep` makes one", name)
    elif device.estimate:
        told = "the description of %s is an estimate (%s); `bilinear tune --keep` replaces it, and takes about %d seconds"
        _log().info(told, name, device.estimate, TUNING_SECONDS)
    return device


def plan_for(
    layouts: Layouts, inputs: str, budget: int | None, accumulate: bool = False, accuracy: float | str | None = None
) -> Plan | None:
    """The plan for arrays of these layouts on the current GPU: a timed one, else the model's choice.

    None (the library's multiply) if there is no description of the GPU, or if no plan can run.
    """
    a, b, *_ = layouts
    if max(layouts.extents) > MOST_EXTENT:
        return None
    if layouts.overlaps or a.dtype.name not in MULTIPLIED or not layouts.are_matrices_of(a.dtype) or 0 in (*a.shape, *b.shape):
        return None
    device = current_device()
    if device is None:
        return None
    is_usual = all(x.ndim == 2 and not x.has_gaps for x in (a, b))
    problem = replace(problem_of(layouts, inputs, budget, accumulate), accuracy=accuracy)
    return _logged(problem, device, gpu_here() if is_usual else None)


def cpu_plan_for(layouts: Layouts, cpu: Cpu, budget: int | None, is_warm: bool, accuracy: float | str | None = None) -> Plan | None:
    """The plan for arrays of these layouts in the host's memory; None (the library's multiply) if none can run or be weighed.

    The workspace `is_warm` if the caller gave one.
    """
    if layouts.overlaps or layouts.own_multiply is not None or not layouts.are_matrices_of(layouts.a.dtype):
        return None
    if cpu.rates(str(layouts.a.dtype)) is None or max(layouts.extents) > MOST_EXTENT:
        return None
    if any(min(x.strides) != x.itemsize for x in layouts.given):  # no BLAS reads these where they lie
        return None
    return _logged_on_cpu(replace(problem_of(layouts, "preserve", budget), accuracy=accuracy), cpu, is_warm)


def problem_of(layouts: Layouts, inputs: str, budget: int | None, accumulate: bool = False) -> Problem:
    """The planner's problem for matrices of these layouts and of one type, with these limits."""
    gaps, even = layouts.out is not None and layouts.out.has_gaps, all(x.lies_evenly for x in layouts.given)
    return Problem(*layouts.extents, str(layouts.a.dtype), inputs, budget, None, layouts.by_column, accumulate, gaps, even)


@lru_cache(maxsize=1024)
def _chosen(problem: Problem, device: Device, explain: bool, gpu: tuple[str, int] | None) -> Plan:
    """The plan that was kept for a problem on this GPU, else the model's choice."""
    if gpu is not None:
        from bilinear.planner.kept_plans import kept_plan

        kept = kept_plan(problem, *gpu)
        if kept is not None:
            return kept
    if problem.dtype in COMPLEX:
        from bilinear.planner.complex_plans import complex_plan

        return complex_plan(problem, device, explain)
    return make_plan(problem, device, explain)


@lru_cache(maxsize=1024)
def _logged(problem: Problem, device: Device, gpu: tuple[str, int] | None) -> Plan:
    """The plan; the cache makes it appear in the log once."""
    return _told(_chosen(problem, device, False, gpu))


@lru_cache(maxsize=1024)
def _logged_on_cpu(problem: Problem, cpu: Cpu, is_warm: bool) -> Plan:
    """The plan; the cache makes it appear in the log once."""
    return _told(cpu_plan(problem, cpu, is_warm))


def _told(plan: Plan) -> Plan:
    p, chosen = plan.problem, plan.chosen
    _log().info("auto, %d x %d x %d of %s on %s: %s (%s)", p.m, p.k, p.n, p.dtype, plan.device, chosen.name, chosen.why)
    return plan


for cached in (_chosen, _logged, _logged_on_cpu):
    follows_from_names(cached.cache_clear)


def budget_and_buffer(workspace: Array) -> tuple[int | None, Array]:
    """`workspace=` as the most bytes (None: no limit) and the caller's buffer (or None). Other values are refused (E534)."""
    if workspace is None or (isinstance(workspace, str) and workspace == "unlimited"):
        return None, None
    if isinstance(workspace, str) and workspace == "none":
        return 0, None
    if isinstance(workspace, int | np.integer) and not isinstance(workspace, bool) and workspace >= 0:
        return int(workspace), None
    if isinstance(workspace, str) and (size := _SIZE.fullmatch(workspace)) is not None:
        unit = 1000 if size[3] == "B" else 1024
        return int(float(size[1]) * unit ** ("KMGT".index(size[2]) + 1)), None
    if isinstance(workspace, str | bool | int | float | np.generic):
        raise fail(
            "E534",
            f"workspace={workspace!r} is no workspace",
            "give bytes, a size such as '2GiB', 'none' or 'unlimited' (in Python an array, too)",
        )
    return None, workspace


def over_budget(name: str, needed: int, allowed: int, hint: str = "use fewer levels, algorithm='auto', or msmes") -> BilinearError:
    """The refusal (E535) of a plan that needs more workspace than is allowed."""
    return fail("E535", f"{name} needs {needed} bytes of workspace, {allowed} are allowed", hint)


def check_plan_options(plan: Plan, algorithm: object, levels: object, inputs: str) -> None:
    """Refuse (E544) options that the plan already decides."""
    if not isinstance(plan, Plan):
        raise fail("E544", f"plan is a {type(plan).__name__}, not a plan of bilinear.plan", "make one with bilinear.plan or load_plan")
    if algorithm != "auto" or levels != "auto" or inputs not in ("preserve", plan.chosen.promise):
        raise fail("E544", "a plan has its own algorithm, levels and promise of the inputs", "leave these options out")


def check_plan_fits(plan: Plan, extents: tuple[int, int, int], dtype: Dtype) -> None:
    """Refuse (E544) a plan for another problem."""
    p = plan.problem
    if extents != (p.m, p.k, p.n) or str(dtype) != p.dtype:
        shapes = f"{' x '.join(map(str, (p.m, p.k, p.n)))} of {p.dtype}, these arrays are {' x '.join(map(str, extents))} of {dtype}"
        raise fail("E544", f"the plan is for {shapes}", "plan for this problem")
