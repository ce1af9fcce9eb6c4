"""The method: products of digits, residues among them, their candidates, and how they are bound to matrices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bilinear.ir.element import COMPLEX
from bilinear.ir.matrix import Layout
from bilinear.ir.tile import FLOAT_TILES, RESIDUE_TILES, RESIDUES
from bilinear.methods.digits.choice import Digits
from bilinear.methods.digits.lending import lent_candidates
from bilinear.methods.digits.plans import (
    complex_candidates,
    digit_candidates,
    loaded_candidates,
    named_candidate,
    residue_candidates,
)
from bilinear.methods.digits.schemes import products_of
from bilinear.planner.device import Device
from bilinear.planner.plan import Candidate
from bilinear.planner.problem import Problem

if TYPE_CHECKING:  # launches are imported with the first call on a GPU
    from bilinear.ir.launch import AnyKernel
    from bilinear.methods.digits.launches import CutMultiply


class DigitProducts:
    """Products by pairs of float16 digits and by residues, below levels or alone, stored, cut on load, or in memory that C lends."""

    choice = Digits
    products: tuple[str, ...] = (*FLOAT_TILES, RESIDUES, *RESIDUE_TILES)
    most_weighed: int | None = None
    most_timed: int | None = None

    def products_of(self, dtype: str) -> tuple[str, ...]:
        """The names of products of a type."""
        return *products_of(dtype), RESIDUES

    def candidates(self, problem: Problem, device: Device, budget: int, most_ms: float) -> Iterator[Candidate]:
        """The candidates within a budget of bytes where that can be; residues only if they may take less than `most_ms`.

        Pairs of digits are weighed only if an accuracy is requested, because they hold integers of at most 11 bits.
        """
        if problem.dtype in COMPLEX:
            yield from complex_candidates(problem, device)
            return
        found = [*residue_candidates(problem, device, budget, most_ms)]
        if problem.accuracy is not None:
            found += [*digit_candidates(problem, device, budget), *loaded_candidates(problem, device)]
        yield from found
        yield from lent_candidates(problem, device, found, budget)

    def named(self, problem: Problem, device: Device, levels: tuple[str, ...], products: str, budget: int) -> Candidate:
        """See `named_candidate`."""
        return named_candidate(problem, device, levels, products, budget)

    def kernels(self, choice: Digits, a: Layout, b: Layout, c: Layout, has_warpgroups: bool = True) -> tuple[AnyKernel, ...]:
        """See `kernels_of`."""
        from bilinear.methods.digits.binding import kernels_of

        return kernels_of(a, b, c, choice, not has_warpgroups)

    def bind(self, choice: Digits, a: Layout, b: Layout, c: Layout) -> CutMultiply | None:
        """See `digit_multiply_of`."""
        from bilinear.methods.digits.binding import digit_multiply_of

        return digit_multiply_of(a, b, c, choice)


DIGITS = DigitProducts()
