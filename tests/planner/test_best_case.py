"""The best case by the model of Krishnan's thesis: its formulas are what is counted from the shipped schedule."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sympy
from shell import Shell

from bilinear.lowering.prepare import Level, prepare_levels
from bilinear.planner.best_case import best_cases, counts_of, sheet_named
from bilinear.planner.ways import algorithm_named


def test_msmes_as_written_has_the_formulas_of_the_thesis() -> None:
    n, side, small, across = sympy.symbols("N N_S N_R t_x", positive=True)
    threads = across * (side**2 / (small**2 * across))  # t_x * t_y, which compute all of a tile
    schedule = algorithm_named("msmes").schedule
    counts, block = counts_of(schedule, apart=True), (n / 2,) * 3  # type: ignore[arg-type]
    found: list[Any] = [counts.flops(block), counts.traffic(block, (side, side)), counts.traffic(block, (small, small))]
    flops, memory = 7 * n**3 / 4 + 7 * n**2, 11 * n**2 + 7 * n**3 / (4 * side)
    shared = 11 * n**2 + 7 * n**3 * threads * small / (4 * side**2)
    assert [sympy.simplify(one - other) for one, other in zip(found, (flops, memory, shared), strict=True)] == [0, 0, 0]
    assert counts.launches == 7


@pytest.mark.parametrize(
    ("name", "inputs", "additions", "touched"),
    [
        ("winograd", "preserve", 15, 8 + 8 + 7 + 11),  # two expansions read 4 blocks and write 4, a recomposition reads 7 and writes 4
        ("strassen", "preserve", 18, 9 + 9 + 7 + 11),
        ("msmes", "restore", 4 + 6 + 6 + 12, 3 * 8 + 12),  # three maps of all 8 blocks; products are added to 12
    ],
)
def test_what_is_compiled_reads_a_block_once_for_all_its_sums(name: str, inputs: str, additions: int, touched: int) -> None:
    found = algorithm_named(name)
    counts = counts_of(prepare_levels((Level(found.scheme, found.schedule),), inputs))
    assert (sum(counts.added.values()), sum(counts.touched.values()), counts.products) == (additions, touched, 7)


def test_a_table_and_json_by_the_command(shell: Shell) -> None:
    code, out, _ = shell("plan", "--shape", "8192", "--model", "thesis", "--device", "v100", "--levels", "msmes")
    assert code == 0
    assert out.splitlines()[2].split("  ")[0] == "levels"
    rows = json.loads(shell("plan", "--shape", "8192", "--model", "thesis", "--device", "v100", "--json")[1])["rows"]
    assert [(len(row["levels"]), row["launches"]) for row in rows if row["schedule"] != "as written"] == [(0, 1), (1, 7), (2, 21), (3, 73)]
    classical, msmes = rows[:2]
    assert classical["seconds"][0] == pytest.approx((2 * 8192**3 + 8192**2) / 7.8e12)
    assert msmes["seconds"][1] == pytest.approx(8 * (11 * 8192**2 + 7 * 8192**3 / 8 * (1 / 64 + 1 / 128)) / 900e9)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--device", "v"), "E541"),
        (("--device", "v100", "--explain"), "E557"),
        (("--device", "v100", "--dtype", "float16"), "E528"),
        (("--device", "v100", "--levels", "no_such"), "E121"),
    ],
)
def test_what_the_model_cannot_bound_is_refused(shell: Shell, options: tuple[str, ...], code: str) -> None:
    status, _, err = shell("plan", "--shape", "512", "--model", "thesis", *options)
    assert status == 1
    assert f"error[{code}]" in err


def test_a_kepler_has_banks_of_eight_bytes() -> None:
    """128 and 256 bytes a cycle of a multiprocessor, from the guide's table."""
    found = [best_cases((4096,) * 3, "float32", sheet_named(name), ("msmes",))[1] for name in ("v100", "k40c")]
    assert [one.shared / one.seconds[2] for one in found] == [pytest.approx(80 * 128 * 1530e6), pytest.approx(15 * 256 * 745e6)]
