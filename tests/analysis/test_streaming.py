"""When arithmetic takes longer than reading, and what must be under way: the paper's figures and the limits of its formulas."""

from __future__ import annotations

import pytest

from bilinear.analysis.traffic import ARITHMETIC, LATENCY, MEMORY, bound_by, threshold


def test_the_threshold_is_half_of_the_papers() -> None:
    """For a V100 the paper has about 70 columns in float32: 15.7 TFLOP/s and 900 GB/s, a multiply-add counted once."""
    assert threshold(15.7e12, 900e9, 4) == pytest.approx(70 / 2, rel=0.01)
    assert threshold(7.8e12, 900e9, 8) == pytest.approx(70 / 2, rel=0.01)


def test_at_the_threshold_reading_and_multiplying_take_as_long() -> None:
    rate, bandwidth, m, k = 50e12, 4e12, 10**6, 10**3
    n = threshold(rate, bandwidth, 8)
    assert 2 * m * k * n / rate == pytest.approx(m * k * 8 / bandwidth)


def test_what_bounds_a_kernel() -> None:
    assert bound_by(0.49, 1.0, 9.0) == LATENCY
    assert bound_by(1.0, 1.0, 0.9) == MEMORY
    assert bound_by(1.0, 1.0, 1.1) == ARITHMETIC
    assert bound_by(0.5, 1.0, 1.9) == MEMORY, "half of the bandwidth takes twice as long"
    assert bound_by(1.0, 1.0, 0.9, 1_900.0) == MEMORY and bound_by(1.0, 1.0, 0.9, 2_100.0) == LATENCY, "milliseconds beside seconds"
