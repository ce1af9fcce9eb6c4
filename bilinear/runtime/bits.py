"""`matmul_bits`: products over Z/2 of matrices whose elements are packed, eight in a byte."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from functools import lru_cache
from math import ceil

from bilinear.backends.bits import BITS, multiply_on_cpu, multiply_on_gpu
from bilinear.backends.caches import Same
from bilinear.errors import fail
from bilinear.frontend import Loaded
from bilinear.ir.matrix import Array
from bilinear.ir.number import residue
from bilinear.lowering.coefficients import require_numbers, require_residues
from bilinear.lowering.prepare import require_levels, require_products
from bilinear.lowering.proofs import proved
from bilinear.runtime.accept import accepted
from bilinear.runtime.arrays import Kind
from bilinear.runtime.named import algorithm_as_it_is

log = logging.getLogger("bilinear")


def matmul_bits(
    a: Array,
    b: Array,
    out: Array = None,
    *,
    algorithm: str | Loaded = "classical",
    levels: int = 1,
    stream: AbstractContextManager[object] | None = None,
) -> Array:
    """A @ B over Z/2, for matrices of bits that are packed along their rows, as `numpy.packbits(x, axis=1)` packs them.

    Sums are taken modulo 2: they are exclusive ors of whole rows. A matrix takes an eighth of the memory of one of bytes.

    Parameters
    ----------
    a : array of uint8, (m, ceil(k / 8))
        A NumPy array, CuPy array or PyTorch tensor. Its k columns are as many as `b` has rows; bits behind them do not count.
    b : array of uint8, (k, w)
        The packed rows of B.
    out : array of uint8, (m, w), optional
        Where to put the result; it may overlap the operands.
    algorithm : str or Algorithm
        "classical", or a scheme that holds over Z/2, such as `walk_444_mod2` with 47 products for 4 x 4 blocks. Blocks are multiplied as
        bits. Where they do not divide the operands, zeros are added.
    levels : int
        The number of levels of the scheme.
    stream : context manager, optional
        The stream of CuPy or PyTorch to run on.

    Returns
    -------
    array of uint8, (m, w)
        The packed rows of the product; bits behind the columns of B are those of its rows, which `numpy.packbits` sets to 0.

    Raises
    ------
    BilinearError
        E800 for arrays that are not packed matrices of fitting shapes, E501, E502 and E514 for levels, E506 and E594 for a scheme that does
        not hold over Z/2.

    Examples
    --------
    >>> import numpy as np
    >>> import bilinear
    >>> a, b = np.eye(3, 20, dtype=np.uint8), np.ones((20, 10), np.uint8)
    >>> c = bilinear.matmul_bits(np.packbits(a, axis=1), np.packbits(b, axis=1))
    >>> bool((np.unpackbits(c, axis=1, count=10) == 1).all())
    True
    """
    tables = None if algorithm == "classical" else _tables(Same(_loaded(algorithm)))
    require_levels(levels)
    if tables is not None:
        require_products(f"{levels} levels of {tables.name}", len(tables.u) ** levels)
    elif levels != 1:
        raise fail("E514", f"levels={levels} are those of a scheme, and the algorithm is 'classical'", "name a scheme")
    with accepted({"a": a, "b": b}, {"out": out}, stream=stream) as (kind, (left, right), (target,), _):
        _require_packed(left, right, target)
        result = _product(kind, left, right) if tables is None else _by_scheme(kind, tables, left, right, levels)
        if target is None:
            return kind.give_back(result)
        target[...] = result
        return out


def _require_packed(a: Array, b: Array, out: Array) -> None:
    """Refuse (E800) what are not packed matrices that can be multiplied."""
    for name, x in (("a", a), ("b", b), ("out", out)):
        if x is not None and (str(x.dtype) != "uint8" or x.ndim != 2):
            what = f"{name} is an array of {x.dtype} with {x.ndim} dimension(s), and packed matrices are of uint8 with two"
            raise fail("E800", what, "pack the rows of a matrix of zeros and ones: numpy.packbits(x, axis=1)")
    k = b.shape[0]
    if a.shape[1] != ceil(k / BITS):
        what = f"a has rows of {a.shape[1]} bytes, and b has {k} rows, which are {ceil(k / BITS)} bytes of bits"
        raise fail("E800", what, "a row of a has a bit for each row of b")
    if out is not None and out.shape != (a.shape[0], b.shape[1]):
        raise fail("E800", f"out is {out.shape[0]} x {out.shape[1]} bytes", f"the result is {a.shape[0]} x {b.shape[1]} bytes")


class _Tables:
    """A scheme over Z/2: its format, and what each product and each block of C adds up, by odd coefficients."""

    def __init__(self, loaded: Loaded) -> None:
        scheme = loaded.scheme
        require_numbers(scheme, proved(scheme), 2)
        require_residues(scheme, (c for table in scheme.tables for row in table for _, c in row), 2)
        self.name, self.sizes = scheme.name, (scheme.m, scheme.k, scheme.n)
        odd = [tuple(tuple(i for i, c in row if residue(c, 2)) for row in table) for table in scheme.tables]
        self.u, self.v, self.w = odd


@lru_cache(maxsize=16)
def _tables(loaded: Same[Loaded]) -> _Tables:
    return _Tables(loaded.what)


def _loaded(algorithm: str | Loaded) -> Loaded:
    return algorithm if isinstance(algorithm, Loaded) else algorithm_as_it_is(str(algorithm))


def _by_scheme(kind: Kind, tables: _Tables, a: Array, b: Array, levels: int) -> Array:
    """The product by levels of a scheme on operands that are filled up with zeros to a multiple of its blocks, bytes of bits."""
    m, k, n = (size**levels for size in tables.sizes)
    (rows, _), (inner, width) = a.shape, b.shape
    whole = ceil(inner / (BITS * k)) * k
    left = _padded(kind, a, ceil(rows / m) * m, whole)
    right = _padded(kind, b, whole * BITS, ceil(width / n) * n)
    log.debug("matmul_bits %s by %s: %d level(s) of %s", a.shape, b.shape, levels, tables.name)
    return kind.module.ascontiguousarray(_level(kind, tables, left, right, levels)[:rows, :width])


def _level(kind: Kind, tables: _Tables, a: Array, b: Array, levels: int) -> Array:
    """One product after another, each added to the blocks of C that need it; sums of blocks are exclusive ors."""
    if levels == 0:
        return _product(kind, a, b)
    m, k, n = tables.sizes
    left, right = _blocks(a, m, k), _blocks(b, k, n)
    result = kind.module.zeros((a.shape[0], b.shape[1]), "uint8")
    targets = _blocks(result, m, n)
    for p, (u, v) in enumerate(zip(tables.u, tables.v, strict=True)):
        places = [target for row, target in zip(tables.w, targets, strict=True) if p in row]
        if u and v and places:
            product = _level(kind, tables, _sum(left, u), _sum(right, v), levels - 1)
            for place in places:
                place[...] ^= product
    return result


def _product(kind: Kind, a: Array, b: Array) -> Array:
    """The product without a scheme."""
    if not kind.on_gpu:
        return multiply_on_cpu(a, b)
    a, b = (x if x.strides[1] == 1 else kind.module.ascontiguousarray(x) for x in (a, b))
    result = kind.module.empty((a.shape[0], b.shape[1]), "uint8")
    if result.size:
        multiply_on_gpu(a, b, result)
    return result


def _padded(kind: Kind, x: Array, rows: int, width: int) -> Array:
    """A matrix with zeros behind its rows and columns; itself if there are none."""
    if x.shape == (rows, width):
        return x
    padded = kind.module.zeros((rows, width), "uint8")
    padded[: x.shape[0], : x.shape[1]] = x
    return padded


def _blocks(x: Array, rows: int, columns: int) -> list[Array]:
    """The blocks of a matrix, row by row, as views."""
    height, width = x.shape[0] // rows, x.shape[1] // columns
    return [x[i * height : (i + 1) * height, j * width : (j + 1) * width] for i in range(rows) for j in range(columns)]


def _sum(blocks: list[Array], chosen: tuple[int, ...]) -> Array:
    """The sum of some blocks over Z/2; a single block itself."""
    total = blocks[chosen[0]]
    for number in chosen[1:]:
        total = total ^ blocks[number]
    return total
