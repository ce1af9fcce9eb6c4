"""The index of shipped algorithms: what it says of them beside what they are, and when it is not used."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from itertools import permutations
from pathlib import Path

import pytest

from bilinear.frontend import load
from bilinear.ir.number import Symbolic
from bilinear.ir.ring import Ring
from bilinear.reporting import shipped as library
from bilinear.reporting.shipped import LibraryRow, found_rows, index_text, library_rows
from bilinear.resources import algorithms_folder

ROOT = Path(__file__).parents[2]
ROWS = {row.name: row for row in found_rows()}


def test_the_index_and_the_page_are_what_the_algorithms_say(update_golden: bool) -> None:
    """`--update-golden` writes them anew after a change of the algorithms, as the script without `--check` does."""
    options = [] if update_golden else ["--check"]
    done = subprocess.run([sys.executable, ROOT / "benchmarks" / "algorithms.py", *options], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_file_is_a_scheme_of_its_name_or_a_schedule_of_one() -> None:
    schedules = [schedule.name for row in ROWS.values() for schedule in row.schedules]
    assert sorted({*ROWS, *schedules}) == sorted(path.stem for path in algorithms_folder().glob("*.bl"))
    assert len(schedules) == len(set(schedules))
    assert ROWS["strassen"].runs == "expand, r_s_mm (depth first), s_mm (depth first), msmes (in place)"
    assert ROWS["strassen"].strategies == ("expand", "depth first", "in place")
    assert ROWS["winograd"].runs == "expand, w_mm (depth first), winograd_depth_first (depth first), winograd_in_place (in place)"
    assert ROWS["bini"].runs == "proved only" and ROWS["bini"].strategies == ()


@pytest.mark.parametrize("name", ROWS)
def test_a_row_counts_what_the_tables_hold(name: str) -> None:
    row, scheme = ROWS[name], load(name).scheme
    u, v, w = scheme.tables
    nonzeros = sum(len(form) for table in (u, v, w) for form in table)
    assert (row.m, row.k, row.n, row.rank) == (scheme.m, scheme.k, scheme.n, len(u))
    assert row.naive == nonzeros - 2 * row.rank - row.m * row.n
    assert row.shared <= row.naive and (row.shared < row.naive) == (any(x.steps for x in (scheme.u, scheme.v, scheme.w)) or row.other_bases)
    assert (row.m * row.k * row.n) ** (row.exponent / 3) == pytest.approx(row.rank, rel=1e-4) or row.rank == 1
    used = [c for table in (u, v, w) for form in table for _, c in form]
    for ring in map(Ring, ("Z", "Z/2", "Z/3", "Z/7", "Q", "Q[sqrt(3)]", "Q[lambda]")):
        assert row.lies_in(ring) == (ring == scheme.ring if scheme.ring.modulus else all(ring.holds(c) for c in used)), ring
    if scheme.ring.modulus:
        assert row.growth is None and row.least_ring == str(scheme.ring) and row.runs == f"modulus={scheme.ring.modulus}"
    elif not any(isinstance(c, Symbolic) for c in used):
        left, right = ([sum(abs(Fraction(str(c))) for _, c in form) for form in table] for table in (u, v))
        assert row.growth == max(sum(abs(Fraction(str(c))) * left[p] * right[p] for p, c in form) for form in w)


@pytest.mark.parametrize("name", ROWS)
def test_what_a_file_says_of_itself_is_so(name: str) -> None:
    row = ROWS[name]
    assert row.why.endswith(".") and (row.citation or name == "naive2x2")
    for said in re.findall(r"(\d+) additions", row.why)[:1]:
        assert int(said) == row.shared
    for products, classical in re.findall(r"(\d+) products in place of (\d+)", row.why):
        assert (int(products), int(classical)) == (row.rank, row.m * row.k * row.n)
    for m, k, n in re.findall(r"(\d+) x (\d+)(?: by \2 x (\d+))? blocks", row.why):
        assert (int(m), int(k), int(n or k)) == (row.m, row.k, row.n)


def test_sizes_are_looked_for_in_any_order() -> None:
    row = ROWS["hopcroft_kerr"]
    assert all(row.has_sizes(sizes) for sizes in permutations((3, 2, 3)))
    assert row.has_sizes((2, 3, None)) and row.has_sizes((None, None, None))
    assert not row.has_sizes((2, 2, None)) and not row.has_sizes((3, 3, 3))


def test_the_least_ring_is_named() -> None:
    assert [ROWS[name].least_ring for name in ("strassen", "accurate_sqrt3", "bini")] == ["Z", "Q[sqrt(3)]", "Q[lambda]"]
    assert replace(ROWS["strassen"], denominator=12).least_ring == "Z[1/6]"


def test_the_index_is_read_as_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "found_rows", lambda: pytest.fail("read anew"))
    assert library_rows() == tuple(ROWS.values())


def changed_index(path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> tuple[LibraryRow, ...]:
    path.write_text(text, encoding="utf-8")
    monkeypatch.setattr(library, "INDEX", path)
    return library_rows()


def test_an_index_of_other_algorithms_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = json.loads(index_text([replace(ROWS["strassen"], rank=99)]))
    assert [row.rank for row in changed_index(tmp_path / "index.json", monkeypatch, json.dumps(own))] == [99]
    assert changed_index(tmp_path / "index.json", monkeypatch, json.dumps(own | {"algorithms_sha256": "0" * 64})) == tuple(ROWS.values())


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"algorithms_sha256": 1, "schemes": []}'])
def test_a_damaged_index_is_no_index(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert changed_index(tmp_path / "index.json", monkeypatch, text) == tuple(ROWS.values())
