"""Products whose loader cuts A and B into digits: their candidates, and how long they take. Their workspace holds nothing but scales."""

from __future__ import annotations

from collections.abc import Iterator

from bilinear.errors import fail
from bilinear.ir.element import FLOAT32
from bilinear.ir.tile import LOADING_TILES
from bilinear.planner.device import Device
from bilinear.planner.digit_geometry import DigitGeometry
from bilinear.planner.digits import geometry_for, is_even, product_seconds_of_digits, search_seconds
from bilinear.planner.plan import DIGITS, Candidate
from bilinear.planner.problem import Problem

LAUNCHES = 4
"""Launches beside the first: two searches for the largest magnitudes, the product, the classical product that the flag asks for."""


def loaded_candidates(problem: Problem, device: Device) -> Iterator[Candidate]:
    """The products of a problem of float32 for which the device has rates."""
    for tile in LOADING_TILES:
        if problem.dtype == FLOAT32.name and device.digit_rates(tile) is not None:
            yield loaded_candidate(problem, device, (), tile)


def loaded_candidate(problem: Problem, device: Device, levels: tuple[str, ...], tile: str) -> Candidate:
    """The product in this tile, as C^T = B^T A^T if C is column-major; its time is None if the device has no rates for it.

    Raises `BilinearError`: E782 for numbers of another type, E781 for levels above it, whose sums it cannot form.
    """
    if problem.dtype != FLOAT32.name:
        raise fail("E782", f"{tile} are cut from {FLOAT32}, not from {problem.dtype}", "plan for float32, or take `residues`")
    if levels:
        what = f"below {', '.join(levels)} nothing would form the sums of blocks: {tile} are cut from A and B themselves"
        raise fail("E781", what, "take `pairs` below levels, or name no level")
    g = geometry_for(problem, (), tile)
    return Candidate((), "preserve", DIGITS, _ms(problem, device, g, tile), g.places[-1], tile=tile)


def _ms(problem: Problem, device: Device, g: DigitGeometry, tile: str) -> float | None:
    """The milliseconds of the search for the scales, the product, and launches; None if the device has no rates."""
    rates = device.digit_rates(tile)
    if rates is None:
        return None
    m, k, n = g.extents
    search = search_seconds(rates, device, (m, n), k, problem.itemsize)
    uneven = sum(not is_even(problem, name) for name in "AB")
    product = product_seconds_of_digits(g, device, rates, (m * k * n) ** (1 / 3), is_even(problem, "C"), uneven)
    return (search + product) * 1e3 + (LAUNCHES * rates.launch + device.call + (rates.unaligned if uneven else 0.0)) * 1e-3
