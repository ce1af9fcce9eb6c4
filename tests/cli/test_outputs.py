"""What the commands write over: no input of theirs, no folder of somebody else's; told before the work."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from each_case import each
from shell import Shell

import bilinear
from bilinear.codegen.cuda import nvrtc
from bilinear.errors import BilinearError
from bilinear.interchange.exporting import export_files
from bilinear.planner.device_files import shipped_devices
from bilinear.resources import algorithms_folder
from bilinear.writing import write_folder

needs_nvrtc = pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))
STRASSEN = (algorithms_folder() / "strassen.bl").read_text()


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Shell:
    """A command line in a folder with an input of each kind."""
    monkeypatch.chdir(tmp_path)
    Path("s.bl").write_text(STRASSEN)
    Path("mine.bl").write_text(STRASSEN.replace("strassen", "mine"))
    Path("both.bl").write_text("scheme both = strassen (x) mine\n")
    Path("far.bl").write_text('scheme far = strassen (x) "library/deep.bl"\n')
    Path("library").mkdir()
    Path("library/deep.bl").write_text(STRASSEN)
    Path("d.json").write_bytes(shipped_devices()["h200"].read_bytes())
    Path("sizes").write_text("64\n")
    for name, data in export_files(bilinear.load("s.bl").scheme, "sms").items():
        Path(f"t{name[-6:]}").write_bytes(data)
    os.link("s.bl", "hard")
    os.symlink("s.bl", "soft")
    return Shell(monkeypatch, capsys)


def contents() -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path().rglob("*") if path.is_file()}


@each(
    "words",
    [
        *(
            ("verify", "s.bl", option, place)
            for option in ("--html", "--certificate", "--rocq")
            for place in ("s.bl", "hard", "soft", "library/../s.bl")
        ),
        ("verify", "both.bl", "--html", "mine.bl"),
        ("verify", "far.bl", "--certificate", "library/deep.bl"),
        ("verify", "strassen (x) mine", "--html", "mine.bl"),
        ("verify", "s.bl", "--html", "x", "--certificate", "x"),
        ("verify", "s.bl", "--html", "x", "--certificate", "library/../x"),
        ("plan", "--shape", "512", "--device", "d.json", "--html", "d.json"),
        ("schedule", "both.bl", "--in-place", "-o", "mine.bl"),
        ("share", "s.bl", "-o", "hard"),
        ("share", "both.bl", "-o", "mine.bl"),
        ("export", "s.bl", "--to", "json", "-o", "soft"),
        ("export", "both.bl", "--to", "json", "-o", "mine.bl"),
        ("export", "s.bl", "--to", "sms", "-o", "."),
        ("export", "s.bl", "--to", "sms", "-o", "/"),
        ("import", "t_L.sms", "-o", "t_L.sms"),
        ("import", "t_L.sms", "-o", "t_P.sms"),
        ("combine", "2,2,2", "library", "-o", "library/deep.bl"),
        ("combine", "2,2,2", "library", "s.bl", "-o", "hard"),
        ("bench", "--shapes-file", "sizes", "--json", "sizes"),
        ("bench", "--shape", "64", "--json", "x", "--html", "x"),
    ],
)
def test_a_command_does_not_write_over_what_it_reads(shell: Shell, words: tuple[str, ...]) -> None:
    before = contents()
    status, out, err = shell(*words)
    assert (status, out) == (1, "") and err.startswith("error[E612]: cannot write ") and contents() == before


def test_the_device_that_the_environment_names_is_read_too(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BILINEAR_DEVICE", "d.json")
    before = contents()
    for words in (("plan", "--shape", "512", "--html", "d.json"), ("bench", "--shape", "64", "--json", "d.json")):
        status, out, err = shell(*words)
        assert (status, out) == (1, "") and "error[E612]" in err and contents() == before


@pytest.mark.slow
def test_another_file_is_written_over(shell: Shell) -> None:
    Path("old.html").write_text("old")
    assert shell("verify", "s.bl", "--html", "old.html", "--certificate", "certificate.json")[0] == 0
    assert "<!DOCTYPE html>" in Path("old.html").read_text() and "bilinear-certificate" in Path("certificate.json").read_text()
    status, out, _ = shell("combine", "2,2,2", "library", "-o", "library/new.bl")
    assert status == 0 and "written to library/new.bl" in out


def test_a_file_that_nobody_named_is_not_replaced(shell: Shell) -> None:
    for _ in range(2):  # the same again is no loss
        status, out, _ = shell("export", "s.bl", "--to", "json")
        assert status == 0
    name = out.split()[2]
    Path(name).write_text("edited")
    status, out, err = shell("export", "s.bl", "--to", "json")
    assert (status, out) == (1, "") and f"cannot write {name}: something else is there already" in err
    assert Path(name).read_text() == "edited" and shell("export", "s.bl", "--to", "json", "-o", name)[0] == 0


@pytest.mark.slow
def test_what_is_found_goes_beside_a_file_of_the_same_name(shell: Shell) -> None:
    pytest.importorskip("numba")
    words = ("discover", "2,2,2", "--rank", "7")
    places = [shell.json(*words)["file"] for _ in range(2)]
    assert places[0] == places[1]
    Path(places[0]).write_text("edited")
    (other,) = {shell.json(*words)["file"] for _ in range(2)}
    assert other == places[0].replace(".bl", "_2.bl") and Path(places[0]).read_text() == "edited"
    assert shell("verify", other)[0] == 0


NO_FILES = (
    ("verify", "{}"),
    ("import", "{}"),
    ("plan", "--shape", "64", "--device", "{}"),
    ("bench", "--shapes-file", "{}"),
    ("combine", "2,2,2", "{}"),
    ("check", "{}", "{}", "{}"),
)


@pytest.mark.sample(6)
@pytest.mark.parametrize("words", NO_FILES)
@pytest.mark.parametrize("name", ["pipe", "endless", "huge", "pipe.npz", "endless.json"])
def test_an_input_that_never_ends_is_refused_at_once(shell: Shell, words: tuple[str, ...], name: str) -> None:
    if name.startswith("pipe"):
        os.mkfifo(name)
    elif name.startswith("endless"):
        os.symlink("/dev/zero", name)
    else:
        Path(name).touch()
        os.truncate(name, 2**40)
    status, out, err = shell(*(word.format(name) for word in words))
    assert (status, out) == (1, "") and "error[E" in err
    if name != "huge":
        assert "it is not a regular file" in err


def test_a_plan_or_a_folder_that_never_ends_is_refused_at_once(shell: Shell) -> None:
    os.mkfifo("pipe")
    Path("out").mkdir()
    os.symlink("/dev/zero", "out/manifest.json")
    for path in ("pipe", "/dev/zero"):
        with pytest.raises(BilinearError, match="it is not a regular file"):
            bilinear.load_plan(path)
    for folder in ("out", "out/manifest.json"):
        status, out, err = shell("verify", "--built", folder)
        assert (status, out) == (1, "") and "error[E621]" in err


def test_a_place_that_only_seems_writable_is_refused_before_the_work(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may write anywhere, by the permissions of /proc."""
    for work in ("driver.programs_of", "reporting.examine.examine", "measure.describe_cpu.tune_cpu", "planner.own._outlines"):
        monkeypatch.setattr(f"bilinear.{work}", lambda *_, **__: pytest.fail("worked"))
    monkeypatch.setenv("XDG_DATA_HOME", "/proc/x")
    for code, *words in (
        ("E611", "compile", "s.bl", "-o", "/proc/x"),
        ("E612", "compile", "s.bl", "-o", "out", "--json=/proc/x"),
        ("E612", "verify", "s.bl", "--html", "/proc/x"),
        ("E612", "verify", "s.bl", "--rocq", "/proc/x.v"),
        ("E612", "tune", "--cpu", "-o", "/proc/x"),
        ("E612", "tune", "--cpu", "--keep"),
        ("E612", "add", "s.bl"),
        ("E612", "discover", "3,3,3", "--rank", "23", "--state", "/proc/x"),
        ("E612", "combine", "4,4,4", "-o", "/proc/x"),
        ("E612", "share", "s.bl", "-o", "/proc/x"),
        ("E612", "schedule", "s.bl", "--in-place", "-o", "/proc/x"),
    ):
        status, out, err = shell(*words)
        assert (status, out) == (1, "") and f"error[{code}]" in err, words
    with pytest.raises(BilinearError, match="E611"):
        bilinear.compile("s.bl", output="/proc/x")


