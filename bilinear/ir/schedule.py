"""A schedule: which maps and products run on which blocks, in which order."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from bilinear.ir.linear import LinearMap
from bilinear.ir.number import Coefficient, Symbolic, is_negative
from bilinear.ir.ring import Ring
from bilinear.source import Span

RATIONALS = Ring()


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
    """An exact linear map from blocks to blocks; every target takes its new value from the old values of the sources.

    The blocks are of one shape, but in a schedule that scales for itself.
    """

    sources: tuple[Block, ...]
    targets: tuple[Block, ...]
    map: LinearMap
    spans: tuple[Span, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True)
class LinearStage:
    """Block maps that run at once: every target becomes its form.

    In C, though, a schedule that neither scales for itself nor overwrites adds: C = form + C, and C = form + beta * C for the blocks in
    `first`, whose first ordered write this is.
    """

    maps: tuple[BlockMap, ...]
    restores: bool = False
    first: frozenset[Block] = frozenset()


@dataclass(frozen=True)
class Target:
    """A block that alpha times a product is added to, times a coefficient.

    `first` marks a write that does not add: in C it is the first ordered one and carries beta (C = beta*C + alpha*coefficient*M), in a
    workspace, and in a schedule that overwrites C, what was there is lost. In a schedule that scales for itself (`Schedule.result`) no
    alpha is implied, and the block becomes coefficient*M plus the form `plus` over the blocks' values from before the stage.
    """

    block: Block
    coefficient: Coefficient = 1
    first: bool = False
    plus: tuple[tuple[Block, Coefficient], ...] = ()

    @property
    def accumulates(self) -> bool:
        """Whether a schedule that scales for itself only adds here: additions to one block may stand in one stage."""
        return self.plus == ((self.block, 1),)


@dataclass(frozen=True)
class Product:
    """left * right, added to every target."""

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
class Schedule:
    """Stages over the blocks of A (m x k), B (k x n), C (m x n) and of the workspaces; the steps of a stage are simultaneous.

    alpha belongs to the products, wherever they go; linear stages only add up. A schedule that `overwrites` computes C = alpha*A*B, and
    may use blocks of C as scratch: what C held before is never read. Others compute C = alpha*A*B + beta*C.

    `in_place` claims that every level may recurse in place; `restores` names the operands that the last stages bring back. With `result`
    the schedule scales for itself: no alpha and no beta are implied, every step says all that it computes, may write any block, and C
    ends as `result` says (where it has no beta, C holds nothing that may be read before it is written). `ring` is the scheme's.
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
    result: Result | None = None
    ring: Ring = RATIONALS
    overwrites: bool = False

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
    def scales_itself(self) -> bool:
        """Whether alpha and beta stand only where they are written; `passes.imply_scaling` says which of these are lowered."""
        return self.result is not None

    @property
    def adds_to_c(self) -> bool:
        """Whether every write of C adds to it, the first one to beta times what C was."""
        return not (self.scales_itself or self.overwrites)

    def loses(self, target: Target) -> bool:
        """Whether a product that goes to `target` overwrites it, of a schedule that does not scale for itself."""
        return target.first and not (target.block.space == "C" and self.adds_to_c)

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
        sums = {target.space for stage in self.stages if isinstance(stage, LinearStage) for m in stage.maps for target in m.targets}
        products = {t.block.space for stage in self.stages if isinstance(stage, ProductStage) for p in stage.products for t in p.targets}
        return frozenset(sums | products)

    def space(self, name: str) -> Space:
        """The space of this name."""
        return next(s for s in self.spaces if s.name == name)
