"""Schedules modulo p on a real GPU, compared with Python's integers. Skipped without one; `--require-gpu` makes that a failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runtime.one_modulus import over

import bilinear

pytestmark = pytest.mark.gpu

MODULI = (2, 257, 65521, 2**31 - 1, 2**61 - 1, 2**62 - 57)


def cupy() -> Any:
    return pytest.importorskip("cupy")


def residues(seed: int, shape: tuple[int, ...], p: int) -> Any:
    """Numbers from 0 to p - 1, a sixth of them the largest."""
    generator = np.random.default_rng(seed)
    x = generator.integers(0, p, shape)
    x[generator.random(shape) < 1 / 6] = p - 1
    return x


def exact(a: Any, b: Any, p: int) -> Any:
    """The product in Python's integers."""
    return a.astype(object) @ b.astype(object) % p


@pytest.mark.parametrize("p", MODULI)
@pytest.mark.parametrize(("algorithm", "inputs", "levels"), [("msmes", "restore", 2), ("winograd_in_place", "consume", 1)])
def test_in_place(algorithm: str, inputs: Any, levels: int, p: int) -> None:
    a, b, old = residues(1, (137, 94), p), residues(2, (94, 121), p), residues(3, (137, 121), p)
    for order in "CF":
        left, right, out = (cupy().array(x, order=order) for x in (a, b, old))
        options: dict[str, Any] = {"algorithm": algorithm, "levels": levels, "inputs": inputs, "workspace": "none"}
        bilinear.matmul(left, right, out, modulus=p, alpha=3, beta=-2, **options)
        np.testing.assert_array_equal(out.get().astype(object), (3 * exact(a, b, p) - 2 * old.astype(object)) % p)
        if inputs == "restore":
            np.testing.assert_array_equal(left.get(), a)
            np.testing.assert_array_equal(right.get(), b)


@pytest.mark.parametrize("p", MODULI[1:])
def test_fractions_and_deep_levels(p: int) -> None:
    a, b = residues(4, (203, 150), p), residues(5, (150, 170), p)
    for algorithm, levels in (("accurate_halves", 2), ("winograd", 3), ("laderman", 3)):
        found = bilinear.matmul(cupy().asarray(a), cupy().asarray(b), modulus=p, algorithm=algorithm, levels=levels)
        np.testing.assert_array_equal(found.get().astype(object), exact(a, b, p))


@pytest.mark.parametrize("p", [65521, 2**31 - 1])
def test_schemes_that_hold_for_one_modulus(p: int, tmp_path: Path) -> None:
    (tmp_path / "only_modulo.bl").write_text(over(p, 12345))
    a, b = residues(6, (151, 133), p), residues(7, (133, 142), p)
    for levels in (1, 2):
        named = bilinear.load(tmp_path / "only_modulo.bl")
        found = bilinear.matmul(cupy().asarray(a), cupy().asarray(b), modulus=p, algorithm=named, levels=levels)
        np.testing.assert_array_equal(found.get().astype(object), exact(a, b, p))


def test_products_in_several_parts() -> None:
    """Large enough that the residues of a product of blocks exceed the buffer; checked by Freivalds' vectors in Python's integers."""
    p, n = 2**62 - 57, 4600
    a, b = residues(8, (n, n), p), residues(9, (n, n), p)
    left, right, out = cupy().asarray(a), cupy().asarray(b), cupy().empty((n, n), "int64")
    bilinear.matmul(left, right, out, modulus=p, algorithm="msmes", levels=1, inputs="restore", workspace="none")
    x = np.random.default_rng(10).integers(0, 2, (n, 2)).astype(object)
    np.testing.assert_array_equal(exact(out.get(), x, p), exact(a, exact(b, x, p), p))
    np.testing.assert_array_equal(left.get(), a)
    np.testing.assert_array_equal(right.get(), b)


def test_on_a_stream_with_other_types() -> None:
    p, generator = 257, np.random.default_rng(11)
    a, b = (generator.integers(2**63, 2**64, (130, 130), "uint64") for _ in "ab")
    old = generator.integers(0, p, (130, 130), "int16")
    left, right, out = (cupy().asarray(x) for x in (a, b, old))
    cupy().cuda.Device().synchronize()
    with cupy().cuda.Stream(non_blocking=True) as stream:
        bilinear.matmul(left, right, out, modulus=p, algorithm="accurate_halves", levels=1, beta=5)
        stream.synchronize()
    np.testing.assert_array_equal(out.get().astype(object), (exact(a, b, p) + 5 * old.astype(object)) % p)


def test_pytorchs_tensors_in_place() -> None:
    torch, p = pytest.importorskip("torch"), 65521
    a, b = (torch.randint(0, p, (96, 96), device="cuda") for _ in "ab")
    before, out = a.clone(), torch.empty_like(a)
    bilinear.matmul(a, b, out, modulus=p, algorithm="msmes", levels=1, inputs="restore", workspace="none")
    np.testing.assert_array_equal(out.cpu().numpy().astype(object), exact(a.cpu().numpy(), b.cpu().numpy(), p))
    assert torch.equal(a, before)
