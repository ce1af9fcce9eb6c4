"""How fields of descriptions are read from JSON, each with a diagnostic that names it if it makes no sense."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from math import isfinite
from typing import TypeVar

from bilinear.errors import BilinearError, fail
from bilinear.planner.device import Table

T = TypeVar("T")
LEAST, MOST = 1e-18, 1e18
"""Of any positive number of a description: predicted times are finite, and not 0."""
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
        found = {name: self.field(value, name, ways[name] if name in ways else USUAL[type]) for name, type in names.items()}
        return kind(**found, **given)


Fields = Mapping[str, Callable[[FieldReader, object, str], object]]
"""How some fields of a record are read."""


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


USUAL: Fields = {"str": read_text, "int": read_whole, "float": read_positive, "Table": read_table}
"""How a field of a type is read."""
