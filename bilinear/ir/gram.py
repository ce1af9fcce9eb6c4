"""A scheme for A*A^T: an ordinary scheme with B = A^T that computes one triangle of C."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from bilinear.ir.bilinear_map import BilinearAlgorithm, product_with_transpose
from bilinear.ir.linear import Form, LinearMap, substitute
from bilinear.ir.scheme import Scheme


@dataclass(frozen=True)
class GramScheme:
    """A bilinear scheme for A*A^T, A m x k blocks: `scheme` is of the format <m,k,m;r>, where B is A^T, and computes one triangle of C.

    Its blocks of the other triangle are empty. A product whose factors are transposes of one another is `symmetric`: it is A*A^T again.
    """

    scheme: Scheme
    upper: bool

    @property
    def name(self) -> str:
        """The name of the scheme."""
        return self.scheme.name

    @property
    def outputs(self) -> tuple[tuple[int, int], ...]:
        """The places of the blocks of C that are computed, row by row."""
        m = self.scheme.m
        return tuple((i, j) for i in range(m) for j in (range(i, m) if self.upper else range(i + 1)))

    @cached_property
    def right(self) -> tuple[Form, ...]:
        """The right factors as forms over the blocks of A, which are transposed."""
        m, k = self.scheme.m, self.scheme.k
        blocks: list[Form] = [((j * k + p, 1),) for p in range(k) for j in range(m)]
        return tuple(substitute(row, blocks) for row in self.scheme.tables[1])

    @cached_property
    def symmetric(self) -> frozenset[int]:
        """The numbers of the products of a sum by its own transpose."""
        return frozenset(p for p, (x, y) in enumerate(zip(self.scheme.tables[0], self.right, strict=True)) if x == y)

    @property
    def algorithm(self) -> BilinearAlgorithm:
        """The scheme as an algorithm for its bilinear map, which `verify` can prove."""
        own = self.scheme
        u, _, w = own.tables
        target = product_with_transpose(own.m, own.k, self.upper)
        outputs = tuple(w[i * own.m + j] for i, j in self.outputs)
        maps = LinearMap(own.m * own.k, u), LinearMap(own.m * own.k, self.right), LinearMap(own.rank, outputs)
        return BilinearAlgorithm(own.name, target, *maps, own.ring)
