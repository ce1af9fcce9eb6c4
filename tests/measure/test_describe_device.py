"""Tuning on a pretended GPU whose times follow a known description: the description comes back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from measure.bench_gpu import pretend
from measure.modes_by_model import TRUE, pilot_times, plan_times
from shell import Shell

from bilinear.backends import gpu as gpu_facts
from bilinear.ir.element import ELEMENTS
from bilinear.ir.schedule import Schedule
from bilinear.ir.thin_tile import THIN_TILES
from bilinear.ir.tile import USUAL
from bilinear.lowering.place import place_schedule
from bilinear.measure import describe_device
from bilinear.measure.describe_device import tune
from bilinear.measure.device_bench import Facts, GpuBench
from bilinear.measure.fit_thin import Point, off
from bilinear.measure.mode_pilots import Pilot, PilotPlan, pilot_plans
from bilinear.measure.thin_stand import NAMED, Case, drawn, problem_of
from bilinear.methods.planning import make_plan
from bilinear.methods.thin.choice import thin_of
from bilinear.methods.thin.method import thin_candidates
from bilinear.methods.thin.times import thin_seconds, view_of
from bilinear.planner.device import Device, TileRates, at
from bilinear.planner.device_files import device_json, load_device, parse_device
from bilinear.planner.kept_plans import kept_description
from bilinear.planner.library_points import CUBLAS, CUBLASLT, Measured
from bilinear.planner.model import ProductWork, geometric_mean, is_aligned, library_seconds, product_seconds, profile_of, stage_seconds
from bilinear.planner.policy import Extents
from bilinear.planner.problem import Problem
from bilinear.planner.thin_rates import ThinRates

H200 = load_device("h200")
MODES = replace(TRUE, item=0.0)


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

    def thin_tiles(self, dtype: str, device: Device) -> list[Point]:
        rates, found = self.slow(dtype), []
        for shape in NAMED:
            for order in ("TN", "NT"):
                problem = problem_of(Case(shape, order), dtype)
                for one in sorted(thin_candidates(problem, device), key=lambda one: one.ms or 0.0)[:4]:
                    own = next(own for own in rates.tiles if own.name == one.tile)
                    tile = THIN_TILES[dtype][one.tile]
                    view = view_of(problem, tile)
                    seconds = thin_seconds(own, tile, view, thin_of(one).parts, ELEMENTS[dtype], self.device, rates)
                    found.append(Point(one.tile, view, thin_of(one).parts, seconds * 1e6))
        return found

    def thin_library(self, dtype: str, seconds: float, tell: Callable[[float], None]) -> list[Measured]:
        """cublasLt is twice as fast as cuBLAS from 1,000 rows on, and half as fast else."""
        tell(0.5)
        found = []
        for case in islice(drawn(3), 300):
            us = 3 * self.slow(dtype).least_us(case.shape, ELEMENTS[dtype].bytes, self.device.bandwidth)
            found.append(Measured(case.shape, case.order, ("a", "b"), us, us / 2 if case.shape[0] >= 1000 else us * 2))
        return found

    def pilots(self, runs: Sequence[Pilot]) -> dict[Pilot, float]:
        return pilot_times(runs, MODES)

    def pilot_plan(self, plan: PilotPlan) -> Sequence[float]:
        return plan_times(plan, MODES, self.device)

    def slow(self, dtype: str) -> ThinRates:
        """The rates of the H200, but launches take twice as long, and copies are half as fast."""
        rates = H200.thin_rates(dtype)
        assert rates is not None
        return replace(rates, launch=2 * rates.launch, copies=rates.copies / 2)


def test_a_time_is_that_of_one_of_the_calls_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = pretend(monkeypatch)
    monkeypatch.setattr(gpu, "zeros", np.zeros, raising=False)
    assert GpuBench().library((8, 8, 8), "float64") == pytest.approx(gpu.library_ms * 1e-3)
    assert gpu.now == pytest.approx((1 + 5 * 50) * gpu.library_ms)


@pytest.fixture(scope="module")
def tuned() -> tuple[Device, list[str]]:
    """The description of the pretended device, and what the progress was."""
    told = list[str]()
    return tune(lambda what, done, of: told.append(f"{done}/{of} {what}"), Pretended()), told


def test_tuning_finds_the_description_that_the_times_follow(tuned: tuple[Device, list[str]]) -> None:
    bench, (found, told) = Pretended(), tuned
    assert told[0] == "0/6 memory" and len(told) == 8
    assert told[4:6] == ["4/6 thin products of float32", "4/6 the library on thin products of float32, 50%"]
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


def test_tuning_measures_thin_products(tuned: tuple[Device, list[str]]) -> None:
    bench, (found, _) = Pretended(), tuned
    for dtype in THIN_TILES:
        rates, known, start = found.thin_rates(dtype), bench.slow(dtype), H200.thin_rates(dtype)
        assert rates is not None and start is not None
        points = bench.thin_tiles(dtype, replace(found, thin=((dtype, start),)))
        assert median(off(found, rates, points, dtype)) < 0.03 < median(off(found, start, points, dtype))
        assert rates.launch == pytest.approx(known.launch, rel=0.3)
        lanes, size = ELEMENTS[dtype].lanes, ELEMENTS[dtype].bytes
        for shape, faster in (((20_000, 8, 20_000), CUBLASLT), ((8, 20_000, 20_000), CUBLAS)):
            assert rates.library.faster("NN", shape, lanes, ("a", "b")) == faster
            us = min(rates.library.times("NN", shape, lanes).values()) * rates.least_us(shape, size, found.bandwidth)
            shorter = 1.5 if faster == CUBLASLT else 3
            assert us == pytest.approx(shorter * known.least_us(shape, size, found.bandwidth), rel=0.2)


def test_tuning_with_modes_adds_their_rates_and_changes_no_other(tuned: tuple[Device, list[str]]) -> None:
    told = list[str]()
    found = tune(lambda what, done, of: told.append(f"{done}/{of} {what}"), Pretended(), modes=True)
    assert found.modes is not None and replace(found, modes=None) == tuned[0]
    assert told[0] == "0/13 memory" and told[-7] == "6/13 the pilot kernel of execution modes"
    assert told[-6:] == [f"{7 + i}/13 mode {plan.mode}, {plan.dtype}, {plan.size}" for i, plan in enumerate(pilot_plans())]
    assert told[-1] == "12/13 mode S-M-T, float64, 8192"
    own = asdict(found.modes)
    for name in ("again", "warp_tile"):
        assert dict(own.pop(name)) == pytest.approx(dict(getattr(MODES, name)), rel=0.05)
    assert own == pytest.approx({name: getattr(MODES, name) for name in own}, rel=0.01)


def test_the_command_writes_and_keeps_rates_of_modes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shell: Shell) -> None:
    monkeypatch.setattr(describe_device, "gpu_bench", Pretended)
    monkeypatch.setattr(gpu_facts, "driver_version", lambda: 13000)
    status, out, _ = shell("tune", "--modes", "--keep", "-o", "mine.json")
    written = load_device(str(tmp_path / "mine.json"))
    assert status == 0 and "kept in" in out and written.modes is not None
    assert written == kept_description("Pretended", 13000)
    status, out, _ = shell("tune", "--modes")
    assert (status, out) == (0, device_json(written))
    status, out, _ = shell("tune", "--keep")
    kept = kept_description("Pretended", 13000)
    assert status == 0 and kept == replace(written, modes=None), "a description is written as a whole"


def test_a_device_with_less_shared_memory_is_described_without_the_tiles_that_do_not_fit() -> None:
    class Small(Pretended):
        def facts(self) -> Facts:
            return replace(super().facts(), shared=99 * 1024)

        def product(self, extents: Extents, dtype: str, tile: str = USUAL) -> float:
            assert (tile, dtype) != ("large", "float64")
            return super().product(extents, dtype, tile)

        def stages(self, schedule: Schedule, size: int, dtype: str, tile: str = USUAL) -> list[float]:
            assert (tile, dtype) != ("large", "float64")
            return super().stages(schedule, size, dtype, tile)

    found = tune(bench=Small())
    assert found.shared == 99 * 1024 and "large" not in found.tiles("float64") and "large" in found.tiles("float32")
    assert parse_device(device_json(found).encode(), "found") == found
    assert make_plan(Problem(8192, 8192, 8192), found).chosen.tile != "large"


def test_drawn_products_are_thin_and_fit_into_memory() -> None:
    cases = list(islice(drawn(1, 10**7), 2000))
    assert all(min(case.shape) <= 64 and max(m * k, k * n, m * n) <= 10**7 for case in cases for m, n, k in [case.shape])
    assert {case.order for case in cases} == {"NN", "NT", "TN", "TT"} and cases == list(islice(drawn(1, 10**7), 2000))
    assert {min(range(3), key=lambda i: case.shape[i]) for case in cases} == {0, 1, 2}
