"""Chains through `multi_dot`: exact, in the planned order, in the planned memory."""

from __future__ import annotations

import sys
import tracemalloc
from contextlib import nullcontext
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from each_case import each
from runtime.operands import LAYOUTS, integers, laid_out
from runtime.pretended_gpu import Array, Gpu
from runtime.test_torch_tensors import STREAM, Place, Tensor, Torch

import bilinear
from bilinear.emulator import skip_reason
from bilinear.errors import BilinearError
from bilinear.runtime import arrays, multi_dot

DESCRIBED = "h200"
needs_a_compiler = pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")
EXTENTS = (7, 3, 9, 4, 6)


def matrices(extents: tuple[int, ...] = EXTENTS, dtype: Any = np.int64, seed: int = 1) -> list[Any]:
    generator = np.random.default_rng(seed)
    return [integers(generator, shape, dtype) for shape in pairwise(extents)]


def exact(chain: list[Any]) -> Any:
    """The product by the definition, in Python's integers."""
    return reduce(lambda x, y: np.asarray(x).dot(y), [x.astype(object) for x in chain])


@each("dtype", ["int64", "float64", "float32", "object"])
@each("count", [2, 3, 4])
@each("ends", [(), (0,), (-1,), (0, -1)])
def test_integers_are_exact_with_vectors_at_the_ends(dtype: str, count: int, ends: tuple[int, ...]) -> None:
    chain = matrices(EXTENTS[: count + 1], dtype)
    for end in ends:
        chain[end] = chain[end][0] if end == 0 else chain[end][:, 0]
    expected = exact(chain)
    found = bilinear.multi_dot(chain)
    assert np.shape(found) == np.shape(expected) and (np.asarray(found) == expected).all()
    assert isinstance(found, np.ndarray) != (np.ndim(expected) == 0)
    out = np.full(np.shape(expected), 77).astype(dtype)
    assert bilinear.multi_dot(tuple(chain), out=out) is out
    assert (out == expected).all()


@each("layout", LAYOUTS)
def test_operands_and_out_lie_anyhow(layout: str) -> None:
    chain = matrices(dtype=np.float64)
    out = laid_out(np.zeros((EXTENTS[0], EXTENTS[-1])), layout)
    assert bilinear.multi_dot([laid_out(x, layout) for x in chain], out=out) is out
    assert (out == exact(chain)).all()


def test_the_products_are_those_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []

    def spied(a: Any, b: Any, out: Any = None, **options: Any) -> Any:
        ran.append(((*a.shape, b.shape[1]), options["workspace"], out is not None))
        return bilinear.matmul(a, b, out, **options)

    monkeypatch.setattr(multi_dot, "matmul", spied)
    shapes = [x.shape for x in matrices()]
    plan = bilinear.plan_chain(shapes, "int64", workspace=1000)
    bilinear.multi_dot(matrices(), workspace=1000, out=np.empty((7, 6), int))
    steps = plan.chosen.steps
    assert ran == [((step.m, step.k, step.n), 1000 - step.held, step is steps[-1]) for step in steps]
    ran.clear()
    large = (200, 300, 10, 400, 20)
    described = bilinear.plan_chain([x.shape for x in matrices(large)], "float64", device="h200")
    assert described.chosen.text != described.fewest_multiplications.text
    assert (bilinear.multi_dot(matrices(large, float), device="h200") == exact(matrices(large))).all()
    assert [shape for shape, *_ in ran] == [(step.m, step.k, step.n) for step in described.chosen.steps]
    for options in ({"algorithm": "strassen"}, {"levels": 0}):
        with pytest.raises(BilinearError, match=r"E557.*device="):
            bilinear.multi_dot(matrices(), device="h200", **options)


def test_the_memory_is_what_the_plan_says() -> None:
    """NumPy's own allocations, traced: intermediates are freed when they have been read, and nothing is copied."""
    extents = (300, 400, 200, 500, 300, 100)
    chain = [np.ones(shape) for shape in pairwise(extents)]
    out, plan = np.empty((300, 100)), bilinear.plan_chain([x.shape for x in chain])
    bilinear.multi_dot(chain, out=out)
    tracemalloc.start()
    bilinear.multi_dot(chain, out=out)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert plan.chosen.peak <= peak < plan.chosen.peak + 50_000
    assert plan.chosen.peak < sum(step.m * step.n * 8 for step in plan.chosen.steps[:-1])


@each("at", range(4))
@each("turned", [False, True])
def test_an_out_that_overlaps_an_operand_gets_the_product(at: int, turned: bool) -> None:
    chain = matrices((5, 5, 5, 5, 5))
    out = chain[at]
    chain[at] = out.T if turned else out
    expected = exact(chain)
    assert bilinear.multi_dot(chain, out=out) is out
    assert (out == expected).all()


