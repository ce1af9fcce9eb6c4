"""Damaged and malicious .npz archives."""

from __future__ import annotations

import io
import pickle
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from soak.mangle import mangled_bytes


class Evil:
    """A pickle of it, when loaded, writes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.marker), "w")


def mangled_archive(data: bytes, draw: random.Random, marker: Path) -> bytes:
    """An archive with damage in the zip, in the arrays of its members, or with members that ought not to be there."""
    way = draw.randrange(6)
    if way == 0:
        return mangled_bytes(data, draw)
    members = _members(data)
    if way in (1, 2):
        members = {name: mangled_bytes(content, draw) for name, content in members.items()}
    elif way == 3:
        members = {name: _header(content, draw) for name, content in members.items()}
    elif way == 4:
        members = dict.fromkeys(members, _pickled(marker, draw))
    else:
        members |= _others(draw, marker)
    return _zipped(members, draw)


def _members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _zipped(members: dict[str, bytes], draw: random.Random) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", draw.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def _header(content: bytes, draw: random.Random) -> bytes:
    """Another type, order or shape in the head of an array, of the same length."""
    end = content.index(b"\n", 10)
    head = content[10:end].decode("latin1")
    for old, new in draw.sample(
        (("<i8", "<f8"), ("<i8", "|O"), ("|O", "<i8"), ("False", "True"), ("(3", "(9"), ("(3", "(99999999"), ("<f8", ">f8")), 3
    ):
        head = head.replace(old, new)
    return content[:8] + len(head + "\n").to_bytes(2, "little") + head.encode("latin1") + b"\n" + content[end + 1 :]


def _pickled(marker: Path, draw: random.Random) -> bytes:
    """An array whose pickle runs something, or asks for much, when it is loaded."""
    array = np.empty(3, dtype=object)
    array[:] = [Evil(marker)] * 3
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    content = file.getvalue()
    if draw.random() < 0.5:
        return content
    head = content[: content.index(b"\n", 10) + 1]
    bombs = (
        b"\x80\x02cos\nsystem\n(S'touch " + str(marker).encode() + b"'\ntR.",
        b"\x80\x04\x95" + b"\xff" * 8,
        b"(" * 100_000 + b".",
        b"\x80\x02]q\x00" + b"(h\x00h\x00e" * 50_000 + b".",
        b"\x80\x04\x8d" + (2**60).to_bytes(8, "little"),
        pickle.dumps({"x": [1] * 9}),
    )
    return head + draw.choice(bombs)


def _others(draw: random.Random, marker: Path) -> dict[str, bytes]:
    names = ("../out.npy", "/tmp/x.npy", "2,2,2.npy", "x" * 300 + ".npy", "\x1b[31m.npy", "9,9,9.npy", "con", "a/b.npy")
    zeros = io.BytesIO()
    np.save(zeros, np.zeros((3, 4, draw.choice((7, 2**20))), np.int8))
    return {draw.choice(names): draw.choice((b"", zeros.getvalue(), _pickled(marker, draw), b"\x93NUMPY\x01\x00"))}
