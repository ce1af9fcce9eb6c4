"""Draws docs/images/demo-*.svg: a minute at a terminal, each command with what it prints. `--check` only compares.

The picture moves by itself where it is shown by a browser; elsewhere it shows the last command.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from html import escape

from drawn import ROOT, keep
from picture import Theme, themed

SCENES = (
    ("show strassen", 7),
    ("verify examples/errata/khan-strassen.bl", 7),
    ("verify msmes", 15),
    ("plan --shape 16384 --dtype float32 --device h200", 9),
)
"""The commands, and how many lines of each are shown."""
SECONDS = 15.0
"""How long a command is shown. It is typed in the first of these seconds, and its lines appear in the next ones."""
TYPED, LINES = 1.6, 0.16
COLUMNS, LETTER, LINE, EDGE, TOP = 104, 7.83, 19, 16, 44
FONT = "font: 13px ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"
PROMPT = "$ bilinear "
WHOLE = SECONDS * len(SCENES)


def printed(command: str, most: int) -> list[str]:
    """The first lines of what a command prints."""
    words, settings = [sys.executable, "-m", "bilinear", *command.split()], os.environ | {"NO_COLOR": "1"}
    done = subprocess.run(words, cwd=ROOT, env=settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.stdout.rstrip().splitlines()[:most]


def picture(scenes: Sequence[tuple[str, Sequence[str]]], theme: Theme, columns: int) -> str:
    """The scenes as SVG: one after the other for `SECONDS` each, over and over; of each line as many `columns` as there is room for."""
    rows = 2 + max(len(lines) for _, lines in scenes)
    width, height = round(2 * EDGE + columns * LETTER), TOP + rows * LINE
    told = "; ".join(f"bilinear {command}" for command, _ in scenes)
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
        f"<title>A minute at a terminal: {escape(told)}</title>",
        f"<style>text {{ {FONT}; fill: {theme.text}; white-space: pre }} .command {{ font-weight: 700; fill: {theme.memory} }}",
        f".bad {{ fill: {theme.nothing} }} .frame {{ fill: {theme.page}; stroke: {theme.line} }} .page {{ fill: {theme.page} }}",
        f".button {{ fill: {theme.line} }}</style>",
        f'<rect class="frame" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8"/>',
        *(f'<circle class="button" cx="{EDGE + 6 + 18 * i}" cy="17" r="5"/>' for i in range(3)),
    ]
    for number, (command, lines) in enumerate(scenes):
        body += _scene(number, command, [line if len(line) <= columns else f"{line[: columns - 1]}…" for line in lines], width)
    return "\n".join([*body, "</svg>", ""])


def _scene(number: int, command: str, lines: Sequence[str], width: int) -> Iterator[str]:
    begin, end, is_last = number * SECONDS, (number + 1) * SECONDS, number == len(SCENES) - 1
    typed, left = PROMPT + command, EDGE + len("$ ") * LETTER
    yield f'<g visibility="{"visible" if is_last else "hidden"}">{_shown(begin, end)}'
    yield f'<text class="command" x="{EDGE}" y="{TOP + 12}">{escape(typed)}</text>'
    cover = f'<rect class="page" x="{width}" y="{TOP - 2}" width="{width}" height="{LINE}">'
    stop = EDGE + len(typed) * LETTER
    moved = (left, 0.0), (left, begin + 0.4), (stop, begin + TYPED), (width, begin + TYPED + 0.1), (width, WHOLE)
    values, times = (";".join(each) for each in zip(*((f"{x:g}", f"{at / WHOLE:.4f}") for x, at in moved), strict=True))
    yield f'{cover}<animate attributeName="x" dur="{WHOLE:g}s" repeatCount="indefinite" values="{values}" keyTimes="{times}"/></rect>'
    yield "</g>"
    for row, line in enumerate(lines):
        kind = ' class="bad"' if "error[" in line or "^" in line else ""
        place = f'x="{EDGE}" y="{TOP + 12 + LINE * (row + 1) + 6}" visibility="{"visible" if is_last else "hidden"}"'
        yield f"<text{kind} {place}>{escape(line)}{_shown(begin + TYPED + 0.3 + LINES * row, end)}</text>"


def _shown(begin: float, end: float) -> str:
    """Visible between these seconds of each round."""
    first, last = begin / WHOLE, end / WHOLE
    steps = [("hidden", 0.0)] * (first > 0) + [("visible", first)] + [("hidden", last)] * (last < 1)
    values, times = (";".join(each) for each in zip(*((state, f"{at:.4f}") for state, at in steps), strict=True))
    return (
        f'<animate attributeName="visibility" dur="{WHOLE:g}s" repeatCount="indefinite" calcMode="discrete" '
        f'values="{values}" keyTimes="{times}"/>'
    )


def main() -> None:
    scenes = [(command, printed(command, most)) for command, most in SCENES]
    keep(themed("demo", lambda theme, is_narrow: picture(scenes, theme, 52 if is_narrow else COLUMNS)))


if __name__ == "__main__":
    main()
