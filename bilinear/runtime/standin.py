"""What the stand-in for cuBLAS (templates/standin.c.j2) calls: products by addresses, a decision for each kind of them, and a log."""

from __future__ import annotations

import atexit
import ctypes
import json
import os
from collections import deque
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from fnmatch import fnmatch
from functools import cache
from threading import Lock
from time import perf_counter
from types import ModuleType
from typing import NamedTuple

import numpy as np

from bilinear.analysis.accuracy import run_error_bound
from bilinear.errors import BilinearError
from bilinear.ir.element import COMPILED, HALVES
from bilinear.ir.matrix import Array, real_type
from bilinear.methods.halves import WAYS, half_plan
from bilinear.methods.planning import same_bits_plan
from bilinear.planner.gram import GramPlan
from bilinear.planner.plan import Plan
from bilinear.planner.problem import Problem
from bilinear.runtime import devices_here
from bilinear.runtime.arrays import cupy_module, kind_of
from bilinear.runtime.auto import plan_for, problem_of
from bilinear.runtime.call import matmul_arrays
from bilinear.runtime.decide import check_library_accuracy, decide
from bilinear.runtime.devices_here import policy_here
from bilinear.runtime.gram_blocks import gram_arrays, lower_of
from bilinear.runtime.gram_plans import described_plan
from bilinear.runtime.half import by_half
from bilinear.runtime.operands import layouts_of
from bilinear.runtime.options import Options, check_options
from bilinear.visible import visible

PASSES, MULTIPLIED, PASSES_ALWAYS, FAILED, CUBLAS_FIRST = range(5)
"""The answers: cuBLAS is to multiply; it is done; cuBLAS is to multiply this kind of product from now on; C may be half written; cuBLAS
is to multiply, and this product is offered again: so its time is measured."""
DTYPES = {0: "float32", 1: "float64", 2: "float16", 4: "complex64", 5: "complex128", 14: "bfloat16"}  # By the numbers of cudaDataType.
COMPLEX_TYPES = 4, 5
TRIANGLES = None, "upper", "lower"  # Of C^T, by rows: none, that of cuBLAS's lower and of its upper one.
KEY = ("type", "ta", "tb", "m", "n", "k", "lda", "ldb", "ldc", "sa", "sb", "sc", "batch", "device", "adds", "gram", "triangle")
ADDRESSES = "a", "b", "c", "stream"
LEAST = 2.0**30  # The least m * n * k of a product that is offered, unless BILINEAR_LEAST says another one.


class OfferedProduct(ctypes.Structure):
    """C = alpha * op(A) * op(B) + beta * C in column-major order, as the C library lays it out."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in KEY),
        *((name, ctypes.c_uint64) for name in ADDRESSES),
        ("alpha", ctypes.c_double * 2),
        ("beta", ctypes.c_double * 2),
        ("round", ctypes.c_int64),
    )


def asked_for(variables: Mapping[str, str]) -> Options:
    """What the environment asks of every product. Raises `BilinearError` as `matmul` does for what makes no sense."""
    accuracy: Array = variables.get("BILINEAR_ACCURACY") or None
    workspace = variables.get("BILINEAR_WORKSPACE") or None
    with suppress(ValueError, TypeError):
        accuracy = float(accuracy)
    asked = Options(
        algorithm=variables.get("BILINEAR_ALGORITHM") or "auto",
        accuracy=accuracy,
        workspace=int(workspace) if workspace is not None and workspace.isdecimal() else workspace,
        reproducible=variables.get("BILINEAR_REPRODUCIBLE") or None,
    )
    check_options(asked, None)
    _ = asked.most_bytes
    return asked.as_named()


def serve(place: int) -> None:
    """Put the address of the function that multiplies at a place in the C library, which calls it until Python ends."""
    standin = StandIn(os.environ)
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(OfferedProduct))(lambda product: standin.answer(product.contents))
    slot = ctypes.c_void_p.from_address(place)
    atexit.register(standin.write, True)
    atexit.register(setattr, slot, "value", None)
    _served.append(function)
    slot.value = ctypes.cast(function, ctypes.c_void_p).value


_served: list[object] = []  # What C holds only the address of.


@cache
def _module() -> ModuleType:
    """The module of the arrays: CuPy's, or NumPy's in a process that has no driver of CUDA, so that its addresses are the host's."""
    try:
        ctypes.CDLL("libcuda.so.1", os.RTLD_NOLOAD)
    except OSError:
        return np
    return cupy_module()


