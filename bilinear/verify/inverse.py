"""Inverse stages: stages that exactly restore A and B after a part of a schedule."""

from __future__ import annotations

from collections.abc import Iterable

from bilinear.analysis.block_maps import components, restrict
from bilinear.ir.linear import Form, LinearMap, form
from bilinear.ir.number import Symbolic
from bilinear.ir.schedule import Block, BlockMap, LinearStage
from bilinear.verify.exact_domain import ExactDomain

OPERANDS = ("A", "B")


def invert_stage(stage: LinearStage) -> LinearStage:
    """The stage that undoes a linear stage's effect on A and B: the inverse of its matrix on their blocks, part by part.

    The stage's writes to C and workspaces are kept; if it writes nothing else, the inverse has no maps. Raises `ArithmeticError` if a block
    of A or B becomes a sum with blocks of C or a workspace, whose old values are gone, and `ZeroDivisionError` if the matrix is singular.
    Neither occurs for an in-place schedule without workspaces that is proved to restore.
    """
    return LinearStage(tuple(_inverse(part) for block_map in stage.maps for part in _on_operands(block_map)), restores=True)


def _on_operands(block_map: BlockMap) -> tuple[BlockMap, ...]:
    """The independent parts of a map's effect on A and B."""
    targets = {target for target in block_map.targets if target.space in OPERANDS}
    if not targets:
        return ()
    own = restrict(block_map, targets)
    foreign = next((source for source in own.sources if source.space not in OPERANDS), None)
    if foreign is not None:
        raise ArithmeticError(f"the stage writes A or B from {foreign}, which has no inverse on A and B alone")
    return components(own)


def _inverse(part: BlockMap) -> BlockMap:
    from bilinear.verify.engine import DMNonInvertibleMatrixError

    blocks = tuple(dict.fromkeys(part.sources + part.targets))
    place = {block: i for i, block in enumerate(blocks)}
    rows: dict[Block, Form] = {block: ((i, 1),) for block, i in place.items()}
    for target, row in zip(part.targets, part.map.matrix, strict=True):
        rows[target] = form((place[part.sources[i]], c) for i, c in row)
    domain = ExactDomain.of(_root(rows.values()))
    try:
        inverse = domain.matrix([rows[block] for block in blocks], len(blocks)).inv().to_sdm()
    except DMNonInvertibleMatrixError:
        raise ZeroDivisionError("the stage's matrix is singular") from None
    outputs = [form((j, domain.number(c)) for j, c in inverse.get(place[target], {}).items()) for target in part.targets]
    return BlockMap(blocks, part.targets, LinearMap(len(blocks), tuple(outputs)))


def _root(rows: Iterable[Form]) -> str:
    """The root that occurs in the coefficients; empty if there is none."""
    roots = {name for row in rows for _, c in row if isinstance(c, Symbolic) for name in c.generators}
    return min(roots, default="")
