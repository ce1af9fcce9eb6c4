"""Work with the collector of cycles paused, and the collector as it was afterwards."""

import gc

import pytest

from bilinear.analysis.block_maps import uncollected


@uncollected
def state() -> bool:
    return gc.isenabled()


@uncollected
def broken() -> None:
    raise ArithmeticError


def test_it_is_paused_and_goes_on() -> None:
    assert gc.isenabled()
    assert not state()
    assert gc.isenabled()


def test_it_goes_on_after_an_exception() -> None:
    with pytest.raises(ArithmeticError):
        broken()
    assert gc.isenabled()


def test_one_inside_of_another_does_not_end_the_pause() -> None:
    outer = uncollected(lambda: (state(), gc.isenabled()))
    assert outer() == (False, False)
    assert gc.isenabled()
