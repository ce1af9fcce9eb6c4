"""`einsum` and `tensordot`: sums over letters as matrix products. Operands are only turned and reshaped before and after `matmul`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TypeAlias, Unpack

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from bilinear.backends.capture import is_captured, not_captured
from bilinear.errors import ArrayTypeError, fail
from bilinear.ir.matrix import Array, Dtype, layout_of
from bilinear.runtime.accept import accepted, check_apart, check_out, is_writable
from bilinear.runtime.arrays import multiplies_itself
from bilinear.runtime.labelled import Labelled, Work, diagonal, product, summed, without_ones, written
from bilinear.runtime.matmul import matmul
from bilinear.runtime.multiply import looked_at
from bilinear.runtime.options import ProductOptions, check_levels
from bilinear.runtime.subscripts import Contraction, Labels, Shape, as_text, extents_of, read_subscripts

Axes: TypeAlias = int | Sequence[int] | Sequence[Sequence[int]]
"""A number of axes, or the axes of the first operand and those of the second."""


def einsum(subscripts: str, *operands: Array, out: Array = None, **options: Unpack[ProductOptions]) -> Array:
    """The sum that `numpy.einsum` gives, by `matmul`: `einsum("bij,bjk->bik", a, b)` is a batch of products.

    Two operands are one product: the letters that both have and the result lacks are summed over, and the letters that all three have
    count the matrices of a batch. Operands are turned and reshaped, which copies only those whose letters cannot be joined where they
    lie. Letters of a single operand that the result lacks are summed over beforehand. If there is no letter to sum over, elements are
    multiplied. More operands are multiplied two at a time, in the order that `numpy.einsum_path` finds greedily, with intermediates in
    new memory.

    Parameters
    ----------
    subscripts : str
        Letters, "..." and "->", with their meaning in `numpy.einsum`. Repeated letters take the diagonal.
    operands : arrays
        Arrays of one kind: NumPy's, CuPy's, or of any library that speaks DLPack; PyTorch's tensors run on its current stream.
    out : array, optional
        Where the result is written; it has the shape of the result, and a type that can hold it.
    options
        `algorithm`, `levels`, `inputs`, `workspace`, `tolerance` and `accuracy` of `matmul`, for every product. An operand that is copied
        or summed beforehand is not written, whatever `inputs` says. Copies are not counted as workspace.

    Returns
    -------
    array
        `out` if it is given; it may be a view of a single operand.

    Raises
    ------
    BilinearError
        E730 to E733, E536 while a stream is captured in a CUDA graph, and what `matmul` raises.

    Examples
    --------
    >>> import numpy as np
    >>> import bilinear
    >>> a, b = np.arange(6).reshape(2, 3), np.arange(12).reshape(4, 3)
    >>> bilinear.einsum("ij,kj->ik", a, b, algorithm="strassen", levels=1)
    array([[  5,  14,  23,  32],
           [ 14,  50,  86, 122]])
    """
    return _contract(read_subscripts(subscripts, [_shape(x) for x in operands]), operands, out, options)


def tensordot(a: Array, b: Array, axes: Axes = 2, **options: Unpack[ProductOptions]) -> Array:
    """The sum over `axes` that `numpy.tensordot` gives, as one `matmul`.

    Parameters
    ----------
    a, b : array
        As in `einsum`.
    axes : int or pair of sequences
        A number, for the last axes of `a` and the first ones of `b`, or the axes of `a` and those of `b`.
    options
        As in `einsum`.

    Returns
    -------
    array

    Raises
    ------
    BilinearError
        E731 for axes that do not fit, and what `einsum` raises.

    Examples
    --------
    >>> import numpy as np
    >>> import bilinear
    >>> bilinear.tensordot(np.ones((2, 3, 4)), np.ones((3, 4, 5)), algorithm="winograd", levels=1)[0]
    array([12., 12., 12., 12., 12.])
    """
    shapes = _shape(a), _shape(b)
    summed = _axes(axes, shapes)
    left, right = ([f"{name}{axis}" for axis in range(len(shape))] for name, shape in zip("ab", shapes, strict=True))
    for one, other in zip(*summed, strict=True):
        right[other] = left[one]
    kept = [label for labels, used in zip((left, right), summed, strict=True) for axis, label in enumerate(labels) if axis not in used]
    return _contract(Contraction((tuple(left), tuple(right)), tuple(kept)), (a, b), None, options)


def transpose(a: Array, axes: Sequence[int]) -> Array:
    """The array with its axes in this order, which opt_einsum asks its backends for; PyTorch's own `transpose` exchanges two axes."""
    return a.permute(*axes) if hasattr(a, "permute") else a.transpose(axes)


def _shape(array: Array) -> Shape:
    if array is None:
        raise fail("E518", "an operand is None", "give an array", kind=ArrayTypeError)
    return tuple(array.shape) if hasattr(array, "shape") else np.shape(array)


