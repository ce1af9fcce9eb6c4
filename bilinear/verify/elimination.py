"""Exact elimination on sparse rows that record how they were combined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from bilinear.analysis.block_maps import components, restrict
from bilinear.ir.linear import LinearMap, form
from bilinear.ir.number import Coefficient, Symbolic
from bilinear.ir.ring import RATIONALS, Ring
from bilinear.ir.schedule import BlockMap, LinearStage
from bilinear.verify.rings import Number

if TYPE_CHECKING:
    from _typeshed import SupportsRichComparison


Column = TypeVar("Column")
Key = TypeVar("Key")


@dataclass
class CombinedRow(Generic[Column]):
    """A vector as column to coefficient, and the combination of the given rows (`made_of`) that produced it."""

    entries: dict[Column, Number]
    made_of: dict[str, Number] = field(default_factory=dict)

    def minus(self, factor: Number, other: CombinedRow[Column]) -> None:
        """Subtract a multiple of another row."""
        _subtract(self.entries, factor, other.entries)
        _subtract(self.made_of, factor, other.made_of)


def _subtract(mine: dict[Key, Number], factor: Number, theirs: dict[Key, Number]) -> None:
    for key, value in theirs.items():
        left = mine[key] - factor * value if key in mine else -(factor * value)
        if left:
            mine[key] = left
        else:
            mine.pop(key, None)


def reduced(rows: Iterable[CombinedRow[Column]], order: Callable[[Column], SupportsRichComparison]) -> dict[Column, CombinedRow[Column]]:
    """The reduced echelon form, by pivot; a row's pivot is its first column in this order."""
    pivots: dict[Column, CombinedRow[Column]] = {}
    for given in rows:
        row = CombinedRow(dict(given.entries), dict(given.made_of))
        for column in [column for column in row.entries if column in pivots]:
            row.minus(row.entries[column], pivots[column])
        if not row.entries:
            continue
        pivot = min(row.entries, key=order)
        scale = row.entries[pivot]
        row = CombinedRow({c: v / scale for c, v in row.entries.items()}, {t: v / scale for t, v in row.made_of.items()})
        for other in pivots.values():
            if pivot in other.entries:
                other.minus(other.entries[pivot], row)
        pivots[pivot] = row
    return pivots


def kernel(rows: Iterable[CombinedRow[Column]], columns: Sequence[Column], one: Number) -> list[dict[Column, Number]]:
    """A basis of the kernel of these rows, one vector for each free column, in order."""
    place = {column: i for i, column in enumerate(columns)}
    pivots = reduced(rows, lambda column: place[column])
    basis = []
    for free in columns:
        if free in pivots:
            continue
        vector = {pivot: -row.entries[free] for pivot, row in pivots.items() if free in row.entries}
        basis.append(vector | {free: one})
    return basis


OPERANDS = ("A", "B")


def invert_stage(stage: LinearStage) -> LinearStage:
    """The stage that undoes a linear stage's effect on A and B: the inverse of its matrix on their blocks, part by part.

    The stage's writes to C and workspaces are kept; if it writes nothing else, the inverse has no maps. Raises `ArithmeticError` if a block
    of A or B becomes a sum with blocks of C or a workspace, whose old values are gone, and `ZeroDivisionError` if the matrix is singular.
    Neither occurs for an in-place schedule without workspaces that is proved to restore.
    """
    return LinearStage(tuple(_inverse(part) for block_map in stage.maps for part in _on_operands(block_map)), restores=True)


def _on_operands(block_map: BlockMap) -> tuple[BlockMap, ...]:
    """The independent parts of a map's effect on A and B."""
    targets = {target for target in block_map.targets if target.space in OPERANDS}
    if not targets:
        return ()
    own = restrict(block_map, targets)
    foreign = next((source for source in own.sources if source.space not in OPERANDS), None)
    if foreign is not None:
        raise ArithmeticError(f"the stage writes A or B from {foreign}, which has no inverse on A and B alone")
    return components(own)


def _inverse(part: BlockMap) -> BlockMap:
    from bilinear.algebra.change_basis import inverse  # only an interrupted run needs it

    blocks = tuple(dict.fromkeys(part.sources + part.targets))
    place = {block: i for i, block in enumerate(blocks)}
    matrix: list[list[Coefficient]] = [[int(i == j) for j in range(len(blocks))] for i in range(len(blocks))]
    for target, row in zip(part.targets, part.map.matrix, strict=True):
        terms = {place[part.sources[i]]: c for i, c in row}
        matrix[place[target]] = [terms.get(j, 0) for j in range(len(blocks))]
    roots = {name for row in part.map.matrix for _, c in row if isinstance(c, Symbolic) for name in c.generators}
    back = inverse(matrix, Ring(f"Q[{min(roots)}]") if roots else RATIONALS)
    return BlockMap(blocks, part.targets, LinearMap(len(blocks), tuple(form(enumerate(back[place[target]])) for target in part.targets)))
