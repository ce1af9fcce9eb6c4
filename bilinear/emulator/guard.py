"""Arrays next to inaccessible pages: an access one byte beyond them is a fault."""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]

_PAGE = 65536  # a multiple of every page size in use
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def _protect(address: int, size: int, protection: int) -> None:
    if size and _libc.mprotect(address, size, protection):
        raise OSError(ctypes.get_errno(), "mprotect")


def guarded_empty(
    shape: int | Sequence[int],
    dtype: npt.DTypeLike = np.float64,
    order: Literal["C", "F"] = "C",
    at: Literal["end", "start"] = "end",
) -> Array:
    """An array of all-ones bytes (NaN) whose end, or start, touches an inaccessible page: one byte further is a fault.

    At the end, its start has only its natural alignment. The pages are released with the array.
    """
    kind = np.dtype(dtype)
    shapes = (shape,) if isinstance(shape, int) else tuple(shape)
    size = math.prod(shapes) * kind.itemsize
    whole = max(1, -(-size // _PAGE)) * _PAGE
    memory = mmap.mmap(-1, whole + 3 * _PAGE)  # one page is lost to alignment, because only the system's page size is guaranteed
    first = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    skipped = -first % _PAGE
    _protect(first + skipped, _PAGE, 0)
    _protect(first + skipped + _PAGE + whole, _PAGE, 0)
    begin = skipped + _PAGE + (whole - size if at == "end" else 0)
    array: Array = np.ndarray(shapes, kind, buffer=memory, offset=begin, order=order)
    ctypes.memset(array.ctypes.data, 0xFF, size)
    return array


def guarded(array: Array, at: Literal["end", "start"] = "end", read_only: bool = False) -> Array:
    """A copy of an array, in its memory order, whose end, or start, touches an inaccessible page.

    With `read_only` its own pages are read-only too, so that even a write that is later undone is a fault.
    """
    copy = guarded_empty(array.shape, array.dtype, "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C", at)
    copy[...] = array
    if read_only:
        copy.flags.writeable = False
        start = copy.ctypes.data // _PAGE * _PAGE
        _protect(start, -(-(copy.ctypes.data + copy.nbytes - start) // _PAGE) * _PAGE, mmap.PROT_READ)
    return copy
