"""A matrix in memory as data: its layout and its address; and a call, which multiplies two matrices into a third."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

from bilinear.ir.element import IN_ARRAYS, Element
from bilinear.ir.schedule import IMAGINARY

if TYPE_CHECKING:
    import numpy as np

Array: TypeAlias = Any
"""An array of another library (NumPy, CuPy or any with DLPack), or an element of one; we do not know its type."""


class AnyArray(Protocol):
    """An array of any library, as a caller gives it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""

    @property
    def dtype(self) -> object:
        """The element type, in the words of its library."""


ArrayT = TypeVar("ArrayT", bound=AnyArray)  # The type of the arrays that a caller gives, and gets.
Dtype: TypeAlias = "np.dtype[np.generic]"  # The element type by NumPy; CuPy's arrays have the same.


class Factor(Protocol):
    """alpha or beta: a number of Python or NumPy, or an object that can multiply the elements of an object array."""

    def __mul__(self, other: Array, /) -> Array:
        """Elements times the factor."""


class Layout(NamedTuple):
    """How a matrix lies in memory, or a batch of them: extents (..., rows, columns), strides in bytes, NumPy's dtype."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Dtype

    @property
    def ndim(self) -> int:
        """The number of extents."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(self.dtype.itemsize)

    @property
    def element(self) -> Element | None:
        """The element type, or None if there are no kernels for this dtype and byte order."""
        return IN_ARRAYS.get(str(self.dtype))

    @property
    def T(self) -> Layout:  # noqa: N802  # NumPy's name
        """The layout of the transposed matrix."""
        return Layout(self.shape[::-1], self.strides[::-1], self.dtype)

    @property
    def is_by_column(self) -> bool:
        """Whether the columns of each matrix are contiguous."""
        return bool(self.strides[-2] == self.itemsize != self.strides[-1])

    @property
    def has_gaps(self) -> bool:
        """Whether there are gaps between the elements of each matrix, in both orders (row by row and column by column)."""
        (m, n), size = self.shape[-2:], self.itemsize
        return tuple(self.strides[-2:]) not in ((n * size, size), (size, m * size))

    @property
    def is_contiguous(self) -> bool:
        """Whether all elements are contiguous in the order of their indices; the stride of an extent of 1 does not matter."""
        expected = self.itemsize
        for extent, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if extent > 1 and stride != expected:
                return False
            expected *= extent
        return True

    @property
    def lies_evenly(self) -> bool:
        """Whether it is one matrix with a distance between rows that is a multiple of 16 bytes."""
        return self.ndim == 2 and self.strides[0] % 16 == 0

    @property
    def overlaps_itself(self) -> bool:
        """Whether two elements may share memory: a stride is smaller than the extent of the inner dimensions."""
        return _overlaps_itself(self.shape, self.strides, self.itemsize)

    @property
    def reach(self) -> tuple[int, int]:
        """Bytes from the first element back to the start of the matrix, and on to its end."""
        return _reach(self.shape, self.strides, self.itemsize)


Range = tuple[int, int]  # A half-open range of rows or columns.


class Matrix(NamedTuple):
    """A matrix in memory, or a batch of them: the address of its first element and its layout.

    `memory` is the array itself, cut like the matrix, if a backend computes on arrays (NumPy) or if it must keep the memory alive. For the
    caller's matrices on a GPU it is None.
    """

    address: int
    layout: Layout
    memory: Array = None

    @property
    def T(self) -> Matrix:  # noqa: N802  # NumPy's name
        """The transposed matrix, in the same memory."""
        return Matrix(self.address, self.layout.T, None if self.memory is None else self.memory.T)

    @property
    def parts(self) -> tuple[Matrix, Matrix]:
        """The real and the imaginary parts of complex elements, in the same memory."""
        (shape, strides, dtype), memory = self.layout, self.memory
        layout = Layout(shape, strides, real_type(dtype))
        real, imaginary = (None, None) if memory is None else (memory.real, memory.imag)
        return Matrix(self.address, layout, real), Matrix(self.address + layout.itemsize, layout, imaginary)

    def part(self, rows: Range, columns: Range) -> Matrix:
        """A range of rows and columns, of each matrix of a batch."""
        (*outer, down, along), own = self.layout.strides, (rows[1] - rows[0], columns[1] - columns[0])
        layout = Layout((*self.layout.shape[:-2], *own), (*outer, down, along), self.layout.dtype)
        memory = None if self.memory is None else self.memory[..., slice(*rows), slice(*columns)]
        return Matrix(self.address + rows[0] * down + columns[0] * along, layout, memory)

    def at(self, index: tuple[int, ...]) -> Matrix:
        """The matrix at an index of a batch of products; extents of this operand that are missing or 1 repeat."""
        shape, strides, dtype = self.layout
        own = index[len(index) - (len(shape) - 2) :]
        own = tuple(0 if extent == 1 else i for i, extent in zip(own, shape, strict=False))
        offset = sum(i * stride for i, stride in zip(own, strides, strict=False))
        memory = None if self.memory is None else self.memory[own]
        return Matrix(self.address + offset, Layout(shape[-2:], strides[-2:], dtype), memory)

    def start(self, elements: int) -> Matrix:
        """The first elements of a matrix without gaps, by rows, as a workspace."""
        if not self.layout.is_contiguous:
            raise ValueError("C has gaps, and cannot hold workspaces")
        return Matrix(self.address, flat(elements, self.layout.dtype), None if self.memory is None else self.memory.reshape(-1)[:elements])

    def space(self, offset: int, shape: tuple[int, int], leading: int) -> Matrix:
        """A matrix inside a workspace: it begins at this element, and its rows are `leading` elements apart."""
        dtype, size = self.layout.dtype, self.layout.itemsize
        memory = self.memory
        if memory is not None:
            memory = memory[offset : offset + shape[0] * leading].reshape(shape[0], leading)[:, : shape[1]]
        return Matrix(self.address + offset * size, Layout(shape, (leading * size, size), dtype), memory)


