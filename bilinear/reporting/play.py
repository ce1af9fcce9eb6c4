"""A schedule to be played: the blocks as boards, and for every stage its steps and their results; a page shows and hides them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bilinear.reporting.coefficient_grid import readable
from bilinear.reporting.rows import stage_title
from bilinear.reporting.schedule_facts import ScheduleFacts, SpaceLine, StageLine
from bilinear.verify.facts import BlockState

MOST_TEXT = 120_000
"""The most characters of steps and contents on a page; a longer schedule is listed without contents, and cannot be played."""
MOST_LISTED = 400_000
"""The most characters of steps listed without contents; of a longer schedule the first steps of each stage are."""
FIRST = 12
ACROSS = 8
"""The most temporaries side by side."""


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
    size = sum(len(text) for stage in stages for text in _texts(stage))
    if size <= MOST_TEXT and all(stage.states for stage in facts.stages):
        return Play(tuple(_boards(facts.spaces, numbers)), stages, "")
    listed = sum(len(step.text) for stage in stages for step in stage.steps)
    most = len(max((stage.steps for stage in stages), key=len, default=())) if listed <= MOST_LISTED else FIRST
    note = f"The contents of the blocks after {len(stages)} stages take {size} letters, too many to be played here"
    return Play((), tuple(_alone(stage, most) for stage in stages), f"{note}; the JSON report holds them.")


def _texts(stage: PlayStage) -> Iterator[str]:
    for step in stage.steps:
        yield from (step.text, step.meaning, *(change.value for change in step.changes))
    yield from (change.value for change in stage.changes)


def _alone(stage: PlayStage, most: int) -> PlayStage:
    """A stage with its first steps, and nothing that they leave."""
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
        meaning = f"{name} = {' · '.join(_factor(before[block]) for block in move.reads[:2])}" if name else ""
        own = tuple(changes[block] for block in move.writes if not name and block in changes)
        reads, writes = (tuple(dict.fromkeys(numbers[block] for block in blocks)) for blocks in (move.reads, move.writes))
        yield PlayStep(readable(move.text), name, meaning, reads, writes, own)


def _factor(value: str) -> str:
    return f"({value})" if " " in value or value.startswith("−") else value or "undefined"


def _change(number: int, state: BlockState, told: str) -> PlayCell:
    """Products appear by name if their names are known, and long sums in full."""
    value = told if state.kind in ("product", "sum") and told else state.value
    return PlayCell(number, state.block, state.kind, readable(value))
