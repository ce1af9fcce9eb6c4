"""Where templates, shipped algorithms and device descriptions lie: in the installed package, else in the checkout."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path


def templates_folder() -> Path:
    """The folder of the kernel and report templates."""
    return _folder("templates")


def algorithms_folder() -> Path:
    """The folder of the shipped `.bl` files."""
    return _folder("algorithms")


def devices_folder() -> Path:
    """The folder of the shipped device descriptions; it is part of the package."""
    return Path(__file__).resolve().parent / "devices"


@cache
def implementation_sha256() -> str:
    """SHA-256 of everything that turns a proved algorithm into kernels; if it changes, the same plan may give other bits."""
    package = Path(__file__).resolve().parent
    rooms = ("ir", "algebra", "passes", "lowering", "codegen")
    texts = [path for room in rooms for path in sorted((package / room).iterdir()) if path.suffix == ".py"]
    found = hashlib.sha256()
    for path in (*texts, *sorted(p for p in templates_folder().iterdir() if p.name.endswith(".cu.j2"))):
        found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def _folder(name: str) -> Path:
    package = Path(__file__).resolve().parent
    packaged = package / f"_{name}"
    return packaged if packaged.is_dir() else package.parent / name
