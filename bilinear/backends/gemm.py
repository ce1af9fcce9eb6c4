"""Layouts of matrices as our kernels read them, and as the arguments of a BLAS call."""

from __future__ import annotations

from dataclasses import dataclass

from bilinear.ir.matrix import Layout

ALIGNMENT = 16  # Bytes of a copy of several elements.
MOST = 2**31 - 1  # The largest extent and leading dimension: both are ints.
NOT_TRANSPOSED, TRANSPOSED = 0, 1  # `CUBLAS_OP_N` and `CUBLAS_OP_T`.


@dataclass(frozen=True)
class Gemm:
    """The arguments of a BLAS call for a product of m x k by k x n, each operand transposed or not.

    BLAS knows only column-major matrices. If the rows of C are contiguous, the call `swaps`: it multiplies B^T by A^T.
    """

    swaps: bool
    operations: tuple[int, int]
    extents: tuple[int, int, int]  # m, n, k.
    leading: tuple[int, int, int]  # Leading dimensions of the operands and the result, in elements.


def gemm_of(a: Layout, b: Layout, c: Layout) -> Gemm | None:
    """The BLAS call that multiplies matrices of these layouts; None if there is none, or if a matrix is empty.

    Either the rows or the columns of each matrix must be contiguous. A matrix is not transposed if both are.
    """
    if not a.ndim == b.ndim == c.ndim == 2 or not all(0 < extent <= MOST for extent in (*a.shape, *b.shape)):
        return None
    swaps = _leading(c.T) is not None
    left, right, result = (b.T, a.T, c.T) if swaps else (a, b, c)
    first, second, apart = _operand(left), _operand(right), _leading(result)
    if first is None or second is None or apart is None:
        return None
    extents = left.shape[0], right.shape[1], left.shape[1]
    return Gemm(swaps, (first[0], second[0]), extents, (first[1], second[1], apart))


def _operand(x: Layout) -> tuple[int, int] | None:
    """Whether a matrix must be transposed to be column-major, and then its leading dimension; None if neither is column-major."""
    for operation, matrix in ((NOT_TRANSPOSED, x), (TRANSPOSED, x.T)):
        apart = _leading(matrix)
        if apart is not None:
            return operation, apart
    return None


def _leading(x: Layout) -> int | None:
    """The leading dimension of a column-major matrix in elements, where it has a meaning; None if columns have gaps or overlap."""
    (rows, columns), (down, along) = x.shape, x.strides
    if rows > 1 and down != x.itemsize:
        return None
    apart, rest = divmod(along, x.itemsize) if columns > 1 else (rows, 0)
    return apart if rest == 0 and rows <= apart <= MOST else None


def is_by_rows(x: Layout) -> bool:
    """Whether neighbours in memory lie in one row. If neither rows nor columns are contiguous, the smaller stride decides."""
    (rows, columns), (down, along) = x.shape, x.strides
    if columns == 1 or rows == 1:
        return columns > 1 or (rows == 1 and along == x.itemsize)
    return abs(along) <= abs(down)


def is_in_lanes(x: Layout) -> bool:
    """Whether lines begin at multiples of 16 bytes if the first does, with neighbours side by side."""
    shape, strides = (x.shape, x.strides) if is_by_rows(x) else (x.shape[::-1], x.strides[::-1])
    return (shape[1] == 1 or strides[1] == x.itemsize) and (shape[0] == 1 or strides[0] % ALIGNMENT == 0)
