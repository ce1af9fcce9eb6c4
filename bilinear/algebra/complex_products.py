"""Algorithms that multiply complex numbers by real products, alone and as one algebra with block schemes: `complex3 (x) winograd`."""

from __future__ import annotations

from dataclasses import replace

from bilinear.algebra.change_basis import on_blocks
from bilinear.algebra.combined import AnyScheme, joined_citations, joined_name, require_size
from bilinear.algebra.composition import tensor
from bilinear.algebra.maps import kronecker
from bilinear.errors import fail
from bilinear.ir.bilinear_map import BilinearAlgorithm, complex_product
from bilinear.ir.complex_scheme import ComplexAlgorithm, ComplexScheme
from bilinear.ir.linear import Form, LinearMap, form
from bilinear.ir.number import square
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Scheme

NAME = "complex3"


def three_products(conjugated: str = "") -> BilinearAlgorithm:
    """Three real products and five additions: re = M1 - M2, im = M3 - M1 - M2, with M3 the product of the sums of both parts.

    Source: N. J. Higham, *Stability of a method for multiplying complex matrices with three real matrix multiplications*, SIAM J. Matrix
    Anal. Appl. 13, 1992, equation (1.2).
    """
    factors = LinearMap(2, (((0, 1),), ((1, 1),), ((0, 1), (1, 1))))
    w = LinearMap(3, (((0, 1), (1, -1)), ((0, -1), (1, -1), (2, 1))))
    return of_conjugates(BilinearAlgorithm(NAME, complex_product(), factors, factors, w), conjugated)


def two_products(p: int, root: int, conjugated: str = "") -> BilinearAlgorithm:
    """Two products modulo an odd p with a root of -1: of x + root y and of x - root y, which are conjugates."""
    factors = LinearMap(2, (((0, 1), (1, root)), ((0, 1), (1, -root))))
    half, quotient = pow(2, -1, p), pow(2 * root, -1, p)
    w = LinearMap(2, (((0, half), (1, half)), ((0, quotient), (1, -quotient))))
    return of_conjugates(BilinearAlgorithm("complex2", complex_product(), factors, factors, w, Ring(f"Z/{p}")), conjugated)


def complex_scheme(block: Scheme, conjugated: str = "", core: BilinearAlgorithm | None = None) -> ComplexScheme:
    """The real products of `core`, or three, (x) a block scheme.

    Sums of parts and sums of blocks are formed in the order with fewer additions.
    """
    core, block = three_products(conjugated) if core is None else of_conjugates(core, conjugated), on_blocks(block)
    u, v, w = (kronecker(x, y) for x, y in ((core.u, block.u), (core.v, block.v), (core.w, block.w)))
    return ComplexScheme(name=f"{core.name} (x) {block.name}", block=block, u=u, v=v, w=w, conjugated=conjugated)


def four_products(conjugated: str = "") -> BilinearAlgorithm:
    """The definition: four real products and two additions."""
    u = LinearMap(2, (((0, 1),), ((0, 1),), ((1, 1),), ((1, 1),)))
    v = LinearMap(2, (((0, 1),), ((1, 1),), ((1, 1),), ((0, 1),)))
    w = LinearMap(4, (((0, 1), (2, -1)), ((1, 1), (3, 1))))
    return of_conjugates(BilinearAlgorithm("complex4", complex_product(), u, v, w), conjugated)


def of_conjugates(algorithm: BilinearAlgorithm, conjugated: str) -> BilinearAlgorithm:
    """The algorithm on the conjugates of the named operands: imaginary parts change their sign in every factor."""
    u, v = (_turned(linear) if letter in conjugated else linear for letter, linear in zip("AB", (algorithm.u, algorithm.v), strict=True))
    return replace(algorithm, target=complex_product(conjugated), u=u, v=v)


def _turned(linear: LinearMap) -> LinearMap:
    def turned(row: Form) -> Form:
        return form((index, -c if index == 1 else c) for index, c in row)

    return replace(linear, outputs=tuple(map(turned, linear.outputs)))


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
