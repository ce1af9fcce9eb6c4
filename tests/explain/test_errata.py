"""The misprints of published documents, as examples/errata ships them: what is said of each is pinned, and the repaired text is proved."""

from __future__ import annotations

from pathlib import Path

import pytest
from oracle import computes, scheme_computes

from bilinear.errors import BilinearError
from bilinear.explain.repair.edits import patched
from bilinear.explain.why_wrong import Explanation, explain_schedule, explain_scheme, explained
from bilinear.frontend import load, parse_source
from bilinear.ir.schedule import Schedule
from bilinear.passes.order_products import mark_first_writes
from bilinear.source import Source
from bilinear.verify.schedule import prove_schedule
from bilinear.verify.scheme import prove_scheme

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


@pytest.mark.parametrize("by", ["search", "hand"])
def test_the_repaired_schedule_is_proved_and_computes_the_product(by: str) -> None:
    text = text_of("krishnan-msmes")
    mended = patched(text, explanation_of("krishnan-msmes").repairs[0].patches) if by == "search" else corrected(text, "stage 4", "stage 7")
    schedule = mark_first_writes(parse_source(Source("repaired.bl", mended)).schedules[0])
    proof = prove_schedule(schedule, load("strassen").scheme)
    assert proof.holds
    assert proof.restored == ("A", "B")
    assert isinstance(schedule, Schedule) and computes(schedule)
