"""Emulated kernels on guard pages: any shape, layout, scale and order of threads, exact on integers."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from codegen.emulated import EmulatedExecutor
from soak.case import PASSED, REFUSED, Case, Finding
from soak.command import drawn

from bilinear.algorithm import Algorithm
from bilinear.backends.executor import execute
from bilinear.emulator import ORDERS, LaunchError, guarded, guarded_empty, skip_reason
from bilinear.errors import BilinearError
from bilinear.frontend import load, parse_source
from bilinear.ir.matrix import Matrix, call_of, matrix_of
from bilinear.ir.placement import Placement
from bilinear.ir.schedule import Schedule
from bilinear.ir.tile import TILES
from bilinear.lowering.place import place_schedule
from bilinear.lowering.prepare import prepare
from bilinear.source import Source

MOST_SECONDS = 300  # A case whose kernels were never compiled compiles them.
CASES_A_PROGRAM = 64  # Neighbouring seeds that draw from one program, so that most of them compile nothing.
RUNS = 4
ALGORITHMS = (
    *(("msmes", "restore", 1), ("msmes", "restore", 2), ("msmes", "consume", 1), ("strassen", "preserve", 1), ("strassen", "preserve", 2)),
    *(("winograd", "preserve", 1), ("winograd", "preserve", 2), ("winograd_depth_first", "preserve", 1), ("naive2x2", "preserve", 1)),
    *(("winograd_in_place", "restore", 1), ("hopcroft_kerr", "preserve", 1), ("hopcroft_kerr_in_place", "restore", 1)),
    *(("laderman", "preserve", 1), ("laderman_in_place", "restore", 1), ("split_k", "preserve", 2), ("classical", "restore", 1)),
)
__all__ = ["run", "skip_reason"]
LARGE = {"float32": (31, 32, 53, 63, 64, 100), "float64": (31, 32, 53, 62, 63, 64, 127, 128, 200)}
"""Powers of two as coefficients, which a float holds exactly, and an integer of C may not."""


@dataclass(frozen=True)
class Setting:
    """A schedule, what it promises, and what its kernels are made for."""

    name: str
    schedule: Schedule
    inputs: str
    dtype: str
    tile: str


def run(case: Case) -> str:
    """Run one program on a few problems."""
    program = drawn(Case(case.kind, case.seed // CASES_A_PROGRAM, case.folder))
    draw = drawn(case)
    setting = _setting(program)
    if setting is None:
        return REFUSED
    for _ in range(RUNS):
        _run_once(setting, draw)
    return PASSED


def _setting(draw: random.Random) -> Setting | None:
    """The program; None where its coefficients are refused."""
    dtype = draw.choice(("float32", "float64"))
    tile = draw.choice(list(TILES[dtype]))
    if draw.random() < 0.2:
        schedule = _scaled(draw.choice((1, -1)) * 2 ** draw.choice(LARGE[dtype]), dtype)
        return None if schedule is None else Setting("scaled", schedule, "preserve", dtype, tile)
    name, inputs, levels = draw.choice(ALGORITHMS)
    return Setting(name, _prepared(name, inputs, levels), inputs, dtype, tile)


@cache
def _prepared(name: str, inputs: str, levels: int) -> Schedule:
    loaded = load(name)
    return prepare(loaded.scheme, loaded.schedule, levels, inputs).schedule


@cache
def _scaled(factor: int, dtype: str) -> Schedule | None:
    """The product of one block by one, of a factor, and of its inverse; None where it is refused."""
    text = f"scheme scaled <1,2,1;2>\n  M1: {factor} 0 | 1 0 | 1/{factor}\n  M2: 0 1 | 0 1 | 1\n".replace("1/-", "-1/")
    source = Source("scaled.bl", text)
    scheme = parse_source(source).schemes[0]
    try:
        schedule = prepare(scheme, None, 1, "preserve").schedule
        Algorithm(scheme, None, source, Path(source.name)).matmul(np.ones((1, 2), dtype), np.ones((2, 1), dtype), levels=1)
    except BilinearError:
        return None
    return schedule


def _run_once(setting: Setting, draw: random.Random) -> None:
    """One multiply of integers; everything must be exact, and nothing beside the arrays is touched."""
    m, k, n = (_extent(draw) for _ in range(3))
    generator = np.random.default_rng(draw.randrange(2**32))
    whole = [generator.integers(-4, 5, shape) for shape in ((m, k), (k, n), (m, n))]
    alpha, beta = draw.choice((1, 1, -1, 2, 0.5)), draw.choice((0, 0, 1, -1, 3))
    beta = 0 if setting.schedule.overwrites else beta
    orders = [draw.choice("CCCFFSG") for _ in whole]
    frozen = setting.inputs == "preserve"
    arrays, checks = zip(
        *(
            _laid_out(x.astype(setting.dtype), order, draw, frozen and i < 2)
            for i, (x, order) in enumerate(zip(whole, orders, strict=True))
        ),
        strict=True,
    )
    a, b, c = arrays
    if beta == 0:
        c[...] = np.nan
    columns = frozenset(space for space, x in zip("ABC", arrays, strict=True) if x.strides[0] == x.itemsize and x.shape[1] > 1)
    plan = place_schedule(setting.schedule, m, k, n, a.itemsize, columns, tile=setting.tile)
    order, seed = draw.choice(ORDERS), draw.randrange(2**32)
    told = (
        f"{setting.name} {setting.inputs} {setting.dtype} tile {setting.tile} {m}x{k}x{n} {orders} alpha {alpha} beta {beta} {order} {seed}"
    )
    try:
        execute(EmulatedExecutor(order, seed), plan, call_of(a, b, c, alpha, beta, _workspace(plan, setting.dtype)))
    except LaunchError as error:
        raise Finding(f"{told}: {error}") from None
    except Exception as error:
        raise Finding(f"{told}: {type(error).__name__}: {error}") from error
    if not np.array_equal(c, alpha * (whole[0] @ whole[1]) + (beta * whole[2] if beta else 0)):
        raise Finding(f"{told}: wrong")
    for name, now, was in (("A", a, whole[0]), ("B", b, whole[1])):
        if setting.inputs != "consume" and not np.array_equal(now, was):
            raise Finding(f"{told}: {name} changed")
    if not all(check() for check in checks):
        raise Finding(f"{told}: something was written between the rows of an array")


def _extent(draw: random.Random) -> int:
    return draw.choice((1, 2, 3, 4, 8, 15, 16, 17, 32, 33, 48, 64, draw.randint(1, 40), draw.randint(1, 140)))


def _workspace(plan: Placement, dtype: str) -> Matrix | None:
    """The buffer of a plan beside an inaccessible page."""
    return matrix_of(guarded_empty(plan.workspace_elements, dtype)) if plan.slots else None


def _laid_out(values: Any, order: str, draw: random.Random, frozen: bool) -> tuple[Any, Callable[[], bool]]:
    """A copy beside an inaccessible page by rows (C), by columns (F), or with gaps of NaN (S, G); whether the gaps are as they were."""
    at: Literal["end", "start"] = draw.choice(("end", "end", "start"))
    if order in "CF":
        array = guarded(values if order == "C" else np.asfortranarray(values), at, read_only=frozen)
        return array, lambda: True
    rows, columns = values.shape
    row, column = (draw.randint(1, 3), draw.randint(1, 4)) if order == "S" else (1, 1)
    late, longer = (draw.randint(0, 5), draw.randint(0, 5)) if order == "G" else (0, 0)
    wide = np.full((rows * row, late + columns * column + longer), np.nan, values.dtype)
    place = slice(None, None, row), slice(late, late + columns * column, column)
    wide[place] = values
    gaps = np.ones(wide.shape, bool)
    gaps[place] = False
    held = guarded(wide, at, read_only=frozen)
    return held[place], lambda: bool(np.isnan(held[gaps]).all())