@pytest.mark.parametrize("manifest", ["{}", '{"format": "bilinear-manifest/1"}'])
def test_a_folder_with_any_manifest_is_left_alone(shell: Shell, monkeypatch: pytest.MonkeyPatch, manifest: str) -> None:
    for folder in ("p", "build/strassen"):
        Path(folder).mkdir(parents=True)
        Path(folder, "manifest.json").write_text(manifest)
        Path(folder, "notes.txt").write_text("mine")
    before = contents()
    monkeypatch.setattr("bilinear.driver.programs_of", lambda *_, **__: pytest.fail("compiled"))
    for words in (("-o", "p"), ()):
        status, out, err = shell("compile", "s.bl", *words)
        assert (status, out) == (1, "") and "error[E611]" in err and contents() == before
    with pytest.raises(BilinearError, match="E611"):
        bilinear.compile("s.bl", output="p")


@pytest.mark.slow
@needs_nvrtc
def test_an_output_to_which_the_user_added_is_left_alone(shell: Shell) -> None:
    words = ("compile", "s.bl", "--arch", "sm_90", "--dtype", "float32", "--shape", "9", "-o", "out")
    assert shell(*words)[0] == 0
    first = contents()
    assert shell(*words)[0] == 0 and contents().keys() == first.keys()
    assert shell("verify", "--built", "out", "--json")[0] == 0
    Path("out/report.md").write_text("my notes")
    before = contents()
    status, out, err = shell(*words)
    assert (status, out) == (1, "") and "report.md was changed since it was written" in err and contents() == before
    with pytest.raises(BilinearError, match="E611"):
        bilinear.compile("s.bl", dtypes=["float32"], architectures=["sm_90"]).write("out")
    assert contents() == before
    with pytest.raises(BilinearError, match="E611"):
        write_folder(Path("out"), {})
