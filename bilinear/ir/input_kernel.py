"""Kernels that only read the inputs: they search for Inf and NaN, for the largest magnitudes, and for changes."""

from __future__ import annotations

from dataclasses import dataclass, field

from bilinear.ir.element import Element
from bilinear.ir.kernel import Argument

MATRIX = (Argument("pointer", "X"), *(Argument("index", name) for name in ("X_rs", "X_cs", "rows", "columns")))
"""The matrix that a kernel reads."""


@dataclass(frozen=True)
class ScanKernel:
    """One launch that searches the matrix X (rows x columns) for values that are not finite."""

    name: str
    element: Element
    threads: tuple[int, int] = (256, 1)
    arguments: tuple[Argument, ...] = (*MATRIX, Argument("flag", "found"))
    shared_bytes: int = field(default=0, init=False)
    template: str = field(default="scan.cu.j2", init=False)


@dataclass(frozen=True)
class MagnitudeKernel:
    """One launch that finds max|x| of every block of the matrix X. X is cut into `across` blocks a row, each rows x columns.

    The number of threads in a block must be a power of two, because they reduce by halves.
    """

    name: str
    element: Element
    threads: tuple[int, int] = (256, 1)
    shared_bytes: int = field(default=0, init=False)
    template: str = field(default="magnitudes.cu.j2", init=False)


@dataclass(frozen=True)
class DigestKernel:
    """One launch that adds up a hash of every element of the matrix X (rows x columns), of its bits and its place, modulo 2^64.

    Each block of threads writes a sum of its own. Their number must be a power of two, because they reduce by halves.
    """

    name: str
    element: Element
    threads: tuple[int, int] = (256, 1)
    arguments: tuple[Argument, ...] = (*MATRIX, Argument("pointer", "sums"))
    shared_bytes: int = field(default=0, init=False)
    template: str = field(default="digest.cu.j2", init=False)
