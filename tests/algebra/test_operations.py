"""The operations on schemes against the Brent equations, written out densely, and against the product of integer matrices."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from each_case import each
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import scheme_computes

from bilinear.algebra import composition
from bilinear.algebra.change_basis import Matrix, change_basis, inverse, normalise_signs
from bilinear.algebra.composition import classical, direct_sum, joined_ring, lies_over, permutations, rotate, tensor, transpose
from bilinear.algebra.maps import fold_bases
from bilinear.errors import BilinearError
from bilinear.frontend import load, parse_source
from bilinear.ir.linear import LinearMap
from bilinear.ir.number import Coefficient, generator, rational
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Bases, Scheme
from bilinear.source import Source
from bilinear.verify.scheme import prove_scheme

STRASSEN, WINOGRAD, LADERMAN, HOPCROFT_KERR = (load(name).scheme for name in ("strassen", "winograd", "laderman", "hopcroft_kerr"))
RECTANGULAR = direct_sum(WINOGRAD, classical(2, 2, 1), "n")  # <2,2,3;11>, with shared sums.


def scheme(text: str) -> Scheme:
    return parse_source(Source("x.bl", text)).schemes[-1]


HALVES = scheme("scheme halves <1,2,1;2>\n  M1: 1/2 0 | 2 0 | 1\n  M2: 0 3/2 | 0 1 | 2/3\n")
ROOTS = scheme("scheme roots <1,2,1;2> over Q[sqrt(3)]\n  M1: sqrt(3) 0 | sqrt(3)/3 0 | 1\n  M2: 0 1+sqrt(3) | 0 1 | -1/2+sqrt(3)/2\n")
IMAGINARY = scheme("scheme imaginary <1,1,1;1> over Q[i]\n  M1: i | i | -1\n")
MODULO = scheme("scheme modulo <1,1,2;2> over Z/5\n  M1: 2 | 3 0 | 1 0\n  M2: 4 | 0 2 | 0 2\n")
APPROXIMATE = scheme("scheme near <1,1,1;1> over Q[lambda]\n  M1: lambda^-1+1 | lambda | 1\n")
IN_BASES = scheme("""scheme bases <2,1,2;4>
  basis A { A11 += A21 }
  basis B { B12 -= 2 B11 }
  basis C { C21 = 2 C21 - C11 }
  M1 = A11 * B11 ; M2 = A21 * B11 ; M3 = (A11 - A21) * (B12 + 2 B11) ; M4 = A21 * (B12 + 2 B11)
  C11 = M1 - M2 ; C12 = M3 ; C21 = 1/2 M1 ; C22 = M4
