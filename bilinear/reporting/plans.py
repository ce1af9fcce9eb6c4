"""Plans as text, as JSON and as a page: candidates and why each lost, bounds of the device, the order of a chain, the blocks of A*A^T.

The page has a picture of every candidate by workspace and predicted time, with the Pareto front.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from bilinear.analysis.traffic import LATENCY, Streaming
from bilinear.planner.chains import MULTIPLICATIONS, ChainPlan
from bilinear.planner.gram import COLUMNS, GramPlan
from bilinear.planner.kept_plans import plan_json
from bilinear.planner.plan import LIBRARY, SHOWN, Candidate, Plan, bytes_text, pareto_front
from bilinear.planner.problem import CLASSES
from bilinear.planner.roofline import Roofline
from bilinear.reporting.pages import Scale, Tick, environment, round_step, varying
from bilinear.reporting.table import aligned
from bilinear.visible import visible_lines

if TYPE_CHECKING:  # a plan needs neither schedules nor kernels
    from _typeshed import DataclassInstance

    from bilinear.planner.best_case import BestCase

HEADER = ("plan", "inputs", "strategy", "ms", "TFLOP/s", "workspace", "error bound", "probable", "why")
PAGE_HEADER = ("ratio", "plan", "ms", "workspace", "why", "TFLOP/s", "error bound", "probable", "strategy", "inputs")
Rows = list[tuple[str, ...]]  # A table: the header, then the rows.


def plan_table(plan: Plan, explain: bool = False) -> str:
    """The problem, then the candidates, the chosen first: all with `explain`, else the next best; no column without facts."""
    p = plan.problem
    told = ", ".join(f"{name} {value}" for name, value in limits(plan))
    names_of = names(plan)
    rows = [(names_of[c], *_figures(c, plan)) for c in plan.candidates]
    shown = rows if explain else rows[:SHOWN]
    known = [column for column, cells in enumerate(zip(*shown, strict=True)) if set(cells) != {"-"}]
    header, *cells = [tuple(row[column] for column in known) for row in (HEADER, *shown)]
    lines = [f"{p.m} x {p.k} by {p.k} x {p.n}, {p.dtype}, {plan.device} ({told})", "", *aligned(cells, header)]
    if len(shown) < len(rows):
        lines.append(f"... and {len(rows) - len(shown)} more: explain=True")
    return visible_lines(lines)


def pareto_table(plan: Plan) -> str:
    """The gain of more workspace: the candidates that no other beats in both time and workspace."""
    names_of = names(plan)
    rows = [(names_of[c], *_figures(c, plan)[:-3]) for c in pareto_front(plan)]  # without error bounds and reasons
    return "\n".join(aligned(rows, HEADER[:-3]))


def timed_table(plans: Sequence[Plan]) -> str:
    """The fastest timed plan of each problem, compared with the library's multiply."""
    rows = []
    for plan in plans:
        p, chosen = plan.problem, plan.chosen
        library = next(candidate for candidate in plan.candidates if candidate.strategy == LIBRARY).ms or 0.0
        own = chosen.ms or library
        what = (f"{p.m}x{p.k}x{p.n}", p.dtype, chosen.promise, chosen.name, chosen.tile if chosen.levels else "-")
        rows.append((*what, bytes_text(chosen.workspace or 0), f"{own:.4g}", f"{library:.4g}", f"{library / own:.2f}"))
    return "\n".join(aligned(rows, ("shape", "dtype", "inputs", "fastest", "tile", "workspace", "ms", "library", "ratio")))


def _page_rows(plan: Plan, candidates: Sequence[Candidate], header: tuple[str, ...]) -> Rows:
    """These columns of candidates, with how many times as fast as the library each of them is."""
    told, library = names(plan), next((c.ms for c in plan.candidates if c.strategy == LIBRARY), None)
    found = []
    for c in candidates:
        cells = dict(zip(HEADER, (told[c], *_figures(c, plan)), strict=True))
        cells["ratio"] = f"{library / c.ms:.2f}" if library and c.ms else "-"
        found.append(tuple(cells[name] for name in header))
    return [header, *found]


def names(plan: Plan) -> dict[Candidate, str]:
    """Readable names of the candidates; with the tile if two would otherwise be equal."""
    alike = Counter(same for same, _ in {((c.name, c.promise, c.strategy), c.tile) for c in plan.candidates})
    return {c: f"{c.name} ({c.tile})" if alike[c.name, c.promise, c.strategy] > 1 else c.name for c in plan.candidates}


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
    return c.promise, c.strategy, ms, rate, workspace, *("-" if x is None else f"{x:.2g}" for x in (c.error, c.probable)), c.why


ORDERS = ("", "order", "ms", "multiplications", "memory", "ratio")
PRODUCTS = ("product", "shape", "ms", "plan", "workspace", "intermediates")


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


