"""Readers of other people's formats: one scheme in all of them, what is malformed or hostile in each, and what happens to mutants."""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from each_case import each
from foreign import COMMUTING, FILES, U_COLUMNS, V_COLUMNS, W_COLUMNS, U, V, W, arrays, columns, matlab, notebook, square, triads
from hostile import MOST_SECONDS
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import scheme_computes

from bilinear.errors import BilinearError
from bilinear.interchange.arrays import python_entries
from bilinear.interchange.expressions import read_exp
from bilinear.interchange.fmm_json import read_fmm_json
from bilinear.interchange.folders import survey
from bilinear.interchange.importing import Imported, import_file, import_scheme
from bilinear.interchange.plinopt import read_program, read_sms
from bilinear.interchange.tables import read_fast_matmul, read_mathematica
from bilinear.interchange.targets import Identified
from bilinear.verify.scheme import prove_scheme


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@each("name", FILES)
def test_one_scheme_in_every_format(tmp_path: Path, name: str) -> None:
    found = import_file(written(tmp_path, name, FILES[name]))
    told = {
        "headed.bl": ("line 2: words, which are not read",),
        "yacas.txt": ("line 16: words, which are not read",),
        "factors.txt": ("the blocks of A and B are numbered column by column",),
    }
    assert isinstance(found, Imported) and found.found == told.get(name, ())
    assert found.scheme.format == "<2,2,2;7>" and str(found.scheme.ring) == ("Q[i]" if name in ("imaginary.exp", "complex.txt") else "Q")
    assert scheme_computes(found.scheme)
    if name not in ("winograd.txt", "halves.txt", "signed.exp", "imaginary.exp", "complex.txt"):
        tables = [[[dict(row).get(i, 0) for i in range(4)] for row in linear.matrix] for linear in (found.scheme.u, found.scheme.v)]
        assert tables == [U, V]


@each("name", FILES)
def test_every_reader_reads_what_editors_and_papers_do_to_a_text(tmp_path: Path, name: str) -> None:
    printed = FILES[name].replace("-", "\u2212").replace("*", "\u22c5").replace(" ", "\u00a0").replace("\n", "\r\n")
    plain = import_scheme(written(tmp_path, name, FILES[name]))
    assert import_scheme(written(tmp_path, name, f"\ufeff{printed}")).scheme.tables == plain.scheme.tables


def test_named_sums_keep_the_authors_additions(tmp_path: Path) -> None:
    scheme = import_scheme(written(tmp_path, "w.txt", FILES["winograd.txt"])).scheme
    assert scheme.additions == 15 and scheme.u.names == ("s1", "s2") and scheme.w.names == ("u2", "u3")


def test_files_that_matlab_saves(tmp_path: Path) -> None:
    io, sparse = pytest.importorskip("scipy.io"), pytest.importorskip("scipy.sparse")
    by_columns = "the blocks of A and B are numbered column by column"
    for tables, found in (
        ({"U": np.array(U, float), "V": V, "W": W, "n": 2}, ()),
        ({"a": columns(U_COLUMNS), "b": columns(V_COLUMNS), "c": sparse.csc_matrix(columns(W_COLUMNS))}, ("C is transposed", by_columns)),
    ):
        io.savemat(tmp_path / "s.mat", tables, do_compression=True)
        result = import_scheme(tmp_path / "s.mat")
        assert result.format.name == "mat" and result.found == found and scheme_computes(result.scheme)
    whole = (tmp_path / "s.mat").read_bytes()
    (tmp_path / "s.mat").write_bytes(whole[:200] + bytes(len(whole) - 200))
    with pytest.raises(BilinearError, match=r"E353.*is damaged"):
        import_scheme(tmp_path / "s.mat")
    io.savemat(tmp_path / "s.mat", {"A": np.eye(3), "B": np.eye(3)})
    with pytest.raises(BilinearError, match=r"E653.*no matrices U, V and W"):
        import_scheme(tmp_path / "s.mat")


