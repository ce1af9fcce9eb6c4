"""What docs/papers.md says of printed listings, run: the loops in words of our own, as printed and as meant, on numbers that show it."""

from __future__ import annotations

import numpy as np
import pytest
from tsm2 import CARDS, card, descent, threshold

from bilinear.emulator import ORDERS, UndefinedError, compile_on_cpu, guarded, guarded_empty, skip_reason, without_barrier

THREADS, COLUMNS = 16, 64
GEMV = """
extern "C" __global__ void gemv(const double* a, const double* x, double* y)
{
    __shared__ double held[64];
    const int row = blockIdx.x * 16 + threadIdx.x;
    double sum = 0;
    for (int first = 0; first < 64; first += 16) {
        held[threadIdx.x] = x[first + threadIdx.x];
        __syncthreads();
        for (int term = 0; term < 16; ++term) sum += a[row * 64 + first + term] * held[PLACE];
        __syncthreads();
    }
    y[row] = sum;
}
"""
"""A matrix-vector product by rows, 16 terms held at a time; here more places follow them, which reading beyond finds undefined."""


def multiplies(text: str) -> bool:
    """Whether the kernel multiplies integers exactly in every order of the threads."""
    module = compile_on_cpu(text, {"gemv": ["const double *", "const double *", "double *"]})
    random = np.random.default_rng(1)
    a, x = (random.integers(-9, 10, shape).astype(np.float64) for shape in ((2 * THREADS, COLUMNS), COLUMNS))
    for order in ORDERS:
        y = guarded_empty((2 * THREADS,))
        try:
            module.launch("gemv", 2, THREADS, [guarded(a, read_only=True), guarded(x), y], order=order)
        except UndefinedError:
            return False
        if not np.array_equal(y, a @ x):
            return False
    return True


@pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")
def test_the_lecture_reads_its_segment_at_the_wrong_place_and_without_barriers() -> None:
    meant = GEMV.replace("PLACE", "term")
    assert multiplies(meant)
    assert not multiplies(GEMV.replace("PLACE", "first + term"))
    assert [multiplies(text) for _, text in without_barrier(meant)] == [False, False]


def tall(a: np.ndarray, b: np.ndarray, t1: int, t3: int, bound: str, whole_tile: bool = True) -> np.ndarray:
    """Algorithm 4 with t2 = n for all rows at once; what was never read ahead is NaN. `bound` names what ends reading ahead.

    Unless `whole_tile`, the tile of B is read at the term of the whole sum, as printed, and not at that of the tile.
    """
    (m, k), n = a.shape, b.shape[1]
    end, c = {"n": n, "k": k}[bound], np.zeros((m, n))
    held, row, next_held, next_row = b[:t1], a[:, :t3], np.full((t1, n), np.nan), np.full((m, t3), np.nan)
    for tile in range(0, k, t1):
        if tile + t1 < end:
            next_held = b[tile + t1 : tile + 2 * t1]
        for term in range(tile, tile + t1, t3):
            if term + t3 < end:
                next_row = a[:, term + t3 : term + 2 * t3]
            first = term - tile if whole_tile else term
            c += row @ held[first : first + t3]
            row = next_row
        held = next_held
    return c


def test_algorithm_4_reads_ahead_up_to_n_where_k_is_meant() -> None:
    random = np.random.default_rng(2)
    a, b = (random.integers(-9, 10, shape).astype(np.float64) for shape in ((8, 64), (64, 4)))
    assert np.array_equal(tall(a, b, 16, 4, "k"), a @ b)
    assert np.isnan(tall(a, b, 16, 4, "n")).all(), "nothing was read ahead"
    square = random.integers(-9, 10, (64, 64)).astype(np.float64)
    assert np.array_equal(tall(square, square, 16, 4, "n"), square @ square), "a square problem does not show it"
    with pytest.raises(ValueError, match="mismatch"):  # the tile of B has t1 rows
        tall(a, b, 16, 4, "k", whole_tile=False)


def test_algorithm_5_bounded_by_k_may_choose_more_columns_than_there_are() -> None:
    chip, n = card("M40", "float64"), 6
    assert threshold(chip, 8) < n
    assert descent(chip, 8, n, 10240)[0] > n >= descent(chip, 8, n, n)[0]


def test_algorithm_5_ends_at_the_same_place_on_every_card() -> None:
    """Where memory bounds a problem: latencies and peaks are factors of the time, so the threshold of the descent decides."""
    assert {descent(card(name, "float32"), 4, 16, 10240) for name in CARDS} == {(4, 4)}