def test_mixed_types_are_multiplied_in_the_type_common_to_all() -> None:
    """100 * 100 is not an int8: which product is first must not decide what comes out."""
    low, high = np.full((3, 3), 100, np.int8), np.eye(3)
    chains: list[list[Any]] = [[low, low, high], [high, low, low], [low, low, high, low, low]]
    for chain in chains:
        found = bilinear.multi_dot(chain)
        assert found.dtype == np.float64 and (found == exact(chain)).all()
    assert bilinear.multi_dot([low, low]).dtype == np.int8, "as numpy.matmul has it"


def test_bad_input_is_refused_before_anything_is_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = matrices()
    monkeypatch.setattr(multi_dot, "matmul", lambda *_, **__: pytest.fail("multiplied"))
    refused: tuple[tuple[Any, dict[str, Any], str], ...] = (
        (None, {}, "E550.*a chain of type NoneType"),
        (5, {}, "E550.*a chain of type int"),
        ([], {}, "E550.*a chain of 0 matrices"),
        (chain[:1], {}, "E550.*a chain of 1 matrix"),
        (chain[::-1], {}, r"E550.*matrices 1 and 2 of the chain have shapes \(4, 6\) and \(9, 4\)"),
        ([chain[0], 3.0], {}, r"E550.*matrix 2 of the chain has shape \(\)"),
        (chain, {"out": np.zeros((6, 7), np.int64)}, r"E550.*out has shape \(6, 7\), the product of the chain \(7, 6\)"),
        (chain, {"out": np.zeros((2, 7, 6), np.int64)}, "E550.*out has shape"),
        (chain, {"workspace": np.empty(9)}, "E534.*an array"),
        (chain, {"workspace": "some"}, "E534"),
        (chain, {"workspace": "none"}, r"E535.*need \d+ bytes of workspace, 0 are available"),
        (chain, {"inputs": "lose"}, "E513"),
        (chain, {"device": "h2000"}, "E541"),
        ([np.eye(3)] * 3, {"inputs": "consume"}, "E523.*operands 1 and 2 apart"),
    )
    for given, options, code in refused:
        with pytest.raises(BilinearError, match=code):
            bilinear.multi_dot(given, **options)
    square = np.eye(3)
    with pytest.raises(BilinearError, match=r"E523.*operands 1 and 3 apart"):
        bilinear.multi_dot([square, np.eye(3), square.T], inputs="consume")


def test_one_matrix_may_stand_several_times() -> None:
    square = matrices((4, 4))[0]
    assert (bilinear.multi_dot([square] * 5) == exact([square] * 5)).all()


def test_a_named_algorithm_runs_every_product() -> None:
    chain = matrices((12, 8, 16, 4), dtype=object)
    before = [x.copy() for x in chain]
    for algorithm, inputs in (("winograd", "preserve"), ("msmes", "restore")):
        found = bilinear.multi_dot(chain, algorithm=algorithm, levels=1, inputs=inputs)  # type: ignore[arg-type]
        assert (found == exact(before)).all()
        assert all((x == y).all() for x, y in zip(chain, before, strict=True))
    with pytest.raises(BilinearError, match="E535"):
        bilinear.multi_dot(chain, algorithm="winograd", levels=1, workspace=8 * 12 * 16)


class Measured(np.ndarray):
    """A subclass without a multiply of its own."""


def test_subclasses_come_back_as_from_matmul() -> None:
    chain = matrices()
    found = bilinear.multi_dot([chain[0], chain[1].view(Measured), *chain[2:]])
    assert type(found) is Measured and (np.asarray(found) == exact(chain)).all()


@needs_a_compiler
def test_arrays_on_a_gpu_are_ordered_by_its_description(gpu: Gpu) -> None:
    extents = (200, 300, 10, 400, 20)
    chain, allocated = matrices(extents, np.float64), list[int]()
    plan = bilinear.plan_chain([x.shape for x in chain])
    assert plan.by == "seconds" and plan.chosen.text != plan.fewest_multiplications.text
    with gpu.using(allocate=allocated.append):
        found = bilinear.multi_dot([Array(x) for x in chain])
    assert isinstance(found, Array) and (found.host == exact(chain)).all()
    steps = plan.chosen.steps
    assert allocated == [8 * step.m * step.n for step in steps]
    out = Array(np.full((200, 20), np.nan))
    assert bilinear.multi_dot([Array(x) for x in chain], out=out, stream=nullcontext()) is out
    assert (out.host == exact(chain)).all()
    row = bilinear.multi_dot([Array(chain[0][0].copy()), *map(Array, chain[1:])])
    assert row.shape == (20,) and (row.host == exact(chain)[0]).all()


