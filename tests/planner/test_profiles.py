"""The shipped table of outlines, beside the schedules that it stands for; and the portfolio, all of which can run."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from bilinear.frontend import algorithms, parse
from bilinear.frontend.algorithms import shipped
from bilinear.ir.element import COMPLEX
from bilinear.ir.placement import INPUTS
from bilinear.ir.schedule import ProductStage
from bilinear.lowering.place import place_schedule
from bilinear.methods.planning import complex_plan, contenders, make_plan
from bilinear.planner import choose, profiles
from bilinear.planner import ways as ways_of_plans
from bilinear.planner.device_files import load_device
from bilinear.planner.problem import Problem
from bilinear.planner.profiles import FILE, cpu_ways, levels_of, parsed, portfolio, ways
from bilinear.planner.ways import OF_PARTS, Way, lowered

LARGE = Problem(8192, 8192, 8192)
REAL = [*(way for inputs in INPUTS for way in ways(replace(LARGE, inputs=inputs))), *cpu_ways(LARGE)]
ALL = tuple(dict.fromkeys([*REAL, *(Way(way.levels, OF_PARTS) for way in ways(LARGE))]))
ONE = Way(("winograd",))


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Other tests plan with the table as it is shipped."""
    yield
    profiles._table.cache_clear()
    profiles._outlines.cache_clear()
    profiles.outline.cache_clear()


def table_text(ways: Iterable[Way], portfolio: Mapping[str, object] | None = None) -> str:
    """The table of some ways as it is shipped, with the facts of the portfolio and the hash of its file."""
    found = {profiles.way_key(way): profiles.entry_of(profiles.outline_of(way)) for way in ways}
    rows = ",\n".join(f"{json.dumps(key)}: {json.dumps(entry)}" for key, entry in found.items())
    head = f'"algorithms_sha256": "{profiles.algorithms_sha256()}",\n"portfolio": {json.dumps(portfolio or {})}'
    return f'{{{head},\n"outlines": {{\n{rows}\n}}}}\n'


def table_entry() -> dict[str, object]:
    """What the table holds of the portfolio's file."""
    text = FILE.read_bytes()
    return {"sha256": hashlib.sha256(text).hexdigest(), "facts": parsed(text)}


