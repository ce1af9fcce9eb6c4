"""Products of digits: how long they take, and their candidates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache, reduce
from math import ceil, prod
from typing import TYPE_CHECKING

from bilinear.errors import fail
from bilinear.ir.element import COMPLEX, FLOAT32, Element
from bilinear.ir.residue_tile import MOST_BLOCKS, RESIDUE_TILES
from bilinear.ir.tile import DIGIT_TILES, FLOAT_TILES
from bilinear.planner.device import Device, DigitRates, at
from bilinear.planner.digit_geometry import DigitGeometry, block_of, geometry_of, triangle_tiles
from bilinear.planner.plan import DIGITS, Candidate
from bilinear.planner.portfolio import Levels, portfolio
from bilinear.planner.problem import Problem
from bilinear.planner.ways import algorithm_named, follows_from_names

if TYPE_CHECKING:  # readers are imported lazily: most plans need none
    from bilinear.ir.scheme import Scheme


def element_of(products: str) -> Element:
    """The type whose numbers are cut for products of this name."""
    return RESIDUE_TILES[products].of if products in RESIDUE_TILES else FLOAT32


def products_of(dtype: str) -> tuple[str, ...]:
    """The names of products of digits of an element type, real or complex."""
    if dtype in COMPLEX:
        return tuple(name for name in (*DIGIT_TILES, *RESIDUE_TILES) if element_of(name) is COMPLEX[dtype])
    own = (*FLOAT_TILES, *(name for name, tile in RESIDUE_TILES.items() if not tile.gaussian))
    return tuple(name for name in own if element_of(name).name == dtype)


@lru_cache(maxsize=64)
def scheme_of(levels: tuple[str, ...]) -> Scheme:
    """The scheme of levels of shipped algorithms, the outermost first; that of one product if there is none.

    Raises `BilinearError`: E501 if an operand has more blocks than one pass reads, E506 for schemes that are not exact.
    """
    from bilinear.algebra.composition import tensor
    from bilinear.lowering.prepare import proved, require_numbers

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


def digits_timed(products: str) -> str:
    """The name under which a device's description has the rates of products of this name."""
    return f"residues of {element_of(products)}" if products in RESIDUE_TILES else products


UNEVEN_US = 12.0
"""Microseconds that a product of residues takes longer if rows of A or of B are not multiples of 16 bytes. On an H200, predictions for 40
products of float32 are off by 3.8 % with it and by 5.9 % without it (root of the mean square)."""
CUTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
"""Numbers of blocks of rows, and of columns, in which C may be computed to save workspace."""


def digit_candidates(problem: Problem, device: Device, budget: int) -> Iterator[Candidate]:
    """Products by pairs of digits for a problem of float32, by the levels of the portfolio, within a budget of bytes where that can be."""
    for tile in DIGIT_TILES:
        if problem.dtype == FLOAT32.name and device.digit_rates(tile) is not None:
            for levels in levels_above(tile):
                yield fitted(problem, device, levels, tile, budget)


def levels_above(products: str) -> tuple[Levels, ...]:
    """The levels of the portfolio that are weighed above products of this name."""
    own = portfolio()
    return own.digits + own.pairs if products in DIGIT_TILES else own.digits


def digit_candidate(problem: Problem, device: Device, levels: tuple[str, ...], tile: str, budget: int) -> Candidate:
    """The product of pairs of digits by these levels in this tile, within a budget of bytes if possible.

    Its time is unknown if the device has no rates for it. Raises `BilinearError` (E543) if these digits do not stand for this type.
    """
    if problem.dtype != FLOAT32.name:
        raise fail("E543", f"{tile} stand for {FLOAT32}, not for {problem.dtype}", "plan for float32, or take `residues`")
    return fitted(problem, device, levels, tile, budget)


def fitted(problem: Problem, device: Device, levels: tuple[str, ...], products: str, budget: int) -> Candidate:
    """The product of digits, as C^T = B^T A^T if C is column-major.

    If all of C at once exceeds the budget, C is computed in blocks: the fastest ones that fit, or the fewest on a device without rates. If
    no blocks fit, it is of all of C.
    """
    whole = candidate_in_blocks(problem, device, levels, products, (1, 1))
    if (whole.workspace or 0) <= budget:
        return whole
    m, n = problem.lines
    least = device.policy.least_digit_block
    cuts = [(i, j) for i in CUTS for j in CUTS if m >= i * least and n >= j * least]
    if not cuts or geometry_for(problem, levels, products, cuts[-1]).places[-1] > budget:  # the smallest blocks need least
        return whole
    fits = (cut for cut in cuts if geometry_for(problem, levels, products, cut).places[-1] <= budget)
    found = (candidate_in_blocks(problem, device, levels, products, cut) for cut in fits)
    return min(found, key=lambda c: (c.ms or 0.0, prod(c.cut)), default=whole)


def candidate_in_blocks(
    problem: Problem, device: Device, levels: tuple[str, ...], products: str, cut: tuple[int, int], whole: Problem | None = None
) -> Candidate:
    """The product of digits whose C is computed in so many blocks of rows and of columns, as C^T = B^T A^T if C is column-major.

    The problem may be a part of a `whole` one.
    """
    g = geometry_for(problem, levels, products, cut)
    ms = digit_ms(problem, device, g, products, cut, whole)
    return Candidate(levels, "preserve", DIGITS, ms, g.places[-1], tile=products, cut=cut)


