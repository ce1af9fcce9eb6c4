"""JSON files of FastMatrixMultiplication and lists of Mathematica: what they mean, and every kind of malformed one."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from each_case import each
from hypothesis import given
from hypothesis import strategies as st
from oracle import scheme_computes

from bilinear.errors import BilinearError
from bilinear.interchange import fmm_json, tables
from bilinear.interchange.fmm_json import read_fmm_json
from bilinear.interchange.reader_parts import Asked
from bilinear.interchange.tables import read_mathematica
from bilinear.verify.scheme import prove_scheme


def written(folder: Path, data: object) -> Path:
    path = folder / "scheme.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data, indent=1), encoding="utf-8")
    return path


def outer() -> dict[str, Any]:
    """<2,1,1;2>: C11 = A11*B11, C21 = A21*B11."""
    return {"n": [2, 1, 1], "m": 2, "z2": False, "u": [[1, 0], [0, 1]], "v": [[1], [1]], "w": [[1, 0], [0, 1]]}


def reduced() -> dict[str, Any]:
    """The same with a temporary in each table: C11 = (A11+A21)*B11 - A21*B11, C21 = A21*B11."""
    return {
        "n": [2, 1, 1],
        "m": 2,
        "u_fresh": [[{"index": 0, "value": 1}, {"index": 1, "value": "1/1"}]],
        "u": [[{"index": 2, "value": 1}], [{"index": 1, "value": 1}]],
        "v": [[{"index": 0, "value": 1}], [{"index": 0, "value": 1}]],
        "w_fresh": [[{"index": 0, "value": -1}, {"index": 1, "value": 1}]],
        "w": [[{"index": 2, "value": -1}], [{"index": 1, "value": 1}]],
    }


def test_the_result_is_transposed_back(tmp_path: Path) -> None:
    row = {"n": [1, 1, 2], "m": 2, "u": [[1], [1]], "v": [[1, 0], [0, 1]], "w": [[1, 0], [0, 1]]}
    square: dict[str, Any] = {"n": [2, 1, 2], "m": 4, "u": [], "v": [], "w": []}
    for i in range(2):
        for j in range(2):
            square["u"].append([int(i == x) for x in range(2)])
            square["v"].append([int(j == x) for x in range(2)])
            square["w"].append([int((j, i) == (x, y)) for x in range(2) for y in range(2)])
    for data in (outer(), row, square):
        scheme = read_fmm_json(written(tmp_path, data))
        assert prove_scheme(scheme).holds and scheme_computes(scheme)


def test_temporaries_are_steps(tmp_path: Path) -> None:
    scheme = read_fmm_json(written(tmp_path, reduced()))
    assert scheme.u.steps == (((0, 1), (1, 1)),) and scheme.u.names == ("X1",) and not scheme.v.steps
    assert scheme.w.steps == (((0, -1), (1, 1)),) and scheme.w.outputs == (((2, -1),), ((1, 1),))
    assert prove_scheme(scheme).holds


def test_numbers_are_exact_and_rings_are_marked(tmp_path: Path) -> None:
    data = outer()
    data["u"][0][0], data["w"][0][0] = "1/3", 3
    assert read_fmm_json(written(tmp_path, data)).u.outputs[0] == ((0, Fraction(1, 3)),)
    text = json.dumps(outer()).replace("[[1, 0]", "[[0.1, 0]", 1)
    assert read_fmm_json(written(tmp_path, text)).u.outputs[0] == ((0, Fraction(1, 10)),)
    assert str(read_fmm_json(written(tmp_path, outer() | {"z2": True})).ring) == "Z/2"
    assert str(read_fmm_json(written(tmp_path, outer())).ring) == "Q"


def changed(key: str, value: Any) -> dict[str, Any]:
    return outer() | {key: value}


def changed_reduced(key: str, value: Any) -> dict[str, Any]:
    return reduced() | {key: value}


LONG = "7" * 101


@each(
    ("data", "code", "line", "message"),
    [
        ('{"u":', "E255", 1, "this is not JSON"),
        ('{\n "n": [2,\n}', "E255", 3, "this is not JSON"),
        ('{"u":' + "[" * 100_000, "E255", 1, "nested too deeply"),
        ('[{"u": 1}]', "E255", 1, "this JSON is not an object"),
        ("{}", "E653", None, "holds no scheme"),
        (changed("n", [2, 1]), "E253", 2, "n is not a list of three positive integers"),
        (changed("n", [2, 1, 0]), "E253", 2, "n is not a list of three positive integers"),
        (changed("n", [2, 1, "1"]), "E253", 2, "n is not a list of three positive integers"),
        (changed("n", [4096, 2, 1]), "E253", 2, "the format is too large"),
        (changed("n", {}), "E252", 2, "n is not a list"),
        (changed("m", 0), "E253", 7, "m is not the number of products"),
        (changed("m", True), "E253", 7, "m is not the number of products"),
        (changed("m", 3), "E253", 9, "u has 2 rows, not 3"),
        ({"n": [1, 1, 1]}, "E254", None, "m is not the number of products"),
        ({"n": [1, 1, 1], "m": 1}, "E254", None, "the key 'u' is missing"),
        (changed("u", [[1, 0], [0]]), "E253", 9, "row 2 of u is not a list of 2 numbers"),
        (changed("u", [[1, 0], 5]), "E253", 9, "row 2 of u is not a list of 2 numbers"),
        (changed("u", [[1, 0], [0, None]]), "E252", 9, "u[1][1] is not a number: 'None'"),
        (changed("u", [[1, 0], [0, True]]), "E252", 9, "u[1][1] is not a number: 'True'"),
        (changed("u", [[1, 0], [0, "1/0"]]), "E252", 9, "u[1][1] is not a number: '1/0'"),
        (changed("u", [[1, 0], [0, "1e9"]]), "E252", 9, "u[1][1] is not a number: '1e9'"),
        (json.dumps(outer()).replace("[[1, 0]", f"[[{LONG}, 0]", 1), "E252", 1, f"u[0][0] is not a number: {LONG[:40]!r}"),
        (json.dumps(outer()).replace("[[1, 0]", "[[NaN, 0]", 1), "E252", 1, "u[0][0] is not a number: 'NaN'"),
        (json.dumps(outer()).replace("[[1, 0]", "[[1e999999999, 0]", 1), "E252", 1, "u[0][0] is not a number: '1e999999999'"),
        (changed("w", [[1, 0]]), "E253", 27, "w has 1 rows, not 2"),
        (changed_reduced("u_fresh", [[{"index": 2, "value": 1}]]), "E252", 8, "row 1 of u_fresh reads value 2, but only 2 come before it"),
        (changed_reduced("u_fresh", [[{"index": -1, "value": 1}]]), "E252", 8, "row 1 of u_fresh reads value -1"),
        (changed_reduced("u_fresh", [[{"value": 1}]]), "E252", 8, "row 1 of u_fresh is not a list of index and value"),
        (changed_reduced("u_fresh", [7]), "E252", 8, "row 1 of u_fresh is not a list of index and value"),
        (changed_reduced("u_fresh", 7), "E252", 8, "u_fresh is not a list"),
        (changed_reduced("u_fresh", [[{"index": 0, "value": [1]}]]), "E252", 8, "u_fresh[0] is not a number: '[1]'"),
    ],
)
def test_malformed_files_are_refused_at_their_key(tmp_path: Path, data: object, code: str, line: int | None, message: str) -> None:
    with pytest.raises(BilinearError) as caught:
        read_fmm_json(written(tmp_path, data))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == code and message in diagnostic.message
    assert (diagnostic.span.line if diagnostic.span else None) == line
    assert "scheme.json" in str(diagnostic)


@pytest.mark.slow
def test_temporaries_that_would_explode_are_refused(tmp_path: Path) -> None:
    chain = [[{"index": 0, "value": 1}]] + [[{"index": i + 2, "value": "9" * 100}] for i in range(50)]
    with pytest.raises(BilinearError, match=r"E253.*may grow to more than 4096 bits"):
        read_fmm_json(written(tmp_path, changed_reduced("u_fresh", chain)))
    many = [[{"index": 0, "value": 1}]] * 65_000
    data = {"n": [65, 1, 1], "m": 1, "u_fresh": many, "u": [[]], "v": [[]], "w": [[]] * 65}
    with pytest.raises(BilinearError, match=r"E253.*too many temporaries"):
        read_fmm_json(written(tmp_path, json.dumps(data)))


def test_tables_of_very_many_coefficients_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fmm_json, "MOST_NONZEROS", 1)
    for data in (outer(), reduced()):
        with pytest.raises(BilinearError, match=r"E252.*u has more than 1 coefficients"):
            read_fmm_json(written(tmp_path, data))


STRASSEN = """\
(* Strassen *) strassen = {
  {{{1, 0}, {0, 1}}, {{1, 0}, {0, 1}}, {{1, 0}, {0, 1}}},
  {{{0, 0}, {1, 1}}, {{1, 0}, {0, 0}}, {{0, 1}, {0, -1}}},
  {{{1, 0}, {0, 0}}, {{0, 1}, {0, -1}}, {{0, 0}, {1, 1}}},
  {{{0, 0}, {0, 1}}, {{-1, 0}, {1, 0}}, {{1, 1}, {0, 0}}},
  {{{2, 2}, {0, 0}}, {{0, 0}, {0, 1/2}}, {{- 1, 0}, {1., 0}}},
  {{{-1, 0}, {1, 0}}, {{1, 1}, {0, 0}}, {{0, 0}, {0, 1}}},
  {{{0, 1}, {0, -1}}, {{0, 0}, {1, 1}}, {{1, 0}, {0, 0}}}
};
"""


def written_lists(folder: Path, text: str) -> Path:
    path = folder / "x.m"
    path.write_text(text, encoding="utf-8")
    return path


def test_lists_are_read_as_they_stand(tmp_path: Path) -> None:
    scheme, transposed, *_ = read_mathematica(written_lists(tmp_path, STRASSEN))
    assert transposed and scheme.format == "<2,2,2;7>" and scheme.v.matrix[4] == ((3, Fraction(1, 2)),)
    assert prove_scheme(scheme).holds and scheme_computes(scheme)
    flipped, transposed, *_ = read_mathematica(written_lists(tmp_path, STRASSEN), Asked(transposed=False))
    assert not transposed and not prove_scheme(flipped).holds


@pytest.mark.parametrize(("c", "transposed"), [("{{1}, {0}}", True), ("{{1, 0}}", False)])
def test_the_sizes_tell_whether_c_is_transposed(tmp_path: Path, c: str, transposed: bool) -> None:
    other = c.replace("1", "x").replace("0", "1").replace("x", "0")
    text = f"{{{{{{{{1}}}}, {{{{1, 0}}}}, {c}}}, {{{{{{1}}}}, {{{{0, 1}}}}, {other}}}}}"
    scheme, found, *_ = read_mathematica(written_lists(tmp_path, text))
    assert scheme.format == "<1,1,2;2>" and found is transposed and prove_scheme(scheme).holds
    with pytest.raises(BilinearError, match=r"E253.*A is 1 x 1, B 1 x 2"):
        read_mathematica(written_lists(tmp_path, text), Asked(transposed=not transposed))


@each(
    ("text", "code", "message"),
    [
        ("", "E254", "a list is not closed"),
        ("{}", "E254", "holds no product"),
        (STRASSEN[:200], "E254", "a list is not closed"),
        ("(* Strassen", "E254", "a comment is not closed"),
        ("{{{{1}}, {{1}}}}", "E252", "not a list of three matrices"),
        ("{{{{1}}, {{1}}, 1}}", "E252", "not a list of three matrices"),
        ("{{{{1}}, {{1}}, {{}}}}", "E252", "not a list of three matrices"),
        ("{{{{1, 2}, {1}}, {{1}}, {{1}}}}", "E252", "not a list of three matrices"),
        ("{{{{{1}}}}}", "E252", "'{' cannot stand here"),
        ("{1,}", "E252", "'}' cannot stand here"),
        ("{,1}", "E252", "',' cannot stand here"),
        ("{1 1}", "E252", "cannot stand here"),
        ("1", "E252", "cannot stand here"),
        ("{Sqrt[3]}", "E252", "'S' is neither a list nor a number"),
        ('{Run["true"]}', "E252", "'R' is neither a list nor a number"),
        ("{1/0}", "E252", "this is not a number"),
        (f"{{{'9' * 101}}}", "E252", "this is not a number"),
        (STRASSEN + "{1}", "E252", "something follows the list"),
        ("{{{{1}}, {{1}}, {{1}}}, {{{1, 2}}, {{1}}, {{1}}}}", "E253", "product 2 has matrices of other sizes"),
        ("{{{{1, 2}}, {{1}}, {{1}}}}", "E253", "A is 1 x 2, B 1 x 1"),
        ("{{{{1}}, {{1}}, {{1, 2}}}}", "E253", "C 1 x 2"),
    ],
)
def test_malformed_lists_are_refused(tmp_path: Path, text: str, code: str, message: str) -> None:
    with pytest.raises(BilinearError) as caught:
        read_mathematica(written_lists(tmp_path, text))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == code and message in str(diagnostic)


def test_very_many_numbers_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MOST_NUMBERS", 11)
    with pytest.raises(BilinearError, match=r"E252.*too many of them"):
        read_mathematica(written_lists(tmp_path, STRASSEN))


@given(st.integers(0, len(STRASSEN)), st.integers(0, 9), st.text("{},01-+/. (*)x\n", max_size=6))
def test_whatever_is_in_a_file_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, start: int, cut: int, text: str) -> None:
    path = written_lists(tmp_path_factory.getbasetemp(), STRASSEN[:start] + text + STRASSEN[start + cut :])
    codes: set[str] = set()
    try:
        scheme, *_ = read_mathematica(path)
        assert prove_scheme(scheme).holds == scheme_computes(scheme, trials=2)
    except BilinearError as error:
        codes = {d.code for d in error.diagnostics}
    assert codes <= {"E252", "E253", "E254"}
