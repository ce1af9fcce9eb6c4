"""Arrays in memory and AlphaTensor's archives: every kind of number is exact, and nothing of a hostile file is executed."""

from __future__ import annotations

import os
import pickle
import struct
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from each_case import each
from hostile import MOST_SECONDS
from hypothesis import given
from hypothesis import strategies as st
from published import FOLDER, needs_folder

import bilinear
from bilinear.errors import BilinearError
from bilinear.frontend import load
from bilinear.interchange import npz
from bilinear.interchange.arrays import exact_number, scheme_from_arrays
from bilinear.interchange.importing import Imported, import_arrays, import_file
from bilinear.interchange.npz import npz_entries, pickled_array
from bilinear.interchange.reader_parts import Asked
from bilinear.ir.number import generator
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Scheme
from bilinear.verify.scheme import prove_scheme

ARCHIVES = FOLDER / "alphatensor" / "algorithms"

U = [[1, 0, 1, 0, 1, -1, 0], [0, 0, 0, 0, 1, 0, 1], [0, 1, 0, 0, 0, 1, 0], [1, 1, 0, 1, 0, 0, -1]]
V = [[1, 1, 0, -1, 0, 1, 0], [0, 0, 1, 0, 0, 1, 0], [0, 0, 0, 1, 0, 0, 1], [1, 0, -1, 0, 1, 0, 1]]
W = [[1, 0, 0, 1, -1, 0, 1], [0, 1, 0, 1, 0, 0, 0], [0, 0, 1, 0, 1, 0, 0], [1, -1, 1, 0, 0, 1, 0]]
"""Strassen's tables, the blocks of C column by column."""


def read_npz(path: Path, entry: str = "", ring: Ring | None = None) -> Scheme:
    return npz.read_npz(path, Asked(entry, ring)).scheme


def archive(path: Path, held: Any, name: str = "2,2,2") -> Path:
    np.savez_compressed(path, allow_pickle=True, **{name: held})
    return path


def objects(*tables: Any) -> Any:
    held = np.empty(len(tables), dtype=object)
    held[:] = [np.array(table) for table in tables]
    return held


def raw(path: Path, data: bytes, name: str = "2,2,2.npy") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr(name, data)
    return path


def npy_of(payload: bytes, shape: str = "(3,)", descr: str = "'|O'") -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + payload


def refusal(path: Path, entry: str = "") -> str:
    with pytest.raises(BilinearError) as caught:
        read_npz(path, entry)
    (diagnostic,) = caught.value.diagnostics
    return f"{diagnostic.code} {diagnostic.message}"


@each("dtype", ["i1", "i8", ">i4", "f4", "f8", ">f8"])
def test_one_array_and_an_array_of_arrays_mean_the_same(tmp_path: Path, dtype: str) -> None:
    tables = [np.array(table, dtype=dtype) for table in (U, V, W)]
    stacked = read_npz(archive(tmp_path / "a.npz", np.stack(tables)))
    pickled = read_npz(archive(tmp_path / "a.npz", objects(*tables)))
    turned = read_npz(archive(tmp_path / "a.npz", objects(*(np.asfortranarray(table) for table in tables))))
    assert stacked == pickled == turned and stacked.format == "<2,2,2;7>"
    assert prove_scheme(stacked).holds and stacked.tables[0][0] == ((0, 1), (3, 1))


@needs_folder
def test_halves_are_rationals() -> None:
    scheme = read_npz(ARCHIVES / "factorizations_r.npz", "3,4,11")
    values = {c for table in scheme.tables for row in table for _, c in row}
    assert Fraction(1, 2) in values and scheme.format == "<3,4,11;103>" and prove_scheme(scheme).holds


@needs_folder
def test_the_archives_of_both_rings() -> None:
    assert len(npz_entries(ARCHIVES / "factorizations_r.npz")) == 93
    path = ARCHIVES / "factorizations_f2.npz"
    assert len(npz_entries(path)) == 20
    assert not prove_scheme(read_npz(path, "4,4,4")).holds and prove_scheme(read_npz(path, "4,4,4", Ring("Z/2"))).holds
    found = import_file(path, entry="4,4,4")
    assert isinstance(found, Imported) and str(found.scheme.ring) == "Z/2" and found.found == ("it holds over Z/2 alone",)
    assert refusal(path).startswith("E354") and refusal(path, "7,7,7").startswith("E354")


