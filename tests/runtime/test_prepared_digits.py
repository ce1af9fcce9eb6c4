"""Prepared operands of products of digits and residues, on a pretended GPU: the bits of the plain call, and no cutting of what is kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from runtime.pretended_gpu import Array, Gpu, undescribed
from runtime.test_digits import laid
from runtime.test_prepared import code

import bilinear
from bilinear.emulator import skip_reason
from bilinear.planner.device_files import load_device
from bilinear.planner.plan import Plan
from bilinear.runtime import devices_here

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")
H200 = load_device("h200")
WAYS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("float32", "pairs", ()),
    ("float32", "pairs", ("winograd",)),
    ("float32", "residues7", ()),
    ("float64", "residues14", ("winograd",)),
)
SHAPE = (70, 90, 60)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    """A pretended GPU that is described as an H200."""
    with undescribed(monkeypatch) as found:
        monkeypatch.setattr(devices_here, "_described", lambda named, index: H200)
        yield found


def planned(way: tuple[str, str, tuple[str, ...]], shape: tuple[int, int, int] = SHAPE, **options: Any) -> Plan:
    dtype, products, levels = way
    return bilinear.plan(*shape, dtype, device=H200, levels=levels, products=products, **options)


def operands(dtype: str, seed: int = 1) -> tuple[Any, Any]:
    generator, (m, k, n) = np.random.default_rng(seed), SHAPE
    return generator.integers(-9, 10, (m, k)).astype(dtype), generator.integers(-9, 10, (k, n)).astype(dtype)


def empty(dtype: str, shape: tuple[int, ...] = (SHAPE[0], SHAPE[2])) -> Array:
    return Array(np.full(shape, np.nan, dtype))


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("side", ["left", "right"])
def test_products_have_the_bits_of_the_plain_call(gpu: Gpu, way: tuple[str, str, tuple[str, ...]], side: str) -> None:
    """Fractions, so that any other digit, scale or order of sums shows; and integers, whose products are exact."""
    dtype, plan = way[0], planned(way)
    (m, _, n), generator = SHAPE, np.random.default_rng(3)
    for a, b in (operands(dtype), tuple(generator.standard_normal(x.shape).astype(dtype) for x in operands(dtype))):
        kept = bilinear.prepare(Array(b), rows=m, plan=plan) if side == "right" else bilinear.prepare(Array(a), columns=n, plan=plan)
        old = generator.integers(-5, 6, (m, n)).astype(dtype)
        for alpha, beta in ((1, 0), (3, -2)):
            found, plain = (Array(old.copy()) for _ in range(2))
            pair = (Array(a), kept) if side == "right" else (kept, Array(b))
            assert bilinear.matmul(*pair, found, alpha=alpha, beta=beta) is found
            bilinear.matmul(Array(a), Array(b), plain, alpha=alpha, beta=beta, plan=plan)
            np.testing.assert_array_equal(found.host, plain.host)
            if a.dtype.kind == "f" and (a == np.rint(a)).all():
                np.testing.assert_array_equal(found.host, alpha * (a.astype(int) @ b.astype(int)) + beta * old)
    assert gpu.library == 0


@pytest.mark.parametrize("way", WAYS[:3:2], ids=str)
@pytest.mark.parametrize("side", ["left", "right"])
def test_what_is_kept_is_neither_searched_nor_cut_again(gpu: Gpu, way: tuple[str, str, tuple[str, ...]], side: str) -> None:
    plan, (a, b) = planned(way), operands(way[0])
    kept = bilinear.prepare(Array(b), rows=SHAPE[0], plan=plan, check=False) if side == "right" else None
    kept = kept or bilinear.prepare(Array(a), columns=SHAPE[2], plan=plan, check=False)
    pair: Any = (Array(a), kept) if side == "right" else (kept, Array(b))
    launches = []
    for one in (pair, (Array(a), Array(b))):
        before = len(gpu.launches)
        bilinear.matmul(*one, empty(way[0]), **({} if one is pair else {"plan": plan}))
        launches.append([name for name, _ in gpu.launches[before:]])
    assert len(launches[0]) == len(launches[1]) - 2
    assert sum("expand" in name for name in launches[0]) == 1 and sum("expand" in name for name in launches[1]) == 2


def test_it_says_what_it_is_and_how_much_it_keeps(gpu: Gpu) -> None:
    _, b = operands("float32")
    kept = bilinear.prepare(Array(b), rows=70, plan=planned(WAYS[1]))
    lines = (
        30  # of a block of B, which is 45 x 30: one panel of 128, and one slice of 64 terms, of each of seven forms, four bytes a number
    )
    assert 0 <= kept.bytes - (7 * 128 * 64 * 4 + 4 * lines + 4) < 4 * 4
    assert repr(kept).startswith("<Prepared right operand 90 x 60, float32, for winograd, 1 level on pairs: keeps 2")


def test_batches_of_the_other_operand(gpu: Gpu) -> None:
    a, b = operands("float32")
    batch = np.stack([a, 2 * a, -a])
    kept = bilinear.prepare(Array(b), rows=70, plan=planned(WAYS[0]))
    found = bilinear.matmul(Array(batch), kept)
    np.testing.assert_array_equal(found.host, batch.astype(int) @ b.astype(int))


@pytest.mark.parametrize("order", [(), ("A",), ("B",), ("A", "B")], ids=str)
def test_operands_lie_in_any_order_and_anywhere(gpu: Gpu, order: tuple[str, ...]) -> None:
    a, b = operands("float32")
    for padded in (0, 3):
        left, right = laid(a, "A" in order, padded), laid(b, "B" in order, padded)
        kept = bilinear.prepare(Array(right), rows=70, plan=planned(WAYS[0]))
        out = empty("float32")
        bilinear.matmul(Array(left), kept, out)
        np.testing.assert_array_equal(out.host, a.astype(int) @ b.astype(int))


@pytest.mark.parametrize("where", ["kept", "other"])
def test_inf_and_nan_are_those_of_the_classical_product(gpu: Gpu, where: str) -> None:
    a, b = operands("float32")
    x = b if where == "kept" else a
    for place, value in (((3, 4), np.inf), ((0, 0), np.nan)):
        saved, x[place] = x[place], value
        kept = bilinear.prepare(Array(b), rows=70, plan=planned(WAYS[0]))
        assert (kept.bytes == 0) is (where == "kept")
        old = np.arange(70 * 60, dtype=np.float32).reshape(70, 60)
        out = Array(old.copy())
        bilinear.matmul(Array(a), kept, out, alpha=2, beta=3)
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(out.host, 2 * (a @ b) + 3 * old)
        x[place] = saved


def test_a_changed_operand_is_refused(gpu: Gpu) -> None:
    a, b = operands("float32")
    right = Array(b)
    kept = bilinear.prepare(right, rows=70, plan=planned(WAYS[0]))
    right.host[5, 7] += 1
    assert code(bilinear.matmul, Array(a), kept) == "E537"
    right.host[5, 7] -= 1
    np.testing.assert_array_equal(bilinear.matmul(Array(a), kept).host, a.astype(int) @ b.astype(int))


def test_plans_that_keep_nothing_are_refused(gpu: Gpu) -> None:
    _, b = operands("float32")
    on_load = planned(("float32", "pairs_on_load", ()), workspace=0)
    assert code(bilinear.prepare, Array(b), rows=70, plan=on_load) == "E539"
    thin = bilinear.plan(*SHAPE, "float32", device=H200)
    assert thin.chosen.strategy == "thin" and code(bilinear.prepare, Array(b), rows=70, plan=thin) == "E539"
    assert code(bilinear.prepare, Array(b), rows=71, plan=planned(WAYS[0])) == "E544"
    assert code(bilinear.prepare, Array(b), rows=70, algorithm="winograd", plan=planned(WAYS[0])) == "E544"


def test_c_by_columns_and_another_shape_are_refused(gpu: Gpu) -> None:
    a, b = operands("float32")
    kept = bilinear.prepare(Array(b), rows=70, plan=planned(WAYS[0]))
    out = Array(np.asfortranarray(np.zeros((70, 60), np.float32)))
    assert code(bilinear.matmul, Array(a), kept, out) == "E538"


def test_workspace_is_the_callers_or_limited(gpu: Gpu) -> None:
    a, b = operands("float32")
    kept = bilinear.prepare(Array(b), rows=70, plan=planned(WAYS[0]))
    assert code(bilinear.matmul, Array(a), kept, empty("float32"), workspace="none") == "E535"
    out = empty("float32")
    bilinear.matmul(Array(a), kept, out, workspace=Array(np.zeros(1 << 16, np.float32)))
    np.testing.assert_array_equal(out.host, a.astype(int) @ b.astype(int))


def test_auto_keeps_digits_once_that_is_allowed(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before a GPU has run it: then what `auto` chooses is run plainly, and nothing is kept."""
    from bilinear.runtime import prepared_digits

    _, b = operands("float32")
    assert not prepared_digits.KEPT_BY_AUTO
    assert bilinear.prepare(Array(b), rows=70, accuracy="classical").bytes == 0
