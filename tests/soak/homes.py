"""Where the arrays of a call lie: NumPy, CuPy, PyTorch, or the pretended GPU of the tests; and how a call is captured in a CUDA graph."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Any

import numpy as np
from soak.layouts import Array, Laid, placed

HOME = "SOAK_HOME"  # The variable that says where: `numpy`, the default, `gpu` or `pretended`.

CALLS = ("bits", "chains", "checked", "gram", "modulus", "parts", "prepared", "products", "same_bits", "sums")
"""The kinds of calls, whose arrays may lie in any home: modules with an `act` for a `Scene`."""
MOST_SECONDS = 300  # How long a call may take whose kernels were never compiled.


class Numpy:
    """NumPy's arrays, which may lie at any address."""

    name, bytewise, reverses, captures, has_units = "numpy", True, True, False, False
    dtypes: tuple[str, ...] = ("int8", "uint8", "int32", "int64", "float32", "float64", "complex64", "complex128")
    longest = 130

    def common(self, left: Any, right: Any) -> np.dtype[Any]:
        """The type of a product of these types."""
        return np.result_type(left, right)

    def buffer(self, host: Array) -> Any:
        """The memory itself, or a copy of it on a device."""
        return host

    def view(self, buffer: Any, laid: Laid) -> Any:
        """The view of the memory that is given to a call."""
        return laid.view

    def host(self, array: Any) -> Array:
        """The values of any array of this home."""
        return np.asarray(array)

    def captured(self, call: Callable[[], Any]) -> Any:
        """Capture a call in a graph, and run the graph."""
        raise NotImplementedError

    def lacks(self, error: Exception) -> bool:
        """Whether an exception says what this home cannot do."""
        return False

    def fill(self, buffer: Any, host: Array) -> None:
        """Put these bytes into the memory."""
        buffer[...] = host


class Pretended(Numpy):
    """A pretended GPU, which runs the text of kernels on the CPU."""

    name, bytewise, captures, longest = "pretended", False, True, 70

    def __init__(self, gpu: Any, array: Any) -> None:
        self._gpu, self._array = gpu, array

    def view(self, buffer: Any, laid: Laid) -> Any:
        return self._array(laid.view)

    def host(self, array: Any) -> Array:
        return np.asarray(array.host if hasattr(array, "host") else array)

    def captured(self, call: Callable[[], Any]) -> Any:
        with self._gpu.using(is_capturing=True):
            return call()

    def lacks(self, error: Exception) -> bool:
        return isinstance(error, AttributeError | TypeError) and any(name in str(error) for name in ("'cupy'", "Array", "memoryview"))


class Cupy(Numpy):
    """CuPy's arrays."""

    name, bytewise, captures, has_units, longest = "cupy", False, True, True, 600
    dtypes = (*Numpy.dtypes, "float16")

    def __init__(self) -> None:
        import cupy

        self._cupy = cupy

    def buffer(self, host: Array) -> Any:
        return self._cupy.asarray(host)

    def view(self, buffer: Any, laid: Laid) -> Any:
        x = laid.view
        return self._cupy.ndarray(x.shape, x.dtype, buffer.data + laid.offset, x.strides)

    def host(self, array: Any) -> Array:
        return np.asarray(array.get() if hasattr(array, "get") else array)

    def captured(self, call: Callable[[], Any]) -> Any:
        stream = self._cupy.cuda.Stream(non_blocking=True)
        self._cupy.cuda.Device().synchronize()
        with stream:
            stream.begin_capture()
            try:
                found = call()
            finally:
                graph = stream.end_capture()
            graph.launch(stream)
            stream.synchronize()
        return found

    def fill(self, buffer: Any, host: Array) -> None:
        buffer.set(host)


