"""Every diagnostic of the language, pinned; and for any text the result is a module or diagnostics, quickly.

Run this file as a program to rewrite the expected diagnostics, then read the difference.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from each_case import each
from hostile import MOST_SECONDS
from hypothesis import given, settings
from hypothesis import strategies as st

from bilinear.errors import BilinearError
from bilinear.frontend import parse_source
from bilinear.frontend.files import DIGITS, shipped
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


@each(("title", "source", "said"), cases())
def test_diagnostic(title: str, source: str, said: str) -> None:
    assert said_about(source) == said


@each("message", MESSAGES)
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


HEAD = "scheme x <2,2,2;7>\n"
STAGE = "schedule s of strassen\n  stage { "
LONG = "x" * 100_000
HOSTILE = {
    "rank": "scheme x <2,2,2;1000000>\n",
    "large format": "scheme x <999999999,999999999,999999999;1>\n",
    "huge number": HEAD + "  S1 = " + "9" * 100_000 + " A11\n",
    "huge cell": HEAD + "  M1: " + "9" * 100_000 + " 0 0 0 | 1 0 0 0 | 1 0 0 0\n",
    "huge block": HEAD + f"  S1 = A[{'9' * 100_000},1]\n",
    "huge header": f"scheme {LONG} <2,2,2;{'9' * 100_000}>\n",
    "long name": HEAD + f"  {LONG} = {LONG} + A11\n",
    "long reference": f"schedule s of {LONG}\n  stage {{ A11 += A12 }}\n",
    "long claim": f"schedule s of strassen: {LONG}\n  stage {{ A11 += A12 }}\n",
    "deep parentheses": HEAD + "  S1 = " + "(" * 100_000 + "A11" + ")" * 100_000 + "\n",
    "deep braces": STAGE + "{ " * 100_000,
    "closing braces": STAGE + "} " * 100_000,
    "long sum": HEAD + "  S1 = A11" + " + A11" * 10_000 + " +\n",
    "many fractions": HEAD + "  S1 = A11" + "".join(f" + 1/{10**40 + 2 * i + 1} A11" for i in range(2000)) + "\n",
    "many errors": HEAD + "  S1 = A11 A12\n" * 20_000,
    "many unknown names": HEAD + "".join(f"  S{i} = R{i} + A11\n" for i in range(10_000)),
    "many bad rows": HEAD + "".join(f"  M{i}: 1 | x | 1\n" for i in range(20_000)),
    "too many equations": HEAD + "  S1 = A11 + A12\n" * 100_000,
    "quotes": HEAD + "  source " + '"' * 100_000 + "\n",
    "NUL bytes": "\0" * 100_000,
    "control characters": "".join(map(chr, range(32))) * 1000,
    "line separators": HEAD + "\u2028\u0085\x0b\x0c  S1 = A11 @\n",
    "surrogates": HEAD + "  S1 = \ud800\n",
    "many moduli": "digits r of float64: int8 modulo" + " 251" * 50_000 + ", unscaled\n",
    "long modulus": f"digits r of float64: int8 modulo {'9' * 100_000}, unscaled\n",
    "long digits": f"digits r of {LONG}: {LONG}, {LONG} x 2\n",
    "many digits": "".join(f"digits r{i} of float64: unscaled\nscheme s{i} <1,1,1;1> over r{i}\n  C = A.h * B.x\n" for i in range(2000)),
    "lone returns": HEAD.replace("\n", "\r") + "  S1 = A11 A12\r",
    "semicolons": ";" * 100_000 + "x",
}


@pytest.mark.sample(10)
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_texts_get_diagnostics_soon(text: str) -> None:
    begin = time.process_time()
    with pytest.raises(BilinearError) as raised:
        parse_source(Source("x.bl", text))
    assert len(str(raised.value)) < 50_000
    assert time.process_time() - begin < MOST_SECONDS


def test_too_many_equations_say_so() -> None:
    with pytest.raises(BilinearError) as raised:
        parse_source(Source("x.bl", HOSTILE["too many equations"]))
    assert str(raised.value).splitlines()[0] == "x.bl:1:1: error[E113]: 1700019 characters of equations are too many"


WORDS = """scheme schedule source stage restore over of x strassen <2,2,2;7> <1,1,1;1> { } ( ) + - * = += -= , ; : | # " 0 1 -1/2 1/0
    A11 A12 B11 B21 C11 C22 A[1,1] A[9] S1 M1 M2 M1: in-place restores Z
    digits pair float32: float16 x 2, lambda = 2^-11 unscaled int8 modulo 256 255 A.h B.l C residues8 pairs
    = (x) (+m) (+n) rotate( transpose( strassen laderman <1,1,2> "x.bl" """
PIECES = st.sampled_from([*WORDS.split(), "\n", "\n", '"text"', "  ", "\r\n", "\t", "é", "\0"])


def parse(text: str) -> None:
    try:
        parse_source(Source("x.bl", text))
    except BilinearError as error:
        for diagnostic in error.diagnostics:
            assert diagnostic.code and str(diagnostic)
            assert diagnostic.span is None or 0 <= diagnostic.span.start <= diagnostic.span.end <= len(diagnostic.span.source.text)


@given(st.text(max_size=200))
@settings(max_examples=3 * settings().max_examples)
def test_any_text(text: str) -> None:
    parse(text)


@given(st.lists(PIECES, max_size=60).map(" ".join))
@settings(max_examples=7 * settings().max_examples)
def test_words_of_the_language_in_any_order(text: str) -> None:
    parse(text)


FILES = shipped() | shipped(DIGITS)


@given(st.sampled_from(sorted(FILES)), st.data())
@settings(max_examples=3 * settings().max_examples)
def test_shipped_files_with_a_stretch_replaced(name: str, data: st.DataObject) -> None:
    text = FILES[name].read_text(encoding="utf-8")
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 20)))
    parse(text[:start] + data.draw(PIECES) + text[end:])


if __name__ == "__main__":
    write()
