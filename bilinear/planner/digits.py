"""Products of digits: how long they take, and their candidates."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, reduce
from math import ceil, prod
from typing import TYPE_CHECKING

from bilinear.errors import fail
from bilinear.ir.digit_kernel import MOST_BLOCKS, SLICE
from bilinear.ir.element import FLOAT32, Element
from bilinear.ir.residue_tile import RESIDUE_TILES
from bilinear.ir.tile import DIGIT_TILES
from bilinear.planner.device import Device, DigitRates, at
from bilinear.planner.digit_geometry import WORD, DigitGeometry, geometry_of
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
    operands, result = (m * k + k * n) * WORD, m * n * WORD * (2 if accumulate else 1)
    passes = operands / rates.search + (operands + sum(g.digit_bytes)) / rates.expansion
    if not g.is_direct:
        passes += (g.product_bytes + result) / rates.recomposition
    waves = ceil(g.rank * prod(g.panels) / device.processors)
    tile = 2 * g.tile.m * g.tile.n * SLICE * g.slices * device.processors / (at(rates.product, (m * k * n) ** (1 / 3)) * 1e12)
    start = rates.start + (rates.direct if g.is_direct else 0.0)
    launches = 6 if g.is_direct else 7
    return passes / bandwidth + waves * (tile + start * 1e-6) + (launches * rates.launch + device.call) * 1e-6
