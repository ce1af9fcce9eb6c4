"""`matmul`: types, batches, layouts, results over operands, factors, promises, workspace, transposes, digits and residues on GPUs."""

from __future__ import annotations

from functools import partial
from typing import Any

from soak.scene import Scene, scaled, wide

import bilinear
from bilinear.errors import BilinearError

DIGITS = {"float32": ("pairs", "residues7", "tf32"), "float64": ("residues14",), "complex64": ("gaussian7",), "complex128": ("gaussian15",)}


def act(scene: Scene, kinds: str = "iufc") -> str:
    """Draw and judge it."""
    (m, k, n), left = scene.extents(3), scene.dtype(kinds, halves=True)
    right = scene.dtype(kinds) if scene.chance(0.1) else left
    whole = left.kind in "iu" and left == right and scene.chance(0.5)
    batch = scene.extents(1, 3) if scene.chance(0.2) else ()
    a = scene.integers((*batch, m, k), left, whole)
    b = scene.integers((k, n) if scene.chance(0.3) else (*batch, k, n), right, whole)
    if scene.chance(0.08):
        b, n = a.turned(), m
        scene.held.append(b)
    product = scene.home.common(a.values.dtype, b.values.dtype)
    out = scene.out((*batch, m, n), scene.dtype() if not whole and scene.chance(0.08) else product, a, b)
    factors, options = scene.factors(product, out), scene.options()
    if scene.home.has_units and left == right and not batch and scene.chance(0.2):
        options = _by_digits(scene, (m, k, n), str(product)) or options
    scene.say(f"matmul, {factors}, {options}")
    exact = scaled(wide(a.values) @ wide(b.values), product, factors, out)
    call = partial(bilinear.matmul, a.array, b.array, None if out is None else out.array, **factors, **options)
    unfit = {"E544"} if "plan" in options else set()  # a plan names its kernels, which read no matrix of any strides
    return scene.settle(call, exact, product, [out], scene.reasons(options, product, out, factors) | unfit, **fates(options, a, b))


def _by_digits(scene: Scene, shape: Any, dtype: str) -> dict[str, Any]:
    """A plan on other units, if this type has one of this shape."""
    products = scene.one_of(DIGITS.get(dtype, ("",)))
    levels = scene.one_of(((), ("winograd",), ("strassen",), ("winograd", "winograd"))) if products != "tf32" else ()
    try:
        plan = bilinear.plan(shape[0], shape[1], shape[2], dtype, device="h200", levels=levels, products=products) if products else None
    except BilinearError:  # an extent of 0, or too many levels for these residues
        plan = None
    return {} if plan is None else {"plan": plan}


def fates(options: dict[str, Any], *operands: Any) -> dict[str, Any]:
    """Which operands are left undefined, or restored."""
    return {
        "written": operands if options.get("inputs") == "consume" else (),
        "restored": operands if options.get("inputs") == "restore" else (),
    }
