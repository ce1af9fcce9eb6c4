"""Limits of time count what a process could use, not what others took from it."""

from __future__ import annotations

import os

from soak.held_up import MOST_TIMES, held_up, is_over


def test_what_others_took_is_not_counted() -> None:
    assert not is_over(59, 0, 60)
    assert is_over(61, 0, 60)
    assert not is_over(61, 2, 60)
    assert is_over(61 * MOST_TIMES, 61 * MOST_TIMES, 60)


def test_a_process_that_is_gone_was_not_held_up() -> None:
    assert held_up(os.getpid()) >= 0
    assert held_up(2**22 + 1) == 0
