"""Schedules modulo p on a GPU: in place, and schemes whose sums residues do not hold. The oracle is Python's integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bilinear

pytestmark = pytest.mark.gpu

WAYS: dict[str, dict[str, Any]] = {
    "fractions": {"algorithm": "accurate_halves", "levels": 2},
    "many sums": {"algorithm": "winograd", "levels": 3},
    "restored": {"algorithm": "msmes", "levels": 1, "inputs": "restore", "workspace": "none"},
    "consumed": {"algorithm": "winograd_in_place", "levels": 1, "inputs": "consume", "workspace": "none"},
}


@pytest.mark.parametrize("p", [65521, 2**31 - 1, 2**62 - 57])
@pytest.mark.parametrize("way", WAYS)
def test_schedules_modulo_p(way: str, p: int) -> None:
    import cupy

    generator = np.random.default_rng(1)
    a, b, old = (generator.integers(0, p, shape) for shape in ((301, 270), (270, 333), (301, 333)))
    left, right, out = map(cupy.asarray, (a, np.asfortranarray(b), old))
    cupy.cuda.Device().synchronize()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        bilinear.matmul(left, right, out, modulus=p, alpha=3, beta=-2, **WAYS[way])
        stream.synchronize()
    wanted = (3 * (a.astype(object) @ b.astype(object)) - 2 * old.astype(object)) % p
    np.testing.assert_array_equal(out.get().astype(object), wanted)
    if way != "consumed":
        np.testing.assert_array_equal(left.get(), a)
        np.testing.assert_array_equal(right.get(), b)


def test_parts_of_a_large_product_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    import cupy

    from bilinear.backends import modular

    monkeypatch.setattr(modular, "MOST_RESIDUES", 1 << 18)
    p = 2**31 - 1
    generator = np.random.default_rng(2)
    a, b = (generator.integers(0, p, shape) for shape in ((515, 401), (401, 322)))
    left, right, out = cupy.asarray(a), cupy.asarray(b), cupy.empty((515, 322), "int64")
    bilinear.matmul(left, right, out, modulus=p, **WAYS["restored"])
    np.testing.assert_array_equal(out.get().astype(object), a.astype(object) @ b.astype(object) % p)
    np.testing.assert_array_equal(left.get(), a)


def test_narrow_results_and_unsigned_operands() -> None:
    import cupy

    generator = np.random.default_rng(3)
    a, b = (generator.integers(2**63, 2**64, (130, 130), "uint64") for _ in "ab")
    old = generator.integers(0, 257, (130, 130), "int16")
    out = cupy.asarray(old)
    bilinear.matmul(cupy.asarray(a), cupy.asarray(b), out, modulus=257, algorithm="accurate_halves", levels=1, beta=5)
    np.testing.assert_array_equal(out.get().astype(object), (a.astype(object) @ b.astype(object) + 5 * old.astype(object)) % 257)


def test_pytorchs_tensors() -> None:
    torch = pytest.importorskip("torch")
    p = 65521
    a, b = (torch.randint(0, p, (96, 96), device="cuda") for _ in "ab")
    before, out = a.clone(), torch.empty_like(a)
    bilinear.matmul(a, b, out, modulus=p, **WAYS["restored"])
    wanted = a.cpu().numpy().astype(object) @ b.cpu().numpy().astype(object) % p
    np.testing.assert_array_equal(out.cpu().numpy().astype(object), wanted)
    assert torch.equal(a, before)
