"""Files: where templates, shipped algorithms and devices lie (the installed package, else the checkout), and writing whole ones."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from errno import EISDIR
from functools import cache
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


@cache
def implementation_sha256() -> str:
    """SHA-256 of all that turns a proved algorithm into kernels: another one may give other bits for the same plan."""
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


def write_file(path: Path, text: str | bytes) -> None:
    """Write a file whole, or not at all (E612); what is there and no file, such as a pipe, is written to."""
    write_files({path: text})


def write_files(contents: Mapping[Path, str | bytes]) -> None:
    """Write files that belong together, all of them whole or none (E612): each stands beside its place before the first is put there."""
    ready: dict[Path, Path] = {}
    path = Path()
    try:
        for path, text in contents.items():
            data = text.encode() if isinstance(text, str) else text
            if not path.name or path.is_dir():
                raise IsADirectoryError(EISDIR, "it is a folder")
            if path.exists() and not path.is_file():
                path.write_bytes(data)
                continue
            import tempfile  # with all that it imports a tenth of a first plan

            with tempfile.NamedTemporaryFile("wb", dir=path.parent, delete=False) as fresh:
                ready[path] = Path(fresh.name)
                fresh.write(data)
            ready[path].chmod(0o644)
        for path in list(ready):
            ready[path].replace(path)
            del ready[path]
    except OSError as error:
        raise fail("E612", f"cannot write {path}: {error.strerror or error}", "choose another place") from None
    finally:
        for left in ready.values():
            left.unlink(missing_ok=True)
