"""Parts of C whose temporaries lie in later parts: exact results, nothing allocated, A and B as promised."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from artifact.built_folders import needs_emulator
from choices import running
from runtime.operands import integers
from runtime.pretended_gpu import Array, undescribed

import bilinear
from bilinear.backends import numpy_executor
from bilinear.errors import BilinearError, StageError
from bilinear.ir.tile import LARGE, USUAL
from bilinear.methods.planning import load_plan
from bilinear.planner.plan import Panel, Plan
from bilinear.planner.plan_files import plan_json, save_plan
from bilinear.planner.scheduled import Scheduled
from bilinear.planner.ways import hashes
from bilinear.runtime import repeat

DEPTH_FIRST = ("winograd_depth_first",)
CHAINS: dict[str, tuple[int, tuple[Panel, ...]]] = {
    "one level": (1, (Panel(30, Scheduled(("classical",), "preserve", tile=USUAL)),)),
    "two levels, then one": (
        2,
        (Panel(11, Scheduled(DEPTH_FIRST, "preserve", tile=USUAL)), Panel(23, Scheduled(("classical",), "preserve", tile=LARGE))),
    ),
    "the last one in place": (1, (Panel(30, Scheduled(("msmes",), "restore", tile=USUAL)),)),
}
SQUARE = (64, 64, 64)
SHAPES = [SQUARE, (67, 62, 66), (66, 63, 67), (68, 24, 65)]


def chain(shape: tuple[int, int, int], name: str, **limits: Any) -> Plan:
    """A plan with the parts of this name. The planner would not choose it for so small a problem."""
    levels, rest = CHAINS[name]
    inputs = rest[-1].choice.inputs
    known = bilinear.plan(*shape, "float64", device="h200", levels=DEPTH_FIRST * levels)
    first = running(known.chosen, 0, rest=rest, strategy="borrow")
    sha256 = tuple(one for part in first.parts for one in pinned(part.levels, part.inputs, shape).sha256)
    return replace(known, problem=replace(known.problem, inputs=inputs, **limits), candidates=(first,), sha256=sha256)


def pinned(levels: tuple[str, ...], inputs: str, shape: tuple[int, int, int]) -> Plan:
    return bilinear.plan(*shape, "float64", device="h200", levels=levels, inputs=inputs)


def operands(shape: tuple[int, int, int], orders: str) -> tuple[Any, Any, Any]:
    m, k, n = shape
    generator = np.random.default_rng(m + k + n)
    whole: Any = integers(generator, (m, k)), integers(generator, (k, n)), np.full((m, n), np.nan)
    a, b, c = (np.asarray(x, order=order) for x, order in zip(whole, orders, strict=True))  # type: ignore[call-overload]
    return a, b, c


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", CHAINS)
def test_every_chain_is_exact_and_allocates_nothing(name: str, shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numpy_executor.NumpyExecutor, "allocate", None)  # a call that allocates a workspace fails
    for orders in map("".join, product("CF", repeat=3)):
        a, b, c = operands(shape, orders)
        wanted, kept = 3 * (a @ b), (a.copy(), b.copy())
        plan = chain(shape, name, column_major=("C",) if orders[2] == "F" else ())
        bilinear.matmul(a, b, c, alpha=3, plan=plan, workspace="none")
        np.testing.assert_array_equal(c, wanted)
        np.testing.assert_array_equal(a, kept[0])
        np.testing.assert_array_equal(b, kept[1])
        np.testing.assert_array_equal(bilinear.matmul(a, b, plan=chain(shape, name)), a @ b)


@needs_emulator
@pytest.mark.parametrize("name", ["one level", "the last one in place", pytest.param("two levels, then one", marks=pytest.mark.slow)])
def test_it_is_found_again_on_a_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with undescribed(monkeypatch):
        for orders in ("CCC", "FCF"):
            plan = chain(SQUARE, name, column_major=("C",) if orders[2] == "F" else ())
            for _ in range(2):
                a, b, c = operands(SQUARE, orders)
                wanted = 3 * (a @ b)
                left, right = Array(a.copy(order="K")), Array(b.copy(order="K"))
                bilinear.matmul(left, right, Array(c), alpha=3, plan=plan, workspace="none")
                np.testing.assert_array_equal(c, wanted)
                np.testing.assert_array_equal(left.host, a)
                np.testing.assert_array_equal(right.host, b)
        assert len(repeat._repeats) == 2


def test_a_batch_is_computed_matrix_by_matrix() -> None:
    shape, generator = (64, 40, 66), np.random.default_rng(1)
    a, b = integers(generator, (3, 64, 40)), integers(generator, (40, 66))
    np.testing.assert_array_equal(bilinear.matmul(a, b, plan=chain(shape, "two levels, then one")), a @ b)
    with pytest.raises(BilinearError, match="E533"):
        bilinear.matmul(a / 3, b, plan=chain(shape, "the last one in place"), tolerance=0)


@pytest.mark.parametrize("shape", [(256, 64, 32), (40, 64, 300), (64, 64, 64), (48, 64, 80)])
@pytest.mark.parametrize("on_gpu", [False, pytest.param(True, marks=needs_emulator)])
def test_a_result_in_the_other_order_is_computed_aside(on_gpu: bool, shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a plan are never taken for columns: for any extents, nothing outside the result is written."""
    surroundings = undescribed(monkeypatch) if on_gpu else nullcontext()
    m, _, n = shape
    known = bilinear.plan(*shape, "float64", device="h200", levels=DEPTH_FIRST)
    by_rows, by_columns = (
        replace(
            known,
            problem=replace(known.problem, column_major=order),
            candidates=(running(known.chosen, 0, rest=(Panel(left, Scheduled(("classical",))),)),),
            sha256=(*known.sha256, *hashes(("classical",))),
        )
        for order, left in (((), m - 2), (("C",), n - 2))
    )
    a, b, _ = operands(shape, "CCC")
    with surroundings:
        for plan, order in ((by_rows, "F"), (by_columns, "C")):
            memory = np.full(3 * m * n, 7.0)
            c = memory[m * n : 2 * m * n].reshape((m, n), order=order)  # type: ignore[call-overload]
            given = tuple(map(Array, (a.copy(), b.copy(), c))) if on_gpu else (a, b, c)
            with pytest.raises(BilinearError, match="E535"):
                bilinear.matmul(*given, plan=plan, workspace="none")
            for _ in range(2):
                c[...] = np.nan
                bilinear.matmul(*given, plan=plan)
                np.testing.assert_array_equal(c, a @ b)
            assert (memory[: m * n] == 7).all() and (memory[2 * m * n :] == 7).all()


