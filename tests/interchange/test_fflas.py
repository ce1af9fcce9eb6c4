"""The schedules of fflas-ffpack's comments: seven are decided, four have gaps, which are named."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

import pytest
from each_case import each
from schedule_oracle import computes_in_every_order, computes_interleaved
from trace_oracle import leaves_no_trace, lost_everywhere

from bilinear.errors import BilinearError
from bilinear.frontend import load, parse_source
from bilinear.frontend.printer import print_schedule
from bilinear.interchange.fflas import ForeignSchedule, read_fflas
from bilinear.source import Source
from bilinear.verify.facts import LINEAR, LOST, RESTORED
from bilinear.verify.schedule import ScheduleProof, prove_schedule

FOLDER = Path(os.environ.get("BILINEAR_SCHEMES", Path(__file__).parents[2].parent / "shared" / "schemes"))
FILE = FOLDER / "fflas-ffpack" / "schedules.txt"
needs_file = pytest.mark.skipif(not FILE.exists(), reason="the published schedules are not here (see BILINEAR_SCHEMES)")

SQUARE = "square problems only: M = K = N"
COMPLETE = {
    "Winograd_LR_S": ("C = A*B", (LOST, ("A11 += X ; A12 -= X",)), (LINEAR, ()), SQUARE),
    "Winograd_L_S": ("C = A*B", (LOST, ("A11 += X", "A21 += X")), (RESTORED, ()), SQUARE),
    "Winograd_R_S": ("C = A*B", (RESTORED, ()), (LOST, ("B11 += X", "B12 += X")), SQUARE),
    "WinogradAcc_LR": ("C = alpha*A*B + beta*C", (LOST, ("A21 += X ; A22 -= X",)), (LINEAR, ()), ""),
    "WinogradAcc_R_S": ("C = alpha*A*B + beta*C", (RESTORED, ()), (LOST, ("B21 += X",)), "only problems with M = K"),
    "WinogradAcc_L_S": ("C = alpha*A*B + beta*C", (LOST, ("A11 += X ; A21 += X",)), (RESTORED, ()), "only problems with K = N"),
    "Winograd": ("C = alpha*A*B", (RESTORED, ()), (RESTORED, ()), ""),
}
"""Result, what becomes of A and of B (the verdict, and the changes that leave no trace at any input), and which problems fit."""
TRACED = {
    "Winograd_LR_S": ("A11 += X ; A21 += X", "A11 += X ; A22 += X", "A12 += X"),
    "Winograd_L_S": ("A11 += X ; A12 -= X", "A12 += X"),
    "WinogradAcc_L_S": ("A11 += X ; A12 -= X", "A11 += X"),
}
"""Changes that leave no trace at special inputs alone, or at none."""
GAPS = {
    "WinogradAcc_3_23": [
        "P7, computed in line 122, is used nowhere",
        "P6, computed in line 142, is used nowhere",
        "U3 is used in line 166, but no step computes it",
        "U2 is used in line 169, but no step computes it",
        "U3 is used in line 174, but no step computes it",
        "P3, computed in line 179, is used nowhere",
    ],
    "WinogradAcc_3_21": ["P5, computed in line 267, is used nowhere"],
    "WinogradAcc_2_24": ["T2_ is used in line 505, but no step computes it"],
    "WinogradAcc_2_27": ["T2_ is used in line 626, but no step computes it"],
}


@lru_cache(maxsize=1)
def published() -> dict[str, ForeignSchedule]:
    return {f.schedule.name: f for f in read_fflas(Source("schedules.txt", FILE.read_text(encoding="utf-8")))}


def proof_of(foreign: ForeignSchedule) -> ScheduleProof:
    return prove_schedule(foreign.schedule, load("winograd").scheme)


@needs_file
def test_all_are_read() -> None:
    assert set(published()) == {*COMPLETE, *GAPS}


@needs_file
@each("name", COMPLETE)
def test_complete_schedules_are_decided(name: str) -> None:
    foreign = published()[name]
    result, a, b, shapes = COMPLETE[name]
    assert not foreign.gaps
    proof = proof_of(foreign)
    proof.require()
    assert not proof.direct
    assert str(foreign.schedule.result) == result
    assert [(fate.verdict, fate.confused) for fate in proof.fates] == [a, b]
    assert proof.shapes is not None and proof.shapes.statement == shapes
    assert computes_in_every_order(foreign.schedule)
    names = [product for stage in proof.stages for product in stage.products]
    assert sorted(names) == [f"M{i}" for i in range(1, 8)]
    assert parse_source(Source("x.bl", print_schedule(foreign.schedule))).schedules == (foreign.schedule,)


@needs_file
@each("name", COMPLETE)
def test_what_is_lost_leaves_no_trace_at_random_inputs(name: str) -> None:
    schedule = published()[name].schedule
    for fate in proof_of(published()[name]).fates:
        assert fate.lost_dimensions == len(fate.confused) == lost_everywhere(schedule, fate.operand)
        assert all(leaves_no_trace(schedule, change) for change in fate.confused)
    assert not any(leaves_no_trace(schedule, change) for change in TRACED.get(name, ()))


@needs_file
def test_the_one_without_temporaries_recurses_in_place() -> None:
    recursive = [name for name in COMPLETE if proof_of(published()[name]).recursive]
    assert recursive == ["Winograd_LR_S"]
    assert computes_interleaved(published()["Winograd_LR_S"].schedule)


@needs_file
@pytest.mark.parametrize("name", GAPS)
def test_gaps_are_named(name: str) -> None:
    foreign = published()[name]
    assert [gap.message for gap in foreign.gaps] == [f"{name}: {text}" for text in GAPS[name]]
    assert not proof_of(foreign).holds
    assert not computes_in_every_order(foreign.schedule)
    assert {gap.code for gap in foreign.gaps} == {"E262"}


@needs_file
def test_the_proof_names_what_is_missing_too() -> None:
    missing = {name: [d.message for d in proof_of(published()[name]).failures if d.code == "E405"] for name in GAPS}
    assert missing == {
        "WinogradAcc_3_23": [f"{v} is read before anything is written to it" for v in ("U3", "U2")],
        "WinogradAcc_3_21": [],
        "WinogradAcc_2_24": ["T2_ is read before anything is written to it"],
        "WinogradAcc_2_27": ["T2_ is read before anything is written to it"],
    }
    (first, _) = [d for d in proof_of(published()["WinogradAcc_3_21"]).failures if d.code == "E406"]
    assert "nothing reads what the step at schedules.txt:" in first.notes[1]


def read(text: str) -> ForeignSchedule:
    (foreign,) = read_fflas(Source("x.txt", f"[f.inl :: s]\n{text}"))
    return foreign


def test_a_value_that_was_overwritten_is_a_gap() -> None:
    (unused, gap) = read("10: S = A11 + A12 -> X\n11: T = A21 - A22 -> X\n12: P = S B11 -> C11\n").gaps
    assert unused.message == "s: T, computed in line 11, is used nowhere"
    assert str(gap) == (
        "x.txt:4:1: error[E262]: s: S is used in line 12, but is no longer there\n"
        "  4 | 12: P = S B11 -> C11\n"
        "    | ^^^^^^^^^^^^^^^^^^^^ overwritten\n"
        "  note: line 11 puts T into X\n"
        "  hint: the source does something here that its comments leave out"
    )


def test_an_original_block_that_was_overwritten_is_a_gap() -> None:
    foreign = read("10: S = A11 + A12 -> A11\n11: P = A11 B11 -> C11\n12: Q = S B11 -> C12\n")
    (gap,) = foreign.gaps
    assert (gap.message, gap.notes) == ("s: A11 is used in line 11, but is no longer there", ("line 10 puts S into A11",))
    assert any(d.message.startswith("A11_original is read before") for d in prove_schedule(foreign.schedule).failures)


@each(
    ("text", "message"),
    [
        ("10: S = A11 + A12", "this is not a step"),
        ("S = A11 -> X", "this is not a step"),
        ("10: S = A11 ! A12 -> X", "'! A12' cannot be read"),
        ("10: S = A11 + -> X", "a term is missing"),
        ("10: S = A11 B11 + A12 B21 -> X", "a step with more than one product"),
        ("10: S = A11 B11 B12 -> X", "a step with more than one product"),
        ("10: S = A11 -> X\n11: T = A12 -> S", "S is the name of a value"),
    ],
)
def test_malformed_lines(text: str, message: str) -> None:
    with pytest.raises(BilinearError, match="E261") as caught:
        read(text)
    assert message in caught.value.diagnostics[0].message


def test_a_step_before_a_header() -> None:
    with pytest.raises(BilinearError, match=r"E261.*before the first"):
        read_fflas(Source("x.txt", "10: S = A11 -> X\n"))


def test_scalars_signs_and_twofold_definitions() -> None:
    foreign = read("1: P = a A11 B11 - b C11 -> C11\n2: U = Q + P = -alpha . A12 * B21 + P -> C11\n")
    assert foreign.gaps == ()
    assert str(foreign.schedule.result) == "C = alpha*A*B + beta*C"
    assert print_schedule(foreign.schedule).splitlines()[1:] == [
        "  stage { C11 = [alpha] A11 * B11 - [beta] C11 }",
        "  stage { C11 -= [alpha] A12 * B21 }",
    ]
