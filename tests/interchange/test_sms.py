"""plinopt's matrices and fast-matmul's tables: what is read, and every kind of malformed file refused where it is wrong."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from each_case import each
from foreign import FAST_MATMUL
from hypothesis import given
from hypothesis import strategies as st
from oracle import scheme_computes
from published import FOLDER, needs_folder, read_sms_set

from bilinear.errors import BilinearError
from bilinear.interchange import plinopt, reader_parts, tables
from bilinear.interchange.plinopt import read_sms
from bilinear.interchange.tables import read_fast_matmul
from bilinear.ir.number import generator
from bilinear.ir.ring import Ring
from bilinear.verify.scheme import prove_scheme

DATA = FOLDER / "plinopt" / "data"


@needs_folder
@pytest.mark.parametrize("core", ["3x4x7_63_rational", "4x4x4_48_accurate", "4x4x4_48_rational"])
def test_a_scheme_in_another_basis_has_the_tables_of_the_plain_one(core: str) -> None:
    other, plain = read_sms_set(DATA / f"{core}-ALT"), read_sms_set(DATA / core)
    assert other.bases is not None and other.additions < plain.additions
    assert other.tables == plain.tables


@needs_folder
def test_a_scheme_in_another_basis_needs_its_changes_of_basis() -> None:
    left, right, post = (DATA / f"2x2x2_7_DPS-accurate-ALT_{m}.sms" for m in "LRP")
    assert not prove_scheme(read_sms(left, right, post)).holds
    left, right, post = (DATA / f"4x4x4_48_accurate-ALT_{m}.sms" for m in "LRP")
    with pytest.raises(BilinearError, match=r"E253.*A has 47 blocks, B 47, C 47"):
        read_sms(left, right, post)


# A11*B11 + A12*B21 with both left factors halved and doubled by the placeholder: 1013/2 * 1013 * 2/3 = 1 where 1013 is sqrt(3).
LEFT = "# L\n2 2 R\n1 1 1013/2\n2 2 1013/2\n0 0 0\n"
RIGHT = "2 2 M\n\n1 1 1013\n2 2 1013 \n0 0 0\nwhatever follows\n"
POST = "1 2 R\r\n1 1 2/3\r\n1 2 2/3\r\n0 0 0\r\n"


def three(folder: Path, left: str = LEFT, right: str = RIGHT, post: str = POST) -> tuple[Path, Path, Path]:
    paths = (folder / "dot_L.sms", folder / "dot_R.sms", folder / "dot_P.sms")
    for path, text in zip(paths, (left, right, post), strict=True):
        path.write_bytes(text.encode())
    return paths


@pytest.mark.parametrize(("post", "ring"), [("2/3", "Q[sqrt(3)]"), ("-2/1", "Q[i]"), ("1/1", "Q[sqrt(2)]"), ("2/1026169", "Q")])
def test_the_placeholder_is_found_by_trying(tmp_path: Path, post: str, ring: str) -> None:
    scheme = read_sms(*three(tmp_path, post=POST.replace("2/3", post)))
    assert str(scheme.ring) == ring and prove_scheme(scheme).holds
    assert scheme.name == "dot" and scheme.format == "<1,2,1;2>"


def test_a_comment_or_the_caller_says_what_the_placeholder_is(tmp_path: Path) -> None:
    named = "# 1013 is a placeholder for sqrt(11)\n" + LEFT
    scheme = read_sms(*three(tmp_path, left=named))
    assert str(scheme.ring) == "Q[sqrt(11)]" and scheme.u.outputs[0] == ((0, generator("sqrt(11)") * Fraction(1, 2)),)
    assert not prove_scheme(scheme).holds
    named = "# 1013 is a placeholder for a square root of -1\n" + LEFT
    assert str(read_sms(*three(tmp_path, left=named)).ring) == "Q[i]"
    assert prove_scheme(read_sms(*three(tmp_path, left=named), ring=Ring("Q[sqrt(3)]"))).holds
    assert read_sms(*three(tmp_path, left=named), ring=Ring()).u.outputs[0] == ((0, Fraction(1013, 2)),)


def test_a_letter_is_a_placeholder_that_is_never_an_integer(tmp_path: Path) -> None:
    left, right = LEFT.replace("1013/2", "1/2*X"), RIGHT.replace("1013", "X")
    assert str(read_sms(*three(tmp_path, left, right)).ring) == "Q[sqrt(3)]"
    with pytest.raises(BilinearError) as caught:
        read_sms(*three(tmp_path, left, right, POST.replace("2/3", "2/1026169")))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "E256" and "sqrt(3), i" in diagnostic.notes[0] and "1013" not in diagnostic.notes[0]


@each(
    ("left", "code", "place", "message"),
    [
        (LEFT.replace("2 2 R", "2 2"), "E252", (2, 1), "a line of a matrix has three words"),
        (LEFT.replace("2 2 R", "2 0 R"), "E252", (2, 1), "the first line is not a size"),
        (LEFT.replace("2 2 R", "2 999999 R"), "E252", (2, 1), "the first line is not a size"),
        (LEFT.replace("2 2 R", "1 1 1"), "E252", (2, 1), "the first line is not a size"),
        (LEFT.replace("1 1 1013/2", "1 1 1013/2 1"), "E252", (3, 1), "a line of a matrix has three words"),
        (LEFT.replace("1 1 1013/2", "1 3 1013/2"), "E252", (3, 1), "there is no such place in the matrix"),
        (LEFT.replace("1 1 1013/2", "0 1 1013/2"), "E252", (3, 1), "there is no such place in the matrix"),
        (LEFT.replace("1 1 1013/2", "1 -1 1013/2"), "E252", (3, 1), "there is no such place in the matrix"),
        (LEFT.replace("1 1 1013/2", "1 1 2e9"), "E252", (3, 5), "'2e9' is not a value"),
        (LEFT.replace("1 1 1013/2", "1 1 1/0"), "E252", (3, 5), "'1/0' is not a value"),
        (LEFT.replace("1 1 1013/2", "1 1 X2"), "E252", (3, 5), "'X2' is not a value"),
        (LEFT.replace("2 2 1013/2", "1 1 1"), "E252", (4, 1), "this place has two values"),
        (LEFT.replace("0 0 0\n", ""), "E254", (5, 1), "the matrix does not end"),
        ("", "E254", (1, 1), "the matrix does not end"),
        (LEFT.replace("2 2 R", "3 2 R"), "E253", None, "L has 3 rows, R has 2, and P has 2 columns"),
        (LEFT.replace("2 2 R", "2 3 R"), "E253", None, "not a multiplication of matrices: A has 3 blocks, B 2, C 1"),
    ],
)
def test_malformed_matrices_are_refused_where_they_are_wrong(
    tmp_path: Path, left: str, code: str, place: tuple[int, int] | None, message: str
) -> None:
    with pytest.raises(BilinearError) as caught:
        read_sms(*three(tmp_path, left))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == code and message in diagnostic.message
    assert (diagnostic.span and (diagnostic.span.line, diagnostic.span.column)) == place
    assert "dot_L.sms" in str(diagnostic)


def test_changes_of_basis_must_fit(tmp_path: Path) -> None:
    paths = three(tmp_path)
    with pytest.raises(BilinearError, match=r"E253.*they make 1, 2 and 2 values, the scheme works on 2, 2 and 1"):
        read_sms(*paths, bases=(paths[2], paths[1], paths[1]))
    with pytest.raises(BilinearError, match="E251"):
        read_sms_set(tmp_path / "none")


def test_matrices_of_very_many_values_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plinopt, "MOST_NONZEROS", 1)
    with pytest.raises(BilinearError, match=r":4:1: error\[E252\]: the matrix is too large"):
        read_sms(*three(tmp_path))


@given(st.integers(0, len(LEFT)), st.integers(0, 12), st.text("0123R -/.*X#\n", max_size=12))
def test_whatever_is_in_a_file_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, start: int, cut: int, text: str) -> None:
    paths = three(tmp_path_factory.getbasetemp(), LEFT[:start] + text + LEFT[start + cut :])
    codes: set[str] = set()
    try:
        assert read_sms(*paths).rank == 2
    except BilinearError as error:
        codes = {d.code for d in error.diagnostics}
    assert codes <= {"E252", "E253", "E254", "E256"}


STRASSEN = f"# comment\n{FAST_MATMUL}"


def written(folder: Path, text: str, name: str = "table222-7-36") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@needs_folder
@pytest.mark.parametrize(("eliminated", "plain"), [("hk323-15-84", "hk323-15-94"), ("smirnov333-23-128", "smirnov333-23-139")])
def test_substituted_temporaries_are_steps_and_mean_the_same_tables(eliminated: str, plain: str) -> None:
    folder = FOLDER / "fast-matmul" / "algorithms"
    fewer, more = read_fast_matmul(folder / "eliminated" / eliminated), read_fast_matmul(folder / plain)
    assert fewer.u.steps and fewer.v.names[0] == "Y1"
    assert fewer.tables == more.tables and fewer.additions < more.additions


def test_a_table_is_read_as_it_stands(tmp_path: Path) -> None:
    scheme = read_fast_matmul(written(tmp_path, STRASSEN))
    assert scheme.format == "<2,2,2;7>" and scheme.name == "table222_7_36" and scheme.products[6] == "M7"
    assert scheme.u.matrix[5] == ((0, -1), (2, 1)) and scheme.w.matrix[3] == ((0, 1), (1, -1), (2, 1), (5, 1))
    assert prove_scheme(scheme).holds and scheme_computes(scheme)
    assert read_fast_matmul(written(tmp_path, STRASSEN), (2, 2, 2)) == scheme


def test_a_table_with_temporaries_is_read_as_steps(tmp_path: Path) -> None:
    text = "0 1\n1 0\n1 0\n#\n0 1\n1 0\n#\n0 0 2\n# Substitution information\n-1 1/2\n#\n#\n.5 .5\n"
    scheme = read_fast_matmul(written(tmp_path, text), (1, 2, 1))
    assert scheme.u.steps == (((0, -1), (1, Fraction(1, 2))),) and not scheme.v.steps
    assert scheme.u.outputs == (((1, 1), (2, 1)), ((0, 1),))
    assert scheme.w.steps == (((0, Fraction(1, 2)), (1, Fraction(1, 2))),) and scheme.w.outputs == (((2, 2),),)
    assert not prove_scheme(scheme).holds


@each(
    ("token", "value"),
    [
        ("-3", -3),
        ("-1/2", Fraction(-1, 2)),
        ("-.125", Fraction(-1, 8)),
        ("0.5", Fraction(1, 2)),
        ("x", generator("lambda")),
        ("-x2", generator("lambda", 2) * -1),
        ("xi", generator("lambda", -1)),
        ("x2i", generator("lambda", -2)),
        ("-1/8x2i", generator("lambda", -2) * Fraction(-1, 8)),
        ("5x3i", generator("lambda", -3) * 5),
        ("(1+-x)", 1 - generator("lambda")),
        ("(1/5x+-x2)", generator("lambda") * Fraction(1, 5) - generator("lambda", 2)),
        ("(x+-x)", None),
    ],
)
def test_every_way_to_write_a_number(tmp_path: Path, token: str, value: object) -> None:
    scheme = read_fast_matmul(written(tmp_path, f"{token}\n#\n1\n#\n1\n"))
    assert scheme.u.outputs == ((((0, value),) if value is not None else ()),)
    assert str(scheme.ring) == ("Q[lambda]" if "x" in token and value is not None else "Q")


@each(
    ("text", "code", "place", "message"),
    [
        (STRASSEN.replace("0 0 0 0 1 0 1", "0 0 z 0 1 0 1", 1), "E252", (3, 5), "'z' is not a number of these tables"),
        (STRASSEN.replace("0 0 0 0 1 0 1", "0 0 1/0 0 1 0 1", 1), "E252", (3, 5), "'1/0' is not a number of these tables"),
        (STRASSEN.replace("0 0 0 0 1 0 1", "0 0 x99 0 1 0 1", 1), "E252", (3, 5), "'x99' is not a number of these tables"),
        (STRASSEN.replace("0 0 0 0 1 0 1", f"0 0 {'9' * 101} 0 1 0 1", 1), "E252", (3, 5), f"{'9' * 40!r} is not a number"),
        (STRASSEN.replace("0 0 0 0 1 0 1", "0 0 (1+) 0 1 0 1", 1), "E252", (3, 5), "'(1+)' is not a number of these tables"),
        (STRASSEN.replace("0 0 0 0 1 0 1", "0 0 __import__('os') 0 1 0 1", 1), "E252", (3, 5), "is not a number of these tables"),
        (STRASSEN.replace("0 0 0 0 1 0 1", "0 0 0 0 1 0", 1), "E252", (3, 1), "the rows of U are not of one length"),
        (STRASSEN.replace("0 0 0 0 1 0 1\n", "", 1), "E253", None, "not a multiplication of matrices: A has 3 blocks, B 4, C 4"),
        (STRASSEN.replace("1 -1 1 0 0 1 0\n", ""), "E253", None, "A has 4 blocks, B 4, C 3"),
        (STRASSEN.rsplit("#", 1)[0], "E254", None, "holds 2 tables, not U, V and W"),
        ("", "E254", None, "holds 0 tables"),
        (STRASSEN + "#\n1 0\n", "E254", (16, 1), "there are more than three tables"),
        (STRASSEN + "# Substitution information\n1 0\n", "E253", (17, 1), "the temporaries of U do not fit their table"),
        (STRASSEN.replace("1 0 1 0 1 -1 0", "1 0 1 0 1 -1 0 1").replace(" 1\n0 0 0 0 1", " 1\n0"), "E252", (3, 1), "not of one length"),
        ("1 1\n#\n1\n#\n1\n", "E253", None, "U makes 2 left factors, V 1 right factors, and W reads 1 products"),
    ],
)
def test_malformed_tables_are_refused_where_they_are_wrong(
    tmp_path: Path, text: str, code: str, place: tuple[int, int] | None, message: str
) -> None:
    with pytest.raises(BilinearError) as caught:
        read_fast_matmul(written(tmp_path, text))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == code and message in diagnostic.message
    assert (diagnostic.span and (diagnostic.span.line, diagnostic.span.column)) == place
    assert "table222-7-36" in str(diagnostic)


def test_another_format_than_the_one_that_was_asked_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BilinearError, match=r"E253.*is of the format <2,2,2>, not <1,4,1>"):
        read_fast_matmul(written(tmp_path, STRASSEN), (1, 4, 1))


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"1 0\n\xff\n")
    monkeypatch.setattr(reader_parts, "MOST_BYTES", 2**20)
    large = written(tmp_path, "1 " * 2**19 + "1", "large")
    for path, message in [
        (tmp_path / "none", "No such file"),
        (tmp_path, "cannot be read"),
        (binary, "byte 4 does not decode"),
        (large, "is larger than 1 MiB"),
    ]:
        with pytest.raises(BilinearError, match=f"E251.*{message}"):
            read_fast_matmul(path)


def test_tables_of_very_many_coefficients_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MOST_NONZEROS", 11)
    with pytest.raises(BilinearError, match=r":5:1: error\[E252\]: U is too large"):
        read_fast_matmul(written(tmp_path, STRASSEN))
