"""Folders that are read: every file or a refusal, in a bounded time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bilinear.errors import BilinearError
from bilinear.interchange import folders
from bilinear.interchange.folders import files_below, schemes_of, survey


def test_all_files_come_in_the_order_of_their_paths(tmp_path: Path) -> None:
    for name in ("b/z.txt", "b.txt", "a/b/c.txt", "a.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "again").symlink_to(tmp_path / "a")
    (tmp_path / "link.txt").symlink_to("a.txt")
    found = [str(path.relative_to(tmp_path)) for path in files_below(tmp_path)]
    assert found == ["a/b/c.txt", "a.txt", "b/z.txt", "b.txt", "link.txt"]


def test_a_folder_of_more_is_refused_and_nothing_of_it_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "MOST_ENTRIES", 3)
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("")
    assert len(files_below(tmp_path)) == 3
    (tmp_path / "folder").mkdir()
    for read in (lambda: list(survey(tmp_path)), lambda: schemes_of([tmp_path])):
        with pytest.raises(BilinearError) as caught:
            read()
        assert str(caught.value) == (
            f"error[E251]: {tmp_path} holds more than 3 files and folders\n  hint: name a smaller folder, or files"
        )


def test_a_folder_that_vanishes_is_told(tmp_path: Path) -> None:
    with pytest.raises(BilinearError, match=r"E251.*gone cannot be read: No such file"):
        files_below(tmp_path / "gone")


def test_a_very_deep_folder_is_read(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(1500):
        deep /= "d"
        deep.mkdir()
    assert files_below(tmp_path) == []
    for folder in (deep, *deep.parents[:1499]):  # what removes temporary folders is recursive
        folder.rmdir()


def test_a_name_that_is_too_long_has_a_diagnostic() -> None:
    with pytest.raises(BilinearError, match=r"E251.*File name too long"):
        schemes_of([Path("a" * 5000)])
