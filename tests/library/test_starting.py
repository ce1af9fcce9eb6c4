"""`bilinear new`: what it writes is read, proved, and filled in; what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from oracle import scheme_computes
from shell import Shell

from bilinear.frontend import load
from bilinear.verify.scheme import prove_scheme

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


@pytest.mark.parametrize(
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