def test_archives_of_u_v_and_w(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", U=np.array(U), V=np.array(V), W=np.array(W))
    np.savez_compressed(tmp_path / "columns.npz", u=np.array(columns(U)), v=columns(V), w=columns(W_COLUMNS), rank=7)
    for name, found in (("rows", ()), ("columns", ("C is transposed",))):
        result = import_scheme(tmp_path / f"{name}.npz")
        assert result.scheme.format == "<2,2,2;7>" and result.found == found and scheme_computes(result.scheme)


@pytest.mark.parametrize("tags", ["ABC", "AAA"])
def test_matrices_with_tagged_names(tmp_path: Path, tags: str) -> None:
    for letter, tag, table in zip("LRP", tags, (U, V, columns(W)), strict=True):
        entries = "".join(f"{i + 1} {j + 1} {c}\n" for i, row in enumerate(table) for j, c in enumerate(row) if c)
        written(tmp_path, f"s_{letter}_{tag}.sms", f"{len(table)} {len(table[0])} R\n{entries}0 0 0\n")
    for letter, tag in zip("LRP", tags, strict=True):
        found = import_scheme(tmp_path / f"s_{letter}_{tag}.sms")
        assert found.scheme.name == "s" and scheme_computes(found.scheme)
    (tmp_path / f"s_R_{tags[1]}.sms").unlink()
    with pytest.raises(BilinearError, match=rf"E352.*lacks its partner s_R_{tags[1]}.sms" if tags == "AAA" else "E352"):
        import_file(tmp_path / f"s_P_{tags[2]}.sms")


CHANGE = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
BACK = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, -1, 1]]


def program(table: Sequence[Sequence[int]]) -> str:
    """A straight-line program, its first output by way of a temporary that another output uses too."""
    sums = ["".join(f"{c:+}*i{i}" for i, c in enumerate(row) if c) for row in table]
    lines = [f"o{number}:={text};" for number, text in enumerate(sums)]
    lines[0] = f"t0:={sums[0]};\no0:=t0;" if len(table) < 7 else f"t0:={sums[0]};\no0:=t0;\no3:={sums[3]}+t0-t0;"
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("scheme", "bases"), [("-ALT_{}", "-CoB_{}"), ("_{}_A", "_{}_C")])
def test_programs_in_other_bases(tmp_path: Path, scheme: str, bases: str) -> None:
    """U is that of Strassen in the basis in which A22 is A21 + A22; what uses a temporary is a step."""
    for letter, table, change in zip("LRP", (U, V, columns(W)), (CHANGE, None, None), strict=True):
        rows = table if change is None else (np.array(table) @ np.array(BACK)).tolist()
        written(tmp_path, f"2x2x2_7_s{scheme.format(letter)}.slp", program(rows))
        written(tmp_path, f"2x2x2_7_s{bases.format(letter)}.slp", program(change or np.eye(4, dtype=int).tolist()))
    for kind, letter in product((scheme, bases), "LRP"):
        found = import_scheme(tmp_path / f"2x2x2_7_s{kind.format(letter)}.slp")
        assert found.scheme.bases is not None and found.scheme.u.steps and scheme_computes(found.scheme)
    rows_of_folder = list(survey(tmp_path))
    assert len(rows_of_folder) == 6 and {row.verdict for row in rows_of_folder} == {"proved"}


@pytest.mark.parametrize("name", COMMUTING)
def test_a_commutative_scheme_is_named_as_such(tmp_path: Path, name: str) -> None:
    found = import_file(written(tmp_path, name, COMMUTING[name]))
    assert isinstance(found, Identified) and found.title == "A*B, A 2 x 2, B 2 x 2, with entries that commute"
    assert len(found.algorithm.u.outputs) == 8
    with pytest.raises(BilinearError, match=r"E356.*commute; it is not a product"):
        import_scheme(tmp_path / name)
    wrong = COMMUTING[name].replace("a12 + b11", "a12 - b11").replace("a12+b11", "a12-b11")
    with pytest.raises(BilinearError, match=r"E356.*does not compute A\*B.*that commute"):
        import_file(written(tmp_path, name, wrong))