def with_table(monkeypatch: pytest.MonkeyPatch, path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    monkeypatch.setattr(profiles, "TABLE", path)
    profiles._table.cache_clear()
    profiles._outlines.cache_clear()
    profiles.outline.cache_clear()


@pytest.mark.slow
def test_the_table_is_what_the_schedules_are(update_golden: bool) -> None:
    """Of everything that is weighed; `--update-golden` writes it anew after a change of the algorithms, the passes or the counts."""
    text = table_text(ALL, table_entry())
    if update_golden:
        profiles.TABLE.write_text(text, encoding="utf-8")
        return
    assert profiles.TABLE.read_text(encoding="utf-8") == text


@pytest.mark.sample(1)
@pytest.mark.parametrize("way", ALL[:4] + ALL[-4:], ids=lambda way: " ".join((*way.levels, way.inputs)))
def test_an_entry_is_read_as_it_was_written(way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = profiles.outline_of(way)
    with_table(monkeypatch, tmp_path / "table.json", table_text([way]))
    monkeypatch.setattr(profiles, "outline_of", lambda *_: pytest.fail("lowered anew"))
    assert profiles.outline(way) == made
    schedule, profile = lowered(way)
    assert (made.profile, made.workspaces) == (profile, schedule.workspaces)
    laid_out = made.placed(Problem(1000, 777, 1234), 8)
    assert laid_out == replace(place_schedule(schedule, 1000, 777, 1234, 8), schedule=laid_out.schedule)
    products = sum(len(stage.products) for stage in schedule.stages if isinstance(stage, ProductStage))
    assert made.products == products
    assert len(profile.works) == len(schedule.stages)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"algorithms_sha256": 1, "outlines": {}}'])
def test_a_damaged_table_is_no_table(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_table(monkeypatch, tmp_path / "table.json", text)
    assert profiles.outline(ONE) == profiles.outline_of(ONE)


def test_a_table_of_other_algorithms_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = json.loads(table_text([ONE]))
    table["outlines"]["winograd preserve"]["grid"] = [9, 9, 9]
    with_table(monkeypatch, tmp_path / "table.json", json.dumps(table))
    assert profiles.outline(ONE).profile.m == 9
    with_table(monkeypatch, tmp_path / "table.json", json.dumps(table | {"algorithms_sha256": "0" * 64}))
    assert profiles.outline(ONE).profile.m == 2


def test_a_table_that_is_missing_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "TABLE", tmp_path / "none.json")
    profiles._table.cache_clear()
    profiles._outlines.cache_clear()
    profiles.outline.cache_clear()
    assert profiles.outline(ONE).products == 7


@pytest.mark.parametrize("device", ["h100", "h200", "b200"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_plans_of_fresh_shapes_read_and_lower_nothing(dtype: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan asks for errors at each new K, and thin tiles ask for them often: their digit schemes are read once, schedules not at all."""
    described, make = load_device(device), complex_plan if dtype in COMPLEX else make_plan
    shapes = [(9000, 10000, 11000), (10291, 43, 570), (41, 6000, 6706), (8192, 8192, 20), (300, 20000, 300), (17, 17, 9000)]
    for m, k, n in shapes:
        make(Problem(m, k, n, dtype), described)
    for module, name in ((parse, "parse_statements"), (ways_of_plans, "profile_of")):
        monkeypatch.setattr(module, name, lambda *_, name=name: pytest.fail(f"a plan calls {name}"))
    monkeypatch.setattr(algorithms, "parse_statements", parse.parse_statements)
    for m, k, n in shapes:
        make(Problem(m + 64, k + 5, n + 3, dtype), described)


@pytest.mark.parametrize("inputs", INPUTS)
def test_a_first_plan_imports_little(inputs: str) -> None:
    """Neither engines, nor what holds and counts schemes, nor what tells of a plan: their import takes longer than the plan.

    platformdirs, which says where the user's own algorithms lie, imports tempfile.
    """
    call = f"bilinear.plan(8192, 8192, 8192, 'float64', device='h200', inputs={inputs!r})"
    program = f"import sys, numpy, bilinear; before = set(sys.modules); {call}; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    heavy = {"lark", "sympy", "jinja2", "logging", "bilinear.frontend", "bilinear.ir.scheme", "bilinear.analysis"}
    assert "bilinear.planner.choose" in done.stdout and not heavy & set(done.stdout.split())


LISTS = ("expand", "recurse", "in_place", "first", "last", "last_in_place", "cpu")


@pytest.fixture(autouse=True)
def _fresh_portfolio() -> Iterator[None]:
    yield
    portfolio.cache_clear()
    choose.make_plan.cache_clear()


def with_file(monkeypatch: pytest.MonkeyPatch, path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    monkeypatch.setattr(profiles, "FILE", path)
    portfolio.cache_clear()
    choose.make_plan.cache_clear()


def test_the_file_names_shipped_algorithms_once() -> None:
    own = portfolio()
    for name in LISTS:
        listed = getattr(own, name)
        assert listed and len(set(listed)) == len(listed) and {algorithm for levels in listed for algorithm in levels} <= set(shipped())
    assert own.plain <= set(shipped())


def test_the_file_has_no_other_keys() -> None:
    facts = parsed(FILE.read_bytes())
    assert facts.keys() == {"most_products", "plain", "expand", "recurse", "in_place", "cpu", "digits", "pairs", "borrow"}
    assert facts["borrow"].keys() == {"first", "last", "last_in_place"}


def test_levels_are_named_by_their_counts() -> None:
    assert levels_of("winograd") == ("winograd",)
    assert levels_of("winograd_depth_first winograd*2") == ("winograd_depth_first", "winograd", "winograd")


def test_what_is_weighed_follows_from_what_the_problem_allows() -> None:
    def found(**options: object) -> set[str]:
        return {name for way in ways(Problem(8192, 8192, 8192, **options)) for name in way.levels}  # type: ignore[arg-type]

    assert "winograd_depth_first" in found() and "winograd_depth_first" not in found(accumulate=True)
    assert "msmes" not in found() and "msmes" in found(inputs="restore")


def test_the_table_holds_the_facts_of_the_file_so_that_no_plan_parses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert json.loads(profiles.TABLE.read_text(encoding="utf-8"))["portfolio"] == table_entry()
    whole = portfolio()
    portfolio.cache_clear()
    monkeypatch.setattr(profiles, "parsed", lambda text: pytest.fail("parsed"))
    assert portfolio() == whole


def test_a_new_line_reaches_what_is_weighed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is of another file then, so the file is read, and the new way is lowered."""
    problem, device, new = Problem(4096, 4096, 4096), load_device("h200"), ("winograd_223",)
    assert new not in {c.levels for c in contenders(problem, device)}
    with_file(monkeypatch, tmp_path / "p.toml", FILE.read_text(encoding="utf-8").replace("expand = [", 'expand = [\n  "winograd_223",'))
    assert new in {c.levels for c in make_plan(problem, device, explain=True).candidates}
    assert new in {c.levels for c in contenders(problem, device)}
