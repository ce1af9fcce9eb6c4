"""Schemes for A*A^T: read, proved, printed, and run: exact on integers in every layout, in the workspace that is counted."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from each_case import each
from runtime.operands import LAYOUTS, laid_out
from runtime.test_gram import KEEP, TRIANGLES, exact, matrix

import bilinear
from bilinear.errors import BilinearError
from bilinear.frontend import LoadedGram, load, load_any, parse_source
from bilinear.frontend.printer import print_gram
from bilinear.ir.gram import GramScheme
from bilinear.ir.linear import LinearMap
from bilinear.reporting.map_report import gram_report
from bilinear.runtime import gram_blocks
from bilinear.source import Source
from bilinear.verify.bilinear_map import prove_map

LOWER = """
scheme halves <2,1,2;3>: B = A^T       # the two halves of the rows
  M1 = A11 * B11 ; M2 = A21 * B11 ; M3 = A21 * B12
  C11 = M1 ; C21 = M2 ; C22 = M3
"""
TABLE = """
scheme fractions <2,2,2;6> over Q: B = A^T
  M1: 2 0 0 0 | 2 0 0 0 | 1/4 0 0 0
  M2: 0 1 0 0 | 0 0 1 0 | 1 0 0 0
  M3: 1 0 0 0 | 0 1 0 0 | 0 1 0 0
  M4: 0 1 0 0 | 0 0 0 3 | 0 1/3 0 0
  M5: 0 0 1 0 | 0 1 0 0 | 0 0 0 1
  M6: 0 0 0 1 | 0 0 0 1 | 0 0 0 1
"""


def scheme_of(text: str) -> GramScheme:
    return parse_source(Source("x.bl", text)).grams[0]


def loaded(text: str, folder: Path) -> LoadedGram:
    (folder / "x.bl").write_text(text)
    found = load_any(folder / "x.bl")
    assert isinstance(found, LoadedGram)
    return found


@pytest.mark.parametrize(("text", "upper", "symmetric"), [(LOWER, False, {0, 2}), (TABLE, True, {0, 1, 4, 5})])
def test_a_scheme_is_read_proved_and_printed(text: str, upper: bool, symmetric: set[int]) -> None:
    gram = scheme_of(text)
    assert gram.upper == upper and gram.symmetric == symmetric and prove_map(gram.algorithm).holds
    again = scheme_of(print_gram(gram))
    assert again.scheme.tables == gram.scheme.tables and again == gram
    assert parse_source(Source("x.bl", text)).schemes == ()


def test_the_shipped_scheme_is_that_of_the_paper() -> None:
    """26 products of two matrices and 8 of one: 26/41 of Strassen's multiplications (Rybin, Zhang, Luo 2025)."""
    found = load_any("rxtx")
    assert isinstance(found, LoadedGram)
    report = gram_report(found.scheme)
    assert (report.general, report.symmetric, report.ratio) == (26, 8, "26/41, 0.6341") and report.work == 30 / 32
    assert report.additions == (77, 62) and report.growth == 46
    assert all(c in (1, -1) for table in found.scheme.scheme.tables for row in table for _, c in row)
    assert gram_report(scheme_of(LOWER)).ratio is None
    assert "26 of two matrices, 8 of one by its transpose" in str(report) and '"proved": true' in report.json()


@each("product", range(34))
def test_a_scheme_with_one_wrong_coefficient_is_refused(product: int) -> None:
    found = load_any("rxtx")
    assert isinstance(found, LoadedGram)
    own = found.scheme.scheme
    rows = list(own.u.outputs)
    (index, c), *rest = rows[product]
    rows[product] = ((index, -c), *rest)
    wrong = GramScheme(type(own)(own.name, 4, 4, 4, LinearMap(16, tuple(rows)), own.v, own.w, own.products), True)
    with pytest.raises(BilinearError, match=r"E350.*does not compute A\*A\^T"):
        gram_report(wrong)
    with pytest.raises(BilinearError, match="E350"):
        bilinear.gram(matrix(), algorithm=LoadedGram(wrong, found.source, found.path))


