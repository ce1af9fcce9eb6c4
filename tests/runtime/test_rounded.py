"""Products of float32 numbers rounded to fewer bits, for those who ask for less, on a pretended GPU: kernels run, cuBLAS is NumPy."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from each_case import each
from runtime.blas import as_tf32, narrowed, widened
from runtime.operands import laid
from runtime.pretended_gpu import Array, Gpu

import bilinear
from bilinear.analysis.digit_bounds import rounded_bound, rounded_probable
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.emulator import skip_reason
from bilinear.errors import BilinearError
from bilinear.ir.rounded import ROUNDINGS
from bilinear.methods.planning import plan_from_json
from bilinear.planner.device_files import load_device
from bilinear.planner.kept_plans import plan_json
from bilinear.planner.plan import Plan
from bilinear.runtime.ahead import kernels_of

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")
H200 = load_device("h200")


DESCRIBED = "h200"


def rounded_plan(name: str, shape: tuple[int, int, int], **options: Any) -> Plan:
    return bilinear.plan(*shape, "float32", device=H200, products=name, **options)


def rounded(name: str, x: Any) -> Any:
    """What is multiplied in the place of x."""
    return as_tf32(x) if name == "tf32" else widened(narrowed(x, True), True)


@each("by_columns", ["", "A", "B", "C", "AB", "ABC"])
@each("padded", [0, 3, 4])
@each("name", ROUNDINGS)
def test_it_is_the_product_of_the_rounded_numbers(gpu: Gpu, name: str, padded: int, by_columns: str) -> None:
    """Odd extents, lines that begin at multiples of 16 bytes and elsewhere; in the pool's memory, and in the caller's."""
    generator, (m, k, n) = np.random.default_rng(4), (37, 300, 29)
    whole = [generator.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n), (m, n))]
    a, b, c = (laid(x, "float32", name in by_columns, padded) for name, x in zip("ABC", whole, strict=True))
    plan, out = rounded_plan(name, (m, k, n)), Array(c.copy(order="K"))
    product, before = rounded(name, whole[0]) @ rounded(name, whole[1]), (a.copy(), b.copy())
    buffer = Array(np.full(2 * (plan.chosen.workspace or 0), 255, np.uint8))
    for alpha, beta, workspace in ((1, 0, None), (3, -2, None), (1, 0, buffer)):
        out.host[...] = np.nan if beta == 0 else whole[2]
        bilinear.matmul(Array(a), Array(b), out, plan=plan, alpha=alpha, beta=beta, workspace=workspace)
        np.testing.assert_allclose(out.host, alpha * product + beta * whole[2], rtol=1e-5, atol=1e-4)
    for x, kept in zip((a, b), before, strict=True):
        np.testing.assert_array_equal(x, kept)
    names = {launched for launched, _ in gpu.launches}
    assert names <= {"rounded_bfloat16_1", "rounded_bfloat16_4"} and bool(names) == (name == "bfloat16")


@each("name", ROUNDINGS)
@each("inner", [1, 100, 3000])
def test_bounds_hold_and_errors_are_as_probable(gpu: Gpu, name: str, inner: int) -> None:
    generator = np.random.default_rng(inner)
    worst = np.full((8, inner), 2 - 2.0**-23), np.full((inner, 8), 2 - 2.0**-23)
    normal = generator.standard_normal((200, inner)), generator.standard_normal((inner, 200))
    for left, right in (worst, normal):
        a, b = left.astype(np.float32), right.astype(np.float32)
        out = Array(np.zeros((len(a), b.shape[1]), np.float32))
        bilinear.matmul(Array(a), Array(b), out, plan=rounded_plan(name, (len(a), inner, b.shape[1])))
        exact = a.astype(float) @ b.astype(float)
        off = abs(out.host - exact).max() / (abs(a).max() * abs(b).max())
        assert off <= rounded_bound(ROUNDINGS[name], inner)
    error = np.linalg.norm(out.host - exact) / np.linalg.norm(exact)
    probable = rounded_probable(ROUNDINGS[name], inner)
    assert 0.5 * probable < error < 1.5 * probable


@pytest.mark.slow
def test_it_is_offered_to_those_who_ask_for_less() -> None:
    def plan(accuracy: float | str | None, dtype: str = "float32") -> Plan:
        return bilinear.plan(16384, 16384, 16384, dtype, device=H200, accuracy=accuracy, explain=True)

    for accuracy, dtype in ((None, "float32"), ("twice", "float32"), (1000.0, "float64")):
        assert all(c.strategy != "rounded" for c in plan(accuracy, dtype).candidates)
    close, middle, far = plan(10.0), plan(100.0), plan(1000.0)
    assert all("above" in c.why for c in close.candidates if c.strategy == "rounded") and close.chosen.strategy != "rounded"
    assert (middle.chosen.name, far.chosen.name) == ("tf32", "bfloat16")
    for found in (middle, far):
        assert all(c.error and c.probable and c.ms for c in found.candidates if c.strategy == "rounded")
        assert plan_from_json(plan_json(found), "plan") == found
    assert (
        far.chosen.workspace == 2 * 2 * 16384**2
        and len({*kernels_of(far, CudaTarget("sm_90"))}) == 1
        and not {*kernels_of(middle, CudaTarget("sm_90"))}
    )
    with pytest.raises(BilinearError, match="E519"):  # nothing is as accurate
        bilinear.plan(64, 64, 64, "float32", device=H200, accuracy=1e-9)


def test_the_memory_of_rounded_numbers_is_counted(gpu: Gpu) -> None:
    x = Array(np.ones((64, 64), np.float32))
    assert rounded_plan("bfloat16", (64, 64, 64)).chosen.workspace == 2 * 2 * 64 * 64
    with pytest.raises(BilinearError, match="E535"):
        bilinear.matmul(x, x, plan=rounded_plan("bfloat16", (64, 64, 64)), workspace=100)
    with pytest.raises(BilinearError, match=r"E543.*needs 16384 bytes of workspace, 100 are allowed"):
        rounded_plan("bfloat16", (64, 64, 64), workspace=100)


def test_what_it_cannot_multiply_is_refused(gpu: Gpu) -> None:
    for options, message in (({"dtype": "float64"}, "not float64"), ({"levels": ("winograd",)}, "no levels above it")):
        with pytest.raises(BilinearError, match=f"E543.*{message}"):
            bilinear.plan(64, 64, 64, **{"dtype": "float32", **options}, device=H200, products="tf32")  # type: ignore[arg-type]  # each of its own type
    apart = Array(np.ones((64, 128), np.float32)[:, ::2])
    with pytest.raises(BilinearError, match=r"E544.*lie side by side"):
        bilinear.matmul(apart, apart, plan=rounded_plan("tf32", (64, 64, 64)))
    x, out = (Array(np.ones((64, 64), np.float32)) for _ in "AC")
    with gpu.using(is_capturing=True):
        bilinear.matmul(x, x, out, plan=rounded_plan("tf32", (64, 64, 64)))
    np.testing.assert_array_equal(out.host, 64)


def test_forged_plans_are_refused() -> None:
    plan = rounded_plan("tf32", (64, 64, 64))
    whole = {"m": 64, "k": 64, "n": 64, "dtype": "float64"}
    for change, why in (({"tile": "usual"}, "no tile"), ({"levels": ["winograd"]}, "no field of a rounded"), (whole, "no tile")):
        forged = json.loads(plan_json(plan))
        (forged["problem"] if change is whole else forged["candidates"][0]["choice"]).update(change)
        with pytest.raises(BilinearError, match=f"E545.*{why}"):
            plan_from_json(json.dumps(forged), "plan")
