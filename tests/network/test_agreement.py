"""What ranks are told if they are about to do different things."""

from __future__ import annotations

import pickle

import pytest

from bilinear.distributed.connection import Told, disagreement, failed
from bilinear.errors import fail

SAME = {"shape": "(4, 4, 4)", "levels": "auto"}
REFUSED = fail("E762", "no decomposition needs at most 1 bytes a rank", "allow 9").diagnostics[0]


def test_ranks_that_say_the_same_go_on() -> None:
    assert disagreement([Told(SAME)] * 3) is None


def test_the_first_difference_is_told_with_all_ranks() -> None:
    found = disagreement([Told(SAME), Told({**SAME, "levels": "2"}), Told(SAME), Told({"levels": "3", "shape": "(4, 4, 4)"})])
    assert found is not None and found.code == "E763" and found.message == "the ranks differ in levels"
    assert found.notes == ("ranks 0, 2: auto", "rank 1: 2", "rank 3: 3")


def test_what_all_ranks_are_refused_for_is_told_as_it_is() -> None:
    assert disagreement([Told(SAME, REFUSED)] * 2) == REFUSED


@pytest.mark.parametrize("others", [(), (2,)])
def test_what_some_ranks_are_refused_for_is_told_with_the_rank(others: tuple[int, ...]) -> None:
    told = [Told(SAME, REFUSED if rank == 1 or rank in others else None) for rank in range(3)]
    found = disagreement(told)
    assert found is not None and found.code == "E767" and found.hints == ("allow 9",)
    assert found.message == "rank 1 cannot take part: no decomposition needs at most 1 bytes a rank (E762)"
    assert found.notes == tuple(f"rank {rank} cannot take part either" for rank in others)


def test_a_failure_passes_from_one_process_to_another() -> None:
    found = pickle.loads(pickle.dumps(failed(2, MemoryError("no room"))))
    assert str(found) == "error[E764]: rank 2 failed: MemoryError: no room\n  hint: its own output says more"
