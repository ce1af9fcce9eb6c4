"""Chains through `multi_dot`: order, types, layouts, vectors, `out`, workspace, promises and algorithm drawn, beside exact products."""

from __future__ import annotations

from functools import partial, reduce
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from soak.kinds.products import fates
from soak.scene import Scene, wide

import bilinear


def act(scene: Scene) -> str:
    """Draw and judge it."""
    extents = list(scene.extents(int(scene.draw.integers(3, 7)), 16 if scene.chance(0.7) else 60))
    one = scene.dtype()
    some = scene.one_of(((one,), (one,), (one, scene.dtype("iuf")), (np.dtype("int8"), np.dtype("int64"))))
    dtypes = [scene.one_of(some) for _ in extents[1:]]
    common, most = np.result_type(*dtypes), 1 if len(extents) > 4 or np.result_type(*dtypes).itemsize < 8 else 4
    shapes: list[tuple[int, ...]] = list(pairwise(extents))
    if scene.chance(0.2):
        extents[0], shapes[0] = 1, shapes[0][1:]
    if scene.chance(0.2):
        shapes[-1] = shapes[-1][:1]
    matrices = [scene.put(scene.whole(shape, own, most), repeats=True) for shape, own in zip(shapes, dtypes, strict=True)]
    if scene.chance(0.08) and shapes[-1] == shapes[0]:
        matrices[-1] = matrices[0]
        common = np.result_type(*(x.values.dtype for x in matrices))
    exact: Any = reduce(lambda x, y: x @ y, [wide(x.values).astype(wide(np.empty(0, common)).dtype) for x in matrices])
    out = scene.out(np.shape(exact), scene.dtype() if scene.chance(0.1) else common, *matrices)
    options = scene.options()
    if scene.chance(0.2) and scene.home.name == "numpy" and options.get("algorithm", "auto") == "auto":
        options["device"] = "h200"
    scene.say(f"multi_dot, {options}")
    call = partial(bilinear.multi_dot, [x.array for x in matrices], out=None if out is None else out.array, **options)
    reasons = scene.reasons(options, common, out)
    if options.get("inputs") == "consume" and any(np.shares_memory(x.laid.view, y.laid.view) for x, y in combinations(matrices, 2)):
        return scene.refused(call, reasons)
    return scene.settle(call, wide(np.asarray(exact).astype(common)), common, [out], reasons, **fates(options, *matrices))
