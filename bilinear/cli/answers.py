"""The output of a command: text that fits the terminal, JSON instead of it or in a file, and pages with their figures."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from shutil import get_terminal_size
from signal import SIGINT, SIGPIPE
from textwrap import wrap
from typing import Annotated, TextIO

import typer

from bilinear.errors import fail
from bilinear.places import require_files
from bilinear.reporting.table import fitted
from bilinear.visible import visible_lines
from bilinear.writing import make_folder, write_file, write_files

FAILED = 1  # The exit code for user errors.
INTERRUPTED, UNREAD = 128 + SIGINT, 128 + SIGPIPE  # Exit codes of a program that these signals have killed.


def prepare_streams() -> bool:
    """Make both streams escape characters that they cannot encode; returns whether there is a standard output."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - it lives as long as the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    return sys.stdout is not None


def tell(*texts: str) -> None:
    """Print to standard error, if it can be written."""
    with suppress(OSError):
        for text in (wrapped(text, columns_of(sys.stderr)) for text in texts):
            print(coloured(text) if allows_colour(sys.stderr) else text, file=sys.stderr, flush=True)


def written_out() -> int:
    """Flush standard output; returns the exit code if that fails."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _abandon(sys.stdout)
        return UNREAD
    except OSError as error:
        _abandon(sys.stdout)
        tell(f"error: standard output cannot be written: {error.strerror}")
        return FAILED
    finally:
        try:
            sys.stderr.flush()
        except OSError:
            _abandon(sys.stderr)
    return 0


def _abandon(stream: TextIO) -> None:
    """Discard the buffered output, so that the interpreter does not fail again at exit."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


LEAST_COLUMNS = 40  # Nothing is made narrower than this.
INDENT = 2  # The additional indentation of continued lines.
_AS_IS = re.compile(r"\s*[0-9]* *\|")  # Lines of a source with their carets, and rows of a table in Markdown.
_COMMAND = re.compile(r"`[^`\n]*`")
_HELD = "\N{NO-BREAK SPACE}"


def columns_of(stream: TextIO) -> int | None:
    """The width of a terminal; None if the stream goes elsewhere."""
    if stream.isatty():
        return max(LEAST_COLUMNS, get_terminal_size().columns)
    return None


def wrapped(text: str, columns: int | None) -> str:
    """The text with lines of at most this many characters; None: unchanged.

    Words stay whole even if they are longer, and so do commands in backticks that fit a line, so that they can be copied.
    """
    if columns is None:
        return text
    return "\n".join(part for line in text.split("\n") for part in _parts(line, columns))


def _parts(line: str, columns: int) -> list[str]:
    if len(line) <= columns or _AS_IS.match(line) is not None or _HELD in line:
        return [line]
    margin = len(line) - len(line.lstrip())
    further = " " * min(margin + INDENT, columns // 2)
    room = columns - len(further)
    held = _COMMAND.sub(lambda m: m[0].replace(" ", _HELD) if len(m[0]) <= room else m[0], line)
    found = wrap(held, columns, subsequent_indent=further, break_long_words=False, break_on_hyphens=False)
    return [part.replace(_HELD, " ") for part in found]


BOLD_RED, RED, BLUE, GREEN = "1;31", "31", "34", "32"
_PARTS = (
    (re.compile(r"^((?:\S.*?: )?)(error(?:\[E\d{3}\])?:)", re.MULTILINE), BOLD_RED),
    (re.compile(r"^( +\| *)(\^+.*)$", re.MULTILINE), RED),
    (re.compile(r"^(  )(note:)", re.MULTILINE), BLUE),
    (re.compile(r"^(  )(hint:)", re.MULTILINE), GREEN),
    (re.compile(r"\A([^\n]*: )(proved)$", re.MULTILINE), GREEN),
    (re.compile(r"\A([^\n]*: )(refused|wrong)$", re.MULTILINE), BOLD_RED),
)
"""Patterns whose second group is coloured."""


def allows_colour(stream: TextIO) -> bool:
    """Whether a stream is a terminal with colours whose user has not asked for none (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def coloured(text: str) -> str:
    """The text with escape sequences of a terminal; text of users contains none, because it was made visible before."""
    for pattern, colour in _PARTS:
        text = pattern.sub(rf"\g<1>\033[{colour}m\g<2>\033[0m", text)
    return text


problem_option = partial(typer.Option, rich_help_panel="The problem")
limit_option = partial(typer.Option, rich_help_panel="What is allowed")
output_option = partial(typer.Option, rich_help_panel="Output")


STDOUT = Path("-")
Json = Annotated[Path | None, output_option("--json", metavar="[FILE]", help="Print JSON; with FILE.json, write it there beside the text.")]


def in_place_of_text(json_file: Path | None) -> bool:
    """Whether JSON is printed, and no text."""
    return json_file == STDOUT


def file_of(json_file: Path | None) -> Path | None:
    """The file for JSON, if one is named."""
    return None if json_file == STDOUT else json_file


def answer(json_file: Path | None, data: Callable[[], object], text: Callable[[], str]) -> None:
    """Print an answer as text, or in its place as JSON of `data`, an object or its text; to a file JSON is written beside the text."""
    if json_file is None:
        print_fitted(text)
        return
    found = data()
    encoded = _ended(found if isinstance(found, str) else json.dumps(found, indent=1))
    if in_place_of_text(json_file):
        print(encoded, end="")
        return
    write_file(json_file, encoded)
    print_fitted(text)


def write_result(output: Path | None, text: Callable[[Path], str], json_file: Path | None) -> None:
    """Write an algorithm to the file that is named, if one is, and say so where no JSON is printed."""
    if output is not None:
        write_file(output, text(output))
        if not in_place_of_text(json_file):
            say(f"written to {output}; `bilinear verify {output}` proves it again")


def say(*lines: str, error: bool = False) -> None:
    """Print lines that contain user text, such as a file name."""
    stream = sys.stderr if error else sys.stdout
    print(wrapped(visible_lines(lines), columns_of(stream)), file=stream)


def print_fitted(text: Callable[[], str]) -> None:
    """Print the output of a function; on a terminal, tables and lines fit its width, and the verdict is coloured."""
    columns = columns_of(sys.stdout)
    with fitted(columns):
        found = wrapped(text(), columns)
    print(coloured(_ended(found)) if allows_colour(sys.stdout) else _ended(found), end="")


def _ended(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"


Svg = Annotated[Path | None, output_option("--svg", help="Also write every figure of that page to this folder, as SVG files.")]
EPOCH = "SOURCE_DATE_EPOCH"  # The variable with the date of written files, seconds since 1970.


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
