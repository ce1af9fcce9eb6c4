"""A plan as one HTML page: a picture of every candidate by workspace and predicted time, with the Pareto front, and the tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from bilinear.planner.plan import LIBRARY, Candidate, Plan, pareto_front
from bilinear.reporting.charts import Tick, round_step
from bilinear.reporting.pages import environment
from bilinear.reporting.plans import bytes_text, limits, names, pareto_rows, plan_rows

LETTER, LINE, GAP = 6.0, 14.0, 9.0
"""The width of a letter, the height of a line and the distance of a label from its point, in the units of the picture."""
FARTHEST = 14
"""The most lines between an important candidate's dot and its name."""
CLEARER = 5.0
"""How much farther than its own dot every other dot must be from a name that no line connects to it."""
RADIUS = 6.0
PlanPoint = tuple[float, float]
LabelBox = tuple[float, float, float, float]
"""Left, top, right and bottom."""


@dataclass(frozen=True)
class Label:
    """A text next to its dot, anchored at its start, middle or end; a line connects them if the text stands away."""

    x: float
    y: float
    anchor: str
    text: str
    leader: PlanPoint | None = None

    @property
    def box(self) -> LabelBox:
        """The estimated area of the label."""
        width = LETTER * len(self.text)
        left = self.x - width * {"start": 0.0, "middle": 0.5, "end": 1.0}[self.anchor]
        return left, self.y - LINE / 2, left + width, self.y + LINE / 2

    @property
    def end(self) -> PlanPoint:
        """Where the line from the dot meets the text."""
        return self.x + {"start": -2, "middle": 0, "end": 2}[self.anchor], self.y


@dataclass
class DotLabels:
    """The labels of a picture: `dots` are all dots, `taken` the areas that no label may cover, `frame` the area for labels."""

    dots: Sequence[PlanPoint]
    frame: LabelBox
    taken: list[LabelBox]
    placed: list[Label] = field(default_factory=list)

    def put(self, label: Label, covering: Sequence[LabelBox] = ()) -> None:
        """Place a label as it is; later ones also avoid the areas that it is `covering`."""
        self.taken += [label.box, *covering]
        self.placed.append(label)

    def name(self, place: PlanPoint, text: str, important: bool) -> None:
        """Name a dot where there is room; important names may stand away, with a line to their dot. A name may find no place."""
        for label in _around(*place, text, FARTHEST if important else 1):
            if self._fits(label, place):
                self.put(label)
                return

    def _fits(self, label: Label, place: PlanPoint) -> bool:
        box = label.box
        inside = box[0] >= self.frame[0] and box[1] >= self.frame[1] and box[2] <= self.frame[2] and box[3] <= self.frame[3]
        if not inside or any(_meet(box, other) for other in self.taken) or any(_cross(other, box) for other in self.placed):
            return False
        others = [dot for dot in self.dots if dot != place]
        if label.leader is None:
            own = _distance(box, place)
            return all(_distance(box, dot) >= own + CLEARER for dot in others)
        return self._is_clear(label, others)

    def _is_clear(self, label: Label, others: Sequence[PlanPoint]) -> bool:
        """True if the line to the dot meets no other dot, no name and no other line."""
        assert label.leader is not None
        spots = (_spot(dot) for dot in others)
        names = (other.box for other in self.placed)
        if any(_cross(label, box) for box in (*spots, *names)):
            return False
        lines = ((other.leader, other.end) for other in self.placed if other.leader is not None)
        return not any(_lines_meet((label.leader, label.end), line) for line in lines)


def _around(x: float, y: float, text: str, lines: int) -> Iterator[Label]:
    yield Label(x + GAP, y, "start", text)
    for away in (GAP + LINE / 2, GAP + LINE):
        for sign in (-1, 1):
            yield Label(x, y + sign * away, "middle", text)
            yield Label(x + GAP, y + sign * away, "start", text)
    yield Label(x - GAP, y, "end", text)
    for line in range(2, lines + 1):
        for sign in (1, -1):
            level = y + sign * (GAP + LINE * line)
            yield from (Label(x + shift * GAP, level, "start", text, (x, y)) for shift in (2, 6, -2, 16, 28))
            yield Label(x - 2 * GAP, level, "end", text, (x, y))
            yield Label(x, level - sign * LINE / 2, "middle", text, (x, y))


def _meet(one: LabelBox, other: LabelBox) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _distance(box: LabelBox, point: PlanPoint) -> float:
    """From a point to the nearest point of a box."""
    return math.hypot(max(box[0] - point[0], 0.0, point[0] - box[2]), max(box[1] - point[1], 0.0, point[1] - box[3]))


def _cross(label: Label, box: LabelBox) -> bool:
    """True if the label's line runs through the box."""
    if label.leader is None:
        return False
    left, top, right, bottom = box
    corners = ((left, top), (right, top), (right, bottom), (left, bottom))
    line = (label.leader, label.end)
    inside = any(left <= x <= right and top <= y <= bottom for x, y in line)
    return inside or any(_lines_meet(line, (corners[i - 1], corners[i])) for i in range(4))


def _lines_meet(one: tuple[PlanPoint, PlanPoint], other: tuple[PlanPoint, PlanPoint]) -> bool:
    return _side(one, other[0]) * _side(one, other[1]) < 0 and _side(other, one[0]) * _side(other, one[1]) < 0


def _side(line: tuple[PlanPoint, PlanPoint], point: PlanPoint) -> float:
    """On which side of a line a point lies."""
    (x, y), (u, v) = line
    return (u - x) * (point[1] - y) - (v - y) * (point[0] - x)


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


def _steps(points: list[PlanPoint]) -> str:
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


def _spot(point: PlanPoint) -> LabelBox:
    return point[0] - RADIUS, point[1] - RADIUS, point[0] + RADIUS, point[1] + RADIUS


def _front(points: list[PlanPoint]) -> Iterator[LabelBox]:
    """The front as boxes: across at a point's time, then down to the next."""
    for (x, y), (px, py) in pairwise(points):
        yield x, y - 1, px, y + 1
        yield px - 1, y, px + 1, py


def _labels(
    named: list[tuple[str, PlanPoint, bool]], dots: list[PlanPoint], corners: list[PlanPoint], library: float | None, budget: float | None
) -> tuple[Label, ...]:
    """The names of the lines, then those of the dots, important ones first."""
    labels = DotLabels(dots, (LEFT, 0.0, WIDTH, HEIGHT - BOTTOM), [*map(_spot, dots), *_front(corners)])
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
