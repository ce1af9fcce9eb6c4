"""A user's folder: files of every kind that commands read and write, and what of it must be the same afterwards."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from soak.command import call, inside
from soak.foreign import valid_files

from bilinear.frontend.algorithms import shipped
from bilinear.resources import devices_folder

Snapshot = dict[str, bytes]
"""What lies below a folder: the contents of files, the targets of links, and nothing for folders."""


@dataclass
class Desk:
    """The folder, and the files in it that are not the user's but an earlier output's, as it was written."""

    folder: Path
    ours: set[str] = field(default_factory=set)


def look(folder: Path) -> Snapshot:
    """Everything below a folder, links not followed."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = b"-> " + os.fsencode(os.readlink(path))
        else:
            found[name] = path.read_bytes() if path.is_file() else b"folder"
    return found


def lay_out(folder: Path, draw: random.Random) -> Desk:
    """The desk of a case."""
    desk = Desk(folder)
    known = shipped()
    for name, of in (("a", "strassen"), ("strassen", "strassen"), ("s", "msmes"), ("made", "")):
        text = known[of].read_text(encoding="utf-8") if of else 'scheme made <2,4,2;14> = "a.bl" (x) <1,2,1>\n'
        (folder / f"{name}.bl").write_text(text, encoding="utf-8")
    for form in ("json", "sms", "npz", "fast-matmul"):
        for name, data in valid_files("strassen", form).items():
            (folder / (name if form == "sms" else f"t{Path(name).suffix}")).write_bytes(data)
    shutil.copy(devices_folder() / "h200.json", folder / "device.json")
    (folder / "notes.txt").write_text("what nobody wrote down twice\n")
    (folder / "link.bl").symlink_to("a.bl")
    (folder / "nowhere").symlink_to("gone/file")
    os.link(folder / "a.bl", folder / "hard.bl")
    (folder / "empty").mkdir()
    _write(folder / "foreign", {"notes.txt": b"mine", "src/kept.cu": b"// mine"})
    _write(folder / "alike", {"manifest.json": b"{}", "notes.txt": b"mine"})
    _write(folder / "ours", earlier_output())
    desk.ours |= {f"ours/{name}" for name in earlier_output()}
    _add_to(desk, draw)
    (folder / "way").symlink_to(draw.choice(("ours", "foreign", "alike")))
    return desk


def _add_to(desk: Desk, draw: random.Random) -> None:
    """What the user did in an earlier output, if anything."""
    way, ours = draw.randrange(5), desk.folder / "ours"
    chosen = draw.choice(sorted(desk.ours))
    if way == 0:
        _write(ours, {draw.choice(("notes.txt", "src/mine.cu", "build/log", ".hidden")): b"mine"})
    elif way == 1:
        with (desk.folder / chosen).open("ab") as file:
            file.write(b"\nedited\n")
        desk.ours.discard(chosen)
    elif way == 2:
        (ours / "data").symlink_to("../notes.txt")
    elif way == 3:
        (desk.folder / chosen).unlink()
        (desk.folder / chosen).symlink_to(desk.folder / "notes.txt")
        desk.ours.discard(chosen)


def _write(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


@cache
def earlier_output() -> dict[str, bytes]:
    """The files of a small output folder, made once."""
    with TemporaryDirectory() as folder, inside(Path(folder)):
        answer = call(*COMPILE, "-o", "out", bounded=False, seconds=300)
        assert answer.status == 0, answer.err
        out = Path(folder) / "out"
        return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}


COMPILE = ("compile", "classical", "--arch", "compute_90", "--dtype", "float64", "--shape", "8")


def lost(before: Snapshot, after: Snapshot, may_change: Iterable[str]) -> list[str]:
    """What was there and is not as it was, but what may change."""
    free = set(may_change)
    return [name for name, content in before.items() if name not in free and after.get(name) != content]


def added(before: Snapshot, after: Snapshot, may_come: Iterable[str]) -> list[str]:
    """What is there and was not, outside of the places where something may come."""
    places = tuple(may_come)
    return [
        n
        for n in after
        if n not in before and not any(n == place or n.startswith(f"{place}/") or place.startswith(f"{n}/") for place in places)
    ]
