"""Reading within bounds, and where files may be written: never over what a command reads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from each_case import each

import bilinear
from bilinear.errors import BilinearError
from bilinear.places import require_files
from bilinear.reading import TooLargeError, command, read_bounded, read_input
from bilinear.writing import write_file, write_files


def refusal(*files: Path, unread: tuple[Path, ...] = ()) -> str:
    with pytest.raises(BilinearError) as caught:
        require_files(*files, unread=unread)
    (found,) = caught.value.diagnostics
    assert found.code == "E612" and found.hints
    return found.message


@pytest.mark.parametrize(
    "make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.symlink_to("/dev/null"), os.mkdir]
)
def test_what_is_no_regular_file_is_not_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "x")
    with pytest.raises(OSError, match=r"it is not a regular file|Is a directory"):
        read_bounded(tmp_path / "x")


def test_no_more_is_read_than_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"12345")
    assert read_bounded(tmp_path / "x", 5) == b"12345"
    os.truncate(tmp_path / "x", 2**40)
    with pytest.raises(TooLargeError, match="it is larger than 4 MiB"):
        read_bounded(tmp_path / "x")


def test_impossible_names_are_errors_of_the_system(tmp_path: Path) -> None:
    for name in ("none", "a\0b", "\ud800", "x" * 300):
        with pytest.raises(OSError, match=r"No such file|no file can have this name|File name too long"):
            read_bounded(tmp_path / name)


def test_what_a_command_has_read_is_not_written_by_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").write_text("mine")
    (tmp_path / "folder").mkdir()
    os.link("in", "hard")
    os.symlink("in", "soft")
    os.symlink(".", "folder/up")
    (tmp_path / "copy").write_text("mine")
    with command():
        assert read_input("soft") == b"mine"
        for name in ("in", "hard", "soft", "folder/../in", f"{tmp_path}/in"):
            assert refusal(Path(name)) == f"cannot write {Path(name)}: it is the file that is read"
            with pytest.raises(BilinearError, match="E612"):
                write_file(Path(name), "lost")
        require_files(Path("copy"), Path("new"))
    require_files(Path("in"))  # another command may
    assert (tmp_path / "in").read_text() == "mine"


def test_what_is_not_given_by_the_user_may_be_written_anew(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("old")
    with command():
        read_bounded(tmp_path / "kept")
        write_file(tmp_path / "kept", "new")
    assert (tmp_path / "kept").read_text() == "new"


def test_what_a_command_is_about_to_read_is_not_written(tmp_path: Path) -> None:
    library = tmp_path / "library"
    (library / "deep").mkdir(parents=True)
    (library / "deep" / "a.bl").write_text("mine")
    os.symlink("library", tmp_path / "link")
    (tmp_path / "b.bl").write_text("mine")
    unread = (tmp_path / "link", tmp_path / "b.bl", tmp_path / "none")
    for place in (library / "deep" / "a.bl", tmp_path / "b.bl"):
        assert refusal(place, unread=unread) == f"cannot write {place}: it is the file that is read"
    require_files(library / "new.bl", tmp_path / "none", unread=unread)


def test_two_outputs_in_one_place_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.symlink("x", "link")
    for other in ("x", "link", f"{tmp_path}/x"):
        assert refusal(Path("x"), Path(other)) == f"cannot write {Path(other)}: another output of this command goes there"
    require_files(Path("x"), Path("y"), None)
    require_files(Path("/dev/null"), Path("/dev/null"))


def test_why_no_file_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "circle").symlink_to("circle")
    for name, reason in (
        (".", "it is a folder"),
        ("none/x", f"there is no folder {tmp_path / 'none'} that can be written to"),
        ("file/x", f"there is no folder {tmp_path / 'file'} that can be written to"),
        ("x" * 300, "File name too long"),
        ("circle", "its links go round in a circle"),
        ("a\0b", "no file can have this name"),
    ):
        place = tmp_path / name
        assert refusal(place) == f"cannot write {place}: {reason}"


def test_a_write_protected_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("mine")
    (tmp_path / "x").chmod(0o444)
    tmp_path.chmod(0o777)
    user = os.geteuid()
    if user == 0:  # root may write anything; nobody may not
        os.seteuid(65534)
    try:
        with pytest.raises(BilinearError, match="E612"):
            write_file(tmp_path / "x", "lost")
    finally:
        os.seteuid(user)
    assert (tmp_path / "x").read_text() == "mine"


def test_a_file_that_is_replaced_leaves_its_links_and_permissions(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("old")
    (tmp_path / "x").chmod(0o600)
    (tmp_path / "link").symlink_to("x")
    (tmp_path / "dangling").symlink_to("y")
    write_files({tmp_path / "link": "new", tmp_path / "dangling": "new"})
    assert (tmp_path / "link").is_symlink() and (tmp_path / "dangling").is_symlink()
    assert (tmp_path / "x").read_text() == (tmp_path / "y").read_text() == "new"
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o600


def test_a_new_file_has_the_permissions_that_the_user_gives_files(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_file(tmp_path / "x", "new")
    finally:
        os.umask(before)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o640


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe, found = tmp_path / "pipe", list[str]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()))
    reader.start()
    write_file(pipe, "new")
    reader.join()
    assert found == ["new"] and pipe.is_fifo()


@each("place", ["/dev/stdout", "/dev/stderr", "/dev/fd/1"])
@each("into", ["file", "pipe"])
def test_what_a_command_prints_into_takes_a_file_too(tmp_path: Path, place: str, into: str) -> None:
    program = f"from pathlib import Path; from bilinear.writing import write_file; print('first'); write_file(Path('{place}'), 'then\\n')"
    command = [sys.executable, "-c", f"{program}; print('last')"]
    environment = {**os.environ, "PYTHONPATH": str(Path(bilinear.__file__).parents[1])}
    if into == "pipe":
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, check=True)
        assert done.stdout == b"first\nthen\nlast\n"
        return
    with (tmp_path / "out").open("wb") as out:
        subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, env=environment, check=True)
    assert (tmp_path / "out").read_bytes() == b"first\nthen\nlast\n" and os.listdir(tmp_path) == ["out"]


def test_an_interrupt_leaves_no_half_written_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = os.open

    def interrupted(path: Any, flags: int, mode: int = 0o777) -> int:
        os.close(made(path, flags, mode))
        raise KeyboardInterrupt

    monkeypatch.setattr("bilinear.writing.os.open", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "x", "text")
    assert list(tmp_path.iterdir()) == []
