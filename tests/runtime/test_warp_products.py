"""Products of digits and of residues by warps, for chips without warpgroups, on a pretended GPU that runs the emitted kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from codegen.emulated import c_type
from runtime.pretended_gpu import Array, Device, Gpu, undescribed

import bilinear
from bilinear.analysis.residue_bounds import residue_bound
from bilinear.backends import target_here
from bilinear.codegen.render import render
from bilinear.emulator import ORDERS, LaunchError, compile_on_cpu, skip_reason
from bilinear.errors import BilinearError
from bilinear.ir.digits import residues, residues_of
from bilinear.ir.residue_tile import LONGEST_SUM, RESIDUE_TILES
from bilinear.ir.tile import DIGIT_TILES
from bilinear.ir.warp_product import WarpDigitProductKernel, WarpResidueProductKernel
from bilinear.planner.device_files import load_device
from bilinear.runtime import integers

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")
A100 = load_device("a100")
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
    tile = replace(RESIDUES7, **changes)
    return WarpResidueProductKernel("residues", tile.of, tile, residues_of(tile.of, tile.count).moduli)


def swizzled(x: Any) -> Any:
    """Lines of 8 parts, (..., lines, 8, elements): part f of line s is at place f ^ s % 8."""
    lines = np.arange(x.shape[-3])[:, None]
    return x[..., lines, lines % 8 ^ np.arange(8), :].copy()


def panels(x: Any, along: bool) -> Any:
    """Digits (planes, 2, lines, terms) in the order of the expansion: panels of 128 lines, slices of 64 terms, tiles of 64 x 64, swizzled."""
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


@pytest.mark.parametrize(("left", "right"), [(True, True), (True, False), (False, True), (False, False)])
def test_products_of_pairs_are_exact_in_every_order(left: bool, right: bool) -> None:
    for blocks, order in zip((1, 2, 4), ORDERS, strict=True):  # one after the other, two or one tile each
        found, wanted = digit_products(pairs_kernel(left, right), blocks, order=order, threads=2)
        np.testing.assert_array_equal(found, wanted)
    found, wanted = digit_products(pairs_kernel(left, right, chunk=64), 6, terms=64)
    np.testing.assert_array_equal(found, wanted)


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


def test_products_of_residues_are_exact_and_reduced() -> None:
    for blocks, order, chunk in zip((1, 3, 56), ORDERS, (LONGEST_SUM, 128, 64), strict=True):
        kernel = residue_kernel(chunk=chunk)
        assert are_residues(kernel, *residue_products(kernel, blocks, order=order))


MUTANTS = {  # of pairs: what stands in the text, and what instead
    "a part at another place": ("(part ^ line / 2 % 4) * 16", "(part ^ line % 4) * 16"),
    "terms of another step": ("^ step * 32 :", "^ step * 16 :"),
    "lines of another piece": ("load_matrices<!A_ALONG>(a_low, at + HALF_DIGIT + moved<A_ALONG>(rows, x, step))",
                               "load_matrices<!A_ALONG>(a_low, at + HALF_DIGIT + moved<A_ALONG>(rows, 0, step))"),
    "a matrix that is turned": ("load_matrices<!B_ALONG>(low", "load_matrices<B_ALONG>(low"),
    "another half of b": ("cross[x][y], a_low, high[y / 2][y % 2], high[y / 2][y % 2 + 2]", "cross[x][y], a_low, high[y / 2][y % 2 + 2], high[y / 2][y % 2]"),
    "a copy that nobody waits for": ("copies_wait<STAGES - 2>();", "copies_wait<STAGES - 1>();"),
    "no barrier": ("__syncthreads();", ";"),
    "a stage that is filled too early": ("fetch(stage == 0 ? STAGES - 1 : stage - 1);", "fetch(stage);"),
    "the same half again": ("if (++half == halves)", "half += half % 2; if (++half == halves)"),
    "no sum of chunks": ("sum[x][y][e] += chunk[x][y][e]", "sum[x][y][e] = chunk[x][y][e]"),
    "results in other columns": ("warp_n * WIDE * 8 + lane % 4 * 2", "warp_n * WIDE * 8 + lane % 4"),
    "results in other rows": ("sum[x / 2][y][x % 2 * 2], sum", "sum[x / 2][y][(x + 1) % 2 * 2], sum"),
}  # fmt: skip


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
    "sums that are not reduced": ("if (i < halves) each", "if (i > halves) each"),
    "no barrier": ("__syncthreads();", ";"),
}


@pytest.mark.parametrize("name", RESIDUE_MUTANTS)
def test_mutants_of_products_of_residues_fail(name: str) -> None:
    kernel = residue_kernel(chunk=128)
    text, (old, new) = render(kernel), RESIDUE_MUTANTS[name]
    assert text.count(old) == 1
    with suppress(LaunchError):
        found, sums = residue_products(kernel, 3, text.replace(old, new), order="descending", seconds=60)
        assert not are_residues(kernel, found, sums) or (name == "sums that are not reduced" and abs(sums).max() < 2**31)
