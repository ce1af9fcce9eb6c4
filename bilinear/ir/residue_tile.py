"""Tiles of products of residues: how a block of threads multiplies modulo one p. Every plan imports it, so it needs no schemes."""

from __future__ import annotations

from dataclasses import dataclass, field

from bilinear.ir.element import FLOAT32, FLOAT64, Element

PANEL, SLICE = 128, 128
"""Lines and terms of residues that are neighbours in memory."""
MOST_BLOCKS = 64
"""The most blocks of a matrix whose sums are cut into digits or residues in one pass over memory."""
LONGEST_SUM = 131_072
"""Products of residues are added up in int32 for at most this many terms."""


@dataclass(frozen=True)
class ModularTile:
    """An m x n tile of a product modulo one of `count` numbers, in slices of depth k; `stages` slices are in flight.

    `consumers` warpgroups multiply, one more copies. `cluster` blocks of threads share the slices of B. Sums in int32 are reduced every
    `chunk` terms. Blocks run in bands of `band` tiles of rows.
    """

    count: int
    m: int = 128
    n: int = 256
    k: int = SLICE
    stages: int = 4
    consumers: int = 2
    cluster: int = 2
    chunk: int = LONGEST_SUM
    band: int = 16
    registers: int = 224

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 128 * (self.consumers + 1)

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block of threads: the stages, the results, and padding that aligns them to 1024 bytes."""
        return self.stages * (self.m + self.n) * self.k + self.m * self.n + 1024

    @property
    def slice_bytes(self) -> int:
        """Bytes of a panel's slice, modulo each p."""
        return PANEL * SLICE * self.count


@dataclass(frozen=True)
class ResidueTile(ModularTile):
    """A tile of products of residues of floats, of the type `of`; `gaussian` ones are of complex numbers, by two products."""

    of: Element = field(kw_only=True)
    gaussian: bool = field(default=False, kw_only=True)

    @property
    def name(self) -> str:
        """The name of its residues."""
        return f"{'gaussian' if self.gaussian else 'residues'}{self.count}"


RESIDUE_TILES = {
    tile.name: tile
    for of, gaussian, counts in (
        (FLOAT32, False, (7, 8, 9)),
        (FLOAT64, False, (13, 14, 15, 16, 17)),
        (FLOAT32, True, (7, 8, 9)),
        (FLOAT64, True, (14, 15, 16, 17)),
    )
    for tile in (ResidueTile(count, of=of, gaussian=gaussian) for count in counts)
}
"""The tiles of products of residues, by name."""

RESIDUES = "residues"
"""The name of the residues with the fewest moduli that keep the accuracy."""
