"""What plans are compared with, the libraries' multiplies, and the machine: its versions, and its clock and power while something runs."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from bilinear.backends.timing import Call
from bilinear.ir.matrix import Array
from bilinear.ir.measurement import Load
from bilinear.version import __version__

Make = Callable[[Array, Array, Array], Call]
"""Makes the call of a library."""

NOT_TRANSPOSED = 0
"""`CUBLAS_OP_N`."""


def library_calls(a: Array, b: Array, c: Array) -> dict[str, Call]:
    """c = a @ b by every installed library: CuPy, cuBLAS called directly, PyTorch, and cublasLt through PyTorch.

    Of complex matrices cuBLAS has two, `gemm`, and `gemm3m` by three real products. A library that fails does so when called. CuPy computes
    FP64 in a mode that can be slower than `cublasDgemm`, so both are included. CuPy has no bindings of cublasLt; PyTorch falls back to
    cuBLAS if cublasLt refuses a problem.
    """
    import cupy

    calls: dict[str, Call] = {"cupy": lambda: cupy.matmul(a, b, out=c)}
    own: tuple[tuple[str, Make], ...] = (("cublas", _cublas),)
    if a.dtype.kind == "c":
        own = tuple((name, partial(complex_cublas, name)) for name in ("gemm", "gemm3m"))
    for name, make in (*own, ("torch", _torch), ("cublaslt", _cublaslt)):
        try:
            calls[name] = make(a, b, c)
        except ImportError:
            continue
        except Exception as error:  # of many kinds; the call raises it, so that a missing baseline is reported
            calls[name] = partial(_fail, error)
    return calls


def _fail(error: Exception) -> None:
    raise error


def _cublas(a: Array, b: Array, c: Array) -> Call:
    """cublasDgemm or cublasSgemm for row-major arrays, called on the transposed, column-major matrices."""
    import cupy
    import numpy as np
    from cupy_backends.cuda.libs import cublas

    multiply = {"float64": cublas.dgemm, "float32": cublas.sgemm}[str(a.dtype)]
    (m, k), n, handle = a.shape, b.shape[1], cupy.cuda.Device().cublas_handle
    factors = np.array([1, 0], a.dtype)
    one, zero = (factors[i:].ctypes.data for i in range(2))

    def call(_: object = factors) -> None:  # keeps them alive
        left, right = (b.data.ptr, n), (a.data.ptr, k)
        multiply(handle, NOT_TRANSPOSED, NOT_TRANSPOSED, n, m, k, one, *left, *right, zero, c.data.ptr, n)

    return call


def complex_cublas(name: str, a: Array, b: Array, c: Array) -> Call:
    """cublasCgemm or cublasZgemm, or with the name `gemm3m` their variants, for row-major arrays, as the product of the transposed ones.

    CuPy binds no `gemm3m`, so they are called in the library that CuPy has loaded.
    """
    import cupy

    letter, part = ("C", ctypes.c_float) if str(a.dtype) == "complex64" else ("Z", ctypes.c_double)
    multiply = getattr(_loaded_cublas(), f"cublas{letter}{name}{'_v2' if name == 'gemm' else ''}")
    one, zero, handle = (part * 2)(1, 0), (part * 2)(0, 0), ctypes.c_void_p(cupy.cuda.Device().cublas_handle)
    (m, k), n = a.shape, b.shape[1]

    def call() -> None:
        left, right, out = (ctypes.c_void_p(x.data.ptr) for x in (b, a, c))
        sizes = NOT_TRANSPOSED, NOT_TRANSPOSED, n, m, k
        status = multiply(handle, *sizes, ctypes.byref(one), left, n, right, k, ctypes.byref(zero), out, n)
        if status:
            raise RuntimeError(f"cuBLAS returns {status}")

    return call


def _loaded_cublas() -> ctypes.CDLL:
    """The cuBLAS that CuPy has loaded into this process."""
    import cupy

    cupy.matmul(cupy.ones((2, 2)), cupy.ones((2, 2)))
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return ctypes.CDLL(min(line.split()[-1] for line in lines if "libcublas.so" in line))


def _torch(a: Array, b: Array, c: Array) -> Call:
    """`torch.mm` without TF32. All libraries use the default stream, so that CuPy's events cover PyTorch's launches."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    x, y, z = torch.from_dlpack(a), torch.from_dlpack(b), torch.from_dlpack(c)
    return lambda: torch.mm(x, y, out=z)


