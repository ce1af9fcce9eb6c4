"""Schedules modulo p on a pretended GPU: in place, and schemes whose sums residues do not hold. The oracle is Python's integers."""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runtime import pretended_gpu
from runtime.one_modulus import over
from runtime.operands import exact_modulo, residues
from runtime.pretended_gpu import Array, Gpu

import bilinear
from bilinear.codegen.render import render
from bilinear.emulator import skip_reason
from bilinear.errors import BilinearError, StageError
from bilinear.ir.element import modular as modular_element
from bilinear.ir.linear import Form, LinearMap
from bilinear.ir.matrix import Matrix, layout_of
from bilinear.ir.number import Coefficient, residue
from bilinear.ir.placement import Placement
from bilinear.ir.schedule import BETA, Block, BlockMap, LinearStage, Product, ProductStage, Schedule, Space, Target
from bilinear.measure.bench_library import check_modulo
from bilinear.methods.digits import integers as modular
from bilinear.runtime.options import algorithm_as_it_is

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")


@pytest.mark.sample(3, slow=12)
@pytest.mark.parametrize("p", [2, 101, 2**62, 65521, 2**31 - 1, 257, 2**61 - 1])
@pytest.mark.parametrize(
    ("algorithm", "inputs", "levels"), [("msmes", "restore", 1), ("msmes", "restore", 2), ("winograd_in_place", "consume", 1)]
)
def test_in_place(gpu: Gpu, algorithm: str, inputs: Any, levels: int, p: int) -> None:
    a, b, old = residues(1, (37, 34), p), residues(2, (34, 41), p), residues(3, (37, 41), p)
    for order, (alpha, beta) in (("C", (1, 0)), ("F", (3, -2))):
        left, right, out = (Array(np.array(x, order=order)) for x in (a, b, old))  # type: ignore[call-overload]  # "C" or "F"
        options: dict[str, Any] = {"algorithm": algorithm, "levels": levels, "inputs": inputs, "workspace": "none"}
        assert bilinear.matmul(left, right, out, modulus=p, alpha=alpha, beta=beta, **options) is out
        np.testing.assert_array_equal(out.host.astype(object), exact_modulo(a, b, p, alpha, beta, old))
        if inputs == "restore":
            np.testing.assert_array_equal(left.host, a)
            np.testing.assert_array_equal(right.host, b)
    assert gpu.library == 0 and any(name.endswith(f"mod{p}") for name, _ in gpu.launches)


@pytest.mark.sample(1, slow=5)
@pytest.mark.parametrize("p", [257, 65521, 2**31 - 1, 2**61 - 1])
@pytest.mark.parametrize("out_dtype", [None, "int64", "uint64"])
def test_fractions_where_residues_hold_none(gpu: Gpu, p: int, out_dtype: str | None) -> None:
    generator = np.random.default_rng(4)
    a, b = (generator.integers(-(2**63), 2**63 - 1, shape) for shape in ((33, 38), (38, 35)))
    old = residues(5, (33, 35), p)
    out = None if out_dtype is None else Array(old.astype(out_dtype))
    beta = 0 if out is None else 7
    found = bilinear.matmul(Array(a), Array(b), out, modulus=p, algorithm="accurate_halves", levels=2, alpha=5, beta=beta)
    np.testing.assert_array_equal(found.host.astype(object), exact_modulo(a, b, p, 5, beta, old))


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "levels", "code"), [("winograd", 3, "E592"), ("laderman", 2, "E501")])
def test_sums_and_blocks_that_residues_do_not_hold(gpu: Gpu, algorithm: str, levels: int, code: str) -> None:
    a, b = residues(6, (19, 18), 65521), residues(7, (18, 20), 65521)
    with pytest.raises(BilinearError, match=code):
        bilinear.matmul(Array(a), Array(b), algorithm=algorithm, levels=levels)
    found = bilinear.matmul(Array(a), Array(b), modulus=65521, algorithm=algorithm, levels=levels)
    np.testing.assert_array_equal(found.host.astype(object), exact_modulo(a, b, 65521))