@needs_folder
@pytest.mark.parametrize("name", ["factorizations_r.npz", "factorizations_f2.npz"])
def test_what_numpy_unpickles_is_what_is_read_without_unpickling(name: str) -> None:
    with np.load(ARCHIVES / name, allow_pickle=True) as trusted:
        opened = npz.Archive(ARCHIVES / name)
        for entry in npz_entries(ARCHIVES / name)[:40]:
            for ours, theirs in zip(opened.arrays(entry), trusted[entry], strict=True):
                assert np.array_equal(ours, theirs) and ours.dtype == theirs.dtype


class Evil:
    """What a pickle may name, and the unpickler would call."""

    def __init__(self, call: Callable[..., object], *arguments: object) -> None:
        self.how = (call, arguments)

    def __reduce__(self) -> Any:
        return self.how


@each("protocol", range(6))
def test_nothing_is_executed(tmp_path: Path, protocol: int) -> None:
    mark = tmp_path / "executed"
    for evil in (Evil(os.system, f"touch {mark}"), Evil(eval, f"open({str(mark)!r}, 'w')"), Evil(np.save, str(mark), [1])):
        held = np.empty(3, dtype=object)
        held[:] = [evil, np.array(V), np.array(W)]
        path = raw(tmp_path / "evil.npz", npy_of(pickle.dumps(held, protocol=protocol)))
        assert refusal(path).startswith("E353")
        assert not list(tmp_path.glob("executed*"))


@pytest.mark.parametrize("protocol", range(2, 5))
def test_every_protocol_of_honest_arrays_is_read(tmp_path: Path, protocol: int) -> None:
    path = raw(tmp_path / "a.npz", npy_of(pickle.dumps(objects(U, V, W), protocol=protocol)))
    assert prove_scheme(read_npz(path)).holds


def text(letters: str) -> bytes:
    return b"X" + struct.pack("<I", len(letters)) + letters.encode()


BOMB = b"\x80\x04" + b"cnumpy.core.multiarray\n_reconstruct\n"
HOSTILE = {
    "names numpy's own functions": b"\x80\x03cnumpy\nsave\n(X\x01\x00\x00\x00xtR.",
    "an instance": b"\x80\x03(cos\nsystem\no.",
    "an object of a class": b"\x80\x02cnumpy\nndarray\n)\x81.",
    "an extension": b"\x80\x02\x82\x01.",
    "a persistent name": b"\x80\x02X\x01\x00\x00\x00aQ.",
    "an array of another class": BOMB + b"cos\nsystem\nK\x00\x85C\x01b\x87R.",
    "a huge array": pickle.dumps(np.zeros(3), 3).replace(b"K\x03\x85", b"J\xff\xff\xff\x7f\x85"),
    "fewer elements than its shape": pickle.dumps(np.zeros(3), 3).replace(b"K\x03\x85", b"K\x04\x85"),
    "bytes that are not there": b"\x80\x03B\xff\xff\xff\x7fab.",
    "a frame that is not there": b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.",
    "a memo that is not there": b"\x80\x03h\x07.",
    "an empty stack": b"\x80\x03R.",
    "a mark that is not there": b"\x80\x03t.",
    "a number": b"\x80\x03K\x07.",
    "nothing": b"",
    "no opcode": b"\xff\xff",
    "a state of a number": b"\x80\x03K\x07K\x01b.",
    "appending to a number": b"\x80\x03K\x07K\x01a.",
    "endless opcodes": b"\x80\x03" + b"N" * 300_000 + b".",
    "strings of another element type": pickle.dumps(np.array(["a", "b"]), 3),
    "nested lists without end": b"\x80\x03" + b"]" * 100_000 + b"a" * 99_999 + b".",
}


def test_what_is_called_is_named_and_not_called(tmp_path: Path) -> None:
    for called in (b"os\nsystem", b"numpy\nzeros", b"builtins\neval"):
        payload = b"\x80\x03c" + called + b"\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R."
        told = refusal(raw(tmp_path / "x.npz", npy_of(payload)))
        assert f"its pickle calls '{called.decode().replace(chr(10), ' ')}'" in told


def test_arrays_of_python_numbers_in_either_memory_order(tmp_path: Path) -> None:
    for order in ("C", "F"):
        held = np.empty(3, dtype=object)
        held[:] = [np.array(table, dtype=object, order=order) for table in (U, V, W)]
        assert prove_scheme(read_npz(archive(tmp_path / "a.npz", held))).holds


