"""`matmul_bits`: products over Z/2 of matrices whose elements are packed, eight in a byte."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from math import ceil

from bilinear.backends.caches import Same
from bilinear.errors import fail
from bilinear.frontend import Loaded
from bilinear.ir.matrix import Array, ArrayT
from bilinear.lowering.prepare import require_levels, require_products
from bilinear.methods.bits import BITS, BitProducts, tables_of
from bilinear.runtime.accept import accepted
from bilinear.runtime.options import algorithm_as_it_is

log = logging.getLogger("bilinear")


def matmul_bits(
    a: ArrayT,
    b: ArrayT,
    out: ArrayT | None = None,
    *,
    algorithm: str | Loaded = "classical",
    levels: int = 1,
    stream: AbstractContextManager[object] | None = None,
) -> ArrayT:
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
    tables = None if algorithm == "classical" else tables_of(Same(algorithm_as_it_is(algorithm)))
    require_levels(levels)
    if tables is not None:
        require_products(f"{levels} levels of {tables.name}", len(tables.u) ** levels)
    elif levels != 1:
        raise fail("E514", f"levels={levels} are those of a scheme, and the algorithm is 'classical'", "name a scheme")
    with accepted({"a": a, "b": b}, {"out": out}, stream=stream) as (kind, (left, right), (target,), _):
        _require_packed(left, right, target)
        products = BitProducts(kind.module, kind.on_gpu)
        if tables is None:
            result = products.product(left, right)
        else:
            log.debug("matmul_bits %s by %s: %d level(s) of %s", left.shape, right.shape, levels, tables.name)
            result = products.by_scheme(tables, left, right, levels)
        if out is None:
            given_back: ArrayT = kind.give_back(result)
            return given_back
        target[...] = result
        return out


def _require_packed(a: Array, b: Array, out: Array) -> None:
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
