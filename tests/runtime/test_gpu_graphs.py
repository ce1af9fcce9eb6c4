"""Multiplies captured in a CUDA graph on a real GPU, and run again on other values. Skipped without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import bilinear
from bilinear.errors import BilinearError
from bilinear.planner.choose import timed_plan
from bilinear.planner.device_files import load_device
from bilinear.planner.library import Library
from bilinear.planner.library_points import CUBLAS
from bilinear.planner.plan import LIBRARIES, LIBRARY, Candidate, Plan
from bilinear.planner.problem import Problem

pytestmark = pytest.mark.gpu
SHAPE = 513, 200, 511  # Short sums of unaligned rows: the rules choose cublasLt for floats and for doubles.


def of_library(name: str, dtype: str, shape: tuple[int, int, int] = SHAPE) -> Plan:
    """The plan to run this library's multiply."""
    named, ruled = (Candidate(Library(library), 1.0) for library in (name, LIBRARY))
    return timed_plan(Problem(*shape, dtype, lies_evenly=False), load_device("h200"), (named, ruled))


def matmul_into(a: Any, b: Any, c: Any, **options: Any) -> None:
    """`matmul` with options, into C."""
    bilinear.matmul(a, b, c, **options)


def captured(stream: Any, call: Callable[[], Any]) -> Any:
    """The graph of a call. The capture ends even if the call fails."""
    stream.begin_capture()
    try:
        call()
    finally:
        graph = stream.end_capture()
    return graph


def check(multiply: Callable[[Any, Any, Any], Any], dtype: str) -> None:
    """The multiply is exact when called, when captured afterwards, and when the graph runs on new values of A."""
    xp = pytest.importorskip("cupy")
    generator = np.random.default_rng(1)
    m, k, n = SHAPE
    first, second, right = (generator.integers(-4, 5, sides) for sides in ((m, k), (m, k), (k, n)))
    a, b, c = xp.asarray(first, dtype), xp.asarray(right, dtype), xp.full((m, n), np.nan, dtype)
    stream = xp.cuda.Stream(non_blocking=True)
    xp.cuda.Device().synchronize()
    with stream:
        multiply(a, b, c)
        stream.synchronize()
        np.testing.assert_array_equal(c.get(), first @ right)
        c.fill(np.nan)
        graph = captured(stream, lambda: multiply(a, b, c))
        stream.synchronize()
        assert xp.isnan(c).all(), "nothing runs while it is captured"
        for left in (first, second):
            a[...] = xp.asarray(left, dtype)
            graph.launch(stream)
            stream.synchronize()
            np.testing.assert_array_equal(c.get(), left @ right)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_the_library_is_captured(library: str, dtype: str) -> None:
    plan = of_library(library, dtype)
    check(lambda a, b, c: bilinear.matmul(a, b, c, plan=plan), dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("levels", [("classical",), ("winograd",), ("split_k", "split_k")])
def test_a_plan_is_captured_with_a_workspace_of_its_own_or_of_the_graph(levels: tuple[str, ...], dtype: str) -> None:
    xp = pytest.importorskip("cupy")
    plan = bilinear.plan(*SHAPE, dtype, device="h200", levels=levels)
    needed = plan.chosen.workspace or 0
    workspace = xp.full(needed // np.dtype(dtype).itemsize, np.nan, dtype) if needed else None
    for given in (workspace, None):
        check(partial(matmul_into, plan=plan, workspace=given), dtype)


@pytest.mark.parametrize(
    ("dtype", "products"), [("float32", "pairs"), ("float32", "residues7"), ("float32", "tf32"), ("float64", "residues14")]
)
def test_other_units_are_captured_with_memory_of_the_graph(dtype: str, products: str) -> None:
    plan = bilinear.plan(*SHAPE, dtype, device="h200", products=products)
    assert products == "tf32" or plan.chosen.workspace
    check(partial(matmul_into, plan=plan), dtype)


def test_what_is_converted_or_made_aside_is_captured() -> None:
    xp = pytest.importorskip("cupy")
    check(lambda a, b, c: bilinear.matmul(a.astype("float32"), b, c, algorithm="winograd", levels=1), "float64")
    check(partial(matmul_into, algorithm="winograd_depth_first", levels=1), "float64")
    half = xp.float16
    check(lambda a, b, c: bilinear.matmul(a.astype(half), b.astype(half), c), "float32")


def test_two_graphs_share_no_memory_with_each_other_or_with_the_pool() -> None:
    """Both run at once, many times, while arrays of the pool are filled with NaN."""
    xp = pytest.importorskip("cupy")
    generator, graphs, n = np.random.default_rng(2), [], 512
    residues = bilinear.plan(n, n, n, "float64", device="h200", products="residues14")
    for _ in range(2):
        a, b = (xp.asarray(generator.integers(-4, 5, (n, n)).astype(float)) for _ in "AB")
        outs, stream = [xp.empty((n, n)) for _ in range(3)], xp.cuda.Stream(non_blocking=True)
        xp.cuda.Device().synchronize()

        def multiply(a: Any = a, b: Any = b, outs: Any = outs) -> None:
            bilinear.matmul(a, b, outs[0], algorithm="winograd", levels=2)
            bilinear.matmul(a, b, outs[1], plan=residues)
            bilinear.matmul(a, b, outs[2], plan=of_library(CUBLAS, "float64", (n, n, n)))

        with stream:
            multiply()
            stream.synchronize()
            graphs.append((captured(stream, multiply), stream, outs, a.get() @ b.get(), (a, b)))
    for _ in range(20):
        pool = [xp.full((n, n), np.nan) for _ in range(8)]
        for _, _, outs, _, _ in graphs:
            for out in outs:
                out.fill(np.nan)
        xp.cuda.Device().synchronize()
        for graph, stream, _, _, _ in graphs:
            graph.launch(stream)
        for x in pool:
            x.fill(np.nan)
        xp.cuda.Device().synchronize()
        for _, _, outs, wanted, _ in graphs:
            for out in outs:
                np.testing.assert_array_equal(out.get(), wanted)
        assert all(xp.isnan(x).all() for x in pool)


def test_what_a_graph_cannot_hold_is_refused_and_the_capture_goes_on() -> None:
    xp = pytest.importorskip("cupy")
    m, k, n = 512, 256, 512
    a, b, c = xp.ones((m, k)), xp.full((k, n), 2.0), xp.full((m, n), 3.0)
    refused: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((a, b), {"algorithm": "winograd", "levels": 1}),
        ((a, b, c), {"algorithm": "msmes", "levels": 1, "inputs": "restore"}),
        ((a.astype("float32"), b, c), {"levels": 0}),
        ((a[:, ::2], b[::2], c), {"levels": 0}),
    ]
    for operands, options in refused:
        bilinear.matmul(*operands, **options)
    c.fill(3)
    stream = xp.cuda.Stream(non_blocking=True)
    xp.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        try:
            for operands, options in refused:
                with pytest.raises(BilinearError, match="E536"):
                    bilinear.matmul(*operands, **options)
            bilinear.matmul(a, b, c, alpha=0, beta=2)
            bilinear.matmul(a, b, c, algorithm="classical", levels=1, beta=1)
        finally:
            graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()
        assert (c == 2 * 3 + 2 * k).all()
