"""`matmul_bits`: packed matrices over Z/2, with anything in the bits behind the columns, some results over operands."""

from __future__ import annotations

from functools import partial

import numpy as np
from soak.scene import Scene

import bilinear

ALGORITHMS = ("classical", "strassen", "winograd", "laderman", "walk_444_mod2", "split_k", "accurate_halves", "bini")


def act(scene: Scene) -> str:
    """Draw and judge it."""
    m, k, width = scene.extents(3)
    k *= int(scene.draw.integers(1, 9))
    a, b = (scene.put(scene.draw.integers(0, 256, s, np.uint8), repeats=True) for s in ((m, -(-k // 8)), (k, width)))
    out = scene.out((m, width), np.dtype("uint8"), a, b)
    options = {} if scene.chance(0.3) else {"algorithm": scene.one_of(ALGORITHMS), "levels": int(scene.draw.integers(0, 4))}
    scene.say(f"matmul_bits, k = {k}, {options}")
    left, right = np.unpackbits(a.values, axis=1)[:, :k].astype(np.int64), np.unpackbits(b.values, axis=1).astype(np.int64)
    exact = np.packbits((left @ right % 2).astype(np.uint8), axis=1).reshape(m, width)
    reasons = {"E594", "E506"} if options.get("algorithm") in ("accurate_halves", "bini") else set()
    reasons |= scene.reasons({}, np.uint8, out) | {0: {"E502"}, 3: {"E501"}}.get(options.get("levels", 1), set())
    reasons |= {"E514"} if options.get("algorithm") == "classical" and options["levels"] != 1 else set()
    call = partial(bilinear.matmul_bits, a.array, b.array, None if out is None else out.array, **options)
    return scene.settle(call, exact, np.dtype("uint8"), [out], reasons)
