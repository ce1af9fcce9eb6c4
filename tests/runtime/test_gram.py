"""A*A^T through `gram`: exact on integers, symmetric bit by bit, one triangle, in every layout, by plans and by the library."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from each_case import each
from runtime.operands import LAYOUTS, integers, laid_out
from runtime.pretended_gpu import Array, Gpu
from runtime.test_auto_cpu import EAGER, describe

import bilinear
from bilinear.emulator import skip_reason
from bilinear.errors import BilinearError
from bilinear.planner.gram import GramPlan, plan_by_size
from bilinear.runtime import devices_here, gram_blocks, gram_plans
from bilinear.runtime.gram_blocks import GramMultiplies

DESCRIBED = "h200"
needs_a_compiler = pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")
TRIANGLES = (None, "lower", "upper")
ALGORITHMS = ("auto", "strassen", "winograd", "laderman", "winograd_depth_first")
KEEP: dict[str | None, Any] = {None: lambda x: x, "lower": np.tril, "upper": np.triu}


def exact(a: Any, transposed: bool = False) -> Any:
    """The product by the definition, in integers: Python's, of large matrices NumPy's."""
    x = np.asarray(a).astype(object if np.size(a) < 10_000 else np.int64)
    return np.matmul(x.swapaxes(-1, -2), x) if transposed else np.matmul(x, x.swapaxes(-1, -2))


def matrix(shape: tuple[int, ...] = (45, 23), dtype: Any = np.float64, seed: int = 1) -> Any:
    return integers(np.random.default_rng(seed), shape, dtype)


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks computed aside, and mirrored tiles, of 8 rows; blocks that stay together of 16."""
    for module in (gram_plans, gram_blocks):
        monkeypatch.setattr(module, "TILE", {False: 8, True: 8})
    monkeypatch.setattr(gram_plans, "TOGETHER", 16)


@pytest.mark.usefixtures("small_tiles")
@each("triangle", TRIANGLES)
@each(
    ("dtype", "algorithm"),
    [*product(("float64", "float32", "int64", "longdouble"), ALGORITHMS), ("int8", "strassen:2"), ("bool", "auto"), ("float16", "auto")],
)
def test_integers_are_exact_in_every_type(dtype: str, algorithm: str, triangle: Any) -> None:
    a = matrix((37, 22), dtype) if dtype not in ("int8", "bool") else (matrix((37, 22)) % 2 == 1).astype(dtype)
    found = bilinear.gram(a, algorithm=algorithm, triangle=triangle)
    wanted = exact(a).astype(bool) if dtype == "bool" else exact(a)
    assert found.dtype == a.dtype and (found == KEEP[triangle](wanted)).all()


@pytest.mark.usefixtures("small_tiles")
@each("transposed", [False, True])
@each("layout", LAYOUTS)
@each("algorithm", ["auto", "winograd"])
@each("triangle", TRIANGLES)
def test_operand_and_out_lie_anyhow(layout: str, algorithm: str, triangle: Any, transposed: bool) -> None:
    a = matrix()
    n = a.shape[1 if transposed else 0]
    before = matrix((n, n), seed=2)
    before = before + before.T
    out = laid_out(before, layout)
    given = laid_out(a, layout)
    assert bilinear.gram(given, out, transposed=transposed, algorithm=algorithm, triangle=triangle, alpha=3, beta=-2) is out
    wanted = 3 * exact(a, transposed) - 2 * before.astype(object)
    kept = KEEP[triangle](np.ones((n, n), bool))
    assert (out == np.where(kept, wanted, before)).all()
    assert (given == a).all()


@pytest.mark.usefixtures("small_tiles")
@each("triangle", TRIANGLES)
@each("beta", [0, 2])
def test_only_one_triangle_of_out_is_read_and_only_the_named_one_written(triangle: Any, beta: int) -> None:
    a, below = matrix((29, 11)), np.tril(np.ones((29, 29), bool))
    kept = np.triu(np.ones((29, 29), bool)) if triangle == "upper" else below
    old = matrix((29, 29), seed=3)
    out = np.where(kept, old, np.nan)
    if beta == 0:
        out[kept] = np.nan  # is not read at all
    before = out.copy()
    bilinear.gram(a, out, triangle=triangle, beta=beta, algorithm="strassen")
    wanted = exact(a) + (beta * old if beta else 0)
    assert (out[kept] == wanted[kept]).all()
    if triangle is None:
        assert (out == out.T).all()
    else:
        assert np.array_equal(out[~kept], before[~kept], equal_nan=True)


@pytest.mark.usefixtures("small_tiles")
@each("triangle", TRIANGLES)
@each("algorithm", ["auto", "winograd"])
@each("shape", [(3, 20, 9), (2, 3, 17, 20), (0, 4, 5), (2, 0, 5), (2, 5, 0), (1, 1), (0, 3), (7, 0), (1, 1, 1)])
def test_batches_and_empty_extents(shape: tuple[int, ...], algorithm: str, triangle: Any) -> None:
    a = matrix(shape)
    assert (bilinear.gram(a, algorithm=algorithm, triangle=triangle) == KEEP[triangle](exact(a))).all()
    out = np.full((*shape[:-1], shape[-2]), 5.0)
    bilinear.gram(a, out, beta=1, algorithm=algorithm)
    assert (out == exact(a) + 5).all()


