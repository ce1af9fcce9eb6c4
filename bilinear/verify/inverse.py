"""Inverse stages: what brings A and B back after a part of a schedule, exactly."""

from __future__ import annotations

from collections.abc import Iterable

from bilinear.analysis.block_maps import components
from bilinear.ir.linear import Form, LinearMap, form
from bilinear.ir.number import Symbolic
from bilinear.ir.ring import Ring
from bilinear.ir.schedule import Block, BlockMap, LinearStage
from bilinear.verify.algebra import ExactDomain


def invert_stage(stage: LinearStage) -> LinearStage:
    """The stage that undoes a linear stage on A and B: the inverse of its matrix, part by part.

    Raises `ZeroDivisionError` where the matrix is singular; an in-place schedule that is proved to restore has none.
    """
    parts = [_inverse(part) for block_map in stage.maps for part in components(block_map)]
    return LinearStage(tuple(parts), restores=True)


def _inverse(part: BlockMap) -> BlockMap:
    from sympy.polys.matrices.exceptions import DMNonInvertibleMatrixError

    blocks = tuple(dict.fromkeys(part.sources + part.targets))
    place = {block: i for i, block in enumerate(blocks)}
    rows: dict[Block, Form] = {block: ((i, 1),) for block, i in place.items()}
    for target, row in zip(part.targets, part.map.matrix, strict=True):
        rows[target] = form((place[part.sources[i]], c) for i, c in row)
    domain = ExactDomain.of(_field(rows.values()))
    try:
        inverse = domain.matrix([rows[block] for block in blocks], len(blocks)).inv().to_sdm()
    except DMNonInvertibleMatrixError:
        raise ZeroDivisionError("the stage's matrix is singular") from None
    outputs = [form((j, domain.number(c)) for j, c in inverse.get(place[target], {}).items()) for target in part.targets]
    return BlockMap(blocks, part.targets, LinearMap(len(blocks), tuple(outputs)))


def _field(rows: Iterable[Form]) -> Ring:
    """Q, with the root that occurs in the coefficients."""
    roots = {name for row in rows for _, c in row if isinstance(c, Symbolic) for name in c.generators}
    return Ring(f"Q[{min(roots)}]") if roots else Ring()
