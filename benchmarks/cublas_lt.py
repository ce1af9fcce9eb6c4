"""Where cublasLt is worth asking: the calls of cuBLAS and of cublasLt that `auto` may make, beside the libraries, on the device alone.

The shapes are those of the grid whose products are not large, and some more that the rules of `cublas.suits_lt` are about.
"""

from __future__ import annotations

import ctypes
from math import prod
from time import monotonic
from typing import Any

from common import Call, beside_libraries, cupy, need_gpu, parser_of, save

from bilinear.backends.cublas_lt import launch_of
from bilinear.backends.gemm import gemm_of
from bilinear.ir.matrix import layout_of
from bilinear.measure.bench_tasks import grid

MOST = 10**10
"""Multiplications of the largest shape."""
MORE = (
    *((1, k, 1) for k in (1024, 4096, 16384, 65536, 2**19)),
    *((20000, 20000, 4), (20000, 32, 32), (9999, 31, 150), (150, 31, 9999), (601, 17, 601), (700, 121, 700)),
    *((12960, 62, 12928), (8192, 32, 8192), (16384, 16, 16384), (12000, 64, 12000), (10000, 96, 14000), (20000, 48, 9000)),
    *((6000, 24, 6000), (16000, 8, 16000), (9000, 128, 9000), (14000, 40, 7000), (5000, 62, 18000), (18000, 62, 5000)),
    *((2001, 21, 7000), (2000, 21, 7001), (5001, 101, 7001), (9001, 7, 9001), (401, 333, 5003), (3001, 300, 3001), (3001, 500, 3001)),
)
IN_A_ROW, ROUNDS = 10, 5


def by_lt(a: Any, b: Any, c: Any) -> dict[str, Call]:
    """The product by our own call of cublasLt; nothing where that has no kernel."""
    gemm = gemm_of(*map(layout_of, (a, b, c)))
    launch = None if gemm is None else launch_of(gemm, a.dtype, cupy.cuda.runtime.getDevice())
    if gemm is None or launch is None:
        return {}
    factors = (({"f": ctypes.c_float, "d": ctypes.c_double}[a.dtype.char]) * 2)(1, 0)
    first, second = (b, a) if gemm.swaps else (a, b)
    one = ctypes.addressof(factors)
    addresses = first.data.ptr, second.data.ptr, c.data.ptr, one, one + a.itemsize, cupy.cuda.get_current_stream().ptr
    handle = int(cupy.cuda.Device().cublas_handle)

    def call(_: Any = factors) -> None:  # which keeps them
        if not launch(handle, *addresses):
            raise RuntimeError("cublasLt does not run what it proposed")

    return {"ours": call}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--seconds", type=float, help="begin with no further shape after so long")
    options = parser.parse_args()
    need_gpu()
    start, rows = monotonic(), []
    problems = [(shape, dtype) for shape, dtype in grid() if prod(shape) <= MOST] + [(s, t) for s in MORE for t in ("float32", "float64")]
    for shape, dtype in sorted(problems, key=lambda problem: prod(problem[0])):
        if options.seconds is not None and monotonic() - start > options.seconds:
            break
        rows.append(beside_libraries(shape, dtype, by_lt, ROUNDS, IN_A_ROW))
        print(dtype, "x".join(map(str, shape)), rows[-1]["us"], "" if rows[-1]["exact"] else "WRONG", flush=True)
    save("cublas_lt", rows, options.json)


if __name__ == "__main__":
    main()
