"""A matrix over a mesh of ranks, as PyTorch's DTensor lays it: what each rank holds, and which placements a product has."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import product

from bilinear.distributed.spread import Rect, Run, Spread, run


class MeshPlacement(Enum):
    """How a matrix lies along one dimension of a mesh; the values are what PyTorch prints."""

    ROWS = "Shard(0)"
    COLUMNS = "Shard(1)"
    COPIES = "Replicate()"
    SUMMANDS = "Partial(sum)"


MeshPlacements = tuple[MeshPlacement, ...]
"""One placement for each dimension of a mesh; the first one cuts the matrix, the next one what that leaves."""


@dataclass(frozen=True)
class Mesh:
    """Ranks in a grid of any number of dimensions: `ranks` lists them with the last coordinate running fastest."""

    shape: tuple[int, ...]
    ranks: tuple[int, ...]

    @cached_property
    def places(self) -> dict[int, tuple[int, ...]]:
        """The coordinates of each rank."""
        return dict(zip(self.ranks, product(*map(range, self.shape)), strict=True))

    def beside(self, rank: int, dimensions: Collection[int]) -> tuple[int, ...]:
        """The ranks, in ascending order, whose coordinates differ from a rank's in these dimensions at most: the rank is one."""
        own = self.places[rank]
        found = (other for other, place in self.places.items() if _agree(own, place, dimensions))
        return tuple(sorted(found))


def _agree(left: tuple[int, ...], right: tuple[int, ...], but: Collection[int]) -> bool:
    return all(x == y for at, (x, y) in enumerate(zip(left, right, strict=True)) if at not in but)


def held(mesh: Mesh, placements: MeshPlacements, rows: int, columns: int) -> Spread:
    """What each rank holds of a matrix: chunks of ceil(length / ranks) rows or columns, the last ones shorter or empty."""
    return tuple(_held(mesh, mesh.places[rank], placements, (0, rows), (0, columns)) for rank in range(len(mesh.ranks)))


def _held(mesh: Mesh, place: tuple[int, ...], placements: MeshPlacements, rows: Run, columns: Run) -> Rect:
    for placement, ranks, at in zip(placements, mesh.shape, place, strict=True):
        if placement is MeshPlacement.ROWS:
            rows = chunk(rows, ranks, at)
        elif placement is MeshPlacement.COLUMNS:
            columns = chunk(columns, ranks, at)
    return Rect(run(*rows), run(*columns))


def shared(mesh: Mesh, placements: MeshPlacements, spread: Spread, kind: MeshPlacement, by: MeshPlacement) -> Spread:
    """What each rank has of a spread if those that hold the same part, by placements of this kind, cut it up by rows or columns."""
    cut = tuple(by if placement is kind else MeshPlacement.COPIES for placement in placements)
    found = []
    for rank, part in enumerate(spread):
        (rows,), (columns,) = part.rows or ((0, 0),), part.columns or ((0, 0),)
        found.append(_held(mesh, mesh.places[rank], cut, rows, columns))
    return tuple(found)


def chunk(whole: Run, parts: int, at: int) -> Run:
    """One of the parts of `torch.chunk`, which may be empty."""
    start, stop = whole
    size = -(-(stop - start) // parts)
    return min(start + at * size, stop), min(start + (at + 1) * size, stop)


def of_product(a: MeshPlacements, b: MeshPlacements) -> MeshPlacements:
    """The placements of A B, dimension by dimension of the mesh (docs/distributed.md has the table).

    If some placements need no messages, they are these, as for PyTorch's own multiply; otherwise C is cut as A or B is.
    """
    return tuple(map(_of_product, a, b))


def _of_product(a: MeshPlacement, b: MeshPlacement) -> MeshPlacement:
    if a in (MeshPlacement.ROWS, MeshPlacement.SUMMANDS):
        return MeshPlacement.ROWS
    if b in (MeshPlacement.COLUMNS, MeshPlacement.SUMMANDS):
        return MeshPlacement.COLUMNS
    return MeshPlacement.COPIES if a is b else MeshPlacement.SUMMANDS
