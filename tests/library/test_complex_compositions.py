"""Algorithms for complex numbers in the language, shipped and composed with block schemes, `complex3 (x) winograd`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from each_case import each
from shell import Shell

import bilinear
from bilinear.algebra.complex_products import complex_scheme, four_products, on_complex_blocks, three_products, two_products
from bilinear.errors import BilinearError
from bilinear.frontend import LoadedComplex, load, load_any, parse_source
from bilinear.frontend.files import COMPLEX, shipped
from bilinear.frontend.printer import print_complex
from bilinear.ir.bilinear_map import BilinearAlgorithm, BilinearMap
from bilinear.ir.complex_scheme import ComplexAlgorithm
from bilinear.ir.number import residue
from bilinear.source import Source
from bilinear.verify.bilinear_map import prove_map

COMPOSED = ["complex3 (x) winograd", "winograd (x) complex4", "complex3 (x) <2,1,3>", "strassen (x) complex3 (x) <1,2,1>"]
OWN = """scheme gauss <1,1,1;3>: of complex numbers
  M1 = (A.re + A.im) * B.re
  M2 = A.re * (B.im - B.re)
  M3 = A.im * (B.re + B.im)
  C.re = M1 - M3
  C.im = M1 + M2
scheme fast = gauss (x) strassen
"""
"""Gauss's three products, which differ from those of complex3."""


def composed(text: str) -> ComplexAlgorithm:
    found = load_any(text)
    assert isinstance(found, LoadedComplex)
    return found.scheme


def gaussian(*shape: int, dtype: str = "complex128") -> Any:
    generator = np.random.default_rng([5, *shape])
    return (generator.integers(-9, 10, shape) + 1j * generator.integers(-9, 10, shape)).astype(dtype)


def complex_matrices(m: int, k: int, n: int) -> BilinearMap:
    """The product of complex matrices by the parts of their blocks: all real parts, then all imaginary ones."""

    def parts(letter: str, rows: int, columns: int) -> tuple[str, ...]:
        return tuple(f"{letter}{i}{j}.{part}" for part in ("re", "im") for i in range(rows) for j in range(columns))

    def row(i: int, j: int, imaginary: bool) -> tuple[tuple[int, int, int], ...]:
        pairs = ((0, 1, 1), (1, 0, 1)) if imaginary else ((0, 0, 1), (1, 1, -1))
        return tuple((x * m * k + i * k + p, y * k * n + p * n + j, c) for p in range(k) for x, y, c in pairs)

    rows = tuple(row(i, j, imaginary) for imaginary in (False, True) for i in range(m) for j in range(n))
    return BilinearMap("complex matrices", parts("A", m, k), parts("B", k, n), parts("C", m, n), rows)


@pytest.mark.parametrize("text", COMPOSED)
def test_their_tables_multiply_complex_matrices(text: str) -> None:
    """Every coefficient of the whole map, not only of the factors; one wrong coefficient is found."""
    found = composed(text)
    assert found.inside is not None
    whole = complex_scheme(found.inside, core=found.core)
    target = complex_matrices(*found.sizes)
    algorithm = BilinearAlgorithm(found.name, target, whole.u, whole.v, whole.w)
    assert prove_map(algorithm).holds and algorithm.rank == found.rank
    swapped = BilinearAlgorithm(found.name, target, whole.u, whole.v, complex_scheme(found.inside, "A", found.core).w)
    conjugated = complex_scheme(found.inside, "A", found.core)
    assert prove_map(swapped).holds
    assert not prove_map(BilinearAlgorithm(found.name, target, conjugated.u, whole.v, whole.w)).holds
    again = on_complex_blocks(found.core, found.inside)
    assert prove_map(replace(again, target=target)).holds and again.rank == found.rank


@pytest.mark.parametrize("text", COMPOSED)
def test_printed_text_means_the_same(text: str) -> None:
    found = composed(text)
    printed = print_complex(found)
    again = next(scheme for scheme in parse_source(Source("x.bl", printed)).complexes if scheme.name == found.name)
    assert again.core.tables == found.core.tables and again.inside is not None and found.inside is not None
    assert again.inside.tables == found.inside.tables and again.format == found.format


