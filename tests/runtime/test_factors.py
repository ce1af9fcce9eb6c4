"""alpha and beta: numbers of the result's type, or refused before anything is written."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from each_case import each

import bilinear
from bilinear.errors import BilinearError

pytestmark = pytest.mark.filterwarnings("ignore:.* is not used")
WAYS: list[dict[str, Any]] = [{"algorithm": "strassen", "levels": 1}, {"levels": 0}, {}]
BEYOND: list[tuple[str, Any]] = [
    ("f2", 1e5),
    ("f4", 1e300),
    ("f4", -3.5e38),
    ("f4", 10**39),
    ("f4", 10**400),
    ("f4", 10**5000),
    ("f4", np.float64(1e39)),
    ("f4", np.array(1e39)),
    ("f4", Fraction(10**400)),
    ("f4", Decimal("1e400")),
    ("f4", 1j),
    ("f8", 10**400),
    ("f8", np.longdouble("1e400")),
    ("f8", np.complex64(2)),
    ("F", 1e300),
    ("F", complex(0, 1e300)),
    ("i4", 0.5),
    ("i4", 2**31),
    ("u1", -1),
    ("i8", float("nan")),
    ("?", 2),
    *(("i8", 1j), ("u1", 300), ("f8", "2"), ("f8", np.ones(2))),
]


@each("way", WAYS)
@each("name", ["alpha", "beta"])
@each(("dtype", "value"), BEYOND)
def test_what_the_type_cannot_hold_is_refused(dtype: str, value: Any, name: str, way: dict[str, Any]) -> None:
    a, out = np.ones((4, 4), dtype), np.ones((4, 4), dtype)
    with pytest.raises(BilinearError, match="E528") as caught:
        bilinear.matmul(a, a, out, **{name: value}, **way)
    told = "is an array of 1 dimension(s), not a number" if np.ndim(value) else f"is not a number that {a.dtype} can hold"
    assert len(str(caught.value)) < 300 and told in str(caught.value)
    np.testing.assert_array_equal(out, np.ones((4, 4), dtype))


@each("way", WAYS)
@each(
    ("dtype", "value"),
    [
        ("f2", 65504),
        ("f4", 3e38),
        ("f8", 1e300),
        ("f8", 10**308),
        ("f4", Fraction(1, 4)),
        ("f8", Decimal("0.5")),
        ("F", 2j),
        ("i1", -128),
        ("i4", 2.0),
    ],
)
def test_what_it_can_hold_multiplies(dtype: str, value: Any, way: dict[str, Any]) -> None:
    one = np.eye(4, dtype=dtype)
    wanted = one * one.dtype.type(complex(value) if dtype == "F" else value)
    np.testing.assert_array_equal(bilinear.matmul(one, one, alpha=value, algorithm="classical", levels=way.get("levels", 1)), wanted)
    np.testing.assert_array_equal(bilinear.matmul(one, one, one.copy(), alpha=0, beta=value, **way), wanted)


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_inf_and_nan_are_numbers_of_floats(value: float) -> None:
    ones = np.ones((4, 4), "f4")
    np.testing.assert_array_equal(bilinear.matmul(ones, ones, alpha=value), np.full((4, 4), value, "f4"))
    np.testing.assert_array_equal(bilinear.matmul(ones, ones, ones.copy(), beta=value), np.full((4, 4), value, "f4"))


DOUBLED = """scheme doubled <1,1,1;1>
  M1: 1/2 | 1 | 2
schedule twice of doubled: in-place
  stage { A11 = 1/2 A11 }
  stage { 2 C11 += A11 * B11 }
