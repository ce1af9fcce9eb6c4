"""Files: where templates, shipped algorithms and devices lie (the installed package, else the checkout), and writing whole ones."""

from __future__ import annotations

import tempfile
from errno import EISDIR
from pathlib import Path

from bilinear.errors import fail


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


def write_file(path: Path, text: str) -> None:
    """Write a file whole, or not at all (E612); what is there and no file, such as a pipe, is written to."""
    try:
        if not path.name or path.is_dir():
            raise IsADirectoryError(EISDIR, "it is a folder")
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")
            return
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as fresh:
            try:
                fresh.write(text)
                fresh.close()
                Path(fresh.name).chmod(0o644)
                Path(fresh.name).replace(path)
            except OSError:
                Path(fresh.name).unlink()
                raise
    except OSError as error:
        raise fail("E612", f"cannot write {path}: {error.strerror or error}", "choose another place") from None
