"""A schedule: which maps and products run on which blocks, in which order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from bilinear.ir.linear import LinearMap
from bilinear.ir.number import Coefficient, Symbolic, generator, is_negative
from bilinear.ir.ring import Ring
from bilinear.source import Span

RATIONALS = Ring()

ALPHA, BETA = generator("alpha"), generator("beta")


@dataclass(frozen=True, order=True)
class Block:
    """The block in 0-based row and column of a space's grid; the one block of a temporary stands in no grid and has -1 for both."""

    space: str
    row: int
    column: int

    def __str__(self) -> str:
        from bilinear.ir.scheme import block_name  # a plan names no block, and is planned before schemes are imported

        return self.space if self.row < 0 else block_name(self.space, self.row, self.column)


@dataclass(frozen=True)
class Space:
    """A matrix cut into a grid of equal blocks: A, B, C, or a workspace.

    `shape` names the operand whose blocks have the same size: a block like A's is (M/m) x (K/k), like B's (K/k) x (N/n), like C's
    (M/m) x (N/n), where m, k, n belong to the schedule. A temporary is a space of one block, written with no rows and no columns; with
    no shape it is as large as what it has to hold.
    """

    name: str
    shape: str
    rows: int
    columns: int

    @property
    def is_temporary(self) -> bool:
        """Whether the space is a single block without a grid."""
        return self.rows == 0

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Every block, row by row."""
        if self.is_temporary:
            return (Block(self.name, -1, -1),)
        return tuple(Block(self.name, i, j) for i in range(self.rows) for j in range(self.columns))


@dataclass(frozen=True)
class BlockMap:
    """An exact linear map from blocks to blocks: every target becomes its form over the old values of the sources + kept * its own.

    `kept` is 0, 1 or BETA for each target, and 0 for all where nothing is given; what is kept 0 times is not read. The blocks are of one
    shape, except in a `ScaledSchedule`, whose maps write all in their forms and keep nothing beside.
    """

    sources: tuple[Block, ...]
    targets: tuple[Block, ...]
    map: LinearMap
    kept: tuple[Coefficient, ...] = ()
    spans: tuple[Span, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.kept:
            object.__setattr__(self, "kept", (0,) * len(self.targets))


@dataclass(frozen=True)
class LinearStage:
    """Block maps that run at once."""

    maps: tuple[BlockMap, ...]
    restores: bool = False


@dataclass(frozen=True)
class Target:
    """A block that a product M goes to: it becomes kept * its old value + alpha * coefficient * M.

    `kept` is 0 (the old value is not read), 1 or BETA.
    """

    block: Block
    coefficient: Coefficient = 1
    kept: Coefficient = 1

    @property
    def plus(self) -> tuple[tuple[Block, Coefficient], ...]:
        """What other blocks are added: none, but in a `ScaledTarget`."""
        return ()

    @property
    def terms(self) -> tuple[tuple[Block, Coefficient], ...]:
        """The form over old values that the product is added to, by blocks."""
        own = ((self.block, self.kept),) if self.kept else ()
        return tuple(sorted((*own, *self.plus), key=lambda term: term[0]))

    @property
    def accumulates(self) -> bool:
        """Whether the product is only added: additions to one block may stand in one stage."""
        return self.kept == 1 and not self.plus


@dataclass(frozen=True)
class ScaledTarget(Target):
    """A target of a `ScaledSchedule`, with no alpha implied: the block becomes kept * its old value + `plus` + coefficient * M.

    `kept` is any coefficient, and `plus` a form over the old values of other blocks.
    """

    plus: tuple[tuple[Block, Coefficient], ...] = ()

    @classmethod
    def of(cls, block: Block, coefficient: Coefficient, terms: tuple[tuple[Block, Coefficient], ...]) -> ScaledTarget:
        """The target that becomes this form over blocks, its own perhaps among them, + coefficient * M."""
        return cls(block, coefficient, dict(terms).get(block, 0), tuple(term for term in terms if term[0] != block))


@dataclass(frozen=True)
class Product:
    """left * right, which goes to every target."""

    left: Block
    right: Block
    targets: tuple[Target, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class ProductStage:
    """Products that run at once."""

    products: tuple[Product, ...]


Stage = LinearStage | ProductStage


@dataclass(frozen=True)
class Result:
    """What C becomes: alpha*A*B + beta*C, where both are what is written here, a number or the generator `alpha` or `beta`."""

    alpha: Coefficient = 1
    beta: Coefficient = 0

    def __str__(self) -> str:
        product = _scaled(self.alpha, "A*B")
        if not self.beta:
            return f"C = {product}"
        sign, size = ("-", -self.beta) if is_negative(self.beta) else ("+", self.beta)
        return f"C = {product} {sign} {_scaled(size, 'C')}"


def _scaled(coefficient: Coefficient, name: str) -> str:
    if coefficient in (1, -1):
        return f"{'-' if coefficient == -1 else ''}{name}"
    text = str(coefficient)
    return f"({text})*{name}" if isinstance(coefficient, Symbolic) and len(coefficient.terms) > 1 else f"{text}*{name}"


@dataclass(frozen=True)
class _Stages:
    """What both kinds of schedule are: stages over the blocks of A (m x k), B (k x n), C (m x n) and of the workspaces.

    The steps of a stage are simultaneous. `in_place` claims that every level may recurse in place; `restores` names the operands that the
    last stages bring back. `ring` is the scheme's.
    """

    name: str
    scheme: str
    m: int
    k: int
    n: int
    stages: tuple[Stage, ...]
    workspaces: tuple[Space, ...] = ()
    in_place: bool = False
    restores: tuple[str, ...] = ()
    levels: int = 1
    citation: str = ""
    span: Span | None = field(default=None, compare=False, repr=False)
    ring: Ring = RATIONALS

    @property
    def spaces(self) -> tuple[Space, ...]:
        """A, B, C and the workspaces."""
        own = (Space("A", "A", self.m, self.k), Space("B", "B", self.k, self.n), Space("C", "C", self.m, self.n))
        return own + self.workspaces

    @property
    def products(self) -> int:
        """How many products all stages have."""
        return sum(len(stage.products) for stage in self.stages if isinstance(stage, ProductStage))

    @property
    def keeps(self) -> frozenset[str]:
        """Those of A and B that end as they began, by what is promised, or because no step writes them."""
        return frozenset({*self.restores, *({"A", "B"} - self._written)})

    @property
    def runs_in_place(self) -> bool:
        """Whether nothing is allocated beyond A, B and C."""
        return not self.workspaces

    @cached_property
    def writes_operands(self) -> bool:
        """Whether sums, or products, are formed in A or B themselves."""
        return not self._written.isdisjoint(("A", "B"))

    @cached_property
    def _written(self) -> frozenset[str]:
        """The spaces that some step writes."""
        return frozenset(block.space for block, _ in self._writes())

    def _writes(self) -> Iterator[tuple[Block, Coefficient]]:
        """Every block that a step writes, with what its old value is multiplied by there."""
        for stage in self.stages:
            if isinstance(stage, LinearStage):
                for block_map in stage.maps:
                    yield from zip(block_map.targets, block_map.kept, strict=True)
            else:
                yield from ((target.block, target.kept) for product in stage.products for target in product.targets)

    @property
    def coefficients(self) -> Iterator[Coefficient]:
        """What blocks are multiplied by in forms, and products by as they are written; not what writes keep."""
        for stage in self.stages:
            if isinstance(stage, LinearStage):
                yield from (c for m in stage.maps for terms in m.map.steps + m.map.outputs for _, c in terms)
            else:
                yield from (target.coefficient for product in stage.products for target in product.targets)

    def space(self, name: str) -> Space:
        """The space of this name."""
        return next(s for s in self.spaces if s.name == name)

    def _with(self, stages: tuple[Stage, ...], workspaces: tuple[Space, ...]) -> dict[str, Any]:
        """The fields that both kinds of schedule have, with other stages and workspaces."""
        return {f.name: getattr(self, f.name) for f in fields(_Stages)} | {"stages": stages, "workspaces": workspaces}


@dataclass(frozen=True)
class Schedule(_Stages):
    """A schedule that runs: alpha belongs to the products, wherever they go; linear stages only add up."""

    @cached_property
    def result(self) -> Result:
        """What C becomes: alpha*A*B where a step overwrites a block of C, and so loses its old value; else alpha*A*B + beta*C."""
        loses = any(block.space == "C" and not kept for block, kept in self._writes())
        return Result(ALPHA, 0 if loses else BETA)

    @property
    def overwrites(self) -> bool:
        """Whether C's old value is not in the result: C is never read before it is written, and may be scratch until then."""
        return not self.result.beta

    def scaled(self, stages: tuple[Stage, ...], workspaces: tuple[Space, ...], result: Result) -> ScaledSchedule:
        """This schedule as one of such stages, which scales for itself."""
        return ScaledSchedule(**self._with(stages, workspaces), result=result)


@dataclass(frozen=True)
class ScaledSchedule(_Stages):
    """A schedule that scales for itself: its targets are `ScaledTarget`s, and C ends as `result` says.

    Every step says all that it computes, may write any block, and no alpha and no beta are implied. Where the result has no beta, C holds
    nothing that may be read before it is written. `passes.imply_scaling` makes a `Schedule` of it where one computes the same.
    """

    result: Result = field(kw_only=True)

    def implied(self, stages: tuple[Stage, ...], workspaces: tuple[Space, ...]) -> Schedule:
        """This schedule as one of such stages, which implies its scaling."""
        return Schedule(**self._with(stages, workspaces))


AnySchedule = Schedule | ScaledSchedule
"""What can be proved, printed and reported; a `Schedule` alone can run."""
