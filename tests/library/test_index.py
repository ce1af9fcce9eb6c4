"""What `bilinear list` and `new` say of shipped algorithms and known ranks, beside what they are, and when the index is not used."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement, permutations
from math import log2
from pathlib import Path

import pytest
from each_case import each
from oracle import scheme_computes
from shell import Shell

from bilinear.frontend import load
from bilinear.ir.number import Symbolic
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import least_rank
from bilinear.reporting import shipped as library
from bilinear.reporting.shipped import LARGEST, RINGS, KnownRank, LibraryRow, compared, found_rows, index_text, known_rank, library_rows
from bilinear.resources import algorithms_folder
from bilinear.verify.scheme import prove_scheme

ROOT = Path(__file__).parents[2]
ROWS = {row.name: row for row in library_rows()}


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


@each("name", ROWS)
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


@each("name", ROWS)
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
    found = found_rows()
    monkeypatch.setattr(library, "found_rows", lambda: pytest.fail("read anew"))
    assert library_rows() == found


def changed_index(path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> tuple[LibraryRow, ...]:
    path.write_text(text, encoding="utf-8")
    monkeypatch.setattr(library, "INDEX", path)
    return library_rows()


@pytest.mark.slow
def test_an_index_of_other_algorithms_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = json.loads(index_text([replace(ROWS["strassen"], rank=99)]))
    assert [row.rank for row in changed_index(tmp_path / "index.json", monkeypatch, json.dumps(own))] == [99]
    assert changed_index(tmp_path / "index.json", monkeypatch, json.dumps(own | {"algorithms_sha256": "0" * 64})) == tuple(ROWS.values())


@pytest.mark.sample(1)
@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"algorithms_sha256": 1, "schemes": []}'])
def test_a_damaged_index_is_no_index(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert changed_index(tmp_path / "index.json", monkeypatch, text) == tuple(ROWS.values())


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


STRASSEN = """\
1 0 0 1 | 1 0 0 1 | 1 0 0 1
0 0 1 1 | 1 0 0 0 | 0 0 1 -1
1 0 0 0 | 0 1 0 -1 | 0 1 0 1
0 0 0 1 | -1 0 1 0 | 1 0 1 0
1 1 0 0 | 0 0 0 1 | -1 1 0 0
-1 0 1 0 | 1 1 0 0 | 0 0 0 1
0 1 0 -1 | 0 0 1 1 | 1 0 0 0
"""


@pytest.mark.parametrize(("format", "sizes"), [("2", (2, 2, 2)), ("1,1,1", (1, 1, 1)), ("2,3,4", (2, 3, 4)), ("3,1,11", (3, 1, 11))])
def test_the_classical_product_to_begin_with(shell: Shell, format: str, sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    status, said, _ = shell("new", "mine", format)
    assert status == 0
    assert said == "written to mine.bl: the classical product, which `bilinear verify mine.bl` proves; put your rows in place of its rows\n"
    scheme = load("mine.bl").scheme
    assert (scheme.name, scheme.m, scheme.k, scheme.n, scheme.rank) == ("mine", m, k, n, m * k * n)
    assert scheme_computes(scheme) and str(scheme.ring) == "Q"
    assert shell("verify", "mine.bl")[0] == 0


def test_empty_rows_that_are_filled_in(shell: Shell) -> None:
    status, said, _ = shell("new", "mine", "2,2,2", "--rank", "7", "-o", "here.bl")
    assert status == 0
    assert said == "written to here.bl: 7 empty rows; fill them in; `bilinear verify here.bl` shows what is still wrong\n"
    text = Path("here.bl").read_text(encoding="utf-8")
    assert "#     A11 A12 A21 A22 | B11 B12 B21 B22 | C11 C12 C21 C22\n  M1:   0   0   0   0 |   0   0   0   0 |" in text
    _, _, err = shell("verify", "here.bl")
    assert "error[E301]: mine is not a multiplication: 8 of 64 Brent equations fail" in err
    for number, row in enumerate(STRASSEN.splitlines(), 1):
        assert not prove_scheme(load("here.bl").scheme).holds
        empty = next(line for line in text.splitlines() if line.startswith(f"  M{number}:"))
        text = text.replace(empty, f"  M{number}: {row}")
        Path("here.bl").write_text(text, encoding="utf-8")
    assert prove_scheme(load("here.bl").scheme).holds


def test_empty_rows_of_a_rectangular_format(shell: Shell) -> None:
    assert shell("new", "mine", "2,3,4", "--rank", "20")[0] == 0
    scheme = load("mine.bl").scheme
    assert (scheme.format, [len(rows) for rows in scheme.tables]) == ("<2,3,4;20>", [20, 20, 8])
    assert not any(row for rows in scheme.tables for row in rows)


def test_what_is_there_is_not_written_over(shell: Shell) -> None:
    Path("mine.bl").write_text("mine")
    assert shell("new", "mine", "2")[::2] == (1, "error[E672]: mine.bl is there already\n  hint: choose another place with -o\n")
    assert Path("mine.bl").read_text() == "mine"


@each(
    ("words", "said"),
    [
        (("x", "2", "--rank", "3"), "error[E671]: no scheme <2,2,2> of 3 products is worth writing\n  hint: between 7 and 8 are possible"),
        (("x", "2,3,4", "--rank", "25"), "error[E671]: no scheme <2,3,4> of 25 products is worth writing\n  hint: between 12 and 24"),
        (("x", "2,2,2", "--rank", "-1"), "error[E671]"),
        (("x", "50"), "error[E673]: the table is too large to be edited"),
        (("x", "2", "--rank", "9" * 50), "error[E671]"),
        (("x", "9" * 9), "error[E673]"),
        (("x", "9" * 4000), "error[E504]"),
        (("x", "2,2"), "error[E504]"),
        (("x", "0"), "error[E504]"),
        (("a b", "2"), "error[E241]: the name 'a b' cannot be written in the language"),
        (("a\nscheme", "2", "-o", "x.bl"), "error[E241]"),
        (("x", "2", "-o", "none/x.bl"), "error[E612]"),
    ],
)
def test_what_cannot_be_begun(shell: Shell, words: tuple[str, ...], said: str) -> None:
    status, out, err = shell("new", *words)
    assert (status, out) == (1, "") and err.startswith(said)
    assert not list(Path().iterdir())


Sides = tuple[int, ...]
FORMATS = list(combinations_with_replacement(range(1, LARGEST + 1), 3))


def known(sides: Sides) -> KnownRank:
    found = known_rank(*sides)
    assert found is not None
    return found


def test_the_totals_are_those_that_the_source_prints() -> None:
    """680 formats, 365 of them with coefficients -1, 0 and 1, 34 with integers, 281 with fractions, and 31 better than Strassen's."""
    rows = [known(sides) for sides in FORMATS if sides[0] > 1]
    assert Counter(row.ring for row in rows) == dict(zip(RINGS, (281, 34, 365), strict=True))
    assert sum(row.exponent < log2(7) - 1e-12 for row in rows) == 31
    assert all(row.source and row.modulo_2 <= row.least[1] and sorted(row.least) == list(row.least) for row in rows)


