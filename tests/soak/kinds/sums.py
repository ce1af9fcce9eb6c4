"""`einsum` and `tensordot`: letters, diagonals, ones, up to four operands, one array twice, and promises for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from soak.homes import Held
from soak.scene import Scene, wide

import bilinear


def act(scene: Scene) -> str:
    """Draw and judge it."""
    return _tensordot(scene) if scene.chance(0.3) else _einsum(scene)


def _einsum(scene: Scene) -> str:
    letters = "ijklm"[: int(scene.draw.integers(2, 6))]
    extents = dict(zip(letters, scene.extents(len(letters), 24 if len(letters) < 4 else 7), strict=True))
    words, dtype = [], scene.dtype()
    for _ in range(int(scene.draw.choice((1, 2, 3, 4), p=(0.1, 0.6, 0.2, 0.1)))):
        word = list(scene.draw.permutation(list(letters))[: int(scene.draw.integers(1, min(4, len(letters) + 1)))])
        words.append("".join([*word, *word[:1]] if scene.chance(0.05) else word))
    used = sorted(set("".join(words)))
    result = "".join(scene.draw.permutation([x for x in used if scene.chance(0.5)]))
    shapes = [tuple(extents[x] for x in word) for word in words]
    operands = [scene.integers(shape, dtype) for shape in shapes]
    if scene.chance(0.1) and shapes[-1] == shapes[0]:
        operands[-1] = operands[0]
    text = f"{','.join(words)}->{result}"
    exact = np.einsum(text, *(wide(x.values) for x in operands))
    out = scene.out(exact.shape, dtype, *operands)
    is_product = any(sum(x in word for word in words) > 1 for x in {*used}.difference(result))
    options = scene.options() if is_product or scene.chance(0.1) else {}  # E732
    scene.say(f"einsum {text}, {options}")
    call = partial(bilinear.einsum, text, *(x.array for x in operands), out=None if out is None else out.array, **options)
    return _settled(scene, call, np.asarray(exact), out, options, operands)


def _tensordot(scene: Scene) -> str:
    inner, left, right = (scene.extents(int(scene.draw.integers(0, 3)), 12) for _ in range(3))
    dtype, at = scene.dtype(), [int(x) for x in scene.draw.permutation(len(inner))]
    a, b = scene.integers((*left, *inner), dtype), scene.integers((*(inner[x] for x in at), *right), dtype)
    axes: Any = ([len(left) + x - (len(left) + len(inner)) * scene.chance(0.3) for x in at], list(range(len(inner))))
    axes = len(inner) if at == sorted(at) and scene.chance(0.5) else axes
    options = scene.options() if inner or scene.chance(0.1) else {}
    scene.say(f"tensordot over {axes}, {options}")
    exact = np.asarray(np.tensordot(wide(a.values), wide(b.values), axes))
    return _settled(scene, partial(bilinear.tensordot, a.array, b.array, axes, **options), exact, None, options, (a, b))


def _settled(scene: Scene, call: Any, exact: Any, out: Held | None, options: dict[str, Any], operands: Sequence[Held]) -> str:
    dtype = operands[0].values.dtype
    reasons = scene.reasons(options, dtype, out)
    reasons |= {"E732"} if options.get("algorithm", "auto") != "auto" else set()
    writes = options.get("inputs", "preserve") != "preserve"
    apart = not any(np.shares_memory(x.laid.view, y.laid.view) for x, y in combinations(operands, 2))
    if options.get("inputs") == "consume" and not apart:
        return scene.refused(call, reasons)
    return scene.settle(call, wide(exact.astype(dtype)), dtype, [out], reasons, written=operands if writes else ())
