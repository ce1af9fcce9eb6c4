"""Proofs of other bilinear maps, also with structure, beside integers; and which map an algorithm, or a file of flip-cpd, computes."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from each_case import each

from bilinear.errors import BilinearError
from bilinear.frontend import load
from bilinear.interchange.importing import Imported, import_file
from bilinear.interchange.reader_parts import Maps
from bilinear.interchange.targets import KINDS, Identified, identify, structured_product
from bilinear.ir.bilinear_map import (
    BilinearAlgorithm,
    BilinearMap,
    polynomial_product,
    product_modulo,
    product_with_transpose,
)
from bilinear.ir.linear import LinearMap
from bilinear.ir.number import is_negative, rational
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Scheme, block_name
from bilinear.source import Source
from bilinear.verify.bilinear_map import is_division_algebra, prove_map
from bilinear.verify.scheme import prove_scheme

KARATSUBA = (((0, 1),), ((0, 1), (1, 1)), ((1, 1),)), (((0, 1),), ((1, 1), (0, -1), (2, -1)), ((2, 1),))


def grid(matrix: str, rows: int, columns: int) -> tuple[str, ...]:
    return tuple(block_name(matrix, i, j) for i in range(rows) for j in range(columns))


def as_algorithm(scheme: Scheme) -> BilinearAlgorithm:
    """A scheme as an algorithm for the product of matrices."""
    u, v, w = scheme.tables
    maps = (LinearMap(scheme.m * scheme.k, u), LinearMap(scheme.k * scheme.n, v), LinearMap(scheme.rank, w))
    return BilinearAlgorithm(scheme.name, matrix_product(scheme.m, scheme.k, scheme.n), *maps, scheme.ring)


def matrix_product(m: int, k: int, n: int) -> BilinearMap:
    """The product of an m x k and a k x n matrix, blocks numbered row by row."""
    rows = tuple(tuple((i * k + p, p * n + j, 1) for p in range(k)) for i in range(m) for j in range(n))
    return BilinearMap(f"matrices <{m},{k},{n}>", grid("A", m, k), grid("B", k, n), grid("C", m, n), rows)


def karatsuba(name: str = "karatsuba") -> Maps:
    """The product of a0 + a1 x and b0 + b1 x with three products."""
    factors = LinearMap(2, KARATSUBA[0])
    return Maps(Source("k", ""), name, factors, factors, LinearMap(3, (((0, 1),), ((0, -1), (1, 1), (2, -1)), ((2, 1),))))


def values(target: BilinearMap, left: list[int], right: list[int]) -> list[int]:
    return [sum(int(str(c)) * left[i] * right[j] for i, j, c in row) for row in target.rows]


@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (2, 3, 4), (3, 1, 2)])
def test_the_product_of_matrices(m: int, k: int, n: int) -> None:
    draw = random.Random(m)
    a, b = [draw.randint(-9, 9) for _ in range(m * k)], [draw.randint(-9, 9) for _ in range(k * n)]
    target = matrix_product(m, k, n)
    assert values(target, a, b) == (np.array(a).reshape(m, k) @ np.array(b).reshape(k, n)).ravel().tolist()
    assert target.left[-1] == f"A{m}{k}" and target.outputs[-1] == f"C{m}{n}"


@pytest.mark.parametrize(("m", "k", "upper", "first"), [(2, 2, False, 0), (4, 4, True, 15), (3, 2, True, 0), (3, 2, False, 5)])
def test_the_product_with_the_transpose(m: int, k: int, upper: bool, first: int) -> None:
    a = np.random.default_rng(1).integers(-9, 9, (m, k))
    held = np.roll(a.ravel(), -first).tolist()
    found = values(product_with_transpose(m, k, upper, first), held, held)
    assert found == (a @ a.T)[np.triu_indices(m) if upper else np.tril_indices(m)].tolist()


@pytest.mark.parametrize(("left", "right"), [(0, 0), (1, 1), (3, 2)])
def test_the_product_of_polynomials(left: int, right: int) -> None:
    a, b = list(range(1, left + 2)), list(range(5, right + 6))
    wanted = np.convolve(a, b).tolist()
    for degree in range(left + right + 1):
        assert values(polynomial_product(left, right, degree), a, b) == wanted[: degree + 1]


@pytest.mark.parametrize(("polynomial", "p"), [((1, 1), 2), ((1, 2, 0, 0, 0), 3), ((3, 1, 4), 5)])
def test_the_product_modulo_a_polynomial(polynomial: tuple[int, ...], p: int) -> None:
    a, b = list(range(len(polynomial))), list(range(2, 2 + len(polynomial)))
    found = [c % p for c in values(product_modulo(polynomial, p), a, b)]
    rest = np.polydiv(np.convolve(a, b)[::-1], np.array([1, *polynomial[::-1]]))[1]
    wanted = [round(c) % p for c in rest[::-1]]
    assert found == (wanted + [0] * len(polynomial))[: len(polynomial)]


@pytest.mark.parametrize("name", ["strassen", "winograd", "hopcroft_kerr"])
def test_the_general_proof_agrees_with_that_of_schemes(name: str) -> None:
    scheme, draw = load(name).scheme, random.Random(3)
    assert prove_map(as_algorithm(scheme)).holds
    for _ in range(30):
        number = draw.randrange(len(scheme.w.outputs))
        outputs = [list(row) for row in scheme.w.outputs]
        place = draw.randrange(len(outputs[number]))
        index, c = outputs[number][place]
        outputs[number][place] = (index, c * draw.choice((-1, 2, Fraction(1, 3))))
        wrong = replace(scheme, w=LinearMap(scheme.w.inputs, tuple(map(tuple, outputs)), scheme.w.steps))
        proof, other = prove_scheme(wrong), prove_map(as_algorithm(wrong))
        assert not other.holds and len(other.differences) == len(proof.failures)
        assert {(d.output, d.left, d.right, d.found) for d in other.differences} == {
            (e.output, e.left, e.right, e.found) for e in proof.failures
        }


def test_a_wrong_algorithm_is_told_where_it_differs() -> None:
    maps = karatsuba()
    algorithm = BilinearAlgorithm("k", polynomial_product(1, 1, 2), maps.u, maps.v, LinearMap(3, (((0, 1),), ((1, 1), (0, 1)), ((2, 3),))))
    proof = prove_map(algorithm)
    told = [str(d) for d in proof.differences]
    assert told == [
        "a0*b0 in c1: found 2, needed 0",
        "a1*b1 in c1: found 1, needed 0",
        "a1*b1 in c2: found 3, needed 1",
    ]
    with pytest.raises(BilinearError, match=r"E350.*k does not compute polynomials of degrees 1 and 1 over Q: 3 coefficients differ"):
        proof.require()
    with pytest.raises(BilinearError, match="E253"):
        prove_map(replace(algorithm, target=polynomial_product(1, 1, 1)))
    with pytest.raises(BilinearError, match="E302"):
        prove_map(replace(algorithm, ring=Ring("Z"), w=LinearMap(3, (((0, Fraction(1, 2)),), (), ()))))


def test_outputs_that_are_their_own_transpose() -> None:
    """The coefficient of X*Y^T counts with that of Y*X^T in a diagonal block, and nowhere else."""
    target = product_with_transpose(2, 1, upper=True)
    u = LinearMap(2, (((0, 1),), ((0, 1),), ((1, 1),), ((0, 1),), ((1, 1),)))
    v = LinearMap(2, (((0, 1),), ((1, 1),), ((1, 1),), ((1, 1),), ((0, 1),)))
    rows = (((0, 1), (3, 1), (4, -1)), ((1, 1),), ((2, 1),))
    assert prove_map(BilinearAlgorithm("x", target, u, v, LinearMap(5, rows))).holds
    wrong = LinearMap(5, (((0, 1),), ((4, 1),), ((2, 1),)))
    assert not prove_map(BilinearAlgorithm("x", target, u, v, wrong)).holds


def test_what_an_algorithm_computes_is_found_out() -> None:
    found = identify(karatsuba())
    assert found is not None and found.title == "polynomials of degrees 1 and 1" and found.ring == "Q"
    halved = replace(karatsuba(), w=LinearMap(3, (((0, 1),), ((0, 1), (1, 1), (2, 1)), ((2, 1),))))
    found = identify(halved)
    assert found is not None and found.ring == "Z/2" and found.proof is not None and found.proof.holds
    less = replace(karatsuba(), w=LinearMap(3, (((0, 1),), ((0, -1), (1, 1)), ((2, 1),))))
    found = identify(less)
    assert found is not None and found.proof is None
    assert found.missing == "a further product, which adds (-1)*a1*b1 to c1: then it computes polynomials of degrees 1 and 1"
    nothing = replace(karatsuba(), w=LinearMap(3, (((0, 5),), ((0, 7),), ((2, 1), (1, 1)))))
    assert identify(nothing) is None


def complex_product(sign: int) -> Maps:
    """(a0 + a1 x)(b0 + b1 x) with x^2 = sign, four products."""
    u, v = LinearMap(2, (((0, 1),), ((1, 1),), ((0, 1),), ((1, 1),))), LinearMap(2, (((0, 1),), ((1, 1),), ((1, 1),), ((0, 1),)))
    return Maps(Source("f", ""), "x_F9_4", u, v, LinearMap(4, (((0, 1), (1, sign)), ((2, 1), (3, 1)))))


def test_fields_and_rings_that_are_none() -> None:
    found = identify(complex_product(-1))
    assert found is not None and (found.title, found.ring) == ("the field of order 9: Z/3[x] modulo x^2 + 1", "Z/3")
    assert is_division_algebra(found.algorithm)
    found = identify(complex_product(1))
    assert found is not None and found.title == "Z/3[x] modulo x^2 + 2"
    assert not is_division_algebra(found.algorithm)
    assert not is_division_algebra(replace(found.algorithm, ring=Ring("Q")))


def test_a_semifield_is_its_own_definition() -> None:
    maps = complex_product(-1)
    twisted = replace(maps, w=LinearMap(4, (((2, 1), (3, 1)), ((0, 1), (1, -1)))))
    found = identify(twisted)
    assert found is not None and found.title == "a semifield of order 9: no zero divisors" and found.proof is not None and found.proof.holds
    assert identify(replace(twisted, w=LinearMap(4, (((2, 1), (3, 1)), ((0, 1), (1, 1)))))) is None


PAIRS = [(left, right) for left in KINDS for right in [*KINDS, "t"]]


def full(kind: str, values: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """The matrix of packed values, by NumPy's own indices of triangles."""
    matrix = np.zeros((rows, columns), dtype=np.int64)
    if kind == "g":
        return values.reshape(rows, columns)
    if kind == "l":
        matrix[np.triu_indices(rows)] = values
        return matrix.T
    above = np.triu_indices(rows, 1 if kind == "k" else 0)
    matrix[above] = values
    if kind == "u":
        return matrix
    return matrix + (1 if kind == "s" else -1) * np.triu(matrix, 1).T


