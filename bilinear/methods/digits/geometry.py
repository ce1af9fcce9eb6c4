"""Where everything lies in the workspace of a product of digits: blocks, panels, slices, and the parts of the workspace."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from bilinear.ir.tile import FLOAT_TILES, PANEL, RESIDUE_TILES, DigitTile, ModularTile, ResidueTile
from bilinear.planner.profiles import outline
from bilinear.planner.ways import Way

WORD = 4
"""Bytes of a word: a largest magnitude, an exponent, the flag, and a product in float32."""
CELL = 256
"""Bytes to whose multiples parts of the workspace are aligned."""
PITCH = 16
"""Bytes to whose multiples rows of products of residues are aligned."""


@dataclass(frozen=True)
class DigitGeometry:
    """Blocks, panels and workspace of a product of m x k by k x n by a scheme of `rank` products on a grid, in a tile.

    Extents of blocks are multiples of 4, so that four neighbours lie in one block. The blocks of a cluster have panels of A of their own,
    and a tile has whole panels of B. If it is one of several `blocks` of rows and of columns of C, there are words for the scales of all.
    """

    grid: tuple[int, int, int]
    rank: int
    extents: tuple[int, int, int]
    tile: DigitTile | ModularTile
    blocks: tuple[int, int] = (1, 1)

    @property
    def block(self) -> tuple[int, int, int]:
        """The extents (m, k, n) of a block; what lies outside of the operands is taken to be 0."""
        m, k, n = (ceil(ceil(extent / blocks) / 4) * 4 for extent, blocks in zip(self.extents, self.grid, strict=True))
        return m, k, n

    @property
    def panels(self) -> tuple[int, int]:
        """Panels of lines of a block of A and of B."""
        m, _, n = self.block
        return ceil(ceil(m / PANEL) / self.tile.cluster) * self.tile.cluster, ceil(n / self.tile.n) * (self.tile.n // PANEL)

    @property
    def slices(self) -> int:
        """Slices of terms of a block."""
        return ceil(self.block[1] / self.tile.k)

    @property
    def is_direct(self) -> bool:
        """Whether the only product is C."""
        return self.rank == 1 and isinstance(self.tile, DigitTile)

    @property
    def planes(self) -> int:
        """The products, each as often as there are moduli."""
        return self.rank * (1 if isinstance(self.tile, DigitTile) else self.tile.count)

    @property
    def tiles(self) -> int:
        """Tiles of all products, modulo each p."""
        return self.planes * prod(self.panels) * PANEL * PANEL // (self.tile.m * self.tile.n)

    @property
    def digit_bytes(self) -> tuple[int, int]:
        """Bytes of the digits of A and of B."""
        left, right = (self.rank * panels * self.slices * self.tile.slice_bytes for panels in self.panels)
        return left, right

    @property
    def pitch(self) -> int:
        """The distance from row to row of a product, in elements."""
        return self.block[2] if isinstance(self.tile, DigitTile) else ceil(self.block[2] / PITCH) * PITCH

    @property
    def product_bytes(self) -> int:
        """Bytes of the products: float32, or a byte modulo each p."""
        if self.is_direct:
            return 0
        return self.rank * self.block[0] * self.pitch * (WORD if isinstance(self.tile, DigitTile) else self.tile.count)

    @property
    def lines(self) -> tuple[int, int]:
        """Lines of A and B that have scales of their own: of a block if they are cut after sums were formed, else all of them."""
        m, _, n = self.block if isinstance(self.tile, DigitTile) else self.extents
        return m, n

    @property
    def words(self) -> int:
        """The number of words that give the scales of all lines, and of the flag."""
        (rows, columns), (down, across) = self.lines, self.blocks
        return down * rows + across * columns + 1

    @property
    def places(self) -> tuple[int, int, int, int, int]:
        """Where words, digits of A, digits of B and products begin in the workspace, and where it ends, in bytes."""
        ends = [0]
        for size in (self.words * WORD, *self.digit_bytes, self.product_bytes):
            ends.append(ends[-1] + ceil(size / CELL) * CELL)
        words, left, right, products, end = ends
        return words, left, right, products, end


COMPLEX_PRODUCTS, GAUSSIAN_PRODUCTS = 3, 2
"""Real products of a complex one, and products modulo each p."""


def geometry_of(levels: tuple[str, ...], extents: tuple[int, int, int], tile: str, is_complex: bool = False) -> DigitGeometry:
    """The geometry of levels of shipped algorithms; without levels, of the product itself.

    For complex matrices, of three real products, or of two modulo each p.
    """
    grids = [outline(Way((name,))) for name in levels]
    m, k, n = (prod(getattr(own.profile, extent) for own in grids) for extent in "mkn")
    found = RESIDUE_TILES.get(tile) or FLOAT_TILES[tile]
    times = 1
    if is_complex:
        times = GAUSSIAN_PRODUCTS if isinstance(found, ResidueTile) and found.gaussian else COMPLEX_PRODUCTS
    rank = prod(own.products for own in grids) * times
    return DigitGeometry((m, k, n), rank, extents, found)


def block_of(extent: int, cut: int) -> int:
    """The extent of the blocks of C if this many cover it: whole panels, and no block of a single row or column is left over."""
    block = ceil(ceil(extent / cut) / PANEL) * PANEL
    while block < extent and extent % block == 1:
        block += PANEL
    return min(block, extent)


def triangle_tiles(panels: int, cluster: int) -> int:
    """Tiles at and below the diagonal of a square of `panels` x `panels`, where clusters that cross it take whole rows of tiles."""
    rows = -(-panels // cluster)
    return cluster * cluster * (rows * (rows + 1) // 2)
