"""`matmul` beside `numpy.matmul`: shapes, batches, vectors, empty sizes, types, `out`, and what is refused."""

from __future__ import annotations

import logging
import re
import sys
import warnings
from math import prod
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from each_case import each
from pages import ROOT
from runtime.operands import integers

import bilinear
from bilinear.errors import BilinearError
from bilinear.frontend import Loaded
from bilinear.runtime.integers import scheme_for
from bilinear.runtime.operands import layouts_of
from bilinear.runtime.options import Options

pytestmark = pytest.mark.filterwarnings("ignore:.* is not used")
SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((5, 7), (7, 4)),
    ((7,), (7, 4)),
    ((5, 7), (7,)),
    ((7,), (7,)),
    ((3, 5, 7), (7, 4)),
    ((5, 7), (3, 7, 4)),
    ((3, 5, 7), (3, 7, 4)),
    ((3, 1, 5, 7), (2, 7, 4)),
    ((2, 1, 5, 7), (1, 3, 7, 4)),
    ((7,), (3, 7, 4)),
    ((3, 5, 7), (7,)),
    ((1, 1), (1, 1)),
    ((0, 7), (7, 4)),
    ((5, 0), (0, 4)),
    ((5, 7), (7, 0)),
    ((0, 0), (0, 0)),
    ((0,), (0,)),
    ((0,), (0, 3)),
    ((0, 5, 7), (7, 4)),
    ((2, 0, 5, 7), (7, 4)),
    ((5, 7), (6, 4)),
    ((7,), (6,)),
    ((3, 5, 7), (2, 7, 4)),
    ((), (3, 3)),
    ((3, 3), ()),
]
TYPES = ["?", "i1", "u1", "i4", "u8", "i8", "f2", "f4", "f8", ">f8", "g", "F", "D", "O", "S1", "m8[s]"]


def outcome(call: Any, *operands: Any, **options: Any) -> Any:
    """The result of a call, or the kind of error that it raised."""
    try:
        return call(*operands, **options)
    except (TypeError, ValueError) as error:
        return TypeError if isinstance(error, TypeError) else ValueError


def assert_same(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, type):
        assert ours is theirs
        return
    assert type(ours) is type(theirs)
    assert np.asarray(ours).dtype == np.asarray(theirs).dtype and np.shape(ours) == np.shape(theirs)
    np.testing.assert_array_equal(ours, theirs)


@each("algorithm", ["auto", "strassen", "hopcroft_kerr"])
@each(("left", "right"), SHAPES)
def test_shapes(left: tuple[int, ...], right: tuple[int, ...], algorithm: str) -> None:
    generator = np.random.default_rng(0)
    a, b = integers(generator, left), integers(generator, right)
    theirs = outcome(np.matmul, a, b)
    assert_same(outcome(bilinear.matmul, a, b, algorithm=algorithm), theirs)
    if not isinstance(theirs, type):
        out = np.full(np.shape(theirs), np.nan)
        assert bilinear.matmul(a, b, out, algorithm=algorithm) is out
        np.testing.assert_array_equal(out, theirs)


@each("algorithm", ["auto", "strassen"])
@each("right", TYPES)
@each("left", TYPES)
def test_types(left: str, right: str, algorithm: str) -> None:
    generator = np.random.default_rng(0)
    a, b = (integers(generator, shape, np.int64, 0, 2).astype(t) for shape, t in (((5, 6), left), ((6, 4), right)))
    assert_same(outcome(bilinear.matmul, a, b, algorithm=algorithm), outcome(np.matmul, a, b))


OUTS = [
    ((5, 4), "f8"),
    ((5, 4), ">f8"),
    ((5, 4), "f4"),
    ((5, 4), "g"),
    ((5, 4), "D"),
    ((5, 4), "i8"),
    ((5, 4), "O"),
    ((5, 3), "f8"),
    ((4,), "f8"),
    ((1, 5, 4), "f8"),
    ((2, 3, 5, 4), "f8"),
    ((20,), "f8"),
    ((), "f8"),
]


@each("algorithm", ["auto", "strassen"])
@each("operand", ["f8", "f4", "i4"])
@each(("shape", "dtype"), OUTS)
def test_out(shape: tuple[int, ...], dtype: str, operand: str, algorithm: str) -> None:
    generator = np.random.default_rng(0)
    a, b = integers(generator, (5, 6), operand), integers(generator, (6, 4), operand)
    ours, theirs = np.zeros(shape, dtype), np.zeros(shape, dtype)
    got, wanted = outcome(bilinear.matmul, a, b, ours, algorithm=algorithm), outcome(np.matmul, a, b, out=theirs)
    assert (got is ours) if wanted is theirs else (got is wanted)
    np.testing.assert_array_equal(ours, theirs)


