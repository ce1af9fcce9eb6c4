"""Counts of recursive schedules, beside the tables of the many-core paper and beside what nested schedules hold."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from each_case import each
from recursion_counts import block_additions, published_counts, recursion_counts, temporaries
from schedule_oracle import run_stage, steps

from bilinear.frontend import load, parse_source
from bilinear.ir.schedule import AnySchedule, LinearStage, Schedule
from bilinear.lowering.prepare import authored_schedule, runnable
from bilinear.passes.nest_levels import nest_levels
from bilinear.source import Source

TABLE_3 = {
    "s_mm": """512 1 236060672 0 5376
        512 2 30834688 49 6720
        512 3 5218304 392 7056
        1024 1 1883766784 0 21504
        1024 2 240779264 49 26880
        1024 3 35553280 392 28224
        2048 1 15051259904 0 86016
        2048 2 1902641152 49 107520
        2048 3 259653632 392 112896""",
    "r_s_mm": """512 1 236060672 7 512
        512 2 30834688 56 640
        512 3 5218304 399 672
        1024 1 1883766784 7 2048
        1024 2 240779264 56 2560
        1024 3 35553280 399 2688
        2048 1 15051259904 7 8192
        2048 2 1902641152 56 10240
        2048 3 259653632 399 10752""",
    "w_mm": """512 1 235864064 0 3840
        512 2 30588928 49 4800
        512 3 4960256 392 5040
        1024 1 1882980352 0 15360
        1024 2 239796224 49 19200
        1024 3 34521088 392 20160
        2048 1 15048114176 0 61440
        2048 2 1898708992 49 76800
        2048 3 255524864 392 80640""",
}
"""Table 3 as published: N, k, operations, recursions, kilobytes of float32."""
ROWS = [(name, *map(int, line.split())) for name, text in TABLE_3.items() for line in text.splitlines()]
LEVEL = {"s_mm": (7, 18, 21), "r_s_mm": (7, 18, 2), "w_mm": (7, 15, 15)}
"""Table 2: products, additions and temporaries of a level."""


@cache
def written(name: str) -> AnySchedule:
    schedule = load(name).schedule
    assert schedule is not None
    return schedule


@pytest.mark.parametrize("name", LEVEL)
def test_a_level_takes_what_table_2_says(name: str) -> None:
    schedule = written(name)
    assert (schedule.products, block_additions(schedule), temporaries(schedule)) == LEVEL[name]


@each(("name", "size", "levels", "operations", "calls", "kilobytes"), ROWS)
def test_table_3_follows_from_the_schedules(name: str, size: int, levels: int, operations: int, calls: int, kilobytes: int) -> None:
    found = published_counts(written(name), size, levels, tests_on_entry=name == "r_s_mm")
    assert (found.operations, found.calls, found.storage * 4 / 1024) == (operations, calls, kilobytes)


@pytest.mark.parametrize("name", [*LEVEL, "winograd_depth_first"])
def test_nested_schedules_hold_as_many_additions(name: str) -> None:
    loaded = load(name)
    flat = nest_levels([authored_schedule(loaded.scheme, loaded.schedule, "preserve")] * 2)
    maps = [m for stage in flat.stages if isinstance(stage, LinearStage) for m in stage.maps]
    additions = 16**2 * sum(m.map.additions for m in maps)
    found = recursion_counts(written(name), 64, 2)
    assert (found.multiplications, found.additions) == (flat.products * 16**3, additions + flat.products * 16**2 * 15)


@pytest.mark.parametrize(("size", "levels"), [(63, 1), (66, 2), (64, 0)])
def test_matrices_that_the_levels_do_not_divide_are_refused(size: int, levels: int) -> None:
    with pytest.raises(ValueError, match="do not divide"):
        recursion_counts(written("s_mm"), size, levels)


def test_the_ten_kernels_of_the_earlier_work_are_stages() -> None:
    """Equation 12: each row of the page's table, run on integers, does to X (C21 or A12), Y (C11) and Z (C12 or Z) what the kernel does."""
    page = (Path(__file__).parents[2] / "docs" / "many-core.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\(?[WYZ].*?) \| (.*) \|$", page.split("(equation 12)")[1].split("## The counts")[0], re.MULTILINE)
    blocks = {
        name: np.random.default_rng(at).integers(-9, 10, (2, 2)) for at, name in enumerate(("A11", "A12", "B11", "C11", "C12", "C21"))
    }
    a, b, c, d, e, f = blocks.values()
    product = a @ c
    wanted = (
        *({"Z": a + b}, {"Z": a - b}, {"Z": product}),
        *({"C11": d + product, "C12": e + product}, {"C11": d + product, "C12": e - product}),
        *({"C11": product, "C12": e - product}, {"C11": product, "C12": e + product}),
        {"Z": product + d},
        {"C11": d + product + f, "C12": e + d + product},
        {"Z": d - product, "C12": e + d},
    )
    for (kernel, told), results in zip(rows, wanted, strict=True):
        stages = re.findall("`(.*?)`", told) or ["C11, -C12 += A11 * B11"]
        first = "beta = 0" in told or "likewise" in told
        head = "schedule s of strassen" + ("\n  stage { C12 += A12 * B21 }" if first else ": C = A*B, temporary Z like C")
        (schedule,) = parse_source(Source("x.bl", head + "".join(f"\n  stage {{ {stage} }}" for stage in stages))).schedules
        runs = runnable(schedule) if isinstance(schedule, Schedule) else schedule
        state = {block: blocks.get(str(block), np.zeros((2, 2), int)) for space in schedule.spaces[:3] for block in space.blocks}
        if first:  # C12 is written before, by a product of zero
            runs = replace(runs, stages=runs.stages[1:])
        for stage in runs.stages:
            run_stage(runs, stage, state, range(len(steps(stage))), 1, 0)
        found = {str(block): value for block, value in state.items()}
        assert all(np.array_equal(found[name], value) for name, value in results.items()), kernel
