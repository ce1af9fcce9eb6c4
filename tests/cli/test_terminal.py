"""What only a terminal gets, tables as wide as it is, colour, completed words; and output that is closed, full, or unread."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event

import pytest
from shell import Shell

from bilinear.cli import answers, common, completing
from bilinear.cli.answers import allows_colour, coloured, wrapped
from bilinear.cli.app import COMMANDS
from bilinear.cli.common import waiting
from bilinear.codegen.cuda.target import targets_of
from bilinear.ir.element import COMPLEX, ELEMENTS, IN_ARRAYS
from bilinear.planner.device_files import known_devices
from bilinear.reporting.table import aligned, fitted

ROWS = [("first", "one two three four five six seven eight", 1.5, 10), ("second", "nine", 22.25, 2000)]
HEADER = ("name", "what it says about itself", "ms", "bytes")


@pytest.mark.parametrize("room", [200, 64, 50, 40, 35])
def test_a_table_fits_and_loses_nothing(room: int) -> None:
    whole = aligned(ROWS, HEADER)
    with fitted(room):
        lines = aligned(ROWS, HEADER)
    assert max(map(len, lines)) <= room and aligned(ROWS, HEADER) == whole
    assert (lines == whole) == (max(map(len, whole)) <= room)
    told = " ".join(" ".join(lines).split())
    assert all(word in told for row in ROWS for cell in row for word in str(cell).split())


def test_what_is_wrapped_stays_in_its_column() -> None:
    with fitted(50):
        lines = aligned(ROWS, HEADER)
    assert lines == [
        "name    what it says about itself        ms  bytes",
        "------  ----------------------------  -----  -----",
        "first   one two three four five six     1.5     10",
        "        seven eight",
        "second  nine                          22.25   2000",
    ]


def test_columns_without_room_stand_below_beside_the_first() -> None:
    with fitted(30):
        lines = aligned([(name, 11111111, 22222222, 33333333) for name in ("a", "b")], ("name", "one", "two", "three"))
    assert lines == [
        "name       one       two",
        "----  --------  --------",
        "a     11111111  22222222",
        "b     11111111  22222222",
        "",
        "name     three",
        "----  --------",
        "a     33333333",
        "b     33333333",
    ]


def test_as_many_columns_as_name_a_row_stand_beside_the_others() -> None:
    rows = [("a", 1, 11111111, 22222222), ("a", 2, 11111111, 22222222)]
    with fitted(20):
        lines = aligned(rows, ("name", "n", "one", "two"))
    assert lines == [
        "name  n       one",
        "----  -  --------",
        "a     1  11111111",
        "a     2  11111111",
        "",
        "name  n       two",
        "----  -  --------",
        "a     1  22222222",
        "a     2  22222222",
    ]


def test_facts_go_on_below_their_values() -> None:
    with fitted(40):
        assert aligned([("source", "one two three four five six seven")], None) == ["source  one two three four five six", "        seven"]


class Terminal:
    """A stream that is a terminal, or is not."""

    def __init__(self, is_terminal: bool) -> None:
        self.isatty = lambda: is_terminal


@pytest.mark.parametrize(
    ("environment", "is_terminal", "allowed"),
    [
        ({"TERM": "xterm"}, True, True),
        ({"TERM": "xterm"}, False, False),
        ({"TERM": "dumb"}, True, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, False),
    ],
)
def test_colour_needs_a_terminal(environment: dict[str, str], is_terminal: bool, allowed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert allows_colour(Terminal(is_terminal)) is allowed  # type: ignore[arg-type]


def test_what_is_coloured() -> None:
    text = "a.bl:3:5: error[E301]: wrong\n  3 | M1\n    | ^^ here\n  note: a fact\n  hint: an action\n"
    shown = coloured(text)
    assert shown.count("\033[0m") == 4 and "\033[1;31merror[E301]:\033[0m" in shown and "\033[31m^^ here\033[0m" in shown
    assert coloured("error: proved\nx") == "\033[1;31merror:\033[0m proved\nx" and coloured("s: proved\n") == "s: \033[32mproved\033[0m\n"
    assert coloured("plain text\n  proved: 3\n") == "plain text\n  proved: 3\n"


def test_no_escape_sequence_leaves_for_a_file(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERM", "xterm")
    shell = Shell(monkeypatch, capsys)
    for words in (("verify", "strassen"), ("verify", "nothing"), ("list",), ("--help",)):
        assert "\033" not in "".join(shell(*words)[1:])


def test_an_answer_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    shell = Shell(monkeypatch, capsys)
    plan = ("plan", "--shape", "8192", "--device", "h200")
    wide = shell(*plan)[1]
    monkeypatch.setattr(answers, "columns_of", lambda stream: 60)
    narrow = shell(*plan)[1]
    assert max(map(len, narrow.splitlines()[1:])) <= 60 < max(map(len, wide.splitlines()[1:]))
    assert set(wide.split()) - set(narrow.split()) <= {word for word in wide.split() if set(word) == {"-"}}


@pytest.mark.parametrize("columns", [40, 60, 100])
def test_long_lines_go_on_and_no_word_is_cut(columns: int) -> None:
    text = (
        "error[E507]: what went wrong is told here at some length, and ends only after a while\n"
        "  8 |   M3 = a line of a source that stays as it is, because carets stand below it, in their columns\n"
        "    |        ^^ write -S4, which is told in a label that may well be longer than the terminal is wide\n"
        "  hint: `bilinear plan --shape 64` says more, and /a/path/that/is/longer/than/any/line/of/this/terminal/which/stays/whole does not"
    )
    lines = wrapped(text, columns).splitlines()
    assert " ".join(" ".join(lines).split()) == " ".join(text.split())
    assert text.splitlines()[1] in lines and text.splitlines()[2] in lines
    assert any("`bilinear plan --shape 64`" in line for line in lines)
    assert all(len(line) <= columns or "|" in line or line.strip().startswith("/a/path") for line in lines)
    assert wrapped(text, None) == text


def on_a_terminal(*words: str, columns: int = 60, **environment: str) -> str:
    """What a command shows on a terminal of so many columns, where nobody asked for colour."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {
        **{k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")},
        "NO_COLOR": "1",
        "TERM": "xterm",
        "BILINEAR_CACHE_DIR": "/tmp",  # a path that is longer than a column is cut
        **environment,
    }
    command = [sys.executable, "-m", "bilinear.cli", *words]
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # the other end is closed
            while part := os.read(ours, 65536):
                shown += part
    os.close(ours)
    assert process.returncode in (0, 1)
    return shown.decode().replace("\r\n", "\n")


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "words", [("list",), ("explain", "E660"), ("doctor",), ("plan", "--levels", "2", "--shape", "1000"), ("verify", "nothing")]
)
def test_nothing_is_wider_than_a_narrow_terminal_and_nothing_is_coloured(words: tuple[str, ...]) -> None:
    shown = on_a_terminal(*words)
    assert "\033" not in shown and max(map(len, shown.splitlines())) <= 60
    assert set(shown.split()) >= set(on_a_terminal(*words, columns=1000).split()) - {"-" * n for n in range(1000)}


