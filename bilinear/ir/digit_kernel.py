"""Kernels that multiply float32 matrices as pairs of float16 digits: largest magnitudes, expansion and cutting, products, recomposition.

Digits lie in memory, or the product kernel cuts numbers when it loads them.

A line is a row of A or a column of B. An operand lies `along` if its neighbours in memory are terms of one sum, that is, elements of one
line. Digits lie in panels of `PANEL` lines and slices of `DIGIT_SLICE` terms.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bilinear.ir.element import FLOAT32, Element, IntegerElement
from bilinear.ir.kernel import FACTORS, Argument, WithoutShared, indices
from bilinear.ir.linear import Evaluation, Read, Write
from bilinear.ir.matrix import Array
from bilinear.ir.reference import (
    KernelValues,
    blocks_of,
    cut,
    digit_exponents,
    digit_panels,
    digit_product,
    digits_in,
    evaluate,
    factors,
    joined,
    scaled_sum,
)
from bilinear.ir.tile import WARP_PAIRS, DigitTile, LoadingTile, ModularTile, WarpTile

TURNS = (Argument("scalar", "alpha_im"), Argument("scalar", "beta_im"))  # For complex alpha and beta.
OPERAND = (Argument("pointer", "X"), *indices("X_line", "X_term", "lines", "terms"))
RESULT = (Argument("pointer", "C"), *indices("C_rs", "C_cs", "m", "n"))
SCALES = (Argument("words", "LA"), Argument("words", "LB"), Argument("flag", "flag"))


@dataclass(frozen=True)
class ClearKernel(WithoutShared):
    """Sets `count` words to 0."""

    name: str = "digit_clear"
    element: Element = FLOAT32
    threads: tuple[int, int] = (256, 1)
    arguments: tuple[Argument, ...] = (Argument("words", "words"), *indices("count"))
    template: str = field(default="digit_clear.cu.j2", init=False)

    def reference(self, values: KernelValues) -> None:
        """Set the words to 0."""
        values.view("words", "u4", values("count"), (1,))[...] = 0


@dataclass(frozen=True)
class LargestKernel(WithoutShared):
    """Finds max|x| of every line; lines that are `block` apart share one maximum. A load takes `width` neighbours."""

    name: str
    along: bool
    width: int
    is_complex: bool = False
    element: Element = FLOAT32
    arguments: tuple[Argument, ...] = (
        *OPERAND,
        *indices("block", "depth", "parts"),
        Argument("words", "largest"),
        Argument("flag", "flag"),
    )
    threads: tuple[int, int] = (32, 8)
    template: str = field(default="digit_largest.cu.j2", init=False)
    ahead: int = field(default=4, init=False)  # Loads in flight at once.

    @property
    def lines(self) -> int:
        """Lines of a block of threads."""
        return self.threads[1] if self.along else self.threads[0] * self.width

    def reference(self, values: KernelValues) -> None:
        """The bits of the largest magnitudes, where they are larger than what is there."""
        (lines, block), x = values("lines", "block"), operand(values, self.is_complex)
        bits = (x.view(np.uint32) if x.dtype == np.float32 else np.maximum(bits_of(x.real), bits_of(x.imag))) & 0x7FFFFFFF
        found, largest = bits.max(1, initial=0), values.view("largest", "u4", (min(lines, block),), (1,))
        np.maximum.at(largest, np.arange(lines) % block, found)
        values.set("flag", bool((found >= 0x7F800000).any()))


@dataclass(frozen=True)
class LargestIntegersKernel(WithoutShared):
    """One launch that finds the largest x and -x - 1 of the integers x of A (m x k), and of B (k x n), which may be of another type.

    Each block of threads writes a result of its own. Their number must be a power of two, because they reduce by halves.
    """

    name: str
    element: IntegerElement
    right: IntegerElement
    threads: tuple[int, int] = (256, 1)
    arguments: tuple[Argument, ...] = (
        *(Argument("bytes", "A"), *indices("A_rs", "A_cs"), Argument("bytes", "B"), *indices("B_rs", "B_cs", "m", "k", "n")),
        Argument("bytes", "sizes"),
    )
    template: str = field(default="integer_largest.cu.j2", init=False)

    def reference(self, values: KernelValues) -> None:
        """The first block of threads finds the largest of each matrix, and the others find 0."""
        sizes, (m, k, n) = values.view("sizes", "u8", (values.blocks[0], 2), (2, 1)), values("m", "k", "n")
        sizes[...] = 0
        for side, (name, element, shape) in enumerate((("A", self.element, (m, k)), ("B", self.right, (k, n)))):
            x = values.view(name, element.code, shape, (f"{name}_rs", f"{name}_cs")).astype(np.int64)
            sizes[0, side] = (x ^ x >> 63).max(initial=0)


@dataclass(frozen=True)
class ExpandKernel(WithoutShared):
    """Forms of an operand's blocks, cut into digits. `sources` has the place of each block: (of the lines, of the terms).

    Elements are scaled so that forms, at most 2^headroom times as large as the largest element, fit a digit. If elements are complex,
    `parts` says which part each source is; both parts have the same scale.
    """

    name: str
    comment: str
    along: bool
    width: int
    lanes: int
    sources: tuple[tuple[int, int], ...]
    forms: int
    headroom: int
    evaluation: Evaluation
    parts: tuple[int, ...] = ()
    element: Element = FLOAT32
    arguments: tuple[Argument, ...] = (
        *OPERAND,
        *indices("block_lines", "block_terms", "panels", "slices"),
        Argument("words", "largest"),
        Argument("digits", "D"),
    )
    threads: tuple[int, int] = (32, 8)
    template: str = field(default="digit_expand.cu.j2", init=False)

    @property
    def is_complex(self) -> bool:
        """Whether elements have two parts."""
        return bool(self.parts)

    @property
    def kept(self) -> tuple[bool, ...]:
        """For each source: True if it was loaded together with the other part of its block, which is read before it."""
        return _later([x.value for x in self.evaluation.instructions if isinstance(x, Read)], len(self.sources))

    def reference(self, values: KernelValues) -> None:
        """Cut the forms."""
        (lines, terms), (panels, slices) = values("block_lines", "block_terms"), values("panels", "slices")
        exponents, padded = values.view("largest", "u4", (lines,), (1,)), (128 * panels, 64 * slices)
        scale = np.zeros((padded[0], 1), np.float32)
        scale[:lines, 0] = np.ldexp(np.float32(1), digit_exponents(exponents, self.headroom))
        blocks = blocks_of(operand(values, self.is_complex), self.sources, (lines, terms), padded)
        digits = values.view("D", "f2", (self.forms, 32 * 512 * panels * slices), (32 * 512 * panels * slices, 1))

        def read(source: int) -> Array:
            return scale * ((blocks[source].imag if self.parts[source] else blocks[source].real) if self.is_complex else blocks[source])

        def write(form: int, value: Array) -> None:
            digits[form] = digit_panels(cut(value), self.along).ravel()

        evaluate(self.evaluation, self.element, read, write)


def operand(values: KernelValues, is_complex: bool = False, code: str = "f") -> Array:
    """The operand of a kernel that cuts it, by lines and terms; NumPy's letters of complex types are capitals."""
    return values.view("X", code.upper() if is_complex else code, values("lines", "terms"), ("X_line", "X_term")).copy()


