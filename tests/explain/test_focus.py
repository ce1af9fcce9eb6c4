"""Misprints in schemes too large to try every edit: where they can be, and that they are found, told and mended at their place."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from bilinear.errors import BilinearError
from bilinear.explain.repair import edits, scheme
from bilinear.explain.repair.edits import TABLES, count_edits, find_focus, patched
from bilinear.explain.why_wrong import explain_scheme
from bilinear.frontend import load, parse_source
from bilinear.frontend.printer import print_scheme
from bilinear.ir.linear import LinearMap, form
from bilinear.ir.scheme import Scheme
from bilinear.source import Source
from bilinear.verify.scheme import multiplies, prove_scheme

LARGE = ("dps_444", "moosbauer_poole_555")
"""Schemes in equations with some 180 named sums."""


def scheme_of(text: str) -> Scheme:
    return parse_source(Source("misprint.bl", text)).schemes[0]


def misprinted(text: str, generator: random.Random) -> Iterator[tuple[str, int]]:
    """Texts with one misprint, and the line where it stands: a sign, a name, a term too few, a number."""
    lines = text.splitlines()
    equations = [i for i, line in enumerate(lines) if re.match(r" *[STMC]\w* = ", line)]
    while True:
        at = generator.choice(equations)
        left, right = lines[at].split(" = ")
        terms = list(re.finditer(r"(?<= )[+-] (?=[\w])", right))
        names = list(re.finditer(r"\b[ABST]\d+\b", right))
        kind = generator.choice(("sign", "name", "drop", "number"))
        if kind in ("sign", "drop") and terms:
            term = generator.choice(terms)
            end = re.compile(r"[\w]+( [\w]+)?").match(right, term.end())
            assert end is not None
            new = (
                right[: term.start()]
                + ("+ " if term[0] == "- " else "- ") * (kind == "sign")
                + right[end.end() if kind == "drop" else term.end() :]
            )
        elif kind == "name" and names:
            name = generator.choice(names)
            known = sorted({n for i in range(at) for n in re.findall(rf"\b{name[0][0]}\d+\b", lines[i])} - {*re.findall(r"\w+", lines[at])})
            new = right[: name.start()] + generator.choice(known or ["?"]) + right[name.end() :]
        elif kind == "number" and names:
            new = right[: names[0].start()] + "2 " + right[names[0].start() :]
        else:
            continue
        yield "\n".join([*lines[:at], f"{left} = {new}", *lines[at + 1 :]]) + "\n", at + 1


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", LARGE)
def test_misprints_in_equations_are_told_at_their_line_and_mended(name: str) -> None:
    text = print_scheme(load(name).scheme)
    told = 0
    for wrong, line in misprinted(text, random.Random(name)):
        try:
            read = scheme_of(wrong)
        except BilinearError:
            continue
        proof = prove_scheme(read)
        if proof.holds:
            continue
        assert count_edits(read) > scheme.MOST_LISTED
        explanation = explain_scheme(read, proof)
        assert explanation.span is not None and explanation.label
        lines = {edit.span.line for repair in explanation.repairs for edit in repair.edits if edit.span is not None}
        assert line in lines, wrong.splitlines()[line - 1]
        for repair in explanation.repairs:
            assert multiplies(scheme_of(patched(wrong, repair.patches)))
        told += 1
        if told == 8:
            return


def changed(correct: Scheme, table: str, row: int, generator: random.Random) -> tuple[Scheme, int]:
    """The scheme with another coefficient of one value in a row, and that value."""
    linear: LinearMap = getattr(correct, table)
    rows, index = [*linear.steps, *linear.outputs], generator.randrange(linear.inputs)
    rows[row] = form([*rows[row], (index, 1)])
    count = len(linear.steps)
    maps = {t: getattr(correct, t) for t in TABLES} | {
        table: LinearMap(linear.inputs, tuple(rows[count:]), tuple(rows[:count]), linear.names)
    }
    return replace(correct, u=maps["u"], v=maps["v"], w=maps["w"], places=None), index


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["winograd", "laderman", "dps_444", "perminov_434"])
def test_the_place_of_a_misprint_is_always_in_doubt_and_few_others_are(name: str) -> None:
    generator, correct = random.Random(1), load(name).scheme
    for table in TABLES:
        linear: LinearMap = getattr(correct, table)
        total = len(linear.steps) + len(linear.outputs)
        for row in generator.sample(range(total), min(total, 8)):
            wrong, index = changed(correct, table, row, generator)
            found = find_focus(wrong)
            assert found is not None and row in found.rows[table] and found.allows(table, row, index)
            assert table != "w" or index in found.columns
            assert found.in_doubt <= 24


def test_two_misprints_in_different_rows_leave_no_place_for_one() -> None:
    correct = load("dps_444").scheme
    generator = random.Random(2)
    wrong, _ = changed(correct, "u", 3, generator)
    wrong, _ = changed(wrong, "v", 11, generator)
    found = find_focus(wrong)
    assert found is not None and found.in_doubt == 0
    assert "no single edit repairs it" in explain_scheme(wrong, prove_scheme(wrong)).facts


def test_a_wrong_number_is_replaced_by_another_of_the_scheme() -> None:
    text = print_scheme(load("dps_444").scheme)
    for old, new in (("S47 = 2 S21", "S47 = 3 S21"), ("2 S22", "1/2 S22")):
        assert text.count(old) == 1
        wrong = text.replace(old, new)
        read = scheme_of(wrong)
        (repair,) = explain_scheme(read, prove_scheme(read)).repairs
        assert patched(wrong, repair.patches) == text


@pytest.mark.sample(1)
@pytest.mark.parametrize("ring", ["Z/2", "Z/3", "Z/10007"])
def test_misprints_over_residues(ring: str) -> None:
    first, rest = print_scheme(load("moosbauer_poole_555").scheme).split("\n", 1)
    correct, generator = scheme_of(f"{first} over {ring}\n{rest}"), random.Random(3)
    for table in TABLES:
        for row in (0, 61, 62 + 11):
            wrong, index = changed(correct, table, row, generator)
            assert not multiplies(wrong)
            found = find_focus(wrong)
            assert found is not None and row in found.rows[table] and found.allows(table, row, index)
            assert found.in_doubt <= 24


def test_what_is_too_large_is_not_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edits, "MOST_TERMS", 100)
    assert find_focus(load("dps_444").scheme) is None
    assert find_focus(load("karstadt_schwartz").scheme) is None
    assert find_focus(load("accurate_sqrt3").scheme) is None


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", LARGE)
def test_a_term_that_is_missing_is_told_where_one_term_is_left(name: str) -> None:
    lines, generator = print_scheme(load(name).scheme).splitlines(), random.Random(name)
    pairs = [i for i, line in enumerate(lines) if re.fullmatch(r" *[STU]\w* = \w+ [+-] \w+", line)]
    for at in generator.sample(pairs, 6):
        wrong = "\n".join([*lines[:at], " ".join(lines[at].split()[:3]), *lines[at + 1 :]]) + "\n"
        read = scheme_of(wrong)
        explanation = explain_scheme(read, prove_scheme(read))
        first = explanation.repairs[0].edits[0]
        assert first.span is not None and (first.kind, first.span.line) == ("add", at + 1)
        for repair in explanation.repairs:
            assert multiplies(scheme_of(patched(wrong, repair.patches)))


def test_a_term_that_may_be_missing_in_several_sums_is_told_in_each() -> None:
    """Z1, Z2 and C11 repair it as well, for each sum is used once; an author names no copy, so that Z2 comes first."""
    text = "scheme own <1,4,1;4>\n" + "".join(f"  M{p} = A1{p} * B{p}1\n" for p in range(1, 5))
    wrong = text + "  Z1 = M1 + M4\n  Z2 = M2\n  C11 = Z1 + Z2\n"
    read = scheme_of(wrong)
    explanation = explain_scheme(read, prove_scheme(read))
    assert [str(repair) for repair in explanation.repairs] == [
        "adding +M3 to Z2 (line 7, column 8)",
        "adding +M3 to Z1 (line 6, column 8)",
        "adding +M3 to C11 (line 8, column 9)",
    ]
    assert explanation.count == 3
    for repair in explanation.repairs:
        assert multiplies(scheme_of(patched(wrong, repair.patches)))
