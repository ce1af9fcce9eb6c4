"""Schemes made of others in the language, and where an algorithm is asked for."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from each_case import each
from hostile import MOST_SECONDS

from bilinear.algebra.composition import classical, direct_sum, rotate, tensor, transpose
from bilinear.errors import BilinearError
from bilinear.frontend import ResolvedFile, load, parse_source, resolve
from bilinear.frontend.algorithms import compose
from bilinear.frontend.printer import print_scheme
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Scheme
from bilinear.source import Source
from bilinear.verify.scheme import prove_scheme

S, W, L, H = (load(name).scheme for name in ("strassen", "winograd", "laderman", "hopcroft_kerr"))
ONE = "scheme {name} <1,1,1;1>\n  M1: 1 | 1 | 1\n"


def parsed(text: str) -> ResolvedFile:
    return parse_source(Source("x.bl", text))


def said(text: str) -> list[str]:
    with pytest.raises(BilinearError) as raised:
        parsed(text)
    return [str(d).splitlines()[0] for d in raised.value.diagnostics]


EXPRESSIONS = {
    "laderman (x) strassen": tensor(L, S),
    "strassen (x) winograd (x) <1,1,2>": tensor(tensor(S, W), classical(1, 1, 2)),
    "strassen (x) (winograd (x) <1,1,2>)": tensor(S, tensor(W, classical(1, 1, 2))),
    "strassen (+n) winograd (x) <1,1,2>": direct_sum(S, tensor(W, classical(1, 1, 2)), "n"),
    "(strassen (+n) <2,2,1>) (x) <1,2,1>": tensor(direct_sum(S, classical(2, 2, 1), "n"), classical(1, 2, 1)),
    "strassen (+m) <1,2,2> (+k) <3,1,2>": direct_sum(direct_sum(S, classical(1, 2, 2), "m"), classical(3, 1, 2), "k"),
    "strassen ( + k ) < 2 , 3 , 2 >": direct_sum(S, classical(2, 3, 2), "k"),
    "strassen(x)winograd(+n)strassen(x)<2,2,1>": direct_sum(tensor(S, W), tensor(S, classical(2, 2, 1)), "n"),
    "rotate(hopcroft_kerr)": rotate(H),
    "transpose(rotate (hopcroft_kerr))": transpose(rotate(H)),
    "rotate(strassen (+n) <2,2,3>)": rotate(direct_sum(S, classical(2, 2, 3), "n")),
    "(((strassen)))": S,
    "<2,3,4>": classical(2, 3, 4),
}


@each(("expression", "wanted"), EXPRESSIONS.items())
def test_expressions(expression: str, wanted: Scheme) -> None:
    (found,) = parsed(f"scheme y = {expression}").schemes
    assert found.name == "y" and found.tables == wanted.tables and found.ring == wanted.ring
    assert (found.m, found.k, found.n, found.rank) == (wanted.m, wanted.k, wanted.n, wanted.rank)
    assert found.additions == wanted.additions and prove_scheme(found).holds


def test_a_scheme_called_like_the_operator() -> None:
    text = ONE.format(name="x")
    for expression, rank in (("x (x) x", 1), ("(x) (x) (x)", 1), ("rotate(x)", 1), ("x (+n) x (x) x", 2)):
        assert parsed(f"{text}scheme y = {expression}").schemes[1].rank == rank


def test_a_composition_goes_on_behind_an_operator() -> None:
    found = parsed("scheme y <4,4,4;49> =\n  strassen (x)\n\n  winograd ; scheme z = y\nscheme t = (\n strassen)").schemes
    assert [s.name for s in found] == ["y", "z", "t"] and found[0].tables == found[1].tables


def test_header_and_citation() -> None:
    (found,) = parsed('scheme y <4,4,4;49> over Z/2 = strassen (x) winograd\n  source "mine"').schemes
    assert found.ring == Ring("Z/2") and found.citation == "mine"
    (cited,) = parsed("scheme y = winograd (x) strassen").schemes
    assert cited.citation == f"{W.citation} {S.citation}" and cited.ring == Ring()
    assert parsed("scheme y = strassen (x) strassen").schemes[0].citation == S.citation


def test_schemes_of_a_file_in_any_order() -> None:
    module = parsed(
        "scheme c = b (x) a\nscheme b = a (+n) a\n" + ONE.format(name="a") + "schedule s of b\n  stage { C11 += A11*B11 ; C12 += A11*B12 }"
    )
    assert [(s.name, s.format) for s in module.schemes] == [("c", "<1,1,2;2>"), ("b", "<1,1,2;2>"), ("a", "<1,1,1;1>")]
    assert module.schedules[0].scheme == "b"


def test_a_composed_scheme_prints_as_it_computes() -> None:
    for expression in ("winograd (x) strassen", "rotate(winograd (+n) <2,2,1>)"):
        (found,) = parsed(f"scheme y = {expression}").schemes
        (again,) = parsed(print_scheme(found)).schemes
        assert again.tables == found.tables and again.additions == found.additions


def test_a_wrong_part_is_told_at_the_expression() -> None:
    (found,) = parsed("scheme y = bad (x) strassen\nscheme bad <1,1,1;1>\n  M1: 1 | 1 | 2\n").schemes[:1]
    with pytest.raises(BilinearError, match=r"x\.bl:1:12: error\[E301\]"):
        prove_scheme(found).require()


def test_other_files(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "one.bl").write_text(ONE.format(name="one"))
    (tmp_path / "parts" / "two.bl").write_text('scheme a = <1,1,2>\nscheme b = "../one.bl" (x) strassen\n')
    (tmp_path / "table.json").write_text("{}")
    path = tmp_path / "whole.bl"
    path.write_text('scheme whole = one (x) "parts/two.bl:b" (+n) "one.bl" (x) <2,2,1>\n')
    assert load(path).scheme.format == "<2,2,3;11>"
    for operand, line in (
        ('"parts/two.bl"', "E222]: two.bl has not one scheme"),
        ('"parts/two.bl:c"', "E222]: two.bl has no scheme 'c'"),
        ('"parts/three.bl"', "E221]: there is no file 'parts/three.bl'"),
        ('"parts"', "E221]: there is no file 'parts'"),
        ('"table.json"', "E221]: 'table.json' is not a .bl file"),
        ('"one.bl:two"', "E222]: one.bl has no scheme 'two'"),
        (f'"{"y" * 5000}.bl"', "E221]: there is no file 'yyy"),
    ):
        path.write_text(f"scheme whole = {operand}\n")
        with pytest.raises(BilinearError) as raised:
            load(path)
        assert line in str(raised.value)


def test_files_that_refer_to_each_other(tmp_path: Path) -> None:
    (tmp_path / "a.bl").write_text("scheme a = b\n")
    (tmp_path / "b.bl").write_text("scheme b = c (x) c\n")
    (tmp_path / "c.bl").write_text("scheme c = a\n")
    with pytest.raises(BilinearError) as raised:
        load(tmp_path / "a.bl")
    assert str(raised.value).startswith(f"{tmp_path}/c.bl:1:12: error[E645]: a.bl refers back to this file")
    for number in range(60):
        (tmp_path / f"f{number}.bl").write_text(f"scheme f{number} = f{number + 1}\n")
    with pytest.raises(BilinearError, match=r"E645.*is referred to through 50 files"):
        load(tmp_path / "f0.bl")


def test_files_are_read_once_by_however_many_ways_they_are_reached(tmp_path: Path) -> None:
    for letter in "fg":
        (tmp_path / f"{letter}20.bl").write_text(ONE.format(name=f"{letter}20"))
        for number in range(20):
            (tmp_path / f"{letter}{number}.bl").write_text(f"scheme {letter}{number} = f{number + 1} (x) g{number + 1}\n")
    begin = time.process_time()
    assert load(tmp_path / "f0.bl").scheme.rank == 1
    assert time.process_time() - begin < MOST_SECONDS


def test_a_shipped_name_in_a_file_of_that_name(tmp_path: Path) -> None:
    path = tmp_path / "strassen.bl"
    path.write_text("scheme twice = strassen (x) strassen\n")
    assert load(path).scheme.rank == 49


def test_where_an_algorithm_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = load("laderman (x) strassen")
    assert (found.scheme.name, found.scheme.format, found.schedule) == ("laderman_x_strassen", "<6,6,6;161>", None)
    assert load("strassen (+m) <1,2,2>").scheme.name == "strassen_plus_m_1_2_2"
    assert load("<1,2,3>").scheme.name == "classical_1_2_3"
    assert load(" rotate( hopcroft_kerr )").scheme.name == "rotate_hopcroft_kerr"
    assert compose("strassen", "mine").scheme.name == "mine"
    (tmp_path / "one.bl").write_text(ONE.format(name="one"))
    assert load("one (x) strassen").scheme.rank == 7
    (tmp_path / "a (x) b").write_text(ONE.format(name="odd"))
    assert load("a (x) b").scheme.name == "odd"
    with pytest.raises(BilinearError) as raised:
        load("laderman (x) strasen")
    assert str(raised.value).splitlines() == [
        "<expression>:1:42: error[E221]: there is no scheme 'strasen'",
        "  1 | scheme laderman_x_strasen = laderman (x) strasen",
        "    |                                          ^^^^^^^ not known",
        "  hint: did you mean strassen?",
    ]
    for text in ("strassen (y) winograd", "strassen x winograd", "strassen*winograd", "turn(strassen)"):
        with pytest.raises(BilinearError, match=r"E121.*\n  hint: a composition reads: scheme big = laderman \(x\) strassen"):
            load(text)


HOSTILE = {
    "deep calls": "scheme y = " + "rotate(" * 12_000 + "strassen" + ")" * 12_000,
    "long product": "scheme y = strassen" + " (x) strassen" * 7000,
    "larger classical schemes": "scheme y = <64,64,64>",
    "huge formats": "scheme y = <9999,9999,9999>",
    "a long chain": "\n".join(f"scheme y{i} = y{i + 1}" for i in range(4000)) + "\nscheme y4000 = strassen",
    "many circles": "\n".join(f"scheme y{i} = y{i} (x) y{i}" for i in range(3000)),
    "doubling": "scheme y0 = <1,1,1>\n" + "\n".join(f"scheme y{i + 1} = y{i} (+n) y{i}" for i in range(200)),
    "a quote": 'scheme y = "' + "z" * 90_000 + '.bl"',
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_compositions_get_an_answer_soon(text: str) -> None:
    begin = time.process_time()
    with pytest.raises(BilinearError) as raised:
        parsed(text)
    assert len(str(raised.value)) < 50_000
    assert time.process_time() - begin < MOST_SECONDS


def test_a_format_that_is_too_large_is_called_so() -> None:
    assert said("scheme y = <10000,1,1>") == ["x.bl:1:12: error[E641]: <10000,1,1;10000> is too large"]


def test_the_work_of_a_file_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "MOST_TERMS", 900)
    text = "scheme a = strassen (x) strassen\nscheme b = a (x) <1,1,1>\nscheme c = b (x) <1,1,1>\n"
    assert said(text) == ["x.bl:3:14: error[E641]: the compositions of this file are too many"]
