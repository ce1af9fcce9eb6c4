"""Products of integers on a GPU, on a pretended one that runs the emitted kernels: NumPy's results bit for bit, and products modulo p."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from each_case import each
from runtime import pretended_gpu
from runtime.operands import in_layout
from runtime.pretended_gpu import Array, Gpu, compiled

import bilinear
from bilinear.codegen.render import render
from bilinear.emulator import skip_reason
from bilinear.errors import BilinearError
from bilinear.ir.digits import largest_moduli, least_residue
from bilinear.ir.element import INTEGERS
from bilinear.lowering.prepare import plain
from bilinear.methods.digits.integers import largest_magnitudes, moduli_for_integers
from bilinear.methods.digits.lower import IntegerTypes, OperandOrder, lower_integers
from bilinear.planner.device import Policy
from bilinear.runtime import integers

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")


def drawn(seed: int, shape: tuple[int, ...], dtype: str) -> Any:
    """Integers over the whole range of a type, many of them its ends."""
    generator, info = np.random.default_rng(seed), np.iinfo(dtype)
    x = generator.integers(info.min, info.max, shape, dtype, endpoint=True)
    x[generator.random(shape) < 1 / 6] = info.max
    x[generator.random(shape) < 1 / 6] = info.min
    return x


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("left", "right", "algorithm", "layouts"),
    [
        ("int64", "int64", "classical", ("rows", "rows", "rows")),
        ("int64", "int64", "winograd", ("columns", "gaps", "rows")),
        ("uint64", "uint64", "classical", ("rows", "columns", "columns")),
        ("int32", "int32", "strassen", ("gaps", "columns", "gaps")),
        ("uint32", "int64", "classical", ("back", "rows", "rows")),
        ("int8", "int8", "laderman", ("rows", "columns", "rows")),
        ("uint8", "int16", "classical", ("columns", "rows", "columns")),
        ("uint16", "uint16", "winograd", ("rows", "rows", "back")),
    ],
)
def test_integers_of_the_whole_range_wrap_as_in_numpy(gpu: Gpu, left: str, right: str, algorithm: str, layouts: tuple[str, ...]) -> None:
    a, b = in_layout(drawn(1, (37, 70), left), layouts[0]), in_layout(drawn(2, (70, 29), right), layouts[1])
    old = drawn(3, (37, 29), str(np.result_type(a, b)))
    with np.errstate(over="ignore"):
        for alpha, beta in ((1, 0), (-3 if old.dtype.kind == "i" else 3, 5)):
            out = Array(in_layout(old, layouts[2]))
            assert bilinear.matmul(Array(a), Array(b), out, algorithm=algorithm, levels=1, alpha=alpha, beta=beta) is out
            np.testing.assert_array_equal(out.host, old.dtype.type(alpha) * (a @ b) + old.dtype.type(beta) * old)
    assert gpu.library == 0
    found = bilinear.matmul(Array(a), Array(b), algorithm=algorithm, levels=1)
    assert found.host.dtype == old.dtype
    np.testing.assert_array_equal(found.host, a @ b)


@pytest.mark.slow
def test_as_many_moduli_are_taken_as_the_numbers_need(gpu: Gpu) -> None:
    small, large = (np.random.default_rng(1).integers(-most, most, (20, 20)) for most in (100, 2**62))
    for x, count in ((small, 3), (large, 17)):
        del gpu.launches[:]
        np.testing.assert_array_equal(bilinear.matmul(Array(x), Array(x), algorithm="classical").host, x @ x)
        assert f"residue_product_{count}_integers" in [name for name, _ in gpu.launches]
    with gpu.using(is_capturing=True):  # no look: the range of the type decides
        out, memory = Array(np.zeros_like(small)), Array(np.zeros(2**21, np.uint8))
        del gpu.launches[:]
        bilinear.matmul(Array(small), Array(small), out, algorithm="classical", workspace=memory)
        np.testing.assert_array_equal(out.host, small @ small)
        assert "residue_product_17_integers" in [name for name, _ in gpu.launches]
        bilinear.matmul(Array(small), Array(small), out, modulus=101, workspace=memory)
        np.testing.assert_array_equal(out.host, small @ small % 101)
        for options, wanted in (({"algorithm": "classical"}, small @ small), ({"modulus": 101}, small @ small % 101)):
            with pytest.raises(BilinearError, match=r"E536.*a new result"):
                bilinear.matmul(Array(small), Array(small), **options, workspace=memory)
            bilinear.matmul(Array(small), Array(small), out, **options)
            np.testing.assert_array_equal(out.host, wanted)
        own = Array(small.copy())
        bilinear.matmul(own, own, own, modulus=101, workspace=memory)
        np.testing.assert_array_equal(own.host, small @ small % 101)
        assert len(gpu.of_graph) == 2, "those two without workspace="


def test_the_fewest_moduli_keep_the_bound() -> None:
    for inner, left, right in ((1, 1, 1), (4096, 2**63, 2**63), (2**20, 2**31, 255), (7, 0, 5)):
        moduli = moduli_for_integers(inner, left, right)
        needed = 2 * inner * max(1, left) * max(1, right) * 2**30
        assert needed <= (2**30 - 1) * prod(moduli)
        assert len(moduli) == 1 or needed > (2**30 - 1) * prod(moduli[:-1])
    assert [len(moduli_for_integers(4096, 2**b, 2**b)) for b in (63, 31, 7)] == [18, 10, 4]


@pytest.mark.sample(2)
@pytest.mark.parametrize("p", [2, 4, 101, 256, 257, 65521, 2**31 - 1, 2**31, 2**31 + 11, 2**53 - 111, 2**61 - 1, 2**62])
def test_modulo_p(gpu: Gpu, p: int) -> None:
    a, b, old = drawn(4, (33, 40), "int64"), drawn(5, (40, 30), "uint64"), drawn(6, (33, 30), "int64")
    wanted = (-3 * (a.astype(object) @ b.astype(object)) + 5 * old.astype(object)) % p
    out = Array(old.copy())
    assert bilinear.matmul(Array(a), Array(b), out, modulus=p, alpha=-3, beta=5, algorithm="winograd", levels=1) is out
    np.testing.assert_array_equal(out.host.astype(object), wanted)
    assert gpu.library == 0


@pytest.mark.slow
def test_schemes_over_one_modulus_and_fractions(gpu: Gpu) -> None:
    a, b = drawn(7, (37, 33), "int16"), drawn(8, (33, 39), "int16")
    for p, algorithm in ((2, "walk_444_mod2"), (5, "accurate_halves")):
        found = bilinear.matmul(Array(a), Array(b), modulus=p, algorithm=algorithm, levels=1)
        np.testing.assert_array_equal(found.host, (a.astype(np.int64) @ b) % p)
    for p, algorithm in ((3, "walk_444_mod2"), (2, "accurate_halves"), (7, "accurate_sqrt3")):
        with pytest.raises(BilinearError, match="E594"):
            bilinear.matmul(Array(a), Array(b), modulus=p, algorithm=algorithm, levels=1)


@pytest.mark.parametrize("p", [0, 2**31 + 11, 2**61 - 1, 2**62 - 57, 2**62])
def test_what_is_put_together_is_exact(p: int) -> None:
    """The largest numbers that the moduli hold, small ones, and those between, whatever multiple of M the residues add up to.

    In int64, and modulo wide numbers, with factors and old values that need products of 124 bits.
    """
    int64, order, generator = INTEGERS["int64"], OperandOrder(True, True), np.random.default_rng(2)
    types, modulus = IntegerTypes(int64, int64, int64, largest_moduli(18), p), p or 2**64
    *_, kernel = lower_integers(plain().scheme, "plain", types, order, order, True)
    largest = prod(types.moduli) * (2**30 - 1) // 2**31
    numbers = [0, 1, -1, largest, -largest, largest - 1, 2**63, -(2**63) - 1, p, -p, p - 1, p // 2 * (p // 2), -(p - 1)]
    while len(numbers) < 64:
        numbers.append(int.from_bytes(generator.bytes(20)) % (2 * largest) - largest)
    shares = [[least_residue(x * pow(prod(types.moduli) // q, -1, q), q) for x in numbers] for q in types.moduli]
    old = [p - 1, 0, -1, 2**63 - 1, -(2**63), *generator.integers(-(2**63), 2**63, 59, dtype=np.int64).tolist()]
    module, _ = compiled(kernel)
    for alpha, beta in ((1, 0), (p - 1, p - 1), (p // 3, 0), (0, 1), (2**31, p // 7)):
        c = np.array(old, np.int64).reshape(1, 64)
        values: dict[str, Any] = {"P": np.array(shares, np.int8).view(np.uint8), "block_m": 1, "block_n": 64, "pitch": 64}
        values |= {"C": c, "C_rs": 64, "C_cs": 1, "m": 1, "n": 64, "alpha": alpha, "beta": beta}
        module.launch(kernel.name, (1, 1), kernel.threads, [values[argument.name] for argument in kernel.arguments])
        wanted = [(alpha * x + beta * before) % modulus for x, before in zip(numbers, old, strict=True)]
        assert [int(x) % modulus for x in c[0]] == wanted and (p == 0 or (c[0] < p).all())


@pytest.mark.slow
def test_batches_and_vectors(gpu: Gpu) -> None:
    a, b = drawn(9, (2, 1, 9, 20), "int32"), drawn(10, (3, 20, 8), "int32")
    np.testing.assert_array_equal(bilinear.matmul(Array(a), Array(b), algorithm="classical").host, a @ b)
    found = bilinear.matmul(Array(a[0, 0, 0]), Array(b[0]), modulus=7)
    np.testing.assert_array_equal(found.host, (a[0, 0, 0].astype(object) @ b[0].astype(object)) % 7)
    x = Array(drawn(11, (20, 20), "int64"))
    wanted = (x.host.astype(object) @ x.host.astype(object)) % 65521
    bilinear.matmul(x, x, x, modulus=65521)
    np.testing.assert_array_equal(x.host.astype(object), wanted)
    np.testing.assert_array_equal(bilinear.matmul(Array(np.ones((3, 0), int)), Array(np.ones((0, 2), int)), modulus=7).host, 0)


def test_auto_takes_residues_where_they_gain(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    a = drawn(12, (24, 24), "int64")
    np.testing.assert_array_equal(bilinear.matmul(Array(a), Array(a)).host, a @ a)
    assert gpu.library == 1 and not gpu.launches
    monkeypatch.setattr(integers, "policy_here", lambda: Policy(least_integers=24))
    a = drawn(12, (25, 25), "int64")  # of another shape: calls that ran are repeated
    np.testing.assert_array_equal(bilinear.matmul(Array(a), Array(a)).host, a @ a)
    assert gpu.library == 1 and gpu.launches
    for options in ({"workspace": "none"}, {"levels": 0}):
        np.testing.assert_array_equal(bilinear.matmul(Array(a), Array(a), **options).host, a @ a)
    monkeypatch.setenv("BILINEAR_USE_LIBRARY", "1")
    bilinear.matmul(Array(a), Array(a))
    assert gpu.library == 4


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"algorithm": "accurate_halves", "levels": 1}, "E591"),
        ({"algorithm": "winograd", "levels": 4}, "E501"),
        ({"algorithm": "winograd", "levels": 3}, "E592"),
        ({"algorithm": "winograd", "levels": 1, "workspace": 10}, "E535"),
        ({"algorithm": "winograd", "levels": 1, "alpha": 0.5}, "E528"),
    ],
)
def test_what_residues_of_integers_cannot_hold_is_refused(gpu: Gpu, options: dict[str, Any], code: str) -> None:
    a = Array(drawn(13, (64, 64), "int64"))
    with pytest.raises(BilinearError, match=code):
        bilinear.matmul(a, a, **options)
    assert not gpu.launches


MUTANTS = {  # by what is wrong: what stands in the text of a kernel, and what instead
    "no multiple of M is subtracted": ("recompose", "- Word(Index(rint(quotients[target][e]))) * PRODUCT[part]", ""),
    "the multiple is cut off": ("recompose", "rint(quotients", "floor(quotients"),
    "a limb loses a bit": ("expand", "bits >> 24 & 0xffffff", "bits >> 24 & 0x7fffff"),
    "the sign of a limb is lost": ("expand", "int(bits >> 48)", "int(bits >> 48 & 0xffff)"),
    "the sign is lost": ("expand", " ^ 0x80000000u;", ";"),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_fail(gpu: Gpu, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, old, new = MUTANTS[name]
    gpu.runs = "text"
    changed: list[str] = []

    def wrong(kernel: Any) -> str:
        text = render(kernel)
        if place in kernel.template:
            assert text.count(old) == 1
            changed.append(kernel.name)
        return text.replace(old, new) if place in kernel.template else text

    monkeypatch.setattr(pretended_gpu, "render", wrong)
    a, b = drawn(14, (33, 40), "int32"), drawn(15, (40, 30), "int32")
    if "limb" in name:  # integers of 64 bits have three
        a, b = a.astype("int64"), b.astype("int64")
    found = bilinear.matmul(Array(a), Array(b), algorithm="classical")
    assert changed and (found.host != a @ b).any()


@each(("left", "right"), [("int64", "int32"), ("uint64", "uint8"), ("uint32", "int16"), ("int8", "int64")])
@each("layouts", [("rows", "columns"), ("gaps", "back"), ("columns", "gaps")])
def test_one_look_bounds_both_operands(gpu: Gpu, left: str, right: str, layouts: tuple[str, str]) -> None:
    for shapes in (((3, 700), (700, 2)), ((600, 1), (1, 5))):
        for extreme in (0, 1, 5, "least", "most"):
            whole = []
            for own, shape in zip((left, right), shapes, strict=True):
                info = np.iinfo(own)
                x = np.zeros(shape, own)
                x[-1, -1] = {"least": info.min, "most": info.max}.get(str(extreme), extreme)
                whole.append(x)
            found = largest_magnitudes(*(Array(in_layout(x, layout)) for x, layout in zip(whole, layouts, strict=True)))
            for bound, x in zip(found, whole, strict=True):
                largest = max(abs(int(value)) for value in x.astype("int64").flat)  # numbers of uint64 as kernels read them
                assert largest <= bound <= min(largest + 1, INTEGERS[str(x.dtype)].largest)
    assert not gpu.launches


@pytest.mark.sample(1)
@pytest.mark.parametrize("algorithm", ["classical", "winograd"])
def test_bool_matrices_are_multiplied_by_counting(gpu: Gpu, algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(2)
    a, b = (in_layout(generator.random(shape) < 0.1, layout) for shape, layout in (((37, 70), "gaps"), ((70, 29), "columns")))
    a[:, 5] = b[5] = True
    a[3] = False
    found = bilinear.matmul(Array(a), Array(b), algorithm=algorithm, levels=1)
    assert found.host.dtype == bool
    np.testing.assert_array_equal(found.host, a @ b)
    out = Array(np.ones((37, 29), bool))
    assert bilinear.matmul(Array(a), Array(b), out, algorithm=algorithm, levels=1) is out
    np.testing.assert_array_equal(out.host, a @ b)
    assert gpu.library == 0 and any("residue_product" in name for name, _ in gpu.launches)
    del gpu.launches[:]
    np.testing.assert_array_equal(bilinear.matmul(Array(a), Array(b)).host, a @ b)
    assert gpu.library == 1 and not gpu.launches, "too small to gain"
    monkeypatch.setattr(integers, "policy_here", lambda: Policy(least_integers=16))
    np.testing.assert_array_equal(bilinear.matmul(Array(a[1:]), Array(b)).host, a[1:] @ b)
    assert gpu.library == 1 and gpu.launches
    with pytest.raises(ValueError, match="out has shape"):
        bilinear.matmul(Array(a), Array(b), Array(np.ones((3, 3), bool)))
    with pytest.warns(UserWarning, match="bool"):
        bilinear.matmul(Array(a), Array(b), algorithm=algorithm, levels=1, workspace=10**6)
