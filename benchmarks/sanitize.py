"""Small multiplies on the GPU through every template variant, to be run under `compute-sanitizer`, a tool at a time:

compute-sanitizer --tool memcheck|racecheck|synccheck|initcheck python benchmarks/sanitize.py [--quick] [--thin]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import cupy
import numpy as np

import bilinear
from bilinear.ir.tile import TILES

NAMED: tuple[tuple[str, Any, int], ...] = (
    ("msmes", "restore", 1),
    ("msmes", "restore", 2),
    ("msmes", "consume", 1),
    ("strassen", "preserve", 1),
    ("winograd", "preserve", 2),
    ("laderman", "preserve", 1),
    ("hopcroft_kerr", "preserve", 1),
)
TILED: tuple[tuple[tuple[str, ...], str], ...] = ((("classical",), "preserve"), (("winograd",), "preserve"), (("msmes",), "restore"))
THIN = (131, 1027, 13)
SHAPES = ((64, 48, 80), (131, 257, 143), THIN)
Shape = tuple[int, int, int]


def cases(shape: Shape, dtype: str, quick: bool) -> Iterator[tuple[str, str, Callable[..., Any]]]:
    """A name, what may happen to the inputs, and the multiply: by named algorithms, and by plans in each of the tiles."""
    if shape == THIN:
        yield from thin_cases(dtype)
        return
    for levels, inputs in TILED:
        choice = bilinear.plan(*shape, dtype, device="h200", inputs=inputs, levels=levels, accumulate=True)
        for tile in TILES[dtype]:
            candidates = (replace(choice.chosen, tile=tile), *choice.candidates[1:])
            plan, workspace = replace(choice, candidates=candidates), choice.chosen.workspace or 0
            buffer = cupy.full(workspace // np.dtype(dtype).itemsize, cupy.nan, dtype) if workspace else None
            yield f"{levels[0]}, tile {tile}", inputs, partial(bilinear.matmul, plan=plan, workspace=buffer)
    for name, inputs, count in () if quick else NAMED:
        yield f"{name}, {count} level(s)", inputs, partial(bilinear.matmul, algorithm=name, levels=count, inputs=inputs)


def thin_cases(dtype: str) -> Iterator[tuple[str, str, Callable[..., Any]]]:
    """The kernel for thin products in every tile that suits, with whole sums or split ones."""
    choice = bilinear.plan(*THIN, dtype, device="h200", explain=True)
    for candidate in {candidate.tile: candidate for candidate in choice.candidates if candidate.is_thin}.values():
        plan = replace(choice, candidates=(candidate,))
        yield f"thin {candidate.tile} {candidate.parts_of_sums}", "preserve", partial(bilinear.matmul, plan=plan)


def operand(values: np.ndarray, dtype: str, order: str) -> cupy.ndarray:
    """A matrix at the begin of whole copies of 16 bytes of NaN, as the workspaces are of NaN.

    The last copy of an uneven row names fewer bytes, and the rest becomes zero, but initcheck takes all 16 for read. What the results are
    exact beside was not read.
    """
    lanes = 16 // np.dtype(dtype).itemsize
    memory = cupy.full(-(-values.size // lanes) * lanes, cupy.nan, dtype)
    found = memory[: values.size].reshape(values.shape, order=order)
    found[...] = cupy.asarray(values, dtype)
    return found


def main() -> None:
    quick = "--quick" in sys.argv
    wrong = 0
    for shape in (THIN,) if "--thin" in sys.argv else SHAPES:
        m, k, n = shape
        for dtype in ("float64", "float32"):
            for name, inputs, multiply in cases(shape, dtype, quick):
                for order in ("C",) if name.startswith("thin") else ("C", "F"):  # a thin plan is for operands that lie as it says
                    generator = np.random.default_rng(1)
                    whole = [generator.integers(-4, 5, sides) for sides in ((m, k), (k, n), (m, n))]
                    a, b, c = (operand(x, dtype, order) for x in whole)
                    multiply(a, b, c, alpha=2, beta=-1)
                    exact = np.array_equal(c.get(), 2 * (whole[0] @ whole[1]) - whole[2])
                    restored = inputs == "consume" or (np.array_equal(a.get(), whole[0]) and np.array_equal(b.get(), whole[1]))
                    wrong += not (exact and restored)
                    if not (exact and restored):
                        print(f"WRONG {name} {inputs} {m}x{k}x{n} {dtype} {order}")
    print("all exact and restored" if not wrong else f"{wrong} wrong")


if __name__ == "__main__":
    main()