class Call(NamedTuple):
    """c = alpha * a @ b + beta * c, for matrices of one type and factors that are numbers of it; with beta = 0 c is not read.

    `workspace` is a one-dimensional buffer, or None if the executor needs none or allocates it. `given` is a buffer of workspaces that were
    filled before. If the matrices are complex, a, b and c are the real parts, and `imaginary` has the imaginary ones.
    """

    a: Matrix
    b: Matrix
    c: Matrix
    alpha: Factor
    beta: Factor
    workspace: Matrix | None = None
    given: Matrix | None = None
    imaginary: tuple[Matrix, ...] = ()

    @property
    def operands(self) -> dict[str, Matrix]:
        """A, B and C by the names of their spaces, and their imaginary parts."""
        return dict(zip(("A", "B", "C", *IMAGINARY.values()), (self.a, self.b, self.c, *self.imaginary), strict=False))

    def at(self, index: tuple[int, ...]) -> Call:
        """The call on the matrices at an index of the batch."""
        a, b, c = (matrix.at(index) for matrix in (self.a, self.b, self.c))
        return self._replace(a=a, b=b, c=c, imaginary=tuple(matrix.at(index) for matrix in self.imaginary))


def real_type(dtype: Dtype) -> Dtype:
    """The type of the real and the imaginary part of a complex type; any other type itself."""
    return dtype.type(0).real.dtype if dtype.kind == "c" else dtype


@lru_cache(maxsize=1024)
def flat(elements: int, dtype: Dtype) -> Layout:
    """The layout of so many contiguous elements, as of a workspace."""
    return Layout((elements,), (dtype.itemsize,), dtype)


def dense(shape: tuple[int, int], dtype: Dtype, by_columns: bool = False) -> Layout:
    """The layout of a matrix without gaps."""
    (m, n), size = shape, dtype.itemsize
    return Layout(shape, (size, m * size) if by_columns else (n * size, size), dtype)


def indices(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The indices of an array, row by row. NumPy's function stops at 32 dimensions; this one does not."""
    return product(*map(range, shape))


def layout_of(array: Array) -> Layout:
    """The layout of an array of NumPy or CuPy."""
    return Layout(array.shape, array.strides, array.dtype)


def matrix_of(array: Array) -> Matrix:
    """An array of NumPy or CuPy as a matrix; on a GPU the caller keeps the array."""
    host = getattr(array, "__array_interface__", None)
    return Matrix(int(array.data.ptr), layout_of(array)) if host is None else Matrix(host["data"][0], layout_of(array), array)


def is_own_transpose(a: Array, b: Array) -> bool:
    """Whether a matrix of NumPy or CuPy is the transpose of another one, in the same memory."""
    if a.ndim != 2 or a.strides != b.strides[::-1] or a.shape != b.shape[::-1] or a.dtype != b.dtype:
        return False
    return matrix_of(a).address == matrix_of(b).address


def call_of(a: Array, b: Array, c: Array, alpha: Factor = 1, beta: Factor = 0, workspace: Matrix | None = None) -> Call:
    """A call on arrays of NumPy or CuPy."""
    return Call(matrix_of(a), matrix_of(b), matrix_of(c), alpha, beta, workspace)


@lru_cache(maxsize=1024)
def _overlaps_itself(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    if prod(shape) <= 1:
        return False
    reach = itemsize
    for stride, extent in sorted((abs(s), e) for s, e in zip(strides, shape, strict=True) if e > 1):
        if stride < reach:
            return True
        reach += stride * (extent - 1)
    return False


@lru_cache(maxsize=1024)
def _reach(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    moves = [stride * (extent - 1) for stride, extent in zip(strides, shape, strict=True)]
    return sum(min(0, move) for move in moves), sum(max(0, move) for move in moves) + itemsize
