"""Straight-line programs, products of sums, and formulas as papers print them: what they mean, and every kind of malformed one."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from each_case import each
from foreign import U, V
from hypothesis import given
from hypothesis import strategies as st
from oracle import scheme_computes
from published import read_sms_set
from typer.testing import CliRunner

from bilinear.cli.app import app
from bilinear.errors import BilinearError
from bilinear.frontend import load, load_shipped
from bilinear.interchange import plinopt, reader_parts
from bilinear.interchange.expressions import read_exp
from bilinear.interchange.importing import import_scheme
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


@each(
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


@each(
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


AS_PRINTED = """\
M1 = (A11 + A22)(B11 + B22)
M2 = (A21 + A22)B11
M3 = A11(B12 - B22)
M4 = A22(B21 - B11)
M5 = (A11 + A12)B22
M6 = (A21 - A11)(B11 + B12)
M7 = (A12 - A22)(B21 + B22)
C11 = M1 + M4 - M5 + M7
C12 = M3 + M5
C21 = M2 + M4
C22 = M1 - M2 + M3 + M6
"""
WINOGRAD = r"""
\begin{array}{lll}
S_1 = A_{2,1} + A_{2,2} & M_1 = S_2 T_2 & U_1 = M_1 + M_2 \\
S_2 = S_1 - A_{1,1} & M_2 = A_{1,1} \times B_{1,1} & U_2 = U_1 + M_4 \\
T_1 = B_{1,2} - B_{1,1} & M_3 = A_{1,2} \times B_{2,1} & C_{1,1} = M_2 + M_3 \\
T_2 = B_{2,2} - T_1 & M_4 = (A_{1,1} - A_{2,1}) (B_{2,2} - B_{1,2}) & C_{1,2} = U_1 + M_5 + M_6 \\
 & M_5 = S_1 T_1 & C_{2,1} = U_2 - M_7 \\
 & M_6 = \left( A_{1,2} - S_2 \right) \cdot B_{2,2} & C_{2,2} = U_2 + M_5 \\
 & M_7 = A_{2,2} \, (T_2 - B_{2,1}) \tag{3.1}
