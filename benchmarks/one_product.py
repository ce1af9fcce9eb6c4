"""One plain product through the generated kernel, to be looked at with a profiler: python one_product.py float64 4096"""

from __future__ import annotations

import sys

import cupy

from bilinear.backends.cuda_executor import CudaExecutor
from bilinear.backends.executor import execute
from bilinear.ir.matrix import call_of
from bilinear.lowering.place import place_schedule
from bilinear.lowering.prepare import plain


def main() -> None:
    dtype, size = sys.argv[1], int(sys.argv[2])
    a, b = (cupy.random.default_rng(1).standard_normal((size, size), dtype=dtype) for _ in range(2))
    c = cupy.empty_like(a)
    plan = place_schedule(plain().schedule, size, size, size, a.itemsize)
    for _ in range(3):
        execute(CudaExecutor(), plan, call_of(a, b, c))
    cupy.cuda.Device().synchronize()


if __name__ == "__main__":
    main()
