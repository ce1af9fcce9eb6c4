"""Products of Dask's arrays: exact for all chunkings, and on a cluster that loses a worker."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from described import check_examples
from network.launch import PATIENCE

import bilinear.dask
from bilinear.errors import BilinearError

needs_dask = pytest.mark.skipif(find_spec("dask") is None, reason="no Dask here: scripts/test-distributed has one")
CHUNKS = [(4, 4), (8, 3), (100, 100), ((10, 20, 7), (50, 3)), ((37,), (1, 52))]


@needs_dask
@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize(
    ("algorithm", "levels"), [("strassen", 1), ("winograd", 2), ("laderman", 1), ("hopcroft_kerr", 1), ("winograd", 0)]
)
def test_products_are_exact_for_all_chunkings(chunks: object, algorithm: str, levels: int) -> None:
    import dask.array

    generator = np.random.default_rng(5)
    x, y = generator.integers(-9, 10, (37, 53)), generator.integers(-9, 10, (53, 29))
    lazy = bilinear.dask.matmul(
        dask.array.from_array(x, chunks=chunks), dask.array.from_array(y, chunks=(13, 5)), algorithm=algorithm, levels=levels
    )
    found = lazy.compute(scheduler="synchronous")
    assert lazy.shape == found.shape == (37, 29) and lazy.dtype == found.dtype == x.dtype
    assert (found == x @ y).all()


@needs_dask
@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("dtype", ["float64", "float32", "complex64"])
def test_bits_are_those_of_one_product_for_all_chunkings(chunks: object, dtype: str) -> None:
    import dask.array

    random = np.random.default_rng(6)
    x, y = ((random.standard_normal(s) * 10.0 ** random.uniform(-15, 15, s)).astype(dtype) for s in ((37, 53), (53, 29)))
    lazy = bilinear.dask.matmul(dask.array.from_array(x, chunks), dask.array.from_array(y, (13, 5)), reproducible="bitwise")
    found = lazy.compute(scheduler="synchronous")
    assert found.dtype == dtype and found.tobytes() == bilinear.matmul(x, y, reproducible="bitwise").tobytes()


@needs_dask
@pytest.mark.parametrize(
    ("code", "options"), [("E820", {"algorithm": "winograd"}), ("E820", {"levels": 1}), ("E820", {"local_levels": 0}), ("E821", {})]
)
def test_bits_that_nothing_promises_are_refused(code: str, options: Any) -> None:
    import dask.array

    x = dask.array.ones((6, 6), chunks=2, dtype="longdouble" if code == "E821" else "float64")
    with pytest.raises(BilinearError, match=code):
        bilinear.dask.matmul(x, x, reproducible="bitwise", **options)


@needs_dask
@pytest.mark.parametrize(("left", "right", "wanted"), [("float32", "float32", "float32"), ("int32", "float64", "float64")])
def test_types_are_those_of_numpy(left: str, right: str, wanted: str) -> None:
    import dask.array

    x, y = (dask.array.ones((6, 6), chunks=2, dtype=dtype) for dtype in (left, right))
    assert bilinear.dask.matmul(x, y, algorithm="strassen").compute(scheduler="synchronous").dtype == wanted


@needs_dask
def test_a_level_has_as_many_products_as_the_scheme() -> None:
    """With one chunk a block there are 7 products of chunks for a level, 49 for two, and 8 without one."""
    import dask.array

    x = dask.array.ones((16, 16), chunks=8)
    for levels, products in ((0, 8), (1, 7)):
        graph = dict(bilinear.dask.matmul(x, x, algorithm="winograd", levels=levels).dask)
        assert sum("multiply-" in str(key) for key in graph) == products
    x = dask.array.ones((16, 16), chunks=4)
    graph = dict(bilinear.dask.matmul(x, x, algorithm="winograd", levels=2).dask)
    assert sum("multiply-" in str(key) for key in graph) == 49


@needs_dask
def test_what_is_no_matrix_in_known_chunks_is_refused() -> None:
    import dask.array

    x = dask.array.ones((4, 4), chunks=2)
    unknown = x[x[:, 0] > 0]
    wrong = [
        (np.ones((4, 4)), x, {}, "x is ndarray"),
        (x, dask.array.ones(4, chunks=2), {}, "y is an array of 1 dimensions"),
        (x, dask.array.ones((5, 4), chunks=2), {}, "x has 4 columns, and y 5 rows"),
        (x > 0, x, {}, "x is of bool"),
        (unknown, x, {}, "x has chunks of unknown sizes"),
        (x[:0], x, {}, r"x has the shape \(0, 4\)"),
        (x, x, {"levels": -1}, "levels=-1 is not a number of levels"),
    ]
    for left, right, options, message in wrong:
        with pytest.raises(BilinearError, match=f"E771.*{message}"):
            bilinear.dask.matmul(left, right, **options)  # type: ignore[arg-type]
    for levels, code in ((21, "E502"), (6, "E501")):
        with pytest.raises(BilinearError, match=code):
            bilinear.dask.matmul(x, x, algorithm="strassen", levels=levels)
    with pytest.raises(BilinearError, match="E528"):
        bilinear.dask.matmul(x.astype("int64"), x.astype("int64"), algorithm="accurate_halves")
    with pytest.raises(BilinearError, match="E121"):
        bilinear.dask.matmul(x, x, algorithm="strasen")


def test_without_dask_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask.array", None)
    monkeypatch.setitem(sys.modules, "dask", None)
    with pytest.raises(BilinearError, match="E770") as caught:
        bilinear.dask.matmul(np.ones((2, 2)), np.ones((2, 2)))
    assert "pip install '.[dask]'" in str(caught.value)


@pytest.mark.skipif(
    find_spec("dask") is None or find_spec("distributed") is None, reason="no cluster here: scripts/test-distributed has one"
)
def test_a_cluster_of_two_processes_loses_one_and_nothing_else() -> None:
    """And a process that is slowed on purpose gets fewer tasks than the half that a static assignment would give it."""
    program = Path(__file__).with_name("cluster.py")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "exact on two workers" in done.stdout and "the slow worker had" in done.stdout and "exact though one was killed" in done.stdout


@needs_dask
def test_the_example_of_the_docstring_runs() -> None:
    check_examples(bilinear.dask.matmul)
