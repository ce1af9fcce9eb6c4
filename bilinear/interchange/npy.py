"""The arrays of an `.npz` archive, bounded in size and without unpickling (format: numpy.lib.format, NumPy's documentation)."""

from __future__ import annotations

import ast
import os
import struct
import zipfile
import zlib
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bilinear.errors import BilinearError, fail
from bilinear.interchange.pickled_arrays import KINDS, MOST_DIMENSIONS, MOST_ITEMS, PickledArray, pickled_array
from bilinear.reading import open_input

MOST_ARCHIVE = 8 * 2**20
"""Bytes of an archive."""
MOST_MEMBER = 32 * 2**20
"""Bytes of one of its arrays, decompressed."""
MOST_MEMBERS = 4096
MOST_HEADER = 4096

Array = NDArray[np.generic]


class Archive:
    """An `.npz` file: the names of its arrays, read one at a time."""

    def __init__(self, path: Path) -> None:
        """Open an archive. Raises `BilinearError`: E251 if it cannot be read, E353 if it is not an archive or too large."""
        self.name = str(path)
        try:
            with open_input(path) as file:
                if os.fstat(file.fileno()).st_size > MOST_ARCHIVE:
                    raise fail("E353", f"{path} is larger than {MOST_ARCHIVE // 2**20} MiB", "is this an archive of coefficients?")
                with zipfile.ZipFile(file) as opened:
                    infos = opened.infolist()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise fail("E251", f"{self.name[:200]!r} cannot be read: {reason}") from None
        except (zipfile.BadZipFile, NotImplementedError, EOFError, struct.error) as error:
            raise fail("E353", f"{path} is not a .npz archive: {error}", "is the file complete?") from None
        if len(infos) > MOST_MEMBERS:
            raise fail("E353", f"{path} holds {len(infos)} arrays", f"at most {MOST_MEMBERS} are read")
        strange = next((info.filename for info in infos if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)), None)
        if strange is not None:
            raise fail("E353", f"{path}[{strange[:80]}] is compressed in a way that is not read", "NumPy stores, or deflates")
        self.path = path
        self.members = {info.filename.removesuffix(".npy"): info.filename for info in infos}

    def arrays(self, member: str) -> tuple[Array, ...]:
        """The three arrays of a member: the rows of one array, or the arrays that an array of objects holds (E353)."""
        return _arrays(self._data(member), f"{self.name}[{member}]")

    def table(self, member: str) -> Array:
        """The one array of numbers that a member is (E353)."""
        return read_array(self._data(member), f"{self.name}[{member}]")

    def _data(self, member: str) -> bytes:
        name = f"{self.name}[{member}]"
        try:
            with open_input(self.path) as archive, zipfile.ZipFile(archive) as opened, opened.open(self.members[member]) as file:
                data = file.read(MOST_MEMBER + 1)
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, zlib.error, struct.error) as error:
            raise fail("E353", f"{name} cannot be read: {error}", "is the file complete?") from None
        if len(data) > MOST_MEMBER:
            raise fail("E353", f"{name} is larger than {MOST_MEMBER // 2**20} MiB", "is this an archive of coefficients?")
        return data


def read_array(data: bytes, name: str) -> Array:
    """The one array of numbers in the bytes of a `.npy` file. Raises `BilinearError` (E353)."""
    code, order, fortran, shape, body = _header(data, name)
    if code.startswith("O"):
        return _plain(pickled_array(body, name), name)
    return _plain(_whole(code, order, fortran, shape, body, name), name)


def _whole(code: str, order: str, fortran: bool, shape: tuple[int, ...], body: bytes, name: str) -> PickledArray:
    if code not in KINDS:
        raise _malformed(name, f"numbers of the type {code!r} are not read")
    if prod(shape) > MOST_ITEMS or len(body) != prod(shape) * int(code[1:]):
        raise _malformed(name, "it has not as many elements as its shape says")
    return PickledArray(shape, code, order, fortran, body)


def _arrays(data: bytes, name: str) -> tuple[Array, ...]:
    code, order, fortran, shape, body = _header(data, name)
    if code.startswith("O"):
        found = pickled_array(body, name)
        if not isinstance(found.data, list):
            raise _malformed(name, "it should hold an array of arrays")
        _require_three(len(found.data), name)
        return tuple(_plain(item, name) for item in found.data)
    whole = _whole(code, order, fortran, shape, body, name)
    _require_three(shape[0] if shape else 1, name)
    return tuple(_plain(whole, name))


def _require_three(count: int, name: str) -> None:
    """Refuse anything but U, V and W before any array is built."""
    if count != 3:
        raise fail(
            "E353",
            f"{name} holds {count} array{'s' * (count != 1)}, not U, V and W",
            "three arrays make a scheme, in one member, or saved with np.savez(U=u, V=v, W=w)",
        )


def _header(data: bytes, name: str) -> tuple[str, str, bool, tuple[int, ...], bytes]:
    """Type, byte order, memory order, shape, and the data after the header."""
    wide = data[6:7] in (b"\x02", b"\x03")
    start = 12 if wide else 10
    if data[:6] != b"\x93NUMPY" or len(data) < start:
        raise _malformed(name, "it is not a .npy array")
    size = int.from_bytes(data[8:start], "little")
    try:
        if size > MOST_HEADER:
            raise ValueError
        header = ast.literal_eval(data[start : start + size].decode("latin1").strip())
        descr, fortran, shape = header["descr"], header["fortran_order"], header["shape"]
        if not isinstance(descr, str) or len(shape) > MOST_DIMENSIONS or not all(type(n) is int and 0 <= n <= MOST_ITEMS for n in shape):
            raise ValueError
    except (ValueError, SyntaxError, KeyError, TypeError, RecursionError, MemoryError):
        raise _malformed(name, "its header is malformed") from None
    return descr.lstrip("<>=|"), descr[:1], bool(fortran), tuple(shape), data[start + size :]


def _plain(item: object, name: str) -> Array:
    """An array of numbers."""
    if not isinstance(item, PickledArray):
        raise _malformed(name, "it should hold an array of arrays")
    if isinstance(item.data, list):
        if not all(isinstance(x, (int, float)) for x in item.data):
            raise _malformed(name, "an array in it holds something that is not a number")
        return np.array(item.data, dtype=object).reshape(item.shape)  # NumPy pickles objects row by row, whatever their memory order
    dtype = np.dtype((">" if item.order == ">" else "<") + item.code)
    return np.frombuffer(item.data, dtype).reshape(item.shape, order="F" if item.fortran else "C")


def _malformed(name: str, what: str) -> BilinearError:
    return fail("E353", f"{name}: {what}", "AlphaTensor's files hold three arrays of numbers under each name")
