"""Read archives of NumPy's arrays (`.npz`), bounded in size (format: numpy.lib.format, NumPy's documentation).

AlphaTensor's (https://github.com/google-deepmind/alphatensor) hold under the name "m,k,n" three arrays U, V and W: a row is a block, a
column a product, and the blocks of C are numbered column by column. Numbers are stored as integers or floats; halves and eighths become
rationals. An archive of three arrays U, V and W, as `np.savez(U=u, V=v, W=w)` writes it, is one scheme; there C is numbered row by row.

Python's unpickler calls whatever a file names. Here it sees only the opcodes that arrays need, and finds nothing by a name but three
stand-ins: for the two calls that NumPy writes for an array and its element type, and for bytes that are written as text.
"""

from __future__ import annotations

import os
import pickle
import pickletools
import re
import struct
import zipfile
import zlib
from dataclasses import dataclass, field
from io import BytesIO
from math import prod
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from bilinear.errors import BilinearError, fail
from bilinear.interchange.arrays import NAMES, scheme_from_arrays
from bilinear.interchange.reader_parts import NOTHING_ASKED, Asked, Beginning, Dims, Reading, picked, read_data
from bilinear.reading import open_input

MOST_BYTES = 8 * 2**20  # The largest `.mat` file.
MOST_OPCODES = 200_000
MOST_NAME = 200  # The most characters of a name.
MOST_ITEMS = 2**22  # The most elements of an array.
MOST_DIMENSIONS = 3
KINDS = {f"{kind}{size}" for kind, sizes in {"i": "1248", "u": "1248", "f": "248", "b": "1"}.items() for size in sizes} | {"c8", "c16"}
"""Element types that are read: integers, floats, complex numbers and truth values; `O` beside them holds arrays and numbers."""
_OPCODES = {opcode.code: opcode for opcode in pickletools.opcodes}
_UNDERSTOOD = {
    *("PROTO", "FRAME", "STOP", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "GLOBAL", "STACK_GLOBAL"),
    *("EMPTY_LIST", "EMPTY_TUPLE", "MARK", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "APPEND", "APPENDS", "REDUCE", "BUILD"),
    *("BINPUT", "LONG_BINPUT", "MEMOIZE", "BINGET", "LONG_BINGET"),
}


class _StrangeError(ValueError):
    """What a pickle holds that no array needs."""


@dataclass(frozen=True)
class _Name:
    text: str

    def __call__(self, *arguments: object) -> NoReturn:
        raise _StrangeError(f"its pickle calls {self.text[:80]!r}")


@dataclass
class _Type:
    """An element type: its letter and size, and its byte order."""

    code: str
    order: str = "="

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) < 2 or not isinstance(state[1], str):
            raise _StrangeError("an element type has no byte order")
        self.order = state[1]


@dataclass
class PickledArray:
    """An array in a pickle: its shape, and its elements as bytes, or as a list if its type is `O`."""

    shape: tuple[int, ...] = ()
    code: str = ""
    order: str = "<"
    fortran: bool = False
    data: bytes | list[object] = field(default=b"")

    def __setstate__(self, state: object) -> None:
        """Take over version, shape, type, order and elements, as NumPy writes them."""
        if not isinstance(state, tuple) or len(state) != 5:
            raise _StrangeError("an array has no elements")
        _, shape, kind, fortran, data = state
        if not _is_shape(shape):
            raise _StrangeError("an array has no shape")
        if not isinstance(kind, _Type) or kind.code not in KINDS | {"O8", "O"}:
            raise _StrangeError("an array is of a type that is not read: integers, floats, and complex numbers are")
        holds_objects = kind.code.startswith("O")
        needed = prod(shape) * (1 if holds_objects else int(kind.code[1:]))
        if prod(shape) > MOST_ITEMS or not isinstance(data, list if holds_objects else bytes) or len(data) != needed:
            raise _StrangeError("an array has not as many elements as its shape says")
        self.shape, self.code, self.order, self.fortran, self.data = shape, kind.code, kind.order, bool(fortran), data


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes) -> None:
        super().__init__(BytesIO(data), fix_imports=False)
        self.encodable = len(data)
        """Characters that may still be encoded as bytes: at most as many as the pickle has, however often it refers to them."""

    def find_class(self, module: str, name: str) -> object:
        """The stand-in for a name; others are an error when they are called."""
        if len(module) + len(name) > MOST_NAME:
            raise _StrangeError("its pickle names something that is not a name")
        made = {
            "numpy.core.multiarray _reconstruct": self.array,
            "numpy._core.multiarray _reconstruct": self.array,
            "numpy dtype": self.kind,
            "_codecs encode": self.encoded,
        }
        return made.get(f"{module} {name}", _Name(f"{module} {name}"))

    @staticmethod
    def array(kind: object, *_: object) -> PickledArray:
        if kind != _Name("numpy ndarray"):
            raise _StrangeError("its pickle makes an array of another class")
        return PickledArray()

    @staticmethod
    def kind(code: object, *_: object) -> _Type:
        """An element type; long codes are refused, because they would be copied at every reference."""
        if not isinstance(code, str) or len(code) > MOST_NAME:
            raise _StrangeError("its pickle names something that is not an element type")
        return _Type(code.lstrip("<>=|"))

    def encoded(self, text: str, encoding: object) -> bytes:
        self.encodable -= len(text)
        if encoding != "latin1" or self.encodable < 0:
            raise _StrangeError("its pickle writes the same bytes again and again")
        return text.encode("latin1")


