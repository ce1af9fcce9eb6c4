"""Which folders are replaced, and that nothing of anybody else's is lost on the way."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bilinear import places
from bilinear.errors import BilinearError
from bilinear.places import FORMAT, MANIFEST, require_folder, sealed
from bilinear.writing import write_folder


def output(text: str = "first") -> dict[str, bytes]:
    files = {"report.md": text.encode(), "src/a.cu": b"kernel", "cubin/sm_90/a.cubin": b"\x7fELF"}
    named = {path: hashlib.sha256(content).hexdigest() for path, content in files.items()}
    return {**files, MANIFEST: sealed({"format": FORMAT, "files": named})}


def tree(folder: Path) -> dict[str, bytes | str]:
    """Everything below a folder; links and folders by what they are."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif not path.is_dir():
            found[name] = path.read_bytes() if path.is_file() else "special"
        elif not any(path.iterdir()):
            found[name] = "empty"
    return found


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An earlier output."""
    write_folder(tmp_path / "out", output())
    return tmp_path / "out"


def refused(folder: Path) -> str:
    """The message and the notes of a refusal, which changed nothing."""
    before = tree(folder.parent)
    told = []
    for ask in (lambda: require_folder(folder), lambda: write_folder(folder, output("second"))):
        with pytest.raises(BilinearError) as caught:
            ask()
        (found,) = caught.value.diagnostics
        assert found.code == "E611" and found.hints
        told.append(" | ".join((found.message, *found.notes)))
    assert tree(folder.parent) == before
    assert told[0] == told[1]
    return told[0]


def test_an_earlier_output_is_replaced_whole(place: Path) -> None:
    fewer = {path: content for path, content in output("second").items() if "cubin" not in path}
    fewer[MANIFEST] = sealed({"format": FORMAT, "files": {}})
    write_folder(place, fewer)
    assert tree(place.parent) == {f"out/{path}": content for path, content in fewer.items()}


def test_what_is_missing_in_an_earlier_output_does_not_matter(place: Path) -> None:
    (place / "report.md").unlink()
    write_folder(place, output("second"))
    assert tree(place) == output("second")


def test_an_empty_folder_is_free(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    write_folder(tmp_path / "out", output())
    assert tree(tmp_path / "out") == output() and os.listdir(tmp_path) == ["out"]


def test_folders_on_the_way_are_made(tmp_path: Path) -> None:
    write_folder(tmp_path / "a" / "b", output())
    assert tree(tmp_path / "a" / "b") == output()


def link_of_a_file(place: Path) -> None:
    (place / "src/a.cu").rename(place.parent / "a.cu")
    (place / "src/a.cu").symlink_to("../../a.cu")


def link_of_a_folder(place: Path) -> None:
    (place / "src").rename(place.parent / "src")
    (place / "src").symlink_to("../src")


def pipe_for_a_file(place: Path) -> None:
    (place / "report.md").unlink()
    os.mkfifo(place / "report.md")


def folder_for_a_file(place: Path) -> None:
    (place / "report.md").unlink()
    (place / "report.md").mkdir()


STRANGE: list[tuple[Callable[[Path], object], str]] = [
    (lambda p: (p / "notes.txt").write_text("mine"), "notes.txt is not named in manifest.json"),
    (lambda p: (p / "src" / "b.cu").write_text("mine"), "src/b.cu is not named in manifest.json"),
    (lambda p: (p / "mine").mkdir(), "mine is not named in manifest.json"),
    (lambda p: (p / "report.md").write_text("changed"), "report.md was changed since it was written"),
    (lambda p: (p / MANIFEST).write_bytes((p / MANIFEST).read_bytes() + b" "), "manifest.json was changed"),
    (lambda p: (p / "link").symlink_to("report.md"), "link is not named in manifest.json"),
    (link_of_a_file, "src/a.cu is not a regular file"),
    (link_of_a_folder, "src is not named in manifest.json"),
    (pipe_for_a_file, "report.md is not a regular file"),
    (folder_for_a_file, "report.md is not a regular file"),
]


@pytest.mark.parametrize(("change", "reason"), STRANGE)
def test_a_folder_that_is_not_wholly_ours_is_left_alone(place: Path, change: Callable[[Path], object], reason: str) -> None:
    change(place)
    assert refused(place) == f"{place} is not wholly an earlier output: {reason}"


def test_a_few_strange_files_are_named(place: Path) -> None:
    for number in range(9):
        (place / f"{number}.txt").write_text("mine")
    told = refused(place).split(" | ")
    assert told[1:] == [f"{number}.txt is not named in manifest.json" for number in range(1, places.MOST_TOLD)]


NO_OUTPUT: list[Any] = [{}, [], {"format": "other"}, {"format": FORMAT + "0", "files": {}}, {"files": {"notes.txt": ""}}]


@pytest.mark.parametrize("manifest", [json.dumps(value) for value in NO_OUTPUT] + ["", "{", "[" * 100_000, "\udcff"])
def test_a_manifest_of_others_makes_no_output(tmp_path: Path, manifest: str) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    (folder / MANIFEST).write_bytes(manifest.encode(errors="surrogateescape"))
    assert refused(folder) == f"{folder} exists and is not an earlier output"


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: Path(path).symlink_to("/dev/zero"), os.mkdir])
def test_a_manifest_that_is_no_file_makes_no_output(tmp_path: Path, make: Callable[[Path], None]) -> None:
    (tmp_path / "out").mkdir()
    make(tmp_path / "out" / MANIFEST)
    assert refused(tmp_path / "out") == f"{tmp_path / 'out'} exists and is not an earlier output"


def test_an_output_of_an_earlier_version_is_left_alone(place: Path) -> None:
    (place / MANIFEST).write_text(json.dumps({"format": FORMAT, "programs": {}}))
    assert refused(place) == f"{place} is the output of an earlier version, whose manifest.json does not name all its files"


def test_a_file_and_a_folder_in_a_file_are_no_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert refused(tmp_path / "file") == f"{tmp_path / 'file'} exists and is not a folder"
    with pytest.raises(BilinearError, match="E611"):
        require_folder(tmp_path / "file" / "out")


def test_a_link_to_an_earlier_output_stays(place: Path) -> None:
    link = place.parent / "link"
    link.symlink_to("out")
    write_folder(link, output("second"))
    assert link.is_symlink() and tree(place) == output("second")


def test_links_in_a_circle_and_impossible_names_are_no_place(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    for name in ("circle", "x" * 300, "a\0b", "\ud800"):
        with pytest.raises(BilinearError, match="E611"):
            require_folder(tmp_path / name)


def test_the_folder_that_one_works_in_is_not_replaced(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place / "src")
    assert refused(place) == f"cannot write {place}: this command runs inside of it"


def test_a_folder_where_nothing_can_be_written_is_no_place(place: Path) -> None:
    user = os.geteuid()
    place.parent.chmod(0o555)
    if user == 0:  # root may write anywhere; nobody may not
        os.seteuid(65534)
    try:
        for folder in (place, place.parent / "new", place.parent / "new" / "deep"):
            with pytest.raises(BilinearError, match="E611"):
                require_folder(folder)
    finally:
        os.seteuid(user)
        place.parent.chmod(0o755)


def at_rename(monkeypatch: pytest.MonkeyPatch, number: int, act: Callable[[], object]) -> None:
    """Do something before the rename of this number."""
    renames: list[object] = []
    rename = os.rename

    def renamed(source: Any, target: Any) -> None:
        renames.append(source)
        if len(renames) == number:
            act()
        rename(source, target)

    monkeypatch.setattr("bilinear.writing.os.rename", renamed)


def test_what_is_added_after_the_check_is_not_lost(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_rename(monkeypatch, 1, lambda: (place / "late.txt").write_text("mine"))
    with pytest.raises(BilinearError, match=r"late\.txt is not named in manifest\.json"):
        write_folder(place, output("second"))
    assert tree(place.parent) == {f"out/{path}": content for path, content in {**output(), "late.txt": b"mine"}.items()}


def test_what_is_added_at_the_very_end_is_left_and_told(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def add() -> None:
        (old,) = (path for path in place.parent.iterdir() if (path / "report.md").read_bytes() == b"first")
        (old / "late.txt").write_text("mine")

    at_rename(monkeypatch, 2, add)
    with caplog.at_level(logging.WARNING, "bilinear"):
        write_folder(place, output("second"))
    assert tree(place) == output("second")
    (old,) = (path for path in place.parent.iterdir() if path != place)
    assert tree(old) == {"late.txt": b"mine"}
    assert caplog.messages == [f"files added to an earlier output are left in {old}: Directory not empty"]


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, SystemExit])
def test_an_interrupt_leaves_the_earlier_output(
    place: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: type[BaseException]
) -> None:
    def stop() -> None:
        raise error

    at_rename(monkeypatch, number, stop)
    with pytest.raises(error):
        write_folder(place, output("second"))
    assert tree(place.parent) == {f"out/{path}": content for path, content in output().items()}


def test_where_somebody_else_takes_the_place_it_is_said_where_the_earlier_output_is(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def take() -> None:
        place.mkdir()
        (place / "theirs").write_text("theirs")

    at_rename(monkeypatch, 2, take)
    with pytest.raises(BilinearError, match="written by another program meanwhile; its earlier content is in") as caught:
        write_folder(place, output("second"))
    old = Path(caught.value.diagnostics[0].message.rpartition(" ")[2])
    assert tree(old) == output() and tree(place) == {"theirs": b"theirs"} and len(os.listdir(place.parent)) == 2


def test_a_full_disk_changes_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(BilinearError, match="No space left on device"):
        write_folder(place, output("second"))
    assert tree(place.parent) == {f"out/{path}": content for path, content in output().items()}
