"""The planner, handed the methods of the registry: plans for problems, and plans in files."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from bilinear.methods.registry import METHODS
from bilinear.planner import choose, pinned
from bilinear.planner.plan import Plan

make_plan = partial(choose.make_plan, METHODS)
contenders = partial(choose.contenders, METHODS)
pinned_plan = partial(pinned.pinned_plan, METHODS)
complex_plan = partial(pinned.complex_plan, METHODS)


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
    from bilinear.planner import plan_files  # most plans are never in a file

    return plan_files.load_plan(METHODS, path)


def plan_from_json(text: str, document: str) -> Plan:
    """Read a plan from JSON text; raises the errors of `load_plan`."""
    from bilinear.planner import plan_files

    return plan_files.plan_from_json(METHODS, text, document)
