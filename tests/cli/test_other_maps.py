"""The commands on what is no product of two real matrices: complex numbers, A*A^T, digits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from each_case import each
from shell import Shell

from bilinear.frontend import LoadedDigits, LoadedGram, load_any


def test_the_algorithms_for_complex_numbers_are_proved(shell: Shell) -> None:
    status, out, err = shell("verify", "complex3")
    assert status == 0 and not err
    assert "complex3: proved" in out and "M3 = (A.re + A.im) * (B.re + B.im)" in out and "3 real products and 5 additions" in out
    report = shell.json("verify", "complex4")
    assert report["verdict"] == "proved" and report["rank"] == 4
    assert all(e["real"] == e["imaginary"] == e["four_products"] for e in report["errors"])


@pytest.mark.parametrize("option", [("--levels", "2"), ("--rocq", "x.v"), ("--inputs", "restore")])
def test_options_that_their_proof_has_not_are_refused(shell: Shell, option: tuple[str, ...]) -> None:
    status, _, err = shell("verify", "complex3", *option)
    assert status == 1 and "E507" in err and "--json" in err


def test_the_list_names_them(shell: Shell) -> None:
    assert "complex3" in shell("list")[1].splitlines()[-1]


@pytest.mark.parametrize("algorithm", ["winograd", "classical", "accurate_sqrt3"])
def test_a_run_checks_complex_types(shell: Shell, algorithm: str) -> None:
    found = shell.json(
        "run", algorithm, "--shape", "33,41,29", "--dtype", "complex64,complex128", "--device", "cpu", "--inputs", "preserve"
    )
    assert [(c["dtype"], c["passed"]) for c in found] == [("complex64", True), ("complex128", True)]
    assert all(c["exact"] is (None if algorithm == "accurate_sqrt3" else True) and 0 < c["error"] < c["allowance"] for c in found)


def test_a_run_that_would_write_complex_operands_is_refused(shell: Shell) -> None:
    status, _, err = shell("run", "msmes", "--shape", "20", "--dtype", "complex64", "--device", "cpu")
    assert status == 1 and "E785" in err and "--inputs preserve" in err


@pytest.mark.slow
def test_plans_of_complex_matrices_are_told(shell: Shell) -> None:
    status, out, _ = shell("plan", "--shape", "4096", "--dtype", "complex64", "--device", "h200", "--explain")
    assert status == 0 and "error bound" in out and "probable" in out and "as fast as the library, by the model" in out
    status, _, err = shell("plan", "--shape", "4096", "--dtype", "complex64", "--device", "cpu")
    assert status == 1 and "E786" in err


def test_a_plan_shows_its_blocks_beside_the_plain_product(shell: Shell) -> None:
    status, text, err = shell("plan", "--gram", "--shape", "3000x700x3000", "--device", "h200", "--dtype", "float32")
    assert (status, err) == (0, "") and text.startswith("A*A^T, A 3000x700, float32 (NVIDIA H200, predicted)\n")
    assert "blocks of a triangle" in text and "A by A^T, two matrices" in text and "below" in text
    found = json.loads(shell("plan", "--gram", "--shape", "3000x700x3000", "--device", "h200", "--dtype", "float32", "--json", "-")[1])
    assert found["format"] == "bilinear-gram/1" and found["n"] == 3000 and found["seconds"] < found["plain"]


@each(
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


@pytest.mark.parametrize("name", ["pairs", "residues15", "winograd (x) pairs"])
def test_what_is_shown_is_read_as_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = Shell(monkeypatch, capsys)("show", name)
    assert (code, err) == (0, "")
    path = tmp_path / "shown.bl"
    path.write_text(out, encoding="utf-8")
    wanted = load_any(name)
    assert isinstance(wanted, LoadedDigits)
    again = load_any(f"{path}:{wanted.scheme.name}")
    assert isinstance(again, LoadedDigits)
    assert (again.scheme.core, again.scheme.rank, again.scheme.sizes) == (wanted.scheme.core, wanted.scheme.rank, wanted.scheme.sizes)
