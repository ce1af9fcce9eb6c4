"""`check`: a right product passes, of every type and of zeros, and a wrong one does not; nothing is written."""

from __future__ import annotations

from typing import Any

import numpy as np
from soak.case import PASSED, Finding
from soak.scene import Scene, scaled, wide

import bilinear


def act(scene: Scene) -> str:
    """Draw and judge them."""
    (m, k, n), dtype = scene.extents(3), scene.dtype()
    batch = scene.extents(1, 3) if scene.chance(0.2) else ()
    a, b = scene.integers((*batch, m, k), dtype), scene.integers((*batch, k, n) if scene.chance(0.5) else (k, n), dtype)
    if scene.chance(0.1):
        a = scene.put(np.zeros_like(a.values))
    result = scene.dtype(dtype.kind) if dtype.kind in "iu" else dtype
    before = scene.integers((*batch, m, n), result) if scene.chance(0.4) else None
    factors = scene.factors(np.dtype("int8"), before)
    factors = {name: abs(value) for name, value in factors.items()}
    options: dict[str, Any] = {"seed": int(scene.draw.integers(1000))} | ({"tolerance": 1e-3} if scene.chance(0.5) else {})
    scene.say(f"check, {result}, {factors}, {options}")
    exact = scaled(wide(a.values) @ wide(b.values), dtype, factors, before).astype(result)
    c = scene.put(exact)
    old = None if before is None else before.array
    found = bilinear.check(a.array, b.array, c.array, **factors, before=old, **options)
    if found.passed not in (True, None):
        raise Finding(f"a right product does not pass: {found}")
    if exact.size:
        wrong = exact.copy()
        place = tuple(int(scene.draw.integers(extent)) for extent in exact.shape)
        wrong[place] += 1 if dtype.kind in "iu" else 1 + 9 * abs(wrong).max()
        far = float(abs(wide(wrong) - wide(exact)).max())
        d = scene.put(wrong)
        found = bilinear.check(a.array, b.array, d.array, **factors, before=old, **options)
        if found.bound < far * 0.999 if dtype.kind not in "iu" else found.passed:
            raise Finding(f"a product that is off by {far} at {place} passes: {found}")
    for number, held in enumerate(scene.held):
        if not held.now().is_untouched():
            raise Finding(f"array {number} was written")
    return PASSED