"""


def test_alpha_times_a_coefficient_may_overflow(tmp_path: Path) -> None:
    """The product with the coefficient would be Inf although the results are small. The limit depends on the schedule."""
    path = tmp_path / "doubled.bl"
    path.write_text(DOUBLED)
    loaded = bilinear.load(path)
    a, out = np.full((4, 4), 1e-3, "f4"), np.ones((4, 4), "f4")
    with pytest.raises(BilinearError, match=r"E528.*alpha=3e\+38 times 2, a coefficient") as caught:
        bilinear.matmul(a.copy(), a, out, alpha=3e38, algorithm=loaded, levels=1, inputs="consume")
    np.testing.assert_array_equal(out, 1)
    assert "levels=0" in str(caught.value)
    bilinear.matmul(a.copy(), a, out, alpha=1.5e38, algorithm=loaded, levels=1, inputs="consume")
    np.testing.assert_allclose(out, 4 * 1.5e38 * 1e-6, rtol=1e-5)


@each("way", WAYS[:2])
@each("value", ["x", None, object(), b"2", {}, Decimal(2)])
@each("name", ["alpha", "beta"])
def test_objects_are_multiplied_by_what_multiplies_them(name: str, value: Any, way: dict[str, Any]) -> None:
    a = np.array([[Fraction(i, j) for i in (1, 2)] for j in (3, 4)], object)
    out = a.copy()
    with pytest.raises(BilinearError, match=f"E528.*{name}=.* cannot multiply the objects in the arrays"):
        bilinear.matmul(a, a, out, **{name: value}, **way)
    np.testing.assert_array_equal(out, a)


@pytest.mark.parametrize("way", WAYS[:2])
def test_objects_are_multiplied_by_numbers_of_their_own(way: dict[str, Any]) -> None:
    a = np.array([[Fraction(i, j) for i in (1, 2)] for j in (3, 4)], object)
    wanted = Fraction(1, 3) * (a @ a) + Fraction(2, 7) * a
    np.testing.assert_array_equal(bilinear.matmul(a, a, a.copy(), alpha=Fraction(1, 3), beta=Fraction(2, 7), **way), wanted)


def test_factors_of_an_empty_product_of_objects() -> None:
    a, b, out = np.empty((2, 0), object), np.empty((0, 2), object), np.array([[1, 2], [3, 4]], object)
    np.testing.assert_array_equal(bilinear.matmul(a, b, out.copy(), beta=3), 3 * out)
    with pytest.raises(BilinearError, match="E528"):
        bilinear.matmul(a, b, out, beta="x")


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_numpy_factors_multiply_large_integers_of_objects(way: dict[str, Any]) -> None:
    a, b, out = (np.array([[value]], dtype=object) for value in (10**30, 3, 10**40))
    assert bilinear.matmul(a, b, out, alpha=np.int8(3), beta=np.array(2), **way)[0, 0] == 9 * 10**30 + 2 * 10**40


def test_a_result_of_no_dimensions_takes_factors() -> None:
    a, out = np.array([10**30, 1], dtype=object), np.array(7, dtype=object)
    assert bilinear.matmul(a, a, out, beta=2)[()] == 10**60 + 15


@each("alpha", [2, -0.5, 2**62, 2**70, Fraction(1, 3), np.array(-0.5)])
def test_the_inner_product_of_objects_keeps_their_arithmetic(alpha: Any) -> None:
    """It is an object and no array, which NumPy's functions would convert to int64 or float64."""
    x = np.array([3, 4, 5], object)
    plain = alpha.item() if isinstance(alpha, np.ndarray) else alpha
    wanted = 50 * plain
    found = bilinear.matmul(x, x, alpha=alpha)
    assert found == wanted and type(found) is type(wanted)
    out = np.array(7, object)
    assert bilinear.matmul(x, x, out, alpha=alpha, beta=2) is out and out.item() == wanted + 14


def test_a_factor_that_multiplies_no_sum_of_no_terms_is_refused() -> None:
    """Objects with no inner extent have no element to try the factor on, but their product is there: zeros."""
    a, b, out = np.empty((3, 0), object), np.empty((0, 3), object), np.full((3, 3), 5, object)
    with pytest.raises(BilinearError, match="E528"):
        bilinear.matmul(a, b, out, alpha="2", beta=1, algorithm="strassen", levels=1)
    assert (out == 5).all()
    assert (bilinear.matmul(a, b, out, alpha=2, beta=1, algorithm="strassen", levels=1) == 5).all()
