"""Products under a real MPI: exact on any number of ranks, and no rank hangs, whatever another one does."""

from __future__ import annotations

import re

import pytest
from each_case import each
from network.launch import mpirun, needs_mpi, told_by

pytestmark = needs_mpi


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_products_are_exact_and_their_traffic_is_the_plans(ranks: int) -> None:
    done = mpirun(ranks, "exact.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"rank \d: 30 products", done.stdout)) == ranks


@each(
    ("way", "error"),
    [
        ("shape", "rank 1 cannot take part: its piece of B has the shape (4, 12), by the distribution it is 4 x 13 (E767)"),
        ("piece", "rank 1 cannot take part: its piece of A has the shape (3, 12), by the distribution it is 4 x 12 (E767)"),
        ("name", "rank 1 cannot take part: 'strasen' is neither a file nor a shipped algorithm (E121)"),
        ("type", "error[E763]: the ranks differ in the element type"),
        ("scheme", "error[E763]: the ranks differ in decomposition"),
        ("version", "error[E763]: the ranks differ in the version of bilinear"),
        ("plan", "error[E763]: the ranks differ in the plan"),
    ],
)
def test_a_rank_that_asks_for_something_else_is_told_to_all(way: str, error: str) -> None:
    done = mpirun(3, "faulty.py", way)
    assert done.returncode == 1 and "went on" not in done.stdout, done.stderr
    assert all(error in told_by(rank, done.stderr) for rank in range(3)), done.stderr


@pytest.mark.parametrize(
    ("way", "error"),
    [
        ("raised", "error[E764]: rank 1 failed: MemoryError: no room for a product"),
        ("stopped", "error[E764]: rank 1 has given no sign of life for 8 s"),
        ("ended after one", "error[E764]: rank 1 has ended"),
        ("late twice", "error[E765]: rank 1 did not call within 8 s"),
        ("late", "error[E765]: not all 3 ranks called within 8 s"),
    ],
)
def test_a_rank_that_is_lost_ends_all(way: str, error: str) -> None:
    done = mpirun(3, "faulty.py", way)
    assert done.returncode != 0 and "went on" not in done.stdout, done.stderr
    told = [rank for rank in (0, 2) if error in told_by(rank, done.stderr)]
    assert told, done.stderr  # the launcher ends the other one if this process was slow


def test_a_killed_rank_ends_all() -> None:
    """By the launcher, which ends all ranks and says why."""
    done = mpirun(3, "faulty.py", "died")
    assert done.returncode != 0 and "went on" not in done.stdout
    assert "Killed" in done.stdout + done.stderr


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_benchmark_runs_as_the_page_says(ranks: int) -> None:
    done = mpirun(ranks, "-m", "bilinear.distributed.bench", "--shape", "96x80x112", "--repeat", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = told_by(0, done.stdout).splitlines()
    assert lines[0].endswith(f"96 x 80 by 80 x 112, float64, {ranks} rank{'s' if ranks > 1 else ''}, by MPI")
    assert [line.split()[-1] for line in lines[4:10]] == ["yes"] * 6
    assert "one rank, the library's multiply" in lines[-1]


@pytest.mark.parametrize("words", [("--shape", "3x"), ("--repeat", "0"), ("--levels", "0"), ("--shape", "8x8"), ("--accuracy", "good")])
def test_wrong_options_of_the_benchmark_are_refused(words: tuple[str, ...]) -> None:
    done = mpirun(1, "-m", "bilinear.distributed.bench", *words)
    assert done.returncode == 1 and "E769" in done.stderr


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_rounds_of_nccl_are_in_one_order_and_are_waited_for(ranks: int) -> None:
    done = mpirun(ranks, "pretended_nccl.py", "exact")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"rank \d: exact", done.stdout)) == ranks
    assert len(re.findall(r"rank \d closed", done.stdout)) == (ranks if ranks > 1 else 0)


def test_a_rank_that_fails_ends_what_others_wait_for_on_their_gpus() -> None:
    done = mpirun(3, "pretended_nccl.py", "raised", patience=60)
    assert done.returncode != 0
    told = [rank for rank in (0, 2) if "error[E764]: rank 1 failed: MemoryError: no room for a product" in told_by(rank, done.stdout)]
    assert told, done.stdout + done.stderr


def test_a_rank_that_is_stopped_ends_what_others_wait_for_inside_of_cupy() -> None:
    done = mpirun(2, "pretended_nccl.py", "stopped", patience=60)
    assert done.returncode != 0 and "error[E764]: rank 1 has given no sign of life for 8 s" in done.stdout, done.stdout + done.stderr


def test_the_example_of_the_docstring_runs() -> None:
    program = "import sys; sys.path.append('..'); from described import check_examples; from bilinear.distributed import matmul"
    done = mpirun(1, "-c", f"{program}; check_examples(matmul)")
    assert done.returncode == 0, done.stdout + done.stderr
