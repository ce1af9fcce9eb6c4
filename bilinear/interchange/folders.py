"""The files of a folder that somebody else may have filled."""

from __future__ import annotations

import os
from pathlib import Path

from bilinear.errors import fail

MOST_ENTRIES = 10_000
"""Files and folders below a folder that is read."""


def files_below(folder: Path) -> list[Path]:
    """All files below a folder, in the order of their paths; links to folders are not followed.

    Raises `BilinearError` (E251): a folder cannot be read, or there are more than `MOST_ENTRIES` files and folders.
    """
    found: list[Path] = []
    waiting, entries = [folder], 0
    while waiting:
        inner = waiting.pop()
        try:
            with os.scandir(inner) as listed:
                for entry in listed:
                    entries += 1
                    if entries > MOST_ENTRIES:
                        raise fail("E251", f"{folder} holds more than {MOST_ENTRIES} files and folders", "name a smaller folder, or files")
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
                    elif os.path.isfile(entry.path):
                        found.append(Path(entry.path))
        except OSError as error:
            raise fail("E251", f"{inner} cannot be read: {error.strerror or error}") from None
    return sorted(found)
