"""A plan as one HTML page: the picture of time and workspace, and the tables."""

from __future__ import annotations

from bilinear.planner.plan import Plan
from bilinear.reporting.pages import environment
from bilinear.reporting.plan_chart import plan_chart
from bilinear.reporting.plans import limits, pareto_rows, plan_rows

KINDS = (
    ("chosen", "chosen"),
    ("front", "nothing beats it in both time and workspace"),
    ("able", "could run"),
    ("refused", "needs too much workspace, or its error is too large"),
)


def plan_html(plan: Plan, date: str = "") -> str:
    """The plan as one self-contained HTML page: styles and drawing inside, no external files, no script.

    The footer contains the `date` if one is given.
    """
    p, chart = plan.problem, plan_chart(plan)
    shown = {dot.kind for dot in chart.dots}
    why = plan.chosen.why.removeprefix("chosen: ")
    return (
        environment(html=True)
        .get_template("plan.html.j2")
        .render(
            title=f"{p.m} × {p.k} by {p.k} × {p.n}, {p.dtype}",
            chosen=plan.chosen,
            why=why[:1].upper() + why[1:],
            facts=[("device", plan.device), *limits(plan)],
            c=chart,
            kinds=[(kind, words) for kind, words in KINDS if kind in shown],
            front=pareto_rows(plan),
            table=plan_rows(plan),
            version=plan.version,
            date=date,
        )
    )
