"""One small call for every kernel template: what `sanitize.py --quick` runs under a sanitizer.

Operands and results are copied between host and GPU, so CuPy compiles no kernels of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from common import running

import bilinear
from bilinear.backends.machine import ARCHITECTURE
from bilinear.backends.tensor_maps import gram_halves
from bilinear.ir.element import HALVES, Element
from bilinear.ir.matrix import layout_of
from bilinear.ir.thin_tile import THIN_TILES
from bilinear.methods.digits.choice import Digits
from bilinear.methods.digits.launches import triangle_multiply_of
from bilinear.methods.thin.choice import Thin, is_turned, thin_of

SHAPE = (70, 66, 74)  # Even, for plain blocks: one tile of most kernels, and a part of a second one.
UNEVEN = (131, 67, 141)  # For strips, and for copies that are not whole.
WARPS = "compute_80"  # The architecture whose products of digits are computed by warps.


@dataclass(frozen=True)
class Case:
    """A call that says whether its result is exact, and the architecture that its kernels are built for (none: the GPU's own)."""

    name: str
    is_exact: Callable[[], bool]
    architecture: str = ""


def operands(shape: Sequence[int], dtype: str) -> list[Any]:
    """A, B and C of small integers on the host."""
    m, k, n = shape
    draw = np.random.default_rng(1)
    whole = [draw.integers(-4, 5, sides) for sides in ((m, k), (k, n), (m, n))]
    if np.dtype(dtype).kind == "c":
        whole = [x + 1j * draw.integers(-4, 5, x.shape) for x in whole]
    return [x.astype(dtype) for x in whole]


def multiplied(shape: Sequence[int], dtype: str, inputs: Any = "preserve", **options: Any) -> bool:
    """Whether C = 2*A*B - C is exact, and A and B are what they were."""
    import cupy

    hosts = operands(shape, dtype)
    a, b, c = (cupy.asarray(x.copy()) for x in hosts)
    bilinear.matmul(a, b, c, alpha=2, beta=-1, inputs=inputs, **options)
    a, b, c = map(cupy.asnumpy, (a, b, c))
    wanted = 2 * (hosts[0] @ hosts[1]) - hosts[2]
    return bool(np.array_equal(c, wanted) and np.array_equal(a, hosts[0]) and np.array_equal(b, hosts[1]))


def planned(shape: Sequence[int], dtype: str, inputs: str = "preserve", tile: str = "", **options: Any) -> bool:
    """The same by a plan for an H200, in this tile if one is named."""
    m, k, n = shape
    plan = bilinear.plan(m, k, n, dtype, device="h200", inputs=inputs, accumulate=True, **options)
    if tile:
        plan = replace(plan, candidates=(running(plan.chosen, tile=tile), *plan.candidates[1:]))
    return multiplied(shape, dtype, inputs, plan=plan)


def thin(split: bool) -> bool:
    """A thin product, its sums split among blocks of threads or not."""
    shape = (131, 1027, 13)
    plan = bilinear.plan(*shape, "float64", device="h200", explain=True)
    own = next(c for c in plan.candidates if c.strategy == "thin" and (thin_of(c).parts > 1) == split)
    return multiplied(shape, "float64", plan=replace(plan, candidates=(own,)))


def thin_in(shape: Sequence[int], tile: str, parts: int = 1, dtype: str = "float32") -> bool:
    """A thin product in this tile, by bulk copies or digits, with its sums in so many parts: small, where `auto` chooses another."""
    m, k, n = shape
    plan = bilinear.plan(m, k, n, dtype, device="h200", explain=True)
    own = next(c for c in plan.candidates if c.strategy == "thin")
    workspace = np.dtype(dtype).itemsize * parts * m * n if parts > 1 else 0
    chosen = replace(own, choice=Thin(tile, parts, is_turned(plan.problem, THIN_TILES[dtype][tile])), workspace=workspace)
    return multiplied(shape, dtype, plan=replace(plan, candidates=(chosen,)))


def restored() -> bool:
    """Inputs that are looked at for Inf, NaN and, because of the tolerance, for their largest entries."""
    return multiplied(SHAPE, "float32", "restore", algorithm="msmes", levels=1, tolerance=1e3)


def halves() -> bool:
    """Sums of float16 blocks around the library's products."""
    import cupy

    a, b, _ = operands(SHAPE, "float16")
    c = bilinear.matmul(cupy.asarray(a), cupy.asarray(b), algorithm="winograd", levels=1)
    return bool(np.array_equal(cupy.asnumpy(c), a.astype("float32") @ b.astype("float32")))


def integers() -> bool:
    """int64 by residues, as many as the largest entries need."""
    return multiplied(SHAPE, "int64", algorithm="winograd", levels=1)


def modulo() -> bool:
    """A schedule modulo p in place: sums of blocks modulo p, and products by residues."""
    import cupy

    p = 65521
    hosts = [x % p for x in operands(SHAPE, "int64")]
    a, b, c = (cupy.asarray(x.copy()) for x in hosts)
    bilinear.matmul(a, b, c, modulus=p, alpha=2, beta=-1, algorithm="msmes", levels=1, inputs="restore")
    a, b, c = map(cupy.asnumpy, (a, b, c))
    wanted = (2 * (hosts[0] @ hosts[1]) - hosts[2]) % p
    return bool(np.array_equal(c, wanted) and np.array_equal(a, hosts[0]) and np.array_equal(b, hosts[1]))


def prepared(products: str) -> bool:
    """An operand that is kept, and looked at for changes."""
    import cupy

    a, b, _ = operands(SHAPE, "float32")
    given: dict[str, Any] = {"algorithm": "winograd", "levels": 1}
    if products != "sums":
        given = {"plan": bilinear.plan(*SHAPE, "float32", device="h200", levels=(), products=products)}
    kept = bilinear.prepare(cupy.asarray(b), rows=SHAPE[0], **given)
    return bool(np.array_equal(cupy.asnumpy(bilinear.matmul(cupy.asarray(a), kept)), a @ b))


def checked(dtype: str) -> bool:
    """A product that is right, and one with a wrong entry, told apart by projections."""
    import cupy

    a, b, _ = operands(SHAPE, dtype)
    right = a @ b
    wrong = right.copy()
    wrong[3, 5] += 1
    bounds = [bilinear.check(*map(cupy.asarray, (a, b, x))).bound for x in (right, wrong)]
    return bounds[0] < 1e-3 and bounds[1] >= 1


def same_bits(dtype: str) -> bool:
    """Residues, or bytes, that are put together with one rounding, and a row whose Inf a kernel of its own multiplies."""
    import cupy

    a, b, _ = operands(UNEVEN, dtype)
    exact = []
    for first in (1.0, np.inf):
        a[1, 0] = first
        c = bilinear.matmul(cupy.asarray(a), cupy.asarray(b), reproducible="bitwise")
        with np.errstate(invalid="ignore"):
            exact.append(np.array_equal(cupy.asnumpy(c), a @ b, equal_nan=True))
    return all(exact)


def triangle() -> bool:
    """A*A^T in one launch, mirrored, with an Inf and without."""
    import cupy

    host = operands((261, 66, 1), "float32")[0]
    exact = []
    for last in (1.0, np.inf):
        host[200, 33] = last
        a, c = cupy.asarray(host), cupy.asarray(np.full((261, 261), np.nan, "float32"))
        own = triangle_multiply_of(layout_of(a), layout_of(c), Digits((), "pairs"))
        assert own is not None
        own(a.data.ptr, a.data.ptr, c.data.ptr, 1, 0)
        with np.errstate(invalid="ignore"):
            exact.append(np.array_equal(cupy.asnumpy(c), host @ host.T, equal_nan=True))
    return all(exact)


def halves_triangle() -> bool:
    """A*A^T of 16 bits in tiles that are not whole, added to C, of which the lower triangle alone holds numbers."""
    import cupy

    n, k, exact = 392, 136, []
    x, c = np.random.default_rng(3).integers(-1, 2, (n, k)), np.tril(np.random.default_rng(4).integers(-3, 4, (n, n)))
    wanted = 2 * x @ x.T - 2 * (c + np.tril(c, -1).T)
    for element in HALVES.values():
        a, out = (cupy.asarray(bits_of(y, element)) for y in (x, np.where(np.tri(n), c, np.nan)))
        of_a, of_out = ((y.data.ptr, y.strides[0]) for y in (a, out))
        exact.append(
            gram_halves(element, of_a, of_out, n, k, (2, -2), 0, 0) and np.array_equal(cupy.asnumpy(out), bits_of(wanted, element))
        )
    return all(exact)


def bits_of(x: np.ndarray, element: Element) -> np.ndarray:
    """The bits of numbers that a 16-bit type holds exactly."""
    return x.astype("float16").view("u2") if element.code else (x.astype("float32").view("u4") >> 16).astype("u2")


def bits() -> bool:
    """Packed matrices over Z/2: rows that are whole lanes, and others."""
    import cupy

    exact = []
    for m, k, n in ((70, 128, 256), UNEVEN):
        a, b = (np.random.default_rng(2).integers(0, 2, sides, dtype="uint8") for sides in ((m, k), (k, n)))
        c = bilinear.matmul_bits(*(cupy.asarray(np.packbits(x, axis=1)) for x in (a, b)))
        exact.append(np.array_equal(np.unpackbits(cupy.asnumpy(c), axis=1, count=n), (a.astype(int) @ b) % 2))
    return all(exact)


def cases() -> Iterator[Case]:
    """Every kernel template at least once, by few kernels; those of types that are stored only run in no call."""
    for dtype in ("float64", "float32"):
        yield Case(f"winograd {dtype}", partial(planned, UNEVEN, dtype, levels=("winograd",)))
        yield Case(f"check {dtype}", partial(checked, dtype))
    yield Case("float32 on the unit for float64", partial(planned, SHAPE, "float32", levels=("classical",), tile="doubles-usual"))
    yield Case("msmes, restored", restored)
    yield Case("msmes, atomic", partial(multiplied, UNEVEN, "float64", "restore", algorithm="msmes", levels=1, contention="atomics"))
    yield Case("thin", partial(thin, False))
    yield Case("thin, split sums", partial(thin, True))
    yield Case("thin on pipes", partial(thin_in, (300, 130, 8), "128x8x64-32x1x8"))
    yield Case("thin on the units for doubles", partial(thin_in, (131, 301, 45), "mma64x32x32-2x2x1", 2))
    yield Case("thin of doubles, fetched", partial(thin_in, (391, 517, 45), "ring128x48x16-4-4x4", 2, "float64"))
    yield Case("thin of doubles, strips", partial(thin_in, (391, 31, 523), "strips128x64x64-8-2x4", 1, "float64"))
    yield Case("thin by digits, kept B", partial(thin_in, (131, 63, 61), "triples_kept64x64x64-3-6x4"))
    yield Case("thin by digits, strips", partial(thin_in, (391, 47, 523), "triples_kept64x128x64-2-6x4"))
    yield Case("thin by digits, split sums", partial(thin_in, (131, 517, 45), "triples64x48x64-2-3x4", 2))
    yield Case("prepared sums", partial(prepared, "sums"))
    for products in ("pairs", "residues7"):
        yield Case(f"{products} below winograd", partial(planned, UNEVEN, "float32", levels=("winograd",), products=products))
        yield Case(f"{products} by warps", partial(planned, SHAPE, "float32", levels=(), products=products), WARPS)
        yield Case(f"complex64 by {products}", partial(planned, SHAPE, "complex64", levels=(), products=products))
    for dtype in ("float16", "float32", "float64"):
        yield Case(f"the same bits {dtype}", partial(same_bits, dtype))
    yield Case("residues13", partial(planned, UNEVEN, "float64", levels=(), products="residues13"))
    yield Case("prepared pairs", partial(prepared, "pairs"))
    yield Case("pairs on load", partial(planned, UNEVEN, "float32", levels=(), products="pairs_on_load"))
    yield Case("A*A^T by pairs", triangle)
    yield Case("A*A^T of 16 bits", halves_triangle)
    yield Case("int64", integers)
    yield Case("modulo p, in place", modulo)
    yield Case("bits", bits)
    yield Case("bfloat16 for float32", partial(planned, SHAPE, "float32", products="bfloat16"))
    yield Case("float16", halves)  # the last ones: a sanitizer takes long to load the library's kernels


@contextmanager
def built_for(architecture: str) -> Iterator[None]:
    """Build kernels for this architecture inside the block."""
    before = os.environ.pop(ARCHITECTURE, None)
    if architecture:
        os.environ[ARCHITECTURE] = architecture
    try:
        yield
    finally:
        os.environ.pop(ARCHITECTURE, None)
        if before is not None:
            os.environ[ARCHITECTURE] = before
