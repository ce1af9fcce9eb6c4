"""What plans are compared with, the libraries' multiplies, and the machine: its versions, and its clock and power while something runs.

Products modulo p are checked by random vectors in Python's integers, and benched beside exact products by pieces.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from math import ceil, log2
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bilinear.analysis.integer_range import way_for
from bilinear.backends.timing import Call, interleaved
from bilinear.codegen.build import Progress, no_progress
from bilinear.errors import BilinearError
from bilinear.frontend import Loaded, load
from bilinear.ir.matrix import Array
from bilinear.ir.measurement import LeftOut, Load, Shape
from bilinear.measure.bench_tasks import pinned
from bilinear.measure.check_multiply import Device, module_of, on_host, require_memory, timed
from bilinear.runtime.matmul import matmul
from bilinear.version import __version__

Make = Callable[[Array, Array, Array], Call]  # Makes the call of a library.
NVML = "libnvidia-ml.so.1"  # The driver's library that counts energy.
BATCH_MS, STILL_S = 10.0, 1.0  # Calls between looks at the counter; seconds until it is still.
NOT_TRANSPOSED = 0  # `CUBLAS_OP_N`.


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

            def fail(error: Exception = error) -> None:
                raise error

            calls[name] = fail
    return calls


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
PATIENCE = 10.0  # Seconds after which the driver's tool is given up.


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


def energy_counter() -> Callable[[], int] | None:
    """What reads the millijoules that the current GPU has taken since its driver was loaded; None where NVML does not count them."""
    import cupy

    try:
        nvml, device, count = ctypes.CDLL(NVML), ctypes.c_void_p(), ctypes.c_ulonglong()
        if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByPciBusId_v2(cupy.cuda.Device().pci_bus_id.encode(), ctypes.byref(device)):
            return None
    except (OSError, AttributeError):
        return None

    def read() -> int:
        return count.value if nvml.nvmlDeviceGetTotalEnergyConsumption(device, ctypes.byref(count)) == 0 else -1

    return read if read() >= 0 else None


def joules(call: Call, ms: float, counter: Callable[[], int], seconds: float) -> float | None:
    """The joules of a call that takes so many milliseconds, repeated for at least so many seconds; None if the counter stands still."""
    readings = _changes(call, ceil(BATCH_MS / max(ms, 1e-3)), counter)
    began = next(readings, None)
    for at, calls, count in readings:
        if began is not None and at - began[0] >= seconds:
            return 1e-3 * (count - began[2]) / (calls - began[1])
    return None


def _changes(call: Call, in_a_row: int, counter: Callable[[], int]) -> Iterator[tuple[float, int, int]]:
    """The time, the calls so far and the counter, each time that it has moved, because it moves in steps; ends once it stands still."""
    import cupy

    calls, last, moved = 0, counter(), time.perf_counter()
    while time.perf_counter() - moved < STILL_S:
        for _ in range(in_a_row):
            call()
        cupy.cuda.get_current_stream().synchronize()
        calls, count = calls + in_a_row, counter()
        if count != last:
            last, moved = count, time.perf_counter()
            yield moved, calls, count


def _query(names: tuple[str, ...]) -> list[str]:
    """The tool's words, which name the current device by its PCI bus address: it numbers devices differently from CUDA."""
    words = ["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader"]
    with suppress(Exception):
        import cupy

        words.append(f"--id={cupy.cuda.Device().pci_bus_id}")
    return words


def _fields(names: tuple[str, ...], line: str) -> dict[str, str]:
    values = [field.strip() for field in line.strip().split(",")]
    return dict(zip(names, values, strict=True)) if len(values) == len(names) else {}


def _number(text: str) -> float | None:
    """`1980 MHz` as a number; None if the tool reports none."""
    with suppress(ValueError, IndexError):
        return float(text.split(maxsplit=1)[0])
    return None


DOUBT = 64  # A wrong result passes with a probability of at most 2^-DOUBT, modulo a prime.
ALPHA, BETA = 2, 3


@dataclass(frozen=True)
class ModularCheck:
    """One checked multiply modulo p: whether C is exact, and A and B are as promised; times are single calls in seconds."""

    device: Device
    shape: tuple[int, int, int]
    modulus: int
    levels: int
    inputs: str
    exact: bool
    restored: bool
    seconds: float
    classical_seconds: float

    @property
    def passed(self) -> bool:
        """True if nothing is wrong."""
        return self.exact and self.restored

    def to_json(self) -> dict[str, object]:
        """The fields, and whether the check passed."""
        return {**asdict(self), "passed": self.passed}


def check_modulo(
    loaded: Loaded, shape: tuple[int, int, int], modulus: int, levels: int, inputs: str, device: Device = "cpu"
) -> ModularCheck:
    """Multiply random m x k by k x n modulo p, with alpha = 2 and beta = 3, and classically with 1 and 0.

    C X is compared with alpha*A (B X) + beta*C0 X, for random vectors X and in Python's integers. A row of C that is wrong passes one
    vector with a probability of at most 1/q, q the least prime factor of p (R. Freivalds, IFIP Congress 1977).
    """
    require_memory(shape)
    m, k, n = shape
    generator = np.random.default_rng(20_260)
    a, b, c = (generator.integers(0, modulus, size) for size in ((m, k), (k, n), (m, n)))
    xp = module_of(device)
    left, right, out = (xp.array(each) for each in (a, b, c))
    options: dict[str, Any] = {"algorithm": loaded, "levels": levels, "inputs": inputs, "modulus": modulus}
    seconds = timed(device, lambda: matmul(left, right, out, alpha=ALPHA, beta=BETA, **options))
    left, right, out = map(on_host, (left, right, out))
    x = generator.integers(0, modulus, (n, ceil(DOUBT / log2(modulus))))
    wanted = (ALPHA * _times(a, _times(b, x, modulus), modulus) + BETA * _times(c, x, modulus)) % modulus
    exact = bool((_times(out, x, modulus) == wanted).all() and (out >= 0).all() and (out < modulus).all())
    restored = inputs == "consume" or bool((left == a).all() and (right == b).all())
    x, y = xp.array(a), xp.array(b)
    classical = timed(device, lambda: matmul(x, y, modulus=modulus))
    return ModularCheck(device, shape, modulus, levels, inputs, exact, restored, seconds, classical)


