"""Places: storage for a sequence of values in turn, before its memory is assigned.

Places in C become blocks of C. The others become memories, as many as are alive at once; each memory is one workspace for every shape that
it holds. A place is an interval of time, so interval colouring gives the fewest memories. Results are all alive at the end, so each has its
own block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bilinear.ir.schedule import Block, LinearStage, Space, Stage
from bilinear.lowering.layout import stage_uses

PLACE = "?"
"""The space of places."""

LETTERS = {"A": "X", "B": "Y", "C": "P"}
"""The first letter of a workspace's name, by its shape."""


@dataclass
class Places:
    """The shape of each place (the operand whose blocks have its size), and whether it lies in C. Places are numbered by their rows."""

    shapes: list[str] = field(default_factory=list)
    inside: list[bool] = field(default_factory=list)

    def new(self, shape: str, inside: bool = False) -> Block:
        """A new place."""
        self.shapes.append(shape)
        self.inside.append(inside)
        return Block(PLACE, len(self.shapes) - 1, 0)

    def is_beside(self, place: Block) -> bool:
        """True if the place lies outside C."""
        return not self.inside[place.row]


def merged(stages: Sequence[Stage], places: Places) -> tuple[Stage, ...]:
    """Merge the stage that sums factors into the preceding stage that sums products, if that costs no memory."""

    def shapes(stage: LinearStage) -> set[str]:
        return {places.shapes[m.targets[0].row] for m in stage.maps}

    together = tuple(stages)
    most = peak(together, places)
    for number in reversed(range(1, len(stages))):
        first, second = together[number - 1 : number + 1]
        if isinstance(first, LinearStage) and isinstance(second, LinearStage) and not shapes(first) & shapes(second):
            both = (*together[: number - 1], LinearStage(first.maps + second.maps), *together[number + 1 :])
            together = both if peak(both, places) <= most else together
    return together


def peak(stages: Sequence[Stage], places: Places) -> int:
    """The most places outside C that are alive at once."""
    alive = [span for place, span in _spans(stages).items() if places.is_beside(place)]
    return max((sum(first // 2 <= number <= last // 2 for first, last in alive) for number in range(len(stages))), default=0)


def _spans(stages: Sequence[Stage]) -> dict[Block, tuple[int, int]]:
    """The first and last use of each place, in half stages: a stage reads first and writes second."""
    spans: dict[Block, tuple[int, int]] = {}
    for number, stage in enumerate(stages):
        for half, blocks in enumerate(stage_uses(stage, {PLACE})):
            for block in blocks:
                first, last = spans.get(block, (2 * number + half, 0))
                spans[block] = min(first, 2 * number + half), max(last, 2 * number + half)
    return spans


def blocks_of_c(stages: Sequence[Stage], places: Places, final: Mapping[Block, Block]) -> dict[Block, Block]:
    """A block of C for each place in C; a place that holds a result at the end gets that result's block."""
    spans = {place: span for place, span in _spans(stages).items() if not places.is_beside(place)}
    spans |= {place: (spans[place][0], 2 * len(stages)) for place in final}
    columns = _columns(spans, {})
    blocks = {columns[place]: block for place, block in final.items()}
    return {place: blocks[column] for place, column in columns.items()}


def workspaces_of(stages: Sequence[Stage], places: Places) -> tuple[dict[Block, Block], tuple[Space, ...]]:
    """A workspace of one block for each place outside C; a memory is one workspace for every shape that it holds."""
    spans = {place: (first // 2, last // 2) for place, (first, last) in _spans(stages).items() if places.is_beside(place)}
    columns = _columns(spans, {place: places.shapes[place.row] for place in spans})
    kinds = sorted({(places.shapes[place.row], column) for place, column in columns.items()})
    many = {shape for shape, _ in kinds if sum(shape == other for other, _ in kinds) > 1}
    numbers = {kind: sum(other[0] == kind[0] for other in kinds[:i]) for i, kind in enumerate(kinds)}
    names = {kind: LETTERS[kind[0]] + (_letters(numbers[kind]) if kind[0] in many else "") for kind in kinds}
    blocks = {place: Block(names[places.shapes[place.row], column], 0, 0) for place, column in columns.items()}
    return blocks, tuple(Space(names[kind], kind[0], 1, 1) for kind in kinds)


def _letters(number: int) -> str:
    """a, b, ..., z, aa, ...: letters, because nested levels append digits to workspace names."""
    return (_letters(number // 26 - 1) if number >= 26 else "") + chr(ord("a") + number % 26)


def _columns(spans: Mapping[Block, tuple[int, int]], kinds: Mapping[Block, str]) -> dict[Block, int]:
    """Number the places so that those alive at once differ, with as few numbers as possible.

    Places of one kind share a number if they can.
    """
    ends: list[int] = []
    held: list[set[str]] = []
    columns: dict[Block, int] = {}
    for place, (first, last) in sorted(spans.items(), key=lambda item: (item[1], item[0])):
        free = [i for i, end in enumerate(ends) if end < first]
        kind = kinds.get(place, "")
        column = next((i for i in free if kind in held[i]), free[0] if free else len(ends))
        if column == len(ends):
            ends.append(last)
            held.append(set())
        ends[column] = last
        held[column].add(kind)
        columns[place] = column
    return columns
