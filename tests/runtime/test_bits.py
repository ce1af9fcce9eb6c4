"""Products over Z/2 of packed matrices on NumPy's arrays: by tables and by schemes, beside the definition in integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bilinear
from bilinear.errors import BilinearError
from bilinear.methods.bits import multiply_on_cpu

EXTENT = st.integers(0, 70)


def drawn(m: int, k: int, n: int, seed: int = 0) -> tuple[Any, Any, Any]:
    """Two matrices of bits, and their product by the definition."""
    generator = np.random.default_rng([seed, m, k, n])
    a, b = (generator.integers(0, 2, shape, dtype=np.uint8) for shape in ((m, k), (k, n)))
    return a, b, (a.astype(np.int64) @ b) % 2


def packed(x: Any) -> Any:
    return np.packbits(x.astype(np.uint8), axis=1)


@given(EXTENT, EXTENT, EXTENT, st.integers(0, 2**32))
def test_products_are_those_of_the_definition(m: int, k: int, n: int, seed: int) -> None:
    a, b, wanted = drawn(m, k, n, seed)
    assert np.array_equal(bilinear.matmul_bits(packed(a), packed(b)), packed(wanted))


@pytest.mark.parametrize("shape", [(1, 1, 1), (65, 64, 130), (130, 257, 33), (64, 512, 256), (40, 0, 9)])
@pytest.mark.parametrize(
    ("algorithm", "levels"), [("walk_444_mod2", 1), ("strassen", 1), ("winograd", 3), ("laderman", 1), ("perminov_434", 1)]
)
def test_schemes_over_z2_run_on_blocks_of_bits(shape: tuple[int, int, int], algorithm: str, levels: int) -> None:
    a, b, wanted = drawn(*shape)
    x, y = packed(a), packed(b)
    assert np.array_equal(bilinear.matmul_bits(x, y, algorithm=algorithm, levels=levels), packed(wanted))
    assert np.array_equal(x, packed(a)) and np.array_equal(y, packed(b))


def test_47_products_are_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    """And each sum has as many blocks as the tables modulo 2 say."""
    shapes = list[tuple[int, ...]]()

    def watched(a: Any, b: Any) -> Any:
        shapes.append(a.shape)
        return multiply_on_cpu(a, b)

    monkeypatch.setattr("bilinear.methods.bits.multiply_on_cpu", watched)
    a, b, wanted = drawn(64, 128, 64)
    assert np.array_equal(bilinear.matmul_bits(packed(a), packed(b), algorithm="walk_444_mod2"), packed(wanted))
    assert shapes == [(16, 4)] * 47


def test_any_layout_and_an_out_that_overlaps() -> None:
    a, b, wanted = drawn(64, 64, 64)
    x, y = np.asfortranarray(packed(a)), packed(b)[::-1][::-1]
    memory = np.full((64, 20), 7, np.uint8)
    out = memory[:, 5:13]
    assert bilinear.matmul_bits(x, y, out) is out and np.array_equal(out, packed(wanted))
    assert (memory[:, :5] == 7).all() and (memory[:, 13:] == 7).all()
    assert bilinear.matmul_bits(y, y, y) is y
    assert np.array_equal(np.unpackbits(y, axis=1), (b.astype(int) @ b) % 2)


def test_chains_and_inverses_of_bits() -> None:
    """Powers of the companion matrix of a primitive polynomial of degree 7 come back after 127 steps, and not before."""
    companion = np.eye(7, k=1, dtype=np.uint8)
    companion[-1, [0, 1]] = 1
    step, power = packed(companion), packed(np.eye(7, dtype=np.uint8))
    seen = set()
    for _ in range(127):
        seen.add(power.tobytes())
        power = bilinear.matmul_bits(power, step)
    assert len(seen) == 127 and np.array_equal(power, packed(np.eye(7, dtype=np.uint8)))


@pytest.mark.parametrize(
    ("a", "b", "out", "told"),
    [
        (np.zeros((3, 2), np.int8), np.zeros((16, 2), np.uint8), None, "a is an array of int8"),
        (np.zeros((3, 2), np.uint8), np.zeros(16, np.uint8), None, "b is an array of uint8 with 1 dimension"),
        (np.zeros((3, 3), np.uint8), np.zeros((16, 2), np.uint8), None, "rows of 3 bytes, and b has 16 rows, which are 2 bytes"),
        (np.zeros((3, 2), np.uint8), np.zeros((16, 2), np.uint8), np.zeros((3, 1), np.uint8), "out is 3 x 1 bytes"),
    ],
)
def test_what_is_not_packed_is_refused(a: Any, b: Any, out: Any, told: str) -> None:
    with pytest.raises(BilinearError, match=f"(?s)E800.*{told}"):
        bilinear.matmul_bits(a, b, out)


@pytest.mark.parametrize(
    ("algorithm", "levels", "code"),
    [
        ("accurate_halves", 1, "E594"),
        ("bini", 1, "E506"),
        ("accurate_sqrt3", 1, "E594"),
        ("strassen", 0, "E502"),
        ("strassen", 20, "E501"),
        ("strassen", 6, "E501"),
        ("classical", 2, "E514"),
        ("nobody", 1, "E121"),
    ],
)
def test_schemes_that_do_not_hold_over_z2_are_refused(algorithm: str, levels: int, code: str) -> None:
    x = np.zeros((8, 1), np.uint8)
    with pytest.raises(BilinearError, match=code):
        bilinear.matmul_bits(x, x, algorithm=algorithm, levels=levels)
