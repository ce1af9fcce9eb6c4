"""Scheme to schedule: expansion, products and recomposition, with workspace.

Before: a scheme. After: a schedule of one level that never writes A and B. A factor that is a single block is read directly from its
operand.
"""

from __future__ import annotations

from bilinear.analysis.block_maps import restrict
from bilinear.ir.linear import LinearMap
from bilinear.ir.number import Coefficient, exact
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Product, ProductStage, Schedule, Space, Stage, Target
from bilinear.ir.scheme import Scheme


def scheme_to_schedule(scheme: Scheme) -> Schedule:
    """The breadth-first schedule of one level: S and T hold the factors, M the products."""
    m, k, n = scheme.m, scheme.k, scheme.n
    left, left_map = _factors(scheme.u, Space("A", "A", m, k), "S")
    right, right_map = _factors(scheme.v, Space("B", "B", k, n), "T")
    results = Space("M", "C", scheme.rank, 1)
    products = tuple(
        Product(a, b, (Target(result, exact(c * d), kept=0),)) for (a, c), (b, d), result in zip(left, right, results.blocks, strict=True)
    )
    outputs = Space("C", "C", m, n).blocks
    recomposition = BlockMap(results.blocks, outputs, scheme.w, kept=(1,) * len(outputs))
    expansion = tuple(block_map for block_map in (left_map, right_map) if block_map.targets)
    stages: tuple[Stage, ...] = (ProductStage(products), LinearStage((recomposition,)))
    if expansion:
        stages = (LinearStage(expansion), *stages)
    factors = tuple(
        Space(name, name_shape, len(block_map.targets), 1)
        for name, name_shape, block_map in (("S", "A", left_map), ("T", "B", right_map))
        if block_map.targets
    )
    return Schedule(f"{scheme.name}-expand", scheme.name, m, k, n, stages, (*factors, results), citation=scheme.citation, ring=scheme.ring)


def _factors(linear: LinearMap, operand: Space, name: str) -> tuple[list[tuple[Block, Coefficient]], BlockMap]:
    """Each factor as (block, coefficient): a block of the operand if the factor is a multiple of one, else a block of workspace."""
    factors: list[tuple[Block, Coefficient]] = []
    own, formed = operand.blocks, 0
    for row in linear.matrix:
        if len(row) == 1:
            factors.append((own[row[0][0]], row[0][1]))
            continue
        factors.append((Block(name, formed, 0), 1))
        formed += 1
    targets = tuple(block for block, _ in factors)
    return factors, restrict(BlockMap(own, targets, linear), {t for t in targets if t.space == name})
