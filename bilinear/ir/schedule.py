"""A schedule: which maps and products run on which blocks, in which order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

from bilinear.ir.linear import LinearMap
from bilinear.ir.number import Coefficient, Symbolic, generator, is_negative
from bilinear.ir.ring import RATIONALS, Ring
from bilinear.source import Span


@dataclass(frozen=True)
class Result:
    """The final value of C: alpha*A*B + beta*C; each factor is a number, or the generator `alpha` or `beta`."""

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


Kind = TypeVar("Kind")

ALPHA, BETA = generator("alpha"), generator("beta")
IMAGINARY = {"A": "Ai", "B": "Bi", "C": "Ci"}  # Of complex operands; A, B and C then hold the real parts.


class Block(NamedTuple):
    """The block at a 0-based row and column of a space's grid; a temporary has no grid, and its one block has -1 for both."""

    space: str
    row: int
    column: int

    def __str__(self) -> str:
        from bilinear.ir.scheme import block_name  # planning names no block, and must not import schemes

        return self.space if self.row < 0 else block_name(self.space, self.row, self.column)


@dataclass(frozen=True)
class Space:
    """A matrix cut into a grid of equal blocks: A, B, C, or a workspace.

    `shape` names the operand whose blocks have the same size: blocks like A's are (M/m) x (K/k), like B's (K/k) x (N/n), like C's (M/m) x
    (N/n), where m, k, n belong to the schedule. A temporary is a space of one block, written with no rows and no columns; without a shape
    it is as large as its contents require.
    """

    name: str
    shape: str
    rows: int
    columns: int

    @property
    def is_temporary(self) -> bool:
        """True if the space is a single block without a grid."""
        return self.rows == 0

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Every block, row by row."""
        if self.is_temporary:
            return (Block(self.name, -1, -1),)
        return tuple(Block(self.name, i, j) for i in range(self.rows) for j in range(self.columns))


@dataclass(frozen=True)
class BlockMap:
    """An exact linear map between blocks: every target becomes its form over the old values of the sources + kept * its own old value.

    `kept` is 0, 1 or BETA for each target (default: 0 for all); a value that is kept 0 times is not read. All blocks have one shape. In a
    `ScaledSchedule` shapes may differ, and maps have everything in their forms and keep nothing.
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
    """Block maps that run simultaneously."""

    maps: tuple[BlockMap, ...]
    restores: bool = False

    @property
    def reads(self) -> Iterator[Block]:
        """The sources of the maps."""
        return (block for m in self.maps for block in m.sources)

    @property
    def writes(self) -> Iterator[tuple[Block, Coefficient]]:
        """Every block that a step writes, with the factor of its old value there."""
        return (write for m in self.maps for write in zip(m.targets, m.kept, strict=True))


@dataclass(frozen=True)
class Target:
    """A block that becomes kept * its old value + alpha * coefficient * M of a product M; `kept` is 0 (not read), 1 or BETA."""

    block: Block
    coefficient: Coefficient = 1
    kept: Coefficient = 1

    @property
    def plus(self) -> tuple[tuple[Block, Coefficient], ...]:
        """The other blocks that are added: none, except in a `ScaledTarget`."""
        return ()

    @property
    def terms(self) -> tuple[tuple[Block, Coefficient], ...]:
        """The form over old values that the product is added to, by blocks."""
        own = ((self.block, self.kept),) if self.kept else ()
        return tuple(sorted((*own, *self.plus), key=lambda term: term[0]))

    @property
    def accumulates(self) -> bool:
        """True if the product is only added to the block; several such additions to one block may share a stage."""
        return self.kept == 1 and not self.plus


@dataclass(frozen=True)
class ScaledTarget(Target):
    """A target of a `ScaledSchedule`, with no alpha implied: the block becomes kept * its old value + `plus` + coefficient * M.

    `kept` is any coefficient, and `plus` a form over the old values of other blocks.
    """

    plus: tuple[tuple[Block, Coefficient], ...] = ()

    @classmethod
    def of(cls, block: Block, coefficient: Coefficient, terms: tuple[tuple[Block, Coefficient], ...]) -> ScaledTarget:
        """The target that becomes a form over blocks (which may include the block itself) + coefficient * M."""
        return cls(block, coefficient, dict(terms).get(block, 0), tuple(term for term in terms if term[0] != block))


