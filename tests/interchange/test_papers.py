"""Formulas pasted as papers print them, and as they come out of a PDF: proved, or refused at the character that cannot be read."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from foreign import U, V
from oracle import scheme_computes
from typer.testing import CliRunner

from bilinear.cli.app import app
from bilinear.errors import BilinearError
from bilinear.frontend import load, load_shipped
from bilinear.interchange.importing import import_scheme

STRASSEN = """\
M1 = (A11 + A22)(B11 + B22)
M2 = (A21 + A22)B11
M3 = A11(B12 - B22)
M4 = A22(B21 - B11)
M5 = (A11 + A12)B22
M6 = (A21 - A11)(B11 + B12)
M7 = (A12 - A22)(B21 + B22)
C11 = M1 + M4 - M5 + M7
C12 = M3 + M5
C21 = M2 + M4
C22 = M1 - M2 + M3 + M6
"""
WINOGRAD = r"""
\begin{array}{lll}
S_1 = A_{2,1} + A_{2,2} & M_1 = S_2 T_2 & U_1 = M_1 + M_2 \\
S_2 = S_1 - A_{1,1} & M_2 = A_{1,1} \times B_{1,1} & U_2 = U_1 + M_4 \\
T_1 = B_{1,2} - B_{1,1} & M_3 = A_{1,2} \times B_{2,1} & C_{1,1} = M_2 + M_3 \\
T_2 = B_{2,2} - T_1 & M_4 = (A_{1,1} - A_{2,1}) (B_{2,2} - B_{1,2}) & C_{1,2} = U_1 + M_5 + M_6 \\
 & M_5 = S_1 T_1 & C_{2,1} = U_2 - M_7 \\
 & M_6 = \left( A_{1,2} - S_2 \right) \cdot B_{2,2} & C_{2,2} = U_2 + M_5 \\
 & M_7 = A_{2,2} \, (T_2 - B_{2,1}) \tag{3.1}
