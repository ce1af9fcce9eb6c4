"""Tuning on a pretended GPU whose times follow a known description: the description comes back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from measure.bench_gpu import pretend

from bilinear.ir.element import ELEMENTS
from bilinear.ir.schedule import Schedule
from bilinear.ir.tile import USUAL
from bilinear.lowering.place import place_schedule
from bilinear.measure.describe_device import Facts, GpuBench, tune
from bilinear.planner.device import TileRates, at
from bilinear.planner.device_files import device_json, load_device, parse_device
from bilinear.planner.model import ProductWork, geometric_mean, is_aligned, library_seconds, product_seconds, profile_of, stage_seconds
from bilinear.planner.policy import Extents

H200 = load_device("h200")


def relative(own: TileRates, dtype: str) -> float:
    """The rate of a tile on large blocks, relative to that of the usual one."""
    return at(own.share, 4096) / at(H200.rates(dtype).tile(USUAL).share, 4096)


class Pretended:
    """The model as if it were a device."""

    def __init__(self) -> None:
        streaming = ((3.0, 0.9), (150.0, 0.6))
        self.device = H200
        for dtype, rates in H200.elements:
            tiles = tuple(replace(own, exposed=1 / own.blocks, share=((1.0, relative(own, dtype)),)) for own in rates.tiles)
            self.device = self.device.with_rates(dtype, replace(rates, streaming=streaming, accumulating=1.0, tiles=tiles))

    def facts(self) -> Facts:
        return Facts("Pretended", H200.processors, H200.memory, H200.l2)

    def product(self, extents: Extents, dtype: str, tile: str = USUAL) -> float:
        if max(extents) < 256:
            return self.device.launch * 1e-6
        aligned = is_aligned(extents[1], extents[2], dtype)
        seconds = product_seconds(ProductWork(1, 0, 1), extents, dtype, self.device, geometric_mean(*extents), aligned, tile=tile)
        return seconds / self.device.rates(dtype).strip if extents[2] == 2 else seconds

    def library(self, extents: Extents, dtype: str) -> float:
        return library_seconds(extents, dtype, self.device)

    def stages(self, schedule: Schedule, size: int, dtype: str, tile: str = USUAL) -> list[float]:
        plan = place_schedule(schedule, size, size, size, ELEMENTS[dtype].bytes, tile=tile)
        return list(stage_seconds(profile_of(schedule).works, plan, dtype, self.device))

    def copy(self, count: int) -> float:
        return 2 * count / (self.device.bandwidth * 1e9)

    def call(self) -> float:
        return (self.device.call + 3 * self.device.launch) * 1e-6


def test_a_time_is_that_of_one_of_the_calls_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = pretend(monkeypatch)
    monkeypatch.setattr(gpu, "zeros", np.zeros, raising=False)
    assert GpuBench().library((8, 8, 8), "float64") == pytest.approx(gpu.library_ms * 1e-3)
    assert gpu.now == pytest.approx((1 + 5 * 50) * gpu.library_ms)


def test_tuning_finds_the_description_that_the_times_follow() -> None:
    bench, told = Pretended(), list[str]()
    found = tune(lambda what, done, of: told.append(f"{done}/{of} {what}"), bench)
    assert told[0] == "0/4 memory" and len(told) == 4
    assert (found.name, found.processors, found.memory, found.l2) == ("Pretended", H200.processors, H200.memory, H200.l2)
    assert found.bandwidth == pytest.approx(H200.bandwidth) and found.call == pytest.approx(max(1.0, H200.call))
    for dtype in ("float32", "float64"):
        known, measured = H200.rates(dtype), found.rates(dtype)
        for own, real in zip(measured.tiles, known.tiles, strict=True):
            assert (own.name, own.rows, own.columns, own.blocks) == (real.name, real.rows, real.columns, real.blocks)
            assert own.unaligned == pytest.approx(real.unaligned, rel=0.05) and own.exposed == 1 / own.blocks
            assert own.lone == pytest.approx(real.lone, rel=0.1) and at(own.share, 4096) == pytest.approx(relative(real, dtype), rel=0.1)
        for streams in (5, 20, 60):
            assert at(measured.streaming, streams) == pytest.approx(at(bench.device.rates(dtype).streaming, streams), rel=0.05)
        for name in ("scattered", "epilogue", "scattered_epilogue", "strip", "library_unaligned"):
            assert getattr(measured, name) == pytest.approx(getattr(known, name), rel=0.15), name
        for size in (2048, 4096, 8192, 16384):
            assert at(measured.product, size) == pytest.approx(at(known.product, size), rel=0.05)
            assert at(measured.library, size) == pytest.approx(at(known.library, size), rel=0.05)
    assert parse_device(device_json(found).encode(), "found") == found
