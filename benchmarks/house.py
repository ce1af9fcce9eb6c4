"""Draw the picture of docs/architecture.md: python benchmarks/house.py [--check]

The rooms, what they do, and where one file and one call pass are read from that page; the layers from the contract in pyproject.toml.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from textwrap import wrap

from drawn import ROOT, keep
from picture import FONT, Theme, themed

PAGE = ROOT / "docs" / "architecture.md"
WIDTH, ROW, TOP = 1000, 25, 84
NAME, WORDS, FILE, CALL = 44, 164, 806, 924
"""Where the names of rooms begin, where what they do begins, and the middles of the columns of one file and of one call."""
FOLDERS = "resources"  # The first of the layers below the rooms, which are modules.


@dataclass(frozen=True)
class Room:
    """A room: its name as the page writes it, what it does, and the numbers of the steps of one file and of one call that pass it."""

    name: str
    words: str
    file: str
    call: str


def layers(page: str) -> list[list[Room]]:
    """The rooms, those of one layer together, from the top; the page must name those of the contract, in its order."""
    block = page.split("## Rooms")[1].split("```")[1].strip()
    file, call = _steps(page, "One file"), _steps(page, "One call")
    found = []
    for line in block.splitlines():
        names, words = line[:30], line[30:]  # columns of fixed width
        found.append(
            [
                Room(name, what, file.get(name.strip("/"), ""), call.get(name.strip("/"), ""))
                for name, what in zip(names.split(), re.split(r" +\| +", words), strict=True)
            ]
        )
    return found


def _steps(page: str, title: str) -> dict[str, str]:
    """The numbers of the steps below a title that name a file of a room, by room: "2", "1-5" or "3, 6"."""
    text = page.split(f"## {title}")[1].split("\n## ", maxsplit=1)[0]
    rooms: dict[str, list[int]] = {}
    for number, step in re.findall(r"^(\d)\. (.*?)(?=^\d\. |\Z)", text, re.MULTILINE | re.DOTALL):
        for room in re.findall(r"`(driver\.py|\w+(?=/\w[\w/]*\.\w+`))", step):
            rooms.setdefault(room, []).append(int(number))
    return {room: _ranges(sorted(set(numbers))) for room, numbers in rooms.items()}


def _ranges(numbers: list[int]) -> str:
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]}-{numbers[-1]}"
    return ", ".join(map(str, numbers))


def require_contract(found: list[list[Room]]) -> None:
    """End with a word if the page names other rooms than the contract, or in another order; modules at the bottom may share lines."""
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]["layers"]
    known = [[name.strip().removeprefix("bilinear.") for name in layer.split("|")] for layer in contract]
    bottom = next(number for number, layer in enumerate(known) if FOLDERS in layer)
    told = [[room.name.strip("/").removesuffix(".py") for room in layer] for layer in found]
    low = sorted(name for layer in told[bottom:] for name in layer), sorted(name for layer in known[bottom:] for name in layer)
    if [sorted(layer) for layer in told[:bottom]] != [sorted(layer) for layer in known[:bottom]] or low[0] != low[1]:
        sys.exit(f"{PAGE.name} does not name the layers of pyproject.toml")


def picture(found: list[list[Room]], theme: Theme, is_narrow: bool) -> str:
    """The house as SVG: a line for each room, a band for each layer, and the steps of one file and of one call.

    In a narrow one a room has further lines for what it does.
    """
    width, file, call = (430, 268, 378) if is_narrow else (WIDTH, FILE, CALL)
    lines = {room: wrap(room.words, 50) if is_narrow else [room.words] for layer in found for room in layer}
    bands = list(_bands(found, lines, (width, file, call), is_narrow))
    height = TOP + sum(_height(lines[room], is_narrow) for layer in found for room in layer) + 3 * len(found) + 12
    rooms = "rooms" if is_narrow else "rooms; those in one band do not import each other"
    title = "Folders, and steps through them" if is_narrow else "The folders, and the steps of a file and of a call through them"
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
        "<title>The folders of bilinear, and the steps of a file and of a call through them</title>",
        f"<desc>{escape(description(found))}</desc>",
        "<style>",
        f"text {{ {FONT}; font-size: 13px; fill: {theme.text} }} .name {{ font-weight: 600 }} .middle {{ text-anchor: middle }}",
        f".quiet {{ fill: {theme.quiet} }} .title {{ font-size: 17px; font-weight: 600 }} .layer {{ fill: {theme.line}; opacity: .38 }}",
        f".arrow {{ stroke: {theme.quiet}; fill: none }} .mark {{ fill: {theme.page} }} .step {{ font-weight: 600; fill: {theme.page} }}",
        f".file {{ fill: {theme.memory} }} .call {{ fill: {theme.nothing} }}",
        "</style>",
        f'<rect class="mark" width="{width}" height="{height}"/>',
        f'<text class="title" x="{NAME}" y="30">{title}</text>',
        f'<text class="quiet" x="{NAME}" y="{TOP - 16}">{rooms}</text>',
        f'<text class="middle file" x="{file}" y="{TOP - 32}">compile FILE.bl</text>',
        f'<text class="middle call" x="{call}" y="{TOP - 32}">matmul(a, b)</text>',
        *(f'<text class="quiet middle" x="{x}" y="{TOP - 16}">steps</text>' for x in (file, call)),
        f'<path class="arrow" d="M20 {TOP + 4}V{height - 22}m-5 -9l5 9l5 -9"/>',
        f'<text class="quiet" transform="translate(15 {(TOP + height) // 2}) rotate(-90)" text-anchor="middle">imports point down</text>',
        *bands,
        "</svg>",
    ]
    return "\n".join(body) + "\n"


def _height(lines: list[str], is_narrow: bool) -> int:
    return ROW + (16 * len(lines) if is_narrow else 0)


def _bands(found: list[list[Room]], lines: dict[Room, list[str]], places: tuple[int, int, int], is_narrow: bool) -> Iterator[str]:
    (width, file, call), y = places, TOP
    for layer in found:
        deep = sum(_height(lines[room], is_narrow) for room in layer)
        yield f'<rect class="layer" x="{NAME - 12}" y="{y}" width="{width - NAME}" height="{deep}" rx="4"/>'
        for room in layer:
            yield f'<text class="name" x="{NAME}" y="{y + 17}">{room.name}</text>'
            for number, words in enumerate(lines[room]):
                x, lower = (NAME, 34 + 16 * number) if is_narrow else (WORDS, 17)
                yield f'<text x="{x}" y="{y + lower}">{escape(words)}</text>'
            yield from (_steps_at(x, y, kind, text) for x, kind, text in ((file, "file", room.file), (call, "call", room.call)) if text)
            y += _height(lines[room], is_narrow)
        y += 3


def _steps_at(x: int, y: int, kind: str, text: str) -> str:
    width = 14 + 8 * len(text)
    box = f'<rect class="{kind}" x="{x - width // 2}" y="{y + 4}" width="{width}" height="{ROW - 8}" rx="8"/>'
    return f'{box}<text class="step middle" x="{x}" y="{y + 17}">{text}</text>'


def description(found: list[list[Room]]) -> str:
    """The picture in words."""
    return "; ".join(f"{room.name} {room.words}" for layer in found for room in layer)


def main() -> None:
    found = layers(PAGE.read_text())
    require_contract(found)
    keep(themed("house", lambda theme, is_narrow: picture(found, theme, is_narrow)))


if __name__ == "__main__":
    main()
