"""Source texts, and the places in them that diagnostics point at."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

from bilinear.visible import visible


@dataclass(frozen=True)
class Source:
    """A text and the name that messages use for it (a path, or `<string>`)."""

    name: str
    text: str

    @cached_property
    def line_starts(self) -> tuple[int, ...]:
        """The offset at which each line begins."""
        return (0, *(match.end() for match in re.finditer("\n", self.text)))

    def line_and_column(self, offset: int) -> tuple[int, int]:
        """The 1-based line and column of a 0-based character offset."""
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def line(self, number: int) -> str:
        """The text of a 1-based line, without its line end."""
        start = self.line_starts[number - 1]
        end = self.text.find("\n", start)
        return self.text[start : end if end >= 0 else len(self.text)].removesuffix("\r")

    def span(self, start: int, end: int) -> Span:
        """The characters between two offsets, as messages point at them."""
        return Span(self, start, end)


@dataclass(frozen=True)
class Span:
    """The half-open range of characters `[start, end)` of a source."""

    source: Source
    start: int
    end: int

    @property
    def text(self) -> str:
        """The characters of the span."""
        return self.source.text[self.start : self.end]

    @property
    def line(self) -> int:
        """The 1-based line of the first character."""
        return self.source.line_and_column(self.start)[0]

    @property
    def column(self) -> int:
        """The 1-based column of the first character."""
        return self.source.line_and_column(self.start)[1]

    def __str__(self) -> str:
        return f"{visible(self.source.name)}:{self.line}:{self.column}"
