"""A plan: a lowered schedule fitted to one problem."""

from __future__ import annotations

from dataclasses import dataclass

from bilinear.ir.schedule import Schedule
from bilinear.ir.tile import SMALL, USUAL, beside

MOST_EXTENT = 2**31 - 1
"""Of a matrix that is planned for, or made."""
MOST_LEVELS = 20
"""No schedule has more: twenty levels of two products each would be a million."""
INPUTS = ("preserve", "restore", "consume")
"""What a multiply may do to A and B: never write them, write them and bring them back, or leave them undefined."""


@dataclass(frozen=True)
class Slot:
    """A workspace space inside the one buffer: its first element, its extents, and the distance between its rows (or columns)."""

    space: str
    offset: int
    rows: int
    columns: int
    leading: int


@dataclass(frozen=True)
class Strip:
    """A thin plain product left over by peeling: C[rows, columns] = alpha * A[rows, inner] * B[inner, columns] + beta * C[rows, columns].

    Ranges are half-open (start, stop) in elements. Strips run before the core, while A and B are still the caller's.
    """

    rows: tuple[int, int]
    inner: tuple[int, int]
    columns: tuple[int, int]

    def tile(self, dtype: str, core: str) -> str:
        """The tile that it runs in, beside a core in this one: few rows or columns fill a small one, the rest of the sum has as many."""
        return beside(dtype, core, USUAL if self.inner[0] else SMALL)


@dataclass(frozen=True)
class Plan:
    """How one multiply of m x k by k x n runs: `core` is the part the schedule takes, `strips` the rest.

    `column_major` names the operands whose columns are contiguous; their workspaces follow them. `tile` is the name of the
    tile that the core's products run in on a GPU.

    A plan may be for the first rows of a result alone (its first columns, where C lies by columns). Then `rest` computes the others
    afterwards, m and n are the extents of what is computed first, and its workspaces lie in what `rest` will overwrite.
    """

    schedule: Schedule
    m: int
    k: int
    n: int
    core: tuple[int, int, int]
    strips: tuple[Strip, ...]
    slots: tuple[Slot, ...]
    workspace_elements: int
    column_major: frozenset[str] = frozenset()
    tile: str = USUAL
    rest: Plan | None = None

    @property
    def chain(self) -> tuple[Plan, ...]:
        """The plan and those of the rest, in the order in which they run."""
        return (self,) if self.rest is None else (self, *self.rest.chain)

    @property
    def allocated_elements(self) -> int:
        """Elements of the buffer that is allocated: only the last plan of a chain has no rest to lay its workspaces in."""
        return self.chain[-1].workspace_elements

    @property
    def overwrites(self) -> bool:
        """Whether C cannot be added to: a schedule overwrites it, or it holds workspaces."""
        return self.rest is not None or self.schedule.overwrites

    @property
    def core_is_begun(self) -> bool:
        """Whether a strip has already written the core of C, with beta, so that the core only adds."""
        return 0 < self.core[1] < self.k

    @property
    def block(self) -> tuple[int, int, int]:
        """Extents (bm, bk, bn) of the finest blocks."""
        s = self.schedule
        return self.core[0] // s.m, self.core[1] // s.k, self.core[2] // s.n
