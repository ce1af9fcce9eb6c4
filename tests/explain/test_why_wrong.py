"""Misprints planted in texts are found again: every repair is applied to the text, which is read again and tried on matrices."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from time import process_time

import numpy as np
import pytest
from each_case import each
from oracle import computes, scheme_computes

from bilinear.errors import BilinearError
from bilinear.explain.repair import scheme as scheme_repairs
from bilinear.explain.repair.edits import PRIME, Array, patched
from bilinear.explain.repair.schedule import search_schedule_repairs
from bilinear.explain.repair.scheme import Join, Pool, RandomPoint, Side, solve_tables
from bilinear.explain.why_wrong import Explanation, Repair, explain_schedule, explain_scheme, explained
from bilinear.frontend import load, parse_source
from bilinear.ir.linear import Form, LinearMap, form
from bilinear.ir.ring import Ring
from bilinear.ir.schedule import Schedule
from bilinear.ir.scheme import Scheme
from bilinear.passes.order_products import mark_first_writes
from bilinear.source import Source
from bilinear.verify.schedule import prove_schedule, schedule_holds
from bilinear.verify.scheme import prove_scheme

ALGORITHMS = Path(__file__).parents[2] / "algorithms"


def repaired_text(repair: Repair, text: str) -> str:
    return patched(text, repair.patches)


def text_of(name: str) -> str:
    return (ALGORITHMS / f"{name}.bl").read_text()


def scheme_of(text: str) -> Scheme:
    return parse_source(Source("misprint.bl", text)).schemes[0]


def explanation_of(scheme: Scheme) -> Explanation:
    return explain_scheme(scheme, prove_scheme(scheme))


def misprinted_tables(text: str) -> Iterator[str]:
    """A table with the sign of a coefficient turned, or the coefficient in the cell beside its own."""
    for row in re.finditer(r"^ +\w+:(.*)$", text, re.MULTILINE):
        for cell in re.finditer(r"(?<![\d-])-?1\b", row[1]):
            start, end = row.start(1) + cell.start(), row.start(1) + cell.end()
            turned = "1" if cell[0] == "-1" else "-1"
            yield text[:start] + turned + text[end:]
            after = re.match(r"[ ]+0", text[end:])
            if after is not None:
                yield text[:start] + "0 " + cell[0] + text[end + after.end() :]


def misprinted_equations(text: str) -> Iterator[str]:
    """Equations with a sign turned, or with another name of the same kind for one that is read."""
    body = text.index("\n", text.index("source"))
    for sign in re.finditer(r"[+-]", text[body:]):
        place = body + sign.start()
        yield text[:place] + ("-" if sign[0] == "+" else "+") + text[place + 1 :]
    for name in re.finditer(r"(?<=[=+*-] )[ABMSTU]\d+", text[body:]):
        start, end = body + name.start(), body + name.end()
        for other in sorted(set(re.findall(rf"\b{name[0][0]}\d{{{len(name[0]) - 1}}}\b", text[body:]))):
            if other != name[0]:
                yield text[:start] + other + text[end:]


def wrong_schemes(texts: Iterator[str]) -> Iterator[tuple[str, Scheme]]:
    """The misprints that can be read and do not multiply."""
    for text in texts:
        try:
            scheme = scheme_of(text)
        except BilinearError:  # such as a name that is used before it is defined
            continue
        if not prove_scheme(scheme).holds:
            yield text, scheme


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("strassen", 50), ("winograd", 100)])
def test_every_single_misprint_has_a_repair_of_one_edit_that_computes_the_product(name: str, least: int) -> None:
    misprints = misprinted_tables(text_of(name)) if name == "strassen" else misprinted_equations(text_of(name))
    original, tried = scheme_of(text_of(name)), 0
    for text, scheme in wrong_schemes(misprints):
        explanation = explanation_of(scheme)
        assert explanation.count >= len(explanation.repairs) > 0
        for repair in explanation.repairs:
            assert len(repair.edits) == 1
            repaired = scheme_of(repaired_text(repair, text))
            assert prove_scheme(repaired).holds
            assert scheme_computes(repaired)
        if explanation.count == 1:
            assert scheme_of(repaired_text(explanation.repairs[0], text)).tables == original.tables
        tried += 1
    assert tried >= least


@pytest.mark.sample(2)
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("name", ["strassen", "winograd", "laderman"])
def test_several_misprints_are_mended_together(name: str, count: int) -> None:
    generator = random.Random(count)
    misprint = misprinted_equations if name == "winograd" else misprinted_tables
    for _ in range(2):
        text = text_of(name)
        for _ in range(count):
            texts = list(misprint(text))
            text = next(t for t in generator.sample(texts, len(texts)) if _is_read(t))
        scheme = scheme_of(text)
        if prove_scheme(scheme).holds:
            continue
        explanation = explanation_of(scheme)
        assert explanation.repairs or explanation.confusions
        for repair in explanation.repairs:
            assert len(repair.edits) <= count
            assert scheme_computes(scheme_of(repaired_text(repair, text)))


def _is_read(text: str) -> bool:
    try:
        scheme_of(text)
    except BilinearError:
        return False
    return True


TERMS = """scheme terms <2,2,2;7>
  M1 = (A11 + A22) * (B11 + B22)
  M2 = (A21 + A22) * B11
  M3 = A11 * (B12 - B22)
  M4 = A22 * (B21 - B11)
  M5 = (A11 + A12) * B22
  M6 = (A21 - A11) * (B11 + B12)
  M7 = (A12 - A22) * (B21 + B22)
  C11 = M1 + M4 - M5 + M7
  C12 = M3 + M5
  C21 = M2 + M4
  C22 = M1 - M2 + M3 + M6