def gram_table(plan: GramPlan) -> str:
    """The cost of the plan compared with a multiply of two matrices; then its blocks, equal ones together."""
    seconds, plain = plan.seconds or 0.0, plan.plain or 0.0
    rows = [
        ("blocks of a triangle", f"{seconds * 1e3:.4g}", "1.00x", str(plan.multiplications), bytes_text(plan.peak)),
        ("A by A^T, two matrices", f"{plain * 1e3:.4g}", f"{plain / seconds:.2f}x", str(plan.n**2 * plan.k), ""),
    ]
    most = "" if plan.workspace is None else f", at most {bytes_text(plan.workspace)}"
    title = f"A*A^T, A {plan.n}x{plan.k}, {plan.dtype} ({plan.device}, predicted{most})"
    sums = aligned(rows, ("", "ms", "ratio", "multiplications", "workspace"))
    return visible_lines([title, "", *sums, "", *aligned(plan.table(), COLUMNS)])


def figures_json(name: str, found: DataclassInstance | Sequence[DataclassInstance]) -> str:
    """The plan of a chain or of A*A^T, or rows of figures, as JSON text; matrices count from 0, and ranges of rows are half-open."""
    figures = {"rows": [asdict(one) for one in found]} if isinstance(found, Sequence) else asdict(found)
    return json.dumps({"format": f"bilinear-{name}/1", **figures}, indent=1) + "\n"


def best_cases_table(found: Sequence[BestCase], title: str) -> str:
    """The same as a table; the gain is over the first row, the plain multiply."""
    rows = [
        (
            *(",".join(one.levels) or "classical", one.schedule, one.launches),
            *(f"{1e-12 * one.flops:.4g}", f"{1e-9 * one.memory:.4g}", f"{1e-9 * one.shared:.4g}"),
            *(f"{1e3 * seconds:.4g}" for seconds in (*one.seconds, one.least)),
            f"{found[0].least / one.least:.3f}x",
        )
        for one in found
    ]
    figures = ("TFLOP", "memory GB", "shared GB", "TFLOP ms", "memory ms", "shared ms", "least", "gain")
    return visible_lines([title, "", *aligned(rows, ("levels", "schedule", "launches", *figures))])


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


LETTER, LINE, GAP = 6.0, 14.0, 9.0  # A letter's width, a line's height, a label's distance from its point.
CLEARER = 5.0  # How much farther than its own dot every other dot must be from a name.
RADIUS = 6.0
PlanPoint = tuple[float, float]
LabelBox = tuple[float, float, float, float]  # Left, top, right and bottom.


@dataclass(frozen=True)
class Label:
    """A text next to its dot, anchored at its start, middle or end."""

    x: float
    y: float
    anchor: str
    text: str

    @property
    def box(self) -> LabelBox:
        """The estimated area of the label."""
        width = LETTER * len(self.text)
        left = self.x - width * {"start": 0.0, "middle": 0.5, "end": 1.0}[self.anchor]
        return left, self.y - LINE / 2, left + width, self.y + LINE / 2


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

    def name(self, place: PlanPoint, *texts: str) -> None:
        """Place the first of these texts for which there is room beside the dot, if there is one."""
        fitting = (label for text in texts for label in _around(*place, text) if self._fits(label, place))
        for label in islice(fitting, 1):
            self.put(label)

    def _fits(self, label: Label, place: PlanPoint) -> bool:
        box = label.box
        inside = box[0] >= self.frame[0] and box[1] >= self.frame[1] and box[2] <= self.frame[2] and box[3] <= self.frame[3]
        if not inside or any(box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3] for other in self.taken):
            return False
        own = _distance(box, place)
        return all(_distance(box, dot) >= own + CLEARER for dot in self.dots if dot != place)


def _around(x: float, y: float, text: str) -> Iterator[Label]:
    yield Label(x + GAP, y, "start", text)
    for away in (GAP + LINE / 2, GAP + LINE):
        for sign in (-1, 1):
            yield Label(x, y + sign * away, "middle", text)
            yield Label(x + GAP, y + sign * away, "start", text)
    yield Label(x - GAP, y, "end", text)


def _distance(box: LabelBox, point: PlanPoint) -> float:
    return math.hypot(max(box[0] - point[0], 0.0, point[0] - box[2]), max(box[1] - point[1], 0.0, point[1] - box[3]))


WIDTH, HEIGHT = 920.0, 540.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 24.0, 22.0, 48.0
SLOWEST = 1.3  # Candidates that take more than this many times the library's time are not drawn.
MOST_STEPS = 8  # Steps between the marks of an axis, at the most.
UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("bytes", 1))


@dataclass(frozen=True)
class Dot:
    """A candidate: `kind` is chosen, front, able or refused; `title` is in full, `lines` in short, kept in the picture."""

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

    unit: str
    across: tuple[Tick, ...]
    down: tuple[Tick, ...]
    library: float | None
    budget: float | None
    front: str
    dots: tuple[Dot, ...]
    labels: tuple[Label, ...]
    slower: int
    width: float = WIDTH
    height: float = HEIGHT
    left: float = LEFT
    right: float = WIDTH - RIGHT
    top: float = TOP
    bottom: float = HEIGHT - BOTTOM