@each(
    ("text", "message"),
    [
        ("scheme x <2,1,2;3>: B = A", r"E793.*'B = A' is not a claim of a scheme"),
        ("scheme x <2,1,2;3>:", "E793.*this is not a claim"),
        ("scheme x <2,1,3;3>: B = A^T", r"E793.*as many columns as rows"),
        (LOWER.replace("C22 = M3", "C22 = M3 ; C12 = M2"), "E793.*both triangles"),
        (LOWER.replace("C22 = M3", ""), "E215.*C22 is never defined"),
        (LOWER.replace("C21 = M2 ;", ""), "E215.*C21 is never defined"),
        (LOWER.replace(";3>", ";4>"), "E207"),
        (LOWER.replace("M1 = A11 * B11", "basis A { A11 = A11 } ; M1 = A11 * B11"), "E2|E793"),
    ],
)
def test_a_malformed_scheme_is_told(text: str, message: str) -> None:
    with pytest.raises(BilinearError, match=message):
        parse_source(Source("x.bl", text))


@pytest.mark.parametrize(
    "use",
    [
        lambda: load("rxtx"),
        lambda: bilinear.matmul(matrix(), matrix().T, algorithm="rxtx"),
        lambda: bilinear.gram(matrix(), algorithm="winograd", products="strassen"),
        lambda: bilinear.gram(matrix(), products="strassen"),
    ],
)
def test_what_is_for_one_matrix_multiplies_no_two(use: Any) -> None:
    with pytest.raises(BilinearError, match="E794"):
        use()


def test_coefficients_that_a_type_does_not_hold_are_refused(tmp_path: Path) -> None:
    fractions = loaded(TABLE, tmp_path)
    with pytest.raises(BilinearError, match=r"E794.*coefficients that int64 does not hold"):
        bilinear.gram(matrix(dtype=np.int64), algorithm=fractions)
    with pytest.raises(BilinearError, match="E519"):
        bilinear.gram(matrix(), algorithm=fractions, accuracy=1e-3)
    with pytest.warns(UserWarning, match="rxtx is not used"):
        assert (bilinear.gram(matrix(dtype=np.float16), algorithm="rxtx") == exact(matrix())).all()


