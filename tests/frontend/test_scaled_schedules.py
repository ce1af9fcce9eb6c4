"""Schedules with explicit scaling: they are read, and printing and parsing gives them again."""

from __future__ import annotations

from fractions import Fraction

import pytest
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
)
from bilinear.lowering.prepare import check_compilable
from bilinear.source import Source

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


@pytest.mark.parametrize(
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
