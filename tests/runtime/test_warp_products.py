"""Products of digits and of residues by warps, for chips without warpgroups, on a pretended GPU that runs the emitted kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from codegen.emulated import c_type
from runtime.pretended_gpu import Array, Device, Gpu, require_exact, undescribed

import bilinear
from bilinear.backends import machine
from bilinear.codegen.render import render
from bilinear.emulator import ORDERS, LaunchError, compile_on_cpu, skip_reason
from bilinear.errors import BilinearError
from bilinear.ir.digit_kernel import WarpDigitProductKernel
from bilinear.ir.digits import largest_moduli
from bilinear.ir.residue_kernel import WarpResidueProductKernel
from bilinear.ir.tile import DIGIT_TILES, LONGEST_SUM, RESIDUE_TILES
from bilinear.planner.device import Policy
from bilinear.planner.device_files import load_device
from bilinear.runtime import integers

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")
A100 = replace(load_device("a100"), digits=())
PRODUCTS = "digit_product", "residue_product"
RESIDUES7 = RESIDUE_TILES["residues7"]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    """A pretended GPU of compute capability 8.0."""
    with undescribed(monkeypatch) as found:
        monkeypatch.setattr(Device, "compute_capability", "80")
        yield found


def pairs_kernel(left: bool, right: bool, direct: bool = False, **changes: Any) -> WarpDigitProductKernel:
    tile = replace(DIGIT_TILES["pairs"], **changes)
    return WarpDigitProductKernel("pairs", tile, left, right, direct)


def residue_kernel(**changes: Any) -> WarpResidueProductKernel:
    tile = replace(RESIDUES7, count=3, **changes)
    return WarpResidueProductKernel("residues", tile.of, tile, largest_moduli(3))


def swizzled(x: Any) -> Any:
    """Lines of 8 parts, (..., lines, 8, elements): part f of line s is at place f ^ s % 8."""
    lines = np.arange(x.shape[-3])[:, None]
    return x[..., lines, lines % 8 ^ np.arange(8), :].copy()


def panels(x: Any, along: bool) -> Any:
    """Digits (planes, 2, lines, terms) as they are expanded: panels of 128 lines, slices of 64 terms, tiles of 64 x 64, swizzled."""
    planes, digits, lines, terms = x.shape
    tiles = x.reshape(planes, digits, lines // 128, 2, 64, terms // 64, 64).transpose(0, 2, 5, 1, 3, 4, 6)
    tiles = (tiles if along else tiles.swapaxes(-1, -2)).reshape(*tiles.shape[:5], 64, 8, 8)
    return swizzled(tiles).view(np.uint16)


def slices(x: Any) -> Any:
    """Residues (planes, lines, terms) in the order of the expansion: panels of 128 lines, slices of 128 terms, whose lines are swizzled."""
    planes, lines, terms = x.shape
    parts = x.reshape(planes, lines // 128, 128, terms // 128, 8, 16).swapaxes(2, 3)
    return swizzled(parts).view(np.uint8)


def run(kernel: Any, values: dict[str, Any], blocks: int, text: str = "", **options: Any) -> None:
    module = compile_on_cpu(text or render(kernel), {kernel.name: [c_type(x, kernel.element) for x in kernel.arguments]})
    arguments = [values[x.name] for x in kernel.arguments]
    module.launch(kernel.name, (blocks, 1), kernel.threads, arguments, shared_bytes=kernel.shared_bytes, **options)


def digit_products(kernel: WarpDigitProductKernel, blocks: int, text: str = "", terms: int = 320, **options: Any) -> tuple[Any, Any]:
    """What three planes of 256 x 128 results are, and what they should be; the last rows and columns are outside of the result."""
    generator = np.random.default_rng(1)
    a, b = (generator.integers(-9, 10, (3, 2, lines, terms)).astype(np.float16) for lines in (256, 128))
    p = np.full((3, 250, 124), np.nan, np.float32)
    values = {"DA": panels(a, kernel.left_along), "DB": panels(b, kernel.right_along), "panels_m": 2, "panels_n": 1, "slices": terms // 64}
    run(kernel, values | {"planes": 3, "P": p, "m": 250, "pitch": 124}, blocks, text, **options)
    x, y = a.astype(float), b.astype(float).swapaxes(2, 3)
    return p, (x[:, 0] @ y[:, 0] + x[:, 0] @ y[:, 1] + x[:, 1] @ y[:, 0])[:, :250, :124]


@pytest.mark.sample(1)
@pytest.mark.parametrize(("left", "right"), [(True, True), (True, False), (False, True), (False, False)])
def test_products_of_pairs_are_exact_in_every_order(left: bool, right: bool) -> None:
    for blocks, order in zip((1, 2, 4), ORDERS, strict=True):  # one after the other, two or one tile each
        found, wanted = digit_products(pairs_kernel(left, right), blocks, order=order, threads=2)
        np.testing.assert_array_equal(found, wanted)
    found, wanted = digit_products(pairs_kernel(left, right, chunk=64), 6, terms=64)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.slow
def test_chunks_are_added_up_in_registers() -> None:
    """The unit drops what is below 24 bits, so sums of few chunks of positive products are nearer."""
    generator = np.random.default_rng(4)
    a, b = (generator.random((1, 1, 128, 2048)).astype(np.float16) for _ in "AB")
    digits = [panels(np.concatenate([x, 0 * x], 1), True) for x in (a, b)]
    exact, errors = a[0, 0].astype(float) @ b[0, 0].astype(float).T, []
    for chunk in (64, 256, 2048):
        p = np.full((1, 128, 128), np.nan, np.float32)
        values = {"DA": digits[0], "DB": digits[1], "panels_m": 1, "panels_n": 1, "slices": 32, "planes": 1, "P": p, "m": 128, "pitch": 128}
        run(pairs_kernel(True, True, chunk=chunk), values, 1)
        errors.append(float(np.linalg.norm(p[0] - exact) / np.linalg.norm(exact)))
    assert errors[0] * 2 < errors[1] and errors[1] * 4 < errors[2]


def residue_products(kernel: WarpResidueProductKernel, blocks: int, text: str = "", **options: Any) -> tuple[Any, Any]:
    """What 150 x 272 results modulo each p are, of two products, and the sums that they are residues of."""
    generator, planes = np.random.default_rng(2), 2 * kernel.tile.count
    a, b = (generator.integers(-128, 128, (planes, lines, 384)).astype(np.int8) for lines in (256, 512))
    p = np.full((planes, 150, 272), 77, np.uint8)
    values = {"DA": slices(a), "DB": slices(b), "panels_m": 2, "panels_n": 4, "slices": 3, "planes": planes, "P": p, "m": 150, "pitch": 272}
    run(kernel, values, blocks, text, **options)
    return p.view(np.int8).astype(int), (a.astype(int) @ b.astype(int).swapaxes(1, 2))[:, :150, :272]


def are_residues(kernel: WarpResidueProductKernel, found: Any, sums: Any) -> bool:
    moduli = np.array(kernel.moduli * 2)[:, None, None]
    return bool((((found - sums) % moduli) == 0).all() and (abs(found) <= moduli // 2).all())


@pytest.mark.slow
def test_products_of_residues_are_exact_and_reduced() -> None:
    for blocks, order, chunk in zip((1, 3, 24), ORDERS, (LONGEST_SUM, 128, 64), strict=True):
        kernel = residue_kernel(chunk=chunk)
        assert are_residues(kernel, *residue_products(kernel, blocks, order=order))


MUTANTS = {  # of pairs: what stands in the text, and what instead
    "a part at another place": ("(part ^ line / 2 % 4) * 16", "(part ^ line % 4) * 16"),
    "terms of another step": ("^ step * 32 :", "^ step * 16 :"),
    "lines of another piece": ("load_matrices<!A_ALONG>(a_low, at + HALF_DIGIT + moved<A_ALONG>(rows, x, step))",
                               "load_matrices<!A_ALONG>(a_low, at + HALF_DIGIT + moved<A_ALONG>(rows, 0, step))"),
    "a matrix that is turned": ("load_matrices<!B_ALONG>(low", "load_matrices<B_ALONG>(low"),
    "another half of b": ("a_low, high[y / 2][y % 2], high[y / 2][y % 2 + 2]", "a_low, high[y / 2][y % 2 + 2], high[y / 2][y % 2]"),
    "a copy that nobody waits for": ("copies_wait<STAGES - 2>();", "copies_wait<STAGES - 1>();"),
    "no barrier": ("__syncthreads();", ";"),
    "a stage that is filled too early": ("fetch(stage == 0 ? STAGES - 1 : stage - 1);", "fetch(stage);"),
    "the same half again": ("if (++half == halves)", "half += half % 2; if (++half == halves)"),
    "no sum of chunks": ("sum[x][y][e] += chunk[x][y][e]", "sum[x][y][e] = chunk[x][y][e]"),
    "results in other columns": ("warp_n * WIDE * 8 + lane % 4 * 2", "warp_n * WIDE * 8 + lane % 4"),
    "results in other rows": ("sum[x / 2][y][x % 2 * 2], sum", "sum[x / 2][y][(x + 1) % 2 * 2], sum"),
}  # fmt: skip


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_of_products_of_pairs_fail(name: str) -> None:
    kernel = pairs_kernel(True, True)
    text, (old, new) = render(kernel), MUTANTS[name]
    assert text.count(old) == 1
    with suppress(LaunchError):
        found, wanted = digit_products(kernel, 2, text.replace(old, new), order="descending", seconds=60)
        assert not np.array_equal(found, wanted)


RESIDUE_MUTANTS = {  # of residues
    "columns that are no neighbours": ("lane % 8 / 2 * 1024", "lane % 8 / 2 * 512"),
    "parts of B at another place": ("(part ^ line / 16 % 4) * 16", "(part ^ line / 2 % 4) * 16"),
    "a step that is too long": ("columns + y * 256 ^ step * 32", "columns + y * 256 ^ step * 64"),
    "another panel of B": ("right + panel * slices * PANEL", "right + panel * PANEL"),
    "the modulus of another plane": ("modulus_of(tile.plane % MODULI)", "modulus_of(0)"),
    "bytes in another order": ("0x5410", "0x1054"),
    "sums that are reduced to other numbers": ("int((signed char)residue(sum[x][y][e], by))", "int(residue(sum[x][y][e], by) & 255)"),
    "no barrier": ("__syncthreads();", ";"),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", RESIDUE_MUTANTS)
def test_mutants_of_products_of_residues_fail(name: str) -> None:
    kernel = residue_kernel(chunk=128)
    text, (old, new) = render(kernel), RESIDUE_MUTANTS[name]
    assert text.count(old) == 1
    with suppress(LaunchError):
        found, sums = residue_products(kernel, 3, text.replace(old, new), order="descending", seconds=60)
        assert not are_residues(kernel, found, sums)


ORDERED: tuple[tuple[str, ...], ...] = ((), ("A",), ("B",), ("A", "B", "C"))


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("products", "dtype", "levels", "by_columns"),
    [
        *(("pairs", "float32", (), order) for order in ORDERED),
        ("pairs", "float32", ("winograd",), ("B",)),
        ("pairs", "complex64", ("winograd",), ("A",)),
        ("residues7", "float32", ("winograd",), ("B", "C")),
        ("residues13", "float64", (), ("A",)),
        ("residues13", "complex128", (), ()),
    ],
    ids=str,
)
def test_integers_are_exact_in_every_order(
    gpu: Gpu, products: str, dtype: str, levels: tuple[str, ...], by_columns: tuple[str, ...]
) -> None:
    """By the plans of a GPU that is described without rates of digits, as on one with warpgroups."""
    m, k, n = (141, 70, 133) if dtype == "float32" else (37, 70, 29)
    plan = bilinear.plan(m, k, n, dtype, device=A100, levels=levels, products=products)
    assert plan.chosen.ms is None and "no time is known" in plan.chosen.why
    assert plan.chosen.workspace == bilinear.plan(m, k, n, dtype, device="h200", levels=levels, products=products).chosen.workspace
    require_exact(plan, by_columns, padded=3)
    ran = [name for name, _ in gpu.launches if name.startswith(PRODUCTS)]
    assert ran and all("_warps" in name for name in ran) and gpu.library == 0


@pytest.mark.slow
def test_errors_and_flags_are_those_of_warpgroups(gpu: Gpu) -> None:
    generator = np.random.default_rng(7)
    a, b = (generator.standard_normal(shape).astype(np.float32) for shape in ((40, 300), (300, 50)))
    exact, found = a.astype(float) @ b.astype(float), dict[str, Any]()
    for products, capability in (("pairs", "80"), ("pairs", "90"), ("residues7", "86"), ("residues7", "90")):
        Device.compute_capability = capability
        plan = bilinear.plan(40, 300, 50, "float32", device=A100, levels=(), products=products)
        c = bilinear.matmul(Array(a), Array(b), plan=plan).host
        assert np.linalg.norm(c - exact) < 6e-7 * np.linalg.norm(exact)
        np.testing.assert_array_equal(found.setdefault(products, c), c)  # bit by bit
        x = a.copy()
        x[3, 4] = np.inf
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(bilinear.matmul(Array(x), Array(b), plan=plan).host[3], (x @ b)[3])
    assert len({name for name, _ in gpu.launches if "warps" in name}) == 2


@pytest.mark.slow
def test_integer_matrices_by_name_alone(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integers, "policy_here", lambda: Policy(least_integers=1))
    generator = np.random.default_rng(8)
    a, b = (generator.integers(-(2**62), 2**62, shape) for shape in ((37, 40), (40, 29)))
    np.testing.assert_array_equal(bilinear.matmul(Array(a), Array(b)).host, a @ b)
    assert gpu.library == 1 and not gpu.launches  # `auto` takes what was measured
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(bilinear.matmul(Array(a), Array(b), algorithm="winograd", levels=1).host, a @ b)
    wanted = (a.astype(object) @ b.astype(object)) % 101
    np.testing.assert_array_equal(bilinear.matmul(Array(a), Array(b), modulus=101).host.astype(object), wanted)
    assert [name for name, _ in gpu.launches if name.startswith(PRODUCTS)] == [
        "residue_product_17_integers_warps",
        "residue_product_mod101_integers_warps",
    ]


def test_chips_before_sm_80_have_no_digits(gpu: Gpu) -> None:
    Device.compute_capability = "75"
    a, plan = Array(np.ones((64, 64), np.float32)), bilinear.plan(64, 64, 64, "float32", device=A100, products="pairs")
    with pytest.raises(BilinearError, match="from sm_80 on"):
        bilinear.matmul(a, a, plan=plan)
    with pytest.raises(BilinearError, match="E598"):
        bilinear.matmul(Array(np.ones((4, 4), int)), Array(np.ones((4, 4), int)), modulus=7)
    assert not gpu.launches


def test_an_architecture_that_is_named_is_the_one_that_is_built_for(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    Device.compute_capability = "90"
    for named, n, ran in (("", 64, ["digit_product_pairs_ac_direct"]), ("compute_80", 65, ["digit_product_pairs_ac_direct_warps"])):
        a = np.arange(n * n, dtype=np.float32).reshape(n, n) % 7
        plan = bilinear.plan(n, n, n, "float32", device="h200", products="pairs")
        monkeypatch.setenv(machine.ARCHITECTURE, named)  # before a product of this shape: those that ran are repeated
        del gpu.launches[:]
        np.testing.assert_array_equal(bilinear.matmul(Array(a), Array(a), plan=plan).host, a @ a)
        assert [name for name, _ in gpu.launches if name.startswith(PRODUCTS)] == ran
        assert str(machine.target_here()) == (named or "sm_90")
    for named, code in (("sm_80", "E783.*images for sm_80 do not run on this GPU, sm_90"), ("volta", "E603")):
        monkeypatch.setenv(machine.ARCHITECTURE, named)
        with pytest.raises(BilinearError, match=code):
            machine.target_here()


@pytest.mark.gpu
@pytest.mark.parametrize(("products", "dtype"), [("pairs", "float32"), ("residues7", "float32"), ("residues14", "float64")])
def test_warps_on_a_gpu_give_what_warpgroups_give(monkeypatch: pytest.MonkeyPatch, products: str, dtype: str) -> None:
    cupy: Any = pytest.importorskip("cupy")
    monkeypatch.setenv(machine.ARCHITECTURE, "compute_80")
    for m, k, n in ((700, 1000, 517), (256, 64, 256), (129, 2050, 1)):
        for levels in ((), ("winograd",)):
            plan = bilinear.plan(m, k, n, dtype, device=A100, levels=levels, products=products)
            draw = cupy.random.default_rng(1)
            a, b, c = (draw.integers(-15, 16, shape).astype(dtype) for shape in ((m, k), (k, n), (m, n)))
            wanted = 3 * (a.get() @ b.get()) - 2 * c.get()
            bilinear.matmul(a, b, c, plan=plan, alpha=3, beta=-2)
            np.testing.assert_array_equal(c.get(), wanted)
            turned = bilinear.matmul(cupy.asfortranarray(a), cupy.asfortranarray(b), plan=plan)
            np.testing.assert_array_equal(turned.get(), a.get() @ b.get())