def is_product_modulo(a: Array, b: Array, c: Array, modulus: int) -> bool:
    """Whether c is a @ b modulo p, from 0 to p - 1: compared on random vectors as in `check_modulo`, by products on the processors."""
    x = np.random.default_rng(5).integers(0, modulus, (b.shape[1], ceil(DOUBT / log2(modulus))))
    same = matmul(c, x, modulus=modulus) == matmul(a, matmul(b, x, modulus=modulus), modulus=modulus)
    return bool(same.all() and (c >= 0).all() and (c < modulus).all())


def _times(matrix: Array, vectors: Array, modulus: int) -> Array:
    """A product of few columns modulo p: in int64 if it can hold the sums, else in Python's integers."""
    fits = matrix.shape[1] * (modulus - 1) ** 2 < 2**63
    return (matrix @ vectors if fits else matrix.astype(object) @ vectors.astype(object)) % modulus


AUTO = "auto"
ROUNDS = 7


@dataclass(frozen=True)
class ModularTime:
    """An algorithm timed modulo p; milliseconds are medians over the rounds.

    `pieces_ms` is the time of the float64 products alone that an exact product by pieces takes: `pieces` of them, by the fastest library.
    What cuts the numbers, and reduces sums, is not in it. `exact` says that random vectors found no difference from the definition.
    """

    shape: Shape
    modulus: int
    asked: str
    ms: float
    pieces: int
    pieces_ms: float
    exact: bool

    @property
    def ratio(self) -> float:
        """How many times as fast as the float64 products it is."""
        return self.pieces_ms / self.ms

    @property
    def rate(self) -> float:
        """Operations of the definition, in TOP/s."""
        m, k, n = self.shape
        return 2e-9 * m * k * n / self.ms

    def to_json(self) -> dict[str, object]:
        """One row of a results file."""
        return {**asdict(self), "n": self.shape[2], "ratio": self.ratio, "TOP/s": self.rate}


def measure_modulo(
    shapes: Sequence[Shape], modulus: int, asked: Sequence[str], rounds: int = ROUNDS, progress: Progress = no_progress
) -> Iterator[ModularTime | LeftOut]:
    """The rows of all shapes as they are found, and what could not be measured. `asked` is `auto` or `NAME:LEVELS`."""
    for number, shape in enumerate(shapes):
        progress("x".join(map(str, shape)), number, len(shapes))
        try:
            yield from _of_shape(shape, modulus, asked, rounds)
        except Exception as error:  # CuPy and the driver raise many kinds, and the other shapes are still worth measuring
            yield LeftOut("x".join(map(str, shape)), f"{type(error).__name__}: {error}")


def modular_json(rows: Sequence[ModularTime], left_out: Sequence[LeftOut], command: Sequence[str]) -> str:
    """The results, and the machine, as JSON text."""
    found = {"benchmark": "bench", "machine": machine(), "command": list(command), "rows": [row.to_json() for row in rows]}
    return json.dumps(found | {"left_out": [asdict(one) for one in left_out]}, indent=1) + "\n"


def _of_shape(shape: Shape, modulus: int, asked: Sequence[str], rounds: int) -> Iterator[ModularTime | LeftOut]:
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()
    (m, k, n), generator = shape, cupy.random.default_rng(7)
    a, b = (generator.integers(0, modulus, extents) for extents in ((m, k), (k, n)))
    c, calls, exact = cupy.empty((m, n), "int64"), dict[str, Call](), dict[str, bool]()
    for word in asked:
        try:
            call = _call(word, a, b, c, modulus)
            c[...] = -1
            call()
        except (BilinearError, MemoryError) as error:
            told = error.diagnostics[0].message if isinstance(error, BilinearError) else f"out of memory: {error}"
            yield LeftOut(f"{word} at {'x'.join(map(str, shape))}", told)
            continue
        calls[word], exact[word] = call, is_product_modulo(on_host(a), on_host(b), on_host(c), modulus)
    x, y, z = a.astype("float64"), b.astype("float64"), cupy.empty((m, n), "float64")
    pieces, libraries = len(way_for(modulus, modulus // 2, modulus // 2, k).pairs), library_calls(x, y, z)
    times = {name: median(found) for name, found in interleaved({**libraries, **calls}, rounds).items()}
    pieces_ms = pieces * min(times[name] for name in libraries)
    for word in calls:
        yield ModularTime(shape, modulus, word, times[word], pieces, pieces_ms, exact[word])


def _call(word: str, a: Array, b: Array, c: Array, modulus: int) -> Call:
    if word == AUTO:
        return partial(matmul, a, b, c, modulus=modulus)
    levels = pinned(word).levels
    is_mixed = len(set(levels)) > 1
    algorithm = load(" (x) ".join(levels) if is_mixed else levels[0])
    return partial(matmul, a, b, c, modulus=modulus, algorithm=algorithm, levels=1 if is_mixed else len(levels))
