"""Misprints of published documents, and of schemes too large to try every edit: they are found, told, pinned and mended."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from oracle import computes, scheme_computes

from bilinear.errors import BilinearError
from bilinear.explain.repair import edits, scheme
from bilinear.explain.repair.edits import TABLES, count_edits, find_focus, patched
from bilinear.explain.why_wrong import Explanation, explain_schedule, explain_scheme, explained
from bilinear.frontend import load, parse_source
from bilinear.frontend.printer import print_scheme
from bilinear.ir.linear import LinearMap, form
from bilinear.ir.schedule import Schedule
from bilinear.ir.scheme import Scheme
from bilinear.passes.order_products import mark_first_writes
from bilinear.source import Source
from bilinear.verify.schedule import prove_schedule
from bilinear.verify.scheme import multiplies, prove_scheme

ERRATA = Path(__file__).parents[2] / "examples" / "errata"
GOLDEN = Path(__file__).with_name("errata.txt")
SCHEMES = ("khan-strassen", "khan-winograd", "krishnan-strassen", "krishnan-winograd", "zachmann-strassen")
EDITS = {
    "khan-strassen": [("m4", "m2")],
    "khan-winograd": [("+ A21", "- A21")],
    "krishnan-strassen": [("Q3", "Q0")],
    "krishnan-winograd": [("A12", "A11"), ("+ T3", "- T3"), ("+ B11", "- B11")],
    "krishnan-msmes": [("B11", "B12"), ("A11 = A11 - A22", "A21 += A11"), ("B11 = B11 - B22", "B21 -= B22")],
}
"""What stands under each caret of the best repair, and what belongs there."""


def text_of(name: str) -> str:
    return (ERRATA / f"{name}.bl").read_text(encoding="utf-8")


def error_of(name: str) -> BilinearError:
    module = parse_source(Source(f"{name}.bl", text_of(name)))
    if module.schemes:
        return explained(prove_scheme(module.schemes[0]), module.schemes[0])
    schedule, scheme = mark_first_writes(module.schedules[0]), load("strassen").scheme
    return explained(prove_schedule(schedule, scheme), scheme, schedule)


def explanation_of(name: str) -> Explanation:
    module = parse_source(Source(f"{name}.bl", text_of(name)))
    if module.schemes:
        return explain_scheme(module.schemes[0], prove_scheme(module.schemes[0]))
    schedule, scheme = mark_first_writes(module.schedules[0]), load("strassen").scheme
    return explain_schedule(schedule, scheme, prove_schedule(schedule, scheme))


@pytest.mark.slow
def test_the_diagnosis_of_each_misprint_is_the_pinned_one(update_golden: bool) -> None:
    found = "\n\n".join(f"== {path.stem}\n{error_of(path.stem).diagnostics[0]}" for path in sorted(ERRATA.glob("*.bl"))) + "\n"
    if update_golden:
        GOLDEN.write_text(found, encoding="utf-8")
    assert found == GOLDEN.read_text(encoding="utf-8")


def test_every_misprint_is_tested_and_cites_its_source() -> None:
    assert {path.stem for path in ERRATA.glob("*.bl")} == {*SCHEMES, "krishnan-msmes"}
    for path in ERRATA.glob("*.bl"):
        module = parse_source(Source(path.name, path.read_text(encoding="utf-8")))
        assert all([*(scheme.citation for scheme in module.schemes), *(schedule.citation for schedule in module.schedules)])


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", sorted(EDITS))
def test_the_smallest_repair_is_unique_and_stands_where_the_misprint_is(name: str) -> None:
    explanation = explanation_of(name)
    assert explanation.count == 1
    assert len(explanation.repairs[0].edits) == len(EDITS[name])
    text = text_of(name)
    for (start, end, new), edit, (written, meant) in zip(
        explanation.repairs[0].patches, explanation.repairs[0].edits, EDITS[name], strict=True
    ):
        assert edit.span is not None
        assert edit.span.text == written
        assert text[: edit.span.start] + meant + text[edit.span.end :] == text[:start] + new + text[end:]


@pytest.mark.parametrize("name", [name for name in SCHEMES if name in EDITS])
def test_the_repaired_scheme_is_proved_and_computes_the_product(name: str) -> None:
    repaired = parse_source(Source("repaired.bl", patched(text_of(name), explanation_of(name).repairs[0].patches))).schemes[0]
    assert prove_scheme(repaired).holds
    assert scheme_computes(repaired)


def test_the_exchanged_outputs_of_the_lecture_are_recognised() -> None:
    explanation = explanation_of("zachmann-strassen")
    (confusion,) = explanation.confusions
    assert confusion.text == "C12 and C21 are exchanged; C comes out transposed"
    assert prove_scheme(confusion.meant).holds
    text = text_of("zachmann-strassen").replace("C12 =", "C?? =").replace("C21 =", "C12 =").replace("C?? =", "C21 =")
    assert scheme_computes(parse_source(Source("repaired.bl", text)).schemes[0])


MENDED = {
    "stage 4": [("    B11 = B12 + B11\n", "    B12 = B12 + B11\n")],
    "stage 7": [("    A11 = A11 - A22\n    B11 = B11 - B22\n  }\n", "    A21 = A21 + A11\n    B21 = B21 - B22\n  }\n")],
}


def corrected(text: str, *stages: str) -> str:
    """The thesis's schedule with some of its stages as they were meant."""
    for old, new in (pair for stage in stages for pair in MENDED[stage]):
        start = text.rindex(old)
        text = text[:start] + new + text[start + len(old) :]
    return text


