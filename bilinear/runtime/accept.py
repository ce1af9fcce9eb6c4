"""What a call accepts: one set of rules for the arrays that any entry point reads and writes, checked before anything is written.

Operands may overlap each other and themselves, be read-only and of any byte order: only `restore` and `consume` ask more of them. Results
must be writable, and no two elements of theirs may share memory. They may overlap operands, and hold another type of the same kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, reduce
from itertools import combinations
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from bilinear.backends.capture import memory_of_graph
from bilinear.errors import ArrayTypeError, ArrayValueError, BilinearError, fail
from bilinear.ir.matrix import Array, Dtype, Layout, indices, layout_of, matrix_of
from bilinear.runtime.arrays import Kind, adopt, adopt_out, as_arrays, give_tensor, kind_of, multiplies_itself, stream_for, torch_of
from bilinear.runtime.budgets import Workspace, budget_and_buffer

if TYPE_CHECKING:  # `bilinear.plan` needs none of what an executor imports
    from bilinear.backends.executor import Executor

MOST_WORK = 100_000  # Steps that NumPy may take to decide whether two views share memory.
Casting: TypeAlias = Literal["no", "equiv", "safe", "same_kind", "unsafe"]  # `casting=`, as in NumPy.
UNFIT = "workspace must be a writable, contiguous, one-dimensional array of the operands' kind"


class Given(NamedTuple):
    """The arrays of a call as NumPy's or CuPy's own, where they lie; outs and the workspace may be None."""

    kind: Kind
    operands: list[Array]
    outs: list[Array]
    workspace: Array


@contextmanager
def accepted(
    operands: Mapping[str, Array],
    outs: Mapping[str, Array],
    workspace: Workspace = None,
    stream: object = None,
    *,
    bits: bool = False,
    own: bool = False,
) -> Iterator[Given]:
    """The arrays of a call that reads the operands and writes the outs, each by the name that messages have for it; on its stream.

    PyTorch's tensors lie on their device, with PyTorch's stream and memory; those of 16 bits as integers, if their `bits` are asked for.
    NumPy's subclasses with a multiply of their `own`, such as masked arrays, are refused (E733) where that is not called.

    Raises `BilinearError`: E510 for a stream, E511 and E512 for devices, E516 to E518 for what is no array, E520 for outs that cannot be
    written, E534 and E529 for a workspace.
    """
    torch = torch_of(*operands.values(), *outs.values())
    strange = None if own else next((x for x in (*operands.values(), *outs.values()) if multiplies_itself(x)), None)
    if strange is not None:
        raise fail("E733", f"{type(strange).__name__} has its own multiply, which this call does not use", "give plain arrays")
    if torch is None:
        given = _checked(operands, outs, workspace)
        with stream_for(given.kind.on_gpu, stream), memory_of_graph(given.kind.on_gpu):
            yield given
        return
    with as_arrays(torch, stream, [*operands.values()], [*outs.values(), workspace], bits) as (*arrays, buffer):
        count = len(operands)
        given = _checked(dict(zip(operands, arrays, strict=False)), dict(zip(outs, arrays[count:], strict=True)), buffer)
        with memory_of_graph(given.kind.on_gpu):
            yield given._replace(kind=replace(given.kind, give_back=partial(give_tensor, torch)))


def _checked(operands: Mapping[str, Array], outs: Mapping[str, Array], workspace: Workspace) -> Given:
    missing = next((name for name, x in operands.items() if x is None), None)
    if missing is not None:
        raise fail("E518", f"{missing} is None", "give an array", kind=ArrayTypeError)
    kind = kind_of(*operands.values(), *outs.values())
    read = [adopt(x, kind) for x in operands.values()]
    written = [None if x is None else adopt_out(x, kind) for x in outs.values()]
    for name, x in zip(outs, written, strict=True):
        if x is not None and not is_writable(x):
            raise fail("E520", f"{name} is read-only", "give an array that can be written", kind=ArrayValueError)
        if x is not None and layout_of(x).overlaps_itself:
            raise fail("E520", f"elements of {name} share memory", "give a copy, or an array that is not expanded", kind=ArrayValueError)
    for (first, x), (second, y) in combinations(zip(outs, written, strict=True), 2):
        if shares_memory(x, y):
            raise fail("E520", f"{first} and {second} share memory, and both are written", "give separate arrays", kind=ArrayValueError)
    buffer = None if workspace is None else budget_and_buffer(workspace)[1]
    if buffer is not None:  # it is refused also if the library's multiply, which needs none, will run
        if not can_serve(buffer, kind):
            raise fail("E529", UNFIT, "give such an array, or a number of bytes")
        if any(x is not None and shares_memory(buffer, x) for x in (*read, *written)):
            raise fail("E529", "workspace shares memory with an operand or out", "give a separate one")
    return Given(kind, read, written, workspace)


def in_types(
    multiply: Callable[[Sequence[Array], Array], Array], operands: Sequence[Array], out: Array, dtype: object, casting: Casting
) -> Array:
    """A product in the type that `dtype=` names, with the casts of operands and result that `casting=` allows, as in NumPy.

    An `out` of a type that no product is written to is converted to the product's type before, and back afterwards. Refuses (E540) what is
    no type and no rule, and (E530) casts that the rule forbids.
    """
    if casting not in get_args(Casting):
        raise fail("E540", f"casting={casting!r:.60} is not a rule of casts", f"give one of {', '.join(get_args(Casting))}")
    torch = torch_of(*operands, out)
    if torch is None:
        with accepted({f"operand {at}": x for at, x in enumerate(operands, 1)}, {"out": out}, own=True) as (kind, own, (target,), _):
            types, may_cast, promoted, give_back = [x.dtype for x in own], np.can_cast, np.result_type, kind.give_back
    else:
        own, target, may_cast, give_back = [torch.as_tensor(x) for x in operands], out, partial(_may_cast, torch), lambda x: x
        types, promoted = [x.dtype for x in own], lambda *types: reduce(torch.promote_types, types)
    common = promoted(*types) if dtype is None else _named_type(torch, dtype)
    wanted = common if target is None else target.dtype
    casts = [*((f"operand {at}", x, common) for at, x in enumerate(types, 1)), ("the product", common, wanted)]
    for name, first, second in casts:
        if not may_cast(first, second, casting):
            raise fail("E530", f"casting={casting!r} does not cast {name} from {first} to {second}", "convert it", kind=ArrayTypeError)
    given = [x if x.dtype == common else x.astype(common) if torch is None else x.to(common) for x in own]
    given = [x if x is y or torch is not None else give_back(x) for x, y in zip(given, operands, strict=True)]
    if may_cast(common, wanted, "same_kind"):
        return multiply(given, out)
    target[...] = multiply(given, target.astype(common) if torch is None else target.to(common))
    return out


def _named_type(torch: ModuleType | None, dtype: object) -> Array:
    try:
        if torch is None:
            return np.dtype(dtype)  # type: ignore[call-overload]  # anything may be given
        return dtype if isinstance(dtype, torch.dtype) else getattr(torch, np.dtype(dtype).name)  # type: ignore[call-overload]
    except (AttributeError, TypeError, ValueError):
        kind = "NumPy" if torch is None else "PyTorch"
        raise fail("E540", f"dtype={dtype!r:.60} is not an element type of {kind}", "give one, such as 'float32'") from None


def _may_cast(torch: ModuleType, first: object, second: object, casting: str) -> bool:
    """`numpy.can_cast` for types of PyTorch, whose own rule is that of one kind."""
    if casting == "same_kind":
        return bool(torch.can_cast(first, second))
    return first == second or casting == "unsafe" or (casting == "safe" and torch.promote_types(first, second) == second)


def is_writable(array: Array) -> bool:
    """Whether an array may be written; CuPy's arrays always may."""
    return bool(getattr(array.flags, "writeable", True))