def _axes(axes: Axes, shapes: tuple[Shape, Shape]) -> tuple[Shape, Shape]:
    """The axes of both operands, counted from 0; refused (E731) if they are none, or if their extents differ."""
    pair = (range(-int(axes), 0), range(int(axes))) if isinstance(axes, int | np.integer) and axes >= 0 else axes
    try:
        one, other = (normalize_axis_tuple(own, len(shape)) for own, shape in zip(pair, shapes, strict=True))  # type: ignore[arg-type]
        fits = [shapes[0][axis] for axis in one] == [shapes[1][axis] for axis in other]
    except (TypeError, ValueError):
        fits = False
    if not fits:
        message = f"arrays of shapes {shapes[0]} and {shapes[1]} cannot be summed over axes={axes!r}"
        raise fail("E731", message, "give a number of axes, or as many axes of a as of b, of the same extents")
    return one, other


def _contract(contraction: Contraction, given: Sequence[Array], out: Array, options: ProductOptions) -> Array:
    """The sum, as an array of the operands' kind."""
    unknown = next((name for name in options if name not in ProductOptions.__annotations__), None)
    if unknown is not None:
        raise TypeError(f"einsum() got an unexpected keyword argument {unknown!r}")
    check_levels(options.get("levels", "auto"), options.get("algorithm", "auto"))
    plain = [np.asarray(x) if isinstance(x, np.ndarray) and not multiplies_itself(x) else x for x in given]
    named = {f"operand {at}": x for at, x in enumerate(plain, 1)}
    with accepted(named, {"out": out}, options.get("workspace")) as (kind, arrays, (target,), buffer):
        if buffer is not None:
            options = {**options, "workspace": buffer}
        if kind.on_gpu and is_captured():
            hint = "turn and reshape them before the capture, and call matmul with out="
            raise not_captured("operands may have to be copied, in memory from the pool", hint)
        extents = extents_of(contraction, [x.shape for x in arrays])
        dtype = np.result_type(*(x.dtype for x in arrays))
        if target is not None:
            check_out(layout_of(target), (), tuple(extents[label] for label in contraction.result), dtype)
        parts = [without_ones(diagonal(Labelled(x, labels)), extents) for x, labels in zip(arrays, contraction.operands, strict=True)]
        _check_named(contraction, parts, options)
        if options.get("inputs") == "consume":
            check_apart(arrays)
        if options.get("inputs", "preserve") != "preserve" and len(parts) > 2:  # no later product may be refused after the first one wrote
            _reduced(list(parts), contraction.result, dtype, target, Work(partial(looked_at, kind, **options), False))
        result = _reduced(parts, contraction.result, dtype, target, Work(partial(matmul, **options)))
        if out is not None:
            return out
        return kind.give_back(result if is_writable(result) else result.copy())  # DLPack exports no read-only view


def _check_named(contraction: Contraction, parts: Sequence[Labelled], options: ProductOptions) -> None:
    """Refuse (E732) a named algorithm if no product sums over anything."""
    held = [label for part in parts for label in part.labels]
    if options.get("algorithm", "auto") != "auto" and not any(held.count(label) > 1 for label in set(held).difference(contraction.result)):
        message = "an algorithm is named, and nothing here is a matrix product: no two operands share a letter that is summed over"
        raise fail("E732", message, "leave algorithm= out")


def _reduced(parts: list[Labelled], result: Labels, dtype: Dtype, target: Array, work: Work) -> Array:
    """The sum of all parts over the labels that the result lacks, in `target` if that is given and written."""
    for first, second in _path(parts, result):
        right, left = parts.pop(second), parts.pop(first)
        rest = {label for part in parts for label in part.labels}.union(result)
        x, y = summed(left, rest.union(right.labels), dtype), summed(right, rest.union(left.labels), dtype)
        wanted = tuple(label for label in dict.fromkeys(x.labels + y.labels) if label in rest) if parts else result
        parts.append(Labelled(product(x, y, wanted, dtype, None if parts else target, work), wanted))
    (last,) = parts
    if last.array is target or not work.writes:
        return target
    return written(summed(last, result, dtype).in_order(result), target)


def _path(parts: Sequence[Labelled], result: Labels) -> Iterator[tuple[int, int]]:
    """Which two parts are multiplied, step by step, by their places; the product comes last."""
    if len(parts) < 3:
        yield from [(0, 1)] * (len(parts) - 1)
        return
    text = as_text(Contraction(tuple(part.labels for part in parts), result))
    steps, _ = np.einsum_path(text, *(np.broadcast_to(np.float64(), part.array.shape) for part in parts), optimize="greedy")
    count = len(parts)
    for step in steps[1:]:
        places = sorted(step)
        while len(places) > 1:
            first, second = places[:2]
            yield first, second
            count -= 1
            places = sorted([*(place - 2 for place in places[2:]), count - 1])
