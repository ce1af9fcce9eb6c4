"""Write files and folders whole or not at all, where `places` allows it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from stat import S_IMODE

from bilinear.errors import fail
from bilinear.places import ELSEWHERE, files_of, goes_straight, require_files, require_folder, standard_stream

log = logging.getLogger("bilinear")


def write_file(path: Path, text: str | bytes) -> None:
    """Write a file whole or not at all (E612); an existing pipe or device is written to directly."""
    write_files({path: text})


def write_files(contents: Mapping[Path, str | bytes]) -> None:
    """Write files that belong together, all or none (E612): every file is complete next to its place before the first is moved there.

    Links are kept, and their targets are written; a new file gets the permissions of the file that it replaces.
    """
    require_files(*contents)
    ready: dict[Path, Path] = {}
    path = Path()
    try:
        for path, text in contents.items():
            data = text.encode() if isinstance(text, str) else text
            if goes_straight(path):
                _write_straight(path, data)
                continue
            target = path.resolve()
            fresh = _beside(target)
            ready[target] = fresh  # before it is made, so that an interrupt cannot leave it there
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            with open(descriptor, "wb") as file:
                file.write(data)
                if target.exists():
                    os.fchmod(descriptor, S_IMODE(target.stat().st_mode))
        for target in list(ready):
            ready[target].replace(target)
            del ready[target]
    except OSError as error:
        raise fail("E612", f"cannot write {path}: {error.strerror or error}", "choose another place") from None
    finally:
        for left in ready.values():
            left.unlink(missing_ok=True)


def make_folder(folder: Path, hint: str) -> None:
    """Make a folder and the missing ones above it. Raises `BilinearError` (E612) with this hint if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise fail("E612", f"cannot make {folder}: {error.strerror or error}", hint) from None


def _write_straight(path: Path, data: bytes) -> None:
    """Write to a pipe or a device; to standard output or error after flushing it."""
    stream = standard_stream(path)
    if stream is None:
        path.write_bytes(data)
        return
    for printed in (sys.stdout, sys.stderr):
        printed.flush()
    with open(stream, "wb", closefd=False) as file:
        file.write(data)


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write all files or nothing: into a new folder next to the place, which then replaces an earlier output.

    Raises `BilinearError` (E611) if the place holds anything else (`places.require_folder`) or cannot be written.
    """
    place = require_folder(folder)
    fresh = _beside(place)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            for name, content in files.items():
                path = fresh / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            _take_place(fresh, place)
        finally:
            _remove(fresh, files)
    except OSError as error:
        raise fail("E611", f"cannot write {folder}: {error.strerror or error}", ELSEWHERE) from None


def _take_place(fresh: Path, place: Path) -> None:
    """Move a new folder to its place; an earlier output there is put back if the move fails."""
    if not place.exists():
        os.rename(fresh, place)
        return
    old = _beside(place)
    try:
        os.rename(place, old)
        ours = files_of(old, place)  # check again: nobody can add files now, and files added before are kept
        os.rename(fresh, place)
    except BaseException:
        if old.exists() and fresh.exists():
            _put_back(old, place)
        raise
    _remove(old, ours)


def _put_back(old: Path, place: Path) -> None:
    """Undo the move of an earlier output; if another folder has taken its place, report where it is."""
    try:
        os.rename(old, place)
    except OSError:
        raise fail("E611", f"{place} was written by another program meanwhile; its earlier content is in {old}", ELSEWHERE) from None


def _remove(folder: Path, names: Iterable[str]) -> None:
    """Remove these files of a folder and the folders that become empty; anything else stays, and its place is reported."""
    paths = [PurePosixPath(name) for name in names]
    inner = {parent for path in paths for parent in path.parents} | {PurePosixPath()}
    for path in paths:
        (folder / path).unlink(missing_ok=True)
    try:
        for parent in sorted(inner, key=lambda path: len(path.parts), reverse=True):
            if (folder / parent).exists():
                (folder / parent).rmdir()
    except OSError as error:
        log.warning("files added to an earlier output are left in %s: %s", folder, error.strerror)


def _beside(place: Path) -> Path:
    """A temporary place in the same folder."""
    return place.with_name(f".bilinear-{os.urandom(8).hex()}")
