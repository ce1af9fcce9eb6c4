"""`einsum` and `tensordot`: sums over letters as matrix products. Operands are only turned and reshaped before and after `matmul`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from math import prod
from string import ascii_letters, ascii_lowercase, ascii_uppercase
from typing import NamedTuple, TypeAlias, Unpack, overload

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from bilinear.backends.capture import is_captured, not_captured
from bilinear.errors import ArrayTypeError, BilinearError, fail
from bilinear.ir.matrix import Array, ArrayT, Dtype, layout_of
from bilinear.runtime.accept import Casting, accepted, check_apart, check_out, in_types, is_writable, shares_memory
from bilinear.runtime.arrays import multiplies_itself
from bilinear.runtime.matmul import matmul
from bilinear.runtime.multiply import looked_at
from bilinear.runtime.options import ProductOptions, check_levels

Labels = tuple[str, ...]
"""A label for each dimension of an array: a letter, or a name such as `.1` for what an ellipsis stands for, counted from the right."""
Shape = tuple[int, ...]


class Contraction(NamedTuple):
    """The labels of every operand and of the result. Labels that the result lacks are summed over."""

    operands: tuple[Labels, ...]
    result: Labels


def read_subscripts(subscripts: str, shapes: Sequence[Shape]) -> Contraction:
    """The labels of operands of these shapes. Refuses (E730) subscripts without a meaning, and (E731) ones for other operands."""
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise fail("E731", f"{subscripts!r} names {len(terms)} operand(s), and {len(shapes)} are given", "give a term for each operand")
    operands = tuple(_labels(subscripts, term, len(shape)) for term, shape in zip(terms, shapes, strict=True))
    spread = sorted({x for labels in operands for x in labels if x.startswith(".")}, key=lambda label: -int(label[1:]))  # from the left
    counts = Counter(label for labels in operands for label in labels if not label.startswith("."))
    if not arrow:
        return Contraction(operands, (*spread, *sorted(label for label, count in counts.items() if count == 1)))
    head, dots, tail = _split(subscripts, right)
    if spread and not dots:
        raise _meaningless(subscripts, "the result has no ellipsis for the dimensions that one stands for")
    twice = next((label for label, count in Counter(head + tail).items() if count > 1), None)
    unknown = next((label for label in head + tail if label not in counts), None)
    if twice is not None or unknown is not None:
        raise _meaningless(subscripts, f"the result has {twice} twice" if twice else f"no operand has {unknown}, which the result has")
    return Contraction(operands, (*head, *spread, *tail))


def extents_of(contraction: Contraction, shapes: Iterable[Shape]) -> dict[str, int]:
    """The extent of every label; refuses (E731) those that differ, but 1 fits everything between operands, as in NumPy."""
    extents: dict[str, int] = {}
    for labels, shape in zip(contraction.operands, shapes, strict=True):
        own: dict[str, int] = {}
        for label, extent in zip(labels, shape, strict=True):
            if own.setdefault(label, extent) != extent:
                raise _differ(label, own[label], extent)
        for label, extent in own.items():
            known = extents.get(label, 1)
            if extent not in (1, known) and known != 1:
                raise _differ(label, known, extent)
            extents[label] = extent if known == 1 else known
    return extents


def _labels(subscripts: str, term: str, dimensions: int) -> Labels:
    head, dots, tail = _split(subscripts, term)
    spread = dimensions - len(head) - len(tail)
    if spread < 0 or (spread > 0 and not dots):
        count = f"at least {len(head) + len(tail)}" if dots else str(len(head) + len(tail))
        raise fail("E731", f"{term!r} is for {count} dimension(s), and the operand has {dimensions}", "give a letter for each dimension")
    return (*head, *(f".{number}" for number in range(spread, 0, -1)), *tail)


def _split(subscripts: str, term: str) -> tuple[Labels, bool, Labels]:
    """The letters before an ellipsis, whether there is one, and the letters after it."""
    head, dots, tail = term.partition("...")
    strange = next((sign for sign in head + tail if sign not in ascii_letters), None)
    if strange is not None:
        raise _meaningless(subscripts, f"{strange!r} stands where a letter or an ellipsis should")
    return tuple(head), bool(dots), tuple(tail)


def _meaningless(subscripts: str, why: str) -> BilinearError:
    return fail("E730", f"{subscripts!r} has no meaning: {why}", 'write letters, commas, "..." and one "->", such as "...ij,jk->...ik"')


def _differ(label: str, one: int, other: int) -> BilinearError:
    name = f"what an ellipsis stands for (dimension {label[1:]} from the right)" if label.startswith(".") else label
    return fail("E731", f"the extents {one} and {other} of {name} differ", "give operands whose extents agree")


class Work(NamedTuple):
    """How a sum is carried out: its multiply of a and b into where the result goes (None for a new array), and whether products of elements
    are written there.
    """

    multiply: Callable[[Array, Array, Array], Array]
    writes: bool = True


class Labelled(NamedTuple):
    """An array, and a label for each of its dimensions."""

    array: Array
    labels: Labels

    def axes(self, labels: Iterable[str]) -> list[int]:
        """The places of labels."""
        return [self.labels.index(label) for label in labels]

    def in_order(self, labels: Labels) -> Array:
        """A view with the dimensions in this order."""
        return self.array.transpose(*self.axes(labels))


def diagonal(part: Labelled, extents: Mapping[str, int]) -> Labelled:
    """A view in which every label stands once, without the dimensions of extent 1 whose label has another extent: they fit everything."""
    array, labels = part
    while (twice := next((label for label in labels if labels.count(label) > 1), None)) is not None:
        first = labels.index(twice)
        second = labels.index(twice, first + 1)
        array = array.diagonal(axis1=first, axis2=second)  # its dimension is the last one
        labels = (*(label for axis, label in enumerate(labels) if axis not in (first, second)), twice)
    return _first(Labelled(array, labels), [axis for axis, size in enumerate(array.shape) if size == 1 != extents[labels[axis]]])


def summed(part: Labelled, kept: Collection[str], dtype: Dtype) -> Labelled:
    """The sum over all labels but those to be kept, in this type."""
    axes = tuple(axis for axis, label in enumerate(part.labels) if label not in kept)
    if not axes:
        return part
    total = part.array.sum(axis=axes, dtype=dtype, keepdims=True)  # without dimensions NumPy gives a number, which is not an array
    return _first(Labelled(total, part.labels), axes)


def product(left: Labelled, right: Labelled, wanted: Labels, dtype: Dtype, target: Array, work: Work) -> Array:
    """The product with the `wanted` labels in order, in `target` if given; a label that one operand has must be wanted."""
    if np.result_type(left.array.dtype, right.array.dtype) != dtype:
        left = Labelled(left.array.astype(dtype), left.labels)
    shared = [label for label in left.labels if label in right.labels and label not in wanted]
    if not shared:
        x, y = (own.in_order(tuple(label for label in wanted if label in own.labels))[_spread(own, wanted)] for own in (left, right))
        return written((x * y)[..., 0], target if work.writes else None)
    batch = tuple(label for label in wanted if label in left.labels and label in right.labels)
    rows = _as_they_lie(left, [label for label in left.labels if label not in right.labels])
    columns = _as_they_lie(right, [label for label in right.labels if label not in left.labels])
    inner = min((_as_they_lie(x, shared) for x in (left, right)), key=lambda order: _copied(left, order) + _copied(right, order))
    x, y = _joined(left, batch, rows, inner), _joined(right, batch, inner, columns)
    lying = (*batch, *rows, *columns)
    place = None if target is None else Labelled(target, wanted)
    if place is not None and _joins(place, rows) and _joins(place, columns):
        work.multiply(x, y, _joined(place, batch, rows, columns))
        return target
    extents = {label: size for own in (left, right) for label, size in zip(own.labels, own.array.shape, strict=True)}
    found = work.multiply(x, y, None).reshape(tuple(extents[label] for label in lying))
    return written(Labelled(found, lying).in_order(wanted), target if work.writes else None)


def written(array: Array, target: Array) -> Array:
    """The array, or `target` with its elements, which may share memory with it."""
    if target is None:
        return array
    target[...] = array.copy() if shares_memory(array, target) else array
    return target


def _first(part: Labelled, axes: Collection[int]) -> Labelled:
    """A view without some dimensions, at index 0 of each."""
    array, labels = part
    kept = tuple(label for axis, label in enumerate(labels) if axis not in axes)
    return Labelled(array[(..., *(0 if axis in axes else slice(None) for axis in range(array.ndim)))], kept)  # `...`: an array, no number


def _spread(part: Labelled, wanted: Labels) -> tuple[object, ...]:
    """The index that gives an array a dimension of extent 1 for each wanted label that it lacks, and one more at the end.

    With that the product of two numbers is an array, too.
    """
    return (..., *(slice(None) if label in part.labels else None for label in wanted), None)


def _as_they_lie(part: Labelled, labels: Sequence[str]) -> Labels:
    """Labels in the order in which their dimensions lie in memory, the farthest apart first."""
    return tuple(sorted(labels, key=lambda label: -abs(part.array.strides[part.labels.index(label)])))


def _joins(part: Labelled, labels: Labels) -> bool:
    """Whether dimensions can be joined to one where they lie."""
    known = [(part.array.strides[axis], part.array.shape[axis]) for axis in part.axes(labels)]
    return all(outer == inner * size for (outer, _), (inner, size) in pairwise([x for x in known if x[1] != 1]))


def _copied(part: Labelled, labels: Labels) -> int:
    """How many elements are copied if these dimensions are joined in this order."""
    return 0 if _joins(part, labels) else int(part.array.size)


def _joined(part: Labelled, batch: Labels, rows: Labels, columns: Labels) -> Array:
    """A matrix, or a batch of them: a view if rows and columns can be joined where they lie, else a copy."""
    array = part.in_order((*batch, *rows, *columns))
    shape, end = array.shape, len(batch) + len(rows)
    return array.reshape((*shape[: len(batch)], prod(shape[len(batch) : end]), prod(shape[end:])))


Axes: TypeAlias = int | Sequence[int] | Sequence[Sequence[int]]
"""A number of axes, or the axes of the first operand and those of the second."""


@overload
def einsum(
    subscripts: str,
    *operands: ArrayT,
    out: ArrayT | None = None,
    dtype: None = None,
    casting: Casting = ...,
    **options: Unpack[ProductOptions],
) -> ArrayT: ...
@overload
def einsum(
    subscripts: object,
    *operands: object,
    out: object = None,
    dtype: object = None,
    casting: Casting = ...,
    **options: Unpack[ProductOptions],
) -> Array: ...
def einsum(
    subscripts: object,
    *operands: Array,
    out: Array = None,
    dtype: object = None,
    casting: Casting = "same_kind",
    **options: Unpack[ProductOptions],
) -> Array:
    """The sum that `numpy.einsum` gives, by `matmul`: `einsum("bij,bjk->bik", a, b)` is a batch of products.

    Two operands are one product: the letters that both have and the result lacks are summed over, and the letters that all three have
    count the matrices of a batch. Operands are turned and reshaped, which copies only those whose letters cannot be joined where they
    lie. Letters of a single operand that the result lacks are summed over beforehand. If there is no letter to sum over, elements are
    multiplied. More operands are multiplied two at a time, in the order that `numpy.einsum_path` finds greedily, with intermediates in
    new memory.

    Parameters
    ----------
    subscripts : str
        Letters, "..." and "->", with their meaning in `numpy.einsum`. Repeated letters take the diagonal. Or, as there, without them:
        `einsum(a, [0, 1], b, [1, 2], [0, 2])` has a list of numbers after each operand and, at the end, for the result.
    operands : arrays
        Arrays of one kind: NumPy's, CuPy's, or of any library that speaks DLPack; PyTorch's tensors run on its current stream.
    out : array, optional
        Where the result is written; it has the shape of the result, and a type that can hold it.
    dtype : dtype, optional
        As in `matmul`.
    casting : {"no", "equiv", "safe", "same_kind", "unsafe"}
        As in `matmul`.
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
    if not isinstance(subscripts, str):
        subscripts, operands = _interleaved((subscripts, *operands))
    contraction = read_subscripts(subscripts, [_shape(x) for x in operands])
    if dtype is None and casting == "same_kind":
        return _contract(contraction, operands, out, options)
    return in_types(lambda given, target: _contract(contraction, given, target, options), operands, out, dtype, casting)