@needs_a_compiler
def test_intermediates_cannot_live_in_a_graph(gpu: Gpu) -> None:
    chain, out = [Array(x) for x in matrices(dtype=np.float64)], Array(np.zeros((7, 6)))
    with gpu.using(is_capturing=True), pytest.raises(BilinearError, match="E536"):
        bilinear.multi_dot(chain, out=out)
    assert not out.host.any()


def test_for_the_librarys_multiply_alone_there_are_no_times(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = [x.shape for x in matrices()]
    assert bilinear.plan_chain(shapes, device="h200").by == "seconds"
    monkeypatch.setenv("BILINEAR_USE_LIBRARY", "1")
    assert bilinear.plan_chain(shapes, device="h200").by == "multiplications"
    assert (bilinear.multi_dot(matrices(), device="h200") == exact(matrices())).all()


@needs_a_compiler
def test_tensors_are_multiplied_in_pytorchs_memory(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = Torch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    arrays._pool.cache_clear()
    chain = matrices((20, 100_000, 4, 6), np.float64)  # the first product is one of our own kernels
    tensors = [Tensor(Array(x)) for x in chain]
    found = bilinear.multi_dot(tensors)
    assert isinstance(found, Tensor) and (found.array.host == exact(chain)).all()
    assert {stream for *_, stream in torch.allocated} == {STREAM} == {stream for _, stream in gpu.launches}
    out = Tensor(Array(np.zeros((20, 6))))
    assert bilinear.multi_dot(tensors, out=out) is out
    assert (out.array.host == exact(chain)).all()
    with pytest.raises(BilinearError, match="E511"):
        bilinear.multi_dot([*tensors[:2], Tensor(Array(chain[2]), Place(1))])
    arrays._pool.cache_clear()


@each("form", ["csr_array", "csc_array", "coo_matrix"])
@each("places", [(0,), (1,), (3,), (0, 1), (0, 3), (0, 1, 2)])
@each("dtype", ["float64", "int64"])
def test_sparse_matrices_of_a_chain_are_multiplied_by_their_library(form: str, places: tuple[int, ...], dtype: str) -> None:
    chain = matrices(dtype=dtype)
    for at in places:
        chain[at][np.random.default_rng(at).random(chain[at].shape) < 0.7] = 0
    given = [getattr(scipy.sparse, form)(x) if at in places else x for at, x in enumerate(chain)]
    found = bilinear.multi_dot(given)
    assert isinstance(found, np.ndarray) and (found == exact(chain)).all()
    out = np.empty_like(found)
    assert bilinear.multi_dot(given, out=out) is out and (out == found).all()


def test_the_order_of_a_chain_counts_what_is_stored() -> None:
    """A layer of a graph network: 100 x 100 with 300 stored elements, 100 x 50, 50 x 8."""
    shapes = [(100, 100), (100, 50), (50, 8)]
    found, dense = bilinear.plan_chain(shapes, stored={0: 300}), bilinear.plan_chain(shapes)
    orders = {"A1 (A2 A3)": 100 * 50 * 8 + 300 * 8, "(A1 A2) A3": 300 * 50 + 100 * 50 * 8}
    assert found.chosen.text == min(orders, key=orders.__getitem__) == "A1 (A2 A3)"
    assert (found.chosen.multiplications, found.left_to_right.multiplications) == tuple(orders.values())
    assert [step.plan for step in found.left_to_right.steps] == ["sparse", "-"]
    assert dense.chosen.multiplications == 100 * 50 * 8 + 100 * 100 * 8
    wide = bilinear.plan_chain([(100, 100), (100, 8), (8, 50)], stored={0: 300}).chosen
    assert (wide.text, wide.multiplications) == ("(A1 A2) A3", 300 * 8 + 100 * 8 * 50)
    timed = bilinear.plan_chain([(10**6, 10**6), (10**6, 512), (512, 64)], "float32", device="h200", stored={0: 10**7}).chosen
    assert timed.text == "A1 (A2 A3)" and timed.steps[1].seconds == pytest.approx(10**7 * 64 * 4 / 4280e9)


def test_what_a_chain_with_sparse_matrices_cannot_do_is_refused() -> None:
    a, b = matrices(EXTENTS[:3], "float64")
    sparse = scipy.sparse.csr_array(a)
    cases: list[tuple[list[Any], dict[str, Any], str]]
    cases = [([sparse, scipy.sparse.csr_array(b)], {}, "E550"), ([sparse, b], {"inputs": "consume"}, "E557")]
    for chain, options, code in cases:
        with pytest.raises(BilinearError) as error:
            bilinear.multi_dot(chain, **options)
        assert error.value.diagnostics[0].code == code
    with pytest.raises(BilinearError, match="matrices 1 and 2"):
        bilinear.multi_dot([sparse, b.T])
