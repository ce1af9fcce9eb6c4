"""Descriptions of devices in files: JSON that is read back field by field, with a diagnostic for what makes no sense."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from bilinear.errors import BilinearError, fail
from bilinear.ir.element import ELEMENTS, IN_ARRAYS
from bilinear.ir.tile import THIN_TILES, TILES
from bilinear.planner.device import Device, ElementRates, Table, TileRates
from bilinear.planner.plan import CUBLAS, CUBLASLT
from bilinear.planner.policy import Extents, LibraryRules, Policy
from bilinear.planner.thin_rates import EXTENTS, ORDERS, ThinRates, ThinTileRates, Times
from bilinear.reading import read_input
from bilinear.resources import devices_folder

T = TypeVar("T")
FORMAT = "bilinear-device/6"
MOST = 1e18
"""Of any number of a description."""
_ROW = re.compile(r"\[[^][{}]*\]")
"""A list of numbers, which is written in one line."""


def device_json(device: Device) -> str:
    """A description as text, as `load_device` reads it."""
    elements = {name: _rates_json(own) for name, own in device.elements}
    policy = asdict(device.policy) | {"least_plain_block": dict(device.policy.least_plain_block)}
    facts = asdict(replace(device, elements=(), thin=()))
    thin = {name: _thin_json(own) for name, own in device.thin}
    text = json.dumps({"format": FORMAT, **facts, "elements": elements, "policy": policy, "thin": thin}, indent=1)
    return _ROW.sub(lambda row: re.sub(r"\s+", " ", row[0]), text) + "\n"


def _rates_json(rates: ElementRates) -> dict[str, object]:
    return {**asdict(rates), "tiles": _named(rates.tiles)}


def _thin_json(rates: ThinRates) -> dict[str, object]:
    library = {order: {name: list(times) for name, times in calls} for order, calls in rates.library}
    return {**asdict(replace(rates, tiles=(), library=())), "tiles": _named(rates.tiles), "library": library}


def _named(tiles: tuple[TileRates, ...] | tuple[ThinTileRates, ...]) -> dict[str, dict[str, object]]:
    """The rates of tiles by the tile's name."""
    return {own.name: {key: value for key, value in asdict(own).items() if key != "name"} for own in tiles}


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


def _thin(reader: _Reader, value: object, name: str) -> tuple[tuple[str, ThinRates], ...]:
    if not isinstance(value, dict) or not value.keys() <= THIN_TILES.keys():
        raise reader.wrong(f"{name} has other types than {', '.join(THIN_TILES)}")
    return tuple((dtype, reader.record(ThinRates, value[dtype], {**_THIN, "tiles": partial(_thin_tiles, dtype)})) for dtype in value)


def _thin_tiles(dtype: str, reader: _Reader, value: object, name: str) -> tuple[ThinTileRates, ...]:
    if not isinstance(value, dict) or not value.keys() <= THIN_TILES[dtype].keys():
        raise reader.wrong(f"{name} has other tiles than those for thin products of {dtype}")
    return tuple(reader.record(partial(ThinTileRates, tile), value[tile], _THIN_TILE) for tile in value)


def _library(reader: _Reader, value: object, name: str) -> tuple[tuple[str, tuple[tuple[str, Times], ...]], ...]:
    if not isinstance(value, dict) or value.keys() != set(ORDERS):
        raise reader.wrong(f"{name} has other orders than {', '.join(ORDERS)}")
    return tuple((order, reader.field(value, order, _calls)) for order in ORDERS)


def _calls(reader: _Reader, value: object, name: str) -> tuple[tuple[str, Times], ...]:
    if not isinstance(value, dict) or value.keys() != {CUBLAS, CUBLASLT}:
        raise reader.wrong(f"{name} has other calls than {CUBLAS} and {CUBLASLT}")
    return tuple((call, reader.field(value, call, _times)) for call in value)


def _times(reader: _Reader, value: object, name: str) -> Times:
    if not isinstance(value, list) or len(value) != len(EXTENTS) ** 3:
        raise reader.wrong(f"{name} has not {len(EXTENTS) ** 3} times")
    return tuple(None if us is None else _positive(reader, us, name) for us in value)


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
    "least_gain_thin": _share,
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
_THIN_TILE: Fields = dict.fromkeys(("along", "across", "arithmetic", "short_along", "short_across"), _positive)
_THIN: Fields = {
    "pipes": _positive,
    "launch": _positive,
    "latency": _positive,
    "adding": _positive,
    "again": _positive,
    "copies": _positive,
    "torn": _positive,
    "gathering": _positive,
    "tail": _share,
    "library": _library,
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
    "thin": _thin,
}
