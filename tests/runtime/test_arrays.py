"""Arrays of other libraries: `matmul` takes arrays that speak DLPack, and returns the caller's kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bilinear


class Plain:
    """An array that has DLPack's two methods and nothing else."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class Own(Plain):
    """An array whose class can also import arrays."""

    @classmethod
    def from_dlpack(cls, array: Any) -> Own:
        return cls(np.from_dlpack(array))


A, B = np.arange(35.0).reshape(5, 7), np.arange(28.0).reshape(7, 4)


@pytest.mark.parametrize("algorithm", ["auto", "strassen"])
def test_dlpack_goes_in(algorithm: str) -> None:
    left: Any = Plain(A)  # it has no more than `matmul` needs, and no shape by which mypy knows an array
    product = bilinear.matmul(left, Plain(B), algorithm=algorithm)
    assert type(product) is np.ndarray
    np.testing.assert_array_equal(product, A @ B)


@pytest.mark.parametrize("algorithm", ["auto", "strassen"])
def test_the_callers_kind_comes_back(algorithm: str) -> None:
    pairs: list[Any] = [(Own(A), Own(B)), (Own(A), B), (A.tolist(), Own(B)), (A, Own(B))]
    for left, right in pairs:
        product = bilinear.matmul(left, right, algorithm=algorithm)
        assert type(product) is Own
        np.testing.assert_array_equal(product.array, A @ B)
    row: Any = Own(A[0])
    scalar = bilinear.matmul(row, Own(A[1]), algorithm=algorithm)
    assert type(scalar) is Own and scalar.array.shape == () and scalar.array == A[0] @ A[1]


@pytest.mark.parametrize("algorithm", ["auto", "strassen"])
def test_out_of_another_library_takes_the_result(algorithm: str) -> None:
    out: Any = Own(np.zeros((5, 4)))
    if not np.from_dlpack(out).flags.writeable:
        with pytest.raises(ValueError, match="read-only"):
            bilinear.matmul(A, B, out, algorithm=algorithm)
        return
    assert bilinear.matmul(A, B, out, algorithm=algorithm) is out
    np.testing.assert_array_equal(out.array, A @ B)


class Copying:
    """An array-like whose memory cannot be viewed: a result written to its copy would be lost."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.array.copy()


@pytest.mark.parametrize("algorithm", ["auto", "strassen"])
def test_an_out_that_would_lose_the_result_is_refused(algorithm: str) -> None:
    np.testing.assert_array_equal(bilinear.matmul(Copying(A), Copying(B), algorithm=algorithm), A @ B)
    out: Any = Copying(np.zeros((5, 4)))
    with pytest.raises(TypeError, match="Copying"):
        bilinear.matmul(A, B, out, algorithm=algorithm)


def test_memory_maps_go_in_and_an_array_comes_back(tmp_path: Any) -> None:
    path = tmp_path / "a"
    A.tofile(path)
    mapped = np.memmap(path, np.float64, "r", shape=A.shape)
    np.testing.assert_array_equal(bilinear.matmul(mapped, B, algorithm="strassen"), A @ B)
