"""Algorithms that multiply complex numbers by real products."""

from __future__ import annotations

from dataclasses import replace

from bilinear.algebra.maps import after, fold_bases, kronecker, on_blocks
from bilinear.ir.bilinear_map import WHOLE, BilinearAlgorithm, Grid, complex_product
from bilinear.ir.complex_scheme import ComplexScheme
from bilinear.ir.linear import Form, LinearMap, form, identity
from bilinear.ir.number import Coefficient, Symbolic, generator, square
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
    """The real products of `core`, or three, (x) a block scheme; sums of parts and of blocks come in the order with fewer additions."""
    core, block = three_products(conjugated) if core is None else of_conjugates(core, conjugated), on_blocks(block)
    u, v, w = (kronecker(x, y) for x, y in ((core.u, block.u), (core.v, block.v), (core.w, block.w)))
    return ComplexScheme(f"{core.name} (x) {block.name}", block.m, block.k, block.n, u, v, w, w.inputs, conjugated)


def four_products(conjugated: str = "") -> BilinearAlgorithm:
    """The definition: four real products and two additions."""
    u = LinearMap(2, (((0, 1),), ((0, 1),), ((1, 1),), ((1, 1),)))
    v = LinearMap(2, (((0, 1),), ((1, 1),), ((1, 1),), ((0, 1),)))
    w = LinearMap(4, (((0, 1), (2, -1)), ((1, 1), (3, 1))))
    return of_conjugates(BilinearAlgorithm("complex4", complex_product(), u, v, w), conjugated)


def of_conjugates(algorithm: BilinearAlgorithm, conjugated: str, grid: Grid = WHOLE) -> BilinearAlgorithm:
    """The algorithm on the conjugates of the named operands: imaginary parts change their sign in every factor."""
    u, v = (_turned(linear) if letter in conjugated else linear for letter, linear in zip("AB", (algorithm.u, algorithm.v), strict=True))
    return replace(algorithm, target=complex_product(conjugated, grid), u=u, v=v)


def _turned(linear: LinearMap) -> LinearMap:
    imaginary = range(linear.inputs // 2, linear.inputs)
    return linear.mapped(lambda row: form((index, -c if index in imaginary else c) for index, c in row))


def on_complex_blocks(core: BilinearAlgorithm, block: Scheme) -> BilinearAlgorithm:
    """The real products by which `core` computes the products of a scheme of blocks, whose coefficients may be complex."""
    block = fold_bases(block)
    each, d = identity(block.rank), -(square(block.ring.generator) or -1)
    u, v, w = (_on_parts(linear, d) for linear in (block.u, block.v, block.w))
    u, v, w = after(u, kronecker(core.u, each)), after(v, kronecker(core.v, each)), after(kronecker(core.w, each), w)
    ring = core.ring if d == 1 else Ring(f"Q[sqrt({d})]")
    return BilinearAlgorithm(f"{core.name} (x) {block.name}", complex_product("", (block.m, block.k, block.n)), u, v, w, ring)


def _on_parts(linear: LinearMap, d: int) -> LinearMap:
    """A map over Q[sqrt(-d)] as a real one of the real parts of all values, then of the imaginary parts; so are its outputs."""
    n, root = linear.inputs, 1 if d == 1 else generator(f"sqrt({d})")

    def parts(row: Form) -> tuple[Form, Form]:
        real, imaginary = list[tuple[int, Coefficient]](), list[tuple[int, Coefficient]]()
        for index, c in row:
            terms = c.terms if isinstance(c, Symbolic) else (((), c),)
            x, y = (sum(f for power, f in terms if bool(power) is part) for part in (False, True))
            re, im = (index, index + n) if index < n else (2 * index, 2 * index + 1)
            real += [(re, x), (im, -y * root)]
            imaginary += [(re, y * root), (im, x)]
        return form(real), form(imaginary)

    steps = tuple(part for row in linear.steps for part in parts(row))
    real, imaginary = zip(*map(parts, linear.outputs), strict=True)
    return LinearMap(2 * n, real + imaginary, steps)
