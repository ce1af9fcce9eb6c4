"""Descriptions of devices in files: JSON that is read back field by field, with a diagnostic for what makes no sense."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache, partial
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

from bilinear.errors import BilinearError, fail
from bilinear.ir.element import ELEMENTS, IN_ARRAYS
from bilinear.ir.rounded import ROUNDINGS
from bilinear.ir.thin_tile import THIN_TILES
from bilinear.ir.tile import FLOAT_TILES, RESIDUE_TILES, SMALL, TILES, USUAL
from bilinear.planner.cpu import Cpu, CpuRates
from bilinear.planner.device import (
    USUAL_POLICY,
    Device,
    DigitRates,
    ElementRates,
    Extents,
    LibraryRules,
    Policy,
    Table,
    ThinRates,
    ThinTileRates,
    TileRates,
)
from bilinear.planner.estimates import DataSheet, apart, estimate
from bilinear.planner.library_points import ORDERS, LibraryPoints
from bilinear.reading import read_input
from bilinear.resources import devices_folder

T = TypeVar("T")
LEAST, MOST = 1e-18, 1e18  # Of any positive number of a description: predicted times are finite, and not 0.
MOST_SOURCE, MOST_POINTS = 400, 100_000


@dataclass(frozen=True)
class FieldReader:
    """Reads fields, and says which one is missing or wrong."""

    document: str

    def check(self, holds: bool, message: str) -> None:
        """Refuse the description unless this holds."""
        if not holds:
            raise self.wrong(message)

    def wrong(self, message: str) -> BilinearError:
        """The diagnostic (E542) that says what makes no sense."""
        return fail("E542", f"{self.document} is not a device description: {message}", "write one with `bilinear tune`")

    def field(self, value: object, name: str, read: Callable[[FieldReader, object, str], T]) -> T:
        """A field of an object."""
        if not isinstance(value, dict):
            raise self.wrong("an object is missing")
        self.check(name in value, f"{name} is missing")
        return read(self, value[name], name)

    def record(self, kind: type[T], value: object, own: Fields | None = None, **given: object) -> T:
        """A record, field by field, beside those that are `given`: as its type is usually read, unless it has its `own` way."""
        ways = own or {}
        names = {field.name: str(field.type) for field in fields(kind) if field.name not in given}  # type: ignore[arg-type]
        unknown = value.keys() - names.keys() - {"format"} if isinstance(value, dict) else ()
        self.check(not unknown, f"{', '.join(sorted(map(repr, unknown)))} is no field of it")
        found = {name: self.field(value, name, ways[name] if name in ways else READERS[type]) for name, type in names.items()}
        return kind(**found, **given)


Fields = Mapping[str, Callable[[FieldReader, object, str], object]]  # How some fields of a record are read.


def read_text(reader: FieldReader, value: object, name: str) -> str:
    """A short text."""
    reader.check(isinstance(value, str) and 0 < len(value) <= 200, f"{name} is not a short text")
    return str(value)


def read_source(reader: FieldReader, value: object, name: str) -> str:
    """A longer text, which may be empty."""
    reader.check(isinstance(value, str) and len(value) <= MOST_SOURCE, f"{name} is not text of at most {MOST_SOURCE} characters")
    return str(value)


def read_number(reader: FieldReader, value: object, name: str) -> int | float:
    """A positive number."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not LEAST < value < MOST:
        raise reader.wrong(f"{name} is not a number between {LEAST:g} and {MOST:g}")
    return value


def read_positive(reader: FieldReader, value: object, name: str) -> float:
    """The same as a float."""
    return float(read_number(reader, value, name))


def read_share(reader: FieldReader, value: object, name: str) -> float:
    """A positive number of at most 1."""
    share = read_positive(reader, value, name)
    reader.check(share <= 1, f"{name} is above 1")
    return share


def read_not_negative(reader: FieldReader, value: object, name: str) -> float:
    """A number, which may be 0."""
    return 0.0 if value == 0 and not isinstance(value, bool) else read_positive(reader, value, name)


def read_whole(reader: FieldReader, value: object, name: str) -> int:
    """A positive whole number."""
    number = read_number(reader, value, name)
    reader.check(float(number) == int(number), f"{name} is not a whole number")
    return int(number)


def read_table(reader: FieldReader, value: object, name: str) -> Table:
    """Pairs with rising keys."""
    if not isinstance(value, list) or not 0 < len(value) <= 1000 or any(not isinstance(pair, list) or len(pair) != 2 for pair in value):
        raise reader.wrong(f"{name} is not a list of pairs")
    table = tuple((read_positive(reader, key, name), read_positive(reader, number, name)) for key, number in value)
    reader.check(all(a[0] < b[0] for a, b in pairwise(table)), f"the keys of {name} do not rise")
    return table


