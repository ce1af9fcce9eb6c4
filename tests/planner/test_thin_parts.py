"""In how many parts the sums of a thin product are split."""

from __future__ import annotations

from math import ceil

import pytest

from bilinear.ir.thin_tile import THIN_TILES
from bilinear.methods.thin.choice import thin_candidates, thin_of
from bilinear.planner.device_files import load_device
from bilinear.planner.problem import Problem

H200 = load_device("h200")


@pytest.mark.parametrize("k", [712_352, 217_688, 1_449_460, 65, 100, 204_792])
def test_every_tile_may_split_long_sums_and_no_part_is_empty(k: int) -> None:
    """Whatever k is: a count that does not divide into whole slices is replaced by one that does."""
    found: dict[str, set[int]] = {}
    for own in thin_candidates(Problem(24, k, 59, "float32"), H200):
        tile, parts = THIN_TILES["float32"][own.tile], thin_of(own).parts
        depth = ceil(ceil(k / parts) / tile.k) * tile.k
        assert ceil(k / depth) == parts, "the runtime splits in this many parts"
        found.setdefault(own.tile, set()).add(parts)
    assert found
    if k > 100_000:
        assert all(max(parts) > 1 for parts in found.values())