def test_a_product_of_b_and_a_needs_entries_that_commute(tmp_path: Path) -> None:
    found = import_file(written(tmp_path, "x.txt", "m1 = (b11)(a11)\nc11 = m1\n"))
    assert isinstance(found, Identified) and "commute" in found.title


def test_a_notebook_of_several_schemes(tmp_path: Path) -> None:
    path = written(tmp_path, "n.ipynb", notebook(arrays("first"), arrays("second"), "x = np.array([1])"))
    assert python_entries(path) == ("first", "second")
    assert import_scheme(path, entry="second").scheme.name == "second"
    for entry, message in (("", "holds 2 schemes"), ("third", "holds no scheme 'third'")):
        with pytest.raises(BilinearError, match=f"E354.*{message}"):
            import_file(path, entry=entry)


def test_a_notebook_is_not_executed(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    cell = f"s = (np.array([[open({str(trap)!r}, 'w')]]), np.array([[1]]), np.array([[1]]))\n"
    with pytest.raises(BilinearError, match=r"E252.*something that is not a number"):
        import_file(written(tmp_path, "n.ipynb", notebook(cell)))
    assert not trap.exists()


MPL = "T:=TriadSet([{}]):"
ONE = f"Triad([Matrix(2, 2, {square(U[0])}), Matrix(2, 2, {square(V[0])}), Matrix(2, 2, {square(W[0])})])"
BINI = FILES["bini.txt"]
MALFORMED = [
    ("x.mpl", "x:=1:", "E653", "holds no scheme"),
    ("x.mpl", MPL.format(""), "E254", "holds no product"),
    ("x.mpl", MPL.format(ONE.replace("1", "x", 1)), "E252", "neither a list nor a number"),
    ("x.mpl", MPL.format(ONE.replace("Matrix(2, 2", "Matrix(2, 3", 1)), "E253", "other sizes than it says"),
    ("x.mpl", f"T:=TriadSet([{triads()[:90]}", "E254", "a list is not closed"),
    ("x.m", "x = 1;", "E653", "holds no scheme"),
    ("x.m", matlab("U", U), "E653", "it assigns U of U, V and W"),
    ("x.m", matlab("U", U) + matlab("V", V) + "W = [1 2", "E254", "a matrix is not closed"),
    ("x.m", matlab("U", U) + matlab("V", V) + "W = [1 2; 3]", "E253", "not of one length"),
    ("x.m", matlab("U", U) + matlab("V", V) + "W = [1 y]", "E252", "'y' is not a number"),
    ("x.m", matlab("U", U) + matlab("V", V) + "W = [1]", "E253", ""),
    ("x.m", matlab("U", U) + matlab("V", V) + "W = []", "E357", "not a table"),
    ("x.ipynb", '{"cells": 1}', "E255", "this is not a notebook"),
    ("x.ipynb", '{"cells":', "E255", "this is not JSON"),
    ("x.ipynb", '{"cells":' + "[" * 100_000, "E255", "nested too deeply"),
    ("x.ipynb", notebook("x = 1"), "E653", "holds no scheme"),
    ("x.ipynb", notebook("s = (np.array([[1e999]]), np.array([[1]]), np.array([[1]]))"), "E252", "not an exact number"),
    ("x.ipynb", notebook("s = (np.array([1]), np.array([[1]]), np.array([[1]]))"), "E252", "row 1 of an array is not a row of numbers"),
    (
        "x.ipynb",
        notebook(f"s = (np.array([[{'+'.join('1' * 300)}]]), np.array([[1]]), np.array([[1]]))"),
        "E252",
        "something that is not a number",
    ),
    ("x.ipynb", notebook(f"s = (np.array([[{'-' * 5000}1]]), np.array([[1]]), np.array([[1]]))"), "E653", "holds no scheme"),
    ("bini.txt", BINI.replace("2 2 2 7", "2 2 2 0"), "E253", "the file does not begin with its sizes"),
    ("bini.txt", BINI.replace("2 2 2 7", "2 2 2 8"), "E254", "holds 7 products, not 8"),
    ("bini.txt", BINI.replace("; 1 0 0 1 ;", "; 1 0 0 1 2 ;", 1), "E253", "the row has 5 numbers, not 4"),
    ("bini.txt", BINI.replace("; 1 0 0 1 ;", "; 1 0 0 y ;", 1), "E252", "'y' is not a number"),
    ("bini.txt", BINI.replace("; 1 0 0 1 ;", "", 1), "E252", "a line has the number of a product and three rows"),
    ("ternary.txt", FILES["ternary.txt"] + "1", "E254", "is not complete: 85 numbers follow"),
    ("ternary.txt", FILES["ternary.txt"].replace("2 2 2 7", "2 2 9999 7"), "E253", "does not begin with its sizes"),
    ("ternary.txt", FILES["ternary.txt"].replace("-1", "y", 1), "E252", "'y' is not a number"),
    ("x.txt", "m1 = (a11)(b11)\n", "E254", "no block of C is computed"),
    ("x.txt", "m1 = (a11)(b11\nc11 = m1", "E254", "a parenthesis is not closed"),
    ("x.txt", "m1 = (a11)(b11)(b12)\nc11 = m1", "E252", "two values are multiplied"),
    ("x.txt", "m1 = (a11)(b11)\nm2 = m1*(b11)\nc11 = m2", "E252", "two values are multiplied"),
    ("x.txt", "m1 = (a11)(b11)\nc11 = m1 + a11", "E252", "c11 is not a sum of products"),
    ("x.txt", "m1 = (a11)(b11)\nc11 = m9", "E252", "'m9' is not known here"),
    ("x.txt", "m1 = (a1)(b1 + a2)\nc1 = m1", "E253", "blocks with one index"),
    ("x.txt", "m1 = (a[1,4000])(b11)\nc[4000,1] = m1", "E253", "is too large"),
    ("x.json", json.dumps({"name": "a package"}), "E653", "holds no scheme"),
    ("x.json", json.dumps({"u_sparse": [], "v_sparse": [], "w_sparse": []}), "E254", "the key 'n' is missing"),
    ("x.json", FILES["sparse.json"].replace('"v_sparse"', '"x"'), "E254", "the key 'v_sparse' is missing"),
    ("1x1x1.json", json.dumps({"u_sparse": [[[0, 1]]], "v_sparse": [[[1, 1]]], "w_sparse": [[[0, 1]]]}), "E252", "only 1 come before it"),
    ("1x1x1.json", json.dumps({"u_sparse": [[[0]]], "v_sparse": [[]], "w_sparse": [[]]}), "E252", "not a list of index and value"),
    ("x.exp", "(a11)(a12)(c11)\n", "E254", "a factor of b is missing"),
    ("x.exp", "(a11)(b11)(c11)/1j\n", "E252", "divided by a value"),
]


@each(("name", "text", "code", "message"), MALFORMED)
def test_malformed_files_are_refused(tmp_path: Path, name: str, text: str, code: str, message: str) -> None:
    begin = time.process_time()
    with pytest.raises(BilinearError) as caught:
        import_file(written(tmp_path, name, text))
    diagnostic = caught.value.diagnostics[0]
    assert diagnostic.code == code and message in diagnostic.message, str(diagnostic)
    assert time.process_time() - begin < MOST_SECONDS


def test_a_malformed_number_is_marked(tmp_path: Path) -> None:
    with pytest.raises(BilinearError) as caught:
        import_file(written(tmp_path, "ternary.txt", FILES["ternary.txt"].replace("-1", "y", 1)))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.span is not None and diagnostic.span.text == "y" and diagnostic.span.line == 2


LARGE = 2**18
LONG = {
    "x.txt": ["m1 = " + "(" * LARGE, "m1 = a11*b11\n" * (LARGE // 12), "m1 = " + "-" * LARGE + "a11", "a" * LARGE + " = a11", "#" * LARGE],
    "x.mpl": ["TriadSet(" * (LARGE // 9), "TriadSet([" + "[" * LARGE, "TriadSet([" + "Matrix(1,1," * (LARGE // 11)],
    "x.m": ["U = [" * (LARGE // 5), "U = [" + "1 " * LARGE + "]", "U = [" + "\n" * LARGE, " " * LARGE + "U"],
    "x.ipynb": [
        notebook("array(" * (LARGE // 6)),
        notebook("(" * LARGE + "array(array(array("),
        notebook("x = array(array(array(" + "[" * 9999),
    ],
    "y.txt": ["2 2 2 7\n" + "1 " * LARGE, "Bini 1 1 1 99999\n" + "1;1;1;1\n" * (LARGE // 8), "Bini " + "1 " * LARGE],
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", LONG)
def test_long_files_are_refused_quickly(tmp_path: Path, name: str) -> None:
    for text in LONG[name]:
        path = written(tmp_path, name, text)
        begin = time.process_time()
        with pytest.raises(BilinearError):
            import_file(path)
        assert time.process_time() - begin < MOST_SECONDS, text[:40]


PIECES = st.sampled_from([*'()[]{}*/-+07=;:.,j" \n', "a11", "b22", "c1", "m1", ":="])


@settings(max_examples=4 * settings().max_examples)
@given(st.sampled_from(sorted(FILES | COMMUTING)), st.integers(0, 900), st.integers(0, 9), st.lists(PIECES, max_size=3))
def test_whatever_is_in_a_file_is_proved_or_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str, start: int, cut: int, pieces: list[str]
) -> None:
    text = (FILES | COMMUTING)[name]
    start = min(start, len(text))
    mutant = text[:start] + "".join(pieces) + text[start + cut :]
    codes: set[str] = set()
    found: Imported | Identified | None = None
    try:
        found = import_file(written(tmp_path_factory.getbasetemp(), name, mutant))
    except BilinearError as error:
        codes = {d.code for d in error.diagnostics}
    assert codes <= {"E252", "E253", "E254", "E255", "E303", "E350", "E351", "E356", "E357", "E653"}
    if isinstance(found, Imported):
        assert prove_scheme(found.scheme).holds and scheme_computes(found.scheme, trials=2)


def code_of(error: BilinearError) -> str:
    return error.diagnostics[0].code


def test_a_number_of_millions_of_terms(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text(f"({'+'.join(['x'] * 1_500_000)})\n#\n1\n#\n1\n")
    begin = time.process_time()
    with pytest.raises(BilinearError) as raised:
        read_fast_matmul(path)
    assert code_of(raised.value) == "E252"
    assert time.process_time() - begin < MOST_SECONDS


def matrix(rows: int, columns: int, value: int) -> str:
    entries = "".join(f"{i} {j} {value}\n" for i in range(1, rows + 1) for j in range(1, columns + 1))
    return f"{rows} {columns} R\n{entries}0 0 0\n"


@pytest.mark.sample(1)
@pytest.mark.parametrize("rank", [60, 4000])
def test_a_placeholder_in_a_large_wrong_scheme(rank: int, tmp_path: Path) -> None:
    paths = [tmp_path / f"x_{m}.sms" for m in "LRP"]
    for path, text in zip(paths, (matrix(rank, 4, 1013), matrix(rank, 4, 1), matrix(4, rank, 1)), strict=True):
        path.write_text(text)
    begin = time.process_time()
    with pytest.raises(BilinearError) as raised:
        read_sms(paths[0], paths[1], paths[2])
    assert code_of(raised.value) == "E256"
    assert ("too large to try" in str(raised.value)) == (rank == 4000)
    assert time.process_time() - begin < MOST_SECONDS


LONG_RUNS = {
    "x.slp": ["a:=" + " " * LARGE, "a" * LARGE, "o0:=" + "-" * LARGE + "i0;", "o0:=" + "(" * LARGE, "a:=i0;" * (LARGE // 6)],
    "x.exp": ["(" * LARGE, "-" * LARGE, " " * LARGE + "x", "(a11)*(" + "b11+" * (LARGE // 4) + "b11)*(c11)", "2*" * (LARGE // 2)],
    "x.m": ["(*" * (LARGE // 2), " " * LARGE + "x", "+" + " " * LARGE, "{" * LARGE, "{" + "1," * (LARGE // 2), "(**)" * (LARGE // 4)],
    "x": ["(" * LARGE, "#" * LARGE, "- " * (LARGE // 2), "{" * LARGE, "(*" * (LARGE // 2), "[:" * (LARGE // 2)],
}


READERS: dict[str, Callable[[Path], object]] = {"x.slp": read_program, "x.exp": read_exp, "x.m": read_mathematica, "x": import_file}


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", LONG_RUNS)
def test_long_runs_of_anything_take_no_long_time(name: str, tmp_path: Path) -> None:
    """A pattern that goes back and forth over a run of blanks takes hours for a file of this size."""
    for text in LONG_RUNS[name]:
        path = tmp_path / name
        path.write_text(text)
        begin = time.process_time()
        with contextlib.suppress(BilinearError):
            READERS[name](path)
        assert time.process_time() - begin < MOST_SECONDS


JSON = json.dumps({"n": [2, 2, 2], "m": 1, "z2": False, "u": [[1, 0, 0, 1]], "v": [["1/2", 0, 0, 1]], "w": [[1, 0, 0, 1]]})
TABLE = "1 0\n0 1\n#\n1 0\n0 1\n#\n1 xi\n-1/2 (1+-x)\n"
CUT_PIECES = [
    "",
    "(",
    "[",
    "]",
    "-",
    "\0",
    "1/0",
    "9" * 200,
    "\n",
    '"',
    "null",
    "true",
    "1e9",
    "x99",
    "xi",
    "#",
    "{}",
    "[[[[",
    "\u0663",
    "\ud800",
]


@pytest.mark.parametrize("kind", ["json", "table"])
def test_mutated_tables_are_read_or_refused(kind: str, tmp_path: Path) -> None:
    draw, path = random.Random(5), tmp_path / "x"
    outcomes: set[bool | str] = set()
    text, read = (JSON, read_fmm_json) if kind == "json" else (TABLE, read_fast_matmul)
    for _ in range(400):
        start = draw.randrange(len(text))
        mutant = text[:start] + draw.choice(CUT_PIECES) + text[start + draw.randrange(6) :]
        path.write_bytes(mutant.encode("utf-8", "surrogatepass"))
        try:
            outcomes.add(prove_scheme(read(path)).holds)
        except BilinearError as error:
            outcomes.add(code_of(error)[:3])
    assert {False, "E25"} <= outcomes


@pytest.mark.parametrize("name", ["x.exp", "x.json"])
def test_a_byte_order_mark_is_no_part_of_the_text(name: str, tmp_path: Path) -> None:
    text = {"x.exp": "(a11)*(b11)*(c11)\n", "x.json": '{"n": [1, 1, 1], "m": 1, "u": [[1]], "v": [[1]], "w": [[1]]}'}[name]
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.encode())
    found = import_file(tmp_path / name)
    assert isinstance(found, Imported)
    assert prove_scheme(found.scheme).holds
