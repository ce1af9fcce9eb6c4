"""The operations of A*A^T: the published recurrences, and the table of the page."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest
from gram_counts import by_halving, by_scheme, product

from bilinear.frontend import LoadedGram, load_any
from bilinear.ir.gram import GramScheme

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "gram.md"


def rxtx() -> GramScheme:
    found = load_any("rxtx")
    assert isinstance(found, LoadedGram)
    return found.scheme


@pytest.mark.parametrize("levels", range(1, 6))
def test_multiplications_follow_the_recurrences(levels: int) -> None:
    """Rybin, Zhang, Luo (2025), table 1: 26 M(n/4) + 8 R(n/4) and 4 S(n/2) + 2 M(n/2), above triangles of one block."""
    n = 4**levels
    halves, schemes = [Fraction(1, 2)], [Fraction(1, 2)]
    for level in range(2 * levels):
        halves.append(4 * halves[-1] + 2 * 7**level)
    for level in range(levels):
        schemes.append(8 * schemes[-1] + 26 * 49**level)
    assert product(n, n, n).multiplications == 49**levels
    assert by_scheme(rxtx(), n, n).multiplications == schemes[-1]
    assert by_halving(n, n).multiplications == halves[-1]
    assert halves[1] == 4 and halves[2] == schemes[1] == 30, "one level of the scheme saves nothing beside two halvings"
    for found, limit, rest in ((schemes[-1], Fraction(26, 41), 8**levels), (halves[-1], Fraction(2, 3), 16**levels)):
        assert found - limit * 49**levels == (Fraction(1, 2) - limit) * rest


def test_the_page_has_these_counts() -> None:
    rows = re.findall(r"^\| (\d+) \| ([0-9.]+) \| ([0-9.]+) \| ([0-9.]+) \| ([0-9.]+) \|$", PAGE.read_text(), re.MULTILINE)
    assert [int(row[0]) for row in rows] == [4, 16, 64, 256]
    for blocks, *told in rows:
        n = int(blocks)
        halved, schemed = by_halving(n, n), by_scheme(rxtx(), n, n)
        ratios = [x.multiplications / Fraction(n**3, 2) for x in (halved, schemed)] + [x.additions / n**2 for x in (halved, schemed)]
        assert [f"{float(r):.3f}" for r in ratios[:2]] + [f"{float(r):.1f}" for r in ratios[2:]] == told