"""


@each(
    ("right", "wrong", "told"),
    [
        ("B12 - B22", "B12 + B22", "writing -B22 for +B22 in M3 (line 4, column 19)"),
        ("(A21 + A22) * B11", "(A21 + A12) * B11", "writing A22 for A12 in M2 (line 3, column 15)"),
        ("(A21 + A22) * B11", "A21 * B11", "adding +A22 to M2 (line 3, column 8)"),
        ("(A21 + A22) * B11", "(A21) * B11", "adding +A22 to M2 (line 3, column 8)"),
        ("= M3 + M5", "= M5", "adding +M3 to C12 (line 10, column 9)"),
        ("= M3 + M5", "= M3 - M6 + M5", "leaving out -M6 in C12 (line 10, column 12)"),
        ("= M3 + M5", "= M3 + # not - here\n    M5 + M6", "leaving out +M6 in C12 (line 11, column 8)"),
        ("= M3 + M5", "= 2 M3 + M5", "writing M3 for 2 M3 in C12 (line 10, column 9)"),
        ("= M3 + M5", "= M3 + 1/2*M5", "writing M5 for 1/2*M5 in C12 (line 10, column 14)"),
        ("(B21 - B11)", "(1/2 B21 - 1/2 B11)", ""),
    ],
)
def test_each_kind_of_edit_is_told_and_mends_the_text(right: str, wrong: str, told: str) -> None:
    text = TERMS.replace(right, wrong)
    explanation = explanation_of(scheme_of(text))
    assert repaired_text(explanation.repairs[0], text) != text
    assert scheme_computes(scheme_of(repaired_text(explanation.repairs[0], text)))
    assert told in str(explanation.repairs[0])


def test_two_misprints_of_one_product_are_mended_together() -> None:
    text = TERMS.replace("(A21 + A22) * B11", "(A21 - A22) * B12")
    explanation = explanation_of(scheme_of(text))
    assert [str(r) for r in explanation.repairs] == [
        "writing +A22 for -A22 in M2 (line 3, column 13) and writing B11 for B12 in M2 (line 3, column 22)"
    ]
    assert scheme_computes(scheme_of(repaired_text(explanation.repairs[0], text)))


@pytest.mark.parametrize("touched", [1, 4])
def test_joined_sides_are_all_combinations_that_give_the_target(touched: int) -> None:
    generator = np.random.default_rng(touched)
    written = generator.integers(0, PRIME, (3, 5))
    sides = []
    for number, count in enumerate((2, 9, 11)):
        values = np.repeat(written[number][None], count, axis=0)
        for row in values[1:]:
            row[generator.choice(5, touched, replace=False)] = generator.integers(0, 3, touched)
        sides.append(Side("u", np.arange(count), values, written[number]))
    sums = {
        (i, j, k): int(sum(int(a) * int(b) * int(c) for a, b, c in zip(x, y, z, strict=True))) % PRIME
        for (i, x), (j, y), (k, z) in product(*(enumerate(side.values) for side in sides))
    }
    for target in set(sums.values()):
        assert set(Join(sides, target).hits()) == {place for place, value in sums.items() if value == target}


def test_an_edit_of_a_shared_sum_acts_on_all_its_users() -> None:
    text = text_of("winograd").replace("S1 = A21 + A22", "S1 = A21 - A22")
    explanation = explanation_of(scheme_of(text))
    assert [str(r) for r in explanation.repairs] == ["writing +A22 for -A22 in S1 (line 4, column 12)"]
    assert explanation.span is not None
    assert explanation.span.text == "- A22"


def test_a_product_inside_of_a_sum_is_mended_where_it_stands() -> None:
    text = text_of("naive2x2").replace("A12*B21", "A12*B22")
    explanation = explanation_of(scheme_of(text))
    assert [str(r) for r in explanation.repairs] == ["writing B21 for B22 in M2 (line 3, column 23)"]
    assert scheme_computes(scheme_of(repaired_text(explanation.repairs[0], text)))


def test_the_solved_table_names_the_wrong_output() -> None:
    explanation = explanation_of(scheme_of(TERMS.replace("M1 - M2 + M3 + M6", "M1 - M4 + M3 + M6")))
    assert "with C22 = M1 - M2 + M3 + M6 the scheme is correct" in explanation.facts
    assert [group.points_at for group in explanation.groups] == ["C22"]


def test_the_solved_table_names_the_wrong_factor_and_the_outputs_that_it_spoils() -> None:
    explanation = explanation_of(scheme_of(TERMS.replace("(A21 - A11)", "(A21 + A12)")))
    assert "with -A11 + A21 as the left factor of M6 the scheme is correct" in explanation.facts
    assert "no sum of these products gives C22" in explanation.facts
    assert [group.points_at for group in explanation.groups] == ["the left factor of M6"]


def test_a_table_is_solved_exactly_where_it_alone_is_wrong() -> None:
    scheme = load("laderman").scheme
    rows = list(scheme.v.outputs)
    rows[4], rows[9] = form({0: 1}), form({2: -1, 8: 3})
    wrong = replace(scheme, v=LinearMap(9, tuple(rows)))
    solutions = solve_tables(wrong)
    assert [table for table, s in solutions.items() if s.mends] == ["v"]
    assert dict(solutions["v"].rows) == {4: scheme.v.outputs[4], 9: scheme.v.outputs[9]}


def rewritten(scheme: Scheme, **tables: tuple[Form, ...]) -> Scheme:
    """A scheme with other tables, without a text."""
    maps = {name: LinearMap(getattr(scheme, name).inputs, rows) for name, rows in tables.items()}
    u, v, w = (maps.get(name, getattr(scheme, name)) for name in ("u", "v", "w"))
    return replace(scheme, places=None, u=u, v=v, w=w)


def by_column(row: Form, rows: int, columns: int) -> Form:
    return form((i % columns * rows + i // columns, c) for i, c in row)


def test_a_transposed_result_is_recognised() -> None:
    scheme = load("laderman").scheme
    wrong = rewritten(scheme, w=tuple(scheme.tables[2][i % 3 * 3 + i // 3] for i in range(9)))
    assert explanation_of(wrong).notes[-1] == "C comes out transposed"


def test_exchanged_operands_are_recognised() -> None:
    scheme = load("laderman").scheme
    wrong = rewritten(scheme, u=scheme.tables[1], v=scheme.tables[0])
    assert explanation_of(wrong).notes[-1] == "A and B are exchanged"


@pytest.mark.parametrize("name", ["hopcroft_kerr", "winograd"])
def test_blocks_numbered_column_by_column_are_recognised(name: str) -> None:
    scheme = load(name).scheme
    wrong = rewritten(scheme, v=tuple(by_column(row, scheme.k, scheme.n) for row in scheme.tables[1]))
    assert "the blocks of B are numbered column by column" in explanation_of(wrong).notes
    both = rewritten(wrong, u=tuple(by_column(row, scheme.m, scheme.k) for row in scheme.tables[0]))
    assert "the blocks of A and B are numbered column by column" in explanation_of(both).notes


def test_permuted_outputs_are_recognised() -> None:
    scheme = load("hopcroft_kerr").scheme
    w = scheme.tables[2]
    explanation = explanation_of(rewritten(scheme, w=(w[1], w[2], w[0], *w[3:])))
    assert explanation.notes[-1].startswith("the outputs are permuted: what is written as C11 is C12, what is written as C12 is C")
    assert prove_scheme(explanation.confusions[0].meant).holds


def test_schemes_without_a_text_are_explained_by_names() -> None:
    scheme = load("strassen").scheme
    rows = list(scheme.w.outputs)
    rows[1] = form({2: 1, 3: 1})
    explanation = explanation_of(rewritten(scheme, w=tuple(rows)))
    assert [str(r) for r in explanation.repairs] == ["writing M5 for M4 in C12"]
    assert explanation.span is None


def test_a_scheme_over_a_finite_ring_is_mended_over_it() -> None:
    text = TERMS.replace("<2,2,2;7>", "<2,2,2;7> over Z/2").replace("(A12 - A22)", "(A12 - A21)").replace("- M5", "+ M5")
    scheme = scheme_of(text)
    assert scheme.ring == Ring("Z/2")
    explanation = explanation_of(scheme)
    assert [str(r) for r in explanation.repairs] == ["writing A22 for A21 in M7 (line 8, column 15)"]
    assert prove_scheme(scheme_of(repaired_text(explanation.repairs[0], text))).holds


TABLE = """scheme table <2,2,2;7> over RING
  M1: 1 0 0 1 |  1 0 0 1 |  1 0 0 1
  M2: 0 0 1 1 |  1 0 0 0 |  0 0 1 -1
  M3: X 0 0 0 |  0 Y 0 Z |  0 1 0 1
  M4: 0 0 0 1 | -1 0 1 0 |  1 0 1 0
  M5: 1 1 0 0 |  0 0 0 1 | -1 1 0 0
  M6:-1 0 1 0 |  1 1 0 0 |  0 0 0 1
  M7: 0 1 0 -1 | 0 0 1 1 |  1 0 0 0