\end{array}
"""
ROMAN = ("", "I", "II", "III", "IV", "V", "VI", "VII")


def replaced(pattern: str, becomes: str | Callable[[re.Match[str]], str]) -> str:
    return re.sub(pattern, becomes, AS_PRINTED)


def in_latex() -> str:
    rows = replaced(r"([ABC])(\d)(\d)", r"\\mathbf{\1}_{\2\3}").replace("M", "M_").replace(" = ", " &= ").replace("\n", ", \\\\\n")
    return f"The seven products are\n\\begin{{align}}\n{rows}\\end{{align}}\nwhere $n = 2$ and $C_{{ij}}$ denotes a block.\n"


def in_columns() -> str:
    """As `pdftotext -layout` lays out a table of two columns."""
    lines = AS_PRINTED.replace("-", "\u2212").splitlines()
    return "".join(f"{left:40}{right}\n" for left, right in zip(lines[:7], [*lines[7:], "", "", ""], strict=True))


def with_indices_below() -> str:
    """As `pdftotext -layout` prints low indices: the letters of a line, and below them the numbers."""
    pairs = []
    for line in AS_PRINTED.splitlines():
        pairs += [re.sub(r"([A-Z])\d+", r"\1  ", line), "".join(c if c.isdigit() else " " for c in line), ""]
    return "\n".join(pairs)


def in_place() -> str:
    """Blocks numbered from 0, and products added to those of C."""
    text, added = replaced(r"([AB])(\d)(\d)", lambda m: f"{m[1]}_{2 * int(m[2]) + int(m[3]) - 3}"), ""
    for line in text.splitlines()[7:]:
        block = f"C_{2 * int(line[1]) + int(line[2]) - 3}"
        added += "".join(f"{block} {sign or '+'}= {product}; " for sign, product in re.findall(r"([+-]?) ?(M\d)", line[5:]))
    return "".join(text.splitlines(keepends=True)[:7]) + added


PASTED: dict[str, str] = {
    "minus": AS_PRINTED.replace("-", "\u2212").replace(")(", ") \u00b7 (").replace(")B", ") \u00d7 B").replace("1(", "1\u22c5("),
    "lower": AS_PRINTED.lower().replace("\n", ",\n"),
    "roman": replaced(r"M(\d)", lambda m: ROMAN[int(m[1])]).replace("-", "\u2013").replace("\n", ".\n"),
    "latex": in_latex(),
    "winograd": WINOGRAD,
    "indices": replaced(
        r"([ABC])(\d)(\d)", lambda m: f"{m[1].lower()}_{m[2]}{m[3]}" if m[1] == "A" else f"{m[1].lower()}_{{{m[2]},{m[3]}}}"
    ),
    "unicode": AS_PRINTED.translate({ord("A"): 0x1D434, ord("B"): 0x1D435, **{48 + i: 0x2080 + i for i in range(10)}}),
    "words": "3.1 The e\ufb03cient products\n\n"
    + AS_PRINTED.replace("C11", "(5)\n\nand so, with N = 2k, the blocks of C are\nC11")
    + "\n\f12\n",
    "commas": replaced(r"([ABC])(\d)(\d)", r"\1\2, \3").replace("M1 +", "M 1 +").replace("+ B2, 2)\n", "+ B2, 2)    (1)\n", 1),
    "columns": in_columns(),
    "below": with_indices_below(),
    "in place": in_place(),
}
"""Strassen's scheme, or Winograd's, in the styles of papers."""


@each("style", PASTED)
def test_what_is_pasted_is_proved(tmp_path: Path, style: str) -> None:
    (tmp_path / "paper.txt").write_text(PASTED[style], encoding="utf-8")
    found = import_scheme(tmp_path / "paper.txt")
    assert found.scheme.format == "<2,2,2;7>" and scheme_computes(found.scheme)
    assert found.scheme.additions == (15 if style == "winograd" else 18)
    tables = [[[dict(row).get(i, 0) for i in range(4)] for row in linear.matrix] for linear in (found.scheme.u, found.scheme.v)]
    assert style == "winograd" or tables == [U, V]
    products = {"roman": ROMAN[1:], "lower": ("m1", "m7"), "latex": ("M_1", "M_7"), "winograd": ("M_1", "M_7")}.get(style, ("M1", "M7"))
    assert (found.scheme.products[0], found.scheme.products[-1]) == (products[0], products[-1])
    read = {"latex": "lines 1, 15: words", "words": "lines 1, 12: words"}
    assert [told.partition(", which")[0] for told in found.found] == ([read[style]] if style in read else [])


@each("style", PASTED)
def test_what_cannot_be_read_is_pointed_at(tmp_path: Path, style: str) -> None:
    """Each sign + of a text in turn becomes one that no formula has."""
    text = PASTED[style]
    for place in [match.start() for match in re.finditer(r"\+(?!=)", text)]:
        (tmp_path / "paper.txt").write_text(f"{text[:place]}?{text[place + 1 :]}", encoding="utf-8")
        with pytest.raises(BilinearError) as caught:
            import_scheme(tmp_path / "paper.txt", format="formulas")
        (diagnostic,) = caught.value.diagnostics
        assert diagnostic.code == "E252" and diagnostic.span is not None
        assert (diagnostic.span.start, diagnostic.span.source.text[diagnostic.span.start]) == (place, "?")


def test_ladermans_scheme_of_rows_that_wrap(tmp_path: Path) -> None:
    """Its products in lower case, with indices that a copy has parted from their letters, in lines of 40 signs."""
    scheme = load_shipped("laderman").scheme

    def total(letter: str, row: tuple[tuple[int, object], ...], parted: str) -> str:
        names = [letter + parted + (f"{i // 3 + 1}{i % 3 + 1}" if letter in "ab" else f"{i + 1}") for i, _ in row]
        signs = ["\u2212" if c == -1 else "+" for _, c in row]
        return "".join(f" {sign} {name}" for sign, name in zip(signs, names, strict=True)).removeprefix(" + ")

    rows = zip(scheme.u.matrix, scheme.v.matrix, strict=True)
    lines = [f"m {p + 1} = ({total('a', u, ' ')})({total('b', v, '')})" for p, (u, v) in enumerate(rows)]
    lines += [f"c{i // 3 + 1}{i % 3 + 1} = {total('m', row, ' ')}" for i, row in enumerate(scheme.w.matrix)]
    text = "\n".join(re.sub(r"(.{40,}?) (?=[+\u2212])", r"\1\n    ", line) for line in lines)
    (tmp_path / "laderman.txt").write_text(text, encoding="utf-8")
    assert import_scheme(tmp_path / "laderman.txt").scheme.tables == scheme.tables


@each(
    ("text", "place", "told"),
    [
        ("I = (A + A )(B + B )\nII = (A + A )B\nC = I + II\n", (1, 6), "'A' is not known here.*has its row and column"),
        ("I = (All + A22)(B11 + B22)\nC11 = I\n", (1, 6), "'All' is not known here"),
        ("m1 = (x11 + x22)(b11 + b22)\nm2 = a11*b11\nc11 = m1\n", (1, 7), "'x11' is not known here"),
        ("C11 = A11 B11\nM1 = A11 B11\nC11 = M1\n", (3, 1), "C11 is computed twice"),
        ("M1 = \\sqrt{2} A_{11} B_{11}\nC_{11} = M1\n", (1, 6), "a number or a name is missing"),
        ("S1 = S2 + A11\nS2 = S1 + A11\nM1 = S2 B11\nC11 = M1\n", (1, 1), "S1 depends on itself"),
        ("M1 = A11 B11\nA12 B21\nC11 = M1\n", (2, 8), "two values are multiplied"),
        ("M1 = A11 B11.\nA12 + B21\nC11 = M1\n", (2, 1), "this is not a formula"),
        ("M1 = A11 B11\nM2 += A12 B21\nC11 = M1 + M2\n", (2, 1), "M2 has no sum to add to"),
    ],
)
def test_what_is_no_formula_is_refused_where_it_is(tmp_path: Path, text: str, place: tuple[int, int], told: str) -> None:
    (tmp_path / "paper.txt").write_text(text, encoding="utf-8")
    with pytest.raises(BilinearError, match=rf"(?s){told}") as caught:
        import_scheme(tmp_path / "paper.txt", format="formulas")
    span = caught.value.diagnostics[0].span
    assert span is not None and (span.line, span.column) == place


def test_a_new_scheme_is_begun_with_a_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("paper.txt").write_text(WINOGRAD)
    assert CliRunner().invoke(app, ["new", "mine", "--from", "paper.txt"]).exit_code == 0
    scheme = load("mine.bl").scheme
    assert scheme.name == "mine" and scheme.additions == 15 and scheme_computes(scheme)
    Path("paper.txt").write_text(WINOGRAD.replace("U_2 + M_5", "U_2 - M_5"))
    for line in ("wrong --from paper.txt", "wrong 2 --from paper.txt", "wrong --from paper.txt --rank 7", "wrong"):
        error = CliRunner().invoke(app, ["new", *line.split()]).exception
        assert isinstance(error, BilinearError) and error.diagnostics[0].code == (
            "E356" if line.endswith("txt") and "2" not in line else "E507"
        )
    assert [path.name for path in tmp_path.glob("*.bl")] == ["mine.bl"]
