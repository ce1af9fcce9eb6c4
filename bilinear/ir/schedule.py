"""A schedule: which maps and products run on which blocks, in which order."""

from __future__ import annotations

from dataclasses import dataclass, field

from bilinear.ir.linear import Coefficient, LinearMap
from bilinear.ir.scheme import block_name
from bilinear.source import Span


@dataclass(frozen=True, order=True)
class Block:
    """The block in 0-based row and column of a space's grid."""

    space: str
    row: int
    column: int

    def __str__(self) -> str:
        return block_name(self.space, self.row, self.column)


@dataclass(frozen=True)
class Space:
    """A matrix cut into a grid of equal blocks: A, B, C, or a workspace.

    `shape` names the operand whose blocks have the same size: a block like A's is (M/m) x (K/k), like B's (K/k) x (N/n), like C's
    (M/m) x (N/n), where m, k, n belong to the schedule.
    """

    name: str
    shape: str
    rows: int
    columns: int

    @property
    def is_workspace(self) -> bool:
        """Whether the space is allocated beyond A, B and C."""
        return self.name not in ("A", "B", "C")

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Every block, row by row."""
        return tuple(Block(self.name, i, j) for i in range(self.rows) for j in range(self.columns))


@dataclass(frozen=True)
class BlockMap:
    """An exact linear map from blocks to blocks of one shape; every target takes its new value from the old values of the sources."""

    sources: tuple[Block, ...]
    targets: tuple[Block, ...]
    map: LinearMap
    spans: tuple[Span, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True)
class LinearStage:
    """Block maps that run at once. A map into C is the recomposition: C = alpha * map + beta * C."""

    maps: tuple[BlockMap, ...]
    restores: bool = False


@dataclass(frozen=True)
class Target:
    """A block that a product is added to, times a coefficient.

    `first` marks the first ordered write of a block: in C it carries beta (C = beta*C + alpha*coefficient*M), in a workspace it
    overwrites. Elsewhere the product is added.
    """

    block: Block
    coefficient: Coefficient = 1
    first: bool = False


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
class Schedule:
    """Stages over the blocks of A (m x k), B (k x n), C (m x n) and of the workspaces; the steps of a stage are simultaneous.

    `in_place` claims that every level may recurse in place; `restores` names the operands that the last stages bring back.
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

    @property
    def spaces(self) -> tuple[Space, ...]:
        """A, B, C and the workspaces."""
        own = (Space("A", "A", self.m, self.k), Space("B", "B", self.k, self.n), Space("C", "C", self.m, self.n))
        return own + self.workspaces

    @property
    def runs_in_place(self) -> bool:
        """Whether nothing is allocated beyond A, B and C: sums are formed in A and B themselves."""
        return not self.workspaces

    def space(self, name: str) -> Space:
        """The space of this name."""
        return next(s for s in self.spaces if s.name == name)
