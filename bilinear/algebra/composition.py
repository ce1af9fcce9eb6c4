"""Compositions: how a scheme is made from others, as a tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bilinear.algebra.classical import classical
from bilinear.algebra.direct_sum import direct_sum
from bilinear.algebra.tensor import tensor
from bilinear.ir.scheme import Scheme, exponent_of

TENSOR = "(x)"
Triple = tuple[int, int, int]


@dataclass(frozen=True)
class Composition:
    """How a scheme is made: from two parts by an `operator` of the language, `(x)`, `(+m)`, `(+k)` or `(+n)`, or taken as it is.

    A leaf has an expression, its `text`, and is the scheme `leaf`, or the classical scheme if that is None. `additions` are those of U, V
    and W as written, changes of basis included.
    """

    m: int
    k: int
    n: int
    rank: int
    additions: Triple
    operator: str = ""
    parts: tuple[Composition, ...] = ()
    text: str = ""
    leaf: Scheme | None = None
    leaves: int = 1

    @property
    def shape(self) -> Triple:
        """m, k and n."""
        return self.m, self.k, self.n

    @property
    def format(self) -> str:
        """The format as written: `<2,2,2;7>`."""
        return f"<{self.m},{self.k},{self.n};{self.rank}>"

    @property
    def exponent(self) -> float:
        """The exponent of the multiplication time if the scheme recurses alone."""
        return exponent_of(self.m, self.k, self.n, self.rank)

    @property
    def expression(self) -> str:
        """The composition in the language."""
        if not self.parts:
            return self.text
        left, right = self.parts
        first = left.expression if left._stands_before(self.operator) else f"({left.expression})"
        second = right.expression if not right.parts or right.operator == TENSOR != self.operator else f"({right.expression})"
        return f"{first} {self.operator} {second}"

    def _stands_before(self, operator: str) -> bool:
        """True if it needs no parentheses on the left of an operator: products bind tighter, and equal operators associate to the left."""
        return not self.parts or self.operator in (TENSOR, operator)

    def made(self) -> Scheme:
        """Build the scheme. Raises `BilinearError` if an operation does."""
        if not self.parts:
            return self.leaf if self.leaf is not None else classical(self.m, self.k, self.n)
        left, right = (part.made() for part in self.parts)
        return tensor(left, right) if self.operator == TENSOR else direct_sum(left, right, self.operator[2])

    def used(self) -> Iterator[Composition]:
        """The leaves from left to right, each as often as it is used."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.used()

    def lines(self, indent: str = "") -> Iterator[str]:
        """The composition as a tree, one part a line."""
        yield f"{indent}{self.format} = {self.text or self.operator}"
        for part in self.parts:
            yield from part.lines(indent + "  ")
