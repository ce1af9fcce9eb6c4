"""The order of tiles without matrices, for extents beyond any memory, compared with Python's integers."""

from __future__ import annotations

import numpy as np
import pytest
from codegen.emulated import c_types

from bilinear.backends.bound_launches import MOST_BLOCKS, MOST_DEPTH, grid_blocks
from bilinear.codegen.lower import schedule_to_launches
from bilinear.codegen.render import render
from bilinear.emulator import compile_on_cpu, skip_reason
from bilinear.errors import BilinearError
from bilinear.ir.element import ELEMENTS
from bilinear.ir.kernel import Cover, Grid, ProductKernel
from bilinear.ir.tile import LARGE, SMALL, USUAL
from bilinear.lowering.prepare import plain

BAND = 8
PROBE = """
extern "C" __global__ void probe(long long bm, long long bn, unsigned* tiles, int count, long long* found)
{
    for (int i = 0; i < count; ++i) {
        Index row = -1, column = -1;
        found[3 * i] = find_tile(tiles[i], bm, bn, row, column);
        found[3 * i + 1] = row, found[3 * i + 2] = column;
    }
}
"""


def place(tile: int, tiles_m: int, tiles_n: int) -> tuple[int, int]:
    """The place of a tile: bands of eight rows of tiles, each walked column by column. The last band may be lower."""
    band, within = divmod(tile, BAND * tiles_n)
    height = min(BAND, tiles_m - band * BAND)
    return band * BAND + within % height, within // height


@pytest.mark.sample(2)
@pytest.mark.skipif(skip_reason() is not None, reason=str(skip_reason()))
@pytest.mark.parametrize(("dtype", "tile"), [("float64", SMALL), ("float32", USUAL), ("float32", LARGE), ("float32", "doubles-small")])
def test_tiles_lie_where_they_should_at_any_extent(dtype: str, tile: str) -> None:
    (launch,) = schedule_to_launches(plain().schedule, ELEMENTS[dtype], tile)
    kernel = launch.kernel
    assert isinstance(kernel, ProductKernel)
    types = {kernel.name: c_types(kernel), "probe": ["long long", "long long", "unsigned *", "int", "long long *"]}
    module = compile_on_cpu(render(kernel) + PROBE, types)
    m, n, most = kernel.tile.m, kernel.tile.n, MOST_BLOCKS[0]
    generator = np.random.default_rng(7)
    extents = [(1, most * n), (most * m, 1), (3 * m, most // 3 * n), (8 * m, most // 8 * n), (9 * m, 2**27 * n), (7 * m + 1, 2**28 * n - 1)]
    extents += [(2**34, n), (n, 2**34), (1, 2**35), (46340 * m, 46341 * n), (33, 65)]
    extents = [(bm, bn) for bm, bn in extents if -(-bm // m) * -(-bn // n) <= most]
    assert sum(max(pair) >= 2**34 for pair in extents) >= 4
    for bm, bn in extents:
        tiles_m, tiles_n = -(-bm // m), -(-bn // n)
        count = tiles_m * tiles_n
        edges = [0, 1, BAND, count // 2, count - 2, count - 1, count, min(count + BAND, most), most]
        tiles = np.array([*(t for t in edges if t >= 0), *generator.integers(0, count, 200)], np.uint32)
        found = np.zeros((len(tiles), 3), np.int64)
        module.launch("probe", 1, 1, [bm, bn, tiles, len(tiles), found])
        for own, (inside, row, column) in zip(tiles.tolist(), found.tolist(), strict=True):
            assert bool(inside) == (own < count)
            if inside:
                i, j = place(own, tiles_m, tiles_n)
                assert (row, column) == (i * m, j * n), (bm, bn, own)


def test_launches_that_kernels_cannot_count_are_refused() -> None:
    grid = Grid(((Cover("bm", 32), Cover("bn", 32)),), 1)
    assert grid_blocks(grid, {"bm": 32, "bn": 32 * MOST_BLOCKS[0], "bk": MOST_DEPTH}) == (MOST_BLOCKS[0], 1)
    for values in ({"bm": 32, "bn": 32 * MOST_BLOCKS[0] + 1, "bk": 1}, {"bm": 1, "bn": 1, "bk": MOST_DEPTH + 1}):
        with pytest.raises(BilinearError, match="E531"):
            grid_blocks(grid, values)