@pytest.mark.parametrize("beta", [0, 2])
def test_what_cannot_lend_is_computed_aside(beta: int) -> None:
    """Gaps between the rows of a result must not be written, and a result with beta holds values that are still needed."""
    shape = SQUARE
    a, b, _ = operands(shape, "CCC")
    wide = np.full((64, 70), 7.0)
    c, plan = (wide[:, :64] if beta == 0 else np.full((64, 64), 7.0)), chain(shape, "one level")
    wanted = a @ b + beta * 7
    with pytest.raises(BilinearError, match="E535"):
        bilinear.matmul(a, b, c, beta=beta, plan=plan, workspace="none")
    assert (wide == 7).all()
    assert (c == 7).all()
    bilinear.matmul(a, b, c, beta=beta, plan=plan)
    np.testing.assert_array_equal(c, wanted)
    assert (wide[:, 64:] == 7).all()


def test_what_is_lent_is_told_to_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = SQUARE
    a, b, c = operands(shape, "CCC")

    def broken(*_: Any, **__: Any) -> None:
        raise FloatingPointError("broken")

    monkeypatch.setattr(np, "matmul", broken)
    with pytest.raises(StageError) as caught:
        bilinear.matmul(a, b, c, plan=chain(shape, "one level"))
    assert (caught.value.changed, caught.value.undefined) == ((), ("C[0:64, :]",))


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("name", CHAINS)
def test_what_an_error_lists_is_what_has_changed(name: str, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an error at any step of any part, everything that the error does not list is unchanged: rows of C, A, and B."""
    plan = chain(SQUARE, name, column_major=("C",) if order == "F" else ())
    steps, left = numpy_executor.NumpyExecutor.steps, [0]

    def failing(self: Any, *arguments: Any) -> Any:
        return [partial(run, step) for step in steps(self, *arguments)]

    def run(step: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise FloatingPointError("broken")
        step()

    monkeypatch.setattr(numpy_executor.NumpyExecutor, "steps", failing)
    told = set()
    for number in range(1, 200):
        a, b, c = operands(SQUARE, f"CC{order}")
        c[...] = 5
        kept, left[0] = (a.copy(), b.copy()), number
        try:
            bilinear.matmul(a, b, c, plan=plan)
        except StageError as error:
            names = (*error.changed, *error.undefined)
        else:
            break
        told.add(names)
        spared = np.ones(64, bool)
        for span in (one for one in names if one[0] == "C"):
            low, high = re.findall(r"\d+", span)
            spared[int(low) : int(high)] = False
        assert ((c if order == "C" else c.T)[spared] == 5).all(), names
        for matrix, before, letter in ((a, kept[0], "A"), (b, kept[1], "B")):
            if not any(one[0] == letter for one in names):
                np.testing.assert_array_equal(matrix, before)
    assert len(told) > 1 and number > 10, "all steps are tried"


def test_a_chain_is_kept_in_a_file(tmp_path: Path) -> None:
    plan = chain(SQUARE, "two levels, then one")
    save_plan(plan, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == plan


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"extent": 0}, "E545"),
        ({"extent": 64}, "E545"),
        ({"extent": True}, "E545"),
        ({"extent": 2**70}, "E545"),
        ({"tile": "doubles-usual"}, "E545"),  # a tile of float32
        ({"tile": 0}, "E545"),
        ({"levels": []}, "E545"),
        ({"inputs": "consume"}, "E545"),
        ({"levels": ["strassen"]}, "E546"),
        ({"extent": 2}, "E543"),  # too few rows to hold the temporaries
    ],
)
def test_a_file_that_makes_no_sense_is_refused(change: dict[str, Any], code: str, tmp_path: Path) -> None:
    value = json.loads(plan_json(chain(SQUARE, "one level")))
    part = value["candidates"][0]["choice"]["rest"][0]
    (part if "extent" in change else part["choice"]).update(change)
    (tmp_path / "plan.json").write_text(json.dumps(value), encoding="utf-8")
    a, b, c = operands(SQUARE, "CCC")
    with pytest.raises(BilinearError, match=code):
        bilinear.matmul(a, b, c, plan=load_plan(tmp_path / "plan.json"))
    assert np.isnan(c).all()


def test_only_the_last_part_of_a_file_writes_the_inputs(tmp_path: Path) -> None:
    """If an earlier part consumed the inputs, later parts would miss them."""
    plan = chain(SQUARE, "the last one in place")
    save_plan(replace(plan, candidates=(running(plan.chosen, inputs="restore"),)), tmp_path / "plan.json")
    with pytest.raises(BilinearError, match="a part that is not the last one writes the inputs"):
        load_plan(tmp_path / "plan.json")
