"""`bilinear list`: its table, its filters, and what it does without."""

from __future__ import annotations

import subprocess
import sys

import pytest
from shell import Shell

from bilinear.reporting.shipped import library_rows


def names(shell: Shell, *options: str) -> list[str]:
    return [row["name"] for row in shell.json("list", *options)]


def test_a_row_for_every_scheme(shell: Shell) -> None:
    status, text, _ = shell("list")
    lines = text.splitlines()
    assert status == 0 and lines[0].split() == ["name", "format", "known", "exponent", "ring", "naive", "shared", "growth", "runs"]
    schemes = [line.split()[0] for line in lines[2:-6] if ", a schedule of " not in line]
    assert schemes == [row.name for row in library_rows()] == names(shell)
    (msmes,) = (line.split() for line in lines if line.startswith("msmes "))
    assert msmes == ["msmes", "<2,2,2;7>", "7", "2.807", "Z", "-", "-", "-", "in", "place,", "a", "schedule", "of", "strassen"]
    assert next(line for line in lines if line.startswith("winograd_depth_first ")).endswith("depth first, a schedule of winograd")
    assert next(line for line in lines if line.startswith("bini ")).split()[-3:] == ["-", "proved", "only"]


def test_rows_for_machines(shell: Shell) -> None:
    row = next(row for row in shell.json("list") if row["name"] == "winograd")
    assert (row["format"], row["rank"], row["naive"], row["shared"], row["growth"]) == ("<2,2,2;7>", 7, 24, 15, 18)
    assert row["strategies"] == ["expand", "depth first", "in place"]
    assert {"name": "winograd_in_place", "strategy": "in place"} in row["schedules"]


def test_filters(shell: Shell) -> None:
    assert "hopcroft_kerr" in names(shell, "--format", "3,2,3") == names(shell, "--format", "2,3,3")
    assert "strassen" not in names(shell, "--format", "3,2,3")
    assert set(names(shell, "--format", "2,*,*", "--max-rank", "7")) == {
        row.name for row in library_rows() if 2 in (row.m, row.k, row.n) and row.rank <= 7
    }
    integer, halves = names(shell, "--over", "Z"), names(shell, "--over", "Z/3")
    assert "strassen" in integer and not {"accurate_sqrt3", "accurate_halves", "bini"} & set(integer)
    assert "accurate_halves" in halves and "accurate_sqrt3" not in halves
    assert "accurate_sqrt3" in names(shell, "--over", "Q[sqrt(3)]")
    assert set(names(shell, "--over", "Z[1/2]")) == set(halves) == set(integer) | {"accurate_halves", "smirnov_336", "dps_444"}


def test_where_nothing_is_so(shell: Shell) -> None:
    assert names(shell, "--format", "9,9,9") == []
    assert shell("list", "--format", "9,9,9")[1] == "no shipped scheme is of that kind; `bilinear list` without options lists all\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--format", "2,3"), "error[E670]: '2,3' is not a format\n  hint: give three sizes, or one for all"),
        (("--format", "2,3,x"), "error[E670]: '2,3,x' is not a format"),
        (("--format", "0,3,3"), "error[E670]"),
        (("--format", f"{'9' * 5000},3,3"), "error[E670]"),
        (("--over", "F2"), "error[E203]: 'F2' is not a known ring"),
    ],
)
def test_what_is_no_filter(shell: Shell, options: tuple[str, ...], said: str) -> None:
    status, out, err = shell("list", *options)
    assert (status, out) == (1, "") and err.startswith(said)


def test_a_list_needs_no_engine() -> None:
    """It comes from the index: nothing is parsed, and no algebra is imported."""
    program = "import sys; from bilinear.reporting.shipped import library_rows; assert library_rows(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"lark", "sympy", "numpy", "bilinear.frontend.resolve"} & set(done.stdout.split())
