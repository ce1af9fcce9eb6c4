"""`prepare`: one operand kept for several calls with others, the plain call's bits, and an operand that changes in between."""

from __future__ import annotations

from functools import partial
from typing import Any

from soak.case import PASSED, REFUSED
from soak.scene import Scene, scaled, wide

import bilinear
from bilinear.errors import BilinearError

ALGORITHMS = ("auto", "strassen", "winograd", "winograd", "naive2x2", "laderman", "hopcroft_kerr", "split_k", "msmes")


def act(scene: Scene) -> str:
    """Draw and judge them."""
    (m, k, n), dtype, is_left = scene.extents(3), scene.dtype("iuf" if scene.chance(0.9) else "c"), scene.chance(0.4)
    own = scene.integers((m, k) if is_left else (k, n), dtype)
    side: dict[str, Any] = {"columns": n} if is_left else {"rows": m}
    options = {"algorithm": scene.one_of(ALGORITHMS), "check": scene.chance(0.6)}
    options |= {"levels": int(scene.draw.integers(1, 3))} if options["algorithm"] != "auto" else {}
    scene.say(f"prepare, {side}, {options}")
    try:
        kept = bilinear.prepare(own.array, **side, **options)
    except BilinearError as error:
        fine = {"E539"} | ({"E538"} if 0 in side.values() else set())
        if not fine & {diagnostic.code for diagnostic in error.diagnostics}:
            raise
        return REFUSED
    for _ in range(int(scene.draw.integers(1, 4))):
        if scene.chance(0.3):
            m, n = (m, int(scene.draw.integers(1, 40))) if is_left else (int(scene.draw.integers(1, 40)), n)
        batch = scene.extents(1, 3) if scene.chance(0.2) else ()
        other = scene.integers((*batch, k, n) if is_left else (*batch, m, k), dtype)
        out = scene.out((*batch, m, n), dtype, other)
        factors = scene.factors(dtype, out)
        scene.say(f"with {other.laid}, {factors}")
        left, right = (own, other) if is_left else (other, own)
        exact = scaled(wide(left.values) @ wide(right.values), dtype, factors, out)
        pair = (kept, other.array) if is_left else (other.array, kept)
        call = partial(bilinear.matmul, pair[0], pair[1], None if out is None else out.array, **factors)
        scene.settle(call, exact, dtype, [out], scene.reasons({"levels": options.get("levels")}, dtype, out, factors) | {"E538"})
        scene.held = [own]
    if options["check"] and own.values.size and own.laid.view.flags.writeable and 0 not in (m, n) and kept.bytes:
        changed = own.laid.before.copy()
        changed[own.laid.offset + int(scene.draw.integers(own.values.itemsize))] ^= 1 << int(scene.draw.integers(8))
        scene.home.fill(own.buffer, changed)
        scene.held.clear()
        other = scene.integers((k, n) if is_left else (m, k), dtype)
        scene.refused(partial(bilinear.matmul, *((kept, other.array) if is_left else (other.array, kept))), ("E537",))
    return PASSED