@each(("text", "levels"), [(COMPOSED[0], 1), (COMPOSED[0], 2), (COMPOSED[1], 1), (COMPOSED[3], 1), ("complex4", 1)])
@each("dtype", ["complex64", "complex128"])
def test_products_are_exact(text: str, levels: int, dtype: str) -> None:
    a, b = gaussian(23, 31, dtype=dtype), gaussian(31, 18, dtype=dtype)
    wanted = (a.astype("complex128") @ b).astype(dtype)
    c = bilinear.matmul(a, b, algorithm=text, levels=levels)
    assert c.dtype == dtype and (c == wanted).all()
    out = gaussian(23, 18, dtype=dtype)
    assert (bilinear.matmul(a, b, out.copy(), alpha=2j, beta=3 - 1j, algorithm=text, levels=levels) == 2j * wanted + (3 - 1j) * out).all()


TURNED = """scheme turned <2,1,1;2> over Q[sqrt(-3)]
  M1 = [sqrt(-3)] A11 * B11
  M2 = [1-sqrt(-3)] A21 * B11
  C11 = [-1/3*sqrt(-3)] M1
  C21 = [1/4+1/4*sqrt(-3)] M2
"""
COMPLEX_BLOCKS = ["alphaevolve_444", "complex4 (x) alphaevolve_444", "turned.bl"]
"""Schemes whose own coefficients are complex."""


