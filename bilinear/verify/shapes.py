"""The block sizes that a schedule requires: extents must be equal if a block holds a value of another operand's shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bilinear.ir.schedule import AnySchedule, Block
from bilinear.verify.facts import ShapeConditions
from bilinear.verify.symbols import Value, Word

EXTENTS = {"A": ("M", "K"), "B": ("K", "N"), "C": ("M", "N")}
WORDS = {"A": "a form over A", "B": "a form over B", "C": "a block of C's size"}


def shape_conditions(schedule: AnySchedule, history: Sequence[Mapping[Block, Value]]) -> ShapeConditions:
    """The conditions on M x K times K x N, from the states after each stage.

    A form over A has the shape of A's blocks, and so on; a product has that of C's. A temporary without a declared shape is as large as its
    contents require, but all values summed in it must have one shape.
    """
    equal: dict[str, str] = {extent: extent for extent in "MKN"}
    reasons: list[str] = []
    holds: dict[str, set[str]] = {}
    own = {space.name: space.shape for space in schedule.spaces}
    for number, block, held in _held(history):
        shapes = held | ({own[block.space]} if own[block.space] else set())
        if not own[block.space]:
            holds.setdefault(block.space, set()).update(held)
        if _unify(equal, shapes):
            what = " and ".join(WORDS[s] for s in sorted(shapes) if s != own[block.space])
            reasons.append(f"stage {number} leaves {what} in {block}")
    temporaries = tuple(f"{name} holds blocks as large as those of {' and '.join(sorted(shapes))}" for name, shapes in holds.items())
    return ShapeConditions(_statement(schedule, equal), tuple(reasons), temporaries)


def _held(history: Sequence[Mapping[Block, Value]]) -> Iterator[tuple[int, Block, set[str]]]:
    before: Mapping[Block, Value] = {}
    for number, state in enumerate(history, 1):
        for block, value in state.items():
            if value is not before.get(block) and (shapes := {_shape(word) for word in value}):
                yield number, block, shapes
        before = state


def _shape(word: Word) -> str:
    if word[4] or (word[2] and word[3]):
        return "C"
    return "A" if word[2] else "B"


def _unify(equal: dict[str, str], shapes: set[str]) -> bool:
    """Require these shapes to be equal; returns whether that is a new condition."""
    first, *rest = sorted(shapes)
    changed = False
    for other in rest:
        for x, y in zip(EXTENTS[first], EXTENTS[other], strict=True):
            low, high = sorted((equal[x], equal[y]), key="MKN".index)
            if low != high:
                changed = True
                equal.update({extent: low for extent, root in equal.items() if root == high})
    return changed


def _statement(schedule: AnySchedule, equal: Mapping[str, str]) -> str:
    sizes = {"M": schedule.m, "K": schedule.k, "N": schedule.n}
    groups = [[extent for extent in "MKN" if equal[extent] == root] for root in "MKN"]
    (joined,) = [group for group in groups if len(group) > 1] or [[]]
    if not joined:
        return ""
    same = len({sizes[extent] for extent in joined}) == 1
    text = " = ".join(extent if same or sizes[extent] == 1 else f"{extent}/{sizes[extent]}" for extent in joined)
    return f"square problems only: {text}" if len(joined) == 3 and same else f"only problems with {text}"
