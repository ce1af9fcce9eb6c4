"""A device as the performance model sees it: a few measured rates, kept as JSON."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache, partial
from itertools import pairwise
from math import log
from pathlib import Path
from typing import TypeVar

from bilinear.errors import BilinearError, fail
from bilinear.ir.element import ELEMENTS, IN_ARRAYS
from bilinear.ir.tile import TILES
from bilinear.planner.policy import USUAL_POLICY, USUAL_RULES, Extents, LibraryRules, Policy
from bilinear.reading import read_input
from bilinear.resources import devices_folder

T = TypeVar("T")
FORMAT = "bilinear-device/5"
MOST = 1e18
"""Of any number of a description."""
Table = tuple[tuple[float, float], ...]
"""(key, value) pairs with rising positive keys; between keys the logarithm of the key interpolates, beyond them the last value holds."""


@dataclass(frozen=True)
class TileRates:
    """What a device does with one tile of the product kernel, known by its name: `rows` x `columns` of a result, by one block of threads.

    `blocks` of them fit on a multiprocessor. `start` is what beginning and ending a tile costs, in steps of the inner dimension, `lone`
    the speed of a multiprocessor with a single block, relative to a full one, `share` the rate of a full device by the size of a block,
    relative to `product`, `unaligned` its speed where rows do not start at multiples of 16 bytes, and `exposed` the part of the
    epilogue that no other block's arithmetic hides.
    """

    name: str
    rows: int
    columns: int
    blocks: int
    start: float
    lone: float
    share: Table
    unaligned: float
    exposed: float


@dataclass(frozen=True)
class ElementRates:
    """What a device does with one element type.

    `tiles` are those of the product kernel. `product` gives the kernel's rate in TFLOP/s when the device is full, by
    the size of the whole multiply (m k n)**(1/3), for a long multiply heats the device and lowers its clock. `library` gives the rate of
    the library's own multiply.

    Relative speeds of the product kernel: `accumulating` where it adds to blocks, `strip` in the thin products that peeling leaves over.
    `epilogue` is the rate in GB/s at which a full device reads and writes blocks that products go to. `streaming` gives the share of the
    bandwidth that a linear kernel reaches, by how many blocks it reads and writes at once. `scattered`, `scattered_epilogue` and
    `library_unaligned` are the speeds, relative, of linear kernels, of the epilogue, and of the library without the alignment.
    """

    tiles: tuple[TileRates, ...]
    accumulating: float
    epilogue: float
    scattered_epilogue: float
    strip: float
    scattered: float
    streaming: Table
    product: Table
    library: Table
    library_unaligned: float

    def tile(self, name: str) -> TileRates:
        """The rates of the tile of this name."""
        return next(own for own in self.tiles if own.name == name)


@dataclass(frozen=True)
class Device:
    """A GPU. Rates of memory are in GB/s (10**9 bytes, read and written bytes counted alike), times in microseconds.

    `launch` is what one more launch costs, `call` what a call costs before its first launch, `scan` what looking at A and B for Inf and
    NaN costs beyond their traffic. `policy` and `library_rules` hold the thresholds that were fitted to it.
    """

    name: str
    processors: int
    memory: int
    l2: int
    bandwidth: float
    launch: float
    call: float
    scan: float
    elements: tuple[tuple[str, ElementRates], ...]
    """By the name of the element type."""
    policy: Policy = USUAL_POLICY
    library_rules: LibraryRules = USUAL_RULES

    def __hash__(self) -> int:
        """By a few fields: a plan is found again in microseconds, of which a hash of all tables would take half."""
        return hash((self.name, self.bandwidth, self.launch))

    def rates(self, dtype: str) -> ElementRates:
        """The rates of an element type; raises `BilinearError` (E543) where none are known."""
        for name, own in self.elements:
            if name == dtype:
                return own
        raise fail("E543", f"the description of {self.name} has no rates of {dtype}", "take another element type, or add its rates")

    def with_rates(self, dtype: str, rates: ElementRates) -> Device:
        """The same device with other rates of an element type."""
        return replace(self, elements=tuple((name, rates if name == dtype else own) for name, own in self.elements))

    def json(self) -> str:
        """The description as text, as `load_device` reads it."""
        elements = {name: _rates_json(own) for name, own in self.elements}
        policy = asdict(self.policy) | {"least_plain_block": dict(self.policy.least_plain_block)}
        return json.dumps({"format": FORMAT, **asdict(self), "elements": elements, "policy": policy}, indent=1) + "\n"


def _rates_json(rates: ElementRates) -> dict[str, object]:
    tiles = {own.name: {key: value for key, value in asdict(own).items() if key != "name"} for own in rates.tiles}
    return {**asdict(rates), "tiles": tiles}


def at(table: Table, key: float) -> float:
    """The value of a table at a key."""
    i = bisect_right(table, (key, float("inf")))
    if i == 0 or i == len(table):
        return table[min(i, len(table) - 1)][1]
    (low, first), (high, second) = table[i - 1], table[i]
    return first + (second - first) * log(key / low) / log(high / low)


def shipped_devices() -> dict[str, Path]:
    """The shipped descriptions by short name."""
    return {path.stem: path for path in sorted(devices_folder().glob("*.json"))}


@lru_cache(maxsize=16)
def load_device(name_or_path: str) -> Device:
    """A shipped device by its short name, or the description in a file; raises `BilinearError` (E541, E542)."""
    known = shipped_devices()
    path = known.get(name_or_path.lower(), Path(name_or_path))
    try:
        return parse_device(read_input(path), str(path))
    except FileNotFoundError:
        hint = f"choose one of {', '.join(known)}, or give a file of `bilinear tune`"
        raise fail("E541", f"there is no device {name_or_path!r}", hint) from None
    except OSError as error:
        raise fail("E541", f"{path} cannot be read: {error.strerror or error}") from None


@lru_cache(maxsize=16)
def device_named(full_name: str) -> Device | None:
    """The shipped description of a GPU by the name that its driver gives, or None."""
    for path in shipped_devices().values():
        device = load_device(str(path))
        if device.name == full_name:
            return device
    return None


def parse_device(content: bytes, document: str) -> Device:
    """A description from its text; raises `BilinearError` (E542) that names the field that makes no sense."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise fail("E542", f"{document} is no device description: {error}") from None
    reader = _Reader(document)
    reader.check(isinstance(value, dict) and value.get("format") == FORMAT, f"its format is not {FORMAT!r}")
    return reader.record(Device, value, _DEVICE)


