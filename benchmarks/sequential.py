"""The sequential model: one product at a time, added to one block of C; sums are formed in A, B and C, and all are restored.

In-place algorithms are counted by hand in this model: every block addition on A, B and C except those of the products. C mirrors the
operands: later additions carry a block's content to several blocks of the result. So the columns of W are the forms of a walk that runs
backwards in time, in which `Ci += c Cj` is `form of Cj += c * form of Ci`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from bilinear.ir.linear import Form
from bilinear.ir.number import exact
from bilinear.ir.schedule import ALPHA, Block, LinearStage, Product, ProductStage, Result, ScaledSchedule, ScaledTarget, Space, Stage
from bilinear.ir.scheme import Scheme
from bilinear.scheduling.in_place.find import effort_for, rational_tables, residues, useful_products
from bilinear.scheduling.in_place.partitions import StageSearch, WalkedPartition
from bilinear.scheduling.in_place.schedule import Layer, ReplayRun, ReplayStep, block_map, multiple, packed, replay
from bilinear.scheduling.in_place.walks import OperandSide, OperandWalk
from bilinear.scheduling.scaling import side_by_side


def find_sequential(
    scheme: Scheme,
    *,
    effort: int = 1,
    seconds: float = math.inf,
) -> ScaledSchedule:
    """Find a schedule of C = alpha*A*B + C with few additions: one product a stage, one target each; A, B and C are all written.

    It states its scaling, so it can be proved and printed but not compiled. It holds for any alpha, because a recursive schedule has
    products of either sign. Parameters and E551 as for `find_in_place`.
    """
    forms = rational_tables(scheme)
    useful = useful_products(forms)
    spaces = Space("A", "A", scheme.m, scheme.k), Space("B", "B", scheme.k, scheme.n), Space("C", "C", scheme.m, scheme.n)
    sides = [
        OperandSide(residues([rows[p] for p in useful], len(space.blocks)), len(space.blocks), backwards=space.name == "C")
        for rows, space in zip(forms, spaces, strict=True)
    ]
    search = StageSearch(sides, [frozenset({0})] * len(useful), restores=True, seed=0, largest=1)
    best = search.run(effort_for(scheme.rank * max(side.blocks for side in sides), effort, seconds), lambda _: None)
    order = tuple(frozenset(useful[i] for i in group) for group in best.order)
    return _write(scheme, spaces, forms, replace(best, order=order))


def _write(scheme: Scheme, spaces: tuple[Space, ...], forms: tuple[tuple[Form, ...], ...], best: WalkedPartition) -> ScaledSchedule:
    order = [product for (product,) in best.order]
    runs = [
        replay(space.blocks, walk, [[table[p]] for p in (reversed(order) if space.name == "C" else order)])
        for space, walk, table in zip(spaces, best.walks, forms, strict=True)
    ]
    runs[2] = _forwards(runs[2], best.walks[2])
    stages: list[Stage] = []
    for number, product in enumerate(order):
        stages += _linear_stages(runs, number)
        blocks = [space.blocks[walk.places[_time(number, space, best)][0]] for space, walk in zip(spaces, best.walks, strict=True)]
        stages.append(ProductStage((_product(blocks, runs, number, [table[product] for table in forms]),)))
    stages += [replace(stage, restores=True) for stage in _linear_stages(runs, len(best.order))]
    name = f"{scheme.name}-sequential"
    return ScaledSchedule(
        name, scheme.name, scheme.m, scheme.k, scheme.n, tuple(stages), (), True, ("A", "B"), result=Result(ALPHA, 1), ring=scheme.ring
    )


def _time(number: int, space: Space, best: WalkedPartition) -> int:
    """The stage of a walk in which a product runs; C's walk runs backwards."""
    return len(best.order) - 1 - number if space.name == "C" else number


def _product(blocks: list[Block], runs: list[ReplayRun], number: int, forms: list[Form]) -> Product:
    factor = Fraction(1)
    for run, wanted in zip(runs, forms, strict=True):
        factor /= multiple(run.held[number][0], wanted)
    left, right, target = blocks
    return Product(left, right, (ScaledTarget(target, ALPHA * exact(factor)),))


def _linear_stages(runs: list[ReplayRun], number: int) -> Iterator[LinearStage]:
    for depth in range(max(len(run.layers[number]) for run in runs)):
        maps = (block_map(run.blocks, run.layers[number][depth]) for run in runs if depth < len(run.layers[number]))
        yield side_by_side(LinearStage(tuple(maps)))


def _forwards(run: ReplayRun, walk: OperandWalk) -> ReplayRun:
    """C's walk in the order of time: the moves reversed and transposed; blocks that end elsewhere are moved there first."""
    steps = [tuple(ReplayStep(s.source, s.block, s.factor) for s in reversed(steps)) for steps in reversed(run.steps)]
    layers = [packed(s) for s in steps]
    first: Layer = {}
    for block, place in enumerate(walk.places[-1]):
        factor = run.held[-1][block][block]
        if place != block or factor != 1:
            first[place] = {block: 1 / factor}
    layers[0] = ([first] if first else []) + layers[0]
    return ReplayRun(run.blocks, tuple(steps), tuple(map(tuple, layers)), run.held[-2::-1])
