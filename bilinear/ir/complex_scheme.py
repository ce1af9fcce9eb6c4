"""A scheme for complex matrices in real arithmetic: sums of real and imaginary parts, their products, and sums of these."""

from __future__ import annotations

from dataclasses import dataclass, field

from bilinear.ir.bilinear_map import BilinearAlgorithm
from bilinear.ir.linear import LinearMap
from bilinear.ir.scheme import Scheme


@dataclass(frozen=True)
class ComplexAlgorithm:
    """An algorithm that multiplies complex numbers by real products of sums of their parts, as a file holds it.

    `core` multiplies two numbers, by products with the names `products`. With an `inside` the numbers are matrices: that scheme runs each
    real product.
    """

    name: str
    core: BilinearAlgorithm
    products: tuple[str, ...] = ()
    citation: str = ""
    inside: Scheme | None = None

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The blocks of the operands, m, k and n."""
        return (1, 1, 1) if self.inside is None else (self.inside.m, self.inside.k, self.inside.n)

    @property
    def parts(self) -> tuple[Scheme, ...]:
        """The block schemes that it is composed with."""
        return () if self.inside is None else (self.inside,)

    @property
    def rank(self) -> int:
        """The number of real products."""
        return self.core.rank * (1 if self.inside is None else self.inside.rank)

    @property
    def format(self) -> str:
        """Its format, such as <2,2,2;21>."""
        return f"<{','.join(map(str, self.sizes))};{self.rank}>"


@dataclass(frozen=True, kw_only=True)
class _OfBlocks:
    """A scheme for complex matrices in the blocks of a scheme. `conjugated` names the operands whose conjugates are multiplied."""

    block: Scheme
    conjugated: str = ""
    bases: None = field(default=None, init=False)

    @property
    def m(self) -> int:
        """Blocks of a column of A."""
        return self.block.m

    @property
    def k(self) -> int:
        """Blocks of a row of A."""
        return self.block.k

    @property
    def n(self) -> int:
        """Blocks of a row of B."""
        return self.block.n


@dataclass(frozen=True, kw_only=True)
class ComplexScheme(_OfBlocks):
    """Real products of sums of parts of blocks of complex matrices: an algorithm for complex numbers (x) `block`, an m x k by k x n scheme.

    The inputs of U and V and the outputs of W are the real parts of all blocks, then their imaginary parts.
    """

    name: str
    u: LinearMap
    v: LinearMap
    w: LinearMap

    @property
    def rank(self) -> int:
        """The number of real products."""
        return self.w.inputs


@dataclass(frozen=True, kw_only=True)
class GaussianScheme(_OfBlocks):
    """Two products modulo each p for each product of `block`, of a + root b and of a - root b for parts a and b of its sums of blocks."""

    @property
    def name(self) -> str:
        """A readable name."""
        return self.block.name

    @property
    def u(self) -> LinearMap:
        """The sums of blocks of A, which are complex."""
        return self.block.u

    @property
    def v(self) -> LinearMap:
        """The sums of blocks of B, which are complex."""
        return self.block.v

    @property
    def w(self) -> LinearMap:
        """The blocks of C, as sums of complex products."""
        return self.block.w

    @property
    def rank(self) -> int:
        """The number of products modulo each p."""
        return 2 * self.block.rank


Products = Scheme | ComplexScheme | GaussianScheme
"""A scheme that multiplies blocks of real matrices, or of complex ones."""
