"""The kernels of linear maps of CuPy's arrays: their text, run as C on the host's numbers, gives the exact map."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from fractions import Fraction
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from bilinear.backends.array_forms import evaluate, evaluate_into, forms_of
from bilinear.frontend import load


class OnGpu:
    """An array of another library."""

    def __init__(self, content: Any) -> None:
        self.content, self.dtype, self.shape = content, content.dtype, content.shape

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        assert function is np.empty_like
        return OnGpu(np.full(self.shape, np.nan, self.dtype))


class Kernel:
    """Elementwise, as CuPy has it: the operation is run by Python, whose sums are written as those of C."""

    made = 0

    def __init__(self, given: str, written: str, operation: str, name: str) -> None:
        Kernel.made += 1
        self.given, self.written = ([each.split()[1] for each in text.split(", ")] for text in (given, written))
        self.lines = [line.removeprefix("T ") for line in operation.rstrip(";").split("; ")]

    def __call__(self, *arrays: OnGpu) -> None:
        values: dict[str, Any] = {"T": arrays[0].dtype.type}
        values |= {name: x.content for name, x in zip(self.given, arrays, strict=False)}
        for line in self.lines:
            exec(re.sub(r"\(T\)\(", "T(", line), {}, values)
        for name, out in zip(self.written, arrays[len(self.given) :], strict=True):
            out.content[...] = values[name]


@pytest.fixture(autouse=True)
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    module = ModuleType("cupy")
    vars(module).update(ElementwiseKernel=Kernel)
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.delitem(sys.modules, "bilinear.backends.fused_sums", raising=False)
    importlib.import_module("bilinear.backends.fused_sums")
    yield
    sys.modules.pop("bilinear.backends.fused_sums", None)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["winograd", "strassen", "laderman", "hopcroft_kerr"])
def test_a_kernel_computes_the_map(name: str, dtype: str) -> None:
    scheme = load(name).scheme
    for linear in (scheme.u, scheme.v, scheme.w):
        values = [np.random.default_rng(at).integers(-9, 10, (3, 4)).astype(dtype) for at in range(linear.inputs)]
        wanted, given = evaluate(linear, values), [OnGpu(x) for x in values]
        before = Kernel.made
        found = forms_of(linear, given)
        assert all(np.array_equal(x.content, y) for x, y in zip(found, wanted, strict=True))
        plain = [len(form) == 1 and form[0][1] == 1 and form[0][0] < linear.inputs for form in linear.outputs]
        assert [x in given for x in found] == plain
        outs = [OnGpu(np.full((3, 4), np.nan, dtype)) for _ in wanted]
        evaluate_into(linear, given, outs)
        assert all(np.array_equal(x.content, y) for x, y in zip(outs, wanted, strict=True))
        assert Kernel.made <= before + 2


def test_coefficients_are_rounded_once() -> None:
    from bilinear.backends.fused_sums import _sum

    assert _sum(((0, 1), (1, -1)), ["x0", "x1"], np.dtype("float32")) == "x0 - x1"
    text = _sum(((0, Fraction(1, 3)), (1, -1)), ["x0", "x1"], np.dtype("float32"))
    assert text == f"(T)({float(np.float32(1) / np.float32(3))!r}) * x0 - x1"
    assert _sum((), [], np.dtype("float64")) == "0"
