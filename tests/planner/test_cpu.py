"""Planning for processors: what a description predicts beside counts of the schedules, what is chosen, how it is kept and measured."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from each_case import each
from shell import Shell

import bilinear
from bilinear.errors import BilinearError
from bilinear.ir.element import IN_ARRAYS
from bilinear.ir.schedule import ProductStage
from bilinear.lowering.place import place_schedule
from bilinear.measure import describe_cpu
from bilinear.measure.describe_cpu import SIZES, STREAMED_SIZE, CpuBench, tune_cpu
from bilinear.methods.planning import load_plan
from bilinear.planner.cpu import Cpu, CpuRates, cpu_plan, library_seconds, way_seconds
from bilinear.planner.device_files import cpu_json, parse_cpu
from bilinear.planner.kept_plans import keep_cpu, kept_at, kept_cpu
from bilinear.planner.model import profile_of
from bilinear.planner.problem import Problem
from bilinear.planner.profiles import cpu_ways
from bilinear.planner.ways import Way, lowered
from bilinear.reporting.facts import lowered_facts

RATES = CpuRates(library=((1.0, 50.0),), streaming=((1.0, 16.0),), slack=((256.0, 1.0),))
FAST = Cpu("Some CPU, 2 cores", "numpy 2, some-blas 1", 2**37, 20.0, 4.0, (("float64", RATES), ("float32", RATES)))
"""One level saves an eighth of long products, and little is lost in additions."""
LARGE = Problem(8192, 8192, 8192)


def with_rates(**changed: Any) -> Cpu:
    return replace(FAST, elements=tuple((name, replace(own, **changed)) for name, own in FAST.elements))


@each("way", [*cpu_ways(LARGE), Way(("winograd", "winograd"))])
def test_a_way_takes_its_products_its_traffic_and_its_stages(way: Way) -> None:
    n, (schedule, profile) = 4096, lowered(way)
    facts = lowered_facts(schedule, "preserve", len(schedule.stages))
    placement = place_schedule(schedule, n, n, n, 8)
    products = facts.products * 2 * (n / schedule.m) ** 3 / 50e9
    sums = facts.sums_traffic * n * n * 8 / 16e9
    calls = sum(len(s.products) if isinstance(s, ProductStage) else 1 for s in schedule.stages) * 20e-6
    warm, fresh = (way_seconds(profile, placement, "float64", FAST, RATES, is_warm) for is_warm in (True, False))
    assert warm == pytest.approx(products + sums + calls)
    assert fresh - warm == pytest.approx(facts.workspace * n * n * 8 / 4e9)


def test_strips_cost_their_arithmetic_or_their_traffic() -> None:
    schedule, profile = lowered(Way(("winograd_depth_first",)))
    even, odd = (way_seconds(profile, place_schedule(schedule, m, 4096, 4096, 8), "float64", FAST, RATES, True) for m in (4096, 4097))
    assert odd - even == pytest.approx(max(2 * 4096**2 / 50e9, (4096 + 4096**2 + 4096) * 8 / 16e9))


def test_the_fastest_way_runs_if_it_gains_more_than_the_margin() -> None:
    found = cpu_plan(LARGE, FAST)
    assert found.chosen.levels == ("winograd_depth_first",) * 3 and found.chosen.why.startswith("chosen: 1.")
    times = [c.ms or 0.0 for c in found.candidates if not c.is_library]
    assert len(times) == len(cpu_ways(LARGE)) and times == sorted(times)
    library = next(c for c in found.candidates if c.is_library)
    assert library.ms == pytest.approx(2e3 * 8192**3 / 50e9) and library.why.endswith("slower")
    gain = 1 - (found.chosen.ms or 0.0) / (library.ms or 1.0)
    for margin, is_library in ((gain * 1.001, True), (gain * 0.999, False)):
        assert cpu_plan(LARGE, replace(FAST, least_gain=margin)).is_library == is_library


def test_the_library_runs_without_candidates_of_timed_blocks_or_with_slack() -> None:
    small = cpu_plan(Problem(511, 2048, 2048), FAST)
    assert small.is_library and all("smaller than those that were timed" in c.why for c in small.candidates[1:])
    slow = cpu_plan(LARGE, with_rates(slack=((256.0, 1.6),)))
    assert slow.is_library and slow.chosen.why == "chosen: no plan gains the margin"
    once = cpu_plan(LARGE, with_rates(slack=((1024.0, 1.5), (2048.0, 1.5), (4096.0, 1.0))))
    assert once.chosen.levels == ("winograd_depth_first",), "larger blocks kept what the rates promise"


def test_a_workspace_that_is_kept_makes_schedules_worth_more() -> None:
    slow = replace(FAST, touching=0.2)
    problem = Problem(4096, 4096, 4096)
    assert cpu_plan(problem, slow).is_library and not cpu_plan(problem, slow, is_warm=True).is_library


def test_limits_of_a_problem_are_kept() -> None:
    little = cpu_plan(replace(LARGE, workspace=2 * 4096 * 4096 * 8), FAST)
    assert little.chosen.levels == ("winograd_depth_first",) and little.chosen.workspace == 2 * 4096 * 4096 * 8
    assert cpu_plan(replace(LARGE, workspace=0), FAST).is_library
    assert cpu_plan(LARGE, replace(FAST, memory=6 * 8192**2 * 8)).is_library, "the operands fill half of the memory"
    assert cpu_plan(LARGE, replace(FAST, memory=7 * 8192**2 * 8)).chosen.levels == ("winograd_depth_first",)
    exact = cpu_plan(replace(LARGE, accuracy=1e-8), FAST)
    assert (exact.chosen.error or 1.0) <= 1e-8 < max(c.error or 0.0 for c in exact.candidates)
    assert cpu_plan(replace(LARGE, accumulate=True), FAST).is_library, "all ways overwrite C"
    with pytest.raises(BilinearError, match=r"E543.*no rates of float32"):
        cpu_plan(replace(LARGE, dtype="float32"), replace(FAST, elements=FAST.elements[:1]))


def test_a_plan_is_saved_and_loaded(tmp_path: Path) -> None:
    found = cpu_plan(LARGE, FAST)
    bilinear.save_plan(found, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == found


def test_a_description_is_found_for_its_processors_and_library_alone(caplog: pytest.LogCaptureFixture) -> None:
    path = keep_cpu(FAST)
    assert path == kept_at(FAST.name, FAST.library) and path.name == "some-cpu-2-cores-numpy-2-some-blas-1.json"
    assert kept_cpu(FAST.name, FAST.library) == FAST == parse_cpu(cpu_json(FAST).encode(), "x")
    assert kept_cpu("Some CPU, 4 cores", FAST.library) is None and kept_cpu(FAST.name, "numpy 3") is None
    assert kept_cpu("Some CPU! 2 cores", FAST.library) is None, "of the same file name"
    path.write_text("{}")
    with caplog.at_level(logging.WARNING, "bilinear"):
        assert kept_cpu(FAST.name, FAST.library) is None
    assert "E542" in caplog.text and "bilinear-cpu/1" in caplog.text


@each(
    ("where", "value", "told"),
    [
        (("memory",), 0.5, "memory is not a whole number"),
        (("stage",), -1, "stage is not a number"),
        (("elements",), {"int8": {}}, "elements has others than"),
        (("elements", "float64", "slack"), [[1, 0.5]], "slack is below 1"),
        (("elements", "float64", "library"), [], "library is not a list of pairs"),
        (("least_gain",), 2, "least_gain is above 1"),
    ],
)
def test_a_description_that_makes_no_sense_is_refused(where: tuple[str, ...], value: object, told: str) -> None:
    text = json.loads(cpu_json(FAST))
    inner = text
    for name in where[:-1]:
        inner = inner[name]
    inner[where[-1]] = value
    with pytest.raises(BilinearError, match=f"E542.*{told}"):
        parse_cpu(json.dumps(text).encode(), "x")


class Pretended(CpuBench):
    """The model as if it were processors; from blocks of 512 on, ways take 1.2 times as long as it says."""

    cpu = with_rates(library=tuple((float(n), 40.0 + n / 100) for n in SIZES), streaming=((3.0, 16.0), (11.0, 10.0)))

    def facts(self) -> tuple[str, str, int]:
        return self.cpu.name, self.cpu.library, self.cpu.memory

    def library(self, size: int, dtype: str) -> float:
        return library_seconds((size, size, size), self.cpu.elements[0][1])

    def stages(self, way: Way, size: int, dtype: str) -> list[float]:
        schedule, profile = lowered(way)
        if size != STREAMED_SIZE:
            return [self.cpu.stage * 1e-6 for _ in profile.works]
        placement, rates = place_schedule(schedule, size, size, size, 8 if dtype == "float64" else 4), self.cpu.elements[0][1]
        return [way_seconds(replace(profile, works=(work,)), placement, dtype, self.cpu, rates, True) for work in profile.works]

    def beside(self, way: Way, size: int, dtype: str) -> float:
        schedule, rates = lowered(way)[0], self.cpu.elements[0][1]
        placement = place_schedule(schedule, size, size, size, 8 if dtype == "float64" else 4)
        slow = 1.2 if size // schedule.m >= 512 else 0.9
        return slow * way_seconds(profile_of(schedule), placement, dtype, self.cpu, rates, True) / self.library(size, dtype)

    def touch(self, count: int) -> tuple[float, float]:
        return count * 1e-9 / self.cpu.touching + 0.1, 0.1


def test_tuning_finds_the_description_that_the_times_follow() -> None:
    told: list[str] = []
    found = tune_cpu(lambda what, done, of: told.append(f"{done}/{of} {what}"), Pretended())
    assert told == ["0/3 memory", *(f"{i}/3 products of {dtype}" for i, dtype in enumerate(IN_ARRAYS, 1)), "3/3 done"]
    assert (found.name, found.library) == (FAST.name, FAST.library) and found.stage == pytest.approx(FAST.stage)
    assert found.touching == pytest.approx(FAST.touching)
    for dtype, rates in found.elements:
        assert dict(rates.library) == pytest.approx(dict(Pretended.cpu.elements[0][1].library))
        assert dict(rates.streaming)[3.0] == pytest.approx(16.0) and dict(rates.streaming)[11.0] == pytest.approx(10.0, rel=0.02), dtype
        assert dict(rates.slack) == {256.0: 1.0, 512.0: pytest.approx(1.2, rel=0.05), 1024.0: pytest.approx(1.2, rel=0.05)}


def test_a_library_that_was_disturbed_is_assumed_to_be_as_fast_as_before() -> None:
    class Disturbed(Pretended):
        def library(self, size: int, dtype: str) -> float:
            return super().library(size, dtype) * (3 if size == 4096 else 1)

    for (_, calm), (_, found) in zip(tune_cpu(bench=Pretended()).elements, tune_cpu(bench=Disturbed()).elements, strict=True):
        assert dict(found.library)[4096.0] == dict(calm.library)[2048.0] < dict(calm.library)[4096.0]
        assert found.library[:-1] == calm.library[:-1]


def test_processors_are_timed_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small sizes only: what comes out is positive, and is the description that `--keep` keeps."""
    for name, value in {
        "SIZES": (64, 128),
        "STREAMED_SIZE": 64,
        "TINY": 16,
        "CHECKED_SIZES": (64,),
        "LEAST_BLOCK": 16,
        "TOUCHED": 4096,
    }.items():
        monkeypatch.setattr(describe_cpu, name, value)
    monkeypatch.setattr(CpuBench, "least", 1e-4)
    monkeypatch.setattr(CpuBench, "rounds", 2)
    found = tune_cpu()
    assert (found.name, found.library, found.memory) == CpuBench().facts() and found.stage > 0 and found.touching > 0
    for _, rates in found.elements:
        assert [key for key, _ in rates.slack] == [16.0, 32.0] and all(
            x > 0 for table in (rates.library, rates.streaming) for _, x in table
        )
    assert parse_cpu(cpu_json(found).encode(), "x") == found


def test_the_command_prints_writes_and_keeps(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.setattr(describe_cpu, "tune_cpu", lambda progress: FAST)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.1, 0.1, 0.1))
    tune = Shell(monkeypatch, capsys, "tune", "--cpu")
    assert tune() == (0, cpu_json(FAST), "")
    status, text, told = tune("--keep", "-o", str(tmp_path / "cpu.json"))
    assert (status, told) == (0, "") and "kept in" in text and FAST.library in text
    assert (tmp_path / "cpu.json").read_text() == cpu_json(FAST) and kept_cpu(FAST.name, FAST.library) == FAST
    monkeypatch.setattr(os, "getloadavg", lambda: (9.25, 0.1, 0.1))
    assert "the load average before was 9.2: other programs took part of the time" in tune("--keep")[1]
    for extra in (("--shape", "64"), ("--json",)):
        status, _, told = tune(*extra)
        assert status == 1 and "E557" in told
