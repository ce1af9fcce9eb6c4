"""Times of products of digits as a description predicts them, pass by pass."""

from __future__ import annotations

from dataclasses import replace

from bilinear.ir.rounded import ROUNDINGS
from bilinear.ir.tile import LOADING_TILES
from bilinear.methods.digits.choice import digits_timed, element_of
from bilinear.methods.digits.plans import digit_ms, geometry_for, is_even, loaded_candidate, product_seconds_of_digits, search_seconds
from bilinear.methods.digits.rates import DigitCase, DigitTimes
from bilinear.methods.rounded.method import ROUNDED
from bilinear.planner.device import Device, at
from bilinear.planner.problem import Problem


def digit_times(case: DigitCase, device: Device) -> DigitTimes:
    """The times of a product on a device, whose host takes no time."""
    device = replace(device, call=0.0)
    rates = device.digit_rates(digits_timed(case.products))
    assert rates is not None
    problem = Problem(*case.extents, str(element_of(case.products)))
    m, k, n = case.extents
    g, bandwidth = geometry_for(problem, case.levels, case.products), device.bandwidth * 1e9
    uneven = sum(not is_even(problem, name) for name in "AB") if case.products in LOADING_TILES else 0
    product = product_seconds_of_digits(g, device, rates, (m * k * n) ** (1 / 3), is_even(problem, "C"), uneven)
    operands = (m * k + k * n) * problem.itemsize
    search = search_seconds(rates, device, (m, n), k, problem.itemsize)
    if case.products in LOADING_TILES:
        ms = loaded_candidate(problem, device, (), case.products).ms
        assert ms is not None
        return DigitTimes(search, 0.0, product, 0.0, 1e-3 * ms)
    ms = digit_ms(problem, device, g, case.products)
    assert ms is not None
    expansion = (operands + sum(g.digit_bytes)) / at(rates.expansion, g.rank) / bandwidth
    results = 0.0 if g.is_direct else (g.product_bytes + m * n * problem.itemsize) / at(rates.recomposition, g.rank) / bandwidth
    return DigitTimes(search, expansion, product, results, 1e-3 * ms)


def rounded_time(name: str, size: int, device: Device) -> float:
    """The seconds of a rounded product."""
    assert name in ROUNDINGS
    ms = ROUNDED.named(Problem(size, size, size, "float32"), replace(device, call=0.0), (), name, 0).ms
    assert ms is not None
    return 1e-3 * ms
