"""The planner, handed the methods of the registry: plans for problems, and plans in files."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from bilinear.errors import fail
from bilinear.ir.element import IN_ARRAYS
from bilinear.methods.registry import METHODS
from bilinear.planner import choose, pinned
from bilinear.planner.choose import Weighing
from bilinear.planner.device import Device
from bilinear.planner.plan import Plan
from bilinear.planner.problem import Problem
from bilinear.resources import implementation_sha256

make_plan = partial(choose.make_plan, METHODS)
contenders = partial(choose.contenders, METHODS)
pinned_plan = partial(pinned.pinned_plan, METHODS)
complex_plan = partial(pinned.complex_plan, METHODS)


def same_bits_plan(problem: Problem, device: Device) -> Plan:
    """The plan of `reproducible="bitwise"`: residues by levels and blocks, which do not change a bit, beside the library's multiply.

    Raises `BilinearError`: E821 for types that are multiplied as others, E567 for an accuracy that no residues keep, E543 for a workspace
    in which nothing runs.
    """
    from bilinear.methods.digits.choice import same_bits_products
    from bilinear.methods.digits.plans import same_bits_candidates

    if problem.dtype not in IN_ARRAYS or problem.inputs != "preserve":
        what = f"plans that keep these bits are of {' and '.join(IN_ARRAYS)}, and never write A and B"
        raise fail("E821", what, "plan for the type in which the product is computed, with inputs='preserve'")
    products, _ = same_bits_products(problem.dtype, problem.k, problem.accuracy)
    weighed = Weighing(problem, device, explain=True, named=True)
    first, *others = map(weighed.judged, same_bits_candidates(problem, device, products))
    if first.why:
        raise fail("E543", f"{first.name}: {first.why}", "allow more")
    library = replace(weighed.library(), why="its bits depend on more than the numbers")
    speed = "no time is known" if first.ms is None else f"{(library.ms or 0.0) / first.ms:.2f} times as fast as the library"
    first = replace(first, why=f"{products.removeprefix('residues')} moduli, within the error bound on every device; {speed}")
    others = [replace(one, why=one.why or "slower, with the same bits") for one in others]
    return Plan(problem, device.title, (first, *others, library), choose.hashes_of(first), implementation_sha256())


def load_plan(path: str | Path) -> Plan:
    """Read a plan from a file.

    Parameters
    ----------
    path : str or Path
        A file of `save_plan`, or of `bilinear plan --json`.

    Returns
    -------
    Plan

    Raises
    ------
    BilinearError
        E545 if it is not a plan, E546 if this version would run something else.

    Examples
    --------
    >>> import bilinear
    >>> plan = bilinear.plan(8192, 8192, 8192, "float64", device="h200")
    >>> bilinear.save_plan(plan, "plan.json")
    >>> bilinear.load_plan("plan.json") == plan
    True
    """
    from bilinear.planner import kept_plans  # most plans are never in a file

    return kept_plans.load_plan(METHODS, path)


def plan_from_json(text: str, document: str) -> Plan:
    """Read a plan from JSON text; raises the errors of `load_plan`."""
    from bilinear.planner import kept_plans

    return kept_plans.plan_from_json(METHODS, text, document)
