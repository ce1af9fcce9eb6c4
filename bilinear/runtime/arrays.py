"""The caller's arrays as NumPy or CuPy views, and results as arrays of the caller's kind."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from numbers import Number
from types import ModuleType

import numpy as np

from bilinear.errors import ArrayTypeError, BilinearError, fail, install
from bilinear.ir.matrix import Array, Factor

CUDA_DEVICE = 2
"""`kDLCUDA` of the DLPack specification."""
INSTEAD = {
    "scipy": "call toarray(), or multiply by @, which stays sparse",
    "cupyx": "call toarray(), or multiply by @, which stays sparse",
    "sparse": "call todense(), or multiply by @, which stays sparse",
    "dask": "use bilinear.dask.matmul, or call compute()",
    "pandas": "call to_numpy(); the result has no labels",
    "polars": "call to_numpy()",
    "xarray": "call to_numpy(); the result has no labels",
    "jax Tracer": "inside of jax.jit, jax.grad and jax.vmap, use bilinear.jax.matmul",
}
"""What to do with other libraries' arrays that are not matrices in memory, by the library, or the library and the class."""


@dataclass(frozen=True)
class Kind:
    """A kind of array: the module that computes on it, and the function that turns a result into the caller's type."""

    module: ModuleType
    on_gpu: bool
    give_back: Callable[[Array], Array]


class Kept:
    """An operand that is not an array and has a multiply of its own (`runtime/prepared.py`)."""

    def matmul(self, other: Array, out: Array = None, *, alpha: Factor = 1, beta: Factor = 0, workspace: Array = None) -> Array:
        """alpha * A * B + beta * out."""
        raise NotImplementedError

    side: str
    """The operand for which it stands, A or B."""


def is_on_gpu(array: Array) -> bool:
    """Whether an array lives on a CUDA device."""
    if isinstance(array, np.ndarray | np.generic) or np.isscalar(array):
        return False
    if hasattr(array, "__dlpack_device__"):
        return bool(array.__dlpack_device__()[0] == CUDA_DEVICE)
    return hasattr(array, "__cuda_array_interface__")


def kind_of(*arrays: Array) -> Kind:
    """The common kind of the operands. Operands on different devices are refused (E511)."""
    known = _known_kind(arrays)
    if known is not None:
        return known
    given = [array for array in arrays if array is not None]
    if any(type(array).__module__.startswith("cupyx.distributed") for array in given):
        raise fail("E511", "an operand lies on several GPUs", "bilinear.distributed.matmul multiplies distributed arrays")
    for array in given:
        _check_library(array)
    gpu = {is_on_gpu(array) for array in given}
    if len(gpu) > 1:
        raise fail("E511", "the operands live on different devices", "move them to one device first")
    on_gpu = gpu.pop()
    module = cupy_module() if on_gpu else np
    foreign = next((array for array in given if _is_foreign(array, module)), None)
    return Kind(module, on_gpu, _giver(foreign) if foreign is not None or on_gpu else _wrapper(given))


def _known_kind(arrays: tuple[Array, ...]) -> Kind | None:
    """The kind of operands that are all NumPy's or all CuPy's own arrays, found by type alone; None for others."""
    kinds = {type(array) for array in arrays if array is not None}
    if kinds == {np.ndarray}:
        return NUMPY
    cupy = sys.modules.get("cupy")
    return _cupy_kind(cupy) if cupy is not None and kinds == {cupy.ndarray} else None


@cache
def _cupy_kind(module: ModuleType) -> Kind:
    return Kind(module, True, _giver(None))


def multiplies_itself(array: Array) -> bool:
    """Whether an array is of a NumPy subclass with a multiply of its own, such as a masked array."""
    kind = type(array)
    if kind is np.ndarray or not isinstance(array, np.ndarray):
        return False
    return isinstance(array, np.ma.MaskedArray) or kind.__array_ufunc__ is not np.ndarray.__array_ufunc__