@pytest.mark.sample(1)
@pytest.mark.parametrize("text", COMPLEX_BLOCKS)
def test_schemes_with_complex_coefficients_multiply_complex_matrices(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "turned.bl").write_text(TURNED, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    a, b, out = gaussian(31, 23).T, gaussian(31, 37), gaussian(23, 37)
    rounded = 1e-12 if text == "turned.bl" else 0  # the root of 3 is rounded
    for left, right in ((a, b), (a.conj(), b)):
        wanted = left @ right
        assert abs(bilinear.matmul(left, right, algorithm=text) - wanted).max() <= rounded * 1e4
        got = bilinear.matmul(left, right, out.copy(), alpha=2j, beta=3 - 1j, algorithm=text, levels=1)
        assert abs(got - (2j * wanted + (3 - 1j) * out)).max() <= rounded * 1e4
    if text == "alphaevolve_444":  # and real products below, in a narrower type
        x, y = (m.astype("complex64") for m in (a, b))
        assert (bilinear.matmul(x, y, algorithm=[text, "winograd"]) == a @ b).all()


@each(
    "call",
    [
        lambda a: bilinear.matmul(a.real, a.real, algorithm="alphaevolve_444", levels=1),
        lambda a: bilinear.matmul(a.real.astype("int64"), a.real.astype("int64"), algorithm="alphaevolve_444", levels=1),
        lambda a: bilinear.matmul(a, a, algorithm="alphaevolve_444", levels=2),
        lambda a: bilinear.matmul(a, a, algorithm=["strassen", "alphaevolve_444"]),
        lambda a: bilinear.compile("alphaevolve_444", dtypes=["float32"]),
        lambda a: bilinear.plan(512, 512, 512, "complex128", device="h200", levels=["alphaevolve_444"]),
        lambda a: bilinear.plan(512, 512, 512, "float64", device="h200", levels=["alphaevolve_444"]),
    ],
)
def test_complex_coefficients_are_refused_where_products_are_real(call: Callable[[Any], object]) -> None:
    with pytest.raises(BilinearError, match=r"E528.*alphaevolve_444 has"):
        call(gaussian(16, 16))


def test_another_core_runs_with_its_own_products(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Gauss's products give other roundings than complex3's, so the result says which ran."""
    (tmp_path / "own.bl").write_text(OWN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    a, b = (np.random.default_rng(i).standard_normal((40, 40, 2)).view("complex128")[..., 0] for i in (1, 2))
    own = bilinear.matmul(a, b, algorithm="own.bl:fast", levels=1)
    usual = bilinear.matmul(a, b, algorithm="complex3 (x) strassen", levels=1)
    assert (own != usual).any() and abs(own - a @ b).max() < 1e-12
    assert (usual == bilinear.matmul(a, b, algorithm="strassen", levels=1)).all()
    x, y = gaussian(9, 8), gaussian(8, 7)
    assert (bilinear.matmul(x, y, algorithm="own.bl:fast", levels=1) == x @ y).all()


@pytest.mark.parametrize("dtype", ["float64", "int64", "float16"])
def test_real_arrays_are_refused(dtype: str) -> None:
    a = np.ones((4, 4), dtype)
    with pytest.raises(BilinearError, match=f"(?s)E799.*{dtype}.*winograd"):
        bilinear.matmul(a, a, algorithm="complex3 (x) winograd", levels=1)
    if dtype == "int64":
        with pytest.raises(BilinearError, match="E799"):
            bilinear.matmul(a, a, algorithm="complex3 (x) winograd", modulus=7)


@each(
    ("text", "code", "told"),
    [
        ("scheme s = complex3 (x) complex4", "E236", "both multiply complex numbers"),
        ("scheme s = complex3 (x) pairs", "E236", "pairs digits"),
        ("scheme s = complex3 (x) walk_444_mod2", "E236", "over Z/2"),
        ("scheme s = bini (x) complex3", "E236", "Q\\[lambda\\]"),
        ("scheme s = strassen (+m) complex3", "E236", "joins schemes of blocks"),
        ("scheme s = transpose(complex3)", "E236", "joins schemes of blocks"),
        ("scheme s <2,2,2;22> = complex3 (x) winograd", "E644", "<2,2,2;21>"),
        ("scheme s over Z/5 = complex3 (x) winograd", "E640", "not over Z/5"),
        ("schedule s of complex3\n  stage { C11 += A11 * B11 }", "E222", "complex numbers"),
    ],
)
def test_what_cannot_be_composed_is_told(text: str, code: str, told: str) -> None:
    with pytest.raises(BilinearError, match=f"(?s){code}.*{told}"):
        parse_source(Source("x.bl", text))


def test_algorithms_modulo_p_are_proved_but_do_not_run(tmp_path: Path) -> None:
    file = tmp_path / "complex2.bl"
    file.write_text(
        "scheme complex2 <1,1,1;2> over Z/5: of complex numbers\n  M1 = (A.re + 2 A.im) * (B.re + 2 B.im)\n"
        "  M2 = (A.re - 2 A.im) * (B.re - 2 B.im)\n  C.re = 3 M1 + 3 M2\n  C.im = 4 M1 - 4 M2\n"
    )
    with pytest.raises(BilinearError, match=r"E236.*over Z/5"):
        bilinear.matmul(gaussian(4, 4), gaussian(4, 4), algorithm=str(file))


def test_the_commands_take_them(shell: Shell, tmp_path: Path) -> None:
    status, out, err = shell("verify", "complex3 (x) winograd", "--levels", "2")
    assert status == 0 and not err
    assert "A in 4 x 4" in out and "147 real products" in out and "64 Brent equations of winograd" in out
    report = shell.json("verify", "complex4 (x) strassen")
    assert (report["verdict"], report["format"], report["rank"]) == ("proved", "<2,2,2;28>", 28)
    assert all(e["imaginary"] > e["four_products"] > 0 for e in report["errors"])
    assert shell("show", "complex3 (x) winograd")[1].rstrip().splitlines()[-2] == "scheme complex3_x_winograd = complex3 (x) winograd"
    (found,) = shell.json("run", "complex4 (x) winograd", "--shape", "33", "--dtype", "complex64", "--device", "cpu")
    assert found["passed"] and found["exact"] and found["error"] < found["allowance"]
    status, _, err = shell("run", "complex3 (x) winograd", "--shape", "8", "--device", "cpu")
    assert status == 1 and "E799" in err


def test_a_wrong_core_is_named_in_a_composition(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "own.bl"
    file.write_text(OWN.replace("M1 + M2", "M1 - M2"), encoding="utf-8")
    status, _, err = shell("verify", f"{file}:fast")
    assert status == 1 and "E350" in err and "gauss does not compute" in err
    with pytest.raises(BilinearError, match="E350"):
        bilinear.matmul(gaussian(4, 4), gaussian(4, 4), algorithm=f"{file}:fast", levels=1)


MODULO_5 = """scheme complex2 <1,1,1;2> over Z/5: of complex numbers
  M1 = (A.re + 2 A.im) * (B.re + 2 B.im)
  M2 = (A.re - 2 A.im) * (B.re - 2 B.im)
  C.re = 3 M1 + 3 M2
  C.im = 4 M1 - 4 M2
"""


def parsed(text: str) -> ComplexAlgorithm:
    (found,) = parse_source(Source("x.bl", text)).complexes
    return found


def test_the_shipped_files_are_what_runs() -> None:
    made = {"complex3": three_products(), "complex4": four_products()}
    assert [*shipped(COMPLEX)] == [*made] and not set(made) & set(shipped())
    for name, own in made.items():
        found = load_any(name)
        assert isinstance(found, LoadedComplex) and found.scheme.citation
        assert found.scheme.core.tables == own.tables and prove_map(found.scheme.core).holds


@pytest.mark.parametrize("text", [MODULO_5, *(path.read_text(encoding="utf-8") for path in shipped(COMPLEX).values())])
def test_a_printed_file_means_the_same(text: str) -> None:
    found = parsed(text)
    printed = print_complex(found)
    assert parsed(printed) == found and print_complex(parsed(printed)) == printed


def test_two_products_modulo_5_are_proved() -> None:
    """2 is a root of -1 there: a complex product is two products of residues."""
    core = parsed(MODULO_5).core
    assert prove_map(core).holds
    written, made = ([{i: residue(c, 5) for i, c in row} for table in each.tables for row in table] for each in (core, two_products(5, 2)))
    assert written == made
    assert not prove_map(parsed(MODULO_5.replace("2 B.im)\n  M2", "3 B.im)\n  M2")).core).holds


@each(
    ("text", "code", "told"),
    [
        ("scheme x <1,1,1;1>: of complex numbers\n  M1 = A.r * B.re\n  C.re = M1\n  C.im = M1", "E235", "'A.r'"),
        ("scheme x <1,1,1;1>: of complex numbers\n  M1 = A11 * B.re\n  C.re = M1\n  C.im = M1", "E235", "'A11'"),
        ("scheme x <2,2,2;1>: of complex numbers\n  M1 = A.re * B.re\n  C.re = M1\n  C.im = M1", "E237", "two numbers"),
        ("scheme x <1,1,1;1>: of complex numbers\n  M1 = A.re * B.re\n  C.re = M1", "E215", "C.im"),
        ("scheme x <1,1,1;1>: of complex numbers\n  M1: 1 0 | 1 0 | 1 0", "E237", "no table"),
        ("scheme x <1,1,1;1>: of complexes\n  M1 = A.re * B.re\n  C.re = M1", "E793", "of complex numbers"),
        (f"{MODULO_5}schedule s of complex2\n  stage {{ C11 += A11 * B11 }}", "E222", "complex numbers"),
    ],
)
def test_what_is_wrong_is_told(text: str, code: str, told: str) -> None:
    with pytest.raises(BilinearError) as raised:
        parse_source(Source("x.bl", text))
    assert code in [d.code for d in raised.value.diagnostics]
    assert told in str(raised.value)


def test_a_file_of_ones_own_is_proved_or_refused(tmp_path: Path, shell: Shell) -> None:
    text = shipped(COMPLEX)["complex3"].read_text(encoding="utf-8").replace("complex3", "gauss")
    (tmp_path / "gauss.bl").write_text(text.replace("M3 - M1 - M2", "M3 - M1 + M2"), encoding="utf-8")
    status, _, told = shell("verify", str(tmp_path / "gauss.bl"))
    assert status == 1 and "E350" in told and "A.im*B.im in C.im" in told
    (tmp_path / "gauss.bl").write_text(text, encoding="utf-8")
    status, printed, _ = shell("verify", str(tmp_path / "gauss.bl"))
    assert status == 0 and "gauss: proved" in printed and "5 additions" in printed


def test_they_are_no_algorithms_for_blocks() -> None:
    with pytest.raises(BilinearError, match=r"(?s)E566.*complex3 multiplies complex numbers.*winograd"):
        load("complex3")
    with pytest.raises(BilinearError, match="E799"):
        bilinear.matmul(np.ones((2, 2)), np.ones((2, 2)), algorithm="complex4")


def test_a_single_wrong_coefficient_is_named(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "z.bl"
    file.write_text(
        "scheme z <1,1,1;3>: of complex numbers\n  M1 = A.re * B.re\n  M2 = A.im * B.im\n  M3 = (A.re + A.im) * (B.re + B.im)\n"
        "  C.re = M1 - M2\n  C.im = M3 - M1\n"
    )
    status, _, err = shell("verify", str(file))
    assert status == 1 and "1 coefficient differs" in err and "A.im*B.im in C.im: found 1, needed 0" in err
