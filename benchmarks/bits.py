"""Products of packed matrices over Z/2 beside those of bytes modulo 2: checked on random vectors, and timed in turns."""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from common import Call, cupy, need_gpu, queued, save

import bilinear

IN_A_ROW = 3


def drawn(n: int, seed: int) -> Any:
    """A packed matrix of random bits."""
    return cupy.random.default_rng(seed).integers(0, 256, (n, n // 8), dtype="uint8")


def is_product(x: Any, y: Any, product: Any) -> bool:
    """Whether v C = (v A) B for random rows of bits v, in float64, which is exact; a wrong C passes with a probability of at most 2^-64."""
    v = cupy.random.default_rng(9).integers(0, 2, (64, len(x))).astype("float64")
    left = v @ product.astype("float64") % 2
    return bool((left == v @ x.astype("float64") % 2 @ y.astype("float64") % 2).all())


def unpacked(z: Any) -> Any:
    """A packed matrix as one of bytes."""
    return cupy.asarray(np.unpackbits(z.get(), axis=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="4096,8192,16384", help="comma-separated multiples of 512")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    need_gpu()
    rows = []
    for n in map(int, asked.sizes.split(",")):
        a, b, c = (drawn(n, seed) for seed in (1, 2, 3))
        calls: dict[str, Call] = {"packed": partial(bilinear.matmul_bits, a, b, c)}
        calls |= {"packed, walk_444_mod2": partial(bilinear.matmul_bits, a, b, c, algorithm="walk_444_mod2")}
        x, y = unpacked(a), unpacked(b)
        right = {}
        for name, call in calls.items():
            c.fill(0xA5)
            call()
            right[name] = is_product(x, y, unpacked(c))
        calls["bytes, modulus=2"] = partial(bilinear.matmul, x, y, modulus=2)
        right["bytes, modulus=2"] = is_product(x, y, calls["bytes, modulus=2"]())
        times = {name: median(found) for name, found in queued(calls, asked.rounds, IN_A_ROW).items()}
        for name, ms in times.items():
            rows.append({"n": n, "way": name, "ms": round(ms, 4), "TOP/s": round(2e-9 * n**3 / ms, 1), "right": right[name]})
            print(json.dumps(rows[-1]), flush=True)
    save("bits", rows, asked.json)


if __name__ == "__main__":
    main()