"""


@each(
    ("ring", "x", "y", "right", "wrong"),
    [
        ("Q[sqrt(3)]", "sqrt(3)", "sqrt(3)/3", "-sqrt(3)/3", "sqrt(3)/3"),
        ("Q[i]", "i", "-i", "i", "-i"),
        ("Q[lambda]", "lambda", "lambda^-1", "-lambda^-1", "lambda^-1"),
        ("Z/7", "2", "4", "3", "-3"),
        ("Z/1000000007", "2", "500000004", "-500000004", "500000004"),
        ("Q", "3", "1/3", "-1/3", "1/3"),
    ],
)
def test_a_wrong_sign_is_found_over_every_ring(ring: str, x: str, y: str, right: str, wrong: str) -> None:
    text = TABLE.replace("RING", ring).replace("X", x).replace("Y", y)
    assert prove_scheme(scheme_of(text.replace("Z |", f"{right} |"))).holds
    explanation = explanation_of(scheme_of(text.replace("Z |", f"{wrong} |")))
    assert f"writing {right} for {wrong} in row M3, column B22" in [repair.edits[0].text for repair in explanation.repairs]
    repaired = scheme_of(repaired_text(explanation.repairs[0], text.replace("Z |", f"{wrong} |")))
    assert prove_scheme(repaired).holds


def test_where_nothing_mends_a_scheme_it_is_said_what_was_tried() -> None:
    text = text_of("naive2x2").replace("A11*B11 + A12*B21", "A11*B12 + A11*B22").replace("A21*B11 + A22*B21", "A22*B12 + A22*B22")
    explanation = explanation_of(scheme_of(text))
    assert not explanation.repairs
    assert "no repair of up to" in explanation.notes[-1] or "no single edit" in explanation.notes[-1]


def misprinted_schedules(text: str) -> Iterator[str]:
    """A schedule with an operator or a sign turned, a block for another, or a step left out."""
    body = text.index("\n", text.index("source"))
    for sign in re.finditer(r"[+-](?==)|-(?=C)", text[body:]):
        turned = {"+": "-", "-": "+"}[sign[0]] if text[body + sign.end()] == "=" else ""
        yield text[: body + sign.start()] + turned + text[body + sign.end() :]
    for block in re.finditer(r"[ABC][12][12]", text[body:]):
        for other in (f"{block[0][0]}{i}{j}" for i in "12" for j in "12"):
            if other != block[0]:
                yield text[: body + block.start()] + other + text[body + block.end() :]
    for step in re.finditer(r"(?<=\{) [^;}]+;|; [^;}]+(?=\})", text[body:]):
        yield text[: body + step.start()] + text[body + step.end() :]


@pytest.mark.slow
def test_misprints_of_a_schedule_have_repairs_that_compute_the_product() -> None:
    scheme, sample = load("msmes").scheme, random.Random(2)
    texts = list(misprinted_schedules(text_of("msmes")))
    mended = 0
    for text in sample.sample(texts, 30):
        schedule = mark_first_writes(parse_source(Source("misprint.bl", text)).schedules[0])
        proof = prove_schedule(schedule, scheme)
        if proof.holds:
            continue
        explanation = explain_schedule(schedule, scheme, proof)
        assert explanation.repairs, text
        for repair in explanation.repairs:
            assert len(repair.edits) == 1
            repaired = parse_source(Source("misprint.bl", repaired_text(repair, text))).schedules[0]
            assert isinstance(repaired, Schedule) and computes(mark_first_writes(repaired))
            assert prove_schedule(mark_first_writes(repaired), scheme).holds
        mended += 1
    assert mended > 20


CROWDED = """schedule x of naive2x2: in-place
  stage { C11 += A11 * B11 ; C12 += A11 * B12 }
  stage { C11 += A12 * B21 ; C12 += A12 * B22 }
  stage { C21 += A21 * B11 ; C22 += A21 * B12 }
  stage { C21 += A22 * B21 ; C22 += A22 * B22 }
  stage { A11 += A12 ; A21 -= A22 }
  stage { B11 += B12 ; B21 -= B22 }
  stage { A11 += A22 }