def bits_of(x: Array) -> Array:
    """The bits of float32 numbers."""
    return np.ascontiguousarray(x).view(np.uint32)


def unscaled(product: Array, left: Array, right: Array) -> Array:
    """A product divided by the scales of its rows and of its columns."""
    return np.ldexp(product, -left[:, None] - right[None])


def write_result(values: KernelValues, product: Array, one_triangle: bool = False) -> None:
    """C = alpha * product + beta * C without the scales, unless the flag is set; of `one_triangle`, the other is a copy."""
    if values.is_set():
        return
    m, n = values("m", "n")
    left, right = (digit_exponents(values.view(name, "u4", (count,), (1,)), 0) for name, count in (("LA", m), ("LB", n)))
    c, (alpha, beta) = values.view("C", "f4", (m, n), ("C_rs", "C_cs")), factors(values, "f4")
    scaled_sum(c, unscaled(product[:m, :n], left, right), alpha, beta)
    if one_triangle:
        c[...] = np.tril(c) + np.tril(c, -1).T


class TiledKernel:
    """The launch of a kernel whose blocks of threads compute one tile after another, by warpgroups."""

    tile: DigitTile | ModularTile
    features = "a"  # The suffix of the architecture: the kernel uses instructions that only one chip has.

    @property
    def shape(self) -> DigitTile | ModularTile | WarpTile:
        """The threads of a block, their shared memory, and the blocks of a cluster."""
        return self.tile

    @property
    def bounds(self) -> str:
        """The launch bounds for the compiler: threads of a block, and blocks of a multiprocessor."""
        return f"{self.shape.threads}, 1"

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block of threads."""
        return self.shape.shared_bytes

    @property
    def threads(self) -> tuple[int, int]:
        """Threads of a block along x and y."""
        return (self.shape.threads, 1)

    @property
    def cluster(self) -> int:
        """Blocks of threads that share the operands they read."""
        return self.shape.cluster


@dataclass(frozen=True)
class DigitProductKernel(TiledKernel):
    """Products of digits. If `direct`, the only one is C without its scales; otherwise products lie in P, scaled, in rows of `pitch`.

    For A*A^T (`one_triangle`, direct) only tiles at and below the diagonal are computed, and each result is written to both triangles.
    """

    name: str
    tile: DigitTile
    left_along: bool
    right_along: bool
    direct: bool
    one_triangle: bool = False
    element: Element = FLOAT32
    template: str = field(default="digit_product.cu.j2", init=False)
    sums: str = field(default="digit_sums.cu.j2", init=False)  # The template of the sums of a tile.

    @property
    def order(self) -> str:
        """The template of the order in which tiles are computed."""
        return "digit_triangle.cu.j2" if self.one_triangle else "digit_order.cu.j2"

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Its parameters."""
        digits = (Argument("digits", "DA"), Argument("digits", "DB"), *indices("panels_m", "panels_n", "slices"))
        if self.direct:
            return (*digits, *RESULT, *SCALES, *FACTORS)
        return (*digits, *indices("planes"), Argument("pointer", "P"), *indices("m", "pitch"))

    def reference(self, values: KernelValues) -> None:
        """Multiply the digits of every plane."""
        planes = 1 if self.direct else values("planes")[0]
        (slices,), panels = values("slices"), values("panels_m", "panels_n")
        left, right = (
            values.view(name, "f2", (planes, count, slices, 2, 2, 64, 64), _steps(count, slices))
            for name, count in zip(("DA", "DB"), panels, strict=True)
        )
        m, columns = values("m", "n" if self.direct else "pitch")
        for plane in range(planes):
            rows, lines = digits_in(left[plane], self.left_along), digits_in(right[plane], self.right_along)
            product = digit_product(rows[:, :m], lines[:, :columns])
            if self.direct:
                write_result(values, product, self.one_triangle)
                continue
            values.view("P", "f4", product.shape, (columns, 1), plane * m * columns)[...] = product


