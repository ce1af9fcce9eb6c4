"""`matmul(..., gpus=)` on the GPUs that are here: matrices of the host and of a GPU, in blocks, exact on integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bilinear

pytestmark = pytest.mark.gpu
SMALL = "6MiB"  # So little memory that matrices of a thousand rows are cut in many blocks.


def integers(*shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


def on_first_gpu(x: Any) -> Any:
    import cupy

    with cupy.cuda.Device(0):
        return cupy.asarray(x)


def host(x: Any) -> Any:
    return x if isinstance(x, np.ndarray) else x.get()


@pytest.mark.parametrize("place", [np.asarray, on_first_gpu], ids=["host", "gpu"])
@pytest.mark.parametrize("gpus", [1, "all"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_products_in_blocks_are_exact(place: Any, gpus: Any, dtype: str) -> None:
    a, b, c = integers(1100, 900, dtype=dtype), integers(900, 1300, seed=1, dtype=dtype), integers(1100, 1300, seed=2, dtype=dtype)
    wanted = a.astype("complex128") @ b.astype("complex128")
    found = bilinear.matmul(place(a), place(b), gpus=gpus, memory=SMALL)
    assert found.dtype == dtype and np.array_equal(host(found), wanted)
    out = place(c.copy())
    assert bilinear.matmul(place(a), place(b), out, alpha=2, beta=-1, gpus=gpus, memory=SMALL) is out
    assert np.array_equal(host(out), 2 * wanted - c)


@pytest.mark.parametrize("place", [np.asarray, on_first_gpu], ids=["host", "gpu"])
def test_matrices_in_any_order_with_a_named_algorithm_and_with_digits(place: Any) -> None:
    a, b = place(integers(2048, 2048)), place(integers(2048, 2048, seed=1))
    wanted = host(a).astype("float64") @ host(b).T
    assert np.array_equal(host(bilinear.matmul(a, b.T, gpus="all")), wanted)
    assert np.array_equal(host(bilinear.matmul(a, b.T, gpus="all", algorithm="winograd", levels=1)), wanted)
    assert np.array_equal(host(bilinear.matmul(a, b.T, gpus="all", accuracy="twice")), wanted)
    turned = place(np.full((2048, 2048), np.nan, "float32")).T
    bilinear.matmul(a, b.T, turned, gpus="all", memory="24MiB")
    assert np.array_equal(host(turned), wanted)


@pytest.mark.parametrize("place", [np.asarray, on_first_gpu], ids=["host", "gpu"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_blocks_have_the_bits_of_the_host(place: Any, dtype: str) -> None:
    random = np.random.default_rng(3)
    a, b = ((random.standard_normal(x) * 10.0 ** random.uniform(-15, 15, x)).astype(dtype) for x in ((700, 500), (500, 600)))
    wanted = bilinear.matmul(a, b, reproducible="bitwise")
    assert host(bilinear.matmul(place(a), place(b), gpus=1, reproducible="bitwise")).tobytes() == wanted.tobytes()
    assert host(bilinear.matmul(place(a), place(b), gpus="all", memory="24MiB", reproducible="bitwise")).tobytes() == wanted.tobytes()


def test_pinned_matrices() -> None:
    import cupy

    n = 1500
    a, b, c = (np.frombuffer(cupy.cuda.alloc_pinned_memory(8 * n * n), "float64", n * n).reshape(n, n) for _ in range(3))
    a[...], b[...], c[...] = integers(n, n), integers(n, n, seed=1), np.nan
    bilinear.matmul(a, b, c, gpus="all", memory="20MiB")
    assert np.array_equal(c, a @ b)


def test_what_was_begun_before_is_waited_for() -> None:
    """Operands that are still being computed on the caller's stream."""
    import cupy

    a, b = on_first_gpu(integers(3000, 3000)), on_first_gpu(integers(3000, 3000, seed=1))
    with cupy.cuda.Stream(non_blocking=True):
        busy = cupy.ones((3000, 3000), "float64")
        for _ in range(10):
            busy = busy @ busy * 1e-4
        left = a + (busy - busy).astype("float32")
        found = bilinear.matmul(left, b, gpus="all")
    wanted = host(a).astype("float64") @ host(b)
    assert np.array_equal(host(found), wanted)


def test_matrices_on_two_gpus_are_refused() -> None:
    import cupy

    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("one GPU")
    a = on_first_gpu(integers(8, 8))
    with cupy.cuda.Device(1):
        b = cupy.ones((8, 8), "float32")
    with pytest.raises(bilinear.BilinearError, match=r"E772.*several GPUs"):
        bilinear.matmul(a, b, gpus="all")


def test_missing_gpus_are_refused() -> None:
    with pytest.raises(bilinear.BilinearError, match="E773"):
        bilinear.matmul(integers(8, 8), integers(8, 8), gpus=99)


@pytest.mark.parametrize("gpu", [0, -1])
def test_dask_arrays_of_chunks_on_a_gpu(gpu: int) -> None:
    import cupy

    import bilinear.dask

    da = pytest.importorskip("dask.array")
    with cupy.cuda.Device(gpu % cupy.cuda.runtime.getDeviceCount()):
        a, b = (da.from_array(cupy.asarray(integers(*shape)), chunks=(300, 170), asarray=False) for shape in ((700, 500), (500, 900)))
        found = bilinear.dask.matmul(a, b, algorithm="winograd", levels=1, local="strassen").compute(scheduler="synchronous")
        assert isinstance(found, cupy.ndarray)
        assert np.array_equal(found.get(), integers(700, 500).astype("float64") @ integers(500, 900))


@pytest.mark.parametrize("decomposition", ["2d", "winograd"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_distributed_arrays_of_cupy(decomposition: str, dtype: str) -> None:
    import cupy
    from cupyx.distributed.array import DistributedArray, distributed_array, make_2d_index_map  # type: ignore[import-not-found]

    from bilinear.distributed import matmul

    last = cupy.cuda.runtime.getDeviceCount() - 1
    a, b = integers(1000, 700, dtype=dtype), integers(700, 1200, seed=1, dtype=dtype)
    x = distributed_array(a, make_2d_index_map([0, 300, 1000], [0, 700], [[{0}], [{last}]]))
    y = distributed_array(b, make_2d_index_map([0, 700], [0, 100, 1200], [[{last}, {0, last}]]))
    for _ in range(2):
        c = matmul(x, y, decomposition=decomposition)
        assert isinstance(c, DistributedArray)
        assert np.array_equal(c.get(), a.astype("float64") @ b)
    with pytest.raises(bilinear.BilinearError, match="E511"):
        bilinear.matmul(x, y)
