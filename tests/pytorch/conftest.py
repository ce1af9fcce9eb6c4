"""What ran as arrays, and by which algorithm."""

from __future__ import annotations

import pytest

from bilinear.frontend import Loaded
from bilinear.ir.matrix import Array
from bilinear.runtime import call
from bilinear.runtime.call import matmul_arrays
from bilinear.runtime.options import Options


class Runs(list[tuple[str, tuple[int, ...], tuple[int, ...]]]):
    """The products that ran as arrays: algorithm and shapes."""

    operands: tuple[Array, ...] = ()


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    found = Runs()

    def noted(a: Array, b: Array, out: Array, asked: Options) -> Array:
        algorithm = asked.algorithm
        found.append((algorithm.scheme.name if isinstance(algorithm, Loaded) else str(algorithm), a.shape, b.shape))
        found.operands = a, b, out
        return matmul_arrays(a, b, out, asked)

    monkeypatch.setattr(call, "matmul_arrays", noted)
    monkeypatch.setattr(call, "_repeats", {})
    return found
