"""`reproducible="bitwise"`: numbers of 30 decades, subnormal ones, ties and specials, beside Python's integers, bit by bit."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from backends.test_same_bits import KINDS, by_integers, numbers
from soak.layouts import Array
from soak.scene import Scene

import bilinear
from bilinear.methods.digits.choice import same_bits_products

MOST_ROWS, MOST_TERMS = 6, 50  # Python's integers take their time.


def act(scene: Scene) -> str:
    """Draw and judge it."""
    dtype = scene.dtype("fc", halves=True)
    (m, n), (k,) = scene.extents(2, MOST_ROWS), scene.extents(1, MOST_TERMS)
    accuracy = scene.one_of((None, None, "classical", "twice")) if k > 8 else None  # one product is rounded once, and no residues keep that
    batch = (2,) if scene.chance(0.15) else ()
    a, b = (_drawn(scene, (*batch, *shape), dtype) for shape in ((m, k), (k, n)))
    left, right = scene.put(a), scene.put(b)
    out = scene.out((*batch, m, n), dtype, left, right)
    factors = {} if dtype.kind == "c" else scene.factors(dtype, out)
    scene.say(f"same bits of {dtype}, {accuracy=}, {factors}")
    old = None if out is None else out.values
    count = 2 if batch else 1
    exact = np.array([_exact(x, y, accuracy) for x, y in zip(a.reshape(count, m, k), b.reshape(count, k, n), strict=True)])
    exact = _scaled(exact.reshape(*batch, m, n), old, dtype, factors)
    scene.differs = lambda found, wanted: _bits(found) != _bits(wanted)
    own: dict[str, Any] = {} if accuracy is None else {"accuracy": accuracy}
    call = partial(bilinear.matmul, left.array, right.array, None if out is None else out.array, reproducible="bitwise", **own, **factors)
    lacking = {"E821"} if scene.home.captures and (0 in (m, k, n) or factors.get("alpha", 1) == 0) else set()
    return scene.settle(call, exact, dtype, [out], scene.reasons({}, dtype, out) | lacking)


def _drawn(scene: Scene, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Numbers of one kind, both parts of complex ones."""
    real, kind = np.empty(0, dtype).real.dtype.name, scene.one_of(KINDS)
    parts = [numbers(scene.draw, kind, (int(np.prod(shape[:-1])), shape[-1]), real).reshape(shape).astype(real) for _ in range(2)]
    found = np.empty(shape, dtype)
    found.real = parts[0]
    if dtype.kind == "c":
        found.imag = parts[1]
    return found


def _exact(a: Array, b: Array, accuracy: str | None) -> Array:
    """The product of two matrices before it is scaled; that of float16 in float32."""
    real, is_complex = np.result_type(a.real.dtype, np.float32).name, a.dtype.kind == "c"
    found = np.zeros((len(a), b.shape[1]), np.result_type(a.dtype, np.float32))
    if not a.shape[1]:
        return found
    _, limit = same_bits_products(a.dtype.name, a.shape[1], accuracy)
    rows, columns = (np.concatenate([a.real, a.imag], 1), np.concatenate([b.real, -b.imag])) if is_complex else (a, b)
    found.real = by_integers(rows.astype(float), columns.astype(float), limit, real)
    if is_complex:
        found.imag = by_integers(rows.astype(float), np.concatenate([b.imag, b.real]).astype(float), limit, real)
    return found


def _scaled(value: Array, old: Array | None, dtype: np.dtype[Any], factors: dict[str, Any]) -> Array:
    """alpha * value + beta * old, each rounded, in the type; every NaN is NumPy's."""
    number, alpha, beta = value.dtype.type, factors.get("alpha", 1), factors.get("beta", 0)
    found = np.zeros_like(value) if alpha == 0 else value if alpha == 1 else number(alpha) * value
    if beta and old is not None:
        found = found + number(beta) * old.astype(value.dtype)
    found = found.astype(dtype)
    for part in (found.real, found.imag) if dtype.kind == "c" else (found,):
        part[np.isnan(part)] = np.nan
    return found


def _bits(x: Array) -> Array:
    """The bytes of each element."""
    return np.ascontiguousarray(x).view(f"V{x.dtype.itemsize}").reshape(x.shape)
