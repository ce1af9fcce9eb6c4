"""The numbers of sympy's domains, as far as the proofs look at them; sympy has no types for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from bilinear.verify.engine import PolyElement


class Number(Protocol):
    """An element of a domain. A rational has `numerator` and `denominator`, a rational function of lambda has `numer` and `denom`."""

    def __add__(self, other: Self, /) -> Self: ...
    def __sub__(self, other: Self, /) -> Self: ...
    def __mul__(self, other: Self, /) -> Self: ...
    def __truediv__(self, other: Self, /) -> Self: ...
    def __neg__(self) -> Self: ...
    def __pow__(self, exponent: int, /) -> Self: ...

    numerator: int
    denominator: int
    numer: PolyElement
    denom: PolyElement

    def to_list(self) -> Sequence[Number]:
        """Of an algebraic number: the rationals before the powers of its generator, the highest first."""