def column_of(kind: Callable[[float], T], above: int) -> Callable[[FieldReader, object, str], tuple[T, ...]]:
    """How a list of thousands of numbers above this one is read."""

    least = above or LEAST

    def column(reader: FieldReader, value: object, name: str) -> tuple[T, ...]:
        if not isinstance(value, list) or not 0 < len(value) <= MOST_POINTS:
            raise reader.wrong(f"{name} is not a list of 1 to {MOST_POINTS} values")
        if not ({*map(type, value)} <= {int, float} and all(map(isfinite, value)) and least < min(value) and max(value) < MOST):
            raise reader.wrong(f"{name} has other values than numbers between {least:g} and {MOST:g}")
        found = tuple(map(kind, value))
        reader.check(found == tuple(value), f"{name} has other values than whole numbers")
        return found

    return column


def by_name(
    names: Collection[str], read: Callable[[FieldReader, object, str], T]
) -> Callable[[FieldReader, object, str], tuple[tuple[str, T], ...]]:
    """How an object is read whose fields have some of these names: as pairs of the name and the value, each read the same way."""

    def pairs(reader: FieldReader, value: object, name: str) -> tuple[tuple[str, T], ...]:
        if not isinstance(value, dict) or not value.keys() <= set(names):
            raise reader.wrong(f"{name} has others than {', '.join(names)}")
        return tuple((key, reader.field(value, key, read)) for key in value)

    return pairs


def read_texts(reader: FieldReader, value: object, name: str) -> tuple[str, ...]:
    """A list of short texts."""
    if not isinstance(value, list) or not 0 < len(value) <= MOST_POINTS:
        raise reader.wrong(f"{name} is not a list of 1 to {MOST_POINTS} values")
    return tuple(read_text(reader, one, name) for one in value)


READERS: Fields = {"str": read_text, "int": read_whole, "float": read_positive, "Table": read_table}
"""How a field of a type is read."""


FORMAT, CPU_FORMAT = "bilinear-device/12", "bilinear-cpu/1"
SHEETS, SHEETS_FORMAT = "data_sheets.json", "bilinear-data-sheets/1"
"""The table of data sheets, from which descriptions are estimated: a line a GPU."""
_ROW = re.compile(r"\[[^][{}]*\]")  # A list of numbers, which is written in one line.


def device_json(device: Device) -> str:
    """A description as text, as `load_device` reads it."""
    elements = {name: {**asdict(own), "tiles": _named(own.tiles)} for name, own in device.elements}
    facts = asdict(replace(device, elements=(), thin=(), digits=(), by_warps=(), rounded=()))
    digits, by_warps = ({name: asdict(own) for name, own in family} for family in (device.digits, device.by_warps))
    thin = {name: {**asdict(own), "tiles": _named(own.tiles)} for name, own in device.thin}
    facts |= {"elements": elements, "policy": _policy_json(device.policy), "thin": thin, "digits": digits, "by_warps": by_warps}
    text = json.dumps({"format": FORMAT, **facts, "rounded": dict(device.rounded)}, indent=1)
    return _ROW.sub(lambda row: re.sub(r"\s+", " ", row[0]), text) + "\n"


def _named(tiles: tuple[TileRates, ...] | tuple[ThinTileRates, ...]) -> dict[str, dict[str, object]]:
    return {own.name: {key: value for key, value in asdict(own).items() if key != "name"} for own in tiles}


def cpu_json(cpu: Cpu) -> str:
    """A description of processors as text, as `parse_cpu` reads it."""
    elements = {name: asdict(own) for name, own in cpu.elements}
    text = json.dumps({"format": CPU_FORMAT, **asdict(replace(cpu, elements=())), "elements": elements}, indent=1)
    return _ROW.sub(lambda row: re.sub(r"\s+", " ", row[0]), text) + "\n"


@lru_cache(maxsize=1)
def shipped_devices() -> dict[str, Path]:
    """The shipped descriptions of GPUs that were measured, by short name."""
    return {path.stem: path for path in sorted(devices_folder().glob("*.json")) if path.name != SHEETS}


@lru_cache(maxsize=1)
def data_sheets() -> dict[str, DataSheet]:
    """The shipped data sheets by short name."""
    path = devices_folder() / SHEETS
    value, reader = _parsed(read_input(path), str(path), SHEETS_FORMAT)
    columns, cards = (reader.field(value, name, _list) for name in ("columns", "cards"))
    found = {}
    for short, *figures in cards:
        card = dict(zip(columns[1:], figures, strict=True))
        card |= {"memory": int(card["memory"])}
        found[str(short)] = reader.record(DataSheet, card, _SHEET)
    return found


