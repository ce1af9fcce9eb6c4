"""Products of integer matrices on the int8 matrix units of a GPU, exactly: residues modulo as many p as the numbers need.

Launches: the forms of A and of B, as residues modulo each p; the products modulo each p; their forms, put together by the Chinese remainder
theorem, modulo 2^64, so that the result wraps around as NumPy's does, or modulo a number (docs/digits.md).

Placements on integers modulo p take generated kernels for sums of blocks, and such products for products of blocks.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product as pairs
from math import ceil, prod
from typing import NamedTuple

from bilinear.analysis.block_maps import headroom
from bilinear.backends.bound_launches import CELL, BoundLaunches, MatrixPlace, Values, run_launches
from bilinear.backends.caches import Same
from bilinear.backends.cuda_executor import CudaExecutor, Step, launch_kernel
from bilinear.backends.factor import kept_factor
from bilinear.backends.gemm import ALIGNMENT
from bilinear.backends.loaded_kernels import built_function
from bilinear.backends.machine import multiplies_by_warps
from bilinear.backends.summed_blocks import SummingExecutor, block_of
from bilinear.codegen.names import stem
from bilinear.errors import BilinearError, fail
from bilinear.ir.digit_kernel import LargestIntegersKernel
from bilinear.ir.digits import MOST_MODULI, largest_moduli
from bilinear.ir.element import INTEGERS, ModularElement
from bilinear.ir.kernel import Cover, Grid
from bilinear.ir.launch import PlainLaunch
from bilinear.ir.linear import LinearMap
from bilinear.ir.matrix import Array, Factor, Layout, Matrix, Range, layout_of
from bilinear.ir.number import residue
from bilinear.ir.schedule import Product, Schedule
from bilinear.ir.scheme import Scheme
from bilinear.lowering.prepare import plain
from bilinear.methods.digits.choice import MOST_HEADROOM, MOST_TARGETS
from bilinear.methods.digits.launches import ModularMultiply
from bilinear.methods.digits.lower import IntegerTypes, lower_integers
from bilinear.methods.program import NamedLaunch, once

LARGEST_DIRECT = 256  # Products modulo a number up to this are products of residues modulo it alone.
LOOKING = 512  # Blocks of threads that look at a matrix.


@lru_cache(maxsize=1024)
def moduli_for_integers(inner: int, left: int, right: int) -> tuple[int, ...]:
    """The fewest moduli for sums of `inner` products of integers of at most these magnitudes: 2 K a b <= (1 - 2^-30) M."""
    needed = 2 * max(1, inner) * max(1, left) * max(1, right) * 2**30
    for count in range(1, MOST_MODULI + 1):
        moduli = largest_moduli(count)
        if needed <= (2**30 - 1) * prod(moduli):
            return moduli
    raise fail("E567", f"{MOST_MODULI} moduli are too few for sums of {inner} terms", "multiply in parts")


def largest_magnitudes(a: Array, b: Array) -> tuple[int, int]:
    """Bounds of two integer matrices' magnitudes, at most one too large, by one launch that reads both, and a wait."""
    import cupy

    executor, memory = CudaExecutor(), cupy.cuda.alloc_pinned_memory(2 * LOOKING * CELL)
    sizes = (ctypes.c_uint64 * (2 * LOOKING)).from_address(int(memory.ptr))
    ctypes.memset(sizes, 0, ctypes.sizeof(sizes))
    look = once(_look, layout_of(a), layout_of(b))
    with look.ready((a.data.ptr, b.data.ptr, int(memory.ptr)), 1, 0, executor.stream()) as steps:
        steps[0]()
    executor.wait()
    left, right = (1 + max(sizes[own::2]) for own in (0, 1))
    return min(left, INTEGERS[str(a.dtype)].largest), min(right, INTEGERS[str(b.dtype)].largest)


