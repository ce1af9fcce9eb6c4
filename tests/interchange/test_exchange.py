"""Import and export: formats are told apart, every round trip is exact, and a refusal names the reading that would have been right."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from each_case import each
from hypothesis import given
from hypothesis import strategies as st
from published import FOLDER, needs_folder, published
from typer.testing import CliRunner

import bilinear
from bilinear.cli.app import app
from bilinear.errors import BilinearError
from bilinear.frontend import load
from bilinear.frontend.algorithms import shipped
from bilinear.frontend.printer import print_scheme
from bilinear.interchange.exporting import WRITERS, export_files, what_is_lost
from bilinear.interchange.importing import FORMATS, Imported, format_of, import_file, import_scheme, turned
from bilinear.interchange.reader_parts import Asked
from bilinear.ir.linear import LinearMap, form
from bilinear.ir.number import Coefficient, generator
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Bases, Scheme
from bilinear.verify.scheme import prove_scheme
from bilinear.writing import write_files

SIGNS = {"Q": (), "Z": (), "Z/2": (), "Z/7": (), "Q[sqrt(3)]": ("sqrt(3)",), "Q[i]": ("i",), "Q[lambda]": ("lambda",)}


def run(*words: str) -> tuple[int, str]:
    """The exit status and output of a command; user errors are printed as `main` prints them."""
    result = CliRunner().invoke(app, list(words))
    if isinstance(result.exception, BilinearError):
        return 1, result.output + str(result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def written(folder: Path, scheme: Scheme, form_name: str) -> Path:
    """The first of the files that a scheme is exported to."""
    paths = []
    for name, data in export_files(scheme, form_name).items():
        paths.append(folder / name)
        paths[-1].write_bytes(data)
    return paths[0]


def back(folder: Path, scheme: Scheme, form_name: str) -> Scheme:
    """A scheme exported and read again, proofs apart."""
    path = written(folder, scheme, form_name)
    return format_of(path)[0].read(path, Asked(ring=scheme.ring if form_name == "npz" else None)).scheme


def require_the_same(scheme: Scheme, again: Scheme, form_name: str) -> None:
    assert again.tables == scheme.tables and again.ring == scheme.ring
    assert (again.m, again.k, again.n) == (scheme.m, scheme.k, scheme.n)
    if not what_is_lost(scheme, form_name):
        assert (again.u, again.v, again.w, again.bases) == (scheme.u, scheme.v, scheme.w, scheme.bases)


def classical() -> Scheme:
    """The classical product of a 2 x 1 and a 1 x 3 matrix."""
    u, v = (LinearMap(size, tuple(((p // 3 if size == 2 else p % 3, 1),) for p in range(6))) for size in (2, 3))
    return Scheme("classical", 2, 1, 3, u, v, LinearMap(6, tuple(((p, 1),) for p in range(6))), tuple(f"M{p + 1}" for p in range(6)))


@functools.cache
def every_scheme() -> dict[str, Scheme]:
    """The shipped schemes, and where they are, the published ones of at most thirty products."""
    schemes = {name: load(name).scheme for name in shipped()}
    if FOLDER.is_dir():
        schemes |= {name: make() for name, make in published().items()}
    return {name: scheme for name, scheme in schemes.items() if scheme.rank <= 30}


@pytest.mark.parametrize("form_name", WRITERS)
def test_every_round_trip_is_exact_or_refused(form_name: str, tmp_path: Path) -> None:
    refused: dict[str, str] = {}
    for name, scheme in every_scheme().items():
        try:
            again = back(tmp_path, scheme, form_name)
        except BilinearError as error:
            refused[name] = str(error)
        else:
            require_the_same(scheme, again, form_name)
    assert len(refused) <= len(every_scheme()) // 4
    for name, told in refused.items():
        assert told.startswith("error[E355]"), name
        for other in re.findall(r"--to ([\w-]+)", told):
            export_files(every_scheme()[name], other)  # what the hint names holds it
        assert every_scheme()[name].ring.generator or (form_name == "npz" and "simplest fraction" in told), name


@st.composite
def schemes(draw: st.DrawFn) -> Scheme:
    """Tables of anything over any ring, with named sums or with changes of basis: most of them multiply nothing."""
    m, k, n, rank = (draw(st.integers(1, 3)) for _ in range(4))
    ring = draw(st.sampled_from(sorted(SIGNS)))
    numbers: st.SearchStrategy[Coefficient] = st.integers(-3, 3)
    if ring[0] == "Q":
        numbers |= st.fractions(-4, 4, max_denominator=12)
    for sign in SIGNS[ring]:
        numbers = st.builds(lambda c, e, g=sign: generator(g, e) * c, st.fractions(-4, 4, max_denominator=12), st.just(1)) | numbers

    def rows(count: int, over: int) -> tuple[tuple[tuple[int, Coefficient], ...], ...]:
        pairs = st.lists(st.tuples(st.integers(0, over - 1), numbers), max_size=4)
        return tuple(form(draw(pairs)) for _ in range(count))

    def linear(inputs: int, outputs: int, steps: int) -> LinearMap:
        made = tuple(rows(1, inputs + i)[0] for i in range(steps))
        return LinearMap(inputs, rows(outputs, inputs + steps), made, tuple(f"S{i}" for i in range(steps)))

    with_bases = draw(st.booleans())
    steps = 0 if with_bases else draw(st.integers(0, 2))
    maps = linear(m * k, rank, steps), linear(k * n, rank, steps), linear(rank, m * n, steps)
    bases = Bases(*(linear(size, size, 0) for size in (m * k, k * n, m * n))) if with_bases else None
    return Scheme("any", m, k, n, *maps, tuple(f"M{p + 1}" for p in range(rank)), Ring(ring), bases=bases)


@each(
    ("form_name", "ring", "numbers"),
    [
        ("sms", "Q[sqrt(3)]", [generator("sqrt(3)") * Fraction(-1, 2), generator("sqrt(3)"), Fraction(2, 3)]),
        ("sms", "Q[i]", [generator("i") * -1, generator("i") * 5, -2]),
        ("sms", "Z/7", [3, -2, 6]),
        ("fast-matmul", "Q[lambda]", [generator("lambda", -1) * -1, generator("lambda", 2) * Fraction(3, 4) - 1, generator("lambda", -3)]),
        ("fast-matmul", "Z/2", [1, 0, 1]),
        ("json", "Z/2", [1, 0, 1]),
        ("json", "Z/5", [Fraction(-1, 2), 4, 1]),
        ("npz", "Z/2", [1, 0, 1]),
        ("npz", "Q", [Fraction(1, 3), Fraction(-5, 8), 2**40]),
    ],
)
def test_every_kind_of_number_makes_the_round_trip(form_name: str, ring: str, numbers: list[Coefficient], tmp_path: Path) -> None:
    rows = tuple(form([(0, c), (1, 1)]) for c in numbers)
    scheme = Scheme(
        "x",
        1,
        2,
        1,
        LinearMap(2, rows),
        LinearMap(2, rows[::-1]),
        LinearMap(3, (form(enumerate(numbers)),)),
        ("M1", "M2", "M3"),
        Ring(ring),
    )
    require_the_same(scheme, back(tmp_path, scheme, form_name), form_name)


@given(schemes(), st.sampled_from(sorted(WRITERS)))
def test_round_trips_of_anything(tmp_path_factory: pytest.TempPathFactory, scheme: Scheme, form_name: str) -> None:
    try:
        again = back(tmp_path_factory.getbasetemp(), scheme, form_name)
    except BilinearError as error:
        told = str(error)
    else:
        told = ""
    if told:
        assert told.startswith("error[E355]") and scheme.ring.generator
        return
    if scheme.ring.generator and not any(
        c for table in scheme.tables for row in table for _, c in row if not isinstance(c, (int, Fraction))
    ):
        assert again.tables == scheme.tables  # a ring that no coefficient shows may be told as Q
        return
    require_the_same(scheme, again, form_name)


def multiplies(tables: Iterable[Any], transposed: bool) -> bool:
    """Whether dense U, V, W with a column a product multiply <3,2,3> matrices of random integers, by the definition."""
    u, v, w = (np.array(table, dtype=float) for table in tables)
    draw = np.random.default_rng(7)
    a, b = draw.integers(-9, 9, (3, 2)), draw.integers(-9, 9, (2, 3))
    c = w @ ((u.T @ a.ravel()) * (v.T @ b.ravel()))
    return bool(np.array_equal(c.reshape(3, 3), (a @ b).T if transposed else a @ b))


def dense(text: str) -> Any:
    """A matrix of triples, by the definition of the format."""
    head, *rows = (line.split() for line in text.splitlines())
    matrix = np.zeros((int(head[0]), int(head[1])))
    for i, j, value in rows[:-1]:
        matrix[int(i) - 1, int(j) - 1] = float(value)
    assert rows[-1] == ["0", "0", "0"]
    return matrix


def test_written_files_mean_what_their_collections_mean(tmp_path: Path) -> None:
    """Read without our readers: a convention that reader and writer both get wrong would pass every round trip."""
    scheme = load("hopcroft_kerr").scheme
    scheme = replace(scheme, u=LinearMap(6, scheme.u.matrix), v=LinearMap(6, scheme.v.matrix), w=LinearMap(15, scheme.w.matrix))
    with np.load(written(tmp_path, scheme, "npz"), allow_pickle=True) as held:
        assert list(held) == ["3,2,3"] and multiplies(held["3,2,3"], transposed=True)
    data = json.loads(written(tmp_path, scheme, "json").read_text())
    assert (data["n"], data["m"], data["z2"]) == ([3, 2, 3], 15, False)
    assert multiplies((np.array(data[letter]).T for letter in "uvw"), transposed=True)
    left, right, post = (dense(data.decode()) for data in export_files(scheme, "sms").values())
    assert multiplies((left.T, right.T, post), transposed=False)
    blocks = written(tmp_path, scheme, "fast-matmul").read_text().split("#\n")
    assert multiplies(([line.split() for line in block.splitlines()] for block in blocks), transposed=False)


@pytest.mark.parametrize("name", ["strassen", "hopcroft_kerr"])
def test_a_written_file_is_read_by_how_it_begins(name: str, tmp_path: Path) -> None:
    scheme = load(name).scheme
    for form_name in WRITERS:
        path = written(tmp_path, scheme, form_name)
        assert format_of(path)[0].name == form_name
        bare = path.rename(tmp_path / "bare")
        assert format_of(bare)[0].name == form_name and format_of(bare, "json")[0].name == "json"


@each(
    ("text", "name"),
    [
        ("(a11+a22)*(b11)*(c11)\n", "exp"),
        ("# c\n\n-(2*a11)*(b11)*(c11)\n", "exp"),
        ("t0 := i0;\n", "slp"),
        ("(* c *) x = {{{{1}}, {{1}}, {{1}}}}", "m"),
        ('\n{ "n": [1, 1, 1] }', "json"),
        ("# c\n7 4 R\n1 1 1\n", "sms"),
        ("0 -1 (1+-x) 1/2x2i\n#\n", "fast-matmul"),
        ("# c\n[FILE :: NAME]\n", "fflas"),
    ],
)
def test_a_format_is_told_by_how_it_begins(text: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text(text)
    assert format_of(path)[0].name == name


def test_no_format(tmp_path: Path) -> None:
    for text in ("", "hello", "\0" * 5000, "import os", "((((" * 1000):
        (tmp_path / "x").write_text(text)
        with pytest.raises(BilinearError, match=r"E351.*of no known format"):
            import_file(tmp_path / "x")
    with pytest.raises(BilinearError, match=r"E351.*there is no format 'xml'"):
        import_file(tmp_path / "x", format="xml")
    with pytest.raises(BilinearError, match="E251"):
        import_file(tmp_path / "none")
    (tmp_path / "x").write_text("[F :: N]\n1: S1 = A11 + A12 -> A11\n")
    with pytest.raises(BilinearError, match=r"E351.*holds schedules"):
        import_file(tmp_path / "x")


@each("form_name", WRITERS)
@each("name", ["strassen", "hopcroft_kerr", "classical"])
def test_c_the_other_way_round_is_found_and_told(form_name: str, name: str, tmp_path: Path) -> None:
    scheme, usual = classical() if name == "classical" else load(name).scheme, FORMATS[form_name].transposed
    path = written(tmp_path, turned(scheme, not usual), form_name)
    found = import_file(path)
    assert isinstance(found, Imported) and found.transposed is not usual and found.scheme.tables == scheme.tables
    assert found.found == (f"C is {'not ' if usual else ''}transposed",) and "unlike this format" in found.orientation
    assert import_scheme(path, transposed=not usual).scheme.tables == scheme.tables
    with pytest.raises(BilinearError, match=rf"E356(.|\n)*with transposed={not usual} "):
        import_file(path, transposed=usual)


def test_turning_twice_is_nothing() -> None:
    scheme = classical()
    assert scheme.m != scheme.n
    assert turned(turned(scheme, True), False) == scheme != turned(scheme, True)
    assert turned(scheme, True) != turned(scheme, False)


def test_other_confusions_are_named(tmp_path: Path) -> None:
    scheme = load("strassen").scheme
    exchanged = Scheme("x", 2, 2, 2, scheme.v, scheme.u, scheme.w, scheme.products)
    with pytest.raises(BilinearError, match=r"E356(.|\n)*A and B are exchanged(.|\n)*exchanging A and B makes it correct"):
        import_file(written(tmp_path, exchanged, "json"))
    wrong = Scheme("x", 2, 2, 2, scheme.u, scheme.v, LinearMap(7, (((0, 2),), *scheme.w.outputs[1:])), scheme.products)
    with pytest.raises(BilinearError, match=r"E356.*7? ?of 64 Brent equations fail(.|\n)*tried were both orientations of C"):
        import_file(written(tmp_path, wrong, "json"))


@pytest.mark.parametrize("form_name", WRITERS)
def test_a_truncated_file_is_a_clear_error(form_name: str, tmp_path: Path) -> None:
    path = written(tmp_path, load("strassen").scheme, form_name)
    whole = path.read_bytes()
    for share in range(1, 20):
        path.write_bytes(whole[: len(whole) * share // 20])
        with pytest.raises(BilinearError) as caught:
            import_file(path, format=form_name)
        assert caught.value.diagnostics[0].code in ("E251", "E252", "E253", "E254", "E255", "E353")


def test_a_file_of_a_gigabyte_is_not_read(tmp_path: Path) -> None:
    for name in ("x.json", "x.mpl", "x.npz", "x.exp", "x_L.slp", "x_L.sms", "x"):
        path = tmp_path / name
        with path.open("wb") as file:
            file.write(b"1 0\n")
            file.truncate(2**30)
        for letter in "RP":
            (tmp_path / f"x_{letter}{path.suffix}").touch()
        with pytest.raises(BilinearError, match=r"is larger than . MiB"):
            import_file(path)


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tables").mkdir()
    monkeypatch.chdir(tmp_path / "tables")
    for form_name in WRITERS:
        status, told = run("export", "hopcroft_kerr", "--to", form_name)
        path = re.findall(r"written to (\S+)", told)[0]
        assert status == 0 and Path(path).is_file()
        status, told = run("import", path, "-o", "../again.bl")
        assert status == 0 and ": proved" in told and FORMATS[form_name].title in told
        assert load("../again.bl").scheme.tables == load("hopcroft_kerr").scheme.tables
        status, told = run("import", path, "--json")
        assert status == 0 and json.loads(told)["read_as"] == form_name and json.loads(told)["ring"] == "Q"
    assert run("export", "strassen", "--to", "sms", "-o", "s.sms")[0] == 0
    assert {path.name for path in Path().glob("s_*")} == {"s_L.sms", "s_R.sms", "s_P.sms"}
    assert run("export", "strassen", "--to", "json", "-o", "s.json")[0] == 0
    status, told = run("import", ".")
    assert status == 0 and re.search(r"^all +\d+ +\d+ +0 +0 ", told, re.MULTILINE)
    status, told = run("import", ".", "--json")
    assert status == 0 and {row["verdict"] for row in json.loads(told)} == {"proved"}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("import", "none"), "E251"),
        (("import", "s_L.sms", "--c", "up"), "E507"),
        (("import", ".", "--over", "Q"), "E507"),
        (("import", "s_L.sms", "--over", "Z/6"), "E203"),
        (("import", "s_L.sms", "--from", "xml"), "E351"),
        (("import", "s_L.sms", "--entry", "2,2,2"), "E354"),
        (("import", "s_L.sms", "--over", "Z/2", "--c", "columns"), "E356"),
        (("import", "s_L.sms", "-o", "s_L.sms"), "E612"),
        (("import", "alone_L.sms"), "E352"),
        (("import", "alone.sms"), "E352"),
        (("import", "x-CoB_R.sms"), "E352"),
        (("import", "rooted.bl"), "E351"),
        (("import", "."), "E356"),
        (("export", "strassen", "--to", "xml"), "E351"),
        (("export", "strassen", "--to", "json", "-o", "none/x.json"), "E612"),
        (("export", "same.bl", "--to", "json", "-o", "same.bl"), "E612"),
        (("export", "rooted.bl", "--to", "json"), "E355"),
        (("export", "rooted.bl", "--to", "npz"), "E355"),
    ],
)
def test_what_the_commands_refuse(words: tuple[str, ...], code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, data in export_files(load("strassen").scheme, "sms").items():
        (tmp_path / f"s{name[-6:]}").write_bytes(data)
    for name in ("alone_L.sms", "alone.sms", *(f"x-CoB_{letter}.sms" for letter in "LRP")):
        (tmp_path / name).write_bytes((tmp_path / "s_L.sms").read_bytes())
    (tmp_path / "wrong").write_text("1\n#\n1\n#\n2\n")
    (tmp_path / "same.bl").write_text(print_scheme(load("strassen").scheme))
    u, v, w = (LinearMap(1, (((0, c),),)) for c in (generator("sqrt(3)"), 1, generator("sqrt(3)") * Fraction(1, 3)))
    (tmp_path / "rooted.bl").write_text(print_scheme(Scheme("rooted", 1, 1, 1, u, v, w, ("M1",), Ring("Q[sqrt(3)]"))))
    status, told = run(*words)
    assert status == 1 and f"error[{code}]" in told


def test_from_python(tmp_path: Path) -> None:
    path = written(tmp_path, load("winograd").scheme, "json")
    algorithm = bilinear.import_table(path)
    assert algorithm.scheme.tables == load("winograd").scheme.tables
    assert prove_scheme(bilinear.import_table(path, ring="Z/5").scheme).ring == "Z/5"
    with pytest.raises(BilinearError, match="E356"):
        bilinear.import_table(path, transposed=False)


@needs_folder
def test_schemes_whose_bases_the_language_cannot_write(tmp_path: Path) -> None:
    algorithm = bilinear.import_table(FOLDER / "plinopt" / "data" / "4x4x4_48_accurate-ALT_P.sms")
    assert algorithm.scheme.bases is None and prove_scheme(algorithm.scheme).holds
    with pytest.raises(BilinearError, match=r"E356.*computes A\*A\^T"):
        bilinear.import_table(FOLDER / "plinopt" / "data" / "4x4T_8+26_RXTX_L.slp")
    status, told = run("import", str(FOLDER / "plinopt" / "data" / "4x4T_8+26_RXTX_L.slp"))
    assert status == 0 and "computes  A*A^T, A 4 x 4, upper triangle, blocks numbered from A44 on" in told
    status, told = run("import", str(FOLDER / "plinopt" / "data" / "2o2o4_Toom3_R.sms"), "-o", str(tmp_path / "x.bl"))
    assert status == 1 and "error[E355]" in told
    status, told = run("import", str(FOLDER / "plinopt" / "data" / "2o2o2_4_partSP_R.sms"))
    assert status == 1 and "error[E356]" in told and "a1*b0 + a2*b0 to c2" in told


def test_of_files_that_belong_together_none_is_written_where_one_cannot_be(tmp_path: Path) -> None:
    kept, folder = tmp_path / "a", tmp_path / "b"
    kept.write_text("as it was")
    folder.mkdir()
    with pytest.raises(BilinearError, match="E612"):
        write_files({kept: "new", tmp_path / "c": "new", folder: "new"})
    assert kept.read_text() == "as it was" and sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]
    write_files({kept: "new", tmp_path / "c": b"new"})
    assert kept.read_text() == (tmp_path / "c").read_text() == "new"