def known_devices() -> tuple[str, ...]:
    """The short names of all that is described: measured GPUs first, then those that are estimated."""
    return (*shipped_devices(), *(short for short in data_sheets() if short not in shipped_devices()))


@lru_cache(maxsize=16)
def estimated(sheet: DataSheet) -> Device:
    """The estimate of a GPU by the nearest that was measured, and whose kernels for digits are those that it would run."""
    measured = {short: own for short, own in data_sheets().items() if short in shipped_devices()}
    nearest = sorted(measured, key=lambda short: apart(sheet, measured[short]))
    found = [estimate(sheet, load_device(short), measured[short]) for short in nearest]
    return next((one for one in found if one.digits), found[0])


def load_description(name_or_path: str) -> Device | Cpu:
    """A shipped device by name, or a GPU or processors from a file, read again if changed. Raises `BilinearError` (E541, E542)."""
    short = name_or_path.lower()
    path = shipped_devices().get(short, Path(name_or_path))
    if short not in shipped_devices() and short in data_sheets():
        return estimated(data_sheets()[short])
    try:
        state = path.stat()
        return _read_description(path, (state.st_mtime_ns, state.st_size, state.st_ino))
    except FileNotFoundError:
        hint = f"choose one of {', '.join(known_devices())}, or give a file of `bilinear tune`"
        raise fail("E541", f"there is no device {name_or_path!r}", hint) from None
    except OSError as error:
        raise fail("E541", f"{path} cannot be read: {error.strerror or error}", "give a file of `bilinear tune`") from None


@lru_cache(maxsize=16)
def _read_description(path: Path, _: tuple[int, ...]) -> Device | Cpu:
    content = read_input(path)
    is_cpu = _parsed(content, str(path))[0].get("format") == CPU_FORMAT
    return (parse_cpu if is_cpu else parse_device)(content, str(path))


def load_device(name_or_path: str) -> Device:
    """The same for what only a GPU does: a description of processors is refused (E542)."""
    found = load_description(name_or_path)
    if isinstance(found, Cpu):
        hint = "give a GPU's; bilinear.plan(...) plans for processors, too"
        raise fail("E542", f"{name_or_path} describes processors, not a GPU", hint)
    return found


@lru_cache(maxsize=16)
def device_named(full_name: str) -> Device | None:
    """The shipped description of a GPU by the name that its driver gives, or None."""
    name = json.dumps(full_name).encode()
    for path in shipped_devices().values():
        if name in path.read_bytes():  # to read every description would take longer than a first plan may
            device = load_device(str(path))
            if device.name == full_name:
                return device
    return next((estimated(sheet) for sheet in data_sheets().values() if sheet.name == full_name), None)


def parse_device(content: bytes, document: str) -> Device:
    """A description from its text; raises `BilinearError` (E542) that names the field that makes no sense."""
    value, reader = _parsed(content, document, FORMAT)
    return reader.record(Device, value, _DEVICE)


def parse_cpu(content: bytes, document: str) -> Cpu:
    """A description of processors from its text; raises `BilinearError` (E542) that names the field that makes no sense."""
    value, reader = _parsed(content, document, CPU_FORMAT)
    return reader.record(Cpu, value, _CPU)