@dataclass(frozen=True)
class Product:
    """left * right, added to every target."""

    left: Block
    right: Block
    targets: tuple[Target, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class ProductStage:
    """Products that run simultaneously."""

    products: tuple[Product, ...]

    @property
    def reads(self) -> Iterator[Block]:
        """The operands of the products."""
        return (block for product in self.products for block in (product.left, product.right))

    @property
    def writes(self) -> Iterator[tuple[Block, Coefficient]]:
        """Every block that a step writes, with the factor of its old value there."""
        return ((target.block, target.kept) for product in self.products for target in product.targets)

    @property
    def contended(self) -> tuple[Block, ...]:
        """The blocks to which several of the products are added, sorted."""
        return tuple(sorted(block for block, count in Counter(block for block, _ in self.writes).items() if count > 1))


Stage = LinearStage | ProductStage


@dataclass(frozen=True)
class _Stages:
    """The common part of both kinds of schedule: stages over the blocks of A (m x k), B (k x n), C (m x n) and the workspaces.

    The steps of a stage are simultaneous. `in_place` claims that every level may recurse in place; `restores` names the operands that the
    last stages restore. `ring` is the scheme's. A schedule that `is_complex` multiplies complex matrices by real products: A, B and C hold
    the real parts, and the spaces `IMAGINARY`, with the same grids, the imaginary parts. It takes the conjugates of the operands named in
    `conjugated` ("", "A", "B" or "AB").
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
    is_complex: bool = False
    conjugated: str = ""

    @property
    def operands(self) -> tuple[Space, ...]:
        """A, B and C; then, if they are complex, the spaces of their imaginary parts."""
        own = (Space("A", "A", self.m, self.k), Space("B", "B", self.k, self.n), Space("C", "C", self.m, self.n))
        return own + tuple(replace(space, name=IMAGINARY[space.name]) for space in own if self.is_complex)

    @property
    def spaces(self) -> tuple[Space, ...]:
        """The operands and the workspaces."""
        return self.operands + self.workspaces

    @cached_property
    def results(self) -> frozenset[str]:
        """The spaces that hold C."""
        return frozenset(space.name for space in self.operands if space.shape == "C")

    def blocks_of(self, operand: str) -> tuple[Block, ...]:
        """The blocks of A, B or C, those of the imaginary part last."""
        return tuple(block for space in self.operands if space.shape == operand for block in space.blocks)

    @property
    def products(self) -> int:
        """The number of products in all stages."""
        return sum(len(stage.products) for stage in self.stages if isinstance(stage, ProductStage))

    @property
    def keeps(self) -> frozenset[str]:
        """The operands among A and B that end unchanged, because the schedule restores them or never writes them."""
        return frozenset({*self.restores, *({"A", "B"} - self.written)})

    @property
    def runs_in_place(self) -> bool:
        """True if nothing is allocated beyond A, B and C."""
        return not self.workspaces

    @cached_property
    def writes_operands(self) -> bool:
        """True if some step writes A or B."""
        return not self.written.isdisjoint(("A", "B"))

    @cached_property
    def written(self) -> frozenset[str]:
        """The spaces that some step writes."""
        return frozenset(block.space for stage in self.stages for block, _ in stage.writes)

    @property
    def coefficients(self) -> Iterator[Coefficient]:
        """The coefficients of blocks in forms, and of products in targets; not the factors that writes keep."""
        for stage in self.stages:
            if isinstance(stage, LinearStage):
                yield from (c for m in stage.maps for terms in m.map.steps + m.map.outputs for _, c in terms)
            else:
                yield from (target.coefficient for product in stage.products for target in product.targets)

    def space(self, name: str) -> Space:
        """The space of this name."""
        return next(s for s in self.spaces if s.name == name)

    def _like(self, kind: Callable[..., Kind], **changed: object) -> Kind:
        """A schedule of this kind with the common fields of this one, except for those that change."""
        return kind(**{f.name: getattr(self, f.name) for f in fields(_Stages)} | changed)


@dataclass(frozen=True)
class Schedule(_Stages):
    """A schedule that can run: every product is scaled by alpha, and linear stages only add."""

    @cached_property
    def result(self) -> Result:
        """alpha*A*B if a step overwrites a block of C, whose old value is lost; else alpha*A*B + beta*C."""
        loses = any(block.space in self.results and not kept for stage in self.stages for block, kept in stage.writes)
        return Result(ALPHA, 0 if loses else BETA)

    @property
    def overwrites(self) -> bool:
        """True if the result does not contain C's old value: then C may serve as scratch memory."""
        return not self.result.beta

    def scaled(self, stages: tuple[Stage, ...], workspaces: tuple[Space, ...], result: Result) -> ScaledSchedule:
        """This schedule with these stages, as one with explicit scaling."""
        return self._like(ScaledSchedule, stages=stages, workspaces=workspaces, result=result)


@dataclass(frozen=True)
class ScaledSchedule(_Stages):
    """A schedule with explicit scaling: its targets are `ScaledTarget`s, and C ends as `result` says.

    Steps name every factor, and no alpha or beta is implied; a step may write any block. If the result has no beta, no block of C is read
    before it is written. `passes.imply_scaling` turns it into an equivalent `Schedule` if there is one.
    """

    result: Result = field(kw_only=True)

    def implied(self, stages: tuple[Stage, ...], workspaces: tuple[Space, ...]) -> Schedule:
        """This schedule with these stages, as one with implied scaling."""
        return self._like(Schedule, stages=stages, workspaces=workspaces)


AnySchedule = Schedule | ScaledSchedule  # Both can be proved, printed and reported; a `Schedule` can run.
