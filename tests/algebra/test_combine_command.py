"""`bilinear combine`: what it prints, what it writes, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from shell import Shell

from bilinear.algebra.composition import SchemeTree
from bilinear.cli.discovering import _combined_text
from bilinear.errors import BilinearError
from bilinear.frontend import load, parse_source
from bilinear.frontend import printer as writing
from bilinear.frontend.algorithms import compose
from bilinear.interchange import folders
from bilinear.ir.ring import RATIONALS
from bilinear.reporting.shipped import compared
from bilinear.source import Source
from bilinear.verify.scheme import prove_scheme


@pytest.fixture(autouse=True)
def _library(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shipped schemes grow in number; these tests know two of them."""
    known = [(name, load(name).scheme) for name in ("strassen", "winograd")]
    monkeypatch.setattr(folders, "shipped_schemes", lambda: known)


def test_a_recipe_is_printed_and_the_scheme_is_written_proved(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "best.bl"
    status, out, err = shell("combine", "3,4,2", "-o", path)
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "22 products in place of 24, exponent 2.9179, 36 additions = 8 on A + 8 on B + 20 on C",
        compared(3, 4, 2, 22, RATIONALS)[0],
        "",
        "  winograd (x) <1,2,1> (+m) <1,4,2>",
        "",
        "  <3,4,2;22> = (+m)",
        "    <2,4,2;14> = (x)",
        "      <2,2,2;7> = winograd",
        "      <1,2,1;2> = <1,2,1>",
        "    <1,4,2;8> = <1,4,2>",
        f"written to {path}; `bilinear verify {path}` proves it again",
    ]
    scheme = load(path).scheme
    assert (scheme.name, scheme.format) == ("best_3_4_2", "<3,4,2;22>") and prove_scheme(scheme).holds
    assert f"{scheme.additions} additions" in out
    assert path.read_text().startswith("# 22 products in place of 24: winograd (x) <1,2,1> (+m) <1,4,2>\n")


def test_json_and_the_table_of_all_formats(shell: Shell) -> None:
    told = shell.json("combine", "4", "--all")
    assert told["rank"] == 49 and told["known_rank"] == 48 and told["classical"] == 64 and told["format"] == [4, 4, 4]
    assert told["expression"] == "winograd (x) winograd" and told["additions"] == {"a": 44, "b": 44, "c": 77}
    assert {tuple(f["format"]): f["rank"] for f in told["formats"]}[2, 2, 3] == 11
    status, out, _ = shell("combine", "3", "--all")
    assert status == 0 and "<2,2,3;11>     11         12" in out


def test_more_schemes_from_files_and_folders(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "own.bl").write_text("scheme own <2,1,1;2> over Z/2\n  M1: 1 0 | 1 | 1 0\n  M2: 0 1 | 1 | 0 1\n")
    (tmp_path / "two.bl").write_text("scheme a = <1,1,1>\nscheme b = strassen (x) <1,1,1>\n")
    (tmp_path / "not a scheme.bl").write_text("schedule s of strassen\n  stage { C11 += A11*B11 }\n")
    (tmp_path / "readme").write_text("words")
    (tmp_path / "inner").mkdir()
    status, _, err = shell("export", "laderman", "--to", "json", "-o", tmp_path / "inner" / "published.json")
    assert status == 0, err
    found = shell.json("combine", "3", tmp_path)
    assert found["rank"] == 23 and found["expression"] == f'"{tmp_path}/inner/published.json"'
    assert shell.json("combine", "2", tmp_path / "two.bl", "--name", "x")["expression"] == "winograd"
    status, _, err = shell("combine", "2", tmp_path / "not a scheme.bl")
    assert status == 1 and "error[E125]" in err
    status, _, err = shell("combine", "2", tmp_path / "readme")
    assert status == 1 and "error[E351]" in err


def test_a_broken_file_of_a_folder_is_told_of_and_the_others_are_used(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "broken.bl").write_text("scheme broken <2,2,2;7>\n  M1 = A11 *\n")
    (tmp_path / "notes.txt").write_text("nothing of the kind")
    (tmp_path / "order.bl").write_text("schedule s of strassen: in-place\n  stage { A11 += A12 }\n")
    status, out, err = shell("combine", "2", tmp_path)
    assert status == 0 and out.startswith("7 products")
    assert err.startswith(f"{tmp_path / 'broken.bl'} is passed over: ") and err.count("passed over") == 1


