"""Read files from outside, regular and of bounded size, and record what a command has read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EFBIG, EINVAL, EISDIR, EPERM
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import BinaryIO
from unicodedata import normalize

MOST_BYTES = 4 * 2**20  # The default size limit of a file, in bytes.

SIGNS: dict[int, str] = {
    **dict.fromkeys((0x2212, 0x2010, 0x2011, 0x2012, 0x2013, 0x2014, 0xFE63, 0xFF0D), "-"),
    **dict.fromkeys((0xB7, 0xD7, 0x2022, 0x2062, 0x2217, 0x2219, 0x22C5, 0x2A2F), "*"),
    **dict.fromkeys((0xA0, *range(0x2000, 0x200C), 0x202F, 0x205F, 0x3000), " "),
    **{0x2080 + digit: str(digit) for digit in range(10)},
    **{sign: plain for sign in range(0x1D400, 0x1D800) if (plain := normalize("NFKC", chr(sign))).isascii()},
    0x210E: "h",
}
"""What texts copied from papers have for the signs of a keyboard: minus signs and dashes, dots and crosses, wide and narrow spaces,
indices, and the letters of formulas.
"""

_inputs: dict[tuple[int, int], str] | None = None  # What the command has read, by device and inode, or None.


class TooLargeError(OSError):
    """The file has more bytes than the limit."""

    def __init__(self, most: int) -> None:
        super().__init__(EFBIG, f"it is larger than {most // 2**20} MiB")


@contextmanager
def command() -> Iterator[None]:
    """Until the context ends, files read as inputs are recorded and protected from being overwritten."""
    global _inputs  # noqa: PLW0603 - a process runs one command
    before, _inputs = _inputs, {}
    try:
        yield
    finally:
        _inputs = before


def was_read(state: os.stat_result) -> bool:
    """True if the command has read this file as an input, under any name."""
    return _inputs is not None and (state.st_dev, state.st_ino) in _inputs


@contextmanager
def open_regular(path: str | Path) -> Iterator[BinaryIO]:
    """Open a regular file, for a pipe or a device could block. Raises `OSError` with the reason in `strerror`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except ValueError:
        raise OSError(EINVAL, "no file can have this name") from None
    try:
        mode = os.fstat(descriptor).st_mode
        if S_ISDIR(mode):
            raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
        if not S_ISREG(mode):
            raise OSError(EINVAL, "it is not a regular file")
        with open(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


@contextmanager
def open_input(path: str | Path) -> Iterator[BinaryIO]:
    """As `open_regular`, for a file that the user named: this command does not overwrite it."""
    with open_regular(path) as file:
        if _inputs is not None:
            state = os.fstat(file.fileno())
            _inputs[state.st_dev, state.st_ino] = str(path)
        yield file


def read_bounded(path: str | Path, most: int = MOST_BYTES) -> bytes:
    """The content of a regular file of at most `most` bytes. Raises `OSError` if it is missing or not regular, and `TooLargeError`."""
    with open_regular(path) as file:
        return _bounded(file, most)


def read_own(path: str | Path, most: int = MOST_BYTES) -> bytes:
    """As `read_bounded`, for code that this process will run: a file that another user owns or may write is refused, too."""
    with open_regular(path) as file:
        state = os.fstat(file.fileno())
        if state.st_uid != os.geteuid() or state.st_mode & 0o022:
            raise PermissionError(EPERM, "another user may have written it")
        return _bounded(file, most)


def read_input(path: str | Path, most: int = MOST_BYTES) -> bytes:
    """As `read_bounded`, for a file that the user named: this command does not overwrite it."""
    with open_input(path) as file:
        return _bounded(file, most)


def text_of(data: bytes, errors: str = "strict") -> str:
    """The text of a file: UTF-8, no byte order mark, lines that end with a newline. Raises `UnicodeDecodeError` unless told."""
    return data.decode("utf-8-sig", errors).replace("\r\n", "\n").replace("\r", "\n")


def with_plain_signs(text: str) -> str:
    """The text with each of `SIGNS` as on a keyboard; every character stays at its place."""
    return text if text.isascii() else text.translate(SIGNS)


def _bounded(file: BinaryIO, most: int) -> bytes:
    content = file.read(most + 1)
    if len(content) > most:
        raise TooLargeError(most)
    return content
