"""What the stand-in for cuBLAS (templates/standin.c.j2) calls: products by addresses, a decision for each kind of them, and a log."""

from __future__ import annotations

import atexit
import ctypes
import json
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from fnmatch import fnmatch
from functools import cache
from threading import Lock
from types import ModuleType

import numpy as np

from bilinear.analysis.accuracy import run_error_bound
from bilinear.errors import BilinearError
from bilinear.ir.element import COMPILED
from bilinear.ir.matrix import Array, real_type
from bilinear.methods.planning import same_bits_plan
from bilinear.planner.plan import Plan
from bilinear.runtime import devices_here
from bilinear.runtime.arrays import cupy_module, kind_of
from bilinear.runtime.auto import plan_for, problem_of
from bilinear.runtime.call import matmul_arrays
from bilinear.runtime.decide import decide
from bilinear.runtime.operands import layouts_of
from bilinear.runtime.options import Options, check_options
from bilinear.visible import visible

PASSES, MULTIPLIED, PASSES_ALWAYS, FAILED = range(4)
"""The answers: cuBLAS is to multiply; it is done; cuBLAS is to multiply this kind of product from now on; C may be half written."""
DTYPES = {0: "float32", 1: "float64", 4: "complex64", 5: "complex128"}  # By the numbers of cudaDataType.
COMPLEX_TYPES = 4, 5
KEY = ("type", "ta", "tb", "m", "n", "k", "lda", "ldb", "ldc", "sa", "sb", "sc", "batch", "device", "adds", "gram")
ADDRESSES = "a", "b", "c", "stream"
LEAST = 2.0**30  # The least m * n * k of a product that is offered, unless BILINEAR_LEAST says another one.


class OfferedProduct(ctypes.Structure):
    """C = alpha * op(A) * op(B) + beta * C in column-major order, as the C library lays it out."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in KEY),
        *((name, ctypes.c_uint64) for name in ADDRESSES),
        ("alpha", ctypes.c_double * 2),
        ("beta", ctypes.c_double * 2),
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
    m, n, k, dtype = product.m, product.n, product.k, np.dtype(DTYPES[product.type])

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


class StandIn:
    """What is asked for, what was decided for each kind of product, and the log."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._log, self._skipped = variables.get("BILINEAR_LOG", ""), variables.get("BILINEAR_SKIP", "").split()
        self._known: dict[tuple[int, ...], dict[str, object]] = {}
        self._first = Lock()
        self._asked = asked_for(variables)

    def answer(self, product: OfferedProduct) -> int:
        """Multiply, or say that cuBLAS is to. Nothing is raised."""
        try:
            found, answer = self._answer(product)
        except Exception as error:  # such as one of the CUDA runtime: the program's own call will meet it, too
            found, answer = {"plan": "library", "why": visible(f"{type(error).__name__}: {error}")}, PASSES
        with suppress(OSError):
            self._tell(product, found)
        return PASSES if answer == PASSES_ALWAYS and self._log else answer

    def _answer(self, product: OfferedProduct) -> tuple[dict[str, object], int]:
        key = tuple(getattr(product, name) for name in KEY)
        module = _module()
        with _stream(module, product.stream):
            parts = [_operands(module, product, number) for number in range(product.batch)]
            alpha, beta = (complex(*pair) if pair[1] else pair[0] for pair in (product.alpha, product.beta))
            asked = self._asked._replace(alpha=alpha, beta=beta)  # of C^T = op(B)^T * op(A)^T
            conjugated = "A" * (product.tb == 2) + "B" * (product.ta == 2) if product.type in COMPLEX_TYPES else ""
            if key not in self._known:
                with self._first:
                    self._known.setdefault(key, self._decided(product, asked, *parts[0]))
            found = self._known[key]
            if found["plan"] == "library":
                return found, PASSES_ALWAYS
            begun = False
            try:
                for b, a, c in parts:
                    matmul_arrays(b, a, c, asked._replace(conjugated=conjugated))
                    begun = True
            except Exception as error:
                is_safe = product.adds == 0 or (not begun and isinstance(error, BilinearError | MemoryError))  # before anything is written
                return {"plan": "library", "why": visible(str(error))}, PASSES if is_safe else FAILED
            return found, MULTIPLIED

    def _decided(self, product: OfferedProduct, asked: Options, a: Array, b: Array, c: Array) -> dict[str, object]:
        dtype, inner = DTYPES[product.type], product.k
        shape = f"{dtype}:{product.m}x{inner}x{product.n}"
        for pattern in self._skipped:
            if fnmatch(shape, pattern):
                return {"plan": "library", "why": f"BILINEAR_SKIP has {visible(pattern)}"}
        if product.batch < 1 or not {product.ta, product.tb} <= {0, 1, 2}:
            return {"plan": "library", "why": "an operation that is not known"}
        kind, layouts = kind_of(a, b, c), layouts_of(a, b, c)
        plan: Plan | None = None
        if asked.reproducible is not None:
            device = devices_here.current_device() if kind.on_gpu else None
            if device is None:
                return {"plan": "library", "why": "reproducible products need a GPU whose description is known"}
            problem = problem_of(layouts, "preserve", asked.most_bytes, bool(product.adds))
            plan = same_bits_plan(replace(problem, accuracy=asked.accuracy), device)
        elif asked.algorithm == "auto":
            plan = plan_for(layouts, "preserve", asked.most_bytes, bool(product.adds), asked.accuracy) if kind.on_gpu else None
            if plan is None or plan.is_library:
                return {"plan": "library", "why": "no plan can run" if plan is None else plan.chosen.why}
        if plan is not None:
            library = next((one.ms for one in plan.candidates if one.is_library), None)
            chosen = plan.chosen
            times = {"ms": chosen.ms, "library_ms": library} if chosen.ms is not None and library is not None else {}
            return {"plan": chosen.name, "bound": chosen.choice.bound(inner, dtype), "why": chosen.why} | times
        decision = decide(asked.settled(kind), layouts)
        if decision.recipe is None or decision.placement is None:
            return {"plan": "library", "why": "the named algorithm cannot run on these matrices where they lie"}
        unit = COMPILED[real_type(decision.dtype).name].unit_roundoff
        bound = float(run_error_bound(decision.placement.schedule, inner, unit).product) * unit
        return {"plan": decision.recipe.loaded.name, "bound": bound, "why": "BILINEAR_ALGORITHM names it"}

    def _tell(self, product: OfferedProduct, found: Mapping[str, object]) -> None:
        if not self._log:
            return
        operations = "".join("NTC"[op] if 0 <= op < 3 else "?" for op in (product.ta, product.tb))
        what = {"shape": [product.m, product.k, product.n], "dtype": DTYPES[product.type], "operations": operations, "batch": product.batch}
        with open(self._log, "a", encoding="utf-8") as file:  # as one write, which other processes do not cut
            file.write(json.dumps(what | dict(found)) + "\n")
