"""Scheme to schedule: expansion, products and recomposition, with workspace.

Before: a scheme, or an algorithm for complex numbers. After: a schedule of one level that never writes A and B. A factor that is a single
block is read directly from its operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bilinear.analysis.block_maps import restrict
from bilinear.ir.bilinear_map import WHOLE, BilinearAlgorithm, Grid
from bilinear.ir.linear import LinearMap
from bilinear.ir.number import Coefficient, exact
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Product, ProductStage, Schedule, Space, Stage, Target
from bilinear.ir.scheme import Scheme


def scheme_to_schedule(scheme: Scheme) -> Schedule:
    """The breadth-first schedule of one level: S and T hold the factors, M the products."""
    name, sizes = f"{scheme.name}-expand", (scheme.m, scheme.k, scheme.n)
    empty = Schedule(name, scheme.name, *sizes, (), citation=scheme.citation, ring=scheme.ring)
    return _expanded(empty, scheme.u, scheme.v, scheme.w)


def complex_to_schedule(algorithm: BilinearAlgorithm, conjugated: str, grid: Grid = WHOLE) -> Schedule:
    """The same of an algorithm for complex numbers or matrices, on matrices of m x k and k x n blocks for each part."""
    empty = Schedule(f"{algorithm.name}-expand", algorithm.name, *grid, (), ring=algorithm.ring, is_complex=True, conjugated=conjugated)
    return _expanded(empty, algorithm.u, algorithm.v, algorithm.w)


def complex_to_products(algorithm: BilinearAlgorithm, conjugated: str, grid: Grid = WHOLE) -> Schedule:
    """The same without recomposition: each product is added to its parts of C, and only sums of A and of B need workspaces."""
    expanded = complex_to_schedule(algorithm, conjugated, grid)
    *expansion, products, recomposition = expanded.stages
    assert isinstance(products, ProductStage) and isinstance(recomposition, LinearStage)
    (whole,) = recomposition.maps
    targets: dict[int, list[Target]] = {}
    for block, row in zip(whole.targets, whole.map.matrix, strict=True):
        for index, coefficient in row:
            targets.setdefault(index, []).append(Target(block, exact(coefficient * products.products[index].targets[0].coefficient)))
    added = tuple(replace(product, targets=tuple(targets[index])) for index, product in enumerate(products.products))
    sums = tuple(space for space in expanded.workspaces if space.shape != "C")
    return replace(expanded, name=algorithm.name, stages=(*expansion, ProductStage(added)), workspaces=sums)


def _expanded(empty: Schedule, u: LinearMap, v: LinearMap, w: LinearMap) -> Schedule:
    left, left_map = _factors(u, empty.blocks_of("A"), "X")
    right, right_map = _factors(v, empty.blocks_of("B"), "Y")
    results = Space("P", "C", w.inputs, 1)
    products = tuple(
        Product(a, b, (Target(result, exact(c * d), kept=0),)) for (a, c), (b, d), result in zip(left, right, results.blocks, strict=True)
    )
    outputs = empty.blocks_of("C")
    recomposition = BlockMap(results.blocks, outputs, w, kept=(1,) * len(outputs))
    expansion = tuple(block_map for block_map in (left_map, right_map) if block_map.targets)
    stages: tuple[Stage, ...] = (ProductStage(products), LinearStage((recomposition,)))
    if expansion:
        stages = (LinearStage(expansion), *stages)
    factors = tuple(
        Space(name, name_shape, len(block_map.targets), 1)
        for name, name_shape, block_map in (("X", "A", left_map), ("Y", "B", right_map))
        if block_map.targets
    )
    return replace(empty, stages=stages, workspaces=(*factors, results))


def _factors(linear: LinearMap, operand: Sequence[Block], name: str) -> tuple[list[tuple[Block, Coefficient]], BlockMap]:
    """Each factor as (block, coefficient): a block of the operand if the factor is a multiple of one, else a block of workspace."""
    factors: list[tuple[Block, Coefficient]] = []
    formed = 0
    for row in linear.matrix:
        if len(row) == 1:
            factors.append((operand[row[0][0]], row[0][1]))
            continue
        factors.append((Block(name, formed, 0), 1))
        formed += 1
    targets = tuple(block for block, _ in factors)
    return factors, restrict(BlockMap(tuple(operand), targets, linear), {t for t in targets if t.space == name})
