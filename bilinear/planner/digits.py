"""Products of float16 digits: where everything lies in their workspace, how long they take, and which candidates that makes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, reduce
from math import ceil, prod
from typing import TYPE_CHECKING

from bilinear.errors import fail
from bilinear.ir.digit_kernel import MOST_BLOCKS, PANEL, SLICE
from bilinear.ir.tile import DIGIT_TILES, DigitTile
from bilinear.planner.device import Device, at
from bilinear.planner.digit_rates import DigitRates
from bilinear.planner.plan import DIGITS, Candidate
from bilinear.planner.portfolio import portfolio
from bilinear.planner.problem import Problem
from bilinear.planner.profiles import outline
from bilinear.planner.ways import Way, algorithm_named, follows_from_names

if TYPE_CHECKING:  # readers are imported lazily: most plans need none
    from bilinear.ir.scheme import Scheme

BYTES = 4
"""Of an element in float32, and of both its digits."""
CELL = 256
"""Bytes to whose multiples parts of the workspace are aligned."""


@dataclass(frozen=True)
class DigitGeometry:
    """Blocks, panels and workspace of a product of m x k by k x n by a scheme of `rank` products on a grid, in a tile.

    Extents of blocks are multiples of 4, so that four neighbours lie in one block. The blocks of a cluster have panels of A of their own.
    """

    grid: tuple[int, int, int]
    rank: int
    extents: tuple[int, int, int]
    tile: DigitTile

    @property
    def block(self) -> tuple[int, int, int]:
        """The extents (m, k, n) of a block; what lies outside of the operands is taken to be 0."""
        m, k, n = (ceil(ceil(extent / blocks) / 4) * 4 for extent, blocks in zip(self.extents, self.grid, strict=True))
        return m, k, n

    @property
    def panels(self) -> tuple[int, int]:
        """Panels of lines of a block of A and of B."""
        m, _, n = self.block
        return ceil(ceil(m / PANEL) / self.tile.cluster) * self.tile.cluster, ceil(n / PANEL)

    @property
    def slices(self) -> int:
        """Slices of terms of a block."""
        return ceil(self.block[1] / SLICE)

    @property
    def is_direct(self) -> bool:
        """Whether the only product is C."""
        return self.rank == 1

    @property
    def digit_bytes(self) -> tuple[int, int]:
        """Bytes of the digits of A and of B."""
        left, right = (self.rank * panels * self.slices * PANEL * SLICE * BYTES for panels in self.panels)
        return left, right

    @property
    def product_bytes(self) -> int:
        """Bytes of the products."""
        return 0 if self.is_direct else self.rank * self.block[0] * self.block[2] * BYTES

    @property
    def words(self) -> int:
        """Words of the largest magnitudes of all lines, and of the flag."""
        return self.block[0] + self.block[2] + 1

    @property
    def places(self) -> tuple[int, int, int, int, int]:
        """Where words, digits of A, digits of B and products begin in the workspace, and where it ends, in bytes."""
        ends = [0]
        for size in (self.words * BYTES, *self.digit_bytes, self.product_bytes):
            ends.append(ends[-1] + ceil(size / CELL) * CELL)
        words, left, right, products, end = ends
        return words, left, right, products, end


@lru_cache(maxsize=64)
def scheme_of(levels: tuple[str, ...]) -> Scheme:
    """The scheme of levels of shipped algorithms, the outermost first; that of one product if there is none.

    Raises `BilinearError`: E501 if an operand has more blocks than one pass reads, E506 for schemes that are not exact.
    """
    from bilinear.algebra.tensor import tensor
    from bilinear.lowering.coefficients import require_numbers
    from bilinear.lowering.prepare import proved

    schemes = [algorithm_named(name).scheme for name in levels or ("classical",)]
    m, k, n = (prod(getattr(scheme, extent) for scheme in schemes) for extent in "mkn")
    if max(m * k, k * n, m * n) > MOST_BLOCKS:
        message = f"below these levels operands are cut into {m}x{k} and {k}x{n} blocks"
        raise fail("E501", message, f"at most {MOST_BLOCKS} blocks of a matrix are read at once: name fewer levels")
    for scheme in schemes:
        if scheme.ring.modulus or scheme.ring.is_approximate:
            require_numbers(scheme, proved(scheme))
    return reduce(tensor, schemes)


follows_from_names(scheme_of.cache_clear)


def geometry_of(levels: tuple[str, ...], extents: tuple[int, int, int], tile: str) -> DigitGeometry:
    """The geometry of levels of shipped algorithms; none: the product itself."""
    grids = [outline(Way((name,))) for name in levels]
    m, k, n = (prod(getattr(own.profile, extent) for own in grids) for extent in "mkn")
    return DigitGeometry((m, k, n), prod(own.products for own in grids), extents, DIGIT_TILES[tile])


def digit_candidates(problem: Problem, device: Device) -> Iterator[Candidate]:
    """Products of digits for a problem of float32, by the levels of the portfolio."""
    for levels in portfolio().digits if device.digit_rates(problem.dtype) else ():
        for tile in DIGIT_TILES:
            yield digit_candidate(problem, device, levels, tile)


def digit_candidate(problem: Problem, device: Device, levels: tuple[str, ...], tile: str) -> Candidate:
    """The product of digits by these levels in this tile, as C^T = B^T A^T if C is column-major.

    Raises `BilinearError` (E543) if the device has no rates for it.
    """
    rates = device.digit_rates(problem.dtype)
    if rates is None:
        raise fail("E543", f"the description of {device.name} has no rates for digits of {problem.dtype}", "plan for float32 on an H200")
    m, n = (problem.n, problem.m) if "C" in problem.column_major else (problem.m, problem.n)
    g = geometry_of(levels, (m, problem.k, n), tile)
    return Candidate(levels, "preserve", DIGITS, digit_seconds(g, device, rates, problem.accumulate) * 1e3, g.places[-1], tile=tile)


def digit_seconds(g: DigitGeometry, device: Device, rates: DigitRates, accumulate: bool = False) -> float:
    """The seconds of a product of digits: the search for the largest magnitudes, expansion, products, recomposition, launches.

    Passes take the time of their traffic. A multiprocessor computes a tile of a product at a time, all of them in waves.
    """
    (m, k, n), bandwidth = g.extents, device.bandwidth * 1e9
    operands, result = (m * k + k * n) * BYTES, m * n * BYTES * (2 if accumulate else 1)
    passes = operands / rates.search + (operands + sum(g.digit_bytes)) / rates.expansion
    if not g.is_direct:
        passes += (g.product_bytes + result) / rates.recomposition
    waves = ceil(g.rank * prod(g.panels) / device.processors)
    tile = 2 * g.tile.m * g.tile.n * SLICE * g.slices * device.processors / (at(rates.product, (m * k * n) ** (1 / 3)) * 1e12)
    start = rates.start + (rates.direct if g.is_direct else 0.0)
    launches = 6 if g.is_direct else 7
    return passes / bandwidth + waves * (tile + start * 1e-6) + (launches * rates.launch + device.call) * 1e-6
