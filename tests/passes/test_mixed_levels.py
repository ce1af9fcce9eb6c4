"""Levels of different schedules, nested: what comes out multiplies, or is refused with a reason."""

from __future__ import annotations

from itertools import pairwise

import pytest
from oracle import computes

from bilinear.frontend import load
from bilinear.ir.linear import LinearMap
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Product, ProductStage, Schedule, Space, Stage, Target
from bilinear.passes.fuse_linear_stages import fuse_linear_stages
from bilinear.passes.nest_levels import nest_levels, why_not_nested
from bilinear.passes.order_products import colour_products, mark_first_writes
from bilinear.passes.scheme_to_schedule import scheme_to_schedule
from bilinear.verify.schedule import prove_schedule


def one_at_a_time() -> Schedule:
    """The classical 2 x 2 products, each overwriting a block; the second of a sum goes to a temporary and is added."""
    stages: list[Stage] = []
    for i in range(2):
        for j in range(2):
            result, spare = Block("C", i, j), Block("X", 0, 0)
            for p, target in enumerate((result, spare)):
                sign = -1 if p else 1
                stages.append(ProductStage((Product(Block("A", i, p), Block("B", p, j), (Target(target, sign, kept=0),)),)))
            stages.append(LinearStage((BlockMap((result, spare), (result,), LinearMap(2, (((0, 1), (1, -1)),))),)))
    return Schedule("one-at-a-time", "naive2x2", 2, 2, 2, tuple(stages), (Space("X", "C", 1, 1),))


def schedules() -> dict[str, Schedule]:
    msmes = load("msmes").schedule
    assert isinstance(msmes, Schedule)
    names = ("naive2x2", "strassen", "winograd", "hopcroft_kerr")
    return {"msmes": msmes, "one": one_at_a_time(), **{name: scheme_to_schedule(load(name).scheme) for name in names}}


@pytest.mark.parametrize(
    "names",
    [
        "winograd strassen",
        "hopcroft_kerr winograd",
        "winograd hopcroft_kerr",
        "msmes winograd",
        "msmes naive2x2",
        "msmes msmes winograd",
        "one",
        "one one",
        "one winograd",
        "one strassen winograd",
        "winograd one",
        "naive2x2 one one",
        "one hopcroft_kerr",
    ],
)
def test_mixed_levels_multiply(names: str) -> None:
    known = schedules()
    levels = [known[name] for name in names.split()]
    assert not any(why_not_nested(outer, inner) for outer, inner in pairwise(levels))
    flat = mark_first_writes(colour_products(fuse_linear_stages(nest_levels(levels))))
    assert flat.levels == len(levels) and flat.overwrites == levels[0].overwrites
    prove_schedule(flat).require()
    assert computes(flat, trials=2)


@pytest.mark.parametrize(
    ("names", "why"),
    [("winograd msmes", "writes its operands"), ("msmes one", "overwrites its result"), ("one msmes", "writes its operands")],
)
def test_what_cannot_stand_below_what(names: str, why: str) -> None:
    outer, inner = (schedules()[name] for name in names.split())
    assert why in why_not_nested(outer, inner)


def test_a_schedule_that_overwrites_reads_nothing_of_c() -> None:
    schedule = one_at_a_time()
    assert mark_first_writes(schedule) is schedule
    assert prove_schedule(schedule).holds
    first, *others = schedule.stages
    assert isinstance(first, ProductStage)
    (product,) = first.products
    adding = ProductStage((Product(product.left, product.right, (Target(product.targets[0].block),)),))
    wrong = Schedule("adds", "naive2x2", 2, 2, 2, (adding, *others), schedule.workspaces)
    assert any(d.code == "E405" for d in prove_schedule(wrong).failures)