def _operands(module: ModuleType, product: OfferedProduct, number: int) -> tuple[Array, Array, Array]:
    """op(B)^T, op(A)^T and C^T in a batch, in row-major order: the memory of column-major matrices, as it lies."""
    m, n, k, name = product.m, product.n, product.k, DTYPES[product.type]
    dtype = np.dtype("uint16" if name == "bfloat16" else name)

    def matrix(address: int, step: int, rows: int, columns: int, leading: int, transposed: bool) -> Array:
        shape, strides = (rows, columns), (leading * dtype.itemsize, dtype.itemsize)
        bytes_held = (((columns if transposed else rows) - 1) * leading + (rows if transposed else columns)) * dtype.itemsize
        strides = strides[::-1] if transposed else strides
        address += step * number * dtype.itemsize
        if module is np:
            return np.ndarray(shape, dtype, memoryview((ctypes.c_ubyte * bytes_held).from_address(address)), 0, strides)
        memory = module.cuda.UnownedMemory(address, bytes_held, None, product.device)
        return module.ndarray(shape, dtype, module.cuda.MemoryPointer(memory, 0), strides)

    return (
        matrix(product.b, product.sb, n, k, product.ldb, product.tb != 0),
        matrix(product.a, product.sa, k, m, product.lda, product.ta != 0),
        matrix(product.c, product.sc, n, m, product.ldc, False),
    )


def _stream(module: ModuleType, handle: int) -> AbstractContextManager[object]:
    stream: AbstractContextManager[object] = nullcontext()
    if module is not np:
        stream = module.cuda.ExternalStream(handle) if handle else module.cuda.Stream.null
    return stream


class _HostMark:
    """A moment of a process without CUDA."""

    done = True

    def __init__(self) -> None:
        self.at = perf_counter()


def _mark(module: ModuleType) -> Array:
    """A moment on the current stream, which nobody waits for."""
    if module is np:
        return _HostMark()
    event = module.cuda.Event()
    event.record()
    return event


def _milliseconds(first: Array, last: Array) -> float:
    if isinstance(first, _HostMark):
        return float(1e3 * (last.at - first.at))
    return float(cupy_module().cuda.get_elapsed_time(first, last))


class Decided(NamedTuple):
    """What is told of a kind of product, and the blocks of one of which a triangle is computed."""

    told: dict[str, object]
    gram: GramPlan | None = None
    aside: int = 0


