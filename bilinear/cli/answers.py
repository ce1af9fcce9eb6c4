"""The output of a command: text that fits the terminal, JSON instead of it or in a file, and pages with their figures."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bilinear.cli.terminal import allows_colour, coloured, columns_of, wrapped
from bilinear.errors import fail
from bilinear.places import require_files
from bilinear.writing import make_folder, write_file, write_files

problem_option = partial(typer.Option, rich_help_panel="The problem")
limit_option = partial(typer.Option, rich_help_panel="What is allowed")
output_option = partial(typer.Option, rich_help_panel="Output")


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


Svg = Annotated[Path | None, output_option("--svg", help="Also write every figure of that page to this folder, as SVG files.")]
EPOCH = "SOURCE_DATE_EPOCH"
"""The environment variable with the date for written files, in seconds since 1970 (https://reproducible-builds.org)."""


def require_pages(html: Path | None, svg: Path | None, *others: Path | None, unread: Iterable[str | Path] = ()) -> None:
    """Raise `BilinearError` (E612) before the work if a file cannot be written, or the place of the figures is not a folder."""
    require_files(html, *others, unread=unread)
    if svg is not None and svg.exists() and not svg.is_dir():
        raise fail("E612", f"cannot write figures into {svg}: it is not a folder", "name a folder; a new one is made")
    today()


def write_pages(page: Callable[[str], str], html: Path | None, svg: Path | None) -> None:
    """Write a page, made for a date, to a file, and its figures to a folder (E612, E628)."""
    from bilinear.reporting.pages import svg_files

    if html is None and svg is None:
        return
    text = page(today())
    contents: dict[Path, str] = {} if html is None else {html: text}
    if svg is not None:
        figures = svg_files(text)
        if not figures:
            raise fail("E628", "the page has no figure to write", "leave out --svg")
        make_folder(svg, "name another folder")
        contents |= {svg / name: drawing for name, drawing in figures.items()}
    write_files(contents)


def today() -> str:
    """The date for a footer, `2026-01-31`, by the clock or by SOURCE_DATE_EPOCH (E627)."""
    seconds = os.environ.get(EPOCH, "")
    if not seconds:
        return f"{datetime.now(UTC):%Y-%m-%d}"
    if not re.fullmatch("[0-9]{1,11}", seconds):
        raise fail("E627", f"{EPOCH} is {seconds[:40]!r}, which is not a time", "give seconds since 1970, or leave it unset")
    return f"{datetime.fromtimestamp(int(seconds), UTC):%Y-%m-%d}"