@pytest.mark.parametrize("name", [name for name, *_ in COMMANDS])
def test_help_cuts_no_word(name: str, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def words_of_help(columns: str) -> set[str]:
        monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", int(columns))
        monkeypatch.setenv("COLUMNS", columns)
        text = shell(name, "--help")[1]
        assert max(map(len, text.splitlines())) <= int(columns)
        return set(re.sub("[│╭╮╰╯─]", " ", text).split())

    assert words_of_help("60") == words_of_help("200")


def test_a_line_says_what_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    seen = Event()

    @contextmanager
    def bar() -> Iterator[Callable[[str, int, int | None], None]]:
        def progress(what: str, done: int, of: int | None) -> None:
            told.append(what)
            seen.set()

        yield progress

    monkeypatch.setattr(common, "progress_bar", bar)
    monkeypatch.setattr("sys.stderr", Terminal(True))
    with waiting("at once"):
        pass
    assert told == []
    monkeypatch.setattr(common, "A_MOMENT", 0.01)
    with waiting("long"):
        assert seen.wait(60)
    monkeypatch.setattr("sys.stderr", Terminal(False))
    with waiting("in a file"):
        pass
    assert told == ["long"]


def completed(*words: str) -> list[str]:
    """What the command line offers to bash for the last word."""
    environment = {
        **os.environ,
        "_BILINEAR_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(("bilinear", *words)),
        "COMP_CWORD": str(len(words)),
    }
    command = [sys.executable, "-m", "bilinear.cli"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.slow
def test_a_shell_completes_commands_options_and_names() -> None:
    assert completed("ver") == ["verify"]
    assert {"winograd", "winograd_in_place"} <= set(completed("verify", "wino"))
    assert "--workspace" in completed("plan", "--work") and "--sizes" not in completed("bench", "--s")


def test_names_are_completed_from_what_there_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.bl").touch()
    Path("device.json").touch()
    Path("folder").mkdir()
    assert (
        completing.algorithms("m")[-1] == "mine.bl"
        and "msmes" in completing.algorithms("m")
        and completing.algorithms("fol") == ["folder/"]
    )
    assert completing.algorithms("nowhere/x") == [] and completing.names("winograd,stra") == ["winograd,strassen"]
    assert completing.devices("") == ["cpu", *sorted(known_devices()), "device.json", "folder/"]
    assert completing.architectures("sm_90,hop") == ["sm_90,hopper"] and completing.codes("e30") == completing.codes("E30") != []
    assert completing.own_names("") == []


def test_what_is_offered_is_understood() -> None:
    assert set(completing.dtypes("")) == set(IN_ARRAYS) and completing.elements("") == [*ELEMENTS, *COMPLEX]
    assert targets_of([name for name in completing.architectures("") if name != "native"])


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


@pytest.mark.slow
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


@pytest.mark.sample(1)
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


@pytest.mark.sample(1)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_nobody_reads_on(folder: Path, unbuffered: str) -> None:
    done = ran(folder, "list", '| true; exit "${PIPESTATUS[0]}"', PYTHONUNBUFFERED=unbuffered)
    assert done.stderr == b""
    assert done.returncode == 141


@pytest.mark.sample(1)
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