def _parsed(content: bytes, document: str, form: str = "") -> tuple[dict[str, object], FieldReader]:
    """The object in a document, of this form if one is named, and what reads its fields."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise fail("E542", f"{document} is not a device description: {error}") from None
    value, reader = found if isinstance(found, dict) else {}, FieldReader(document)
    reader.check(not form or value.get("format") == form, f"its format is not {form!r}")
    return value, reader


def _read(kind: type[T], own: Fields | None, reader: FieldReader, value: object, name: str) -> T:
    return reader.record(kind, value, own)


def _policy(reader: FieldReader, value: object, name: str) -> Policy:
    """A policy; thresholds that are not named have their usual values."""
    usual = _policy_json(USUAL_POLICY)
    if not isinstance(value, dict) or not value.keys() <= usual.keys():
        raise reader.wrong(f"{name} names other thresholds than {', '.join(usual)}")
    return reader.record(Policy, usual | value, _POLICY)


def _policy_json(policy: Policy) -> dict[str, object]:
    return asdict(policy) | {"least_plain_block": {dtype: list(block) for dtype, block in policy.least_plain_block}}


def _list(reader: FieldReader, value: object, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise reader.wrong(f"{name} is not a list")
    return value


def _tiles(names: Collection[str], reader: FieldReader, value: object, name: str) -> tuple[TileRates, ...]:
    if not isinstance(value, dict) or not {USUAL, SMALL} <= value.keys() <= set(names):
        raise reader.wrong(f"{name} does not describe {USUAL}, {SMALL} and others of the tiles {', '.join(names)}")
    return tuple(reader.record(TileRates, value[tile], _TILE, name=tile) for tile in names if tile in value)


def _elements(reader: FieldReader, value: object, name: str) -> tuple[tuple[str, ElementRates], ...]:
    """The rates of every type that arrays hold, which `bilinear tune` measures, and of such others as are described."""
    others = [dtype for dtype in ELEMENTS if dtype not in IN_ARRAYS and isinstance(value, dict) and dtype in value]
    return tuple((dtype, reader.field(value, dtype, _rates)) for dtype in (*IN_ARRAYS, *others))


def _rates(reader: FieldReader, value: object, name: str) -> ElementRates:
    return reader.record(ElementRates, value, {"tiles": partial(_tiles, TILES[name]), **_RATES})


DIGITS_TIMED = (*FLOAT_TILES, *dict.fromkeys(f"residues of {tile.of}" for tile in RESIDUE_TILES.values()))
"""The digits whose rates a description may have."""


def _thin_rates(reader: FieldReader, value: object, name: str) -> ThinRates:
    return reader.record(ThinRates, value, {**_THIN, "tiles": partial(_thin_tiles, name)})


def _thin_tiles(dtype: str, reader: FieldReader, value: object, name: str) -> tuple[ThinTileRates, ...]:
    if not isinstance(value, dict) or not value.keys() <= THIN_TILES[dtype].keys():
        raise reader.wrong(f"{name} has other tiles than those for thin products of {dtype}")
    return tuple(reader.record(ThinTileRates, value[tile], name=tile) for tile in value)


def _library(reader: FieldReader, value: object, name: str) -> LibraryPoints:
    points = reader.record(LibraryPoints, value, _POINTS)
    counts = {len(getattr(points, field.name)) for field in fields(points) if field.name != "kernels"}
    reader.check(len(counts) == 1, f"the columns of {name} are not equally long")
    kernels = max((*points.small, *points.large)) < len(points.kernels)
    reader.check(kernels and max(points.order) < len(ORDERS), f"{name} names orders or kernels that there are not")
    return points


def _slack(reader: FieldReader, value: object, name: str) -> Table:
    table = read_table(reader, value, name)
    reader.check(all(slack >= 1 for _, slack in table), f"{name} is below 1")
    return table


def _extents(reader: FieldReader, value: object, name: str) -> Extents:
    if not isinstance(value, list) or len(value) != 3:
        raise reader.wrong(f"{name} is not a list of three extents")
    m, k, n = (read_whole(reader, extent, name) for extent in value)
    return m, k, n


_POLICY: Fields = {
    **dict.fromkeys(("least_gain", *(f"least_gain_{kind}" for kind in ("plain", "thin", "digits", "complex")), "memory_share"), read_share),
    "least_plain_block": by_name(ELEMENTS, _extents),
    "long_ms": read_not_negative,
}
_TILE: Fields = {"start": read_not_negative, **dict.fromkeys(("lone", "unaligned", "exposed"), read_share)}
_RATES: Fields = dict.fromkeys(("accumulating", "scattered_epilogue", "strip", "scattered", "library_unaligned"), read_share)
_POINTS: Fields = {
    "kernels": read_texts,
    **dict.fromkeys(("m", "n", "k"), column_of(int, 0)),
    **dict.fromkeys(("order", "small", "large"), column_of(int, -1)),
    **dict.fromkeys(("cublas", "cublaslt"), column_of(float, 0)),
}
_THIN: Fields = {"tail": read_share, "library": _library}
_DIGITS: Fields = {
    "search": read_share,
    **dict.fromkeys(("start", "direct", "uneven", "loading", "tail", "line", "launch", "unaligned"), read_not_negative),
}
_DEVICE: Fields = {
    **dict.fromkeys(("launch", "call", "scan"), read_not_negative),
    "elements": _elements,
    "policy": _policy,
    "library_rules": partial(_read, LibraryRules, None),
    "thin": by_name(THIN_TILES, _thin_rates),
    "digits": by_name(DIGITS_TIMED, partial(_read, DigitRates, _DIGITS)),
    "by_warps": by_name(DIGITS_TIMED, partial(_read, DigitRates, _DIGITS)),
    "rounded": by_name(ROUNDINGS, read_table),
    "estimate": read_source,
}
_SHEET: Fields = {"source": read_source, **dict.fromkeys(("float16", "bfloat16", "tf32", "int8"), read_not_negative)}
_CPU: Fields = {
    "stage": read_not_negative,
    "elements": by_name(IN_ARRAYS, partial(_read, CpuRates, {"slack": _slack})),
    "least_gain": read_share,
}
