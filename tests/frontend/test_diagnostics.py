"""Every diagnostic of the language, pinned: a file of sources and their diagnostics.

Run this file as a program to rewrite the expected diagnostics, then read the difference.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bilinear.errors import BilinearError
from bilinear.frontend import parse_source
from bilinear.frontend.messages import MESSAGES, Message
from bilinear.source import Source

GOLDEN = Path(__file__).with_name("diagnostics.txt")
ROOT = Path(__file__).parents[2]
CASE = re.compile(r"^={5} (.*)\n((?:.*\n)*?)-{5}\n((?:.*\n)*?)(?=^={5} |\Z)", re.MULTILINE)


def cases() -> list[tuple[str, str, str]]:
    """The title, the source (NUL written as ␀) and the diagnostics of each case."""
    found = CASE.findall(GOLDEN.read_text(encoding="utf-8"))
    return [(title, source, said.rstrip("\n")) for title, source, said in found]


def said_about(text: str) -> str:
    try:
        parse_source(Source("x.bl", text.replace("␀", "\0").removesuffix("\n")))
    except BilinearError as error:
        return str(error)
    return "nothing"


@pytest.mark.parametrize(("title", "source", "said"), cases(), ids=[title for title, _, _ in cases()])
def test_diagnostic(title: str, source: str, said: str) -> None:
    assert said_about(source) == said


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: f"{m.code}-{m.label}")
def test_every_syntax_message_has_an_example(message: Message) -> None:
    with pytest.raises(BilinearError) as raised:
        parse_source(Source("x.bl", message.example))
    first = next(d for d in raised.value.diagnostics if d.code.startswith("E1") or d.code == "E649")
    assert (first.code, first.label, first.hints) == (message.code, message.label, (message.hint,))
    assert re.fullmatch(re.escape(message.message).replace(r"\{found\}", ".+"), first.message)


def test_every_code_of_the_language_is_pinned() -> None:
    pinned = set(re.findall(r"error\[(E\d{3})\]", GOLDEN.read_text(encoding="utf-8")))
    elsewhere = {"E113", "E115", "E121", "E122", "E123", "E124", "E125", "E231", "E232", "E241", "E566", "E794"}
    of_the_algebra = {"E642"}
    assert codes_of("frontend") | codes_of("ir") | of_the_algebra == pinned | elsewhere


def test_every_code_is_documented() -> None:
    text = (ROOT / "docs" / "diagnostics.md").read_text(encoding="utf-8")
    headings = re.findall(r"^### (E\d{3})", text, re.MULTILINE)
    assert headings == sorted(headings)
    assert set(headings) == codes_of(".")


def test_examples_of_the_language_parse() -> None:
    pages = ((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("language", "rings", "maps", "algebra", "digits"))
    module = parse_source(
        Source("x.bl", "".join(text for page in pages for text in re.findall(r"^```bl\n((?:.*\n)*?)```", page, re.MULTILINE)))
    )
    assert [s.name for s in module.schemes] == ["mine", "strassen", "winograd", "x", "big", "wide", "tall"]
    assert [s.name for s in module.schedules] == ["lean", "careful"]
    assert [s.name for s in module.complexes] == ["complex3"]
    assert [s.name for s in module.digits] == ["residues15", "pairs"]
    assert [s.name for s in module.grams] == ["halves"]


def codes_of(folder: str) -> set[str]:
    """The codes in the sources of a folder of the package."""
    files = (ROOT / "bilinear" / folder).rglob("*.py")
    return {code for file in files for code in re.findall(r'"(E\d{3})"', file.read_text(encoding="utf-8"))}


def write() -> None:
    """Rewrite the expected diagnostics."""
    text = "".join(f"===== {title}\n{source}-----\n{said_about(source)}\n\n" for title, source, _ in cases())
    GOLDEN.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
