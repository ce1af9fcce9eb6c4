"""A schedule drawn: a timeline with a wire for each block, and boards that a page plays stage by stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from bilinear.reporting.coefficients import shortened
from bilinear.reporting.facts import ScheduleFacts, SpaceLine, StageLine, StageProduct, readable, stage_title
from bilinear.verify.facts import BlockState

MOST_ROWS = 36  # With more blocks, every space is one wire.
MOST_WIDTH = 1040.0  # Stages beyond this width go into the next band.
MOST_LANES = 16  # More products in one stage are drawn as one.
LABEL, BOX, ROW, GAP, LANE, HEAD, FOOT, TAIL = 52.0, 100.0, 26.0, 12.0, 24.0, 52.0, 8.0, 14.0
LETTERS = 13  # The most characters in a box.


@dataclass(frozen=True)
class BoardRow:
    """A wire: the name of its block or space, and its height."""

    name: str
    y: float


@dataclass(frozen=True)
class BoardBox:
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
class StageColumn:
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
    rows: tuple[BoardRow, ...]
    columns: tuple[StageColumn, ...]
    wires: tuple[Wire, ...]
    boxes: tuple[BoardBox, ...]
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
class _RowPlan:
    rows: tuple[BoardRow, ...]
    row_of: dict[str, BoardRow]
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
        width, stop = LABEL + _lanes_width(facts.stages[start], plan) + BOX, start + 1
        while stop < len(facts.stages) and width + _lanes_width(facts.stages[stop], plan) + BOX <= MOST_WIDTH:
            width += _lanes_width(facts.stages[stop], plan) + BOX
            stop += 1
        bands.append(_band(plan, facts.stages[start:stop], states[start : stop + 1]))
        start = stop
    width = max((band.width for band in bands), default=0.0)
    kinds = tuple(dict.fromkeys(state.kind for table in states for state in table.values() if state.kind))
    blocks = sum(len(space.blocks) for space in facts.spaces)
    note = f"{blocks} blocks are too many for one wire each: a wire is a whole matrix." if plan.collapsed else ""
    return Timeline(width, tuple(bands), kinds, BOX, ROW, LABEL, note)


def _plan(facts: ScheduleFacts) -> _RowPlan:
    collapsed = sum(len(space.blocks) for space in facts.spaces) > MOST_ROWS
    rows: list[BoardRow] = []
    row_of: dict[str, BoardRow] = {}
    y = HEAD
    for space in facts.spaces:
        for names in [space.blocks] if collapsed else [(block,) for block in space.blocks]:
            row = BoardRow(space.name if collapsed else names[0], y + ROW / 2)
            rows.append(row)
            row_of |= dict.fromkeys(names, row)
            y += ROW
        y += GAP
    return _RowPlan(tuple(rows), row_of, collapsed)


def _begin(facts: ScheduleFacts) -> dict[str, BlockState]:
    given = {block: block for space in facts.spaces[:3] for block in space.blocks}
    blocks = (block for space in facts.spaces for block in space.blocks)
    return {block: BlockState(block, "original" if block in given else "undefined", given.get(block, "")) for block in blocks}


def _lanes_width(stage: StageLine, plan: _RowPlan) -> float:
    if not stage.products:
        return 10.0
    return LANE * (1 if plan.collapsed or len(stage.products) > MOST_LANES else len(stage.products)) + 14


def _band(plan: _RowPlan, stages: Sequence[StageLine], states: Sequence[dict[str, BlockState]]) -> Band:
    columns: list[StageColumn] = []
    wires: list[Wire] = []
    boxes: list[BoardBox] = []
    lanes: list[Lane] = []
    left = LABEL
    for stage, before, after in zip(stages, states, states[1:], strict=False):
        lane_width = _lanes_width(stage, plan)
        width = lane_width + BOX
        x = left + lane_width + BOX / 2
        columns.append(StageColumn(f"{stage.number}", stage.kind, x, left, width, stage.number % 2 == 1))
        lanes += _lanes(stage, plan, left + 7)
        for row in plan.rows:
            found = _at(plan, after, row)
            changed = [state for state in found if before.get(state.block) != state]
            wires.append(Wire(left, x, row.y, _kind(_at(plan, before, row))))
            wires.append(Wire(x, left + width, row.y, _kind(found)))
            if changed:
                boxes.append(_box(x, row, changed if plan.collapsed else found, dict(stage.holds), plan.collapsed))
        left += width
    wires += [Wire(left, left + TAIL, row.y, _kind(_at(plan, states[-1], row))) for row in plan.rows]
    return Band(left + TAIL, plan.bottom + FOOT, plan.rows, tuple(columns), tuple(wires), tuple(boxes), tuple(lanes))


def _at(plan: _RowPlan, states: dict[str, BlockState], row: BoardRow) -> list[BlockState]:
    return [state for block, state in states.items() if plan.row_of.get(block) is row]


def _kind(states: Sequence[BlockState]) -> str:
    return Counter(state.kind for state in states).most_common(1)[0][0] if states else "undefined"


def _box(x: float, row: BoardRow, states: Sequence[BlockState], sums: dict[str, str], collapsed: bool) -> BoardBox:
    kind = _kind(states)
    if collapsed:
        many = "s" * (len(states) > 1 and kind in ("sum", "product"))
        return BoardBox(x, row.y, kind, f"{len(states)} {kind}{many}", " ; ".join(f"{s.block} = {s.value}" for s in states[:12]))
    state = states[0]
    value = f"{state.block} = {state.value}" if state.value else state.kind
    return BoardBox(x, row.y, kind, _short(state, sums.get(state.block, "")), value)


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


def _lanes(stage: StageLine, plan: _RowPlan, left: float) -> list[Lane]:
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
        ends = min(m.y for m in marks), max(m.y for m in marks)
        lanes.append(Lane(shortened(product.name, 4), x, *ends, marks, f"{product.name}: {readable(step)}"))
    return lanes


def _marks(product: StageProduct, plan: _RowPlan) -> tuple[Mark, ...]:
    operands = [Mark(plan.row_of[block].y, "") for block in product.operands]
    return (*operands, *(Mark(plan.row_of[block].y, "−" if c.startswith("-") else "+") for block, c in product.targets))


MOST_TEXT = 120_000  # The most characters of steps and contents on a page; what is longer is not played.
MOST_LISTED = 400_000  # The most characters of steps without contents; of more, each stage's first ones.
FIRST = 12
ACROSS = 8  # The most temporaries side by side.


@dataclass(frozen=True)
class PlayCell:
    """What a block holds before the first stage, or after one: its number among all blocks, the kind of its state, its value as text."""

    number: int
    block: str
    kind: str
    value: str


@dataclass(frozen=True)
class Board:
    """A matrix, or all temporaries, as rows of blocks."""

    name: str
    rows: tuple[tuple[PlayCell, ...], ...]


@dataclass(frozen=True)
class PlayStep:
    """A step as the language writes it; `meaning` is a product in original blocks, `changes` the results of a sum.

    `reads` and `writes` are numbers of blocks, `product` the name of the product, empty for a sum.
    """

    text: str
    product: str
    meaning: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    changes: tuple[PlayCell, ...] = ()


@dataclass(frozen=True)
class PlayStage:
    """A stage: its steps, which are simultaneous, and what several products together leave in a block."""

    number: int
    title: str
    kind: str
    steps: tuple[PlayStep, ...]
    changes: tuple[PlayCell, ...]

    @property
    def height(self) -> int:
        """The number of rows in the table."""
        return len(self.steps) + len(self.changes)


@dataclass(frozen=True)
class Play:
    """The boards and the stages; without boards the schedule is too long to be played, and `note` says so."""

    boards: tuple[Board, ...]
    stages: tuple[PlayStage, ...]
    note: str


def play(facts: ScheduleFacts) -> Play:
    """A schedule of any size: with boards and contents if the page can hold them, else with its steps alone."""
    numbers = {block: i for i, block in enumerate(block for space in facts.spaces for block in space.blocks)}
    before = {cell.block: cell.value for cell in _cells(facts.spaces, numbers)}
    stages = tuple(_stages(facts, numbers, before))
    texts = (text for stage in stages for step in stage.steps for text in (step.text, step.meaning))
    kept = (change.value for stage in stages for changes in (stage.changes, *(s.changes for s in stage.steps)) for change in changes)
    size = sum(map(len, chain(texts, kept)))
    if size <= MOST_TEXT and all(stage.states for stage in facts.stages):
        return Play(tuple(_boards(facts.spaces, numbers)), stages, "")
    listed = sum(len(step.text) for stage in stages for step in stage.steps)
    most = len(max((stage.steps for stage in stages), key=len, default=())) if listed <= MOST_LISTED else FIRST
    note = f"The contents of the blocks after {len(stages)} stages take {size} letters, too many to be played here"
    return Play((), tuple(_alone(stage, most) for stage in stages), f"{note}; the JSON report holds them.")


def _alone(stage: PlayStage, most: int) -> PlayStage:
    steps = tuple(PlayStep(step.text, step.product, "", (), ()) for step in stage.steps[:most])
    title = stage.title if len(stage.steps) <= most else f"{stage.title}: the first {most} of {len(stage.steps)} steps"
    return PlayStage(stage.number, title, stage.kind, steps, ())


def _cells(spaces: tuple[SpaceLine, ...], numbers: Mapping[str, int]) -> Iterator[PlayCell]:
    for space in spaces:
        given = space.name in ("A", "B", "C")
        for block in space.blocks:
            yield PlayCell(numbers[block], block, "original" if given else "undefined", block if given else "")


def _boards(spaces: tuple[SpaceLine, ...], numbers: Mapping[str, int]) -> Iterator[Board]:
    for space in spaces[:3]:
        yield Board(space.name, _rows(tuple(_cells((space,), numbers)), space.columns))
    own = tuple(_cells(spaces[3:], numbers))
    if own:
        yield Board("temporaries", _rows(own, min(ACROSS, len(own))))


def _rows(cells: tuple[PlayCell, ...], columns: int) -> tuple[tuple[PlayCell, ...], ...]:
    return tuple(cells[i : i + columns] for i in range(0, len(cells), columns))


def _stages(facts: ScheduleFacts, numbers: Mapping[str, int], before: dict[str, str]) -> Iterator[PlayStage]:
    for stage in facts.stages:
        after = {state.block: state for state in stage.states}
        held = dict(stage.holds)
        written = {block: None for move in stage.moves for block in move.writes}
        changes = {block: _change(numbers[block], after[block], held.get(block, "")) for block in written if block in after}
        steps = tuple(_steps(stage, numbers, before, changes))
        told = {change.block for step in steps for change in step.changes}
        rest = tuple(change for block, change in changes.items() if block not in told)
        yield PlayStage(stage.number, stage_title(stage.kind, stage.contended), stage.kind, steps, rest)
        before = {**before, **{block: change.value for block, change in changes.items()}}


def _steps(stage: StageLine, numbers: Mapping[str, int], before: Mapping[str, str], changes: Mapping[str, PlayCell]) -> Iterator[PlayStep]:
    names = [product.name for product in stage.products] or [""] * len(stage.moves)
    for name, move in zip(names, stage.moves, strict=True):
        values = (before[block] for block in move.reads[:2])
        factors = (f"({value})" if " " in value or value.startswith("−") else value or "undefined" for value in values)
        meaning = f"{name} = {' · '.join(factors)}" if name else ""
        own = tuple(changes[block] for block in move.writes if not name and block in changes)
        reads, writes = (tuple(dict.fromkeys(numbers[block] for block in blocks)) for blocks in (move.reads, move.writes))
        yield PlayStep(readable(move.text), name, meaning, reads, writes, own)


def _change(number: int, state: BlockState, told: str) -> PlayCell:
    """Products appear by name if their names are known, and long sums in full."""
    value = told if state.kind in ("product", "sum") and told else state.value
    return PlayCell(number, state.block, state.kind, readable(value))