@each("name", HOSTILE)
def test_hostile_pickles_are_refused(tmp_path: Path, name: str) -> None:
    begin = time.process_time()
    assert refusal(raw(tmp_path / "x.npz", npy_of(HOSTILE[name]))).startswith("E353")
    with pytest.raises(BilinearError):
        read_npz(raw(tmp_path / "x.npz", npy_of(HOSTILE[name])))
    assert time.process_time() - begin < MOST_SECONDS


ARRAY = npy_of(np.array([U, V, W], dtype="<i8").tobytes(), "(3, 4, 7)", "'<i8'")
HEADERS = {
    "no header": b"1 0\n",
    "a broken header": ARRAY.replace(b"'descr'", b"'descr"),
    "a header that is a call": npy_of(b"", "__import__('os').system('true')"),
    "a long header": b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31) + b" " * 100,
    "many dimensions": npy_of(bytes(8), str((1,) * 65), "'<i8'"),
    "many empty rows": npy_of(b"", str((2**22, 0)), "'<i8'"),
    "a huge shape": ARRAY.replace(b"(3, 4, 7)", b"(3, 2**60, 7)"),
    "a larger shape": ARRAY.replace(b"(3, 4, 7)", b"(3, 4, 8)"),
    "a negative shape": ARRAY.replace(b"(3, 4, 7)", b"(3,-4,-7)"),
    "strings": ARRAY.replace(b"'<i8'", b"'<U2'"),
    "records": ARRAY.replace(b"'<i8'", b"[('a','<i8')]"),
    "a truncated array": ARRAY[:-1],
}


@each("name", HEADERS)
def test_malformed_arrays_are_refused(tmp_path: Path, name: str) -> None:
    assert refusal(raw(tmp_path / "x.npz", HEADERS[name])).startswith("E353")


def test_malformed_archives_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(tmp_path / "none.npz").startswith("E251")
    (tmp_path / "x.npz").write_bytes(b"PK\x03\x04")
    assert "is not a .npz archive" in refusal(tmp_path / "x.npz")
    whole = archive(tmp_path / "a.npz", objects(U, V, W)).read_bytes()
    for end in range(0, len(whole), 37):
        (tmp_path / "x.npz").write_bytes(whole[:end])
        assert refusal(tmp_path / "x.npz").startswith(("E353", "E251"))
    assert refusal(archive(tmp_path / "a.npz", objects(U, V)), "2,2,2") == f"E353 {tmp_path}/a.npz[2,2,2] holds 2 arrays, not U, V and W"
    assert "E253" in refusal(archive(tmp_path / "a.npz", objects(U, V, W), "2,2,3"))
    assert "E357" in refusal(archive(tmp_path / "a.npz", objects(np.array(U) * np.nan, V, W)))
    with zipfile.ZipFile(tmp_path / "l.npz", "w", zipfile.ZIP_LZMA) as opened:
        opened.writestr("2,2,2.npy", ARRAY)
    assert "compressed in a way" in refusal(tmp_path / "l.npz")
    monkeypatch.setattr(npz, "MOST_MEMBERS", 0)
    assert "holds 1 arrays" in refusal(tmp_path / "a.npz")
    monkeypatch.setattr(npz, "MOST_ARCHIVE", 10)
    assert "is larger than" in refusal(tmp_path / "a.npz")


@pytest.mark.slow
def test_a_bomb_is_not_decompressed(tmp_path: Path) -> None:
    path = raw(tmp_path / "x.npz", b"\0" * (npz.MOST_MEMBER * 8))
    assert path.stat().st_size < npz.MOST_ARCHIVE
    assert "is larger than" in refusal(path)
    assert peak_of(path) < 3 * npz.MOST_MEMBER


LONG = "<" + "a" * 2**20
AGAIN = 200
REPEATED = {
    "bytes that are written": b"c_codecs\nencode\nq\x01" + text("latin1") + b"q\x02" + b"h\x01h\x00h\x02\x86R" * AGAIN,
    "the code of a type": b"cnumpy\ndtype\nq\x01" + b"h\x01h\x00\x85R" * AGAIN,
    "a name": b"h\x00h\x00\x93" * AGAIN,
}