def shares_memory(x: Array, y: Array) -> bool:
    """Whether two arrays have an element in common; undecided counts as yes."""
    if x.size == 0 or y.size == 0:
        return False
    try:
        return bool(np.shares_memory(_addresses(x), _addresses(y), max_work=MOST_WORK))  # type: ignore[arg-type]  # any count is allowed
    except np.exceptions.TooHardError:
        return not _beside_each_other(x, y)


def _addresses(array: Array) -> Array:
    """A NumPy array with the addresses of an array that may lie on a GPU. Nothing may read its elements."""
    if isinstance(array, np.ndarray):
        return array
    where = (matrix_of(array).address, False)
    interface = {"version": 3, "shape": array.shape, "strides": array.strides, "typestr": array.dtype.str, "data": where}
    return np.asarray(SimpleNamespace(__array_interface__=interface))


def _beside_each_other(x: Array, y: Array) -> bool:
    """Whether two matrices are disjoint column (or row) ranges of one larger matrix."""
    if x.ndim != 2 or x.strides != y.strides or min(x.strides) <= 0:
        return False
    pitch = max(x.strides)
    narrow = x.strides.index(min(x.strides))
    width_x, width_y = x.shape[narrow] * x.strides[narrow], y.shape[narrow] * y.strides[narrow]
    gap = (matrix_of(y).address - matrix_of(x).address) % pitch
    return bool(width_x <= gap and gap + width_y <= pitch)


