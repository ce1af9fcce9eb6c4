"""Names: every call reads a user's file, a name in a plan means the shipped algorithm, and nothing is parsed twice."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runtime.pretended_gpu import Array, undescribed

import bilinear
from bilinear.errors import BilinearError
from bilinear.frontend import Loaded, load, load_shipped
from bilinear.frontend.files import Looks
from bilinear.resources import algorithms_folder
from bilinear.runtime import options
from bilinear.runtime.options import algorithm_as_it_is

BROKEN = "broken\n"
TWICE = "scheme mine <1,1,1;1>\n  M1: 2 | 1/2 | 1\n"  # A valid scheme; its name distinguishes it from others.


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(options, "_named", {})
    return tmp_path


def shipped_text(name: str) -> str:
    return (algorithms_folder() / f"{name}.bl").read_text()


def pinned() -> Any:
    return bilinear.plan(64, 64, 64, "float64", device="h200", levels=("winograd", "winograd"))


@pytest.fixture
def clear_planner() -> None:
    from bilinear.planner.ways import forget_names

    forget_names()


@pytest.mark.usefixtures("clear_planner")
@pytest.mark.parametrize("text", [BROKEN, shipped_text("strassen").replace("scheme strassen", "scheme winograd")])
def test_a_plan_means_shipped_algorithms_whatever_lies_in_the_working_folder(text: str, folder: Path) -> None:
    for name in ("winograd", "winograd_depth_first", "strassen", "msmes"):
        (folder / f"{name}.bl").write_text(text)
    a = np.arange(64.0 * 64).reshape(64, 64) % 7
    choice = pinned()
    assert choice.chosen.levels == ("winograd", "winograd")
    np.testing.assert_array_equal(bilinear.matmul(a, a, plan=choice), a @ a)
    path = folder / "kept.json"
    bilinear.save_plan(choice, path)
    assert bilinear.load_plan(path) == choice
    again = bilinear.plan(64, 64, 64, "float64", device="h200", inputs="restore", levels=("msmes",))
    np.testing.assert_array_equal(bilinear.matmul(a.copy(), a.copy(), plan=again), a @ a)


def test_what_is_shipped_is_found_from_every_folder(folder: Path) -> None:
    (folder / "strassen.bl").write_text(BROKEN)
    before = load_shipped("msmes")  # a schedule of a scheme in another file
    os.chdir("/")
    assert load_shipped("msmes") == before
    with pytest.raises(BilinearError, match=r"E121.*'mine' is not a shipped algorithm"):
        load_shipped("mine")


def test_a_plan_for_other_algorithms_than_are_shipped_is_refused() -> None:
    from dataclasses import replace

    choice = pinned()
    a = np.ones((64, 64))
    with pytest.raises(BilinearError, match=r"E546.*winograd is not what it was when this plan was planned"):
        bilinear.matmul(a, a, plan=replace(choice, sha256=(("0", ""), *choice.sha256[1:])))
    with pytest.raises(BilinearError, match=r"E546.*this plan has hashes of 1 levels, and 2 levels"):
        bilinear.matmul(a, a, plan=replace(choice, sha256=choice.sha256[1:]))


def test_names_of_users_come_first_where_users_name_them(folder: Path) -> None:
    (folder / "winograd.bl").write_text(shipped_text("strassen"))
    assert bilinear.load("winograd").scheme.name == algorithm_as_it_is("winograd").scheme.name == "strassen"
    (folder / "winograd.bl").unlink()
    assert bilinear.load("winograd").scheme.name == algorithm_as_it_is("winograd").scheme.name == "winograd"


@pytest.mark.parametrize("asked", ["mine", "mine.bl", "mine.bl:mine", "./mine.bl"])
def test_a_file_is_read_at_every_call(asked: str, folder: Path) -> None:
    a, file = np.eye(4), folder / "mine.bl"
    with pytest.raises(BilinearError, match="E121"):
        bilinear.matmul(a, a, algorithm=asked)
    file.write_text(TWICE)
    np.testing.assert_array_equal(bilinear.matmul(a, a, algorithm=asked, levels=1), a)
    first = algorithm_as_it_is(asked)
    assert algorithm_as_it_is(asked) is first, "it is parsed once for each content"
    times = file.stat()
    file.write_text(TWICE.replace("2 | 1/2", "3 | 1/3"))  # of the same length, and below of the same time
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert algorithm_as_it_is(asked) != first
    file.write_text(BROKEN)
    with pytest.raises(BilinearError, match="E111"):
        bilinear.matmul(a, a, algorithm=asked, levels=1)


def test_the_working_folder_is_that_of_the_call(folder: Path) -> None:
    for name, factor in (("one", "2 | 1/2"), ("other", "4 | 1/4")):
        (folder / name).mkdir()
        (folder / name / "mine.bl").write_text(TWICE.replace("2 | 1/2", factor))
    found = []
    for name in ("one", "other", "one"):
        os.chdir(folder / name)
        found.append(algorithm_as_it_is("mine").scheme)
    assert found[0] == found[2] != found[1]


def test_a_composition_is_composed_once_for_what_it_refers_to(folder: Path) -> None:
    asked, composed = "mine (x) strassen", []

    def counted(text: str, looks: Looks) -> Loaded:
        composed.append(text)
        return load(text, looks)

    (folder / "mine.bl").write_text(TWICE)
    first = algorithm_as_it_is(asked, counted)
    assert algorithm_as_it_is(asked, counted) is first and len(composed) == 1
    (folder / "mine.bl").write_text(TWICE.replace("2 | 1/2", "4 | 1/4"))
    second = algorithm_as_it_is(asked, counted)
    assert second.scheme != first.scheme and len(composed) == 2
    (folder / "strassen.bl").write_text(shipped_text("winograd"))  # the lookup found no such file here before
    assert algorithm_as_it_is(asked, counted).scheme.v != second.scheme.v


def test_a_file_is_looked_at_with_what_it_refers_to(folder: Path) -> None:
    (folder / "part.bl").write_text(TWICE.replace("mine", "part"))
    (folder / "mine.bl").write_text("scheme mine = part (x) strassen\n")
    first = algorithm_as_it_is("mine")
    assert algorithm_as_it_is("mine") is first
    (folder / "part.bl").write_text(TWICE.replace("mine", "part").replace("2 | 1/2", "4 | 1/4"))
    assert algorithm_as_it_is("mine").scheme != first.scheme
    (folder / "part.bl").unlink()
    with pytest.raises(BilinearError, match="E221"):
        algorithm_as_it_is("mine")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_what_is_no_file_is_never_read(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(BilinearError, match="E122"):
        algorithm_as_it_is("./pipe")


@pytest.mark.sample(2)
@pytest.mark.parametrize("asked", ["mine", "mine.bl", "mine (x) classical"])
def test_a_repeated_call_on_a_gpu_runs_what_the_file_holds_now(asked: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = folder / "mine.bl"
    text = shipped_text("strassen").replace("scheme strassen", "scheme mine")
    file.write_text(text)
    host = np.arange(64.0).reshape(8, 8) % 5
    with undescribed(monkeypatch) as gpu:
        from bilinear.runtime import repeat

        a, out = Array(host), Array(np.zeros((8, 8)))
        counts = []
        for content in (text, text, shipped_text("winograd").replace("scheme winograd", "scheme mine"), text, BROKEN):
            file.write_text(content)
            out.host[...] = 0
            before = len(gpu.launches)
            if content == BROKEN:
                with pytest.raises(BilinearError, match="E111"):
                    bilinear.matmul(a, a, out, algorithm=asked, levels=1)
                break
            bilinear.matmul(a, a, out, algorithm=asked, levels=1)
            np.testing.assert_array_equal(out.host, host @ host)
            counts.append(tuple(name for name, _ in gpu.launches[before:]))
        assert counts[0] == counts[1] == counts[3]
        assert len(repeat._repeats) == 3, "each content was parsed anew but the second, which was repeated"


@pytest.mark.parametrize("name", ["s_mm", "w_mm", "msmes", "strassen"])
def test_an_error_shows_the_name_that_was_given(name: str) -> None:
    a = np.ones((64, 64))
    with pytest.raises(BilinearError, match=rf"E501\]: 6 levels of {name} are 117,649 products"):
        bilinear.matmul(a, a, algorithm=name, levels=6)
    with pytest.warns(UserWarning, match=f"^{name} is not used"):
        bilinear.matmul(a.astype("float16"), a.astype("float16"), algorithm=name)
