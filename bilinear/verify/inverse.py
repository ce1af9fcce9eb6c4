"""Inverse stages: what brings A and B back after a part of a schedule, exactly."""

from __future__ import annotations

from fractions import Fraction

from bilinear.analysis.block_maps import components
from bilinear.ir.linear import LinearMap, form
from bilinear.ir.schedule import BlockMap, LinearStage


def invert_stage(stage: LinearStage) -> LinearStage:
    """The stage that undoes a linear stage on A and B: the inverse of its matrix, part by part.

    Raises `ZeroDivisionError` where the matrix is singular; an in-place schedule that is proved to restore has none.
    """
    parts = [_inverse(part) for block_map in stage.maps for part in components(block_map)]
    return LinearStage(tuple(parts), restores=True)


def _inverse(part: BlockMap) -> BlockMap:
    from sympy import QQ
    from sympy.polys.matrices import DomainMatrix
    from sympy.polys.matrices.exceptions import DMNonInvertibleMatrixError

    blocks = tuple(dict.fromkeys(part.sources + part.targets))
    size = len(blocks)
    rows = {block: ((i, 1),) for i, block in enumerate(blocks)} | dict(zip(part.targets, part.map.matrix, strict=True))
    entries = {i: {j: QQ(c.numerator, c.denominator) for j, c in rows[block]} for i, block in enumerate(blocks)}
    try:
        inverse = DomainMatrix(entries, (size, size), QQ).inv().to_sdm()
    except DMNonInvertibleMatrixError:
        raise ZeroDivisionError("the stage's matrix is singular") from None
    outputs = []
    for target in part.targets:
        row = inverse.get(blocks.index(target), {})
        outputs.append(form((j, Fraction(int(c.numerator), int(c.denominator))) for j, c in row.items()))
    return BlockMap(blocks, part.targets, LinearMap(size, tuple(outputs)))
