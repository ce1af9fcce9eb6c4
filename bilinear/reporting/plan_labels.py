"""Names next to the dots of a plan's picture: none covers anything, and each is nearer to its own dot than to another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

LETTER, LINE, GAP = 6.0, 14.0, 9.0
"""The width of a letter, the height of a line and the distance of a label from its point, in the units of the picture."""
FARTHEST = 14
"""The most lines between an important candidate's dot and its name."""
CLEARER = 5.0
"""How much farther than its own dot every other dot must be from a name that no line connects to it."""
RADIUS = 6.0
Point = tuple[float, float]
Box = tuple[float, float, float, float]
"""Left, top, right and bottom."""


@dataclass(frozen=True)
class Label:
    """A text next to its dot, anchored at its start, middle or end; a line connects them if the text stands away."""

    x: float
    y: float
    anchor: str
    text: str
    leader: Point | None = None

    @property
    def box(self) -> Box:
        """The estimated area of the label."""
        width = LETTER * len(self.text)
        left = self.x - width * {"start": 0.0, "middle": 0.5, "end": 1.0}[self.anchor]
        return left, self.y - LINE / 2, left + width, self.y + LINE / 2

    @property
    def end(self) -> Point:
        """Where the line from the dot meets the text."""
        return self.x + {"start": -2, "middle": 0, "end": 2}[self.anchor], self.y


@dataclass
class Labels:
    """The labels of a picture: `dots` are all dots, `taken` the areas that no label may cover, `frame` the area for labels."""

    dots: Sequence[Point]
    frame: Box
    taken: list[Box]
    placed: list[Label] = field(default_factory=list)

    def put(self, label: Label, covering: Sequence[Box] = ()) -> None:
        """Place a label as it is; later ones also avoid the areas that it is `covering`."""
        self.taken += [label.box, *covering]
        self.placed.append(label)

    def name(self, place: Point, text: str, important: bool) -> None:
        """Name a dot where there is room; important names may stand away, with a line to their dot. A name may find no place."""
        for label in _around(*place, text, FARTHEST if important else 1):
            if self._fits(label, place):
                self.put(label)
                return

    def _fits(self, label: Label, place: Point) -> bool:
        box = label.box
        inside = box[0] >= self.frame[0] and box[1] >= self.frame[1] and box[2] <= self.frame[2] and box[3] <= self.frame[3]
        if not inside or any(_meet(box, other) for other in self.taken) or any(_cross(other, box) for other in self.placed):
            return False
        others = [dot for dot in self.dots if dot != place]
        if label.leader is None:
            own = _distance(box, place)
            return all(_distance(box, dot) >= own + CLEARER for dot in others)
        return self._is_clear(label, others)

    def _is_clear(self, label: Label, others: Sequence[Point]) -> bool:
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


def _spot(point: Point) -> Box:
    return point[0] - RADIUS, point[1] - RADIUS, point[0] + RADIUS, point[1] + RADIUS


def _meet(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _distance(box: Box, point: Point) -> float:
    """From a point to the nearest point of a box."""
    return math.hypot(max(box[0] - point[0], 0.0, point[0] - box[2]), max(box[1] - point[1], 0.0, point[1] - box[3]))


def _cross(label: Label, box: Box) -> bool:
    """True if the label's line runs through the box."""
    if label.leader is None:
        return False
    left, top, right, bottom = box
    corners = ((left, top), (right, top), (right, bottom), (left, bottom))
    line = (label.leader, label.end)
    inside = any(left <= x <= right and top <= y <= bottom for x, y in line)
    return inside or any(_lines_meet(line, (corners[i - 1], corners[i])) for i in range(4))


def _lines_meet(one: tuple[Point, Point], other: tuple[Point, Point]) -> bool:
    return _side(one, other[0]) * _side(one, other[1]) < 0 and _side(other, one[0]) * _side(other, one[1]) < 0


def _side(line: tuple[Point, Point], point: Point) -> float:
    """On which side of a line a point lies."""
    (x, y), (u, v) = line
    return (u - x) * (point[1] - y) - (v - y) * (point[0] - x)
