"""`matmul` of Dask's arrays: a fast scheme on blocks of chunks, as a graph of tasks that Dask schedules, moves, spills and repeats."""

from __future__ import annotations

from functools import partial
from math import isnan
from typing import TYPE_CHECKING, Literal

import numpy as np

from bilinear.backends.array_sums import added_up, evaluate
from bilinear.errors import fail, install
from bilinear.frontend import Loaded
from bilinear.ir.linear import Form
from bilinear.ir.matrix import Array
from bilinear.ir.scheme import Scheme
from bilinear.lowering.prepare import ready, require_levels, require_products
from bilinear.runtime.matmul import matmul as multiply_here
from bilinear.runtime.options import Options, algorithm_as_it_is, check_options
from bilinear.runtime.same_bits import require_same_bits

if TYPE_CHECKING:
    import dask.array as da

__all__ = ["matmul"]

KINDS = "iufc"  # NumPy's letters of the element types that are multiplied.


def __dir__() -> list[str]:
    return __all__


def matmul(
    x: da.Array,
    y: da.Array,
    *,
    algorithm: str | Loaded | None = None,
    levels: int | None = None,
    local: str = "auto",
    local_levels: int | str = "auto",
    reproducible: Literal["bitwise"] | None = None,
) -> da.Array:
    """x @ y as a lazy array of Dask: nothing is computed yet.

    The scheme multiplies blocks of the whole matrices. Chunks may have any sizes: the matrices are padded with zeros and cut anew, into
    equal chunks about as large as before, so that a block of the scheme is a number of whole chunks. A task adds up one chunk of a sum of
    blocks, or multiplies two chunks; sums over k go chunk by chunk. Chunks are NumPy's or CuPy's.

    Dask decides where and when tasks run: slower workers get fewer, chunks that do not fit into memory are spilled, and what a lost worker
    held is computed again.

    Parameters
    ----------
    x : dask array of shape (m, k)
        The left operand.
    y : dask array of shape (k, n)
        The right operand.
    algorithm : str or Algorithm, optional
        The scheme for blocks of the matrices; by default winograd.
    levels : int, optional
        Its levels, by default 1; 0 is the classical multiply, chunk by chunk.
    local : str
        What multiplies two chunks, as `algorithm` of `bilinear.matmul`.
    local_levels : int or "auto"
        The levels of that.
    reproducible : "bitwise", optional
        The bits of `bilinear.matmul` with it, whatever the chunks: a task multiplies whole rows by whole columns, without a scheme.

    Returns
    -------
    dask array of shape (m, n)
        Of the type that `numpy.matmul` gives.

    Raises
    ------
    BilinearError
        E770 if Dask is not installed, E771 for what is not a matrix of known chunks, E528 for a type that cannot hold the scheme's
        coefficients, E820 and E821 for bits that nothing promises, and what `bilinear.load` raises.

    Examples
    --------
    >>> import dask.array
    >>> import bilinear.dask
    >>> x = dask.array.ones((4, 4), chunks=2)
    >>> bilinear.dask.matmul(x, x, algorithm="strassen", levels=1).sum().compute().item()
    64.0
    """
    try:
        import dask.array
    except ImportError as error:
        raise fail("E770", f"dask.array is not usable: {error}", install("dask")) from None
    for name, operand in (("x", x), ("y", y)):
        _check(name, operand, dask.array.Array)
    if x.shape[1] != y.shape[0]:
        raise fail("E771", f"x has {x.shape[1]} columns, and y {y.shape[0]} rows", "they must be as many")
    dtype = np.result_type(x.dtype, y.dtype)
    if reproducible is not None:
        check_options(Options(algorithm=local, levels=local_levels, reproducible=reproducible), None)  # type: ignore[arg-type]
        require_same_bits(dtype, on_gpu=False)
        if algorithm is not None or levels not in (None, 0):
            raise fail("E820", "reproducible= adds no blocks, whose sums would be rounded", "leave algorithm= and levels= out")
        keep = partial(_multiplied, algorithm="auto", levels="auto", reproducible=reproducible)
        return _by_chunks(x.astype(dtype).rechunk({1: -1}), y.astype(dtype).rechunk({0: -1}), keep)
    levels = 1 if levels is None else levels
    if not isinstance(levels, int) or isinstance(levels, bool) or levels < 0:
        raise fail("E771", f"levels={levels!r} is not a number of levels", "give 0, or how many levels of the scheme")
    named = algorithm_as_it_is("winograd" if algorithm is None else algorithm)
    require_levels(max(1, levels))
    require_products(f"{levels} levels of {named.name}", named.scheme.rank**levels)
    scheme = ready(named.scheme, dtype)
    multiply = partial(_multiplied, algorithm=local, levels=local_levels)
    parts = scheme.m**levels, scheme.k**levels, scheme.n**levels
    sizes = _chunk(x, 0, parts[0]), max(_chunk(x, 1, parts[1]), _chunk(y, 0, parts[1])), _chunk(y, 1, parts[2])
    left = _cut(x.astype(dtype), parts[:2], sizes[:2])
    right = _cut(y.astype(dtype), parts[1:], sizes[1:])
    return _product(left, right, scheme, levels, multiply)[: x.shape[0], : y.shape[1]]


