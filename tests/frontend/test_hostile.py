"""Hostile files on the command line: for any bytes the answer is a report or diagnostics, quickly and in little memory."""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path

import pytest
from hostile import MOST_SECONDS, answers

from bilinear.errors import BilinearError
from bilinear.frontend import load, parse_source
from bilinear.frontend.algorithms import shipped
from bilinear.lowering.prepare import natural_inputs
from bilinear.reporting.examine import examine, refusal
from bilinear.source import Source

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of address space are Linux's")
ROOT = Path(__file__).parents[2]

HEAD = "scheme x <1,1,1;1>\n"
STRASSEN = shipped()["strassen"].read_text(encoding="utf-8")


def filled(head: str, unit: str, length: int = 99_000) -> str:
    """As many units as fit into a file."""
    return head + unit * ((length - len(head)) // len(unit))


BYTES: dict[str, tuple[int, str, str | bytes]] = {
    "UTF-16": (1, "E123", STRASSEN.encode("utf-16")),
    "UTF-16 without a mark": (1, "E112", STRASSEN.encode("utf-16-le")),
    "byte order mark": (0, "", b"\xef\xbb\xbf" + STRASSEN.encode()),
    "only a byte order mark": (1, "E125", b"\xef\xbb\xbf"),
    "byte order mark inside": (1, "E112", STRASSEN.replace("M3", "\ufeffM3")),
    "lone surrogate": (1, "E123", STRASSEN + "# \ud800"),
    "NUL": (1, "E112", STRASSEN.replace("M3", "M\x003")),
    "lone returns": (0, "", STRASSEN.replace("\n", "\r")),
    "returns and newlines": (0, "", STRASSEN.replace("\n", "\r\n")),
    "writing direction": (1, "E112", STRASSEN.replace("M3", "\u202eM3")),
    "digits of another script": (1, "E112", STRASSEN.replace("M3:   1", "M3:  \u0661").replace("M3", "M\u0663")),
    "a million products": (1, "E202", "scheme x <2,2,2;1000000>\n  M1: 1 0 0 0 | 1 0 0 0 | 1 0 0 0\n"),
    "a million rows": (1, "E113", "scheme x <1,1,1;1000000>\n" + "M:1|1|1\n" * 500_000),
    "as many rows as are read": (1, "E301", "scheme x <1,1,1;20000>\n" + "".join(f"M{i}:1|1|1\n" for i in range(20_000))),
    "a name of 90000 characters": (1, "E115", f"scheme {'x' * 90_000} <1,1,1;1>\n  M: 1 | 1 | 1\n"),
    "a product of 100000 characters": (1, "E115", f"{HEAD}  {'x' * 100_000}: 1 | 1 | 1\n"),
    "a name with hyphens": (1, "E115", f"scheme {'x-' * 40_000} <1,1,1;1>\n  M: 1 | 1 | 1\n"),
    "a long citation": (0, "", f'{HEAD}  source "{"x" * 90_000}"\n  M: 1 | 1 | 1\n'),
    "four million bars": (1, "E206", f"{HEAD}  M: " + "|" * 4_000_000),
    "four million cells": (1, "E206", f"{HEAD}  M: " + "1 " * 2_000_000 + "| 1 | 1"),
    "four million semicolons": (1, "E113", ";" * 4_000_000),
    "more than four million bytes": (1, "E124", "#" * (2**22 + 1)),
    "power of a root": (1, "E205", f"scheme x <1,1,1;1> over Q[sqrt(999983)]\n  M: {'*'.join(['sqrt(999983)^64'] * 60)} | 1 | 1\n"),
    "product of long integers": (1, "E205", f"{HEAD}  M: {'*'.join(['9' * 99] * 9)} | 1 | 1\n"),
    "huge exponent": (1, "E205", "scheme x <1,1,1;1> over Q[lambda]\n  M: lambda^999999999 | 1 | 1\n"),
    "long sum of unknown names": (1, "E209", filled(f"{HEAD}  S = X", "+Y")),
    "long stage": (1, "E225", filled("schedule s of strassen\n  stage {", "A=B;") + "}"),
    "open braces": (1, "E101", filled("schedule s of strassen\n  stage {", "{")),
    "open parentheses": (1, "E110", filled(f"{HEAD}  S = ", "(")),
    "a composition without end": (1, "E641", filled("scheme y = <18,18,18>", " (x) <1,1,1>")),
    "a composition in parentheses": (1, "E647", f"scheme y = {'(' * 45_000}strassen{')' * 45_000}"),
    "refers to itself": (1, "E209", f"{HEAD}  S = T + A11\n  T = S + A11\n  M1 = S * B11\n  C11 = M1\n"),
}


@pytest.mark.slow
@linux
def test_any_bytes_get_an_answer_soon_in_little_memory(tmp_path: Path) -> None:
    for name, told in answers({name: text for name, (_, _, text) in BYTES.items()}, tmp_path).items():
        status, code, _ = BYTES[name]
        assert told["status"] == status, (name, told["err"] or told["status"])
        assert (f"error[{code}]" in told["err"]) if code else not told["err"], name
        assert len(told["err"]) < 50_000 and told["seconds"] < MOST_SECONDS, name


@pytest.mark.slow
@linux
def test_a_refusal_prints_json_and_nothing_else(tmp_path: Path) -> None:
    wrong = {
        "scheme": STRASSEN.replace("M3:   1", "M3:  -1"),
        "schedule": "schedule s of strassen: in-place, restores A\n  stage { A11 += A12 }\n",
        "large schedule": "schedule s of strassen: in-place\n" + "stage {A11+=A12}\n" * 5500,
        "scheme and schedule": HEAD + "  M: 2 | 1 | 1\nschedule s of x: C = A*B\n  stage { C11 = A11 * B11 }\n",
    }
    for name, told in answers(wrong, tmp_path, "--json").items():
        report = json.loads(told["out"])
        assert told["status"] == 1 and report["verdict"] == "refused" and report["findings"], name
        assert all(f"error[{finding['code']}]" in told["err"] for finding in report["findings"])


TOKEN = re.compile(r"\[[^\]]*\]|[A-Za-z_]\w*|\d+|\S")
STRANGE = ["[lambda]", "[sqrt(3)]", "1/2", "-", "9" * 99, "[lambda^-64]", "over Z/2", "over Q[lambda]", "[alpha]", "C11", "A[1,1]", "="]


def texts() -> list[str]:
    """The shipped files, the published misprints, and the examples of the documentation."""
    files = [*shipped().values(), *sorted((ROOT / "examples" / "errata").glob("*.bl"))]
    manual = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    return [*(path.read_text(encoding="utf-8") for path in files), *re.findall(r"```bl\n(.*?)```", manual, re.DOTALL)]


def mutated(text: str, draw: random.Random) -> str:
    """A text with one to four of its words left out, doubled, exchanged for another of its words, or for a strange one."""
    for _ in range(draw.randint(1, 4)):
        words = list(TOKEN.finditer(text))
        if not words:
            return text
        word = draw.choice(words)
        alike = [w[0] for w in words if w[0][0].isalpha() == word[0][0].isalpha()]
        new = draw.choice(["", f"{word[0]} {word[0]}", draw.choice(alike), draw.choice(alike), draw.choice(STRANGE)])
        text = text[: word.start()] + new + text[word.end() :]
    return text


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_mutated_files_are_examined_without_a_traceback(seed: int, tmp_path: Path) -> None:
    draw, known = random.Random(seed), texts()
    path = tmp_path / "x.bl"
    outcomes = set()
    for _ in range(120):
        path.write_text(mutated(draw.choice(known), draw), encoding="utf-8")
        outcomes.add(outcome(path))
    assert {"proved", "refused", "unread"} <= outcomes <= {"proved", "refused", "unread", "not run"}


def outcome(path: Path) -> str:
    """What becomes of a file: unread, proved or refused; views of the report are drawn as well."""
    try:
        loaded = load(path)
    except BilinearError as error:
        return "unread" if str(error) else "unsaid"
    try:
        report = examine(loaded, 1, natural_inputs(loaded.schedule))
    except BilinearError as error:
        if not all(diagnostic.code[:2] in ("E3", "E4") for diagnostic in error.diagnostics):
            return "not run"
        report = refusal(loaded, error)
    assert json.loads(report.json())["verdict"] == report.verdict
    assert report.markdown() and str(report)
    return report.verdict


def test_names_may_have_200_characters() -> None:
    name = "x" * 200
    assert parse_source(Source("x.bl", f"scheme {name} <1,1,1;1>\n  {name}: 1 | 1 | 1\n")).schemes[0].name == name
    with pytest.raises(BilinearError) as raised:
        parse_source(Source("x.bl", f"scheme {name}x <1,1,1;1>\n  {name}x: 1 | 1 | 1\n"))
    assert [str(d).splitlines()[0] for d in raised.value.diagnostics] == [
        "x.bl:1:8: error[E115]: a name of 201 characters",
        "x.bl:2:3: error[E115]: a name of 201 characters",
    ]