@each("algorithm", ["auto", "strassen"])
@each("operand", ["i8", "f4", "f8", "f2", "D", "?", "O"])
def test_factors_in_every_type(operand: str, algorithm: str) -> None:
    generator = np.random.default_rng(0)
    whole = [integers(generator, shape, np.int64, 0, 2) for shape in ((5, 6), (6, 4), (5, 4))]
    a, b, out = (x.astype(operand) for x in whole)
    wanted = (whole[0] @ whole[1]).astype(operand) + whole[2].astype(operand)
    bilinear.matmul(a, b, out, alpha=1, beta=1, algorithm=algorithm)
    np.testing.assert_array_equal(out, wanted)
    out[...] = 1
    bilinear.matmul(a, b, out, alpha=0, beta=1, algorithm=algorithm)
    np.testing.assert_array_equal(out, np.ones_like(out))


@pytest.mark.parametrize("algorithm", ["auto", "strassen"])
def test_beta_scales_out_in_its_own_type(algorithm: str) -> None:
    """The product is of float32; `out` holds 1 + 2**-40, which float32 cannot."""
    a = np.ones((4, 4), np.float32)
    out = np.full((4, 4), 1 + 2.0**-40)
    bilinear.matmul(a, a, out, beta=0.5, algorithm=algorithm)
    np.testing.assert_array_equal(out, 4.5 + 2.0**-41)


def test_zero_alpha_reads_no_operand() -> None:
    a = np.full((6, 6), np.nan)
    out = np.ones((6, 6))
    bilinear.matmul(a, a, out, alpha=0, beta=2, algorithm="strassen")
    np.testing.assert_array_equal(out, 2)
    np.testing.assert_array_equal(bilinear.matmul(a, a, np.full((6, 6), np.nan), alpha=0, algorithm="strassen"), 0)


def test_lists_scalars_of_numpy_and_subclasses() -> None:
    product = bilinear.matmul([[1, 2], [3, 4]], [[5, 6], [7, 8]], algorithm="strassen")
    assert_same(product, np.array([[19, 22], [43, 50]]))
    assert_same(bilinear.matmul([1.0, 2.0], [3.0, 4.0], algorithm="strassen"), np.float64(11))
    masked = np.ma.array(np.eye(4), mask=np.eye(4, dtype=bool))
    for algorithm in ("auto", "strassen"):
        assert_same(bilinear.matmul(masked, masked, algorithm=algorithm).mask, np.matmul(masked, masked).mask)