def plan_chart(plan: Plan) -> PlanChart:
    """The candidates with a known time not far above the library's; workspace starts at 0, time at the smallest."""
    known = [c for c in plan.candidates if c.ms is not None]
    limit = SLOWEST * min((c.ms or 0.0 for c in known if c.strategy == LIBRARY), default=math.inf)
    timed = [c for c in known if (c.ms or 0.0) <= limit]
    most = max([c.workspace or 0 for c in timed] + [plan.problem.workspace or 0])
    unit, size = next((u, s) for u, s in UNITS if most >= s or s == 1)
    times = [c.ms or 0.0 for c in timed]
    margin = 0.1 * (max(times) - min(times)) or 0.05 * max(times)
    x = Scale(0, most * 1.04 or 1, LEFT + 14, WIDTH - RIGHT)
    y = Scale(max(0.0, min(times) - margin), max(times) + margin, HEIGHT - BOTTOM, TOP)
    places = {c: (x(c.workspace or 0), y(c.ms or 0.0)) for c in timed}
    front = tuple(c for c in pareto_front(plan) if c in places)
    corners = [places[c] for c in front]
    library = next((y(c.ms) for c in timed if c.strategy == LIBRARY and c.ms is not None), None)
    budget = None if plan.problem.workspace is None else x(plan.problem.workspace)
    important = sorted(timed, key=lambda c: (c is not plan.chosen, c not in front, c.ms or 0.0))
    told = names(plan)
    numbers = {c: str(number) for number, c in enumerate(front, 1)}
    named = [(places[c], (told[c], *filter(None, [numbers.get(c)]))) for c in important if c.strategy != LIBRARY]
    dots = []
    for c in reversed(important):
        kind = "chosen" if c is plan.chosen else "refused" if not c.able else "front" if c in front else "able"
        title = f"{told[c]} ({c.strategy}, {c.promise}): {c.ms:.4g} ms, {c.workspace or 0} bytes of workspace; {c.why}"
        dots.append(Dot(*places[c], kind, title, (told[c], f"{c.ms:.4g} ms, {bytes_text(c.workspace or 0)} of workspace")))
    return PlanChart(
        f"workspace, {unit}",
        tuple(Tick(x(t * size), f"{t:g}") for t in _round_steps(0, most / size)),
        tuple(Tick(y(t), f"{t:g}") for t in _round_steps(y.low, y.high)),
        library,
        budget,
        _steps(corners),
        tuple(dots),
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
    if len(points) < 2:
        return ""
    (x, y), *rest = points
    return f"M{x:g} {y:g}" + "".join(f"H{px:g}V{py:g}" for px, py in rest)


def _labels(
    named: Sequence[tuple[PlanPoint, Sequence[str]]],
    dots: list[PlanPoint],
    corners: list[PlanPoint],
    library: float | None,
    budget: float | None,
) -> tuple[Label, ...]:
    """The names of the lines, then those of the dots, important ones first; one on the front without room for its name has its number."""
    taken = [(x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS) for x, y in dots]
    for (x, y), (px, py) in pairwise(corners):  # the front goes across at a point's time, then down to the next
        taken += [(x, y - 1, px, y + 1), (px - 1, y, px + 1, py)]
    labels = DotLabels(dots, (LEFT, 0.0, WIDTH, HEIGHT - BOTTOM), taken)
    if library is not None:
        at = Label(WIDTH - RIGHT, library - LINE / 2 - 2, "end", "the library")
        labels.put(at, [(LEFT, library - 1, WIDTH - RIGHT, library + 1)])
    if budget is not None:
        anchor = "end" if budget > WIDTH / 2 else "start"
        at = Label(budget + (-6 if anchor == "end" else 6), TOP + LINE / 2, anchor, "workspace allowed")
        labels.put(at, [(budget - 1, TOP, budget + 1, HEIGHT - BOTTOM)])
    for place, texts in named:
        labels.name(place, *texts)
    return tuple(labels.placed)


KINDS = (
    ("chosen", "chosen"),
    ("front", "nothing beats it in both time and workspace"),
    ("able", "could run"),
    ("refused", "needs too much workspace, or its error is too large"),
)


def plan_html(plan: Plan, date: str = "") -> str:
    """The plan as one self-contained HTML page without scripts; the footer contains the `date` if one is given."""
    p, chart = plan.problem, plan_chart(plan)
    table, alike = varying(_page_rows(plan, plan.candidates, PAGE_HEADER), PAGE_HEADER[:5])
    header, *front = _page_rows(plan, pareto_front(plan), PAGE_HEADER[:4])
    shown = {dot.kind for dot in chart.dots}
    why = plan.chosen.why.removeprefix("chosen: ")
    template = environment(html=True).get_template("plan.html.j2")
    return template.render(
        title=f"{p.m} × {p.k} by {p.k} × {p.n}, {p.dtype}",
        chosen=plan.chosen,
        why=why[:1].upper() + why[1:],
        facts=[("device", plan.device), *limits(plan)],
        c=chart,
        kinds=[(kind, words) for kind, words in KINDS if kind in shown],
        front=[("", *header), *((str(number), *row) for number, row in enumerate(front, 1))],
        table=table,
        alike=alike,
        words=("plan", "inputs", "strategy", "why"),
        version=plan.version,
        date=date,
    )
