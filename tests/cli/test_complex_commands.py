"""The commands that know complex numbers: verify, list, run and plan."""

from __future__ import annotations

import pytest
from shell import Shell


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


def test_plans_of_complex_matrices_are_told(shell: Shell) -> None:
    status, out, _ = shell("plan", "--shape", "4096", "--dtype", "complex64", "--device", "h200", "--explain")
    assert status == 0 and "error bound" in out and "probable" in out and "as fast as the library, by the model" in out
    status, _, err = shell("plan", "--shape", "4096", "--dtype", "complex64", "--device", "cpu")
    assert status == 1 and "E786" in err
