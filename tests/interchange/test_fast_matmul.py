"""Tables of the fast-matmul collection: what is read, and every kind of malformed one refused where it is wrong."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from foreign import FAST_MATMUL
from oracle import scheme_computes
from published import FOLDER, needs_folder

from bilinear.errors import BilinearError
from bilinear.interchange import reader_parts, tables
from bilinear.interchange.tables import read_fast_matmul
from bilinear.ir.number import generator
from bilinear.verify.scheme import prove_scheme

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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
