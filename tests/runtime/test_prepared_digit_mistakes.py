"""Planted mistakes in products with a prepared operand of digits: each is seen on the pretended GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, partialmethod
from typing import Any

import numpy as np
import pytest
from runtime.pretended_gpu import Array, Gpu
from runtime.test_prepared_digits import SHAPE, SIDES, WAYS, kept, normal, plan_of, product

import bilinear
from bilinear.emulator import skip_reason
from bilinear.methods.digits.binding import KeptMultiply
from bilinear.methods.digits.geometry import geometry_of
from bilinear.methods.digits.launches import CutMultiply
from bilinear.methods.program import BESIDE

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")
DESCRIBED = "h200"
Places = dict[str, tuple[int, int]]
Buffers = Callable[[KeptMultiply], Places]


def further(buffers: Buffers, own: KeptMultiply) -> Places:
    return {name: (base, place + 16 * (base == BESIDE)) for name, (base, place) in buffers(own).items()}


def behind(buffers: Buffers, own: KeptMultiply) -> Places:
    plain = CutMultiply.buffers(own)
    return {name: (base, place) if base == BESIDE else plain[name] for name, (base, place) in buffers(own).items()}


MISTAKES: dict[str, tuple[str, Callable[..., Any]]] = {  # by what is wrong: the method, and what it does instead
    "nothing is read where it is kept": ("buffers", lambda buffers, own: CutMultiply.buffers(own)),
    "four words further": ("buffers", further),
    "what lies behind the digits is not moved": ("buffers", behind),
    "no words are cleared": ("launches", lambda launches, own, *asked: launches(own, *asked)[1:]),
    "no scales of the other operand": (
        "launches",
        lambda launches, own, *asked: [x for i, x in enumerate(launches(own, *asked)) if i != 1],
    ),
    "the other operand is not cut": ("launches", lambda launches, own, *asked: [x for i, x in enumerate(launches(own, *asked)) if i != 2]),
    "no classical product": ("launches", lambda launches, own, *asked: launches(own, *asked)[:-1]),
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("way", ["pairs below winograd", "residues14"])
@pytest.mark.parametrize("name", [None, *MISTAKES])
def test_mistakes_of_a_call_are_seen(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, name: str | None, way: str, side: str) -> None:
    """What was kept is right. The call is right if nothing is exchanged, and else is not, in memory full of ones with a guard behind."""
    plan, (m, k, n), dtype = plan_of(SHAPE, way), SHAPE, WAYS[way][0]
    a, b = normal(dtype, (m, k), (k, n))
    own = kept(side, a, b, plan)
    if name is not None:
        method, wrong = MISTAKES[name]
        monkeypatch.setattr(KeptMultiply, method, partialmethod(partial(wrong, getattr(KeptMultiply, method))))
    g, number = geometry_of(WAYS[way][2], SHAPE, WAYS[way][1]), SIDES.index(side)
    needed = (plan.chosen.workspace or 0) - (g.places[2 + number] - g.places[1 + number])
    memory = np.full(needed + 2**20, 255, np.uint8)
    memory = memory[-memory.ctypes.data % 16 :]
    found = []
    for other in (0, np.inf):
        (b if side == "left" else a)[0, 0] += other
        out, plain = (np.full((m, n), np.nan, dtype) for _ in range(2))
        memory[:needed] = 255
        product(own, a, b, out, workspace=Array(memory[:needed]))
        bilinear.matmul(Array(a), Array(b), Array(plain), plan=plan)
        found.append(np.array_equal(out, plain, equal_nan=True))
    assert (all(found) and bool((memory[needed:] == 255).all())) is (name is None)


@pytest.mark.parametrize("way", ["pairs", "residues14"])
def test_kept_memory_is_cleared_before_it_is_filled(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    plan, (m, k, n), dtype = plan_of(SHAPE, way), SHAPE, WAYS[way][0]
    a, b = normal(dtype, (m, k), (k, n))
    plain = bilinear.matmul(Array(a), Array(b), plan=plan).host
    lay_out = KeptMultiply.laid_out
    for begin in (0, 1):
        with monkeypatch.context() as patched:
            patched.setattr(KeptMultiply, "laid_out", lambda own, launches, buffers, begin=begin: lay_out(own, launches[begin:], buffers))
            own = kept("right", a, b, plan)
        assert (own.bytes > 0 and np.array_equal(product(own, a, b), plain)) is (begin == 0)