def adopt(array: Array, kind: Kind) -> Array:
    """The array as one of the kind's own type, a view if the memory allows it."""
    if isinstance(array, kind.module.ndarray):
        return array
    if kind.on_gpu:
        return kind.module.from_dlpack(array) if hasattr(array, "__dlpack__") else kind.module.asarray(array)
    view = np.from_dlpack(array) if hasattr(array, "__dlpack__") and not hasattr(array, "__array__") else np.asarray(array)
    if view.ndim == 0 and view.dtype == object and not isinstance(array, np.generic | Number):
        raise _no_array(array, "give an array of NumPy, CuPy, PyTorch, or of another library that speaks DLPack")
    return view


def _check_library(array: Array) -> None:
    """Refuse (E518) what holds no matrix in memory, and what would lose its labels."""
    for kind in type(array).__mro__:
        library = kind.__module__.partition(".")[0]
        hint = INSTEAD.get(library) or INSTEAD.get(f"{library} {kind.__name__}")
        if hint is not None:
            raise _no_array(array, hint)


def _no_array(array: object, hint: str) -> BilinearError:
    library, _, _ = type(array).__module__.partition(".")
    return fail("E518", f"a {type(array).__name__} of {library} is not multiplied", hint, kind=ArrayTypeError)


def adopt_out(array: Array, kind: Kind) -> Array:
    """`out` as a view. Refused (E518) if its memory cannot be viewed: a result in a copy would be lost."""
    view = adopt(array, kind)
    if view is array or kind.on_gpu or view.size == 0:
        return view
    if isinstance(array, np.generic) or not np.may_share_memory(view, adopt(array, kind)):
        message = f"out of type {type(array).__name__} is not an array whose memory can be written"
        raise fail("E518", message, "give an array of NumPy", kind=ArrayTypeError)
    return view


def stream_for(on_gpu: bool, stream: object) -> AbstractContextManager[object]:
    """What is entered to run on a stream; refused (E510) for arrays in the host's memory, and if it is no stream."""
    if stream is None:
        return _NO_STREAM
    if not on_gpu:
        raise fail("E510", "stream= is for arrays on a GPU, and these lie in the host's memory", "leave stream= out")
    if not isinstance(stream, AbstractContextManager):
        raise fail("E510", f"stream={stream!r:.60} is not a stream", "give a stream of CuPy, or for tensors one of PyTorch")
    return stream


def cupy_module() -> ModuleType:
    """CuPy, for arrays on a GPU; refused (E512) if it is not installed."""
    try:
        return import_module("cupy")
    except ImportError:
        hint = f"{install('cuda13')} (or cuda12, after the driver's version)"
        raise fail("E512", "these arrays live on a GPU, but CuPy is not installed", hint) from None


def _is_foreign(array: Array, module: ModuleType) -> bool:
    """Whether an array belongs to another library that speaks DLPack."""
    return hasattr(array, "__dlpack__") and not isinstance(array, module.ndarray | np.generic)


def _giver(foreign: Array) -> Callable[[Array], Array]:
    """The function that turns a result into an array of the caller's library, if that library can import it."""
    if foreign is None:
        return lambda result: result[()] if type(result) is np.ndarray and result.ndim == 0 else result
    library = sys.modules.get(type(foreign).__module__.split(".")[0])
    namespace = foreign.__array_namespace__() if hasattr(foreign, "__array_namespace__") else library
    places = (namespace, type(foreign), library)
    importers = [place.from_dlpack for place in places if place is not None and hasattr(place, "from_dlpack")]
    if not importers:
        return lambda result: result
    return lambda result: importers[0](np.asarray(result) if isinstance(result, np.generic) else result)


def _wrapper(operands: list[Array]) -> Callable[[Array], Array]:
    """The function that turns a result into the operands' subclass, chosen as NumPy does: the highest priority, then the first."""
    plain = _giver(None)
    arrays = [x for x in operands if isinstance(x, np.ndarray)]
    if all(type(x) is np.ndarray for x in arrays):
        return plain
    chosen = max(arrays, key=lambda x: (getattr(x, "__array_priority__", 0.0), type(x) is not np.ndarray))
    return lambda result: plain(chosen.__array_wrap__(result)) if type(result) is np.ndarray else result


NUMPY = Kind(np, False, _giver(None))
_NO_STREAM = nullcontext()