def pickled_array(data: bytes, name: str) -> PickledArray:
    """The array in a pickle. Raises `BilinearError` (E353) for anything but arrays and numbers, a broken one, or a large one."""
    told = "its pickle holds no array"
    try:
        _require_harmless(data)
        found = _Unpickler(data).load()
        if isinstance(found, PickledArray):
            return found
    except _StrangeError as error:
        told = str(error)
    except (pickle.UnpicklingError, ValueError, IndexError, KeyError, OverflowError, TypeError, AttributeError, EOFError) as error:
        told = f"its pickle is malformed, or breaks off: {str(error)[:100]}"
    raise fail("E353", f"{name}: {told}", "only arrays of numbers are read; nothing of the file was executed")


def _require_harmless(data: bytes) -> None:
    """Refuse opcodes that arrays do not need, before their arguments are read, and places that the unpickler would keep memory for."""
    file = BytesIO(data)
    for _ in range(MOST_OPCODES):
        opcode = _OPCODES[file.read(1).decode("latin1")]
        if opcode.name not in _UNDERSTOOD:
            raise _StrangeError(f"its pickle uses {opcode.name}, which arrays have no need of")
        if opcode.name == "GLOBAL":  # two lines; the reader of pickletools warns of backslashes in them
            file.readline()
            file.readline()
        elif opcode.arg is not None:
            argument = opcode.arg.reader(file)
            if opcode.name == "LONG_BINPUT" and argument > MOST_OPCODES:
                break
        if opcode.name == "STOP":
            return
    raise _StrangeError(f"its pickle has more than {MOST_OPCODES} opcodes")


def _is_shape(shape: object) -> bool:
    return isinstance(shape, tuple) and len(shape) <= MOST_DIMENSIONS and all(type(n) is int and 0 <= n <= MOST_ITEMS for n in shape)


MOST_ARCHIVE = 8 * 2**20  # Bytes of an archive.
MOST_MEMBER = 32 * 2**20  # Bytes of one of its arrays, decompressed.
MOST_MEMBERS = 4096
MOST_HEADER = 4096
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}

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
        name = f"{self.name}[{member}]"
        code, order, fortran, shape, body = _header(self._data(member), name)
        if code.startswith("O"):
            found = pickled_array(body, name)
            if not isinstance(found.data, list):
                raise _malformed(name, "it should hold an array of arrays")
            _require_three(len(found.data), name)
            return tuple(_plain(item, name) for item in found.data)
        whole = _whole(code, order, fortran, shape, body, name)
        _require_three(shape[0] if shape else 1, name)
        return tuple(_plain(whole, name))

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


def _require_three(count: int, name: str) -> None:
    if count != 3:
        raise fail(
            "E353",
            f"{name} holds {count} array{'s' * (count != 1)}, not U, V and W",
            "three arrays make a scheme, in one member, or saved with np.savez(U=u, V=v, W=w)",
        )


def _header(data: bytes, name: str) -> tuple[str, str, bool, tuple[int, ...], bytes]:
    file = BytesIO(data)
    try:
        read = _HEADERS[np.lib.format.read_magic(file)]
        shape, fortran, dtype = read(file, max_header_size=MOST_HEADER)
    except Exception as error:  # a header that is no literal goes to Python's tokenizer, too, and raises what that raises
        raise _malformed(name, f"it is not a .npy array: {type(error).__name__}: {str(error)[:100]}") from None
    if not _is_shape(shape):
        raise _malformed(name, "it has a shape that is not read")
    return dtype.str[1:], dtype.str[:1], fortran, shape, file.read()