@pytest.mark.sample(1)
@pytest.mark.parametrize(("p", "factor"), [(65521, 12345), (2**31 - 1, 2**30 + 7)])
def test_schemes_over_a_large_modulus_run_for_it_and_for_no_other(gpu: Gpu, tmp_path: Path, p: int, factor: int) -> None:
    (tmp_path / "only_modulo.bl").write_text(over(p, factor))
    a, b = residues(8, (36, 33), p), residues(9, (33, 39), p)
    named = bilinear.load(tmp_path / "only_modulo.bl")
    for levels in (1, 2):
        found = bilinear.matmul(Array(a), Array(b), modulus=p, algorithm=named, levels=levels)
        np.testing.assert_array_equal(found.host.astype(object), exact_modulo(a, b, p))
    with pytest.raises(BilinearError, match="E594"):
        bilinear.matmul(Array(a), Array(b), modulus=p - 2, algorithm=named, levels=1)


def test_large_products_are_multiplied_in_parts(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    p = 65521
    a, b, old = residues(10, (22, 34), p), residues(11, (34, 26), p), residues(12, (22, 26), p)
    counts = []
    for most in (modular.MOST_RESIDUES, 600):
        monkeypatch.setattr(modular, "MOST_RESIDUES", most)
        left, right, out = Array(a.copy()), Array(b.copy()), Array(old.copy())
        del gpu.launches[:]
        bilinear.matmul(left, right, out, modulus=p, algorithm="msmes", levels=1, inputs="restore", alpha=2, beta=3)
        np.testing.assert_array_equal(out.host.astype(object), exact_modulo(a, b, p, 2, 3, old))
        np.testing.assert_array_equal(left.host, a)
        counts.append(sum("residue_product" in name for name, _ in gpu.launches))
    assert counts[0] == 7 and counts[1] > 28


def test_batches_overlaps_and_other_types(gpu: Gpu) -> None:
    p, generator = 257, np.random.default_rng(12)
    a, b = residues(13, (2, 20, 22), p), residues(14, (2, 22, 20), p)
    found = bilinear.matmul(Array(a), Array(b), modulus=p, algorithm="accurate_halves", levels=1)
    np.testing.assert_array_equal(found.host.astype(object), exact_modulo(a, b, p))
    x, y = residues(15, (24, 24), p), residues(16, (24, 24), p)
    u, v = (generator.integers(2**63, 2**64, shape, "uint64") for shape in ((20,), (20, 22)))
    found = bilinear.matmul(Array(u), Array(v), modulus=p, algorithm="accurate_halves", levels=1)
    assert found.shape == (22,) and found.dtype == np.uint64
    np.testing.assert_array_equal(found.host.astype(object), exact_modulo(u, v, p))
    for dtype in ("int16", "int64"):
        left = Array(x.astype(dtype))
        bilinear.matmul(left, Array(y), left, modulus=p, algorithm="accurate_halves", levels=1, alpha=2, beta=3)
        np.testing.assert_array_equal(left.host.astype(object), exact_modulo(x, y, p, 2, 3, x))


def test_alpha_0_in_place_needs_no_workspace(gpu: Gpu) -> None:
    p = 257
    a, b, old = residues(28, (24, 24), p), residues(29, (24, 24), p), residues(30, (24, 24), p)
    left, out = Array(a.copy()), Array(old.copy())
    bilinear.matmul(left, Array(b), out, modulus=p, alpha=p, beta=3, algorithm="msmes", levels=1, inputs="restore", workspace="none")
    np.testing.assert_array_equal(out.host, 3 * old % p)
    np.testing.assert_array_equal(left.host, a)


def test_run_checks_a_schedule_in_place(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["cupy"], "array", lambda x: Array(np.array(x)))
    check = check_modulo(algorithm_as_it_is("msmes"), (24, 22, 20), 65521, 1, "restore", "gpu")
    assert check.passed and gpu.launches


def test_what_a_schedule_modulo_p_refuses(gpu: Gpu) -> None:
    p = 101
    a, b, out = (residues(seed, (24, 24), p) for seed in (17, 18, 19))

    def restored(x: Any, **options: Any) -> None:
        bilinear.matmul(Array(x), Array(b), Array(out), modulus=p, algorithm="msmes", levels=1, inputs="restore", **options)

    with pytest.raises(BilinearError, match=r"E599.* in a, which is not an aligned array of smaller numbers"):
        restored(a - 1)
    with pytest.raises(BilinearError, match="E526"):
        restored(a.astype(np.int32))
    with pytest.raises(BilinearError, match="E535"):
        bilinear.matmul(Array(a), Array(b), modulus=257, algorithm="accurate_halves", levels=1, workspace="none")
    raw = np.zeros(a.nbytes + 1, np.uint8)[1:].view(np.int64).reshape(a.shape)
    for algorithm in ("classical", "accurate_halves"):
        with pytest.raises(BilinearError, match=r"E598.*at multiples of their bytes"):
            bilinear.matmul(Array(raw), Array(b), modulus=257, algorithm=algorithm, levels=1)
    with gpu.using(is_capturing=True), pytest.raises(BilinearError, match=r"E536.*a schedule modulo p looks at A and B"):
        restored(a)
    assert not gpu.launches


def test_a_failing_launch_restores_the_operands(gpu: Gpu) -> None:
    p = 65521
    a, b = residues(20, (32, 32), p), residues(21, (32, 32), p)
    left, right, out = Array(a.copy()), Array(b.copy()), Array(np.zeros_like(a))

    failures = iter((RuntimeError("a launch failed"),))

    def fail_late(number: int) -> None:
        for error in failures if number == 11 else ():
            raise error

    with gpu.using(before_launch=fail_late), pytest.raises(StageError, match="A and B are restored"):
        bilinear.matmul(left, right, out, modulus=p, algorithm="msmes", levels=1, inputs="restore")
    np.testing.assert_array_equal(left.host, a)
    np.testing.assert_array_equal(right.host, b)


def test_a_product_is_added_to_blocks_that_lie_differently(gpu: Gpu) -> None:
    p = 65521
    a, b, old = residues(22, (24, 20), p), residues(23, (20, 26), p), residues(24, (24, 26), p)
    targets = (Target(Block("C", 0, 0), 3, BETA), Target(Block("X", 0, 0), Fraction(-2, 3), 0), Target(Block("Y", 0, 0), -1))
    product = Product(Block("A", 0, 0), Block("B", 0, 0), targets)
    own = tuple(Space(name, "C", 1, 1) for name in "XY")
    schedule = Schedule("targets", "targets", 1, 1, 1, (ProductStage((product,)),), own)
    arrays = {"A": a, "B": b, "C": old.copy(), "X": np.zeros((30, 24), np.int64).T[:, :26], "Y": np.pad(old, (0, 8))[:24, :26]}
    run_stages(schedule, arrays, (24, 20, 26), p, 5, 7)
    for name, factor, kept in (("C", 3, 7), ("X", residue(Fraction(-2, 3), p), 0), ("Y", -1, 1)):
        np.testing.assert_array_equal(arrays[name].astype(object), exact_modulo(a, b, p, 5 * factor, kept, old))


@pytest.mark.parametrize("on", [Array, np.array])
def test_a_workspace_that_is_too_small_leaves_out_as_it_is(gpu: Gpu, on: Any) -> None:
    a, b, old = residues(25, (24, 24), 65521), residues(26, (24, 24), 65521), np.full((24, 24), -1)
    out, space = on(old.copy()), on(np.zeros(3, np.int64))
    with pytest.raises(BilinearError, match="E529"):
        bilinear.matmul(on(a), on(b), out, modulus=65521, algorithm="accurate_halves", levels=1, beta=1, workspace=space)
    np.testing.assert_array_equal(out.host if on is Array else out, old)


def run_stages(schedule: Schedule, arrays: dict[str, Any], extents: tuple[int, int, int], p: int, alpha: int, beta: int) -> None:
    spaces = {name: Matrix(Array(x).data.ptr, layout_of(x)) for name, x in arrays.items()}
    placement = Placement(schedule, *extents, extents, (), (), 0)
    for step in modular.ModularExecutor(modular_element(p)).steps(placement, schedule.stages, spaces, alpha, beta):
        step()


def left_unreduced(factor: int, p: int) -> int:
    """A number from 0 to p - 1 whose product with the factor the estimated quotient leaves at p or more; 0 if none is found."""
    generator, quotient = np.random.default_rng(27), (factor << 64) // p
    drawn = (int(x) for x in generator.integers(0, p, 1000))
    return next((x for x in drawn if factor * x - (quotient * x >> 64) * p >= p), 0)


@pytest.mark.parametrize("p", [2, 6, 2**31 - 1, 2**62 - 57, 2**62])
def test_the_emitted_arithmetic(gpu: Gpu, p: int) -> None:
    """Sums with coefficients of every kind: 1, -1, fractions, large ones, at the ends of the range."""
    inverse: list[Coefficient] = [Fraction(2, 3), Fraction(-5, 7)] if p > 7 else [3, -5]
    forms: tuple[Form, ...] = (
        ((0, 1), (1, -1)),
        ((0, -1), (1, inverse[0])),
        ((0, p - 1), (1, 1 - p)),
        ((0, inverse[1]), (1, p // 2 + 1)),
        ((1, -1),),
        ((1, inverse[1]),),
    )
    kept: tuple[Coefficient, ...] = (0, 1, BETA, BETA, 0, 0)
    factors = {residue(factor, p) for form in forms for _, factor in form}
    ends = np.array(sorted({0, 1, p // 2, p - 2, p - 1} | {left_unreduced(factor, p) for factor in factors}))
    assert len(ends) > 6 or p < 2**32 or 2**64 % p == 0
    x, y = (grid.reshape(1, -1) for grid in np.meshgrid(ends, ends))
    old, beta = np.tile(x[:, ::-1], len(forms)), p - 2 | 1  # odd
    targets = tuple(Block("C", 0, j) for j in range(len(forms)))
    stage = LinearStage((BlockMap((Block("A", 0, 0), Block("A", 0, 1)), targets, LinearMap(2, forms), kept),))
    schedule = Schedule("emitted", "emitted", 1, 2, len(forms), (stage,))
    a, c, width = np.concatenate([x, y], 1), old.copy(), x.shape[1]
    run_stages(schedule, {"A": a, "C": c}, (1, 2 * width, len(forms) * width), p, 1, beta)
    for number, (form, keep) in enumerate(zip(forms, (0, 1, beta, beta, 0, 0), strict=True)):
        wanted = sum(residue(factor, p) * (x, y)[index].astype(object) for index, factor in form)
        own = slice(number * width, (number + 1) * width)
        np.testing.assert_array_equal(c[:, own].astype(object), (wanted + keep * old[:, own].astype(object)) % p)


MUTANTS = {
    "a sum is not reduced": ("value + x.value < P ? value + x.value : value + x.value - P", "value + x.value"),
    "a difference is not reduced": ("value < x.value ? value + P - x.value : value - x.value", "value + P - x.value"),
    "a negative 0 is p": ("value == 0 ? 0 : P - value", "P - value"),
    "a product is not reduced": ("rest < P ? rest : rest - P", "rest"),
    "beta has no lowest bit": (" bit >= 0;", " bit > 0;"),
    "beta has no highest bit": ("int bit = 61;", "int bit = 60;"),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("change", MUTANTS.values(), ids=MUTANTS)
def test_these_tests_find_mistakes(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, change: tuple[str, str]) -> None:
    def changed(kernel: Any) -> Any:
        text = render(kernel)
        assert change[0] in text
        return text.replace(*change)

    monkeypatch.setattr(pretended_gpu, "render", changed)
    gpu.runs = "text"
    with pytest.raises(AssertionError, match="not equal"):
        test_the_emitted_arithmetic(gpu, 2**62 - 57)
