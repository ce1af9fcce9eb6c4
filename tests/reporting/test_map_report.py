"""Reports of digit schemes: the same facts as text, JSON, Markdown and HTML, and how `bilinear verify` prints them."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path

import pytest
from digit_unit import digits
from reporting.test_html import Page
from shell import Shell

from bilinear.analysis.accuracy import classical_bound
from bilinear.analysis.digit_bounds import digit_bound, largest_scaled, probable_digits, residue_block_bound
from bilinear.frontend import parse_source
from bilinear.reporting.map_report import INNERS, digit_report
from bilinear.source import Source

PAIRS = """\
pairs: proved

  format    <1,1,1;3>
  digits    pair: float16 x 2, lambda = 2^-11, unshifted, scaled by rows of A and columns of B
  a number  4 bytes as digits, 4 bytes as float32
  cut       x = h + lambda l, each digit what is left of x, rounded to nearest, ties to even; at most 2^-23 |x| is left over; low \
digits are stored as the parts of x that they are
  proof     the products of digits are x*y up to O(lambda^2): 4 coefficients, exactly
  dropped   lambda^2 A.l*B.l
  source    Markidis, Chien, Laure, Peng, Vetter (2018), arXiv:1803.04014; Ootomo, Yokota (2022), Int. J. High Perform. Comput. Appl. 36.

products:
  M1 = A.h * B.h
  M2 = A.h * B.l
  M3 = A.l * B.h
  C = M1 + lambda M2 + lambda M3