class Torch(Numpy):
    """PyTorch's tensors on the CPU or on a GPU."""

    name, bytewise, reverses = "torch", False, False
    dtypes = ("int8", "uint8", "int32", "int64", "float32", "float64", "complex64", "complex128", "float16")

    def __init__(self, device: str) -> None:
        import torch

        self._torch, self._device = torch, device
        self.captures = self.has_units = device == "cuda"
        self.longest = 600 if self.captures else 130

    def common(self, left: Any, right: Any) -> np.dtype[Any]:
        own = self._torch.promote_types(*(getattr(self._torch, dtype.name) for dtype in (left, right)))
        return np.dtype(str(own).removeprefix("torch."))

    def buffer(self, host: Array) -> Any:
        return self._torch.from_numpy(host.copy()).to(self._device)

    def view(self, buffer: Any, laid: Laid) -> Any:
        x = laid.view
        own = buffer.view(getattr(self._torch, x.dtype.name))
        return own.as_strided(x.shape, [stride // x.itemsize for stride in x.strides], laid.offset // x.itemsize)

    def host(self, array: Any) -> Array:
        return np.asarray(array.resolve_conj().resolve_neg().cpu().numpy() if hasattr(array, "cpu") else array)

    def captured(self, call: Callable[[], Any]) -> Any:
        gc.collect()  # while PyTorch captures, a graph that is collected frees memory, which ends the capture
        graph, failed, found = self._torch.cuda.CUDAGraph(), None, None
        self._torch.cuda.synchronize()
        with self._torch.cuda.graph(graph):
            try:
                found = call()
            except Exception as error:  # the capture ends in any case
                failed = error
        if failed is not None:
            raise failed
        graph.replay()
        self._torch.cuda.synchronize()
        return found

    def fill(self, buffer: Any, host: Array) -> None:
        buffer.copy_(self._torch.from_numpy(host.copy()))


def skip_reason(home: str | None = None) -> str | None:
    """Why no case can run there."""
    home = home or os.environ.get(HOME, "numpy")
    if home == "torch":
        return None if find_spec("torch") else "PyTorch is not installed"
    if home == "pretended":
        from bilinear.emulator import skip_reason as reason

        return reason()
    if home == "gpu":
        if not find_spec("cupy"):
            return "CuPy is not installed"
        import cupy

        with suppress(cupy.cuda.runtime.CUDARuntimeError):
            return None if cupy.cuda.runtime.getDeviceCount() else "there is no GPU"
        return "CuPy finds no GPU"
    return None


@contextmanager
def home_of(generator: np.random.Generator, home: str | None = None) -> Iterator[Numpy]:
    """The home of a case; on a GPU, CuPy's arrays or PyTorch's tensors."""
    home = home or os.environ.get(HOME, "numpy")
    if home == "pretended":
        import pytest
        from runtime.pretended_gpu import Array as Pretence
        from runtime.pretended_gpu import undescribed

        with pytest.MonkeyPatch.context() as patched, undescribed(patched) as gpu:
            yield Pretended(gpu, Pretence)
    elif home == "torch":
        yield Torch("cpu")
    elif home == "gpu":
        yield Torch("cuda") if find_spec("torch") and generator.random() < 0.4 else Cupy()
    else:
        yield Numpy()


class Held:
    """An array in its home, and the bytes around it as they were."""

    def __init__(self, home: Numpy, laid: Laid, buffer: Any = None) -> None:
        self.home, self.laid = home, laid
        self.buffer = home.buffer(laid.base) if buffer is None else buffer
        self.array = home.view(self.buffer, laid)

    @property
    def values(self) -> Array:
        """As they were."""
        return self.laid.values

    def over(self, values: Array, offset: int) -> Held | None:
        """An array over this one, in its order, some elements from it; None if the memory does not hold it.

        It holds the values where it is not over this one.
        """
        x, (base, shape) = self.laid.view, (self.laid.base, values.shape)
        if len(shape) != x.ndim or 0 in x.strides or any(new > old for new, old in zip(shape, x.shape, strict=True)):
            return None
        begin = self.laid.offset + offset * x.itemsize
        view = placed(base, x.dtype, shape, begin, x.strides)
        view[...] = values
        x[...] = self.values
        self.home.fill(self.buffer, base)
        return Held(self.home, Laid.of(view, base, begin), self.buffer)

    def turned(self) -> Held:
        """Its transpose, in the same memory."""
        return Held(self.home, Laid.of(self.laid.view.swapaxes(-1, -2), self.laid.base, self.laid.offset), self.buffer)

    def now(self) -> Laid:
        """The memory as it is now."""
        base, x = self.home.host(self.buffer).copy(), self.laid.view
        return Laid(placed(base, x.dtype, x.shape, self.laid.offset, x.strides), base, self.laid.offset, self.laid.before, self.values)

    def reset(self) -> None:
        """Put back what was there."""
        self.home.fill(self.buffer, self.laid.before)
