"""Lists of Mathematica: what they mean, and every kind of malformed one."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import scheme_computes

from bilinear.errors import BilinearError
from bilinear.interchange import tables
from bilinear.interchange.reader_parts import Asked
from bilinear.interchange.tables import read_mathematica
from bilinear.verify.scheme import prove_scheme

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


def written(folder: Path, text: str) -> Path:
    path = folder / "x.m"
    path.write_text(text, encoding="utf-8")
    return path


def test_lists_are_read_as_they_stand(tmp_path: Path) -> None:
    scheme, transposed, *_ = read_mathematica(written(tmp_path, STRASSEN))
    assert transposed and scheme.format == "<2,2,2;7>" and scheme.v.matrix[4] == ((3, Fraction(1, 2)),)
    assert prove_scheme(scheme).holds and scheme_computes(scheme)
    flipped, transposed, *_ = read_mathematica(written(tmp_path, STRASSEN), Asked(transposed=False))
    assert not transposed and not prove_scheme(flipped).holds


@pytest.mark.parametrize(("c", "transposed"), [("{{1}, {0}}", True), ("{{1, 0}}", False)])
def test_the_sizes_tell_whether_c_is_transposed(tmp_path: Path, c: str, transposed: bool) -> None:
    other = c.replace("1", "x").replace("0", "1").replace("x", "0")
    text = f"{{{{{{{{1}}}}, {{{{1, 0}}}}, {c}}}, {{{{{{1}}}}, {{{{0, 1}}}}, {other}}}}}"
    scheme, found, *_ = read_mathematica(written(tmp_path, text))
    assert scheme.format == "<1,1,2;2>" and found is transposed and prove_scheme(scheme).holds
    with pytest.raises(BilinearError, match=r"E253.*A is 1 x 1, B 1 x 2"):
        read_mathematica(written(tmp_path, text), Asked(transposed=not transposed))


@pytest.mark.parametrize(
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
        read_mathematica(written(tmp_path, text))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == code and message in str(diagnostic)


def test_very_many_numbers_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MOST_NUMBERS", 11)
    with pytest.raises(BilinearError, match=r"E252.*too many of them"):
        read_mathematica(written(tmp_path, STRASSEN))


@given(st.integers(0, len(STRASSEN)), st.integers(0, 9), st.text("{},01-+/. (*)x\n", max_size=6))
def test_whatever_is_in_a_file_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, start: int, cut: int, text: str) -> None:
    path = written(tmp_path_factory.getbasetemp(), STRASSEN[:start] + text + STRASSEN[start + cut :])
    codes: set[str] = set()
    try:
        scheme, *_ = read_mathematica(path)
        assert prove_scheme(scheme).holds == scheme_computes(scheme, trials=2)
    except BilinearError as error:
        codes = {d.code for d in error.diagnostics}
    assert codes <= {"E252", "E253", "E254"}
