"""Multiply NumPy matrices by fast algorithms, and see what they cost in accuracy."""

import numpy as np

import bilinear

generator = np.random.default_rng(1)
a = generator.standard_normal((1000, 700), dtype=np.float32)  # any shape: what does not divide by two is done apart
b = generator.standard_normal((700, 900), dtype=np.float32)

# The error is told in the unit of the theory, max|A| * max|B|, against the product in double precision.
reference = a.astype(np.float64) @ b.astype(np.float64)
unit = np.abs(a).max() * np.abs(b).max()


def error(c: np.ndarray) -> float:
    return float(np.abs(c - reference).max() / unit)


print("largest error of a float32 product of 1000x700 by 700x900:")
print(f"  numpy                {error(a @ b):.1e}")
for algorithm in ("strassen", "winograd", "msmes"):
    for levels in (1, 2):  # a level saves one product in eight, and loses a little accuracy
        c = bilinear.matmul(a, b, algorithm=algorithm, levels=levels)
        print(f"  {algorithm:8}  levels={levels}   {error(c):.1e}")

# By default a and b are never written. `restore` lets an in-place schedule form its sums in a and b: nothing is allocated beside
# the result, and afterwards a and b are what they were, to rounding.
before = a.copy()
c = bilinear.matmul(a, b, algorithm="msmes", levels=1, inputs="restore")
print("in place, inputs restored:")
print(f"  msmes     levels=1   {error(c):.1e}, and A differs from what it was by {np.abs(a - before).max():.1e} at most")

# Integers stay integers, so the result is the exact one.
x, y = generator.integers(-9, 10, (64, 64)), generator.integers(-9, 10, (64, 64))
print(f"integers exact: {np.array_equal(bilinear.matmul(x, y, algorithm='strassen', levels=1), x @ y)}")
