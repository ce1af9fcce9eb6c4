"""Two block maps of one stage run in any order, tile by tile, so neither may read what the other one writes; one map may."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bilinear.driver import Algorithm, load
from bilinear.errors import BilinearError
from bilinear.ir.linear import LinearMap
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Product, ProductStage, Schedule, Target
from bilinear.passes.mark_first_writes import mark_first_writes
from bilinear.verify.schedule import prove_schedule

FIRST, SECOND = Block("A", 0, 0), Block("A", 0, 1)
ONE = LinearMap(1, (((0, 1),),))
BY_TWO = LinearStage((BlockMap((SECOND,), (FIRST,), ONE), BlockMap((FIRST,), (SECOND,), ONE)))
BY_ONE = LinearStage((BlockMap((FIRST, SECOND), (SECOND, FIRST), LinearMap(2, (((0, 1),), ((1, 1),)))),))


def exchanging(exchange: LinearStage, folder: Path) -> Algorithm:
    """C = A1*B1 + A2*B2 in which the blocks of A change places, and come back."""
    (folder / "two.bl").write_text("scheme two <1,2,1;2>\n  C11 = A11*B11 + A12*B21\n")
    two = load(folder / "two.bl")
    products = tuple(Product(a, Block("B", i, 0), (Target(Block("C", 0, 0)),)) for i, a in enumerate((SECOND, FIRST)))
    stages = (exchange, ProductStage(products), replace(exchange, restores=True))
    return replace(two, schedule=Schedule("exchanging", "two", 1, 2, 1, stages, restores=("A", "B")))


def test_one_map_reads_all_before_it_writes(tmp_path: Path) -> None:
    algorithm = exchanging(BY_ONE, tmp_path)
    a, b = np.arange(1.0, 25.0).reshape(4, 6), np.arange(7.0, 31.0).reshape(6, 4)
    before = a.copy()
    assert np.array_equal(algorithm.matmul(a, b, levels=1, inputs="restore"), before @ b)
    assert np.array_equal(a, before)


def test_two_maps_are_refused(tmp_path: Path) -> None:
    algorithm = exchanging(BY_TWO, tmp_path)
    assert algorithm.schedule is not None
    proof = prove_schedule(mark_first_writes(algorithm.schedule), algorithm.scheme)
    assert [str(d) for d in proof.failures] == [
        f"error[E409]: hazard in stage {stage}: {block} is written by one map while another one reads it\n"
        "  hint: put both into one map, or into two stages"
        for stage in (1, 3)
        for block in ("A12", "A11")
    ]
    a, b = np.arange(1.0, 25.0).reshape(4, 6), np.arange(7.0, 31.0).reshape(6, 4)
    before = a.copy()
    with pytest.raises(BilinearError, match="E409"):
        algorithm.matmul(a, b, levels=1, inputs="restore")
    assert np.array_equal(a, before)
