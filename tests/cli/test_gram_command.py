"""A*A^T on the command line: `plan --gram`, and `verify`, `show` and `list` of schemes for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shell import Shell

from bilinear.frontend import LoadedGram, load_any


def test_a_plan_shows_its_blocks_beside_the_plain_product(shell: Shell) -> None:
    status, text, err = shell("plan", "--gram", "--shape", "3000x700x3000", "--device", "h200", "--dtype", "float32")
    assert (status, err) == (0, "") and text.startswith("A*A^T, A 3000x700, float32 (NVIDIA H200, predicted)\n")
    assert "blocks of a triangle" in text and "A by A^T, two matrices" in text and "below" in text
    found = json.loads(shell("plan", "--gram", "--shape", "3000x700x3000", "--device", "h200", "--dtype", "float32", "--json", "-")[1])
    assert found["format"] == "bilinear-gram/1" and found["n"] == 3000 and found["seconds"] < found["plain"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--shape", "8x9x10"), "error[E504]: A*A^T is square, and --shape 8x9x10 has 8 rows and 10 columns"),
        ((), "error[E504]: '' is not a shape"),
        (("--shape", "8", "--levels", "winograd"), "error[E557]: --levels has no meaning with --gram"),
        (("--shape", "8", "--inputs", "restore"), "error[E557]: --inputs has no meaning with --gram"),
        (("--shape", "8", "--explain"), "error[E557]: --explain has no meaning with --gram"),
        (("--chain", "8x9x10"), "error[E557]: --gram has no meaning with --chain"),
        (("--shape", "8", "--device", "cpu"), "error[E554]"),
    ],
)
def test_options_without_meaning_are_refused(shell: Shell, words: tuple[str, ...], message: str) -> None:
    status, out, err = shell("plan", "--gram", "--device", "h200", *words)
    assert (status, out) == (1, "") and err.startswith(message)


def test_a_scheme_is_proved_shown_and_listed(shell: Shell) -> None:
    assert "  products         34: 26 of two matrices, 8 of one by its transpose\n" in shell("verify", "rxtx")[1]
    Path("again.bl").write_text(shell("show", "rxtx")[1])
    again, shipped = load_any("again.bl"), load_any("rxtx")
    assert isinstance(again, LoadedGram) and isinstance(shipped, LoadedGram) and again.scheme == shipped.scheme
    assert "for A*A^T, which gram runs: rxtx <4,4,4;34>\n" in shell("list")[1]
    assert "rxtx" not in shell("list", "--max-rank", "7")[1]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("verify", "rxtx", "--levels", "2"), "E507"),
        (("show", "rxtx", "--latex"), "E794"),
        (("run", "rxtx"), "E794"),
        (("compile", "rxtx"), "E794"),
    ],
)
def test_what_is_for_two_matrices_is_refused(shell: Shell, words: tuple[str, ...], code: str) -> None:
    status, out, err = shell(*words)
    assert (status, out) == (1, "") and err.startswith(f"error[{code}]")


def test_a_wrong_scheme_is_refused(shell: Shell) -> None:
    Path("wrong.bl").write_text("scheme wrong <2,1,2;3>: B = A^T\n M1 = A11*B11; M2 = A11*B12; M3 = A21*B12\n C11=M1; C21=M2; C22=M3\n")
    status, out, err = shell("verify", "wrong.bl", "--json", "found.json")
    assert (status, out) == (1, "") and err.startswith("error[E350]: wrong does not compute A*A^T") and not Path("found.json").exists()
