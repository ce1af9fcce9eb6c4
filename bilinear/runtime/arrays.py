"""The caller's arrays: of which kind they are, as NumPy or CuPy views, and back."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bilinear.errors import fail

CUDA_DEVICE = 2
"""`kDLCUDA` of the DLPack specification."""


@dataclass(frozen=True)
class Kind:
    """A kind of array: the module that computes on it, and how a result goes back to the caller's own type."""

    module: Any
    on_gpu: bool
    give_back: Callable[[Any], Any]


def is_on_gpu(array: Any) -> bool:
    """Whether an array lives on a CUDA device."""
    if isinstance(array, np.ndarray | np.generic) or np.isscalar(array):
        return False
    if hasattr(array, "__dlpack_device__"):
        return bool(array.__dlpack_device__()[0] == CUDA_DEVICE)
    return hasattr(array, "__cuda_array_interface__")


def kind_of(*arrays: Any) -> Kind:
    """The common kind of the operands; mixing devices is refused (E511)."""
    given = [array for array in arrays if array is not None]
    gpu = {is_on_gpu(array) for array in given}
    if len(gpu) > 1:
        raise fail("E511", "the operands live on different devices", "move them to one device first")
    on_gpu = gpu.pop()
    module = _cupy() if on_gpu else np
    return Kind(module, on_gpu, _giver(given[0], module))


def adopt(array: Any, kind: Kind) -> Any:
    """The array as a view of the kind's own type, without a copy where the memory allows it."""
    if isinstance(array, kind.module.ndarray):
        return array
    if kind.on_gpu:
        return kind.module.from_dlpack(array) if hasattr(array, "__dlpack__") else kind.module.asarray(array)
    if hasattr(array, "__dlpack__") and not hasattr(array, "__array__"):
        return np.from_dlpack(array)
    return np.asarray(array)


def _cupy() -> Any:
    try:
        import cupy
    except ImportError:
        hint = "pip install 'bilinear[cuda13]' (or cuda12, after the driver's version)"
        raise fail("E512", "these arrays live on a GPU, but CuPy is not installed", hint) from None
    return cupy


def _giver(array: Any, module: Any) -> Callable[[Any], Any]:
    """How a result becomes an array of the caller's own library."""
    if isinstance(array, module.ndarray) or not hasattr(array, "__dlpack__") or isinstance(array, np.generic):
        return lambda result: result
    library = sys.modules.get(type(array).__module__.split(".")[0])
    namespace = array.__array_namespace__() if hasattr(array, "__array_namespace__") else library
    importer = getattr(namespace, "from_dlpack", None) or getattr(library, "from_dlpack", None)
    return importer if importer is not None else lambda result: result
