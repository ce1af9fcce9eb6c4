"""Every published file in one table: proved, or the datum that it lacks; and the tables of folders that are not published."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest
from foreign import FAST_MATMUL, FILES
from published import FOLDER, needs_folder
from typer.testing import CliRunner

from bilinear.cli.app import app
from bilinear.errors import BilinearError
from bilinear.interchange import folders
from bilinear.interchange.folders import (
    LACKS,
    PASSED_OVER,
    PROVED,
    REFUSED,
    FolderRow,
    by_folder,
    by_format,
    files_below,
    schemes_of,
    survey,
)
from bilinear.interchange.importing import Imported

COUNTS = {
    "npz": 113,
    "npy": 9,
    "notebook": 15,
    "json": 62,
    "maple": 7,
    "m": 4,
    "sms": 147,
    "formulas": 10,
    "slp": 84,
    "fflas": 11,
    "ternary": 4,
    "fast-matmul": 93,
}
LACKING = {
    **{f"fflas-ffpack/schedules.txt[WinogradAcc_{name}]": "steps: " for name in ("3_23", "3_21", "2_24", "2_27")},
    **{f"plinopt/data/2o2o2_4_partSP_{m}.sms": "a further product, which adds a1*b0 + a2*b0 to c2" for m in "LRP"},
    **{f"plinopt/data/3o2o5_Toom3.5_P.{s}": f"the files 3o2o5_Toom3.5_L.{s}, 3o2o5_Toom3.5_R.{s}" for s in ("sms", "slp")},
    **{f"plinopt/data/4o3o7_Toom4.5_P.{s}": f"the files 4o3o7_Toom4.5_L.{s}, 4o3o7_Toom4.5_R.{s}" for s in ("sms", "slp")},
    **{f"plinopt/data/{name}": "the other two of three files" for name in ("cyclic.sms", "test-prg.slp")},
}
"""What is not proved, and what the file lacks."""
OTHERS = {
    "1o1o2_3_Karatsuba": "polynomials of degrees 1 and 1, over Q",
    "2o2o2_5_shortproduct": "polynomials of degrees 2 and 2 modulo x^3, over Q",
    "2o2o4_5_Toom3": "polynomials of degrees 2 and 2, over Q",
    "3o3o6_Toom4": "polynomials of degrees 3 and 3, over Q",
    "4o4o8_Toom5": "polynomials of degrees 4 and 4, over Q",
    "4o4o8_Montgomery-13": "polynomials of degrees 4 and 4, over Q",
    "4o4o8_Montgomery-13-mod2": "polynomials of degrees 4 and 4, over Z/2",
    "3o3o3_F81-Karatsuba-9-21": "the field of order 81: Z/3[x] modulo x^4 + x^3 + x^2 + x + 1, over Z/3",
    "4o4o4_F243-11-44": "the field of order 243: Z/3[x] modulo x^5 + 2*x + 1, over Z/3",
    "4o4o4_F243-Montgomery-13-42": "the field of order 243: Z/3[x] modulo x^5 + x^4 + 2*x^3 + 2*x^2 + 2, over Z/3",
    "4o4o4_F32_Montgomery": "the field of order 32: Z/2[x] modulo x^5 + x^4 + x^2 + x + 1, over Z/2",
    "4o4o4_F32_Standard": "the field of order 32: Z/2[x] modulo x^5 + x^2 + 1, over Z/2",
    "3o3o3_S81_8_22": "a semifield of order 81: no zero divisors, over Z/3",
    "4o4o4_S243_10-43": "a semifield of order 243: no zero divisors, over Z/3",
    "4o4o4_S32_13_#2": "a semifield of order 32: no zero divisors, over Z/2",
    "2x2T_3+2_AAdjoint": "A*A^T, A 2 x 2, lower triangle, over Q[i]",
    "4x4T_8+26_RXTX": "A*A^T, A 4 x 4, upper triangle, blocks numbered from A44 on, over Q",
}
"""The bilinear maps that are no products of matrices; the polynomials are those that the comments of the files name."""


@needs_folder
def test_every_published_file_is_proved_or_lacks_a_datum() -> None:
    table = {row.file: row for row in survey(FOLDER)}
    assert not [name for name, row in table.items() if row.verdict in (REFUSED, PASSED_OVER)]
    rows = list(table.values())
    assert {row.file for row in rows if row.verdict == LACKS} == LACKING.keys()
    assert all(table[name].what.startswith(datum) for name, datum in LACKING.items())
    sums = {name: count for name, count, *_ in by_format(rows)}
    assert sums == {**COUNTS, "all": sum(COUNTS.values())}
    for name, what in OTHERS.items():
        found = [row for row in rows if row.file.startswith(f"plinopt/data/{name}_") and row.file[-5:-4] in "LRP"]
        assert found and {row.what for row in found} == {what}, name
    _check_the_rest(table)


def _check_the_rest(table: dict[str, FolderRow]) -> None:
    """Some rows that other tests do not know: the format in the name is the one that was read, halves are proved, rings are found."""
    archives = {name: row for name, row in table.items() if row.format == "npz"}
    for name, row in archives.items():
        assert row.what.startswith(f"<{name.split('[')[1][:-1]};")
        assert row.what.endswith("over Z/2" if "_f2" in name else "over Q")
    assert archives["alphatensor/algorithms/factorizations_f2.npz[4,4,4]"].found == ("it holds over Z/2 alone",)
    assert archives["alphatensor/algorithms/factorizations_f2.npz[4,4,4]"].what == "<4,4,4;47> over Z/2"
    assert table["plinopt/data/4x4x4_48_rational-CoB_L.slp"].what == "<4,4,4;48> over Q, in other bases, as its changes of basis"
    approximate = [row for name, row in table.items() if "approx" in name]
    assert approximate and all("over Q[lambda] up to O(lambda^1)" in row.what for row in approximate)


@needs_folder
def test_published_programs_have_the_additions_that_their_names_say() -> None:
    from published import read_sms_set

    data = FOLDER / "plinopt" / "data"
    for name, additions in [("3x3x3_23_58", 58), ("4x4x4_49_156", 156), ("2x2x2_7_Winograd", 15)]:
        program, matrices = read_sms_set(data / name, suffix="slp"), read_sms_set(data / name)
        assert program.additions == additions <= matrices.additions and program.tables == matrices.tables


def test_a_folder_of_anything(tmp_path: Path) -> None:
    (tmp_path / "LICENSE").write_text("free")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "strassen").write_text(FAST_MATMUL)
    (tmp_path / "wrong").write_text(FAST_MATMUL.replace("1 -1 1 0 0 1 0", "1 1 1 0 0 1 0"))
    (tmp_path / "photo.jpg").write_bytes(b"\xff\xd8\xff")
    (tmp_path / "package.json").write_text('{"name": "x"}')
    (tmp_path / "n.ipynb").write_text('{"cells": []}')
    (tmp_path / "x-CoB_L.sms").write_text("1 1 R\n1 1 1\n0 0 0\n")
    for m in "RP":
        (tmp_path / f"x-CoB_{m}.sms").write_text("1 1 R\n1 1 1\n0 0 0\n")
    rows = {row.file: row for row in survey(tmp_path)}
    assert rows["deep/strassen"].verdict == PROVED and rows["deep/strassen"].what == "<2,2,2;7> over Q"
    assert rows["wrong"].verdict == REFUSED and rows["wrong"].what.startswith("E356")
    assert {name: row.what[:4] for name, row in rows.items() if row.verdict == PASSED_OVER} == {
        "photo.jpg": "E351",
        "package.json": "E653",
        "n.ipynb": "E653",
    }
    assert {rows[f"x-CoB_{m}.sms"].what for m in "LRP"} == {"the files x-ALT_L.sms, x-ALT_R.sms, x-ALT_P.sms"}
    assert [line[:5] for line in by_format(list(rows.values()))] == [
        ("sms", 3, 0, 3, 0),
        ("fast-matmul", 2, 1, 0, 1),
        ("all", 5, 1, 3, 1),
    ]
    assert [line[:6] for line in by_folder(list(rows.values()))] == [
        (".", "sms", 3, 0, 3, 0),
        (".", "fast-matmul", 1, 0, 0, 1),
        ("deep", "fast-matmul", 1, 1, 0, 0),
        ("all", "", 5, 1, 3, 1),
    ]


def test_a_folder_is_finished_where_all_that_could_be_schemes_are_read(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "photo.jpg").write_bytes(b"\xff\xd8\xff")
    (tmp_path / "script.m").write_text("x = 1;")
    result = CliRunner().invoke(app, ["import", str(tmp_path)])
    assert result.exit_code == 0
    (total,) = (line.split() for line in result.output.splitlines() if line.startswith("all"))
    assert total[1:5] == [str(len(FILES))] * 2 + ["0", "0"]
    assert "passed over, because they hold no scheme that is read: photo.jpg, script.m" in result.output


def test_verify_says_that_import_reads_a_published_file(tmp_path: Path) -> None:
    for name in ("signed.exp", "s.mpl", "sparse.json", "yacas.txt"):
        (tmp_path / name).write_text(FILES[name])
        error = CliRunner().invoke(app, ["verify", str(tmp_path / name)]).exception
        assert isinstance(error, BilinearError) and error.diagnostics[0].code == "E654"
        assert f"`bilinear import {tmp_path / name}` reads and proves it" in error.diagnostics[0].hints[0]
    (tmp_path / "own.txt").write_text("scheme s <1,1,1;1>\n  M1 = A11 +\n")
    error = CliRunner().invoke(app, ["verify", str(tmp_path / "own.txt")]).exception
    assert isinstance(error, BilinearError) and error.diagnostics[0].code.startswith("E1")


def test_a_folder_without_schemes_is_passed_over(tmp_path: Path) -> None:
    for name, text in {
        "a.py": "U = [\n    [1, 2],\n]\nx = a1 + b2\n",
        "b.py": "def f(:",
        "list.json": "[1, 2, 3]",
        "comments.json": "{ // not JSON\n}",
        "nested.json": "[" * 9999,
        "run.in": "10 4 2\n5 6 7\n",
        "f.m": "function r = f(x)\n  r = {{x}};\nend\n",
        "g.m": "U = [1 0; 0 1];\n",
        "h.m": "A = [1 2; 3 4];\nB = [1; 2];\nC = A*B; C = [5; 11];\n",
        "new.mat": f"{'MATLAB 7.3 MAT-file':124}\0\2IM",
        "data.csv": "1,2,3\n4,5,6\n\n7,8,9\n",
        "three.csv": "1,2,3\n\n4,5\n\n6,\n",
        "lists.py": "x = [((1, 2, 3), (4, 5), (6,))]\n",
        "empty.ipynb": "{}",
    }.items():
        (tmp_path / name).write_text(text)
    with zipfile.ZipFile(tmp_path / "model.pt", "w") as archive:
        archive.writestr("model/data.pkl", b"x")
    assert {row.verdict for row in survey(tmp_path)} == {PASSED_OVER}
    assert CliRunner().invoke(app, ["import", str(tmp_path)]).exit_code == 0
    (tmp_path / "strassen.json").write_text(FILES["dense.json"].replace("-1", "1", 1))
    assert CliRunner().invoke(app, ["import", str(tmp_path)]).exit_code == 1


def test_a_fault_of_a_reader_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(path: Path, **options: object) -> Imported:
        raise IndexError("tuple index out of range")

    monkeypatch.setattr(folders, "import_file", faulty)
    (tmp_path / "a").write_text(FAST_MATMUL)
    (tmp_path / "b.jpg").write_bytes(b"\xff")
    first, second = survey(tmp_path)
    assert (first.verdict, second.verdict) == (REFUSED, PASSED_OVER) and "please report it: IndexError: tuple index" in first.what


def test_what_cannot_be_read_is_a_row(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(b"PK\x03\x04 broken")
    (row,) = survey(tmp_path)
    assert row.verdict == REFUSED and "E353" in row.what


def test_all_files_come_in_the_order_of_their_paths(tmp_path: Path) -> None:
    for name in ("b/z.txt", "b.txt", "a/b/c.txt", "a.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "again").symlink_to(tmp_path / "a")
    (tmp_path / "link.txt").symlink_to("a.txt")
    found = [str(path.relative_to(tmp_path)) for path in files_below(tmp_path)]
    assert found == ["a/b/c.txt", "a.txt", "b/z.txt", "b.txt", "link.txt"]


def test_a_folder_of_more_is_refused_and_nothing_of_it_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "MOST_ENTRIES", 3)
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("")
    assert len(files_below(tmp_path)) == 3
    (tmp_path / "folder").mkdir()
    for read in (lambda: list(survey(tmp_path)), lambda: schemes_of([tmp_path])):
        with pytest.raises(BilinearError) as caught:
            read()
        assert str(caught.value) == (
            f"error[E251]: {tmp_path} holds more than 3 files and folders\n  hint: name a smaller folder, or files"
        )


def test_a_folder_that_vanishes_is_told(tmp_path: Path) -> None:
    with pytest.raises(BilinearError, match=r"E251.*gone cannot be read: No such file"):
        files_below(tmp_path / "gone")


def test_a_very_deep_folder_is_read(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(1500):
        deep /= "d"
        deep.mkdir()
    assert files_below(tmp_path) == []
    for folder in (deep, *deep.parents[:1499]):  # what removes temporary folders is recursive
        folder.rmdir()


def test_a_name_that_is_too_long_has_a_diagnostic() -> None:
    with pytest.raises(BilinearError, match=r"E251.*File name too long"):
        schemes_of([Path("a" * 5000)])
