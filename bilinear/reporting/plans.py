"""Plans for readers: an aligned table of what was weighed, and why each alternative lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bilinear.planner.choice import LIBRARY, Candidate, Choice, pareto_front
from bilinear.planner.plan_files import plan_json
from bilinear.reporting.table import aligned
from bilinear.visible import visible_lines

__all__ = ["limits", "names", "pareto_rows", "pareto_table", "plan_json", "plan_rows", "plan_table", "timed_table"]
SHOWN = 4
"""Candidates that are shown where nobody asks for an explanation."""
HEADER = ("plan", "inputs", "strategy", "ms", "TFLOP/s", "workspace", "error bound", "why")
TIMED_HEADER = ("shape", "dtype", "inputs", "fastest", "tile", "workspace", "ms", "library", "ratio")
Rows = list[tuple[str, ...]]
"""A table: the header, then the rows."""


def plan_table(choice: Choice, explain: bool = False) -> str:
    """The problem in a line, then the candidates, the chosen one first: all of them with `explain`, else the chosen and the next best."""
    p = choice.problem
    told = ", ".join(f"{name} {value}" for name, value in limits(choice))
    header, *rows = plan_rows(choice)
    shown = rows if explain else rows[:SHOWN]
    lines = [f"{p.m} x {p.k} by {p.k} x {p.n}, {p.dtype}, {choice.device} ({told})", "", *aligned(shown, header)]
    if len(shown) < len(rows):
        lines.append(f"... and {len(rows) - len(shown)} more: --explain, explain=True")
    return visible_lines(lines)


def pareto_table(choice: Choice) -> str:
    """What more workspace buys: the candidates that nothing beats in both time and workspace."""
    header, *rows = pareto_rows(choice)
    return "\n".join(aligned(rows, header))


def timed_table(choices: Sequence[Choice]) -> str:
    """What was found fastest by timing, a problem a line, beside the library's multiply."""
    return "\n".join(aligned([_timed_row(choice) for choice in choices], TIMED_HEADER))


def _timed_row(choice: Choice) -> tuple[str, ...]:
    p, chosen = choice.problem, choice.chosen
    library = next(candidate for candidate in choice.candidates if candidate.strategy == LIBRARY).ms or 0.0
    own = chosen.ms or library
    what = (f"{p.m}x{p.k}x{p.n}", p.dtype, chosen.promise, chosen.name, chosen.tile if chosen.levels else "-")
    return (*what, _bytes(chosen.workspace or 0), f"{own:.4g}", f"{library:.4g}", f"{library / own:.2f}")


def plan_rows(choice: Choice) -> Rows:
    """All candidates with their figures."""
    told = names(choice)
    return [HEADER, *((told[c], *_figures(c, choice)) for c in choice.candidates)]


def pareto_rows(choice: Choice) -> Rows:
    """The candidates of the front, without error bounds and reasons."""
    told = names(choice)
    return [HEADER[:-2], *((told[c], *_figures(c, choice)[:-2]) for c in pareto_front(choice))]


def names(choice: Choice) -> dict[Candidate, str]:
    """The candidates for readers, with the tile of the products where nothing else tells two from each other."""
    alike = Counter(same for same, _ in {(_but_for_the_tile(c), c.tile) for c in choice.candidates})
    return {c: f"{c.name} ({c.tile})" if alike[_but_for_the_tile(c)] > 1 else c.name for c in choice.candidates}


def _but_for_the_tile(c: Candidate) -> tuple[str, str, str]:
    return c.name, c.promise, c.strategy


def limits(choice: Choice) -> list[tuple[str, str]]:
    """What the caller allows."""
    p = choice.problem
    found = [("inputs", p.inputs)]
    found += [] if p.workspace is None else [("workspace", f"at most {_bytes(p.workspace)}")]
    return found + ([] if p.accuracy is None else [("error", f"at most {p.accuracy:.2g}")])


def _figures(c: Candidate, choice: Choice) -> tuple[str, ...]:
    p = choice.problem
    ms = "-" if c.ms is None else f"{c.ms:.3f}"
    rate = "-" if not c.ms else f"{2 * p.m * p.k * p.n / c.ms * 1e-9:.1f}"
    workspace = "-" if c.workspace is None else _bytes(c.workspace)
    return c.promise, c.strategy, ms, rate, workspace, "-" if c.error is None else f"{c.error:.1e}", c.why


def _bytes(count: int) -> str:
    """Bytes in the largest binary unit that leaves at least one; exact bytes are in the JSON."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} B" if count else "0"
