r"""LaTeX tables: golden texts, names and numbers of every kind, and the tables read back as the schemes and schedules that they show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from each_case import each
from shell import Shell

from bilinear.frontend import LoadedComplex, LoadedGram, load, load_any, parse_source
from bilinear.ir.digits import DigitScheme
from bilinear.reporting.facts import stage_moves
from bilinear.reporting.latex import TALLEST, equation, escaped, latex
from bilinear.reporting.shipped import library_rows
from bilinear.source import Source

GOLDEN = Path(__file__).parents[1] / "golden"
RATIONAL = sorted(row.name for row in library_rows() if row.least_ring in ("Z", "Z[1/2]") and row.name != "karstadt_schwartz")
"""Shipped schemes over the integers and halves, on the blocks themselves."""


@pytest.mark.parametrize("name", ["msmes", "winograd", "accurate_sqrt3", "bini", "w_mm", "pairs", "residues15"])
def test_tables_are_the_golden_ones(name: str, update_golden: bool) -> None:
    found = load_any(name)
    assert not isinstance(found, LoadedGram | LoadedComplex)
    text, path = latex(found), GOLDEN / f"{name}.tex"
    if update_golden:
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8") == latex(found)


@each(
    ("text", "expected"),
    [
        ("A21 += A22", r"A_{21} \mathrel{+}= A_{22}"),
        ("C21, -C22 += A21 * B11", r"C_{21}, -C_{22} \mathrel{+}= A_{21} B_{11}"),
        ("A[1,10] -= 1/2 A[10,1]", r"A_{1,10} \mathrel{-}= \tfrac{1}{2} A_{10,1}"),
        ("X = [1/2-1/2*sqrt(3)] M1 - 2 M2", r"X = (\tfrac{1}{2} - \tfrac{1}{2} \sqrt{3}) M_{1} - 2 M_{2}"),
        ("X = -[lambda^-1] M1", r"X = -\lambda^{-1} M_{1}"),
        ("C = [lambda^-2-lambda] M1", r"C = (\lambda^{-2} - \lambda) M_{1}"),
        ("M1 = A.h * B.l", r"M_{1} = A_{h} B_{l}"),
        ("C = alpha*A*B + beta*C", r"C = \alpha A B + \beta C"),
        ("sum_1 = temp12 + betas", r"\mathit{sum\_1} = \mathit{temp}_{12} + \mathit{betas}"),
        ("X = [i] M1 + [1+2*i] M2", r"X = i M_{1} + (1 + 2 i) M_{2}"),
    ],
)
def test_an_equation_as_mathematics(text: str, expected: str) -> None:
    assert equation(text) == expected


def test_what_is_not_of_the_language_is_refused() -> None:
    with pytest.raises(ValueError, match="not of the language"):
        equation("A11 = $x$")


def test_text_is_escaped() -> None:
    assert escaped(r"50% of a_b & {c} #1 $x$ ~ ^ \input") == (
        r"50\% of a\_b \& \{c\} \#1 \$x\$ \textasciitilde{} \textasciicircum{} \textbackslash{}input"
    )
    assert escaped("a\x1bb<\u202e>") == r"a\textbackslash{}x1bb\textless{}\textbackslash{}u202e\textgreater{}"


def plain(line: str) -> str:
    """A line of mathematics in the language again."""
    text = re.search(r"\$(.*)\$", line)
    assert text is not None
    back = re.sub(r"\\tfrac\{(\d+)\}\{(\d+)\}", r"\1/\2", text[1]).replace(r"\mathrel{+}=", "+=").replace(r"\mathrel{-}=", "-=")
    back = re.sub(r"_\{(\d+,\d+)\}", r"[\1]", back)
    return re.sub(r"_\{(\d+)\}", r"\1", back)


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", RATIONAL)
def test_the_table_of_a_scheme_reads_back_as_the_scheme(name: str) -> None:
    scheme = load(name).scheme
    table = latex(load(name)).partition(r"\toprule")[2]
    groups = re.split(r"\\emph\{(.*?)\} \\\\", table.partition(r"\bottomrule")[0])[1:]
    lines = []
    for title, body in zip(groups[::2], groups[1::2], strict=True):
        read = [plain(line) for line in body.splitlines() if line.strip().startswith("$")]
        lines += [re.sub(r"(\w|\]|\)) (?=[A-Z(])", r"\1 * ", line) if title == "Products" else line for line in read]
    head = f"scheme read <{scheme.m},{scheme.k},{scheme.n};{scheme.rank}>"
    (again,) = parse_source(Source("read.bl", "\n".join([head, *(f"  {line}" for line in lines)]) + "\n")).schemes
    assert again.tables == scheme.tables and again.products == scheme.products


@pytest.mark.parametrize("name", ["msmes", "winograd_in_place", "laderman_in_place", "hopcroft_kerr_in_place"])
def test_the_table_of_a_schedule_reads_back_as_the_schedule(name: str) -> None:
    loaded = load(name)
    assert loaded.schedule is not None
    table = latex(loaded).rpartition(r"\begin{")[2]
    stages = [part.splitlines() for part in table.partition(r"\midrule")[2].partition(r"\bottomrule")[0].split(r"\addlinespace")]
    lines = []
    for stage in stages:
        steps = [re.sub(r"(\w|\]) (?=[A-Z])", r"\1 * ", plain(line)) for line in stage if "$" in line]
        lines.append(f"  {'restore ' * ('& restore &' in stage[1])}stage {{ {' ; '.join(steps)} }}")
    scheme = loaded.source.text.partition("schedule ")[0] if "scheme " in loaded.source.text else ""
    claims = "in-place" + (f", restores {' '.join(loaded.schedule.restores)}" if loaded.schedule.restores else "")
    head = f"schedule read of {loaded.schedule.scheme}: {claims}"
    found = parse_source(Source(str(loaded.path), "\n".join([scheme, head, *lines]) + "\n"))
    assert found.schedules[-1].stages == loaded.schedule.stages


@pytest.mark.parametrize("step", ["C11, -C12 += 2 A11 * B11", "-C22 += A22 * B22", "C11, 2 C12 += A11 * B11"])
def test_a_factor_scales_the_product_and_not_its_target(step: str) -> None:
    (schedule,) = parse_source(Source("x.bl", f"schedule x of strassen: in-place\n  stage {{ {step} }}\n")).schedules
    assert [move.text for move in stage_moves(schedule.stages[0])] == [step]


def test_long_tables_go_on_on_further_pages() -> None:
    text = latex(load("smirnov_336"))
    assert r"\begin{longtable}" in text and "longtable}" in text.splitlines()[0] and len(text.splitlines()) > TALLEST
    assert text.count("{") == text.count("}") and text.count("$") % 2 == 0


def test_blocks_around_digits_have_their_tables() -> None:
    found = load_any("winograd (x) pairs")
    assert isinstance(found.scheme, DigitScheme)
    assert latex(found).count(r"\begin{table}") == 2 and r"\label{tab:winograd}" in latex(found)


def test_the_command_prints_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert Shell(monkeypatch, capsys)("show", "msmes", "--latex") == (0, latex(load("msmes")), "")
