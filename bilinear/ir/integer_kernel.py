"""Kernels for products of integers: one finds how large they are, one puts products of residues together."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from bilinear.ir.digit_kernel import FACTORS, RESULT, indices
from bilinear.ir.evaluation import Evaluation
from bilinear.ir.integers import IntegerElement
from bilinear.ir.kernel import Argument

FEW_TARGETS = 4
"""With more blocks of C than this, the loop over the moduli is not unrolled."""


def unrolled(count: int, targets: tuple[tuple[int, int], ...]) -> int:
    """The moduli that are unrolled, so that a thread reads the next products early: all, unless the text would be too long."""
    return count if len(targets) <= FEW_TARGETS else 1


HALF = 31
"""The lower bits of a number modulo more than 2^31; it has at most as many higher ones."""


@dataclass(frozen=True)
class LargestIntegersKernel:
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
    shared_bytes: int = field(default=0, init=False)
    template: str = field(default="integer_largest.cu.j2", init=False)


@dataclass(frozen=True)
class IntegerRecomposeKernel:
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
    shared_bytes: int = field(default=0, init=False)
    template: str = field(default="integer_recompose.cu.j2", init=False)

    @property
    def unrolled(self) -> int:
        """Moduli that are unrolled, so that a thread reads the next products early."""
        return unrolled(len(self.moduli), self.targets)

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
