"""Read JSON that others wrote: every access reports a missing field and its place."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bilinear.errors import BilinearError

Failure = Callable[[str], BilinearError]


@dataclass(frozen=True)
class Node:
    """A value of a document and its path. If an expectation fails, `failure` turns the message into the exception to raise."""

    value: object
    place: str
    document: str
    failure: Failure

    def wrong(self, what: str) -> BilinearError:
        """The error that this place `is ...`."""
        return self.failure(f"{self.document}: {self.place or 'the document'} {what}")

    def __getitem__(self, key: str) -> Node:
        if not isinstance(self.value, dict):
            raise self.wrong("is not an object")
        inner = self._inner(f".{key}" if self.place else key, self.value.get(key))
        if key not in self.value:
            raise inner.wrong("is missing")
        return inner

    def items(self) -> list[Node]:
        """The elements of a list."""
        if not isinstance(self.value, list):
            raise self.wrong("is not a list")
        return [self._inner(f"[{i}]", value) for i, value in enumerate(self.value)]

    def pairs(self) -> list[tuple[str, Node]]:
        """The members of an object."""
        if not isinstance(self.value, dict):
            raise self.wrong("is not an object")
        return [(key, self[key]) for key in self.value]

    def text(self) -> str:
        """A string."""
        if not isinstance(self.value, str):
            raise self.wrong("is not a string")
        return self.value

    def matching(self, pattern: re.Pattern[str]) -> str:
        """A string that the pattern matches as a whole."""
        text = self.text()
        if not pattern.fullmatch(text):
            raise self.wrong(f"is {_short(text)}, which is not allowed here")
        return text

    def choice(self, allowed: Sequence[str]) -> str:
        """One of these strings."""
        text = self.text()
        if text not in allowed:
            raise self.wrong(f"is {_short(text)}, which is not known here")
        return text

    def whole(self, least: int, most: int) -> int:
        """An integer within bounds."""
        if not isinstance(self.value, int) or isinstance(self.value, bool) or not least <= self.value <= most:
            raise self.wrong(f"is not an integer from {least} to {most}")
        return self.value

    def _inner(self, step: str, value: object) -> Node:
        return Node(value, self.place + step, self.document, self.failure)


def parse(content: bytes, document: str, failure: Failure) -> Node:
    """The root of a document; fails if it is not JSON."""
    try:
        return Node(json.loads(content), "", document, failure)
    except (ValueError, RecursionError) as error:
        raise failure(f"{document} is not JSON: {error}") from None


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