@pytest.mark.parametrize("name", REPEATED)
def test_what_a_pickle_refers_to_often_is_not_copied_as_often(tmp_path: Path, name: str) -> None:
    """A file of some kilobytes, whose few opcodes would make copies until the memory is full."""
    path = raw(tmp_path / "x.npz", npy_of(b"\x80\x04" + text(LONG) + b"q\x00" + REPEATED[name] + b"."))
    assert peak_of(path) < 20 * len(LONG)


def test_an_array_that_is_held_often_is_not_made_as_often(tmp_path: Path) -> None:
    held = [np.array([[1] * 1000], dtype=object)] * 5000
    array = np.empty(len(held), dtype=object)
    array[:] = held
    path = raw(tmp_path / "x.npz", npy_of(pickle.dumps(array, 3), "(5000,)"))
    assert refusal(path).endswith("holds 5000 arrays, not U, V and W")
    assert peak_of(path) < 20 * 2**20


def peak_of(path: Path) -> int:
    """The most memory, in bytes, that it takes to refuse an archive."""
    tracemalloc.start()
    assert refusal(path).startswith("E353")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@given(st.integers(0, 900), st.binary(max_size=6), st.integers(0, 6))
def test_whatever_is_in_a_pickle_is_read_or_refused(start: int, middle: bytes, cut: int) -> None:
    data = pickle.dumps(objects([[1, 0]], [[1], [2]], [[0.5]]), 3)
    start = min(start, len(data))
    codes: set[str] = set()
    try:
        pickled_array(data[:start] + middle + data[start + cut :], "x")
    except BilinearError as error:
        codes = {d.code for d in error.diagnostics}
    assert codes <= {"E353"}


def tables(scheme: Scheme) -> list[Any]:
    """U, V and W with a column a product, dense."""
    u, v, w = scheme.tables
    dense: list[Any] = [np.zeros((blocks, scheme.rank)) for blocks in (scheme.m * scheme.k, scheme.k * scheme.n, len(w))]
    for table, rows in zip(dense, (u, v), strict=False):
        for product, row in enumerate(rows):
            for i, c in row:
                table[i, product] = c
    for i, row in enumerate(w):
        for product, c in row:
            dense[2][i, product] = c
    return dense


@each("name", ["strassen", "winograd", "hopcroft_kerr"])
@each("rows", [False, True])
@each("dtype", ["i4", "f4", "f8", "c16", "O"])
def test_either_orientation_of_the_tables(name: str, rows: bool, dtype: str) -> None:
    scheme = load(name).scheme
    u, v, w = (table.astype(dtype).T if rows else table.astype(dtype) for table in tables(scheme))
    assert scheme_from_arrays(u, v, w).tables == scheme.tables
    assert scheme_from_arrays(u.tolist(), v.tolist(), w.tolist()).tables == scheme.tables


@each("turned", range(8))
def test_each_table_has_an_orientation_of_its_own(turned: int) -> None:
    scheme = load("strassen").scheme
    u, v, w = (table.T if turned >> i & 1 else table for i, table in enumerate(tables(scheme)))
    assert scheme_from_arrays(u, v, w).tables == scheme.tables


def test_the_orientation_of_c_is_found_or_taken_as_it_is_said() -> None:
    scheme = load("hopcroft_kerr").scheme
    u, v, w = tables(scheme)
    turned = np.array([w[i * scheme.n + j] for j in range(scheme.n) for i in range(scheme.m)])
    assert not import_arrays(u, v, w).transposed
    found = import_arrays(u, v, turned)
    assert found.transposed and found.found == ("C is transposed",) and found.scheme.tables == scheme.tables
    assert import_arrays(u, v, turned, transposed=True).scheme.tables == scheme.tables
    with pytest.raises(BilinearError, match=r"E356.*\n.*\n.*with transposed=True it holds"):
        import_arrays(u, v, turned, transposed=False)
    with pytest.raises(BilinearError, match=r"with transposed=False it holds"):
        import_arrays(u, v, w, transposed=True)