class StandIn:
    """What is asked for, what was decided for each kind of product, and the log."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._log, self._skipped = variables.get("BILINEAR_LOG", ""), variables.get("BILINEAR_SKIP", "").split()
        self._known: dict[tuple[int, ...], Decided] = {}
        self._measures = bool(self._log and variables.get("BILINEAR_TIME_CUBLAS"))
        self._cublas: dict[tuple[int, ...], list[Array]] = {}  # the moments before and after cuBLAS multiplied
        self._lines: deque[tuple[dict[str, object], list[Array], list[Array]]] = deque()  # with the moments of the call, and of cuBLAS's
        self._first, self._writing = Lock(), Lock()
        self._asked = asked_for(variables)

    def answer(self, product: OfferedProduct) -> int:
        """Multiply, or say that cuBLAS is to. Nothing is raised."""
        marks: list[Array] = []
        try:
            found, answer = self._answer(product, marks)
        except Exception as error:  # such as one of the CUDA runtime: the program's own call will meet it, too
            found, answer = {"plan": "library", "why": visible(f"{type(error).__name__}: {error}")}, PASSES
        if self._log and answer != CUBLAS_FIRST:
            self._lines.append((_line(product, found), marks, self._cublas.get(_key(product), [])))
            self.write()
        return PASSES if answer == PASSES_ALWAYS and self._log else answer

    def _answer(self, product: OfferedProduct, marks: list[Array]) -> tuple[dict[str, object], int]:
        key, module = _key(product), _module()
        with _stream(module, product.stream):
            parts = [_operands(module, product, number) for number in range(product.batch)]
            alpha, beta = (complex(*pair) if pair[1] else pair[0] for pair in (product.alpha, product.beta))
            asked = self._asked._replace(alpha=alpha, beta=beta)  # of C^T = op(B)^T * op(A)^T
            conjugated = "A" * (product.tb == 2) + "B" * (product.ta == 2) if product.type in COMPLEX_TYPES else ""
            if key not in self._known:
                with self._first:
                    self._known.setdefault(key, self._decided(product, asked, *parts[0]))
            found = self._known[key]
            if found.told["plan"] == "library":
                return found.told, PASSES_ALWAYS
            if self._cublas_first(product, key, module):
                return found.told, CUBLAS_FIRST
            begun = False
            try:
                marks += [_mark(module)] if self._log else []
                for b, a, c in parts:
                    if found.aside and product.adds:
                        module.empty(found.aside, "uint8")  # what is missing is found before anything is written
                    begun = begun or product.triangle != 0
                    _multiply(product, asked._replace(conjugated=conjugated), found.gram, (b, a, c))
                    begun = True
                marks += [_mark(module)] if self._log else []
            except Exception as error:
                is_safe = product.adds == 0 or (not begun and isinstance(error, BilinearError | MemoryError))  # before anything is written
                return {"plan": "library", "why": visible(str(error))}, PASSES if is_safe else FAILED
            return found.told, MULTIPLIED

    def _cublas_first(self, product: OfferedProduct, key: tuple[int, ...], module: ModuleType) -> bool:
        """Whether cuBLAS is to multiply, once for each kind: once to begin, once for its time. Only into a C that is written anew."""
        if not self._measures or product.adds or (product.round == 0 and key in self._cublas):
            return False
        marks = self._cublas.setdefault(key, [])
        marks += [_mark(module)] if product.round else []
        return bool(product.round < 2)

    def _decided(self, product: OfferedProduct, asked: Options, a: Array, b: Array, c: Array) -> Decided:
        """What multiplies a kind of product: cuBLAS, if what is asked for cannot be kept."""
        try:
            return self._weighed(product, asked, a, b, c)
        except BilinearError as error:
            return _left(visible(str(error)))

    def _weighed(self, product: OfferedProduct, asked: Options, a: Array, b: Array, c: Array) -> Decided:
        dtype, inner = DTYPES[product.type], product.k
        shape = f"{dtype}:{product.m}x{inner}x{product.n}"
        for pattern in self._skipped:
            if fnmatch(shape, pattern):
                return _left(f"BILINEAR_SKIP has {visible(pattern)}")
        if product.batch < 1 or not {product.ta, product.tb} <= {0, 1, 2}:
            return _left("an operation that is not known")
        if dtype in HALVES:
            return self._of_half(product, asked, kind_of(a, b, c).on_gpu)
        if product.triangle and asked.algorithm == "auto" and asked.reproducible is None:
            return self._of_triangle(product, asked, a, c)
        kind, layouts = kind_of(a, b, c), layouts_of(a, b, c)
        plan: Plan | None = None
        if asked.reproducible is not None:
            device = devices_here.current_device() if kind.on_gpu else None
            if device is None:
                return _left("reproducible products need a GPU whose description is known")
            problem = problem_of(layouts, "preserve", asked.most_bytes, bool(product.adds))
            plan = same_bits_plan(replace(problem, accuracy=asked.accuracy), device)
        elif asked.algorithm == "auto":
            plan = plan_for(layouts, "preserve", asked.most_bytes, bool(product.adds), asked.accuracy) if kind.on_gpu else None
            if plan is None or plan.is_library:
                return _left("no plan can run" if plan is None else plan.chosen.why)
        if plan is not None:
            library = next((one.ms for one in plan.candidates if one.is_library), None)
            chosen = plan.chosen
            times = {"ms": chosen.ms, "library_ms": library} if chosen.ms is not None and library is not None else {}
            return Decided({"plan": chosen.name, "bound": chosen.choice.bound(inner, dtype), "why": chosen.why} | times)
        decision = decide(asked.settled(kind), layouts)
        if decision.recipe is None or decision.placement is None:
            return _left("the named algorithm cannot run on these matrices where they lie")
        unit = COMPILED[real_type(decision.dtype).name].unit_roundoff
        bound = float(run_error_bound(decision.placement.schedule, inner, unit).product) * unit
        return Decided({"plan": decision.recipe.loaded.name, "bound": bound, "why": "BILINEAR_ALGORITHM names it"})

    def _of_half(self, product: OfferedProduct, asked: Options, on_gpu: bool) -> Decided:
        """16 bits: sums of blocks around the library's products, where the GPU's description says that they gain."""
        dtype, extents = DTYPES[product.type], (product.n, product.k, product.m)
        if not on_gpu or asked.algorithm != "auto" or asked.reproducible is not None or min(extents) < policy_here().least_halves:
            return _left(f"no gain is known for {dtype}")
        chosen = half_plan(Problem(*extents, dtype, "preserve", asked.most_bytes, asked.accuracy), "", WAYS[0]).chosen
        return Decided({"plan": chosen.name, "bound": chosen.error, "why": f"the GPU's description knows a gain for {dtype}"})

    def _of_triangle(self, product: OfferedProduct, asked: Options, x: Array, c: Array) -> Decided:
        """One triangle of a matrix times its transpose, each block by its own plan. cuBLAS is taken to need half of a product's time."""
        n, k, dtype = product.n, product.k, DTYPES[product.type]
        on_gpu = kind_of(x, c).on_gpu
        plan = described_plan(asked, on_gpu, x) if on_gpu else None
        whole = None if plan is None else plan_for(layouts_of(x, x.T, c), "preserve", asked.most_bytes, bool(product.adds), asked.accuracy)
        if plan is None or whole is None or any(step.is_mirrored for step in plan.steps):
            return _left("no plan of one triangle can run")
        check_library_accuracy(asked.accuracy, k, c.dtype)  # of blocks that the library multiplies
        lower, found, aside = lower_of(c, TRIANGLES[product.triangle]), [], 0
        for step in plan.steps:
            rows, columns = slice(*step.rows), slice(*step.columns)
            adds = bool(product.adds) and not step.is_diagonal
            layouts = layouts_of(x[rows], x[columns].T, lower[rows, columns])
            own = plan_for(layouts, "preserve", asked.most_bytes, adds, asked.accuracy)
            found += [] if own is None else [own.chosen]
            aside = max(aside, c.itemsize * lower[rows, rows].size if step.is_diagonal else 0)
        times, library = [one.ms for one in found if one.ms is not None], [one.ms for one in whole.candidates if one.is_library]
        if len(times) < len(plan.steps) or not library or library[0] is None:
            return _left("no time of one triangle is known")
        ms, theirs, needed = sum(times), library[0] * (n + 1) / (2 * n), aside + plan.peak
        if ms >= theirs:
            return _left("cuBLAS is predicted to compute one triangle as fast")
        if asked.most_bytes is not None and needed > asked.most_bytes:
            return _left(f"one triangle needs {needed} bytes of workspace, {asked.most_bytes} are allowed")
        names, bound = dict.fromkeys(one.name for one in found), max(one.choice.bound(k, dtype) for one in found)
        told = {"plan": f"one triangle: {', '.join(names)}", "bound": bound, "ms": ms, "library_ms": theirs}
        return Decided(told | {"why": f"{theirs / ms:.2f} times as fast as half of the library's product"}, plan, needed)

    def write(self, is_last: bool = False) -> None:
        """Write the lines whose calls have ended; at last, all of them."""
        if not self._writing.acquire(blocking=is_last):
            return  # another thread writes
        try:
            while self._lines and (is_last or all(mark.done for mark in self._lines[0][1])):
                line, marks, cublas = self._lines.popleft()
                for name, pair in (("measured_ms", marks), ("library_measured_ms", cublas)):
                    if len(pair) == 2:
                        with suppress(Exception):  # a GPU that failed has no times
                            _ = pair[1].done or pair[1].synchronize()
                            line[name] = _milliseconds(*pair)
                with suppress(OSError), open(self._log, "a", encoding="utf-8") as file:  # as one write, which other processes do not cut
                    file.write(json.dumps(line) + "\n")
        finally:
            self._writing.release()


