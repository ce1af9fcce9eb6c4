"""State files: what is written is read, and a file that is not a state of the search is refused with its reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bilinear.discovery.states import LowestRank, WalkState, read_state, write_state
from bilinear.discovery.tasks import SearchTask
from bilinear.discovery.walker import binary_walker, ternary_walker
from bilinear.errors import BilinearError

TASK = SearchTask((2, 2, 2), 7, seed=4, walkers=2, ring="Z/2")


def walkers_of(task: SearchTask) -> list[Any]:
    begin = binary_walker if task.ring == "Z/2" else ternary_walker
    return [begin(task.masks, task.seed, number) for number in range(task.walkers)]


def kept(path: Path, task: SearchTask = TASK) -> None:
    walkers = walkers_of(task)
    write_state(path, task, WalkState.of(walkers, LowestRank(8, 0, 0, walkers[0].best.copy())))


@pytest.mark.parametrize("ring", ["Z", "Z/2"])
def test_what_is_written_is_read(tmp_path: Path, ring: str) -> None:
    path, task = tmp_path / "walk.json", SearchTask((2, 1, 2), 3, seed=2**32 - 1, walkers=2, ring=ring)
    walkers = walkers_of(task)
    walkers[1].random[0], walkers[1].tally[3], walkers[1].tally[4] = 2**64 - 1, 77, -1
    write_state(path, task, WalkState.of(walkers, LowestRank(4, 1, 5, walkers[0].best.copy())))
    read = walkers_of(task)
    best = read_state(path, task, read)
    assert best[:3] == (4, 1, 5) and (best.factors == walkers[0].best).all()
    for walker, other in zip(walkers, read, strict=True):
        assert all((getattr(walker, name) == getattr(other, name)).all() for name in ("factors", "best", "random", "tally"))


def changed(change: Callable[[Any], object]) -> Callable[[str], str]:
    def edit(text: str) -> str:
        content = json.loads(text)
        change(content)
        return json.dumps(content)

    return edit


BAD: list[tuple[Callable[[str], str], str]] = [
    (lambda text: text[:100], "it is damaged or cut off at character 100"),
    (lambda text: text[:-3], "it is damaged or cut off at character "),
    (lambda text: "", "it is damaged or cut off at character 0"),
    (lambda text: "{\udcff" + text, "it is damaged at byte 1"),
    (lambda text: "[" * 100_000, "a field is missing or wrong"),
    (lambda text: "[1, 2]", "it does not say that it is one"),
    (changed(lambda c: c.update(version="bilinear walk 0")), "it does not say that it is one"),
    (changed(lambda c: c.pop("search")), "it does not say of which search"),
    (changed(lambda c: c["search"].update(seed=5)), "its seed is 5, not 4"),
    (changed(lambda c: c["search"].update(ring="Z")), "its ring is Z, not Z/2"),
    (changed(lambda c: c["search"].update(start="0")), "its start is 0, not"),
    (changed(lambda c: c.pop("best")), "a field is missing or wrong"),
    (changed(lambda c: c["best"].update(rank="8")), "its best scheme is wrong"),
    (changed(lambda c: c["best"].update(walker=2)), "its best scheme is wrong"),
    (changed(lambda c: c["walkers"].pop()), "it does not hold 2 walkers"),
    (changed(lambda c: c["walkers"][0].pop("random")), "a field is missing or wrong"),
    (changed(lambda c: c["walkers"][0].update(random=-1)), "the random numbers of a walker are wrong"),
    (changed(lambda c: c["walkers"][0].update(random=2**64)), "the random numbers of a walker are wrong"),
    (changed(lambda c: c["walkers"][0]["tally"].pop()), "the tally of a walker is wrong"),
    (changed(lambda c: c["walkers"][1]["tally"].__setitem__(0, 500)), "the tally of a walker is wrong"),
    (changed(lambda c: c["walkers"][1]["tally"].__setitem__(3, 0.5)), "the tally of a walker is wrong"),
    (changed(lambda c: c["walkers"][1]["factors"][0].pop()), "the factors of a walker are wrong"),
    (changed(lambda c: c["walkers"][1]["factors"].pop()), "a field is missing or wrong"),
    (changed(lambda c: c["walkers"][1]["factors"][0].__setitem__(0, True)), "the factors of a walker are wrong"),
    (changed(lambda c: c["walkers"][1]["factors"][0].__setitem__(0, 16)), "a factor has more blocks than the format"),
    (changed(lambda c: c["walkers"][1]["factors"][0].__setitem__(0, 3)), "the products of a walker do not multiply matrices"),
    (changed(lambda c: c["walkers"][0]["best"][2].__setitem__(0, 3)), "the products of a walker do not multiply matrices"),
]


@pytest.mark.parametrize(("edit", "reason"), BAD)
def test_what_is_no_state_of_the_search_is_refused(tmp_path: Path, edit: Callable[[str], str], reason: str) -> None:
    path = tmp_path / "walk.json"
    kept(path)
    path.write_text(edit(path.read_text()), errors="surrogateescape")
    with pytest.raises(BilinearError) as refused:
        read_state(path, TASK, walkers_of(TASK))
    (diagnostic,) = refused.value.diagnostics
    assert diagnostic.code == "E742" and reason in diagnostic.message and diagnostic.hints


def test_a_folder_is_no_state(tmp_path: Path) -> None:
    with pytest.raises(BilinearError, match=r"E742.*Is a directory"):
        read_state(tmp_path, TASK, walkers_of(TASK))


def test_both_masks_of_signs_may_not_meet(tmp_path: Path) -> None:
    path, task = tmp_path / "walk.json", SearchTask((2, 2, 2), 7, walkers=1)
    kept(path, task)
    content = json.loads(path.read_text())
    content["walkers"][0]["factors"][1][0] = content["walkers"][0]["factors"][0][0]
    path.write_text(json.dumps(content))
    with pytest.raises(BilinearError, match="E742"):
        read_state(path, task, walkers_of(task))
