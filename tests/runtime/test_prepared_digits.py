"""Prepared operands of products of digits and residues, on a pretended GPU that runs the emitted kernels, which sees planted mistakes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial, partialmethod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from choices import running
from digit_unit import slow_units
from runtime.operands import laid
from runtime.pretended_gpu import Array, Gpu
from runtime.test_complex_digits import gaussian

import bilinear
from bilinear.emulator import skip_reason
from bilinear.errors import BilinearError
from bilinear.frontend.printer import print_scheme
from bilinear.methods.digits.binding import KeptMultiply
from bilinear.methods.digits.choice import geometry_of
from bilinear.methods.digits.launches import CutMultiply
from bilinear.methods.program import BESIDE
from bilinear.planner.device_files import load_device
from bilinear.planner.plan import Plan
from bilinear.runtime import devices_here
from bilinear.runtime.prepared import Prepared

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")
H200 = load_device("h200")
DESCRIBED = "h200"
WINOGRAD = ("winograd",)
WAYS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "pairs": ("float32", "pairs", ()),
    "pairs below winograd": ("float32", "pairs", WINOGRAD),
    "residues8 below winograd": ("float32", "residues8", WINOGRAD),
    "residues14": ("float64", "residues14", ()),
    "complex64": ("complex64", "pairs", WINOGRAD),
    "complex128": ("complex128", "residues14", ()),
}
SIDES = "left", "right"
SHAPE = 41, 70, 60


def plan_of(shape: tuple[int, int, int], way: str = "pairs below winograd", **options: Any) -> Plan:
    dtype, products, levels = WAYS[way]
    return bilinear.plan(*shape, dtype, device=H200, levels=levels, products=products, **options)


def integers(dtype: str, *shapes: tuple[int, ...]) -> list[Any]:
    draw = np.random.default_rng(4)
    made = [gaussian(draw, 15, *x) if dtype.startswith("c") else draw.integers(-30, 31, x) for x in shapes]
    return [np.asarray(x, dtype) for x in made]


def normal(dtype: str, *shapes: tuple[int, ...]) -> list[Any]:
    draw = np.random.default_rng(9)
    return [(draw.standard_normal(x) + (1j * draw.standard_normal(x) if dtype.startswith("c") else 0)).astype(dtype) for x in shapes]


def kept(side: str, a: Any, b: Any, plan: Plan, **options: Any) -> Prepared:
    if side == "left":
        return bilinear.prepare(Array(a), columns=plan.problem.n, plan=plan, **options)
    return bilinear.prepare(Array(b), rows=plan.problem.m, plan=plan, **options)


def product(own: Prepared, a: Any, b: Any, out: Any = None, **options: Any) -> Any:
    target = None if out is None else Array(out)
    left, right = (own, Array(b)) if own.side == "A" else (Array(a), own)
    return bilinear.matmul(left, right, target, **options).host


def code(call: Callable[[], object]) -> str:
    with pytest.raises(BilinearError) as caught:
        call()
    return caught.value.diagnostics[0].code


@pytest.mark.sample(3)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("way", WAYS)
def test_integers_are_exact_and_other_bits_are_those_of_the_plain_call(gpu: Gpu, way: str, side: str) -> None:
    plan, dtype, (m, k, n) = plan_of(SHAPE, way), WAYS[way][0], SHAPE
    for a, b, old in (integers(dtype, (m, k), (k, n), (m, n)), normal(dtype, (m, k), (k, n), (m, n))):
        own = kept(side, a, b, plan)
        for alpha, beta in ((1, 0), (3, -2)):
            out, plain = (np.full_like(old, np.nan) if beta == 0 else old.copy() for _ in range(2))
            assert product(own, a, b, out, alpha=alpha, beta=beta) is out
            bilinear.matmul(Array(a), Array(b), Array(plain), alpha=alpha, beta=beta, plan=plan)
            np.testing.assert_array_equal(out, plain)
            if (a == a.round()).all():
                np.testing.assert_array_equal(out, alpha * (a @ b) + beta * old)
        np.testing.assert_array_equal(product(own, a, b), product(own, a, b))
    assert gpu.library == 0


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("way", ["pairs below winograd", "residues14"])
def test_only_the_other_operand_is_cut(gpu: Gpu, way: str, side: str) -> None:
    plan, (m, k, n) = plan_of(SHAPE, way), SHAPE
    a, b = normal(WAYS[way][0], (m, k), (k, n))
    own = kept(side, a, b, plan)
    del gpu.launches[:]
    product(own, a, b)
    with_kept = len(gpu.launches)
    del gpu.launches[:]
    bilinear.matmul(Array(a), Array(b), plan=plan)
    assert with_kept == len(gpu.launches) - 2 > 3  # no search for scales, and no cutting


@pytest.mark.parametrize("side", SIDES)
def test_what_is_kept_is_what_is_said_and_leaves_the_workspace(gpu: Gpu, side: str) -> None:
    plan, (m, k, n) = plan_of(SHAPE), SHAPE
    a, b = normal("float32", (m, k), (k, n))
    own, g = kept(side, a, b, plan), geometry_of(WINOGRAD, SHAPE, "pairs")
    number = SIDES.index(side)
    assert own.bytes == g.places[2 + number] - g.places[1 + number] + 4 * (g.lines[number] + 1)
    assert own.bytes >= g.digit_bytes[number]
    shape = f"{'x'.join(map(str, (m, k) if side == 'left' else (k, n)))}".replace("x", " x ")
    assert repr(own).startswith(f"<Prepared {side} operand {shape}, float32, for winograd, 1 level on pairs: keeps ")
    taken: list[int] = []
    out = np.zeros((m, n), np.float32)
    with gpu.using(allocate=taken.append):
        product(own, a, b, out)
    needed = (plan.chosen.workspace or 0) - (g.places[2 + number] - g.places[1 + number])
    assert taken == [needed]
    assert code(lambda: product(own, a, b, out, workspace="none")) == "E535"
    assert code(lambda: product(own, a, b, out, workspace=needed - 1)) == "E535"
    assert code(lambda: product(own, a, b, out, workspace=Array(np.zeros(needed - 4, np.uint8)))) == "E529"
    plain, space = np.zeros_like(out), np.full(needed // 4 + 8, np.nan, np.float32)
    begin = -space.ctypes.data % 16 // 4
    with gpu.using(allocate=lambda count: pytest.fail("memory of the pool")):
        product(own, a, b, out, workspace=Array(space[begin : begin + needed // 4]))
    bilinear.matmul(Array(a), Array(b), Array(plain), plan=plan)
    np.testing.assert_array_equal(out, plain)


@pytest.mark.parametrize("side", SIDES)
def test_batches_and_other_extents_of_the_other_operand(gpu: Gpu, side: str) -> None:
    plan, (m, k, n) = plan_of(SHAPE, "pairs"), SHAPE
    a, b = integers("float32", (m, k), (k, n))
    own = kept(side, a, b, plan)
    for extent in (2, 40, 131):
        x, y = integers("float32", (extent, k), (k, extent))
        left, right = (a, y) if side == "left" else (x, b)
        np.testing.assert_array_equal(product(own, left, right), left @ right)
    left, right = (a, np.stack([b, 2 * b, -b])) if side == "left" else (np.stack([a, 2 * a, -a]), b)
    np.testing.assert_array_equal(product(own, left, right), left @ right)
    space = np.zeros(10**6, np.uint8)
    np.testing.assert_array_equal(product(own, left, right, workspace=Array(space[-space.ctypes.data % 16 :])), left @ right)
    out = np.full((2, 3, m, n), np.nan, np.float32)  # more matrices than were given: they are repeated
    product(own, left[None], right, out) if side == "right" else product(own, left, right[None], out)
    np.testing.assert_array_equal(out, np.broadcast_to(left @ right, out.shape))


@pytest.mark.sample(1)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("way", ["pairs", "residues8 below winograd", "residues14"])
def test_inf_and_nan_of_either_operand_are_those_of_the_classical_product(gpu: Gpu, way: str, side: str) -> None:
    plan, (m, k, n), dtype = plan_of(SHAPE, way), SHAPE, WAYS[way][0]
    for number, value in ((0, np.inf), (0, np.nan), (1, -np.inf)):
        a, b, old = integers(dtype, (m, k), (k, n), (m, n))
        (a, b)[number][3, 4] = value
        own = kept(side, a, b, plan)
        holds = number == SIDES.index(side)
        assert (own.bytes == 0) is holds  # the classical product reads the operand itself
        for alpha, beta in ((1, 0), (2, 3)):
            out = old.copy()
            product(own, a, b, out, alpha=alpha, beta=beta)
            with np.errstate(invalid="ignore"):
                np.testing.assert_array_equal(out, alpha * (a @ b) + (beta * old if beta else 0))
        if not holds:  # and the flag of one call is not that of the next
            left, right = integers(dtype, (m, k), (k, n))
            np.testing.assert_array_equal(product(own, left, right), left @ right)
    assert gpu.library == 0


@pytest.mark.sample(2)
@pytest.mark.parametrize("way", ["pairs below winograd", "residues14"])
@pytest.mark.parametrize("by_columns", [(), ("A",), ("B",), ("A", "B")], ids=str)
def test_operands_lie_in_every_order_and_at_any_address(gpu: Gpu, way: str, by_columns: tuple[str, ...]) -> None:
    plan, (m, k, n), dtype = plan_of(SHAPE, way), SHAPE, WAYS[way][0]
    whole = integers(dtype, (m, k), (k, n))
    for padded in (0, 3):
        a, b = (laid(x, dtype, name in by_columns, padded) for name, x in zip("AB", whole, strict=True))
        moved = [np.zeros(x.size + 5, dtype)[1:][: x.size].reshape(x.shape) for x in whole]  # at no multiple of 16 bytes, once at least
        for target, x in zip(moved, whole, strict=True):
            target[...] = x
        for side in SIDES:
            for left, right in ((a, b), (moved[0], b), (a, moved[1])):
                np.testing.assert_array_equal(product(kept(side, left, right, plan), left, right), whole[0] @ whole[1])


def test_digits_of_an_operand_at_one_address_serve_others_at_any(gpu: Gpu) -> None:
    plan, (m, k, n) = plan_of(SHAPE), SHAPE
    a, b = normal("float32", (m, k), (k, n))
    own = kept("right", a, b, plan)
    memory = np.zeros(a.size + 8, np.float32)
    for begin in range(4):
        x = memory[begin : begin + a.size].reshape(a.shape)
        x[...] = a
        np.testing.assert_array_equal(product(own, x, b), product(own, a, b))


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_a_changed_operand_is_refused(gpu: Gpu, dtype: str) -> None:
    plan, (m, k, n) = plan_of(SHAPE, "complex64" if dtype == "complex64" else "pairs"), SHAPE
    a, b = integers(dtype, (m, k), (k, n))
    own, unchecked = kept("right", a, b, plan), kept("right", a, b, plan, check=False)
    first = a @ b
    steps = (1, 1j) if dtype == "complex64" else (1,)
    for step in steps:
        b[k - 1, n - 1] += step
        assert code(lambda: product(own, a, b)) == "E537"
        np.testing.assert_array_equal(product(unchecked, a, b), first)  # as documented: the product of what was kept
        b[k - 1, n - 1] -= step
    b[[0, 1]] = b[[1, 0]]
    assert code(lambda: product(own, a, b)) == "E537"
    b[[0, 1]] = b[[1, 0]]
    np.testing.assert_array_equal(product(own, a, b), first)


def test_plans_that_keep_nothing_or_do_not_fit_are_refused(gpu: Gpu) -> None:
    a, b = integers("float32", (41, 70), (70, 60))
    right = Array(b)
    on_load = bilinear.plan(*SHAPE, "float32", device=H200, products="pairs_on_load")
    thin = bilinear.plan(*SHAPE, "float32", device=H200)
    thin = replace(thin, candidates=(next(one for one in thin.candidates if one.strategy == "thin"),))
    pairs = plan_of(SHAPE, "pairs")
    assert thin.chosen.strategy == "thin"
    blocks = replace(pairs, candidates=(running(pairs.chosen, cut=(2, 1)),))
    for plan in (on_load, thin, blocks):
        assert code(partial(bilinear.prepare, right, rows=41, plan=plan)) == "E539"
    assert code(lambda: bilinear.prepare(b, rows=41, plan=pairs)) == "E539"  # NumPy's array
    assert code(lambda: bilinear.prepare(right, rows=42, plan=pairs)) == "E544"
    assert code(lambda: bilinear.prepare(Array(b.astype(float)), rows=41, plan=pairs)) == "E544"
    assert code(lambda: bilinear.prepare(right, rows=41, plan=pairs, algorithm="winograd")) == "E544"
    assert code(lambda: bilinear.prepare(right, rows=41, plan=pairs, accuracy="classical")) == "E519"
    own = kept("right", a, b, pairs)
    assert code(lambda: product(own, a.astype(float), b)) == "E538"
    assert code(lambda: product(own, a[0], b)) == "E538"
    assert code(lambda: product(own, a, b, np.zeros((60, 41), np.float32).T)) == "E538"
    with pytest.raises(ValueError, match="inner dimensions"):
        product(own, a[:, :5], b)


def test_a_schedule_of_a_plan_is_kept_too(gpu: Gpu) -> None:
    a, b = integers("float32", (41, 70), (70, 60))
    plan = bilinear.plan(*SHAPE, "float32", device=H200, levels=WINOGRAD)
    own = kept("right", a, b, plan)
    assert own.digits is None and own.bytes
    np.testing.assert_array_equal(product(own, a, b), a @ b)
    restore = bilinear.plan(*SHAPE, "float32", device=H200, levels=("msmes",), inputs="restore")
    assert code(lambda: kept("right", a, b, restore)) == "E539"


def test_results_aside_from_out(gpu: Gpu) -> None:
    (a,) = integers("float32", (64, 64))
    plan, wanted = plan_of((64, 64, 64), "pairs"), a @ a
    x = a.copy()
    own = kept("right", x, a, plan)
    product(own, x, a, x, beta=2)
    np.testing.assert_array_equal(x, wanted + 2 * a)
    wide = np.ones((64, 64))
    product(own, a, a, wide, alpha=2, beta=-1)
    np.testing.assert_array_equal(wide, 2 * wanted - 1)
    needed = (plan.chosen.workspace or 0) - own.bytes + 4 * 65
    assert code(lambda: product(own, a, a, wide, workspace=needed)) == "E535"
    with gpu.using(is_capturing=True):
        product(replace(own, digest=None), a, a, wide)
    np.testing.assert_array_equal(wide, wanted)


def test_while_a_stream_is_captured(gpu: Gpu) -> None:
    plan, (m, k, n) = plan_of(SHAPE), SHAPE
    a, b = integers("float32", (m, k), (k, n))
    own, unchecked = kept("right", a, b, plan), kept("right", a, b, plan, check=False)
    out, space = np.zeros((m, n), np.float32), np.zeros(10**6, np.uint8)
    space = space[-space.ctypes.data % 16 :]
    with gpu.using(is_capturing=True):
        for check in (True, False):
            assert code(partial(kept, "right", a, b, plan, check=check)) == "E536"
        assert code(lambda: product(own, a, b, out, workspace=Array(space))) == "E536"
        assert code(lambda: product(unchecked, a, b, workspace=Array(space))) == "E536"
        for workspace in (None, Array(space)):
            out[...] = np.nan
            product(unchecked, a, b, out, workspace=workspace)
            np.testing.assert_array_equal(out, a @ b)


@pytest.mark.slow
def test_auto_keeps_no_digits_before_a_gpu_has_run_them(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    eager = slow_units(H200)
    monkeypatch.setattr(devices_here, "_described", lambda named, index: eager)
    a, b = integers("float32", (70, 900), (900, 70))
    own = bilinear.prepare(Array(b), rows=70, accuracy="classical")
    assert own.digits is None and own.bytes == 0
    np.testing.assert_array_equal(product(own, a, b), a @ b)
    assert gpu.library == 0
    monkeypatch.setenv("BILINEAR_USE_LIBRARY", "1")
    np.testing.assert_array_equal(product(own, a, b), a @ b)
    assert gpu.library == 1


def test_digits_below_a_file_that_has_changed_are_refused(gpu: Gpu, tmp_path: Path) -> None:
    a, b = integers("float32", (41, 70), (70, 60))
    path = tmp_path / "mine.bl"
    path.write_text(print_scheme(bilinear.load("strassen").scheme), encoding="utf-8")
    plan = bilinear.plan(*SHAPE, "float32", device=H200, levels=(str(path),), products="pairs")
    own = kept("right", a, b, plan)
    np.testing.assert_array_equal(product(own, a, b), a @ b)
    path.write_text(print_scheme(bilinear.load("winograd").scheme), encoding="utf-8")
    bilinear.plan(*SHAPE, "float32", device=H200, levels=(str(path),), products="pairs")
    assert code(lambda: product(own, a, b)) == "E538"


def test_nothing_is_kept_of_empty_operands(gpu: Gpu) -> None:
    plan = plan_of(SHAPE, "pairs")
    a, b = integers("float32", (41, 70), (70, 60))
    own = kept("right", a, b, plan)
    assert product(own, np.zeros((0, 70), np.float32), None).shape == (0, 60)


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
