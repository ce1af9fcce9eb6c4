"""Places: what holds one value after another without a gap, before it is known where it lies.

The places in C become blocks of C. The others become memories, as many as are alive at once, each seen as one workspace for every shape
that it holds. Places are intervals of time, so that as few will do as are alive at once; results, which all are alive in the end, have
blocks of their own in any case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bilinear.ir.schedule import Block, LinearStage, Space, Stage
from bilinear.lowering.layout import stage_uses

PLACE = "?"
"""The space of places."""

LETTERS = {"A": "X", "B": "Y", "C": "P"}
"""How workspaces are named, by their shape."""


@dataclass
class Places:
    """The shape of each place (the operand whose blocks are as large), and whether it lies in C. Places are numbered by their rows."""

    shapes: list[str] = field(default_factory=list)
    inside: list[bool] = field(default_factory=list)

    def new(self, shape: str, inside: bool = False) -> Block:
        """One more place."""
        self.shapes.append(shape)
        self.inside.append(inside)
        return Block(PLACE, len(self.shapes) - 1, 0)

    def is_beside(self, place: Block) -> bool:
        """Whether a place lies beside C."""
        return not self.inside[place.row]


def merged(stages: Sequence[Stage], places: Places) -> tuple[Stage, ...]:
    """Sums of factors in one stage with the sums of products before them, where that costs no memory."""

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
    """How many places beside C are alive at once, at most."""
    alive = [span for place, span in _spans(stages).items() if places.is_beside(place)]
    return max((sum(first // 2 <= number <= last // 2 for first, last in alive) for number in range(len(stages))), default=0)


def _spans(stages: Sequence[Stage]) -> dict[Block, tuple[int, int]]:
    """For each place its first and its last use, in half stages: a stage reads, and then writes."""
    spans: dict[Block, tuple[int, int]] = {}
    for number, stage in enumerate(stages):
        for half, blocks in enumerate(stage_uses(stage, {PLACE})):
            for block in blocks:
                first, last = spans.get(block, (2 * number + half, 0))
                spans[block] = min(first, 2 * number + half), max(last, 2 * number + half)
    return spans


def blocks_of_c(stages: Sequence[Stage], places: Places, final: Mapping[Block, Block]) -> dict[Block, Block]:
    """A block of C for each place in C; what stands there in the end stands where it should."""
    spans = {place: span for place, span in _spans(stages).items() if not places.is_beside(place)}
    spans |= {place: (spans[place][0], 2 * len(stages)) for place in final}
    columns = _columns(spans, {})
    blocks = {columns[place]: block for place, block in final.items()}
    return {place: blocks[column] for place, column in columns.items()}


def workspaces_of(stages: Sequence[Stage], places: Places) -> tuple[dict[Block, Block], tuple[Space, ...]]:
    """A workspace of one block for each place beside C: one for every shape that a memory holds at some time."""
    spans = {place: (first // 2, last // 2) for place, (first, last) in _spans(stages).items() if places.is_beside(place)}
    columns = _columns(spans, {place: places.shapes[place.row] for place in spans})
    kinds = sorted({(places.shapes[place.row], column) for place, column in columns.items()})
    many = {shape for shape, _ in kinds if sum(shape == other for other, _ in kinds) > 1}
    numbers = {kind: sum(other[0] == kind[0] for other in kinds[:i]) for i, kind in enumerate(kinds)}
    names = {kind: LETTERS[kind[0]] + (_letters(numbers[kind]) if kind[0] in many else "") for kind in kinds}
    blocks = {place: Block(names[places.shapes[place.row], column], 0, 0) for place, column in columns.items()}
    return blocks, tuple(Space(names[kind], kind[0], 1, 1) for kind in kinds)


def _letters(number: int) -> str:
    """a, b, ..., z, aa, ...: nested levels append digits to the names of workspaces."""
    return (_letters(number // 26 - 1) if number >= 26 else "") + chr(ord("a") + number % 26)


def _columns(spans: Mapping[Block, tuple[int, int]], kinds: Mapping[Block, str]) -> dict[Block, int]:
    """Numbers such that places that are alive at once have different ones: as few as possible, and where there is a choice of one kind."""
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
