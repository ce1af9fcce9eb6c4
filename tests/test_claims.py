"""Sentences of pages about what the program does or a table says, beside what it does and the table says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import bilinear
from bilinear.distributed import chain_plan

DOCS = Path(__file__).parents[1] / "docs"


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def test_the_figures_of_a_paper_are_those_of_the_page_that_is_linked() -> None:
    (row,) = [line for line in page("papers.md").splitlines() if "(msmes.md)" in line]
    ratios = re.findall(r"^\| (float\d\d) \| (\d+) \| ([\d.]*) \| ([\d.]*) \| ([\d.]*) \| .*\|$", page("msmes.md"), re.MULTILINE)
    for dtype, levels, told in (
        ("float64", 2, r"up to ([\d.]+) with two levels at N = (\d+)"),
        ("float32", 3, r"up to ([\d.]+) with three at N = (\d+)"),
    ):
        ratio, size = max((float(found[levels + 1]), found[1]) for found in ratios if found[0] == dtype and found[levels + 1])
        assert re.findall(told, row.split("H200:")[1]) == [(f"{ratio:.2f}", size)]
    (row,) = [line for line in page("papers.md").splitlines() if "(modes.md)" in line]
    assert re.findall(r"\d+ of \d+", row) == re.findall(r"graph at (\d+ of \d+)", page("modes.md"))


def test_the_order_of_a_chain_on_the_page_is_the_one_that_is_found() -> None:
    call, shown = re.findall(r">>> print\((chain_plan\(.*?\))\)\n(.*?)\n  \.\.\.\n```", page("distributed.md"), re.DOTALL)[0]
    found = str(eval(call, {"chain_plan": chain_plan})).splitlines()
    assert found[: len(shown.splitlines())] == shown.splitlines()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_residues_are_weighed_without_an_accuracy_and_pairs_only_with_one(dtype: str) -> None:
    """As planning.md, the questions and the docstrings say."""
    free = bilinear.plan(8192, 8192, 8192, dtype, device="h200")
    assert free.chosen.tile.startswith("residues") and not any("pairs" in c.tile for c in free.candidates)
    if dtype == "float32":
        assert any("pairs" in c.tile for c in bilinear.plan(8192, 8192, 8192, dtype, device="h200", accuracy=1e-1).candidates)
    assert "candidates for float32 and float64 with and without an accuracy" in page("planning.md")
    assert "large float32 and float64 products run by [residues]" in page("faq.md")
    for function in (bilinear.plan, bilinear.matmul):
        assert "residues" in str(function.__doc__).split("accuracy : ")[1].split("\n    plan :")[0]
