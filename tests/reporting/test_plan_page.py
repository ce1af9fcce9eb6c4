"""The page of a plan: every candidate at its place, names that cover nothing, well-formed, and complete without a network."""

from __future__ import annotations

import math
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from itertools import combinations
from pathlib import Path

import pytest
from choices import running

from bilinear import cli
from bilinear.methods.planning import make_plan
from bilinear.planner.choose import timed_plan
from bilinear.planner.device_files import load_device
from bilinear.planner.library import Library
from bilinear.planner.plan import Candidate, Plan, pareto_front
from bilinear.planner.problem import Problem
from bilinear.planner.scheduled import Scheduled
from bilinear.reporting.plans import SLOWEST, PlanChart, names, plan_chart, plan_html, plan_table

LARGE = Problem(16384, 16384, 16384, inputs="restore")
PROBLEMS = [
    LARGE,
    Problem(8192, 8192, 8192, "float32", "consume", workspace=1_500_000_000),
    Problem(8192, 8192, 8192, accuracy=1e-7),
    Problem(256, 256, 256),
]


@lru_cache(maxsize=8)
def choice(problem: Problem) -> Plan:
    return make_plan(problem, load_device("h200"), explain=True)


def crowded() -> Plan:
    """A hundred candidates, many of them at one place."""
    found = choice(LARGE)
    more = [Candidate(Scheduled((f"mixed_{i}",) * (1 + i % 3)), 120 + i % 9, (i % 7) * 2**30, why="slower") for i in range(100)]
    return replace(found, candidates=(*found.candidates, *more))


def boxes(chart: PlanChart) -> list[tuple[float, float, float, float]]:
    return [label.box for label in chart.labels]


@pytest.mark.sample(0, slow=2)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_candidate_with_a_time_is_a_dot_in_its_place(problem: Problem) -> None:
    found = choice(problem)
    chart = plan_chart(found)
    slowest = SLOWEST * next(c.ms for c in found.candidates if c.is_library and c.ms is not None)
    timed = [c for c in found.candidates if c.ms is not None and c.ms <= slowest]
    assert chart.slower == sum(c.ms is not None and c.ms > slowest for c in found.candidates)
    dots = {dot.title.split(" (")[0]: dot for dot in chart.dots}
    assert sorted(dots) == sorted(c.name for c in timed) and len(chart.dots) == len(timed)
    for one, other in combinations(timed, 2):
        assert one.ms is not None and other.ms is not None
        x = dots[one.name].x - dots[other.name].x
        y = dots[one.name].y - dots[other.name].y
        assert x * ((one.workspace or 0) - (other.workspace or 0)) >= 0
        assert y * (one.ms - other.ms) <= 0, "faster is further down"
    assert [dot.title.split(" (")[0] for dot in chart.dots if dot.kind == "chosen"] == [found.chosen.name]
    assert all(chart.left <= dot.x <= chart.right and chart.top <= dot.y <= chart.bottom for dot in chart.dots)


