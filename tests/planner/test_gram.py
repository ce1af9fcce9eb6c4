"""Plans of A*A^T: the blocks cover the triangle once, and no plan of the same cuts is faster."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from each_case import each

import bilinear
from bilinear.errors import BilinearError
from bilinear.planner.chains import ProductWay
from bilinear.planner.gram import LEAST, BlockTimes, GramPlan, _cuts, plan_by_size, plan_by_times


def covered(plan: GramPlan) -> None:
    """Every element of the lower triangle lies in one block, and none of another's upper one but on the diagonal."""
    count = np.zeros((plan.n, plan.n), int)
    for step in plan.steps:
        count[slice(*step.rows), slice(*step.columns)] += 1
        assert step.is_diagonal or step.columns[1] <= step.rows[0]
    below = np.tril(np.ones((plan.n, plan.n), bool))
    assert (count[below] == 1).all() and count.max() == 1
    assert plan.multiplications == count.sum() * plan.k <= plan.n**2 * plan.k


@each("n", [1, 2, 3, 64, 255, 256, 257, 300, 1000])
@each("most", [0, 1, 7, 64, 300, 5000])
def test_blocks_by_size_cover_the_triangle(n: int, most: int) -> None:
    if n <= 300 or most > 1:
        plan = plan_by_size(n, 3, "int64", most, "winograd")
        covered(plan)
        assert all(step.rows[1] - step.rows[0] <= max(1, most) for step in plan.steps if step.is_diagonal)


def costs(seed: int) -> BlockTimes:
    """Costs without a pattern."""
    generator = np.random.default_rng(seed)
    product = cache(lambda rows, columns: ProductWay(float(generator.uniform(0.4, 1.2)) * rows * columns, 5, "p"))
    diagonal = cache(lambda rows: ProductWay(float(generator.uniform(0.9, 1.1)) * rows * rows))
    return BlockTimes(product, diagonal, 0.0, 1e12)


@each("seed", range(5))
@each("n", [LEAST, 2 * LEAST, 2000, 3000, 4096])
def test_no_plan_of_the_same_cuts_takes_less(n: int, seed: int) -> None:
    times = costs(seed)

    def every(rows: int) -> list[float]:
        found = [times.diagonal(rows).cost]
        for first in _cuts(rows):
            found += [x + y + times.product(rows - first, first).cost for x in every(first) for y in every(rows - first)]
        return found

    plan = plan_by_times(n, 1, "float64", "", None, times)
    covered(plan)
    assert plan.seconds == pytest.approx(min(every(n))) and plan.seconds == pytest.approx(sum(x.seconds or 0 for x in plan.steps))
    assert plan.peak == (5 if len(plan.steps) > 1 else 0)


def test_a_gain_within_the_margin_is_none() -> None:
    times = costs(1)._replace(product=lambda rows, columns: ProductWay(0.0), diagonal=lambda rows: ProductWay(rows**2), mirroring=0.0)
    plain = 4096.0**2
    assert len(plan_by_times(4096, 1, "float64", "", None, times._replace(plain=plain, least_gain=0.5)).steps) > 1
    found = plan_by_times(4096, 1, "float64", "", None, times._replace(plain=plain, least_gain=0.999))
    assert len(found.steps) == 1 and not found.gains
    slow = plan_by_times(4096, 1, "float64", "", None, times._replace(plain=plain, mirroring=plain))
    assert len(slow.steps) == 1 and slow.seconds == plain, "nothing is mirrored in one block of the library"


@each("dtype", ["float64", "float32"])
@each("n", [512, 3000, 8192, 16384])
def test_a_described_gpu_gains_from_the_symmetry(n: int, dtype: str) -> None:
    plan = bilinear.plan_gram(n, n, dtype, device="h200")
    if n <= 4096:
        covered(plan)
    assert plan.seconds is not None and plan.plain is not None
    least = 512 if dtype == "float64" else 4096  # below that a product of residues as a whole is faster than its parts
    assert plan.gains == (n > least) and plan.seconds <= plan.plain + 1e-12
    assert repr(plan).startswith(f"<GramPlan of A*A^T, A {n} x {n}, {dtype}, NVIDIA H200: ")


def test_limits_are_kept_and_bad_problems_refused() -> None:
    assert bilinear.plan_gram(8192, 8192, device="h200", workspace="none").peak == 0
    assert 0 < bilinear.plan_gram(16384, 16384, device="h200", workspace="4G").peak <= 2**32
    for options, code in (
        ({"accuracy": 1e-30}, "E519"),
        ({"dtype": "int8"}, "E543"),
        ({"n": 0}, "E543"),
        ({"device": "h2000"}, "E541"),
        ({"workspace": "some"}, "E534"),
        ({"device": "cpu"}, "E554"),
    ):
        with pytest.raises(BilinearError, match=code):
            bilinear.plan_gram(**{"n": 512, "k": 512, "device": "h200", **options})  # type: ignore[arg-type]
