"""The files of the language: the shipped ones, their text, and a record of the files examined for an algorithm."""

from __future__ import annotations

import os
import re
from enum import Enum
from functools import cache
from pathlib import Path

from bilinear.errors import BilinearError, fail
from bilinear.frontend.messages import shown
from bilinear.reading import TooLargeError, read_input, text_of
from bilinear.resources import algorithms_folder, own_folder
from bilinear.source import Source

SUFFIX = ".bl"
DIGITS, COMPLEX, TRANSPOSED = "digits", "complex", "transposed"
"""Folders among the shipped algorithms: of digit schemes, of algorithms for complex numbers, and of schemes for A*A^T."""
MOST_BYTES = 4 * 2**20  # The largest file that is read, in bytes.


class ReferredFile(Enum):
    """What a path refers to, without its content."""

    NOTHING = "nothing"
    FILE = "a file"
    OTHER = "a folder, a pipe or a device"


class Looks:
    """A record of the paths that reading an algorithm looked at, to tell whether it has changed; shipped files do not."""

    def __init__(self) -> None:
        self._found: dict[str, ReferredFile | bytes] = {}
        self._missing: list[str] = []
        self._shipped = (algorithms_folder(), *(algorithms_folder() / name for name in (DIGITS, TRANSPOSED, COMPLEX)))
        self.can_be_kept = True
        """Whether a later check is reliable.

        It is not if a path could not be examined, changed meanwhile, or was read without being a file.
        """

    def is_file(self, path: Path) -> bool:
        """True if a path is a file."""
        return self._look(path) is ReferredFile.FILE

    def exists(self, path: Path) -> bool:
        """True if anything is at a path."""
        return self._look(path) is not ReferredFile.NOTHING

    def read(self, path: Path) -> Source:
        """The text of a file. Raises `BilinearError` (E121 to E124) if it cannot be read."""
        is_file = self.is_file(path)
        data = _read_bytes(path)
        self._note(path, data)
        self.can_be_kept = self.can_be_kept and is_file
        return _source(path, data)

    def still_hold(self) -> bool:
        """True if every path, seen from the current folder, is unchanged."""
        for path in self._missing:  # for a shipped name these are all
            if os.access(path, os.F_OK):
                return False
        if len(self._missing) == len(self._found):
            return True
        return all(found is ReferredFile.NOTHING or _is_still(path, found) for path, found in self._found.items())

    def _look(self, path: Path) -> ReferredFile:
        try:
            found = ReferredFile.FILE if path.is_file() else ReferredFile.OTHER if path.exists() else ReferredFile.NOTHING
        except OSError:
            self.can_be_kept = False
            raise
        self._note(path, found)
        return found

    def _note(self, path: Path, found: ReferredFile | bytes) -> None:
        if path.parent in self._shipped:
            return
        before = self._found.get(str(path), found)
        if isinstance(before, bytes) and found is ReferredFile.FILE:
            return
        if before != found and not (before is ReferredFile.FILE and isinstance(found, bytes)):
            self.can_be_kept = False
        if found is ReferredFile.NOTHING and str(path) not in self._found:
            self._missing.append(str(path))
        self._found[str(path)] = found


def _is_still(path: str, found: ReferredFile | bytes) -> bool:
    if isinstance(found, bytes):
        try:
            return os.path.isfile(path) and _read_bytes(Path(path)) == found
        except BilinearError:
            return False
    return os.path.exists(path) and os.path.isfile(path) == (found is ReferredFile.FILE)


def read_source(path: Path) -> Source:
    """The text of a file. Raises `BilinearError` (E121 to E124) if it cannot be read."""
    return _source(path, _read_bytes(path))


def _read_bytes(path: Path) -> bytes:
    try:
        data = read_input(path, MOST_BYTES)
    except FileNotFoundError:
        raise fail("E121", f"there is no file {shown(str(path), 200)}") from None
    except TooLargeError:
        raise fail("E124", f"{path} is larger than {MOST_BYTES // 2**20} MiB", "is this a .bl file?") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise fail("E122", f"{shown(str(path), 200)} cannot be read: {reason}", "give a .bl file, or a name of `bilinear list`") from None
    return data


def _source(path: Path, data: bytes) -> Source:
    try:
        return Source(str(path), text_of(data))
    except UnicodeDecodeError as error:
        raise fail("E123", f"{path} is not UTF-8: byte {error.start} does not decode", "save the file as UTF-8") from None


def shipped(folder: str = "") -> dict[str, Path]:
    """The shipped algorithms by name; those in the `folder` of another kind if one is given."""
    return {path.stem: path for path in sorted((algorithms_folder() / folder).glob(f"*{SUFFIX}"))}


@cache
def restoring_schedules(scheme: str) -> list[str]:
    """The shipped in-place schedules of this scheme that restore A and B, by the headers of their files."""
    header = re.compile(rf"^schedule (\w+) of {re.escape(scheme)}:.*\brestores A B\b", re.MULTILINE)
    return [found[1] for path in shipped().values() if (found := header.search(path.read_text(encoding="utf-8")))]


def shipped_of_all_kinds() -> dict[str, Path]:
    """Every shipped file by the name of what it holds."""
    return shipped() | shipped(DIGITS) | shipped(COMPLEX) | shipped(TRANSPOSED)


def own() -> dict[str, Path]:
    """The algorithms that the user has added (`bilinear add`), by name."""
    folder = own_folder()
    return {} if folder is None else {path.stem: path for path in sorted(folder.glob(f"*{SUFFIX}")) if not path.is_dir()}


def split(asked: str) -> tuple[str, str]:
    """A path, and the name picked from the file if there is one: `FILE.bl:NAME`."""
    head, mark, name = asked.rpartition(f"{SUFFIX}:")
    return (head + SUFFIX, name) if mark else (asked, "")