class ByWarps(TiledKernel):
    """The launch of a kernel whose products are computed by warps, for chips without warpgroups."""

    warps: WarpTile
    features = ""

    @property
    def shape(self) -> WarpTile:
        """The threads of a block, and their shared memory."""
        return self.warps


@dataclass(frozen=True)
class WarpDigitProductKernel(ByWarps, DigitProductKernel):
    """Products of digits by warps, in the same layouts."""

    warps: WarpTile = WARP_PAIRS
    template: str = field(default="digit_product_warps.cu.j2", init=False)


@dataclass(frozen=True)
class RecomposeKernel(WithoutShared):
    """C = alpha * (forms of products, without their scales) + beta * C. `targets` has the place of each form's block in C.

    If elements are complex, `parts` says which part each target is, and `held` whether a thread keeps it for the other part.
    """

    name: str
    comment: str
    width: int
    lanes: int
    targets: tuple[tuple[int, int], ...]
    left_headroom: int
    right_headroom: int
    evaluation: Evaluation
    parts: tuple[int, ...] = ()
    element: Element = FLOAT32
    threads: tuple[int, int] = (32, 8)
    template: str = field(default="digit_recompose.cu.j2", init=False)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Its parameters."""
        products = Argument("pointer", "P"), *indices("block_m", "block_n", "pitch")
        return (*products, *RESULT, *SCALES, *FACTORS, *(TURNS if self.is_complex else ()))

    @property
    def is_complex(self) -> bool:
        """Whether elements have two parts."""
        return bool(self.parts)

    @property
    def blocks(self) -> int:
        """Blocks of C."""
        return len(self.targets) // (2 if self.is_complex else 1)

    @property
    def held(self) -> tuple[bool, ...]:
        """For each target: True if it is formed before the other part of its block."""
        order = [x.output for x in self.evaluation.instructions if isinstance(x, Write)]
        return _later(order[::-1], len(self.targets))

    def reference(self, values: KernelValues) -> None:
        """Put the forms together."""
        if values.is_set():
            return
        (block_m, block_n, pitch), (m, n) = values("block_m", "block_n", "pitch"), values("m", "n")
        left = digit_exponents(values.view("LA", "u4", (block_m,), (1,)), self.left_headroom)
        right = digit_exponents(values.view("LB", "u4", (block_n,), (1,)), self.right_headroom)
        found: dict[int, Array] = {}

        def read(product: int) -> Array:
            return values.view("P", "f4", (block_m, block_n), (pitch, 1), product * block_m * pitch).copy()

        evaluate(self.evaluation, self.element, read, lambda target, x: found.update({target: unscaled(x, left, right)}))
        for target in range(self.blocks):
            (down, across), value = self.targets[target], found[target]
            if self.is_complex:
                value = joined(value, found[target + self.blocks])
            code = "c8" if self.is_complex else "f4"
            c = values.view("C", code, (m, n), ("C_rs", "C_cs"))[down * block_m :, across * block_n :][:block_m, :block_n]
            scaled_sum(c, value[: c.shape[0], : c.shape[1]], *factors(values, code))


def _steps(panels: int, slices: int) -> tuple[int, ...]:
    """The distances between planes, panels, slices, digits, tiles, lines and elements."""
    return panels * slices * 16384, slices * 16384, 16384, 8192, 4096, 64, 1


def _later(order: list[int], parts: int) -> tuple[bool, ...]:
    """For each part: True if the other part of its block comes before it; real parts are the first half of the numbers."""
    place = {part: number for number, part in enumerate(order)}
    return tuple(place[part] > place[(part + parts // 2) % parts] for part in range(parts))


@dataclass(frozen=True)
class ComplexProductKernel(WithoutShared):
    """C = alpha * A * B + beta * C of complex matrices by the definition, if the int at `flag` is set; else nothing."""

    name: str
    element: Element
    conjugated: str = ""
    arguments: tuple[Argument, ...] = (
        Argument("pointer", "A"),
        *indices("A_rs", "A_cs"),
        Argument("pointer", "B"),
        *indices("B_rs", "B_cs"),
        *RESULT,
        *indices("k"),
        Argument("flag", "flag"),
        *FACTORS,
        *TURNS,
    )
    threads: tuple[int, int] = (256, 1)
    tile: int = 64  # Rows and columns of C that a block of threads computes at a time.
    template: str = field(default="complex_product.cu.j2", init=False)

    def reference(self, values: KernelValues) -> None:
        """Multiply by four real products."""
        if not values.is_set():
            return
        (m, n, k), code = values("m", "n", "k"), {"f": "c8", "d": "c16"}[self.element.code]
        a, b = values.view("A", code, (m, k), ("A_rs", "A_cs")), values.view("B", code, (k, n), ("B_rs", "B_cs"))
        a, b = (x.conj() if name in self.conjugated else x for name, x in (("A", a), ("B", b)))
        product = joined(a.real @ b.real - a.imag @ b.imag, a.real @ b.imag + a.imag @ b.real)
        scaled_sum(values.view("C", code, (m, n), ("C_rs", "C_cs")), product, *factors(values, code))


DigitKernel = ComplexProductKernel | ClearKernel | LargestKernel | ExpandKernel | DigitProductKernel | RecomposeKernel


@dataclass(frozen=True)
class LoadingKernel(TiledKernel):
    """C = alpha * A * B + beta * C by digits. A copy takes 4 neighbours, or 1 where lines begin at no multiple of 16 bytes."""

    name: str
    tile: LoadingTile
    left_along: bool
    right_along: bool
    left_width: int
    right_width: int
    element: Element = FLOAT32
    direct: bool = field(default=True, init=False)  # The product is C: there are no levels above it.
    one_triangle: bool = field(default=False, init=False)
    template: str = field(default="digit_load_product.cu.j2", init=False)
    sums: str = field(default="digit_load_sums.cu.j2", init=False)  # The template of the sums of a tile.
    arguments: tuple[Argument, ...] = (
        Argument("pointer", "A"),
        *indices("A_line", "A_term"),
        Argument("pointer", "B"),
        *indices("B_line", "B_term", "terms", "panels_m", "panels_n", "slices"),
        *RESULT,
        *SCALES,
        *FACTORS,
    )

    def reference(self, values: KernelValues) -> None:
        """Cut both operands and multiply."""
        m, n, terms = values("m", "n", "terms")
        cuts = []
        for name, scales, lines in (("A", "LA", m), ("B", "LB", n)):
            exponents = digit_exponents(values.view(scales, "u4", (lines,), (1,)), 0)
            x = values.view(name, "f4", (lines, terms), (f"{name}_line", f"{name}_term"))
            cuts.append(cut(np.ldexp(x, exponents[:, None])).astype(float))
        write_result(values, digit_product(*cuts))
