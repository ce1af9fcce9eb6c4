"""Imply scaling: turn a schedule with explicit scaling into one whose products are implicitly scaled by alpha.

Before: a schedule that computes C = A*B, C = alpha*A*B or C = alpha*A*B + beta*C. After: the same steps in the form that can be lowered:
alpha is left out, and a temporary becomes one space of one block for each block size that it holds. If the result contains C's old value,
every write of C keeps it. `why_not_implied` gives the reason if a schedule has no such form.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from bilinear.analysis.block_maps import components
from bilinear.ir.linear import Form, LinearMap
from bilinear.ir.number import Coefficient, Symbolic, exact, generator
from bilinear.ir.schedule import (
    ALPHA,
    BETA,
    AnySchedule,
    Block,
    BlockMap,
    LinearStage,
    Product,
    ProductStage,
    ScaledSchedule,
    Schedule,
    Space,
    Stage,
    Target,
)


def imply_scaling(schedule: AnySchedule) -> Schedule:
    """The schedule with implied scaling; one that has it already is returned unchanged. Raises `ValueError` with the obstacle.

    One obstacle is a step whose blocks do not have the sizes that it needs.
    """
    if isinstance(schedule, Schedule):
        _check_sizes(schedule)
        return schedule
    return _ScalingWriter(schedule).write()


def why_not_implied(schedule: AnySchedule) -> str:
    """Why a schedule cannot be lowered; empty if it can."""
    try:
        imply_scaling(schedule)
    except ValueError as why:
        return str(why)
    return ""


def _check_sizes(schedule: Schedule) -> None:
    """Refuse a map whose blocks have several sizes, and a product whose operands and targets are not as large as blocks of A, B and C.

    A proof ignores such a step if nothing reads its result, and holds for problems with the extents that `shapes` names.
    """
    shape = {space.name: space.shape for space in schedule.spaces}
    for stage in schedule.stages:
        for piece in stage.maps if isinstance(stage, LinearStage) else ():
            if len({shape[block.space] for block in (*piece.sources, *piece.targets)}) > 1:
                raise _takes_up_others(piece.targets[0])
        for product in stage.products if isinstance(stage, ProductStage) else ():
            for block, side in ((product.left, "A"), (product.right, "B")):
                if shape[block.space] != side:
                    raise _is_no_operand(block, side)
            for target in product.targets:
                if shape[target.block.space] != "C":
                    raise _holds_no_product(target.block)


def _takes_up_others(block: Block) -> ValueError:
    return ValueError(f"{block} takes up blocks of another size")


def _is_no_operand(block: Block, side: str) -> ValueError:
    return ValueError(f"the operand {block} does not hold a block of the size of {side}'s")


def _holds_no_product(block: Block) -> ValueError:
    return ValueError(f"a product goes into {block}, which has not the size of blocks of C")


@dataclass
class _ScalingWriter:
    """Rewrites one schedule; `holds` gives the current block size of every block of a temporary."""

    schedule: ScaledSchedule
    shapes: dict[Block, str] = field(default_factory=dict)
    spaces: dict[str, Space] = field(default_factory=dict)

    def write(self) -> Schedule:
        s = self.schedule
        if s.result.alpha not in (1, ALPHA) or s.result.beta not in (0, BETA):
            raise ValueError(f"its result {s.result} is neither C = alpha*A*B nor C = alpha*A*B + beta*C")
        self.alpha, self.adds = s.result.alpha, bool(s.result.beta)
        self.begun: set[Block] = set()
        self.shapes = {block: space.shape for space in s.spaces if not space.is_temporary for block in space.blocks}
        stages = [self.linear(x) if isinstance(x, LinearStage) else self.products(x) for x in s.stages]
        kept = tuple(space for space in s.workspaces if not space.is_temporary)
        return s.implied(tuple(stages), (*kept, *self.spaces.values()))

    def linear(self, stage: LinearStage) -> LinearStage:
        maps = [self.block_map(piece) for whole in stage.maps for piece in components(whole)]
        for piece, shape in maps:
            self.shapes.update(dict.fromkeys(piece.targets, shape))
        self.begun |= {t for piece, _ in maps for t in piece.targets}
        return LinearStage(tuple(self.renamed(piece, shape) for piece, shape in maps), stage.restores)

    def block_map(self, piece: BlockMap) -> tuple[BlockMap, str]:
        """The map with alpha left out, and the shape of its blocks."""
        shapes = {self.shape(block) for block in piece.sources} or {self.shapes.get(piece.targets[0], "C")}
        fixed = {self.shapes[t] for t in piece.targets if t.row >= 0}
        if len(shapes | fixed) != 1:
            raise _takes_up_others(piece.targets[0])
        rows = tuple(self.row(piece, t, row) for t, row in zip(piece.targets, piece.map.matrix, strict=True))
        kept = tuple(map(self.kept, piece.targets))
        return replace(piece, map=LinearMap(len(piece.sources), rows), kept=kept), shapes.pop()

    def row(self, piece: BlockMap, target: Block, row: Form) -> Form:
        kept = self.kept(target)
        own = piece.sources.index(target) if kept and target in piece.sources else -1
        others = tuple(term for term in row if term[0] != own)
        for _, coefficient in others:
            if _scales(coefficient):
                raise ValueError(f"a sum in {target} is scaled by {coefficient}")
        if kept and dict(row).get(own) != kept:
            raise ValueError(f"{target} is not added to")
        return others

    def kept(self, block: Block) -> Coefficient:
        """The factor of a block's old value: 1 if the result adds to C (beta in the first write), else 0."""
        return 0 if block.space != "C" or not self.adds else 1 if block in self.begun else BETA

    def renamed(self, piece: BlockMap, shape: str) -> BlockMap:
        """The map on typed spaces, without sources that no form reads."""
        used = sorted({i for row in piece.map.outputs for i, _ in row})
        place = {index: i for i, index in enumerate(used)}
        rows = tuple(tuple((place[i], c) for i, c in row) for row in piece.map.outputs)
        sources = tuple(self.typed(piece.sources[i], shape) for i in used)
        targets = tuple(self.typed(t, shape) for t in piece.targets)
        return BlockMap(sources, targets, LinearMap(len(used), rows), piece.kept, piece.spans)

    def products(self, stage: ProductStage) -> Stage:
        operands = [(self.operand(p.left, "A"), self.operand(p.right, "B")) for p in stage.products]
        products = []
        for product, (left, right) in zip(stage.products, operands, strict=True):
            targets = tuple(self.target(target) for target in product.targets)
            products.append(Product(left, right, targets, product.span))
        return ProductStage(tuple(products))

    def target(self, target: Target) -> Target:
        rest = target.coefficient if self.alpha == 1 else target.coefficient * generator("alpha", -1)
        if _scales(rest):
            raise ValueError(f"a product is scaled by {target.coefficient}")
        block, coefficient = target.block, exact(rest)
        if target.terms not in ((), ((block, 1),), ((block, BETA),)):
            raise ValueError(f"a product and other blocks go into {block} in one step")
        if target.kept not in ((self.kept(block),) if self.kept(block) else (0, 1)):
            raise ValueError(f"{block} is not added to" if self.kept(block) else f"a product is added to beta times {block}")
        if block.space in ("A", "B") or (self.shapes.get(block, "C") != "C" and block.row >= 0):
            raise _holds_no_product(block)
        if target.accumulates and self.shapes.get(block, "C") != "C":
            raise ValueError(f"a product is added to {block}, which holds a block of another size")
        self.begun.add(block)
        self.shapes[block] = "C"
        return Target(self.typed(block, "C"), coefficient, target.kept)

    def operand(self, block: Block, side: str) -> Block:
        if self.shape(block) != side:
            raise _is_no_operand(block, side)
        return self.typed(block, side)

    def shape(self, block: Block) -> str:
        if block not in self.shapes:
            raise ValueError(f"{block} is read before it is written")
        return self.shapes[block]

    def typed(self, block: Block, shape: str) -> Block:
        """The block in its typed space; a temporary has one space for each size that it takes."""
        if block.row >= 0:
            return block
        name = f"{block.space}_{shape}"
        self.spaces.setdefault(name, Space(name, shape, 1, 1))
        return Block(name, 0, 0)


def _scales(value: Coefficient) -> bool:
    return isinstance(value, Symbolic) and bool(value.generators & {"alpha", "beta"})
