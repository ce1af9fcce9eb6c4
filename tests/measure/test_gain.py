"""What one gains: on a pretended GPU, at a size that the planner chooses, with a check; without a GPU what a described one promises."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gain
import pytest
from measure.bench_gpu import SLOW_LIBRARY, Gpu, pretend

from bilinear.planner.device_files import load_device
from bilinear.runtime import devices_here

H200 = load_device("h200")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    found = pretend(monkeypatch)
    monkeypatch.setattr(gain, "why_no_gpu", lambda: None)
    monkeypatch.setattr(gain, "SIZES", (32, 64))
    monkeypatch.setattr(gain, "DTYPES", ("float64",))
    monkeypatch.setattr(gain, "MOST_LIBRARY_MS", float("inf"))
    return found


def test_the_size_is_one_at_which_the_planner_expects_a_gain() -> None:
    plan = gain.most_gain(H200)
    assert plan is not None and not plan.is_library and plan.problem.n in gain.SIZES
    library = next(c.ms for c in plan.candidates if c.is_library)
    assert library is not None and plan.chosen.ms is not None
    assert plan.chosen.ms < library <= gain.MOST_LIBRARY_MS


def test_a_small_memory_and_a_fast_library_leave_nothing_to_show() -> None:
    assert gain.most_gain(replace(H200, memory=2**20)) is None
    fast = tuple((dtype, replace(rates, library=((1.0, 1e9),))) for dtype, rates in H200.elements)
    assert gain.most_gain(replace(H200, elements=fast)) is None


def test_a_gain_is_measured_and_told(gpu: Gpu, capsys: pytest.CaptureFixture[str]) -> None:
    """The pretended library takes 6 ms, and the three launches of the plan 1 ms each."""
    assert gain.main() == 0
    told = "checked, measured in 5 rounds beside the fastest library: cupy 6.00 ms, winograd, 1 level 3.00 ms: 2.00 times as fast\n"
    assert capsys.readouterr().out == f"gain on this GPU at N = 64, float64, {told}"


def test_a_loss_is_told_as_one(gpu: Gpu, capsys: pytest.CaptureFixture[str]) -> None:
    gpu.launch_ms = 4.0
    assert gain.main() == 0
    assert "slower (0.50 times as fast)" in capsys.readouterr().out


def test_a_wrong_product_is_told_and_no_time(gpu: Gpu, capsys: pytest.CaptureFixture[str]) -> None:
    def damage(a: Any, b: Any, c: Any) -> None:
        c.flat[0] += 1

    gpu.damage = damage
    assert gain.main() == 1
    out = capsys.readouterr().out
    assert "FAILED its check" in out and " ms" not in out


def test_a_gpu_that_nobody_described_is_not_timed(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(devices_here, "current_device", lambda: None)
    assert gain.main() == 0 and "bilinear tune --keep" in capsys.readouterr().out


def test_where_nothing_gains_it_is_said(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(devices_here, "current_device", lambda: replace(SLOW_LIBRARY, memory=1))
    assert gain.main() == 0 and "none expected" in capsys.readouterr().out and gpu.now == 0


def test_without_a_gpu_the_expected_gain_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(gain, "why_no_gpu", lambda: "CuPy is not installed")
    assert gain.main() == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("gain: none here (CuPy is not installed); predicted for an NVIDIA H200 at N = ") and "--device h200" in second
