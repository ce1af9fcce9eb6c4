"""Algorithms for complex numbers and block schemes as one algebra: `complex3 (x) winograd`."""

from __future__ import annotations

from dataclasses import replace

from bilinear.algebra.complex_products import three_products
from bilinear.algebra.credits import AnyScheme, joined_citations, joined_name
from bilinear.algebra.size_limits import require_size
from bilinear.algebra.tensor import tensor
from bilinear.errors import fail
from bilinear.ir.bilinear_map import BilinearAlgorithm
from bilinear.ir.complex_scheme import ComplexAlgorithm
from bilinear.ir.number import square
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Scheme


def tensor_complex(outer: AnyScheme, inner: AnyScheme) -> ComplexAlgorithm:
    """An algorithm for complex numbers (x) a block scheme, in either order: the order of their products makes no difference.

    Raises `BilinearError`: E236 if there is no block scheme, or if one of both is not over real numbers; E641 if the scheme is too large.
    """
    first, *others = (x for x in (outer, inner) if isinstance(x, ComplexAlgorithm))
    block = inner if first is outer else outer
    if others:
        raise fail("E236", f"{outer.name} and {inner.name} both multiply complex numbers", "compose one of them with block schemes")
    if not isinstance(block, Scheme):
        hint = "plans multiply complex matrices by digits: bilinear plan --dtype complex64 --products pairs"
        raise fail("E236", f"{first.name} multiplies complex numbers, and {block.name} digits", hint)
    for name, ring in ((first.name, first.core.ring), (block.name, block.ring)):
        if not is_real(ring):
            raise fail("E236", f"{name} is over {ring}, and real and imaginary parts are real numbers", "take one over Z or Q")
    if first.inside is not None:
        block = tensor(first.inside, block) if first is outer else tensor(block, first.inside)
    made = replace(first, name=joined_name(outer, "x", inner), citation=joined_citations(outer, inner), inside=block)
    require_size(*made.sizes, made.rank, 0)
    return made


def complex_algorithm(block: Scheme, core: BilinearAlgorithm | None) -> ComplexAlgorithm:
    """An algorithm for complex numbers, or complex3, (x) a block scheme. Raises `BilinearError` as `tensor_complex` does."""
    core = three_products() if core is None else core
    return tensor_complex(ComplexAlgorithm(core.name, core), block)


def is_real(ring: Ring) -> bool:
    """True if the coefficients of a scheme over this ring are real numbers, and its products exact."""
    return not (ring.modulus or ring.is_approximate or (square(ring.generator) or 0) < 0)
