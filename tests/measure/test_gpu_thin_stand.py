"""The stand for thin products and what the driver reports, on a real GPU. Skipped without one."""

from __future__ import annotations

import numpy as np
import pytest

import bilinear
from bilinear.backends.cublas import multiply_of
from bilinear.backends.machine import description, driver_version, gpu_name, reported_sheet
from bilinear.ir.matrix import layout_of
from bilinear.ir.thin_tile import THIN_TILES
from bilinear.methods.thin.rates import ThinBench, fit, off
from bilinear.planner.device_files import estimated, load_device
from bilinear.planner.library_points import CUBLAS, CUBLASLT, library_points

pytestmark = pytest.mark.gpu
H200 = load_device("h200")


def test_the_driver_reports_enough_for_an_estimate() -> None:
    sheet, known = reported_sheet(), description(gpu_name(), driver_version())
    assert sheet is not None and known is not None
    found = estimated(sheet)
    assert found.estimate and found.processors == known.processors
    assert 0.5 < found.bandwidth / known.bandwidth < 2, "a clock or a width of another unit would be off by more"
    for dtype in THIN_TILES:
        assert 0.3 < found.rates(dtype).library[-1][1] / known.rates(dtype).library[-1][1] < 3


@pytest.mark.parametrize("dtype", THIN_TILES)
def test_points_are_measured_and_either_call_multiplies_exactly(dtype: str) -> None:
    import cupy

    found = ThinBench().thin_library(dtype, 1.0)
    assert len(found) > 20 and all(one.cublas > 1 and one.cublaslt > 1 for one in found)
    generator = np.random.default_rng(1)
    for one, (faster, slower) in zip(found[:6], [(CUBLAS, CUBLASLT), (CUBLASLT, CUBLAS)] * 3, strict=True):
        m, n, k = one.shape
        if max(m, n, k) > 300_000:
            continue
        times = {faster: 1.0, slower: 1.5}
        points = library_points([one._replace(cublas=times[CUBLAS], cublaslt=times[CUBLASLT])], lambda shape: 1.0)
        x, y = generator.integers(-4, 5, (m, k)), generator.integers(-4, 5, (k, n))
        a, b, c = cupy.asarray(x, dtype=dtype), cupy.asarray(y, dtype=dtype), cupy.full((m, n), np.nan, dtype)
        multiply = multiply_of(layout_of(a), layout_of(b), layout_of(c), points=points)
        assert multiply is not None
        multiply(a.data.ptr, b.data.ptr, c.data.ptr, 1, 0)
        np.testing.assert_array_equal(c.get(), x @ y)
        np.testing.assert_array_equal(bilinear.matmul(a, b, levels=0).get(), x @ y)


def test_rates_are_fitted_to_the_tiles_that_are_timed() -> None:
    rates = H200.thin_rates("float32")
    assert rates is not None
    points = ThinBench().thin_tiles("float32", H200)
    assert len(points) > 20
    found = fit(H200, rates, points, "float32")
    assert sum(off(H200, found, points, "float32")) <= sum(off(H200, rates, points, "float32"))
