"""Kernels that multiply matrices as residues in int8: scales, expansion and cutting, products modulo each p, recomposition.

Numbers of 16 bits have two digits and their sum in place of residues.

A line is a row of A or a column of B. An operand lies `along` if its neighbours in memory are terms of one sum. Residues lie in panels of
`PANEL` lines and slices of `RESIDUE_SLICE` terms, one array for each p. Whole numbers are held in limbs of 24 bits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, prod
from typing import ClassVar

import numpy as np

from bilinear.ir.digit_kernel import OPERAND, RESULT, SCALES, TURNS, ByWarps, TiledKernel, operand
from bilinear.ir.digits import Representation
from bilinear.ir.element import Element, IntegerElement
from bilinear.ir.kernel import FACTORS, Argument, WithoutShared, indices
from bilinear.ir.linear import Evaluation, Read
from bilinear.ir.matrix import Array
from bilinear.ir.reference import (
    SPECIAL,
    KernelValues,
    blocks_of,
    evaluate,
    exponents_of,
    factors,
    joined,
    least_residues,
    loaded,
    put_together,
    residue_panels,
    residues_in,
    rounded,
    scaled_sum,
    special_product,
    stored_type,
    with_factors,
    with_one_nan,
)
from bilinear.ir.tile import PANEL, RESIDUE_SLICE, WARP_RESIDUES, ModularTile, WarpTile

FEW_TARGETS = 4  # With more blocks of C the loop over the moduli is not unrolled: it would be too long.
HALF = 31  # The lower bits of a number modulo more than 2^31; it has at most as many higher ones.


@dataclass(frozen=True)
class IntegerRecomposeKernel(WithoutShared):
    """C = alpha * (forms of products, put together) + beta * C in an integer type, which wraps around, or modulo `modulus`.

    `targets` has the place of each form's block in C. To find the multiple of M to subtract, the kernel adds up form/p over all p and
    rounds. This is exact: |C| is at most (1 - 2^-30) M/2, and a float64 sum of at most `MOST_MODULI` terms is off by less than 2^-31.
    """

    name: str
    comment: str
    element: IntegerElement
    width: int
    lanes: int
    moduli: tuple[int, ...]
    modulus: int
    targets: tuple[tuple[int, int], ...]
    evaluation: Evaluation
    arguments: tuple[Argument, ...] = (Argument("bytes", "P"), *indices("block_m", "block_n", "pitch"), *RESULT, *FACTORS)
    threads: tuple[int, int] = (32, 8)
    template: str = field(default="integer_recompose.cu.j2", init=False)

    @property
    def unrolled(self) -> int:
        """Moduli that are unrolled, so that a thread reads the next products early."""
        return len(self.moduli) if len(self.targets) <= FEW_TARGETS else 1

    @property
    def ring(self) -> int:
        """The modulus of the sums: `modulus`, or 2^64."""
        return self.modulus or 2**64

    @property
    def is_wide(self) -> bool:
        """Whether the modulus is above 2^31, so that products of residues, and sums of weights, need more than 64 bits."""
        return self.modulus > 1 << HALF

    @property
    def product(self) -> tuple[int, ...]:
        """M, the product of the moduli, modulo the ring; of a wide one its higher and its lower bits."""
        return self._parts(prod(self.moduli))

    @property
    def weights(self) -> tuple[tuple[int, ...], ...]:
        """M/p modulo the ring, for each p, in the same parts."""
        return tuple(self._parts(prod(self.moduli) // p) for p in self.moduli)

    def _parts(self, x: int) -> tuple[int, ...]:
        own = x % self.ring
        return divmod(own, 1 << HALF) if self.is_wide else (own,)

    def reference(self, values: KernelValues) -> None:
        """Put the forms together."""
        alpha, beta = values("alpha", "beta")
        product = prod(self.moduli)
        weights = [product // p for p in self.moduli]
        for target, shares in product_forms(values, self.evaluation, len(self.moduli), 1).items():
            c = result_block(values, self.element.code, self.targets[target])
            value = alpha * put_together(shares[0, :, : c.shape[0], : c.shape[1]], weights, product)
            value = (value + beta * c.astype(object) if beta else value) % self.ring
            c[...] = value.astype(np.uint64).astype(self.element.code)


LIMBS = {2: 32, 3: 24}  # Bits of a limb for whole numbers of so many limbs.
MOST_BITS = 3 * LIMBS[3] - 1  # Bits of the largest whole number, without its sign.
FLOAT_INTEGERS = 0x4B000000  # The bits of 2^23 in float32: adding an integer below it gives the sum's bits.
STAGED_BYTES = 36_864  # Bytes of shared memory for blocks that are read at once and transposed.
MOST_UNROLLED = 16  # With more forms than this, the loop over the moduli is not unrolled when they are cut.
BYTES = 3  # Bytes of a number in place of residues.
SUM_BITS = 52  # Bits of sums of residues times a weight's pieces: a float64's, less one for a carry.


class _RoundingText:
    """What the text of a kernel calls: operations that no compiler joins, and the NaN that NumPy calls so."""

    element: Element
    special: ClassVar[int] = SPECIAL

    @property
    def multiply(self) -> str:
        return f"__{self.element.arithmetic.code}mul_rn"

    @property
    def add(self) -> str:
        return f"__{self.element.arithmetic.code}add_rn"

    @property
    def nan(self) -> str:
        return "__longlong_as_double(0x7ff8000000000000ll)" if self.element.bytes == 8 else "__int_as_float(0x7fc00000)"


@dataclass(frozen=True)
class ScaleKernel(_RoundingText, WithoutShared):
    """Finds the exponent of the scale of every line from its 2-norm, of both parts, which may be at most `room`, the bits of a float64.

    If `by_largest`, from its largest magnitude; then a line with an Inf or a NaN has the exponent `SPECIAL`.
    """

    name: str
    element: Element
    along: bool
    width: int
    is_complex: bool = False
    by_largest: bool = False
    arguments: tuple[Argument, ...] = (*OPERAND, *indices("room"), Argument("words", "exponents"), Argument("flag", "flag"))
    template: str = field(default="residue_scale.cu.j2", init=False)
    ahead: int = field(default=4, init=False)  # Loads in flight at once.

    @property
    def threads(self) -> tuple[int, int]:
        """Threads of a block along x and y: each line has a warp, or 32 lines share the threads of a block."""
        return (32, 8 if self.along else 16)

    @property
    def lines(self) -> int:
        """Lines of a block of threads."""
        return self.threads[1] if self.along else self.threads[0]

    def reference(self, values: KernelValues) -> None:
        """The exponents, from norms that are not too small."""
        x = loaded(operand(values, self.is_complex, stored_type(self.element)), self.element)
        x = abs(np.concatenate([x.real, x.imag], 1) if self.is_complex else x).astype(float)
        values.set("flag", not np.isfinite(x).all())
        exponents = values.view("exponents", "i4", (len(x),), (1,))
        if self.by_largest:
            exponents[...] = exponents_of(x.max(1, initial=0), float(np.array(values("room")).view(float)[0]))
            return
        size = np.frexp(x.max(1, initial=0))[1]
        scaled = np.ldexp(x, -size[:, None])
        norm, shift = np.frexp(np.sqrt((scaled * scaled).sum(1)) * (1 + (x.shape[1] + 8) * 2.0**-53))
        limit, top = np.frexp(np.array(values("room")).view(float))
        found = np.where(norm > 0, top - shift - size - (norm > limit), 0)
        exponents[...] = found


@dataclass(frozen=True)
class ResidueExpandKernel(WithoutShared):
    """Forms of an operand's blocks, of scaled numbers rounded to integers, modulo each p. `sources` has the place of each block.

    Residues are multiplied by `factors`, one for each p: 1, or the inverses for the Chinese remainder theorem. Forms are below 2^`bits` in
    size. Without moduli the bytes of x = 128 h + l, with the least l, are h, l, h + l. Integers are not scaled; with a `modulus` they are
    reduced by it first. If elements are complex, `parts` says which part each source is. With `roots`, one for each p, sources are complex
    elements, and a form x + i y has the residues of x + root y and of x - root y. Lines with the exponent `special`, if it is not 0, are
    zeros, and no flag stops the kernel.
    """

    name: str
    comment: str
    element: Element | IntegerElement
    along: bool
    width: int
    lanes: int
    moduli: tuple[int, ...]
    factors: tuple[int, ...]
    sources: tuple[tuple[int, int], ...]
    forms: int
    evaluation: Evaluation
    bits: int
    modulus: int = 0
    parts: tuple[int, ...] = ()
    roots: tuple[int, ...] = ()
    special: int = 0
    threads: tuple[int, int] = (32, 8)
    template: str = field(default="residue_expand.cu.j2", init=False)

    @property
    def is_whole(self) -> bool:
        """Whether the operand holds integers, which are not scaled."""
        return isinstance(self.element, IntegerElement)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Its parameters."""
        shape = *OPERAND, *indices("block_lines", "block_terms", "panels", "slices")
        digits = Argument("bytes", "D")
        return (*shape, digits) if self.is_whole else (*shape, Argument("words", "exponents"), digits, Argument("flag", "flag"))

    @property
    def blocks(self) -> int:
        """Blocks of threads for a panel's slice: of 8 lines and 32 * lanes terms, or of 32 lines and 8 * lanes terms."""
        return PANEL * RESIDUE_SLICE // (self.threads[0] * self.threads[1] * self.lanes)

    @property
    def unrolled(self) -> int:
        """Moduli that are unrolled: all of them, unless the text for many forms would be too long."""
        return len(self.moduli) if self.forms <= MOST_UNROLLED else 1

    @property
    def words(self) -> int:
        """Limbs of a whole number: two make the 64 bits of an integer of C, and three hold more."""
        return 2 if self.bits < 2 * LIMBS[2] else 3

    @property
    def top(self) -> int:
        """The exponent of the power of two that is added to a form to make it nonnegative."""
        return self.words * LIMBS[self.words] - 1

    @property
    def shares(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """For each kind of residues, and each p: p, and the factor of each part of a form."""
        each = tuple(zip(self.moduli, self.factors, self.roots or self.moduli, strict=True))
        if not self.roots:
            return tuple((p, (factor,)) for p, factor, _ in each)
        return tuple((p, (factor, sign * factor * root)) for sign in (1, -1) for p, factor, root in each)

    @property
    def planes(self) -> int:
        """Residues of a form, or bytes."""
        return len(self.shares) or BYTES

    @property
    def weights(self) -> tuple[tuple[int, ...], ...]:
        """For each share: the weights modulo p of the bytes of the limbs of all parts, a word a limb, the lowest byte first."""
        bits = LIMBS[self.words]
        return tuple(
            tuple(_bytes_modulo(p, factor, bits * limb, bits // 8) for factor in factors for limb in range(self.words))
            for p, factors in self.shares
        )

    @property
    def biases(self) -> tuple[int, ...]:
        """For each share: the number that undoes the addition of 2^top to every part, plus the bits that make the sum a float."""
        return tuple(FLOAT_INTEGERS + -pow(2, self.top, p) * sum(factors) % p for p, factors in self.shares)

    @property
    def reads(self) -> tuple[int, ...]:
        """The blocks in the order in which they are read."""
        return tuple(instruction.value for instruction in self.evaluation.instructions if isinstance(instruction, Read))

    @property
    def turns(self) -> tuple[int, ...]:
        """For each block its place in that order."""
        place = {block: turn for turn, block in enumerate(self.reads)}
        return tuple(place.get(block, 0) for block in range(len(self.sources)))

    @property
    def staged(self) -> int:
        """How many blocks have a part in shared memory at once, if they do not lie along their lines."""
        size = self.element.bytes * (2 if self.roots else 1)
        return max(1, min(len(self.reads), STAGED_BYTES // (8 * self.lanes * 33 * size)))

    def reference(self, values: KernelValues) -> None:
        """Cut the forms."""
        if not self.is_whole and not self.special and values.is_set():
            return
        lines, terms, panels, slices = values("block_lines", "block_terms", "panels", "slices")
        own, is_complex = self.element, bool(self.parts or self.roots)
        stored = own.code if isinstance(own, IntegerElement) else stored_type(own)
        x = operand(values, is_complex, stored)
        x = x if isinstance(own, IntegerElement) else loaded(x, own)
        parts = [self._whole(part, values) for part in ([x.real, x.imag] if x.dtype.kind == "c" else [x])]
        padded, size = (128 * panels, 128 * slices), 16384 * panels * slices
        out = values.view("D", "i1", (self.forms, self.planes, size), (self.planes * size, size, 1))
        moduli = np.array(self.moduli)[:, None, None]
        blocks = [blocks_of(part, self.sources, (lines, terms), padded) for part in parts]

        if not self.moduli:
            (whole,) = blocks[0]
            high = (whole + 64) // 128
            for i, digits in enumerate((high, whole - 128 * high, whole - 127 * high)):
                out[0, i] = residue_panels(digits.astype(np.int8)).ravel()
            return

        def read(source: int) -> Array:
            chosen = [blocks[self.parts[source]]] if self.parts else blocks
            return np.stack([np.fmod(of_part[source], moduli) for of_part in chosen]).astype(np.int64)

        def write(form: int, value: Array) -> None:
            for i, (p, by) in enumerate(self.shares):
                total = sum(factor * part[i % len(self.moduli)] for factor, part in zip(by, value, strict=True))
                out[form, i] = residue_panels(least_residues(total, p)).ravel()

        evaluate(self.evaluation, None, read, write)

    def _whole(self, x: Array, values: KernelValues) -> Array:
        """Numbers scaled and rounded to integers, as float64; or integers, of which those of 64 bits are in two's complement."""
        if not self.is_whole:
            exponents = values.view("exponents", "i4", (len(x),), (1,))
            is_odd = (exponents == SPECIAL)[:, None]
            return np.rint(np.ldexp(np.where(is_odd, 0, x.astype(float)), np.where(is_odd, 0, exponents[:, None])))
        if not self.modulus:
            return x.astype(np.int64)
        half = self.modulus // 2
        rest = x % np.uint64(self.modulus) if x.dtype == np.uint64 else np.fmod(x.astype(np.int64), self.modulus)
        rest = rest.astype(np.int64)
        return np.where(rest > half, rest - self.modulus, np.where(rest < -half, rest + self.modulus, rest))


def _bytes_modulo(p: int, factor: int, low: int, count: int) -> int:
    """The weights modulo p, times a factor, of `count` bytes from bit `low` on, in a word, the lowest byte first."""
    return sum(pow(2, low + 8 * byte, p) * factor % p << 8 * byte for byte in range(count))


@dataclass(frozen=True)
class ResidueProductKernel(TiledKernel):
    """Products of residues, each reduced modulo its p. They lie in P in rows of `pitch` bytes.

    Without moduli they are products of bytes, in int32, in rows of `pitch` words, over at most `LONGEST_SUM` terms.
    """

    name: str
    element: Element | IntegerElement
    tile: ModularTile
    moduli: tuple[int, ...]
    arguments: tuple[Argument, ...] = (
        Argument("bytes", "DA"),
        Argument("bytes", "DB"),
        *indices("panels_m", "panels_n", "slices", "planes"),
        Argument("bytes", "P"),
        *indices("m", "pitch"),
    )
    template: str = field(default="residue_product.cu.j2", init=False)

    @property
    def folds(self) -> tuple[int, ...]:
        """For each p: the weights modulo p of the four bytes of a sum, in a word, the lowest byte first."""
        return tuple(_bytes_modulo(p, 1, 0, 4) for p in self.moduli)

    @property
    def biases(self) -> tuple[int, ...]:
        """For each p: the number that undoes the addition of 2^31 modulo p, plus the bits that make the result a float."""
        return tuple(FLOAT_INTEGERS + -pow(2, 31, p) % p for p in self.moduli)

    def reference(self, values: KernelValues) -> None:
        """Multiply modulo each p."""
        (panels_m, panels_n), (slices, planes, m, pitch) = values("panels_m", "panels_n"), values("slices", "planes", "m", "pitch")
        left, right = (
            values.view(name, "i1", (planes, count, slices, 128, 128), (count * slices * 16384, slices * 16384, 16384, 128, 1))
            for name, count in (("DA", panels_m), ("DB", panels_n))
        )
        for plane in range(planes):
            product = residues_in(left[plane])[:m] @ residues_in(right[plane])[:pitch].T
            if not self.moduli:
                values.view("P", "i4", product.shape, (pitch, 1), plane * m * pitch)[...] = product
                continue
            p = self.moduli[plane % len(self.moduli)]
            values.view("P", "i1", product.shape, (pitch, 1), plane * m * pitch)[...] = least_residues(product, p)


@dataclass(frozen=True)
class WarpResidueProductKernel(ByWarps, ResidueProductKernel):
    """Products of residues by warps, in the same layouts."""

    warps: WarpTile = WARP_RESIDUES
    template: str = field(default="residue_product_warps.cu.j2", init=False)


@dataclass(frozen=True)
class ResidueRecomposeKernel(_RoundingText, WithoutShared):
    """C = alpha * (forms of products, put together, without their scales) + beta * C. `targets` has the place of each form's block in C.

    Forms are at most 2^headroom times as large as residues. The product of residues modulo p has the weight M/p, cut into pieces that
    floats hold. If elements are complex, the real parts of all blocks come first.

    With `roots`, one for each p, C is complex and the products of x + root y and x - root y are put together: half their sum is the real
    part, their difference over 2 root the imaginary part. The half is in the factors of B, and 1/root in separate weights.

    If it `rounds_once`, what is put together is rounded to nearest once, subnormal results included, alpha and beta as
    `reproducible.md` says, and elements of special lines are left to `SpecialKernel`.
    """

    name: str
    comment: str
    element: Element
    width: int
    lanes: int
    representation: Representation
    targets: tuple[tuple[int, int], ...]
    headroom: int
    evaluation: Evaluation
    is_complex: bool = False
    roots: tuple[int, ...] = ()
    rounds_once: bool = False
    threads: tuple[int, int] = (32, 8)
    template: str = field(default="residue_recompose.cu.j2", init=False)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Its parameters."""
        products = Argument("bytes", "P"), *indices("block_m", "block_n", "pitch")
        return (*products, *RESULT, *SCALES, *FACTORS, *(TURNS if self.is_complex else ()))

    @property
    def unrolled(self) -> int:
        """Moduli that are unrolled, so that a thread reads the next products early."""
        return self.representation.count if len(self.targets) <= FEW_TARGETS else 1

    @property
    def bits(self) -> int:
        """Bits of a piece: sums of residues, of at most 7 bits, times pieces are exact in float64."""
        return SUM_BITS - 7 - self.headroom - self.representation.count.bit_length()

    @cached_property
    def modulus(self) -> tuple[float, ...]:
        """M in pieces, the lowest first, each times its power of two."""
        return self._pieces(self.representation.product)

    @cached_property
    def weights(self) -> tuple[tuple[float, ...], ...]:
        """M/p in pieces, for each p."""
        return tuple(self._pieces(self.representation.product // p) for p in self.representation.moduli)

    @cached_property
    def turned(self) -> tuple[tuple[float, ...], ...]:
        """M/p times 1/root modulo p in pieces, for each p."""
        r = self.representation
        return tuple(self._pieces(r.product // p * (-root % p)) for p, root in zip(r.moduli, self.roots, strict=bool(self.roots)))

    @property
    def inverse(self) -> float:
        """1/M, rounded."""
        return 1 / self.representation.product

    def _pieces(self, x: int) -> tuple[float, ...]:
        count, mask = ceil(self.representation.product.bit_length() / self.bits), (1 << self.bits) - 1
        return tuple(float((x >> self.bits * i & mask) << self.bits * i) for i in range(count))

    def reference(self, values: KernelValues) -> None:
        """Put the forms together."""
        if values.is_set() and not self.rounds_once:
            return
        r, code = self.representation, self.element.code
        weights = [r.product // p for p in r.moduli]
        turned = [weight * (-root % p) for weight, root, p in zip(weights, self.roots, r.moduli, strict=bool(self.roots))]
        found: dict[int, Array] = {}
        blocks = len(self.targets) // (2 if self.is_complex else 1)
        for target, shares in product_forms(values, self.evaluation, r.count, 2 if self.roots else 1).items():
            found[target] = put_together(shares.sum(0), weights, r.product)
            if self.roots:
                found[target + blocks] = put_together(shares[0] - shares[1], turned, r.product)
        for target in range(blocks):
            c = result_block(values, {"f": "c8", "d": "c16"}[code] if self.is_complex else code, self.targets[target])
            rows, columns = c.shape
            down, across = (begin * size for begin, size in zip(self.targets[target], values("block_m", "block_n"), strict=True))
            left = values.view("LA", "i4", (rows,), (1,), down)
            right = values.view("LB", "i4", (columns,), (1,), across)

            if self.rounds_once:
                whole = found[target][: c.shape[0], : c.shape[1]]
                usual = (left != SPECIAL)[:, None] & (right != SPECIAL)
                pieces = [x.astype(float) for x in (whole % 2**45, whole // 2**45 % 2**45 * 2**45, whole // 2**90 * 2**90)]
                left, right = (np.where(x == SPECIAL, 0, x).astype(np.int64) for x in (left, right))
                value = rounded(pieces, left, right, c.dtype)
                c[...] = np.where(usual, with_factors(value, c, *factors(values, code)), c)
                continue

            def part(number: int) -> Array:
                whole = found[number][: c.shape[0], : c.shape[1]].astype(float)  # noqa: B023  # called at once
                return np.ldexp(whole, -left[:, None].astype(np.int64) - right[None]).astype(code)  # noqa: B023

            value = joined(part(target), part(target + blocks)) if self.is_complex else part(target)
            scaled_sum(c, value, *factors(values, c.dtype.str))


@dataclass(frozen=True)
class ByteRecomposeKernel(_RoundingText, WithoutShared):
    """C = alpha * (128^2 P0 + 128 (P2 - P0 - P1) + P1, without its scales, rounded to float32) + beta * C, rounded to 16 bits.

    P0, P1 and P2 are the products of h, of l, and of h + l. Elements of special lines are left to `SpecialKernel`.
    """

    name: str
    element: Element
    width: int
    lanes: int
    arguments: tuple[Argument, ...] = (
        *(Argument("bytes", "P"), *indices("block_m", "block_n", "pitch")),
        *(*RESULT, *SCALES, *FACTORS),
    )
    threads: tuple[int, int] = (32, 8)
    template: str = field(default="byte_recompose.cu.j2", init=False)

    def reference(self, values: KernelValues) -> None:
        """Put the products together."""
        (block_m, pitch), c = values("block_m", "pitch"), result_block(values, stored_type(self.element), (0, 0))
        rows, columns = c.shape
        high, low, both = values.view("P", "i4", (BYTES, rows, columns), (block_m * pitch, pitch, 1)).astype(np.int64)
        left, right = (values.view(name, "i4", (count,), (1,)).astype(np.int64) for name, count in (("LA", rows), ("LB", columns)))
        usual = (left != SPECIAL)[:, None] & (right != SPECIAL)
        left, right = (np.where(x == SPECIAL, 0, x) for x in (left, right))
        value = rounded([np.zeros(c.shape), (16256 * high - 127 * low + 128 * both).astype(float)], left, right, np.dtype(np.float32))
        found = with_factors(value, loaded(c, self.element), *factors(values, "f"))
        c[...] = np.where(usual, with_one_nan(found, self.element), c)


@dataclass(frozen=True)
class SpecialKernel(_RoundingText, WithoutShared):
    """The elements of C in special lines: alpha * (the product in the extended reals) + beta * C; nothing if the flag is clear."""

    name: str
    element: Element
    arguments: tuple[Argument, ...] = (
        *(Argument("pointer", "A"), *indices("A_rs", "A_cs"), Argument("pointer", "B"), *indices("B_rs", "B_cs"), *RESULT),
        *(*indices("k"), *SCALES, *FACTORS),
    )
    threads: tuple[int, int] = (256, 1)
    template: str = field(default="residue_special.cu.j2", init=False)

    def reference(self, values: KernelValues) -> None:
        """The product of the special rows and columns."""
        if not values.is_set():
            return
        (m, n, k), own, code = values("m", "n", "k"), self.element, stored_type(self.element)
        a, b, c = (values.view(x, code, shape, (f"{x}_rs", f"{x}_cs")) for x, shape in zip("ABC", ((m, k), (k, n), (m, n)), strict=True))
        old, real = loaded(c, own), own.arithmetic.code
        odd = (values.view("LA", "i4", (m,), (1,)) == SPECIAL)[:, None] | (values.view("LB", "i4", (n,), (1,)) == SPECIAL)
        found = with_factors(special_product(loaded(a, own), loaded(b, own)).astype(real), old, *factors(values, real))
        c[...] = np.where(odd, with_one_nan(found, own), c)


def product_forms(values: KernelValues, evaluation: Evaluation, count: int, kinds: int) -> dict[int, Array]:
    """The forms of products of residues by target: (kinds of residues, moduli, rows, columns)."""
    (block_m, block_n, pitch), found = values("block_m", "block_n", "pitch"), dict[int, Array]()
    plane = block_m * pitch

    def read(product: int) -> Array:
        shape, steps = (kinds, count, block_m, block_n), (count * plane, plane, pitch, 1)
        return values.view("P", "i1", shape, steps, product * kinds * count * plane).astype(np.int64)

    evaluate(evaluation, None, read, lambda target, x: found.update({target: x}))
    return found


def result_block(values: KernelValues, dtype: str, place: tuple[int, int]) -> Array:
    """The part of C in a block."""
    block_m, block_n = values("block_m", "block_n")
    whole = values.view("C", dtype, values("m", "n"), ("C_rs", "C_cs"))
    return whole[place[0] * block_m :, place[1] * block_n :][:block_m, :block_n]


ResidueKernel = (
    ScaleKernel
    | ResidueExpandKernel
    | ResidueProductKernel
    | ResidueRecomposeKernel
    | IntegerRecomposeKernel
    | ByteRecomposeKernel
    | SpecialKernel
)
