"""Algorithms for complex numbers in the language: the shipped files, what they print, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from shell import Shell

import bilinear
from bilinear.algebra.complex_products import four_products, three_products, two_products
from bilinear.errors import BilinearError
from bilinear.frontend import LoadedComplex, load, load_any, parse_source
from bilinear.frontend.files import shipped, shipped_complex
from bilinear.frontend.printer import print_complex
from bilinear.ir.complex_scheme import ComplexAlgorithm
from bilinear.ir.number import residue
from bilinear.source import Source
from bilinear.verify.bilinear_map import prove_map

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
    assert [*shipped_complex()] == [*made] and not set(made) & set(shipped())
    for name, own in made.items():
        found = load_any(name)
        assert isinstance(found, LoadedComplex) and found.scheme.citation
        assert found.scheme.core.tables == own.tables and prove_map(found.scheme.core).holds


@pytest.mark.parametrize("text", [MODULO_5, *(path.read_text(encoding="utf-8") for path in shipped_complex().values())])
def test_printed_text_means_the_same(text: str) -> None:
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


@pytest.mark.parametrize(
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
    text = shipped_complex()["complex3"].read_text(encoding="utf-8").replace("complex3", "gauss")
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