def _key(product: OfferedProduct) -> tuple[int, ...]:
    return tuple(getattr(product, name) for name in KEY)


def _left(why: str) -> Decided:
    return Decided({"plan": "library", "why": why})


def _line(product: OfferedProduct, found: Mapping[str, object]) -> dict[str, object]:
    operations = "".join("NTC"[op] if 0 <= op < 3 else "?" for op in (product.ta, product.tb))
    what = {"shape": [product.m, product.k, product.n], "dtype": DTYPES[product.type], "operations": operations, "batch": product.batch}
    triangle = {"triangle": (None, "lower", "upper")[product.triangle]} if product.triangle else {}
    return what | triangle | dict(found)


def _multiply(product: OfferedProduct, asked: Options, gram: GramPlan | None, operands: tuple[Array, Array, Array]) -> None:
    """A product of the batch. Raises before anything is written, or `MemoryError`, if it cannot run."""
    b, a, c = operands
    element = HALVES.get(DTYPES[product.type])
    if product.triangle:
        gram_arrays(asked, kind_of(b, c), b, c, TRIANGLES[product.triangle], gram)
    elif element is None:
        matmul_arrays(b, a, c, asked)
    elif by_half(asked, kind_of(b, a, c), element, b, a, c) is None:
        raise MemoryError("no kernel for 16 bits can be built, or memory is short")
