"""The portfolio: what its file says, that all of it can run, and that a new line reaches what is chosen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bilinear.frontend.algorithms import shipped
from bilinear.methods.planning import contenders, make_plan
from bilinear.planner import choose, profiles
from bilinear.planner.device_files import load_device
from bilinear.planner.problem import Problem
from bilinear.planner.profiles import FILE, levels_of, parsed, portfolio, table_entry, ways

LISTS = ("expand", "recurse", "in_place", "first", "last", "last_in_place", "cpu")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
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
