"""Count the paths of a graph, exactly: the L-th power of its adjacency matrix says how many walks of L steps lead from each vertex to each.

With Python's integers (dtype object) the counts may have any number of digits, and a scheme over the integers takes fewer products of them.
Run with other extents: count_paths.py VERTICES STEPS
"""

import sys
from functools import partial

import numpy as np

import bilinear

multiply = partial(bilinear.matmul, algorithm="strassen", levels=2)


def power(a: np.ndarray, exponent: int) -> np.ndarray:
    """The power of a matrix by repeated squaring."""
    result = a if exponent % 2 else np.eye(len(a), dtype=a.dtype)
    while exponent := exponent // 2:
        a = multiply(a, a)
        result = multiply(result, a) if exponent % 2 else result
    return result


vertices, steps = map(int, sys.argv[1:3]) if len(sys.argv) > 2 else (40, 200)
generator = np.random.default_rng(1)
edges = np.triu(generator.random((vertices, vertices)) < 0.3, 1)
adjacency = (edges | edges.T).astype(int)

walks = power(adjacency.astype(object), steps)
counts = [int(end == 0) for end in range(vertices)]  # the classical way, a step at a time, with numbers alone
for _ in range(steps):
    counts = [sum(counts[near] for near in np.flatnonzero(adjacency[end])) for end in range(vertices)]
print(f"{vertices} vertices: the number of walks of {steps} steps from 0 to 1 has {len(str(walks[0, 1]))} digits")
print(f"the same, digit for digit, by following every edge: {walks[0].tolist() == counts}")

triangles = bilinear.einsum("ij,jk,ki->", adjacency, adjacency, adjacency) // 6
found = sum(adjacency[i, j] & adjacency[j, k] & adjacency[k, i] for i in range(vertices) for j in range(i) for k in range(j))
print(f"triangles, by einsum and one by one: {triangles} and {found}")