""")


def brent_holds(found: Scheme) -> bool:
    """Whether sum_p U[p,x] V[p,y] W[z,p] is the tensor of the multiplication, in fractions (residues over Z/p)."""
    u, v, w = (
        np.zeros(s, dtype=object)
        for s in ((found.rank, found.m * found.k), (found.rank, found.k * found.n), (found.m * found.n, found.rank))
    )
    for table, rows in zip((u, v, w), found.tables, strict=True):
        for i, row in enumerate(rows):
            for j, c in row:
                table[i, j] = rational(c)
    products = np.einsum("px,py->pxy", u, v).reshape(found.rank, -1)
    tensor_found = w @ products
    wanted = np.zeros((found.m, found.n, found.m, found.k, found.k, found.n), dtype=object)
    for i in range(found.m):
        for p in range(found.k):
            for j in range(found.n):
                wanted[i, j, i, p, p, j] = 1
    difference = (tensor_found - wanted.reshape(tensor_found.shape)).ravel()
    p = found.ring.modulus
    return all(Fraction(d).numerator % p == 0 if p else d == 0 for d in difference if d)


def check(found: Scheme, shape: tuple[int, int, int], rank: int) -> None:
    assert (found.m, found.k, found.n, found.rank) == (*shape, rank)
    assert prove_scheme(found).holds
    if not found.ring.generator and max(shape) <= 6 and rank <= 49:
        assert brent_holds(found)
    if not found.ring.generator and not found.ring.modulus:
        assert scheme_computes(found, trials=1)


def test_the_oracle_refuses_what_is_wrong() -> None:
    wrong = replace(WINOGRAD, w=replace(WINOGRAD.w, outputs=WINOGRAD.w.outputs[::-1]))
    assert brent_holds(WINOGRAD) and brent_holds(HALVES) and brent_holds(MODULO) and not brent_holds(wrong)


@pytest.mark.sample(4)
@pytest.mark.parametrize("outer", [WINOGRAD, RECTANGULAR, HALVES], ids=lambda s: s.name)
@pytest.mark.parametrize("inner", [STRASSEN, RECTANGULAR, HALVES, MODULO], ids=lambda s: s.name)
def test_tensor_products(outer: Scheme, inner: Scheme) -> None:
    for first, second in ((outer, inner), (inner, outer)):
        check(tensor(first, second), (first.m * second.m, first.k * second.k, first.n * second.n), first.rank * second.rank)


def test_a_tensor_product_has_the_blocks_of_the_inner_scheme_within_those_of_the_outer_one() -> None:
    """Product p*r' + q of the tensor product is the q-th of the inner scheme, within the p-th of the outer one."""
    big, r = tensor(STRASSEN, HOPCROFT_KERR), HOPCROFT_KERR.rank
    for p, q in ((0, 0), (3, 7), (6, 14)):
        outer, inner = dict(STRASSEN.tables[0][p]), dict(HOPCROFT_KERR.tables[0][q])
        wanted = {(i // 2 * 3 + j // 2) * 4 + i % 2 * 2 + j % 2: c * d for i, c in outer.items() for j, d in inner.items()}
        assert dict(big.tables[0][p * r + q]) == wanted


def test_shared_sums_stay_shared() -> None:
    """One factor after the other: the additions of Winograd's two levels are 4*(4+7) on A and B, and 7*7+4*7 on C."""
    twice = tensor(WINOGRAD, WINOGRAD)
    assert (twice.u.additions, twice.v.additions, twice.w.additions) == (44, 44, 77)
    assert tensor(WINOGRAD, classical(1, 1, 2)).u.additions == WINOGRAD.u.additions
    beside = direct_sum(WINOGRAD, WINOGRAD, "n")
    assert beside.additions == 2 * WINOGRAD.additions
    assert direct_sum(WINOGRAD, WINOGRAD, "k").additions == 2 * WINOGRAD.additions + 4
    assert all(turned.additions == WINOGRAD.additions for turned in permutations(WINOGRAD))
    table = sum(max(0, len(row) - 1) for rows in twice.tables for row in rows)
    assert twice.additions < table


@pytest.mark.parametrize("axis", ["m", "k", "n"])
def test_direct_sums(axis: str) -> None:
    position = "mkn".index(axis)
    for first in (RECTANGULAR, HALVES, IN_BASES):
        shape = [first.m, first.k, first.n]
        for size in (1, 2):
            other = classical(*[size if i == position else x for i, x in enumerate(shape)])
            for one, two in ((first, other), (other, first)):
                sizes = [x + size if i == position else x for i, x in enumerate(shape)]
                check(direct_sum(one, two, axis), (sizes[0], sizes[1], sizes[2]), first.rank + other.rank)


def test_block_splitting_by_repeated_sums() -> None:
    top = direct_sum(direct_sum(WINOGRAD, classical(2, 1, 2), "k"), classical(2, 3, 1), "n")
    check(direct_sum(top, classical(1, 3, 3), "m"), (3, 3, 3), 7 + 4 + 6 + 9)


@each("of", [RECTANGULAR, HOPCROFT_KERR, HALVES, MODULO, IN_BASES, ROOTS, APPROXIMATE])
def test_the_six_permutations(of: Scheme) -> None:
    m, k, n = of.m, of.k, of.n
    shapes = [(m, k, n), (k, n, m), (n, m, k), (n, k, m), (m, n, k), (k, m, n)]
    for shape, turned in zip(shapes, permutations(of), strict=True):
        check(turned, shape, of.rank)
        assert (turned.bases is None) == (of.bases is None)
    assert rotate(rotate(rotate(of))).tables == of.tables
    assert transpose(transpose(of)).tables == of.tables
    assert rotate(transpose(of)).tables == transpose(rotate(rotate(of))).tables


def test_a_rotation_by_hand() -> None:
    """trace(A*B*C): the left factors become those that were right, the results become right factors over C^T."""
    turned = rotate(STRASSEN)
    assert turned.tables[0] == STRASSEN.tables[1]
    third = {i: c for i, row in enumerate(STRASSEN.tables[2]) for p, c in row if p == 2}
    assert dict(turned.tables[1][2]) == {i % 2 * 2 + i // 2: c for i, c in third.items()}


entries = st.integers(-2, 2)


@st.composite
def unimodular(draw: st.DrawFn, size: int) -> list[list[int]]:
    """A product of a lower and an upper triangular integer matrix with +-1 on their diagonals."""
    lower = [[draw(entries) if j < i else draw(st.sampled_from([1, -1])) if i == j else 0 for j in range(size)] for i in range(size)]
    upper = [[draw(entries) if j > i else int(i == j) for j in range(size)] for i in range(size)]
    product: list[list[int]] = (np.array(lower) @ np.array(upper)).tolist()
    return product


@given(unimodular(2), unimodular(2), unimodular(3))
@settings(max_examples=min(25, settings().max_examples))
def test_changes_of_basis_by_integers(p: Matrix, q: Matrix, r: Matrix) -> None:
    check(change_basis(RECTANGULAR, p, q, r), (2, 2, 3), 11)
    over_z = replace(RECTANGULAR, ring=Ring("Z"))
    assert change_basis(over_z, p, q, r).ring == Ring("Z") and prove_scheme(change_basis(over_z, p, q, r)).holds
    back = change_basis(change_basis(STRASSEN, p, q, p), inverse(p, Ring()), inverse(q, Ring()), inverse(p, Ring()))
    assert back.tables == STRASSEN.tables


@given(st.lists(st.fractions(-3, 3, max_denominator=4), min_size=4, max_size=4))
@settings(max_examples=min(25, settings().max_examples))
def test_changes_of_basis_by_fractions(values: list[Fraction]) -> None:
    matrix: Matrix = [values[:2], values[2:]]
    if values[0] * values[3] == values[1] * values[2]:
        with pytest.raises(BilinearError, match="the matrix P has no inverse over Q"):
            change_basis(STRASSEN, matrix, matrix, matrix)
        return
    check(change_basis(STRASSEN, matrix, matrix, matrix), (2, 2, 2), 7)
    found = inverse(matrix, Ring())
    assert [[sum(a * b for a, b in zip(row, column, strict=True)) for column in zip(*found, strict=True)] for row in matrix] == [
        [1, 0],
        [0, 1],
    ]


def test_a_change_of_basis_moves_the_tables_as_its_formula_says() -> None:
    """U of the new scheme at A[a,b] is sum over i, j of U at A[i,j] * P[i][a] * Q^-1[b][j]."""
    p, q, r = [[1, 2], [0, 1]], [[0, 1], [1, 1]], [[2, 1], [1, 1]]
    found, q_inverse = change_basis(STRASSEN, p, q, r), [[-1, 1], [1, 0]]
    for row, old in zip(found.tables[0], STRASSEN.tables[0], strict=True):
        for a in range(2):
            for b in range(2):
                wanted = sum(rational(c) * p[i // 2][a] * q_inverse[b][i % 2] for i, c in old)
                assert dict(row).get(a * 2 + b, 0) == wanted


def test_a_permutation_of_the_basis_costs_no_addition() -> None:
    turned = change_basis(WINOGRAD, [[0, 1], [1, 0]], [[-1, 0], [0, 1]], [[0, -1], [1, 0]])
    assert turned.additions == 15 and turned.tables != WINOGRAD.tables
    check(turned, (2, 2, 2), 7)


def test_changes_of_basis_over_other_rings() -> None:
    root = generator("sqrt(3)")
    found = change_basis(ROOTS, [[root]], [[1, root], [root, 1]], [[2 + root]])
    assert prove_scheme(found).holds
    i = generator("i")
    assert prove_scheme(change_basis(IMAGINARY, [[i]], [[1 + i]], [[2 - i]])).holds
    check(change_basis(MODULO, [[3]], [[2]], [[1, 4], [3, 1]]), (1, 1, 2), 2)
    assert prove_scheme(change_basis(APPROXIMATE, [[3]], [[Fraction(1, 2)]], [[-1]])).holds
    check(change_basis(IN_BASES, [[1, 1], [0, 1]], [[2]], [[1, 0], [1, 1]]), (2, 1, 2), 4)


@each(
    ("of", "p", "said"),
    [
        (STRASSEN, [[1, 2], [2, 4]], "the matrix P has no inverse over Q"),
        (STRASSEN, [[1]], "the matrix P is not 2 x 2"),
        (STRASSEN, [[1, 0], [0, generator("i")]], "the matrix P has the coefficient i, which is not in Q"),
        (replace(STRASSEN, ring=Ring("Z")), [[2, 0], [0, 1]], "the matrix P has no inverse over Z"),
        (replace(STRASSEN, ring=Ring("Z/2")), [[2, 0], [0, 1]], "the matrix P has no inverse over Z/2"),
        (replace(STRASSEN, ring=Ring("Q[lambda]")), [[generator("lambda"), 0], [0, 1]], "the matrix P has no inverse over Q[lambda]"),
    ],
)
def test_changes_of_basis_that_are_none(of: Scheme, p: Any, said: str) -> None:
    one = [[1, 0], [0, 1]]
    with pytest.raises(BilinearError) as raised:
        change_basis(of, p, one, one)
    assert str(raised.value).splitlines()[0] == f"error[E643]: {said}"


@given(st.lists(st.sampled_from([1, -1]), min_size=22, max_size=22))
@settings(max_examples=min(25, settings().max_examples))
def test_signs_have_one_normal_form(signs: list[int]) -> None:
    """Whatever signs the factors have, if the results have their product, the normal form is the same."""
    left, right = signs[:11], signs[11:]
    both = [a * b for a, b in zip(left, right, strict=True)]

    def signed(linear: LinearMap, by: list[int]) -> LinearMap:
        return LinearMap(linear.inputs, tuple(tuple((i, c * s) for i, c in row) for row, s in zip(linear.matrix, by, strict=True)))

    w = LinearMap(11, tuple(tuple((i, both[i] * c) for i, c in row) for row in RECTANGULAR.tables[2]))
    other = replace(RECTANGULAR, u=signed(RECTANGULAR.u, left), v=signed(RECTANGULAR.v, right), w=w)
    found = normalise_signs(other)
    assert found.tables == normalise_signs(RECTANGULAR).tables
    assert all(row[0][1] in (1,) for table in found.tables[:2] for row in table)
    check(found, (2, 2, 3), 11)


def test_signs_of_programs() -> None:
    flipped = normalise_signs(WINOGRAD)
    assert flipped.additions == 15 and flipped.u.steps == WINOGRAD.u.steps
    check(flipped, (2, 2, 2), 7)


def test_schemes_in_other_bases() -> None:
    both = tensor(IN_BASES, IN_BASES)
    check(both, (4, 1, 4), 16)
    assert both.bases is not None and fold_bases(both).bases is None
    check(tensor(IN_BASES, RECTANGULAR), (4, 2, 6), 44)
    check(tensor(RECTANGULAR, IN_BASES), (4, 2, 6), 44)
    check(fold_bases(both), (4, 1, 4), 16)
    assert direct_sum(IN_BASES, IN_BASES, "m").bases is None


def test_bases_of_more_values_than_blocks_are_folded() -> None:
    """A11 is read as two values, A11 and 2 A11, B11 as three; C11 is made of two."""
    wide = Bases(LinearMap(1, (((0, 1),), ((0, 2),))), LinearMap(1, (((0, 1),), (), ((0, -1),))), LinearMap(2, (((0, 1), (1, 1)),)))
    u, v, w = LinearMap(2, (((1, 1),),)), LinearMap(3, (((2, 1),),)), LinearMap(1, (((0, -1),), ((0, Fraction(1, 2)),)))
    odd = Scheme("odd", 1, 1, 1, u, v, w, ("M1",), bases=wide)
    check(odd, (1, 1, 1), 1)
    for made, shape in (
        (tensor(odd, RECTANGULAR), (2, 2, 3)),
        (tensor(RECTANGULAR, odd), (2, 2, 3)),
        (direct_sum(odd, odd, "k"), (1, 2, 1)),
    ):
        assert made.bases is None
        check(made, shape, 11 if shape[0] == 2 else 2)
    for turned in permutations(odd)[1:]:
        check(turned, (1, 1, 1), 1)


def test_approximate_schemes_stay_approximate() -> None:
    for made in (tensor(APPROXIMATE, STRASSEN), tensor(APPROXIMATE, APPROXIMATE), direct_sum(APPROXIMATE, APPROXIMATE, "k")):
        proof = prove_scheme(made)
        assert proof.holds and proof.order == 1 and made.ring == Ring("Q[lambda]")


def test_rings_that_join() -> None:
    over_z = replace(STRASSEN, ring=Ring("Z"))
    assert joined_ring(over_z, over_z) == Ring("Z")
    assert joined_ring(over_z, STRASSEN) == joined_ring(STRASSEN, over_z) == Ring()
    for special in (ROOTS, IMAGINARY, MODULO, APPROXIMATE):
        assert joined_ring(over_z, special) == joined_ring(special, STRASSEN) == special.ring
    assert tensor(MODULO, HALVES).ring == Ring("Z/5")
    assert {c for row in tensor(MODULO, MODULO).u.outputs for _, c in row} <= {-2, -1, 1, 2}
    assert not lies_over(STRASSEN, Ring("Z")) and not lies_over(HALVES, Ring("Z/2"))


SPECIAL = (ROOTS, IMAGINARY, MODULO, APPROXIMATE)
OTHER = replace(HALVES, ring=Ring("Z/2"))


@each(("first", "second"), [(x, y) for x in SPECIAL for y in (*SPECIAL, OTHER) if x is not y])
def test_rings_that_do_not_join(first: Scheme, second: Scheme) -> None:
    with pytest.raises(BilinearError) as raised:
        tensor(first, second)
    assert f"{first.name} is over {first.ring} and {second.name} over {second.ring}" in str(raised.value)
    assert raised.value.diagnostics[0].code == "E640"


def test_formats_that_do_not_fit() -> None:
    with pytest.raises(BilinearError) as raised:
        direct_sum(RECTANGULAR, LADERMAN, "n")
    said = "error[E642]: <2,2,3;11> and <3,3,3;23> do not fit together along n: m is 2 and 3"
    assert str(raised.value).splitlines()[0] == said


def test_schemes_that_grow_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    big = tensor(LADERMAN, LADERMAN)
    with pytest.raises(BilinearError, match=r"E641.*<81,81,81;279841> is too large"):
        tensor(big, big)
    monkeypatch.setattr(composition, "MOST_TERMS", 1000)
    makers: list[Callable[[], Scheme]] = [
        lambda: tensor(LADERMAN, STRASSEN),
        lambda: direct_sum(big, big, "m"),
        lambda: classical(7, 7, 7),
    ]
    for make in makers:
        with pytest.raises(BilinearError, match=r"E641.*sums of [0-9]+ terms are too many"):
            make()


def test_coefficients_stay_exact() -> None:
    third: Coefficient = Fraction(1, 3)
    found = change_basis(HALVES, [[third]], [[1, 0], [Fraction(1, 7), 1]], [[3]])
    check(found, (1, 2, 1), 2)
    assert all(isinstance(c, int | Fraction) for table in found.tables for row in table for _, c in row)


def test_the_example_of_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs" / "algebra.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n((?:.*\n)*?)```", text, re.MULTILINE)
    found: dict[str, Any] = {}
    exec(example, found)
    check(found["sheared"], (2, 2, 2), 7)