@pytest.mark.sample(0, slow=2)
@pytest.mark.parametrize("make", [*(partial(choice, problem) for problem in PROBLEMS), crowded])
def test_names_cover_neither_each_other_nor_a_dot_nor_a_line(make: Callable[[], Plan]) -> None:
    chart = plan_chart(make())
    for one, other in combinations(boxes(chart), 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    for left, top, right, bottom in boxes(chart):
        assert left >= chart.left and right <= chart.width and bottom <= chart.bottom
        assert not any(left < dot.x < right and top < dot.y < bottom for dot in chart.dots)
        assert chart.library is None or not top < chart.library < bottom
        assert chart.budget is None or not left < chart.budget < right


@pytest.mark.sample(1)
@pytest.mark.parametrize("make", [*(partial(choice, problem) for problem in PROBLEMS), crowded])
def test_every_name_belongs_to_its_dot(make: Callable[[], Plan]) -> None:
    """A name, or the number of a row of the table, stands nearest to its own dot; every dot tells its name when asked."""
    plan = make()
    chart = plan_chart(plan)
    assert all(dot.title.startswith(dot.lines[0]) for dot in chart.dots)
    told = names(plan)
    front = {str(number): told[c] for number, c in enumerate((c for c in pareto_front(plan) if c.ms is not None), 1)}
    places = {(dot.x, dot.y): dot.lines[0] for dot in reversed(chart.dots)}
    several = len(places) < len(chart.dots)
    for label in chart.labels:
        if label.text in ("the library", "workspace allowed"):
            continue
        left, top, right, bottom = label.box
        away = {place: math.hypot(max(left - place[0], 0, place[0] - right), max(top - place[1], 0, place[1] - bottom)) for place in places}
        own = min(away, key=lambda place: away[place])
        assert several or places[own] == front.get(label.text, label.text)
        assert all(distance > away[own] + 3 for place, distance in away.items() if place != own)


def test_a_timed_plan_is_told_with_its_tiles_and_all_libraries() -> None:
    problem, device = Problem(4096, 4096, 4096), load_device("h200")
    timed = [Candidate(Scheduled(("winograd",) * 2, tile=tile), ms, 2**28, 1e-9) for tile, ms in (("large", 2.0), ("usual", 2.1))]
    timed += [Candidate(Scheduled(("strassen",)), 2.2, 2**27, 1e-9), Candidate(Library("cublaslt"), 2.4, 0, 1e-12)]
    found = timed_plan(problem, device, (*timed, Candidate(Library(), 2.5, 0, 1e-12)))
    rows = [line.split("  ")[0] for line in plan_table(found, explain=True).splitlines()[4:]]
    assert rows == ["winograd, 2 levels (large)", "winograd, 2 levels (usual)", "strassen, 1 level", "cublaslt", "library"]
    chart = plan_chart(found)
    assert {dot.title.split(" (expand")[0].split(" (cublas")[0].split(" (library")[0] for dot in chart.dots} == set(rows)
    (line,) = (dot.y for dot in chart.dots if dot.title.startswith("library"))
    assert chart.library == line and {label.text for label in chart.labels} <= {*rows[:-1], "the library"}
    (lt,) = (dot for dot in chart.dots if dot.title.startswith("cublaslt"))
    assert lt.y > line and lt.kind == "front"
    page = plan_html(found)
    assert "Timed: 1.25 times as fast as the library" in page and page.count("winograd, 2 levels (large)") > 1 and "5.0% slower" in page


def test_the_library_is_drawn_beside_a_faster_one_and_whatever_its_workspace() -> None:
    library, slow = Candidate(Library(), 2.0, 2**20), Candidate(Scheduled(("strassen",)), 2.7, 0)
    found = timed_plan(Problem(64, 64, 64), load_device("h200"), (Candidate(Library("cublaslt"), 1.0, 2**20), library, slow))
    chart = plan_chart(found)
    assert chart.slower == 1 and chart.library is not None and [dot.kind for dot in chart.dots] == ["able", "chosen"]


@pytest.mark.parametrize("problem", PROBLEMS[:2])
def test_the_front_goes_through_what_nothing_beats_and_is_named(problem: Problem) -> None:
    found = choice(problem)
    chart, front = plan_chart(found), pareto_front(found)
    dots = {dot.title.split(" (")[0]: dot for dot in chart.dots}
    corners = [(dots[c.name].x, dots[c.name].y) for c in front]
    numbers = re.findall(r"[MHV ]([\d.]+)", chart.front)
    assert numbers == [f"{number:g}" for corner in corners for number in corner]
    assert {n for n, dot in dots.items() if dot.kind == "front"} <= {c.name for c in front}
    named = {label.text for label in chart.labels}
    numbered = {number for number, c in enumerate(front, 1) if {c.name, str(number)} & named}
    assert front.index(found.chosen) + 1 in numbered and len(numbered) >= 2


def test_the_library_and_the_budget_are_lines() -> None:
    limited = plan_chart(choice(PROBLEMS[1]))
    library = next(dot for dot in limited.dots if dot.title.startswith("library"))
    assert limited.library == library.y and limited.budget is not None
    assert plan_chart(choice(LARGE)).budget is None
    beyond = [dot for dot in limited.dots if dot.x > limited.budget]
    assert beyond and all(dot.kind == "refused" for dot in beyond)


def test_a_candidate_that_is_too_inaccurate_is_drawn_as_refused() -> None:
    found = choice(PROBLEMS[2])
    inaccurate = {c.name for c in found.candidates if c.ms is not None and c.error is not None and c.error > 1e-7}
    refused = {dot.title.split(" (")[0] for dot in plan_chart(found).dots if dot.kind == "refused"}
    assert refused and refused == inaccurate & {dot.title.split(" (")[0] for dot in plan_chart(found).dots}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_page_is_well_formed_and_loads_nothing(problem: Problem) -> None:
    found = choice(problem)
    page = plan_html(found)
    assert "default-src 'none'" in page and not re.search(r"<script|<link|<img|\ssrc=|url\(|https?:", page)
    (svg,) = re.findall(r"<svg class=\"chart plan\".*?</svg>", page, re.S)
    titles = [element.text for element in ET.fromstring(svg).iter("title")]
    assert titles == [dot.title for dot in plan_chart(found).dots]
    assert page.count("<tr>") == 2 + len(found.candidates) + len(pareto_front(found))
    assert found.chosen.name in page and str(problem.m) in page


def test_names_are_text() -> None:
    found = choice(LARGE)
    first = replace(running(found.chosen, levels=("<b>&\"'",)), why="chosen: <i>")
    page = plan_html(replace(found, candidates=(first, *found.candidates[1:])))
    assert "<b>" not in page and "<i>" not in page and "&lt;b&gt;&amp;" in page


def test_the_command_line_writes_the_page_beside_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.html"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1000000000")
    monkeypatch.setattr(sys, "argv", ["bilinear", "plan", "--shape", "16384", "--device", "h200", "--html", str(path)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code and "chosen:" in capsys.readouterr().out
    assert path.read_text(encoding="utf-8") == plan_html(choice(Problem(16384, 16384, 16384)), "2001-09-09")
