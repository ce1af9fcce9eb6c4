"""The report: one object, and its views as text, JSON and Markdown."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from each_case import each
from reporting.reports import ALGORITHMS, alone, hostile, of_scheme, proved, refused_schedule, refused_scheme
from reporting.ring_schemes import approximate, in_rings, with_bases

from bilinear.analysis.accuracy import drift_bound, run_error_bound
from bilinear.frontend import load, parse_source
from bilinear.ir.element import ELEMENTS
from bilinear.ir.linear import LinearMap
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Product, ProductStage, Schedule, Space, Target
from bilinear.lowering.prepare import natural_inputs, prepare
from bilinear.reporting.examine import examine
from bilinear.reporting.facts import product_sums
from bilinear.reporting.report import Report, schedule_rows
from bilinear.source import Source

CHECKOUT = Path(__file__).parents[2]

KEYS: dict[str, list[str]] = {
    "": [
        *("format", "proved", "algorithm", "verdict", "scheme", "schedules", "lowered", "accuracy", "levels_for", "kernels", "findings"),
        *("known", "same_as", "accepted_by"),
    ],
    "scheme": [
        *("name", "format", "ring", "valid_over", "order", "degree", "citation", "equations", "failing", "complete", "additions"),
        *("scalings", "exponent", "growth", "bases", "subexpressions", "shared", "products", "tables", "sha256"),
    ],
    "scheme.tables": ["a", "b", "c", "products", "u", "v", "w"],
    "scheme.products": ["name", "left", "right", "targets"],
    "scheme.failing": ["left", "right", "output", "found", "needed"],
    "schedules": [
        *("name", "citation", "result", "in_place", "restores", "recursive", "why_not_recursive", "direct", "spaces", "stages", "fates"),
        *("costs", "shapes", "sha256", "written"),
    ],
    "schedules.spaces": ["name", "shape", "blocks", "columns"],
    "schedules.stages": ["number", "kind", "steps", "contended", "width", "products", "states", "holds", "moves"],
    "schedules.stages.products": ["name", "operands", "targets"],
    "schedules.stages.moves": ["text", "reads", "writes"],
    "schedules.stages.states": ["block", "kind", "value"],
    "schedules.fates": ["operand", "verdict", "restoring", "divisor", "lost_dimensions", "confused", "counterexample"],
    "schedules.costs": ["live_blocks", "chain", "widths", "groups", "passes"],
    "lowered": ["inputs", "levels", "launches", "products", "colours", "widths", "sums_traffic", "workspace", "contended", "sha256"],
    "accuracy": ["levels", "dtype", "inner", "growth", "deterministic", "probabilistic", "confidence", "drift"],
    "levels_for": ["accuracy", "dtype", "inner", "always", "likely", "confidence", "looked"],
    "findings": ["code", "message", "place", "excerpt", "notes", "hints"],
}


def first(value: Any, path: str) -> Any:
    """The first object under a path of keys, where lists stand for their items."""
    found = [value]
    for key in path.split(".") if path else []:
        found = [item for one in found for item in (one[key] if isinstance(one[key], list) else [one[key]])]
    return found[0] if found else None


@each("path", KEYS)
def test_keys_of_the_json_are_stable(path: str) -> None:
    reports = [json.loads(report.json()) for report in (proved("msmes"), refused_scheme(), refused_schedule())]
    found = [value for report in reports if (value := first(report, path)) is not None]
    assert found and [list(value) for value in found] == [KEYS[path]] * len(found)


@each("name", ALGORITHMS)
def test_every_view_of_every_algorithm(name: str) -> None:
    report = proved(name)
    assert str(report).startswith(f"{name}: proved\n") and report.markdown().startswith(f"# {name}: proved\n")
    assert json.loads(report.json())["verdict"] == "proved" and report.proved
    assert f"{report.scheme.equations} of {report.scheme.equations} hold" in str(report)


def test_text_of_an_in_place_schedule() -> None:
    lines = [line.split() for line in str(proved("msmes")).splitlines()]
    for told in (
        ["recursion", "safe", "in", "place", "at", "every", "level"],
        ["A", "afterwards", "restored"],
        ["holds", "over", "every", "ring"],
        ["products", "a", "stage", "4,", "3", "as", "written"],
        ["as", "it", "runs", "1", "level", "in", "7", "launches"],
        ["workspace", "nothing", "beyond", "A,", "B,", "C"],
        ["growth", "factor", "12", "a", "level"],
    ):
        assert told in lines
    assert ["A", "afterwards", "as", "it", "was:", "never", "written"] in [line.split() for line in str(proved("strassen")).splitlines()]


def test_a_scheme_alone_has_no_schedule() -> None:
    report = alone("laderman")
    assert report.proved and not (report.schedules or report.lowered or report.kernels)
    assert "schedule" not in str(report) and "## Stages" not in report.markdown()


def test_a_scheme_of_more_products_than_are_run_flat_is_proved_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bilinear.reporting.examine.MOST_PRODUCTS", 6)
    report = examine(load("strassen"), 1, "preserve")
    assert report.proved and not (report.schedules or report.lowered)
    assert examine(load("msmes"), 1, "restore").lowered


def test_a_refused_scheme_names_its_equations() -> None:
    report = refused_scheme()
    assert not report.proved and not json.loads(report.json())["proved"]
    assert {(e.left, e.right, e.output, e.found, e.needed) for e in report.scheme.failing} == {
        ("A11", "B11", "C22", "2", "0"),
        ("A11", "B12", "C22", "2", "0"),
    }
    assert "62 of 64 hold" in str(report)
    for view in (str(report), report.markdown()):
        assert "E301" in view and "refused" in view and "proved" not in view
    assert "  A11*B11 in C22: found 2, needed 0" in str(report)
    assert "| A11\\*B11 | C22 | 2 | 0 |" in report.markdown()


def test_a_refused_schedule_says_why_and_how_to_mend_it() -> None:
    report = refused_schedule()
    assert not report.proved and report.scheme.failing == ()
    (schedule,) = report.schedules
    assert [(fate.operand, fate.verdict, fate.restoring) for fate in schedule.fates] == [
        ("A", "linearly recoverable", ("A12 += 2 A22",)),
        ("B", "restored", ()),
    ]
    assert not schedule.recursive and "A21" in schedule.why_not_recursive
    text = str(report)
    assert f"not safe in place: {schedule.why_not_recursive}" in text
    assert "error[E407]" in text and "stages as they run:" in text and "A12 += 2 A22" in text


def test_products_that_blocks_hold_are_told_in_short() -> None:
    (schedule,) = proved("msmes").schedules
    assert dict(schedule.stages[0].holds) == {}
    assert dict(schedule.stages[1].holds) == {"C11": "M4 - M5", "C12": "M3 + M5", "C21": "M2 + M4", "C22": "-M2 + M3"}
    assert dict(schedule.stages[-1].holds) == {"C11": "M1 + M4 - M5 + M7", "C12": "M3 + M5", "C21": "M2 + M4", "C22": "M1 - M2 + M3 + M6"}
    (expanded,) = proved("strassen").schedules
    assert dict(expanded.stages[-1].holds)["C22"] == "M1 - M2 + M3 + M6"


def test_the_first_product_into_a_workspace_overwrites_it() -> None:
    a, b, x = Block("A", 0, 0), Block("B", 0, 0), Block("X", 0, 0)
    fill = LinearStage((BlockMap((Block("M", 0, 0),), (x,), LinearMap(1, (((0, 1),),))),))
    products = [ProductStage((Product(a, b, (Target(block, 1, kept),)),)) for block, kept in ((Block("M", 0, 0), 0), (x, 0), (x, 1))]
    spaces = (Space("M", "C", 1, 1), Space("X", "C", 1, 1))
    schedule = Schedule("reuse", "plain", 1, 1, 1, (products[0], fill, *products[1:]), spaces)
    told = product_sums(schedule, [["P1"], [], ["P2"], ["P3"]], implied=True)
    assert [after.get("X11") for after in told] == [None, "P1", "P2", "P2 + P3"]


@pytest.mark.parametrize(("head", "scale", "told"), [("A*B", "", ", written as C = A*B"), ("alpha*A*B", "[alpha] ", "")])
def test_a_result_is_told_as_it_is_proved_and_as_it_is_written(head: str, scale: str, told: str) -> None:
    """It runs as C = alpha*A*B; its products add to C, so they cannot be run by the schedule itself."""
    stages = "".join(
        f"  stage {{ {' ; '.join(f'C{i}{j} {sign} {scale}A{i}{p}*B{p}{j}' for i in (1, 2) for j in (1, 2))} }}\n"
        for p, sign in ((1, "="), (2, "+="))
    )
    text = f"schedule s of naive2x2: C = {head}, in-place\n{stages}"
    (schedule,) = parse_source(Source("s.bl", text)).schedules
    report = examine(replace(load("naive2x2"), schedule=schedule), 1, natural_inputs(schedule))
    rows = dict(schedule_rows(report.schedules[0]))
    assert rows["computes"] == f"C = alpha*A*B{told}"
    assert rows["recursion"] == "not safe in place: A12*B21 in stage 2 adds to what C11 holds, which every inner level overwrites"


def told_levels(report: Report, dtype: str) -> list[int]:
    return [fact.levels for fact in report.accuracy if fact.dtype == dtype]


@pytest.mark.parametrize(("levels", "known"), [(1, [0, 1, 2]), (3, [0, 1, 2, 3])])
def test_errors_in_place_are_of_the_schedule_at_every_level_told(levels: int, known: list[int]) -> None:
    """Levels that take long are told of where they are asked for; none is told of by the bound of another schedule."""
    loaded = load("msmes")
    report = examine(loaded, levels, "restore")
    assert told_levels(report, "float32") == told_levels(report, "float64") == known
    for fact in report.accuracy[2:]:
        schedule, u = prepare(loaded.scheme, loaded.schedule, fact.levels, "restore").schedule, ELEMENTS[fact.dtype].unit_roundoff
        assert fact.drift == drift_bound(schedule).worst() * u
        assert fact.deterministic == run_error_bound(schedule, fact.inner, u).product * u


@pytest.mark.slow
def test_what_is_consumed_does_not_drift_and_schemes_are_told_of_to_three_levels() -> None:
    assert {fact.drift for fact in examine(load("msmes"), 1, "consume").accuracy} == {None}
    assert told_levels(examine(load("strassen"), 1, "preserve"), "float32") == [0, 1, 2, 3]
    assert told_levels(examine(load("naive2x2"), 4, "preserve"), "float32") == [0, 1, 2, 3, 4]


def test_the_error_table_has_its_units() -> None:
    plain, in_place = examine(load("strassen"), 1, "preserve"), examine(load("msmes"), 1, "restore")
    for report in (plain, in_place):
        assert "in units of max|A| * max|B|, K = 4096" in str(report)
        assert "in units of max\\|A\\| \\* max\\|B\\|, K = 4096" in report.markdown()
        views = (str(report), report.markdown(), report.html())
        assert {"drift: of a restored block, in units of" in view for view in views} == {report is in_place}


def test_levels_that_keep_an_accuracy_are_told() -> None:
    """Strassen at K = 4096 in float32: 1.0, 3.0, 9.2, 31 and more at 0 to 4 levels, always; 0.0038, 0.0065, 0.011, 0.021 likely."""
    report = examine(load("strassen"), 1, "preserve", 5.0)
    assert "levels that keep 5 (float32): 1 always, 5 with probability 0.99 (5 were looked at)" in str(report)
    assert "levels that keep 5 (float64): 5 always, 5 with probability 0.99 (5 were looked at)" in report.markdown()
    report = examine(load("msmes"), 1, "restore", 0.01)
    assert "levels that keep 0.01 (float32): none always, 1 with probability 0.99\n" in str(report) + "\n"
    assert [kept.looked for kept in report.levels_for] == [3, 3]
    for kept in report.levels_for:
        own = {fact.levels: fact for fact in report.accuracy if fact.dtype == kept.dtype}
        assert kept.always == max((n for n in own if own[n].deterministic <= 0.01), default=None)
    assert examine(load("strassen"), 1, "preserve").levels_for == ()


def test_schedules_over_complex_numbers_are_proved_and_have_no_errors_to_tell() -> None:
    """The scheme is real, what its schedule multiplies by is not."""
    text = (
        "scheme one <1,1,1;1> over Q[i]\n  M1: 1 | 1 | 1\nschedule turned of one: in-place, restores A B\n  stage { A11 = [i] A11 }\n"
        "  stage { [-i] C11 += A11 * B11 }\n  restore stage { A11 = [-i] A11 }\n"
    )
    source = Source("turned.bl", text)
    parsed = parse_source(source)
    loaded = replace(load("msmes"), scheme=parsed.schemes[0], schedule=parsed.schedules[0], source=source)
    assert examine(loaded, 2, "restore").accuracy == ()
    assert told_levels(examine(loaded, 1, "preserve"), "float32") == [0, 1, 2, 3]


def test_states_are_told_after_every_stage() -> None:
    (schedule,) = proved("msmes").schedules
    kinds = {state.block: state.kind for state in schedule.stages[-1].states}
    assert kinds["A22"] == "original" and kinds["A11"] == kinds["B21"] == "restored" and kinds["C11"] == "product"
    assert {state.block: state.value for state in schedule.stages[0].states}["A21"] == "A21 + A22"


@each("number", range(len(in_rings())))
def test_every_ring_has_its_report(number: int) -> None:
    scheme, order = in_rings()[number]
    report = of_scheme(scheme)
    assert report.proved and report.scheme.ring == str(scheme.ring) and report.scheme.order == order
    assert (
        f"over {scheme.ring}" in str(report)
        and f"over {scheme.ring}".replace("lambda", "λ") in report.html()
        and str(scheme.ring) in report.markdown().replace("\\", "")
    )
    assert bool(report.scheme.bases) == (scheme.bases is not None)


def test_an_approximate_scheme_tells_its_error() -> None:
    report = of_scheme(approximate())
    assert "hold to order lambda^2" in report.markdown() and "O(lambda^2)" in str(report)
    assert report.scheme.growth == ""


def test_changes_of_basis_are_written_out() -> None:
    assert of_scheme(with_bases()).scheme.bases == ("A11 <- A11 - A22", "C11 <- C11 + 2 C12")


def test_hostile_names_stay_text_in_markdown() -> None:
    text = hostile().markdown()
    assert "<script" not in text and "<img" not in text and "<b>" not in text
    table = [line for line in text.splitlines() if line.startswith("| ")]
    assert {line.replace("\\|", "").count("|") for line in table} <= {3, 5}


@pytest.mark.slow
def test_a_text_report_needs_no_template_engine() -> None:
    program = "import sys, bilinear; str(bilinear.load('msmes').verify()); print('jinja2' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=CHECKOUT, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.split() == ["False"]


def test_reports_are_values() -> None:
    assert proved("strassen") == proved("strassen") and hash(proved("strassen")) == hash(proved("strassen"))
    assert isinstance(replace(proved("strassen"), algorithm="other"), Report)


def test_spills_are_told_in_words() -> None:
    report = proved("strassen")
    for page in (str(report), report.markdown(), report.html()):
        assert "68 B a thread, which may have 168 registers" in page and "spilled to memory" in page and "none" in page
