"""The maps of a stage are simultaneous however they are cut: maps that read what another one writes become one before they run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bilinear.algorithm import Algorithm, load
from bilinear.ir.linear import LinearMap
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Product, ProductStage, Schedule, Target

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


@pytest.mark.parametrize("exchange", [BY_ONE, BY_TWO], ids=["one map", "two maps"])
@pytest.mark.parametrize("levels", [1, 2])
def test_blocks_change_places(exchange: LinearStage, levels: int, tmp_path: Path) -> None:
    algorithm = exchanging(exchange, tmp_path)
    a, b = np.arange(1.0, 33.0).reshape(4, 8), np.arange(7.0, 39.0).reshape(8, 4)
    before = a.copy()
    assert np.array_equal(algorithm.matmul(a, b, levels=levels, inputs="restore"), before @ b)
    assert np.array_equal(a, before)
