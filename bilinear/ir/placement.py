"""A placement: a lowered schedule fitted to one problem."""

from __future__ import annotations

from dataclasses import dataclass

from bilinear.ir.schedule import Schedule
from bilinear.ir.tile import SMALL, USUAL, beside

MOST_EXTENT = 2**31 - 1  # The largest extent of a matrix that is planned for or created.
MOST_WORKSPACE = 2**80  # Bytes: more than any workspace, even for the largest extents.
MOST_LEVELS = 20  # The most levels of a schedule, even of a scheme with one product.
MOST_PRODUCTS = 17_000  # The most products of a schedule; to prove 16,807 (five levels) takes 6 s.
LEVELS_ALLOWED = f"a schedule has at most {MOST_LEVELS} levels, and at most {MOST_PRODUCTS:,} products in all"
"""What every refusal of a number of levels says."""
INPUTS = ("preserve", "restore", "consume")  # A and B: not written, restored, left undefined.
STAGE, ITEMS, GROUPS, ALIKE, KERNELS = "stage", "S-M-T", "S-T-M", "S-M-M", "M-M-M"
MODES = (STAGE, ITEMS, GROUPS, ALIKE, KERNELS)
"""How the stages of a schedule are launched (docs/modes.md): each as a whole, which is the default, or cut into tasks that the warps of a
block, the blocks of a kernel, the turns of a thread, or several kernels share."""
COLOURS, ATOMICS = "colours", "atomics"
CONTENTION = (COLOURS, ATOMICS)
"""How products of a stage that add to one block of C run: in groups without such pairs, one after the other, so that every sum has one
order; or all at once, by atomic additions, so that sums of rounded numbers differ from call to call."""
AGAIN = (ITEMS, GROUPS, KERNELS)  # The modes in which every task reads its blocks again.


@dataclass(frozen=True)
class Slot:
    """Where a workspace lies in the shared buffer: its first element, its extents, and the distance between its rows (or columns)."""

    space: str
    offset: int
    rows: int
    columns: int
    leading: int


@dataclass(frozen=True)
class Strip:
    """A thin plain product left over by peeling: C[rows, columns] = alpha * A[rows, inner] * B[inner, columns] + beta * C[rows, columns].

    Ranges are half-open (start, stop) in elements. Strips run before the core, while A and B still hold the caller's values.
    """

    rows: tuple[int, int]
    inner: tuple[int, int]
    columns: tuple[int, int]

    def tile(self, dtype: str, core: str) -> str:
        """The strip's tile, on the same unit as the core's: the usual size for the rest of K, a small one for few rows or columns."""
        return beside(dtype, core, USUAL if self.inner[0] else SMALL)


@dataclass(frozen=True)
class Placement:
    """How one multiply of m x k by k x n runs: the schedule computes the `core`, plain products compute the `strips`.

    `column_major` names the operands whose columns are contiguous; their workspaces have the same layout. `tile` names the tile of the
    core's products on a GPU, and `mode` says how the core's stages are launched there.

    A placement may compute only the first rows of a result (its first columns if C is column-major). Then `rest` computes the others
    afterwards, m and n are the extents of the first part, and its workspaces lie in the part of C that `rest` will overwrite.

    Workspaces in `given` are filled before the call. They lie in another buffer, of `given_elements`.
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
    rest: Placement | None = None
    mode: str = STAGE
    given: tuple[Slot, ...] = ()
    given_elements: int = 0

    @property
    def chain(self) -> tuple[Placement, ...]:
        """This placement and its rests, in the order in which they run."""
        return (self,) if self.rest is None else (self, *self.rest.chain)

    @property
    def allocated_elements(self) -> int:
        """Elements of the buffer to allocate: that of the last placement in the chain, because the others borrow memory from C."""
        return self.chain[-1].workspace_elements

    @property
    def overwrites(self) -> bool:
        """True if the placement cannot accumulate into C (so beta must be 0)."""
        return self.rest is not None or self.schedule.overwrites

    @property
    def core_is_begun(self) -> bool:
        """True if a strip has already written the core of C, with beta, so that the core only adds."""
        return 0 < self.core[1] < self.k

    @property
    def block(self) -> tuple[int, int, int]:
        """Extents (bm, bk, bn) of the finest blocks."""
        s = self.schedule
        return self.core[0] // s.m, self.core[1] // s.k, self.core[2] // s.n
