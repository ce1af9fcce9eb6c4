"""`matmul_parts`: complex matrices in two parts that lie anywhere, results that overlap operands, and some that overlap each other."""

from __future__ import annotations

from functools import partial

import numpy as np
from soak.scene import ALGORITHMS, Scene

import bilinear


def act(scene: Scene) -> str:
    """Draw and judge it."""
    (m, k, n), dtype = scene.extents(3), scene.one_of((np.dtype("float32"), np.dtype("float64")))
    x, xi, y, yi = operands = [scene.integers(shape, dtype) for shape in ((m, k), (m, k), (k, n), (k, n))]
    if scene.chance(0.1):
        xi = x
    outs = [scene.out((m, n), dtype, *operands, always=True) for _ in "ri"]
    z, zi = outs
    assert z is not None and zi is not None
    given = scene.chance(0.7)
    if given and scene.chance(0.05):
        zi = outs[1] = scene.over(z, (m, n), dtype, int(scene.draw.integers(2))) or z
    options = {} if scene.chance(0.3) else {"algorithm": scene.one_of(ALGORITHMS[1:]), "levels": int(scene.draw.integers(1, 3))}
    factors = {"alpha": scene.one_of((0, 1, 2, -1, 0.5))} if scene.chance(0.4) else {}
    factors |= {"beta": scene.one_of((0, 1, 2, -1, 0.5))} if given and scene.chance(0.5) else {}
    scene.say(f"matmul_parts, out {given}, {factors}, {options}")
    alpha, beta = factors.get("alpha", 1), factors.get("beta", 0)
    r, ri, s, si = (one.values.astype(np.float64) for one in (x, xi, y, yi))
    exact = [alpha * (r @ s - ri @ si), alpha * (r @ si + ri @ s)]
    exact = [part + beta * one.values for part, one in zip(exact, (z, zi), strict=True)] if beta else exact
    left, right, out = (x.array, xi.array), (y.array, yi.array), (z.array, zi.array) if given else None
    call = partial(bilinear.matmul_parts, left, right, out, **factors, **options)
    lost = given and (np.shares_memory(z.laid.view, zi.laid.view) or not all(one.laid.view.flags.writeable for one in (z, zi)))
    if lost and m * n:
        return scene.refused(call, ("E520",))
    reasons = scene.reasons({}, dtype, z) | scene.reasons({}, dtype, zi) if given else set()
    return scene.settle(call, exact, dtype, outs if given else [None, None], reasons)
