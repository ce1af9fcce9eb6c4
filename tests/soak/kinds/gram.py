"""`gram`: A*A^T and A^T*A, both triangles or one, with factors, results over A, and schemes for A*A^T."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from soak.layouts import Array
from soak.scene import Scene, scaled, wide

import bilinear


def act(scene: Scene) -> str:
    """Draw and judge it."""
    (n, k), dtype = scene.extents(2), scene.dtype("iuf", halves=True)
    batch = scene.extents(1, 3) if scene.chance(0.15) else ()
    transposed: bool = scene.chance(0.4)
    a = scene.integers((*batch, k, n) if transposed else (*batch, n, k), dtype)
    out = scene.out((*batch, n, n), scene.dtype("iuf") if scene.chance(0.15) else dtype, a)
    triangle = scene.one_of((None, "lower", "upper"))
    factors, options = scene.factors(dtype, out), scene.options(writes=False)
    if scene.chance(0.25):
        options |= {"algorithm": "rxtx", "levels": int(scene.draw.integers(1, 3))}
        options |= {"products": scene.one_of(("auto", "strassen", "classical"))} if scene.chance(0.5) else {}
    scene.say(f"gram, {transposed=}, {triangle=}, {factors}, {options}")
    x = wide(a.values).swapaxes(-1, -2) if transposed else wide(a.values)
    exact = scaled(x @ x.swapaxes(-1, -2), dtype, {**factors, "beta": 0}, None)
    beta = factors.get("beta", 0)
    if beta and out is not None:
        exact = exact + beta * _mirrored(wide(out.values), triangle or "lower")
    exact = _written(exact, None if out is None else wide(out.values), triangle)
    call = partial(
        bilinear.gram, a.array, None if out is None else out.array, transposed=transposed, triangle=triangle, **factors, **options
    )
    half = {"E794"} if options.get("algorithm") == "rxtx" and dtype.char == "e" and scene.home.name == "torch" else set()
    return scene.settle(call, exact, dtype, [out], scene.reasons(options, dtype, out, factors) | half)


def _mirrored(old: Array, triangle: str) -> Array:
    """The symmetric matrix that one triangle stands for."""
    part = np.tril(old) if triangle == "lower" else np.triu(old)
    return np.asarray(part + part.swapaxes(-1, -2) - part * np.eye(part.shape[-1], dtype=part.dtype))


def _written(exact: Array, old: Any, triangle: str | None) -> Array:
    """What `out` holds then: the other triangle is as it was, or 0."""
    if triangle is None:
        return exact
    keep, other = (np.tril, np.triu) if triangle == "lower" else (np.triu, np.tril)
    kept = np.asarray(keep(exact))
    return kept if old is None else kept + other(old) - old * np.eye(old.shape[-1], dtype=old.dtype)
