"""Products of digits to whose digits C lends its memory, on a pretended GPU that runs the emitted kernels: nothing is allocated."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from functools import cache
from math import inf
from typing import Any

import numpy as np
import pytest
from runtime.operands import laid
from runtime.pretended_gpu import Array, Gpu

import bilinear
from bilinear.emulator import skip_reason
from bilinear.errors import BilinearError
from bilinear.ir.matrix import Layout, layout_of
from bilinear.ir.tile import FLOAT_TILES, RESIDUE_TILES, SMALL
from bilinear.methods.digits import method
from bilinear.methods.digits.binding import digit_multiply_of, kernels_of, multiply_of
from bilinear.methods.digits.choice import Digits
from bilinear.methods.digits.method import Lending
from bilinear.methods.planning import plan_from_json
from bilinear.planner.device_files import load_device
from bilinear.planner.kept_plans import plan_json
from bilinear.planner.plan import Candidate, Panel, Plan
from bilinear.planner.problem import Problem
from bilinear.planner.scheduled import Scheduled

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")
H200 = load_device("h200")
ON_LOAD, PLAIN = ("pairs_on_load", ()), (SMALL, ("classical",))


Parts = list[tuple[int, str, tuple[str, ...], tuple[int, int]]]


DESCRIBED = "h200"


def in_parts(shape: tuple[int, int, int], dtype: str, parts: Parts, by_columns: bool = False, lent: str = "ABP") -> Plan:
    """A plan that computes C in these parts: rows of C (columns if it lies so), products, levels and blocks."""
    whole = bilinear.plan(*shape, dtype, device=H200, products=parts[0][1])
    (_, tile, levels, cut), *later = parts
    *middle, (left, last) = ((rows, part_of(name, own, blocks)) for rows, name, own, blocks in later)
    kept = [Panel(rows, replace(part, lent=lent) if isinstance(part, Digits) else part) for rows, part in middle]
    problem = replace(whole.problem, column_major=("C",) if by_columns else ())
    chosen = replace(whole.chosen, choice=Digits(levels, tile, cut, rest=(*kept, Panel(left, last)), by_columns=by_columns, lent=lent))
    made = replace(whole, problem=problem, candidates=(chosen,), sha256=())
    with suppress(BilinearError):  # of parts that do not fit
        made = replace(made, candidates=(replace(chosen, workspace=bytes_of(made)),))
    return replace(made, sha256=hashes(made))


def part_of(name: str, levels: tuple[str, ...], cut: tuple[int, int]) -> Digits | Scheduled:
    """What computes a part by products of this name."""
    is_cut = name in FLOAT_TILES or name in RESIDUE_TILES
    return Digits(levels, name, cut) if is_cut else Scheduled(levels, tile=name)


def bytes_of(plan: Plan) -> int:
    """The workspace of the product that a plan runs."""
    a, b, c = layouts(plan.problem)
    assert isinstance(plan.chosen.choice, Digits)
    return multiply_of(a, b, c, plan.chosen.choice, False).workspace * plan.problem.itemsize


def hashes(plan: Plan) -> tuple[tuple[str, str], ...]:
    from bilinear.planner.ways import hashes as hashes_of_levels

    return tuple(hashes_of_levels(plan.chosen.all_levels))


CASES: list[tuple[str, Parts]] = [
    ("float32", [(128, "pairs", (), (1, 1)), (128, "pairs", (), (1, 2)), (140, *ON_LOAD, (1, 1))]),
    ("float32", [(128, "pairs", ("winograd",), (1, 1)), (1200, *ON_LOAD, (1, 1))]),
    ("float32", [(128, "residues7", (), (1, 2)), (900, *PLAIN, (1, 1))]),
    ("float64", [(128, "residues14", (), (1, 2)), (700, *PLAIN, (1, 1))]),
]


@pytest.mark.sample(1, slow=10)
@pytest.mark.parametrize(("orders", "lent"), [("", "ABP"), ("C", "ABP"), ("AB", "ABP"), ("", "B"), ("C", "AP"), ("A", "")])
@pytest.mark.parametrize(("dtype", "parts"), CASES, ids=lambda x: x if isinstance(x, str) else x[0][1])
def test_integers_are_exact_and_nothing_else_is_written(gpu: Gpu, dtype: str, parts: Parts, orders: str, lent: str) -> None:
    """C begins at no multiple of 256 bytes, with guards around it; A and B are read only. What C does not hold lies in the workspace."""
    rows, k, across = sum(part[0] for part in parts), 50, 276
    m, n = (across, rows) if "C" in orders else (rows, across)
    generator = np.random.default_rng(rows)
    whole = [generator.integers(-15, 16, shape) for shape in ((m, k), (k, n))]
    a, b = (laid(x, dtype, name in orders, 3) for name, x in zip("AB", whole, strict=True))
    memory = np.full(rows * across + 20, 77.0, dtype)
    c = memory[5 : 5 + rows * across].reshape(rows, across)
    plan, before = in_parts((m, k, n), dtype, parts, "C" in orders, lent), (a.copy(), b.copy())
    out = Array(c.T if "C" in orders else c)
    taken: list[int] = []
    for alpha in (1, -3):
        c[...] = np.nan
        with gpu.using(allocate=taken.append):
            bilinear.matmul(Array(a), Array(b), out, plan=plan, alpha=alpha, workspace="none" if lent == "ABP" else plan.chosen.workspace)
        np.testing.assert_array_equal(out.host, alpha * (whole[0] @ whole[1]))
    assert set(memory[:5]) | set(memory[-15:]) == {77.0} and sum(taken) == 2 * (plan.chosen.workspace or 0) and gpu.library == 0
    for x, kept in zip((a, b), before, strict=True):
        np.testing.assert_array_equal(x, kept)


def test_an_inf_is_that_of_the_classical_product_in_every_part(gpu: Gpu) -> None:
    parts = CASES[0][1]
    generator = np.random.default_rng(1)
    a, b = (generator.integers(-9, 10, shape).astype(np.float32) for shape in ((396, 20), (20, 276)))
    for row in (3, 200, 395):
        x, out = a.copy(), Array(np.full((396, 276), np.nan, np.float32))
        x[row, 4] = np.inf
        bilinear.matmul(Array(x), Array(b), out, plan=in_parts((396, 20, 276), "float32", parts))
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(out.host, x @ b)


def test_a_result_that_lends_nothing_is_computed_aside(gpu: Gpu) -> None:
    """With beta, between gaps, or in the other order. That takes memory, which counts."""
    generator, plan = np.random.default_rng(1), in_parts((396, 20, 276), "float32", CASES[0][1])
    a, b = (Array(generator.integers(-9, 10, shape).astype(np.float32)) for shape in ((396, 20), (20, 276)))
    wanted = a.host @ b.host
    for out, beta in (
        (np.ones((396, 276), np.float32), 2),
        (np.ones((396, 280), np.float32)[:, :276], 0),
        (np.ones((276, 396), np.float32).T, 0),
    ):
        for _ in range(2):
            found = Array(out.copy(order="K") if beta else out)
            bilinear.matmul(a, b, found, plan=plan, beta=beta)
            np.testing.assert_array_equal(found.host, wanted + beta)
        with pytest.raises(BilinearError, match=r"E535.*with a result aside from out"):
            bilinear.matmul(a, b, Array(out), plan=plan, beta=beta, workspace="none")


def test_a_graph_needs_the_scales_alone(gpu: Gpu) -> None:
    generator, plan = np.random.default_rng(1), in_parts((396, 20, 276), "float32", CASES[0][1])
    a, b = (Array(generator.integers(-9, 10, shape).astype(np.float32)) for shape in ((396, 20), (20, 276)))
    out, buffer = Array(np.full((396, 276), np.nan, np.float32)), Array(np.full(plan.chosen.workspace or 0, 255, np.uint8))
    with gpu.using(is_capturing=True):
        bilinear.matmul(a, b, out, plan=plan, workspace=buffer)
    np.testing.assert_array_equal(out.host, a.host @ b.host)


def layouts(p: Problem) -> list[Layout]:
    sides = {"A": (p.m, p.k), "B": (p.k, p.n), "C": (p.m, p.n)}
    size, dtype = p.itemsize, np.dtype(p.dtype)
    return [Layout(x, (size, x[0] * size) if name in p.column_major else (x[1] * size, size), dtype) for name, x in sides.items()]


@pytest.mark.sample(12)
@pytest.mark.parametrize("column_major", [(), ("C",), ("A", "C")])
@pytest.mark.parametrize(
    "shape", [(16384, 16384, 16384), (9001, 7003, 8009), (20000, 300, 5000), (700, 9000, 12345), (129, 5000, 5000)], ids=str
)
@pytest.mark.parametrize("share", [0, 0.3, 1])
@pytest.mark.parametrize(("dtype", "products"), [("float32", "pairs"), ("float64", "residues14"), ("float32", "residues7")])
def test_what_is_planned_fits_the_rows_that_are_lent(
    dtype: str, products: str, share: float, shape: tuple[int, int, int], column_major: tuple[str, ...]
) -> None:
    """The product of a plan is made, which counts the bytes of its parts; parts cover C, and the workspace is as large as the plan says."""
    problem = Problem(*shape, dtype, "preserve", 0, "classical", column_major)
    budget = int(share * shape[0] * shape[2] * problem.itemsize)
    found = Lending(problem, H200, products, ((), ("winograd",)), budget).best()
    if found is None:
        return
    assert sum(part.extent for part in found.rest) < (problem.n if "C" in column_major else problem.m)
    plan = replace(bilinear.plan(*shape, dtype, device=H200, products=products), problem=problem, candidates=(found,))
    (a, b, c), direct = layouts(problem), plan.chosen.choice
    assert isinstance(direct, Digits) and kernels_of(a, b, c, direct, False)
    assert bytes_of(plan) <= (found.workspace or 0) + problem.itemsize
    assert (found.workspace or 0) <= budget or found.choice.needs_little


@pytest.mark.parametrize("n", [8192, 12288, 16384])
def test_no_other_chain_of_parts_is_predicted_to_be_much_faster(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All chains whose parts have multiples of 512 rows, each in the fewest blocks of columns that fit, from 512 columns on."""
    problem, device = Problem(n, n, n, workspace=0), load_device("h100")
    found = Lending(problem, device, "residues14", ((),)).best()
    lending = Lending(problem, replace(device, policy=replace(device.policy, least_digit_block=512)), "residues14", ((),))
    monkeypatch.setattr(method, "COLUMNS", tuple(range(1, n // 512 + 1)))

    @cache
    def least(left: int) -> float:
        ms = [lending._last(left).ms or inf]
        for rows in range(512, left, 512):
            part = lending._fitted(rows, left - rows)
            if part is None:
                break
            ms.append((part.ms or inf) + least(left - rows))
        return min(ms)

    assert found is not None and found.ms is not None and found.ms < 1.015 * least(n)


def test_it_is_chosen_where_no_workspace_is_allowed_and_c_is_overwritten() -> None:
    def chosen(n: int, dtype: str, **options: Any) -> Candidate:
        return bilinear.plan(n, n, n, dtype, device=H200, accuracy="classical", **options).chosen

    for dtype, last in (("float32", "pairs_on_load"), ("float64", "classical")):
        found = chosen(16384, dtype, workspace=0)
        assert found.rest and found.strategy == "digits" and last in found.name and "parts" in found.name and (found.probable or 9.0) <= 1
        assert not chosen(16384, dtype, workspace=0, accumulate=True).rest and not chosen(16384, dtype).rest
        assert (found.ms or 0.0) < 0.85 * (chosen(16384, dtype, workspace=0, accumulate=True).ms or 0.0)
    assert chosen(2048, "float32", workspace=0).tile == "pairs_on_load"
    slower = replace(H200, digits=tuple(own for own in H200.digits if own[0] != "pairs_on_load"))
    other = Lending(Problem(16384, 16384, 16384, "float32", "preserve", 0), slower, "pairs", ((),)).best()
    assert other is not None and other.rest[-1].choice.levels == ("classical",)


def test_plan_files_hold_the_parts_and_forged_ones_are_refused(gpu: Gpu) -> None:
    plan = bilinear.plan(16384, 16384, 16384, "float32", device=H200, accuracy="classical", workspace=0)
    assert plan_from_json(plan_json(plan), "plan") == plan
    for place, change in (
        (0, {"cut": [2, 1], "tile": "pairs_on_load"}),
        (0, {"tile": "usual"}),
        (-1, {"levels": ["winograd"]}),
        (-1, {"cut": [0, 1]}),
        (0, {"lent": "AC"}),
        (-1, {"lent": "A"}),
        (0, {"extent": 10**6}),
    ):
        forged = json.loads(plan_json(plan))
        part = forged["candidates"][0]["choice"]["rest"][place]
        (part if "extent" in change else part["choice"]).update(change)
        with pytest.raises(BilinearError, match="E545"):
            plan_from_json(json.dumps(forged), "plan")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([(130, "pairs", (), (1, 1)), (254, *ON_LOAD, (1, 1))], "do not fit 384 rows"),
        ([(256, "pairs", (), (1, 1)), (127, "pairs", (), (1, 1)), (1, *ON_LOAD, (1, 1))], "do not fit 384 rows"),
        ([(256, "pairs", (), (1, 1)), (128, *ON_LOAD, (1, 1))], "do not hold the plan's digits"),
    ],
)
def test_parts_that_do_not_fit_are_refused(gpu: Gpu, parts: Any, message: str) -> None:
    a, b, out = (Array(np.ones(shape, np.float32)) for shape in ((384, 20), (20, 276), (384, 276)))
    with pytest.raises(BilinearError, match=f"E543.*{message}"):
        bilinear.matmul(a, b, out, plan=in_parts((384, 20, 276), "float32", parts))


def test_complex_matrices_are_not_multiplied_so(gpu: Gpu) -> None:
    x = layout_of(Array(np.ones((384, 384), np.complex64)))
    assert digit_multiply_of(x, x, x, Digits((), "pairs", rest=(Panel(128, Digits((), "pairs_on_load")),))) is None
