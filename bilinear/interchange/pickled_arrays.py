"""Read the NumPy arrays in a pickle without unpickling: opcodes are data; nothing is imported or called.

Python's unpickler calls whatever a file names. Here a name stays a name. Only two uses of names are understood, those that NumPy writes for
an array and for its element type; everything else is an error.
"""

from __future__ import annotations

import pickletools
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from math import prod

from bilinear.errors import BilinearError, fail

MOST_OPCODES = 200_000
MOST_NAME = 200
"""The most characters of a name."""
MOST_ITEMS = 2**22
"""The most elements of an array."""
MOST_DIMENSIONS = 3
KINDS = {f"{kind}{size}" for kind, sizes in {"i": "1248", "u": "1248", "f": "248", "b": "1"}.items() for size in sizes} | {"c8", "c16"}
"""Element types that are read: integers, floats, complex numbers and truth values; `O` beside them holds arrays and numbers."""

_RECONSTRUCT = {f"numpy{core} _reconstruct" for core in (".core.multiarray", "._core.multiarray")}
_MARK = object()


@dataclass(frozen=True)
class _Name:
    """A name in the pickle; it is not looked up."""

    text: str


@dataclass
class _Type:
    """An element type: its letter and size, and its byte order."""

    code: str
    order: str = "="


@dataclass
class PickledArray:
    """An array in a pickle: its shape, and its elements as bytes, or as a list if its type is `O`."""

    shape: tuple[int, ...] = ()
    code: str = ""
    order: str = "<"
    fortran: bool = False
    data: bytes | list[object] = field(default=b"")


def pickled_array(data: bytes, name: str) -> PickledArray:
    """The array that a pickle holds.

    Raises `BilinearError`: E353 if it holds anything but arrays and numbers, breaks off, or is too large.
    """
    machine = _Machine(name, len(data))
    try:
        for count, (opcode, argument) in enumerate(_opcodes(BytesIO(data), machine)):
            if count > MOST_OPCODES:
                raise machine.refused(f"its pickle has more than {MOST_OPCODES} opcodes")
            machine.run(opcode, argument)
    except (ValueError, IndexError, KeyError, UnicodeDecodeError, OverflowError, TypeError) as error:
        raise machine.refused("its pickle is malformed, or breaks off", str(error)[:100]) from None
    if len(machine.stack) != 1 or not isinstance(machine.stack[0], PickledArray):
        raise machine.refused("its pickle holds no array")
    return machine.stack[0]


def _opcodes(file: BytesIO, machine: _Machine) -> Iterator[tuple[str, object]]:
    """The opcodes and arguments up to STOP; an opcode that arrays do not need is refused before its argument is read."""
    opcode = ""
    while opcode != "STOP":
        known = _OPCODES.get(file.read(1).decode("latin1"))
        if known is None:
            raise ValueError("no opcode")
        opcode = known.name
        if opcode not in _UNDERSTOOD:
            raise machine.refused(f"its pickle uses {opcode}, which arrays have no need of")
        if opcode == "GLOBAL":
            module, attribute = (file.readline(MOST_NAME).decode("ascii").removesuffix("\n") for _ in range(2))
            yield opcode, f"{module} {attribute}"
        else:
            yield opcode, known.arg.reader(file) if known.arg is not None else None


