"""The schedule as a timeline: a wire for each block, a column for each stage, boxes where a block changes, products across the wires."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bilinear.reporting.coefficient_grid import readable, shortened
from bilinear.reporting.schedule_facts import ProductStep, ScheduleFacts, StageLine
from bilinear.verify.facts import BlockState

MOST_ROWS = 36
"""With more blocks, every space is one wire."""
MOST_WIDTH = 1040.0
"""Stages beyond this width go into the next band."""
MOST_LANES = 16
"""More products in one stage are drawn as one."""
LABEL, BOX, ROW, GAP, LANE, HEAD, FOOT, TAIL = 52.0, 100.0, 26.0, 12.0, 24.0, 52.0, 8.0, 14.0
LETTERS = 13
"""The most characters in a box."""


@dataclass(frozen=True)
class Row:
    """A wire: the name of its block or space, and its height."""

    name: str
    y: float


@dataclass(frozen=True)
class Box:
    """A block after a stage that changed it: its centre, the kind of its state, a short value, and the whole value."""

    x: float
    y: float
    kind: str
    text: str
    value: str


@dataclass(frozen=True)
class Wire:
    """A segment of a wire, coloured by the state of its block."""

    x1: float
    x2: float
    y: float
    kind: str


@dataclass(frozen=True)
class Mark:
    """Where a product crosses a wire: `sign` is empty for an operand, else the sign with which the product is added."""

    y: float
    sign: str


@dataclass(frozen=True)
class Lane:
    """A product across the wires, from `top` to `bottom`."""

    name: str
    x: float
    top: float
    bottom: float
    marks: tuple[Mark, ...]
    title: str


@dataclass(frozen=True)
class Column:
    """A stage: its number and kind, the centre of its boxes, and its place; every second one is `striped`."""

    title: str
    kind: str
    x: float
    left: float
    width: float
    striped: bool


@dataclass(frozen=True)
class Band:
    """Some stages side by side, as wide as a page."""

    width: float
    height: float
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    wires: tuple[Wire, ...]
    boxes: tuple[Box, ...]
    lanes: tuple[Lane, ...]


@dataclass(frozen=True)
class Timeline:
    """All bands, the widest `width` wide; `kinds` are the states that occur.

    A box is `box` wide, rows lie `row` apart, and names take `label`. `note` says what is left out.
    """

    width: float
    bands: tuple[Band, ...]
    kinds: tuple[str, ...]
    box: float
    row: float
    label: float
    note: str


@dataclass(frozen=True)
class _Plan:
    """Which row shows which block."""

    rows: tuple[Row, ...]
    row_of: dict[str, Row]
    collapsed: bool

    @property
    def bottom(self) -> float:
        return self.rows[-1].y + ROW / 2


def timeline(facts: ScheduleFacts) -> Timeline:
    """The timeline of a schedule of any number of blocks and stages."""
    plan = _plan(facts)
    states: list[dict[str, BlockState]] = [_begin(facts)]
    for stage in facts.stages:
        states.append({**states[-1], **{state.block: state for state in stage.states}})
    bands = []
    start = 0
    while start < len(facts.stages):
        stop = _fit(facts.stages, start, plan)
        bands.append(_band(plan, facts.stages[start:stop], states[start : stop + 1]))
        start = stop
    width = max((band.width for band in bands), default=0.0)
    kinds = tuple(dict.fromkeys(state.kind for table in states for state in table.values() if state.kind))
    return Timeline(width, tuple(bands), kinds, BOX, ROW, LABEL, _note(facts, plan))


def _note(facts: ScheduleFacts, plan: _Plan) -> str:
    if not plan.collapsed:
        return ""
    return f"{sum(len(space.blocks) for space in facts.spaces)} blocks are too many for a wire each: a wire stands for a whole matrix."


def _plan(facts: ScheduleFacts) -> _Plan:
    collapsed = sum(len(space.blocks) for space in facts.spaces) > MOST_ROWS
    rows: list[Row] = []
    row_of: dict[str, Row] = {}
    y = HEAD
    for space in facts.spaces:
        for names in [space.blocks] if collapsed else [(block,) for block in space.blocks]:
            row = Row(space.name if collapsed else names[0], y + ROW / 2)
            rows.append(row)
            row_of |= dict.fromkeys(names, row)
            y += ROW
        y += GAP
    return _Plan(tuple(rows), row_of, collapsed)


def _begin(facts: ScheduleFacts) -> dict[str, BlockState]:
    """The state before the first stage: A, B and C as given, workspaces undefined."""
    return {
        block: BlockState(
            block, "original" if space.name in ("A", "B", "C") else "undefined", block if space.name in ("A", "B", "C") else ""
        )
        for space in facts.spaces
        for block in space.blocks
    }


def _lanes_width(stage: StageLine, plan: _Plan) -> float:
    if not stage.products:
        return 10.0
    return LANE * (1 if plan.collapsed or len(stage.products) > MOST_LANES else len(stage.products)) + 14


def _fit(stages: Sequence[StageLine], start: int, plan: _Plan) -> int:
    """The end of a band: it has at least one stage."""
    width, stop = LABEL + _lanes_width(stages[start], plan) + BOX, start + 1
    while stop < len(stages) and width + _lanes_width(stages[stop], plan) + BOX <= MOST_WIDTH:
        width += _lanes_width(stages[stop], plan) + BOX
        stop += 1
    return stop


def _band(plan: _Plan, stages: Sequence[StageLine], states: Sequence[dict[str, BlockState]]) -> Band:
    columns: list[Column] = []
    wires: list[Wire] = []
    boxes: list[Box] = []
    lanes: list[Lane] = []
    left = LABEL
    for stage, before, after in zip(stages, states, states[1:], strict=False):
        lane_width = _lanes_width(stage, plan)
        width = lane_width + BOX
        x = left + lane_width + BOX / 2
        columns.append(Column(f"{stage.number}", stage.kind, x, left, width, stage.number % 2 == 1))
        lanes += _lanes(stage, plan, left + 7)
        for row, changed, found in _rows_after(plan, before, after):
            wires.append(Wire(left, x, row.y, _kind(_at(plan, before, row))))
            wires.append(Wire(x, left + width, row.y, _kind(found)))
            if changed:
                boxes.append(_box(x, row, changed if plan.collapsed else found, dict(stage.holds), plan.collapsed))
        left += width
    wires += [Wire(left, left + TAIL, row.y, _kind(_at(plan, states[-1], row))) for row in plan.rows]
    return Band(left + TAIL, plan.bottom + FOOT, plan.rows, tuple(columns), tuple(wires), tuple(boxes), tuple(lanes))


def _at(plan: _Plan, states: dict[str, BlockState], row: Row) -> list[BlockState]:
    return [state for block, state in states.items() if plan.row_of.get(block) is row]


def _rows_after(
    plan: _Plan, before: dict[str, BlockState], after: dict[str, BlockState]
) -> Iterator[tuple[Row, list[BlockState], list[BlockState]]]:
    for row in plan.rows:
        found = _at(plan, after, row)
        yield row, [state for state in found if before.get(state.block) != state], found


def _kind(states: Sequence[BlockState]) -> str:
    """The most frequent kind among the blocks on a wire."""
    return Counter(state.kind for state in states).most_common(1)[0][0] if states else "undefined"


def _box(x: float, row: Row, states: Sequence[BlockState], sums: dict[str, str], collapsed: bool) -> Box:
    kind = _kind(states)
    if collapsed:
        words = {"sum": "sum", "product": "product", "restored": "restored", "original": "original", "undefined": "undefined"}
        many = "s" * (len(states) > 1 and kind in ("sum", "product"))
        return Box(
            x, row.y, kind, f"{len(states)} {words.get(kind, kind)}{many}", " ; ".join(f"{s.block} = {s.value}" for s in states[:12])
        )
    state = states[0]
    return Box(x, row.y, kind, _short(state, sums.get(state.block, "")), f"{state.block} = {state.value}" if state.value else state.kind)


def _short(state: BlockState, products: str) -> str:
    if state.kind == "restored":
        return f"✓ {state.value}"
    if state.kind == "undefined":
        return "?"
    value = readable((products if state.kind == "product" and products else state.value).replace(" ", "").replace("*", ""))
    if len(value) <= LETTERS:
        return value
    terms = 1 + sum(value.count(sign) for sign in "+−") - value.startswith("−")
    return f"{terms} terms"


def _lanes(stage: StageLine, plan: _Plan, left: float) -> list[Lane]:
    if not stage.products:
        return []
    if plan.collapsed or len(stage.products) > MOST_LANES:
        signs: dict[float, str] = {}
        for product in stage.products:
            signs |= {mark.y: mark.sign for mark in _marks(product, plan)}
        marks = tuple(Mark(y, "+" if sign else "") for y, sign in sorted(signs.items()))
        return [Lane(f"{len(stage.products)}×", left + LANE / 2, marks[0].y, marks[-1].y, marks, f"{len(stage.products)} products")]
    lanes = []
    for number, (product, step) in enumerate(zip(stage.products, stage.steps, strict=False)):
        marks = _marks(product, plan)
        x = left + LANE * (number + 0.5)
        lanes.append(
            Lane(
                shortened(product.name, 4), x, min(m.y for m in marks), max(m.y for m in marks), marks, f"{product.name}: {readable(step)}"
            )
        )
    return lanes


def _marks(product: ProductStep, plan: _Plan) -> tuple[Mark, ...]:
    operands = [Mark(plan.row_of[block].y, "") for block in product.operands]
    return (*operands, *(Mark(plan.row_of[block].y, "−" if c.startswith("-") else "+") for block, c in product.targets))
