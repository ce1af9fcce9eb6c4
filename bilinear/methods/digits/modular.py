"""Placements on integers modulo p on a GPU: sums of blocks by generated kernels, products of blocks by residues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product as pairs
from math import ceil
from typing import NamedTuple

from bilinear.backends.bound_launches import run_launches
from bilinear.backends.cuda_executor import CudaExecutor, Step
from bilinear.backends.factor import kept_factor
from bilinear.backends.gemm import ALIGNMENT
from bilinear.backends.summed_blocks import SummingExecutor, block_of
from bilinear.ir.element import ModularElement
from bilinear.ir.matrix import Array, Factor, Layout, Matrix, Range
from bilinear.ir.number import residue
from bilinear.ir.schedule import Product, Schedule
from bilinear.lowering.prepare import plain
from bilinear.methods.digits.integers import IntegerMultiply, integer_multiply_of, moduli_modulo

MOST_RESIDUES = 1 << 28
"""The bytes that residues of a product may take; larger products are multiplied in parts, so that this does not grow with the problem."""


Sum = tuple[Matrix, Factor, Factor]
"""A block to which a product is added, the factor of the product, and that of what the block holds."""


class BlockPiece(NamedTuple):
    """A part of a product of blocks: how it is multiplied, where its operands are, and where and with which factors it is added."""

    multiply: IntegerMultiply
    left: int
    right: int
    targets: tuple[tuple[int, Factor, Factor], ...]


@dataclass
class ModularExecutor(SummingExecutor):
    """Runs placements on matrices in int64 that hold numbers from 0 to p - 1, and leaves such numbers.

    Beside the workspace it holds one buffer for the residues of a product.
    """

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
            for other in others:
                _put_together(multiply, *other, space)


def _of_one_layout(targets: list[Sum]) -> list[list[Sum]]:
    """The targets by their layouts: a product is put together again only for targets that lie alike."""
    found: dict[Layout, list[Sum]] = {}
    for target in targets:
        found.setdefault(target[0].layout, []).append(target)
    return list(found.values())


def _put_together(multiply: IntegerMultiply, c: int, alpha: Factor, beta: Factor, workspace: int) -> None:
    """Put the products of the last call in this workspace together once more, for another C of the same layout at this address."""
    bound = multiply.bound(c % ALIGNMENT == 0)
    with bound.ready((0, 0, c, workspace, 0), *multiply.factors(alpha, beta), CudaExecutor().stream()) as steps:
        run_launches(steps[-1:], "a product of digits", 1)


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
