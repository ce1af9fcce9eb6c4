"""Plans for readers: an aligned table of what was weighed, and why each alternative lost."""

from __future__ import annotations

from bilinear.planner.choose import Candidate, Choice, pareto_front
from bilinear.planner.saved import plan_json
from bilinear.reporting.table import aligned

__all__ = ["pareto_table", "plan_json", "plan_table"]
SHOWN = 4
"""Candidates that are shown where nobody asks for an explanation."""


def plan_table(choice: Choice, explain: bool = False) -> str:
    """The problem in a line, then the candidates, the chosen one first: all of them with `explain`, else the chosen and the next best."""
    p = choice.problem
    limits = [f"inputs {p.inputs}"]
    limits += [] if p.workspace is None else [f"workspace at most {_bytes(p.workspace)}"]
    limits += [] if p.accuracy is None else [f"error at most {p.accuracy:.2g}"]
    head = f"{p.m} x {p.k} by {p.k} x {p.n}, {p.dtype}, {choice.device} ({', '.join(limits)})"
    shown = choice.candidates if explain else choice.candidates[:SHOWN]
    rows = [_row(c, 2 * p.m * p.k * p.n) for c in shown]
    lines = [head, "", *aligned(rows, ("plan", "inputs", "strategy", "ms", "TFLOP/s", "workspace", "error bound", "why"))]
    if len(shown) < len(choice.candidates):
        lines.append(f"... and {len(choice.candidates) - len(shown)} more: explain")
    return "\n".join(lines)


def pareto_table(choice: Choice) -> str:
    """What more workspace buys: the candidates that nothing beats in both time and workspace."""
    p = choice.problem
    rows = [_row(c, 2 * p.m * p.k * p.n)[:-2] for c in pareto_front(choice)]
    return "\n".join(aligned(rows, ("plan", "inputs", "strategy", "ms", "TFLOP/s", "workspace")))


def _row(c: Candidate, flops: int) -> tuple[str, ...]:
    ms = "-" if c.ms is None else f"{c.ms:.3f}"
    rate = "-" if not c.ms else f"{flops / c.ms * 1e-9:.1f}"
    workspace = "-" if c.workspace is None else _bytes(c.workspace)
    return c.name, c.inputs, c.strategy, ms, rate, workspace, "-" if c.error is None else f"{c.error:.1e}", c.why


def _bytes(count: int) -> str:
    """Bytes in the largest binary unit that leaves at least one; exact bytes are in the JSON."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} B" if count else "0"
