"""Products of integers modulo p on processors, beside NumPy's product of int64 and python-flint's (pip install python-flint).

Every result is checked in the run: against python-flint where it is installed and the size is at most 1024, and against NumPy's product
of the same integers where that does not overflow. Times are medians of interleaved calls.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from common import Call, median, save

import bilinear

MODULI = (2, 101, 65521, 2**31 - 1, 2**61 - 1)
SIZES = (256, 512, 1024, 2048)
MOST_CHECKED, ROUNDS = 1024, 5
Row = dict[str, Any]


def flint_matrix(x: Any, p: int) -> Any:
    """The matrix of python-flint with these elements; None if it is not installed, or has no modulus of this kind."""
    try:
        flint = import_module("flint")
    except ImportError:
        return None
    return flint.nmod_mat(*x.shape, [int(v) for v in x.ravel()], p)


def interleaved(calls: dict[str, Call], clock: Callable[[], float]) -> dict[str, list[float]]:
    """Seconds of each call in some rounds, one call after the other."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = clock()
            call()
            found[name].append(clock() - start)
    return found


def measured(n: int, p: int, clock: Callable[[], float]) -> Row:
    """One size and modulus: the ratios of the others' times to ours."""
    generator = np.random.default_rng(n)
    a, b = (generator.integers(0, p, (n, n)) for _ in "ab")
    calls: dict[str, Call] = {"modulo": partial(bilinear.matmul, a, b, modulus=p), "numpy int64": partial(np.matmul, a, b)}
    left, right = (flint_matrix(x, p) if n <= MOST_CHECKED else None for x in (a, b))
    if left is not None:
        calls["flint"] = lambda: left * right
    floats = a.astype(float), b.astype(float)
    calls["numpy float64"] = partial(np.matmul, *floats)
    found, checked = bilinear.matmul(a, b, modulus=p), []
    if n * (p - 1) ** 2 < 2**63:
        checked.append("numpy")
        np.testing.assert_array_equal(found, a @ b % p)
    if left is not None:
        checked.append("flint")
        np.testing.assert_array_equal(found.ravel(), [int(v) for v in (left * right).entries()])
    times = {name: median(seconds) for name, seconds in interleaved(calls, clock).items()}
    own = times["modulo"]
    ratios = {name: seconds / own for name, seconds in times.items() if name != "modulo"}
    print(f"{n:5} modulo {p:20}: {own * 1e3:9.1f} ms", *(f"{name} {ratio:.2f}x" for name, ratio in ratios.items()), checked, sep="  ")
    return {"n": n, "modulus": p, "ms": own * 1e3, "ratios": ratios, "checked": checked}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--moduli", type=int, nargs="+", default=MODULI)
    parser.add_argument("--processor", action="store_true", help="Seconds of all threads, which other programs disturb less.")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    clock = time.process_time if options.processor else time.perf_counter
    save("modular", [measured(n, p, clock) for n in options.sizes for p in options.moduli], options.output)


if __name__ == "__main__":
    main()