errors:
"""


def test_text_of_pairs() -> None:
    report, error = digit_report(digits("pairs"))
    assert error is None and str(report).startswith(PAIRS)
    table = str(report).splitlines()[len(PAIRS.splitlines()) :]
    assert table[0].split("  ")[-1] == "classical, probable"
    assert [line.split()[0] for line in table[2:6]] == [str(inner) for inner in INNERS]


def test_errors_are_those_of_the_analysis() -> None:
    report, _ = digit_report(digits("pairs"))
    for row in report.errors:
        bound = digit_bound(digits("pairs"), row.inner)
        assert row.always == pytest.approx(bound.of_largest * row.inner) and row.element == bound.relative
        assert row.probable == probable_digits(digits("pairs"), row.inner)
        assert row.classical_always == pytest.approx(classical_bound(row.inner, 2.0**-24) * 2.0**-24)
        assert row.always < row.classical_always and row.probable < row.classical_probable
    report, _ = digit_report(digits("winograd (x) residues15 (x) strassen"))
    assert [row.always for row in report.errors] == [residue_block_bound(digits("winograd (x) residues15"), inner) for inner in INNERS]
    assert all(row.element is None for row in report.errors)
    assert ("range", "M = 2^117.8; rows and columns are scaled to integers of 2-norm at most R = 2^58.4") in report.facts


def test_levels_are_those_of_the_block_scheme_above() -> None:
    one, two = (digit_report(digits("winograd (x) pairs"), levels)[0] for levels in (1, 2))
    assert all(7 < b.always / a.always < 11 and 2 < b.probable / a.probable < 2.65 for a, b in zip(one.errors, two.errors, strict=True))
    assert one.facts[4][1].startswith("winograd <2,2,2;7>, whose 64 Brent equations hold; sums are formed in float32")


def test_no_errors_are_told_of_products_whose_rounding_is_not_known() -> None:
    text = "digits pair of float32: float16 x 2, lambda = 2^-11, unscaled\nscheme s <1,1,1;3> over pair\n"
    text += "M1 = A.h * B.h ; M2 = (A.h + A.l) * (B.h + B.l) ; M3 = A.l * B.l\nC = M1 + lambda * (M2 - M1 - M3) + lambda^2 * M3"
    report, error = digit_report(parse_source(Source("x.bl", text)).digits[0])
    assert error is None and report.errors == () and report.notes[0].startswith("no errors are known: s multiplies")
    assert "exactly" in dict(report.facts)["proof"] and "O(lambda" not in dict(report.facts)["proof"]
    assert "M2 = (A.h + A.l) * (B.h + B.l)" in report.products and "errors" not in str(report).split("\n")


@pytest.mark.parametrize("name", ["pairs", "triples", "residues9", "winograd (x) residues15 (x) strassen", "residues9 (x) accurate_halves"])
def test_views_tell_the_same(name: str) -> None:
    report, error = digit_report(digits(name))
    page, markdown, data = Page(report.html()), report.markdown(), json.loads(report.json())
    words = " ".join(" ".join(page.words).split())
    assert data["proved"] == (error is None) == report.proved and data["format_of_report"] == "bilinear-digits/1"
    assert report.verdict in words and f"# {report.algorithm}".replace("_", "")[:8] in markdown.replace("\\_", "").replace("_", "")
    for row in report.error_table:
        assert all(cell in words and cell in markdown for cell in row)
    for label, value in report.facts:
        assert label in words and label in markdown and dict(data["facts"])[label] == value
    assert len(data["errors"]) == len(report.errors) == (len(INNERS) if report.proved else 0)
    assert all(tag != "script" and not {"src", "href"} & attributes.keys() for tag, attributes in page.elements)


def test_what_is_refused_is_told(shell: Shell) -> None:
    expression = "residues8 (x) accurate_halves"
    status, out, told = shell("verify", expression)
    assert status == 1 and out == "" and "error[E304]: residues8_x_accurate_halves does not multiply numbers of float32: " in told
    status, out, _ = shell("verify", expression, "--json")
    assert status == 1 and json.loads(out)["failures"] == ["accurate_halves does not hold modulo 256"]
    status, out, _ = shell("verify", expression, "--markdown", "--html", "page.html")
    assert status == 1 and "## What does not hold" in out and "Why it is refused" in Path("page.html").read_text(encoding="utf-8")


def test_the_command_prints_the_views(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    report, _ = digit_report(digits("pairs"))
    assert shell("verify", "pairs") == (0, f"{report}\n", "")
    assert shell("verify", "pairs", "--json")[1] == report.json() and shell("verify", "pairs", "--markdown")[1] == report.markdown()
    assert shell("verify", "pairs", "--html", "page.html")[0] == 0 and Path("page.html").read_text(encoding="utf-8") == report.html(
        "1970-01-01"
    )
    assert "blocks above" in shell("verify", "winograd (x) pairs", "--levels", "2")[1]


@pytest.mark.parametrize("name", ["residues7", "residues14", "residues17"])
def test_the_argument_about_bits_holds_for_integers_and_for_no_larger_ones(name: str, shell: Shell) -> None:
    status, out, _ = shell("verify", name, "--bits", "--json")
    facts, modulus = dict(json.loads(out)["facts"]), prod(digits(name).representation.moduli)
    assert status == 0 and {"scales", "integers", "their sum", "roundings"} < facts.keys() and "exact" not in facts
    for inner in INNERS:
        t = int(facts[f"K = {inner}"].removeprefix("T = ").partition(",")[0])
        assert 2 * inner * t * t < modulus < 2.00001 * inner * (t + 1) ** 2
        assert float(t) == t == largest_scaled(digits(name).representation, inner)
    for other in ("pairs", "strassen", "winograd (x) residues14"):
        status, out, told = shell("verify", other, "--bits")
        assert (status, out) == (1, "") and "error[E507]" in told and "bilinear verify residues14 --bits" in told


@pytest.mark.parametrize("option", [("--levels", "2"), ("--rocq", "x.v"), ("--inputs", "restore"), ("--accuracy", "1e-3")])
def test_options_without_meaning_are_refused(option: tuple[str, str], shell: Shell) -> None:
    status, out, told = shell("verify", "pairs", *option)
    assert (status, out) == (1, "") and "error[E507]: pairs multiplies digits, and its proof has no such option" in told
    assert not list(Path().iterdir())
