"""Schemes from arrays in memory: either orientation of the tables and of C, every kind of number, and the errors."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import bilinear
from bilinear.errors import BilinearError
from bilinear.frontend import load
from bilinear.interchange.arrays import exact_number, scheme_from_arrays
from bilinear.interchange.importing import import_arrays
from bilinear.ir.number import generator
from bilinear.ir.scheme import Scheme


def tables(scheme: Scheme) -> list[Any]:
    """U, V and W with a column a product, dense."""
    u, v, w = scheme.tables
    dense: list[Any] = [np.zeros((blocks, scheme.rank)) for blocks in (scheme.m * scheme.k, scheme.k * scheme.n, len(w))]
    for table, rows in zip(dense, (u, v), strict=False):
        for product, row in enumerate(rows):
            for i, c in row:
                table[i, product] = c
    for i, row in enumerate(w):
        for product, c in row:
            dense[2][i, product] = c
    return dense


@pytest.mark.parametrize("name", ["strassen", "winograd", "hopcroft_kerr"])
@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("dtype", ["i4", "f4", "f8", "c16", "O"])
def test_either_orientation_of_the_tables(name: str, rows: bool, dtype: str) -> None:
    scheme = load(name).scheme
    u, v, w = (table.astype(dtype).T if rows else table.astype(dtype) for table in tables(scheme))
    assert scheme_from_arrays(u, v, w).tables == scheme.tables
    assert scheme_from_arrays(u.tolist(), v.tolist(), w.tolist()).tables == scheme.tables


@pytest.mark.parametrize("turned", range(8))
def test_each_table_has_an_orientation_of_its_own(turned: int) -> None:
    scheme = load("strassen").scheme
    u, v, w = (table.T if turned >> i & 1 else table for i, table in enumerate(tables(scheme)))
    assert scheme_from_arrays(u, v, w).tables == scheme.tables


def test_the_orientation_of_c_is_found_or_taken_as_it_is_said() -> None:
    scheme = load("hopcroft_kerr").scheme
    u, v, w = tables(scheme)
    turned = np.array([w[i * scheme.n + j] for j in range(scheme.n) for i in range(scheme.m)])
    assert not import_arrays(u, v, w).transposed
    found = import_arrays(u, v, turned)
    assert found.transposed and found.found == ("C is transposed",) and found.scheme.tables == scheme.tables
    assert import_arrays(u, v, turned, transposed=True).scheme.tables == scheme.tables
    with pytest.raises(BilinearError, match=r"E356.*\n.*\n.*with transposed=True it holds"):
        import_arrays(u, v, turned, transposed=False)
    with pytest.raises(BilinearError, match=r"with transposed=False it holds"):
        import_arrays(u, v, w, transposed=True)


@pytest.mark.parametrize("transposed", [False, True])
def test_c_of_matrices_that_are_not_square(transposed: bool) -> None:
    """The classical product of a 2 x 1 and a 1 x 3 matrix; block (i, j) of C is 3i + j, or 2j + i where C is transposed."""
    pairs = [(i, j) for i in range(2) for j in range(3)]
    u, v = np.array([[int(i == x) for i, _ in pairs] for x in range(2)]), np.array([[int(j == x) for _, j in pairs] for x in range(3)])
    places = [2 * j + i if transposed else 3 * i + j for i, j in pairs]
    w = np.array([[int(place == x) for place in places] for x in range(6)])
    for said in (None, transposed):
        found = import_arrays(u, v, w, transposed=said)
        assert found.transposed is transposed and found.scheme.format == "<2,1,3;6>"
        assert found.scheme.w.matrix == tuple(((product, 1),) for product in range(6))
    with pytest.raises(BilinearError, match="E356"):
        import_arrays(u, v, w, transposed=not transposed)


def test_the_result_multiplies() -> None:
    algorithm = bilinear.from_arrays(*tables(load("winograd").scheme), name="mine")
    a, b = np.arange(16).reshape(4, 4), np.arange(16).reshape(4, 4)[::-1]
    assert np.array_equal(algorithm.matmul(a, b, levels=1), a @ b)
    assert algorithm.verify().scheme.name == "mine" and "scheme mine <2,2,2;7>" in algorithm.source.text


def test_the_ring_is_found_or_taken_as_it_is_said() -> None:
    u, v, w = (np.abs(table) for table in tables(load("strassen").scheme))
    assert str(import_arrays(u, v, w).scheme.ring) == "Z/2"
    with pytest.raises(BilinearError, match=r"E356.*over Q does not multiply(.|\n)*ring='Z/2'"):
        import_arrays(u, v, w, ring="Q")
    with pytest.raises(BilinearError, match="E203"):
        import_arrays(u, v, w, ring="F2")
    signed = tables(load("strassen").scheme)
    signed[2][0, 0] *= -1
    with pytest.raises(BilinearError, match=r"E356(.|\n)*holds over Z/2: give ring='Z/2'"):
        import_arrays(*signed)


def test_complex_numbers_are_of_q_of_i() -> None:
    scheme = import_arrays([[1j]], [[-1j]], [[1.0]]).scheme
    assert str(scheme.ring) == "Q[i]" and scheme.u.outputs == ((((0, generator("i"))),),)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (np.float64(1) / 3, Fraction(1, 3)),
        (np.float32(1) / np.float32(3), Fraction(1, 3)),
        (np.float16(0.125), Fraction(1, 8)),
        (-2.0, -2),
        (np.int8(-3), -3),
        (True, 1),
        (0.1, Fraction(1, 10)),
        (2.0**-20, Fraction(1, 2**20)),
        (2.0**-40 + 2.0**-70, Fraction(2**30 + 1, 2**70)),
        (33124 / 38165, Fraction(33124, 38165)),
        (Fraction(5, 7), Fraction(5, 7)),
        (1.5 + 2j, Fraction(3, 2) + generator("i") * 2),
        (np.complex64(2), 2),
    ],
)
def test_every_kind_of_number(value: Any, number: Any) -> None:
    assert exact_number(value, "x") == number


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, "1", None, 1e300, 1e-300, complex(0, np.nan), Fraction(1, 3**200), [1]])
def test_what_is_no_coefficient(value: Any) -> None:
    with pytest.raises(BilinearError, match="E357"):
        exact_number(value, "x")


@pytest.mark.parametrize(
    ("arrays", "code"),
    [
        (([1], [[1]], [[1]]), "E357"),
        (([[1]], [[[1]]], [[1]]), "E357"),
        (([[1], [1, 2]], [[1]], [[1]]), "E357"),
        ((np.array([["1"]]), [[1]], [[1]]), "E357"),
        (([[np.nan]], [[1]], [[1]]), "E357"),
        (([[10**5000]], [[1]], [[1]]), "E357"),
        (([[Fraction(1, 10**5000)]], [[1]], [[1]]), "E357"),
        ((np.zeros((0, 0)), np.zeros((0, 0)), np.zeros((0, 0))), "E253"),
        (([[1, 1]], [[1]], [[1]]), "E253"),
        (([[1], [1], [1]], [[1], [1]], [[1], [1]]), "E253"),
        ((np.ones((400, 400)), [[1]], [[1]]), "E357"),
    ],
)
def test_what_is_no_scheme(arrays: Any, code: str) -> None:
    with pytest.raises(BilinearError, match=code):
        import_arrays(*arrays)
