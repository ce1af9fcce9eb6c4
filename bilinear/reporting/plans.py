"""Plans as text: an aligned table of the candidates, and why each alternative lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bilinear.planner.plan import LIBRARY, SHOWN, Candidate, Plan, bytes_text, pareto_front
from bilinear.planner.plan_files import plan_json
from bilinear.planner.problem import CLASSES
from bilinear.reporting.table import aligned
from bilinear.visible import visible_lines

__all__ = ["bytes_text", "limits", "names", "pareto_rows", "pareto_table", "plan_json", "plan_rows", "plan_table", "timed_table"]
HEADER = ("plan", "inputs", "strategy", "ms", "TFLOP/s", "workspace", "error bound", "probable", "why")
TIMED_HEADER = ("shape", "dtype", "inputs", "fastest", "tile", "workspace", "ms", "library", "ratio")
Rows = list[tuple[str, ...]]
"""A table: the header, then the rows."""


def plan_table(plan: Plan, explain: bool = False) -> str:
    """The problem, then the candidates, the chosen one first: all of them with `explain`, else only the next best.

    A column in which nothing is known is left out.
    """
    p = plan.problem
    told = ", ".join(f"{name} {value}" for name, value in limits(plan))
    header, *rows = plan_rows(plan)
    shown = rows if explain else rows[:SHOWN]
    known = [column for column, cells in enumerate(zip(*shown, strict=True)) if set(cells) != {"-"}]
    header, *cells = [tuple(row[column] for column in known) for row in (header, *shown)]
    lines = [f"{p.m} x {p.k} by {p.k} x {p.n}, {p.dtype}, {plan.device} ({told})", "", *aligned(cells, header)]
    if len(shown) < len(rows):
        lines.append(f"... and {len(rows) - len(shown)} more: explain=True")
    return visible_lines(lines)


def pareto_table(plan: Plan) -> str:
    """The gain of more workspace: the candidates that no other beats in both time and workspace."""
    header, *rows = pareto_rows(plan)
    return "\n".join(aligned(rows, header))


def timed_table(plans: Sequence[Plan]) -> str:
    """The fastest timed plan of each problem, compared with the library's multiply."""
    return "\n".join(aligned([_timed_row(plan) for plan in plans], TIMED_HEADER))


def _timed_row(plan: Plan) -> tuple[str, ...]:
    p, chosen = plan.problem, plan.chosen
    library = next(candidate for candidate in plan.candidates if candidate.strategy == LIBRARY).ms or 0.0
    own = chosen.ms or library
    what = (f"{p.m}x{p.k}x{p.n}", p.dtype, chosen.promise, chosen.name, chosen.tile if chosen.levels else "-")
    return (*what, bytes_text(chosen.workspace or 0), f"{own:.4g}", f"{library:.4g}", f"{library / own:.2f}")


def plan_rows(plan: Plan) -> Rows:
    """All candidates with their figures."""
    told = names(plan)
    return [HEADER, *((told[c], *_figures(c, plan)) for c in plan.candidates)]


def pareto_rows(plan: Plan) -> Rows:
    """The candidates of the front, without error bounds and reasons."""
    told = names(plan)
    return [HEADER[:-3], *((told[c], *_figures(c, plan)[:-3]) for c in pareto_front(plan))]


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
    found += [] if p.workspace is None else [("workspace", f"at most {bytes_text(p.workspace)}")]
    if isinstance(p.accuracy, str):
        return [*found, ("error", f"{p.accuracy}, at most {CLASSES[p.accuracy]:g} times the classical multiply's")]
    return found + ([] if p.accuracy is None else [("error", f"at most {p.accuracy:.2g}")])


def _figures(c: Candidate, plan: Plan) -> tuple[str, ...]:
    p = plan.problem
    ms = "-" if c.ms is None else f"{c.ms:.3f}"
    rate = "-" if not c.ms else f"{2 * p.m * p.k * p.n / c.ms * 1e-9:.1f}"
    workspace = "-" if c.workspace is None else bytes_text(c.workspace)
    return c.promise, c.strategy, ms, rate, workspace, *(_short(x) for x in (c.error, c.probable)), c.why


def _short(error: float | None) -> str:
    return "-" if error is None else f"{error:.2g}"