def check_out(out: Layout, batch: tuple[int, ...], core: tuple[int, ...], dtype: Dtype) -> None:
    """Refuse an `out` that cannot take a result of this shape (E520) and type (E530), as `numpy.matmul` does."""
    leading = out.shape[: max(0, out.ndim - len(core))]
    if leading + core != out.shape or broadcast(batch, leading) != leading:
        message = f"out has shape {out.shape}, the result {batch + core}"
        raise fail("E520", message, "give an out of that shape, or none", kind=ArrayValueError)
    if not np.can_cast(dtype, out.dtype, "same_kind"):
        raise fail("E530", f"out of {out.dtype} cannot hold {dtype}", "give an out of that type, or none", kind=ArrayTypeError)


def broadcast(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    """The broadcast shape of two batches. NumPy's function stops at 32 dimensions; this one does not."""
    longer, shorter = (first, second) if len(first) >= len(second) else (second, first)
    filled = (1,) * (len(longer) - len(shorter)) + shorter
    if any(x != y and 1 not in (x, y) for x, y in zip(longer, filled, strict=True)):
        message = f"batches of shapes {first} and {second} cannot be broadcast"
        raise fail("E520", message, "give batches of one shape, or of extents 1", kind=ArrayValueError)
    return tuple(y if x == 1 else x for x, y in zip(longer, filled, strict=True))


def can_serve(buffer: Array, kind: Kind) -> bool:
    """Whether an array can hold workspaces."""
    return isinstance(buffer, kind.module.ndarray) and buffer.ndim == 1 and bool(buffer.flags.c_contiguous) and is_writable(buffer)


def check_apart(operands: Sequence[Array]) -> None:
    """Refuse (E523) an operand that one product would consume and another one reads."""
    for (first, x), (second, y) in combinations(enumerate(operands, 1), 2):
        if shares_memory(x, y):
            message = f"inputs='consume' needs operands {first} and {second} apart, but they share memory"
            raise fail("E523", message, "pass a copy of one of them or inputs='preserve'")


def check_written_inputs(executor: Executor, a: Array, b: Array, out: Array, inputs: str) -> None:
    """Refuse `restore` and `consume` (E521 to E524) if writing A and B could lose data; `restore` also needs finite values.

    The operands are whole batches, so everything is checked before anything is written.
    """
    problems: list[BilinearError] = []
    for name, array in (("a", a), ("b", b)):
        if not is_writable(array):
            message = f"inputs={inputs!r} writes {name}, which is read-only"
            problems.append(fail("E521", message, "pass a writable array or inputs='preserve'"))
        if layout_of(array).overlaps_itself:
            problems.append(fail("E522", f"inputs={inputs!r} writes {name}, whose elements share memory", "pass a copy of it"))
    for first, x, second, y in (("a", a, "b", b), ("a", a, "out", out), ("b", b, "out", out)):
        if shares_memory(x, y):
            message = f"inputs={inputs!r} needs {first} and {second} apart, but they share memory"
            problems.append(fail("E523", message, "pass a copy of one of them or inputs='preserve'"))
    if not problems and inputs == "restore":
        matrices = {name: [matrix_of(x).at(index) for index in indices(x.shape[:-2])] for name, x in (("a", a), ("b", b))}
        if not executor.is_finite(*matrices["a"], *matrices["b"]):  # both at once: a GPU is waited for once
            for name in (name for name, own in matrices.items() if not executor.is_finite(*own)):
                message = f"{name} has an Inf or a NaN, which an in-place schedule would spread and could not restore"
                problems.append(fail("E524", message, "use inputs='preserve'"))
    if problems:
        raise BilinearError(d for problem in problems for d in problem.diagnostics)
