"""Orders of chains: beside every parenthesisation, every order of the operands and every way of each product, tried one by one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np
import pytest
from each_case import each

from bilinear.errors import BilinearError
from bilinear.planner.chains import MOST_MATRICES, ChainOrder, ProductWay, chain_extents, plan_chain
from bilinear.runtime.multi_dot import plan_chain as plan_shapes

Tree = Any
"""A matrix by its number, or (left, right, whether the right one is computed first, the way of the product)."""


class Tried(NamedTuple):
    cost: float
    peak: int
    text: str


def costs(seed: int) -> Any:
    """Ways of any product: up to three, of which a dearer one needs less workspace; the last one needs none."""

    def ways(m: int, k: int, n: int) -> Iterator[ProductWay]:
        generator = random.Random(f"{seed} {m} {k} {n}")
        cost, workspace = generator.uniform(1, 9), generator.randrange(1, 400)
        while generator.random() < 0.6 and workspace:
            yield ProductWay(cost, workspace)
            cost, workspace = cost + generator.uniform(0, 4), workspace // 3
        yield ProductWay(cost, 0)

    return ways


def trees(first: int, last: int, ways: Any, extents: tuple[int, ...]) -> Iterator[Tree]:
    if first == last:
        yield first
        return
    for split in range(first, last):
        sides = [list(trees(*span, ways, extents)) for span in ((first, split), (split + 1, last))]
        choices = list(ways(extents[first], extents[split + 1], extents[last + 1]))
        yield from product(*sides, (False, True), choices)


def tried(tree: Tree, extents: tuple[int, ...], itemsize: int) -> Tried:
    """Run a tree on pretended memory, one allocation after the other, and note the most bytes held."""
    held = peak = 0
    cost = 0.0

    def run(node: Tree, is_whole: bool) -> tuple[int, int, int, str]:
        """The matrix's extents, its bytes as an intermediate, and its name."""
        nonlocal held, peak, cost
        if isinstance(node, int):
            return extents[node], extents[node + 1], 0, f"A{node + 1}"
        left, right, right_first, way = node
        done = {}
        for side in (1, 0) if right_first else (0, 1):
            done[side] = run((left, right)[side], False)
        (m, _, left_bytes, left_name), (_, n, right_bytes, right_name) = done[0], done[1]
        size = 0 if is_whole else m * n * itemsize
        held += size
        peak, cost = max(peak, held + way.workspace), cost + way.cost
        held -= left_bytes + right_bytes
        names = [name if isinstance(own, int) else f"({name})" for own, name in ((left, left_name), (right, right_name))]
        return m, n, size, " ".join(names)

    text = run(tree, True)[3]
    assert held == 0
    return Tried(cost, peak, text)


def check(order: ChainOrder, limit: int | None, every: list[Tried], extents: tuple[int, ...]) -> None:
    """An order is among those tried, with the figures found there, and none within the limit is cheaper."""
    assert order.seconds is not None
    assert any(one.text == order.text and one.peak == order.peak and one.cost == pytest.approx(order.seconds) for one in every)
    assert order.seconds == pytest.approx(min(one.cost for one in every if limit is None or one.peak <= limit))
    assert order.peak == max(step.held + step.workspace for step in order.steps)
    assert order.seconds == pytest.approx(sum(step.seconds or 0 for step in order.steps))
    assert order.multiplications == sum(step.m * step.k * step.n for step in order.steps)
    parts = {(at, at): shape for at, shape in enumerate(pairwise(extents))}
    for step in order.steps:
        (m, k), (rows, n) = parts.pop(step.left), parts.pop(step.right)
        assert (m, k, n) == (step.m, step.k, step.n) and rows == k
        parts[step.left[0], step.right[1]] = m, n
    assert parts == {(0, len(extents) - 2): (extents[0], extents[-1])}


