"""Plans as text and as JSON: the candidates and why each lost, the bounds of the device, the order of a chain, the blocks of A*A^T."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise

from bilinear.analysis.traffic import LATENCY, Streaming
from bilinear.planner.chains import MULTIPLICATIONS, ChainPlan
from bilinear.planner.gram import COLUMNS, GramPlan
from bilinear.planner.plan import LIBRARY, SHOWN, Candidate, Plan, bytes_text, pareto_front
from bilinear.planner.plan_files import plan_json
from bilinear.planner.problem import CLASSES
from bilinear.planner.roofline import Roofline
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


CHAIN_FORMAT = "bilinear-chain/1"
ORDERS = ("", "order", "ms", "multiplications", "memory", "ratio")
PRODUCTS = ("product", "shape", "ms", "plan", "workspace", "intermediates")


def chain_json(plan: ChainPlan) -> str:
    """The plan of a chain as JSON text; matrices are counted from 0."""
    return json.dumps({"format": CHAIN_FORMAT, **asdict(plan)}, indent=1) + "\n"


def chain_table(plan: ChainPlan) -> str:
    """The orders with their figures, then the products of the chosen one, in the order in which they run."""
    usual = ("left to right", plan.left_to_right), ("fewest multiplications", plan.fewest_multiplications)
    orders = [
        (name, own.text, _ms(own.seconds), own.multiplications, bytes_text(own.peak), f"{plan.ratio(own):.2f}x")
        for name, own in (("chosen", plan.chosen), *usual)
    ]
    products = [
        (
            f"{_name(step.left)} {_name(step.right)}",
            f"{step.m}x{step.k}x{step.n}",
            _ms(step.seconds),
            step.plan,
            bytes_text(step.workspace),
            bytes_text(step.held),
        )
        for step in plan.chosen.steps
    ]
    return visible_lines([_title(plan), "", *aligned(orders, ORDERS), "", *aligned(products, PRODUCTS)])


def _title(plan: ChainPlan) -> str:
    shapes = " ".join(f"{m}x{n}" for m, n in pairwise(plan.extents))
    where = "multiplications counted: the planner has no times here" if plan.by == MULTIPLICATIONS else f"{plan.device}, predicted"
    most = "" if plan.workspace is None else f", at most {bytes_text(plan.workspace)}"
    return f"{shapes}, {plan.dtype} ({where}{most})"


def _name(span: tuple[int, int]) -> str:
    """A part of a chain: `A2`, or `A2..A4`."""
    first, last = span
    return f"A{first + 1}" if first == last else f"A{first + 1}..A{last + 1}"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.4g}"


GRAM_FORMAT = "bilinear-gram/1"
SUMS = ("", "ms", "ratio", "multiplications", "workspace")


def gram_json(plan: GramPlan) -> str:
    """The plan as JSON text; ranges of rows are half-open."""
    return json.dumps({"format": GRAM_FORMAT, **asdict(plan)}, indent=1) + "\n"


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


def roofline_table(r: Roofline) -> str:
    """Intensity and balance with their meaning, traffic compared with the least possible, and the resulting tiles."""
    times = max(r.intensity / r.balance, r.balance / r.intensity)
    waits = "launches and waiting take more than half of the predicted time"
    order = "" if r.is_proved else f" in its order (omega {r.omega:.3f})"
    rows = [
        ("intensity", f"{r.intensity:.1f} FLOP/byte", f"{r.highest_intensity:.1f} if the classical product moves each element once"),
        ("balance", f"{r.balance:.1f} FLOP/byte", f"{r.rate * 1e-12:.1f} TFLOP/s, {r.bandwidth * 1e-9:.4g} GB/s"),
        ("bound by", r.bound_by, waits if r.bound_by == LATENCY else f"intensity and balance are {times:.1f} times apart"),
        ("traffic", bytes_text(r.traffic), f"{r.factor:.2f} times the least{order}, {bytes_text(int(r.least_traffic))}"),
        ("cache", bytes_text(r.cache), f"holds three square tiles of side {r.fitting_side}; side {r.balancing_side} reaches the balance"),
    ]
    return "\n".join(aligned(rows, header=None))


def streaming_table(s: Streaming) -> str:
    """The bytes in flight of the kernel for a thin product, and its bound."""
    rows = [
        ("kind", "", s.kind),
        ("threshold", f"{s.threshold:.0f} columns", "above it arithmetic takes longer than reading A"),
        (
            "under way",
            bytes_text(s.under_way),
            f"on a multiprocessor ({s.blocks} block{'s' * (s.blocks > 1)}); to read at full speed needs {bytes_text(s.needed)}",
        ),
        ("bound by", s.bound_by, f"what is under way can read at {s.share:.0%} of full speed (Little's law)"),
    ]
    return "\n".join(aligned(rows, header=None))


def explained_json(plan: Plan, r: Roofline, s: Streaming | None = None) -> str:
    """A plan as JSON that can be loaded again, together with these figures."""
    figures = {**asdict(r), "is_proved": r.is_proved, "factor": r.factor}
    figures |= {} if s is None else {"streaming": asdict(s)}
    return json.dumps({**json.loads(plan_json(plan)), "roofline": figures}, indent=1) + "\n"
