"""A kernel that streams a matrix past a short extent: when arithmetic takes longer than reading, and how many bytes must be under way.

C. Rivera, J. Chen, N. Xiong, J. Zhang, S. L. Song, D. Tao, *TSM2X: High-performance tall-and-skinny matrix-matrix multiplication on GPUs*,
J. Parallel Distrib. Comput. 151 (2021), section 3.1.8 (the threshold t2) and 3.1.9 (Little's law).
"""

from __future__ import annotations

LATENCY, MEMORY, ARITHMETIC = "latency", "memory", "arithmetic"
"""What bounds a kernel."""
ENOUGH = 0.5
"""With less than this share of the bytes that must be under way, latency is what bounds a kernel."""


def threshold(operations_per_second: float, bytes_per_second: float, itemsize: int) -> float:
    """The columns of B above which arithmetic takes longer than reading A: 2 operations for each column and element of A.

    The paper counts a multiply-add once, against a peak that counts it twice, so its threshold is twice as high.
    """
    return operations_per_second / bytes_per_second * itemsize / 2


def needed_under_way(bytes_per_second: float, latency: float) -> float:
    """The bytes that must be under way for this bandwidth, if each takes `latency` seconds (Little's law)."""
    return bytes_per_second * latency


def utilisation(under_way: float, needed: float) -> float:
    """The share of the bandwidth that so many bytes under way can use."""
    return min(1.0, under_way / needed)


def bound_by(share: float, reading: float, multiplying: float) -> str:
    """What bounds a kernel with this utilisation, whose traffic and arithmetic take so many seconds at full speed."""
    if share < ENOUGH:
        return LATENCY
    return MEMORY if reading / share >= multiplying else ARITHMETIC