@dataclass(frozen=True)
class _Reader:
    """Reads fields, and says which one is missing or wrong."""

    document: str

    def check(self, holds: bool, message: str) -> None:
        if not holds:
            raise self.wrong(message)

    def wrong(self, message: str) -> BilinearError:
        return fail("E542", f"{self.document} is no device description: {message}", "write one with `bilinear tune`")

    def field(self, value: object, name: str, read: Callable[[_Reader, object, str], T]) -> T:
        if not isinstance(value, dict):
            raise self.wrong("an object is missing")
        self.check(name in value, f"{name} is missing")
        return read(self, value[name], name)

    def record(self, kind: Callable[..., T], value: object, fields: Fields) -> T:
        return kind(**{name: self.field(value, name, read) for name, read in fields.items()})


Fields = Mapping[str, Callable[[_Reader, object, str], object]]
"""How each field of a record is read."""


def _text(reader: _Reader, value: object, name: str) -> str:
    reader.check(isinstance(value, str) and 0 < len(value) <= 200, f"{name} is no short text")
    return str(value)


def _number(reader: _Reader, value: object, name: str) -> int | float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < MOST:
        raise reader.wrong(f"{name} is no number between 0 and {MOST:g}")
    return value


def _positive(reader: _Reader, value: object, name: str) -> float:
    return float(_number(reader, value, name))


def _share(reader: _Reader, value: object, name: str) -> float:
    share = _positive(reader, value, name)
    reader.check(share <= 1, f"{name} is above 1")
    return share


