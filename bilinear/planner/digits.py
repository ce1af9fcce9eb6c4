"""Products of digits: how long they take, and their candidates."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, reduce
from math import ceil, prod
from typing import TYPE_CHECKING

from bilinear.errors import fail
from bilinear.ir.digit_kernel import MOST_BLOCKS
from bilinear.ir.element import ELEMENTS, FLOAT32, Element
from bilinear.ir.residue_tile import RESIDUE_TILES
from bilinear.ir.tile import DIGIT_TILES
from bilinear.planner.device import Device, DigitRates, at
from bilinear.planner.digit_geometry import DigitGeometry, geometry_of
from bilinear.planner.plan import DIGITS, Candidate
from bilinear.planner.portfolio import portfolio
from bilinear.planner.problem import Problem
from bilinear.planner.ways import algorithm_named, follows_from_names

if TYPE_CHECKING:  # readers are imported lazily: most plans need none
    from bilinear.ir.scheme import Scheme


def element_of(products: str) -> Element:
    """The type whose numbers are cut for products of this name."""
    return RESIDUE_TILES[products].of if products in RESIDUE_TILES else FLOAT32


def products_of(dtype: str) -> tuple[str, ...]:
    """The names of products of digits of an element type."""
    return tuple(name for name in (*DIGIT_TILES, *RESIDUE_TILES) if element_of(name).name == dtype)


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


def digits_timed(products: str) -> str:
    """The name under which a device's description has the rates of products of this name."""
    return f"residues of {element_of(products)}" if products in RESIDUE_TILES else products


def digit_candidates(problem: Problem, device: Device) -> Iterator[Candidate]:
    """Products by pairs of digits for a problem of float32, by the levels of the portfolio."""
    for tile in DIGIT_TILES:
        if problem.dtype == FLOAT32.name and device.digit_rates(tile) is not None:
            for levels in portfolio().digits:
                yield digit_candidate(problem, device, levels, tile)


def digit_candidate(problem: Problem, device: Device, levels: tuple[str, ...], tile: str) -> Candidate:
    """The product of pairs of digits by these levels in this tile, as C^T = B^T A^T if C is column-major.

    Raises `BilinearError` (E543) if numbers of the problem's type are not cut so, or the device has no rates for it.
    """
    if problem.dtype != FLOAT32.name or device.digit_rates(tile) is None:
        raise fail("E543", f"the description of {device.name} has no rates for digits of {problem.dtype}", "plan for float32 on an H200")
    g = geometry_for(problem, levels, tile)
    return Candidate(levels, "preserve", DIGITS, digit_ms(problem, device, g, tile), g.places[-1], tile=tile)


def geometry_for(problem: Problem, levels: tuple[str, ...], products: str) -> DigitGeometry:
    """The geometry of a problem's product by these levels, as C^T = B^T A^T if C is column-major."""
    m, n = (problem.n, problem.m) if "C" in problem.column_major else (problem.m, problem.n)
    return geometry_of(levels, (m, problem.k, n), products)


def digit_ms(problem: Problem, device: Device, g: DigitGeometry, products: str) -> float | None:
    """The milliseconds of a product of digits; None if the device has no rates for it.

    They are those of the search for the scales, expansion, products, recomposition, and launches. Passes take the time of their traffic. A
    multiprocessor computes one tile of a product after another.
    """
    rates = device.digit_rates(digits_timed(products))
    if rates is None:
        return None
    (m, k, n), bandwidth, size = g.extents, device.bandwidth * 1e9, ELEMENTS[problem.dtype].bytes
    operands, result = (m * k + k * n) * size, m * n * size * (2 if problem.accumulate else 1)
    passes = operands / rates.search + (operands + sum(g.digit_bytes)) / at(rates.expansion, g.rank)
    if not g.is_direct:
        passes += (g.product_bytes + result) / at(rates.recomposition, g.rank)
    return (passes / bandwidth + product_seconds_of_digits(g, device, rates)) * 1e3 + (
        (6 if g.is_direct else 7) * rates.launch + device.call
    ) * 1e-3


def product_seconds_of_digits(g: DigitGeometry, device: Device, rates: DigitRates) -> float:
    """The seconds of the products alone: a tile at a time on every multiprocessor, in waves."""
    m, k, n = g.extents
    tile = 2 * g.tile.m * g.tile.n * g.tile.k * g.slices * device.processors / (at(rates.product, (m * k * n) ** (1 / 3)) * 1e12)
    return ceil(g.tiles / device.processors) * (tile + (rates.start + (rates.direct if g.is_direct else 0.0)) * 1e-6)
