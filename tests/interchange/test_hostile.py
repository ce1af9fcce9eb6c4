"""Hostile tables of other projects get diagnostics quickly."""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hostile import MOST_SECONDS

from bilinear.errors import BilinearError
from bilinear.interchange.expressions import read_exp
from bilinear.interchange.fmm_json import read_fmm_json
from bilinear.interchange.importing import Imported, import_file
from bilinear.interchange.plinopt import read_program, read_sms
from bilinear.interchange.tables import read_fast_matmul, read_mathematica
from bilinear.verify.scheme import prove_scheme


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


LARGE = 2**18
LONG = {
    "x.slp": ["a:=" + " " * LARGE, "a" * LARGE, "o0:=" + "-" * LARGE + "i0;", "o0:=" + "(" * LARGE, "a:=i0;" * (LARGE // 6)],
    "x.exp": ["(" * LARGE, "-" * LARGE, " " * LARGE + "x", "(a11)*(" + "b11+" * (LARGE // 4) + "b11)*(c11)", "2*" * (LARGE // 2)],
    "x.m": ["(*" * (LARGE // 2), " " * LARGE + "x", "+" + " " * LARGE, "{" * LARGE, "{" + "1," * (LARGE // 2), "(**)" * (LARGE // 4)],
    "x": ["(" * LARGE, "#" * LARGE, "- " * (LARGE // 2), "{" * LARGE, "(*" * (LARGE // 2), "[:" * (LARGE // 2)],
}


READERS: dict[str, Callable[[Path], object]] = {"x.slp": read_program, "x.exp": read_exp, "x.m": read_mathematica, "x": import_file}


@pytest.mark.parametrize("name", LONG)
def test_long_runs_of_anything_take_no_long_time(name: str, tmp_path: Path) -> None:
    """A pattern that goes back and forth over a run of blanks takes hours for a file of this size."""
    for text in LONG[name]:
        path = tmp_path / name
        path.write_text(text)
        begin = time.process_time()
        with contextlib.suppress(BilinearError):
            READERS[name](path)
        assert time.process_time() - begin < MOST_SECONDS


JSON = json.dumps({"n": [2, 2, 2], "m": 1, "z2": False, "u": [[1, 0, 0, 1]], "v": [["1/2", 0, 0, 1]], "w": [[1, 0, 0, 1]]})
TABLE = "1 0\n0 1\n#\n1 0\n0 1\n#\n1 xi\n-1/2 (1+-x)\n"
PIECES = [
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
        mutant = text[:start] + draw.choice(PIECES) + text[start + draw.randrange(6) :]
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
