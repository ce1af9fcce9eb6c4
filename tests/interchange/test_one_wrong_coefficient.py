"""A small file of every format that is read, and the same with one wrong coefficient: both verdicts, and the place that is told."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
from each_case import each

from bilinear.errors import BilinearError
from bilinear.interchange.importing import Imported, import_arrays, import_file

Rows = list[list[int]]
Tables = tuple[Rows, Rows, Rows]
STRASSEN: Tables = (
    [[1, 0, 0, 1], [0, 0, 1, 1], [1, 0, 0, 0], [0, 0, 0, 1], [1, 1, 0, 0], [-1, 0, 1, 0], [0, 1, 0, -1]],
    [[1, 0, 0, 1], [1, 0, 0, 0], [0, 1, 0, -1], [-1, 0, 1, 0], [0, 0, 0, 1], [1, 1, 0, 0], [0, 0, 1, 1]],
    [[1, 0, 0, 1], [0, 0, 1, -1], [0, 1, 0, 1], [1, 0, 1, 0], [-1, 1, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0]],
)
"""U, V and W by products; the blocks of C are numbered row by row."""
BLOCKS = ("11", "12", "21", "22")


def columns(rows: Rows) -> Rows:
    return [list(column) for column in zip(*rows, strict=True)]


def turned(rows: Rows) -> Rows:
    """W with the blocks of C numbered column by column."""
    return [[row[0], row[2], row[1], row[3]] for row in rows]


def total(row: list[int], names: list[str]) -> str:
    """A row as a sum."""
    terms = [("+" if value > 0 else "-") + name for name, value in zip(names, row, strict=True) if value]
    return "".join(terms).removeprefix("+")


def lines(rows: Rows) -> str:
    return "".join(" ".join(map(str, row)) + "\n" for row in rows)


def blocks(letter: str) -> list[str]:
    return [letter + place for place in BLOCKS]


def lists(row: list[int], opening: str, closing: str) -> str:
    a, b, c, d = row
    return f"{opening}{opening}{a},{b}{closing},{opening}{c},{d}{closing}{closing}"


def fast_matmul(u: Rows, v: Rows, w: Rows, folder: Path) -> Path:
    return _text(folder / "own222-7-36", "#\n".join(lines(columns(rows)) for rows in (u, v, w)))


def full_json(u: Rows, v: Rows, w: Rows, folder: Path) -> Path:
    return _text(folder / "2x2x2_m7.json", json.dumps({"n": [2, 2, 2], "m": 7, "z2": False, "u": u, "v": v, "w": turned(w)}))


def sparse_json(u: Rows, v: Rows, w: Rows, folder: Path) -> Path:
    sparse = [[[[i, value] for i, value in enumerate(row) if value] for row in rows] for rows in (u, v, turned(w))]
    return _text(folder / "2x2x2_m7.json", json.dumps({"m": 7, **dict(zip(("u_sparse", "v_sparse", "w_sparse"), sparse, strict=True))}))


def sms(u: Rows, v: Rows, w: Rows, folder: Path) -> Path:
    for letter, rows in zip("LRP", (u, v, columns(w)), strict=True):
        entries = [f"{i + 1} {j + 1} {value}\n" for i, row in enumerate(rows) for j, value in enumerate(row) if value]
        path = _text(folder / f"2x2x2_7_own_{letter}.sms", f"{len(rows)} {len(rows[0])} M\n{''.join(entries)}0 0 0\n")
    return path


def slp(u: Rows, v: Rows, w: Rows, folder: Path) -> Path:
    for letter, rows in zip("LRP", (u, v, columns(w)), strict=True):
        inputs = [f"i{i}" for i in range(len(rows[0]))]
        path = _text(folder / f"2x2x2_7_own_{letter}.slp", "".join(f"o{i}:={total(row, inputs)};\n" for i, row in enumerate(rows)))
    return path


def archive(u: Rows, v: Rows, w: Rows, folder: Path) -> Path:
    np.savez(folder / "own.npz", U=np.array(u), V=np.array(v), W=np.array(w))
    return folder / "own.npz"


def transposed_archive(u: Rows, v: Rows, w: Rows, folder: Path) -> Path:
    """Unlike the format has it: found out by trying, though neither orientation of the wrong one multiplies."""
    return archive(u, v, turned(w), folder)


def alphatensor(u: Rows, v: Rows, w: Rows, folder: Path) -> Path:
    np.savez(folder / "own.npz", **{"2,2,2": np.array([columns(u), columns(v), columns(turned(w))])})  # type: ignore[arg-type]
    return folder / "own.npz"


def exp(u: Rows, v: Rows, w: Rows, folder: Path) -> Path:
    """The factor in c names the blocks of the transposed C."""
    names = blocks("a"), blocks("b"), blocks("c")
    told = [[total(row, own) for row in rows] for own, rows in zip(names, (u, v, turned(w)), strict=True)]
    return _text(folder / "own.exp", "".join(f"({a})*({b})*({c})\n" for a, b, c in zip(*told, strict=True)))


def formulas(u: Rows, v: Rows, w: Rows, folder: Path) -> Path:
    sides = zip(u, v, strict=True)
    text = "".join(f"P{p} := ({total(a, blocks('a'))})*({total(b, blocks('b'))});\n" for p, (a, b) in enumerate(sides, 1))
    products = [f"P{p}" for p in range(1, 8)]
    text += "".join(f"c{place} := {total(row, products)};\n" for place, row in zip(BLOCKS, columns(w), strict=True))
    return _text(folder / "own.txt", text)


def mathematica(u: Rows, v: Rows, w: Rows, folder: Path) -> Path:
    triads = [",".join(lists(row, "{", "}") for row in triad) for triad in zip(u, v, turned(w), strict=True)]
    return _text(folder / "own.m", "{" + ",\n".join(f"{{{triad}}}" for triad in triads) + "}\n")


def maple(u: Rows, v: Rows, w: Rows, folder: Path) -> Path:
    triads = [",".join(f"Matrix({lists(row, '[', ']')})" for row in triad) for triad in zip(u, v, turned(w), strict=True)]
    return _text(folder / "own.mpl", "TriadSet([" + ",\n".join(f"Triad([{triad}])" for triad in triads) + "]);\n")


def matlab(u: Rows, v: Rows, w: Rows, folder: Path) -> Path:
    named = zip("UVW", (u, v, w), strict=True)
    return _text(folder / "own.m", "".join(f"{name} = [{'; '.join(' '.join(map(str, row)) for row in rows)}];\n" for name, rows in named))


def notebook(u: Rows, v: Rows, w: Rows, folder: Path) -> Path:
    arrays = ", ".join(f"np.array({columns(rows)})" for rows in (u, v, turned(w)))
    cell: dict[str, object] = {
        "cell_type": "code",
        "metadata": {},
        "outputs": [],
        "execution_count": None,
        "source": [f"decomposition_222 = ({arrays})\n"],
    }
    return _text(folder / "own.ipynb", json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]}))


def ternary(u: Rows, v: Rows, w: Rows, folder: Path) -> Path:
    return _text(folder / "own.txt", "2 2 2 7\n" + lines([[value for row in rows for value in row] for rows in (u, v, turned(w))]))


def bini(u: Rows, v: Rows, w: Rows, folder: Path) -> Path:
    told = zip(*([" ".join(map(str, row)) for row in rows] for rows in (w, u, v)), strict=True)
    return _text(folder / "own.txt", "Bini 2 2 2 7\n" + "".join(f"{p} ; {' ; '.join(row)}\n" for p, row in enumerate(told, 1)))


def npy(u: Rows, v: Rows, w: Rows, folder: Path) -> Path:
    fractions = [number for rows in (u, v, w) for row in rows for value in row for number in (value, 1)]
    np.save(folder / "gg-222-rank7-own-z.npy", np.array([fractions], dtype=np.int64))
    return folder / "gg-222-rank7-own-z.npy"


def _text(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


Writer = Callable[[Rows, Rows, Rows, Path], Path]
TABLES: tuple[Writer, ...] = (fast_matmul, full_json, sparse_json, sms, matlab, ternary, bini, npy)
ARCHIVES: tuple[Writer, ...] = (archive, transposed_archive, alphatensor)


def as_named(writer: Writer, text: str) -> str:
    """A message about products, with the names that formulas give them."""
    return re.sub(r"M(\d)", r"P\1", text) if writer is formulas else text


WRITERS: tuple[Writer, ...] = (*TABLES, *ARCHIVES, slp, exp, formulas, mathematica, maple, notebook)


def plants() -> Iterator[tuple[Tables, str]]:
    """One sign turned in each table, in a sum of several terms, so that no other single sign repairs it; and what does."""
    for table, product, block, place in (
        (0, 5, 2, "+A21 for -A21 in M6"),
        (1, 2, 3, "-B22 for +B22 in M3"),
        (2, 4, 0, "-M5 for +M5 in C11"),
    ):
        wrong = deepcopy(STRASSEN)
        wrong[table][product][block] *= -1
        yield wrong, f"writing {place} makes it correct"


@each("writer", WRITERS)
def test_the_right_file_is_proved_and_one_wrong_sign_is_told_at_its_place(writer: Writer, tmp_path: Path) -> None:
    found = import_file(writer(*STRASSEN, tmp_path))
    assert isinstance(found, Imported) and found.proof.holds and found.scheme.tables == import_arrays(*STRASSEN).scheme.tables
    for wrong, repair in plants():
        with pytest.raises(BilinearError, match=r"E356.*of 64 Brent equations fail") as caught:
            import_file(writer(*wrong, tmp_path))
        (told,) = caught.value.diagnostics
        assert as_named(writer, repair) in told.hints
        assert ("M1 is the first product of the file" in told.notes) == (writer is not formulas)


@each("writer", WRITERS)
def test_a_lost_number_is_told_by_what_the_row_must_be(writer: Writer, tmp_path: Path) -> None:
    wrong = deepcopy(STRASSEN)
    wrong[2][3][2] = 0  # C21 = M2 + M4
    with pytest.raises(BilinearError, match="E356") as caught:
        import_file(writer(*wrong, tmp_path))
    (told,) = caught.value.diagnostics
    assert "all that fail point at C21" in told.notes
    assert as_named(writer, "with C21 = M2 + M4 the scheme is correct") in told.notes
    assert as_named(writer, "adding +M4 to C21 makes it correct") in told.hints


def test_noise_is_not_searched_in_a_folder_and_names_no_place(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    u, v, w = (generator.integers(-1, 2, (7, 4)).tolist() for _ in range(3))
    path = archive(u, v, w, tmp_path)
    with pytest.raises(BilinearError, match=r"E356(.|\n)*tried were both orientations of C(.|\n)*is it complete\?") as caught:
        import_file(path, explain=False)
    assert len(caught.value.diagnostics[0].notes) == 2
    with pytest.raises(BilinearError, match=r"E356(.|\n)*none of them can be mended alone(.|\n)*is it complete\?"):
        import_file(path)
