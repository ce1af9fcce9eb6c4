"""The soak itself: it finds what it shall find, tells it so that it can be seen again, and stops at nothing."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from soak import homes
from soak.case import PASSED, REFUSED, Case, Finding
from soak.children import begin
from soak.crew import TESTS
from soak.held_up import MOST_TIMES, held_up, is_over
from soak.kinds import calls
from soak.processes import MARK, marked
from soak.runner import KINDS, find_kinds, main
from soak.worker import FINDING, attempt

from bilinear.backends import array_sums

FAKES = {
    "good": "import sys\ndef run(case):\n    print('noise', flush=True)\n    return 'odd' if sys.stdin.read() else 'passed'\n",
    "some": (
        "from soak.case import Finding\ndef run(case):\n    drawn = int(case.generator().integers(1000))\n"
        "    (case.folder / 'drawn').write_text(str(drawn))\n"
        "    if drawn % 3 == 0:\n        raise Finding(f'drew {drawn}')\n    return 'refused'\n"
    ),
    "raises": "def run(case):\n    return 1 / 0\n",
    "odd": "def run(case):\n    return 'fine'\n",
    "crash": "import os\ndef run(case):\n    os.abort()\n",
    "leaves": "import os\ndef run(case):\n    os._exit(7)\n",
    "hang": "import subprocess\nMOST_SECONDS = 1\ndef run(case):\n    subprocess.run(['sleep', '1000'])\n",
    "threads": (
        "import threading, time\ndef run(case):\n    threading.Thread(target=time.sleep, args=(1000,)).start()\n    return 'passed'\n"
    ),
    "away": "def skip_reason():\n    return 'no compiler'\ndef run(case):\n    return 1 / 0\n",
}

Soak = Callable[..., tuple[int, str, dict[str, Any]]]


@pytest.fixture
def soak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Soak:
    """Runs the command on the fakes: its status, what it prints, and its JSON."""
    package = f"fakes_{tmp_path.name}".replace("-", "_")
    folder = tmp_path / package
    folder.mkdir()
    (folder / "__init__.py").touch()
    for name, text in FAKES.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    (tmp_path / "scratch").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))

    def run(*words: str) -> tuple[int, str, dict[str, Any]]:
        status = main([*words, "--json", str(tmp_path / "told.json")], package)
        return status, capsys.readouterr().out, json.loads((tmp_path / "told.json").read_bytes())

    return run


def test_a_gpu_that_is_not_there_is_no_run_without_a_case(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(homes, "find_spec", lambda name: None)
    monkeypatch.setenv(homes.HOME, "numpy")
    with pytest.raises(SystemExit) as stopped:
        main(["--gpu", "1"])
    assert stopped.value.code == 2 and "--gpu: CuPy is not installed" in capsys.readouterr().err


def test_what_passes_leaves_nothing(soak: Soak, tmp_path: Path) -> None:
    status, table, told = soak("1", "--kinds", "good,threads")
    assert status == 0 and not told["findings"]
    assert [kind["kind"] for kind in told["kinds"]] == ["good", "threads"]
    assert all(kind["outcomes"]["passed"] == kind["cases"] > 0 for kind in told["kinds"])
    assert table.splitlines()[0].split() == ["kind", "cases", "passed", "refused", "findings", "seconds", "slowest", "case"]
    assert not list((tmp_path / "scratch").iterdir())


def test_every_finding_is_told_with_its_command_and_keeps_its_files(soak: Soak) -> None:
    status, table, told = soak("1", "--kinds", "some", "--seed", "100")
    assert status == 1
    for finding in told["findings"]:
        drawn = (Path(finding["folder"]) / "drawn").read_text(encoding="utf-8")
        assert finding["text"] == f"drew {drawn}" and int(drawn) % 3 == 0
        assert finding["command"] == f"scripts/soak --case some:{finding['seed']}" and finding["seed"] >= 100
    assert told["findings"][0]["command"] in table


def test_a_case_is_the_same_whenever_it_runs(soak: Soak) -> None:
    first, _, told = soak(*(word for seed in range(30) for word in ("--case", f"some:{seed}")))
    again, _, retold = soak(*(word for seed in reversed(range(30)) for word in ("--case", f"some:{seed}")))
    assert first == again == 1
    seen = [sorted((finding["seed"], finding["text"]) for finding in document["findings"]) for document in (told, retold)]
    assert seen[0] == seen[1] and 0 < len(seen[0]) < 30
    wanted = {seed for seed in range(30) if Case("some", seed, Path()).generator().integers(1000) % 3 == 0}
    assert {seed for seed, _ in seen[0]} == wanted


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("raises", "ZeroDivisionError"),
        ("odd", "run() gave 'fine'"),
        ("crash", "the process died: SIGABRT"),
        ("leaves", "the process died: exit code 7"),
        ("hang", "no end after 1 s"),
    ],
)
def test_what_must_not_happen_is_found_and_the_next_case_runs(kind: str, says: str, soak: Soak) -> None:
    status, _, told = soak("--case", f"{kind}:3", "--case", "good:1")
    assert status == 1
    (finding,) = told["findings"]
    assert (finding["kind"], finding["seed"]) == (kind, 3) and says in finding["text"]
    assert told["kinds"][1]["outcomes"] == {PASSED: 1, REFUSED: 0, FINDING: 0}


def test_a_hang_says_where_and_leaves_no_process(soak: Soak) -> None:
    _, _, told = soak("--case", "hang:0")
    assert "hang.py" in told["findings"][0]["text"] and "in run" in told["findings"][0]["text"]
    sleeping = [path for path in Path("/proc").glob("[0-9]*/cmdline") if b"sleep\x001000" in _read(path)]
    assert not sleeping


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_kinds_share_the_time_and_what_cannot_run_is_told(soak: Soak) -> None:
    status, table, told = soak("1", "--kinds", "away,good")
    away, good = told["kinds"]
    assert status == 0 and away["cases"] == 0 and good["cases"] > 0
    assert "skipped: no compiler" in table


@pytest.mark.parametrize("words", [[], ["1", "--case", "good:1"], ["0"], ["1", "--kinds", "none"], ["1", "--processes", "0"]])
def test_what_means_nothing_is_refused(words: list[str], soak: Soak) -> None:
    with pytest.raises(SystemExit) as caught:
        soak(*words)
    assert caught.value.code == 2


def test_an_interrupt_prints_the_table_of_what_was_done(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}:{TESTS.parent}", MARK: tmp_path.name, "TMPDIR": str(tmp_path)}
    words = [sys.executable, "-m", "soak.runner", "100", "--kinds", "calls"]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job is started with it ignored
    process = subprocess.Popen(words, stdout=subprocess.PIPE, env=environment, text=True)
    signal.signal(signal.SIGINT, before)
    until = time.monotonic() + 300
    while len([*tmp_path.rglob("printed-*")]) < 2 and time.monotonic() < until:  # a file of each worker
        time.sleep(0.1)
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    table, _ = process.communicate(timeout=300)
    assert process.returncode in (130, 1) and "calls" in table
    assert not marked(tmp_path.name)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["calls", "interrupts", "memory", "cache"])
def test_a_few_cases_of_each_kind(kind: str, tmp_path: Path) -> None:
    assert kind in find_kinds(KINDS)
    for seed in SEEDS[kind]:
        folder = tmp_path / str(seed)
        folder.mkdir()
        assert attempt(KINDS, kind, seed, folder)[0] in (PASSED, REFUSED)


SEEDS = {"calls": (0, 1, 2, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15), "interrupts": (0, 1, 4), "memory": (0, 1, 3, 11), "cache": (4, 5)}


def findings(seeds: range, folder: Path) -> list[str]:
    found = []
    for seed in seeds:
        try:
            calls.run(Case("calls", seed, folder))
        except Finding as finding:
            found.append(str(finding))
    return found


def test_a_wrong_multiply_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = array_sums.multiply

    def wrong(left: Any, right: Any, out: Any) -> None:
        real(left, right, out)
        if out.dtype.kind == "f" and out.size > 40:
            out[-1, -1] += 1

    monkeypatch.setattr(array_sums, "multiply", wrong)
    assert any("wrong" in text or "off by" in text for text in findings(range(60), tmp_path))


def test_a_write_to_an_operand_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = array_sums.multiply

    def writing(left: Any, right: Any, out: Any) -> None:
        real(left, right, out)
        if left.flags.writeable and left.size:
            left[0, 0] = left[0, 0] + 1

    monkeypatch.setattr(array_sums, "multiply", writing)
    assert any("was written" in text or "restor" in text for text in findings(range(60), tmp_path))


@pytest.mark.slow
def test_a_lost_nan_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = array_sums.multiply

    def cleaning(left: Any, right: Any, out: Any) -> None:
        real(np.nan_to_num(left) if left.dtype.kind == "f" else left, right, out)

    monkeypatch.setattr(array_sums, "multiply", cleaning)
    assert any("are wrong" in text and "hostile" in text for text in findings(range(400), tmp_path))


def test_a_child_that_has_ended_is_not_interrupted(tmp_path: Path) -> None:
    """Where a signal on its way found SIG_IGN, Python would print a traceback, which looks like one of the product's."""

    class Last(io.StringIO):
        def flush(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            (tmp_path / "handled").write_text(str(callable(signal.getsignal(signal.SIGINT))))

    def work() -> None:
        sys.stdout = Last()

    child = begin(work, tmp_path / "printed")
    assert (child.wait(), child.text, (tmp_path / "handled").read_text()) == (0, "", "True")


def test_what_others_took_is_not_counted() -> None:
    assert not is_over(59, 0, 60)
    assert is_over(61, 0, 60)
    assert not is_over(61, 2, 60)
    assert is_over(61 * MOST_TIMES, 61 * MOST_TIMES, 60)


def test_a_process_that_is_gone_was_not_held_up() -> None:
    assert held_up(os.getpid()) >= 0
    assert held_up(2**22 + 1) == 0