\end{array}
"""
ROMAN = ("", "I", "II", "III", "IV", "V", "VI", "VII")


def each(pattern: str, becomes: str | Callable[[re.Match[str]], str]) -> str:
    return re.sub(pattern, becomes, STRASSEN)


def in_latex() -> str:
    rows = each(r"([ABC])(\d)(\d)", r"\\mathbf{\1}_{\2\3}").replace("M", "M_").replace(" = ", " &= ").replace("\n", ", \\\\\n")
    return f"The seven products are\n\\begin{{align}}\n{rows}\\end{{align}}\nwhere $n = 2$ and $C_{{ij}}$ denotes a block.\n"


def in_columns() -> str:
    """As `pdftotext -layout` lays out a table of two columns."""
    lines = STRASSEN.replace("-", "\u2212").splitlines()
    return "".join(f"{left:40}{right}\n" for left, right in zip(lines[:7], [*lines[7:], "", "", ""], strict=True))


def with_indices_below() -> str:
    """As `pdftotext -layout` prints low indices: the letters of a line, and below them the numbers."""
    pairs = []
    for line in STRASSEN.splitlines():
        pairs += [re.sub(r"([A-Z])\d+", r"\1  ", line), "".join(c if c.isdigit() else " " for c in line), ""]
    return "\n".join(pairs)


def in_place() -> str:
    """Blocks numbered from 0, and products added to those of C."""
    text, added = each(r"([AB])(\d)(\d)", lambda m: f"{m[1]}_{2 * int(m[2]) + int(m[3]) - 3}"), ""
    for line in text.splitlines()[7:]:
        block = f"C_{2 * int(line[1]) + int(line[2]) - 3}"
        added += "".join(f"{block} {sign or '+'}= {product}; " for sign, product in re.findall(r"([+-]?) ?(M\d)", line[5:]))
    return "".join(text.splitlines(keepends=True)[:7]) + added


PASTED: dict[str, str] = {
    "minus": STRASSEN.replace("-", "\u2212").replace(")(", ") \u00b7 (").replace(")B", ") \u00d7 B").replace("1(", "1\u22c5("),
    "lower": STRASSEN.lower().replace("\n", ",\n"),
    "roman": each(r"M(\d)", lambda m: ROMAN[int(m[1])]).replace("-", "\u2013").replace("\n", ".\n"),
    "latex": in_latex(),
    "winograd": WINOGRAD,
    "indices": each(r"([ABC])(\d)(\d)", lambda m: f"{m[1].lower()}_{m[2]}{m[3]}" if m[1] == "A" else f"{m[1].lower()}_{{{m[2]},{m[3]}}}"),
    "unicode": STRASSEN.translate({ord("A"): 0x1D434, ord("B"): 0x1D435, **{48 + i: 0x2080 + i for i in range(10)}}),
    "words": "3.1 The e\ufb03cient products\n\n"
    + STRASSEN.replace("C11", "(5)\n\nand so, with N = 2k, the blocks of C are\nC11")
    + "\n\f12\n",
    "commas": each(r"([ABC])(\d)(\d)", r"\1\2, \3").replace("M1 +", "M 1 +").replace("+ B2, 2)\n", "+ B2, 2)    (1)\n", 1),
    "columns": in_columns(),
    "below": with_indices_below(),
    "in place": in_place(),
}
"""Strassen's scheme, or Winograd's, in the styles of papers."""


@pytest.mark.parametrize("style", PASTED)
def test_what_is_pasted_is_proved(tmp_path: Path, style: str) -> None:
    (tmp_path / "paper.txt").write_text(PASTED[style], encoding="utf-8")
    found = import_scheme(tmp_path / "paper.txt")
    assert found.scheme.format == "<2,2,2;7>" and scheme_computes(found.scheme)
    assert found.scheme.additions == (15 if style == "winograd" else 18)
    tables = [[[dict(row).get(i, 0) for i in range(4)] for row in linear.matrix] for linear in (found.scheme.u, found.scheme.v)]
    assert style == "winograd" or tables == [U, V]
    products = {"roman": ROMAN[1:], "lower": ("m1", "m7"), "latex": ("M_1", "M_7"), "winograd": ("M_1", "M_7")}.get(style, ("M1", "M7"))
    assert (found.scheme.products[0], found.scheme.products[-1]) == (products[0], products[-1])
    read = {"latex": "lines 1, 15: words", "words": "lines 1, 12: words"}
    assert [told.partition(", which")[0] for told in found.found] == ([read[style]] if style in read else [])


@pytest.mark.parametrize("style", PASTED)
def test_what_cannot_be_read_is_pointed_at(tmp_path: Path, style: str) -> None:
    """Each sign + of a text in turn becomes one that no formula has."""
    text = PASTED[style]
    for place in [match.start() for match in re.finditer(r"\+(?!=)", text)]:
        (tmp_path / "paper.txt").write_text(f"{text[:place]}?{text[place + 1 :]}", encoding="utf-8")
        with pytest.raises(BilinearError) as caught:
            import_scheme(tmp_path / "paper.txt", format="formulas")
        (diagnostic,) = caught.value.diagnostics
        assert diagnostic.code == "E252" and diagnostic.span is not None
        assert (diagnostic.span.start, diagnostic.span.source.text[diagnostic.span.start]) == (place, "?")


def test_ladermans_scheme_of_rows_that_wrap(tmp_path: Path) -> None:
    """Its products in lower case, with indices that a copy has parted from their letters, in lines of 40 signs."""
    scheme = load_shipped("laderman").scheme

    def total(letter: str, row: tuple[tuple[int, object], ...], parted: str) -> str:
        names = [letter + parted + (f"{i // 3 + 1}{i % 3 + 1}" if letter in "ab" else f"{i + 1}") for i, _ in row]
        signs = ["\u2212" if c == -1 else "+" for _, c in row]
        return "".join(f" {sign} {name}" for sign, name in zip(signs, names, strict=True)).removeprefix(" + ")

    rows = zip(scheme.u.matrix, scheme.v.matrix, strict=True)
    lines = [f"m {p + 1} = ({total('a', u, ' ')})({total('b', v, '')})" for p, (u, v) in enumerate(rows)]
    lines += [f"c{i // 3 + 1}{i % 3 + 1} = {total('m', row, ' ')}" for i, row in enumerate(scheme.w.matrix)]
    text = "\n".join(re.sub(r"(.{40,}?) (?=[+\u2212])", r"\1\n    ", line) for line in lines)
    (tmp_path / "laderman.txt").write_text(text, encoding="utf-8")
    assert import_scheme(tmp_path / "laderman.txt").scheme.tables == scheme.tables


@pytest.mark.parametrize(
    ("text", "place", "told"),
    [
        ("I = (A + A )(B + B )\nII = (A + A )B\nC = I + II\n", (1, 6), "'A' is not known here.*has its row and column"),
        ("I = (All + A22)(B11 + B22)\nC11 = I\n", (1, 6), "'All' is not known here"),
        ("m1 = (x11 + x22)(b11 + b22)\nm2 = a11*b11\nc11 = m1\n", (1, 7), "'x11' is not known here"),
        ("C11 = A11 B11\nM1 = A11 B11\nC11 = M1\n", (3, 1), "C11 is computed twice"),
        ("M1 = \\sqrt{2} A_{11} B_{11}\nC_{11} = M1\n", (1, 6), "a number or a name is missing"),
        ("S1 = S2 + A11\nS2 = S1 + A11\nM1 = S2 B11\nC11 = M1\n", (1, 1), "S1 depends on itself"),
        ("M1 = A11 B11\nA12 B21\nC11 = M1\n", (2, 8), "two values are multiplied"),
        ("M1 = A11 B11.\nA12 + B21\nC11 = M1\n", (2, 1), "this is not a formula"),
        ("M1 = A11 B11\nM2 += A12 B21\nC11 = M1 + M2\n", (2, 1), "M2 has no sum to add to"),
    ],
)
def test_what_is_no_formula_is_refused_where_it_is(tmp_path: Path, text: str, place: tuple[int, int], told: str) -> None:
    (tmp_path / "paper.txt").write_text(text, encoding="utf-8")
    with pytest.raises(BilinearError, match=rf"(?s){told}") as caught:
        import_scheme(tmp_path / "paper.txt", format="formulas")
    span = caught.value.diagnostics[0].span
    assert span is not None and (span.line, span.column) == place


def test_a_new_scheme_is_begun_with_a_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("paper.txt").write_text(WINOGRAD)
    assert CliRunner().invoke(app, ["new", "mine", "--from", "paper.txt"]).exit_code == 0
    scheme = load("mine.bl").scheme
    assert scheme.name == "mine" and scheme.additions == 15 and scheme_computes(scheme)
    Path("paper.txt").write_text(WINOGRAD.replace("U_2 + M_5", "U_2 - M_5"))
    for line in ("wrong --from paper.txt", "wrong 2 --from paper.txt", "wrong --from paper.txt --rank 7", "wrong"):
        error = CliRunner().invoke(app, ["new", *line.split()]).exception
        assert isinstance(error, BilinearError) and error.diagnostics[0].code == (
            "E356" if line.endswith("txt") and "2" not in line else "E507"
        )
    assert [path.name for path in tmp_path.glob("*.bl")] == ["mine.bl"]