class _Machine:
    """The pickle machine over plain data."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.encodable = size
        """Characters that may still be encoded as bytes: at most as many as the pickle has, however often it refers to them."""
        self.stack: list[object] = []
        self.memo: dict[object, object] = {}

    def refused(self, what: str, note: str = "") -> BilinearError:
        hint = "only arrays of numbers are read; nothing of the file was executed"
        return fail("E353", f"{self.name}: {what}", hint, notes=(note,) if note else ())

    def run(self, opcode: str, argument: object) -> None:
        """Execute one opcode, if it is known."""
        if opcode in _CONSTANTS:
            self.stack.append(_CONSTANTS[opcode])
        elif opcode in _LITERALS:
            self.stack.append(argument)
        elif opcode in _IGNORED:
            return
        elif opcode == "GLOBAL":
            self.stack.append(_Name(str(argument)))
        elif opcode == "STACK_GLOBAL":
            attribute, module = self.stack.pop(), self.stack.pop()
            self.stack.append(_Name(f"{self._short(module)} {self._short(attribute)}"))
        elif opcode in ("EMPTY_LIST", "MARK"):
            self.stack.append([] if opcode == "EMPTY_LIST" else _MARK)
        elif opcode in ("TUPLE1", "TUPLE2", "TUPLE3"):
            size = int(opcode[-1])
            self.stack[-size:] = [tuple(self.stack[-size:])]
        elif opcode == "TUPLE":
            self.stack.append(tuple(self._since_mark()))
        elif opcode in ("APPEND", "APPENDS"):
            items = self._since_mark() if opcode == "APPENDS" else [self.stack.pop()]
            self._append(items)
        elif opcode in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self.memo[len(self.memo) if opcode == "MEMOIZE" else argument] = self.stack[-1]
        elif opcode in ("BINGET", "LONG_BINGET"):
            self.stack.append(self.memo[argument])
        elif opcode == "REDUCE":
            arguments, called = self.stack.pop(), self.stack.pop()
            self.stack.append(self._made(called, arguments))
        elif opcode == "BUILD":
            state = self.stack.pop()
            self._fill(self.stack[-1], state)

    def _short(self, text: object) -> str:
        """A name or type code; long ones are refused, because they would be copied at every reference."""
        if not isinstance(text, str) or len(text) > MOST_NAME:
            raise self.refused("its pickle names something that is not a name")
        return text

    def _since_mark(self) -> list[object]:
        items = []
        while (item := self.stack.pop()) is not _MARK:
            items.append(item)
        return items[::-1]

    def _append(self, items: list[object]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise self.refused("its pickle appends to something that is not a list")
        target.extend(items)

    def _made(self, called: object, arguments: object) -> object:
        """The result of NumPy's own calls: an array filled later, an element type, or bytes written as text."""
        if isinstance(called, _Name) and isinstance(arguments, tuple):
            if called.text in _RECONSTRUCT and arguments[:1] == (_Name("numpy ndarray"),):
                return PickledArray()
            if called.text == "numpy dtype" and arguments:
                return _Type(self._short(arguments[0]).lstrip("<>=|"))
            if called.text == "_codecs encode" and len(arguments) == 2 and isinstance(arguments[0], str) and arguments[1] == "latin1":
                return self._encoded(arguments[0])
        told = called.text if isinstance(called, _Name) else "something that is not a name"
        raise self.refused(f"its pickle calls {told[:80]!r}")

    def _encoded(self, text: str) -> bytes:
        self.encodable -= len(text)
        if self.encodable < 0:
            raise self.refused("its pickle writes the same bytes again and again")
        return text.encode("latin1")

    def _fill(self, target: object, state: object) -> None:
        """Set the state of an element type, or of an array: version, shape, type, order, elements."""
        if isinstance(target, _Type) and isinstance(state, tuple) and len(state) >= 2 and isinstance(state[1], str):
            target.order = state[1]
        elif isinstance(target, PickledArray) and isinstance(state, tuple) and len(state) == 5:
            _, shape, kind, fortran, data = state
            self._fill_array(target, shape, kind, fortran, data)
        else:
            raise self.refused("its pickle sets the state of something that is not an array")

    def _fill_array(self, target: PickledArray, shape: object, kind: object, fortran: object, data: object) -> None:
        if not isinstance(shape, tuple) or not all(type(size) is int and 0 <= size <= MOST_ITEMS for size in shape):
            raise self.refused("an array has no shape")
        if len(shape) > MOST_DIMENSIONS:
            raise self.refused("an array has no shape")
        if not isinstance(kind, _Type) or kind.code not in KINDS | {"O8", "O"}:
            raise self.refused("an array is of a type that is not read", "integers, floats, and complex numbers are")
        count = prod(shape)
        holds_objects = kind.code.startswith("O")
        needed = count if holds_objects else count * int(kind.code[1:])
        if count > MOST_ITEMS or not isinstance(data, list | bytes) or isinstance(data, list) != holds_objects or len(data) != needed:
            raise self.refused("an array has not as many elements as its shape says")
        target.shape, target.code, target.order, target.fortran, target.data = shape, kind.code, kind.order, bool(fortran), data


_OPCODES = {opcode.code: opcode for opcode in pickletools.opcodes}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_LITERALS = {
    *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
}
_IGNORED = {"PROTO", "FRAME", "STOP"}
_UNDERSTOOD = {
    *_CONSTANTS,
    *_LITERALS,
    *_IGNORED,
    *("GLOBAL", "STACK_GLOBAL", "EMPTY_LIST", "MARK", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "APPEND", "APPENDS", "REDUCE", "BUILD"),
    *("BINPUT", "LONG_BINPUT", "MEMOIZE", "BINGET", "LONG_BINGET"),
}