def _cublaslt(a: Array, b: Array, c: Array) -> Call:
    """`torch.mm` with cublasLt preferred; the process's own preference is restored afterwards."""
    import torch

    multiply, prefer = _torch(a, b, c), torch.backends.cuda.preferred_blas_library

    def call() -> None:
        before = prefer()
        try:
            prefer("cublaslt")
            multiply()
        finally:
            prefer(before)

    return call


LOAD = ("clocks.sm", "power.draw", "temperature.gpu")
LIMITS = ("driver_version", "clocks.max.sm", "power.limit")
PATIENCE = 10.0
"""Seconds after which the driver's tool is given up."""


def commit() -> str:
    """The commit of this checkout, marked if the tree has changes; BENCHMARK_COMMIT gives it if only a copy runs."""
    if "BENCHMARK_COMMIT" in os.environ:
        return os.environ["BENCHMARK_COMMIT"]
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return "unknown"
    words = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    with suppress(OSError):
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    return "unknown"


def machine() -> dict[str, object]:
    """Versions, and the GPU's name, versions, clock and limits if there is one."""
    import numpy

    facts: dict[str, object] = {"python": platform.python_version(), "numpy": numpy.__version__}
    facts |= {"bilinear": __version__, "commit": commit()}
    try:
        import cupy

        properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
        facts |= {"gpu": properties["name"].decode(), "cupy": cupy.__version__, "cuda": cupy.cuda.runtime.runtimeGetVersion()}
    except Exception as error:  # no CuPy or no device: the benchmark runs on the CPU
        return facts | {"gpu": None, "why": str(error)}
    with suppress(Exception):
        from cupy_backends.cuda.libs import cublas

        facts["cublas"] = cublas.getVersion(cupy.cuda.Device().cublas_handle)
    with suppress(Exception):
        import torch

        facts["torch"] = torch.__version__
    return facts | gpu_state(LIMITS) | gpu_state()


def gpu_state(names: tuple[str, ...] = LOAD) -> dict[str, str]:
    """The clock of the multiprocessors, power and temperature (or `names`) as the driver reports them; empty if it does not."""
    try:
        done = subprocess.run(_query(names), capture_output=True, text=True, check=False, timeout=PATIENCE)
    except (OSError, subprocess.SubprocessError):
        return {}
    return _fields(names, done.stdout)


def load_during(call: Call) -> Load:
    """The driver's readings while a call is repeated."""
    import cupy

    try:
        asking = subprocess.Popen(_query(LOAD), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except OSError:
        return Load()
    with asking:
        began = time.perf_counter()
        while asking.poll() is None:
            call()
            cupy.cuda.get_current_stream().synchronize()
            if time.perf_counter() - began > PATIENCE:
                asking.kill()
                return Load()
        told = _fields(LOAD, asking.stdout.read() if asking.stdout else "")
    return Load(*(_number(told.get(name, "")) for name in LOAD))


class Watch:
    """Reads the load during a call, but at most once every few seconds; in between it returns the last reading."""

    def __init__(self, every: float) -> None:
        self._every, self._at, self._last = every, float("-inf"), Load()

    def __call__(self, call: Call) -> Load:
        """The load while this call is made."""
        if time.perf_counter() - self._at >= self._every:
            self._last, self._at = load_during(call), time.perf_counter()
        return self._last


def _query(names: tuple[str, ...]) -> list[str]:
    return ["nvidia-smi", *_which(), f"--query-gpu={','.join(names)}", "--format=csv,noheader"]


def _which() -> list[str]:
    """The current device by its PCI bus address, because the tool numbers devices differently from CUDA."""
    with suppress(Exception):
        import cupy

        return [f"--id={cupy.cuda.Device().pci_bus_id}"]
    return []


def _fields(names: tuple[str, ...], line: str) -> dict[str, str]:
    values = [field.strip() for field in line.strip().split(",")]
    return dict(zip(names, values, strict=True)) if len(values) == len(names) else {}


def _number(text: str) -> float | None:
    """`1980 MHz` as a number; None if the tool reports none."""
    with suppress(ValueError, IndexError):
        return float(text.split(maxsplit=1)[0])
    return None
