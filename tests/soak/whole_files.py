"""What commands write, and whether it is there whole or not at all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from soak.case import Finding

USERS_TEXT = "of the user's\n"


def plant(*folders: Path) -> tuple[Path, ...]:
    """A file of the user's in each of some folders."""
    planted = []
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        planted.append(folder / "notes.txt")
        planted[-1].write_text(USERS_TEXT, encoding="utf-8")
    return tuple(planted)


def check_planted(planted: Sequence[Path]) -> None:
    """The user's files are as they were."""
    for path in planted:
        if not path.is_file() or path.read_text(encoding="utf-8") != USERS_TEXT:
            raise Finding(f"a file of the user's is gone or changed: {path}")


def check_output(folder: Path) -> bool:
    """An output folder is whole, or not there (False)."""
    if not folder.exists():
        return False
    if not (folder / "manifest.json").is_file():
        raise Finding(f"{folder} is half written: {sorted(str(p.relative_to(folder)) for p in folder.rglob('*'))}")
    manifest = json.loads((folder / "manifest.json").read_bytes())
    for program in manifest["programs"].values():
        for kernel in program["kernels"].values():
            _check_file(folder / kernel["source"], kernel["sha256"])
            for image in kernel["images"].values():
                _check_file(folder / image["path"], image["sha256"])
    return True


def _check_file(path: Path, sha256: str) -> None:
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
        raise Finding(f"{path} is missing or is not what the manifest names")


def check_text(path: Path, end: str) -> bool:
    """A text is whole, down to its end, or not there (False)."""
    if not path.exists():
        return False
    if not path.read_text(encoding="utf-8").rstrip().endswith(end):
        raise Finding(f"{path} is half written: {path.stat().st_size} bytes")
    return True


def check_nothing_left(folder: Path, known: Sequence[str]) -> None:
    """Nothing lies in a folder but what is known."""
    left = sorted(path.name for path in folder.iterdir() if path.name not in known)
    if left:
        raise Finding(f"left behind: {', '.join(left)}")
