"""Straight-line programs and products of sums: what they mean, and every kind of malformed one."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import scheme_computes
from published import read_sms_set

from bilinear.errors import BilinearError
from bilinear.interchange import plinopt, reader_parts
from bilinear.interchange.expressions import read_exp
from bilinear.interchange.plinopt import read_maps, read_program, require_files
from bilinear.interchange.reader_parts import Asked
from bilinear.ir.ring import Ring
from bilinear.verify.scheme import prove_scheme

STRASSEN = """\
(a11+a22)*(b11+b22)*(c11+c22)
(a21 + a22)*(b11)*(c12-c22)
a11*(b12-b22)*(c21+c22)
(-(a22))*(b21-b11)*(-(c11+c12))
-(2*a11+2a12)*(-b22/2)*(-c11+c21)

(a21-a11)*(b11+b12)*c22,
(a12-a22)*(b21+b22)*(3(c11))/3
"""
WIDE = "".join(f"(a[1,{i}])*(b{i}_1)*(c_1_1)\n".replace("(b", "(b") for i in range(1, 13))


def written(folder: Path, text: str, name: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def program(folder: Path, text: str, ring: Ring | None = None) -> tuple[tuple[object, ...], ...]:
    return read_program(written(folder, text, "x.slp")).linear(ring or Ring()).matrix


def test_products_of_sums_are_read_as_they_stand(tmp_path: Path) -> None:
    scheme, transposed, *_ = read_exp(written(tmp_path, STRASSEN, "s.exp"))
    assert transposed and scheme.format == "<2,2,2;7>" and scheme.name == "s"
    assert scheme.u.matrix[4] == ((0, -2), (1, -2)) and scheme.v.matrix[4] == ((3, Fraction(-1, 2)),)
    assert prove_scheme(scheme).holds and scheme_computes(scheme)
    flipped, transposed, *_ = read_exp(written(tmp_path, STRASSEN, "s.exp"), Asked(transposed=False))
    assert not transposed and not prove_scheme(flipped).holds


def test_indices_beyond_nine_and_sizes_from_the_largest(tmp_path: Path) -> None:
    scheme, transposed, *_ = read_exp(written(tmp_path, WIDE, "w.exp"))
    assert scheme.format == "<1,12,1;12>" and transposed and prove_scheme(scheme).holds
    rows = "(a11)*(b11)*(c11)\n(a11)*(b12)*(c12)\n"
    scheme, transposed, *_ = read_exp(written(tmp_path, rows, "w.exp"))
    assert scheme.format == "<1,1,2;2>" and not transposed and prove_scheme(scheme).holds
    scheme, transposed, *_ = read_exp(written(tmp_path, rows.replace("c12", "c21"), "w.exp"))
    assert scheme.format == "<1,1,2;2>" and transposed and prove_scheme(scheme).holds


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("", "E254", "holds no product"),
        ("(a11)*(b11)\n", "E254", "a factor of c is missing"),
        ("(a11)*(b11)*(c11+c12", "E254", "a parenthesis is not closed"),
        ("(a11)*(b11)*(", "E254", "a number or a name is missing"),
        ("(a11+b11)*(b11)*(c11)\n", "E252", "one sum of a, one of b and one of c"),
        ("(a11)*(a11)*(b11)*(c11)\n", "E252", "one sum of a, one of b and one of c"),
        ("(a11*a12)*(b11)*(c11)\n", "E252", "one sum of a, one of b and one of c"),
        ("(a11*a12+a11)*(b11)*(c11)\n", "E252", "two values are multiplied"),
        ("(a11+a11*a12)*(b11)*(c11)\n", "E252", "two values are multiplied"),
        ("(a11)*(b11)*(c11)/2j\n", "E252", "divided by a value"),
        ("(a11)*(b11)*(c11)/0\n", "E252", "divides by zero"),
        ("(a11)/(b11)*(c11)\n", "E252", "divided by a value"),
        ("(a11+1)*(b11)*(c11)\n", "E252", "a number is added to a value"),
        ("(a11)*(b11)*(c11))\n", "E252", "')' cannot stand here"),
        ("(a111)*(b11)*(c11)\n", "E252", "'a111' is not known here"),
        ("(a01)*(b11)*(c11)\n", "E252", "'a01' is not known here"),
        ("(d11)*(b11)*(c11)\n", "E252", "'d11' is not known here"),
        ("(a11)^2*(b11)*(c11)\n", "E252", "'^' cannot stand here"),
        (f"{'(' * 50}a11{')' * 50}*(b11)*(c11)\n", "E252", "nest too deeply"),
        (f"({'9*' * 500}a11)*(b11)*(c11)\n", "E252", "grows too long"),
        (f"({'9' * 101}a11)*(b11)*(c11)\n", "E252", "is not known here"),
        ("(a[1,4000])*(b11)*(c[1,4000])\n", "E253", "too large"),
        ("__import__('os')", "E252", "a number or a name is missing"),
    ],
)
def test_malformed_products_are_refused(tmp_path: Path, text: str, code: str, message: str) -> None:
    with pytest.raises(BilinearError) as caught:
        read_exp(written(tmp_path, text, "x.exp"))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == code and message in diagnostic.message


def test_a_program_is_a_map_with_the_authors_sums(tmp_path: Path) -> None:
    text = "# c\nt0:=i0+i1;\nt0:=t0*2-i2; o1:=t0/3-(i0+i1)*5;\no0:=t0;\nc0:=7;o2:=-i3*c0\no3:=-(i1-i0);"
    part = read_program(written(tmp_path, text, "x.slp"))
    linear = part.linear(Ring())
    assert linear.matrix == (
        ((0, 2), (1, 2), (2, -1)),
        ((0, Fraction(2, 3) - 5), (1, Fraction(2, 3) - 5), (2, Fraction(-1, 3))),
        ((3, -7),),
        ((0, 1), (1, -1)),
    )
    assert linear.additions == 5 and linear.names[:2] == ("t0", "t0")


def test_what_no_other_value_reads_is_no_step(tmp_path: Path) -> None:
    linear = read_program(written(tmp_path, "o0:=i2-i0;o1:=i3+o0;o2:=i0;", "x.slp")).linear(Ring())
    assert linear.names == ("o0",) and linear.outputs == (((4, 1),), ((3, 1), (4, 1)), ((0, 1),))


def test_the_placeholder_of_a_program(tmp_path: Path) -> None:
    assert str(program(tmp_path, "o0:=i0*1013/2;", Ring("Q[sqrt(3)]"))[0][0][1]) == "1/2*sqrt(3)"  # type: ignore[index]


def test_three_programs_are_a_scheme_of_the_sizes_in_their_name(tmp_path: Path) -> None:
    for letter, text in {"L": "o0:=i0;", "R": "o0:=i0;", "P": "o0:=i0;"}.items():
        written(tmp_path, text, f"1x2x1_1_half_{letter}.slp")
    scheme = read_sms_set(tmp_path / "1x2x1_1_half", suffix="slp")
    assert scheme.format == "<1,2,1;1>" and len(prove_scheme(scheme).failures) == 1


def test_inputs_that_are_not_read_move_no_step(tmp_path: Path) -> None:
    for letter, text in {"L": "t0:=i0-i1;o0:=t0*3;o1:=t0;", "R": "o0:=i0;o1:=i1;", "P": "t1:=i0*2;o0:=t1+i0;o1:=t1;"}.items():
        written(tmp_path, text, f"1x3x1_2_part_{letter}.slp")
    maps = read_maps(require_files(tmp_path / "1x3x1_2_part_L.slp"))
    assert maps.sizes == (3, 3, 2) and maps.w.inputs == 2
    assert maps.u.matrix == (((0, 3), (1, -3)), ((0, 1), (1, -1))) and maps.w.matrix == (((0, 3),), ((0, 2),))


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("", "E254", "the output o0 is missing"),
        ("o0:=i0;o2:=i1;", "E254", "the output o1 is missing"),
        ("o0:=i0", "E254", "the program breaks off"),
        ("o0:=i0+;", "E254", "a number or a name is missing"),
        ("o0:=(i0;", "E254", "a parenthesis is not closed"),
        ("o0:=i0 o1:=i1;", "E252", "an assignment does not end"),
        ("o0:=t3;", "E252", "'t3' is not known here"),
        ("o0:=i0*i1;", "E252", "two values are multiplied"),
        ("o0:=i0/0;", "E252", "divides by zero"),
        ("o0:=1;", "E252", "the output o0 is a number"),
        ("o0=i0;", "E252", "this is not an assignment"),
        ("import os;o0:=i0;", "E252", "this is not an assignment"),
        ("o0:=i0;;", "E252", "';' cannot stand here"),
        ("o0:=i999999;", "E252", "'i999999' is not known here"),
    ],
)
def test_malformed_programs_are_refused(tmp_path: Path, text: str, code: str, message: str) -> None:
    with pytest.raises(BilinearError) as caught:
        program(tmp_path, text)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == code and message in diagnostic.message


def test_large_files_of_expressions_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for reader, name in ((read_exp, "x.exp"), (read_program, "x.slp")):
        with pytest.raises(BilinearError, match=r"E251.*larger than 1 MiB"):
            reader(written(tmp_path, " " * (reader_parts.MOST_EXPRESSIONS + 1), name))
    monkeypatch.setattr(plinopt, "MOST_NONZEROS", 3)
    with pytest.raises(BilinearError, match=r"E252.*too large"):
        program(tmp_path, "o0:=i0+i1;o1:=i0+i1;")


PIECES = st.sampled_from(["(", ")", "*", "/", "-", "+", "0", "7", "a11", "b22", "i0", "o1:=", ";", ":", ".", "\n", "\0", "a[1,", " ", "99"])


@given(st.sampled_from([STRASSEN, "t0:=i0+i1*2;o0:=t0-(i1/3);"]), st.integers(0, 200), st.integers(0, 9), st.lists(PIECES, max_size=4))
def test_whatever_is_in_a_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, text: str, start: int, cut: int, pieces: list[str]
) -> None:
    start = min(start, len(text))
    mutant = text[:start] + "".join(pieces) + text[start + cut :]
    codes: set[str] = set()
    try:
        if text is STRASSEN:
            scheme, *_ = read_exp(written(tmp_path_factory.getbasetemp(), mutant, "x.exp"))
            assert prove_scheme(scheme).holds == scheme_computes(scheme, trials=2)
        else:
            read_program(written(tmp_path_factory.getbasetemp(), mutant, "x.slp"))
    except BilinearError as error:
        codes = {d.code for d in error.diagnostics}
    assert codes <= {"E252", "E253", "E254"}


def test_a_sign_behind_a_character_that_is_no_space_ends(tmp_path: Path) -> None:
    with pytest.raises(BilinearError, match="E25"):
        read_program(written(tmp_path, "o0:=i0*1+i3*\x1f\xa0-i4*1;\n", "x.slp"))