def _check(name: str, operand: object, kind: type[da.Array]) -> None:
    if not isinstance(operand, kind) or operand.ndim != 2:
        what = f"an array of {operand.ndim} dimensions" if isinstance(operand, kind) else type(operand).__name__
        raise fail("E771", f"{name} is {what}", "matmul multiplies matrices, as arrays of dask.array")
    if operand.dtype.kind not in KINDS:
        raise fail("E771", f"{name} is of {operand.dtype}", "matmul multiplies integers and floating-point numbers")
    if any(isnan(extent) for extent in operand.shape):
        raise fail("E771", f"{name} has chunks of unknown sizes", "x.compute_chunk_sizes() finds them")
    if 0 in operand.shape:
        raise fail("E771", f"{name} has the shape {operand.shape}", "give a matrix with elements")


def _chunk(x: da.Array, axis: int, parts: int) -> int:
    """The extent of equal chunks about as large as the largest ones along an axis, of which each of `parts` blocks is some whole ones."""
    block: int = -(-x.shape[axis] // parts)
    count: int = max(1, round(block / max(x.chunks[axis])))
    return -(-block // count)


def _cut(x: da.Array, parts: tuple[int, int], sizes: tuple[int, int]) -> da.Array:
    """The matrix in chunks of these extents, padded so that each block is some whole ones."""
    import dask.array

    wider = tuple((0, -extent % (part * size)) for extent, part, size in zip(x.shape, parts, sizes, strict=True))
    return dask.array.pad(x, wider).rechunk(sizes) if any(map(any, wider)) else x.rechunk(sizes)


def _product(x: da.Array, y: da.Array, scheme: Scheme, levels: int, multiply: partial[Array]) -> da.Array:
    import dask.array

    if not levels:
        return _by_chunks(x, y, multiply)
    factors = (
        evaluate(scheme.u, _blocks(x, scheme.m, scheme.k), _sum_of),
        evaluate(scheme.v, _blocks(y, scheme.k, scheme.n), _sum_of),
    )
    products = [_product(left, right, scheme, levels - 1, multiply) for left, right in zip(*factors, strict=True)]
    blocks = evaluate(scheme.w, products, _sum_of)
    return dask.array.block([blocks[at : at + scheme.n] for at in range(0, len(blocks), scheme.n)])


def _blocks(x: da.Array, rows: int, columns: int) -> list[da.Array]:
    """The blocks of a matrix, row by row, each some whole chunks."""
    height, width = x.numblocks[0] // rows, x.numblocks[1] // columns
    return [x.blocks[i * height : (i + 1) * height, j * width : (j + 1) * width] for i in range(rows) for j in range(columns)]


def _sum_of(form: Form, values: list[da.Array]) -> da.Array:
    """A linear form of blocks: one task a chunk."""
    import dask.array

    if len(form) == 1 and form[0][1] == 1:
        return values[form[0][0]]
    terms = [values[index] for index, _ in form] or values[:1]
    renumbered = tuple((at, c) for at, (_, c) in enumerate(form))
    return dask.array.map_blocks(_summed, *terms, form=renumbered, token="sum", dtype=terms[0].dtype, meta=terms[0]._meta)


def _summed(*chunks: Array, form: Form) -> Array:
    return added_up(form, list(chunks))


def _by_chunks(x: da.Array, y: da.Array, multiply: partial[Array]) -> da.Array:
    """The classical product of chunks: along k one chunk after another is multiplied and added."""
    import dask.array

    total, options = None, {"dtype": x.dtype, "meta": x._meta, "align_arrays": False, "token": "multiply"}
    for at in range(x.numblocks[1]):
        operands = x.blocks[:, at], "ik", y.blocks[at, :], "kj"
        total = dask.array.blockwise(multiply, "ij", *operands, *(() if total is None else (total, "ij")), **options)
    return total


def _multiplied(
    x: list[Array], y: list[Array], total: Array = None, *, algorithm: str, levels: int | str, reproducible: str | None = None
) -> Array:
    """A product of two chunks, added to a total; along k Dask gives lists, of one chunk here."""
    found = multiply_here(x[0], y[0], algorithm=algorithm, levels=levels, reproducible=reproducible)  # type: ignore[arg-type]
    return found if total is None else total + found
