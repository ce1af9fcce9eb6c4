"""`matmul` of any home's arrays: types, batches, layouts, results over operands, factors, promises, workspace, transposes of one matrix, and
on GPUs products of digits and residues."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from soak.case import Case
from soak.homes import skip_reason
from soak.scene import Scene, play, scaled, wide

import bilinear

MOST_SECONDS = 300
"""A case whose kernels were never compiled compiles them."""
DIGITS = {"float32": ("pairs", "residues7", "tf32"), "float64": ("residues14",), "complex64": ("gaussian7",), "complex128": ("gaussian15",)}
__all__ = ["run", "skip_reason"]


def run(case: Case) -> str:
    """One product."""
    return play(case, act)


def act(scene: Scene) -> str:
    """Draw and judge it."""
    (m, k, n), left = scene.extents(3), scene.dtype()
    right = scene.dtype() if scene.chance(0.1) else left
    batch = scene.extents(1, 3) if scene.chance(0.2) else ()
    a = scene.integers((*batch, m, k), left)
    b = scene.integers((k, n) if scene.chance(0.3) else (*batch, k, n), right)
    if scene.chance(0.08):
        b, n = a.turned(), m
        scene.held.append(b)
    product = np.result_type(a.values, b.values)
    out = scene.out((*batch, m, n), scene.dtype() if scene.chance(0.08) else product, a, b)
    factors, options = scene.factors(product, out), scene.options()
    own = DIGITS.get(str(product))
    if own and left == right and scene.home.name in ("cupy", "torch") and scene.home.captures and not batch and m * k * n and scene.chance(0.2):
        levels = scene.one_of(((), ("winograd",), ("strassen",), ("winograd", "winograd")))
        products = scene.one_of(own)
        scene.say(f"plan(levels={levels}, products={products})")
        options = {"plan": bilinear.plan(m, k, n, str(product), device="h200", levels=() if products == "tf32" else levels, products=products)}
    scene.say(f"matmul, {factors}, {options}")
    exact = scaled(wide(a.values) @ wide(b.values), product, factors, out)
    call = partial(bilinear.matmul, a.array, b.array, None if out is None else out.array, **factors, **options)
    return scene.settle(call, exact, [out], scene.reasons(options, product, out, factors), **fates(options, a, b))


def fates(options: dict[str, Any], *operands: Any) -> dict[str, Any]:
    """Which operands are left undefined, or restored."""
    return {"written": operands if options.get("inputs") == "consume" else (), "restored": operands if options.get("inputs") == "restore" else ()}
