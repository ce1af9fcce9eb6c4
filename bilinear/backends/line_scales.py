"""The launch that finds the largest magnitude of every line of an operand, by which its digits are scaled."""

from __future__ import annotations

from math import ceil

from bilinear.backends.bound_launches import Values
from bilinear.backends.cut_products import CutLaunch, launched
from bilinear.ir.digit_kernel import LargestKernel

LEAST_DEPTH = 512
"""The least terms of a line that a block of threads searches for the largest magnitude."""
BLOCKS_EACH = 8
"""Blocks of threads for each multiprocessor that search for the largest magnitudes."""


def search(kernel: LargestKernel, operand: Values, multiprocessors: int) -> CutLaunch:
    """The launch that finds the largest magnitudes: lines are cut in parts so that all multiprocessors take part."""
    terms, tiles = operand["terms"], ceil(operand["lines"] / kernel.lines)
    parts = max(1, min(ceil(terms / LEAST_DEPTH), ceil(BLOCKS_EACH * multiprocessors / tiles)))
    depth = ceil(ceil(terms / parts) / 4) * 4
    parts = ceil(terms / depth)
    return launched(kernel, tiles * parts, operand | {"depth": depth, "parts": parts})
