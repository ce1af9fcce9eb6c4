"""`gram`: a matrix times its own transpose, with half of the work."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Literal

from bilinear.errors import fail
from bilinear.frontend import Loaded, LoadedGram, load_any, names_of_levels
from bilinear.frontend.algorithms import AnyLoaded, of_blocks
from bilinear.ir.element import Element
from bilinear.ir.matrix import Array, ArrayT, Factor
from bilinear.runtime.accept import accepted
from bilinear.runtime.arrays import Kept, Kind, half_of, records_gradients, torch_of, unrecorded
from bilinear.runtime.budgets import Workspace
from bilinear.runtime.gram_blocks import by_scheme, gram_arrays
from bilinear.runtime.options import Accuracy, Named, Options, algorithm_as_it_is, check_options, named_levels

TRIANGLES = "lower", "upper"


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
    if triangle is not None and triangle not in TRIANGLES:
        raise fail("E790", f"triangle={triangle!r} is not a triangle", "give 'lower', 'upper' or, for both, None")
    own: str | Loaded | LoadedGram
    if isinstance(algorithm, LoadedGram) or (isinstance(algorithm, str) and not names_of_levels(algorithm)):
        own = algorithm
    else:
        own, levels = named_levels(algorithm, levels)
    named = own.scheme.name if isinstance(own, LoadedGram) else own
    asked = Options(alpha, beta, named, levels, workspace=workspace, accuracy=accuracy, reproducible=reproducible)
    if isinstance(a, Kept):
        raise fail("E791", "the operand is prepared", "give the array itself")
    torch = torch_of(a, out)
    if torch is None or not records_gradients(torch, a, out):
        element = None if torch is None else half_of(torch, a, a, out)
        result: ArrayT = _on_arrays(a, out, transposed, triangle, own, products, asked, stream, element)
        return result
    names = (own, products)
    plain = (alpha, beta) == (1, 0) and all(x is None for x in (out, workspace, accuracy, stream))
    if not plain or not all(isinstance(name, str) for name in names):
        raise unrecorded("gradients are recorded of A*A^T of a tensor, into a new one, by algorithms that are given by name")
    from bilinear.runtime.torch_operators import as_how, recorded_gram

    is_own = isinstance(_found(own), LoadedGram)
    how = as_how(str(products)) if is_own else as_how(str(own), levels, reproducible)
    forwards = partial(
        gram, transposed=transposed, triangle=triangle, algorithm=own, levels=levels, products=products, reproducible=reproducible
    )
    recorded: ArrayT = recorded_gram(forwards, a, transposed, triangle, how)
    return recorded


def _on_arrays(
    a: Array,
    out: Array,
    transposed: bool,
    triangle: str | None,
    algorithm: str | Loaded | LoadedGram,
    products: str | Loaded,
    asked: Options,
    stream: AbstractContextManager[object] | None,
    element: Element | None,
) -> Array:
    """`gram` of arrays; those of integers hold the bits of an `element` of 16 bits if one is named."""
    check_options(asked, out)
    found = _found(algorithm)
    run: Callable[[Options, Kind, Array, Array, str | None], Array] = partial(gram_arrays, element=element)
    if isinstance(found, LoadedGram):
        if element is not None:
            raise fail(
                "E794", f"{found.scheme.name} forms sums of {element}, which nothing rounds once", "name an algorithm for two matrices"
            )
        run, other = partial(by_scheme, found.scheme), _products(products)
    elif products != "auto":
        hint = "give algorithm='rxtx', or leave products= out"
        raise fail("E794", "products= belongs to an algorithm for A*A^T, and there is none", hint)
    else:
        other = found if isinstance(found, str) else of_blocks(found)
    if element is not None and asked.reproducible is not None:
        raise fail("E821", f"no kernels keep these bits for A*A^T of {element}", "convert the tensor to float32")
    if element is not None and isinstance(asked.accuracy, float | int):
        raise fail("E519", f"no error bound is known for A*A^T of {element}", "leave accuracy= out")
    with accepted({"a": a}, {"out": out}, asked.workspace, stream, bits=element is not None) as (kind, (x,), (target,), buffer):
        result = run(asked._replace(algorithm=other, workspace=buffer), kind, _operand(x, transposed), target, triangle)
        if out is not None:
            return out
        found = kind.give_back(result)
        return found if element is None else found.view(a.dtype)


def _found(algorithm: str | Loaded | LoadedGram) -> AnyLoaded | str:
    """The algorithm, loaded; `auto` itself."""
    return algorithm_as_it_is(algorithm, load_any) if isinstance(algorithm, str) and algorithm != "auto" else algorithm


def _products(algorithm: str | Loaded) -> str | Loaded:
    """What multiplies two matrices, loaded."""
    return algorithm if isinstance(algorithm, Loaded) or algorithm == "auto" else algorithm_as_it_is(algorithm)


def _operand(a: Array, transposed: bool) -> Array:
    """The matrix whose product with its transpose is wanted; refused (E791, E792) if there is none."""
    if a.ndim < 2:
        raise fail("E791", f"an array of {a.ndim} dimension(s) is not a matrix", "give an array of shape (..., n, k)")
    if a.dtype.kind not in "biuf":
        hint = "use matmul with the transpose or its conjugate" if a.dtype.kind == "c" else "use matmul"
        raise fail("E792", f"no A*A^T of {a.dtype}", hint)
    return a.swapaxes(-1, -2) if transposed else a
