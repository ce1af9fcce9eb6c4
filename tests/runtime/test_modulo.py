"""`matmul(..., modulus=p)` beside Python's integers: all types, layouts, p, schemes, in place, refusals; and packed bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from each_case import each
from hypothesis import given
from hypothesis import strategies as st
from runtime.operands import LAYOUTS, exact_modulo, laid_out

import bilinear
from bilinear.backends.modular_arrays import scale
from bilinear.errors import BilinearError
from bilinear.methods.bits import multiply_on_cpu

PRIMES = (2, 3, 257, 65521, 2**25 + 35, 2**31 - 1, 2**53 - 111, 2**61 - 1)
COMPOSITES = (4, 255, 256, 2**20, 2**32, 2**62 - 1, 2**62)
MODULI = (*PRIMES, *COMPOSITES)
TYPES = ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")
TWO = "walk_444_mod2"


def extreme(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    """Integers over the whole range of a type, a third of them its ends."""
    if dtype == "?":
        return generator.integers(0, 2, shape).astype(bool)
    info = np.iinfo(dtype)
    drawn = generator.integers(info.min, info.max, shape, dtype, endpoint=True)
    drawn[generator.random(shape) < 1 / 6] = info.max
    drawn[generator.random(shape) < 1 / 6] = info.min
    return drawn


def check(found: Any, wanted: Any, p: int) -> None:
    np.testing.assert_array_equal(found.astype(object), wanted)
    assert found.dtype.kind in "iu" and (found.size == 0 or (found.min() >= 0 and int(found.max()) < p))


@each("p", MODULI)
@each("dtype", TYPES)
def test_integers_of_all_types(dtype: str, p: int) -> None:
    generator = np.random.default_rng(1)
    for m, k, n in ((5, 7, 4), (3, 1100, 2), (1, 1, 1), (4, 0, 3), (0, 2, 3)):
        a, b = extreme(generator, (m, k), dtype), extreme(generator, (k, n), dtype)
        found = bilinear.matmul(a, b, modulus=p)
        check(found, exact_modulo(a, b, p), p)
        assert found.dtype == (a.dtype if dtype != "?" and np.iinfo(dtype).max >= p - 1 else np.int64)


@each("p", MODULI)
def test_the_largest_residues_of_one_sign(p: int) -> None:
    """Sums that are as large as the bounds allow, in more terms than one sum of floats holds."""
    for size in (p // 2, -(p // 2), p - 1):
        a, b = np.full((2, 2100), size), np.full((2100, 3), p // 2)
        check(bilinear.matmul(a, b, modulus=p), exact_modulo(a, b, p), p)


@pytest.mark.sample(5)
@pytest.mark.parametrize("p", [2, 65521, 2**31 - 1, 2**62])
@pytest.mark.parametrize("algorithm", ["strassen", "winograd", "laderman", "hopcroft_kerr", "msmes", "winograd_depth_first"])
def test_schemes_over_the_integers_run_modulo_every_number(algorithm: str, p: int) -> None:
    generator = np.random.default_rng(2)
    for (m, k, n), levels in (((37, 41, 30), 1), ((30, 33, 37), 2)):
        a, b, old = (generator.integers(-p, p, shape) for shape in ((m, k), (k, n), (m, n)))
        for alpha, beta in ((1, 0), (-3, 5)):
            out = old.copy()
            assert bilinear.matmul(a, b, out, modulus=p, algorithm=algorithm, levels=levels, alpha=alpha, beta=beta) is out
            check(out, exact_modulo(a, b, p, alpha, beta, old), p)


@pytest.mark.slow
def test_schemes_over_one_modulus_run_for_it_and_for_no_other() -> None:
    generator = np.random.default_rng(3)
    a, b = (generator.integers(-9, 9, shape) for shape in ((35, 38), (38, 33)))
    check(bilinear.matmul(a, b, modulus=2, algorithm=TWO, levels=1), exact_modulo(a, b, 2), 2)
    for modulus in (3, 4, 6, 2**31 - 1):
        with pytest.raises(BilinearError, match=r"E594.* proved over Z/2, and the product is asked for modulo"):
            bilinear.matmul(a, b, modulus=modulus, algorithm=TWO, levels=1)
    with pytest.raises(BilinearError, match="E506"):
        bilinear.matmul(a, b, algorithm=TWO, levels=1)


def test_fractions_are_numbers_where_their_denominators_are_invertible() -> None:
    a, b = (np.random.default_rng(4).integers(0, 99, (33, 33)) for _ in "ab")
    for p in (3, 65521, 2**31 - 1, 2**61 - 1):
        check(bilinear.matmul(a, b, modulus=p, algorithm="accurate_halves", levels=2), exact_modulo(a, b, p), p)
    for p, algorithm, number in ((2, "accurate_halves", "1/2"), (2**32, "accurate_halves", "1/2"), (7, "accurate_sqrt3", r".*sqrt\(3\)")):
        with pytest.raises(BilinearError, match=rf"E594.* the coefficient {number}, which is not a number modulo {p}"):
            bilinear.matmul(a, b, modulus=p, algorithm=algorithm, levels=1)


@each("p", [7, 2**31 - 1, 2**61 - 1])
@each(("algorithm", "inputs"), [("msmes", "restore"), ("msmes", "consume"), ("winograd_in_place", "consume")])
def test_in_place_without_workspace(algorithm: str, inputs: Any, p: int) -> None:
    generator = np.random.default_rng(5)
    for levels in (1, 2):
        a, b, old = (generator.integers(0, p, shape) for shape in ((36, 41), (41, 38), (36, 38)))
        left, right, out = a.copy(), b.copy(), old.copy()
        bilinear.matmul(left, right, out, modulus=p, algorithm=algorithm, levels=levels, inputs=inputs, alpha=3, beta=-2, workspace="none")
        check(out, exact_modulo(a, b, p, 3, -2, old), p)
        if inputs == "restore":
            np.testing.assert_array_equal(left, a)
            np.testing.assert_array_equal(right, b)


@each("layout", LAYOUTS)
def test_layouts(layout: str) -> None:
    generator, p = np.random.default_rng(6), 65521
    a, b, old = (generator.integers(-p, p, shape) for shape in ((23, 31), (31, 26), (23, 26)))
    left, right, wanted = laid_out(a, layout), laid_out(b, layout), exact_modulo(a, b, p, 2, 3, old)
    for algorithm in ("auto", "strassen"):
        out = laid_out(old, layout)
        bilinear.matmul(left, right, out, modulus=p, algorithm=algorithm, alpha=2, beta=3)
        check(np.asarray(out), wanted, p)
    np.testing.assert_array_equal(left, a)


@each(
    ("left", "right"), [((7,), (7, 4)), ((5, 7), (7,)), ((7,), (7,)), ((3, 5, 7), (7, 4)), ((3, 1, 5, 7), (2, 7, 4)), ((2, 0, 7), (7, 4))]
)
def test_shapes_are_those_of_numpy(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = (np.random.default_rng(7).integers(0, 50, shape) for shape in (left, right))
    for algorithm in ("auto", "strassen"):
        found, wanted = bilinear.matmul(a, b, modulus=11, algorithm=algorithm), np.matmul(a, b) % 11
        np.testing.assert_array_equal(found, wanted)
        assert type(found) is type(wanted)


def test_out_may_be_an_operand() -> None:
    a, b = (np.random.default_rng(8).integers(0, 101, (40, 40)) for _ in "ab")
    for algorithm in ("auto", "winograd"):
        x = a.copy()
        assert bilinear.matmul(x, b, x, modulus=101, algorithm=algorithm, alpha=2, beta=3) is x
        np.testing.assert_array_equal(x, (2 * (a @ b) + 3 * a) % 101)
        with pytest.raises(BilinearError, match="E535"):
            bilinear.matmul(x, b, x, modulus=101, algorithm=algorithm, workspace="none")


def test_operands_are_not_read_with_alpha_0() -> None:
    a, out = np.full((4, 4), -(2**63)), np.arange(16).reshape(4, 4)
    for alpha in (0, 7):
        found = bilinear.matmul(a, a, out.copy(), modulus=7, alpha=alpha, beta=2, algorithm="strassen")
        np.testing.assert_array_equal(found, 2 * out % 7)


def test_a_workspace_of_the_callers_is_used() -> None:
    a, b = (np.random.default_rng(9).integers(0, 101, (64, 64)) for _ in "ab")
    buffer = np.zeros(4 * 64 * 64, np.int64)
    np.testing.assert_array_equal(bilinear.matmul(a, b, modulus=101, algorithm="winograd", levels=1, workspace=buffer), a @ b % 101)
    assert buffer.any()
    with pytest.raises(BilinearError, match="E535"):
        bilinear.matmul(a, b, modulus=101, algorithm="winograd", levels=1, workspace=10)


@given(st.sampled_from(MODULI), st.data())
def test_numbers_times_a_factor(p: int, data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.integers(0, p - 1) | st.sampled_from([0, p - 1, p // 2]), min_size=1, max_size=9))
    factor = data.draw(st.integers(0, p - 1) | st.sampled_from([0, 1, p - 1, p // 2, min(2**32, p - 1)]))
    x = np.array(numbers)
    scale(x, factor, p)
    assert x.tolist() == [number * factor % p for number in numbers]


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "1": (lambda a, out: bilinear.matmul(a, a, modulus=1), r"E593\]: modulus=1 is not a modulus"),
    "2^62 + 1": (lambda a, out: bilinear.matmul(a, a, modulus=2**62 + 1), "E593"),
    "a float": (lambda a, out: bilinear.matmul(a, a, modulus=cast("int", 7.0)), "E593"),
    "a bool": (lambda a, out: bilinear.matmul(a, a, modulus=True), "E593"),
    "float operands": (lambda a, out: bilinear.matmul(a, a * 1.0, modulus=7), r"E598\]: b holds float64"),
    "objects": (lambda a, out: bilinear.matmul(a.astype(object), a, modulus=7), r"E598\]: a holds object"),
    "a narrow out": (lambda a, out: bilinear.matmul(a, a, out.astype("i1"), modulus=129), r"E598\]: out of int8 cannot hold .* 128"),
    "alpha": (lambda a, out: bilinear.matmul(a, a, modulus=7, alpha=0.5), r"E598\]: alpha=0.5 is not an integer"),
    "tolerance": (lambda a, out: bilinear.matmul(a, a, modulus=7, tolerance=1e-3), "E5(98|32)"),
    "accuracy": (lambda a, out: bilinear.matmul(a, a, modulus=7, accuracy="classical"), r"E598\]: tolerance="),
    "prepared": (
        lambda a, out: bilinear.matmul(bilinear.prepare(a * 1.0, columns=4, algorithm="winograd"), a, modulus=7),
        r"E598\]: a prepared",
    ),
    "restoring what is not a residue": (
        lambda a, out: bilinear.matmul(a - 9, a, out, modulus=7, algorithm="msmes", inputs="restore"),
        r"E599\]: inputs='restore' computes modulo 7 in a",
    ),
    "restoring what lies at an odd address": (
        lambda a, out: bilinear.matmul(laid_out(a, "unaligned"), a, out, modulus=7, algorithm="msmes", inputs="restore"),
        r"E599\]: inputs='restore' computes modulo 7 in a, which is not an aligned array of smaller numbers in int64",
    ),
    "restoring without a schedule": (
        lambda a, out: bilinear.matmul(a, a.copy(), out, modulus=7, algorithm="winograd", inputs="restore"),
        "E525",
    ),
    "beta without out": (lambda a, out: bilinear.matmul(a, a, modulus=7, beta=1), "E515"),
}


@each("name", REFUSED)
def test_what_has_no_meaning_is_refused(name: str) -> None:
    call, message = REFUSED[name]
    out = np.full((4, 4), 99)
    with pytest.raises(BilinearError, match=message):
        call(np.arange(16).reshape(4, 4) % 7, out)
    assert (out == 99).all()


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


@each("shape", [(1, 1, 1), (65, 64, 130), (130, 257, 33), (64, 512, 256), (40, 0, 9)])
@each(("algorithm", "levels"), [("walk_444_mod2", 1), ("strassen", 1), ("winograd", 3), ("laderman", 1), ("perminov_434", 1)])
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


@each(
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