def _not_negative(reader: _Reader, value: object, name: str) -> float:
    return 0.0 if value == 0 and not isinstance(value, bool) else _positive(reader, value, name)


def _whole(reader: _Reader, value: object, name: str) -> int:
    number = _number(reader, value, name)
    reader.check(float(number) == int(number), f"{name} is no whole number")
    return int(number)


def _table(reader: _Reader, value: object, name: str) -> Table:
    if not isinstance(value, list) or not 0 < len(value) <= 1000 or any(not isinstance(pair, list) or len(pair) != 2 for pair in value):
        raise reader.wrong(f"{name} is no list of pairs")
    table = tuple((_positive(reader, key, name), _positive(reader, number, name)) for key, number in value)
    reader.check(all(a[0] < b[0] for a, b in pairwise(table)), f"the keys of {name} do not rise")
    return table


def _tiles(names: Collection[str], reader: _Reader, value: object, name: str) -> tuple[TileRates, ...]:
    if not isinstance(value, dict) or value.keys() != set(names):
        raise reader.wrong(f"{name} does not describe the tiles {', '.join(names)}")
    return tuple(reader.record(partial(TileRates, tile), value[tile], _TILE) for tile in names)


def _elements(reader: _Reader, value: object, name: str) -> tuple[tuple[str, ElementRates], ...]:
    """The rates of every type that arrays hold, which `bilinear tune` measures, and of such others as are described."""
    others = [dtype for dtype in ELEMENTS if dtype not in IN_ARRAYS and isinstance(value, dict) and dtype in value]
    return tuple((dtype, reader.field(value, dtype, _rates)) for dtype in (*IN_ARRAYS, *others))


def _rates(reader: _Reader, value: object, name: str) -> ElementRates:
    return reader.record(ElementRates, value, {"tiles": partial(_tiles, TILES[name]), **_RATES})


def _blocks(reader: _Reader, value: object, name: str) -> tuple[tuple[str, Extents], ...]:
    if not isinstance(value, dict) or not value.keys() <= ELEMENTS.keys():
        raise reader.wrong(f"{name} has other types than {', '.join(ELEMENTS)}")
    return tuple((dtype, reader.field(value, dtype, _extents)) for dtype in value)


def _extents(reader: _Reader, value: object, name: str) -> Extents:
    if not isinstance(value, list) or len(value) != 3:
        raise reader.wrong(f"{name} is no list of three extents")
    m, k, n = (_whole(reader, extent, name) for extent in value)
    return m, k, n


def _policy(reader: _Reader, value: object, name: str) -> Policy:
    return reader.record(Policy, value, _POLICY)


def _library_rules(reader: _Reader, value: object, name: str) -> LibraryRules:
    return reader.record(LibraryRules, value, {own.name: _whole for own in fields(LibraryRules)})


_POLICY: Fields = {
    "least_gain": _share,
    "least_gain_plain": _share,
    "least_block": _whole,
    "least_plain_block": _blocks,
    "least_timed_block": _whole,
    "least_timed_inner": _whole,
    "many_products": _whole,
    "long_ms": _not_negative,
    "memory_share": _share,
}
_TILE: Fields = {
    "rows": _whole,
    "columns": _whole,
    "blocks": _whole,
    "start": _not_negative,
    "lone": _share,
    "share": _table,
    "unaligned": _share,
    "exposed": _share,
}
_RATES: Fields = {
    "accumulating": _share,
    "epilogue": _positive,
    "scattered_epilogue": _share,
    "strip": _share,
    "scattered": _share,
    "streaming": _table,
    "product": _table,
    "library": _table,
    "library_unaligned": _share,
}
_DEVICE: Fields = {
    "name": _text,
    "processors": _whole,
    "memory": _whole,
    "l2": _whole,
    "bandwidth": _positive,
    "launch": _not_negative,
    "call": _not_negative,
    "scan": _not_negative,
    "elements": _elements,
    "policy": _policy,
    "library_rules": _library_rules,
}
