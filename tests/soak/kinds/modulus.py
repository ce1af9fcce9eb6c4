"""Products modulo p: integers of any size and type, in and outside of 0 to p - 1, some in place; beside Python's integers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from soak.homes import Held
from soak.kinds.products import fates
from soak.layouts import Array
from soak.scene import Scene

import bilinear

MODULI = (2, 3, 7, 101, 127, 255, 256, 257, 65521, 2**31 - 1, 2**31, 2**61 - 1, 2**62)


def act(scene: Scene) -> str:
    """Draw and judge it."""
    p, (m, k, n) = scene.one_of(MODULI), scene.extents(3, 70)
    dtypes = [scene.dtype("iu") if scene.chance(0.5) else np.dtype("int64") for _ in "AB"]
    reduced = scene.chance(0.5)
    a, b = (
        scene.put(_values(scene, shape, dtype, p, reduced), repeats=True) for shape, dtype in zip(((m, k), (k, n)), dtypes, strict=True)
    )
    common = np.result_type(*dtypes)
    result = common if np.iinfo(common).max >= p - 1 else np.dtype("int64")
    out = scene.out((m, n), result, a, b)
    factors = {"alpha": scene.one_of((0, 1, 2, -1, 5))} if scene.chance(0.5) else {}
    factors |= {"beta": scene.one_of((0, 1, 2, -1, 5))} if out is not None and scene.chance(0.5) else {}
    options = scene.options()
    if scene.chance(0.2):
        options["algorithm"] = "accurate_halves"
        options.pop("inputs", None)
    scene.say(f"matmul, modulus={p}, {factors}, {options}")
    exact = factors.get("alpha", 1) * (a.values.astype(object) @ b.values.astype(object))
    exact = (exact + (factors["beta"] * out.values.astype(object) if out is not None and "beta" in factors else 0)) % p
    call = partial(bilinear.matmul, a.array, b.array, None if out is None else out.array, modulus=p, **factors, **options)
    reasons = scene.reasons(options, result, out) | ({"E594"} if p % 2 == 0 and options.get("algorithm") == "accurate_halves" else set())
    reasons |= {"E599"} if "inputs" in options and not (reduced and _is_plain(a, b)) else set()
    return scene.settle(call, exact.astype(np.int64).reshape(m, n), result, [out], reasons, **fates(options, a, b))


def _is_plain(*operands: Held) -> bool:
    """Whether sums modulo p can be written into all of them."""
    return all(x.values.dtype == np.int64 and x.laid.view.flags.aligned for x in operands)


def _values(scene: Scene, shape: tuple[int, int], dtype: np.dtype[Any], p: int, reduced: bool) -> Array:
    info = np.iinfo(dtype)
    low, high = (0, p - 1) if reduced else (-4 * p, 4 * p)
    return scene.draw.integers(max(low, info.min), min(high, info.max), shape, dtype, endpoint=True)