def _plain(item: object, name: str) -> Array:
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


_KEY = re.compile(r"([1-9][0-9]{0,2}),([1-9][0-9]{0,2}),([1-9][0-9]{0,2})")


def begins_npz(begins: Beginning) -> bool:
    """True for a zip archive whose first member is an array; those of PyTorch and of offices begin with other files."""
    name = begins.data[30 : 30 + int.from_bytes(begins.data[26:28], "little")]
    return begins.data.startswith(b"PK\x03\x04") and (name.endswith(b".npy") or begins.name.lower().endswith(".npz"))


def npz_entries(path: str | Path) -> tuple[str, ...]:
    """The names of the schemes in an archive; empty for that of arrays U, V and W. Raises `BilinearError` (E251, E353)."""
    archive = Archive(Path(path))
    return ("",) if _letters(archive) else tuple(archive.members)


def read_npz(path: str | Path, asked: Asked = NOTHING_ASKED) -> Reading:
    """The scheme under a name in an archive, or its only one.

    The ring is Q unless it is asked for, because the archive does not state it. Raises `BilinearError`: E251 if the file cannot be read,
    E353 if it is not an archive of arrays, E253 and E357 if the arrays are not a scheme, E354 if it holds several, or none of that name.
    """
    archive = Archive(Path(path))
    letters = _letters(archive)
    if letters and not asked.entry:
        u, v, w = (archive.table(letter) for letter in letters)
        return Reading(scheme_from_arrays(u, v, w, ring=asked.ring, name=Path(path).stem), transposed=False)
    name = picked(path, tuple(archive.members), asked.entry)
    u, v, w = archive.arrays(name)
    title = f"{Path(path).stem}_{name.replace(',', 'x')}"
    return Reading(scheme_from_arrays(u, v, w, dims=_dims(name), ring=asked.ring, transposed=True, name=title), transposed=True)


def _letters(archive: Archive) -> list[str]:
    names = {name.upper(): name for name in archive.members}
    return [names[letter] for letter in "UVW"] if names.keys() >= set("UVW") else []


def _dims(name: str) -> Dims | None:
    match = _KEY.fullmatch(name)
    return (int(match[1]), int(match[2]), int(match[3])) if match is not None else None


def read_mat(path: Path, asked: Asked) -> Reading:
    """The scheme of the matrices U, V and W, or A, B and C, in a `.mat` file, by SciPy; their sizes are looked at before they are loaded.

    Blocks are numbered row by row, or column by column as MATLAB stores them. Raises `BilinearError`: E251 if the file cannot be read, E253
    and E357 if the sizes do not fit, E353 if it is damaged, E653 if SciPy is not installed, or the file does not hold the three.
    """
    data = BytesIO(read_data(path, MOST_BYTES))
    try:
        from scipy.io import loadmat, whosmat
    except ImportError:
        raise fail("E653", f"{path} is read by SciPy, which is not installed", "install scipy, or save the matrices as text") from None
    try:
        shapes = {name.upper(): (name, shape) for name, shape, _ in whosmat(data) if len(shape) == 2 and prod(shape) <= MOST_ITEMS}
        names = next((names for names in NAMES if all(letter in shapes for letter in names)), "")
        loaded = loadmat(data, variable_names=[shapes[letter][0] for letter in names], spmatrix=False) if names else {}
    except NotImplementedError:
        raise fail("E653", f"{path} is in MATLAB's format 7.3, which is not read", "save it with -v7") from None
    except Exception as error:
        raise fail("E353", f"{path} is damaged: {type(error).__name__}: {str(error)[:100]}", "save it again, with -v7") from None
    if not names:
        raise fail("E653", f"{path} holds no scheme: no matrices U, V and W, or A, B and C", "it holds " + ", ".join(sorted(shapes))[:200])
    u, v, w = (loaded[shapes[letter][0]] for letter in names)
    u, v, w = (one.toarray() if hasattr(one, "toarray") else one for one in (u, v, w))
    return Reading(scheme_from_arrays(u, v, w, None, asked.ring, False, path.stem), False, by_columns=True)