@pytest.mark.parametrize("transposed", [False, True])
def test_c_of_matrices_that_are_not_square(transposed: bool) -> None:
    """The classical product of a 2 x 1 and a 1 x 3 matrix; block (i, j) of C is 3i + j, or 2j + i where C is transposed."""
    pairs = [(i, j) for i in range(2) for j in range(3)]
    u, v = np.array([[int(i == x) for i, _ in pairs] for x in range(2)]), np.array([[int(j == x) for _, j in pairs] for x in range(3)])
    places = [2 * j + i if transposed else 3 * i + j for i, j in pairs]
    w = np.array([[int(place == x) for place in places] for x in range(6)])
    for said in (None, transposed):
        found = import_arrays(u, v, w, transposed=said)
        assert found.transposed is transposed and found.scheme.format == "<2,1,3;6>"
        assert found.scheme.w.matrix == tuple(((product, 1),) for product in range(6))
    with pytest.raises(BilinearError, match="E356"):
        import_arrays(u, v, w, transposed=not transposed)


def test_the_result_multiplies() -> None:
    algorithm = bilinear.from_arrays(*tables(load("winograd").scheme), name="mine")
    a, b = np.arange(16).reshape(4, 4), np.arange(16).reshape(4, 4)[::-1]
    assert np.array_equal(algorithm.matmul(a, b, levels=1), a @ b)
    assert algorithm.verify().scheme.name == "mine" and "scheme mine <2,2,2;7>" in algorithm.source.text


def test_the_ring_is_found_or_taken_as_it_is_said() -> None:
    u, v, w = (np.abs(table) for table in tables(load("strassen").scheme))
    assert str(import_arrays(u, v, w).scheme.ring) == "Z/2"
    with pytest.raises(BilinearError, match=r"E356.*over Q does not multiply(.|\n)*ring='Z/2'"):
        import_arrays(u, v, w, ring="Q")
    with pytest.raises(BilinearError, match="E203"):
        import_arrays(u, v, w, ring="F2")
    signed = tables(load("strassen").scheme)
    signed[2][0, 0] *= -1
    with pytest.raises(BilinearError, match=r"E356(.|\n)*holds over Z/2: give ring='Z/2'"):
        import_arrays(*signed)


def test_complex_numbers_are_of_q_of_i() -> None:
    scheme = import_arrays([[1j]], [[-1j]], [[1.0]]).scheme
    assert str(scheme.ring) == "Q[i]" and scheme.u.outputs == ((((0, generator("i"))),),)


@each(
    ("value", "number"),
    [
        (np.float64(1) / 3, Fraction(1, 3)),
        (np.float32(1) / np.float32(3), Fraction(1, 3)),
        (np.float16(0.125), Fraction(1, 8)),
        (-2.0, -2),
        (np.int8(-3), -3),
        (True, 1),
        (0.1, Fraction(1, 10)),
        (2.0**-20, Fraction(1, 2**20)),
        (2.0**-40 + 2.0**-70, Fraction(2**30 + 1, 2**70)),
        (33124 / 38165, Fraction(33124, 38165)),
        (Fraction(5, 7), Fraction(5, 7)),
        (1.5 + 2j, Fraction(3, 2) + generator("i") * 2),
        (np.complex64(2), 2),
    ],
)
def test_every_kind_of_number(value: Any, number: Any) -> None:
    assert exact_number(value, "x") == number


@each("value", [np.nan, np.inf, -np.inf, "1", None, 1e300, 1e-300, complex(0, np.nan), Fraction(1, 3**200), [1]])
def test_what_is_no_coefficient(value: Any) -> None:
    with pytest.raises(BilinearError, match="E357"):
        exact_number(value, "x")


@each(
    ("arrays", "code"),
    [
        (([1], [[1]], [[1]]), "E357"),
        (([[1]], [[[1]]], [[1]]), "E357"),
        (([[1], [1, 2]], [[1]], [[1]]), "E357"),
        ((np.array([["1"]]), [[1]], [[1]]), "E357"),
        (([[np.nan]], [[1]], [[1]]), "E357"),
        (([[10**5000]], [[1]], [[1]]), "E357"),
        (([[Fraction(1, 10**5000)]], [[1]], [[1]]), "E357"),
        ((np.zeros((0, 0)), np.zeros((0, 0)), np.zeros((0, 0))), "E253"),
        (([[1, 1]], [[1]], [[1]]), "E253"),
        (([[1], [1], [1]], [[1], [1]], [[1], [1]]), "E253"),
        ((np.ones((400, 400)), [[1]], [[1]]), "E357"),
    ],
)
def test_what_is_no_scheme(arrays: Any, code: str) -> None:
    with pytest.raises(BilinearError, match=code):
        import_arrays(*arrays)