def test_the_size_of_a_file_is_that_of_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    scheme, head = load("strassen").scheme, "# \N{GREEK SMALL LETTER OMEGA} of Strassen\n"
    text = writing.readable_text(scheme, head)
    monkeypatch.setattr(writing, "MOST_BYTES", len(text))
    with pytest.raises(BilinearError, match="E641"):
        writing.readable_text(scheme, head)
    monkeypatch.setattr(writing, "MOST_BYTES", len(text) + 1)
    assert writing.readable_text(scheme, head) == text


def test_only_schemes_over_the_ring_are_used(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "near.bl"
    path.write_text("scheme near <1,1,2;1> over Z/2\n  M1: 1 | 1 1 | 1 1\n")
    assert shell.json("combine", "1,1,2", path)["rank"] == 2
    status, _, err = shell("combine", "1,1,2", path, "--over", "Z/2")
    assert status == 1 and "error[E301]: near is not a multiplication over Z/2" in err
    for ring in ("Zz", ""):
        status, _, err = shell("combine", "2", "--over", ring)
        assert status == 1 and "error[E203]" in err


def test_shapes_that_are_none(shell: Shell) -> None:
    for shape, code in (("2,2", "E504"), ("0", "E504"), ("99", "E648"), ("1,1,999999999", "E648"), ("1,1,9999999999", "E504")):
        status, out, err = shell("combine", shape)
        assert (status, out) == (1, "") and f"error[{code}]" in err


def test_a_name_that_cannot_be_written_writes_nothing(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "x.bl"
    status, out, err = shell("combine", "2", "-o", path, "--name", "a b")
    assert (status, out) == (1, "") and "error[E241]" in err and not path.exists()


def test_long_sums_are_written_as_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    scheme = compose("winograd (x) winograd", "w").scheme
    recipe = SchemeTree(4, 4, 4, 49, (44, 44, 77), text="winograd (x) winograd")
    assert "S1 = " in _combined_text(scheme, recipe)
    monkeypatch.setattr(writing, "MOST_EQUATION_TEXT", 1500)
    assert "M49:" in _combined_text(scheme, recipe)
    monkeypatch.setattr(writing, "MOST_BYTES", 1500)
    with pytest.raises(BilinearError, match=r"E641.*w <4,4,4;49> is too large to be written out"):
        _combined_text(scheme, recipe)


def test_a_file_name_of_two_lines_stays_in_the_comment() -> None:
    scheme = compose("winograd", "w").scheme
    text = _combined_text(scheme, SchemeTree(2, 2, 2, 7, (4, 4, 7), text='"a\nb.bl"', leaf=scheme))
    assert parse_source(Source("x.bl", text)).schemes[0].tables == scheme.tables


def test_what_is_written_is_what_is_asked_for_elsewhere(shell: Shell, tmp_path: Path) -> None:
    status, out, err = shell("verify", "strassen (+n) <2,2,1>")
    assert status == 0 and "strassen_plus_n_2_2_1: proved" in out, err
    status, out, err = shell("run", "winograd (x) <1,1,2>", "--shape", "32,32,32", "--device", "cpu")
    assert status == 0 and "NO" not in out, err
    status, _, err = shell("show", "strassen (+n) winogradd")
    assert status == 1 and "did you mean winograd" in err


def test_a_wrong_scheme_in_a_folder_is_told_and_passed_over(shell: Shell, tmp_path: Path) -> None:
    """It has fewer additions than every right one, so it would be taken."""
    (tmp_path / "wrong.bl").write_text("scheme wrong <2,2,2;6>\n" + "".join(f"  M{p}: 1 0 0 0 | 1 0 0 0 | 1 0 0 0\n" for p in range(6)))
    status, out, told = shell("combine", "2", tmp_path)
    assert status == 0 and out.startswith("7 products in place of 8")
    assert told.startswith(f"{tmp_path}/wrong.bl is passed over: wrong is not a multiplication:") and "(E301)" in told
    status, _, told = shell("combine", "2", tmp_path / "wrong.bl")
    assert status == 1 and "error[E301]: wrong is not a multiplication" in told
