"""Options, the GPU probe, an empty data folder, and hypothesis' profile."""

from __future__ import annotations

from uuid import uuid4

import pytest
from hypothesis import settings

settings.register_profile("bilinear", deadline=None, derandomize=True)
settings.load_profile("bilinear")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden sources anew")
    parser.addoption("--require-gpu", action="store_true", help="fail where a GPU test would be skipped")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(autouse=True)
def _home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans that the user or another test has kept must not affect a test."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path_factory.getbasetemp() / f"home-{uuid4().hex}"))


@pytest.fixture(autouse=True)
def _gpu(request: pytest.FixtureRequest) -> None:
    """Skip tests marked `gpu` where no device is usable, with the reason."""
    if request.node.get_closest_marker("gpu") is None:
        return
    from bilinear.backends.doctor import why_no_gpu

    reason = why_no_gpu()
    if reason is not None and request.config.getoption("--require-gpu"):
        pytest.fail(f"--require-gpu, but {reason}")
    if reason is not None:
        pytest.skip(reason)
