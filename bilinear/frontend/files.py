"""The files of the language: which are shipped, and the text of one."""

from __future__ import annotations

from pathlib import Path

from bilinear.errors import fail
from bilinear.frontend.reporter import shown
from bilinear.reading import TooLargeError, read_input
from bilinear.resources import algorithms_folder
from bilinear.source import Source

SUFFIX = ".bl"
MOST_BYTES = 4 * 2**20
"""Size of a file that is read."""


def read_source(path: Path) -> Source:
    """The text of a file. Raises `BilinearError` (E121 to E124) where it cannot be read."""
    try:
        data = read_input(path, MOST_BYTES)
    except FileNotFoundError:
        raise fail("E121", f"there is no file {shown(str(path), 200)}") from None
    except TooLargeError:
        raise fail("E124", f"{path} is larger than {MOST_BYTES // 2**20} MiB", "is this a .bl file?") from None
    except OSError as error:
        raise fail("E122", f"{shown(str(path), 200)} cannot be read: {error.strerror or error}") from None
    try:
        return Source(str(path), data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise fail("E123", f"{path} is not UTF-8: byte {error.start} does not decode", "save the file as UTF-8") from None


def shipped() -> dict[str, Path]:
    """The shipped algorithms by name."""
    return {path.stem: path for path in sorted(algorithms_folder().glob(f"*{SUFFIX}"))}


def split(asked: str) -> tuple[str, str]:
    """A path and the name picked of its things, if any: `FILE.bl:NAME`."""
    head, mark, name = asked.rpartition(f"{SUFFIX}:")
    return (head + SUFFIX, name) if mark else (asked, "")
