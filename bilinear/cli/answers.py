"""The output of a command: text that fits the terminal, and JSON instead of it or in a file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from bilinear.cli.groups import output_option
from bilinear.cli.terminal import allows_colour, coloured, columns_of, wrapped
from bilinear.writing import write_file

STDOUT = Path("-")
Json = Annotated[
    Path | None,
    output_option("--json", metavar="[FILE]", help="Print JSON; with FILE.json, write it there beside the text."),
]


def in_place_of_text(json_file: Path | None) -> bool:
    """Whether JSON is printed, and no text."""
    return json_file == STDOUT


def file_of(json_file: Path | None) -> Path | None:
    """The file for JSON, if one is named."""
    return None if json_file == STDOUT else json_file


def answer(json_file: Path | None, data: Callable[[], str], text: Callable[[], str]) -> None:
    """Print an answer as text, or as JSON in its place; JSON with a file is written there, and the text is printed, too."""
    file = file_of(json_file)
    if file is not None:
        write_file(file, _ended(data()))
    if in_place_of_text(json_file):
        print(_ended(data()), end="")
        return
    print_fitted(text)


def print_fitted(text: Callable[[], str]) -> None:
    """Print the output of a function; on a terminal, tables and lines fit its width, and the verdict is coloured."""
    from bilinear.reporting.table import fitted

    columns = _columns()
    with fitted(columns):
        found = wrapped(text(), columns)
    print(coloured(_ended(found)) if allows_colour(sys.stdout) else _ended(found), end="")


def _ended(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"


def _columns() -> int | None:
    """The width of the terminal; None if the answer goes elsewhere."""
    return columns_of(sys.stdout)
