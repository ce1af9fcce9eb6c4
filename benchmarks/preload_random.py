"""Random calls of cuBLAS under the stand-in, each beside cuBLAS itself, in exact integers: `python benchmarks/preload_random.py 300`.

Several processes run at once on one GPU until the seconds are over. One that crashes is counted, with its seed and last call, and another
follows. cuBLAS itself is its pedantic mode, which the stand-in leaves alone.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
CODES = {"float32": (0, 68, "S"), "float64": (1, 70, "D"), "complex64": (4, 68, "C"), "complex128": (5, 70, "Z")}
"""The numbers of cudaDataType and of cublasComputeType_t, and the letters of BLAS. A pedantic mode is the next number."""
HALVES = {"float16": 2, "bfloat16": 14}
EXACT = {"float16": 1000, "bfloat16": 120}
"""The terms of -1, 0 and 1 whose sums are exact even where cuBLAS adds parts of them in 16 bits, which its default mode allows."""
KINDS = {"gemm": 8, "typed": 2, "batched": 3, "lt": 3, "syrk": 5, "half": 4, "graph": 2}
"""How often a kind of call comes."""
LARGEST = {"large": 3000, "small": 900}
PEDANTIC = 2  # Of cublasMath_t.


class Case(NamedTuple):
    """A call: its kind, element type, operations (of syrk the second one is the triangle), extents and so on."""

    kind: str
    dtype: str
    ta: int
    tb: int
    m: int
    n: int
    k: int
    lda: int
    ldb: int
    ldc: int
    batch: int
    alpha: int
    beta: int
    on_device: bool
    is_long: bool
    sums_in_half: bool

    @property
    def steps(self) -> tuple[int, int, int]:
        """The elements of a matrix of each operand."""
        return self.lda * (self.k, self.m)[self.ta > 0], self.ldb * (self.n, self.k)[self.tb > 0], self.ldc * self.n


class Calls:
    """A process's handle of cuBLAS, streams and integers, and its random cases."""

    def __init__(self, seed: int) -> None:
        import cupy as cp
        import numpy as np

        cp.ones((2, 2)) @ cp.ones((2, 2))
        self.blas, self.lt = (ctypes.CDLL(_loaded(name)) for name in ("libcublas.so", "libcublasLt.so"))
        self.handle, self.lt_handle = ctypes.c_void_p(), ctypes.c_void_p()
        self._checked("cublasCreate_v2", ctypes.byref(self.handle))
        assert self.lt.cublasLtCreate(ctypes.byref(self.lt_handle)) == 0
        self.rng, self.largest = np.random.default_rng(seed), LARGEST["small" if seed % 3 == 1 else "large"]
        self.extents = [int(e) for e in self.rng.integers(1 if seed % 2 else self.largest // 3, self.largest, 6)]
        self.memory = cp.random.RandomState(seed % 1000).randint(-3, 4, 3 * (self.largest + 40) ** 2).astype("int8")
        self.streams = [cp.cuda.Stream.null, cp.cuda.Stream(non_blocking=True)]

    def _checked(self, name: str, *words: Any) -> None:
        """Call a function of cuBLAS; numbers are C's int, addresses have types of their own."""
        status = getattr(self.blas, name)(*words)
        assert status == 0, (name, status)

    def _integers(self, dtype: str, size: int, largest: int = 3) -> Any:
        start = int(self.rng.integers(0, 9))
        x = self.memory[start : start + size]
        x = (x if largest == 3 else x.clip(-1, 1)).astype("float32" if dtype == "bfloat16" else dtype)
        return _bits(x) if dtype == "bfloat16" else x + 1j * x[::-1] if dtype.startswith("complex") else x

    def drawn(self) -> Case:
        """A random call."""
        rng = self.rng
        kind = str(rng.choice(list(KINDS), p=[often / sum(KINDS.values()) for often in KINDS.values()]))
        dtype = str(rng.choice(list(HALVES) if kind == "half" else ["float32", "float64"] if kind == "syrk" else list(CODES)))
        ta, tb = (int(op) for op in rng.integers(0, 3 if dtype.startswith("complex") else 2, 2))
        m, n, k = (int(e) for e in rng.choice(self.extents, 3))
        batch = int(rng.integers(1, 4)) if kind == "batched" or (kind == "half" and rng.random() < 0.4) else 1
        if batch > 1:
            m, n, k = (max(1, e // 2) for e in (m, n, k))
        sums_in_half = dtype == "float16" and bool(rng.random() < 0.3)
        k = min(k, EXACT.get(dtype, k))
        n = m if kind == "syrk" else n
        rows = zip(((m, k)[ta > 0], (k, n)[tb > 0], m), rng.choice([0, 1, 8, 33], 3), strict=True)
        lda, ldb, ldc = (int(count + padding) for count, padding in rows)
        alpha, beta = int(rng.choice([1, 2, -1])), int(rng.choice([0, 0, 1, -2]))
        on_device, is_long = bool(rng.random() < 0.1 and kind != "lt"), bool(rng.random() < 0.5)
        return Case(kind, dtype, ta, tb, m, n, k, lda, ldb, ldc, batch, alpha, beta, on_device, is_long, sums_in_half)

    def one(self, case: Case) -> bool:
        """A call, and the same by cuBLAS itself: whether all elements of C agree."""
        import cupy as cp
        import numpy as np

        kind, dtype, batch = case.kind, case.dtype, case.batch
        a, b, c = (self._integers(dtype, step * batch, 1 if kind == "half" else 3) for step in case.steps)
        single = np.dtype("float16" if case.sums_in_half else "float32" if kind == "half" else dtype)
        if case.beta == 0:
            self._spoil(c, case)
        factors, expected = np.array([case.alpha, case.beta], single), c.copy()
        stream = self.streams[1 if kind == "graph" else int(self.rng.integers(0, 2))]
        given = cp.asarray(factors)
        cp.cuda.Device().synchronize()
        self._checked("cublasSetStream_v2", self.handle, ctypes.c_void_p(stream.ptr))
        self._checked("cublasSetPointerMode_v2", self.handle, int(case.on_device))
        first = given.data.ptr if case.on_device else factors.ctypes.data
        scalars = ctypes.c_void_p(first), ctypes.c_void_p(first + single.itemsize)
        places = [ctypes.c_void_p(x.data.ptr) for x in (a, b, c, expected)]
        if kind == "graph":
            stream.begin_capture()
        self._call(case, scalars, places, stream.ptr)
        if kind == "graph":
            stream.end_capture().launch(stream)
        self._pedantic(case, scalars, places)
        cp.cuda.Device().synchronize()
        self._checked("cublasSetPointerMode_v2", self.handle, 0)
        if dtype == "bfloat16":
            c, expected = ((x.astype("uint32") << 16).view("float32") for x in (c, expected))
        return bool((c == expected).all())

    def _call(self, case: Case, scalars: Any, places: Any, stream: int) -> None:
        kind, batch = case.kind, case.batch
        extent, ending = (ctypes.c_int64, "_64") if case.is_long else (ctypes.c_int, "")
        number, compute, letter = CODES.get(case.dtype, (HALVES.get(case.dtype, 0), 64 if case.sums_in_half else 68, ""))
        if kind == "lt":
            self._by_lt(number, compute, case, scalars, places, stream)
            return
        if kind == "syrk":
            self._syrk(case, scalars, places[0], places[2])
            return
        is_typed, steps = letter == "" or kind == "typed", map(ctypes.c_longlong, case.steps)
        words: list[Any] = [self.handle, case.ta, case.tb, *map(extent, (case.m, case.n, case.k)), scalars[0]]
        for which, (place, leading, step) in enumerate(zip(places, (case.lda, case.ldb, case.ldc), steps, strict=False)):
            words += [*([scalars[1]] if which == 2 else []), place, *([number] if is_typed else []), extent(leading)]
            words += [step] if batch > 1 else []
        words += [*([extent(batch)] if batch > 1 else []), *([compute, -1] if is_typed else [])]
        name = ("Gemm" if is_typed else f"{letter}gemm") + ("StridedBatched" if batch > 1 else "")
        self._checked(f"cublas{name}{'Ex' if is_typed else '' if batch > 1 else '_v2'}{ending}", *words)

    def _pedantic(self, case: Case, scalars: Any, places: Any) -> None:
        """The same into the last place, by cuBLAS itself."""
        if case.kind == "syrk":
            self._checked("cublasSetMathMode", self.handle, PEDANTIC)
            self._syrk(case, scalars, places[0], places[3])
            self._checked("cublasSetMathMode", self.handle, 0)
            return
        compute = CODES.get(case.dtype, (0, 64 if case.sums_in_half else 68, ""))[1] + 1
        number = CODES.get(case.dtype, (HALVES.get(case.dtype, 0),))[0]
        x, y, z = (
            (place, number, ld, ctypes.c_longlong(step))
            for place, ld, step in zip((*places[:2], places[3]), case[7:10], case.steps, strict=True)
        )
        words = self.handle, case.ta, case.tb, case.m, case.n, case.k, scalars[0], *x, *y, scalars[1], *z, case.batch, compute, -1
        self._checked("cublasGemmStridedBatchedEx", *words)

    def _syrk(self, case: Case, scalars: Any, a: Any, c: Any) -> None:
        extent, ending = (ctypes.c_int64, "_64") if case.is_long else (ctypes.c_int, "")
        words = self.handle, case.tb, case.ta, extent(case.m), extent(case.k), scalars[0], a, extent(case.lda)
        self._checked(f"cublas{CODES[case.dtype][2]}syrk_v2{ending}", *words, scalars[1], c, extent(case.ldc))

    def _spoil(self, c: Any, case: Case) -> None:
        """NaN where C is written and must not be read: all of it, or the triangle of syrk, in rows what cuBLAS has in columns."""
        import cupy as cp

        there = c.reshape(case.batch, case.n, case.ldc)[:, :, : case.m]
        nan = 0x7FC0 if c.dtype == "uint16" else float("nan")
        if case.kind != "syrk":
            there[...] = nan
        else:
            mask = cp.tri(case.m, dtype=bool)  # by columns the upper triangle
            cp.copyto(there, cp.asarray(nan, c.dtype), where=mask.T if case.tb == 0 else mask)

    def _by_lt(self, number: int, compute: int, case: Case, scalars: Any, places: Any, stream: int) -> None:
        ta, tb, m, n, k = case[2:7]
        lt, how, layouts = self.lt, ctypes.c_void_p(), []
        assert lt.cublasLtMatmulDescCreate(ctypes.byref(how), compute, number) == 0
        for which, op in ((3, ta), (4, tb)):
            assert lt.cublasLtMatmulDescSetAttribute(how, which, ctypes.byref(ctypes.c_int32(op)), ctypes.c_size_t(4)) == 0
        for ld, (rows, columns) in zip(case[7:10], (((m, k), (k, m))[ta > 0], ((k, n), (n, k))[tb > 0], (m, n)), strict=True):
            layouts.append(ctypes.c_void_p())
            wide = map(ctypes.c_uint64, (rows, columns))
            assert lt.cublasLtMatrixLayoutCreate(ctypes.byref(layouts[-1]), number, *wide, ctypes.c_int64(ld)) == 0
        (a, b, c), (x, y, z) = places[:3], layouts
        end = None, None, ctypes.c_size_t(0), ctypes.c_void_p(stream)
        status = lt.cublasLtMatmul(self.lt_handle, how, scalars[0], a, x, b, y, scalars[1], c, z, c, z, *end)
        assert status == 0, ("cublasLtMatmul", status)
        for layout in layouts:
            lt.cublasLtMatrixLayoutDestroy(layout)
        lt.cublasLtMatmulDescDestroy(how)


def _bits(x: Any) -> Any:
    """The bits of bfloat16 of small integers, which have few."""
    import cupy as cp

    return (x.view(cp.uint32) >> 16).astype(cp.uint16)


def _loaded(name: str) -> str:
    """The path of a library that this process has loaded."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return next(line.split()[-1] for line in lines if f"/{name}" in line)


def child(seconds: float, seed: int, last: str) -> None:
    """Calls until the seconds are over; prints how many there were of each kind, and those that were wrong."""
    began, place = time.perf_counter(), os.open(last, os.O_WRONLY | os.O_CREAT)
    calls, done, wrong = Calls(seed), Counter[str](), []
    while time.perf_counter() - began < seconds:
        case = calls.drawn()
        os.pwrite(place, json.dumps(case).ljust(200).encode(), 0)
        if not calls.one(case):
            wrong.append(case)
        done[f"{case.kind} {case.dtype}"] += 1
    print(json.dumps({"done": done, "wrong": wrong}))


def one_after_another(place: int, seconds: float, seed: int, folder: str) -> dict[str, Any]:
    """Processes in one place until the seconds are over: their calls, the wrong ones, and the processes that did not end well."""
    began, done, taken = time.perf_counter(), Counter[str](), 0
    wrong: list[list[Any]] = []
    failed: list[dict[str, Any]] = []
    while (left := seconds - (time.perf_counter() - began)) > 3 and len(failed) < 20:
        last, log = f"{folder}/last{place}", f"{folder}/log{place}"
        words = ["--log", log, "--", sys.executable, __file__, "--child", str(left), str(seed), last]
        least = {"BILINEAR_LEAST": "1"} if seed % 3 == 1 else {}
        environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))} | least
        command = [sys.executable, "-m", "bilinear", "run-with", *words]
        status: int | str = "no end"
        said = ""
        try:
            ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=left + 120)
            status, said = ran.returncode, ran.stderr
            if status == 0:
                found = json.loads(ran.stdout.splitlines()[-1])
                done.update(found["done"])
                wrong += [[seed, *case] for case in found["wrong"]]
        except subprocess.TimeoutExpired:
            pass
        if status != 0:
            case = Path(last).read_text(encoding="utf-8").strip() if Path(last).exists() else ""
            failed.append({"seed": seed, "status": status, "last": case, "said": said[-400:]})
        if Path(log).exists():
            with open(log, encoding="utf-8") as file:
                taken += sum('"plan": "library"' not in line for line in file)
            os.remove(log)
        seed += 1000
    return {"done": done, "wrong": wrong, "failed": failed, "taken": taken}


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        child(float(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
        return
    from common import need_gpu, parser_of, save

    parser = parser_of(__doc__)
    parser.add_argument("seconds", type=float, help="how long")
    parser.add_argument("--processes", type=int, default=12, help="how many at once")
    parser.add_argument("--seed", type=int, default=1, help="of the first process")
    asked = parser.parse_args()
    need_gpu()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(asked.processes) as threads:
        found = list(threads.map(lambda i: one_after_another(i, asked.seconds, asked.seed + i, folder), range(asked.processes)))
    done = sum((one["done"] for one in found), Counter[str]())
    row: dict[str, Any] = {name: [x for one in found for x in one[name]] for name in ("wrong", "failed")}
    row |= {"taken": sum(one["taken"] for one in found), "calls": sum(done.values()), "kinds": dict(sorted(done.items()))}
    row |= {"processes": asked.processes, "seconds": asked.seconds, "right": not row["wrong"] and not row["failed"]}
    print(json.dumps(row, indent=1))
    save("preload-random", [row], asked.json)


if __name__ == "__main__":
    main()