@pytest.mark.parametrize(
    ("right", "told"),
    [
        ("stage 7", ["writing B12 for B11 in B11 = B12 + B11 in stage 4 (line 24, column 5)"]),
        (
            "stage 4",
            [
                "writing A21 += A11 for A11 = A11 - A22 in stage 7 (line 40, column 5) "
                "and writing B21 -= B22 for B11 = B11 - B22 in stage 7 (line 41, column 5)"
            ],
        ),
    ],
)
def test_each_stage_of_the_thesis_is_mended_where_the_other_is_right(right: str, told: list[str]) -> None:
    scheme = load("strassen").scheme
    schedule = mark_first_writes(parse_source(Source("msmes.bl", corrected(text_of("krishnan-msmes"), right))).schedules[0])
    explanation = explain_schedule(schedule, scheme, prove_schedule(schedule, scheme))
    assert [str(repair) for repair in explanation.repairs] == told


@pytest.mark.sample(1)
@pytest.mark.parametrize("by", ["search", "hand"])
def test_the_repaired_schedule_is_proved_and_computes_the_product(by: str) -> None:
    text = text_of("krishnan-msmes")
    mended = patched(text, explanation_of("krishnan-msmes").repairs[0].patches) if by == "search" else corrected(text, "stage 4", "stage 7")
    schedule = mark_first_writes(parse_source(Source("repaired.bl", mended)).schedules[0])
    proof = prove_schedule(schedule, load("strassen").scheme)
    assert proof.holds
    assert proof.restored == ("A", "B")
    assert isinstance(schedule, Schedule) and computes(schedule)


LARGE = ("dps_444", "moosbauer_poole_555")  # Schemes in equations with some 180 named sums.


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


@pytest.mark.slow
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


@pytest.mark.sample(1)
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


@pytest.mark.slow
def test_two_misprints_in_different_rows_leave_no_place_for_one() -> None:
    correct = load("dps_444").scheme
    generator = random.Random(2)
    wrong, _ = changed(correct, "u", 3, generator)
    wrong, _ = changed(wrong, "v", 11, generator)
    found = find_focus(wrong)
    assert found is not None and found.in_doubt == 0
    assert "no single edit repairs it" in explain_scheme(wrong, prove_scheme(wrong)).facts


@pytest.mark.slow
def test_a_wrong_number_is_replaced_by_another_of_the_scheme() -> None:
    text = print_scheme(load("dps_444").scheme)
    for old, new in (("S47 = 2 S21", "S47 = 3 S21"), ("2 S22", "1/2 S22")):
        assert text.count(old) == 1
        wrong = text.replace(old, new)
        read = scheme_of(wrong)
        (repair,) = explain_scheme(read, prove_scheme(read)).repairs
        assert patched(wrong, repair.patches) == text


@pytest.mark.slow
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


@pytest.mark.slow
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
