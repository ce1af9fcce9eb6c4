"""Where the templates, the shipped algorithms and the devices lie: in the installed package, else in the checkout."""

from __future__ import annotations

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


def _folder(name: str) -> Path:
    package = Path(__file__).resolve().parent
    packaged = package / f"_{name}"
    return packaged if packaged.is_dir() else package.parent / name
