"""A plan as one HTML page: a picture of every candidate by workspace and predicted time, with the Pareto front, and the tables."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from bilinear.planner.plan import LIBRARY, Candidate, Plan, pareto_front
from bilinear.reporting.axes import Tick, round_step
from bilinear.reporting.pages import environment
from bilinear.reporting.plan_labels import LINE, RADIUS, Box, Label, Labels, Point
from bilinear.reporting.plans import bytes_text, limits, names, pareto_rows, plan_rows

WIDTH, HEIGHT = 920.0, 540.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 24.0, 22.0, 48.0
SLOWEST = 1.3
"""Candidates that take more than this many times the library's time are not drawn."""
MOST_STEPS = 8
"""Steps between the marks of an axis, at the most."""
UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("bytes", 1))


@dataclass(frozen=True)
class Dot:
    """A candidate: `kind` is chosen, front, able or refused; `title` describes it in full, `lines` in short.

    The lines are anchored at their start or end, so that they stay in the picture.
    """

    x: float
    y: float
    kind: str
    title: str
    lines: tuple[str, ...]

    @property
    def anchor(self) -> str:
        """Where the lines begin or end: at the dot."""
        return "start" if self.x < WIDTH / 2 else "end"


@dataclass(frozen=True)
class PlanChart:
    """The picture: its frame, the marks, the lines (None if absent) and the candidates; `unit` belongs to the x axis.

    `slower` counts the candidates that are left out.
    """

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    unit: str
    across: tuple[Tick, ...]
    down: tuple[Tick, ...]
    library: float | None
    budget: float | None
    front: str
    dots: tuple[Dot, ...]
    labels: tuple[Label, ...]
    slower: int


@dataclass(frozen=True)
class _Scale:
    """A linear axis from `low` to `high` onto the picture."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return round(self.start + (self.end - self.start) * (value - self.low) / (self.high - self.low), 1)


def plan_chart(plan: Plan) -> PlanChart:
    """The candidates with a known time not far above the library's; workspace starts at 0, time at the smallest."""
    known = [c for c in plan.candidates if c.ms is not None]
    limit = SLOWEST * min((c.ms or 0.0 for c in known if c.strategy == LIBRARY), default=math.inf)
    timed = [c for c in known if (c.ms or 0.0) <= limit]
    most = max([c.workspace or 0 for c in timed] + [plan.problem.workspace or 0])
    unit, size = next((u, s) for u, s in UNITS if most >= s or s == 1)
    times = [c.ms or 0.0 for c in timed]
    margin = 0.1 * (max(times) - min(times)) or 0.05 * max(times)
    x = _Scale(0, most * 1.04 or 1, LEFT + 14, WIDTH - RIGHT)
    y = _Scale(max(0.0, min(times) - margin), max(times) + margin, HEIGHT - BOTTOM, TOP)
    places = {c: (x(c.workspace or 0), y(c.ms or 0.0)) for c in timed}
    front = tuple(c for c in pareto_front(plan) if c in places)
    corners = [places[c] for c in front]
    library = next((y(c.ms) for c in timed if c.strategy == LIBRARY and c.ms is not None), None)
    budget = None if plan.problem.workspace is None else x(plan.problem.workspace)
    important = sorted(timed, key=lambda c: (c is not plan.chosen, c not in front, c.ms or 0.0))
    told = names(plan)
    named = [(told[c], places[c], c is plan.chosen or c in front) for c in important if c.strategy != LIBRARY]
    return PlanChart(
        WIDTH,
        HEIGHT,
        LEFT,
        WIDTH - RIGHT,
        TOP,
        HEIGHT - BOTTOM,
        unit,
        tuple(Tick(x(t * size), f"{t:g}") for t in _round_steps(0, most / size)),
        tuple(Tick(y(t), f"{t:g}") for t in _round_steps(y.low, y.high)),
        library,
        budget,
        _steps(corners),
        tuple(Dot(*places[c], _kind(c, plan, front), _title(c, told[c]), _lines(c, told[c])) for c in reversed(important)),
        _labels(named, list(places.values()), corners, library, budget),
        len(known) - len(timed),
    )


def _round_steps(low: float, high: float) -> list[float]:
    """Round values between two bounds, at most `MOST_STEPS` steps of 1, 2 or 5 times a power of ten."""
    if high == low:
        return [low]
    step = round_step(high - low, MOST_STEPS)
    return [round(i * step, 12) for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _steps(points: list[Point]) -> str:
    """The front as a path: at each point's workspace, the time falls."""
    if len(points) < 2:
        return ""
    (x, y), *rest = points
    return f"M{x:g} {y:g}" + "".join(f"H{px:g}V{py:g}" for px, py in rest)


def _kind(candidate: Candidate, plan: Plan, front: tuple[Candidate, ...]) -> str:
    if candidate is plan.chosen:
        return "chosen"
    return "refused" if _is_refused(candidate) else "front" if candidate in front else "able"


def _is_refused(candidate: Candidate) -> bool:
    return candidate.why.startswith(("needs ", "its error bound ", "its probable error "))


def _title(c: Candidate, name: str) -> str:
    return f"{name} ({c.strategy}, {c.promise}): {c.ms:.4g} ms, {c.workspace or 0} bytes of workspace; {c.why}"


def _lines(c: Candidate, name: str) -> tuple[str, str]:
    return name, f"{c.ms:.4g} ms, {bytes_text(c.workspace or 0)} of workspace"


def _spot(point: Point) -> Box:
    return point[0] - RADIUS, point[1] - RADIUS, point[0] + RADIUS, point[1] + RADIUS


def _front(points: list[Point]) -> Iterator[Box]:
    """The front as boxes: across at a point's time, then down to the next."""
    for (x, y), (px, py) in pairwise(points):
        yield x, y - 1, px, y + 1
        yield px - 1, y, px + 1, py


def _labels(
    named: list[tuple[str, Point, bool]], dots: list[Point], corners: list[Point], library: float | None, budget: float | None
) -> tuple[Label, ...]:
    """The names of the lines, then those of the dots, important ones first."""
    labels = Labels(dots, (LEFT, 0.0, WIDTH, HEIGHT - BOTTOM), [*map(_spot, dots), *_front(corners)])
    if library is not None:
        at = Label(WIDTH - RIGHT, library - LINE / 2 - 2, "end", "the library")
        labels.put(at, [(LEFT, library - 1, WIDTH - RIGHT, library + 1)])
    if budget is not None:
        anchor = "end" if budget > WIDTH / 2 else "start"
        at = Label(budget + (-6 if anchor == "end" else 6), TOP + LINE / 2, anchor, "workspace allowed")
        labels.put(at, [(budget - 1, TOP, budget + 1, HEIGHT - BOTTOM)])
    for name, place, important in named:
        labels.name(place, name, important)
    return tuple(labels.placed)


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