def _look(a: Layout, b: Layout) -> BoundLaunches:
    """The launch that looks at matrices of these layouts, on the current device. The bases are A, B and what the kernel writes."""
    import cupy

    left, right = INTEGERS[a.dtype.name], INTEGERS[b.dtype.name]
    kernel = LargestIntegersKernel(f"integer_largest_{left.suffix}_{right.suffix}", left, right)
    values: Values = {"m": a.shape[0], "k": a.shape[1], "n": b.shape[1], "sizes": MatrixPlace(2, 0, (0, 0), CELL), "blocks": LOOKING}
    for base, (name, x) in enumerate((("A", a), ("B", b))):
        values[name] = MatrixPlace(base, 0, (x.strides[0], x.strides[1]), x.itemsize)
        values[f"{name}_rs"], values[f"{name}_cs"] = (stride // x.itemsize for stride in x.strides)
    launch = PlainLaunch(kernel, Grid(((Cover("blocks", 1),),), 2))
    return BoundLaunches(left, [(launch, built_function(kernel, cupy.cuda.Device().id), values)], launch_kernel())


class IntegerMultiply(ModularMultiply):
    """A product of integers by `types.moduli`, which suffice. Raises `BilinearError` (E591, E592) for too large sums."""

    writing = 1

    def __init__(self, a: Layout, b: Layout, c: Layout, scheme: Scheme, types: IntegerTypes, by_warps: bool = False) -> None:
        self._by_warps = by_warps
        for obstacle in obstacles(scheme, types.moduli, types.modulus):
            raise obstacle
        scheme = _of_residues(Same(scheme), types.modulus) if types.moduli == (types.modulus,) else scheme
        super().__init__(a, b, c, scheme, stem(scheme.name, 1), types.tile, types.result)
        left, right = INTEGERS[self._layouts[0].dtype.name], INTEGERS[self._layouts[1].dtype.name]
        self._types = IntegerTypes(left, right, types.result, types.moduli, types.modulus)

    def launches(self, is_aligned: bool, multiprocessors: int) -> list[NamedLaunch]:
        """The launches in their order, with the values of their arguments."""
        how = self._scheme, self._stem, self._types, *self.orders(is_aligned), self._by_warps
        (expand, product, recompose), (left, right) = lower_integers(*how), self.operands()
        expansions = [self.expansion(expand[0], left, 0), self.expansion(expand[1], right, 1)]
        return [*expansions, *self.products(product, recompose, self.result(), multiprocessors)]

    def factors(self, alpha: Factor, beta: Factor) -> tuple[Factor, Factor]:
        """alpha and beta as numbers of int64: modulo 2^64, or from 0 to p - 1."""
        ring = self._types.modulus or 2**64
        return _signed(alpha, ring), _signed(beta, ring)


def _signed(value: Factor, ring: int) -> int:
    x: int = operator.index(value) % ring  # type: ignore[arg-type]  # it was checked to be an integer
    return x - 2**64 if x >= 2**63 else x


def moduli_modulo(p: int, inner: int) -> tuple[int, ...]:
    """The moduli for sums of `inner` products modulo p: p itself, or as many numbers as the sums need."""
    return (p,) if p <= LARGEST_DIRECT else moduli_for_integers(inner, p // 2, p // 2)


def obstacles(scheme: Scheme, moduli: tuple[int, ...], modulus: int) -> tuple[BilinearError, ...]:
    """Why residues do not hold a scheme: its coefficients are not integers (E591), or its sums of blocks are too large (E592).

    Modulo a number that is the only modulus, fractions are residues, and the scheme may be over that ring alone.
    """
    if moduli == (modulus,):
        scheme = _of_residues(Same(scheme), modulus)
    elif scheme.ring.modulus or not _is_whole(scheme):
        return (fail("E591", f"{scheme.name} has coefficients that are not integers, and residues need integers", "take a scheme over Z"),)
    most = max(map(_growth, (scheme.u, scheme.v, scheme.w)))
    if scheme.m * scheme.n <= MOST_TARGETS and most <= MOST_HEADROOM:
        return ()
    what = f"{scheme.name} has sums of up to {most} bits more than a block, and {scheme.m * scheme.n} blocks of C"
    return (fail("E592", what, f"residues take {MOST_HEADROOM} bits and {MOST_TARGETS} blocks: name fewer levels"),)


def _is_whole(scheme: Scheme) -> bool:
    """Whether all coefficients are integers, those of named sums, too."""
    rows = (row for linear in (scheme.u, scheme.v, scheme.w) for row in (*linear.matrix, *linear.steps, *linear.outputs))
    return all(type(c) is int for row in rows for _, c in row)


def _growth(linear: LinearMap) -> int:
    """The headroom of a map and of its named sums."""
    steps = tuple(((linear.inputs + i, 1),) for i in range(len(linear.steps)))
    return headroom(replace(linear, outputs=linear.outputs + steps))


@lru_cache(maxsize=64)
def _of_residues(scheme: Same[Scheme], p: int) -> Scheme:
    """The scheme with fractions as residues of least size modulo p."""

    def own(linear: LinearMap) -> LinearMap:
        def row(terms: tuple[tuple[int, object], ...]) -> tuple[tuple[int, int], ...]:
            found = ((i, c if type(c) is int else residue(c, p)) for i, c in terms)  # type: ignore[arg-type]
            return tuple((i, c - p if c > p // 2 else c) for i, c in found)

        return replace(linear, outputs=tuple(map(row, linear.outputs)), steps=tuple(map(row, linear.steps)))

    whole = scheme.what
    return replace(whole, u=own(whole.u), v=own(whole.v), w=own(whole.w))


def integer_multiply_of(a: Layout, b: Layout, c: Layout, scheme: Scheme, moduli: tuple[int, ...], modulus: int = 0) -> IntegerMultiply:
    """The product for matrices of these layouts on the current device."""
    return once(_made, a, b, c, Same(scheme), moduli, modulus, multiplies_by_warps())


def _made(a: Layout, b: Layout, c: Layout, scheme: Same[Scheme], moduli: tuple[int, ...], modulus: int, by_warps: bool) -> IntegerMultiply:
    left, right, result = (INTEGERS[x.dtype.name] for x in (a, b, c))
    return IntegerMultiply(a, b, c, scheme.what, IntegerTypes(left, right, result, moduli, modulus), by_warps)


MOST_RESIDUES = 1 << 28  # The most bytes of a product's residues; larger ones are multiplied in parts.


Sum = tuple[Matrix, Factor, Factor]  # A block of C, the factor of the product, and that of the block.


class BlockPiece(NamedTuple):
    """A part of a product of blocks: how it is multiplied, where its operands are, and where and with which factors it is added."""

    multiply: IntegerMultiply
    left: int
    right: int
    targets: tuple[tuple[int, Factor, Factor], ...]


@dataclass
class ModularExecutor(SummingExecutor):
    """Runs placements on int64 matrices of numbers from 0 to p - 1; beside the workspace a buffer holds a product's residues."""

    element: ModularElement
    _residues: Array = None

    def is_finite(self, *matrices: Matrix) -> bool:
        """Integers are."""
        return True

    def product(self, schedule: Schedule, spaces: dict[str, Matrix], alpha: Factor, beta: Factor, product: Product) -> Step:
        """One product by residues, in parts whose residues fit the buffer."""
        p = self.element.modulus
        left, right = (block_of(schedule, spaces, x) for x in (product.left, product.right))
        targets = [
            (block_of(schedule, spaces, t.block), alpha * residue(t.coefficient, p) % p, kept_factor(t.kept, beta)) for t in product.targets
        ]
        pieces = [
            self._piece(left.part(rows, inner), right.part(inner, columns), own, rows, columns, inner[0] == 0)
            for own in _of_one_layout(targets)
            for rows, columns, inner in _parts(left.layout.shape[0], right.layout.shape[1], left.layout.shape[1], p)
        ]
        import cupy

        elements = max((piece.multiply.workspace for piece in pieces), default=0)
        if self._residues is None or self._residues.size < elements:
            self._residues = cupy.empty(elements, "int64")
        return partial(self._run, pieces)

    def _piece(self, left: Matrix, right: Matrix, targets: list[Sum], rows: Range, columns: Range, begins: bool) -> BlockPiece:
        p, own = self.element.modulus, [(c.part(rows, columns), factor, kept if begins else 1) for c, factor, kept in targets]
        moduli = moduli_modulo(p, left.layout.shape[1])
        multiply = integer_multiply_of(left.layout, right.layout, own[0][0].layout, plain().scheme, moduli, p)
        return BlockPiece(multiply, left.address, right.address, tuple((c.address, factor, kept) for c, factor, kept in own))

    def _run(self, pieces: list[BlockPiece]) -> None:
        space = self._residues.data.ptr
        for multiply, left, right, (first, *others) in pieces:
            multiply(left, right, *first, space)
            for c, *factors in others:  # what was just computed is put together once more, for another C of the same layout
                bound = multiply.bound(c % ALIGNMENT == 0)
                with bound.ready((0, 0, c, space, 0), *multiply.factors(*factors), CudaExecutor().stream()) as steps:
                    run_launches(steps[-1:], "a product of digits", 1)


def _of_one_layout(targets: list[Sum]) -> list[list[Sum]]:
    """The targets by their layouts: a product is put together again only for targets that lie alike."""
    found: dict[Layout, list[Sum]] = {}
    for target in targets:
        found.setdefault(target[0].layout, []).append(target)
    return list(found.values())


def _parts(m: int, n: int, k: int, p: int) -> Iterator[tuple[Range, Range, Range]]:
    """Rows, columns and terms of the parts of a product whose residues fit the buffer. Parts of one element of C follow each other."""
    bytes_each, count = len(moduli_modulo(p, max(k, 1))), [1, 1, 1]
    while True:
        rows, columns, terms = (ceil(extent / pieces) for extent, pieces in zip((m, n, k), count, strict=True))
        if bytes_each * (rows * terms + terms * columns + rows * columns) <= MOST_RESIDUES:
            break
        longest = max((rows, 0), (columns, 1), (terms, 2))[1]
        count[longest] *= 2
    yield from pairs(_ranges(m, rows), _ranges(n, columns), _ranges(k, terms))


def _ranges(extent: int, step: int) -> list[Range]:
    return [(start, min(start + step, extent)) for start in range(0, extent, step)] if extent else []
