"""Multiply CuPy matrices by a fast algorithm; without a usable GPU, say what is missing."""

import sys

import bilinear
from bilinear.backends.doctor import examine, why_no_gpu

reason = why_no_gpu()
if reason is not None:
    print(f"No GPU can be used here: {reason}.")
    for finding in examine():  # what `bilinear doctor` prints
        if finding.remedy:
            print(f"  to {finding.what}: {finding.remedy}")
    print("On the CPU: see quickstart_numpy.py.")
    sys.exit()

import cupy  # noqa: E402  (only where it can be used)

generator = cupy.random.default_rng(1)
a = generator.standard_normal((4100, 4000), dtype=cupy.float64)
b = generator.standard_normal((4000, 4200), dtype=cupy.float64)
reference = cupy.matmul(a, b)
unit = float(abs(a).max() * abs(b).max())

# The kernels are built at the first call and kept on disk, so the next process starts at once.
c = bilinear.matmul(a, b, algorithm="strassen", levels=1)
print(f"strassen: differs from cupy.matmul by {float(abs(c - reference).max()) / unit:.1e} (in units of max|A| max|B|)")

# `restore` runs in A and B themselves: beside the result nothing is allocated, and A and B come back to rounding.
before = a.copy()
out = cupy.empty_like(reference)
pool = cupy.get_default_memory_pool()
used = pool.used_bytes()
stream = cupy.cuda.Stream(non_blocking=True)
cupy.cuda.Device().synchronize()  # what the other stream reads must be there
bilinear.matmul(a, b, out, algorithm="msmes", levels=1, inputs="restore", stream=stream)
stream.synchronize()
print(f"msmes:    differs from cupy.matmul by {float(abs(out - reference).max()) / unit:.1e}")
print(f"          A differs from what it was by {float(abs(a - before).max()):.1e} at most")
print(f"          {pool.used_bytes() - used} bytes stay allocated: the flag of the check for Inf and NaN")