@pytest.mark.sample(12)
@pytest.mark.parametrize("seed", range(40))
def test_the_order_is_that_of_all_orders_tried(seed: int) -> None:
    generator = random.Random(seed)
    extents = tuple(generator.randint(1, 12) for _ in range(generator.choice((3, 4, 5, 5, 6))))
    ways, itemsize = costs(seed), generator.choice([1, 4, 8])
    every = [tried(tree, extents, itemsize) for tree in trees(0, len(extents) - 2, ways, extents)]
    cheapest = [tried(tree, extents, itemsize) for tree in trees(0, len(extents) - 2, lambda *shape: [next(ways(*shape))], extents)]
    check(plan_chain(extents, "float64", itemsize, "", ways, None).chosen, None, cheapest, extents)
    least = min(one.peak for one in every)
    for limit in sorted({one.peak for one in every})[:: max(1, len(every) // 500)]:
        check(plan_chain(extents, "float64", itemsize, "", ways, limit).chosen, limit, every, extents)
    if least:
        with pytest.raises(BilinearError, match=rf"E535.*need {least} bytes of workspace, {least - 1} are available"):
            plan_chain(extents, "float64", itemsize, "", ways, least - 1)


def test_a_limit_makes_orders_dearer() -> None:
    """Over many chains, limits change orders, ways, and which operand is computed first: the test above meets all three."""
    changed = {"order": 0, "way": 0, "first": 0}
    for seed in range(40):
        generator = random.Random(seed)
        extents = tuple(generator.randint(1, 12) for _ in range(6))
        free = plan_chain(extents, "float64", 8, "", costs(seed), None).chosen
        try:
            tight = plan_chain(extents, "float64", 8, "", costs(seed), free.peak - 1).chosen
        except BilinearError:
            continue
        assert tight.seconds is not None and free.seconds is not None and tight.seconds >= free.seconds and tight.peak < free.peak
        changed["order"] += tight.text != free.text
        changed["way"] += tight.text == free.text and {s.workspace for s in tight.steps} != {s.workspace for s in free.steps}
        changed["first"] += any(second.left[0] < first.left[0] for first, second in pairwise(tight.steps))
    assert all(changed.values()), changed


def test_usual_orders_stand_beside_the_chosen_one() -> None:
    extents = (10, 100, 5, 50, 2)
    found = plan_chain(extents, "float64", 8, "", None, None)
    assert found.by == "multiplications" and found.chosen.seconds is None
    assert found.left_to_right.text == "((A1 A2) A3) A4" and found.left_to_right.multiplications == 5000 + 2500 + 1000
    assert found.fewest_multiplications == found.chosen
    assert found.chosen.text == "A1 (A2 (A3 A4))" and found.chosen.multiplications == 500 + 1000 + 2000
    assert found.ratio(found.left_to_right) == 8500 / 3500
    assert str(found) == (
        "A1 (A2 (A3 A4)) by multiplications; left to right, ((A1 A2) A3) A4: 2.43 times as many; "
        "fewest multiplications, A1 (A2 (A3 A4)): 1.00 times as many"
    )


def test_the_planners_seconds_decide_on_a_described_device() -> None:
    """Of these the fewest multiplications are not the fastest order: they take several products that hardly fill the device."""
    extents = (16, 1000, 16384, 10000, 8, 1024)
    found = plan_shapes(list(pairwise(extents)), device="h200")
    assert (found.by, found.device) == ("seconds", "NVIDIA H200")
    chosen, fewest = found.chosen, found.fewest_multiplications
    assert chosen.text != fewest.text and chosen.multiplications > fewest.multiplications
    assert chosen.seconds is not None and fewest.seconds is not None and chosen.seconds < fewest.seconds
    assert {step.plan for step in chosen.steps} != {"-"}
    assert f"fewest multiplications, {fewest.text}: {found.ratio(fewest):.2f} times as long" in str(found) and "as many" not in str(found)


def test_a_limit_holds_for_intermediates_and_workspaces_together() -> None:
    shapes = [(8192, 8192)] * 4
    free = plan_shapes(shapes, device="h200")
    square = 8192 * 8192 * 8
    least = plan_shapes(shapes, device="h200", workspace=2 * square).chosen
    middle = plan_shapes(shapes, device="h200", workspace=3 * square).chosen
    assert free.chosen.peak > 3 * square >= middle.peak > 2 * square == least.peak
    assert [order.seconds for order in (free.chosen, middle, least)] == sorted(order.seconds or 0 for order in (free.chosen, middle, least))
    with pytest.raises(BilinearError, match=rf"E535.*need {2 * square} bytes"):
        plan_shapes(shapes, device="h200", workspace="none")


@pytest.mark.slow
def test_what_the_device_has_left_is_a_limit_too() -> None:
    """Matrices of 18 GiB on a device of 140: beside three and the result there is memory for two intermediates, beside six for none."""
    square = 49152 * 49152 * 8
    assert plan_shapes([(8192, 8192)] * 3, device="h200").workspace is None
    found = plan_shapes([(49152, 49152)] * 3, device="h200")
    assert found.workspace is not None and square < found.chosen.peak <= found.workspace < 3 * square
    with pytest.raises(BilinearError, match=rf"E535.*need {2 * square} bytes of workspace, 0 are available"):
        plan_shapes([(49152, 49152)] * 6, device="h200")
    with pytest.raises(BilinearError, match=rf"E535.*need {square} bytes of workspace, 1000 are available"):
        plan_shapes([(49152, 49152)] * 3, device="h200", workspace=1000)


def test_without_times_the_plan_says_so() -> None:
    shapes = [(10, 100), (100, 5), (5, 50)]
    for found in (plan_shapes(shapes), plan_shapes(shapes, "complex64", device="h200"), plan_shapes([(0, 3), (3, 2)], device="h200")):
        assert (found.by, found.device, found.chosen.seconds) == ("multiplications", "", None)
    assert plan_shapes([(10, 100), (100, 5), (5,)]).chosen.text == "A1 (A2 A3)"


@each(
    ("shapes", "message"),
    [
        ([], f"a chain of 0 matrices\n  hint: give 2 to {MOST_MATRICES}, and multiply a longer chain in parts"),
        (None, "a chain of type NoneType\n  hint: give a sequence, such as a list"),
        (5, "a chain of type int\n"),
        ([5, (5, 3)], "matrix 1 of the chain has shape 5\n  hint: give its rows and columns"),
        (iter([(2, 2)]), "a chain of 1 matrix\n"),
        ([(2, 2)], f"a chain of 1 matrix\n  hint: give 2 to {MOST_MATRICES}"),
        ([(2, 2)] * (MOST_MATRICES + 1), f"a chain of {MOST_MATRICES + 1} matrices\n"),
        ([(2, 3), (3,), (3, 4)], "matrix 2 of the chain has shape (3,)\n  hint: give matrices; the first and the last may be vectors"),
        ([(), (3, 4)], "matrix 1 of the chain has shape ()\n"),
        ([(2, 3, 4), (4, 4)], "matrix 1 of the chain has shape (2, 3, 4)\n"),
        ([(2, -3), (-3, 4)], "matrix 1 of the chain has shape (2, -3)\n  hint: give extents that are integers of at least 0"),
        ([(2, 2.0), (2, 4)], "matrix 1 of the chain has shape (2, 2.0)\n"),
        ([(2, 3), (4, 5)], "matrices 1 and 2 of the chain have shapes (2, 3) and (4, 5)\n  hint: give each matrix as many rows as"),
        ([(3,), (4, 5)], "matrices 1 and 2 of the chain have shapes (3,) and (4, 5)\n"),
    ],
)
def test_what_is_no_chain_is_refused(shapes: Any, message: str) -> None:
    with pytest.raises(BilinearError) as caught:
        chain_extents(shapes)
    assert str(caught.value).startswith(f"error[E550]: {message}")


def test_vectors_stand_at_the_ends() -> None:
    assert chain_extents([(3,), (3, 4), (4,)]) == (1, 3, 4, 1)
    assert chain_extents([(3,), (3,)]) == (1, 3, 1)
    given: Any = [(np.int64(3), 4), (4, np.int64(5))]
    assert [type(extent) for extent in chain_extents(given)] == [int] * 3


def test_no_element_type_is_told() -> None:
    with pytest.raises(BilinearError, match=r"E543.*no plans for dtype='float65'\n.*, or another type of NumPy"):
        plan_shapes([(2, 2), (2, 2)], "float65")
    with pytest.raises(BilinearError, match="E513"):
        plan_shapes([(2, 2), (2, 2)], inputs="lose")
    with pytest.raises(BilinearError, match=r"E534.*an array"):
        plan_shapes([(2, 2), (2, 2)], workspace=np.empty(9))  # type: ignore[arg-type]