@pytest.mark.sample(5)
@pytest.mark.parametrize("algorithm", ["auto", "winograd", "strassen"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_result_is_symmetric_repeats_and_is_near_the_classical_one(dtype: str, transposed: bool, algorithm: str) -> None:
    a = np.random.default_rng(4).normal(size=(310, 190)).astype(dtype)
    found = bilinear.gram(a, transposed=transposed, algorithm=algorithm, levels="auto" if algorithm == "auto" else 2)
    assert found.tobytes() == np.ascontiguousarray(found.T).tobytes()
    again = bilinear.gram(a, transposed=transposed, algorithm=algorithm, levels="auto" if algorithm == "auto" else 2)
    assert found.tobytes() == again.tobytes()
    x = a.astype(np.longdouble)
    wanted = x.T @ x if transposed else x @ x.T
    bound = 1000 * float(np.finfo(dtype).eps) * 310
    assert np.abs(found - wanted).max() <= bound * np.abs(x).max() ** 2 / 10


def test_triangles_hold_the_same_bits_as_the_whole() -> None:
    a = np.random.default_rng(5).normal(size=(520, 70))
    lower, upper = (bilinear.gram(a, triangle=name, algorithm="winograd", levels=1) for name in ("lower", "upper"))
    assert (lower == np.tril(lower)).all() and lower.tobytes() == np.ascontiguousarray(upper.T).tobytes()


def test_inf_and_nan_stay_symmetric() -> None:
    a = matrix((600, 40))
    a[3, 5], a[500, 7] = np.inf, np.nan
    with np.errstate(invalid="ignore"):
        found, by_library = bilinear.gram(a, algorithm="strassen", levels=1), bilinear.gram(a)
    assert np.array_equal(found, found.T, equal_nan=True) and np.array_equal(by_library, by_library.T, equal_nan=True)
    assert np.isnan(found[500]).all() and np.isinf(by_library[3, 3]) and by_library[0, 0] == exact(a[:1, :])


@each("transposed", [False, True])
@each("triangle", TRIANGLES)
def test_out_may_overlap_the_operand(transposed: bool, triangle: Any) -> None:
    a = matrix((21, 21))
    wanted, before = KEEP[triangle](exact(a, transposed)), a.copy()
    kept = KEEP[triangle](np.ones((21, 21), bool))
    assert bilinear.gram(a, a, transposed=transposed, triangle=triangle, algorithm="winograd") is a
    assert (a == np.where(kept, wanted, before)).all()
    with pytest.raises(BilinearError, match=r"E535.*a copy of an operand that out overlaps needs 3528 bytes of workspace, 100 are allowed"):
        bilinear.gram(a, a, workspace=100)


def test_a_wider_out_gets_the_result() -> None:
    a, out = matrix((33, 12), "float32"), np.full((33, 33), np.nan)
    bilinear.gram(a, out, algorithm="winograd")
    assert (out == exact(a)).all()


def test_workspace_is_kept_and_a_refusal_writes_nothing() -> None:
    a, out = matrix((256, 128)), np.full((256, 256), 7.0)
    with pytest.raises(BilinearError, match=r"E535.*100 are allowed"):
        bilinear.gram(a, out, algorithm="winograd", levels=1, workspace=100)
    assert (out == 7).all()
    buffer = np.empty(3 * 128 * 128)
    bilinear.gram(a, out, algorithm="winograd_depth_first", levels=1, workspace=buffer)
    assert (out == exact(a)).all()
    whole = np.empty((400, 256))
    with pytest.raises(BilinearError, match=r"E529.*shares memory with an operand or out"):
        bilinear.gram(a, whole[:256], algorithm="winograd", levels=1, workspace=whole[200:].reshape(-1))


class Measured(np.ndarray):
    """A subclass without a multiply of its own."""


def test_bad_input_is_refused_before_anything_is_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    a = matrix((6, 4))
    monkeypatch.setattr(gram_blocks, "multiply", lambda *_: pytest.fail("multiplied"))
    refused: tuple[tuple[Any, dict[str, Any], str], ...] = (
        (a, {"triangle": "left"}, "E790.*triangle='left' is not a triangle"),
        (a[0], {}, r"E791.*1 dimension\(s\) is not a matrix"),
        (a, {"out": np.zeros((2, 6, 6))}, "E791.*out has shape"),
        (bilinear.prepare(a, columns=6, algorithm="winograd"), {}, "E791.*is prepared"),
        (a.astype(complex), {}, "E792.*complex128"),
        (a.astype(object), {}, "E792.*object"),
        (a, {"algorithm": "no_such"}, "E121|no_such"),
        (a, {"levels": -1}, "E514"),
        (a, {"beta": 1}, "E515"),
        (a, {"accuracy": 1e-30}, "E519"),
        (a, {"accuracy": 1e-3, "algorithm": "winograd"}, "E519"),
        (a, {"workspace": "some"}, "E534"),
    )
    for given, options, message in refused:
        with pytest.raises(BilinearError, match=message):
            bilinear.gram(given, **options)


def test_subclasses_come_back_as_from_matmul() -> None:
    a = matrix().view(Measured)
    found = bilinear.gram(a)
    assert type(found) is Measured and (np.asarray(found) == exact(a)).all()


def test_the_library_runs_where_the_environment_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BILINEAR_USE_LIBRARY", "1")
    assert (bilinear.gram(matrix(), algorithm="winograd") == exact(matrix())).all()


def plans_of(monkeypatch: pytest.MonkeyPatch) -> list[GramPlan]:
    """The plans that run."""
    ran: list[GramPlan] = []
    right = GramMultiplies.blocks

    def spied(self: GramMultiplies, plan: GramPlan, *rest: Any) -> None:
        ran.append(plan)
        right(self, plan, *rest)

    monkeypatch.setattr(GramMultiplies, "blocks", spied)
    return ran


@pytest.fixture
def described() -> Iterator[None]:
    """Processors whose library is so slow that every level gains."""
    gram_plans._on_cpu.cache_clear()
    describe(replace(EAGER, least_gain=1e-3))
    yield
    devices_here._described_cpu.cache_clear()
    gram_plans._on_cpu.cache_clear()


@pytest.mark.slow
@pytest.mark.usefixtures("described")
def test_matmul_finds_it_on_described_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BILINEAR_USE_LIBRARY", raising=False)
    ran, a = plans_of(monkeypatch), matrix((1024, 260))
    for x in (a, np.asfortranarray(a)):
        found = bilinear.matmul(x, x.T)
        assert (found == exact(a)).all() and (found == found.T).all()
    assert len(ran) == 2 and all(not step.is_diagonal for step in ran[0].steps[:1])
    wide = matrix((260, 1024))
    assert (bilinear.matmul(wide.T, wide, alpha=2) == 2 * exact(wide, transposed=True)).all()
    assert len(ran) == 3, "A^T*A, too"
    before = len(ran)
    bilinear.matmul(a, a.T.copy())
    bilinear.matmul(a, a.T, np.zeros((1024, 1024)), beta=1)
    bilinear.matmul(a, a.T, algorithm="winograd", levels=1)
    bilinear.matmul(a, a.T, levels=0)
    assert len(ran) == before, "only what is A*A^T, and left to auto"
    with pytest.raises(ValueError, match="shape"):
        bilinear.matmul(a, a.T, out=np.zeros((2, 2)))


def test_without_a_description_it_is_numpys_multiply(monkeypatch: pytest.MonkeyPatch) -> None:
    ran, a = plans_of(monkeypatch), np.random.default_rng(6).normal(size=(300, 200))
    assert bilinear.gram(a).tobytes() == (a @ a.T).tobytes() and len(ran[0].steps) == 1
    assert bilinear.matmul(a, a.T).tobytes() == (a @ a.T).tobytes() and len(ran) == 1


@needs_a_compiler
@each("triangle", TRIANGLES)
@each("algorithm", ["auto", "winograd"])
def test_arrays_on_a_gpu(gpu: Gpu, algorithm: str, triangle: Any) -> None:
    a = matrix((70, 40))
    found = bilinear.gram(Array(a), algorithm=algorithm, levels=1 if algorithm != "auto" else "auto", triangle=triangle)
    assert isinstance(found, Array) and (found.host == KEEP[triangle](exact(a))).all()
    out = Array(np.full((40, 40), np.nan))
    assert bilinear.gram(Array(a), out, transposed=True) is out
    assert (out.host == exact(a, transposed=True)).all()


@needs_a_compiler
def test_matmul_finds_it_on_a_gpu_and_tells_it_from_a_repeat(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another right operand of the same layout ran before: what is kept of it is not A*A^T."""
    ran, a, other = plans_of(monkeypatch), matrix((6, 5)), matrix((6, 5), seed=9)
    halves = plan_by_size(6, 5, "float64", 3, "auto")
    monkeypatch.setattr(gram_blocks, "described_plan", lambda *_: replace(halves, seconds=1.0, plain=2.0))
    for _ in range(2):
        assert (bilinear.matmul(Array(a), Array(other).T).host == np.matmul(a, other.T)).all()
    assert not ran
    on_gpu = Array(a)
    for times in (1, 2):
        assert (bilinear.matmul(on_gpu, on_gpu.T).host == exact(a)).all() and len(ran) == times
    with gpu.using(is_capturing=True), pytest.raises(BilinearError, match="E536"):
        bilinear.gram(on_gpu)
