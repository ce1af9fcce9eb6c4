"""Small multiplies on the GPU through every template variant, to be run under `compute-sanitizer --tool memcheck` and `racecheck`."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

import bilinear

CASES: tuple[tuple[str, Any, int], ...] = (
    ("msmes", "restore", 1),
    ("msmes", "restore", 2),
    ("msmes", "consume", 1),
    ("strassen", "preserve", 1),
    ("winograd", "preserve", 2),
    ("laderman", "preserve", 1),
    ("hopcroft_kerr", "preserve", 1),
)
SHAPES = ((64, 48, 80), (131, 257, 143))


def main() -> None:
    wrong = 0
    for algorithm, inputs, levels in CASES:
        for m, k, n in SHAPES:
            for dtype in ("float64", "float32"):
                for order in ("C", "F"):
                    generator = np.random.default_rng(1)
                    whole = [generator.integers(-4, 5, shape) for shape in ((m, k), (k, n), (m, n))]
                    a, b, c = (cupy.array(x, dtype, order=order) for x in whole)
                    bilinear.matmul(a, b, c, alpha=2, beta=-1, algorithm=algorithm, levels=levels, inputs=inputs)
                    exact = np.array_equal(c.get(), 2 * (whole[0] @ whole[1]) - whole[2])
                    restored = inputs == "consume" or (np.array_equal(a.get(), whole[0]) and np.array_equal(b.get(), whole[1]))
                    wrong += not (exact and restored)
                    if not (exact and restored):
                        print(f"WRONG {algorithm} {inputs} levels {levels} {m}x{k}x{n} {dtype} {order}")
    print("all exact and restored" if not wrong else f"{wrong} wrong")


if __name__ == "__main__":
    main()
