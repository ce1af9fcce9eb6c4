"""Multiply a chain of matrices, and see in which order and why."""

from itertools import pairwise

import numpy as np

import bilinear

generator = np.random.default_rng(1)
extents = (1000, 900, 20, 700, 50)
chain = [generator.integers(-9, 10, shape) for shape in pairwise(extents)]

# NumPy multiplies on the CPU, for which the planner has no times: the order is that of the fewest multiplications.
plan = bilinear.plan_chain([matrix.shape for matrix in chain], "int64")
print(plan)
for step in plan.chosen.steps:
    print(f"  {step.m} x {step.k} by {step.k} x {step.n}, {step.held} bytes of intermediates")

out = np.empty((1000, 50), int)
bilinear.multi_dot(chain, out=out)  # on a GPU: CuPy's arrays, or PyTorch's tensors
print(f"integers exact: {np.array_equal(out, np.linalg.multi_dot(chain))}")

# A vector may stand at either end; then no intermediate is a matrix.
print(f"vectors at both ends: {bilinear.multi_dot([chain[0][0], *chain[1:-1], chain[-1][:, 0]])} = {out[0, 0]}")

# On a described GPU the predicted seconds decide, and a limit of the memory changes what can run.
shapes = [(16, 1000), (1000, 16384), (16384, 10000), (10000, 8), (8, 1024)]
print(f"on an H200: {bilinear.plan_chain(shapes, device='h200')}")
for workspace in ("unlimited", 2**30):
    found = bilinear.plan_chain([(8192, 8192)] * 3, device="h200", workspace=workspace).chosen
    print(f"  three of 8192 x 8192, workspace {workspace}: {found.seconds:.4f} s, {found.peak} bytes")
