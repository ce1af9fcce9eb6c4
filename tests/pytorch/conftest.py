"""What ran as arrays, and by which algorithm."""

from __future__ import annotations

import pytest

from bilinear.frontend import Loaded
from bilinear.ir.matrix import Array
from bilinear.runtime import torch_repeat, torch_tensors
from bilinear.runtime.on_arrays import matmul_arrays


class Runs(list[tuple[str, tuple[int, ...], tuple[int, ...]]]):
    """The products that ran as arrays: algorithm and shapes."""

    operands: tuple[Array, ...] = ()


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    found = Runs()

    def noted(a: Array, b: Array, out: Array, asked: tuple[Array, ...], stream: None, conjugated: str = "") -> Array:
        algorithm = asked[2]
        found.append((algorithm.scheme.name if isinstance(algorithm, Loaded) else algorithm, a.shape, b.shape))
        found.operands = a, b, out
        return matmul_arrays(a, b, out, asked, stream, conjugated)

    monkeypatch.setattr(torch_tensors, "matmul_arrays", noted)
    monkeypatch.setattr(torch_repeat, "_repeats", {})
    return found
