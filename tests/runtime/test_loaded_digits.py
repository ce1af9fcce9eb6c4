"""Products whose loader cuts A and B into float16 digits, on a pretended GPU that runs the emitted kernels: no workspace but the scales."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from digit_unit import slow_units
from runtime import pretended_gpu
from runtime.pretended_gpu import Array, Device, Gpu, require_exact
from runtime.test_digits import ORDERS, error_of

import bilinear
from bilinear.codegen.render import render
from bilinear.emulator import compile_on_cpu, skip_reason
from bilinear.errors import BilinearError, StageError
from bilinear.ir.digit_kernel import LoadingKernel
from bilinear.ir.matrix import layout_of
from bilinear.ir.tile import LOADING_TILES
from bilinear.methods.digits.binding import digit_multiply_of, kernels_of
from bilinear.methods.digits.choice import Digits
from bilinear.methods.planning import plan_from_json
from bilinear.planner.device import Device as Described
from bilinear.planner.device_files import load_device
from bilinear.planner.plan import Plan
from bilinear.planner.plan_files import plan_json
from bilinear.runtime import devices_here

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")
H200 = load_device("h200")
DESCRIBED = "h200"
NAME = "pairs_on_load"


def without_rates(device: Described) -> Described:
    """The device, with no rates of these products."""
    return replace(device, digits=tuple(own for own in device.digits if own[0] != NAME))


def loaded_plan(m: int, k: int, n: int, **options: Any) -> Plan:
    return bilinear.plan(m, k, n, "float32", device=H200, products=NAME, **options)


@pytest.mark.sample(3)
@pytest.mark.parametrize("by_columns", ORDERS, ids=str)
@pytest.mark.parametrize(("shape", "padded"), [((37, 70, 29), 0), ((300, 41, 260), 3), ((132, 400, 140), 4), ((1, 1, 1), 0)], ids=str)
def test_integers_are_exact_in_every_order(gpu: Gpu, by_columns: tuple[str, ...], shape: tuple[int, int, int], padded: int) -> None:
    """Odd extents, up to seven slices in three stages, up to nine tiles on two blocks; lines at multiples of 16 bytes, and elsewhere."""
    require_exact(loaded_plan(*shape), by_columns, padded=padded, workspace="none")
    assert gpu.library == 0


def test_elements_may_lie_apart_in_both_directions(gpu: Gpu) -> None:
    generator = np.random.default_rng(2)
    a, b = (generator.integers(-30, 31, shape).astype(np.float32)[::2, ::3] for shape in ((141, 450), (300, 399)))
    out = Array(np.full((142, 266), np.nan, np.float32)[::2, ::2])
    assert a.shape == (71, 150) and b.shape == (150, 133)
    bilinear.matmul(Array(a), Array(b), out, plan=loaded_plan(71, 150, 133), workspace="none")
    np.testing.assert_array_equal(out.host, a @ b)


@pytest.mark.parametrize("scales", [(0, 0), (30, -30), (120, -126), (-140, 100), (9, 0)], ids=str)
def test_the_product_is_that_of_pairs_bit_by_bit(gpu: Gpu, scales: tuple[int, int]) -> None:
    """The same digits, added up in the same order: the bounds of pairs are theirs. Numbers of 2^-140 are subnormal."""
    generator = np.random.default_rng(7)
    normal = generator.standard_normal((129, 300)), generator.standard_normal((300, 130))
    a, b = (np.ldexp(x, scale).astype(np.float32) for x, scale in zip(normal, scales, strict=True))
    if scales == (9, 0):  # nine decades in every row and column
        a, b = (x * 10 ** generator.uniform(-4.5, 4.5, x.shape).astype(np.float32) for x in (a, b))
    found, pairs = (Array(np.full((129, 130), np.nan, np.float32)) for _ in range(2))
    bilinear.matmul(Array(a), Array(b), found, plan=loaded_plan(129, 300, 130))
    bilinear.matmul(Array(a), Array(b), pairs, plan=bilinear.plan(129, 300, 130, "float32", device=H200, products="pairs"))
    np.testing.assert_array_equal(found.host, pairs.host)
    if scales[0] != -140:
        norm, element = error_of(found.host, a, b)
        assert norm < 6e-7 and element < 3e-6


def test_without_workspace_the_scales_alone_are_taken_and_reported(gpu: Gpu) -> None:
    a, b = (np.random.default_rng(1).integers(-9, 10, shape).astype(np.float32) for shape in ((64, 80), (80, 48)))
    out, plan = Array(np.zeros((64, 48), np.float32)), loaded_plan(64, 80, 48, workspace=0)
    words = 4 * (64 + 48 + 1)
    assert plan.chosen.workspace == (words + 255) // 256 * 256
    taken: list[int] = []
    with gpu.using(allocate=taken.append):
        bilinear.matmul(Array(a), Array(b), out, plan=plan, workspace="none")
    np.testing.assert_array_equal(out.host, a @ b)
    assert taken == [plan.chosen.workspace]
    buffer = Array(np.full(plan.chosen.workspace, 255, np.uint8))
    with gpu.using(is_capturing=True):
        out.host[...] = 0
        bilinear.matmul(Array(a), Array(b), out, plan=plan, workspace=buffer)
        np.testing.assert_array_equal(out.host, a @ b)
        out.host[...] = 0
        bilinear.matmul(Array(a), Array(b), out, plan=plan, workspace="none")
        np.testing.assert_array_equal(out.host, a @ b)
        assert gpu.of_graph == [plan.chosen.workspace]
    with pytest.raises(BilinearError, match="E535"):  # a limit is one: only `none` means operands, result and scales
        bilinear.matmul(Array(a), Array(b), out, plan=plan, workspace=100)
    with pytest.raises(BilinearError, match=r"E543.*pairs_on_load: needs 512 bytes of workspace, 100 are allowed"):
        loaded_plan(64, 80, 48, workspace=100)


def test_a_result_that_overlaps_an_operand_is_computed_aside_and_counts(gpu: Gpu) -> None:
    a = Array(np.random.default_rng(1).integers(-9, 10, (64, 64)).astype(np.float32))
    wanted = a.host @ a.host
    with pytest.raises(BilinearError, match=r"E535.*with a result aside from out"):
        bilinear.matmul(a, a, a, plan=loaded_plan(64, 64, 64), workspace="none")
    bilinear.matmul(a, a, a, plan=loaded_plan(64, 64, 64))
    np.testing.assert_array_equal(a.host, wanted)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"levels": ("winograd",)}, r"E781.*below winograd nothing would form the sums"),
        ({"dtype": "float64"}, r"E782.*cut from float32, not from float64"),
        ({"dtype": "complex64"}, r"E787.*do not multiply complex64(.|\n)*choose from pairs, residues7"),
    ],
)
def test_what_is_not_cut_so_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BilinearError, match=message):
        bilinear.plan(64, 64, 64, **{"dtype": "float32", **options}, device=H200, products=NAME)


def test_other_arrays_and_other_chips_are_refused(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    for dtype in ("float64", "complex64"):
        x = Array(np.ones((64, 64), dtype))
        assert digit_multiply_of(layout_of(x), layout_of(x), layout_of(x), Digits((), NAME)) is None
    x = Array(np.ones((64, 64), np.float32))
    assert digit_multiply_of(layout_of(x), layout_of(x), layout_of(x), Digits(("winograd",), NAME)) is None
    monkeypatch.setattr(Device, "compute_capability", "80")
    with pytest.raises(BilinearError, match="E544"):
        bilinear.matmul(x, x, plan=loaded_plan(64, 64, 64))


def test_plan_files_hold_it_and_no_other() -> None:
    plan = loaded_plan(512, 512, 512, workspace=0)
    assert plan_from_json(plan_json(plan), "plan") == plan
    for change in ({"levels": ["winograd"]}, {"cut": [2, 1]}):
        forged = json.loads(plan_json(plan))
        forged["candidates"][0]["choice"].update(change)
        forged["sha256"] = [["0", ""]] * len(forged["candidates"][0]["choice"]["levels"])
        with pytest.raises(BilinearError, match=r"E545.*no such levels above them, and no blocks"):
            plan_from_json(json.dumps(forged), "plan")


def test_it_is_weighed_where_rates_are_known_and_an_accuracy_is_asked_for() -> None:
    for device, accuracy, there in ((without_rates(H200), "classical", False), (H200, None, False), (H200, "classical", True)):
        plan = bilinear.plan(4096, 4096, 4096, "float32", device=device, accuracy=accuracy, workspace=0, explain=True)
        assert any(c.tile == NAME for c in plan.candidates) is there
        assert not any(c.choice.needs_little and c.why.startswith("needs") for c in plan.candidates)
    pairs = next(c for c in plan.candidates if c.tile == "pairs" and not c.levels and not c.rest)
    assert plan.chosen.tile == NAME and plan.chosen.workspace == 4 * (2 * 4096) + 256 and pairs.why.startswith("needs")
    own = loaded_plan(4096, 4096, 4096).chosen
    assert (plan.chosen.error, plan.chosen.probable) == (pairs.error, pairs.probable) == (own.error, own.probable)
    some = bilinear.plan(4096, 4096, 4096, "float32", device=H200, accuracy="classical", workspace=100)
    assert some.chosen.tile != NAME


def test_auto_runs_it_without_workspace(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    eager = slow_units(H200)
    monkeypatch.setattr(devices_here, "_described", lambda named, index: eager)
    a, b = (np.random.default_rng(1).integers(-9, 10, shape).astype(np.float32) for shape in ((70, 900), (900, 70)))
    for _ in range(2):  # decided, then found again
        result = bilinear.matmul(Array(a), Array(b), accuracy="classical", workspace="none")
        np.testing.assert_array_equal(result.host, a @ b)
    assert gpu.library == 0 and [name.startswith("digit_load") for name, _ in gpu.launches].count(True) == 2


MUTANTS = {  # by what is wrong: what stands in the text, and what instead
    "digits over numbers that are not read yet": ("            __syncwarp();    // digits take", "            // digits take"),
    "no wait for the copies": ("            copies.wait();\n", "\n"),
    "no wait for the multiplications": ("            barrier_wait(&empty[to], parity);\n", "\n"),
    "the other parity": ("if (++to == STAGES) to = 0, parity ^= 1;", "if (++to == STAGES) to = 0;"),
    "full too early": ("barrier_init(&full[s], LOADERS * 4)", "barrier_init(&full[s], LOADERS * 4 - 1)"),
    "the stage before": ("const int s = to + 1 == STAGES ? 0 : to + 1;", "const int s = to;"),
    "one operand's panel": ("stages + to * STAGE + PANEL, Index(panels.y)", "stages + to * STAGE, Index(panels.y)"),
    "no scales of the next tile": ("        cutter.rescale(", "        if (tile == blockIdx.x) cutter.rescale("),
    "another swizzle": ("CUT ? x % 8", "CUT ? x % 4"),
    "the other row's scale": ("x.lane[0] * scale[part % 2]", "x.lane[0] * scale[part / 2]"),
    "other terms of A": ("step % 2 * 64 + part / 2 * 32", "step % 2 * 64 + part % 2 * 32"),
    "registers that the unit still reads": ("turn = step % 2;", "turn = 0;"),
    "no wait for what is cut into": ("                        group_wait<1>();\n", "\n"),
    "a stage that is still read": ("if (step == 0 && !begins) release(last);", "if (step == 0 && !begins) release(s);"),
    "the last chunk is not added": (" || i == slices) {", ") {"),
    "no mask beyond the last line": ("step_of(c) < others ? neighbours : 0", "neighbours"),
    "a slice too many": ("if (++next == slices) next = 0", "if (++next > slices) next = 0"),
}  # fmt: skip


def before_nan(values: Any) -> Array:
    """A matrix behind whose last row there are NaN: what is read there shows."""
    rows, columns = values.shape
    memory = np.full((rows + 8, columns), np.nan, np.float32)
    memory[:rows] = values
    return Array(memory[:rows])


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_fails(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    gpu.runs = "text"
    old, new = MUTANTS[name]
    generator = np.random.default_rng(5)
    a, b = (np.ldexp(generator.integers(-30, 31, shape), generator.integers(0, 9, lines)) for shape, lines in SHAPES)
    left, right = before_nan(a), before_nan(b)
    out = Array(np.full((300, 260), np.nan, np.float32))
    found = kernels_of(layout_of(left), layout_of(right), layout_of(out), Digits((), NAME), by_warps=False)
    (kernel,) = (kernel for kernel in found if isinstance(kernel, LoadingKernel))
    text = render(kernel)
    assert text.count(old) == 1

    def mutated(asked: Any) -> Any:
        module, types = pretended_gpu.compiled(asked)
        return (module if asked.name != kernel.name else compile_on_cpu(text.replace(old, new), {kernel.name: types})), types

    def function(asked: Any, built: Any) -> Any:
        found = Gpu.function(gpu, asked, built)
        gpu.functions[found.ptr] = (mutated(asked)[0], *gpu.functions[found.ptr][1:])
        return found

    monkeypatch.setattr("bilinear.backends.loaded_kernels._function", function)
    try:
        bilinear.matmul(left, right, out, plan=loaded_plan(300, 331, 260))
    except StageError:
        return
    assert not np.array_equal(out.host, a @ b)


SHAPES = ((300, 331), (300, 1)), ((331, 260), 260)


def test_the_tile_fits_a_multiprocessor() -> None:
    tile = LOADING_TILES[NAME]
    loaders = tile.loaders * tile.loader_registers
    assert 128 * (tile.consumers * tile.registers + loaders) <= 65536 and tile.threads == 384 and tile.slice_bytes == 0
