"""Tuning on a pretended GPU whose times follow a known description: the description comes back."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from math import ceil, exp
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from each_case import each
from measure.bench_gpu import pretend
from measure.digits_by_model import digit_times, rounded_time
from shell import Shell

from bilinear.backends import machine as gpu_facts
from bilinear.backends.timing import IN_A_ROW, SETTLE_MS, SETTLED_ROUNDS
from bilinear.ir.element import ELEMENTS
from bilinear.ir.schedule import Schedule
from bilinear.ir.thin_tile import THIN_TILES
from bilinear.ir.tile import USUAL
from bilinear.lowering.place import place_schedule
from bilinear.measure import describe_device
from bilinear.measure.describe_device import Facts, GpuBench, tune, tune_here
from bilinear.methods.digits.rates import DigitCase, DigitTimes
from bilinear.methods.planning import make_plan
from bilinear.methods.thin.choice import thin_of, thin_seconds, view_of
from bilinear.methods.thin.rates import SHARED, ThinPoint, drawn, fit, off, problem_of, timed_cases, timed_tiles
from bilinear.planner.device import Device, Extents, ThinRates, TileRates, at
from bilinear.planner.device_files import device_json, device_named, load_device, parse_device
from bilinear.planner.kept_plans import kept_description
from bilinear.planner.library_points import CUBLAS, CUBLASLT, Measured
from bilinear.planner.model import ProductWork, geometric_mean, is_aligned, library_seconds, product_seconds, profile_of, stage_seconds
from bilinear.planner.problem import Problem

H200 = load_device("h200")


def relative(own: TileRates, dtype: str) -> float:
    """The rate of a tile on large blocks, relative to that of the usual one."""
    return at(own.share, 4096) / at(H200.rates(dtype).tile(USUAL).share, 4096)


class Pretended(GpuBench):
    """The model as if it were a device."""

    def __init__(self, device: Device = H200) -> None:
        streaming = ((3.0, 0.9), (150.0, 0.6))
        self.device = device
        for dtype, rates in device.elements:
            tiles = tuple(replace(own, exposed=1 / own.blocks, share=((1.0, relative(own, dtype)),)) for own in rates.tiles)
            self.device = self.device.with_rates(dtype, replace(rates, streaming=streaming, accumulating=1.0, tiles=tiles))

    def facts(self) -> Facts:
        own = self.device
        return Facts("Pretended", own.processors, own.memory, own.l2, own.shared, own.capability)

    def build(self, products: Sequence[tuple[Schedule, str, str]]) -> None:
        assert {dtype for _, dtype, _ in products} == {"float32", "float64"}

    def burst(self, extents: Extents, dtype: str, tile: str) -> float:
        return self.product(extents, dtype, tile)

    def product(self, extents: Extents, dtype: str, tile: str = USUAL, number: int = 0) -> float:
        if max(extents) < 256:
            return self.device.launch * 1e-6
        aligned = is_aligned(extents[1], extents[2], dtype)
        seconds = product_seconds(ProductWork(1, 0, 1), extents, dtype, self.device, geometric_mean(*extents), aligned, tile=tile)
        return seconds / self.device.rates(dtype).strip if extents[2] == 2 else seconds

    def library(self, extents: Extents, dtype: str, number: int = 0) -> float:
        return library_seconds(extents, dtype, self.device)

    def stages(self, schedule: Schedule, size: int, dtype: str, tile: str = USUAL) -> list[float]:
        plan = place_schedule(schedule, size, size, size, ELEMENTS[dtype].bytes, tile=tile)
        return list(stage_seconds(profile_of(schedule).works, plan, dtype, self.device))

    def copy(self, count: int) -> float:
        return 2 * count / (self.device.bandwidth * 1e9)

    def call(self) -> float:
        return (self.device.call + 3 * self.device.launch) * 1e-6

    def thin_tiles(self, dtype: str, device: Device) -> list[ThinPoint]:
        return thin_times(dtype, device, self.slow(dtype))

    def thin_library(
        self, dtype: str, seconds: float, tell: Callable[[float], None] = lambda share: None, seed: int = 1, brief: float = 0.0
    ) -> list[Measured]:
        """cublasLt is twice as fast as cuBLAS from 1,000 rows on, and half as fast else."""
        tell(0.5)
        found = []
        for case in islice(drawn(3), 300):
            us = 3 * self.slow(dtype).least_us(case.shape, ELEMENTS[dtype].bytes, self.device.bandwidth)
            found.append(Measured(case.shape, case.order, ("a", "b"), us, us / 2 if case.shape[0] >= 1000 else us * 2))
        return found

    def able_digits(self, names: Iterable[str], by_warps: bool) -> Sequence[str]:
        if self.device.capability != 90:
            return [name for name in names if name != "pairs_on_load"] if by_warps else []
        return [name for name in names if not (by_warps and name == "pairs_on_load")]

    def build_digits(self, cases: Sequence[DigitCase]) -> None:
        assert len(set(cases)) == len(cases)

    def digits(self, case: DigitCase, number: int) -> DigitTimes | None:
        """Every round has a clock of its own."""
        return DigitTimes(*(seconds * (1.1, 1.0, 0.8)[number] for seconds in digit_times(case, self.device)))

    def rounded(self, name: str, size: int) -> float | None:
        return rounded_time(name, size, self.device)

    def slow(self, dtype: str) -> ThinRates:
        """The rates of the device, but launches take twice as long, and copies are half as fast."""
        rates = self.device.thin_rates(dtype)
        assert rates is not None
        return replace(rates, launch=2 * rates.launch, copies=rates.copies / 2)


def thin_times(dtype: str, device: Device, real: ThinRates, spread: float = 0.0) -> list[ThinPoint]:
    """Times by these rates of what the description has timed.

    With a spread, the model is wrong by so much for each tile, order and long or short sums, and a third of it for each time.
    """
    draw, found, wrong = random.Random(1), list[ThinPoint](), dict[object, float]()
    own = {tile.name: tile for tile in real.tiles}
    for case in timed_cases():
        for one in timed_tiles(case, dtype, device):
            thin, tile = thin_of(one), THIN_TILES[dtype][one.tile]
            view = view_of(problem_of(case, dtype), tile)
            us = 1e6 * thin_seconds(own[thin.tile], tile, view, thin.parts, ELEMENTS[dtype], device, real)
            off_by = wrong.setdefault((thin.tile, case.order, view.k > 1000), draw.gauss(0, spread)) + draw.gauss(0, spread / 3)
            found.append(ThinPoint(thin.tile, view, thin.parts, us * exp(off_by)))
    return found


@each("real", [{}, {"launch": 2.0, "copies": 0.5}, {"adding": 1.8}])
@each("dtype", THIN_TILES)
def test_noise_moves_no_rate_that_tiles_share_and_times_do(dtype: str, real: dict[str, float]) -> None:
    """The model is off by a tenth, as it is on a GPU. Fitted freely, rates that few times tell of moved by up to 8 times."""
    start = H200.thin_rates(dtype)
    assert start is not None
    moved = replace(start, **{name: factor * getattr(start, name) for name, factor in real.items()})
    found = fit(H200, start, thin_times(dtype, H200, moved, 0.1), dtype)
    ratios = {name: getattr(found, name) / getattr(moved, name) for name in SHARED}
    assert ratios == {name: pytest.approx(1, rel=0.25) for name in SHARED}


@pytest.mark.parametrize(("ms", "calls"), [(6.0, 2 + ceil(SETTLE_MS / 6.0) + 2 * SETTLED_ROUNDS - 1), (0.1, 2 + SETTLED_ROUNDS * IN_A_ROW)])
def test_a_long_call_is_timed_behind_others_of_its_kind_and_a_short_one_in_a_queue(
    monkeypatch: pytest.MonkeyPatch, ms: float, calls: int
) -> None:
    gpu = pretend(monkeypatch)
    monkeypatch.setattr(gpu, "zeros", np.zeros, raising=False)
    gpu.library_ms = ms
    assert GpuBench().library((8, 8, 8), "float64") == pytest.approx(ms * 1e-3)
    assert gpu.now == pytest.approx(calls * ms) and bool(gpu.held) == (ms < 1)


@pytest.fixture(scope="module")
def tuned() -> tuple[Device, list[str]]:
    """The description of the pretended device, and what the progress was."""
    told = list[str]()
    return tune(lambda what, done, of: told.append(f"{done}/{of} {what}"), Pretended()), told


@pytest.mark.slow
def test_tuning_finds_the_description_that_the_times_follow(tuned: tuple[Device, list[str]]) -> None:
    bench, (found, told) = Pretended(), tuned
    assert told[:2] == ["0/7 kernels", "0/7 memory"] and len(told) == 26
    begun = told.index("4/7 thin products of float32")
    assert told[begun + 1] == "4/7 the library on thin products of float32, 50%" and told[-1] == "6/7 rounded products"
    assert (found.name, found.processors, found.memory, found.l2) == ("Pretended", H200.processors, H200.memory, H200.l2)
    assert found.bandwidth == pytest.approx(H200.bandwidth) and found.call == pytest.approx(H200.call)
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


def test_tuning_measures_digits_and_rounded_products(tuned: tuple[Device, list[str]]) -> None:
    bench, (found, _) = Pretended(), tuned
    assert [name for name, _ in found.digits] == [name for name, _ in bench.device.digits]
    for name, known in bench.device.digits:
        own = found.digit_rates(name)
        assert own is not None
        for size in (2048, 4096, 8192, 16384):
            assert at(own.product, size) == pytest.approx(at(known.product, size), rel=0.05), (name, size)
        for rank in (1, 7, 49):
            assert at(own.expansion, rank) == pytest.approx(at(known.expansion, rank), rel=0.01)
            assert at(own.recomposition, rank) == pytest.approx(at(known.recomposition, rank), rel=0.01)
        for field in ("search", "loading", "launch", "unaligned", "uneven"):
            assert getattr(own, field) == pytest.approx(getattr(known, field), rel=0.15, abs=0.05), (name, field)
        assert own.start + own.direct == pytest.approx(known.start + known.direct, rel=0.5, abs=0.2), name
        assert own.tail == pytest.approx(known.tail, abs=0.3)
    for name, table in found.rounded:
        for size in (1024, 2048, 4096, 8192, 16384):
            assert at(table, size) == pytest.approx(at(dict(bench.device.rounded)[name], size), rel=0.05)
    for shape in ((4096,) * 3, (8192,) * 3, (3000, 5000, 3001)):
        for accuracy in (None, "classical"):
            problem = Problem(*shape, "float32", accuracy=accuracy)
            assert make_plan(problem, found).chosen.name == make_plan(problem, bench.device).chosen.name


@pytest.mark.sample(1)
@pytest.mark.parametrize("short", ["rtx4090", "a100"])
def test_a_foreign_gpu_that_does_as_its_data_sheet_lets_expect_is_described_so(short: str) -> None:
    """Tuned end to end: the description that is written plans as the estimate does, and belongs to no other GPU."""
    bench = Pretended(load_device(short))
    found = tune(bench=bench)
    assert parse_device(device_json(found).encode(), short) == found and not found.estimate
    assert (found.name, found.capability, found.by_warps) == ("Pretended", bench.device.capability, ())
    assert [name for name, _ in found.digits] == [name for name, _ in bench.device.digits] and device_named("Pretended") is None
    for dtype in ("float64", "float32"):
        for n in (4096, 8192):
            problem = Problem(n, n, n, dtype, accuracy="classical")
            theirs, ours = (make_plan(problem, device).chosen for device in (bench.device, found))
            assert theirs.ms is not None and ours.ms == pytest.approx(theirs.ms, rel=0.1), (n, dtype, theirs.name, ours.name)


def test_tuning_measures_thin_products(tuned: tuple[Device, list[str]]) -> None:
    bench, (found, _) = Pretended(), tuned
    for dtype in THIN_TILES:
        rates, known, start = found.thin_rates(dtype), bench.slow(dtype), H200.thin_rates(dtype)
        assert rates is not None and start is not None
        points = bench.thin_tiles(dtype, replace(found, thin=((dtype, start),)))
        assert median(off(found, rates, points, dtype)) < 0.03 < median(off(found, start, points, dtype))
        assert rates.launch == pytest.approx(known.launch, rel=0.5)
        lanes, size = ELEMENTS[dtype].lanes, ELEMENTS[dtype].bytes
        for shape, faster in (((20_000, 8, 20_000), CUBLASLT), ((8, 20_000, 20_000), CUBLAS)):
            assert rates.library.faster("NN", shape, lanes, ("a", "b")) == faster
            us = min(rates.library.times("NN", shape, lanes).values()) * rates.least_us(shape, size, found.bandwidth)
            shorter = 1.5 if faster == CUBLASLT else 3
            assert us == pytest.approx(shorter * known.least_us(shape, size, found.bandwidth), rel=0.2)


@pytest.mark.slow
def test_the_command_writes_and_keeps_a_description(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shell: Shell) -> None:
    monkeypatch.setattr(describe_device, "gpu_bench", Pretended)
    monkeypatch.setattr(gpu_facts, "driver_version", lambda: 13000)
    status, out, _ = shell("tune", "--keep", "-o", "mine.json")
    written = load_device(str(tmp_path / "mine.json"))
    assert status == 0 and "kept in" in out
    assert written == kept_description("Pretended", 13000)


@pytest.mark.slow
def test_an_interrupted_tune_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tuned: tuple[Device, list[str]]) -> None:
    timed = list[object]()

    class Interrupted(Pretended):
        def digits(self, case: DigitCase, number: int) -> DigitTimes | None:
            timed.append((case, number))
            if len(timed) == 20:
                raise KeyboardInterrupt
            return super().digits(case, number)

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(describe_device, "gpu_bench", Interrupted)
    monkeypatch.setattr(gpu_facts, "driver_version", lambda: 13000)
    with pytest.raises(KeyboardInterrupt):
        tune_here()
    (times,) = tmp_path.rglob("*.times")
    times.write_text(times.read_text() + '["cut off')
    assert tune_here() == tuned[0] and len(timed) == len(set(timed)) + 1, "only the product that was interrupted is timed again"
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    assert tune_here() == tuned[0], "without a place for the times it is described all the same"


@pytest.mark.slow
def test_a_device_with_less_shared_memory_is_described_without_the_tiles_that_do_not_fit() -> None:
    class Small(Pretended):
        def facts(self) -> Facts:
            return replace(super().facts(), shared=99 * 1024)

        def product(self, extents: Extents, dtype: str, tile: str = USUAL, number: int = 0) -> float:
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