def outputs(target: BilinearMap, a: np.ndarray, b: np.ndarray) -> list[int]:
    return [sum(int(rational(c)) * int(a[i]) * int(b[j]) for i, j, c in row) for row in target.rows]


@each(("left", "right"), PAIRS)
def test_the_tensor_of_a_product_is_that_of_numpy(left: str, right: str) -> None:
    rng = np.random.default_rng(7)
    target = structured_product(left, right, 3, 3, 3)
    a, b = (rng.integers(-9, 10, size) for size in target.sizes[:2])
    b = a if right == "t" else b
    x = full(left, a, 3, 3)
    product = x @ (x.T if right == "t" else full(right, b, 3, 3))
    expected = product[np.triu_indices(3)] if right == "t" or left + right == "uu" else product.reshape(-1)
    assert outputs(target, a, b) == expected.tolist()


def program(target: BilinearMap) -> tuple[str, list[list[list[int]]]]:
    """The classical algorithm of a map as text, and its U, V and W with a row a product."""
    lines, sums, tables = [], [], [[], [], []]  # type: tuple[list[str], list[str], list[list[list[int]]]]
    for number, row in enumerate(target.rows):
        terms = []
        for i, j, c in row:
            lines.append(f"m{len(lines) + 1} = (a{i + 1})(b{j + 1})")
            terms.append(f"{'-' if is_negative(c) else '+'} m{len(lines)}")
            for table, size, place, value in zip(tables, target.sizes, (i, j, number), (1, 1, int(rational(c))), strict=True):
                table.append([value if at == place else 0 for at in range(size)])
        sums.append(f"c{number + 1} = {' '.join(terms) or '0'}")
    return "\n".join([*lines, "", *sums, ""]), tables


