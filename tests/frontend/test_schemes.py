"""Both forms of a scheme, and schedules, against the IR that they must become."""

from __future__ import annotations

from fractions import Fraction

import pytest

from bilinear.errors import BilinearError
from bilinear.frontend import load, parse_source
from bilinear.ir.linear import LinearMap
from bilinear.ir.number import Coefficient
from bilinear.ir.schedule import AnySchedule, Block, BlockMap, LinearStage, Product, ProductStage, Target
from bilinear.ir.scheme import Scheme
from bilinear.source import Source

SHIPPED = {"naive2x2": (8, 4), "strassen": (7, 18), "winograd": (7, 15), "laderman": (23, 98), "hopcroft_kerr": (15, 55)}


def scheme_of(text: str) -> Scheme:
    return parse_source(Source("x.bl", text)).schemes[0]


def schedule_of(text: str) -> AnySchedule:
    return parse_source(Source("x.bl", text)).schedules[0]


def is_multiplication(scheme: Scheme) -> bool:
    """Whether the scheme multiplies, decided by the Brent equations with plain loops."""
    m, k, n = scheme.m, scheme.k, scheme.n
    u, v, w = scheme.tables
    for output, row in enumerate(w):
        found: dict[tuple[int, int], Coefficient] = {}
        for product, c in row:
            for i, a in u[product]:
                for j, b in v[product]:
                    found[i, j] = found.get((i, j), 0) + a * b * c
        wanted = {((output // n) * k + p, p * n + output % n): 1 for p in range(k)}
        if {pair: c for pair, c in found.items() if c} != wanted:
            return False
    return m * n == len(w)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_schemes_multiply(name: str) -> None:
    scheme = load(name).scheme
    assert is_multiplication(scheme)
    assert (scheme.rank, scheme.additions) == SHIPPED[name]
    assert name == "naive2x2" or scheme.citation


def test_winograd_counts_its_additions_as_written() -> None:
    scheme = load("winograd").scheme
    assert (scheme.u.additions, scheme.v.additions, scheme.w.additions) == (4, 4, 7)
    assert scheme.u.names == ("S1", "S2", "S3", "S4")
    assert scheme.w.names == ("U1", "U2", "U3")


def test_msmes_is_a_schedule_of_strassen() -> None:
    loaded = load("msmes")
    assert loaded.scheme == load("strassen").scheme
    schedule = loaded.schedule
    assert schedule is not None and schedule.in_place and schedule.restores == ("A", "B")
    assert [isinstance(s, ProductStage) for s in schedule.stages] == [False, True, False, False, True, False, False]
    assert [isinstance(s, LinearStage) and s.restores for s in schedule.stages] == [False] * 5 + [True] * 2


def test_table_and_equations_are_the_same_scheme() -> None:
    table = "scheme x <1,2,1;2> over Q\n M1: 1 -1/2 | 0 2 | 1\n M2: 0 1 | 1 1 | -3\n"
    equations = "scheme x <1,2,1;2>\n M1 = (A11 - 1/2*A12) * (2 B21)  # a coefficient in a factor\n"
    equations += " M2 = A12 * (B11 + B21)\n C11 = M1 - 3 M2\n"
    assert scheme_of(table) == scheme_of(equations)


@pytest.mark.parametrize(
    "text",
    [
        "C11 = A11*B11 + A12*B21",
        "C11 = (A11) * (B11) +\n   A12*B21",
        "M1 = A11*B11 ; M2 = A12*B21 ; C11 = M1 + M2",
        "M1 = -A11*B11 ; M2 = 2 A12*B21 ; C11 = 1/2*M2 - M1",
    ],
)
def test_products_may_be_named_or_not(text: str) -> None:
    scheme = scheme_of(f"scheme x <1,2,1;2>\n{text}\n")
    assert is_multiplication(scheme)
    assert scheme.products == ("M1", "M2")


def test_names_of_products_avoid_other_names() -> None:
    scheme = scheme_of("scheme x <1,2,1;2>\n M1 = A12\n M2 = M1 - 0 A11\n C11 = A11*B11 + M2*B21\n")
    assert scheme.products == ("M1_", "M2_")
    assert scheme.u == LinearMap(2, (((0, 1),), ((3, 1),)), (((1, 1),), ((2, 1),)))


def test_steps_are_typed_by_their_right_hand_sides() -> None:
    scheme = scheme_of("scheme x <1,1,1;1>\n S = 2 A11\n T = 1/2 (B11)\n M = S*T\n U = M + M\n C11 = U - M\n")
    assert scheme.u == LinearMap(1, (((1, 1),),), (((0, 2),),))
    assert scheme.v == LinearMap(1, (((1, 1),),), (((0, Fraction(1, 2)),),))
    assert scheme.w == LinearMap(1, (((0, -1), (1, 1)),), (((0, 2),),))
    assert (scheme.products, str(scheme.ring)) == (("M",), "Q")


def test_blocks_beyond_nine() -> None:
    terms = " + ".join(f"A[1,{i}]*B[{i}, 1]" for i in range(1, 13))
    assert is_multiplication(scheme_of(f"scheme x <1,12,1;12> over Z\n C11 = {terms}\n"))


def test_line_ends_comments_and_marks_do_not_matter() -> None:
    text = 'scheme x <1,1,1;1> # rank one\n source "a # b; {c}" # said\n\n;; C11 =\n# between\n A11 *\n\tB11 ;\n'
    expected = scheme_of(text)
    assert expected.citation == "a # b; {c}"
    assert scheme_of("\ufeff" + text.replace("\n", "\r\n")) == expected


def test_places_point_into_the_source() -> None:
    scheme = scheme_of("scheme x <1,1,1;1>\n  M1 = A11 * B11\n  C11 = M1\n")
    assert scheme.places is not None
    texts = scheme.places.header.text, scheme.places.products[0].text, scheme.places.outputs[0].text
    assert texts == ("scheme x <1,1,1;1>", "M1 = A11 * B11", "C11")


def test_linear_stage() -> None:
    stage = schedule_of("schedule s of strassen\n stage { B11 = 1/2 B22 ; A21 += A22 - A21 ; A21 -= 2 (A11 + A12) }\n").stages[0]
    b11, b22 = Block("B", 0, 0), Block("B", 1, 1)
    a = [Block("A", i, j) for i in (0, 1) for j in (0, 1)]
    assert stage == LinearStage(
        (
            BlockMap((b22,), (b11,), LinearMap(1, (((0, Fraction(1, 2)),),))),
            BlockMap(tuple(a), (a[2], a[2]), LinearMap(4, (((3, 1),), ((0, -2), (1, -2), (2, 1))))),
        )
    )
    assert isinstance(stage, LinearStage)
    assert [span.text for span in stage.maps[1].spans] == ["A21 += A22 - A21", "A21 -= 2 (A11 + A12)"]


def test_product_stage() -> None:
    stage = schedule_of("schedule s of strassen: restores B\n stage {\n 1/2 C11, -C22 -= 3 A11 * B22\n }\n").stages[0]
    targets = (Target(Block("C", 0, 0), Fraction(-3, 2)), Target(Block("C", 1, 1), 3))
    assert stage == ProductStage((Product(Block("A", 0, 0), Block("B", 1, 1), targets),))
    assert isinstance(stage, ProductStage) and stage.products[0].span is not None
    assert stage.products[0].span.text == "1/2 C11, -C22 -= 3 A11 * B22"


def test_claims() -> None:
    schedule = schedule_of("schedule s of strassen: restores B A, in-place\n stage { A11 += A12 }\n")
    assert (schedule.in_place, schedule.restores) == (True, ("A", "B"))


def test_more_errors_than_shown_are_counted() -> None:
    text = "scheme x <1,1,1;90>\n" + "".join(f" M{i}: 1 | x | 1\n" for i in range(90))
    with pytest.raises(BilinearError) as raised:
        parse_source(Source("x.bl", text))
    assert len(raised.value.diagnostics) == 50
    assert "may be more" in raised.value.diagnostics[-1].notes[-1]
