"""Options, the command line, the GPU probe, an empty data folder, hypothesis' profile, and why tests were skipped."""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from functools import _lru_cache_wrapper
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from runtime.pretended_gpu import Gpu
    from shell import Shell

PACKAGE = Path(__file__).parents[1] / "bilinear"
PROVING = tuple(f"bilinear.{room}" for room in ("algebra", "analysis", "frontend", "ir", "lowering", "passes", "verify"))
"""Rooms whose results are truths; what is planned or measured beside replaced parts, tests forget themselves."""

settings.register_profile("slow", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("quick", settings.get_profile("slow"), max_examples=15)
settings.load_profile("quick")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden sources anew")
    parser.addoption("--require-gpu", action="store_true", help="fail where a GPU test would be skipped")
    parser.addoption("--slow", action="store_true", help="run also the tests marked slow, and fail where one of them would be skipped")


def pytest_configure(config: pytest.Config) -> None:
    """Before the test modules are imported: some ask for a multiple of the examples."""
    if config.getoption("--slow"):
        settings.load_profile("slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = mark_all_but_samples(items)
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
    if not config.getoption("--slow"):
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="slow: scripts/test --slow runs it"))


def mark_all_but_samples(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Of a test marked `sample(n, slow=m)`, n of the selected cases stay quick, and others are marked slow: all, or m with the quick ones.

    Returns the rest, which never run.
    """
    families: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sample"):
            families.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out = set()
    for family in families.values():
        marker = family[0].get_closest_marker("sample")
        assert marker is not None
        kept, slow = (spread(wanted, len(family)) for wanted in (marker.args[0], marker.kwargs.get("slow", len(family))))
        for number, item in enumerate(family):
            if number not in kept:
                item.add_marker(pytest.mark.slow)
            if number not in slow:
                left_out.add(item)
    return left_out


def spread(wanted: int, count: int) -> set[int]:
    """So many of the numbers below `count`, or all: multiples of the golden ratio, which do not fall in step with a period of the cases."""
    numbers: dict[int, None] = {}
    for multiple in range(20 * count):
        numbers[int(multiple * (5**0.5 - 1) / 2 % 1 * count)] = None
    return set(islice(numbers, wanted))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A slow test that lacks a tool fails where slow tests were asked for: nothing may pass unseen."""
    report = yield
    if report.skipped and item.get_closest_marker("slow") and item.config.getoption("--slow"):
        report.outcome, report.longrepr = "failed", f"--slow, but {_reason(report)}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Why tests were skipped, as a table; and in the file that SKIPPED_TESTS names, which scripts/test shows at its end."""
    if hasattr(terminalreporter.config, "workerinput"):  # one of several processes, whose reports the first one has
        return
    lines = skipped_table(map(_reason, terminalreporter.stats.get("skipped", [])))
    if lines:
        terminalreporter.section("skipped tests")
        terminalreporter.write_line("\n".join(lines))
    if lines and (place := os.environ.get("SKIPPED_TESTS")):
        with Path(place).open("a", encoding="utf-8") as file:
            print(*lines, sep="\n", file=file)


def skipped_table(reasons: Iterable[str]) -> list[str]:
    """How many tests were skipped for each reason, the most frequent first."""
    return [f"{count:5}  {reason}" for reason, count in Counter(reasons).most_common()]


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why a test or a module was skipped."""
    told = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return told.removeprefix("Skipped: ")


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Shell:
    """The command line in this process, in a folder of its own."""
    from shell import Shell

    monkeypatch.chdir(tmp_path)
    return Shell(monkeypatch, capsys)


@pytest.fixture
def gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    """A pretended GPU, described by the shipped description that the test's module names as `DESCRIBED`, if it does."""
    from runtime.pretended_gpu import describe, undescribed

    with undescribed(monkeypatch) as found:
        describe(monkeypatch, getattr(request.module, "DESCRIBED", None))
        yield found


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an output folder two cases are run in place of eight: odd shapes with strips, and whole lanes."""
    from bilinear.artifact import identities

    whole = identities.cases
    monkeypatch.setattr(identities, "cases", lambda folder: (whole(folder)[3], whole(folder)[7]))


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(scope="session", autouse=True)
def _all_modules() -> None:
    """Import every module before the first test: one that is imported while a test has replaced a name would keep what took its place.

    Not those that import PyTorch, JAX, Dask or MPI, which take long, or begin something, when they are imported.
    """
    for file in sorted(PACKAGE.rglob("*.py")):
        room, *names = file.relative_to(PACKAGE).with_suffix("").parts
        if room not in ("torch", "jax", "dask", "distributed") and names and names[-1] != "__main__":
            with suppress(ModuleNotFoundError):  # CuPy is not everywhere
                import_module(".".join(("bilinear", room, *names)).removesuffix(".__init__"))
    gc.freeze()  # these modules and the tests live as long as the process: the collector need not look at them again and again
    gc.set_threshold(20_000, 10, 10)


@pytest.fixture(scope="session")
def caches(_all_modules: None) -> list[_lru_cache_wrapper[object]]:
    """Every function of the package that keeps its results."""
    modules = [module for name, module in sorted(sys.modules.items()) if name.startswith("bilinear.")]
    return [value for module in modules for value in vars(module).values() if isinstance(value, _lru_cache_wrapper)]


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch: pytest.MonkeyPatch, caches: list[_lru_cache_wrapper[object]]) -> Iterator[None]:
    """Forget what functions kept while a test had replaced a part of a proof: a verdict without its gate must not outlive the test."""
    before = [cache.cache_info().misses for cache in caches]
    yield
    if any(_name_of(target).startswith(PROVING) for target, *_ in monkeypatch._setattr):
        for cache, misses in zip(caches, before, strict=True):
            if cache.cache_info().misses != misses:
                cache.cache_clear()


def _name_of(target: object) -> str:
    """The module that an object is, or is from."""
    return str(getattr(target, "__module__", None) or getattr(target, "__name__", ""))


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