"""
"""Right numbers, and an order that no few edits make safe: half a million combinations give the right numbers again."""


@pytest.mark.slow
def test_a_search_that_is_ended_says_how_far_it_came() -> None:
    scheme, schedule = load("naive2x2").scheme, mark_first_writes(parse_source(Source("x.bl", CROWDED)).schedules[0])
    begun = process_time()
    explanation = explain_schedule(schedule, scheme, prove_schedule(schedule, scheme))
    assert process_time() - begun < 30
    assert explanation.facts == ("no single edit repairs it, nor one among the first 16726 combinations of edits that were tried",)
    assert explanation.repairs == ()


@pytest.mark.parametrize("work", [0, 1, 10_000, 1_000_000])
def test_a_search_does_no_more_work_than_it_may(work: int) -> None:
    scheme, schedule = load("naive2x2").scheme, mark_first_writes(parse_source(Source("x.bl", CROWDED)).schedules[0])
    search = search_schedule_repairs(schedule, scheme, work)
    assert (search.repairs, search.complete) == ((), 0)
    assert 0 <= search.looked <= work


def test_the_short_decision_on_a_schedule_is_that_of_its_proof() -> None:
    scheme = load("msmes").scheme
    texts = [*random.Random(3).sample(list(misprinted_schedules(text_of("msmes"))), 30), text_of("msmes"), CROWDED]
    schedules = [mark_first_writes(parse_source(Source("x.bl", text)).schedules[0]) for text in texts]
    verdicts = {schedule_holds(schedule, scheme) for schedule in schedules}
    assert verdicts == {True, False}
    assert all(schedule_holds(schedule, scheme) == prove_schedule(schedule, scheme).holds for schedule in schedules)


def test_a_proof_that_holds_has_nothing_to_explain() -> None:
    scheme = load("strassen").scheme
    with pytest.raises(ValueError, match="nothing to explain"):
        explained(prove_scheme(scheme), scheme)


def test_repairs_that_do_equally_well_are_shown_at_their_places() -> None:
    """In C12 = ... + S4*B22 a sign may be wrong before the product, or before its factor."""
    text = text_of("winograd").replace("C12 = U3 + M3", "C12 = U3 - M3")
    (scheme,) = parse_source(Source("w.bl", text)).schemes
    (diagnostic,) = explained(prove_scheme(scheme), scheme).diagnostics
    lines = str(diagnostic).splitlines()
    numbered = [number for number, line in enumerate(text.splitlines(), 1) if line.startswith(("  M3 =", "  C12 ="))]
    assert [span.line for span, _ in diagnostic.others] == numbered[1:] and numbered[0] == diagnostic.span.line  # type: ignore[union-attr]
    assert lines[1:5] == [
        f"  {numbered[0]:>2} |   M3 = S4 * B22",
        "     |        ^^ write -S4",
        f"  {numbered[1]:>2} |   C12 = U3 - M3",
        "     |            ^^^^ or write +M3",
    ]
    assert diagnostic.to_json()["others"] == [{"line": numbered[1], "column": 12, "label": "or write +M3"}]


def test_what_a_search_without_a_repair_computes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted are the values of blocks and products, and the combinations multiplied out: seconds depend on the machine."""
    computed, plain = 0, scheme_repairs.values_of

    def values_of(table: str, pool: Pool, point: RandomPoint, sets: Array) -> Array:
        nonlocal computed
        computed += len(sets) * (pool.linear.inputs + len(pool.linear.steps) + len(pool.linear.outputs))
        return plain(table, pool, point, sets)

    monkeypatch.setattr(scheme_repairs, "values_of", values_of)
    scheme = load("hopcroft_kerr").scheme

    def wrong(linear: LinearMap) -> LinearMap:
        return LinearMap(linear.inputs, (form([(0, 1), (1, 1), *linear.matrix[0]]), *linear.matrix[1:]))

    scheme = replace(scheme, u=wrong(scheme.u), w=wrong(scheme.w), places=None)
    told = explain_scheme(scheme, prove_scheme(scheme))
    assert told.facts[-1] == "no repair of up to 2 edits was found" and 0 < computed < 8_000_000
