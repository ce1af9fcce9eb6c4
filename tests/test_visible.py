"""Text from outside reaches nobody but as text: on a terminal, in Markdown, in HTML, in a comment of CUDA or of the language."""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path

import pytest
from each_case import each
from hypothesis import given
from hypothesis import strategies as st
from shell import Shell

from bilinear.errors import Diagnostic
from bilinear.frontend import parse_source
from bilinear.frontend.printer import print_scheme
from bilinear.reporting.table import aligned
from bilinear.source import Source, Span
from bilinear.visible import visible, visible_lines

UNSEEN = "\x00\x07\x1b\x7f\x85\x9b\n\r\t\v\f\u00ad\u200b\u200d\u2028\u2029\u202e\u2066\ufeff\ufe0f\u3164\ud800\ue000\U000e0041"
HOSTILE = "\x1b]0;own\x07\x1b[31m\nE: proved \u202e*/ | `x` <b> [a](b)"
SCHEME = f"scheme e <1,1,1;1>\n  source {json.dumps('@')}\n  M1: 1 | 1 | 1\n"


def is_text(character: str) -> bool:
    """By Unicode's own categories."""
    return unicodedata.category(character)[0] in "LMNPS" or character == " "


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A file whose name and citation are hostile."""
    path = tmp_path / "a\x1b[31m\n\u202e.bl"
    path.write_text(SCHEME.replace("@", HOSTILE.replace("\n", "\\n")), encoding="utf-8")
    return path


@given(st.text())
def test_every_character_can_be_seen(text: str) -> None:
    shown = visible(text)
    assert all(map(is_text, shown)), shown
    assert visible(shown) == shown
    assert all(c in shown for c in text if is_text(c) and visible(c) == c)


@each("character", UNSEEN)
def test_what_cannot_be_seen_is_escaped_so_that_the_language_reads_it_again(character: str) -> None:
    shown = visible(character)
    assert shown.isascii() and shown.startswith("\\")
    assert parse_source(Source("x.bl", SCHEME.replace("@", shown))).schemes[0].citation == character


def test_letters_of_all_languages_stay() -> None:
    assert visible("Grochów é ü ⊗ λ Ελλ 中文 −½") == "Grochów é ü ⊗ λ Ελλ 中文 −½"


def test_a_long_text_is_cut() -> None:
    assert visible("x" * 50, 10) == "xxxxxxxxxx..."
    assert len(visible("\x1b" * 10**6)) < 10_010
    assert len("".join(aligned([("x" * 10**6,)], None))) < 1100


def test_lines_stay_lines() -> None:
    assert visible_lines(["a\nb", "c"]) == "a\\nb\nc"


def test_an_error_points_at_the_place_behind_what_is_escaped() -> None:
    source = Source("a\x1b.bl", "x\u202e\x1b[31m bad\x07 end\n")
    span = Span(source, source.text.index("bad"), source.text.index(" end"))
    assert str(Diagnostic("E1", "no\nerror[E2]: forged", span, "la\x1bbel", ("\u2028",), ("\r",))).splitlines() == [
        "a\\x1b.bl:1:9: error[E1]: no\\nerror[E2]: forged",
        "  1 | x\\u202e\\x1b[31m bad\\x07 end",
        "    |                 ^^^^^^^ la\\x1bbel",
        "  note: \\u2028",
        "  hint: \\r",
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("verify", "@"),
        ("verify", "@", "--markdown"),
        ("verify", "@:none"),
        ("verify", "@", "--levels", "0"),
        ("verify", "@", "--html", "@/x"),
        ("show", "@"),
        ("share", "@"),
        ("export", "@", "--to", "sms", "-o", "@.sms"),
        ("import", "@"),
        ("combine", "2,2,2", "--library", "@"),
        ("plan", "--shape", "64", "--device", "@"),
        ("new", "x", "1", "-o", "@"),
        ("list", "--@"),
        ("@",),
    ],
    ids=" ".join,
)
def test_no_command_prints_what_cannot_be_seen(words: tuple[str, ...], hostile: Path, shell: Shell) -> None:
    _, out, err = shell(*(word.replace("@", str(hostile)) for word in words))
    assert out or err
    assert all(c == "\n" or is_text(c) for c in out + err), ascii(out + err)


def test_a_page_shows_what_cannot_be_seen(hostile: Path, shell: Shell, tmp_path: Path) -> None:
    assert shell("verify", hostile, "--html", tmp_path / "x.html")[0] == 0
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert all(c == "\n" or is_text(c) for c in page)
    assert "<b> [" not in page and "\\x1b]0;own\\x07\\x1b[31m\\nE: proved \\u202e*/" in page


def test_markdown_stays_one_cell(hostile: Path, shell: Shell) -> None:
    line = next(line for line in shell("verify", hostile, "--markdown")[1].splitlines() if line.startswith("| source"))
    assert len(re.findall(r"(?<!\\)\|", line)) == 3
    assert "<" not in line and not re.search(r"(?<!\\)[`\[\]]", line)


def test_a_device_with_a_hostile_name(tmp_path: Path, shell: Shell) -> None:
    from bilinear.planner.device_files import device_json, load_device

    facts = json.loads(device_json(load_device("h200")))
    facts["name"] = HOSTILE
    (tmp_path / "d.json").write_text(json.dumps(facts), encoding="utf-8")
    status, out, err = shell("plan", "--shape", "512", "--device", tmp_path / "d.json", "--explain", "--html", tmp_path / "p.html")
    assert status == 0, err
    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert all(c == "\n" or is_text(c) for c in out + page)
    assert "\\x1b]0;own" in out and "\\x1b]0;own" in page


def test_a_comment_of_a_kernel_stays_a_comment() -> None:
    from bilinear.codegen.render import environment

    text = environment().from_string("// {{ text | comment }}\nint x;").render(text="a\nint y; */ ??/ \u202e\\")
    assert text == "// a\\nint y; * / ?? / \\u202e\nint x;"


@given(st.text())
def test_a_citation_is_printed_visibly_and_read_again(text: str) -> None:
    from dataclasses import replace

    (scheme,) = parse_source(Source("x.bl", SCHEME)).schemes
    printed = print_scheme(replace(scheme, citation=text))
    assert all(c == "\n" or is_text(c) for c in printed)
    assert parse_source(Source("x.bl", printed)).schemes[0].citation == text
