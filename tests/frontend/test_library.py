"""Lookup: by path, beside the referring file, among the shipped algorithms; and every way in which it fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from bilinear.errors import BilinearError
from bilinear.frontend import files, load
from bilinear.resources import algorithms_folder

ONE = "scheme {name} <1,1,1;1>\n  C11 = A11*B11\n"
USE = "schedule {name} of {of}\n  stage {{ C11 += A11*B11 }}\n"


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def failure(name: str | Path) -> str:
    with pytest.raises(BilinearError) as raised:
        load(name)
    return str(raised.value)


def test_by_name_and_by_path() -> None:
    assert load("strassen") == load(algorithms_folder() / "strassen.bl") == load("strassen.bl")
    assert load("strassen").schedule is None


def test_a_file_in_the_working_folder_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "strassen.bl", ONE.format(name="mine"))
    monkeypatch.chdir(tmp_path)
    assert load("strassen").scheme.name == "mine"


def test_a_folder_does_not_hide_a_shipped_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "strassen").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load("strassen").scheme.rank == 7


def test_a_schedule_finds_its_scheme_in_its_file_then_beside_it_then_shipped(tmp_path: Path) -> None:
    own = write(tmp_path / "own.bl", ONE.format(name="strassen") + USE.format(name="s", of="strassen"))
    assert load(own).scheme.rank == 1
    beside = write(tmp_path / "beside.bl", USE.format(name="s", of="one"))
    write(tmp_path / "one.bl", ONE.format(name="other"))
    assert load(beside).scheme.name == "other"
    far = write(tmp_path / "far.bl", USE.format(name="s", of="strassen"))
    assert load(far).scheme.rank == 7


def test_a_schedule_in_a_file_named_as_its_scheme_reaches_the_shipped_one(tmp_path: Path) -> None:
    path = write(tmp_path / "strassen.bl", USE.format(name="s", of="strassen"))
    assert load(path).scheme.rank == 7


def test_picking_one_of_several(tmp_path: Path) -> None:
    path = write(tmp_path / "two.bl", ONE.format(name="a") + ONE.format(name="b"))
    assert load(f"{path}:b").scheme.name == "b"
    assert failure(path) == f"error[E232]: {path} holds several algorithms\n  note: it holds a, b\n  hint: pick one: {path}:a"
    assert failure(f"{path}:c") == f"error[E231]: {path} has no scheme and no schedule 'c'\n  hint: it holds a, b"
    both = write(tmp_path / "both.bl", ONE.format(name="a") + USE.format(name="s", of="a"))
    assert load(both).schedule is not None
    assert load(f"{both}:a").schedule is None


def test_unknown_names() -> None:
    assert failure("strasen") == "error[E121]: 'strasen' is neither a file nor a shipped algorithm\n  hint: did you mean strassen?"
    assert "hint: shipped are " in failure("qqq")
    assert failure("x" * 5000).startswith("error[E121]: 'xxxx")
    assert failure("") == "error[E121]: '' is neither a file nor a shipped algorithm"
    assert failure("a\0b").startswith("error[E121]: 'a\\x00b'")
    assert failure("").startswith("error[E12")


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert failure(tmp_path / "none.bl").startswith(f"error[E121]: there is no file '{tmp_path}/none.bl'\n  hint: `bilinear list` names")
    assert failure("strasen.bl") == "error[E121]: there is no file 'strasen.bl'\n  hint: did you mean strassen?"
    assert failure(tmp_path).startswith("error[E122]") and "directory" in failure(tmp_path)
    assert failure(tmp_path).endswith("hint: give a .bl file, or a name of `bilinear list`")
    (tmp_path / "latin.bl").write_bytes(b"scheme \xe9")
    assert failure(tmp_path / "latin.bl").startswith(f"error[E123]: {tmp_path}/latin.bl is not UTF-8: byte 7")
    for text in ("", "\n\n  # nothing\n", "\ufeff"):
        assert failure(write(tmp_path / "empty.bl", text)).startswith(f"error[E125]: {tmp_path}/empty.bl holds no scheme")
    monkeypatch.setattr(files, "MOST_BYTES", 2**20)
    assert failure(write(tmp_path / "large.bl", " " * (2**20 + 1))).startswith(f"error[E124]: {tmp_path}/large.bl is larger than 1 MiB")


def test_a_file_that_vanishes(tmp_path: Path) -> None:
    with pytest.raises(BilinearError, match="E121"):
        files.read_source(tmp_path / "gone.bl")


def test_references_that_lead_nowhere(tmp_path: Path) -> None:
    own = write(tmp_path / "own.bl", USE.format(name="s", of="own"))
    assert "E222" in failure(own) and "refers to itself" in failure(own)
    write(tmp_path / "a.bl", USE.format(name="a", of="b"))
    write(tmp_path / "b.bl", USE.format(name="b", of="a"))
    assert "b.bl has no scheme 'b'" in failure(tmp_path / "a.bl")
    write(tmp_path / "many.bl", ONE.format(name="x") + ONE.format(name="y"))
    assert "it holds x, y" in failure(write(tmp_path / "c.bl", USE.format(name="s", of="many")))


def test_errors_of_the_other_file_are_told(tmp_path: Path) -> None:
    write(tmp_path / "bad.bl", "scheme bad <1,1,1;1>\n  C11 = A11*\n")
    said = failure(write(tmp_path / "use.bl", USE.format(name="s", of="bad")))
    assert said.startswith(f"{tmp_path}/bad.bl:2:13: error[E107]")
