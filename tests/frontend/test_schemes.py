"""Both forms of a scheme, and schedules, with explicit scaling too, against the IR that they must become."""

from __future__ import annotations

from fractions import Fraction

import pytest
from each_case import each
from hypothesis import given, settings
from hypothesis import strategies as st

from bilinear.errors import BilinearError
from bilinear.frontend import load, parse_source
from bilinear.frontend.printer import print_schedule
from bilinear.ir.linear import LinearMap, form
from bilinear.ir.number import Coefficient, exact, generator
from bilinear.ir.schedule import (
    AnySchedule,
    Block,
    BlockMap,
    LinearStage,
    Product,
    ProductStage,
    Result,
    ScaledSchedule,
    ScaledTarget,
    Space,
    Stage,
    Target,
)
from bilinear.ir.scheme import Scheme
from bilinear.lowering.prepare import check_compilable
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


ALPHA, BETA = generator("alpha"), generator("beta")
SPACES = {"X": Space("X", "", 0, 0), "long_name": Space("long_name", "", 0, 0), "T1": Space("T1", "B", 0, 0)}


def read(text: str) -> AnySchedule:
    return parse_source(Source("x.bl", text)).schedules[0]


COEFFICIENTS: st.SearchStrategy[Coefficient] = st.one_of(
    st.integers(-3, 3).filter(bool),
    st.fractions(max_denominator=9, min_value=-5, max_value=5).map(exact).filter(bool),
    st.sampled_from([ALPHA, -ALPHA, BETA, ALPHA * Fraction(1, 2), ALPHA - BETA, 1 - ALPHA * ALPHA]),
)
BLOCKS = st.one_of(
    st.builds(Block, st.sampled_from("ABC"), st.integers(0, 1), st.integers(0, 1)),
    st.sampled_from([space.blocks[0] for space in SPACES.values()]),
)


@st.composite
def linear_stages(draw: st.DrawFn) -> LinearStage:
    rows = draw(st.lists(st.dictionaries(BLOCKS, COEFFICIENTS, min_size=1, max_size=3), min_size=1, max_size=3))
    targets = draw(st.lists(BLOCKS, min_size=len(rows), max_size=len(rows)))
    sources = tuple(sorted({block for row in rows for block in row}))
    outputs = tuple(form((sources.index(block), c) for block, c in row.items()) for row in rows)
    return LinearStage((BlockMap(sources, tuple(targets), LinearMap(len(sources), outputs)),), draw(st.booleans()))


@st.composite
def products(draw: st.DrawFn) -> Product:
    left, right = draw(BLOCKS), draw(BLOCKS)
    if draw(st.booleans()):
        targets = draw(st.lists(st.tuples(BLOCKS, COEFFICIENTS), min_size=1, max_size=3))
        return Product(left, right, tuple(ScaledTarget(block, c) for block, c in targets))
    terms = draw(st.dictionaries(BLOCKS, COEFFICIENTS, max_size=2))
    return Product(left, right, (ScaledTarget.of(draw(BLOCKS), draw(COEFFICIENTS), tuple(sorted(terms.items(), key=lambda t: t[0]))),))


STAGES: st.SearchStrategy[Stage] = st.one_of(
    linear_stages(), st.lists(products(), min_size=1, max_size=3).map(lambda found: ProductStage(tuple(found)))
)
RESULTS = st.builds(Result, st.sampled_from([1, -1, 2, Fraction(1, 2), ALPHA, -ALPHA]), st.sampled_from([0, 1, -1, 3, BETA, -BETA]))


@given(st.lists(STAGES, min_size=1, max_size=4), RESULTS, st.sampled_from([(), ("A",), ("A", "B")]))
@settings(max_examples=2 * settings().max_examples)
def test_what_is_printed_parses_to_what_was_printed(found: list[Stage], result: Result, restores: tuple[str, ...]) -> None:
    spaces = tuple(SPACES.values())
    schedule = ScaledSchedule("s-1", "strassen", 2, 2, 2, tuple(found), spaces, restores=restores, result=result)
    assert read(print_schedule(schedule)) == schedule


@each(
    ("claim", "result"),
    [
        ("C = A*B", Result()),
        ("C=A * B", Result(1, 0)),
        ("C = -A*B + C", Result(-1, 1)),
        ("C = 1/2*A*B - 3*C", Result(Fraction(1, 2), -3)),
        ("C = alpha*A*B + beta*C", Result(ALPHA, BETA)),
        ("C = - alpha * A * B", Result(-ALPHA, 0)),
    ],
)
def test_results(claim: str, result: Result) -> None:
    assert read(f"schedule s of strassen: {claim}\n  stage {{ C11 = A11*B11 }}\n").result == result


def test_temporaries_and_their_shapes() -> None:
    schedule = read("schedule s of strassen: C = A*B, temporaries X Y, temporary Z like B, restores A\n  stage { X = A11 ; Z = B11 }\n")
    assert schedule.workspaces == (Space("X", "", 0, 0), Space("Y", "", 0, 0), Space("Z", "B", 0, 0))
    assert schedule.restores == ("A",) and not schedule.runs_in_place
    assert [str(block) for block in schedule.workspaces[0].blocks] == ["X"]


def test_what_a_step_means() -> None:
    text = "schedule s of strassen: C = alpha*A*B + beta*C, temporary X\n"
    schedule = read(
        f"{text}  stage {{ X -= A11 - [2*alpha] B11 }}\n  stage {{ C11, -C12 -= X*B11 ; C22 = [beta] C22 - [alpha/2] X*B12 - X }}\n"
    )
    x, a, b, c = Block("X", -1, -1), Block("A", 0, 0), Block("B", 0, 0), [Block("C", i, j) for i in (0, 1) for j in (0, 1)]
    linear, multiplied = schedule.stages
    assert isinstance(linear, LinearStage) and isinstance(multiplied, ProductStage)
    assert linear.maps == (BlockMap((a, b, x), (x,), LinearMap(3, (((0, -1), (1, ALPHA * 2), (2, 1)),))),)
    assert multiplied.products[0].targets == (ScaledTarget(c[0], -1), ScaledTarget(c[1], 1))
    assert multiplied.products[1].targets == (ScaledTarget(c[3], ALPHA * Fraction(-1, 2), BETA, ((x, -1),)),)


def test_they_are_not_compiled() -> None:
    schedule = read("schedule s of strassen: C = A*B\n  stage { C11 = A11 + A12 }\n")
    with pytest.raises(BilinearError) as caught:
        check_compilable(schedule)
    assert str(caught.value) == (
        "x.bl:1:1: error[E411]: s is a schedule to prove, not to run\n"
        "  1 | schedule s of strassen: C = A*B\n"
        "    | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        "  note: C11 takes up blocks of another size\n"
        "  hint: bilinear verify shows what it does\n"
        "  hint: run the scheme instead, or a schedule without such steps"
    )
    check_compilable(read("schedule s of strassen: C = A*B\n  stage { C11 = A11*B11 }\n"))
    other = load("msmes").schedule
    assert other is not None
    check_compilable(other)