def _interleaved(given: tuple[Array, ...]) -> tuple[str, tuple[Array, ...]]:
    """The subscripts, and the operands, of `a, [0, 1], b, [1, 2], [0, 2]`; refused (E730) if they are others."""
    operands, labels = given[: len(given) // 2 * 2 : 2], given[1::2] + given[len(given) // 2 * 2 :]
    terms = []
    for label in labels:
        if not isinstance(label, Sequence) or isinstance(label, str) or not all(x is ... or _is_number(x) for x in label):
            what = f"{label!r:.60} stands where the numbers of an operand's dimensions should"
            hint = 'write "ij,jk->ik", a, b or a, [0, 1], b, [1, 2], [0, 2], with numbers from 0 to 51 and at most one ... each'
            raise fail("E730", what, hint)
        terms.append("".join("..." if x is ... else _NUMBERED[x] for x in label))
    has_result = len(labels) > len(operands)
    return ",".join(terms[: len(operands)]) + (f"->{terms[-1]}" if has_result else ""), operands


_NUMBERED = ascii_uppercase + ascii_lowercase
"""The letters of numbers: in the order of the alphabet those of an unnamed result are the numbers in theirs."""


def _is_number(label: object) -> bool:
    return isinstance(label, int | np.integer) and not isinstance(label, bool) and bool(0 <= label < len(_NUMBERED))


@overload
def tensordot(a: ArrayT, b: ArrayT, axes: Axes = 2, **options: Unpack[ProductOptions]) -> ArrayT: ...
@overload
def tensordot(a: object, b: object, axes: Axes = 2, **options: Unpack[ProductOptions]) -> Array: ...
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
    unknown = next((name for name in options if name not in ProductOptions.__annotations__), None)
    if unknown is not None:
        raise TypeError(f"einsum() got an unexpected keyword argument {unknown!r}")
    check_levels(options.get("levels", "auto"), options.get("algorithm", "auto"))
    if options.get("reproducible") is not None:
        each = [set(labels) for labels in contraction.operands]
        if len(each) != 2 or (each[0] ^ each[1]) - set(contraction.result):
            what = "the order of several products, or of sums over one operand, would depend on shapes"
            raise fail("E820", f"reproducible= is kept for one product of two operands: {what}", "give one product after another")
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
        parts = [diagonal(Labelled(x, labels), extents) for x, labels in zip(arrays, contraction.operands, strict=True)]
        held = [label for part in parts for label in part.labels]
        is_named = options.get("algorithm", "auto") != "auto"
        if is_named and not any(held.count(label) > 1 for label in set(held).difference(contraction.result)):
            what = "an algorithm is named, and nothing here is a matrix product: no two operands share a letter that is summed over"
            raise fail("E732", what, "leave algorithm= out")
        if options.get("inputs") == "consume":
            check_apart(arrays)
        if options.get("inputs", "preserve") != "preserve" and len(parts) > 2:  # no later product may be refused after the first one wrote
            _reduced(list(parts), contraction.result, dtype, target, Work(partial(looked_at, kind, **options), False))
        result = _reduced(parts, contraction.result, dtype, target, Work(partial(matmul, **options)))
        if out is not None:
            return out
        return kind.give_back(result if is_writable(result) else result.copy())  # DLPack exports no read-only view


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
    labels = dict.fromkeys(label for part in parts for label in part.labels)
    if len(labels) > len(ascii_letters):
        message = f"{len(labels)} dimensions are more than the {len(ascii_letters)} letters among which a path is searched"
        raise fail("E730", message, "contract two operands at a time")
    letters: Mapping[str, str] = dict(zip(labels, ascii_letters, strict=False))
    *terms, last = ("".join(letters[label] for label in each) for each in (*(part.labels for part in parts), result))
    shapes = (np.broadcast_to(np.float64(), part.array.shape) for part in parts)
    steps, _ = np.einsum_path(f"{','.join(terms)}->{last}", *shapes, optimize="greedy")
    count = len(parts)
    for step in steps[1:]:
        places = sorted(step)
        while len(places) > 1:
            first, second = places[:2]
            yield first, second
            count -= 1
            places = sorted([*(place - 2 for place in places[2:]), count - 1])
