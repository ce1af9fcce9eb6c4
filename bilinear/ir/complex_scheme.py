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


@dataclass(frozen=True)
class ComplexScheme:
    """A scheme for complex matrices of m x k by k x n blocks. `conjugated` names the operands whose conjugates are multiplied.

    An algorithm for complex numbers (x) a scheme of blocks: its `rank` products are real ones of sums of parts of blocks. The inputs of U
    and V and the outputs of W are the real parts of all blocks, then their imaginary parts.

    Or, if it `is_gaussian`, U, V and W are those of the scheme of blocks, and there are two products modulo each p for each of its own: of
    a + root b and of a - root b, for the parts a and b of its sums.
    """

    name: str
    m: int
    k: int
    n: int
    u: LinearMap
    v: LinearMap
    w: LinearMap
    rank: int
    conjugated: str = ""
    is_gaussian: bool = False
    bases: None = field(default=None, init=False)


Products = Scheme | ComplexScheme  # A scheme that multiplies blocks of real matrices, or of complex ones.
