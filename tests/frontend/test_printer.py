"""What is printed parses to what was printed."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from each_case import each
from hypothesis import given
from hypothesis import strategies as st

from bilinear.errors import BilinearError
from bilinear.frontend import load, parse_source
from bilinear.frontend.algorithms import shipped
from bilinear.frontend.printer import print_schedule, print_scheme
from bilinear.ir.linear import Form, LinearMap, form
from bilinear.ir.number import Coefficient, exact
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Product, ProductStage, Schedule, Space, Stage, Target
from bilinear.ir.scheme import Scheme
from bilinear.source import Source

COEFFICIENTS: st.SearchStrategy[Coefficient] = st.one_of(
    st.integers(-3, 3), st.fractions(max_denominator=9, min_value=-5, max_value=5).map(exact)
)
CITATIONS = st.text(max_size=20)


def forms(inputs: int) -> st.SearchStrategy[Form]:
    return st.lists(st.tuples(st.integers(0, inputs - 1), COEFFICIENTS), max_size=4).map(form)


@st.composite
def maps(draw: st.DrawFn, inputs: int, outputs: int) -> LinearMap:
    steps = [draw(forms(inputs + i)) for i in range(draw(st.integers(0, 3)))]
    return LinearMap(inputs, tuple(draw(forms(inputs + len(steps))) for _ in range(outputs)), tuple(steps))


@st.composite
def schemes(draw: st.DrawFn) -> Scheme:
    m, k, n, rank = (draw(st.integers(1, 3)) for _ in range(4))
    m = draw(st.sampled_from([m, 11]))
    names = st.from_regex(r"[D-Zd-z_][A-Za-z0-9_]{0,3}", fullmatch=True)
    return Scheme(
        draw(names),
        m,
        k,
        n,
        draw(maps(m * k, rank)),
        draw(maps(k * n, rank)),
        draw(maps(rank, m * n)),
        tuple(draw(st.lists(names, min_size=rank, max_size=rank, unique=True))),
        citation=draw(CITATIONS),
    )


@pytest.mark.parametrize(
    ("ring", "numbers"),
    [
        ("Z/7", ("1/2", "-3")),
        ("Q[sqrt(3)]", ("1/2-sqrt(3)/6", "-sqrt(3)")),
        ("Q[i]", ("i", "1-i/2")),
        ("Q[lambda]", ("lambda^2-lambda^-1", "-1/8*lambda")),
    ],
)
def test_schemes_over_other_rings(ring: str, numbers: tuple[str, str]) -> None:
    table = f"scheme x <1,1,2;2> over {ring}\n  M1: {numbers[0]} | {numbers[1]} 0 | 1 0\n  M2: 1 | 0 1 | 0 1\n"
    equations = f"scheme x <1,1,2;2> over {ring}\n  S = [{numbers[0]}] A11\n  M1 = [{numbers[1]}] S*B11\n  C11 = M1 ; C12 = S*B12 - M1\n"
    for text in (table, equations):
        scheme = parse_source(Source("x.bl", text)).schemes[0]
        assert str(scheme.ring) == ring
        assert parse_source(Source("x.bl", print_scheme(scheme))).schemes == (scheme,)


def test_changes_of_basis() -> None:
    text = "scheme x <1,2,1;2>\n  basis A { A11 += 2 A12 ; A12 = -1/2 A11 }\n  M1: 1 0 | 1 0 | 1\n  M2: 0 1 | 0 1 | 1\n"
    scheme = parse_source(Source("x.bl", text)).schemes[0]
    assert scheme.bases is not None
    assert scheme.bases.a.matrix == (((0, 1), (1, 2)), ((0, Fraction(-1, 2)),))
    assert scheme.tables[0] == scheme.bases.a.matrix and scheme.u.matrix != scheme.tables[0]
    assert parse_source(Source("x.bl", print_scheme(scheme))).schemes == (scheme,)


@given(schemes())
def test_schemes(scheme: Scheme) -> None:
    assert parse_source(Source("x.bl", print_scheme(scheme))).schemes == (scheme,)


def blocks(space: str) -> st.SearchStrategy[Block]:
    return st.builds(Block, st.just(space), st.integers(0, 1), st.integers(0, 1))


@st.composite
def block_maps(draw: st.DrawFn, space: str) -> BlockMap:
    sources = tuple(sorted(draw(st.sets(blocks(space), min_size=1, max_size=4))))
    targets = tuple(draw(st.lists(blocks(space), min_size=1, max_size=4)))
    outputs = []
    for target in targets:
        output = draw(forms(len(sources)))
        outputs.append(output if output or target in sources else ((0, Fraction(1, 2)),))
    return BlockMap(sources, targets, LinearMap(len(sources), tuple(outputs)))


@st.composite
def stages(draw: st.DrawFn) -> Stage:
    if draw(st.booleans()):
        spaces = draw(st.sampled_from(["A", "B", "AB", "BA"]))
        return LinearStage(tuple(draw(block_maps(space)) for space in spaces), draw(st.booleans()))
    targets = st.lists(st.builds(Target, blocks("C"), COEFFICIENTS), min_size=1, max_size=3).map(tuple)
    products = st.builds(Product, blocks("A"), blocks("B"), targets)
    return ProductStage(tuple(draw(st.lists(products, min_size=1, max_size=3))))


@given(st.lists(stages(), min_size=1, max_size=4), st.booleans(), st.sampled_from([(), ("A",), ("A", "B")]), CITATIONS)
def test_schedules(found: list[Stage], in_place: bool, restores: tuple[str, ...], citation: str) -> None:
    schedule = Schedule("s-1", "strassen", 2, 2, 2, tuple(found), in_place=in_place, restores=restores, citation=citation)
    assert parse_source(Source("x.bl", print_schedule(schedule))).schedules == (schedule,)


@each("name", sorted(shipped()))
def test_shipped(name: str) -> None:
    loaded = load(name)
    assert parse_source(Source("x.bl", print_scheme(loaded.scheme))).schemes == (loaded.scheme,)
    if loaded.schedule is not None:
        assert parse_source(Source("x.bl", print_schedule(loaded.schedule))).schedules == (loaded.schedule,)


def test_text_of_a_table() -> None:
    text = 'scheme x <1,2,1;2> over Z\n  source "say \\"a\\""\n#     A11 A12 | B11 B21 | C11\n'
    text += "  M1:   1   0 |   1   0 |   1\n  M2:   0  -1 |   0   1 |  -1\n"
    assert print_scheme(parse_source(Source("x.bl", text)).schemes[0]) == text


def test_names_of_steps_are_kept_where_they_can_be() -> None:
    scheme = load("winograd").scheme
    assert "  S2 = S1 - A11\n" in print_scheme(scheme)
    renamed = replace(scheme, u=replace(scheme.u, names=("M1", "stage", "A11", "fine")))
    text = print_scheme(renamed)
    assert "S1_1 = A21 + A22" in text and "fine = A12 - S2_1" in text
    assert parse_source(Source("x.bl", text)).schemes == (renamed,)


def test_what_cannot_be_written() -> None:
    schedule = load("msmes").schedule
    assert schedule is not None
    block = Block("C", 0, 0)
    into_c = LinearStage((BlockMap((block,), (block,), LinearMap(1, (((0, 1),),))),))
    workspace = ProductStage((Product(Block("S", 0, 0), Block("B", 0, 0), (Target(block),)),))
    for wrong in (
        replace(schedule, levels=2),
        replace(schedule, workspaces=(Space("S", "A", 1, 1),)),
        replace(schedule, stages=(into_c,)),
        replace(schedule, stages=(workspace,)),
        replace(schedule, name="a b"),
    ):
        with pytest.raises(BilinearError, match="E241"):
            print_schedule(wrong)
    for name in ("a b", "1", ""):
        with pytest.raises(BilinearError, match="E241"):
            print_scheme(replace(load("strassen").scheme, name=name))
    with pytest.raises(BilinearError, match="E241"):
        print_scheme(replace(load("strassen").scheme, products=("source", "M2", "M3", "M4", "M5", "M6", "M7")))
