"""Descriptions that `bilinear tune --keep` keeps: found for their GPU and driver, and for no others."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from shell import Shell

from bilinear.errors import BilinearError
from bilinear.planner.device import load_device
from bilinear.runtime import auto, tune
from bilinear.runtime.tuned import keep_description, kept_at, kept_description

H200 = load_device("h200")
MINE = replace(H200, name="My GPU, 80 GB", bandwidth=1234.0)


def forget() -> None:
    """What was found for a GPU."""
    for cached in (auto._described, auto._identity, auto._chosen, auto._logged):
        cached.cache_clear()


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("BILINEAR_DEVICE", raising=False)
    load_device.cache_clear()
    forget()
    yield
    load_device.cache_clear()
    forget()


def gpu(monkeypatch: pytest.MonkeyPatch, name: str, driver: int) -> None:
    """A CuPy that knows the name of the GPU and the version of its driver."""
    runtime = SimpleNamespace(getDeviceProperties=lambda index: {"name": name.encode()}, driverGetVersion=lambda: driver)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(Device=lambda: SimpleNamespace(id=0), runtime=runtime)))
    forget()


def test_what_is_kept_is_found_for_its_gpu_and_driver_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = keep_description(MINE, 13000)
    assert path == kept_at(MINE.name, 13000) and path.is_relative_to(tmp_path) and path.name == "my-gpu-80-gb-13000.json"
    for name, driver, found in (
        (MINE.name, 13000, MINE),
        (MINE.name, 13010, None),
        ("My GPU (80 GB)", 13000, None),
        (H200.name, 13000, H200),
    ):
        gpu(monkeypatch, name, driver)
        assert auto.current_device() == found, (name, driver)
    monkeypatch.setenv("BILINEAR_DEVICE", "h200")
    gpu(monkeypatch, MINE.name, 13000)
    assert auto.current_device() == H200, "what is named comes first"


def test_what_is_kept_comes_before_what_is_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_description(replace(H200, bandwidth=4000.0), 13000)
    gpu(monkeypatch, H200.name, 13000)
    found = auto.current_device()
    assert found is not None and found.bandwidth == 4000.0


def test_what_cannot_be_read_is_told_and_not_used(caplog: pytest.LogCaptureFixture) -> None:
    keep_description(MINE, 13000).write_text('{"format": "bilinear-device/2"}')
    with caplog.at_level(logging.WARNING, "bilinear"):
        assert kept_description(MINE.name, 13000) is None
    assert "a description is not used" in caplog.text and "E542" in caplog.text
    caplog.clear()
    path = kept_at(MINE.name, 13000)
    assert path is not None
    path.unlink()
    path.mkdir()  # which no user reads as a file, not even root
    with caplog.at_level(logging.WARNING, "bilinear"):
        assert kept_description(MINE.name, 13000) is None
    assert "a description is not used" in caplog.text


def test_a_place_that_cannot_be_written_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    with pytest.raises(BilinearError, match="E612"):
        keep_description(MINE, 13000)


def test_the_command_keeps_and_prints(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shell = Shell(monkeypatch, capsys)
    monkeypatch.setattr(tune, "tune", lambda progress: MINE)
    gpu(monkeypatch, MINE.name, 13000)
    status, out, _ = shell("tune")
    assert (status, out) == (0, MINE.json()) and kept_description(MINE.name, 13000) is None
    status, out, _ = shell("tune", "--keep", "-o", tmp_path / "mine.json")
    assert status == 0 and "kept in" in out and load_device(str(tmp_path / "mine.json")) == MINE
    assert kept_description(MINE.name, 13000) == MINE
