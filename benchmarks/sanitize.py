"""Small multiplies on the GPU, to be run under `compute-sanitizer`, one tool at a time:

compute-sanitizer --tool memcheck|racecheck|synccheck|initcheck python benchmarks/sanitize.py [--quick | --thin]

All tiles and several shapes by default; `--thin` runs the tiles of thin products. `--quick` runs every template once, in the cases of
sanitize_cases.py, and starts no case after `--seconds`. `--build` runs the cases of `--quick` in the emulator, without a GPU, and builds
their kernels into the cache (`BILINEAR_CACHE_DIR`), which may be carried to the GPU: compiling under a sanitizer is slow.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from common import need_gpu, running
from sanitize_cases import built_for
from sanitize_cases import cases as quick_cases

import bilinear
from bilinear.codegen.cuda import nvrtc
from bilinear.ir.tile import TILES
from bilinear.methods.thin.choice import thin_of

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


def cases(shape: Shape, dtype: str) -> Iterator[tuple[str, str, Callable[..., Any]]]:
    """A name, what may happen to the inputs, and the multiply: by named algorithms, and by plans in each of the tiles."""
    import cupy

    if shape == THIN:
        yield from thin_cases(dtype)
        return
    for levels, inputs in TILED:
        choice = bilinear.plan(*shape, dtype, device="h200", inputs=inputs, levels=levels, accumulate=True)
        for tile in TILES[dtype]:
            candidates = (running(choice.chosen, tile=tile), *choice.candidates[1:])
            plan, workspace = replace(choice, candidates=candidates), choice.chosen.workspace or 0
            buffer = cupy.full(workspace // np.dtype(dtype).itemsize, cupy.nan, dtype) if workspace else None
            yield f"{levels[0]}, tile {tile}", inputs, partial(bilinear.matmul, plan=plan, workspace=buffer)
    for name, inputs, count in NAMED:
        yield f"{name}, {count} level(s)", inputs, partial(bilinear.matmul, algorithm=name, levels=count, inputs=inputs)


def thin_cases(dtype: str) -> Iterator[tuple[str, str, Callable[..., Any]]]:
    """The kernel for thin products in every tile that suits, with whole sums or split ones."""
    choice = bilinear.plan(*THIN, dtype, device="h200", explain=True)
    for candidate in {candidate.tile: candidate for candidate in choice.candidates if candidate.strategy == "thin"}.values():
        plan = replace(choice, candidates=(candidate,))
        yield f"thin {candidate.tile} {thin_of(candidate).parts}", "preserve", partial(bilinear.matmul, plan=plan)


def operand(values: Any, dtype: str, order: str) -> Any:
    """A matrix at the start of memory filled with NaN, in whole copies of 16 bytes.

    The last copy of an uneven row reads fewer bytes and fills up with zeros, but initcheck counts all 16 as read. An exact result shows
    that no NaN was used.
    """
    import cupy

    lanes = 16 // np.dtype(dtype).itemsize
    memory = cupy.full(-(-values.size // lanes) * lanes, cupy.nan, dtype)
    found = memory[: values.size].reshape(values.shape, order=order)
    found[...] = cupy.asarray(values, dtype)
    return found


def whole() -> list[str]:
    """What is wrong among all tiles, shapes and orders in memory."""
    return [text for shape in SHAPES for text in wrong_of(shape)]


def wrong_of(shape: Shape) -> Iterator[str]:
    """The calls of this shape whose result is not exact, or that did not restore their inputs."""
    m, k, n = shape
    for dtype in ("float64", "float32"):
        for name, inputs, multiply in cases(shape, dtype):
            for order in ("C",) if name.startswith("thin") else ("C", "F"):  # a plan of a thin product is for one layout
                generator = np.random.default_rng(1)
                hosts = [generator.integers(-4, 5, sides) for sides in ((m, k), (k, n), (m, n))]
                a, b, c = (operand(x, dtype, order) for x in hosts)
                multiply(a, b, c, alpha=2, beta=-1)
                is_exact = np.array_equal(c.get(), 2 * (hosts[0] @ hosts[1]) - hosts[2])
                is_restored = inputs == "consume" or (np.array_equal(a.get(), hosts[0]) and np.array_equal(b.get(), hosts[1]))
                if not (is_exact and is_restored):
                    yield f"{name} {inputs} {m}x{k}x{n} {dtype} {order}"


def quick(seconds: float) -> list[str]:
    """What is wrong among the cases that run every template once, or was not run within these seconds."""
    start, wrong = perf_counter(), []
    for case in quick_cases():
        before = perf_counter()
        if before - start > seconds:
            wrong.append(f"{case.name}: not run")
            continue
        with built_for(case.architecture):
            is_exact = case.is_exact()
        print(f"{perf_counter() - start:5.1f} s  {case.name} took {perf_counter() - before:.1f}", flush=True)
        if not is_exact:
            wrong.append(case.name)
    return wrong


def build() -> list[str]:
    """What is wrong among the quick cases in the emulator, whose kernels are built for a GPU of capability 9.0."""
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    import pytest
    from runtime.pretended_gpu import described, undescribed

    from bilinear.codegen import build as building

    with pytest.MonkeyPatch.context() as patch, undescribed(patch):
        described(patch, "h200")
        patch.setattr(building, "build", nvrtc.build)
        patch.setattr(building, "build_all", nvrtc.build_all)
        return quick(float("inf"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="every template once")
    parser.add_argument("--thin", action="store_true", help="the tiles of thin products")
    parser.add_argument("--build", action="store_true", help="build the kernels of --quick, without a GPU")
    parser.add_argument("--seconds", type=float, default=50, help="--quick starts no case after so many seconds")
    options = parser.parse_args()
    if not options.build:
        need_gpu()
    wrong = build() if options.build else quick(options.seconds) if options.quick else list(wrong_of(THIN)) if options.thin else whole()
    print("all exact and restored" if not wrong else "\n".join(f"WRONG {text}" for text in wrong))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