def geometry_for(
    problem: Problem, levels: tuple[str, ...], products: str, cut: tuple[int, int] = (1, 1), is_complex: bool = False
) -> DigitGeometry:
    """The geometry of a problem's product by these levels, or of a block of it, as C^T = B^T A^T if C is column-major."""
    whole = problem.lines
    m, n = (block_of(extent, parts) for extent, parts in zip(whole, cut, strict=True))
    return replace(geometry_of(levels, (m, problem.k, n), products, is_complex), blocks=(ceil(whole[0] / m), ceil(whole[1] / n)))


def digit_ms(
    problem: Problem, device: Device, g: DigitGeometry, products: str, cut: tuple[int, int] = (1, 1), whole: Problem | None = None
) -> float | None:
    """The milliseconds of a product of digits with this geometry of its blocks.

    None if the device has no rates for it. If the problem is a part of a `whole` one, the size of the whole sets the rate of the products.
    The time is that of the search for the scales, expansion, products, recomposition, and launches. Passes over memory take the time of
    their traffic; scales are found once, digits of a block of rows of A are kept for the blocks of C that have them in common, and those of
    B are made again for every block of rows. A multiprocessor computes one tile of a product after another.
    """
    rates = device.digit_rates(digits_timed(products))
    if rates is None:
        return None
    (m, k, n), bandwidth, itemsize = g.extents, device.bandwidth * 1e9, problem.itemsize
    (down, across), (left, right) = cut, g.digit_bytes
    blocks = down * across
    operands, digits = (down * m * k + blocks * k * n) * itemsize, down * left + blocks * right
    passes = (down * m + across * n) * k * itemsize / rates.search + (operands + digits) / at(rates.expansion, g.rank)
    if not g.is_direct:
        results = m * n * itemsize * (2 if problem.accumulate else 1)
        passes += blocks * (g.product_bytes + results) / at(rates.recomposition, g.rank)
    p = whole or problem
    size = (p.m * p.k * p.n) ** (1 / 3)
    seconds = passes / bandwidth + blocks * product_seconds_of_digits(g, device, rates, size, is_even(problem, "C"))
    launches = 3 + down + blocks * (2 if g.is_direct else 3)
    is_slowed = products in RESIDUE_TILES and not (is_even(problem, "A") and is_even(problem, "B"))
    return seconds * 1e3 + (launches * rates.launch + device.call + (UNEVEN_US if is_slowed else 0.0)) * 1e-3


def triangle_candidate(problem: Problem, device: Device, tile: str) -> Candidate | None:
    """A*A^T of float32, m = n: A is cut once, and the tiles of one triangle are computed and written to both; None without rates."""
    rates = device.digit_rates(tile)
    if rates is None or problem.dtype != FLOAT32.name:
        return None
    g, bandwidth = geometry_for(problem, (), tile), device.bandwidth * 1e9
    operand, tiles = problem.m * problem.k * problem.itemsize, triangle_tiles(g.panels[0], g.tile.cluster)
    passes = operand / rates.search + (operand + g.digit_bytes[0]) / at(rates.expansion, g.rank)
    product = product_seconds_of_digits(g, device, rates, (problem.m**2 * problem.k) ** (1 / 3), is_even(problem, "C"), tiles=tiles)
    ms = (passes / bandwidth + product) * 1e3 + (5 * rates.launch + device.call) * 1e-3
    return Candidate((), "preserve", DIGITS, ms, g.places[-1], tile=tile)


def product_seconds_of_digits(
    g: DigitGeometry,
    device: Device,
    rates: DigitRates,
    size: float,
    is_even: bool = True,
    loaded_uneven: int = 0,
    tiles: int = 0,
) -> float:
    """The seconds of the products alone, for a multiply of this size: every multiprocessor computes one tile at a time, in waves.

    `is_even` says whether rows of C are multiples of 16 bytes, `loaded_uneven` how many operands that the product itself cuts have other
    rows. `tiles` is their number if not all are computed.
    """
    tile = 2 * g.tile.m * g.tile.n * g.tile.k * g.slices * device.processors / (at(rates.product, size) * 1e12)
    tile *= 1 + rates.loading * loaded_uneven
    write = (rates.direct + (0.0 if is_even else rates.uneven)) * 1e-6 if g.is_direct else 0.0
    return ceil((tiles or g.tiles) / device.processors) * (tile + rates.start * 1e-6 + write) + rates.tail * tile


def rows_of(problem: Problem) -> dict[str, int]:
    """The lengths of the rows, as they lie in memory, of A, B and C."""
    m, k, n = problem.m, problem.k, problem.n
    sides = {"A": (k, m), "B": (n, k), "C": (n, m)}
    return {name: by_column if name in problem.column_major else by_row for name, (by_row, by_column) in sides.items()}


def is_even(problem: Problem, name: str) -> bool:
    """Whether the rows of a matrix are multiples of 16 bytes."""
    return rows_of(problem)[name] * problem.itemsize % 16 == 0
