"""A product of matrices as BLAS is asked for it: what their layouts come to."""

from __future__ import annotations

from dataclasses import dataclass

from bilinear.ir.matrix import Layout

MOST = 2**31 - 1
"""Of extents and leading distances, which are ints."""
NOT_TRANSPOSED, TRANSPOSED = 0, 1
"""`CUBLAS_OP_N` and `CUBLAS_OP_T`."""


@dataclass(frozen=True)
class Gemm:
    """How BLAS, which knows columns alone, is asked for a product: of m x k by k x n, each operand as it lies or transposed.

    With `swaps` it is that of the transposed matrices, B before A, because the rows of C are contiguous.
    """

    swaps: bool
    operations: tuple[int, int]
    extents: tuple[int, int, int]
    """m, n, k."""
    leading: tuple[int, int, int]
    """How many elements the columns of the first operand, the second and the result are apart."""


def gemm_of(a: Layout, b: Layout, c: Layout) -> Gemm | None:
    """One call of BLAS that multiplies matrices of these layouts; None where there is none, or nothing to multiply.

    Either the rows or the columns of each must be contiguous. What can be taken for both is taken for what needs no transposition.
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
    """Whether a matrix must be transposed to have contiguous columns, and how far those are apart."""
    for operation, matrix in ((NOT_TRANSPOSED, x), (TRANSPOSED, x.T)):
        apart = _leading(matrix)
        if apart is not None:
            return operation, apart
    return None


def _leading(x: Layout) -> int | None:
    """How many elements the columns of a matrix are apart; None where they are not contiguous, or overlap.

    The stride of an extent of 1 says nothing.
    """
    (rows, columns), (down, along) = x.shape, x.strides
    if rows > 1 and down != x.itemsize:
        return None
    apart, rest = divmod(along, x.itemsize) if columns > 1 else (rows, 0)
    return apart if rest == 0 and rows <= apart <= MOST else None
