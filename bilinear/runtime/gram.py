"""`gram`: a matrix times its own transpose, with half of the work."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Literal

from bilinear.errors import fail
from bilinear.frontend import Loaded, LoadedGram
from bilinear.ir.matrix import ArrayT, Factor
from bilinear.runtime.arrays import Kept, is_plain, records_gradients, torch_of, unrecorded, untraced
from bilinear.runtime.budgets import Workspace
from bilinear.runtime.gram_blocks import gram_of_array
from bilinear.runtime.options import Accuracy, Named, Options, spelled


def gram(
    a: ArrayT,
    out: ArrayT | None = None,
    *,
    transposed: bool = False,
    alpha: Factor = 1,
    beta: Factor = 0,
    triangle: Literal["lower", "upper"] | None = None,
    algorithm: Named | LoadedGram = "auto",
    levels: int | Literal["auto"] = "auto",
    products: str | Loaded = "auto",
    workspace: Workspace = None,
    accuracy: Accuracy = None,
    reproducible: Literal["bitwise"] | None = None,
    stream: AbstractContextManager[object] | None = None,
) -> ArrayT:
    """alpha * a @ a.T + beta * out, or with `transposed` alpha * a.T @ a + beta * out, in about half the work of `matmul`.

    The result is symmetric bit by bit: one triangle is computed, and copied to the other, or left out. The same call on the same machine
    gives the same bits. Inf and NaN spread as in `matmul`.

    Parameters
    ----------
    a : array of shape (..., n, k)
        Integers or floats from NumPy, CuPy, PyTorch or any library that speaks DLPack. Gradients of a tensor are recorded if nothing but
        `transposed`, `triangle` and algorithms by name are given (E516).
    out : array of shape (..., n, n), optional
        Where the result is written. It may overlap `a`, which is copied then. By default a new array of the same kind.
    transposed : bool
        Compute a.T @ a of shape (..., k, k) instead. Nothing is copied for it.
    alpha : number
        As in `matmul`.
    beta : number
        As in `matmul`. `out` is taken to be symmetric: only one triangle of it is read, the one named or else the lower one.
    triangle : {"lower", "upper"}, optional
        Write only this triangle, with the diagonal. The other one of `out` is left as it is, and is 0 in a new array. Default: both.
    algorithm : str or Algorithm or sequence of them
        As in `matmul`, for the blocks below the diagonal; if you name one, the library multiplies those on the diagonal. `auto` also
        chooses the blocks, by the description of the GPU or of the processors. Without a description, NumPy's multiply runs, which
        computes one triangle by itself. An algorithm for A*A^T, such as `rxtx`, multiplies some blocks by their own transposes, which is
        the same problem again (docs/how-to/gram.md).
    levels : int or "auto"
        As in `matmul`; for an algorithm for A*A^T, how often it is applied to these smaller problems.
    products : str or Algorithm
        With an algorithm for A*A^T, what multiplies two matrices: as `algorithm` of `matmul`.
    workspace : int or str or array, optional
        As in `matmul`, for each block; an algorithm for A*A^T keeps its sums in it, too. A copy of `a` counts; buffers that do not grow
        with the problem do not.
    accuracy : float or "classical" or "twice", optional
        As in `matmul`, for each block. On processors the library must keep it, too (E519).
    reproducible : "bitwise", optional
        As in `matmul`: each element has the bits of `matmul(a, a.T, reproducible="bitwise")`.
    stream : stream, optional
        As in `matmul`.

    Returns
    -------
    array of shape (..., n, n)
        `out` if it is given.

    Raises
    ------
    BilinearError
        E790 for a wrong `triangle`, E791 for operands that have no such product, E792 for types without one, E794 for a scheme that cannot
        run, E536 while a stream is captured, and what `matmul` raises.

    Examples
    --------
    >>> import numpy as np
    >>> import bilinear
    >>> a = np.arange(6).reshape(2, 3)
    >>> bilinear.gram(a)
    array([[ 5, 14],
           [14, 50]])
    >>> bilinear.gram(a, transposed=True, triangle="lower")
    array([[ 9,  0,  0],
           [12, 17,  0],
           [15, 22, 29]])
    """
    if triangle not in ("lower", "upper", None):
        raise fail("E790", f"triangle={triangle!r} is not a triangle", "give 'lower', 'upper' or, for both, None")
    if isinstance(a, Kept):
        raise fail("E791", "the operand is prepared", "give the array itself")
    asked = Options(alpha, beta, "auto", levels, workspace=workspace, accuracy=accuracy, reproducible=reproducible)
    torch = torch_of(a, out)
    records = torch is not None and records_gradients(torch, a, out)
    if torch is None or (not records and is_plain(torch, a, out)):
        result: ArrayT = gram_of_array(a, out, transposed, triangle, algorithm, products, asked, stream)
        return result
    own = algorithm if isinstance(algorithm, LoadedGram) else spelled(algorithm)
    is_plain_call = asked._replace(levels="auto", reproducible=None) == Options() and out is None and stream is None
    if not (is_plain_call and isinstance(own, str) and isinstance(products, str)):
        what = "A*A^T of a tensor, into a new one, by algorithms that are given by name"
        raise unrecorded(f"gradients are recorded of {what}") if records else untraced(what)
    from bilinear.runtime.torch_operators import as_how, recorded_gram

    recorded: ArrayT = recorded_gram(a, transposed, triangle, as_how(own, levels, reproducible), products)
    return recorded
