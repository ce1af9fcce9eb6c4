"""The shipped digits: what each file says of itself, how it prints, and that it is not an algorithm for blocks."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import product
from math import gcd
from pathlib import Path

import pytest
from digit_unit import digits
from each_case import each
from shell import Shell

from bilinear import matmul
from bilinear.errors import BilinearError
from bilinear.frontend import LoadedDigits, load, load_any, load_shipped, parse_source
from bilinear.frontend.files import DIGITS, Looks, shipped
from bilinear.frontend.printer import print_digits
from bilinear.ir.digits import DigitScheme, Representation, largest_moduli
from bilinear.ir.element import FLOAT32, FLOAT64, KNOWN
from bilinear.source import Source
from bilinear.verify.digits import prove_digits

ROOT = Path(__file__).parents[2]
NAMES = sorted(shipped(DIGITS))


def test_pairs_triples_and_residues_are_shipped() -> None:
    residues = [f"residues{n}" for n in (13, 14, 15, 16, 17, 7, 8, 9)]
    gaussian = [f"gaussian{n}" for n in (14, 15, 16, 17, 7, 8, 9)]
    assert [*NAMES] == [*gaussian, "pairs", *residues, "triples"] and not set(NAMES) & set(shipped())


@each("name", NAMES)
def test_a_file_is_proved_and_is_what_its_comment_says(name: str) -> None:
    scheme, text = digits(name), shipped(DIGITS)[name].read_text(encoding="utf-8")
    r = scheme.representation
    assert prove_digits(scheme).holds and scheme.name == name and scheme.citation
    assert text.startswith(f"# A {r.numbers}") and re.search(rf"\b({scheme.rank}|three|six) products", " ".join(text.split()))
    assert name in (ROOT / "docs" / "digits.md").read_text(encoding="utf-8")
    assert f"digits/{name}.bl" in (ROOT / "docs" / "digits.md").read_text(encoding="utf-8")


def test_moduli_are_the_largest_that_are_coprime() -> None:
    """No modulus can be exchanged for a larger number up to 256 without sharing a factor with those before it."""
    moduli = largest_moduli(17)
    for i, p in enumerate(moduli):
        largest = next(q for q in range(256, 1, -1) if q not in moduli[:i] and all(gcd(q, other) == 1 for other in moduli[:i]))
        assert p == largest
    assert all(digits(name).representation.moduli == moduli[: digits(name).rank] for name in NAMES if name.startswith("residues"))


@each("name", [*NAMES, "winograd (x) pairs", "strassen (x) residues8 (x) strassen", "residues9 (x) laderman"])
def test_printed_text_means_the_same(name: str) -> None:
    scheme = digits(name)
    text = print_digits(scheme)
    assert parse_source(Source("x.bl", text)).digits[-1] == scheme
    assert print_digits(parse_source(Source("x.bl", text)).digits[-1]) == text


def test_other_digits_print_too() -> None:
    text = """digits d of float32: bfloat16 x 4, lambda = 2^-8, truncated, unscaled
  source "nobody"
scheme s <1,1,1;2> over d
  source "somebody"
  S1 = A.d0 + A.d3
  M1 = S1 * B.d0
  M2 = A.d1 * (B.d0 + [1-lambda^-1] B.d2)
  U1 = M1 + M2
  C = [lambda^2] U1
scheme t = s
"""
    schemes = parse_source(Source("x.bl", text)).digits
    assert [scheme.name for scheme in schemes] == ["s", "t"]
    assert print_digits(schemes[0]) == text.removesuffix("scheme t = s\n")
    assert parse_source(Source("x.bl", print_digits(schemes[1]))).digits[1] == schemes[1]


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_every_declaration_is_read_as_it_is_printed(name: str) -> None:
    either = (True, False)
    for count, (scaled, shifted, rounded) in product((1, 2, 3, 4), product(either, either, either)):
        if name == "bfloat16" and scaled:
            continue
        bits = KNOWN[name].significand if count > 1 else 0
        written = Representation("d", FLOAT32, KNOWN[name], count, Fraction(1, 2**bits), (), scaled, shifted or count == 1, rounded)
        text = f"{written}\nscheme s <1,1,1;1> over d\n  C = A.{written.digits[0]} * B.{written.digits[-1]}\n"
        assert parse_source(Source("x.bl", text)).digits[0].representation == written
    for count, scaled, rounded in product((1, 2, 17, 32), (True, False), (True, False)):
        known = Representation("d", FLOAT64, None, count, moduli=largest_moduli(count), scaled=scaled, rounded=rounded)
        assert parse_source(Source("x.bl", str(known))).digits[0].representation == known


def test_two_schemes_of_one_name_cannot_be_printed(tmp_path: Path) -> None:
    (tmp_path / "strassen.bl").write_text("scheme strassen <1,1,1;1>\n  C11 = A11 * B11\n", encoding="utf-8")
    file = tmp_path / "both.bl"
    file.write_text('scheme both = "strassen.bl" (x) residues8 (x) strassen\n', encoding="utf-8")
    same = digits(str(file))
    print_digits(same)
    other = load_shipped("strassen").scheme
    with pytest.raises(BilinearError, match="E241"):
        print_digits(DigitScheme("both", same.representation, same.core, same.above, other))


def test_a_file_of_the_working_folder_composes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.bl").write_text("scheme mine = strassen (x) pairs\n", encoding="utf-8")
    looks = Looks()
    found = load_any("laderman (x) mine", looks)
    assert found.scheme.format == "<6,6,6;483>" if isinstance(found, LoadedDigits) else False
    assert looks.still_hold()
    Path("mine.bl").write_text("scheme mine = strassen (x) triples\n", encoding="utf-8")
    assert not looks.still_hold() and digits("mine").rank == 42


@pytest.mark.parametrize("asked", ["pairs", "residues15", "winograd (x) pairs"])
def test_digits_are_no_algorithm_for_blocks(asked: str, shell: Shell) -> None:
    message = "multiplies digits of float(32|64), and is not an algorithm for blocks of matrices"
    with pytest.raises(BilinearError, match=message) as raised:
        load(asked)
    name = raised.value.diagnostics[0].message.split()[0]
    assert [d.code for d in raised.value.diagnostics] == ["E566"]
    assert raised.value.diagnostics[0].hints == (
        f"bilinear verify {name} proves it and gives its errors",
        "an algorithm for blocks is, for example, winograd",
    )
    with pytest.raises(BilinearError, match="E566"):
        matmul([[1.0]], [[1.0]], algorithm=asked)
    status, _, told = shell("compile", asked)
    assert status == 1 and "E566" in told and not list(Path().iterdir())


def test_pages_show_digits_that_parse() -> None:
    text = (ROOT / "docs" / "digits.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```bl\n((?:.*\n)*?)```", text, re.MULTILINE)
    found = parse_source(Source("x.bl", "".join(examples))).digits
    assert {scheme.name for scheme in found} == {"residues15", "pairs"} and all(prove_digits(scheme).holds for scheme in found)
    for expression, form in re.findall(r"^\| `([^`]*\(x\)[^`]*)` \| `(<[^`]*>)`", text, re.MULTILINE):
        assert digits(expression).format == form
