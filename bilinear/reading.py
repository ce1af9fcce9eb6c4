"""Reading what somebody else may have put there: regular files of a bounded size, and a record of what a command has read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EFBIG, EINVAL, EISDIR
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import BinaryIO

MOST_BYTES = 4 * 2**20
"""Size of a file that is read, where nothing else is said."""

_inputs: dict[tuple[int, int], str] | None = None
"""What the command that is running has read, by device and inode; None outside of a command."""


class TooLargeError(OSError):
    """A file of more bytes than are read."""

    def __init__(self, most: int) -> None:
        super().__init__(EFBIG, f"it is larger than {most // 2**20} MiB")


@contextmanager
def command() -> Iterator[None]:
    """Until it ends, what is read as an input is remembered, and is not written over."""
    global _inputs  # noqa: PLW0603 - a process runs one command
    before, _inputs = _inputs, {}
    try:
        yield
    finally:
        _inputs = before


def was_read(state: os.stat_result) -> bool:
    """Whether this is a file that the command has read as an input, by whatever name."""
    return _inputs is not None and (state.st_dev, state.st_ino) in _inputs


@contextmanager
def open_regular(path: str | Path) -> Iterator[BinaryIO]:
    """A regular file; a pipe or a device is refused instead of waited for. Raises `OSError`, whose `strerror` says why."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except ValueError:
        raise OSError(EINVAL, "no file can have this name") from None
    try:
        mode = os.fstat(descriptor).st_mode
        if S_ISDIR(mode):
            raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
        if not S_ISREG(mode):
            raise OSError(EINVAL, "it is no regular file")
        with open(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


@contextmanager
def open_input(path: str | Path) -> Iterator[BinaryIO]:
    """As `open_regular`, for a file that the user gave: this command does not write over it."""
    with open_regular(path) as file:
        if _inputs is not None:
            state = os.fstat(file.fileno())
            _inputs[state.st_dev, state.st_ino] = str(path)
        yield file


def read_bounded(path: str | Path, most: int = MOST_BYTES) -> bytes:
    """What a regular file of at most `most` bytes holds. Raises `OSError`: it is missing, no regular file, or `TooLargeError`."""
    with open_regular(path) as file:
        return _bounded(file, most)


def read_input(path: str | Path, most: int = MOST_BYTES) -> bytes:
    """As `read_bounded`, for a file that the user gave: this command does not write over it."""
    with open_input(path) as file:
        return _bounded(file, most)


def _bounded(file: BinaryIO, most: int) -> bytes:
    content = file.read(most + 1)
    if len(content) > most:
        raise TooLargeError(most)
    return content
