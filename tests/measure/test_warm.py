"""`bilinear warm`: the kernels of a plan, known before it runs, are those that it launches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from runtime.pretended_gpu import Array, Gpu
from shell import Shell

import bilinear
from bilinear.backends import loaded_kernels
from bilinear.codegen import build as building
from bilinear.codegen.cuda.nvrtc import Built
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.runtime import ahead
from bilinear.runtime.ahead import kernels_of


def _launched() -> set[object]:
    """The kernels themselves: two of one name may differ in their tile."""
    singles = {kernel for kernel, *_ in loaded_kernels._loaded}
    return singles | {launch.kernel for _, launches in loaded_kernels._functions.values() for launch, _ in launches}


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("shape", "dtype", "how"),
    [
        ((33, 20, 41), "float64", {"levels": ("winograd",)}),
        ((32, 24, 40), "float32", {"levels": ("strassen", "winograd"), "workspace": 10**8}),
        ((33, 21, 41), "complex128", {"levels": ("winograd",)}),
        ((3, 40000, 40), "float32", {}),
    ],
)
def test_a_plan_launches_the_kernels_that_are_built_ahead(gpu: Gpu, shape: Any, dtype: str, how: Any) -> None:
    m, k, n = shape
    plan = bilinear.plan(m, k, n, dtype, device="h200", **how)
    assert not plan.is_library
    x = np.arange(m * k, dtype=float).reshape(m, k) % 7 - 3
    y = np.arange(k * n, dtype=float).reshape(k, n) % 5 - 2
    found = bilinear.matmul(Array(x.astype(dtype)), Array(y.astype(dtype)), Array(np.zeros((m, n), dtype)), plan=plan)
    np.testing.assert_array_equal(found.host, x @ y)
    assert _launched() == {*kernels_of(plan, CudaTarget("sm_90"))}


def test_warm_builds_the_usual_plans(monkeypatch: pytest.MonkeyPatch, shell: Shell) -> None:
    asked: list[Any] = []

    def build(requests: Any, done: Any) -> Any:
        asked.extend(requests)
        return tuple(Built(target, b"", (), "", cached=number % 2 == 0) for number, (_, _, target) in enumerate(requests))

    monkeypatch.setattr(building, "build_all", build)
    found = shell.json("warm", "--device", "h100", "--dtype", "float32")
    assert (found["device"], found["target"]) == ("NVIDIA H100 80GB HBM3", "sm_90")
    assert found["plans"] == len([*ahead.usual_problems("float32")])
    assert len({source for source, _, _ in asked}) == len(asked) == found["kernels"] > 20
    assert found["built"] == len(asked) // 2


def test_warm_needs_a_gpu_or_a_description(shell: Shell) -> None:
    code, _, said = shell("warm", "--dtype", "float32")
    assert code == 1 and "E541" in said and "--device h100" in said
    assert "E503" in shell("warm", "--dtype", "int7")[2]
