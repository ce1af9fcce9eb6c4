"""Single stages on NumPy, compared with exact evaluation of their maps: cycles, shared values, C with factors."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from runtime.operands import LAYOUTS, laid_out

from bilinear.backends.array_sums import tile_count, tiles_along
from bilinear.backends.numpy_executor import NumpyExecutor
from bilinear.backends.workers import MOST_WORKERS, share
from bilinear.ir.linear import LinearMap, form
from bilinear.ir.matrix import matrix_of
from bilinear.ir.number import Coefficient, rational
from bilinear.ir.placement import Placement
from bilinear.ir.schedule import BETA, Block, BlockMap, LinearStage, Schedule

COEFFICIENTS: st.SearchStrategy[Coefficient] = st.sampled_from([1, -1, 1, -1, 2, -3, Fraction(1, 2)])
GRID = 2


@st.composite
def block_maps(draw: Any) -> BlockMap:
    """Maps between the blocks of A, B or C of a 2 x 2 grid, with steps. Targets may be sources, even in cycles."""
    blocks = [Block(space, i, j) for space in "ABC" for i in range(GRID) for j in range(GRID)]
    sources = tuple(draw(st.lists(st.sampled_from(blocks), min_size=1, max_size=6, unique=True)))
    targets = tuple(draw(st.lists(st.sampled_from(blocks), min_size=1, max_size=6, unique=True)))
    steps = []
    for i in range(draw(st.integers(0, 3))):
        steps.append(draw(forms(len(sources) + i)))
    outputs = tuple(draw(forms(len(sources) + len(steps))) for _ in targets)
    return BlockMap(sources, targets, LinearMap(len(sources), outputs, tuple(steps)))


def forms(values: int) -> Any:
    return st.dictionaries(st.integers(0, values - 1), COEFFICIENTS, max_size=4).map(form)


@given(block_map=block_maps(), layout=st.sampled_from(LAYOUTS), beta=st.sampled_from([0, 1, -1, 3]), data=st.data())
def test_a_linear_stage_reads_before_it_writes(block_map: BlockMap, layout: str, beta: int, data: Any) -> None:
    block_map = replace(block_map, kept=tuple(data.draw(st.sampled_from([0, 1, BETA])) for _ in block_map.targets))
    extent = 14
    generator = np.random.default_rng(1)
    whole = {name: generator.integers(-64, 65, (extent, extent)) * 16.0 for name in "ABC"}
    spaces = {name: laid_out(array, layout) for name, array in whole.items()}
    stage = LinearStage((block_map,))
    schedule = Schedule("stage", "stage", GRID, GRID, GRID, (stage,), in_place=True)
    plan = Placement(schedule, extent, extent, extent, (extent, extent, extent), (), (), 0)
    (step,) = NumpyExecutor().steps(plan, (stage,), {name: matrix_of(x) for name, x in spaces.items()}, 5, beta)
    step()

    size = extent // GRID

    def block(arrays: dict[str, Any], b: Block) -> Any:
        return arrays[b.space][b.row * size : (b.row + 1) * size, b.column * size : (b.column + 1) * size]

    wanted = {name: array.copy() for name, array in whole.items()}
    for target, row, kept in zip(block_map.targets, block_map.map.matrix, block_map.kept, strict=True):
        value = sum((float(rational(c)) * block(whole, block_map.sources[i]) for i, c in row), np.zeros((size, size)))
        block(wanted, target)[...] = value + (beta if kept == BETA else int(kept != 0)) * block(whole, target)
    for name in "ABC":
        np.testing.assert_array_equal(spaces[name], wanted[name])


@given(height=st.integers(0, 60), width=st.integers(0, 60), elements=st.integers(1, 400), by_column=st.booleans())
def test_tiles_cover_every_element_once(height: int, width: int, elements: int, by_column: bool) -> None:
    seen = np.zeros((height, width), int)
    tiles = list(tiles_along((height, width), by_column, elements))
    for tile in tiles:
        assert seen[tile].size <= elements
        seen[tile] += 1
    assert (seen == 1).all()
    assert not width or by_column or len(tiles) == tile_count((height, width), elements)


def test_every_item_runs_once_in_its_share() -> None:
    for shares in range(1, MOST_WORKERS + 1):
        ran: list[tuple[int, int]] = []

        def run(item: int, own: int, ran: list[tuple[int, int]] = ran) -> None:
            ran.append((item, own))

        share(lambda: range(20), run, shares)
        assert sorted(ran) == [(item, item % shares) for item in range(20)]