def flat(tables: list[list[list[int]]]) -> np.ndarray:
    numbers = np.array([c for table in tables for row in table for c in row], dtype=np.int64)
    return np.stack([2 * numbers, np.full_like(numbers, 2)], axis=1).reshape(1, -1)


@each(("left", "right"), PAIRS)
def test_files_are_proved_as_what_their_names_tell(tmp_path: Path, left: str, right: str) -> None:
    target = structured_product(left, right, 2, 2, 2)
    text, tables = program(target)
    (tmp_path / f"{left}{right}-222-x.txt").write_text(text)
    np.save(tmp_path / f"{left}{right}-222-x.npy", flat(tables))
    for suffix in ("txt", "npy"):
        found = import_file(tmp_path / f"{left}{right}-222-x.{suffix}")
        assert isinstance(found, Imported) if left + right == "gg" else isinstance(found, Identified)
        if isinstance(found, Identified):
            assert found.title == target.title and found.proof is not None and found.proof.holds


def test_another_map_than_the_name_tells_is_refused(tmp_path: Path) -> None:
    text, tables = program(structured_product("u", "s", 2, 2, 2))
    (tmp_path / "us-222-x.txt").write_text(text.replace("c1 = + m1", "c1 = - m1"))
    np.save(tmp_path / "uw-222-x.npy", flat(tables))
    np.save(tmp_path / "uu-222-x.npy", flat(tables))
    np.save(tmp_path / "no_name.npy", flat(tables))
    np.save(tmp_path / "us-222-y.npy", np.array([[1, 0]]))
    np.save(tmp_path / "us-222-z.npy", np.array([1.5, 1]))
    codes = {"us-222-x.txt": "E350", "uw-222-x.npy": "E350", "uu-222-x.npy": "E253", "no_name.npy": "E653"}
    for name, code in (codes | {"us-222-y.npy": "E353", "us-222-z.npy": "E353", "missing.npy": "E251"}).items():
        with pytest.raises(BilinearError, match=code):
            import_file(tmp_path / name)


def test_outputs_are_left_out_only_where_the_name_says_so(tmp_path: Path) -> None:
    text, _ = program(structured_product("g", "t", 2, 2, 2, frozenset({1, 2})))
    (tmp_path / "gt-222c-x.txt").write_text(text)
    (tmp_path / "gt-222-x.txt").write_text(text)
    found = import_file(tmp_path / "gt-222c-x.txt")
    assert isinstance(found, Identified) and found.title == "A*A^T, A general, 2 x 2 x 2, upper triangle, without C11"
    with pytest.raises(BilinearError, match="E350"):
        import_file(tmp_path / "gt-222-x.txt")
