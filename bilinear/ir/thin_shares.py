"""Equal shares of the slices of all tiles of a thin product, one for each block of threads, wherever a tile begins or ends."""

from __future__ import annotations

from math import ceil


def parts_of_shares(tiles: int, slices: int, share: int) -> int:
    """In how many shares of so many slices a tile may lie at most, where each tile has `slices` of them."""
    return min(max(0, slices - 2) // share + 2 - (slices == 1), ceil(tiles * slices / share))


def share_of(tiles: int, slices: int, parts: int, blocks: int) -> int:
    """The least slices of a share so that there are at most so many blocks, and no tile lies in more than `parts` of them, at least two."""
    even = ceil(tiles * slices / blocks)
    return even if parts_of_shares(tiles, slices, even) <= parts else max(even, max(0, slices - 2) // (parts - 1) + 1)
