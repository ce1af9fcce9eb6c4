"""Thin plans: in how many parts sums are split, and the errors by bfloat16 digits: bounds of parts, and sums too long for any bound."""

from __future__ import annotations

from math import ceil
from pathlib import Path

import pytest
from each_case import each

import bilinear
from bilinear.analysis.digit_bounds import digit_bound, probable_classical, probable_digits
from bilinear.analysis.rounding import gamma
from bilinear.frontend.algorithms import load_digits
from bilinear.ir.thin_tile import LEAST_TERMS, THIN_TILES, ThinTriplesTile
from bilinear.methods.thin.choice import Thin, in_triples, thin_candidates, thin_of, triples_error
from bilinear.planner.choose import known_bound, why_inaccurate
from bilinear.planner.device_files import load_device
from bilinear.planner.plan import Candidate
from bilinear.planner.problem import Problem

TILE = ThinTriplesTile(64, 48, 64, 3, 1, k_groups=2)
TILES = [tile for tile in THIN_TILES["float32"].values() if isinstance(tile, ThinTriplesTile)]
WHOLE = Candidate(Thin(TILE.name), 1.0, 0)


@pytest.mark.parametrize(("inner", "parts", "depth"), [(1614, 5, 384), (4096, 4, 1024), (70, 1, 70)])
def test_the_bound_of_sums_in_parts_is_that_of_the_longest_part(inner: int, parts: int, depth: int) -> None:
    part = digit_bound(load_digits("triples"), depth, in_triples(TILE)).of_largest
    adding = gamma(parts, 2.0**-24)
    bound = triples_error(inner, parts, TILE)
    assert bound == pytest.approx((part + adding + part * adding) * inner)
    assert Thin(TILE.name, parts).bound(inner, "float32") >= bound


def test_sums_too_long_for_a_bound_have_none() -> None:
    assert known_bound(WHOLE, 1_000_000_000, "float32") is None
    assert known_bound(WHOLE, 10_000_000, "float32") is not None
    assert why_inaccurate(WHOLE, 1.0) == "no error bound is known for sums of so many terms"
    assert why_inaccurate(WHOLE, None) == ""


def test_an_explained_plan_of_long_sums_is_read_again(tmp_path: Path) -> None:
    plan = bilinear.plan(64, 1_000_000_000, 48, "float32", device="h200", explain=True)
    assert any(c.tile == WHOLE.tile and thin_of(c).parts == 1 and c.error is None for c in plan.candidates)
    bilinear.save_plan(plan, tmp_path / "plan.json")
    assert bilinear.load_plan(tmp_path / "plan.json") == plan


@each("tile", [tile for tile in THIN_TILES["float32"].values() if isinstance(tile, ThinTriplesTile)])
@each("inner", [LEAST_TERMS, 33, 64, 65, 1000, 1_000_000])
def test_the_probable_error_is_at_most_the_classical_one(inner: int, tile: ThinTriplesTile) -> None:
    assert probable_digits(load_digits("triples"), inner, in_triples(tile)) <= 1.001 * probable_classical(inner, 2.0**-24)


def test_shorter_sums_would_have_a_larger_one() -> None:
    short, tile = LEAST_TERMS - 1, ThinTriplesTile(192, 64, 64, 2, 1)
    assert probable_digits(load_digits("triples"), short, in_triples(tile)) > probable_classical(short, 2.0**-24)
    assert not THIN_TILES["float32"][WHOLE.tile].holds(short, 48, 1)


@each("tile", [*TILES, ThinTriplesTile(64, 16, 64, 2, 1)])
def test_the_registers_of_all_threads_fit_a_multiprocessor(tile: ThinTriplesTile) -> None:
    fetching = 32 * tile.fetchers
    if tile.registers:
        assert (tile.threads - fetching) * tile.registers + fetching * tile.given_registers <= 65536
        assert tile.blocks == 1 and fetching == 128 and 65536 // tile.threads // 8 * 8 < tile.registers <= 248
    else:
        assert tile.given_registers == 0


H200 = load_device("h200")


@each("k", [712_352, 217_688, 1_449_460, 65, 100, 204_792])
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
