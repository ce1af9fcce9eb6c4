"""The plan of A*A^T as text and as JSON: its blocks, compared with the multiply of two matrices."""

from __future__ import annotations

import json
from dataclasses import asdict

from bilinear.planner.gram import COLUMNS, GramPlan
from bilinear.planner.plan import bytes_text
from bilinear.reporting.table import aligned
from bilinear.visible import visible_lines

FORMAT = "bilinear-gram/1"
SUMS = ("", "ms", "ratio", "multiplications", "workspace")


def gram_json(plan: GramPlan) -> str:
    """The plan as JSON text; ranges of rows are half-open."""
    return json.dumps({"format": FORMAT, **asdict(plan)}, indent=1) + "\n"


def gram_table(plan: GramPlan) -> str:
    """The cost of the plan compared with a multiply of two matrices; then its blocks, equal ones together."""
    seconds, plain = plan.seconds or 0.0, plan.plain or 0.0
    rows = [
        ("blocks of a triangle", f"{seconds * 1e3:.4g}", "1.00x", str(plan.multiplications), bytes_text(plan.peak)),
        ("A by A^T, two matrices", f"{plain * 1e3:.4g}", f"{plain / seconds:.2f}x", str(plan.n**2 * plan.k), ""),
    ]
    most = "" if plan.workspace is None else f", at most {bytes_text(plan.workspace)}"
    title = f"A*A^T, A {plan.n}x{plan.k}, {plan.dtype} ({plan.device}, predicted{most})"
    return visible_lines([title, "", *aligned(rows, SUMS), "", *aligned(plan.table(), COLUMNS)])
