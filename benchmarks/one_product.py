"""One plain product through the generated kernel, for a profiler: python one_product.py float64 4096"""

from __future__ import annotations

import argparse

from common import cupy, need_gpu

from bilinear.backends.cuda_executor import CudaExecutor
from bilinear.backends.executor import execute
from bilinear.ir.matrix import call_of
from bilinear.lowering.place import place_schedule
from bilinear.lowering.prepare import plain


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dtype", choices=("float32", "float64"))
    parser.add_argument("size", type=int)
    options = parser.parse_args()
    need_gpu()
    dtype, size = options.dtype, options.size
    a, b = (cupy.random.default_rng(1).standard_normal((size, size), dtype=dtype) for _ in range(2))
    c = cupy.empty_like(a)
    plan = place_schedule(plain().schedule, size, size, size, a.itemsize)
    for _ in range(3):
        execute(CudaExecutor(), plan, call_of(a, b, c))
    cupy.cuda.Device().synchronize()


if __name__ == "__main__":
    main()
