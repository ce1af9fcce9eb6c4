"""Launches of a stage that run at once, on a pretended GPU: every launch knows, by events, that the stages before it have ended."""

from __future__ import annotations

import sys
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from runtime.pretended_gpu import Array, Gpu, pretend

from bilinear.backends.cuda_executor import CudaExecutor
from bilinear.backends.executor import execute
from bilinear.codegen.lower import schedule_to_launches
from bilinear.emulator import skip_reason
from bilinear.frontend import load
from bilinear.ir.element import FLOAT32
from bilinear.ir.launch import Launch
from bilinear.ir.matrix import call_of
from bilinear.ir.placement import ALIKE, KERNELS, Placement
from bilinear.lowering.place import place_schedule
from bilinear.lowering.prepare import prepare

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=str(skip_reason()))


class Streams:
    """Streams and events: which launches have ended, for certain, when the next work of a stream begins."""

    def __init__(self, gpu: Gpu) -> None:
        self.ended: dict[int, set[int]] = {}
        self.at: dict[int, set[int]] = {}
        self.before: list[set[int]] = []
        self.gpu, numbers = gpu, count(1000)
        cuda: Any = sys.modules["cupy.cuda"]
        cuda.Stream = lambda non_blocking: SimpleNamespace(ptr=next(numbers))
        cuda.Event = lambda disable_timing: SimpleNamespace(ptr=next(numbers))
        cuda.runtime.eventRecord, cuda.runtime.streamWaitEvent = self.record, self.wait
        cuda.driver.launchKernel = self.launch

    def of(self, stream: int) -> set[int]:
        return self.ended.setdefault(stream, set())

    def record(self, event: int, stream: int) -> None:
        self.at[event] = set(self.of(stream))

    def wait(self, stream: int, event: int) -> None:
        self.of(stream).update(self.at[event])

    def launch(self, *arguments: int) -> None:
        self.before.append(set(self.of(arguments[8])))
        self.of(arguments[8]).add(len(self.before) - 1)
        self.gpu.launch(*arguments)


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    return Streams(pretend(monkeypatch))


def run(mode: str, shape: tuple[int, int, int] = (26, 18, 22), times: int = 1, levels: int = 2) -> tuple[Launch, ...]:
    """Strassen's scheme, compared with the classical product; the launches of its core."""
    generator, (m, k, n) = np.random.default_rng(3), shape
    schedule = prepare(load("strassen").scheme, None, levels, "preserve", mode).schedule
    plan: Placement = place_schedule(schedule, m, k, n, 4, mode=mode)
    for _ in range(times):
        whole = [generator.integers(-4, 5, extents).astype("float32") for extents in ((m, k), (k, n), (m, n))]
        a, b, c = (Array(x.copy()) for x in whole)
        execute(CudaExecutor(), plan, call_of(a, b, c, 2, 3))
        np.testing.assert_array_equal(c.host, 2 * (whole[0] @ whole[1]) + 3 * whole[2])
    return schedule_to_launches(schedule, FLOAT32, mode=mode)


@pytest.mark.parametrize("levels", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_launch_waits_for_all_earlier_stages_and_for_none_of_its_own(streams: Streams, levels: int) -> None:
    launches = run(KERNELS, (24, 16, 20), levels=levels)
    stages = [launch.stage or 0 for launch in launches]
    assert len(streams.before) == len(stages)
    for stage, before in zip(stages, streams.before, strict=True):
        assert before >= {number for number, other in enumerate(stages) if other < stage}
    alone = [stage for stage in set(stages) if stages.count(stage) <= 16]
    assert alone
    for number, before in enumerate(streams.before):
        assert stages[number] not in alone or not {other for other in before if stages[other] == stages[number]}
    assert streams.of(streams.gpu.stream) == set(range(len(stages))), "what the caller launches next runs after all of them"


@pytest.mark.slow
def test_strips_stay_on_the_stream_of_the_caller(streams: Streams) -> None:
    launches = run(KERNELS)
    own = [stream for _, stream in streams.gpu.launches]
    assert len(own) == len(launches) + 3
    assert own[:3] == [streams.gpu.stream] * 3 and streams.gpu.stream not in own[3:]


@pytest.mark.slow
def test_repeats_use_the_same_streams(streams: Streams) -> None:
    run(KERNELS, times=3)
    assert len({stream for _, stream in streams.gpu.launches}) == 1 + 16


def test_other_modes_run_one_kernel_at_a_time(streams: Streams) -> None:
    run(ALIKE, levels=1)
    assert {stream for _, stream in streams.gpu.launches} == {streams.gpu.stream}
