"""Products of integers by residues beside CuPy's, and products modulo p beside cublasDgemm's: checked first, then timed.

`--problems` random problems of all integer types, shapes and orders, on numbers of the whole range, must be NumPy's bit for bit. In every
size some rows are compared with CuPy's product of the same integers (modulo p of two halves, which do not overflow). Modulo p the baseline
is the float64 products alone that an exact product by pieces takes (docs/how-to/exact.md), without what cuts and reduces them.
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from common import Call, cupy, median, need_gpu, queued, save

import bilinear
from bilinear.analysis.modular_bounds import way_for

ROUNDS, IN_A_ROW, SAMPLED = 7, 2, 64
PROCESSES = min(16, os.cpu_count() or 1)
TYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
ALGORITHMS = (("classical", 1), ("winograd", 1), ("winograd", 2))
MODULI = (2, 65521, 2**31 - 1)
IN_STAGES = {
    "accurate_halves 1": {"algorithm": "accurate_halves", "levels": 1},
    "msmes 1, in place": {"algorithm": "msmes", "levels": 1, "inputs": "restore", "workspace": "none"},
}
"""What runs stage by stage modulo an odd p above 256."""
Row = dict[str, Any]


def drawn(generator: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """Integers over the whole range of a type, on the host."""
    info = np.iinfo(dtype)
    return generator.integers(info.min, info.max, shape, dtype, endpoint=True)


def random_problems(count: int) -> None:
    """Random products beside NumPy's; raises `AssertionError` with the seed of one that differs.

    Processes share them, because NumPy multiplies integers slowly, and each of many kernels is built.
    """
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        list(pool.map(checked, *zip(*((first, count) for first in range(PROCESSES)), strict=True)))
    print(f"{count} random problems: as NumPy's", flush=True)


def checked(first: int, count: int) -> None:
    """The problems with every `PROCESSES`-th seed from the first on."""
    for seed in range(first, count, PROCESSES):
        generator = np.random.default_rng(seed)
        m, k, n = (int(x) for x in generator.integers(1, 400, 3))
        left, right = (str(x) for x in generator.choice(TYPES, 2))
        a, b = drawn(generator, (m, k), left), drawn(generator, (k, n), right)
        a, b = (np.asfortranarray(x) if generator.random() < 0.5 else x for x in (a, b))
        if np.result_type(a, b).kind == "f":
            continue
        name, levels = ALGORITHMS[seed % len(ALGORITHMS)]
        found = bilinear.matmul(cupy.asarray(a), cupy.asarray(b), algorithm=name, levels=levels)
        np.testing.assert_array_equal(found.get(), a @ b, err_msg=f"seed {seed}")


def timed(calls: dict[str, Call]) -> dict[str, float]:
    """Median milliseconds of calls in shuffled rounds."""
    return {name: round(median(values), 4) for name, values in queued(calls, ROUNDS, IN_A_ROW).items()}


def wrapping(n: int, dtype: str) -> Row:
    """One size and type: residues below each algorithm, and CuPy's multiply."""
    generator = np.random.default_rng(n)
    a, b = (cupy.asarray(drawn(generator, (n, n), dtype)) for _ in "ab")
    rows, c = cupy.linspace(0, n - 1, SAMPLED).astype(int), cupy.empty((n, n), dtype)
    wanted = cupy.matmul(a[rows], b)
    calls: dict[str, Call] = {}
    for name, levels in ALGORITHMS:
        call = partial(bilinear.matmul, a, b, c, algorithm=name, levels=levels)
        c[...] = 77
        call()
        np.testing.assert_array_equal(c[rows].get(), wanted.get(), err_msg=f"{name}, {levels}")
        calls[f"{name} {levels}"] = call
    ms = timed(calls | {"cupy": partial(cupy.matmul, a, b, out=c)})
    return {"n": n, "dtype": dtype, "ms": ms, "ratio": {name: round(ms["cupy"] / ms[name], 2) for name in calls}}


def modular(n: int, p: int) -> Row:
    """One size and modulus: residues below each algorithm, and the float64 products that an exact product by pieces takes."""
    generator = np.random.default_rng(n)
    a, b = (cupy.asarray(generator.integers(0, p, (n, n))) for _ in "ab")
    rows, c = cupy.linspace(0, n - 1, SAMPLED).astype(int), cupy.empty((n, n), "int64")
    high, low = a[rows] >> 16, a[rows] & 0xFFFF
    wanted = (cupy.matmul(high, b) % p * 65536 + cupy.matmul(low, b)) % p
    calls: dict[str, Call] = {}
    by_residues = (*ALGORITHMS, *((("walk_444_mod2", 1),) if p == 2 else ()))
    ways: dict[str, dict[str, Any]] = {f"{name} {levels}": {"algorithm": name, "levels": levels} for name, levels in by_residues}
    before = a.sum(), b.sum()
    for name, options in (ways | ({} if p == 2 else IN_STAGES)).items():
        calls[name] = call = partial(bilinear.matmul, a, b, c, modulus=p, **options)
        c[...] = -1
        call()
        np.testing.assert_array_equal(c[rows].get(), wanted.get(), err_msg=name)
        assert (a.sum(), b.sum()) == before, name
    x, y, z = a.astype(float), b.astype(float), cupy.empty((n, n))
    products = len(way_for(p, p // 2, p // 2, n).pairs)
    ms = timed(calls | {"dgemm": partial(cupy.matmul, x, y, out=z)})
    ms["dgemm"] *= products
    tops = {name: round(2e-9 * n**3 / ms[name], 1) for name in calls}
    return {"n": n, "modulus": p, "ms": ms, "ratio": {name: round(ms["dgemm"] / ms[name], 2) for name in calls}, "TOP/s": tops}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[2048, 4096, 8192])
    parser.add_argument("--types", nargs="*", default=["int64", "int32", "int8"])
    parser.add_argument("--moduli", type=int, nargs="*", default=MODULI)
    parser.add_argument("--problems", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    need_gpu()
    random_problems(asked.problems)
    rows = []
    for n in asked.sizes:
        for row in (*(wrapping(n, dtype) for dtype in asked.types), *(modular(n, p) for p in asked.moduli)):
            rows.append(row)
            print(*(f"{key} {value}" for key, value in row.items()), sep="  ", flush=True)
            cupy.get_default_memory_pool().free_all_blocks()
    save("integers", rows, asked.json)


if __name__ == "__main__":
    main()
