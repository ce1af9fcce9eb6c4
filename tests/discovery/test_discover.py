"""`bilinear discover`: what it prints and writes, and with which status it leaves."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from each_case import each
from shell import Shell

from bilinear.cli import discovering
from bilinear.cli.common import read_seconds
from bilinear.discovery import flip_search
from bilinear.frontend import load
from bilinear.verify.scheme import prove_scheme


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(flip_search, "ROUND", 2**14)  # short, so that what is reached in a short time does not hang on the machine
    return Shell(monkeypatch, capsys, "discover")


def test_a_find_is_written_and_is_proved_again(shell: Shell) -> None:
    status, out, err = shell("2,2,2", "--rank", 7, "--seed", 3)
    assert status == 0 and err == ""
    assert out.startswith("<2,2,2;7>: proved, ")
    assert "written to walk_2x2x2_7_seed3.bl; `bilinear verify walk_2x2x2_7_seed3.bl` proves it again" in out
    scheme = load("walk_2x2x2_7_seed3.bl").scheme
    assert prove_scheme(scheme).holds and scheme.format == "<2,2,2;7>" and scheme.name == "walk_2x2x2_7_seed3"
    assert scheme.citation.startswith("Found by `bilinear discover 2,2,2 --rank 7 --seed 3`")


def test_the_same_seed_writes_the_same_file(shell: Shell) -> None:
    texts = []
    for name in ("one/mine.bl", "two/mine.bl"):
        Path(name).parent.mkdir()
        assert shell("2,2,3", "--rank", 11, "--seed", 8, "-o", name)[0] == 0
        texts.append(Path(name).read_bytes())
    assert texts[0] == texts[1] and texts[0].startswith(b"scheme mine <2,2,3;11>\n")


def test_a_file_name_that_is_no_name_of_a_scheme_is_only_a_file_name(shell: Shell) -> None:
    assert shell("2,2,2", "--rank", 7, "-o", "7 products.bl")[0] == 0
    assert load("7 products.bl").scheme.name == "walk_2x2x2_7_seed0"


def test_json(shell: Shell) -> None:
    status, out, _ = shell("2", "--rank", 7, "--json", "-o", "x.bl")
    facts = json.loads(out)
    assert status == 0 and facts["format"] == "<2,2,2;7>" and facts["reached"] and facts["proved"] and facts["file"] == "x.bl"
    assert (facts["seed"], facts["walkers"], facts["asked"], facts["rank"]) == (0, 8, 7, 7)
    assert 0 < facts["steps"] <= facts["total_steps"] and facts["additions"] == load("x.bl").scheme.additions


def test_a_rank_that_is_not_reached_writes_nothing(shell: Shell, tmp_path: Path) -> None:
    status, out, err = shell("3,3,3", "--rank", 19, "--time", "0.8", "-o", "x.bl")
    assert status == 1 and not list(tmp_path.iterdir())
    assert "error[E663]: <3,3,3;19> was not found in --time 0.8: the best rank is 2" in err
    assert "hint: give more --time, or another --seed\n" in err and "hint: give --best to write the scheme that was reached" in err
    assert re.match("<3,3,3;2[0-6]>: proved", out)


@pytest.mark.slow
def test_the_best_is_written_where_it_is_asked_for(shell: Shell) -> None:
    status, out, err = shell("3,3,3", "--rank", 19, "--time", "0.8s", "--best", "--json")
    facts = json.loads(out)
    assert status == 1 and "E663" in err and "--best" not in err
    assert not facts["reached"] and (facts["asked"], facts["file"]) == (19, f"walk_3x3x3_{facts['rank']}_seed0.bl")
    text = Path(facts["file"]).read_bytes()
    assert shell("3,3,3", "--rank", facts["rank"])[0] == 0
    assert Path(facts["file"]).read_bytes() == text  # it names the command that finds it


def test_nothing_below_the_classical_rank_is_said(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flip_search, "ROUND", 2**40)  # no round is completed
    status, out, err = shell("3,3,3", "--rank", 19, "--time", "0.2", "--best", "--json")
    assert status == 1 and "<3,3,3;19> was not found in --time 0.2: nothing is below the classical rank" in err
    facts = json.loads(out)
    assert facts["rank"] == 27 and not facts["proved"] and facts["file"] is facts["additions"] is None
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("best", [True, False])
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_or_sigterm_ends_with_what_was_reached(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, sent: signal.Signals, best: bool, tmp_path: Path
) -> None:
    @contextmanager
    def interrupting() -> Iterator[Callable[[str, int, int], None]]:
        def progress(text: str, done: int, of: int) -> None:
            if text.startswith("<3,3,3>: rank 2") and not text.startswith("<3,3,3>: rank 27"):
                os.kill(os.getpid(), sent)

        yield progress

    monkeypatch.setattr(discovering, "progress_bar", interrupting)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background may ignore it
    try:
        before = signal.getsignal(signal.SIGTERM)
        status, out, err = shell("3,3,3", "--rank", 19, "--json", "--state", tmp_path / "walk.json", *(["--best"] if best else []))
        assert signal.getsignal(signal.SIGTERM) is before
    finally:
        signal.signal(signal.SIGINT, handler)
    facts: Any = json.loads(out)
    assert status == 130 and err == "" and 19 < facts["rank"] < 27
    assert json.loads((tmp_path / "walk.json").read_text())["best"]["rank"] == facts["rank"]
    assert (facts["file"] is not None) == best
    if best:
        assert prove_scheme(load(facts["file"]).scheme).holds


@each(
    ("words", "code"),
    [
        (("2,2", "--rank", 7), "E504"),
        (("2,2,2", "--rank", 8), "E660"),
        (("2,2,2", "--rank", 6), "E660"),
        (("2,2,2", "--rank", -1), "E660"),
        (("9", "--rank", 500), "E661"),
        (("2,2,2", "--rank", 7, "-o", "nowhere/x.bl"), "E612"),
        (("2,2,2", "--rank", 7, "-o", "."), "E612"),
        *((("2,2,2", "--rank", 7, "--time", time), "E664") for time in ("0", "soon", "-3", "nan", "1d", "", "9" * 20)),
    ],
)
def test_what_means_nothing_is_refused_before_anything_is_done(shell: Shell, tmp_path: Path, words: tuple[object, ...], code: str) -> None:
    status, out, err = shell(*words)
    assert status == 1 and out == "" and f"error[{code}]" in err and not list(tmp_path.iterdir())


@pytest.mark.parametrize(("text", "seconds"), [("60", 60), ("0.5", 0.5), ("90s", 90), ("5m", 300), ("2 h", 7200)])
def test_times(text: str, seconds: float) -> None:
    assert read_seconds(text) == seconds


def test_without_numba(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    status, _, err = shell("2,2,2", "--rank", 7)
    assert status == 1 and "error[E662]" in err and "hint: pip install '.[discover]'" in err


def test_a_find_over_z2_is_lifted_to_z(shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = shell("2,2,2", "--rank", 7, "--over", "Z/2", "--seed", 3, "-o", "two.bl", "--json")
    assert status == 0, err
    assert json.loads(out)["ring"] == "Z/2" and "over Z/2" in Path("two.bl").read_text()
    lift = Shell(monkeypatch, capsys, "lift")
    status, out, err = lift("two.bl", "-o", "lifted.bl")
    assert status == 0 and err == ""
    assert out.startswith("two_lifted <2,2,2;7>: proved over Z, ")
    assert "lifted to Z/4 by 64 equations for 84 unknowns, of rank 61" in out and "written to lifted.bl" in out
    scheme = load("lifted.bl").scheme
    assert scheme.ring.name == "Z" and scheme.name == "lifted" and prove_scheme(scheme).holds
    facts = json.loads(lift("two.bl", "--over", "Z", "--json")[1])
    assert facts["ring"] == "Z" and facts["power"] == 2 and facts["tries"] == 1 and facts["file"] is None


def test_a_walk_from_a_file_and_a_state_that_goes_on(shell: Shell, tmp_path: Path) -> None:
    assert "error[E660]" in shell("2,2,3", "--rank", 11, "--from", "winograd_223")[2]  # it has 11 products
    words = ("2,2,2", "--rank", 7, "--over", "Z/2", "--from", "naive2x2", "--walkers", 2, "--state", "walk.json")
    first, again = shell(*words, "-o", "one.bl"), shell(*words, "-o", "one.bl")
    assert first[0] == again[0] == 0 and first[1].splitlines()[0] == again[1].splitlines()[0]
    assert "--from naive2x2" in load("one.bl").scheme.citation
    status, _, err = shell(*words, "--seed", 5)
    assert status == 1 and "error[E742]: walk.json is not a state of this search: its seed is 0, not 5" in err
    Path("other.json").write_text("mine")
    status, _, err = shell(*words[:-1], "other.json")
    assert status == 1 and "error[E742]" in err and Path("other.json").read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("discover", "2,2,2", "--rank", 7, "--over", "Z/4"), "E740"),
        (("discover", "2,2,3", "--rank", 7, "--from", "strassen"), "E741"),
        (("discover", "2,2,2", "--rank", 7, "--from", "nothing.bl"), "E121"),
        (("discover", "2,2,2", "--rank", 7, "--state", "nowhere/x.json"), "E612"),
        (("discover", "2,2,2", "--rank", 7, "--state", "x", "-o", "x"), "E612"),
        (("lift", "strassen", "--over", "R"), "E740"),
        (("lift", "dps_444"), "E743"),
        (("lift", "strassen", "-o", "nowhere/x.bl"), "E612"),
    ],
)
def test_what_cannot_be_walked_or_lifted_is_refused(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    words: tuple[object, ...],
    code: str,
) -> None:
    status, out, err = Shell(monkeypatch, capsys)(*words)
    assert status == 1 and out == "" and f"error[{code}]" in err and not list(tmp_path.iterdir())
