"""Plans as text: an aligned table of the candidates, and why each alternative lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bilinear.planner.plan import LIBRARY, Candidate, Plan, pareto_front
from bilinear.planner.plan_files import plan_json
from bilinear.reporting.table import aligned
from bilinear.visible import visible_lines

__all__ = ["limits", "names", "pareto_rows", "pareto_table", "plan_json", "plan_rows", "plan_table", "timed_table"]
SHOWN = 4
"""The number of candidates shown without an explanation."""
HEADER = ("plan", "inputs", "strategy", "ms", "TFLOP/s", "workspace", "error bound", "why")
TIMED_HEADER = ("shape", "dtype", "inputs", "fastest", "tile", "workspace", "ms", "library", "ratio")
Rows = list[tuple[str, ...]]
"""A table: the header, then the rows."""


def plan_table(plan: Plan, explain: bool = False) -> str:
    """The problem, then the candidates, the chosen one first: all of them with `explain`, else only the next best."""
    p = plan.problem
    told = ", ".join(f"{name} {value}" for name, value in limits(plan))
    header, *rows = plan_rows(plan)
    shown = rows if explain else rows[:SHOWN]
    lines = [f"{p.m} x {p.k} by {p.k} x {p.n}, {p.dtype}, {plan.device} ({told})", "", *aligned(shown, header)]
    if len(shown) < len(rows):
        lines.append(f"... and {len(rows) - len(shown)} more: --explain, explain=True")
    return visible_lines(lines)


def pareto_table(plan: Plan) -> str:
    """What more workspace buys: the candidates that no other beats in both time and workspace."""
    header, *rows = pareto_rows(plan)
    return "\n".join(aligned(rows, header))


def timed_table(plans: Sequence[Plan]) -> str:
    """The fastest timed plan of each problem, beside the library's multiply."""
    return "\n".join(aligned([_timed_row(plan) for plan in plans], TIMED_HEADER))


def _timed_row(plan: Plan) -> tuple[str, ...]:
    p, chosen = plan.problem, plan.chosen
    library = next(candidate for candidate in plan.candidates if candidate.strategy == LIBRARY).ms or 0.0
    own = chosen.ms or library
    what = (f"{p.m}x{p.k}x{p.n}", p.dtype, chosen.promise, chosen.name, chosen.tile if chosen.levels else "-")
    return (*what, _bytes(chosen.workspace or 0), f"{own:.4g}", f"{library:.4g}", f"{library / own:.2f}")


def plan_rows(plan: Plan) -> Rows:
    """All candidates with their figures."""
    told = names(plan)
    return [HEADER, *((told[c], *_figures(c, plan)) for c in plan.candidates)]


def pareto_rows(plan: Plan) -> Rows:
    """The candidates of the front, without error bounds and reasons."""
    told = names(plan)
    return [HEADER[:-2], *((told[c], *_figures(c, plan)[:-2]) for c in pareto_front(plan))]


def names(plan: Plan) -> dict[Candidate, str]:
    """Readable names of the candidates; with the tile if two would otherwise be equal."""
    alike = Counter(same for same, _ in {(_but_for_the_tile(c), c.tile) for c in plan.candidates})
    return {c: f"{c.name} ({c.tile})" if alike[_but_for_the_tile(c)] > 1 else c.name for c in plan.candidates}


def _but_for_the_tile(c: Candidate) -> tuple[str, str, str]:
    return c.name, c.promise, c.strategy


def limits(plan: Plan) -> list[tuple[str, str]]:
    """The caller's limits."""
    p = plan.problem
    found = [("inputs", p.inputs)]
    found += [] if p.workspace is None else [("workspace", f"at most {_bytes(p.workspace)}")]
    return found + ([] if p.accuracy is None else [("error", f"at most {p.accuracy:.2g}")])


def _figures(c: Candidate, plan: Plan) -> tuple[str, ...]:
    p = plan.problem
    ms = "-" if c.ms is None else f"{c.ms:.3f}"
    rate = "-" if not c.ms else f"{2 * p.m * p.k * p.n / c.ms * 1e-9:.1f}"
    workspace = "-" if c.workspace is None else _bytes(c.workspace)
    return c.promise, c.strategy, ms, rate, workspace, "-" if c.error is None else f"{c.error:.1e}", c.why


def _bytes(count: int) -> str:
    """Bytes in the largest binary unit not above them; exact bytes are in the JSON."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} B" if count else "0"