@each(
    ("sides", "least", "modulo_2", "author"),
    [
        ((2, 2, 2), (7, 7, 7), 7, "Strassen"),
        ((3, 2, 5), (25, 25, 25), 25, "Hopcroft"),
        ((5, 4, 2), (32, 33, 33), 33, "Novikov"),
        ((3, 3, 3), (23, 23, 23), 23, "Laderman"),
        ((6, 3, 3), (40, 42, 42), 42, "Smirnov"),
        ((4, 4, 4), (48, 49, 49), 47, "Dumas"),
        ((5, 12, 5), (204, 204, 204), 204, "Perminov"),
        ((2, 10, 14), (217, 219, 220), 219, "Hopcroft"),
        ((7, 8, 8), (306, 310, 310), 302, "collected"),
        ((1, 9, 4), (36, 36, 36), 36, "the blocks"),
    ],
)
def test_a_format_has_the_published_ranks_by_ring(sides: Sides, least: Sides, modulo_2: int, author: str) -> None:
    found = known(sides)
    assert (found.least, found.modulo_2) == (least, modulo_2) and author in found.source
    assert [found.over(Ring(ring)) for ring in ("Q[sqrt(3)]", "Z", "Z/3", "Z/2")] == [least[0], least[1], least[1], modulo_2]


@pytest.mark.parametrize("over", ["Q", "Z"])
def test_no_sum_or_larger_format_beats_a_rank_and_all_orders_agree(over: str) -> None:
    """A missing column is a block of zeros, so ranks grow with the sides; two formats side by side need at most the sum."""
    ring = Ring(over)
    ranks = {turned: known(turned).over(ring) for sides in FORMATS for turned in permutations(sides)}
    for (m, k, n), rank in ranks.items():
        assert rank == ranks[n, m, k] == ranks[k, m, n] >= least_rank(m, k, n)
        assert all(ranks[m, k, smaller] <= rank <= ranks[m, k, smaller] + ranks[m, k, n - smaller] for smaller in range(1, n))


def test_no_shipped_scheme_has_fewer_products_than_are_known() -> None:
    rows = [row for row in library_rows() if row.known_rank is not None]
    assert all(row.known_rank <= row.rank for row in rows if row.known_rank is not None)
    assert {row.name for row in rows if row.known_rank == row.rank} >= {"strassen", "laderman", "smirnov_336", "walk_444_mod2", "dps_444"}


def test_a_rank_is_compared_in_a_line() -> None:
    assert compared(3, 6, 3, 44, Ring("Q"))[0].startswith("best known 40, here 44 (A. V. Smirnov")
    assert compared(4, 4, 4, 46, Ring("Z/2")) == ["46 are fewer than the best known 47"]
    assert compared(2, 2, 17, 60, Ring("Q")) == compared(3, 2, 2, 10, Ring("Q[lambda]")) == []
