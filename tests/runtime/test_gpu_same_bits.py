"""Products of residues on a pretended GPU, whose kernels run in the emulator: the bits are those of exact integers, rounded once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from backends.test_same_bits import KINDS, by_integers, numbers, same
from runtime.pretended_gpu import Array, Gpu

import bilinear
from bilinear.analysis.digit_bounds import largest_scaled
from bilinear.emulator import skip_reason
from bilinear.errors import BilinearError
from bilinear.ir.digits import representation_of
from bilinear.ir.element import HALVES, Element
from bilinear.ir.reference import loaded, with_factors, with_one_nan
from bilinear.ir.tile import LARGEST_IN_BYTES, RESIDUE_TILES
from bilinear.methods.digits.choice import digits_of, same_bits_products
from bilinear.planner.plan import Plan
from bilinear.runtime.arrays import kind_of
from bilinear.runtime.options import Options
from bilinear.runtime.same_bits import by_same_bits

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")
DESCRIBED = "h200"


def plan_of(m: int, k: int, n: int, products: str, levels: tuple[str, ...] = (), cut: tuple[int, int] = (1, 1)) -> Plan:
    tile = RESIDUE_TILES[products]
    found = bilinear.plan(m, k, n, tile.of.name, device="h200", levels=levels, products=products)
    choice = replace(digits_of(found.chosen), same_bits=True, cut=cut)
    return replace(found, candidates=(replace(found.chosen, choice=choice), *found.candidates[1:]))


@pytest.mark.sample(2, slow=8)
@pytest.mark.parametrize("runs", ["reference", "text"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("products", ["residues14", "residues7", "residues17", "residues9"])
def test_kernels_round_exact_integers_once(gpu: Gpu, products: str, kind: str, runs: str) -> None:
    gpu.runs = runs
    tile, random = RESIDUE_TILES[products], np.random.default_rng(KINDS.index(kind))
    dtype = np.dtype(tile.of.name)
    shapes = [((5, 33, 4), ()), ((30, 3, 30), ())] if kind == "ties" else [((5, 33, 4), ()), ((7, 8, 6), ("winograd",))]
    for (m, k, n), levels in shapes:
        a, b = numbers(random, kind, (m, k), dtype.name).astype(dtype), numbers(random, kind, (n, k), dtype.name).T.astype(dtype)
        expected = by_integers(a.astype(float), b.astype(float), largest_scaled(representation_of(tile), k), dtype.name)
        for left, right in ((a, b), (np.asfortranarray(a), np.asfortranarray(b))):
            out = Array(np.full((m, n), np.nan, dtype))
            bilinear.matmul(Array(left), Array(right), out, plan=plan_of(m, k, n, products, levels))
            assert same(out.host, expected)
        old = np.full((m, n), 0.7, dtype)
        out = Array(old.copy())
        bilinear.matmul(Array(a), Array(b), out, plan=plan_of(m, k, n, products, levels), alpha=0.3, beta=-1.7)
        with np.errstate(all="ignore"):
            expected = dtype.type(0.3) * expected + dtype.type(-1.7) * old
        expected[np.isnan(expected)] = np.nan
        assert same(out.host, expected)
    assert gpu.library == 0


@pytest.mark.sample(2, slow=20)
@pytest.mark.parametrize("by_warps", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("element", HALVES.values(), ids=str)
def test_numbers_of_16_bits_are_read_and_rounded_by_kernels(
    gpu: Gpu, element: Element, kind: str, by_warps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu.runs = "both" if by_warps else "reference"
    monkeypatch.setattr("bilinear.methods.digits.binding.multiplies_by_warps", lambda: by_warps)
    random = np.random.default_rng(KINDS.index(kind))
    for m, k, n in ((30, 3, 30),) if kind == "ties" else ((5, 33, 4), (131, 8, 6)):
        x, y, old = (numbers(random, kind, shape, "float16") for shape in ((m, k), (n, k), (m, n)))
        with np.errstate(over="ignore"):
            stored = [with_one_nan(z.astype("f4"), element) for z in (x, y.T, old)]
        a, b, c = (loaded(z, element) for z in stored)
        value = by_integers(a.astype(float), b.astype(float), LARGEST_IN_BYTES, "float32")
        assert same_bits_products(str(element), k, None) == (f"bytes of {element}", LARGEST_IN_BYTES)
        for alpha, beta in ((1, 0), (0.3, -1.7)):
            with np.errstate(over="ignore"):
                wanted = with_one_nan(with_factors(value, c, np.float32(alpha), np.float32(beta)), element)
            asked = Options(alpha, beta, reproducible="bitwise")
            for place in (np.ascontiguousarray, np.asfortranarray):
                left, right, out = (Array(place(z.view("f2" if element.code else "i2")).copy("K")) for z in stored)
                by_same_bits(asked, kind_of(left, right, out), left, right, out, None if element.code else element)
                assert same(out.host.view(wanted.dtype), wanted)


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        ("float64", (9, 70, 52)),
        ("float32", (270, 70, 140)),
        ("float16", (60, 70, 52)),
        ("complex128", (9, 7, 12)),
        ("complex64", (9, 70, 12)),
    ],
)
def test_calls_on_a_gpu_have_the_bits_of_calls_on_processors(gpu: Gpu, dtype: str, shape: tuple[int, int, int]) -> None:
    random = np.random.default_rng(8)
    real = {"complex128": "float64", "complex64": "float32"}.get(dtype, dtype)
    a, b = (numbers(random, "decades", (shape[i], shape[i + 1]), real).astype(dtype) for i in (0, 1))
    if real != dtype:
        a.imag, b.imag = a.real[::-1], b.real[:, ::-1]
        a.imag[5, 4], b.imag[4] = np.inf, np.finfo(real).smallest_subnormal
    a[3, 4], b[6, 7] = np.inf, np.nan
    expected = bilinear.matmul(a, b, reproducible="bitwise")
    ways = {
        "whole": bilinear.matmul(Array(a), Array(b), reproducible="bitwise").host,
        "by columns": bilinear.matmul(Array(np.asfortranarray(a)), Array(np.asfortranarray(b)), reproducible="bitwise").host,
        "rows": np.concatenate([bilinear.matmul(Array(x), Array(b), reproducible="bitwise").host for x in (a[:2], a[2:])]),
        "a batch": bilinear.matmul(Array(np.stack([a[::-1], a])), Array(b), reproducible="bitwise").host[1],
    }
    assert [name for name, way in ways.items() if not same(way, expected)] == []
    assert gpu.library == 0


def test_a_repeated_call_is_launched_and_a_plan_has_its_bits(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    random = np.random.default_rng(10)
    a, b = numbers(random, "decades", (90, 40), "float64"), numbers(random, "decades", (40, 80), "float64")
    expected = bilinear.matmul(a, b, alpha=2.5, reproducible="bitwise")
    found = bilinear.plan(90, 40, 80, device="h200", reproducible="bitwise")
    assert digits_of(found.chosen).same_bits and "14 moduli" in found.chosen.why and found.chosen.error
    bilinear.save_plan(found, str(tmp_path / "plan.json"))
    assert same(bilinear.matmul(Array(a), Array(b), alpha=2.5, plan=bilinear.load_plan(str(tmp_path / "plan.json"))).host, expected)
    out = Array(np.zeros((90, 80)))
    bilinear.matmul(Array(a), Array(b), out, reproducible="bitwise")
    monkeypatch.setattr("bilinear.runtime.same_bits.by_same_bits", None)
    bilinear.matmul(Array(a), Array(b), out, alpha=2.5, reproducible="bitwise")
    assert same(out.host, expected)
    with pytest.raises(TypeError):  # as no other call is the same
        bilinear.matmul(Array(a), Array(b), out, beta=1, reproducible="bitwise")


def test_blocks_and_levels_have_the_same_bits(gpu: Gpu) -> None:
    random = np.random.default_rng(9)
    a, b = numbers(random, "decades", (100, 40), "float64"), numbers(random, "normal", (40, 90), "float64")
    b[:, :20] = numbers(random, "special", (40, 20), "float64")
    expected = bilinear.matmul(a, b, reproducible="bitwise")
    for levels, cut in (((), (2, 2)), (("winograd",), (1, 1)), (("winograd", "winograd"), (1, 1)), (("strassen",), (2, 1))):
        out = Array(np.zeros((100, 90)))
        bilinear.matmul(Array(a), Array(b), out, plan=plan_of(100, 40, 90, "residues14", levels, cut))
        assert same(out.host, expected), (levels, cut)


def test_what_no_kernel_keeps_is_refused(gpu: Gpu) -> None:
    a, b = np.ones((8, 9)), np.ones((9, 7))
    complexes = a.astype("c16"), b.astype("c16")
    for x, y, alpha in ((complexes[0], b, 1), (*complexes, 2), (a.astype("f4"), b, 1), (a[:, :0], b[:0], 1), (a, b, 0)):
        with pytest.raises(BilinearError, match=r"no kernel"):
            bilinear.matmul(Array(x), Array(y), alpha=alpha, reproducible="bitwise")
