"""Products modulo p by products of floats: how numbers are cut, and how many terms are added up before a sum could be inexact.

A number x with |x| <= h is cut into pieces, x = sum of d_i 2^(w i), whose products are as many float products as there are pairs i <= j:
d_i e_i, and (d_i + d_j)(e_i + e_j), from which d_i e_j + d_j e_i follows (Karatsuba, Ofman 1962). Sums of integers are exact in a
floating-point type, in whatever order they are added up, while the sum of their magnitudes is at most 2^significand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil

from bilinear.ir.element import FLOAT32, FLOAT64, Element

LARGEST_MODULUS = 2**62
"""Up to this modulus 4 p is a number of 64 bits, and 2 p - 1 one of int64."""
LARGEST_SUM = 2**63 - 1
"""The largest number of int64, in which finished sums of floats are added up."""
MOST_PIECES = 3
PASS = 50
"""The cost of adding a finished sum of floats to the sum of integers, in terms of a sum of doubles: a few passes over memory."""


@dataclass(frozen=True)
class ModularWay:
    """How matrices with elements of at most `left` and `right` in size are multiplied modulo p, exactly.

    Elements are cut into `pieces` of `width` bits, whose products are sums of floats of the type `element`.
    """

    modulus: int
    left: int
    right: int
    element: Element
    pieces: int
    width: int

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The pieces that each product adds up: one of them, or two."""
        return tuple((i, j) for i in range(self.pieces) for j in range(i, self.pieces))

    @cached_property
    def chunk(self) -> int:
        """The terms of a sum of floats; 0 if not even one product is exact."""
        left, right = (_sizes(size, self.pieces, self.width) for size in (self.left, self.right))
        most = max((_sum(left, pair) * _sum(right, pair) for pair in self.pairs), default=0)
        return (1 << self.element.significand) // max(1, most)

    @property
    def most_chunks(self) -> int:
        """The sums of floats that can be added to a number below p before the sum of integers is reduced modulo p."""
        return (LARGEST_SUM - (self.modulus - 1)) >> self.element.significand

    def cost(self, inner: int) -> float:
        """The cost of an element of the product over `inner` terms, in terms of a sum of doubles."""
        weight = self.element.bytes / FLOAT64.bytes
        return len(self.pairs) * (inner * weight + ceil(inner / self.chunk) * PASS)

    def powers(self) -> Iterator[tuple[tuple[int, int], ...]]:
        """For each power of 2^width, from the lowest: the products that make its coefficient, and their signs."""
        signs: list[dict[int, int]] = [{} for _ in range(2 * self.pieces - 1)]
        for number, (i, j) in enumerate(self.pairs):
            signs[i + j][number] = 1
            if i == j:
                for other in range(self.pieces):
                    if other != i:
                        signs[i + other][number] = -1
        return (tuple(each.items()) for each in signs)


@lru_cache(maxsize=1024)
def way_for(modulus: int, left: int, right: int, inner: int) -> ModularWay:
    """The cheapest way of multiplying matrices with elements of at most these sizes over `inner` terms.

    Sizes are at most p/2 (numbers are reduced otherwise); in three pieces of 21 bits every product of such numbers is exact in float64.
    """
    found = []
    for element in (FLOAT32, FLOAT64):
        for pieces in range(1, MOST_PIECES + 1):
            way = ModularWay(modulus, left, right, element, pieces, _width(max(left, right), pieces))
            if way.chunk:
                found.append(way)
    return min(found, key=lambda way: way.cost(max(1, inner)))


def _width(size: int, pieces: int) -> int:
    """The bits of a piece: the fewest for which the last piece is no larger than the others; 0 for a single piece."""
    if pieces == 1:
        return 0
    width = 1
    while _sizes(size, pieces, width)[-1] > 2 ** (width - 1):
        width += 1
    return width


def _sizes(size: int, pieces: int, width: int) -> tuple[int, ...]:
    """The largest magnitude of each piece of a number of at most `size`: -2^(w-1) <= d < 2^(w-1), and the last piece is the rest."""
    found = []
    for _ in range(pieces - 1):
        found.append(min(size, 2 ** (width - 1)))
        size = (size + 2 ** (width - 1)) >> width
    return (*found, size)


def _sum(sizes: tuple[int, ...], pair: tuple[int, int]) -> int:
    return sum(sizes[i] for i in set(pair))
