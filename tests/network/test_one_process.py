"""Plans of ranks on several GPUs of one process, pretended: copies come late, and products of distributed arrays of CuPy are exact."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from backends.pretended_gpus import OnGpu, pretended
from each_case import each
from network.lockstep import pieces, times
from network.test_plan import distributions

from bilinear.distributed import Slab, matmul, multiply
from bilinear.distributed.connection import run_steps
from bilinear.distributed.rank import steps_of
from bilinear.distributed.rank_plan import RankPlan, decompose
from bilinear.errors import BilinearError
from bilinear.frontend import load


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The engine, on a pretended CuPy."""
    for name, module in pretended().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "bilinear.backends.peer_copies", raising=False)
    yield importlib.import_module("bilinear.backends.peer_copies")
    sys.modules.pop("bilinear.backends.peer_copies", None)


def run(copies: Any, plan: RankPlan, a: Any, b: Any, product: Any = times) -> list[Any]:
    own = [[x.view(OnGpu) for x in pieces(matrix, spread)] for matrix, spread in ((a, plan.given[0]), (b, plan.given[1]))]
    gpus = [2 * number for number in range(plan.ranks)]

    def work(number: int, carrier: Any) -> Any:
        return run_steps(steps_of(plan, number, own[0][number], own[1][number], product), carrier)

    found: list[Any] = copies.PeerCopies(gpus).run(work)
    return found


def matrices(m: int, k: int, n: int) -> tuple[Any, Any]:
    generator = np.random.default_rng(m)
    return generator.integers(-9, 10, (m, k)), generator.integers(-9, 10, (k, n))


@each("ranks", [1, 2, 3, 4, 7])
@each("name", ["2d", "winograd", "laderman"])
def test_plans_are_exact(copies: Any, name: str, ranks: int) -> None:
    known = distributions(ranks)
    for at, extents in enumerate([(24, 24, 24), (13, 17, 11), (3, 30, 2)]):
        given = [known[(at + step) % len(known)] for step in (0, 3, 5)]
        plan = decompose(extents, ranks, given, None if name == "2d" else load(name).scheme)
        a, b = matrices(*extents)
        for found, wanted in zip(run(copies, plan, a, b), pieces(a @ b, plan.given[2]), strict=True):
            assert np.array_equal(found, wanted)


def test_what_is_not_waited_for_is_not_there(copies: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies.PeerCopies, "wait", lambda *_: None)
    plan = decompose((24, 24, 24), 2, [Slab.X] * 3)
    a, b = matrices(24, 24, 24)
    found = run(copies, plan, a.astype(float), b.astype(float))
    assert not all(np.array_equal(x, y) for x, y in zip(found, pieces(a @ b, plan.given[2]), strict=True))


def test_an_error_on_one_gpu_ends_all(copies: Any) -> None:
    calls: list[int] = []

    def product(*given: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise MemoryError("no room for a product")
        return times(*given, **options)

    plan = decompose((24, 24, 24), 3, [Slab.X] * 3, load("winograd").scheme)
    with pytest.raises(MemoryError, match="no room"):
        run(copies, plan, *matrices(24, 24, 24), product)


class Distributed:
    """What is used of CuPy's distributed arrays."""

    def __init__(self, whole: Any, index_map: dict[int, Any], mode: str = "replica") -> None:
        self.whole, self.index_map, self.mode = np.array(whole), index_map, mode
        self.chunks = {gpu: [self.whole[at].copy().view(OnGpu) for at in places] for gpu, places in index_map.items()}
        self.shape, self.dtype, self.ndim = self.whole.shape, self.whole.dtype, self.whole.ndim

    @property
    def devices(self) -> Any:
        return self.index_map.keys()

    def change_mode(self, mode: str) -> Distributed:
        return Distributed(self.whole, self.index_map, mode)

    def reshard(self, index_map: dict[int, Any]) -> Distributed:
        assert self.mode == "replica" and not any(s.start == s.stop for places in index_map.values() for at in places for s in at)
        return Distributed(self.whole, index_map)

    def all_chunks(self) -> dict[int, list[Any]]:
        return self.chunks

    def get(self) -> Any:
        out = np.full(self.shape, -(10**6), self.dtype)
        for gpu, places in self.index_map.items():
            for at, chunk in zip(places, self.chunks[gpu], strict=True):
                out[at] = chunk
        return out


@pytest.fixture
def module(copies: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    found = ModuleType("cupyx.distributed.array")
    vars(found).update(DistributedArray=Distributed, REPLICA="replica", distributed_array=Distributed)
    monkeypatch.setitem(sys.modules, "cupyx.distributed.array", found)
    monkeypatch.setattr(multiply, "multiply_here", lambda a, b, out=None, *, beta=0, **_: times(a, b, out, beta=beta))
    return SimpleNamespace(copies=copies, array=found)


@each("options", [{}, {"decomposition": "strassen"}, {"balance": "queue"}, {"algorithm": "msmes"}])
@each("extents", [(20, 14, 9), (1, 8, 5), (16, 2, 16)])
def test_distributed_arrays_go_in_and_come_out(module: Any, extents: tuple[int, int, int], options: Any) -> None:
    m, k, n = extents
    a, b = matrices(m, k, n)
    x = Distributed(a, {0: [(slice(0, m), slice(0, k // 2))], 3: [(slice(0, m), slice(k // 2, k))]}, "sum")
    y = Distributed(b, {1: [(slice(0, k), slice(0, n))]})
    c = matmul(x, y, **options)
    assert isinstance(c, Distributed) and np.array_equal(c.get(), a @ b)
    assert sorted(c.devices) == [0, 1, 3][: min(m, k)]


def test_what_cannot_be_multiplied_is_refused(module: Any) -> None:
    a = Distributed(np.ones((4, 4)), {0: [(slice(0, 4), slice(0, 4))]})
    for other in (np.ones((4, 4)), Distributed(np.ones((3, 4)), a.index_map), Distributed(np.ones((4, 4), "float32"), a.index_map)):
        with pytest.raises(BilinearError, match="E798"):
            matmul(a, other)
    with pytest.raises(TypeError, match="GPUs belong to this process"):
        matmul(a, a, shape=(4, 4, 4))