@pytest.mark.parametrize(("dtype", "reason"), [("f2", "float16"), ("?", "bool")])
def test_what_no_schedule_covers_goes_to_the_library_and_the_user_is_warned(
    dtype: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    a = np.ones((4, 4), dtype)
    said = f"strassen is not used: no schedule runs on {reason}; the library multiplies .schedules run on dense arrays of integers, float32"
    with caplog.at_level(logging.DEBUG, "bilinear"), pytest.warns(UserWarning, match=said) as warned:
        assert_same(bilinear.matmul(a, a, algorithm="strassen"), np.matmul(a, a))
    assert "the library's multiply" in caplog.text and reason in caplog.text
    assert [warning.filename for warning in warned] == [__file__], "the warning points at the call"


@pytest.mark.parametrize("options", [{}, {"algorithm": "strassen", "levels": 0}, {"algorithm": "strassen", "alpha": 0}])
def test_a_warning_needs_an_algorithm_that_is_named_and_not_used(options: dict[str, Any]) -> None:
    a = np.ones((4, 4), "f2")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bilinear.matmul(a, a, **options)


@pytest.mark.parametrize("options", [{"algorithm": "auto"}, {"algorithm": "strassen", "levels": 0}])
def test_the_library_gives_its_own_bits(options: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    generator = np.random.default_rng(0)
    a, b = generator.standard_normal((50, 60)), generator.standard_normal((60, 40))
    with caplog.at_level(logging.DEBUG, "bilinear"):
        assert bilinear.matmul(a, b, **options).tobytes() == np.matmul(a, b).tobytes()
    assert "the library's multiply" in caplog.text


@each(
    ("options", "code"),
    [
        ({"inputs": "keep"}, "E513"),
        ({"levels": -1}, "E514"),
        ({"levels": 1.5}, "E514"),
        ({"levels": True}, "E514"),
        ({"beta": 1}, "E515"),
        ({"algorithm": "strassen", "levels": 12}, "E501"),
    ],
)
def test_our_own_options_are_checked(options: Any, code: str) -> None:
    with pytest.raises(BilinearError) as caught:
        bilinear.matmul(np.eye(4), np.eye(4), **options)
    assert caught.value.diagnostics[0].code == code


def test_an_unknown_algorithm_is_refused_also_where_it_would_not_run() -> None:
    every: list[dict[str, Any]] = [{}, {"levels": 0}, {"alpha": 0}]
    for options in every:
        with pytest.raises(BilinearError):
            bilinear.matmul(np.eye(2), np.eye(2), algorithm="strasen", **options)


LEVELS: list[tuple[Any, str, int]] = [
    ("strassen:2", "strassen", 2),
    ("winograd+strassen", "winograd+strassen", 2),
    (["winograd", "strassen"], "winograd+strassen", 2),
    (("classical:2", bilinear.load("hopcroft_kerr")), "classical+classical+hopcroft_kerr", 3),
    (["classical"], "classical", 1),
    ("strassen+strassen", "strassen", 2),
]


@each(("algorithm", "name", "levels"), LEVELS)
@each("modulus", [None, 7])
def test_levels_are_named_one_by_one(algorithm: Any, name: str, levels: int, modulus: int | None) -> None:
    asked = Options(algorithm=algorithm).as_named()
    assert isinstance(asked.algorithm, Loaded) and (asked.algorithm.name, asked.levels) == (name, levels)
    assert asked.algorithm is Options(algorithm=algorithm).as_named().algorithm, "the same object, by which decisions are cached"
    generator = np.random.default_rng(0)
    a, b = integers(generator, (13, 22), np.int64), integers(generator, (22, 17), np.int64)
    wanted = a @ b if modulus is None else a @ b % modulus
    np.testing.assert_array_equal(bilinear.matmul(a, b, algorithm=algorithm, modulus=modulus), wanted)
    scheme = scheme_for(asked, layouts_of(a, b, None))
    each = [bilinear.load(own).scheme for own in (name.split("+") if "+" in name else [name] * levels)]
    assert scheme.rank == prod(own.rank for own in each), "what residues run on a GPU"


@each(
    ("options", "code"),
    [
        ({"algorithm": "strassen:2", "levels": 2}, "E514"),
        ({"algorithm": ["strassen"], "levels": 1}, "E514"),
        ({"algorithm": []}, "E514"),
        ({"algorithm": "strassen:21"}, "E514"),
        ({"algorithm": "strassen:0"}, "E121"),
        ({"algorithm": "strassen+"}, "E121"),
        ({"algorithm": ["strassen", "strasen"]}, "E121"),
        ({"algorithm": ["strassen", "complex3"]}, "E236"),
        ({"algorithm": "strassen:9"}, "E501"),
        ({"algorithm": ["winograd", "msmes"], "inputs": "restore"}, "E525"),
    ],
)
def test_levels_that_cannot_be_named_so(options: Any, code: str) -> None:
    with pytest.raises(BilinearError) as caught:
        bilinear.matmul(np.eye(4), np.eye(4), **options)
    assert caught.value.diagnostics[0].code == code


FRACTIONAL = """
scheme halved <1,1,1;1>
#      A11 | B11 | C11
  M1:  1/2 |   1 |   2
"""


def test_fractions_in_a_scheme_are_refused_for_integers_only(tmp_path: Any) -> None:
    path = tmp_path / "halved.bl"
    path.write_text(FRACTIONAL)
    a = np.full((3, 3), 5)
    with pytest.raises(BilinearError, match="E528"):
        bilinear.matmul(a, a, algorithm=str(path), levels=1)
    np.testing.assert_array_equal(bilinear.matmul(a.astype(float), a.astype(float), algorithm=str(path), levels=1), a @ a)
    np.testing.assert_array_equal(bilinear.matmul(a.astype(object), a.astype(object), algorithm=str(path), levels=2), a @ a)


LAST = [{"algorithm": "strassen", "levels": 1}, {"levels": 0}, {"alpha": 2}, {"algorithm": "winograd", "alpha": 2, "levels": 1}]


@each("options", LAST)
@each("dimensions", [3, 32, 33, 34, 35, 63, 64])
def test_arrays_of_as_many_dimensions_as_numpy_has(dimensions: int, options: dict[str, Any]) -> None:
    if dimensions > 32 and np.lib.NumpyVersion(np.__version__) < "2.0.0":
        pytest.skip("this NumPy has 32")
    extents = (2,) + (1,) * (dimensions - 4) + (3,) if dimensions > 3 else (6,)
    a = np.arange(np.prod(extents) * 16.0).reshape(*extents, 4, 4) % 9
    alpha = options.get("alpha", 1)
    for b in (a, a[(0,) * (dimensions - 2)], np.arange(4.0), np.ones((3, 4, 4)) if dimensions > 3 else a):
        assert_same(bilinear.matmul(a, b, **options), alpha * np.matmul(a, b))
        out = np.empty(np.matmul(a, b).shape)
        assert bilinear.matmul(a, b, out, **options) is out
        np.testing.assert_array_equal(out, alpha * np.matmul(a, b))
    assert_same(bilinear.matmul(np.arange(4.0), a, **options), alpha * np.matmul(np.arange(4.0), a))
    restored = a.copy()
    np.testing.assert_array_equal(bilinear.matmul(restored, a.copy(), algorithm="msmes", levels=1, inputs="restore", tolerance=1), a @ a)
    np.testing.assert_array_equal(restored, a)
    with pytest.raises(ValueError, match=r"broadcast"):
        bilinear.matmul(a, np.ones((5, 4, 4)), **options)


class Told(np.ndarray[Any, Any]):
    """A subclass with an attribute of its own."""

    def __array_finalize__(self, source: Any) -> None:
        self.told = getattr(source, "told", None)


class Urgent(np.ndarray[Any, Any]):
    """A subclass with a high priority."""

    __array_priority__ = 12.0


class Own(np.ndarray[Any, Any]):
    """A subclass with its own multiply."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [np.asarray(x) for x in inputs]
        return getattr(ufunc, method)(*plain, **options).view(Own)


def subclasses() -> dict[str, Any]:
    whole = np.arange(16.0).reshape(4, 4)
    told = whole.view(Told)
    told.told = "kept"
    mask = np.eye(4, dtype=bool)
    arrays = {"plain": whole, "told": told, "urgent": whole.view(Urgent), "matrix": whole.view(np.matrix), "own": whole.view(Own)}
    return {
        **arrays,
        "masked": np.ma.array(whole, mask=mask),
        "vector": np.arange(4.0),
        "told vector": told[0],
        "memory": whole.view(np.memmap),
    }


@each("options", LAST)
@each("first", list(subclasses()))
@each("second", list(subclasses()))
def test_subclasses_come_back_as_numpy_gives_them(first: str, second: str, options: dict[str, Any]) -> None:
    a, b = subclasses()[first], subclasses()[second]
    try:
        wanted = np.matmul(a, b)
    except (ValueError, TypeError) as error:  # NumPy's masked arrays cannot multiply these
        with pytest.raises(type(error)):
            bilinear.matmul(a, b, **options)
        return
    found = bilinear.matmul(a, b, **options)
    assert type(found) is type(wanted) and np.shape(found) == np.shape(wanted)
    assert getattr(found, "told", None) == getattr(wanted, "told", None)
    np.testing.assert_array_equal(np.asarray(found), options.get("alpha", 1) * np.asarray(wanted))
    np.testing.assert_array_equal(np.ma.getmaskarray(found), np.ma.getmaskarray(wanted))


@pytest.mark.parametrize("options", [*LAST[:2], {}])
def test_a_masked_out_is_what_numpy_makes_of_it(options: dict[str, Any]) -> None:
    a, mask = np.arange(16.0).reshape(4, 4), np.eye(4, dtype=bool)
    out, wanted = np.ma.array(np.zeros((4, 4)), mask=mask), np.ma.array(np.zeros((4, 4)), mask=mask)
    np.matmul(a, a, out=wanted)
    assert bilinear.matmul(a, a, out, **options) is out
    np.testing.assert_array_equal(out.data, wanted.data)
    np.testing.assert_array_equal(np.ma.getmaskarray(out), np.ma.getmaskarray(wanted))
    plain = np.zeros((4, 4))
    assert type(bilinear.matmul(a.view(np.matrix), a, plain, **options)) is np.ndarray


def test_the_page_names_every_function_of_a_plain_call() -> None:
    """docs/architecture.md follows a call function by function: these are entered, and no other."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("## Function by function\n")[2].partition("\n## ")[0]
    rows = [row.split(" | ")[:2] for row in table.splitlines() if row.startswith("| `")]
    told = [f"{file.strip('`')}:{name}" for names, file in rows for name in re.findall(r"`(\w+)`", names)]
    a, entered = np.ones((64, 64)), dict[str, None]()
    package = str(Path(bilinear.__file__).parent)

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(package) and not code.co_name.startswith("<"):
            entered[f"{Path(code.co_filename).relative_to(package).as_posix()}:{code.co_name}"] = None

    bilinear.matmul(a, a + 1)
    sys.setprofile(note)
    bilinear.matmul(a, a + 1)
    sys.setprofile(None)
    assert sorted(entered) == sorted(told) and len(told) <= 25