@pytest.fixture(autouse=True)
def small_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of seven rows at a time, so that small blocks have several parts."""
    monkeypatch.setattr(gram_blocks, "ROWS", 7)


@pytest.mark.sample(24)
@pytest.mark.parametrize("triangle", TRIANGLES)
@pytest.mark.parametrize("levels", [0, 1, 2, "auto"])
@pytest.mark.parametrize("name", ["rxtx", LOWER, TABLE], ids=["rxtx", "lower", "table"])
@pytest.mark.parametrize("transposed", [False, True])
def test_integers_are_exact_at_every_level(name: str, levels: Any, triangle: Any, transposed: bool, tmp_path: Path) -> None:
    """Powers of 3 lose nothing in TABLE: float64 divides what it multiplied by 3."""
    own: Any = name if name == "rxtx" else loaded(name, tmp_path)
    a = matrix((75, 41))
    n = 41 if transposed else 75
    old = matrix((n, n), seed=2) + matrix((n, n), seed=2).T
    out, kept = old.copy(), KEEP[triangle](np.ones((n, n), bool))
    bilinear.gram(a, out, algorithm=own, levels=levels, triangle=triangle, transposed=transposed, alpha=3, beta=-2, products="winograd")
    wanted = np.where(kept, 3 * exact(a, transposed) - 2 * old.astype(object), old).astype(float)
    if name == TABLE:
        assert np.abs(out - wanted).max() <= 1e-9 and (out[~kept] == old[~kept]).all()
    else:
        assert (out == wanted).all()
    if triangle is None:
        assert out.tobytes() == np.ascontiguousarray(out.T).tobytes()


@each("dtype", ["float32", "int64", "int8", "longdouble"])
@each("layout", LAYOUTS)
def test_types_and_layouts(dtype: str, layout: str) -> None:
    a = matrix((37, 30), dtype) if dtype != "int8" else matrix((37, 30), dtype) % 3
    out = laid_out(np.zeros((37, 37), dtype), layout)
    assert bilinear.gram(laid_out(a, layout), out, algorithm="rxtx", levels=2) is out
    assert (out == exact(a).astype(dtype)).all()


@each("shape", [(3, 20, 9), (2, 2, 9, 8), (0, 8, 8), (3, 3), (4, 0), (0, 4), (16, 3), (3, 16), (5, 5)])
def test_batches_and_what_the_grid_does_not_divide(shape: tuple[int, ...]) -> None:
    a = matrix(shape)
    assert (bilinear.gram(a, algorithm="rxtx", levels=2) == exact(a)).all()
    wide = np.zeros((*shape[:-1], shape[-2]))
    bilinear.gram(a.astype("float32"), wide, algorithm="rxtx")
    assert (wide == exact(a)).all()


def test_only_one_triangle_of_out_is_read() -> None:
    a = matrix((29, 24))
    for triangle, hidden in (("lower", np.triu_indices(29, 1)), ("upper", np.tril_indices(29, -1)), (None, np.triu_indices(29, 1))):
        out = np.ones((29, 29))
        out[hidden] = np.nan
        bilinear.gram(a, out, algorithm="rxtx", triangle=triangle, beta=1)  # type: ignore[arg-type]
        wanted = (exact(a) + 1).astype(float)
        if triangle is not None:
            wanted[hidden] = np.nan
        assert np.array_equal(out, wanted, equal_nan=True)
    fresh = np.full((29, 29), np.nan)
    assert (bilinear.gram(a, fresh, algorithm="rxtx") == exact(a)).all(), "with beta = 0 it is not read at all"


@pytest.mark.slow
def test_the_workspace_is_what_is_counted_and_limits_are_kept() -> None:
    a, out = np.ones((512, 512), np.float32), np.empty((512, 512), np.float32)
    found = load_any("rxtx")
    assert isinstance(found, LoadedGram)
    counted = gram_blocks.elements_of(found.scheme, 512, 512, 1) * 4
    assert counted == 4 * (3 * 128 * 128 + 7 * 128)
    bilinear.gram(a, out, algorithm="rxtx", levels=1, products="strassen", workspace=counted + 10**6)
    tracemalloc.start()
    bilinear.gram(a, out, algorithm="rxtx", levels=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert counted <= peak < counted + 700_000
    out[...] = 7
    with pytest.raises(BilinearError, match=rf"E535.*rxtx needs {counted} bytes of workspace, {counted - 1} are allowed"):
        bilinear.gram(a, out, algorithm="rxtx", levels=1, workspace=counted - 1)
    with pytest.raises(BilinearError, match="E529"):
        bilinear.gram(a, out, algorithm="rxtx", levels=1, workspace=np.empty(10, np.float32))
    assert (out == 7).all()
    for more in (0, 10**6):
        bilinear.gram(a, out, algorithm="rxtx", levels=1, workspace=np.full(counted + more, 255, np.uint8))
        assert (out == 512).all()


def test_levels_follow_from_the_size() -> None:
    found = load_any("rxtx")
    assert isinstance(found, LoadedGram)
    assert [gram_blocks._levels(found.scheme, n, n) for n in (4, 4096, 16383, 16384, 65536)] == [1, 1, 1, 2, 3]


@pytest.mark.sample(0)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_errors_stay_within_the_reported_bound(dtype: str) -> None:
    generator = np.random.default_rng(8)
    found = load_any("rxtx")
    assert isinstance(found, LoadedGram)
    a = generator.uniform(-1, 1, (260, 4096)).astype(dtype)
    wanted = a.astype(np.longdouble) @ a.astype(np.longdouble).T
    bound = dict(gram_report(found.scheme).errors)[dtype]
    assert np.abs(bilinear.gram(a, algorithm="rxtx", levels=1) - wanted).max() <= bound


@pytest.mark.parametrize("products", ["strassen", "classical"])
def test_a_product_without_room_is_refused_before_out_is_written(products: str) -> None:
    """The strips beside what the grid divides need more memory than the first products."""
    a, codes = matrix((39, 24)), set()
    for workspace in (1000, 4000, 8000, 12000, 20000, 40000, 200000):
        out = np.full((39, 39), 7.0)
        try:
            bilinear.gram(a, out, algorithm="rxtx", levels=1, products=products, workspace=workspace, beta=1)
            codes.add("ran")
        except BilinearError as error:
            codes |= {diagnostic.code for diagnostic in error.diagnostics}
            assert (out == 7).all(), workspace
    assert codes == {"E535", "ran"}
