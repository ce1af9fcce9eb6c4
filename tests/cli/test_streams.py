"""Standard output in other encodings, closed, full, or read by nobody: no traceback, and an exit code that says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from shell import Shell

ALL = ("show u.bl", "list", "verify u.bl", "plan --shape 64 --device h200 --explain", "doctor", "verify --help")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "u.bl").write_text('scheme u <1,1,1;1>\n  source "Ελλ 中 ⊗ é"\n  M1: 1 | 1 | 1\n', encoding="utf-8")
    return tmp_path


def ran(folder: Path, words: str, after: str = "", **changes: str) -> subprocess.CompletedProcess[bytes]:
    """The command line in a process of its own, in a shell that has its say `after` the words."""
    line = f'"{sys.executable}" -m bilinear.cli {words} {after}'
    own = {"BILINEAR_CACHE_DIR": str(folder / "cache")}  # others fill theirs while doctor measures it
    return subprocess.run(["bash", "-c", line], cwd=folder, env={**os.environ, **own, **changes}, capture_output=True, check=False)


@pytest.mark.sample(1)
@pytest.mark.parametrize("words", ALL)
def test_what_the_encoding_lacks_is_escaped(folder: Path, words: str) -> None:
    encoding = "ascii" if words == "list" else "latin-1"
    done = ran(folder, words, PYTHONIOENCODING=encoding)
    usual = ran(folder, words, PYTHONIOENCODING="utf-8")
    assert done.returncode == usual.returncode
    assert b"Traceback" not in done.stderr
    if "help" not in words:  # rich draws other lines where it has no others
        for mine, other in ((done.stdout, usual.stdout), (done.stderr, usual.stderr)):
            assert mine == other.decode().encode(encoding, "backslashreplace")


def test_a_locale_without_letters(folder: Path) -> None:
    done = ran(folder, "show u.bl", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", PYTHONIOENCODING="")
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb'source "\u0395\u03bb\u03bb \u4e2d \u2297 \xe9"' in done.stdout


@pytest.mark.sample(2)
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("after", "status", "said"),
    [
        (">/dev/full", 1, "No space left on device"),
        (">&-", 1, "error: standard output is closed: redirect it to /dev/null if nobody reads it"),
        ("2>&-", 0, ""),
        ("2>/dev/full", 0, ""),
    ],
)
def test_an_output_that_cannot_be_written(folder: Path, after: str, status: int, said: str, unbuffered: str) -> None:
    done = ran(folder, "verify u.bl", after, PYTHONUNBUFFERED=unbuffered)
    assert done.returncode == status
    lines = done.stderr.decode().splitlines()
    assert [said in line for line in lines] == ([True] if said else [])


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_nobody_reads_on(folder: Path, unbuffered: str) -> None:
    done = ran(folder, "list", '| true; exit "${PIPESTATUS[0]}"', PYTHONUNBUFFERED=unbuffered)
    assert done.stderr == b""
    assert done.returncode == 141


@pytest.mark.parametrize("after", ["2>&-", "2>/dev/full", ">&- 2>&-"])
def test_an_error_that_cannot_be_told_is_a_status(folder: Path, after: str) -> None:
    assert ran(folder, "verify none", after).returncode == 1


def test_an_interrupt_while_output_is_written_out(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("bilinear.cli.app.written_out", interrupted)
    assert Shell(monkeypatch, capsys)("show", "classical")[0] == 130


def test_an_interrupt_where_nothing_can_be_raised_is_not_lost(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Interrupted:
        def __del__(self) -> None:
            raise KeyboardInterrupt

    def command() -> int:
        Interrupted()
        time.sleep(60)
        return 0

    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    monkeypatch.setattr("bilinear.cli.app._run", command)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code, out, err = Shell(monkeypatch, capsys)("show", "classical")
    finally:
        signal.signal(signal.SIGINT, before)
    assert (code, out, err) == (130, "", "")
