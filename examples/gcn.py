"""Two layers of a graph convolution network: chains of a sparse matrix, features and weights, in the planned order."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

try:
    import scipy.sparse
except ImportError:
    print("SciPy is not installed: pip install scipy")
    sys.exit()
import bilinear

generator = np.random.default_rng(1)
NODES, FEATURES, HIDDEN, CLASSES = 2000, 500, 64, 8

# A random graph with loops at its nodes, scaled by the roots of the degrees on both sides.
edges = scipy.sparse.random_array((NODES, NODES), density=2 / NODES, rng=generator)
graph = scipy.sparse.csr_array(((edges + edges.T) > 0).astype(float) + scipy.sparse.eye_array(NODES))
roots = scipy.sparse.diags_array(1 / np.sqrt(graph.sum(axis=1)))
graph = (roots @ graph @ roots).tocsr()

features, first, second = (generator.standard_normal(s) for s in ((NODES, FEATURES), (FEATURES, HIDDEN), (HIDDEN, CLASSES)))


def network(multiply: Callable[[list[Any]], Any]) -> Any:
    """The classes of all nodes; `multiply` multiplies a chain."""
    return multiply([graph, np.maximum(multiply([graph, features, first]), 0), second])


print(bilinear.plan_chain([graph.shape, features.shape, first.shape], stored={0: graph.nnz}))
found = network(bilinear.multi_dot)  # on a GPU: CuPy's arrays, and a graph of cupyx.scipy.sparse
direct = network(lambda chain: chain[0] @ chain[1] @ chain[2])
print(f"as by SciPy, left to right: {np.allclose(found, direct)}")
