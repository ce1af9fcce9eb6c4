"""The user's own algorithms: files as levels, and what `bilinear add` keeps."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from each_case import each
from shell import Shell

import bilinear
from bilinear.errors import BilinearError
from bilinear.frontend.algorithms import shipped
from bilinear.interchange.folders import shipped_schemes
from bilinear.methods.planning import contenders, load_plan, make_plan, pinned_plan
from bilinear.places import sealed, unsealed
from bilinear.planner.device_files import load_device
from bilinear.planner.kept_plans import save_plan
from bilinear.planner.own import add, remove, reserved_names
from bilinear.planner.problem import Problem
from bilinear.planner.profiles import own_records, own_ways, ways
from bilinear.planner.ways import Way, algorithm_named, forget_names
from bilinear.reading import MOST_BYTES
from bilinear.resources import algorithms_folder, own_folder

PROBLEM = Problem(8192, 8192, 8192, "float64")  # Large enough for two levels of any small scheme.


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """What a test adds is gone with its folder."""
    yield
    forget_names()


def copied(name: str, place: Path, new: str) -> Path:
    """A shipped file under another name for its algorithm."""
    file = place / f"{new}.bl"
    text = shipped()[name].read_text(encoding="utf-8")
    file.write_text(text.replace(f"scheme {name} ", f"scheme {new} ").replace(f"schedule {name} ", f"schedule {new} "))
    return file


def code_of(error: pytest.ExceptionInfo[BilinearError]) -> str:
    return error.value.diagnostics[0].code


def test_a_file_is_a_level_of_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied("laderman", tmp_path, "mine")
    monkeypatch.chdir(tmp_path)
    plan = pinned_plan(PROBLEM, load_device("h200"), ("mine.bl", "winograd"))
    as_shipped = pinned_plan(PROBLEM, load_device("h200"), ("laderman", "winograd"))
    assert plan.chosen.levels == (str(tmp_path / "mine.bl"), "winograd")
    assert (plan.sha256, plan.chosen.ms, plan.chosen.workspace) == (as_shipped.sha256, as_shipped.chosen.ms, as_shipped.chosen.workspace)


def test_a_kept_plan_notices_that_its_file_has_changed(tmp_path: Path) -> None:
    file, kept = copied("laderman", tmp_path, "mine"), tmp_path / "plan.json"
    plan = pinned_plan(PROBLEM, load_device("h200"), (str(file),))
    save_plan(plan, kept)
    assert load_plan(kept) == plan
    shutil.copy(copied("smirnov_333", tmp_path, "other"), file)
    with pytest.raises(BilinearError, match=f"{file} is not what it was when {kept} was planned") as caught:
        load_plan(kept)
    assert code_of(caught) == "E546"
    assert pinned_plan(PROBLEM, load_device("h200"), (str(file),)).sha256 != plan.sha256
    file.unlink()
    with pytest.raises(BilinearError, match=f"E546.*{kept} names an algorithm that cannot be read: .*{file}"):
        load_plan(kept)


def test_a_wrong_file_is_refused_as_a_level(tmp_path: Path) -> None:
    file = copied("strassen", tmp_path, "mine")
    file.write_text(file.read_text().replace("-1", " 1", 1))
    with pytest.raises(BilinearError, match="E301"):
        pinned_plan(PROBLEM, load_device("h200"), (str(file),))
    with pytest.raises(BilinearError, match="E301"):
        add(str(file))
    assert not own_folder().is_dir() or not any(own_folder().iterdir())  # type: ignore[union-attr]


@pytest.mark.parametrize("level", ["../mine.txt", "nix", "", "mine.bl:1x"])
def test_what_is_no_level_is_refused_in_a_plan(level: str, tmp_path: Path) -> None:
    with pytest.raises(BilinearError):
        pinned_plan(PROBLEM, load_device("h200"), (level,))
    save_plan(pinned_plan(PROBLEM, load_device("h200"), ("winograd",)), tmp_path / "plan.json")
    text = json.loads((tmp_path / "plan.json").read_text())
    text["candidates"][0]["choice"]["levels"] = [level]
    (tmp_path / "plan.json").write_text(json.dumps(text))
    with pytest.raises(BilinearError, match=r"E54[56]"):
        load_plan(tmp_path / "plan.json")


@pytest.mark.slow
def test_an_added_scheme_competes(tmp_path: Path) -> None:
    before = set(ways(PROBLEM))
    assert add(str(copied("smirnov_334", tmp_path, "mine"))) == ("mine", own_folder() / "mine.bl")  # type: ignore[operator]
    added = {Way(levels) for levels in (("mine",), ("mine", "mine"), ("mine", "winograd"), ("winograd", "mine"))}
    assert set(ways(PROBLEM)) == before | added
    timed = {candidate.levels for candidate in contenders(PROBLEM, load_device("h200"))}
    assert timed >= {way.levels for way in added}
    explained = make_plan(PROBLEM, load_device("h200"), explain=True).candidates
    own, shipped_one = (next(c for c in explained if c.levels == (name,)) for name in ("mine", "winograd"))
    assert own.ms is not None and shipped_one.ms is not None and own.workspace
    remove("mine")
    assert set(ways(PROBLEM)) == before


def test_an_added_schedule_competes_where_the_inputs_may_be_written(tmp_path: Path) -> None:
    add(str(copied("msmes", tmp_path, "mine")))
    writing = Problem(8192, 8192, 8192, "float64", "restore")
    assert Way(("mine", "mine"), "restore") in own_ways(writing)
    assert all(way.inputs == "preserve" for way in own_ways(PROBLEM))
    add(str(copied("winograd_depth_first", tmp_path, "deep")))
    assert Way(("deep",)) in own_ways(PROBLEM)
    assert Way(("deep",)) not in own_ways(Problem(8192, 8192, 8192, "float64", accumulate=True))


@pytest.mark.slow
def test_an_added_name_is_taken_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(str(copied("laderman", tmp_path, "mine")))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.bl").write_text("nonsense")
    assert algorithm_named("mine").scheme.rank == 23
    assert pinned_plan(PROBLEM, load_device("h200"), ("mine",)).chosen.levels == ("mine",)
    (tmp_path / "mine.bl").unlink()
    a = np.arange(36.0).reshape(6, 6)
    assert np.array_equal(bilinear.matmul(a, a, algorithm="mine"), a @ a)
    assert bilinear.load("mine (x) strassen").scheme.format == "<6,6,6;161>"
    assert "mine" in dict(shipped_schemes())


@pytest.mark.slow
def test_what_was_added_needs_no_other_file(tmp_path: Path) -> None:
    copied("strassen", tmp_path, "part")
    (tmp_path / "whole.bl").write_text("scheme whole = part (x) part\n")
    _, place = add(str(tmp_path / "whole.bl"))
    shutil.rmtree(tmp_path)
    assert bilinear.load(place).scheme.format == "<4,4,4;49>"


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("scheme strassen <1,1,1;1>\n  M: 1 | 1 | 1\n", "E576", "'strassen' cannot be the name of an algorithm of your own"),
        ("scheme mine <1,1,1;1> over Z/2\n  M: 1 | 1 | 1\n", "E506", "mine"),
    ],
)
def test_what_cannot_be_added(text: str, code: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.bl").write_text(text)
    with pytest.raises(BilinearError, match=message) as caught:
        add(str(tmp_path / "x.bl"))
    assert code_of(caught) == code
    with pytest.raises(BilinearError, match=r"'strassen' is not a \.bl file") as caught:
        add("strassen")
    assert code_of(caught) == "E576"


def test_no_name_that_means_something_is_added(tmp_path: Path) -> None:
    """Every shipped file, every product of a plan, and the words of options and of the language."""
    files = {path.stem for path in algorithms_folder().rglob("*.bl")}
    words = {"auto", "library", "cublas", "cublaslt", "rotate", "transpose", "residues", "pairs_on_load", "tf32", "bfloat16"}
    assert files | words <= reserved_names()
    for name in (*words, "pairs", "complex3", "rxtx", "residues14", "gaussian7", "msmes"):
        (tmp_path / "x.bl").write_text(f"scheme {name} <1,1,1;1>\n  M: 1 | 1 | 1\n")
        with pytest.raises(BilinearError, match=f"'{name}' cannot be the name of an algorithm of your own") as caught:
            add(str(tmp_path / "x.bl"))
        assert code_of(caught) == "E576"
    assert own_folder() is not None and not list(own_folder().glob("*"))  # type: ignore[union-attr]


def without(record: dict[str, Any], *path: str) -> bytes:
    inner = record
    for name in path[:-1]:
        inner = inner[name]
    inner.pop(path[-1])
    return json.dumps(record, indent=1).encode()


DAMAGED: dict[str, Callable[[dict[str, Any]], bytes]] = {
    "another version": lambda record: sealed({**record, "implementation_sha256": "another"}),
    "another file": lambda record: sealed({**record, "algorithm_sha256": "another"}),
    "no version": lambda record: without(record, "implementation_sha256"),
    "no outlines": lambda record: without(record, "outlines"),
    "no grid": lambda record: without(record, "outlines", "mine preserve", "grid"),
    "odd outlines": lambda record: json.dumps({**record, "outlines": [1]}).encode(),
    "no object": lambda record: b"[]",
    "no text": lambda record: b"\xff",
    "empty": lambda record: b"",
    "brackets": lambda record: b"[" * 200_000,
    "objects": lambda record: b'{"a":' * 200_000,
    "too large": lambda record: b" " * (MOST_BYTES + 1),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("damage", DAMAGED.values(), ids=list(DAMAGED))
def test_a_record_that_is_damaged_is_told_and_not_planned_with(
    damage: Callable[[dict[str, Any]], bytes], shell: Shell, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, place = add(str(copied("strassen", tmp_path, "mine")))
    record = unsealed(place.with_suffix(".json").read_bytes())
    assert record is not None
    place.with_suffix(".json").write_bytes(damage(record))
    forget_names()
    assert own_ways(PROBLEM) == []
    assert f"{place} is not planned with: add it again with `bilinear add`" in caplog.text
    assert shell("list", "--own")[0] == 0
    status, out, _ = shell("plan", "--shape", 4096, "--device", "h200", "--levels", "mine")
    assert status == 0 and "mine" in out


def test_the_command_line_adds_lists_and_removes(shell: Shell, tmp_path: Path) -> None:
    file = copied("strassen", tmp_path, "mine")
    assert shell("list", "--own")[1] == "there are none; `bilinear add FILE.bl` adds one\n"
    assert shell("add", file)[0] == 0
    listed = shell.json("list", "--own")
    assert [(row["name"], row["format"], len(row["ways"])) for row in listed] == [("mine", "<2,2,2;7>", 4)]
    assert "mine  <2,2,2;7>" in shell("list", "--own")[1]
    status, out, _ = shell("plan", "--shape", 4096, "--device", "h200", "--levels", "mine,winograd")
    assert status == 0 and "mine, then winograd" in out
    assert shell("remove", "mine")[0] == 0
    status, _, told = shell("remove", "mine")
    assert status == 1 and told.startswith("error[E577]: 'mine' is none of your own algorithms")


def test_a_damaged_algorithm_of_ones_own_is_told_and_left_out(shell: Shell, tmp_path: Path) -> None:
    for name in ("mine", "other"):
        assert shell("add", copied("strassen", tmp_path, name))[0] == 0
    assert "\nyour own (`bilinear list --own`): mine, other\n" in shell("list")[1]
    (own_folder() / "mine.bl").write_text("garbage (")  # type: ignore[operator]
    status, out, told = shell("list", "--own")
    assert status == 0 and "other  <2,2,2;7>" in out and "mine" not in out
    assert told.startswith("warning: mine is damaged (expected an operator") and "`bilinear remove mine`" in told
    status, out, _ = shell("combine", "4,4,4")
    assert status == 0 and "<4,4,4;" in out
    assert shell("remove", "mine")[0] == 0


def test_a_folder_is_no_level(tmp_path: Path) -> None:
    with pytest.raises(BilinearError, match="is a folder, and a level is one algorithm"):
        pinned_plan(PROBLEM, load_device("h200"), (str(tmp_path),))


OF_EACH_KIND = [("float64", None), ("float16", None), ("float32", "pairs"), ("float64", "residues14"), ("complex64", "pairs")]
"""Types and products whose plans are made in different ways."""


@each(("dtype", "products"), OF_EACH_KIND)
@each(
    ("first", "second", "ring", "code"),
    [
        ("i 0 | 1 0 | -i", "0 1 | 0 1 | 1", "Q[i]", "E528"),  # right, and not for real numbers
        ("1 0 | 1 0 | 1", "0 1 | 0 1 | 0", "Q", "E301"),
        ("1 0 | 1 0 | 1", "0 1 | 0 1 | 0", "Z/2", "E301"),
    ],
)
def test_no_plan_is_made_of_a_file_that_cannot_run(
    dtype: str, products: str | None, first: str, second: str, ring: str, code: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.bl").write_text(f"scheme mine <1,2,1;2> over {ring}\n  M1: {first}\n  M2: {second}\n")
    with pytest.raises(BilinearError) as caught:
        bilinear.plan(4096, 4096, 4096, dtype, device="h200", levels=(str(tmp_path / "mine.bl"),), products=products)
    assert code_of(caught) == code


@pytest.mark.parametrize(
    ("ring", "row", "message"),
    [("Q[i]", "i | 1 | -i", "not a real number"), ("Q", f"1{50 * '0'} | 1 | 1/1{50 * '0'}", "too large or too small for float32")],
)
def test_what_float32_cannot_hold_is_not_added(ring: str, row: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "mine.bl").write_text(f"scheme mine <1,1,1;1> over {ring}\n  M1: {row}\n")
    with pytest.raises(BilinearError, match=message) as caught:
        add(str(tmp_path / "mine.bl"))
    assert code_of(caught) == "E528" and own_records() == {}


@pytest.mark.slow
def test_a_wrong_algorithm_of_ones_own_is_told_and_not_combined(shell: Shell, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What was kept is changed later: one sum fewer, which the least additions would take.

    No other test has this name: a process looks at the file where it first found it, and each test has a home of its own.
    """
    file = copied("winograd", tmp_path, "altered")
    assert shell("add", file)[0] == 0
    file.unlink()  # a file in the working folder comes before what is kept
    kept = own_folder() / "altered.bl"  # type: ignore[operator]
    kept.write_text(kept.read_text().replace("S2 = S1 - A11", "S2 = S1"))
    forget_names()
    status, out, _ = shell("combine", "2,2,2")
    assert status == 0 and "  winograd\n" in out
    assert "altered is not a multiplication" in caplog.text and "`bilinear remove altered`" in caplog.text
    with pytest.raises(BilinearError, match="E301"):
        bilinear.matmul(np.eye(2), np.eye(2), algorithm="altered")


def test_names_are_listed_whole_and_can_be_removed(shell: Shell, tmp_path: Path) -> None:
    names = [f"scheme_4x4x4_48_{way}_of_a_long_name" for way in ("one", "other")]
    for name in names:
        assert shell("add", copied("strassen", tmp_path, name))[:2] == (0, f"{name} is added, and kept as {own_folder()}/{name}.bl\n")
    listed = [line.split()[0] for line in shell("list", "--own")[1].splitlines()[2:]]
    assert listed == names
    assert shell("add", tmp_path / f"{names[0]}.bl")[1].startswith(f"{names[0]} replaces the one of that name, and is kept as ")
    assert [shell("remove", name)[0] for name in listed] == [0, 0]


def test_a_folder_is_not_added_and_is_none_of_ones_own(shell: Shell, tmp_path: Path) -> None:
    status, _, told = shell("add", tmp_path)
    assert status == 1 and told.startswith(f"error[E576]: '{tmp_path}' is a folder, and one algorithm is added at a time")
    (own_folder() / "deep.bl").mkdir(parents=True)  # type: ignore[operator]
    assert shell("list", "--own")[1:] == ("there are none; `bilinear add FILE.bl` adds one\n", "")
    assert own_records() == {}
