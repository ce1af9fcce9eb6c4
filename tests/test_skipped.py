"""Slow tests run only where they were asked for, and there nothing is skipped unseen; no test sees what another one had replaced."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import skipped_table, spread

ROOT = Path(__file__).resolve().parents[1]
TESTS = """
import pytest
from bilinear.frontend import schemes

def test_replaces_a_part(monkeypatch):
    monkeypatch.setattr(schemes, "exact", lambda value: "wrong")
    assert schemes._simple("12345") == "wrong"

def test_has_the_part_again(): assert schemes._simple("12345") == 12345

def test_quick(): pass

@pytest.mark.slow
def test_slow(): pass

@pytest.mark.slow
@pytest.mark.skipif(True, reason="no prover")
def test_needs_a_program(): pass

@pytest.mark.skip(reason="no machine")
def test_needs_a_machine(): pass

def test_says_no_within(): pytest.skip("no machine")

@pytest.mark.sample(2, slow=4)
@pytest.mark.parametrize("case", range(5))
def test_of_many_cases(case): pass
"""


@pytest.mark.parametrize("workers", [pytest.param([], id="alone"), pytest.param(["-n", "1"], id="spread", marks=pytest.mark.slow)])
def test_skips_are_told_and_replacements_forgotten(workers: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  slow: slow\n  gpu: gpu\n  sample(n): n quick cases\n")
    (tmp_path / "test_it.py").write_text(TESTS)
    monkeypatch.setenv("SKIPPED_TESTS", str(tmp_path / "skipped"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    results = []
    for slow in ([], ["--slow"]):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *workers, *slow, "test_it.py"]
        results.append(subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False))
    quick, whole = results
    assert quick.returncode == 0 and "5 passed, 6 skipped" in quick.stdout
    told = ["    3  slow: scripts/test --slow runs it", "    2  no machine", "    1  no prover"]
    assert "\n".join(told) in quick.stdout
    assert whole.returncode == 1 and "8 passed, 2 skipped" in whole.stdout and "1 error" in whole.stdout
    assert "--slow, but no prover" in whole.stdout
    assert (tmp_path / "skipped").read_text().splitlines() == [*told, "    2  no machine"]


def test_a_sample_is_as_large_as_asked_and_spread() -> None:
    assert [len(spread(wanted, 30)) for wanted in (0, 1, 7, 30, 31)] == [0, 1, 7, 30, 30]
    assert {number // 10 for number in spread(5, 30)} == {0, 1, 2} and {number % 2 for number in spread(5, 30)} == {0, 1}


def test_the_most_frequent_reason_comes_first() -> None:
    assert skipped_table(["a", "b", "b"]) == ["    2  b", "    1  a"] and skipped_table([]) == []
