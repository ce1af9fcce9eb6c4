"""The first page: short, its commands print what it shows, and every link leads somewhere; and what sentences of pages claim."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from doctest import ELLIPSIS, OutputChecker
from pathlib import Path

import pytest
from each_case import each

import bilinear
from bilinear.distributed import chain_plan

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
DOORS = re.findall(r"```\n\$ bilinear ([^\n]*)\n(.*?)```", README, re.DOTALL)
MOST_WORDS = 900


def prose(page: Path) -> str:
    """A page without its listings."""
    return re.sub(r"(?m)^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"(?m)^#+ (.*)$", prose(page))
    return {re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower()).replace(" ", "-") for title in headings}


def test_the_readme_is_short() -> None:
    """Beside the markup of its pictures."""
    assert len(re.sub(r"<picture>.*?</picture>", "", README, flags=re.DOTALL).split()) <= MOST_WORDS


def test_the_readme_has_three_doors() -> None:
    assert len(DOORS) == 3


@pytest.mark.sample(1)
@pytest.mark.parametrize(("arguments", "shown"), DOORS, ids=[arguments.split()[0] for arguments, _ in DOORS])
def test_a_command_prints_what_the_readme_shows(arguments: str, shown: str, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    command = [sys.executable, "-m", "bilinear.cli", *arguments.split()]
    done = subprocess.run(command, cwd=tmp_path, env=None, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == ("errata" in arguments), done.stderr
    assert OutputChecker().check_output(shown, done.stdout + done.stderr, ELLIPSIS), done.stdout + done.stderr


def test_the_readmes_python_runs(tmp_path: Path) -> None:
    """With a check of the last result, which the first lines leave in `c`, by NumPy."""
    (listing,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    checked = listing + "print(np.abs(c - a @ b).max() < 1e-9)\n"
    done = subprocess.run([sys.executable, "-c", checked], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert (done.stdout, done.stderr) == ("True\n", "")


@each("page", PAGES)
def test_every_link_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", prose(page)) + re.findall(r'(?:src|srcset)="([^"]+)"', prose(page))
    for target in (target for target in targets if "://" not in target):
        path, _, anchor = target.partition("#")
        found = page.parent / path if path else page
        assert found.exists(), target
        assert not anchor or found.suffix != ".md" or anchor in anchors(found), target


DOCS = Path(__file__).parents[1] / "docs"


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def test_the_figures_of_a_paper_are_those_of_the_page_that_is_linked() -> None:
    (row,) = [line for line in page("papers.md").splitlines() if "(msmes.md)" in line]
    ratios = re.findall(r"^\| (\d+) " + r"\| ([\d.]+) " * 6 + r"\|$", page("msmes.md"), re.MULTILINE)
    ratio, size = max((float(found[5]), found[0]) for found in ratios)
    assert re.findall(r"float32 up to ([\d.]+) with two at N = (\d+)", row) == [(f"{ratio:.2f}", size)]
    times: dict[tuple[int, int], float] = {}  # by size and levels: of square products of float64, the fastest of each
    for one in json.loads((ROOT / "benchmarks" / "results" / "model-all-h200.json").read_text())["rows"]:
        if one["dtype"] == "float64" and len(set(one["shape"])) == 1 and set(one["levels"]) <= {"msmes"}:
            key = one["shape"][0], len(one["levels"])
            times[key] = min(one["ms"], times.get(key, one["ms"]))
    ratio, n = max((times[n, 0] / ms, n) for (n, levels), ms in times.items() if levels == 2)
    assert re.findall(r"float64, H200: up to ([\d.]+) with two levels at N = (\d+)", row) == [(f"{ratio:.2f}", str(n))]
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
    assert "Without it, large products run by residues in int8" in page("faq.md")
    for function in (bilinear.plan, bilinear.matmul):
        assert "residues" in str(function.__doc__).split("accuracy : ")[1].split("\n    plan :")[0]
