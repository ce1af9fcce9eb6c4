"""The kernel for a thin product beside the models of streaming, as `plan --explain` prints them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest
from shell import Shell

from bilinear.analysis.traffic import ARITHMETIC, LATENCY, MEMORY
from bilinear.ir.element import ELEMENTS
from bilinear.ir.thin_tile import THIN_TILES, ThinTile, ThinTriplesTile
from bilinear.methods.planning import make_plan, plan_from_json
from bilinear.methods.thin.choice import kind_of, view_of
from bilinear.planner.device_files import load_device
from bilinear.planner.problem import Problem
from bilinear.planner.roofline import roofline, streaming
from bilinear.reporting.plans import streaming_table

H200 = load_device("h200")


def test_long_matrices_keep_memory_busy_and_short_ones_wait_for_it() -> None:
    plan = make_plan(Problem(10_000_000, 8, 8, "float32"), H200)
    long = streaming(plan, H200)
    assert long is not None and long.bound_by == MEMORY and long.share > 0.5
    tile, rates = THIN_TILES["float32"][plan.chosen.tile], H200.thin_rates("float32")
    assert rates is not None
    assert long.under_way % (long.blocks * (tile.stages - 1) * ELEMENTS["float32"].bytes) == 0
    reading = (8 * 10_000_000 + 64) / (2 * 8 * 10_000_000 + 64)  # C is written meanwhile
    assert long.needed == pytest.approx(reading * H200.bandwidth * 1e9 / H200.processors * rates.latency * 1e-6, rel=1e-4)
    explained = make_plan(Problem(2_000, 8, 8, "float32"), H200, True)
    thin = next(c for c in explained.candidates if c.strategy == "thin")
    short = streaming(_with(explained, thin), H200)
    assert short is not None and short.bound_by == LATENCY and short.blocks == 1


def test_many_columns_are_bound_by_arithmetic() -> None:
    explained = make_plan(Problem(100_000, 4_096, 64, "float32"), H200, True)
    wide = [c for c in explained.candidates if c.strategy == "thin" and THIN_TILES["float32"][c.tile].n >= 64]
    on_pipes = next(c for c in wide if isinstance(THIN_TILES["float32"][c.tile], ThinTile))
    found = streaming(_with(explained, on_pipes), H200)
    assert found is not None and found.bound_by == ARITHMETIC and 20 < found.threshold < 64
    by_digits = next(c for c in wide if isinstance(THIN_TILES["float32"][c.tile], ThinTriplesTile))
    faster = streaming(_with(explained, by_digits), H200)
    assert faster is not None and faster.threshold > 64


@pytest.mark.parametrize(
    ("shape", "dtype"), [((932_969, 14, 33), "float64"), ((29, 1, 2_990_410), "float64"), ((1_000_000, 60, 60), "float32")]
)
def test_what_may_be_read_is_not_less_than_what_is_predicted(shape: tuple[int, int, int], dtype: str) -> None:
    plan = make_plan(Problem(*shape, dtype), H200)
    found, bounds = streaming(plan, H200), roofline(plan, H200)
    assert found is not None and plan.chosen.ms is not None and found.bound_by == bounds.bound_by == MEMORY
    assert found.share >= bounds.traffic / (H200.bandwidth * 1e9) / (plan.chosen.ms * 1e-3)


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((20_480, 20_480, 8), "large x tall-and-skinny (TSM2R)"),
        ((8, 20_480, 20_480), "large x tall-and-skinny (TSM2R)"),
        ((10**6, 8, 16), "tall-and-skinny x small (TSM2L)"),
        ((16, 10**6, 8), "A^T B of two tall-and-skinny matrices"),
        ((5_000, 8, 6_000), "update of low rank"),
        ((64, 64, 64), "small matrices"),
    ],
)
def test_the_kind_is_named(shape: tuple[int, int, int], kind: str) -> None:
    tile = next(iter(THIN_TILES["float32"].values()))
    assert kind_of(view_of(Problem(*shape), tile)) == kind


@pytest.mark.parametrize("shape", [(2_000, 500, 8), (64, 64, 64), (10_000, 8, 8)])
def test_a_plan_of_a_few_microseconds_is_bound_by_latency(shape: tuple[int, int, int]) -> None:
    assert roofline(make_plan(Problem(*shape, "float32"), H200), H200).bound_by == LATENCY


def test_other_plans_have_no_such_figures() -> None:
    assert streaming(make_plan(Problem(4096, 4096, 4096, "float32"), H200), H200) is None


def test_plan_explain_prints_them(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    plan = make_plan(Problem(1_000_000, 8, 8, "float32"), H200, True)
    found = streaming(plan, H200)
    assert found is not None
    shell = Shell(monkeypatch, capsys, "plan", "--shape", "1000000,8,8", "--dtype", "float32", "--device", "h200")
    assert shell("--explain")[1].endswith(streaming_table(found) + "\n")
    explained = shell.json("--explain")
    assert explained["roofline"]["streaming"] == asdict(found) and plan_from_json(json.dumps(explained), "plan.json") == plan
    assert "roofline" not in shell.json() and "Little" not in shell()[1]


def _with(plan: Any, chosen: Any) -> Any:
    return replace(plan, candidates=(chosen, *(c for c in plan.candidates if c is not chosen)))
