"""Products of residues through `matmul`, on a pretended GPU that runs the emitted kernels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from codegen.emulated import c_type
from digit_unit import KINDS, allowed, data, scale_exponent, slow_units
from each_case import each
from runtime.operands import laid
from runtime.pretended_gpu import Array, Gpu, compiled, require_exact

import bilinear
from bilinear.analysis.digit_bounds import residue_bound, room_of
from bilinear.codegen.render import render
from bilinear.emulator import LaunchError, compile_on_cpu, skip_reason
from bilinear.errors import BilinearError
from bilinear.frontend.algorithms import load_digits
from bilinear.ir.digits import least_residue, representation_of, residues
from bilinear.ir.matrix import layout_of
from bilinear.ir.residue_kernel import ResidueProductKernel
from bilinear.ir.tile import LONGEST_SUM, RESIDUE_TILES, ResidueTile
from bilinear.methods.digits.binding import digit_multiply_of
from bilinear.methods.digits.choice import Digits, digits_of, scheme_of
from bilinear.methods.digits.lower import OperandOrder, lower_residues
from bilinear.methods.planning import plan_from_json
from bilinear.planner.device_files import load_device
from bilinear.planner.kept_plans import plan_json
from bilinear.planner.library import LIBRARY_ITSELF
from bilinear.planner.plan import Plan
from bilinear.planner.problem import CLASSES
from bilinear.runtime import devices_here

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")
H200 = load_device("h200")
DESCRIBED = "h200"
PLAIN: tuple[str, ...] = ()
WINOGRAD = ("winograd",)


def residue_plan(shape: tuple[int, int, int], levels: tuple[str, ...], products: str) -> Plan:
    return bilinear.plan(*shape, dtype_of(products), device=H200, levels=levels, products=products)


def dtype_of(products: str) -> str:
    return RESIDUE_TILES[products].of.name


def product_kernel(name: str, tile: ResidueTile) -> ResidueProductKernel:
    return ResidueProductKernel(name, tile.of, tile, representation_of(tile).moduli)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("products", "levels", "by_columns"),
    [
        ("residues13", PLAIN, ()),
        ("residues13", WINOGRAD, ("A",)),
        ("residues13", WINOGRAD, ("B", "C")),
        ("residues7", ("winograd", "winograd"), ("A", "B", "C")),
        ("residues7", ("laderman",), ("B",)),
    ],
    ids=str,
)
def test_integers_are_exact_in_every_order(gpu: Gpu, products: str, levels: tuple[str, ...], by_columns: tuple[str, ...]) -> None:
    most = 2**20 if products == "residues13" else 2**7  # products and sums are exact in the type
    for shape, padded in (((37, 70, 29), 0), *([((150, 133, 270), 3)] if levels == PLAIN else [])):
        require_exact(residue_plan(shape, levels, products), by_columns, most=most, padded=padded)
    assert gpu.library == 0


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("products", "levels", "kind"),
    [
        *(("residues13", PLAIN, kind) for kind in KINDS),
        *(("residues17", WINOGRAD, kind) for kind in ("normal", "largest")),
        *(("residues7", PLAIN, kind) for kind in ("nine decades", "subnormal", "largest")),
    ],
)
def test_no_element_is_further_off_than_the_bound(gpu: Gpu, products: str, levels: tuple[str, ...], kind: str) -> None:
    tile, (m, k, n) = RESIDUE_TILES[products], (5, 33, 4)
    a, b = (x.astype(tile.of.name) for x in data(kind, m, k, n, tile.of))
    plan, out = residue_plan((m, k, n), levels, products), Array(np.full((m, n), np.nan, tile.of.name))
    memory = Array(np.full((plan.chosen.workspace or 0) // 8, np.nan))
    bilinear.matmul(Array(a), Array(b), out, plan=plan, workspace=memory)
    check_scales(memory.host.view(np.int32)[: m + n], a, b, products)
    bound = residue_bound(residues(representation_of(tile)), k)
    for i in range(m):
        for j in range(n):
            x, y = ([Fraction(float(v)) for v in line] for line in (a[i], b[:, j]))
            wanted = sum((p * q for p, q in zip(x, y, strict=True)), Fraction(0))
            most = allowed(bound.rounded, bound.cut, k, x, y) + Fraction(2) ** (tile.of.least - 1)
            if abs(wanted) + most < Fraction(2) ** tile.of.most:
                assert abs(Fraction(float(out.host[i, j])) - wanted) <= most


def check_scales(found: Any, a: Any, b: Any, products: str) -> None:
    """Exponents are at most those of exact norms, so that the range is kept, and one less only where a norm rounds up to the limit."""
    representation, k = representation_of(RESIDUE_TILES[products]), a.shape[1]
    room = Fraction(room_of(representation, k))
    for exponent, line in zip(found, [*a, *b.T], strict=True):
        square = sum((Fraction(float(v)) ** 2 for v in line), Fraction(0))
        assert square * Fraction(4) ** int(exponent) <= room**2
        assert not square or square * Fraction(4) ** (int(exponent) + 1) * (1 + Fraction(1, 2**40)) > room**2
        assert square or exponent == 0 == scale_exponent(0, representation, k)


def launch(kernel: Any, blocks: int, values: Mapping[str, Any]) -> None:
    module, _ = compiled(kernel)
    arguments = [values[argument.name] for argument in kernel.arguments]
    module.launch(kernel.name, (blocks, 1), kernel.threads, arguments, shared_bytes=kernel.shared_bytes)


@each("products", [name for name, tile in RESIDUE_TILES.items() if not tile.gaussian])
def test_what_is_put_together_is_rounded_once(products: str) -> None:
    """The Chinese remainder theorem on the largest numbers there are, on small ones, and on those between, in exact arithmetic."""
    tile = RESIDUE_TILES[products]
    representation, u = representation_of(tile), Fraction(tile.of.unit_roundoff)
    order = OperandOrder(True, True)
    *_, kernel = lower_residues(scheme_of(()), "plain", tile, order, order, True)
    largest, generator = representation.norm_limit**2, np.random.default_rng(1)
    numbers = [0, 1, -1, largest, -largest, largest - 1, 2**53 + 1, -(2**53) - 3]
    while len(numbers) < 64:
        bits = int(generator.integers(1, largest.bit_length()))
        numbers.append(int.from_bytes(generator.bytes(20)) % 2**bits * int(generator.choice([-1, 1])))
    shares = [
        [least_residue(x * inverse, p) for x in numbers] for p, inverse in zip(representation.moduli, representation.inverses, strict=True)
    ]
    c, left, right = np.full((1, 64), np.nan, tile.of.name), np.array([-40], np.int32), np.arange(64, dtype=np.int32)
    values = {"P": np.array(shares, np.int8).view(np.uint8), "block_m": 1, "block_n": 64, "pitch": 64, "C": c, "C_rs": 64, "C_cs": 1}
    values |= {"m": 1, "n": 64, "LA": left.view(np.uint32), "LB": right.view(np.uint32), "flag": np.zeros(1, np.int32)}
    launch(kernel, 1, values | {"alpha": 1.0, "beta": 0.0})
    for found, x, exponent in zip(c[0], numbers, right - 40, strict=True):
        wanted = x / Fraction(2) ** int(exponent)
        if abs(wanted) < Fraction(2) ** (tile.of.most - 1):
            assert abs(Fraction(float(found)) - wanted) <= u * (1 + Fraction(1, 2**20)) * abs(wanted)


@pytest.mark.slow
def test_sums_beyond_int32_are_cut() -> None:
    """The largest residues, in sums of more terms than int32 holds, modulo 256 and 255."""
    slices = LONGEST_SUM // 128 + 1
    kernel = product_kernel("product", RESIDUE_TILES["residues7"])
    digits = [np.empty((2, 2, slices * 16384), np.int8) for _ in "AB"]
    for x, sign in zip(digits, (1, -1), strict=True):
        x[0], x[1] = -128, 127 * sign
    p = np.full((2, 200, 64), 77, np.uint8)
    values = {"DA": digits[0].view(np.uint8), "DB": digits[1].view(np.uint8), "panels_m": 2, "panels_n": 2, "slices": slices}
    launch(kernel, 2, values | {"P": p, "m": 200, "pitch": 64, "planes": 2})
    terms = slices * 128
    assert (p[0] == 0).all() and terms % 4 == 0
    assert (p[1].view(np.int8) == least_residue(-(127**2) * terms, 255)).all()


@pytest.mark.slow
def test_a_shorter_chunk_gives_the_same() -> None:
    """Sums that are reduced after every slice, of residues in places that differ, beside exact ones."""
    tile = replace(RESIDUE_TILES["residues7"], chunk=256)
    generator, results = np.random.default_rng(2), []
    digits = [generator.integers(-98, 98, (7, 2, 5 * 16384)).astype(np.int8).view(np.uint8) for _ in "AB"]
    for form, name in ((tile, "in_chunks"), (RESIDUE_TILES["residues7"], "whole")):
        p = np.zeros((7, 256, 256), np.uint8)
        values = {"DA": digits[0], "DB": digits[1], "panels_m": 2, "panels_n": 2, "slices": 5, "planes": 7, "P": p, "m": 256, "pitch": 256}
        launch(product_kernel(name, form), 2, values)
        results.append(p)
    np.testing.assert_array_equal(results[0], results[1])
    left, right = (unswizzled(x) for x in digits)
    for found, modulus, x, y in zip(results[0].view(np.int8).astype(int), representation_of(tile).moduli, left, right, strict=True):
        np.testing.assert_array_equal((found - x.astype(int) @ y.astype(int).T) % modulus, 0)
        assert abs(found).max() <= modulus // 2


MUTANTS = {  # by what is wrong: what stands in the text, and what instead
    "rows of another tile": ("number * 64 * TILE_K, 16, 1024)", "number * 64 * TILE_K, 16, 512)"),
    "a step of 16 terms": ("a + 2 * part, b + 2 * part", "a + part, b + part"),
    "no sum kept": ("keep || part != 0", "part != 0"),
    "a slice that is released too early": (
        "group_wait<1>();\n                    release(last);",
        "release(last);\n                    group_wait<1>();",
    ),
    "results that are not swizzled": ("((lane % 16) ^ (row % 8)) * 16", "lane % 16 * 16"),
    "the second tile takes the first one's barriers": (
        "if (++s == STAGES) s = 0, parity ^= 1;\n                ++i;\n                if",
        "++i;\n                if",
    ),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_of_the_product_fail(name: str) -> None:
    kernel = product_kernel("product", RESIDUE_TILES["residues7"])
    text, (old, new) = render(kernel), MUTANTS[name]
    assert text.count(old) == 1
    module = compile_on_cpu(text.replace(old, new), {kernel.name: [c_type(x, kernel.element) for x in kernel.arguments]})
    digits = np.random.default_rng(2).integers(-98, 98, (2, 2, 2, 5 * 16384)).astype(np.int8)
    p = np.zeros((2, 256, 256), np.uint8)
    values = [*digits.view(np.uint8), 2, 2, 5, 2, p, 256, 256]
    products = [x.astype(int) @ y.astype(int).T for x, y in zip(*(unswizzled(x.view(np.uint8)) for x in digits), strict=True)]
    with suppress(LaunchError):
        module.launch(kernel.name, (2, 1), kernel.threads, values, shared_bytes=kernel.shared_bytes, seconds=60)
        pairs = zip(p.view(np.int8).astype(int), products, kernel.moduli, strict=False)
        assert any(((found - product) % modulus).any() for found, product, modulus in pairs)


def unswizzled(x: Any) -> Any:
    """Lines by terms of each plane of residues."""
    planes = x.view(np.int8).reshape(-1, 2, 5, 128, 8, 16)
    lines = np.arange(128)[:, None] % 8 ^ np.arange(8)
    return np.take_along_axis(planes, lines[None, None, None, :, :, None], 4).transpose(0, 1, 3, 2, 4, 5).reshape(-1, 256, 640)


def test_tiles_are_the_shipped_digits() -> None:
    for name, tile in RESIDUE_TILES.items():
        shipped = load_digits(name).representation
        assert replace(shipped, citation="") == representation_of(tile) and tile.name == name
        assert max(shipped.moduli) <= 256


def test_the_fewest_moduli_that_keep_an_accuracy_are_taken() -> None:
    def named(accuracy: float | str | None, inner: int = 16384, dtype: str = "float64") -> str:
        chosen = bilinear.plan(512, inner, 512, dtype, device=H200, accuracy=accuracy, products="residues").chosen
        assert chosen.strategy == "digits" and chosen.ms and chosen.why.startswith("asked for: ")
        if isinstance(accuracy, str):
            assert (chosen.probable or 9.0) <= CLASSES[accuracy]
        elif accuracy is not None:
            assert (chosen.error or 9.0) <= accuracy < LIBRARY_ITSELF.choice.bound(inner, dtype) * 1e9
        return chosen.tile

    assert [named(x) for x in ("twice", "classical", None)] == ["residues14"] * 3
    assert [named(x) for x in (1e-8, 1e-9, 2e-11)] == ["residues13", "residues14", "residues15"]
    assert named("classical", 2**20) == "residues14" and named("twice", 64) == "residues14"
    assert named("classical", dtype="float32") == "residues7"
    with pytest.raises(BilinearError, match="E567"):
        named(1e-16)


def test_plans_are_kept_without_a_time() -> None:
    plan = residue_plan((512, 512, 512), WINOGRAD, "residues15")
    assert plan_from_json(plan_json(plan), "plan") == plan
    assert plan.chosen.name == "winograd, 1 level on residues15"
    assert plan.chosen.error == residue_plan((512, 512, 512), PLAIN, "residues15").chosen.error  # sums of residues are exact


@pytest.mark.slow
def test_auto_takes_residues_and_keeps_the_accuracy(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices_here, "_described", lambda named, index: slow_units(H200))
    a, b = (np.random.default_rng(1).integers(-99, 100, shape).astype(float) for shape in ((70, 900), (900, 70)))
    for _ in range(2):  # decided, then found again
        np.testing.assert_array_equal(bilinear.matmul(Array(a), Array(b)).host, a @ b)
    assert gpu.library == 0 and [name for name, _ in gpu.launches if name.startswith("residue_product")] == ["residue_product_14_f64"] * 2


@each(
    ("options", "message"),
    [
        ({"dtype": "float32", "products": "residues15"}, r"E543.* residues15 represent float64, not float32"),
        ({"products": "residues12"}, r"E543.* there are no products 'residues12'"),
        ({"products": "residues15", "workspace": 10}, r"E543.* needs"),
        ({"products": "residues15", "accuracy": 1e-30}, r"E543.* above 1e-30"),
        ({"products": "residues15", "levels": ("accurate_halves",)}, r"E591.* has coefficients that are not integers"),
        ({"products": "residues17", "levels": ("winograd",) * 3}, r"E592.* 64 blocks of C"),
    ],
)  # fmt: skip
def test_what_residues_cannot_hold_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BilinearError, match=message):
        bilinear.plan(640, 640, 640, device=H200, **options)


def test_arrays_of_another_type_are_refused(gpu: Gpu) -> None:
    a, plan = Array(np.ones((64, 64), np.float32)), residue_plan((64, 64, 64), PLAIN, "residues13")
    with pytest.raises(BilinearError):
        bilinear.matmul(a, a, plan=plan)
    assert digit_multiply_of(layout_of(a), layout_of(a), layout_of(a), Digits((), "residues13")) is None


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("products", "levels", "by_columns"),
    [("pairs", PLAIN, ("A",)), ("residues7", WINOGRAD, ("B", "C")), ("residues13", PLAIN, ()), ("pairs", WINOGRAD, ("C",))],
    ids=str,
)
def test_blocks_of_c_share_a_workspace_and_are_exact(gpu: Gpu, products: str, levels: tuple[str, ...], by_columns: tuple[str, ...]) -> None:
    """C in blocks, of which the last ones are smaller; an Inf in one of them; memory of the caller that is as large as the plan says."""
    dtype = "float32" if products == "pairs" else dtype_of(products)
    m, k, n = 300, 70, 612
    generator = np.random.default_rng(4)
    whole = [generator.integers(-15, 16, shape) for shape in ((m, k), (k, n), (m, n))]
    a, b, old = (laid(x, dtype, name in by_columns, 4) for name, x in zip("ABC", whole, strict=True))
    out, digits = Array(old.copy(order="K")), Digits(levels, products, (2, 3))
    multiply = digit_multiply_of(layout_of(Array(a)), layout_of(Array(b)), layout_of(out), digits)
    one = digit_multiply_of(layout_of(Array(a)), layout_of(Array(b)), layout_of(out), Digits(levels, products))
    assert multiply is not None and one is not None and multiply.workspace < one.workspace
    memory = np.full(multiply.workspace + 4, np.nan, old.dtype)
    start = -memory.ctypes.data % 16 // old.itemsize
    for alpha, beta in ((1, 0), (3, -2)):
        out.host[...] = np.nan if beta == 0 else whole[2]
        multiply(a.ctypes.data, b.ctypes.data, out.host.ctypes.data, alpha, beta, memory[start:].ctypes.data)
        np.testing.assert_array_equal(out.host, alpha * (whole[0] @ whole[1]) + beta * whole[2])
    names = [name for name, _ in gpu.launches]
    left, right = (sum(re.search(f"_expand_.*_{side}_[ac]_", name) is not None for name in names) for side in "ab")
    assert 0 < left < right
    a[3, 5] = np.inf
    with np.errstate(invalid="ignore"):
        wanted = a @ b
    multiply(a.ctypes.data, b.ctypes.data, out.host.ctypes.data, 1, 0, memory[start:].ctypes.data)
    np.testing.assert_array_equal(out.host, wanted)


def test_a_budget_is_kept_by_computing_c_in_blocks() -> None:
    for dtype, accuracy in (("float64", None), ("float32", None), ("float32", "twice")):
        size = 8 if dtype == "float64" else 4
        for budget in (8192 * 8192 * size, *((8192 * 8192 * size // 2,) if dtype == "float32" else ())):
            plan = bilinear.plan(8192, 8192, 8192, dtype, device=H200, workspace=budget, accuracy=accuracy, accumulate=True)
            assert plan.chosen.strategy == "digits" and digits_of(plan.chosen).cut != (1, 1) and (plan.chosen.workspace or 0) <= budget
            assert plan_from_json(plan_json(plan), "plan") == plan and "blocks" in plan.chosen.name
    whole = bilinear.plan(8192, 8192, 8192, "float64", device=H200)
    assert digits_of(whole.chosen).cut == (1, 1)
